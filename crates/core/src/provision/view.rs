//! Looking at a provisioner without changing it.

use super::allocation::Allocation;
use super::queue::Queue;
use super::{AllocationState, Provisioner, QueueId, QueueOptions};
use crate::task::{AllocationId, Time};

/// A look at a queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueView<'a> {
    provisioner: &'a Provisioner,
    queue: &'a Queue,
}

impl<'a> QueueView<'a> {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> QueueId {
        self.queue.id
    }

    /// What it is like.
    #[must_use]
    pub fn options(&self) -> &'a QueueOptions {
        &self.queue.options
    }

    /// Whether nothing is asked of it, and what the LRM said if that is why.
    #[must_use]
    pub fn paused(&self) -> Option<&'a str> {
        self.queue.paused.as_deref()
    }

    /// Whether it is being given up.
    #[must_use]
    pub fn is_removing(&self) -> bool {
        self.queue.removing
    }

    /// Whether it has ever answered a query.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.queue.is_known
    }

    /// Nodes that it holds or will hold.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.provisioner.held(self.queue)
    }

    /// Until when nothing is asked of it, after a refusal.
    #[must_use]
    pub fn not_before(&self) -> Time {
        self.queue.not_before
    }

    /// Refusals and failed queries in a row.
    #[must_use]
    pub fn failures(&self) -> (u32, u32) {
        (self.queue.refusals, self.queue.query_failures)
    }

    /// How long a request is expected to need until its executors have joined,
    /// in microseconds.
    #[must_use]
    pub fn delay_micros(&self) -> u64 {
        self.queue.delay_micros()
    }

    /// Nodes that there are for all its jobs together, if the LRM says so.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.queue.size.nodes()
    }

    /// Its allocations, in the order of their numbers.
    pub fn allocations(&self) -> impl Iterator<Item = AllocationView<'a>> {
        let provisioner = self.provisioner;
        provisioner.allocations_of(self.queue.id).map(|allocation| AllocationView { allocation })
    }
}

/// A look at an allocation.
#[derive(Debug, Clone, Copy)]
pub struct AllocationView<'a> {
    allocation: &'a Allocation,
}

impl<'a> AllocationView<'a> {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> AllocationId {
        self.allocation.id
    }

    /// Its queue.
    #[must_use]
    pub fn queue(&self) -> QueueId {
        self.allocation.queue
    }

    /// Its nodes.
    #[must_use]
    pub fn nodes(&self) -> u64 {
        self.allocation.nodes
    }

    /// The LRM's name for it.
    #[must_use]
    pub fn job(&self) -> Option<&'a str> {
        self.allocation.job.as_deref()
    }

    /// How far it is.
    #[must_use]
    pub fn state(&self) -> AllocationState {
        self.allocation.state
    }

    /// When it was asked for, or found.
    #[must_use]
    pub fn asked_at(&self) -> Time {
        self.allocation.asked
    }

    /// When it began.
    #[must_use]
    pub fn started_at(&self) -> Option<Time> {
        self.allocation.started
    }

    /// Executors that are there.
    #[must_use]
    pub fn executors(&self) -> u64 {
        self.allocation.executors.len() as u64
    }

    /// Why it is in its state, in the LRM's words; empty if it does not say.
    #[must_use]
    pub fn words(&self) -> &'a str {
        &self.allocation.words
    }

    /// Whether it is to end.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.allocation.ending
    }

    /// Whether somebody asked for it, so that it stays whatever the demand.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.allocation.is_fixed
    }
}

impl Provisioner {
    /// All queues, in the order of their numbers.
    pub fn queue_views(&self) -> impl Iterator<Item = QueueView<'_>> {
        self.queues.values().map(|queue| QueueView { provisioner: self, queue })
    }

    /// A queue; `None` if there is none of that number.
    #[must_use]
    pub fn queue_view(&self, id: QueueId) -> Option<QueueView<'_>> {
        self.queues.get(&id).map(|queue| QueueView { provisioner: self, queue })
    }

    /// All allocations, in the order of their numbers.
    pub fn allocation_views(&self) -> impl Iterator<Item = AllocationView<'_>> {
        self.allocations.values().map(|allocation| AllocationView { allocation })
    }
}
