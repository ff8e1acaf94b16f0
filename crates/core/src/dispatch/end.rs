//! Tasks that end, and what follows from it: dependants, batches.

use super::instance::{Instance, ReadyRun};
use super::{BatchId, Dispatcher};
use crate::result::{Detail, Finished, Outcome, Status, Tries};
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, TaskId, Time};
use std::sync::Arc;

impl Dispatcher {
    /// Tasks end while no executor has them, after these tries.
    pub(super) fn end_unrun(
        &mut self,
        id: InstanceId,
        (first, count): (u64, u64),
        outcome: Outcome,
        tries: Tries,
    ) {
        let Some(instance) = self.instances.get(&id) else { return };
        let queued = instance.batch_of(TaskId(first)).map_or(Time::default(), |batch| batch.queued);
        let unrun = unrun(TaskId(first), count, outcome, queued, self.now);
        self.end(id, Finished { attempts: tries.ended(), ..unrun });
    }

    /// A task ends without having run, with more to say about it.
    pub(super) fn end_unrun_for(
        &mut self,
        id: InstanceId,
        task: u64,
        outcome: Outcome,
        detail: Option<Arc<Detail>>,
    ) {
        let Some(instance) = self.instances.get(&id) else { return };
        let queued = instance.batch_of(TaskId(task)).map_or(Time::default(), |batch| batch.queued);
        let finished = unrun(TaskId(task), 1, outcome, queued, self.now);
        self.end(id, Finished { detail, ..finished });
    }

    /// Tasks end for good: dependants are released, or fail with them, to any
    /// depth. Tasks that have ended before, and have run again for their data,
    /// end without a second result.
    pub(super) fn end(&mut self, id: InstanceId, finished: Finished) {
        let mut ended = Vec::new();
        let mut next = Some(finished);
        while let Some(finished) = next.take().or_else(|| ended.pop()) {
            let Some(instance) = self.instances.get_mut(&id) else { return };
            if instance.kept.again.is_empty() {
                self.end_some(id, finished, false, &mut ended);
                continue;
            }
            for (first, count, again) in instance.kept.split(finished.first.0, finished.count) {
                let part = Finished { first: TaskId(first), count, ..finished.clone() };
                self.end_some(id, part, again, &mut ended);
            }
        }
        self.to_deliver.insert(id);
        self.runnable.mark(id);
    }

    /// Tasks end that all run again, or none of them does. Those that fail with
    /// them are added to `ended`.
    fn end_some(
        &mut self,
        id: InstanceId,
        finished: Finished,
        again: bool,
        ended: &mut Vec<Finished>,
    ) {
        let Some(mut instance) = self.instances.get_mut(&id) else { return };
        let (first, count) = (finished.first.0, finished.count);
        let until = first.saturating_add(count);
        let is_done = finished.outcome.status() == Status::Done;
        if !is_done && !instance.kept.again.is_empty() {
            self.stale_remakes.insert(id);
        }
        let cause = match again {
            true => {
                for task in first..until {
                    instance.kept.again.remove(&task);
                }
                (!is_done).then(|| super::remake::cause(&finished))
            }
            false => {
                instance.record_end(&finished);
                None
            }
        };
        let waiting: Vec<u64> =
            instance.dependents.range(first..until).map(|(upstream, _)| *upstream).collect();
        for upstream in waiting {
            let dependents = instance.dependents.remove(&upstream).unwrap_or_default();
            let upstream = Upstream { task: upstream, is_done, cause: cause.clone() };
            self.release(id, &upstream, dependents, ended);
            let Some(found) = self.instances.get_mut(&id) else { return };
            instance = found;
        }
        if !again {
            self.outputs.hold(id, instance.results.end(), &finished);
            instance.results.push(finished);
        }
        if is_done && !instance.kept.is_empty() {
            for task in first..until {
                self.copy_outputs(id, task);
            }
        }
        self.settle_batches(id, first, count);
    }

    /// A task that others wait for has ended: those are a step nearer, or fail
    /// with it and are added to `ended`.
    fn release(
        &mut self,
        id: InstanceId,
        upstream: &Upstream,
        dependents: Vec<u64>,
        ended: &mut Vec<Finished>,
    ) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        for task in dependents {
            let Some(missing) = instance.missing.get_mut(&task) else { continue };
            *missing -= 1;
            let ready = *missing == 0;
            if !upstream.is_done || ready {
                instance.missing.remove(&task);
            }
            let batch = instance.batch_of(TaskId(task));
            let queued = batch.map_or(Time::default(), |batch| batch.queued);
            if !upstream.is_done {
                let tries = instance.kept.parked.remove(&task).unwrap_or_default();
                let (outcome, detail) = match &upstream.cause {
                    Some(cause) => (Outcome::NoInput, Some(cause.clone())),
                    None => (Outcome::UpstreamFailed(TaskId(upstream.task)), None),
                };
                let last = unrun(TaskId(task), 1, outcome, queued, self.now);
                ended.push(Finished { detail, attempts: tries.ended(), ..last });
            } else if ready && let Some(detail) = instance.obstacle_to(task) {
                let tries = instance.kept.parked.remove(&task).unwrap_or_default();
                let last = unrun(TaskId(task), 1, Outcome::NoInput, queued, self.now);
                let attempts = tries.ended();
                ended.push(Finished { detail: Some(detail), attempts, ..last });
            } else if ready && let Some(class) = instance.class_of(task) {
                let tries = instance.kept.parked.remove(&task).unwrap_or_default();
                let run = ReadyRun { first: task, count: 1, class, tries };
                let key = instance.push_ready(&self.needs, &mut self.index, run);
                self.located.grew(id, key);
                self.unplaced = true;
            }
        }
    }

    /// A value was read from disk, or cannot be: the tasks that waited for that
    /// go on.
    pub(super) fn value_read(&mut self, id: InstanceId, readers: Vec<u64>) {
        let upstream = Upstream { task: 0, is_done: true, cause: None };
        let mut ended = Vec::new();
        self.release(id, &upstream, readers, &mut ended);
        for finished in ended {
            self.end(id, finished);
        }
        self.to_deliver.insert(id);
        self.runnable.mark(id);
    }

    /// Counts ended tasks off their batches; those all of whose tasks have
    /// ended go, unless their results are kept or what they left is read.
    pub(super) fn settle_batches(&mut self, id: InstanceId, first: u64, count: u64) {
        let end = first + count;
        let mut at = first;
        while at < end {
            let Some(instance) = self.instances.get_mut(&id) else { return };
            // Looked up once: this is done for each task that ends.
            let Some(batch) = instance.batch_of_mut(TaskId(at)) else {
                // A run of results may begin with tasks of batches that are gone.
                let next = instance.batches.range(at..end).next();
                at = next.map_or(end, |(first, _)| *first);
                continue;
            };
            let (batch_first, batch_id) = (batch.first, batch.id);
            let until = end.min(batch_first + batch.submission.count);
            let (from, tasks) = (at - batch_first, until - at);
            batch.unfinished -= tasks;
            at = until;
            let (unfinished, takes_any) = (batch.unfinished, batch.takes_any);
            let data = batch.submission.data.clone();
            if takes_any {
                instance.release_values(batch_first, from, tasks);
            }
            if let Some(data) = data {
                let less: fn(&mut u64, u64) = |readers, tasks| {
                    *readers = readers.saturating_sub(tasks);
                };
                let unread = instance.kept.count_readers(&data, from, tasks, less);
                self.readership.leave(&data, from, tasks);
                if instance.sealed {
                    self.released.extend(unread);
                }
            }
            if unfinished > 0 {
                continue;
            }
            if let Some(batch) = instance.batches.get_mut(&batch_first) {
                for need in std::mem::take(&mut batch.needs) {
                    if let Some(key) = instance.queues.let_go(&mut self.needs, need) {
                        self.located.forget(id, key);
                    }
                }
            }
            if !instance.options.keep_results
                && let Some(batch) = instance.batches.get_mut(&batch_first)
            {
                instance.queued_bytes -= std::mem::take(&mut batch.queued_bytes);
            }
            let keeps = instance.options.keep_results;
            instance.forget_if_spent(batch_first);
            if keeps {
                self.keep_ended(id, batch_first);
            }
            let Some(instance) = self.instances.get_mut(&id) else { return };
            let Some(told) = instance.told.get_mut(&batch_id) else { continue };
            told.batches -= 1;
            if told.batches > 0 {
                continue;
            }
            let known_by = std::mem::take(&mut told.known_by);
            instance.told.remove(&batch_id);
            self.forget_batch(batch_id, &known_by);
        }
        if let Some(instance) = self.instances.get_mut(&id)
            && instance.is_complete()
        {
            instance.forget_spent();
        }
    }

    /// Forgets the batches that nobody will ask for.
    pub(super) fn forget_spent(&mut self, id: InstanceId) {
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.forget_spent();
        }
    }

    /// Has executors told that no task needs a batch's template any more. They
    /// wait for nothing, so that goes with the next order or after a moment: a
    /// message of its own would wake each of them for nothing.
    pub(super) fn forget_batch(&mut self, batch: BatchId, known_by: &RunSet) {
        let all = known_by.iter().flat_map(|(first, count)| first..first + count);
        for executor in all.map(ExecutorId) {
            if let Some(executor) = self.executors.find_mut(&executor) {
                executor.order.forget.push(batch);
                let id = executor.id;
                self.orders.send_later(id, self.now);
            }
        }
    }

    /// In sealed instances in which nothing runs and nothing can, tasks that
    /// wait do so for tasks that are not there or for one another: they fail.
    pub(super) fn fail_stuck(&mut self) {
        let ids: Vec<InstanceId> = self.to_deliver.iter().copied().collect();
        for id in ids {
            while let Some((upstream, tasks)) = self.instances.get_mut(&id).and_then(stuck) {
                for task in tasks {
                    let waits = self
                        .instances
                        .get_mut(&id)
                        .is_some_and(|instance| instance.missing.remove(&task).is_some());
                    if waits {
                        let outcome = Outcome::UpstreamFailed(TaskId(upstream));
                        self.end_unrun(id, (task, 1), outcome, Tries::default());
                    }
                }
            }
        }
    }
}

/// A task that has ended and that others waited for.
struct Upstream {
    task: u64,
    is_done: bool,
    /// What those fail with that wait for it, if not with its failure.
    cause: Option<Arc<Detail>>,
}

/// What is said of tasks that end without having run.
pub(super) fn unrun(
    first: TaskId,
    count: u64,
    outcome: Outcome,
    queued: Time,
    now: Time,
) -> Finished {
    Finished {
        first,
        count,
        outcome,
        executor: None,
        attempts: 0,
        queued,
        dispatched: now,
        started: now,
        ended: now,
        detail: None,
    }
}

/// A task that is waited for in vain, and those that wait for it, which are
/// taken out of the books.
fn stuck(instance: &mut Instance) -> Option<(u64, Vec<u64>)> {
    if !instance.sealed
        || instance.ready > 0
        || instance.dispatched > 0
        || !instance.values.readers.is_empty()
    {
        return None;
    }
    instance.dependents.pop_first()
}
