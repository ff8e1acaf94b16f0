//! Looks at an instance and at an executor, for shells and for people.

use super::collectors::Collectors;
use super::fleet::Executor;
use super::instance::Instance;
use super::placement::Placement;
use super::{Dispatcher, InstanceOptions, Lifetime, Subtree};
use crate::collect::Unwritten;
use crate::data::declared::CacheRoom;
use crate::data::stage::CacheState;
use crate::result::Counts;
use crate::task::{AllocationId, ExecutorId, InstanceId, Resources, Submission, TaskId, Time};

/// A look at an instance.
#[derive(Debug, Clone, Copy)]
pub struct InstanceView<'a> {
    pub(super) dispatcher: &'a Dispatcher,
    pub(super) instance: &'a Instance,
}

impl<'a> InstanceView<'a> {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> InstanceId {
        self.instance.id
    }

    /// Its options.
    #[must_use]
    pub fn options(&self) -> &'a InstanceOptions {
        &self.instance.options
    }

    /// How many tasks are in which state.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.instance.counts()
    }

    /// Whether it takes no more tasks.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.instance.sealed
    }

    /// How many task results there were so far: more than tasks that have ended, if some were
    /// retried.
    #[must_use]
    pub fn results(&self) -> u64 {
        self.instance.results.end()
    }

    /// Whether it is sealed and every task has ended.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.instance.is_complete()
    }

    /// Whether any of its tasks that are still known has a name.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.instance.batches.values().any(|batch| batch.submission.names.is_some())
    }

    /// When it was created, when a client of it was last there, and when it
    /// expires.
    #[must_use]
    pub fn lifetime(&self) -> Lifetime {
        self.dispatcher.instances.lifetime(self.dispatcher.now, self.instance)
    }

    /// Bytes of submissions that are queued.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        self.instance.queued_bytes
    }

    /// Bytes of results held in memory and on disk.
    #[must_use]
    pub fn results_held(&self) -> (u64, u64) {
        (self.instance.results.bytes(), self.instance.results.stored_bytes())
    }

    /// Whether results that are held keep its tasks from being dispatched.
    #[must_use]
    pub fn is_clogged(&self) -> bool {
        self.dispatcher.is_clogged(self.instance)
    }

    /// Whether somebody wants none of its tasks dispatched.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.dispatcher.pauses.is_paused(self.instance.id)
    }

    /// Its priority among instances.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.instance.share.priority()
    }

    /// What ready tasks need that no executor there is offers, and how many
    /// tasks need it.
    #[must_use]
    pub fn unschedulable(&self) -> Vec<(Resources, u64)> {
        self.dispatcher.unschedulable(self.instance)
    }

    /// For how long ready tasks are expected to run, in microseconds, before
    /// whose end every executor leaves that could run them, and how many wait.
    #[must_use]
    pub fn overlong(&self) -> Vec<(u64, u64)> {
        self.dispatcher.overlong(self.instance)
    }

    /// The batch that holds `task`, with the task's position in it, while any
    /// of its tasks is unfinished or its results are kept.
    #[must_use]
    pub fn submission_of(&self, task: TaskId) -> Option<(&'a Submission, u64)> {
        let batch = self.instance.batch_of(task)?;
        Some((&batch.submission, task.0 - batch.first))
    }
}

/// A look at an executor.
#[derive(Debug, Clone, Copy)]
pub struct ExecutorView<'a> {
    pub(super) executor: &'a Executor,
    pub(super) placement: &'a Placement,
    pub(super) collectors: &'a Collectors,
}

impl<'a> ExecutorView<'a> {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> ExecutorId {
        self.executor.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        &self.executor.name
    }

    /// What it offers.
    #[must_use]
    pub fn capacity(&self) -> &'a Resources {
        &self.executor.capacity
    }

    /// What is free of it.
    #[must_use]
    pub fn free(&self) -> &'a Resources {
        &self.executor.free
    }

    /// Tasks it has, and how many of them it was sent ahead.
    #[must_use]
    pub fn load(&self) -> (u64, u64) {
        (self.executor.in_flight_count(), self.executor.prefetched())
    }

    /// Until when it is left alone because it could not start its tasks.
    #[must_use]
    pub fn suspended_until(&self) -> Option<Time> {
        self.executor.suspended_until
    }

    /// Whether somebody wants it to be given no tasks.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.executor.drained
    }

    /// The allocation that it runs in, if a provisioner asked for it.
    #[must_use]
    pub fn allocation(&self) -> Option<AllocationId> {
        self.executor.allocation
    }

    /// When it leaves: no task is sent to it that is expected to end later.
    #[must_use]
    pub fn leaves_at(&self) -> Option<Time> {
        self.executor.leaves_at
    }

    /// Since when it has had no task; `None` while it has one.
    #[must_use]
    pub fn idle_since(&self) -> Option<Time> {
        (!self.executor.is_busy).then_some(self.executor.idle_since)
    }

    /// Whether it takes no more tasks and is about to leave.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.executor.leaving
    }

    /// How its cache stands, as it last said, and how many objects it holds;
    /// `None` if it has no cache.
    #[must_use]
    pub fn cache(&self) -> Option<(CacheState, u64)> {
        let held = self.placement.held_count(self.executor.id);
        Some((self.executor.cache.unwrap_or_default(), held))
    }

    /// What its cache takes, and what it lends.
    #[must_use]
    pub fn room(&self) -> CacheRoom {
        self.executor.room
    }

    /// Bytes of the room that it lends which stripes of objects take.
    #[must_use]
    pub fn lent_used(&self) -> u64 {
        self.placement.lent_used(self.executor.id)
    }

    /// The archives that it cannot write for now.
    #[must_use]
    pub fn unwritten(&self) -> &'a [Unwritten] {
        self.collectors.unwritten(self.executor.id)
    }

    /// What is below it, if it is a relay.
    #[must_use]
    pub fn subtree(&self) -> Option<&'a Subtree> {
        self.executor.subtree.as_deref()
    }

    /// Whether it is connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.executor.connection.is_some()
    }
}
