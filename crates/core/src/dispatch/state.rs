//! The states that a task has, and the moves between them.
//!
//! Every accepted task is in one [`State`]. All moves begin or end in
//! [`State::Unplaced`], the one state in which a task is in no list: tasks are
//! taken out of one list, something is decided, and they go into another, within
//! one event. Only a dispatcher that reads its journal leaves tasks unplaced for
//! longer.
//!
//! ```text
//!             ┌── hold ──▶ waiting ── release ──┐
//!             ├── queue ─▶ ready ──── take ─────┤
//!  unplaced ──┤                                 ├──▶ unplaced
//!             ├── assign ▶ assigned ─ return ───┤
//!             └── end ───▶ ended ── recompute,  ┘
//!                                     retry
//! ```
//!
//! | what happens | moves |
//! |---|---|
//! | a submission | hold, queue, or end (what it depends on has failed) |
//! | its turn has come | take, assign |
//! | the last task that it waits for ends | release, queue (or end, if that failed) |
//! | a report | return, end; to be tried again: return, queue |
//! | an executor gives it back, or is lost | return, queue; lost too often: return, end |
//! | it is cancelled | release or take, end; at an executor: when it returns |
//! | what it reads is lost from all caches | take or return, hold |
//! | what it left in caches is lost and wanted | recompute, queue |
//! | it has failed, and somebody has it run again | retry, then as a submission |
//! | nobody wants that any more | release, take or return; end |
//! | an executor comes back with it after a restart | take or release, assign |
//!
//! [`Tasks`] keeps the states of one instance's tasks and is the only one to
//! change them. Tasks in a row cost what one costs: ended tasks are sets of runs,
//! ready tasks runs in queues ([`super::instance`]), assigned tasks runs with their
//! executors ([`super::executor`]); the latter two are counted here. Only waiting
//! tasks have entries of their own.
//!
//! A task that is recomputed has ended, and has its result: it counts as ended
//! whatever state it is in, and no second result is made of it.

use super::check::{CheckError, ensure};
use crate::result::{Counts, Finished, Status, Tries};
use crate::runset::RunSet;
use crate::task::InstanceId;
use std::collections::{BTreeMap, BTreeSet};

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// In no list: just accepted, or between two lists.
    Unplaced,
    /// Waits for tasks that have not ended, or are recomputed, or for values to
    /// be read from disk.
    Waiting,
    /// In a queue.
    Ready,
    /// Sent to an executor, which has not answered for it.
    Assigned,
    /// Has its result.
    Ended,
}

/// The moves: each with the state in which it finds tasks, and the one in which
/// it leaves them.
macro_rules! moves {
    ($($name:ident: $from:ident => $to:ident),* $(,)?) => {
        /// A step of tasks from one state to another.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Move {
            $($name),*
        }

        impl Move {
            #[cfg(all(test, debug_assertions))]
            const ALL: &[Move] = &[$(Move::$name),*];

            fn states(self) -> (State, State) {
                match self {
                    $(Move::$name => (State::$from, State::$to)),*
                }
            }
        }
    };
}
moves! {
    Hold: Unplaced => Waiting,
    Release: Waiting => Unplaced,
    Queue: Unplaced => Ready,
    Take: Ready => Unplaced,
    Assign: Unplaced => Assigned,
    Return: Assigned => Unplaced,
    End: Unplaced => Ended,
    Recompute: Ended => Unplaced,
    Retry: Ended => Unplaced,
}

/// The tasks of one instance, by their states.
#[derive(Debug)]
pub(super) struct Tasks {
    instance: InstanceId,
    total: u64,
    /// Task → how many tasks and values it still waits for.
    waiting: BTreeMap<u64, u32>,
    /// Waiting tasks that were tried, and how often.
    tried: BTreeMap<u64, Tries>,
    /// Task → tasks that wait for it.
    dependents: BTreeMap<u64, Vec<u64>>,
    ready: u64,
    assigned: u64,
    ended: RunSet,
    /// Those of them that did not end well.
    failed: RunSet,
    /// Those of these that were cancelled.
    cancelled: RunSet,
    /// How they ended.
    counts: Counts,
    /// Tasks that have ended and run again for what they left in caches.
    recomputing: BTreeSet<u64>,
    /// Tasks to be cancelled when they come back from an executor.
    cancelling: RunSet,
    witness: Witness,
}

/// What is known of the tasks.
impl Tasks {
    pub(super) fn new(instance: InstanceId) -> Tasks {
        Tasks {
            instance,
            total: 0,
            waiting: BTreeMap::new(),
            tried: BTreeMap::new(),
            dependents: BTreeMap::new(),
            ready: 0,
            assigned: 0,
            ended: RunSet::default(),
            failed: RunSet::default(),
            cancelled: RunSet::default(),
            counts: Counts::default(),
            recomputing: BTreeSet::new(),
            cancelling: RunSet::default(),
            witness: Witness::default(),
        }
    }

    /// How many were accepted.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// How many are in queues.
    pub(super) fn ready(&self) -> u64 {
        self.ready
    }

    /// How many executors have.
    pub(super) fn assigned(&self) -> u64 {
        self.assigned
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            total: self.total,
            waiting: self.waiting.len() as u64,
            ready: self.ready,
            dispatched: self.assigned,
            ..self.counts
        }
    }

    /// Whether all have ended: one that is recomputed is so for one that has
    /// not.
    pub(super) fn have_all_ended(&self) -> bool {
        self.ended.len() == self.total
    }

    /// The state of a task, of which its caller knows whether an executor has
    /// it. One that is recomputed has ended.
    pub(super) fn state(&self, task: u64, is_assigned: bool) -> State {
        if self.ended.contains(task) {
            State::Ended
        } else if self.waiting.contains_key(&task) {
            State::Waiting
        } else if is_assigned {
            State::Assigned
        } else {
            State::Ready
        }
    }

    pub(super) fn has_ended(&self, task: u64) -> bool {
        self.ended.contains(task)
    }

    /// Whether a task has ended and not well.
    pub(super) fn has_failed(&self, task: u64) -> bool {
        self.failed.contains(task)
    }

    /// Whether a task has ended well.
    pub(super) fn is_done(&self, task: u64) -> bool {
        self.ended.contains(task) && !self.failed.contains(task)
    }

    /// The parts of a run of tasks that have not ended, as (first, count).
    pub(super) fn unended(&self, first: u64, count: u64) -> Vec<(u64, u64)> {
        self.ended.gaps(first, count)
    }

    /// The tasks that have ended.
    pub(super) fn ended(&self) -> &RunSet {
        &self.ended
    }

    /// How the tasks that have ended did so, and how often any was recomputed.
    pub(super) fn ended_counts(&self) -> Counts {
        self.counts
    }

    /// The tasks that have ended and not well.
    pub(super) fn failed(&self) -> &RunSet {
        &self.failed
    }

    /// Those of them that were cancelled.
    pub(super) fn cancelled(&self) -> &RunSet {
        &self.cancelled
    }

    /// The tasks that have failed, and were not cancelled.
    pub(super) fn failed_and_not_cancelled(&self) -> RunSet {
        let mut failed = self.failed.clone();
        for (first, count) in self.cancelled.iter() {
            failed.remove(first, count);
        }
        failed
    }

    /// The tasks that are to be cancelled when they come back.
    pub(super) fn cancelling(&self) -> &RunSet {
        &self.cancelling
    }

    /// The waiting ones of `count` tasks from `first` on.
    pub(super) fn waiting(&self, first: u64, count: u64) -> impl Iterator<Item = u64> + '_ {
        self.waiting.range(first..first.saturating_add(count)).map(|(task, _)| *task)
    }

    /// Waiting tasks that were tried, and how often.
    pub(super) fn tried(&self) -> impl Iterator<Item = (u64, Tries)> + '_ {
        self.tried.iter().map(|(task, tries)| (*task, *tries))
    }

    pub(super) fn is_recomputing(&self, task: u64) -> bool {
        self.recomputing.contains(&task)
    }

    /// Whether any task is recomputed.
    pub(super) fn is_any_recomputing(&self) -> bool {
        !self.recomputing.is_empty()
    }

    /// Those of `count` tasks from `first` on that are recomputed.
    pub(super) fn recomputing(&self, first: u64, count: u64) -> impl Iterator<Item = u64> + '_ {
        self.recomputing.range(first..first.saturating_add(count)).copied()
    }

    /// The parts of a run of tasks that are recomputed, and the others, as
    /// (first, count, is recomputed).
    pub(super) fn by_recomputing(&self, first: u64, count: u64) -> Vec<(u64, u64, bool)> {
        let mut again = RunSet::default();
        self.recomputing(first, count).for_each(|task| {
            again.insert(task, 1);
        });
        let parts = again.within(first, count).into_iter().map(|(at, count)| (at, count, true));
        let others = again.gaps(first, count).into_iter().map(|(at, count)| (at, count, false));
        parts.chain(others).collect()
    }

    /// The recomputed tasks that no task waits for.
    pub(super) fn recomputed_for_nobody(&self) -> Vec<u64> {
        let is_awaited = |task: &u64| {
            let mut waiting = self.dependents.get(task).into_iter().flatten();
            waiting.any(|task| self.waiting.contains_key(task))
        };
        self.recomputing.iter().filter(|task| !is_awaited(task)).copied().collect()
    }
}

/// The moves.
impl Tasks {
    /// Accepts tasks: they are unplaced.
    pub(super) fn accept(&mut self, first: u64, count: u64) {
        self.total = self.total.max(first + count);
    }

    /// Unplaced → waiting, for so many values to be read and for these tasks.
    pub(super) fn hold(
        &mut self,
        task: u64,
        values: usize,
        upstreams: impl IntoIterator<Item = u64>,
        tries: Option<Tries>,
    ) {
        self.witness(Move::Hold, task, 1);
        let mut missing = values;
        for upstream in upstreams {
            self.dependents.entry(upstream).or_default().push(task);
            missing += 1;
        }
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        let before = self.waiting.insert(task, missing);
        assert!(before.is_none(), "instance {}: task {task} waits already", self.instance);
        if let Some(tries) = tries {
            self.tried.insert(task, tries);
        }
    }

    /// Waiting → unplaced. Gives how often the task was tried; `None` if it does
    /// not wait.
    pub(super) fn release(&mut self, task: u64) -> Option<Tries> {
        self.waiting.remove(&task)?;
        self.witness(Move::Release, task, 1);
        Some(self.tried.remove(&task).unwrap_or_default())
    }

    /// Something that a task waits for is there, or never will be. Waiting →
    /// unplaced if it waits for nothing else, or if that `has_failed`: then gives
    /// how often it was tried.
    pub(super) fn step(&mut self, task: u64, has_failed: bool) -> Option<Tries> {
        let missing = self.waiting.get_mut(&task)?;
        *missing -= 1;
        if *missing > 0 && !has_failed {
            return None;
        }
        self.release(task)
    }

    /// Unplaced → ready: tasks are put into a queue.
    pub(super) fn queue(&mut self, first: u64, count: u64) {
        self.witness(Move::Queue, first, count);
        self.ready += count;
    }

    /// Ready → unplaced: tasks were taken out of their queue.
    pub(super) fn take(&mut self, first: u64, count: u64) {
        self.witness(Move::Take, first, count);
        self.ready = self.less(self.ready, Move::Take, first, count);
    }

    /// Unplaced → assigned: tasks are sent to an executor, or one has them.
    pub(super) fn assign(&mut self, first: u64, count: u64) {
        self.witness(Move::Assign, first, count);
        self.assigned += count;
    }

    /// Assigned → unplaced: their executor has answered for tasks, or is gone.
    pub(super) fn give_back(&mut self, first: u64, count: u64) {
        self.witness(Move::Return, first, count);
        self.assigned = self.less(self.assigned, Move::Return, first, count);
    }

    /// Unplaced → ended.
    pub(super) fn end(&mut self, finished: &Finished) {
        let (first, count) = (finished.first.0, finished.count);
        self.witness(Move::End, first, count);
        let new = self.ended.insert(first, count);
        assert_eq!(new, count, "instance {}: tasks from {first} on end twice", self.instance);
        let status = finished.outcome.status();
        if status != Status::Done {
            self.failed.insert(first, count);
        }
        if status == Status::Cancelled {
            self.cancelled.insert(first, count);
        }
        if !self.cancelling.is_empty() {
            self.cancelling.remove(first, count);
        }
        self.counts.end(status, count);
    }

    /// Ended → unplaced: tasks that have failed, or were cancelled, run again for another
    /// result.
    pub(super) fn retry(&mut self, first: u64, count: u64) {
        self.witness(Move::Retry, first, count);
        self.ended.remove(first, count);
        let failed = self.failed.remove(first, count);
        assert_eq!(failed, count, "instance {}: tasks from {first} have not failed", self.instance);
        let cancelled = self.cancelled.remove(first, count);
        self.counts.unend(Status::Cancelled, cancelled);
        self.counts.unend(Status::Failed, count - cancelled);
    }

    /// Ended → unplaced: a task is recomputed.
    pub(super) fn recompute(&mut self, task: u64) {
        self.witness(Move::Recompute, task, 1);
        let is_new = self.ended.contains(task) && self.recomputing.insert(task);
        assert!(is_new, "instance {}: task {task} has not ended, or is recomputed", self.instance);
        self.counts.recomputed += 1;
    }

    /// Unplaced → ended, of tasks that were recomputed.
    pub(super) fn end_recomputed(&mut self, first: u64, count: u64) {
        self.witness(Move::End, first, count);
        for task in first..first.saturating_add(count) {
            let was_recomputing = self.recomputing.remove(&task);
            assert!(was_recomputing, "instance {}: task {task} is not recomputed", self.instance);
        }
    }

    /// The tasks that waited for one that has ended, or that is not there; they
    /// wait no longer for it.
    pub(super) fn take_dependents(&mut self, upstream: u64) -> Vec<u64> {
        self.dependents.remove(&upstream).unwrap_or_default()
    }

    /// Those of a run of tasks that others wait for.
    pub(super) fn upstreams(&self, first: u64, count: u64) -> Vec<u64> {
        let until = first.saturating_add(count);
        self.dependents.range(first..until).map(|(upstream, _)| *upstream).collect()
    }

    /// Some task that others wait for, and these: nothing comes of it.
    pub(super) fn take_stuck(&mut self) -> Option<(u64, Vec<u64>)> {
        self.dependents.pop_first()
    }

    /// Notes how often a waiting task was tried.
    pub(super) fn set_tries(&mut self, task: u64, tries: Tries) {
        self.tried.insert(task, tries);
    }

    /// Notes that those of these tasks that have not ended are to be cancelled
    /// however they come back.
    pub(super) fn mark_cancelling(&mut self, wanted: &RunSet) {
        for (first, count) in wanted.iter() {
            for (first, count) in self.ended.gaps(first, count) {
                self.cancelling.insert(first, count);
            }
        }
    }

    fn less(&self, from: u64, with: Move, first: u64, count: u64) -> u64 {
        from.checked_sub(count).unwrap_or_else(|| {
            panic!(
                "instance {}: {with:?} of {count} tasks from {first} on, of {from}",
                self.instance
            )
        })
    }

    fn witness(&mut self, with: Move, first: u64, count: u64) {
        self.witness.see(self.instance, with, first, count);
    }
}

/// What a journal says.
impl Tasks {
    /// A task was recomputed once more.
    pub(super) fn recover_recomputed(&mut self) {
        self.counts.recomputed += 1;
    }

    /// Unplaced → ended: a snapshot knows how these tasks ended, `counts` in all.
    /// Gives those of which it had not said so.
    pub(super) fn recover_ended(
        &mut self,
        total: u64,
        ended: &[(u64, u64)],
        failed: &[(u64, u64)],
        cancelled: &[(u64, u64)],
        counts: Counts,
    ) -> RunSet {
        self.total = self.total.max(total);
        self.counts = counts;
        for (first, count) in failed {
            self.failed.insert(*first, *count);
        }
        for (first, count) in cancelled {
            self.cancelled.insert(*first, *count);
        }
        let mut new = RunSet::default();
        for (first, count) in ended {
            for (first, count) in self.ended.gaps(*first, *count) {
                self.witness(Move::End, first, count);
                new.insert(first, count);
            }
            self.ended.insert(*first, *count);
        }
        new
    }
}

impl Tasks {
    /// Every accepted task is in one state, which its moves have led to; ready
    /// and assigned ones are these runs.
    ///
    /// # Errors
    /// Says what does not hold.
    pub(super) fn check(
        &self,
        ready: impl Iterator<Item = (u64, u64)>,
        assigned: &RunSet,
    ) -> Result<(), CheckError> {
        let id = self.instance;
        let mut seen = self.ended.clone();
        for task in &self.recomputing {
            let ended = seen.remove(*task, 1);
            ensure!(ended == 1, "instance {id}: task {task} is recomputed and has not ended");
        }
        for task in self.tried.keys() {
            let waits = self.waiting.contains_key(task);
            ensure!(waits, "instance {id}: task {task} was tried and does not wait");
        }
        for (first, count) in seen.iter() {
            self.witness.check(id, State::Ended, first, count)?;
        }
        let mut place = |state: State, first: u64, count: u64| {
            let new = seen.insert(first, count);
            ensure!(
                new == count,
                "instance {id}: task {first}+{count}, {state:?}, is elsewhere too"
            );
            self.witness.check(id, state, first, count)
        };
        for (first, count) in assigned.iter() {
            place(State::Assigned, first, count)?;
        }
        for task in self.waiting.keys() {
            place(State::Waiting, *task, 1)?;
        }
        let mut counted = 0;
        for (first, count) in ready {
            place(State::Ready, first, count)?;
            counted += count;
        }
        ensure!(seen.len() == self.total, "instance {id}: a task is nowhere");
        ensure!(counted == self.ready, "instance {id}: ready is miscounted");
        ensure!(assigned.len() == self.assigned, "instance {id}: assigned is miscounted");
        let ended = self.counts.ended();
        ensure!(ended == self.ended.len(), "instance {id}: ended is miscounted");
        Ok(())
    }
}

/// In builds with debug assertions, the state of every task as its moves have
/// led to it, in runs: a move that does not start from it panics. Tests and the
/// simulator run such builds; others have nothing here.
#[derive(Debug, Default)]
struct Witness {
    /// First of a run → one past its last, and their state. Tasks that are in
    /// none are unplaced.
    runs: BTreeMap<u64, (u64, State)>,
}

impl Witness {
    fn see(&mut self, id: InstanceId, with: Move, first: u64, count: u64) {
        if !cfg!(debug_assertions) {
            return;
        }
        let (from, to) = with.states();
        let end = first.saturating_add(count);
        let other = self.first_other(from, first, end);
        assert!(
            other.is_none(),
            "instance {id}: {with:?} of tasks {first}+{count}, which are to be {from:?}: {other:?}"
        );
        self.set(first, end, to);
    }

    fn check(
        &self,
        id: InstanceId,
        state: State,
        first: u64,
        count: u64,
    ) -> Result<(), CheckError> {
        let other = self.first_other(state, first, first.saturating_add(count));
        ensure!(
            other.is_none() || !cfg!(debug_assertions),
            "instance {id}: tasks {first}+{count} are {state:?}, and moved otherwise: {other:?}"
        );
        Ok(())
    }

    /// The first task of `first .. end` that is in another state, and which.
    fn first_other(&self, state: State, first: u64, end: u64) -> Option<(u64, State)> {
        let before = self.runs.range(..first).next_back().filter(|(_, (until, _))| *until > first);
        let mut at = first;
        for (start, (until, found)) in before.into_iter().chain(self.runs.range(first..end)) {
            if *start > at && state != State::Unplaced {
                return Some((at, State::Unplaced));
            }
            at = at.max(*start);
            if *found != state {
                return Some((at, *found));
            }
            at = *until;
        }
        (at < end && state != State::Unplaced).then_some((at, State::Unplaced))
    }

    fn set(&mut self, mut first: u64, mut end: u64, state: State) {
        let before = self.runs.range(..first).next_back().map(|(start, run)| (*start, *run));
        if let Some((start, (until, other))) = before.filter(|(_, (until, _))| *until > first) {
            self.runs.insert(start, (first, other));
            self.runs.insert(first, (until, other));
        }
        while let Some((&start, &(until, other))) = self.runs.range(first..end).next() {
            self.runs.remove(&start);
            if until > end {
                self.runs.insert(end, (until, other));
            }
        }
        if state == State::Unplaced {
            return;
        }
        let before = self.runs.range(..first).next_back().map(|(start, run)| (*start, *run));
        if let Some((start, _)) = before.filter(|(_, run)| *run == (first, state)) {
            first = start;
        }
        if let Some((until, _)) = self.runs.get(&end).copied().filter(|(_, other)| *other == state)
        {
            self.runs.remove(&end);
            end = until;
        }
        self.runs.insert(first, (end, state));
    }
}

#[cfg(all(test, debug_assertions))]
mod tests;
