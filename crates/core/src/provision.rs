//! The provisioner: executors from batch schedulers, as demand asks
//! (falkon-sc07 §3.1 and §4.5; data-diffusion §5.2; loosely-coupled §III.B).
//!
//! It decides how many nodes are asked for, of which queue, and when they are
//! given back. How a local resource manager (LRM) is spoken to is the shell's
//! business: an LRM is anything that takes a request for nodes, can be asked
//! what became of all requests, and can be told to end one.
//!
//! # The pump
//! Call [`Provisioner::handle`] for each event, in order, then
//! [`Provisioner::poll_action`] until it gives `None`, then wait until
//! [`Provisioner::poll_timeout`] or the next event.
//!
//! What the dispatcher knows of demand and executors becomes events through
//! [`Watch`]: the shell and the simulator call [`Watch::look`] when
//! [`Watch::due`] says so.
//!
//! # Allocations and orphans
//! One allocation is one job of the LRM: so many nodes, an executor on each.
//! Its [`AllocationId`] is given before the LRM is asked, and travels in the
//! job's name together with something that names the dispatcher. An answer to
//! a query lists *all* jobs with the dispatcher's name in them, so that what
//! was submitted before a crash, or under a request whose answer was lost, is
//! found again. Nothing is asked of a queue before it was queried once.

mod decision;
mod event;
pub mod limits;
mod options;
mod plan;
mod watch;

pub use crate::task::AllocationId;
pub use decision::{Decision, Reason, Verdict};
pub use event::{Action, Demand, Durations, Event, Found, JobState, QueueId, Submitted, Waiting};
pub use options::{AcquireName, OptionsError, QueueOptions, ReleaseName};
pub use plan::{Plan, PlanLine};
pub use watch::Watch;
