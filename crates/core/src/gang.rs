//! Gangs: tries of tasks that run on several executors together.
//!
//! The command of such a task runs on the first of them. On the others, and there too, it
//! starts processes over their executors, for which each of them holds room.

mod usage;

pub use usage::{GANG_USAGE_BYTES_MAX, GangUsage, NodeUsage, NodeUsed, RankUsage, UsageLedger};

use crate::data::declared::Serving;
use crate::encoded::{GANG_ORDER_BYTES_MAX, MEMBER_BYTES_MAX};
use crate::execute::Grant;
use crate::limits::GANG_NODES_MAX;
use crate::result::{ResourceUsage, Tries};
use crate::task::{ExecutorId, InstanceId, Resources, TaskId};
use std::fmt;
use std::sync::Arc;

/// A gang: a try of a task, on several executors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangKey {
    /// The instance of its task.
    pub instance: InstanceId,
    /// Its task.
    pub task: TaskId,
    /// How often the task was tried before.
    pub tries: Tries,
}

/// A secret of one gang: who knows it may start processes on its nodes. Dispatchers draw it
/// from the random source of the system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GangToken(pub [u8; 16]);

impl fmt::Debug for GangToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GangToken(hidden)")
    }
}

/// A node of a gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The executor there.
    pub executor: ExecutorId,
    /// What the executor is called.
    pub name: String,
    /// Where other executors reach it; the address is empty if they cannot.
    pub serves: Serving,
}

/// An order about a gang to one of its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GangOrder {
    /// Hold room for a node of a gang, the first node included. A gang that is held already
    /// stays as it is.
    Form {
        /// The gang.
        key: GangKey,
        /// Which of `members` the receiver is.
        index: u32,
        /// What the task has on each node.
        resources: Resources,
        /// How many processes launchers start on each node; 0 is one for each whole CPU.
        ranks_per_node: u32,
        /// The gang's secret.
        token: GangToken,
        /// All members; the task's command runs on the first.
        members: Arc<Vec<Member>>,
    },
    /// A gang is over: end what runs of it, then report that it is released.
    Disband {
        /// The gang.
        key: GangKey,
    },
}

/// What a member reports of a gang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GangReport {
    /// Nothing of the gang runs here any more, and its room is free; also if it was unknown
    /// here, or could not form.
    Released {
        /// The gang.
        key: GangKey,
        /// What its processes used here, but for the task's command.
        usage: Option<ResourceUsage>,
    },
    /// The gang cannot go on here: its dispatcher ends it as a loss.
    Broken {
        /// The gang.
        key: GangKey,
    },
}

/// What the shell of an executor is to do for a gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GangAction {
    /// Start processes for whoever asks with the gang's token, until it is disbanded.
    Form {
        /// The gang.
        key: GangKey,
        /// Which of `members` this executor is.
        index: u32,
        /// What the gang has on this node.
        resources: Resources,
        /// The GPUs and CPUs that are its own on this node.
        grant: Grant,
        /// How many processes launchers start on each node.
        ranks_per_node: u32,
        /// The gang's secret.
        token: GangToken,
        /// All members; the task's command runs on the first.
        members: Arc<Vec<Member>>,
    },
    /// End what runs of the gang here, then answer with
    /// [`Event::GangEnded`](crate::execute::Event::GangEnded).
    Disband {
        /// The gang.
        key: GangKey,
    },
}

/// What a task's command needs to know of its gang, on the first node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GangStart {
    /// The gang.
    pub key: GangKey,
    /// How many processes launchers start on each node.
    pub ranks_per_node: u32,
    /// The gang's secret.
    pub token: GangToken,
    /// All members; the first is this executor.
    pub members: Arc<Vec<Member>>,
}

impl GangOrder {
    /// The gang that it is about.
    #[must_use]
    pub fn key(&self) -> GangKey {
        match self {
            GangOrder::Form { key, .. } | GangOrder::Disband { key } => *key,
        }
    }

    /// The most bytes that it takes in a message.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        let members = match self {
            GangOrder::Form { members, .. } => members.as_slice(),
            GangOrder::Disband { .. } => &[],
        };
        let of = |member: &Member| {
            let Serving { address, fingerprint } = &member.serves;
            MEMBER_BYTES_MAX + (member.name.len() + address.len() + fingerprint.len()) as u64
        };
        GANG_ORDER_BYTES_MAX + members.iter().map(of).sum::<u64>()
    }

    /// Whether a member could form a gang as it says: an order from outside may say anything.
    #[must_use]
    pub(crate) fn is_sound(&self) -> bool {
        match self {
            GangOrder::Disband { .. } => true,
            GangOrder::Form { index, resources, members, .. } => {
                members.len() <= GANG_NODES_MAX as usize
                    && (*index as usize) < members.len()
                    && resources.is_sound()
            }
        }
    }
}

impl GangReport {
    /// The gang that it is about.
    #[must_use]
    pub fn key(&self) -> GangKey {
        match self {
            GangReport::Released { key, .. } | GangReport::Broken { key } => *key,
        }
    }
}
