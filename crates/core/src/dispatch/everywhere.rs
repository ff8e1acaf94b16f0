//! Tasks that run once on each executor: every one belongs to one executor, waits
//! for no other, and ends when that one leaves.
//!
//! Which executors those are is decided when a submission is accepted, and
//! journaled with it; those that join later get a task each where that was asked
//! for, until their instance is sealed. An executor is its process here (its
//! incarnation), so it keeps its tasks when it connects anew or the dispatcher is
//! restarted. A process that was given up and comes back is one that joins.
//!
//! The tasks are in no queue: [`Everywhere`] has the ready ones, and an executor is
//! offered its own when it is its instance's turn there.
//!
//! A relay has as many of the tasks as there are nodes below it, and is sent them
//! together, whatever room it has: the dispatcher below gives one to each of its
//! executors. So they hold no room here, and end with what is said of them below. Tasks
//! of a relay that come back without the others end as well, because nobody knows any
//! more which nodes are without one.

mod below;

use super::check::{CheckError, ensure};
use super::end::unrun;
use super::instance::{Instance, QueueKey, ReadyRun};
use super::needs::{DataNeed, NeedId};
use super::placement::Past;
use super::queues::key_of;
use super::{Dispatcher, Record, RequestError};
use crate::limits::{
    EVERYWHERE_TASKS_MAX, INSTANCE_TASKS_MAX, LOOK_NEEDS_MAX, QUEUED_BYTES_MAX,
    RESERVE_AFTER_MICROS,
};
use crate::result::{Cause, Detail, Finished, Outcome};
use crate::runset::RunSet;
use crate::task::{
    Everywhere as Asked, ExecutorId, InstanceId, Resources, Submission, SubmissionError,
    SubmissionPart, TaskId, Time,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// See the [module](self). Executors are known by their incarnations.
#[derive(Debug, Default)]
pub(super) struct Everywhere {
    /// The ready tasks, and whose each is.
    ready: BTreeMap<(InstanceId, u64), (u64, Past)>,
    /// The same by executor.
    of_executor: BTreeMap<u64, BTreeSet<(InstanceId, u64)>>,
    /// Executors whose tasks are to be looked at: some came, or the executor did
    /// something.
    stale: BTreeSet<u64>,
    /// The numbers that executors had which are gone, until they are looked at.
    gone: BTreeMap<u64, ExecutorId>,
    /// What executors that join are to run, by instance.
    joining: BTreeMap<InstanceId, Joining>,
    /// Executors that have joined and have not got a task of these instances yet.
    due: BTreeSet<(InstanceId, u64)>,
}

/// What executors that join are to run.
#[derive(Debug)]
struct Joining {
    /// The submission as it was made: one task, for nobody in particular.
    submission: Submission,
    /// Where its tasks begin, and who submitted it.
    made: (TaskId, u64),
}

/// What was done about the tasks that an instance has for one executor alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnTask {
    /// There is none, or none that could ever start now.
    None,
    /// One was sent.
    Sent,
    /// One waits for room there.
    Waits,
}

impl Everywhere {
    /// The executor that a ready task is for; `None` if it is not one executor's alone.
    pub(super) fn owner(&self, id: InstanceId, task: u64) -> Option<u64> {
        self.ready.get(&(id, task)).map(|(owner, _)| *owner)
    }

    /// Whether any tasks wait.
    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// A task that is one executor's is ready.
    pub(super) fn wait(&mut self, id: InstanceId, task: u64, executor: u64, past: Past) {
        self.ready.insert((id, task), (executor, past));
        self.of_executor.entry(executor).or_default().insert((id, task));
        self.stale.insert(executor);
    }

    /// Takes out those of `wanted` that are ready.
    pub(super) fn take(&mut self, id: InstanceId, wanted: &RunSet) -> Vec<ReadyRun> {
        let mut taken = Vec::new();
        if self.ready.is_empty() {
            return taken;
        }
        for (first, count) in wanted.iter() {
            let runs = self.ready.range((id, first)..(id, first.saturating_add(count)));
            taken.extend(runs.map(|((_, task), (_, past))| ReadyRun {
                first: *task,
                count: 1,
                class: past.class,
                tries: past.tries,
            }));
        }
        taken.iter().for_each(|run| self.remove(id, run.first));
        taken
    }

    fn remove(&mut self, id: InstanceId, task: u64) {
        let Some((executor, _)) = self.ready.remove(&(id, task)) else { return };
        let Some(tasks) = self.of_executor.get_mut(&executor) else { return };
        tasks.remove(&(id, task));
        if tasks.is_empty() {
            self.of_executor.remove(&executor);
        }
    }

    /// The ready tasks of an instance.
    pub(super) fn tasks_of(&self, id: InstanceId) -> impl Iterator<Item = (u64, Past)> + '_ {
        let tasks = self.ready.range((id, 0)..=(id, u64::MAX));
        tasks.map(|((_, task), (_, past))| (*task, *past))
    }

    /// The ready tasks that an instance has for one executor.
    fn own(&self, id: InstanceId, executor: u64) -> impl Iterator<Item = (u64, Past)> + '_ {
        let tasks = self.of_executor.get(&executor).into_iter();
        let tasks = tasks.flat_map(move |tasks| tasks.range((id, 0)..=(id, u64::MAX)));
        tasks.filter_map(|key| Some((key.1, self.ready.get(key)?.1)))
    }

    /// Those of `tasks` that are ready and are not this executor's.
    pub(super) fn of_others(&self, id: InstanceId, executor: u64, tasks: &RunSet) -> RunSet {
        let mut others = RunSet::default();
        for (first, count) in tasks.iter().filter(|_| !self.ready.is_empty()) {
            let runs = self.ready.range((id, first)..(id, first.saturating_add(count)));
            for ((_, task), _) in runs.filter(|(_, (whose, _))| *whose != executor) {
                others.insert(*task, 1);
            }
        }
        others
    }

    /// An executor has done something that its tasks depend on.
    pub(super) fn look_at(&mut self, executor: u64) {
        if self.of_executor.contains_key(&executor) {
            self.stale.insert(executor);
        }
    }

    /// An instance may be served again: executors may have gained room meanwhile.
    pub(super) fn look_again(&mut self, id: InstanceId) {
        let tasks = self.ready.range((id, 0)..=(id, u64::MAX));
        self.stale.extend(tasks.map(|(_, (executor, _))| *executor));
    }

    /// An executor is given up that had this number, if that is known. What it had
    /// itself comes after this.
    pub(super) fn left(&mut self, executor: u64, number: Option<ExecutorId>) {
        self.due.retain(|(_, joined)| *joined != executor);
        self.stale.insert(executor);
        if let Some(number) = number {
            self.gone.insert(executor, number);
        }
    }

    /// An executor is there that was not before.
    pub(super) fn joined(&mut self, executor: u64, capacity: &Resources) {
        if *capacity == Resources::default() {
            return; // A relay runs nothing itself.
        }
        let wanted = self.joining.iter().filter(|(_, joining)| {
            let everywhere = joining.submission.everywhere.as_ref();
            everywhere.is_none_or(|asked| capacity.fits(&asked.offering))
        });
        self.due.extend(wanted.map(|(id, _)| (*id, executor)));
    }

    /// An executor is a relay, which runs nothing itself: it gets nothing for having joined.
    /// Tasks may wait for what is below it.
    pub(super) fn lends(&mut self, executor: u64) {
        self.due.retain(|(_, joined)| *joined != executor);
        self.look_at(executor);
    }

    /// Executors that join are to run this from now on.
    fn begin_joining(&mut self, id: InstanceId, made: (TaskId, u64), submission: Submission) {
        self.joining.insert(id, Joining { submission, made });
    }

    /// Executors that join get no more tasks of an instance.
    pub(super) fn end_joining(&mut self, id: InstanceId) {
        if self.joining.remove(&id).is_some() {
            self.due.retain(|(instance, _)| *instance != id);
        }
    }

    /// Whether that submission was made before.
    fn is_joining(&self, id: InstanceId, made: (TaskId, u64)) -> bool {
        self.joining.get(&id).is_some_and(|joining| joining.made == made)
    }

    /// An instance is gone.
    pub(super) fn forget(&mut self, id: InstanceId) {
        self.end_joining(id);
        let tasks: Vec<u64> = self.tasks_of(id).map(|(task, _)| task).collect();
        tasks.into_iter().for_each(|task| self.remove(id, task));
    }

    /// The next executor that is to get a task of an instance, of those after `full`.
    fn next_due(&self, full: Option<InstanceId>) -> Option<(InstanceId, u64)> {
        let after = full.map_or(Bound::Unbounded, |id| Bound::Excluded((id, u64::MAX)));
        self.due.range((after, Bound::Unbounded)).next().copied()
    }

    fn next_stale(&mut self) -> Option<u64> {
        self.stale.pop_first()
    }

    /// Whether executors that join are to run anything.
    pub(super) fn is_anybody_to_join(&self) -> bool {
        !self.joining.is_empty()
    }

    /// What a snapshot says of an instance.
    pub(super) fn snapshot(&self, id: InstanceId) -> Option<Record> {
        let Joining { submission, made: (first, client) } = self.joining.get(&id)?;
        let (first, client, submission) = (*first, *client, submission.clone());
        Some(Record::Joining { instance: id, first, client, submission })
    }

    /// Both indexes name the same tasks.
    ///
    /// # Errors
    /// Says what does not hold.
    pub(super) fn check(&self) -> Result<(), CheckError> {
        let tasks = self
            .of_executor
            .iter()
            .flat_map(|(executor, tasks)| tasks.iter().map(move |key| (*key, *executor)));
        let by_executor: BTreeMap<_, _> = tasks.collect();
        let by_task: BTreeMap<_, _> =
            self.ready.iter().map(|(key, (executor, _))| (*key, *executor)).collect();
        ensure!(by_executor == by_task, "tasks wait for executors that do not know of them");
        let has_empty = self.of_executor.values().any(BTreeSet::is_empty);
        ensure!(!has_empty, "an executor without tasks of its own is kept");
        let is_asked = self.due.iter().all(|(id, _)| self.joining.contains_key(id));
        ensure!(is_asked, "an executor is to get a task that nobody asked for");
        Ok(())
    }
}

impl Instance {
    /// Whose each of these tasks is, if each is one executor's.
    pub(super) fn owners(&self, run: &ReadyRun) -> Option<Vec<u64>> {
        let batch = self.batch_of(TaskId(run.first))?;
        let everywhere = batch.submission.everywhere.as_ref()?;
        let first = usize::try_from(run.first - batch.first).ok()?;
        let count = usize::try_from(run.count).ok()?;
        Some(everywhere.executors.get(first..first.checked_add(count)?)?.to_vec())
    }

    /// What a task needs, when it was accepted, and how long its user expects it to
    /// run.
    fn place_of(&self, task: u64, class: u32) -> Option<(NeedId, Time, u64)> {
        let batch = self.batch_of(TaskId(task))?;
        let class_of = batch.submission.classes.get(class as usize)?;
        let estimate = class_of.given_estimate().unwrap_or(0);
        Some((*batch.needs.get(class as usize)?, batch.queued, estimate))
    }
}

// Acceptance.
impl Dispatcher {
    /// The executors that are there and offer what a submission asks, in order; relays as
    /// often as there are such nodes below them. One that leaves takes no more tasks, and is
    /// not there. Those are that may still come back after a restart; what they offer is not
    /// known.
    fn executors_there(&self, submission: &Submission) -> Result<Vec<u64>, RequestError> {
        let everywhere = submission.everywhere.clone().unwrap_or_default();
        if let Some(only) = everywhere.only {
            let there = self.fleet.contains(only).then(|| &self.fleet[only]);
            let there = there.filter(|one| !one.leaving && one.subtree.is_none());
            return Ok(there.map(|one| one.incarnation).into_iter().collect());
        }
        let (offering, data) = (everywhere.offering, DataNeed::of(submission.data.as_deref()));
        let here = self.fleet.iter().filter(|executor| !executor.leaving);
        let here = here.map(|one| (one.incarnation, one.nodes_offering(&offering, data)));
        let mut there: BTreeMap<u64, u64> = here.collect();
        let missing = self.comeback.missing().map(|(incarnation, _, _)| incarnation);
        let missing = missing.filter(|_| offering == Resources::default());
        for id in missing.filter(|id| self.fleet.of_incarnation(*id).is_none()) {
            there.insert(id, 1);
        }
        let total = there.values().fold(0u64, |sum, count| sum.saturating_add(*count));
        if total > EVERYWHERE_TASKS_MAX {
            return Err(RequestError::Submission(SubmissionError::TooMany));
        }
        let most = everywhere.lent.unwrap_or(total);
        let each = there.into_iter().map(|(id, count)| std::iter::repeat_n(id, count as usize));
        Ok(each.flatten().take(most as usize).collect())
    }

    /// Accepts a task for each executor, or says why not. Returns how many that are.
    pub(super) fn submit_everywhere(
        &mut self,
        id: InstanceId,
        first: TaskId,
        client: u64,
        submission: Submission,
    ) -> Result<u64, RequestError> {
        let everywhere = self.placement.everywhere();
        let is_joining = submission.everywhere.as_ref().is_some_and(|asked| asked.joining);
        if is_joining && everywhere.joining.contains_key(&id) {
            return Err(RequestError::Joining(id));
        }
        if submission.everywhere.as_ref().is_some_and(|asked| !asked.executors.is_empty()) {
            let error = SubmissionError::Malformed(SubmissionPart::Everywhere);
            return Err(RequestError::Submission(error));
        }
        let executors = self.executors_there(&submission)?;
        if executors.is_empty() && !is_joining {
            return Err(RequestError::NoExecutors);
        }
        let count = executors.len() as u64;
        let placed = submission.clone().placed(executors);
        self.check_quota(id, &placed)?;
        self.may_accept(id, &placed)?;
        if is_joining {
            self.journal(Record::Joining {
                instance: id,
                first,
                client,
                submission: submission.clone(),
            });
            let everywhere = self.placement.everywhere_mut();
            everywhere.begin_joining(id, (first, client), submission);
        }
        if count > 0 {
            self.accept(id, first, client, placed);
        }
        Ok(count)
    }

    /// How many tasks a submission was found to have that was accepted before; `None`
    /// if it was not.
    pub(super) fn accepted_before(
        &self,
        id: InstanceId,
        first: TaskId,
        client: u64,
        submission: &Submission,
    ) -> Option<u64> {
        let instance = self.instances.find(&id)?;
        if submission.everywhere.is_none() {
            let count = submission.count;
            return instance.submitters.has(client, first.0, count).then_some(count);
        }
        let is_joining = self.placement.everywhere().is_joining(id, (first, client));
        if !is_joining && !instance.submitters.has(client, first.0, 1) {
            return None;
        }
        // Of one whose tasks have all ended and are forgotten the number is not known.
        let batch = instance.batch_of(first).filter(|batch| batch.first == first.0);
        Some(batch.map_or(0, |batch| batch.submission.count))
    }

    /// Whether an instance and the journal have room for more tasks.
    fn may_accept(&mut self, id: InstanceId, placed: &Submission) -> Result<(), RequestError> {
        placed.check_lengths().map_err(RequestError::Submission)?;
        let instance = &self.instances[&id];
        if instance.tasks.total() + placed.count > INSTANCE_TASKS_MAX {
            return Err(RequestError::Submission(SubmissionError::TooMany));
        }
        if instance.queued_bytes > QUEUED_BYTES_MAX || instance.queues.is_beyond(1) {
            return Err(RequestError::Busy { queued_bytes: instance.queued_bytes });
        }
        self.journal_room.accept(placed.bytes())
    }

    /// A journal says that executors that join are to run this.
    pub(super) fn recover_joining(
        &mut self,
        id: InstanceId,
        first: TaskId,
        client: u64,
        submission: Submission,
    ) {
        self.placement.everywhere_mut().begin_joining(id, (first, client), submission);
    }

    /// Makes tasks for executors that have joined, as far as there is room for more.
    fn grow_everywhere(&mut self) {
        let mut full = None;
        while let Some((id, executor)) = self.placement.everywhere().next_due(full) {
            let Some(joining) = self.placement.everywhere().joining.get(&id) else { return };
            let placed = joining.submission.clone().placed(vec![executor]);
            if self.may_accept(id, &placed).is_err() {
                full = Some(id);
                continue;
            }
            self.placement.everywhere_mut().due.remove(&(id, executor));
            let first = TaskId(self.instances[&id].tasks.total());
            self.accept(id, first, 0, placed);
        }
    }
}

// Placing.
impl Dispatcher {
    /// Looks at tasks that wait for executors which came, changed or left: those
    /// whose executor is gone, or could never run them, end; for the others it is
    /// offered what it has room for.
    pub(super) fn settle_everywhere(&mut self) {
        self.grow_everywhere();
        while let Some(executor) = self.placement.everywhere_mut().next_stale() {
            match self.fleet.of_incarnation(executor) {
                // Looked at again when it is back, or given up.
                None if self.comeback.expects(executor) => {}
                None => {
                    let number = self.placement.everywhere_mut().gone.remove(&executor);
                    self.end_own(executor, number, Dispatcher::left);
                }
                // It may be a relay that has not said yet what is below it.
                Some(id) if self.fleet[id].capacity == Resources::default() => {}
                Some(id) if self.fleet[id].leaving => {
                    self.end_own(executor, Some(id), Dispatcher::left);
                }
                Some(id) => {
                    self.end_own(executor, Some(id), Dispatcher::too_large);
                    self.fleet.gain_room(id);
                }
            }
        }
    }

    /// Ends tasks of one executor that `reason` says something about.
    fn end_own(
        &mut self,
        executor: u64,
        number: Option<ExecutorId>,
        reason: fn(&Dispatcher, Option<ExecutorId>, InstanceId, u64, u32) -> Option<Reason>,
    ) {
        let everywhere = self.placement.everywhere();
        let tasks: Vec<((InstanceId, u64), Past)> = everywhere
            .of_executor
            .get(&executor)
            .into_iter()
            .flatten()
            .filter_map(|key| Some((*key, everywhere.ready.get(key)?.1)))
            .collect();
        self.end_those(tasks, number, reason);
    }

    /// Ends those of these tasks that `reason` says something about.
    fn end_those(
        &mut self,
        tasks: Vec<((InstanceId, u64), Past)>,
        number: Option<ExecutorId>,
        reason: fn(&Dispatcher, Option<ExecutorId>, InstanceId, u64, u32) -> Option<Reason>,
    ) {
        for ((id, task), past) in tasks {
            let Some((outcome, detail)) = reason(self, number, id, task, past.class) else {
                continue;
            };
            self.placement.everywhere_mut().remove(id, task);
            self.instances[&id].tasks.take(task, 1);
            let batch = self.instances[&id].batch_of(TaskId(task));
            let queued = batch.map_or(self.now, |batch| batch.queued);
            let ended = unrun(TaskId(task), 1, outcome, queued, self.now);
            let (attempts, detail) = (past.tries.ended(), Some(Arc::new(detail)));
            let detail = match batch.and_then(|batch| batch.submission.everywhere.as_ref()) {
                Some(everywhere) => self.named(everywhere, number, detail),
                None => detail,
            };
            self.end(id, Finished { executor: number, attempts, detail, ..ended });
        }
    }

    fn left(&self, number: Option<ExecutorId>, _: InstanceId, _: u64, _: u32) -> Option<Reason> {
        let name = number.and_then(|number| self.fleet.name(number));
        let error = format!(
            "its executor{} left before it ended, and it is for that one alone",
            name.map(|name| format!(" {name}")).unwrap_or_default()
        );
        let cause = Some(Cause::ExecutorLeft);
        Some((Outcome::Lost, Detail { error, cause, ..Detail::default() }))
    }

    fn too_large(
        &self,
        number: Option<ExecutorId>,
        id: InstanceId,
        task: u64,
        class: u32,
    ) -> Option<Reason> {
        let executor = &self.fleet[number?];
        let (need, _, _) = self.instances[&id].place_of(task, class)?;
        let need = &self.needs[need];
        if executor.offers(need) {
            return None;
        }
        let error = match executor.capacity.fits(&need.resources) {
            _ if executor.subtree.is_some() => format!(
                "it needs {}, and no node below the relay {} offers that: ask for less",
                need.resources, executor.name
            ),
            true => format!(
                "it reads data objects, and executor {} has no cache: start it with one",
                executor.name
            ),
            false => format!(
                "it needs {}, and executor {} offers {}: ask for less",
                need.resources, executor.name, executor.capacity
            ),
        };
        Some((Outcome::Unschedulable, Detail { error, ..Detail::default() }))
    }

    /// Sends an executor one of the tasks that an instance has for it alone. If one
    /// has waited for room for long, the executor is emptied for it.
    pub(super) fn send_own(&mut self, to: ExecutorId, id: InstanceId) -> OwnTask {
        if self.fleet[to].subtree.is_some() {
            return self.send_below(to, id);
        }
        let incarnation = self.fleet[to].incarnation;
        let own = self.placement.everywhere().own(id, incarnation).take(LOOK_NEEDS_MAX);
        let mut outcome = OwnTask::None;
        for (task, past) in own.collect::<Vec<_>>() {
            let Some((need, queued, lasts)) = self.instances[&id].place_of(task, past.class) else {
                continue;
            };
            let key = key_of(&self.needs[need], need);
            if self.holds_back(id, key) {
                continue;
            }
            let (executor, need) = (&self.fleet[to], &self.needs[need]);
            let is_free = executor.reserved.is_none_or(|queue| queue == (id, key));
            if is_free && executor.has_free(need, self.now, lasts) {
                self.end_reservation_for(to, id, key);
                self.placement.everywhere_mut().remove(id, task);
                self.instances[&id].tasks.take(task, 1);
                self.send_one(to, id, key, task, past);
                return OwnTask::Sent;
            }
            if !executor.outlasts(self.now, lasts) {
                continue;
            }
            outcome = OwnTask::Waits;
            let waited = self.now.since(queued);
            if executor.reserved.is_none()
                && !executor.in_flight.is_empty()
                && waited >= RESERVE_AFTER_MICROS
            {
                self.fleet.reserve(to, (id, key));
            }
        }
        outcome
    }

    /// Whether one of the tasks that an instance has for an executor alone, and that are looked
    /// at next, is of this queue's need.
    pub(super) fn has_own(&self, executor: u64, id: InstanceId, key: QueueKey) -> bool {
        let mut own = self.placement.everywhere().own(id, executor).take(LOOK_NEEDS_MAX);
        own.any(|(task, past)| {
            let place = self.instances[&id].place_of(task, past.class);
            place.is_some_and(|(need, _, _)| key_of(&self.needs[need], need) == key)
        })
    }

    /// Whether an executor has room for a task of its own that could be sent, for
    /// checks.
    pub(super) fn own_task_waits_in_vain(&self) -> bool {
        self.runnable.ids().any(|id| {
            let tasks = self.placement.everywhere().ready.range((id, 0)..=(id, u64::MAX));
            tasks.into_iter().any(|((_, task), (executor, past))| {
                let executor = self.fleet.of_incarnation(*executor).map(|id| &self.fleet[id]);
                let place = self.instances[&id].place_of(*task, past.class);
                let free = executor.zip(place).map(|(executor, (need, _, lasts))| {
                    executor.has_room_for(&self.needs[need], self.now, lasts)
                });
                free.unwrap_or(false)
            })
        })
    }

    /// An executor was emptied for a queue, if it was, and is no more.
    fn end_reservation_for(&mut self, executor: ExecutorId, id: InstanceId, key: QueueKey) {
        if self.fleet[executor].reserved.is_none() {
            return;
        }
        self.fleet.end_reservation(executor);
        let queue = self.instances[&id].queues.find_mut(&key);
        if let Some(queue) = queue.filter(|queue| queue.reserved == Some(executor)) {
            queue.reserved = None;
        }
    }
}

/// How a task ends, and what there is to say about it.
type Reason = (Outcome, Detail);
