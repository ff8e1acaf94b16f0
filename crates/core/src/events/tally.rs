//! What events add up to: counts and sums, exact however many tasks there were.

use super::{Ended, Event, Reserved, Run, What};
use crate::data::stage::Usage;
use crate::result::{Counts, Status};
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, Resources, TaskId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An instance, as far as events tell.
#[derive(Debug, Clone, Default)]
pub struct InstanceTally {
    /// Its name, if it has one.
    pub name: Option<Arc<str>>,
    /// When its first tasks were accepted.
    pub first_submitted: Option<Time>,
    /// When the last of those that have ended did.
    pub last_ended: Time,
    /// Tasks accepted.
    pub submitted: u64,
    /// How those ended that have.
    pub ended: Counts,
    /// How often tasks came back and were queued again.
    pub requeued: u64,
    /// Microseconds for which tasks ran, in all.
    pub run_micros: u128,
    /// Microseconds from acceptance to start, in all.
    pub wait_micros: u128,
    /// Microseconds for which tasks waited for inputs, in all.
    pub staging_micros: u128,
    /// Where inputs came from.
    pub usage: Usage,
    /// It is gone.
    pub is_gone: bool,
    /// Tasks that have their results.
    done: RunSet,
    /// Those of them that were cancelled, and those that failed.
    cancelled: RunSet,
    failed: RunSet,
    /// Tasks that executors have, and the slots that they take, in thousandths.
    assigned: RunSet,
    assigned_milli: u128,
    /// Tasks that have ended and run again.
    recomputing: RunSet,
}

impl InstanceTally {
    /// Tasks are assigned. Some may have ended in the same round: an executor came back
    /// with them and their results.
    fn assign(&mut self, run: &Run, reserved: &Reserved) {
        let (first, count) = (run.first.0, run.count);
        if let Some(each) = reserved.each_milli()
            && self.done.within(first, count).is_empty()
        {
            let new = self.assigned.insert(first, count);
            self.assigned_milli += u128::from(new) * u128::from(each);
            return;
        }
        let again = self.recomputing.within(first, count);
        for (first, count) in self.done.gaps(first, count).into_iter().chain(again) {
            for (first, count) in self.assigned.gaps(first, count) {
                let run = Run { first: TaskId(first), count, ..*run };
                self.assigned_milli += reserved.all_milli(&run);
            }
            self.assigned.insert(first, count);
        }
    }

    /// Executors do not have these tasks any more. Returns how many they had.
    fn unassign(&mut self, run: &Run, reserved: &Reserved) -> u64 {
        let (first, count) = (run.first.0, run.count);
        if let Some(each) = reserved.each_milli() {
            let removed = self.assigned.remove(first, count);
            let milli = u128::from(removed) * u128::from(each);
            self.assigned_milli = self.assigned_milli.saturating_sub(milli);
            return removed;
        }
        for (first, count) in self.assigned.within(first, count) {
            let run = Run { first: TaskId(first), count, ..*run };
            self.assigned_milli = self.assigned_milli.saturating_sub(reserved.all_milli(&run));
        }
        self.assigned.remove(first, count)
    }

    fn unassign_all(&mut self) {
        (self.assigned, self.assigned_milli) = (RunSet::default(), 0);
    }

    /// Tasks are retried: they have not ended any more.
    fn retry(&mut self, run: &Run) {
        let (first, count) = (run.first.0, run.count);
        self.done.remove(first, count);
        let (failed, cancelled) =
            (self.failed.remove(first, count), self.cancelled.remove(first, count));
        self.ended.unend(Status::Failed, failed);
        self.ended.unend(Status::Cancelled, cancelled);
    }

    /// Tasks that executors have, sent ahead or running.
    #[must_use]
    pub fn assigned(&self) -> u64 {
        self.assigned.len()
    }

    /// The slots that these take, in thousandths: as many as they reserve CPUs on all of their
    /// nodes.
    #[must_use]
    pub fn assigned_milli(&self) -> u128 {
        self.assigned_milli
    }

    /// Tasks that wait, ready or not.
    #[must_use]
    pub fn queued(&self) -> u64 {
        let unended = self.submitted.saturating_sub(self.ended.ended());
        (unended + self.recomputing.len()).saturating_sub(self.assigned.len())
    }
}

/// An executor, as far as events tell.
#[derive(Debug, Clone)]
pub struct ExecutorTally {
    /// Its name.
    pub name: Arc<str>,
    /// What it offers.
    pub capacity: Resources,
    /// When it registered.
    pub joined: Time,
    /// When it was given up, and why.
    pub gone: Option<(Time, Arc<str>)>,
    /// Tasks that ended there.
    pub ended: u64,
    /// Those of them that did not end well.
    pub failed: u64,
    /// Microseconds for which tasks ran there, in all.
    pub run_micros: u128,
}

/// Adds events up.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// By number.
    pub instances: BTreeMap<InstanceId, InstanceTally>,
    /// By number.
    pub executors: BTreeMap<ExecutorId, ExecutorTally>,
    /// The times of the first event and of the last.
    pub span: Option<(Time, Time)>,
    /// Events that are known to be missing.
    pub missing: u64,
    reserved: Reserved,
}

impl Tally {
    /// Takes in the next event.
    pub fn add(&mut self, event: &Event) {
        let from = self.span.map_or(event.at, |(from, _)| from);
        self.span = Some((from, event.at));
        match &event.what {
            What::InstanceCreated { instance, name, .. } => {
                self.instance(*instance).name = Some(name.clone());
            }
            What::Submitted { instance, count, .. } => {
                let instance = self.instance(*instance);
                instance.first_submitted.get_or_insert(event.at);
                instance.submitted += count;
            }
            What::Assigned { run, .. } => {
                self.instances.entry(run.instance).or_default().assign(run, &self.reserved);
            }
            What::Requeued { run, .. } => {
                let instance = self.instances.entry(run.instance).or_default();
                instance.requeued += instance.unassign(run, &self.reserved);
            }
            What::Ended(ended) => self.ended(ended),
            What::Retried { run } => self.instance(run.instance).retry(run),
            What::InstanceGone { instance, .. } => {
                let instance = self.instance(*instance);
                instance.is_gone = true;
                instance.unassign_all();
                instance.recomputing = RunSet::default();
            }
            What::Reserves(reserves) => self.reserved.add(reserves),
            What::ExecutorJoined { executor, name, capacity, .. } => {
                let joined = ExecutorTally {
                    name: name.clone(),
                    capacity: capacity.clone(),
                    joined: event.at,
                    gone: None,
                    ended: 0,
                    failed: 0,
                    run_micros: 0,
                };
                self.executors.entry(*executor).or_insert(joined);
            }
            What::ExecutorGone { executor, why } => {
                if let Some(executor) = self.executors.get_mut(executor) {
                    executor.gone = Some((event.at, why.clone()));
                }
            }
            What::Missing { events } => self.missing = self.missing.saturating_add(*events),
            What::DispatcherStarted { .. } => {
                // What executors had is assigned anew when they come back.
                self.instances.values_mut().for_each(InstanceTally::unassign_all);
                for executor in self.executors.values_mut() {
                    executor.gone.get_or_insert_with(|| (event.at, "the dispatcher ended".into()));
                }
            }
            What::Recomputed { instance, task } => {
                let instance = self.instance(*instance);
                instance.ended.recomputed += 1;
                instance.recomputing.insert(task.0, 1);
            }
            What::RecomputationEnded { run, .. } => {
                let instance = self.instances.entry(run.instance).or_default();
                instance.unassign(run, &self.reserved);
                instance.recomputing.remove(run.first.0, run.count);
            }
            What::Sealed { .. }
            | What::Copied { .. }
            | What::Cancelling { .. }
            | What::ExecutorSuspended { .. }
            | What::ExecutorDrained { .. }
            | What::Paused { .. }
            | What::Prioritized { .. }
            | What::Waits(_)
            | What::Uses(_)
            | What::Moved { .. }
            | What::Provisioned { .. } => {}
        }
    }

    /// The slots that all tasks of a run take together, in thousandths.
    pub(super) fn all_milli(&self, run: &Run) -> u128 {
        self.reserved.all_milli(run)
    }

    /// Forgets an instance that is gone.
    pub(super) fn forget(&mut self, id: InstanceId) {
        self.instances.remove(&id);
        self.reserved.forget(id);
    }

    fn instance(&mut self, id: InstanceId) -> &mut InstanceTally {
        self.instances.entry(id).or_default()
    }

    fn ended(&mut self, ended: &Ended) {
        let Run { instance, first, count } = ended.run;
        let status = ended.outcome.status();
        let times = u128::from(count);
        let ran = u128::from(ended.run_micros()) * times;
        let instance = self.instances.entry(instance).or_default();
        instance.unassign(&ended.run, &self.reserved);
        instance.done.insert(first.0, count);
        match status {
            Status::Done => 0,
            Status::Failed => instance.failed.insert(first.0, count),
            Status::Cancelled => instance.cancelled.insert(first.0, count),
        };
        instance.ended.end(status, count);
        instance.last_ended = instance.last_ended.max(ended.ended);
        instance.run_micros += ran;
        if ended.executor.is_some() {
            instance.wait_micros += u128::from(ended.wait_micros()) * times;
        }
        instance.staging_micros += u128::from(ended.staging_micros) * times;
        instance.usage.add(&ended.usage);
        if let Some(executor) = ended.executor.and_then(|id| self.executors.get_mut(&id)) {
            executor.ended += count;
            executor.failed += if status == Status::Done { 0 } else { count };
            executor.run_micros += ran;
        }
    }
}
