//! Instances and submissions: what comes in from clients.

use super::attempts::Ledger;
use super::instance::{Batch, Instance, QueueKey, ReadyRun, Told};
use super::intermediate::Links;
use super::needs::{Need, NeedId, Needs};
use super::{Action, BatchId, ConnectionId, Dispatcher, InstanceOptions, Record, RequestError};
use crate::data::index::Index;
use crate::limits::{
    INSTANCE_BYTES, INSTANCE_NEEDS_MAX, INSTANCE_TASKS_MAX, INSTANCES_MAX, NAME_BYTES_MAX,
    QUEUED_BYTES_MAX, SUBMISSION_TASKS_MAX,
};
use crate::result::Outcome;
use crate::task::{InstanceId, Submission, SubmissionError, TaskId, Time};
use std::collections::BTreeSet;

impl Dispatcher {
    pub(super) fn create(&mut self, options: InstanceOptions) -> Result<InstanceId, RequestError> {
        options.policy.check().map_err(RequestError::Policy)?;
        if options.name.len() > NAME_BYTES_MAX {
            return Err(RequestError::LongName { bytes: options.name.len() as u64 });
        }
        if self.instances.len() >= INSTANCES_MAX {
            self.end_vacant();
        }
        if self.instances.len() >= INSTANCES_MAX {
            let instances = self.instances.len() as u64;
            return Err(RequestError::TooManyInstances { instances });
        }
        self.room.accept(INSTANCE_BYTES)?;
        let id = InstanceId(self.next_instance);
        let created = self.now;
        self.journal(Record::Created { instance: id, created, options: options.clone() });
        self.insert_instance(id, created, options);
        Ok(id)
    }

    pub(super) fn insert_instance(
        &mut self,
        id: InstanceId,
        created: Time,
        options: InstanceOptions,
    ) {
        self.next_instance = self.next_instance.max(id.0 + 1);
        self.lifetimes.begin(self.now, id, created, &options);
        self.instances.insert(id, Instance::new(id, options));
    }

    /// Accepts tasks, or says why not. A submission that was accepted before
    /// from the same `client` is accepted again without effect, so that a client
    /// that lost its connection can send it again.
    pub(super) fn submit(
        &mut self,
        id: InstanceId,
        first: TaskId,
        client: u64,
        submission: Submission,
    ) -> Result<u64, RequestError> {
        let instance = self.instances.get(&id).ok_or(RequestError::NoInstance(id))?;
        let count = submission.count;
        if instance.submitters.has(client, first.0, count) {
            return Ok(count);
        }
        if instance.sealed {
            return Err(RequestError::Sealed(id));
        }
        if first.0 != instance.total {
            return Err(RequestError::Gap { expected: TaskId(instance.total), found: first });
        }
        submission.check().map_err(RequestError::Submission)?;
        submission.check_lengths().map_err(RequestError::Submission)?;
        if count > SUBMISSION_TASKS_MAX || instance.total + count > INSTANCE_TASKS_MAX {
            return Err(RequestError::Submission(SubmissionError::TooMany));
        }
        for after in &submission.after {
            if after.tasks.contains(&TaskId(first.0 + after.offset)) {
                let error = SubmissionError::Malformed("dependency of a task on itself");
                return Err(RequestError::Submission(error));
            }
        }
        if instance.queued_bytes > QUEUED_BYTES_MAX {
            return Err(RequestError::Busy { queued_bytes: instance.queued_bytes });
        }
        if submission.classes.len() > INSTANCE_NEEDS_MAX {
            return Err(RequestError::TooManyNeeds);
        }
        if instance.queues.is_beyond(submission.classes.len()) {
            return Err(RequestError::Busy { queued_bytes: instance.queued_bytes });
        }
        self.room.accept(submission.bytes())?;
        let queued = self.now;
        self.journal(Record::Submitted {
            instance: id,
            first,
            queued,
            client,
            submission: submission.clone(),
        });
        self.admit(id, first, queued, client, submission);
        self.queue_tasks(id, first.0);
        self.unplaced = true;
        Ok(count)
    }

    /// There are no tasks: nothing refers to executors that are gone, and none
    /// need be emptied.
    pub(super) fn forget_departed(&mut self) {
        for id in std::mem::take(&mut self.reserved) {
            if let Some(executor) = self.executors.find_mut(&id) {
                executor.reserved = None;
            }
        }
        let comeback = &self.comeback;
        let executors = &self.executors;
        self.executor_names.retain(|id| executors.contains_key(&id) || comeback.expects_number(id));
    }

    /// Takes a submission into the books; its tasks are not queued yet.
    pub(super) fn admit(
        &mut self,
        id: InstanceId,
        first: TaskId,
        queued: Time,
        client: u64,
        mut submission: Submission,
    ) {
        self.knows_data |= submission.data.is_some();
        let data = submission.data.clone();
        let Some(instance) = self.instances.get_mut(&id) else { return };
        instance.submitters.submitted(client, first.0, submission.count);
        let needs = hold_needs(instance, &mut self.needs, &submission);
        let batch = instance.told_alike(&mut submission).unwrap_or_else(|| {
            let batch = BatchId(self.next_batch);
            self.next_batch += 1;
            instance.told.insert(batch, Told { batches: 1, ..Told::default() });
            batch
        });
        let count = submission.count;
        self.tally.submitted(count);
        let class_ends = submission
            .class_runs
            .iter()
            .scan(0, |end, (count, _)| {
                *end += count;
                Some(*end)
            })
            .collect();
        instance.total = instance.total.max(first.0 + count);
        let queued_bytes = submission.bytes();
        instance.queued_bytes += queued_bytes;
        let links = match submission.data.as_deref() {
            Some(data) => instance.kept.admit(first.0, count, data),
            None => Links::default(),
        };
        for writer in links.reads_of {
            if let Some(batch) = instance.batch_of_mut(TaskId(writer)) {
                batch.read_by += 1;
            }
        }
        let takes_any = submission.after.iter().any(|after| after.takes > 0);
        if takes_any {
            instance.want_values(&submission.after);
            self.to_deliver.insert(id);
        }
        instance.batches.insert(
            first.0,
            Batch {
                id: batch,
                first: first.0,
                submission,
                needs,
                class_ends,
                queued,
                unfinished: count,
                queued_bytes,
                leaves_any: links.leaves_any,
                read_by: links.read_by,
                takes_any,
            },
        );
        if let Some(data) = data {
            self.readership.join(&data, 0, count);
            self.name_declared(id, &data);
        }
    }

    /// Queues the tasks of a batch that have not ended: those that wait for
    /// others as waiting, the rest as ready.
    pub(super) fn queue_tasks(&mut self, id: InstanceId, batch_first: u64) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let Some(batch) = instance.batches.get(&batch_first) else { return };
        let class_runs = batch.submission.class_runs.clone();
        // Taken out so that queues can change meanwhile; put back below.
        let after = match instance.batches.get_mut(&batch_first) {
            Some(batch) => std::mem::take(&mut batch.submission.after),
            None => Vec::new(),
        };
        let mut doomed = Vec::new();
        let mut located = BTreeSet::new();
        let mut entries = after.iter().peekable();
        let mut at = batch_first;
        for (count, class) in class_runs {
            let end = at + count;
            while let Some(entry) = entries.next_if(|entry| batch_first + entry.offset < end) {
                let task = batch_first + entry.offset;
                if instance.finished.contains(task) {
                    continue;
                }
                let failed =
                    entry.tasks.iter().find(|upstream| instance.failed.contains(upstream.0));
                let upstreams: BTreeSet<u64> = entry
                    .tasks
                    .iter()
                    .map(|upstream| upstream.0)
                    .filter(|upstream| !instance.finished.contains(*upstream))
                    .collect();
                let reads: Vec<u64> = entry
                    .taken()
                    .iter()
                    .map(|task| task.0)
                    .filter(|task| instance.values.is_stored(*task))
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .collect();
                let row_bytes = instance
                    .batches
                    .get(&batch_first)
                    .map_or(0, |batch| batch.row_bytes(entry.offset));
                let ready = failed.is_none() && upstreams.is_empty() && reads.is_empty();
                let obstacle =
                    ready.then(|| instance.values.obstacle(entry.taken(), row_bytes)).flatten();
                if ready && obstacle.is_none() {
                    continue;
                }
                let books = (&self.needs, &mut self.index, &self.attempts);
                located.extend(Self::queue_ready(instance, books, at, task - at, class));
                at = task + 1;
                if let Some(upstream) = failed {
                    doomed.push((task, Outcome::UpstreamFailed(*upstream), None));
                } else if obstacle.is_some() {
                    doomed.push((task, Outcome::NoInput, obstacle));
                } else {
                    instance.missing.insert(task, (upstreams.len() + reads.len()) as u32);
                    if let Some(tries) = self.attempts.tries_of(id, task) {
                        instance.kept.parked.insert(task, tries);
                    }
                    for value in reads {
                        instance.values.readers.entry(value).or_default().push(task);
                    }
                    for upstream in upstreams {
                        instance.dependents.entry(upstream).or_default().push(task);
                    }
                }
            }
            let books = (&self.needs, &mut self.index, &self.attempts);
            located.extend(Self::queue_ready(instance, books, at, end - at, class));
            at = end;
        }
        if let Some(batch) = instance.batches.get_mut(&batch_first) {
            batch.submission.after = after;
        }
        for key in located {
            self.located.grew(id, Some(key));
        }
        for (task, outcome, detail) in doomed {
            self.end_unrun_for(id, task, outcome, detail);
        }
        self.runnable.mark(id);
    }

    /// Returns the queue if data decides where the tasks go.
    fn queue_ready(
        instance: &mut Instance,
        (needs, index, attempts): (&Needs, &mut Index, &Ledger),
        first: u64,
        count: u64,
        class: u32,
    ) -> Option<QueueKey> {
        let mut located = None;
        for (first, count) in instance.finished.gaps(first, count) {
            for (first, count, tries) in attempts.tried(instance.id, first, count) {
                let run = ReadyRun { first, count, class, tries };
                located = instance.push_ready(needs, index, run).or(located);
            }
        }
        located
    }

    pub(super) fn seal(&mut self, id: InstanceId) -> Result<(), RequestError> {
        let instance = self.instances.get_mut(&id).ok_or(RequestError::NoInstance(id))?;
        if !instance.sealed {
            instance.sealed = true;
            self.released.extend(instance.kept.unread());
            self.journal(Record::Sealed { instance: id });
            self.forget_spent(id);
            self.to_deliver.insert(id);
        }
        Ok(())
    }

    pub(super) fn destroy(&mut self, id: InstanceId, by: ConnectionId) -> Result<(), RequestError> {
        self.remove_instance(id, Some(by), Record::Destroyed { instance: id })
    }

    /// Removes an instance with all that it has; `by` knows.
    pub(super) fn remove_instance(
        &mut self,
        id: InstanceId,
        by: Option<ConnectionId>,
        record: Record,
    ) -> Result<(), RequestError> {
        self.settle_all_inputs(id);
        let mut instance = self.instances.remove(&id).ok_or(RequestError::NoInstance(id))?;
        for (key, queue) in instance.queues.iter_mut() {
            self.located.forget(id, key);
            if let Some(located) = &mut queue.located {
                located.drain(&mut self.index);
            }
        }
        self.lifetimes.end(id);
        self.runnable.remove(id, &instance.share);
        self.to_deliver.remove(&id);
        for executor in self.executors.values_mut() {
            // The executors behind the last one with tasks are not looked at.
            if instance.dispatched == 0 {
                break;
            }
            for held in executor.held_of(id) {
                instance.dispatched = instance.dispatched.saturating_sub(held.count);
                for run in executor.take(&held) {
                    executor.release(&self.needs, run.need, run.count, true);
                }
                executor.order.disown.push(held);
                self.orders.send(executor.id);
                self.fresh.insert(executor.id);
            }
        }
        self.forget_kept(&instance);
        self.release_placed(id);
        self.readership.forget(&instance);
        self.outputs.forget_all(id);
        for (batch, told) in &instance.told {
            self.forget_batch(*batch, &told.known_by);
        }
        let ids: Vec<_> = self.fresh.iter().copied().collect();
        for executor in ids {
            self.refresh_executor(executor);
        }
        instance.queues.let_all_go(&mut self.needs);
        if self.instances.is_empty() {
            self.forget_departed();
        }
        self.unplaced = true;
        self.journal(record);
        self.ended.forget(id);
        self.attempts.forget(id);
        self.weigh(id);
        self.drop_pages(instance.results.pages().map(|page| page.place).collect());
        // Whoever destroys it knows; others would wait for ever.
        for subscriber in instance.subscribers {
            self.subscriptions.remove(subscriber.connection, id);
            if Some(subscriber.connection) != by {
                let connection = subscriber.connection;
                self.actions.push_back(Action::Gone { connection, instance: id });
            }
        }
        Ok(())
    }
}

/// The needs of a submission's classes, numbered, for as long as some of its
/// tasks have not ended.
pub(super) fn hold_needs(
    instance: &mut Instance,
    needs: &mut Needs,
    submission: &Submission,
) -> Vec<NeedId> {
    let data = submission.data.is_some();
    let classes = submission.classes.iter();
    let held = classes.map(|class| {
        let need = Need::of(class, data);
        instance.queues.hold(needs, &need)
    });
    held.collect()
}
