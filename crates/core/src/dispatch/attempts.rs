//! How often tasks that have not ended were tried, and which executors have
//! them: the journal's records of that, and how they are read after a restart.
//!
//! A running dispatcher has all of it in its queues and in its executors'
//! books. Here are only the changes of this round and, from the first record
//! of a journal to the end of the recovery, the tasks that executors had.
//!
//! Each change says how tasks stand now, not what happened to them, so that the
//! latest one of a task counts whatever became of the others, and a snapshot
//! consists of the same entries.

use super::instance::{Instance, ReadyRun};
use super::{Dispatcher, Record, RecoverError};
use crate::limits::RECORD_RUNS_MAX;
use crate::result::Tries;
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, TaskId};
use std::collections::BTreeMap;

/// Tasks in a row that have not ended, as they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// Their instance.
    pub instance: InstanceId,
    /// The first of them.
    pub first: TaskId,
    /// How many.
    pub count: u64,
    /// How often they were tried before.
    pub tries: Tries,
    /// The executor that they were assigned to; `None`: they are queued.
    pub executor: Option<ExecutorId>,
}

/// Tasks in a row of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Past {
    end: u64,
    tries: Tries,
    /// The process of the executor that they were assigned to.
    incarnation: Option<u64>,
}

/// Tasks of one instance, by the first of each run; runs that touch differ.
#[derive(Debug, Default)]
struct Pasts(BTreeMap<u64, Past>);

impl Pasts {
    /// The parts of `first .. end` that something is known of.
    fn within(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, Past)> {
        let before = self.0.range(..first).next_back().filter(|(_, past)| past.end > first);
        before
            .into_iter()
            .chain(self.0.range(first..end.max(first)))
            .map(move |(start, past)| (first.max(*start), Past { end: past.end.min(end), ..*past }))
    }

    fn clear(&mut self, first: u64, end: u64) {
        if let Some((start, past)) = self.0.range_mut(..first).next_back()
            && past.end > first
        {
            let rest = *past;
            past.end = first;
            debug_assert!(*start < first, "runs have tasks");
            if rest.end > end {
                self.0.insert(end, rest);
            }
        }
        while let Some((&start, &past)) = self.0.range(first..end.max(first)).next() {
            self.0.remove(&start);
            if past.end > end {
                self.0.insert(end, past);
            }
        }
    }

    fn set(&mut self, mut first: u64, mut past: Past) {
        self.clear(first, past.end);
        let is_like =
            |other: &Past| (other.tries, other.incarnation) == (past.tries, past.incarnation);
        if let Some((&start, before)) = self.0.range(..first).next_back()
            && before.end == first
            && is_like(before)
        {
            first = start;
        }
        if let Some(after) = self.0.get(&past.end).copied().filter(is_like) {
            self.0.remove(&past.end);
            past.end = after.end;
        }
        self.0.insert(first, past);
    }
}

/// The changes of a round, and what a journal said.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    changes: Vec<Attempts>,
    /// From a journal; once it has been read, the tasks that executors had
    /// which have not come back yet, as far as nothing else became of them.
    pasts: BTreeMap<InstanceId, Pasts>,
    /// Where to look for those of each executor.
    had: BTreeMap<u64, Vec<(InstanceId, u64, u64)>>,
}

impl Ledger {
    /// Tasks are queued, or with an executor, and were not before.
    pub(super) fn note(
        &mut self,
        instance: InstanceId,
        first: u64,
        count: u64,
        tries: Tries,
        executor: Option<ExecutorId>,
    ) {
        if let Some(pasts) = self.pasts.get_mut(&instance) {
            pasts.clear(first, first + count);
        }
        if let Some(last) = self.changes.last_mut()
            && (last.instance, last.tries, last.executor) == (instance, tries, executor)
            && last.first.0 + last.count == first
        {
            last.count += count;
            return;
        }
        let first = TaskId(first);
        self.changes.push(Attempts { instance, first, count, tries, executor });
    }

    /// Takes in what a journal says. An executor that has no incarnation was
    /// given up.
    pub(super) fn recover(
        &mut self,
        run: &Attempts,
        incarnation: Option<u64>,
        finished: &RunSet,
        total: u64,
    ) {
        let pasts = self.pasts.entry(run.instance).or_default();
        let count = run.count.min(total.saturating_sub(run.first.0));
        for (first, count) in finished.gaps(run.first.0, count) {
            pasts.set(first, Past { end: first + count, tries: run.tries, incarnation });
        }
    }

    /// A journal says that tasks have ended.
    pub(super) fn ended(&mut self, id: InstanceId, first: u64, count: u64) {
        if let Some(pasts) = self.pasts.get_mut(&id) {
            pasts.clear(first, first.saturating_add(count));
        }
    }

    /// An instance is gone.
    pub(super) fn forget(&mut self, id: InstanceId) {
        self.pasts.remove(&id);
    }

    /// Tasks in a row by how often a journal says that they were tried, as
    /// (first, count, tries).
    pub(super) fn tried(&self, id: InstanceId, first: u64, count: u64) -> Vec<(u64, u64, Tries)> {
        let (mut at, end) = (first, first + count);
        let mut parts = Vec::new();
        let known = self.pasts.get(&id).into_iter().flat_map(|pasts| pasts.within(first, end));
        for (start, past) in known.filter(|(_, past)| past.tries != Tries::default()) {
            if start > at {
                parts.push((at, start - at, Tries::default()));
            }
            parts.push((start, past.end - start, past.tries));
            at = past.end;
        }
        if at < end {
            parts.push((at, end - at, Tries::default()));
        }
        parts
    }

    /// How often a journal says that a task was tried, if it was.
    pub(super) fn tries_of(&self, id: InstanceId, task: u64) -> Option<Tries> {
        let (_, past) = self.pasts.get(&id)?.within(task, task + 1).next()?;
        (past.tries != Tries::default()).then_some(past.tries)
    }

    /// The tasks that a journal names are queued: what is left to know is which
    /// of them executors may still have.
    pub(super) fn all_queued(&mut self) {
        for (id, pasts) in &mut self.pasts {
            pasts.0.retain(|_, past| past.incarnation.is_some());
            for (first, past) in &pasts.0 {
                let Some(incarnation) = past.incarnation else { continue };
                self.had.entry(incarnation).or_default().push((*id, *first, past.end));
            }
        }
    }

    /// The executors that had tasks and have not come back.
    pub(super) fn absent(&self) -> Vec<u64> {
        self.had.keys().copied().collect()
    }

    /// The tasks of these that an executor had when the dispatcher ended, or any
    /// executor, if nothing else became of them.
    pub(super) fn had_by(&self, incarnation: Option<u64>, id: InstanceId, of: &RunSet) -> RunSet {
        let mut had = RunSet::default();
        let Some(pasts) = self.pasts.get(&id) else { return had };
        for (first, count) in of.iter() {
            for (first, past) in pasts.within(first, first + count) {
                if past.incarnation.is_some()
                    && incarnation.is_none_or(|_| past.incarnation == incarnation)
                {
                    had.insert(first, past.end - first);
                }
            }
        }
        had
    }

    /// Queued tasks in parts: those that some executor had when the dispatcher
    /// ended, and the others, as (first, count, whether it had them).
    pub(super) fn split(&self, id: InstanceId, run: &ReadyRun) -> Vec<(u64, u64, bool)> {
        let mut all = RunSet::default();
        all.insert(run.first, run.count);
        let had = self.had_by(None, id, &all);
        let parts = had.iter().map(|(first, count)| (first, count, true));
        let others = had.gaps(run.first, run.count).into_iter();
        parts.chain(others.map(|(first, count)| (first, count, false))).collect()
    }

    /// The tasks that an executor had when the dispatcher ended and that
    /// nothing else became of. They are not looked for again.
    pub(super) fn take_had(&mut self, incarnation: u64) -> Vec<(InstanceId, u64, u64, Tries)> {
        let mut had = Vec::new();
        for (id, first, end) in self.had.remove(&incarnation).unwrap_or_default() {
            let Some(pasts) = self.pasts.get_mut(&id) else { continue };
            let parts = pasts.within(first, end);
            had.extend(parts.map(|(first, past)| (id, first, past.end - first, past.tries)));
            pasts.clear(first, end);
        }
        if self.had.is_empty() {
            self.pasts.clear();
        }
        had
    }

    /// The tasks of an instance that executors had which have not come back, as
    /// (first, count, tries, incarnation).
    fn awaited(&self, id: InstanceId) -> impl Iterator<Item = (u64, u64, Tries, u64)> {
        let pasts = self.pasts.get(&id).into_iter().flat_map(|pasts| &pasts.0);
        pasts.filter_map(|(first, past)| {
            Some((*first, past.end - first, past.tries, past.incarnation?))
        })
    }
}

impl Dispatcher {
    /// Asks for records of how tasks stand: before anybody hears of it.
    pub(super) fn journal_attempts(&mut self) {
        let mut runs = std::mem::take(&mut self.attempts.changes);
        runs.retain(|run| self.instances.contains(&run.instance));
        if runs.len() > RECORD_RUNS_MAX {
            for part in runs.chunks(RECORD_RUNS_MAX) {
                self.journal(Record::Attempts { runs: part.to_vec() });
            }
        } else if !runs.is_empty() {
            self.journal(Record::Attempts { runs });
        }
    }

    /// Takes in how a journal says that tasks stand.
    pub(super) fn recover_attempts(&mut self, runs: &[Attempts]) -> Result<(), RecoverError> {
        for run in runs {
            let incarnation = run.executor.and_then(|id| self.comeback.incarnation(id));
            let instance =
                self.instances.find(&run.instance).ok_or(RecoverError::NoInstance(run.instance))?;
            self.attempts.recover(run, incarnation, instance.tasks.ended(), instance.tasks.total());
        }
        Ok(())
    }

    /// An executor is back after a restart: what it does not have of the tasks
    /// that were assigned to it never arrived there.
    pub(super) fn no_longer_awaited(&mut self, incarnation: u64) {
        for (id, first, count, tries) in self.attempts.take_had(incarnation) {
            self.attempts.note(id, first, count, tries, None);
        }
    }

    /// An executor has not come back after a restart: what it had was lost with
    /// it.
    pub(super) fn lose_awaited(&mut self, incarnation: u64, executor: Option<ExecutorId>) {
        let mut had: BTreeMap<(InstanceId, Tries), RunSet> = BTreeMap::new();
        for (id, first, count, tries) in self.attempts.take_had(incarnation) {
            had.entry((id, tries)).or_default().insert(first, count);
        }
        for ((id, tries), wanted) in had {
            let instance = &mut self.instances[&id];
            let lost = tries.lost();
            for run in instance.remove_ready(&self.needs, &mut self.placement, &wanted) {
                debug_assert_eq!(run.tries, tries, "tasks are queued as the journal has them");
                match lost {
                    Some(tries) => self.requeue(id, run.first, run.count, run.class, tries),
                    None => self.end_lost(id, (run.first, run.count), tries, executor, self.now),
                }
            }
            self.lose_waiting(id, &wanted, tries, executor);
            self.runnable.mark(id);
        }
        self.placement.everywhere_mut().left(incarnation, executor);
    }

    /// As [`Dispatcher::lose_awaited`], those of the tasks whose values are
    /// being read from disk.
    fn lose_waiting(
        &mut self,
        id: InstanceId,
        wanted: &RunSet,
        tries: Tries,
        executor: Option<ExecutorId>,
    ) {
        let tasks = &self.instances[&id].tasks;
        let waiting = wanted.iter().flat_map(|(first, count)| tasks.waiting(first, count));
        for task in waiting.collect::<Vec<u64>>() {
            let instance = &mut self.instances[&id];
            if let Some(tries) = tries.lost() {
                instance.tasks.set_tries(task, tries);
                self.attempts.note(id, task, 1, tries, None);
            } else {
                instance.tasks.release(task);
                self.end_lost(id, (task, 1), tries, executor, self.now);
            }
        }
    }

    /// How the tasks stand that were tried or that executors have.
    pub(super) fn snapshot_attempts(&self) -> Vec<Record> {
        let mut runs = Vec::new();
        for instance in self.instances.values() {
            self.queued_attempts(instance, &mut runs);
        }
        for executor in self.fleet.iter() {
            for ((id, first), run) in executor.in_flight.iter() {
                // A dispatcher that is started again knows one try of each task.
                if self.speculation.is_copy(executor.id, *id, *first) {
                    continue;
                }
                let instance = &self.instances[id];
                let of_run = (run.first, run.count);
                add(instance, of_run, run.counted(), Some(executor.id), &mut runs);
            }
        }
        let parts = runs.chunks(RECORD_RUNS_MAX);
        parts.map(|runs| Record::Attempts { runs: runs.to_vec() }).collect()
    }

    fn queued_attempts(&self, instance: &Instance, runs: &mut Vec<Attempts>) {
        let is_tried = |tries: &Tries| *tries != Tries::default();
        for (key, queue) in instance.queues.iter() {
            for run in queue.runs().filter(|run| is_tried(&run.tries)) {
                add(instance, (run.first, run.count), run.tries, None, runs);
            }
            let with_data = self.placement.tasks_of((instance.id, key));
            for (task, past) in with_data.filter(|(_, past)| is_tried(&past.tries)) {
                add(instance, (task, 1), past.tries, None, runs);
            }
        }
        let own = self.placement.everywhere().tasks_of(instance.id);
        for (task, past) in own.filter(|(_, past)| is_tried(&past.tries)) {
            add(instance, (task, 1), past.tries, None, runs);
        }
        for (task, tries) in instance.tasks.tried().filter(|(_, tries)| is_tried(tries)) {
            add(instance, (task, 1), tries, None, runs);
        }
        for (first, count, tries, incarnation) in self.attempts.awaited(instance.id) {
            add(instance, (first, count), tries, self.comeback.number(incarnation), runs);
        }
    }
}

/// Notes how tasks stand, but for those that have ended and run again: how often
/// they do is counted elsewhere.
fn add(
    instance: &Instance,
    (first, count): (u64, u64),
    tries: Tries,
    executor: Option<ExecutorId>,
    runs: &mut Vec<Attempts>,
) {
    for (first, count) in instance.tasks.unended(first, count) {
        let (instance, first) = (instance.id, TaskId(first));
        runs.push(Attempts { instance, first, count, tries, executor });
    }
}
