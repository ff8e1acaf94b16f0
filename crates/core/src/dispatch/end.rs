//! Tasks that end, and what follows from it: dependants, batches.

use super::Dispatcher;
use super::instance::{Instance, ReadyRun};
use crate::events::{Run, What};
use crate::result::{Detail, Finished, Outcome, Status, Tries};
use crate::task::{InstanceId, TaskId, Time};
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
        let batch = self.instances[&id].batch_of(TaskId(first));
        let queued = batch.map_or(Time::default(), |batch| batch.queued);
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
        let batch = self.instances[&id].batch_of(TaskId(task));
        let queued = batch.map_or(Time::default(), |batch| batch.queued);
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
            let instance = &self.instances[&id];
            if !instance.tasks.is_any_recomputing() {
                self.end_some(id, finished, false, &mut ended);
                continue;
            }
            for (first, count, again) in
                instance.tasks.by_recomputing(finished.first.0, finished.count)
            {
                let part = Finished { first: TaskId(first), count, ..finished.clone() };
                self.end_some(id, part, again, &mut ended);
            }
        }
        self.outbound.mark(id);
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
        let mut instance = &mut self.instances[&id];
        let (first, count) = (finished.first.0, finished.count);
        let until = first.saturating_add(count);
        let is_done = finished.outcome.status() == Status::Done;
        if !is_done && instance.tasks.is_any_recomputing() {
            self.instances.recomputes_changed(id);
            instance = &mut self.instances[&id];
        }
        let cause = match again {
            true => {
                instance.tasks.end_recomputed(first, count);
                self.happenings.note(|| {
                    let run = Run { instance: id, first: finished.first, count };
                    What::RecomputationEnded { run, outcome: finished.outcome }
                });
                (!is_done).then(|| super::recompute::cause(&finished))
            }
            false => {
                instance.record_end(&finished);
                None
            }
        };
        for upstream in instance.tasks.upstreams(first, count) {
            let dependents = instance.tasks.take_dependents(upstream);
            let upstream = Upstream { task: upstream, is_done, cause: cause.clone() };
            self.release(id, &upstream, dependents, ended);
            instance = &mut self.instances[&id];
        }
        if !again {
            self.outputs.hold(id, instance.results.end(), &finished);
            instance.results.push(finished);
        }
        if is_done && !instance.intermediates.is_empty() {
            for task in first..until {
                self.placement.copy_outputs(instance, task);
            }
        }
        self.count_ended_in_batches(id, first, count);
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
        let instance = &mut self.instances[&id];
        for task in dependents {
            let Some(tries) = instance.tasks.step(task, !upstream.is_done) else { continue };
            let batch = instance.batch_of(TaskId(task));
            let queued = batch.map_or(Time::default(), |batch| batch.queued);
            if !upstream.is_done {
                let (outcome, detail) = match &upstream.cause {
                    Some(cause) => (Outcome::NoInput, Some(cause.clone())),
                    None => (Outcome::UpstreamFailed(TaskId(upstream.task)), None),
                };
                let last = unrun(TaskId(task), 1, outcome, queued, self.now);
                ended.push(Finished { detail, attempts: tries.ended(), ..last });
            } else if let Some(detail) = instance.obstacle_to(task) {
                let last = unrun(TaskId(task), 1, Outcome::NoInput, queued, self.now);
                let attempts = tries.ended();
                ended.push(Finished { detail: Some(detail), attempts, ..last });
            } else if let Some(class) = instance.class_of(task) {
                let run = ReadyRun { first: task, count: 1, class, tries };
                instance.push_ready(&self.needs, &mut self.placement, run);
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
        self.outbound.mark(id);
        self.runnable.mark(id);
    }

    /// Counts ended tasks off their batches; those all of whose tasks have
    /// ended go, unless their results are kept or what they left is read.
    pub(super) fn count_ended_in_batches(&mut self, id: InstanceId, first: u64, count: u64) {
        let end = first + count;
        let mut at = first;
        while at < end {
            let instance = &mut self.instances[&id];
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
                let unread = instance.intermediates.count_readers(&data, from, tasks, less);
                self.placement.ended(&data, from, tasks);
                if instance.sealed {
                    self.placement.release(unread);
                }
            }
            if unfinished > 0 {
                continue;
            }
            if let Some(batch) = instance.batches.get_mut(&batch_first) {
                for need in std::mem::take(&mut batch.needs) {
                    if let Some(key) = instance.queues.let_go(&mut self.needs, need) {
                        self.placement.queue_gone((id, key));
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
                self.instances.keep_ended(id, batch_first);
            }
            let instance = &mut self.instances[&id];
            let Some(template) = instance.templates.get_mut(&batch_id) else { continue };
            template.batches -= 1;
            if template.batches > 0 {
                continue;
            }
            let known_by = std::mem::take(&mut template.known_by);
            instance.templates.remove(&batch_id);
            self.fleet.forget_batch(batch_id, &known_by, self.now);
        }
        let instance = &mut self.instances[&id];
        if instance.is_complete() {
            instance.forget_spent();
        }
    }

    /// In sealed instances in which nothing runs and nothing can, tasks that
    /// wait do so for tasks that are not there or for one another: they fail.
    pub(super) fn fail_stuck(&mut self) {
        let ids: Vec<InstanceId> = self.outbound.marked().collect();
        for id in ids {
            while let Some((upstream, tasks)) = stuck(&mut self.instances[&id]) {
                for task in tasks {
                    if let Some(tries) = self.instances[&id].tasks.release(task) {
                        let outcome = Outcome::UpstreamFailed(TaskId(upstream));
                        self.end_unrun(id, (task, 1), outcome, tries);
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
        || instance.tasks.ready() > 0
        || instance.tasks.assigned() > 0
        || !instance.values.readers.is_empty()
    {
        return None;
    }
    instance.tasks.take_stuck()
}
