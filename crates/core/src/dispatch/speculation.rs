//! Speculation: a task that takes far longer than its like runs a second time, on another
//! executor, and the first result counts.
//!
//! A task has two tries at most at a time, each in flight on its executor. To the rest of the
//! dispatcher it is one assigned task: its attempts, its state and the journal know of one try,
//! and so does a dispatcher that is started again, which keeps the try that comes back first
//! and has the other one stopped. What is known here is which tasks have two tries, and where.
//!
//! | what happens to one of two tries | what follows |
//! |---|---|
//! | it succeeds | the task has succeeded; the other try is stopped |
//! | it fails, is lost, or comes back unstarted | that does not count: the other try is the task's only one |
//! | the task is cancelled | the copy is stopped, and the first try as if it were alone |
//!
//! A copy takes no room that a waiting task could use. It may be made when nothing of its
//! instance is ready, on an executor that no ready task could run on.

use super::data_tasks::held_of_run;
use super::fleet::InFlight;
use super::needs::NeedId;
use super::placement::Past;
use super::queues::key_of;
use super::{BatchId, Dispatcher};
use crate::dispatch::check::{CheckError, ensure};
use crate::events::What;
use crate::limits::{
    COPY_EXECUTORS_MAX, COPY_OF_EXECUTORS, RUN_MICROS_MAX, SPECULATION_CLASSES_MAX,
    SPECULATION_ENDED_TASKS_MIN, SPECULATION_LEAST_MICROS, SPECULATION_LOOK_MICROS,
    SPECULATION_NEEDS_MAX, SPECULATION_SEARCH_EXECUTORS_MAX, SPECULATION_TASKS_MAX,
};
use crate::result::{Outcome, Report, Status, Tries};
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, TaskId, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A straggler has run for so many times the median of its like.
const MULTIPLE: u64 = 3;

type Task = (InstanceId, u64);

/// Tasks that are like one another: of one instance, template and class.
type KindKey = (InstanceId, BatchId, u32);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Speculation {
    /// Instances some of whose tasks may be tried twice at once.
    watched: BTreeSet<InstanceId>,
    kinds: BTreeMap<KindKey, RunTimes>,
    /// The tasks with two tries.
    pairs: BTreeMap<Task, Pair>,
    /// Tasks that ran when stragglers were last looked for.
    running: BTreeMap<Task, Running>,
    /// When stragglers are looked for next.
    due: Option<Time>,
    /// It is time to look.
    is_time: bool,
}

/// The executors that try a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair {
    first: ExecutorId,
    copy: ExecutorId,
}

/// A task that runs on an executor, by the number of its process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Running {
    incarnation: u64,
    tries: Tries,
    /// It has run since then, if not for longer.
    since: Time,
    /// The executors that have tried it in the same attempt, this one included: none of them is
    /// sent it again.
    tried_at: Vec<u64>,
}

/// How long tasks of a kind ran.
#[derive(Debug, Default)]
struct RunTimes {
    count: u64,
    /// How many ran for about as long, see [`length_of`].
    by_length: BTreeMap<u32, u64>,
}

/// The class of a run time: there are eight for each power of two.
fn length_of(micros: u64) -> u32 {
    let micros = micros.clamp(8, RUN_MICROS_MAX);
    let octave = micros.ilog2();
    octave * 8 + ((micros >> (octave - 3)) & 7) as u32
}

/// The longest run time of a class.
fn longest_in(length: u32) -> u64 {
    let (octave, eighth) = (length / 8, u64::from(length % 8));
    ((9 + eighth) << (octave - 3)) - 1
}

impl RunTimes {
    fn add(&mut self, micros: u64, count: u64) {
        self.count = self.count.saturating_add(count);
        let like = self.by_length.entry(length_of(micros)).or_default();
        *like = like.saturating_add(count);
    }

    /// The run time that half of the tasks did not exceed, up to an eighth more.
    fn median_micros(&self) -> u64 {
        let mut seen = 0;
        for (length, count) in &self.by_length {
            seen += u128::from(*count);
            if 2 * seen >= u128::from(self.count) {
                return longest_in(*length);
            }
        }
        u64::MAX
    }

    /// For how long a task of which so many run has to run to be a straggler. `None`: too few
    /// have ended to tell.
    fn straggles_after(&self, running: u64) -> Option<u64> {
        let is_known = self.count >= SPECULATION_ENDED_TASKS_MIN && self.count / 3 >= running;
        let micros = self.median_micros().saturating_mul(MULTIPLE);
        is_known.then_some(micros.max(SPECULATION_LEAST_MICROS))
    }
}

/// The instances that may have second tries, and the run times of their tasks.
impl Speculation {
    /// Some tasks of an instance may be tried twice.
    pub(super) fn watch(&mut self, id: InstanceId, now: Time) {
        self.watched.insert(id);
        self.sent(id, now);
    }

    /// An instance is gone. Returns how many copies of its tasks executors have.
    pub(super) fn forget(&mut self, id: InstanceId) -> u64 {
        if !self.watched.remove(&id) {
            return 0;
        }
        self.kinds.retain(|(of, ..), _| *of != id);
        self.running.retain(|(of, _), _| *of != id);
        let before = self.pairs.len();
        self.pairs.retain(|(of, _), _| *of != id);
        if self.watched.is_empty() {
            (self.due, self.is_time) = (None, false);
        }
        (before - self.pairs.len()) as u64
    }

    /// Tasks of an instance are sent to an executor.
    #[inline]
    pub(super) fn sent(&mut self, id: InstanceId, now: Time) {
        if !self.watched.is_empty() && self.watched.contains(&id) {
            self.due.get_or_insert(now.after(SPECULATION_LOOK_MICROS));
        }
    }

    /// Tasks have succeeded that ran for so long.
    #[inline]
    pub(super) fn measure(
        &mut self,
        id: InstanceId,
        run: &InFlight,
        outcome: Outcome,
        micros: u64,
    ) {
        if self.watched.is_empty() || outcome != Outcome::Exit(0) || !self.watched.contains(&id) {
            return;
        }
        let key = (id, run.batch, run.class);
        if self.kinds.len() < SPECULATION_CLASSES_MAX || self.kinds.contains_key(&key) {
            self.kinds.entry(key).or_default().add(micros, run.count);
        }
    }

    /// When stragglers are looked for.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Whether it is time to look for them.
    pub(super) fn take_due(&mut self, now: Time) -> bool {
        let is_due = self.due.take_if(|at| *at <= now).is_some();
        self.is_time |= is_due;
        is_due
    }
}

/// The tasks that have two tries.
impl Speculation {
    /// Whether an executor has the second try of a task.
    #[inline]
    pub(super) fn is_copy(&self, executor: ExecutorId, id: InstanceId, task: u64) -> bool {
        !self.pairs.is_empty()
            && self.pairs.get(&(id, task)).is_some_and(|pair| pair.copy == executor)
    }

    /// One of two tries is over. Returns the executor with the other one; `None` if that was
    /// none of two.
    #[inline]
    fn part(&mut self, executor: ExecutorId, id: InstanceId, task: u64) -> Option<ExecutorId> {
        if self.pairs.is_empty() {
            return None;
        }
        let pair = *self.pairs.get(&(id, task))?;
        let other = match executor {
            _ if executor == pair.first => pair.copy,
            _ if executor == pair.copy => pair.first,
            _ => return None,
        };
        self.pairs.remove(&(id, task));
        Some(other)
    }

    /// Takes the tasks out of those with two tries that are among these.
    fn part_all(&mut self, id: InstanceId, wanted: &RunSet) -> Vec<(u64, Pair)> {
        let of_instance = self.pairs.range((id, 0)..=(id, u64::MAX));
        let found = of_instance.filter(|((_, task), _)| wanted.contains(*task));
        let found: Vec<(u64, Pair)> = found.map(|((_, task), pair)| (*task, *pair)).collect();
        for (task, _) in &found {
            self.pairs.remove(&(id, *task));
        }
        found
    }

    /// An executor has connected anew, and has another number.
    pub(super) fn renumbered(&mut self, before: ExecutorId, id: ExecutorId) {
        for pair in self.pairs.values_mut() {
            for executor in [&mut pair.first, &mut pair.copy] {
                if *executor == before {
                    *executor = id;
                }
            }
        }
    }
}

/// A task that has run for longer than its like.
#[derive(Debug, Clone, Copy)]
struct Straggler {
    task: Task,
    executor: ExecutorId,
    run: InFlight,
    /// For how long it has run, at least.
    micros: u64,
    /// For how long its like ran.
    usual_micros: u64,
}

// What becomes of tries.
impl Dispatcher {
    /// A try has ended. Returns whether its end does not count, because the task's other try
    /// goes on.
    pub(super) fn is_left_to_other(
        &mut self,
        id: ExecutorId,
        report: &Report,
        run: &InFlight,
    ) -> bool {
        if report.outcome.status() != Status::Done {
            return self.goes_on_elsewhere(id, report.instance, run);
        }
        if let Some(other) = self.speculation.part(id, report.instance, run.first) {
            self.stop_try(other, report.instance, run.first);
        }
        false
    }

    /// A try is over, and is no longer among its executor's tasks. Returns whether the task has
    /// another try, which is its only one from now on.
    pub(super) fn goes_on_elsewhere(
        &mut self,
        id: ExecutorId,
        instance: InstanceId,
        run: &InFlight,
    ) -> bool {
        let Some(other) = self.speculation.part(id, instance, run.first) else { return false };
        self.free_try(instance, run);
        let rest = self.fleet[other].in_flight.find(&(instance, run.first));
        let rest = rest.expect("both tries of a task are in flight");
        self.attempts.note(instance, run.first, 1, rest.counted(), Some(other));
        true
    }

    /// Has the copies of tasks stopped.
    pub(super) fn stop_copies(&mut self, id: InstanceId, wanted: &RunSet) {
        for (task, pair) in self.speculation.part_all(id, wanted) {
            self.stop_try(pair.copy, id, task);
        }
    }

    /// Has an executor stop a try of a task that has another one, or needs none.
    fn stop_try(&mut self, at: ExecutorId, instance: InstanceId, task: u64) {
        let Some(run) = self.fleet[at].in_flight.find(&(instance, task)).copied() else {
            debug_assert!(false, "both tries of a task are in flight");
            return;
        };
        let held = held_of_run(instance, &run);
        for run in self.fleet.take_lost(at, &held, &self.needs, self.now) {
            self.cancel_input_transfers(at, instance, &run);
            self.staged.gone(instance, &run);
            self.free_try(instance, &run);
        }
        self.unplaced = true;
    }

    /// What a try used is free: the time counts in its instance's share.
    fn free_try(&mut self, id: InstanceId, run: &InFlight) {
        let need = &self.needs[run.need];
        let instance = &mut self.instances[&id];
        instance.usage -= run.used(need);
        let took = (run.counted_micros, self.now.since(run.dispatched));
        self.runnable.end(&mut instance.share, need.weight(run.count), took, self.now);
        self.runnable.mark(id);
    }
}

// How copies are made.
impl Dispatcher {
    /// Looks for stragglers if it is time to, and has them run a second time where there is
    /// room that nothing else could use.
    pub(super) fn speculate(&mut self) {
        if !std::mem::take(&mut self.speculation.is_time) {
            return;
        }
        let watched = self.speculation.watched.iter();
        let assigned = watched.filter(|id| self.instances[id].tasks.assigned() > 0);
        let assigned: Vec<InstanceId> = assigned.copied().collect();
        if assigned.is_empty() {
            self.speculation.running.clear();
            return;
        }
        self.speculation.due = Some(self.now.after(SPECULATION_LOOK_MICROS));
        let ends = |id: &InstanceId| {
            let instance = &self.instances[id];
            instance.tasks.ready() == 0 && !self.is_held(instance)
        };
        let ending: Vec<InstanceId> = assigned.into_iter().filter(ends).collect();
        let stragglers = self.stragglers(&ending);
        if stragglers.is_empty() || !self.may_copy() {
            return;
        }
        let Some(waiting) = self.waiting_needs() else { return };
        let connected = self.fleet.connected();
        let most = connected.div_ceil(COPY_OF_EXECUTORS).min(SPECULATION_TASKS_MAX) as usize;
        for straggler in stragglers {
            if self.speculation.pairs.len() >= most {
                return;
            }
            let user = self.instances[&straggler.task.0].share.user();
            let weight = self.needs[straggler.run.need].weight(1);
            if self.runnable.room(user, weight) == 0 {
                continue;
            }
            if let Some(to) = self.place_for_copy(&straggler, &waiting) {
                self.send_copy(to, &straggler);
            }
        }
    }

    /// Whether tasks wait elsewhere that this dispatcher does not know of: above the relays that
    /// lend its executors, and those that are one executor's each.
    fn may_copy(&self) -> bool {
        self.lent_to.is_empty() && self.placement.everywhere().is_empty()
    }

    /// What ready tasks need; `None`: so much that it would take long to look.
    fn waiting_needs(&self) -> Option<Vec<NeedId>> {
        let ready = self.runnable.ids().flat_map(|id| self.instances[&id].queues.iter());
        let ready = ready.filter(|(_, queue)| queue.len > 0).map(|(key, _)| key.1);
        let needs: Vec<_> = ready.take(SPECULATION_NEEDS_MAX + 1).collect();
        (needs.len() <= SPECULATION_NEEDS_MAX).then_some(needs)
    }

    /// The tasks of instances that run, have one try, and have run for longer than their like:
    /// those that have run longest first. Notes which run.
    fn stragglers(&mut self, ending: &[InstanceId]) -> Vec<Straggler> {
        let before = std::mem::take(&mut self.speculation.running);
        let mut now_running: BTreeMap<Task, Running> = BTreeMap::new();
        let mut counts: BTreeMap<KindKey, u64> = BTreeMap::new();
        let mut found = Vec::new();
        for executor in self.fleet.iter().filter(|executor| executor.subtree.is_none()) {
            for id in ending {
                for (_, run) in executor.in_flight.range((*id, 0)..=(*id, u64::MAX)) {
                    let ahead = executor.loads.of(run.need).prefetched;
                    if !self.may_be_copied(*id, run) || ahead > 0 {
                        continue;
                    }
                    for task in run.first..run.first + run.count {
                        if self.speculation.is_copy(executor.id, *id, task) {
                            continue;
                        }
                        *counts.entry((*id, run.batch, run.class)).or_default() += 1;
                        let seen = before.get(&(*id, task)).filter(|seen| seen.tries == run.tries);
                        // All that it has run at the latest since its last report.
                        let since = run.dispatched.max(executor.last_report);
                        let is_same = |seen: &&Running| seen.incarnation == executor.incarnation;
                        let since = seen.filter(is_same).map_or(since, |seen| seen.since);
                        let incarnation = executor.incarnation;
                        let mut tried_at = seen.map_or_else(Vec::new, |seen| seen.tried_at.clone());
                        if !tried_at.contains(&incarnation) {
                            tried_at.push(incarnation);
                        }
                        let running = Running { incarnation, tries: run.tries, since, tried_at };
                        now_running.insert((*id, task), running);
                        found.push((executor.id, (*id, task), *run));
                    }
                }
            }
        }
        self.speculation.running = now_running;
        let speculation = &self.speculation;
        let straggler = |(executor, task, run): (ExecutorId, Task, InFlight)| {
            let kind = (task.0, run.batch, run.class);
            let times = speculation.kinds.get(&kind)?;
            let after = times.straggles_after(counts.get(&kind).copied().unwrap_or(0))?;
            let running = speculation.running.get(&task)?;
            let micros = self.now.since(running.since);
            let is_straggler = micros >= after
                && !speculation.pairs.contains_key(&task)
                && running.tried_at.len() <= COPY_EXECUTORS_MAX;
            let usual_micros = times.median_micros();
            is_straggler.then_some(Straggler { task, executor, run, micros, usual_micros })
        };
        let mut stragglers: Vec<Straggler> = found.into_iter().filter_map(straggler).collect();
        stragglers.sort_by_key(|straggler| (Reverse(straggler.micros), straggler.task));
        stragglers
    }

    /// Whether tasks that an executor has may be tried a second time.
    fn may_be_copied(&self, id: InstanceId, run: &InFlight) -> bool {
        let instance = &self.instances[&id];
        let batch = instance.batch_of(TaskId(run.first));
        let class = batch.and_then(|batch| batch.submission.classes.get(run.class as usize));
        class.is_some_and(|class| class.speculate)
            && run.holds_room()
            && !self.needs[run.need].instant
            && !instance.tasks.is_any_recomputing()
            && instance.tasks.cancelling().is_empty()
    }

    /// An executor that has room for a copy which no ready task could use.
    fn place_for_copy(&self, straggler: &Straggler, waiting: &[NeedId]) -> Option<ExecutorId> {
        let need = &self.needs[straggler.run.need];
        let tried_at = &self.speculation.running.get(&straggler.task)?.tried_at;
        let mut few = self.fleet.available().take(SPECULATION_SEARCH_EXECUTORS_MAX);
        few.find(|id| {
            let executor = &self.fleet[*id];
            executor.subtree.is_none()
                && executor.kept_until.is_none()
                && executor.prefetched() == 0
                && !tried_at.contains(&executor.incarnation)
                && executor.has_room_for(need, self.now, straggler.usual_micros)
                && !waiting.iter().any(|need| executor.offers(&self.needs[*need]))
        })
    }

    /// Sends an executor a copy of a task.
    fn send_copy(&mut self, to: ExecutorId, straggler: &Straggler) {
        let Straggler { task: (id, task), executor, run, .. } = *straggler;
        let one = InFlight { first: task, count: 1, ..run };
        self.fleet.single_out(executor, &held_of_run(id, &one));
        let key = key_of(&self.needs[run.need], run.need);
        let past = Past { class: run.class, tries: run.counted() };
        self.send_try(to, id, (key, run.chosen()), task, past);
        self.fleet.list(to, self.now);
        self.speculation.pairs.insert((id, task), Pair { first: executor, copy: to });
        self.happenings.note(|| What::Copied {
            instance: id,
            task: TaskId(task),
            executor: to,
            first: executor,
            ran_micros: straggler.micros,
            median_micros: straggler.usual_micros,
        });
        let incarnation = self.fleet[to].incarnation;
        if let Some(running) = self.speculation.running.get_mut(&(id, task)) {
            running.tried_at.push(incarnation);
        }
    }
}

// Checks.
impl Dispatcher {
    /// Both tries of a task are in flight, each by itself, on two executors.
    pub(super) fn check_speculation(&self) -> Result<(), CheckError> {
        for ((id, task), pair) in &self.speculation.pairs {
            ensure!(pair.first != pair.copy, "both tries of task {task} are on one executor");
            for executor in [pair.first, pair.copy] {
                let is_there = self.fleet.contains(executor);
                ensure!(is_there, "a try of task {task} is on executor {executor}, which is gone");
                let run = self.fleet[executor].in_flight.find(&(*id, *task));
                let is_alone = run.is_some_and(|run| run.count == 1);
                ensure!(is_alone, "a try of task {task} is not in flight on {executor}");
            }
            let instance = self.instances.find(id);
            let is_open = instance.is_some_and(|instance| {
                !instance.tasks.has_ended(*task) && !instance.tasks.cancelling().contains(*task)
            });
            ensure!(is_open, "task {task} has two tries and has ended");
        }
        let pairs = self.speculation.pairs.len() as u64;
        ensure!(pairs <= SPECULATION_TASKS_MAX, "{pairs} tasks have two tries");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_at_most_an_eighth_too_long() {
        for micros in [0, 1, 7, 8, 9, 1_000, 123_456, 1 << 40, RUN_MICROS_MAX] {
            let longest = longest_in(length_of(micros));
            assert!(longest >= micros && longest <= micros.max(8) + micros / 8, "{micros}");
            let mut times = RunTimes::default();
            times.add(micros, 5);
            times.add(1 << 49, 4);
            assert_eq!(times.median_micros(), longest);
        }
    }

    #[test]
    fn nobody_straggles_before_enough_have_ended() {
        let mut times = RunTimes::default();
        times.add(10_000_000, SPECULATION_ENDED_TASKS_MIN - 1);
        assert_eq!(times.straggles_after(1), None);
        times.add(10_000_000, 1);
        let after = times.straggles_after(1).expect("enough have ended");
        assert!(after >= MULTIPLE * 10_000_000);
        assert_eq!(times.straggles_after(SPECULATION_ENDED_TASKS_MIN), None, "most still run");
    }
}
