//! What a queue is like and how it is used.

use super::limits::{LEAVE_BEFORE_MICROS_MAX, QUERY_MICROS, QUEUE_EXECUTORS_MAX};
use crate::task::Resources;

/// How nodes are asked for (falkon-sc07 §3.1: "generate a single request for n
/// resources; generate n requests for a single resource; generate a series of
/// arithmetically or exponentially larger requests; or use system functions to
/// determine available resources").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum AcquireName {
    /// One request for all that is wanted.
    #[default]
    AllAtOnce,
    /// A request for each node.
    OneAtATime,
    /// Requests for 1, 2, 3, … nodes.
    Additive,
    /// Requests for 1, 2, 4, … nodes.
    Exponential,
    /// As much as the LRM says is free.
    Available,
}

impl AcquireName {
    /// All there are.
    pub const ALL: [AcquireName; 5] = [
        AcquireName::AllAtOnce,
        AcquireName::OneAtATime,
        AcquireName::Additive,
        AcquireName::Exponential,
        AcquireName::Available,
    ];

    /// As users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AcquireName::AllAtOnce => "all-at-once",
            AcquireName::OneAtATime => "one-at-a-time",
            AcquireName::Additive => "additive",
            AcquireName::Exponential => "exponential",
            AcquireName::Available => "available",
        }
    }

    /// The strategy of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<AcquireName> {
        AcquireName::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// When nodes are given back (falkon-sc07 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ReleaseName {
    /// Distributed: what has been idle for the queue's idle time.
    Idle,
    /// Centralized: everything, once no task is queued.
    NoQueued,
    /// Centralized: one at a time while fewer than this many tasks are queued.
    FewQueued(u64),
    /// Ours: holds executors while keeping them is cheaper than getting them
    /// again, and asks ahead of demand that is to be expected.
    #[default]
    Predictive,
}

impl ReleaseName {
    /// As users write it; `few-queued` has its number in a field of its own.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ReleaseName::Idle => "idle",
            ReleaseName::NoQueued => "no-queued",
            ReleaseName::FewQueued(_) => "few-queued",
            ReleaseName::Predictive => "predictive",
        }
    }

    /// The policy of that name.
    #[must_use]
    pub fn named(name: &str, queued: u64) -> Option<ReleaseName> {
        let all = [
            ReleaseName::Idle,
            ReleaseName::NoQueued,
            ReleaseName::FewQueued(queued),
            ReleaseName::Predictive,
        ];
        all.into_iter().find(|one| one.name() == name)
    }
}

/// What a queue is like and how it is used. An executor is a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueOptions {
    /// For people.
    pub name: String,
    /// Executors that are held whatever the demand.
    pub executors_min: u64,
    /// Executors that are held, asked for or waited for at most.
    pub executors_max: u64,
    /// Those that somebody asked for, whatever the demand, count as well.
    pub max_is_strict: bool,
    /// Nodes of one request at least; a request may then be for more than is
    /// wanted.
    pub request_nodes_min: u64,
    /// Nodes of one request at most.
    pub request_nodes_max: u64,
    /// Allocations that the LRM has not started, at most.
    pub pending_max: u64,
    /// Allocations at most, pending and running (the LRM's limit of jobs).
    pub allocations_max: u64,
    /// How long an allocation may run; 0 leaves it to the LRM.
    pub walltime_micros: u64,
    /// How long before that its executors leave.
    pub leave_micros: u64,
    /// How long an executor may be idle before it is released; `None` is for
    /// ever.
    pub idle_micros: Option<u64>,
    /// How long an allocation that somebody holds may wait for that to end;
    /// `None` is for ever.
    pub held_micros: Option<u64>,
    /// The LRM says how many nodes it has.
    pub tells_size: bool,
    /// How nodes are asked for.
    pub acquire: AcquireName,
    /// When they are given back.
    pub release: ReleaseName,
    /// Of several queues those with more preference are asked first; equal
    /// ones in the order of their numbers.
    pub preference: i32,
    /// What a node is taken to offer until one has joined.
    pub node: Resources,
    /// That is no more than a guess: until a node has joined, it may be large
    /// enough for anything.
    pub node_is_guess: bool,
    /// The LRM takes an allocation's nodes back only together; otherwise each
    /// when its executor leaves.
    pub is_whole: bool,
    /// What an allocation costs at least: time for which its nodes are paid
    /// for, however early it ends.
    pub billing_micros: u64,
    /// How long a request is taken to need until its executors have joined, as
    /// long as none was measured.
    pub delay_micros: u64,
    /// The least time between two queries.
    pub query_micros: u64,
}

impl Default for QueueOptions {
    fn default() -> Self {
        QueueOptions {
            name: String::new(),
            executors_min: 0,
            executors_max: 1,
            max_is_strict: false,
            request_nodes_min: 1,
            request_nodes_max: QUEUE_EXECUTORS_MAX,
            pending_max: 8,
            allocations_max: 64,
            walltime_micros: 3_600_000_000,
            leave_micros: 0,
            idle_micros: Some(60_000_000),
            held_micros: Some(3_600_000_000),
            tells_size: false,
            acquire: AcquireName::AllAtOnce,
            release: ReleaseName::Predictive,
            preference: 0,
            node: Resources::cpus(1),
            node_is_guess: false,
            is_whole: true,
            billing_micros: 0,
            delay_micros: 60_000_000,
            query_micros: QUERY_MICROS,
        }
    }
}

/// How long before the end of a walltime executors leave unless told otherwise:
/// a tenth of it, at most [`LEAVE_BEFORE_MICROS_MAX`].
#[must_use]
pub fn leave_micros(walltime_micros: u64) -> u64 {
    (walltime_micros / 10).min(LEAVE_BEFORE_MICROS_MAX)
}

impl QueueOptions {
    /// Whether they make sense together.
    ///
    /// # Errors
    /// Says what does not.
    pub fn check(&self) -> Result<(), OptionsError> {
        if self.executors_max == 0 || self.executors_max > QUEUE_EXECUTORS_MAX {
            return Err(OptionsError::Executors(self.executors_max));
        }
        if self.executors_min > self.executors_max {
            let (min, max) = (self.executors_min, self.executors_max);
            return Err(OptionsError::MinAboveMax { what: "executors", min, max });
        }
        if self.request_nodes_min == 0 || self.request_nodes_min > self.request_nodes_max {
            let (min, max) = (self.request_nodes_min, self.request_nodes_max);
            return Err(OptionsError::MinAboveMax { what: "nodes of a request", min, max });
        }
        if self.request_nodes_min > self.executors_max {
            let (min, max) = (self.request_nodes_min, self.executors_max);
            return Err(OptionsError::MinAboveMax { what: "nodes of a request", min, max });
        }
        if self.pending_max == 0 || self.allocations_max == 0 {
            return Err(OptionsError::NoAllocations);
        }
        if !self.node.is_sound() {
            return Err(OptionsError::Node);
        }
        Ok(())
    }
}

/// Why options make no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// Executors: none at all, or too many.
    #[error("at most {0} executors: choose 1 to {QUEUE_EXECUTORS_MAX}")]
    Executors(u64),
    /// A least number is 0 or above the greatest.
    #[error("{what}: at least {min} and at most {max} do not go together")]
    MinAboveMax {
        /// Of what.
        what: &'static str,
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// No allocation could ever be asked for.
    #[error("no allocation may be pending or held: allow at least one")]
    NoAllocations,
    /// Custom resources of a node are not sorted, or come twice.
    #[error("a node's resources name one twice or are not sorted by name")]
    Node,
}
