//! Instances and submissions: what comes in from clients.

use super::alternatives::{begins_of, need_count};
use super::attempts::Ledger;
use super::instance::{Batch, Instance, ReadyRun};
use super::intermediate::Links;
use super::needs::{DataNeed, Need, NeedId, Needs};
use super::placement::Placement;
use super::{ConnectionId, Dispatcher, InstanceOptions, Record, RequestError};
use crate::limits::{
    INSTANCE_BYTES, INSTANCE_NEEDS_MAX, INSTANCE_TASKS_MAX, INSTANCES_MAX, NAME_BYTES_MAX,
    QUEUED_BYTES_MAX, STRIPES_MAX, SUBMISSION_TASKS_MAX,
};
use crate::result::Outcome;
use crate::runset::RunSet;
use crate::task::{InstanceId, Submission, SubmissionError, SubmissionPart, TaskId, Time, UserId};
use std::collections::BTreeSet;

impl Dispatcher {
    pub(super) fn create(
        &mut self,
        options: InstanceOptions,
        user: UserId,
    ) -> Result<InstanceId, RequestError> {
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
        if self.check_instances(user).is_err() {
            self.end_vacant_of(user);
        }
        self.check_instances(user)?;
        self.journal_room.accept(INSTANCE_BYTES)?;
        let id = self.instances.next();
        let created = self.now;
        self.journal(Record::Created { instance: id, created, options: options.clone() });
        self.insert_instance(id, created, options);
        self.give_to(id, user);
        Ok(id)
    }

    pub(super) fn insert_instance(
        &mut self,
        id: InstanceId,
        created: Time,
        options: InstanceOptions,
    ) {
        self.instances.create(self.now, id, created, options);
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
        if let Some(count) = self.accepted_before(id, first, client, &submission) {
            return Ok(count);
        }
        let instance = self.instances.find(&id).ok_or(RequestError::NoInstance(id))?;
        let count = submission.count;
        if instance.sealed {
            return Err(RequestError::Sealed(id));
        }
        if first.0 != instance.tasks.total() {
            return Err(RequestError::Gap {
                expected: TaskId(instance.tasks.total()),
                found: first,
            });
        }
        submission.check().map_err(RequestError::Submission)?;
        submission.check_lengths().map_err(RequestError::Submission)?;
        if count > SUBMISSION_TASKS_MAX || instance.tasks.total() + count > INSTANCE_TASKS_MAX {
            return Err(RequestError::Submission(SubmissionError::TooMany));
        }
        for after in &submission.after {
            if after.tasks.contains(&TaskId(first.0 + after.offset)) {
                let error = SubmissionError::Malformed(SubmissionPart::DependencyOnItself);
                return Err(RequestError::Submission(error));
            }
        }
        if instance.queued_bytes > QUEUED_BYTES_MAX {
            return Err(RequestError::Busy { queued_bytes: instance.queued_bytes });
        }
        let needs = need_count(&submission);
        if needs > INSTANCE_NEEDS_MAX {
            return Err(RequestError::TooManyNeeds);
        }
        if instance.queues.is_beyond(needs) {
            return Err(RequestError::Busy { queued_bytes: instance.queued_bytes });
        }
        let wanted = submission.classes.iter().map(|class| class.lenders).max().unwrap_or(0);
        let there = self.placement.lender_count().min(STRIPES_MAX) as u32;
        if wanted > there {
            return Err(RequestError::Lenders { wanted, there });
        }
        self.check_quota(id, &submission)?;
        if submission.everywhere.is_some() {
            return self.submit_everywhere(id, first, client, submission);
        }
        self.journal_room.accept(submission.bytes())?;
        self.accept(id, first, client, submission);
        Ok(count)
    }

    /// Journals and queues tasks for which there is room.
    pub(super) fn accept(
        &mut self,
        id: InstanceId,
        first: TaskId,
        client: u64,
        submission: Submission,
    ) {
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
    }

    /// There are no tasks: nothing refers to executors that are gone, and none
    /// need be emptied.
    pub(super) fn forget_departed(&mut self) {
        self.fleet.end_reservations();
        let comeback = &self.comeback;
        self.fleet.forget_names(|id| comeback.expects_number(id));
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
        let data = submission.data.clone();
        let (instance, batch) = self.instances.number_batch(&id, &mut submission);
        instance.submitters.submitted(client, first.0, submission.count);
        let needs = hold_needs(instance, &mut self.needs, &submission);
        let count = submission.count;
        self.tally.submitted(count);
        let alternatives = begins_of(&submission);
        let class_ends = submission
            .class_runs
            .iter()
            .scan(0, |end, (count, _)| {
                *end += count;
                Some(*end)
            })
            .collect();
        instance.tasks.accept(first.0, count);
        let queued_bytes = submission.bytes();
        instance.queued_bytes += queued_bytes;
        let links = match submission.data.as_deref() {
            Some(data) => {
                let is_above = instance.options.keep_output;
                instance.intermediates.admit((first.0, count), data, is_above)
            }
            None => Links::default(),
        };
        for writer in links.reads_of {
            if let Some(batch) = instance.batch_of_mut(TaskId(writer)) {
                batch.read_by += 1;
            }
        }
        if submission.classes.iter().any(|class| class.speculate) {
            self.speculation.watch(id, self.now);
        }
        let takes_any = submission.after.iter().any(|after| after.takes > 0);
        if takes_any {
            instance.want_values(&submission.after);
            self.outbound.mark(id);
        }
        instance.batches.insert(
            first.0,
            Batch {
                id: batch,
                first: first.0,
                submission,
                needs,
                alternatives,
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
            self.placement.submitted(id, &data, count, &self.instances);
        }
    }

    /// Queues the tasks of a batch that have not ended: those that wait for
    /// others as waiting, the rest as ready.
    pub(super) fn queue_tasks(&mut self, id: InstanceId, batch_first: u64) {
        self.queue_some(id, batch_first, None);
    }

    /// The same for those of them that are `wanted`, if not all are: the others are in their
    /// places.
    pub(super) fn queue_some(&mut self, id: InstanceId, batch_first: u64, wanted: Option<&RunSet>) {
        let instance = &mut self.instances[&id];
        let Some(batch) = instance.batches.get(&batch_first) else { return };
        let class_runs = batch.submission.class_runs.clone();
        // Taken out so that queues can change meanwhile; put back below.
        let after = match instance.batches.get_mut(&batch_first) {
            Some(batch) => std::mem::take(&mut batch.submission.after),
            None => Vec::new(),
        };
        let mut doomed = Vec::new();
        let mut entries = after.iter().peekable();
        let mut at = batch_first;
        for (count, class) in class_runs {
            let end = at + count;
            while let Some(entry) = entries.next_if(|entry| batch_first + entry.offset < end) {
                let task = batch_first + entry.offset;
                let is_wanted = wanted.is_none_or(|wanted| wanted.contains(task));
                if instance.tasks.has_ended(task) || !is_wanted {
                    continue;
                }
                let failed =
                    entry.tasks.iter().find(|upstream| instance.tasks.has_failed(upstream.0));
                let upstreams: BTreeSet<u64> = entry
                    .tasks
                    .iter()
                    .map(|upstream| upstream.0)
                    .filter(|upstream| !instance.tasks.has_ended(*upstream))
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
                let books = (&self.needs, &mut self.placement, &self.attempts);
                Self::queue_ready(instance, books, wanted, (at, task - at), class);
                at = task + 1;
                if let Some(upstream) = failed {
                    doomed.push((task, Outcome::UpstreamFailed(*upstream), None));
                } else if obstacle.is_some() {
                    doomed.push((task, Outcome::NoInput, obstacle));
                } else {
                    let tries = self.attempts.tries_of(id, task);
                    instance.tasks.hold(task, reads.len(), upstreams, tries);
                    for value in reads {
                        instance.values.readers.entry(value).or_default().push(task);
                    }
                }
            }
            let books = (&self.needs, &mut self.placement, &self.attempts);
            Self::queue_ready(instance, books, wanted, (at, end - at), class);
            at = end;
        }
        if let Some(batch) = instance.batches.get_mut(&batch_first) {
            batch.submission.after = after;
        }
        for (task, outcome, detail) in doomed {
            self.end_unrun_for(id, task, outcome, detail);
        }
        self.runnable.mark(id);
    }

    fn queue_ready(
        instance: &mut Instance,
        (needs, placement, attempts): (&Needs, &mut Placement, &Ledger),
        wanted: Option<&RunSet>,
        (first, count): (u64, u64),
        class: u32,
    ) {
        let unended = instance.tasks.unended(first, count).into_iter();
        let wanted = unended.flat_map(|(first, count)| match wanted {
            Some(wanted) => wanted.within(first, count),
            None => vec![(first, count)],
        });
        for (first, count) in wanted.collect::<Vec<_>>() {
            for (first, count, tries) in attempts.tried(instance.id, first, count) {
                let run = ReadyRun { first, count, class, tries };
                instance.push_ready(needs, placement, run);
            }
        }
    }

    pub(super) fn seal(&mut self, id: InstanceId) -> Result<(), RequestError> {
        let instance = self.instances.find_mut(&id).ok_or(RequestError::NoInstance(id))?;
        if !instance.sealed {
            instance.sealed = true;
            self.placement.everywhere_mut().end_joining(id);
            self.placement.release(instance.intermediates.unread());
            self.journal(Record::Sealed { instance: id });
            self.instances[&id].forget_spent();
            self.outbound.mark(id);
        }
        Ok(())
    }

    pub(super) fn destroy(&mut self, id: InstanceId, by: ConnectionId) -> Result<(), RequestError> {
        self.remove_instance(id, Some(by), Record::Destroyed { instance: id })?;
        self.users.forget(id);
        Ok(())
    }

    /// Removes an instance with all that it has; `by` knows.
    pub(super) fn remove_instance(
        &mut self,
        id: InstanceId,
        by: Option<ConnectionId>,
        record: Record,
    ) -> Result<(), RequestError> {
        self.cancel_instance_transfers(id);
        let mut instance = self.instances.remove(&id).ok_or(RequestError::NoInstance(id))?;
        self.paging.forget(id);
        self.placement.instance_gone(&instance);
        if self.runnable.remove(id, &instance.share, self.now) {
            self.reopen(instance.share.user());
        }
        self.outbound.forget(id);
        self.pauses.forget_instance(id);
        self.gangs.look_at_instance(id);
        let assigned = instance.tasks.assigned() + self.speculation.forget(id);
        self.fleet.drop_instance(id, assigned, &self.needs, self.now);
        let notices = self.placement.forget_kept(&instance, &self.instances, &self.fleet);
        self.notify(notices);
        self.outputs.forget_all(id);
        for (batch, template) in &instance.templates {
            self.fleet.forget_batch(*batch, &template.known_by, self.now);
        }
        instance.queues.let_all_go(&mut self.needs);
        if self.instances.is_empty() {
            self.forget_departed();
        }
        self.unplaced = true;
        self.journal(record);
        self.attempts.forget(id);
        self.weigh(id);
        self.drop_pages(instance.results.pages().map(|page| page.place).collect());
        // Whoever destroys it knows; others would wait for ever.
        for subscriber in instance.subscribers {
            let connection = subscriber.connection;
            self.outbound.end_subscription(connection, id, Some(connection) == by);
        }
        Ok(())
    }
}

/// The needs of a submission's classes, and behind them those of the alternatives of each,
/// numbered, for as long as some of its tasks have not ended.
pub(super) fn hold_needs(
    instance: &mut Instance,
    needs: &mut Needs,
    submission: &Submission,
) -> Vec<NeedId> {
    let data = DataNeed::of(submission.data.as_deref());
    let of_classes = submission.classes.iter().map(|class| Need::of(class, data));
    let mut held: Vec<NeedId> = of_classes.map(|need| instance.queues.hold(needs, &need)).collect();
    for class in submission.classes.iter().filter(|class| class.has_alternatives()) {
        let alternatives = Need::of(class, data);
        held.extend(alternatives.alternatives().map(|need| instance.queues.hold(needs, &need)));
    }
    held
}
