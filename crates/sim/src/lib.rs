//! A discrete-event simulator that drives Falkon's own logic.
//!
//! Dispatchers and executors are the production state machines of
//! `falkon-core`, and every message between them goes through the production
//! codec of `falkon-wire`. What is simulated is the rest of the world: clocks,
//! connections, processors, processes, and their faults. There is no second
//! scheduler.
//!
//! A run is a pure function of a [`Scenario`] and a seed: nothing here reads a
//! clock or a random source, starts a thread, or depends on hash order. The
//! same seed gives the same run, event by event ([`Figures::trace`]).

mod event_queue;
mod figures;
mod flow;
mod ledger;
mod rng;
mod scenario;
mod time;
mod world;

pub use falkon_core::data::cache::Eviction;
pub use falkon_core::dispatch::diffusion::{PolicyError, PolicyName, PolicyOptions};
pub use falkon_core::provision::{AcquireName, OptionsError, QueueOptions, ReleaseName};
pub use figures::{Count, Disks, Distribution, Figures, Provisioned, Sample};
pub use scenario::{
    Arrivals, Choice, ClientCosts, Disk, DispatcherCosts, Durations, ExecutorCosts, Faults, Inputs,
    Lists, Lrm, Memory, Needs, Network, NodeCache, NodeGroup, Outputs, Provision, Recorded,
    RecordedObject, Relays, Reserved, Scenario, ScenarioError, Stage, Store, TaskKind, Wide,
    Workload,
};
pub use time::Nanos;
pub use world::{Act, SimError, Standing, Unfinished, run, run_recorded, run_watched};
