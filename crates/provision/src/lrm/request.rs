//! A request to an LRM.

use std::time::Duration;

/// A request for the nodes of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The allocation's number; it travels in the job's name.
    pub allocation: u64,
    /// Nodes, an executor on each.
    pub nodes: u64,
    /// For how long; `None` leaves it to the LRM.
    pub walltime: Option<Duration>,
}
