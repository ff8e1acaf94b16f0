//! What was decided and why, as data; its text is what the log shows.

use super::QueueId;
use crate::task::{AllocationId, Resources, Time};
use std::fmt;

/// A decision, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// When.
    pub at: Time,
    /// About which queue.
    pub queue: QueueId,
    /// What was decided, or has turned out.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
}

/// What was decided, or has turned out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nodes are asked for.
    Ask {
        /// Under this number.
        allocation: AllocationId,
        /// How many.
        nodes: u64,
        /// For how long; 0 is the LRM's own.
        walltime_micros: u64,
    },
    /// Executors are released.
    Release {
        /// Of which allocation.
        allocation: AllocationId,
        /// How many.
        executors: u64,
    },
    /// An allocation is cancelled.
    Cancel {
        /// The allocation.
        allocation: AllocationId,
    },
    /// An allocation was found that this provisioner did not ask for.
    Adopt {
        /// The allocation.
        allocation: AllocationId,
    },
    /// The LRM has started an allocation, or its first executor has joined.
    Started {
        /// The allocation.
        allocation: AllocationId,
        /// How long it took since it was asked for.
        delay_micros: u64,
    },
    /// An allocation is over.
    Ended {
        /// The allocation.
        allocation: AllocationId,
    },
    /// Nothing is asked of the queue until then.
    Wait {
        /// When it is tried again.
        until: Time,
    },
    /// Nothing is asked of the queue until somebody resumes it.
    Pause,
    /// The queue is asked again.
    Resume,
    /// Tasks wait that neither this queue nor any other, nor any executor that
    /// is there, can serve.
    Unserved {
        /// How many.
        tasks: u64,
    },
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Tasks wait.
    Demand {
        /// Tasks that wait.
        queued: u64,
        /// Nodes that are wanted for all there is to do.
        wanted: u64,
        /// Nodes that are there, asked for or waited for.
        held: u64,
    },
    /// Tasks are expected that are not there yet.
    Expected {
        /// How many.
        tasks: u64,
        /// When.
        at: Time,
        /// Nodes that are wanted for them.
        wanted: u64,
        /// Nodes that are there, asked for or waited for.
        held: u64,
    },
    /// Fewer nodes are there than the queue's least number.
    Minimum {
        /// That number.
        executors_min: u64,
    },
    /// Somebody asked for it.
    Asked,
    /// It has been idle for that long.
    Idle {
        /// How long.
        micros: u64,
    },
    /// No task is queued.
    NoQueued,
    /// Fewer tasks are queued than that.
    FewQueued {
        /// Tasks that are.
        queued: u64,
        /// The bound.
        below: u64,
    },
    /// Holding it on costs more than getting it again.
    Dearer {
        /// Node time that is lost by holding it until it is needed.
        hold_micros: u64,
        /// Node time that is lost by getting it again.
        again_micros: u64,
    },
    /// Nothing waits for it any more.
    NotNeeded,
    /// More executors are there than the queue may have.
    TooMany,
    /// The queue is being removed.
    Removing,
    /// Its executors have left, or never came, and it has not ended.
    Lingers,
    /// The LRM refused.
    Refused {
        /// How often in a row.
        times: u32,
        /// What the LRM said.
        words: String,
    },
    /// The LRM could not be queried.
    QueryFailed {
        /// How often in a row.
        times: u32,
        /// What the LRM said.
        words: String,
    },
    /// The request waits for more nodes than there are.
    MoreThanThereIs {
        /// Nodes of the request.
        nodes: u64,
        /// Nodes that one may have.
        most: u64,
    },
    /// The LRM says that it can never start.
    NeverStarts {
        /// Nodes of the request.
        nodes: u64,
        /// What the LRM said.
        words: String,
    },
    /// Somebody holds it, and has for so long.
    Held {
        /// How long.
        micros: u64,
        /// What the LRM said.
        words: String,
    },
    /// The allocation was given up, and is to end.
    Returned,
    /// Allocations are not known to the LRM any more before any executor joins.
    Vanished {
        /// How many in a row.
        times: u32,
    },
    /// Allocations end before any executor joins.
    Barren {
        /// How many in a row.
        times: u32,
    },
    /// They are expected to run for longer than executors stay.
    TooLong {
        /// How long, in microseconds.
        estimate_micros: u64,
        /// How long executors stay.
        stay_micros: u64,
    },
    /// They need more than a node offers.
    TooLarge {
        /// What they need.
        need: Resources,
        /// What a node offers, or is taken to offer until one has come.
        node: Resources,
    },
    /// Each runs on more nodes together than a request may be for.
    TooWide {
        /// How many.
        nodes: u64,
        /// The most there may be.
        nodes_max: u64,
    },
    /// The LRM says so.
    Lrm,
    /// The LRM does not know it (any more).
    Missing,
}

/// Seconds with a digit after the point, for people.
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Ask { allocation, nodes, walltime_micros: 0 } => {
                write!(f, "allocation {allocation}: ask for {nodes} nodes")
            }
            Verdict::Ask { allocation, nodes, walltime_micros } => {
                let time = seconds(*walltime_micros);
                write!(f, "allocation {allocation}: ask for {nodes} nodes for {time:.0} s")
            }
            Verdict::Release { allocation, executors } => {
                write!(f, "allocation {allocation}: release {executors} executors")
            }
            Verdict::Cancel { allocation } => write!(f, "allocation {allocation}: cancel it"),
            Verdict::Adopt { allocation } => write!(f, "allocation {allocation}: found again"),
            Verdict::Started { allocation, delay_micros } => {
                let delay = seconds(*delay_micros);
                write!(f, "allocation {allocation}: started after {delay:.1} s")
            }
            Verdict::Ended { allocation } => write!(f, "allocation {allocation}: ended"),
            Verdict::Wait { .. } => write!(f, "ask for nothing for a while"),
            Verdict::Pause => write!(f, "paused until it is resumed"),
            Verdict::Resume => write!(f, "resumed"),
            Verdict::Unserved { tasks: 1 } => write!(f, "cannot serve a task that waits"),
            Verdict::Unserved { tasks } => write!(f, "cannot serve {tasks} tasks that wait"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Demand { queued, wanted, held } => {
                write!(f, "{queued} tasks wait; {wanted} nodes are wanted, {held} held")
            }
            Reason::Expected { tasks, wanted, held, .. } => {
                write!(f, "{tasks} tasks are expected; {wanted} nodes are wanted, {held} held")
            }
            Reason::Minimum { executors_min } => {
                write!(f, "at least {executors_min} are to be held")
            }
            Reason::Asked => write!(f, "asked for"),
            Reason::Idle { micros } => write!(f, "idle for {:.1} s", seconds(*micros)),
            Reason::NoQueued => write!(f, "no task is queued"),
            Reason::FewQueued { queued, below } => {
                write!(f, "{queued} tasks are queued, fewer than {below}")
            }
            Reason::Dearer { hold_micros, again_micros } => write!(
                f,
                "holding costs {:.1} node seconds, getting them again {:.1}",
                seconds(*hold_micros),
                seconds(*again_micros)
            ),
            Reason::NotNeeded => write!(f, "nothing waits for it any more"),
            Reason::TooMany => write!(f, "there are more executors than the queue may have"),
            Reason::Removing => write!(f, "the queue is being removed"),
            Reason::Lingers => {
                write!(f, "its executors have left or never came, and it has not ended")
            }
            Reason::Refused { times, words } => {
                write!(f, "refused {times} times in a row: {}", words.trim())
            }
            Reason::QueryFailed { times, words } => {
                write!(f, "{times} queries in a row failed: {}", words.trim())
            }
            Reason::MoreThanThereIs { nodes, most } => {
                write!(f, "it waits for {nodes} nodes, and a job can have {most}")
            }
            Reason::NeverStarts { nodes, words } => {
                write!(f, "with {nodes} nodes it can never start: {}", words.trim())
            }
            Reason::Held { micros, words } => {
                write!(f, "held for {:.0} s: {}", seconds(*micros), words.trim())
            }
            Reason::Returned => write!(f, "it was given up, and is there again"),
            Reason::Vanished { times } => write!(
                f,
                "{times} allocations in a row were not known to the scheduler any more before any \
                 executor of theirs had joined"
            ),
            Reason::Barren { times } => write!(
                f,
                "{times} allocations in a row ended before any executor of theirs had joined"
            ),
            Reason::TooLong { estimate_micros, stay_micros } => write!(
                f,
                "expected to run for {:.0} s, and executors stay for {:.0} s: choose a longer \
                 walltime",
                seconds(*estimate_micros),
                seconds(*stay_micros)
            ),
            Reason::TooLarge { need, node } => {
                write!(f, "{need} are needed, and a node has {node}")
            }
            Reason::TooWide { nodes, nodes_max } => write!(
                f,
                "each runs on {nodes} nodes together, and a request is for {nodes_max} at most: \
                 allow more"
            ),
            Reason::Lrm => write!(f, "the scheduler says so"),
            Reason::Missing => write!(f, "the scheduler does not know it"),
        }
    }
}
