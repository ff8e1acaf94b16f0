//! What would be asked for now, and why, without asking for it.

use super::{QueueId, Reason};
use crate::task::Time;

/// What a provisioner would do now, and what keeps it from doing it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// One line for each queue, in the order in which they are asked.
    pub queues: Vec<PlanLine>,
}

/// What would be done with one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanLine {
    /// Which queue.
    pub queue: QueueId,
    /// Nodes of each request that would be made.
    pub requests: Vec<u64>,
    /// Why; `None` if nothing is wanted of it.
    pub reason: Option<Reason>,
    /// Tasks that wait and that nobody can serve, this queue included, and what
    /// is wrong with it for them.
    pub unserved: Option<(u64, Reason)>,
    /// Nothing is asked of it before then, though something is wanted.
    pub not_before: Option<Time>,
    /// It is paused, by somebody or after refusals.
    pub is_paused: bool,
    /// Executors that would be released.
    pub releases: u64,
}
