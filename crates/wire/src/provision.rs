//! Messages about provisioning between clients and a dispatcher.

use crate::codec::{wire_enum, wire_list, wire_struct};
use falkon_core::dispatch::Site;
use falkon_core::task::{AllocationId, Resources, Time};

/// A client's request to the provisioner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProvisionAsk {
    /// How things are, with the last lines of the log and what would be asked
    /// for now. Answer: [`ToClient::Provision`](crate::message::ToClient).
    Status {
        /// Only this queue; all, if `None`.
        queue: Option<String>,
        /// Lines of the log at most.
        log: u64,
    },
    /// Add a queue. All others are answered with
    /// [`ToClient::Done`](crate::message::ToClient).
    Add {
        /// The queue's name.
        name: String,
        /// The text of a queue's file.
        config: String,
    },
    /// Ask nothing more of a queue.
    Pause {
        /// The queue.
        queue: String,
    },
    /// Ask it again.
    Resume {
        /// The queue.
        queue: String,
    },
    /// Give a queue up, with all its allocations.
    Remove {
        /// The queue.
        queue: String,
    },
    /// Ask a queue for nodes now, whatever the demand.
    Once {
        /// The queue.
        queue: String,
        /// How many.
        nodes: u64,
        /// For how long, in microseconds; 0 is the queue's.
        walltime_micros: u64,
    },
    /// Give up one allocation.
    Drop {
        /// The allocation.
        allocation: AllocationId,
    },
}
wire_enum!(ProvisionAsk {
    0 => Status { queue, log },
    1 => Add { name, config },
    2 => Pause { queue },
    3 => Resume { queue },
    4 => Remove { queue },
    5 => Once { queue, nodes, walltime_micros },
    6 => Drop { allocation },
});

/// The provisioner and what it has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProvisionStatus {
    /// The dispatcher's clock now.
    pub now: Time,
    /// The queues, in the order in which they are asked.
    pub queues: Vec<QueueStatus>,
    /// The queues' allocations.
    pub allocations: Vec<AllocationStatus>,
    /// The last decisions, the oldest first.
    pub log: Vec<ProvisionLine>,
    /// The queues of dispatchers below relays, unless one queue was asked for.
    pub sites: Vec<Site>,
}
wire_struct!(ProvisionStatus { now, queues, allocations, log, sites });

/// A queue of a batch scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueStatus {
    /// Its name.
    pub name: String,
    /// The kind of its scheduler.
    pub kind: String,
    /// The text of a queue's file.
    pub config: String,
    /// Nothing is asked of it; what the scheduler said, if that is why.
    pub paused: Option<String>,
    /// The queue is being given up.
    pub removing: bool,
    /// Whether the scheduler has ever answered.
    pub known: bool,
    /// Until when nothing is asked of it, after a refusal.
    pub not_before: Time,
    /// Refusals in a row.
    pub refusals: u64,
    /// Queries that failed in a row.
    pub query_failures: u64,
    /// How long nodes are expected to take to come, in microseconds.
    pub delay_micros: u64,
    /// Executors that are held at least.
    pub executors_min: u64,
    /// Executors at most.
    pub executors_max: u64,
    /// Nodes that there are for all its jobs, if the scheduler says so.
    pub size: Option<u64>,
    /// The resources that a node is expected to offer.
    pub node: Resources,
    /// Nodes of each request that would be made now.
    pub requests: Vec<u64>,
    /// Executors that would be released now.
    pub releases: u64,
    /// Why.
    pub reason: Option<String>,
}
wire_struct!(QueueStatus {
    name,
    kind,
    config,
    paused,
    removing,
    known,
    not_before,
    refusals,
    query_failures,
    delay_micros,
    executors_min,
    executors_max,
    size,
    node,
    requests,
    releases,
    reason,
});

/// An allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocationStatus {
    /// The allocation's number.
    pub id: AllocationId,
    /// The queue it came from.
    pub queue: String,
    /// How many nodes it has.
    pub nodes: u64,
    /// The scheduler's name for its job, if it is known.
    pub job: Option<String>,
    /// `asking`, `unsure`, `pending`, `held` or `running`.
    pub state: String,
    /// Why it is in that state, in the scheduler's words; empty if it does not
    /// say.
    pub reason: String,
    /// When it was asked for.
    pub asked: Time,
    /// When it was started.
    pub started: Option<Time>,
    /// Executors of it that are connected.
    pub executors: u64,
    /// The allocation is being given back.
    pub ending: bool,
    /// Somebody asked for it, whatever the demand.
    pub fixed: bool,
}
wire_struct!(AllocationStatus {
    id,
    queue,
    nodes,
    job,
    state,
    reason,
    asked,
    started,
    executors,
    ending,
    fixed
});

/// Nodes that are to come of a queue, for everybody who may see the dispatcher's
/// state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coming {
    /// The queue.
    pub queue: String,
    /// Nodes that were asked for and have not come, those included that
    /// somebody holds.
    pub nodes: u64,
    /// Why they have not, or why none is asked for; empty if nobody says.
    pub reason: String,
}
wire_struct!(Coming { queue, nodes, reason });

/// A decision, or what has turned out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvisionLine {
    /// When.
    pub at: Time,
    /// About which queue.
    pub queue: String,
    /// What, and why.
    pub text: String,
}
wire_struct!(ProvisionLine { at, queue, text });

wire_list!(QueueStatus, AllocationStatus, ProvisionLine, Coming);
