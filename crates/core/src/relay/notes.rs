//! What a relay that is started again knows of the time before.

use crate::dispatch::Held;
use crate::task::InstanceId;

/// A line in what a relay must remember.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// The relay's identity: the incarnation that it registers with.
    Identity(u64),
    /// The number of the dispatcher above, in halves: tasks of another one would be
    /// taken for its own.
    Upstream {
        /// The upper half.
        high: u64,
        /// The lower half.
        low: u64,
    },
    /// Its instance below.
    Instance(InstanceId),
    /// Tasks from above are about to be submitted.
    Sent {
        /// The number of the first of them below.
        below: u64,
        /// The tasks.
        held: Held,
    },
    /// The results of these tasks have been passed on, or nobody wants them: they
    /// are about to be acknowledged below.
    Gone {
        /// The number of the first of them below.
        below: u64,
        /// How many.
        count: u64,
    },
    /// What the numbers of long output begin with, that tasks of the instance below have left
    /// there.
    Salt(u64),
    /// Executors below keep such output, and the dispatcher above knows of it.
    Kept {
        /// The first number.
        first: u64,
        /// How many.
        count: u64,
    },
    /// The dispatcher above needs it no more.
    Released {
        /// The first number.
        first: u64,
        /// How many.
        count: u64,
    },
}
