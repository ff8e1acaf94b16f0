//! The tasks of a node: those that run, and those that wait for another's end, or for the disk.

use crate::time::Nanos;
use crate::world::transfer::TransferId;
use falkon_core::execute::{Start, TaskKey};
use falkon_core::result::Outcome;

/// A task that holds a slot.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) key: TaskKey,
    /// Its number at its client.
    pub(super) task: u64,
    /// It has its slot from then on.
    pub(super) started: Nanos,
    /// Unknown while it reads.
    pub(super) ends: Nanos,
    /// How long it computes.
    pub(super) run: Nanos,
    pub(super) outcome: Outcome,
    /// The object that it reads from its node's cache; `None` if it reads the store.
    pub(super) own: Option<Vec<u64>>,
    /// How many of its inputs it has read, or begun to.
    pub(super) read: u32,
    pub(super) reading: Option<TransferId>,
    /// It has computed, and its output is where it is to go.
    pub(super) has_put: bool,
    /// The CPUs that it has on this node, in thousandths.
    pub(super) cpus_milli: u32,
}

/// The end of a process that still reads.
pub(super) const NOT_YET: Nanos = Nanos(u64::MAX);

/// A task that is to start when another ends: its directory is there already.
#[derive(Debug)]
pub(super) struct Waits {
    pub(super) before: TaskKey,
    pub(super) start: Start,
    /// No file of it had vanished.
    pub(super) has_inputs: bool,
}

/// A task whose start waits for the disk.
#[derive(Debug)]
pub(super) struct Stuck {
    pub(super) start: Start,
    /// When the disk is given up.
    pub(super) limit: Nanos,
    /// When it is looked at again.
    pub(super) until: Nanos,
}
