//! What is journaled, and how a dispatcher comes back from it (ARCHITECTURE.md).
//!
//! Tasks that executors had are ready again, and executors that come back within
//! a grace keep what they have. What the others had is lost with them
//! (`attempts.rs`).

use super::cancel::records_of;
use super::instance::Instance;
use super::outputs::PagedOutput;
use super::pages::{StoredPage, page_parts};
use super::{Attempts, Dispatcher, InstanceOptions, Remembered};
use crate::limits::INSTANCE_TASKS_MAX;
use crate::result::{Counts, Finished};
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, Packed, Submission, TaskId, Time, UserId};
use std::sync::Arc;

/// One entry of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// An instance was created.
    Created {
        /// Its number.
        instance: InstanceId,
        /// When.
        created: Time,
        /// Its options.
        options: InstanceOptions,
    },
    /// Tasks were accepted.
    Submitted {
        /// Where.
        instance: InstanceId,
        /// The id of the first.
        first: TaskId,
        /// When.
        queued: Time,
        /// The client, as it calls itself; 0 if that is told apart from this.
        client: u64,
        /// The tasks.
        submission: Submission,
    },
    /// A task is to run on each executor that joins.
    Joining {
        /// Where.
        instance: InstanceId,
        /// The id of the first that was made of it, or would have been.
        first: TaskId,
        /// The client, as it calls itself.
        client: u64,
        /// The task.
        submission: Submission,
    },
    /// An instance takes no more tasks.
    Sealed {
        /// The instance.
        instance: InstanceId,
    },
    /// Tasks ended.
    Finished {
        /// The instance.
        instance: InstanceId,
        /// How many task results come before these.
        from: u64,
        /// How they ended.
        results: Vec<Finished>,
    },
    /// Results were taken in by the client and forgotten.
    Acknowledged {
        /// The instance.
        instance: InstanceId,
        /// How many.
        upto: u64,
    },
    /// Tasks are to be cancelled.
    Cancelled {
        /// The instance.
        instance: InstanceId,
        /// Which, as (first, count).
        runs: Vec<(u64, u64)>,
    },
    /// An instance is gone.
    Destroyed {
        /// The instance.
        instance: InstanceId,
    },
    /// An instance has expired.
    Expired {
        /// The instance.
        instance: InstanceId,
        /// When.
        at: Time,
    },
    /// A client of an instance was there; not every time is journaled.
    Heard {
        /// The instance.
        instance: InstanceId,
        /// When.
        at: Time,
    },
    /// In a snapshot: tasks that a client submitted, the live submissions
    /// included.
    Submitters {
        /// Where.
        instance: InstanceId,
        /// The client, as it calls itself.
        client: u64,
        /// The tasks, as (first, count).
        runs: Vec<(u64, u64)>,
    },
    /// An executor registered.
    ExecutorSeen {
        /// The number it got.
        executor: ExecutorId,
        /// The process it is.
        incarnation: u64,
        /// For people.
        name: String,
    },
    /// An executor was given up.
    ExecutorGone {
        /// The process it was.
        incarnation: u64,
    },
    /// A task that had ended runs again for what it left in caches.
    Recomputed {
        /// Its instance.
        instance: InstanceId,
        /// The task.
        task: TaskId,
        /// How often it has been run again, this time included.
        times: u32,
    },
    /// How tasks stand: how often they were tried, and who has them.
    Attempts {
        /// In the order in which they came to stand so.
        runs: Vec<Attempts>,
    },
    /// Values that unfinished tasks take: in a snapshot of tasks whose results
    /// are not in it, else of results that were read from disk.
    Values {
        /// The instance.
        instance: InstanceId,
        /// The tasks, ascending.
        tasks: Vec<TaskId>,
        /// Their values.
        values: Packed,
    },
    /// In a snapshot: results that are on disk, in pages. They come behind those
    /// that were forgotten and before those in `Finished` records.
    Paged {
        /// The instance.
        instance: InstanceId,
        /// Where they are, in the order of delivery.
        pages: Vec<StoredPage>,
    },
    /// In a snapshot, after [`Record::Paged`]: what executors keep of results in
    /// pages, and of forgotten ones.
    Outputs {
        /// The instance whose results these are.
        instance: InstanceId,
        /// In the order of delivery.
        outputs: Vec<PagedOutput>,
    },
    /// In a snapshot: what is known of an instance beyond its live
    /// submissions and the results that it holds. Several in a row, if there are many runs:
    /// their runs add up, the rest is the same in each.
    Restored {
        /// The instance.
        instance: InstanceId,
        /// Tasks accepted in all.
        total: u64,
        /// Task results that were forgotten.
        forgotten: u64,
        /// Tasks that ended and whose results were forgotten or are in pages.
        finished: Vec<(u64, u64)>,
        /// Those of them that did not end well.
        failed: Vec<(u64, u64)>,
        /// Those of these that were cancelled.
        cancelled: Vec<(u64, u64)>,
        /// How those ended.
        ended: Counts,
    },
    /// An instance was paused, or resumed.
    Paused {
        /// The instance.
        instance: InstanceId,
        /// Which of both.
        is_paused: bool,
    },
    /// Tasks that had ended and not well run again. In a snapshot, before what it says of their
    /// ends: their results before `since` were replaced.
    Retried {
        /// The instance.
        instance: InstanceId,
        /// How many task results came before.
        since: u64,
        /// Which, as (first, count).
        runs: Vec<(u64, u64)>,
    },
    /// An instance was given a priority.
    Prioritized {
        /// The instance.
        instance: InstanceId,
        /// Its priority from then on.
        priority: i32,
    },
    /// An executor was drained, or is given tasks again.
    Drained {
        /// The process it is.
        incarnation: u64,
        /// Which of both.
        is_drained: bool,
    },
    /// What tasks did with objects of a name.
    Remembered(Remembered),
    /// That was forgotten, of a name or of all.
    Forgotten {
        /// The name.
        name: Option<Arc<str>>,
    },
    /// Nobody needs the long output of tasks any more, in an instance with `keep_output`.
    OutputReleased {
        /// The instance.
        instance: InstanceId,
        /// The tasks, as (first, count).
        runs: Vec<(u64, u64)>,
    },
    /// In a snapshot, after [`Record::Submitted`]: the longest run time of tasks whose time is to
    /// be found out.
    Lasted {
        /// The instance.
        instance: InstanceId,
        /// The first task of a submission that has such tasks.
        first: TaskId,
        /// Their class in that submission.
        class: u32,
        /// The longest run time.
        micros: u64,
    },
    /// An instance is a user's.
    Owned {
        /// The instance.
        instance: InstanceId,
        /// Whose it is.
        user: UserId,
    },
}

/// Why a journal's record does not follow from those before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// It names an instance that is not there.
    #[error("the journal names instance {0}, which it never created")]
    NoInstance(InstanceId),
    /// Tasks do not follow those before, or are not sound.
    #[error("the journal's tasks from {first} on do not fit instance {instance}")]
    Submission {
        /// Where.
        instance: InstanceId,
        /// The id of the first.
        first: TaskId,
    },
    /// Results do not follow those before, or name tasks that are not there.
    #[error(
        "the journal's results of instance {instance} continue at {found} instead of {expected}"
    )]
    Results {
        /// The instance.
        instance: InstanceId,
        /// Where they should begin.
        expected: u64,
        /// Where they begin.
        found: u64,
    },
}

impl Dispatcher {
    /// Takes in one journaled record; only before the first event. Call
    /// [`Dispatcher::recovered`] after the last.
    ///
    /// # Errors
    /// The record does not follow from those before it.
    pub fn recover(&mut self, record: Record) -> Result<(), RecoverError> {
        match record {
            Record::Created { instance, created, options } => {
                self.insert_instance(instance, created, options);
            }
            Record::Submitted { instance, first, queued, client, submission } => {
                let error = RecoverError::Submission { instance, first };
                if !self.instances.contains(&instance) {
                    return Err(RecoverError::NoInstance(instance));
                }
                submission.check().map_err(|_| error.clone())?;
                self.now = self.now.max(queued);
                let end = first.0.checked_add(submission.count);
                end.filter(|end| *end <= INSTANCE_TASKS_MAX).ok_or_else(|| error.clone())?;
                self.admit(instance, first, queued, client, submission);
            }
            Record::Joining { instance, first, client, submission } => {
                self.recovering(instance)?;
                let error = RecoverError::Submission { instance, first };
                submission.check().map_err(|_| error)?;
                self.recover_joining(instance, first, client, submission);
            }
            Record::Sealed { instance } => {
                self.recovering(instance)?.sealed = true;
                self.placement.everywhere_mut().end_joining(instance);
            }
            Record::Finished { instance, from, results } => {
                self.recover_results(instance, from, results)?;
            }
            Record::Acknowledged { instance, upto } => {
                self.recovering(instance)?.results.recover_acknowledged(upto);
                self.forget_outputs(instance, upto);
                self.weigh(instance);
            }
            Record::Cancelled { instance, runs } => {
                self.recovering(instance)?;
                let mut wanted = RunSet::default();
                for (first, count) in runs {
                    wanted.insert(first, count);
                }
                self.mark_cancelled(instance, &wanted);
            }
            Record::Destroyed { instance } => {
                self.recover_without(instance);
                self.users.forget(instance);
            }
            Record::Expired { instance, at } => {
                self.recover_without(instance);
                let forgotten = self.instances.remember_expired(instance, at);
                forgotten.into_iter().for_each(|forgotten| self.users.forget(forgotten));
            }
            Record::Owned { instance, user } => self.recover_owned(instance, user),
            Record::Lasted { instance, first, class, micros } => {
                self.recover_lasted(instance, first, class, micros)?;
            }
            Record::Heard { instance, at } => self.instances.recover_heard(instance, at),
            Record::Submitters { instance, client, runs } => {
                let submitters = &mut self.recovering(instance)?.submitters;
                for (first, count) in runs {
                    submitters.submitted(client, first, count);
                }
            }
            Record::ExecutorSeen { executor, incarnation, name } => {
                self.fleet.recover(executor, name.clone());
                self.comeback.expect(incarnation, executor, name);
            }
            Record::ExecutorGone { incarnation } => {
                self.comeback.give_up(incarnation);
                self.pauses.forget_executor(incarnation);
            }
            Record::Paused { instance, is_paused } => {
                self.recovering(instance)?;
                self.pauses.pause(instance, is_paused);
            }
            Record::Prioritized { instance, priority } => {
                self.recovering(instance)?.share.prioritize(priority);
            }
            Record::Drained { incarnation, is_drained } => {
                self.pauses.drain(incarnation, is_drained);
            }
            Record::Recomputed { instance, task, times } => {
                let found = self.recovering(instance)?;
                if found.batch_of(task).is_some() {
                    found.intermediates.times.insert(task.0, times);
                }
                found.tasks.recover_recomputed();
            }
            Record::Retried { instance, since, runs } => {
                self.recover_retried(instance, since, &runs)?;
            }
            Record::Restored { instance, total, forgotten, finished, failed, cancelled, ended } => {
                let found = self.recovering(instance)?;
                found.results.start_at(forgotten);
                let tasks = &mut found.tasks;
                let ended = tasks.recover_ended(total, &finished, &failed, &cancelled, ended);
                self.count_recovered_ends(instance, &ended);
            }
            Record::Remembered(remembered) => self.placement.recover_remembered(remembered),
            Record::Forgotten { name } => {
                self.placement.forget_remembered(name.as_deref());
            }
            Record::Attempts { runs } => self.recover_attempts(&runs)?,
            Record::Paged { instance, pages } => self.recover_pages(instance, pages)?,
            Record::Outputs { instance, outputs } => self.recover_outputs(instance, &outputs)?,
            Record::OutputReleased { instance, runs } => {
                self.recovering(instance)?;
                for (first, count) in runs {
                    self.outputs.release(instance, first, count);
                }
            }
            Record::Values { instance, tasks, values } => {
                self.recovering(instance)?.recover_values(&tasks, &values);
            }
        }
        Ok(())
    }

    fn recover_without(&mut self, id: InstanceId) {
        if let Some(mut gone) = self.instances.remove(&id) {
            self.placement.instance_gone(&gone);
            gone.queues.let_all_go(&mut self.needs);
            self.runnable.remove(id, &gone.share, self.now);
        }
        self.pauses.forget_instance(id);
        self.outbound.forget(id);
        self.attempts.forget(id);
        self.speculation.forget(id);
        self.weigh(id);
        self.outputs.forget_all(id);
        if self.instances.is_empty() {
            self.forget_departed();
        }
    }

    pub(super) fn recovering(&mut self, id: InstanceId) -> Result<&mut Instance, RecoverError> {
        self.instances.find_mut(&id).ok_or(RecoverError::NoInstance(id))
    }

    fn recover_results(
        &mut self,
        id: InstanceId,
        from: u64,
        results: Vec<Finished>,
    ) -> Result<(), RecoverError> {
        let instance = self.recovering(id)?;
        let expected = instance.results.end();
        if from != expected {
            return Err(RecoverError::Results { instance: id, expected, found: from });
        }
        for finished in results {
            let instance = self.recovering(id)?;
            let (first, count) = (finished.first.0, finished.count);
            let known = first.checked_add(count).is_some_and(|end| end <= instance.tasks.total());
            let position = instance.results.end();
            // In a snapshot, others may have taken their place.
            let current = if known { instance.current_parts(&finished, position) } else { vec![] };
            let ended = instance.tasks.ended();
            if !known || current.iter().any(|(at, count)| !ended.within(*at, *count).is_empty()) {
                return Err(RecoverError::Results { instance: id, expected, found: from });
            }
            self.now = self.now.max(finished.ended);
            self.recover_run_time(id, &finished);
            self.instances.tasks_ended(id, finished.ended);
            if current == [(first, count)] {
                self.outputs.hold(id, position, &finished);
            }
            let instance = self.recovering(id)?;
            for (first, count) in &current {
                let part = Finished { first: TaskId(*first), count: *count, ..finished.clone() };
                instance.record_end(&part);
            }
            instance.results.push(finished);
            instance.results.set_journaled();
            for (first, count) in current {
                self.attempts.ended(id, first, count);
                self.count_ended_in_batches(id, first, count);
            }
        }
        self.weigh(id);
        Ok(())
    }

    /// Counts the tasks that a snapshot knows as ended off their batches.
    fn count_recovered_ends(&mut self, id: InstanceId, ended: &RunSet) {
        let spans: Vec<(u64, u64)> = self.instances[&id]
            .batches
            .values()
            .flat_map(|batch| ended.within(batch.first, batch.submission.count))
            .collect();
        for (first, count) in spans {
            self.count_ended_in_batches(id, first, count);
        }
    }

    /// The journal has been read: unfinished tasks are queued. If executors
    /// may still have some of them, nothing is dispatched until they are back
    /// or a grace has passed.
    pub fn recovered(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.instances.lifetimes_recovered(self.now);
        let ids: Vec<InstanceId> = self.instances.ids().collect();
        let mut unfinished = false;
        for id in ids {
            let instance = &mut self.instances[&id];
            let batches: Vec<u64> = instance.batches.keys().copied().collect();
            instance.values_recovered();
            instance.results.forget_recovered();
            self.fail_forgotten(id);
            for first in batches {
                self.queue_tasks(id, first);
            }
            self.instances[&id].forget_spent();
            self.weigh(id);
            let instance = &self.instances[&id];
            unfinished |= instance.tasks.ready() > 0 || !instance.values.readers.is_empty();
            self.outbound.mark(id);
        }
        // Who comes back does not join.
        unfinished |= self.placement.everywhere().is_anybody_to_join();
        self.attempts.all_queued();
        self.outputs.recovered(self.now);
        for incarnation in self.attempts.absent() {
            if !self.comeback.expects(incarnation) {
                self.lose_awaited(incarnation, None);
            }
        }
        if !unfinished || !self.comeback.begin(self.now) {
            self.end_recovery();
        }
    }

    /// Executors that are not back by now are not waited for; tasks to be
    /// cancelled that nobody has are.
    pub(super) fn end_recovery(&mut self) {
        let missing = self.comeback.end();
        for (incarnation, _) in &missing {
            self.outputs.executor_gone(*incarnation);
            self.pauses.forget_executor(*incarnation);
            self.journal(Record::ExecutorGone { incarnation: *incarnation });
        }
        let cancelling: Vec<(InstanceId, RunSet)> = self
            .instances
            .values()
            .filter(|instance| !instance.tasks.cancelling().is_empty())
            .map(|instance| (instance.id, instance.tasks.cancelling().clone()))
            .collect();
        for (id, wanted) in cancelling {
            self.end_queued(id, &wanted);
        }
        for (incarnation, executor) in missing {
            self.lose_awaited(incarnation, Some(executor));
        }
        self.withdrawals.recovered();
        self.end_gang_recovery();
        self.unplaced = true;
    }

    /// Records that bring another dispatcher to this state: what a journal is
    /// compacted to. To be taken when [`Dispatcher::poll_action`] has nothing
    /// more to give: records it gives later follow these.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Record> {
        let mut records = Vec::new();
        // Numbers are never used again, those of the last that are gone
        // included: an executor may still come back with tasks of theirs.
        if let Some(last) = self.instances.next().0.checked_sub(1).map(InstanceId)
            && !self.instances.contains(&last)
        {
            let options = InstanceOptions::default();
            let created = Time::default();
            records.push(Record::Created { instance: last, created, options });
            records.push(Record::Destroyed { instance: last });
        }
        if let Some(last) = self.fleet.last_number()
            && !self.fleet.contains(last)
        {
            let name = self.fleet.name(last).cloned().unwrap_or_default();
            records.push(Record::ExecutorSeen { executor: last, incarnation: 0, name });
            records.push(Record::ExecutorGone { incarnation: 0 });
        }
        for (incarnation, executor, name) in self.comeback.missing() {
            let name = name.to_owned();
            records.push(Record::ExecutorSeen { executor, incarnation, name });
        }
        for executor in self.fleet.iter() {
            records.push(Record::ExecutorSeen {
                executor: executor.id,
                incarnation: executor.incarnation,
                name: executor.name.clone(),
            });
        }
        for (instance, at) in self.instances.all_expired() {
            records.push(Record::Expired { instance, at });
        }
        for instance in self.instances.values() {
            self.snapshot_instance(instance, &mut records);
        }
        records.extend(self.users.snapshot());
        records.extend(self.pauses.snapshot());
        let priorities = self.instances.values().map(|one| (one.id, one.share.priority()));
        let set = priorities.filter(|(_, priority)| *priority != 0);
        let set = set.map(|(instance, priority)| Record::Prioritized { instance, priority });
        records.extend(set);
        records.extend(self.snapshot_attempts());
        records.extend(self.placement.remembered(self.now).map(Record::Remembered));
        records
    }

    fn snapshot_instance(&self, instance: &Instance, records: &mut Vec<Record>) {
        let id = instance.id;
        let (created, heard) = self.instances.snapshot_life(id);
        records.push(Record::Created { instance: id, created, options: instance.options.clone() });
        records.extend(heard);
        for (client, runs) in instance.submitters.runs() {
            records.push(Record::Submitters { instance: id, client, runs });
        }
        for batch in instance.batches.values() {
            records.push(Record::Submitted {
                instance: id,
                first: TaskId(batch.first),
                queued: batch.queued,
                client: 0,
                submission: batch.submission.clone(),
            });
        }
        self.snapshot_lasted(instance, records);
        self.snapshot_retries(instance, records);
        records.extend(self.placement.everywhere().snapshot(id));
        // Those who run again now do so again after a restart if need be; how
        // many there were is told with what follows.
        for (task, times) in &instance.intermediates.times {
            let (task, times) = (TaskId(*task), *times);
            records.push(Record::Recomputed { instance: id, task, times });
        }
        let mut finished = instance.tasks.ended().clone();
        let mut failed = instance.tasks.failed().clone();
        let mut cancelled = instance.tasks.cancelled().clone();
        let mut ended = instance.tasks.ended_counts();
        let mut named = RunSet::default();
        for (position, run) in instance.results.iter() {
            for (first, count) in instance.current_parts(run, *position) {
                finished.remove(first, count);
                failed.remove(first, count);
                cancelled.remove(first, count);
                ended.unend(run.outcome.status(), count);
            }
            if let Some(executor) = run.executor {
                named.insert(executor.0, 1);
            }
        }
        for (first, count) in named.iter() {
            for executor in (first..first + count).map(ExecutorId) {
                // Its process is gone for all a new dispatcher knows; only the
                // name matters.
                if let Some(name) = self.fleet.name(executor)
                    && !self.fleet.contains(executor)
                    && !self.comeback.expects_number(executor)
                {
                    let incarnation = 0;
                    let name = name.clone();
                    records.push(Record::ExecutorSeen { executor, incarnation, name });
                    records.push(Record::ExecutorGone { incarnation });
                }
            }
        }
        let restored = |finished, failed, cancelled| Record::Restored {
            instance: id,
            total: instance.tasks.total(),
            forgotten: instance.results.start(),
            finished,
            failed,
            cancelled,
            ended,
        };
        let none = Vec::new;
        // Which tasks did not end well is known before they count as ended.
        let cancelled = records_of(&cancelled).into_iter();
        records.extend(cancelled.map(|runs| restored(none(), none(), runs)));
        let (failed, finished) = (records_of(&failed), records_of(&finished));
        records.extend(failed.into_iter().map(|runs| restored(none(), runs, none())));
        let is_bare = finished.is_empty();
        records.extend(finished.into_iter().map(|runs| restored(runs, none(), none())));
        records.extend(is_bare.then(|| restored(none(), none(), none())));
        for (tasks, values) in instance.forgotten_values() {
            records.push(Record::Values { instance: id, tasks, values });
        }
        if instance.sealed {
            records.push(Record::Sealed { instance: id });
        }
        if !instance.tasks.cancelling().is_empty() {
            let runs = records_of(instance.tasks.cancelling()).into_iter();
            records.extend(runs.map(|runs| Record::Cancelled { instance: id, runs }));
        }
        for pages in page_parts(instance.results.pages()) {
            records.push(Record::Paged { instance: id, pages });
        }
        self.snapshot_outputs(instance, records);
        let mut from = instance.results.memory_start();
        while from < instance.results.end() {
            let results = instance.results.batch(from);
            let count: u64 = results.iter().map(|run| run.count).sum();
            records.push(Record::Finished { instance: id, from, results });
            from += count;
        }
    }
}
