//! The dispatcher's and the executor's machines, proved: random schedules
//! with faults against a reference model, equivalences, hostile peers, cost.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod attempts;
mod client;
mod cost;
mod diffusion;
mod disk;
mod equivalence;
mod extremes;
mod fairness;
mod fates;
mod faults;
mod files;
mod floor;
mod gangs;
mod hostile;
mod losses;
mod node;
mod placing;
mod queue;
mod rng;
mod sets;
mod speculation;
mod states;
mod users;
mod workload;
mod world;
