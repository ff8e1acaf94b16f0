//! The provisioner against schedulers that refuse, delay, kill, lie and go
//! away: bounds are kept, nothing is forgotten, and all work gets done.

mod rng;
mod schedules;
mod steps;
mod world;
