//! Tasks that end, and what follows from it: dependants, batches.

use super::instance::{Instance, ReadyRun};
use super::{BatchId, Dispatcher};
use crate::result::{Finished, Outcome, Status, Tries};
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, TaskId, Time};

impl Dispatcher {
    /// Tasks end without having run.
    pub(super) fn end_unrun(&mut self, id: InstanceId, first: u64, count: u64, outcome: Outcome) {
        let Some(instance) = self.instances.get(&id) else { return };
        let queued = instance.batch_of(TaskId(first)).map_or(Time::default(), |batch| batch.queued);
        let now = self.now;
        self.end(
            id,
            Finished {
                first: TaskId(first),
                count,
                outcome,
                executor: None,
                attempts: 0,
                queued,
                dispatched: now,
                started: now,
                ended: now,
                detail: None,
            },
        );
    }

    /// Tasks end for good: dependants are released, or fail with them, to any
    /// depth.
    pub(super) fn end(&mut self, id: InstanceId, finished: Finished) {
        let mut ended = Vec::new();
        let mut next = Some(finished);
        while let Some(finished) = next.take().or_else(|| ended.pop()) {
            let Some(instance) = self.instances.get_mut(&id) else { return };
            let (first, count) = (finished.first.0, finished.count);
            let status = finished.outcome.status();
            instance.record_end(&finished);
            let waiting: Vec<u64> = instance
                .dependents
                .range(first..first.saturating_add(count))
                .map(|(upstream, _)| *upstream)
                .collect();
            for upstream in waiting {
                let dependents = instance.dependents.remove(&upstream).unwrap_or_default();
                for task in dependents {
                    let Some(missing) = instance.missing.get_mut(&task) else { continue };
                    *missing -= 1;
                    let ready = *missing == 0;
                    if status != Status::Done || ready {
                        instance.missing.remove(&task);
                    }
                    if status != Status::Done {
                        let queued = instance
                            .batch_of(TaskId(task))
                            .map_or(Time::default(), |batch| batch.queued);
                        ended.push(Finished {
                            first: TaskId(task),
                            count: 1,
                            outcome: Outcome::UpstreamFailed(TaskId(upstream)),
                            executor: None,
                            attempts: 0,
                            queued,
                            dispatched: self.now,
                            started: self.now,
                            ended: self.now,
                            detail: None,
                        });
                    } else if ready && let Some(class) = instance.class_of(task) {
                        let run =
                            ReadyRun { first: task, count: 1, class, tries: Tries::default() };
                        let key = instance.push_ready(&self.needs, &mut self.index, run);
                        self.located.grew(id, key);
                        self.unplaced = true;
                    }
                }
            }
            instance.results.push(finished);
            self.settle_batches(id, first, count);
        }
        self.to_deliver.insert(id);
        self.refresh_hungry(id);
    }

    /// Counts ended tasks off their batches; those all of whose tasks have
    /// ended go, unless their results are kept.
    pub(super) fn settle_batches(&mut self, id: InstanceId, first: u64, count: u64) {
        let end = first + count;
        let mut at = first;
        while at < end {
            let Some(instance) = self.instances.get_mut(&id) else { return };
            let Some(batch) = instance.batch_of_mut(TaskId(at)) else { return };
            let batch_end = batch.first + batch.submission.count;
            let until = end.min(batch_end);
            batch.unfinished -= until - at;
            at = until;
            if batch.unfinished > 0 {
                continue;
            }
            let (batch_first, batch_id) = (batch.first, batch.id);
            if !instance.options.keep_results
                && let Some(batch) = instance.batches.remove(&batch_first)
            {
                instance.queued_bytes -= batch.submission.bytes();
            }
            let Some(told) = instance.told.get_mut(&batch_id) else { continue };
            told.batches -= 1;
            if told.batches > 0 {
                continue;
            }
            let known_by = std::mem::take(&mut told.known_by);
            instance.told.remove(&batch_id);
            self.forget_batch(batch_id, &known_by);
        }
    }

    pub(super) fn forget_batch(&mut self, batch: BatchId, known_by: &RunSet) {
        let all = known_by.iter().flat_map(|(first, count)| first..first + count);
        for executor in all.map(ExecutorId) {
            if let Some(executor) = self.executors.find_mut(&executor) {
                executor.order.forget.push(batch);
                self.ordered.insert(executor.id);
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
                        self.end_unrun(id, task, 1, Outcome::UpstreamFailed(TaskId(upstream)));
                    }
                }
            }
        }
    }
}

/// A task that is waited for in vain, and those that wait for it, which are
/// taken out of the books.
fn stuck(instance: &mut Instance) -> Option<(u64, Vec<u64>)> {
    if !instance.sealed || instance.ready > 0 || instance.dispatched > 0 {
        return None;
    }
    instance.dependents.pop_first()
}
