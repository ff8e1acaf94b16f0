//! The provisioner against schedulers that refuse, delay, kill, lie and go
//! away: bounds are kept, nothing is forgotten, and all work gets done.

mod durations;
mod jobs;
#[allow(dead_code, reason = "other tests need more of it")]
#[path = "../machines/rng.rs"]
mod rng;
mod schedules;
mod steps;
mod strangers;
mod told;
mod waits;
mod world;
