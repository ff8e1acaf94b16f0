//! One client's tasks: live submissions, ready queues, dependencies, results.

use super::deliver::Subscriber;
use super::fleet::InFlight;
use super::intermediate::Intermediates;
use super::likes::{LikeId, Measured};
use super::line::Line;
use super::needs::{Need, NeedId, Needs};
use super::placement::{DataTasks, Past, Placement, QueueId};
use super::queues::{Pace, Queues, key_of};
use super::results::Results;
use super::retry::Retries;
use super::share::Share;
use super::state::Tasks;
use super::submitters::Submitters;
use super::values::Values;
use super::{BatchId, InstanceOptions};
use crate::limits::{RESULTS_HELD_BYTES_MAX, RUN_MICROS_MAX};
use crate::result::{Counts, Finished, Status, Tries};
use crate::runset::RunSet;
use crate::task::{AUTO_TIME, ExecutorId, InstanceId, Rows, Submission, TaskClass, TaskId, Time};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A submission some of whose tasks have not ended, or whose results are kept.
#[derive(Debug)]
pub(super) struct Batch {
    /// Its template for executors, see [`SharedTemplate`].
    pub(super) id: BatchId,
    pub(super) first: u64,
    pub(super) submission: Submission,
    /// The need of each class, while tasks have not ended, and behind them those of the
    /// alternatives of each.
    pub(super) needs: Vec<NeedId>,
    /// Where the alternatives of each class begin among the needs; none where no class has any.
    pub(super) alternatives: Vec<u32>,
    /// Where each of the submission's class runs ends, as an offset.
    pub(super) class_ends: Vec<u64>,
    pub(super) queued: Time,
    /// Tasks that have not ended, or run again.
    pub(super) unfinished: u64,
    /// What it counts among the instance's queued bytes.
    pub(super) queued_bytes: u64,
    /// Its tasks leave objects in caches alone.
    pub(super) leaves_any: bool,
    /// How often other batches read those.
    pub(super) read_by: u32,
    /// Its tasks take values of others.
    pub(super) takes_any: bool,
}

impl Batch {
    /// Bytes of the row that was submitted for the task at `offset`, and of its
    /// data objects.
    pub(super) fn row_bytes(&self, offset: u64) -> u64 {
        let row = match &self.submission.rows {
            Rows::Computed { .. } => 0,
            Rows::Packed(rows) => rows.at(offset).map_or(0, |row| row.len() as u64),
        };
        row + self.submission.data.as_ref().map_or(0, |data| data.task_bytes(offset))
    }
}

/// What executors are told of a batch; several in a row have it in common if
/// their templates and classes are equal, so that what a template holds (a
/// function's code) goes to an executor once.
#[derive(Debug, Default)]
pub(super) struct SharedTemplate {
    /// Batches with tasks that have not ended.
    pub(super) batches: u64,
    /// Executors that were sent it.
    pub(super) known_by: RunSet,
}

/// Tasks in a row that are ready: same batch, same class, same past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadyRun {
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) class: u32,
    pub(super) tries: Tries,
}

/// Ready tasks of one need.
#[derive(Debug, Default)]
pub(super) struct ReadyQueue {
    /// How many classes of batches with tasks that have not ended have it.
    pub(super) users: u64,
    /// There were none, and it is among those to be forgotten.
    pub(super) is_idle: bool,
    /// Where searches find it.
    pub(super) listed: Option<Pace>,
    /// It is among those that some executor may have room for.
    pub(super) is_open: bool,
    /// It is among those that were found to fit nobody.
    pub(super) was_blocked: bool,
    runs: Line,
    pub(super) len: u64,
    /// No executor with free room could take one when all were last looked at;
    /// since when tasks whose data decides wait, if there are no others.
    pub(super) blocked_since: Option<Time>,
    /// An executor is being emptied for this queue.
    pub(super) reserved: Option<ExecutorId>,
    /// How long its tasks ran.
    pub(super) measured: Measured,
    /// How long the longest of them ran.
    most_micros: u64,
    /// The tasks that its own are like.
    pub(super) like: LikeId,
    /// Those of the tasks whose data decides where they go: placement has them.
    pub(super) with_data: DataTasks,
}

impl ReadyQueue {
    pub(super) fn new(like: LikeId) -> ReadyQueue {
        ReadyQueue { like, ..ReadyQueue::default() }
    }

    fn push(&mut self, run: ReadyRun, same_batch_as_last: bool) {
        if self.runs.is_empty() && self.with_data.count > 0 {
            // What blocks tasks that wait for data need not block this one.
            self.blocked_since = None;
        }
        self.len += run.count;
        self.runs.push(run, same_batch_as_last);
    }

    /// The run whose turn it is, of tasks that any executor may have.
    pub(super) fn front(&self) -> Option<&ReadyRun> {
        self.runs.front()
    }

    /// The next task, and its class.
    pub(super) fn next(&self) -> Option<(u64, u32)> {
        let plain = self.runs.front().map(|run| (run.first, run.class));
        plain.or(self.with_data.first)
    }

    /// The runs of tasks that any executor may have, in their order.
    pub(super) fn runs(&self) -> impl Iterator<Item = &ReadyRun> {
        self.runs.iter()
    }

    /// Takes up to `count` tasks off the front run.
    fn pop(&mut self, count: u64) -> Option<ReadyRun> {
        let taken = self.runs.pop(count)?;
        self.len -= taken.count;
        if self.len == 0 {
            self.blocked_since = None;
        }
        Some(taken)
    }

    /// How its tasks may be sent.
    pub(super) fn pace(&self, need: &Need) -> Pace {
        if need.instant { Pace::Timeless } else { Pace::Timed }
    }

    /// How many tasks any executor with room may have.
    pub(super) fn plain_len(&self) -> u64 {
        self.len - self.with_data.count
    }

    /// Takes out what is queued of `wanted`.
    fn remove(&mut self, id: QueueId, placement: &mut Placement, wanted: &RunSet) -> Vec<ReadyRun> {
        let mut removed = Vec::new();
        if self.with_data.count > 0 {
            let (with_data, left) = placement.remove(id, wanted);
            self.with_data = left;
            self.len -= with_data.len() as u64;
            removed.extend(with_data.into_iter().map(|(first, Past { class, tries })| ReadyRun {
                first,
                count: 1,
                class,
                tries,
            }));
        }
        let taken = self.runs.take_out(wanted);
        self.len -= taken.iter().map(|run| run.count).sum::<u64>();
        removed.extend(taken);
        if self.len == 0 {
            self.blocked_since = None;
        }
        removed
    }

    /// The run time to expect of the next task: as the user estimates it, else
    /// as measured.
    pub(super) fn estimate(
        &self,
        batches: &BTreeMap<u64, Batch>,
        measured: Measured,
    ) -> Option<u64> {
        self.class_of_next(batches)?.given_estimate().or(measured.mean_micros)
    }

    /// How long the next task lasts, for executors that leave: as its user expects or, if that is
    /// to be found out, as long as any of this queue has; 0 is unknown. `None` if there is no
    /// task.
    pub(super) fn lasts(&self, batches: &BTreeMap<u64, Batch>) -> Option<u64> {
        match self.class_of_next(batches)?.estimate_micros {
            // It never falls, so that an executor that was too short of time for a task stays so.
            // It is no more than that: where one has ended, another one may.
            AUTO_TIME => Some(self.most_micros),
            given => Some(given),
        }
    }

    /// Takes a run time of so many tasks into account.
    pub(super) fn measure(&mut self, micros: u64, count: u64) {
        self.measured.measure(micros, count);
        self.lasted(micros);
    }

    /// Notes the run time of a task.
    pub(super) fn lasted(&mut self, micros: u64) {
        self.most_micros = self.most_micros.max(micros.min(RUN_MICROS_MAX));
    }

    /// The longest run time of its tasks; 0 if none has ended.
    pub(super) fn most_micros(&self) -> u64 {
        self.most_micros
    }

    fn class_of_next<'a>(&self, batches: &'a BTreeMap<u64, Batch>) -> Option<&'a TaskClass> {
        let (task, class) = self.next()?;
        let (_, batch) = batches.range(..=task).next_back()?;
        batch.submission.classes.get(class as usize)
    }
}

/// Higher priority first, then the need with the lower number.
pub(super) type QueueKey = (Reverse<i32>, NeedId);

#[derive(Debug)]
pub(super) struct Instance {
    pub(super) id: InstanceId,
    pub(super) options: InstanceOptions,
    /// By first task.
    pub(super) batches: BTreeMap<u64, Batch>,
    /// The templates of batches with tasks that have not ended.
    pub(super) templates: BTreeMap<BatchId, SharedTemplate>,
    pub(super) sealed: bool,
    /// A task has failed in an instance that is to end when one does.
    pub(super) failed_fast: bool,
    pub(super) queues: Queues,
    /// The states of its tasks.
    pub(super) tasks: Tasks,
    /// Σ weight of tasks in flight. Wider than its terms: 2^62 tasks that
    /// weigh 2^32 each.
    pub(super) usage: u128,
    /// Its share of the executors, which decides whose turn it is.
    pub(super) share: Share,
    /// What tasks leave in caches alone.
    pub(super) intermediates: Intermediates,
    /// What tasks take of others.
    pub(super) values: Values,
    pub(super) queued_bytes: u64,
    pub(super) results: Results,
    /// Which of its tasks were run again, and so which results were replaced.
    pub(super) retries: Retries,
    pub(super) subscribers: Vec<Subscriber>,
    /// Who submitted which tasks.
    pub(super) submitters: Submitters,
}

impl Instance {
    pub(super) fn new(id: InstanceId, options: InstanceOptions) -> Instance {
        Instance {
            id,
            options,
            batches: BTreeMap::new(),
            templates: BTreeMap::new(),
            sealed: false,
            failed_fast: false,
            queues: Queues::default(),
            tasks: Tasks::new(id),
            usage: 0,
            share: Share::default(),
            intermediates: Intermediates::default(),
            values: Values::default(),
            queued_bytes: 0,
            results: Results::default(),
            retries: Retries::default(),
            subscribers: Vec::new(),
            submitters: Submitters::default(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.tasks.counts()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.sealed && self.tasks.have_all_ended()
    }

    /// Whether all that it was given has ended: nothing of it is queued or runs.
    pub(super) fn is_idle(&self) -> bool {
        self.tasks.have_all_ended()
    }

    /// Too many results are waiting to be fetched. Results that are kept
    /// whether fetched or not hold nothing up: it would be for ever.
    pub(super) fn is_clogged(&self) -> bool {
        let held_bytes = self.results.bytes() + self.results.stored_bytes();
        !self.options.keep_results && held_bytes > RESULTS_HELD_BYTES_MAX
    }

    /// What executors are told of the newest batch, if `submission` says the
    /// same and they may still know it. Equal templates are one in memory then.
    pub(super) fn share_template(&mut self, submission: &mut Submission) -> Option<BatchId> {
        let (_, newest) = self.batches.last_key_value()?;
        let template = self.templates.get_mut(&newest.id)?;
        if newest.submission.template != submission.template
            || newest.submission.classes != submission.classes
        {
            return None;
        }
        template.batches += 1;
        submission.template = newest.submission.template.clone();
        Some(newest.id)
    }

    pub(super) fn batch_of(&self, task: TaskId) -> Option<&Batch> {
        let (_, batch) = self.batches.range(..=task.0).next_back()?;
        (task.0 < batch.first + batch.submission.count).then_some(batch)
    }

    /// The parts of tasks in a row that are in batches which are known: the first task of the
    /// batch, the first of the part, and how many.
    pub(super) fn batches_of(&self, first: u64, count: u64) -> Vec<(u64, u64, u64)> {
        let end = first + count;
        let from = self.batch_of(TaskId(first)).map_or(first, |batch| batch.first);
        let batches = self.batches.range(from..end);
        let parts = batches.map(|(batch_first, batch)| {
            let at = first.max(*batch_first);
            (*batch_first, at, end.min(batch_first + batch.submission.count) - at)
        });
        parts.collect()
    }

    pub(super) fn batch_of_mut(&mut self, task: TaskId) -> Option<&mut Batch> {
        let (_, batch) = self.batches.range_mut(..=task.0).next_back()?;
        (task.0 < batch.first + batch.submission.count).then_some(batch)
    }

    /// The class of a task, as its batch numbers them.
    pub(super) fn class_of(&self, task: u64) -> Option<u32> {
        let batch = self.batch_of(TaskId(task))?;
        let run = batch.class_ends.partition_point(|end| *end <= task - batch.first);
        batch.submission.class_runs.get(run).map(|(_, class)| *class)
    }

    /// Queues tasks of one batch and class. The batch must be there.
    ///
    /// Tasks whose data decides where they go are queued one by one.
    pub(super) fn push_ready(&mut self, needs: &Needs, placement: &mut Placement, run: ReadyRun) {
        let batch = self.batch_of(TaskId(run.first));
        let Some((batch_first, need, data)) = batch.and_then(|batch| {
            let need = *batch.needs.get(run.class as usize)?;
            Some((batch.first, need, batch.submission.data.clone()))
        }) else {
            debug_assert!(false, "tasks are queued while their batch lives");
            return;
        };
        if let Some(owners) = self.owners(&run) {
            self.tasks.queue(run.first, run.count);
            let past = Past { class: run.class, tries: run.tries };
            for (task, owner) in (run.first..).zip(owners) {
                placement.everywhere_mut().wait(self.id, task, owner, past);
            }
            return;
        }
        let key = key_of(&needs[need], need);
        let Some(queue) = self.queues.find_mut(&key) else {
            debug_assert!(false, "a need that tasks have has a queue");
            return;
        };
        self.tasks.queue(run.first, run.count);
        let joins = queue.runs.back().is_some_and(|last| last.first >= batch_first);
        let options = &self.options.policy;
        // A task that runs on several executors goes where there is room for all of it.
        let is_placed = options.policy.knows_places() && !needs[need].is_gang();
        let data = data.filter(|data| is_placed && !data.inputs.is_empty());
        let Some(data) = data else {
            queue.push(run, joins);
            self.queues.list(key, &needs[need]);
            return;
        };
        let mut pushing = placement.pushing((self.id, key), options);
        for task in run.first..run.first + run.count {
            let offset = task - batch_first;
            if data.inputs.of(offset).is_empty() {
                queue.push(ReadyRun { first: task, count: 1, ..run }, joins);
            } else {
                let past = Past { class: run.class, tries: run.tries };
                pushing.push(task, past, &data, offset);
                queue.len += 1;
                queue.with_data.count += 1;
            }
        }
        queue.with_data = pushing.summary();
        self.queues.list(key, &needs[need]);
    }

    /// A ready task whose data decides where it goes is sent; these are left in its
    /// queue.
    pub(super) fn data_task_taken(&mut self, key: &QueueKey, task: u64, left: DataTasks) {
        let queue = self.queues.find_mut(key).expect("a queue has tasks while it is there");
        queue.with_data = left;
        queue.len -= 1;
        if queue.len == 0 {
            queue.blocked_since = None;
        }
        self.tasks.take(task, 1);
    }

    /// Tasks by what they need. Those whose batches are gone are left out.
    fn by_need(&self, wanted: &RunSet) -> BTreeMap<NeedId, RunSet> {
        let mut found: BTreeMap<NeedId, RunSet> = BTreeMap::new();
        for (first, count) in wanted.iter() {
            let end = first.saturating_add(count);
            let from = self.batch_of(TaskId(first)).map_or(first, |batch| batch.first);
            for batch in self.batches.range(from..end).map(|(_, batch)| batch) {
                let until = end.min(batch.first + batch.submission.count);
                let mut at = first.max(batch.first);
                let run = batch.class_ends.partition_point(|end| *end <= at - batch.first);
                let runs = batch.class_ends[run..].iter().zip(&batch.submission.class_runs[run..]);
                for (end, (_, class)) in runs {
                    if at >= until {
                        break;
                    }
                    let next = until.min(batch.first + end);
                    let Some(need) = batch.needs.get(*class as usize) else { break };
                    found.entry(*need).or_default().insert(at, next - at);
                    at = next;
                }
            }
        }
        found
    }

    /// Counts tasks as ended.
    pub(super) fn record_end(&mut self, finished: &Finished) {
        self.tasks.end(finished);
        self.failed_fast |= self.options.fail_fast && finished.outcome.status() == Status::Failed;
        self.hold_values(finished);
    }

    /// Takes those of `wanted` out of the waiting tasks that wait for values to
    /// be read from disk. An executor that has them has the values too.
    pub(super) fn remove_reading(&mut self, wanted: &RunSet) -> Vec<ReadyRun> {
        let mut removed = Vec::new();
        for (first, count) in wanted.iter() {
            for task in self.tasks.waiting(first, count).collect::<Vec<u64>>() {
                let Some(class) = self.class_of(task) else { continue };
                let Some(tries) = self.tasks.release(task) else { continue };
                removed.push(ReadyRun { first: task, count: 1, class, tries });
            }
        }
        removed
    }

    /// Takes what is queued of `wanted` out of the ready queues. Costs time in
    /// proportion to the batches and runs that are wanted, not to the queues.
    pub(super) fn remove_ready(
        &mut self,
        needs: &Needs,
        placement: &mut Placement,
        wanted: &RunSet,
    ) -> Vec<ReadyRun> {
        let mut removed = placement.everywhere_mut().take(self.id, wanted);
        for (need, wanted) in self.by_need(wanted) {
            let key = key_of(&needs[need], need);
            let queue = self.queues.find_mut(&key).filter(|queue| queue.len > 0);
            let id = (self.id, key);
            removed
                .extend(queue.into_iter().flat_map(|queue| queue.remove(id, placement, &wanted)));
        }
        removed.iter().for_each(|run| self.tasks.take(run.first, run.count));
        removed
    }

    /// Takes up to `count` tasks off a queue's front run, for an executor.
    pub(super) fn assign_ready(&mut self, key: &QueueKey, count: u64) -> Option<ReadyRun> {
        let run = self.queues.find_mut(key)?.pop(count)?;
        self.tasks.take(run.first, run.count);
        self.tasks.assign(run.first, run.count);
        Some(run)
    }

    /// Takes the next task of a queue, which is sent now or waits for its inputs.
    pub(super) fn take_ready(&mut self, key: &QueueKey) -> Option<ReadyRun> {
        let run = self.queues.find_mut(key)?.pop(1)?;
        self.tasks.take(run.first, run.count);
        Some(run)
    }

    /// Takes all tasks out of a queue.
    pub(super) fn drain(&mut self, key: &QueueKey, placement: &mut Placement) -> Vec<ReadyRun> {
        let Some(queue) = self.queues.find_mut(key) else { return Vec::new() };
        let mut runs = queue.runs.drain();
        if queue.with_data.count > 0 {
            queue.with_data = DataTasks::default();
            let with_data = placement.drain((self.id, *key)).into_iter();
            runs.extend(with_data.map(|(first, past)| ReadyRun {
                first,
                count: 1,
                class: past.class,
                tries: past.tries,
            }));
        }
        queue.len = 0;
        queue.blocked_since = None;
        runs.iter().for_each(|run| self.tasks.take(run.first, run.count));
        runs
    }

    /// Tasks that an executor had are in its hands no longer: each counted so long.
    pub(super) fn give_back(&mut self, run: &InFlight, need: &Need) {
        self.tasks.give_back(run.first, run.count);
        self.usage -= run.used(need);
        self.share.take_back(need.weight(run.count), run.counted_micros);
    }
}
