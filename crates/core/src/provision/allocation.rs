//! One allocation, from the request to its end.

use super::absence::Absence;
use super::limits::JOIN_MICROS;
use super::{Found, JobState, QueueId};
use crate::task::{AllocationId, ExecutorId, Time};
use std::collections::BTreeSet;

/// How far an allocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AllocationState {
    /// The LRM was asked and has not answered.
    Asking,
    /// Nobody knows whether the LRM has it.
    Unsure,
    /// The LRM has it and has not started it.
    Pending,
    /// Somebody holds it: it gets no nodes until they let it go.
    Held,
    /// It has nodes.
    Running,
}

impl AllocationState {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AllocationState::Asking => "asking",
            AllocationState::Unsure => "unsure",
            AllocationState::Pending => "pending",
            AllocationState::Held => "held",
            AllocationState::Running => "running",
        }
    }
}

/// A cancellation under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cancelling {
    /// When it is sent again unless the allocation has ended.
    pub(super) again: Time,
    /// The LRM has said that it does so.
    pub(super) is_accepted: bool,
    pub(super) times: u32,
}

#[derive(Debug)]
pub(super) struct Allocation {
    pub(super) id: AllocationId,
    pub(super) queue: QueueId,
    pub(super) nodes: u64,
    pub(super) walltime_micros: u64,
    pub(super) state: AllocationState,
    pub(super) job: Option<String>,
    pub(super) asked: Time,
    /// When the state last changed.
    pub(super) since: Time,
    pub(super) started: Option<Time>,
    pub(super) until: Option<Time>,
    /// Executors that are there.
    pub(super) executors: BTreeSet<ExecutorId>,
    /// Executors that have joined at all.
    pub(super) joined: u64,
    /// Those of `executors` that were told to leave.
    pub(super) released: BTreeSet<ExecutorId>,
    /// It is to end: its executors were told to leave, those that come will be.
    pub(super) ending: bool,
    /// Since when no executor has been there, once there were some.
    pub(super) empty_since: Option<Time>,
    pub(super) cancelling: Option<Cancelling>,
    /// Answers do not name it.
    pub(super) absence: Option<Absence>,
    /// A query has named it.
    pub(super) seen: bool,
    /// It was found, not asked for in this life.
    pub(super) is_found: bool,
    /// It has run for so long that nodes whose executors have not come are not
    /// waited for any more.
    pub(super) is_late: bool,
    /// Somebody asked for it: it stays whatever the demand.
    pub(super) is_fixed: bool,
    /// Since when nothing has waited for it, while it is pending.
    pub(super) unwanted_since: Option<Time>,
    /// Why it is as it is, in the LRM's words.
    pub(super) words: String,
}

impl Allocation {
    pub(super) fn new(id: AllocationId, queue: QueueId, nodes: u64, now: Time) -> Allocation {
        Allocation {
            id,
            queue,
            nodes,
            walltime_micros: 0,
            state: AllocationState::Asking,
            job: None,
            asked: now,
            since: now,
            started: None,
            until: None,
            executors: BTreeSet::new(),
            joined: 0,
            released: BTreeSet::new(),
            ending: false,
            empty_since: None,
            cancelling: None,
            absence: None,
            seen: false,
            is_found: false,
            is_late: false,
            is_fixed: false,
            unwanted_since: None,
            words: String::new(),
        }
    }

    /// One that was found.
    pub(super) fn found(found: &Found, queue: QueueId, now: Time) -> Allocation {
        let state = match found.state {
            JobState::Running => AllocationState::Running,
            JobState::Held => AllocationState::Held,
            _ => AllocationState::Pending,
        };
        Allocation {
            state,
            job: Some(found.job.clone()),
            until: found.until,
            started: (found.state == JobState::Running).then_some(now),
            words: super::queue::shortened(found.words.clone()),
            seen: true,
            is_found: true,
            ..Allocation::new(found.allocation, queue, found.nodes.max(1), now)
        }
    }

    /// Whether somebody holds it, and its nodes are not to be expected.
    pub(super) fn is_held(&self) -> bool {
        self.state == AllocationState::Held
    }

    /// Nodes that it holds or will hold, for the bounds of its queue.
    pub(super) fn held(&self, is_whole: bool) -> u64 {
        if self.is_held() {
            return 0;
        }
        let here = self.executors.len() as u64;
        let to_come = self.nodes.saturating_sub(self.joined);
        let is_cancelled = self.cancelling.is_some_and(|cancelling| cancelling.is_accepted);
        let is_emptied = self.ending && here == 0 && (to_come == 0 || is_cancelled);
        match is_whole && !is_emptied {
            true => self.nodes.max(here),
            false if is_emptied => 0,
            false => here + to_come,
        }
    }

    /// Nodes that take tasks, or will.
    pub(super) fn useful(&self) -> u64 {
        match self.ending {
            true => 0,
            false => {
                let here = (self.executors.len() - self.released.len()) as u64;
                here + self.coming()
            }
        }
    }

    /// Nodes whose executors have not come yet and may.
    pub(super) fn coming(&self) -> u64 {
        match self.ending || self.is_late || self.is_held() {
            true => 0,
            false => self.nodes.saturating_sub(self.joined),
        }
    }

    /// When what has not come by then is not waited for any more.
    pub(super) fn late_at(&self) -> Option<Time> {
        let waits = !self.is_late && !self.ending && self.joined < self.nodes;
        self.started.filter(|_| waits).map(|started| started.after(JOIN_MICROS))
    }

    /// Whether the LRM has not started it, as far as is known.
    pub(super) fn is_pending(&self) -> bool {
        self.state != AllocationState::Running
    }
}
