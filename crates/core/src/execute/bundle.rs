//! Calls of functions: handed over several at a time, while they are short.
//!
//! The calls of a bundle are made one after another by one worker, in the room
//! of one task. The first *leads*: it holds the room and has the deadline. When
//! it ends, the one *behind* it leads. What turns out to be behind a long call
//! comes back ([`super::Event::Returned`]) and waits for any room again.

use super::{Executor, Grant, Killed, Link, Queued, Running, Start, TaskKey};
use crate::dispatch::CheckError;
use crate::dispatch::check::ensure;
use crate::limits::{BUNDLE_SEARCH_RUNS_MAX, BUNDLE_TASKS_MAX, BUNDLE_WORK_MICROS};
use crate::result::{Outcome, Report};
use crate::task::{Kind, Rows, TaskId};
use std::sync::Arc;

/// A new measurement's share in the mean is one in so many.
const PACE_SHARE: u64 = 8;
const NANOS: u64 = 1000;

/// How long the calls of a template take, by those that have ended.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// How many have ended.
    calls: u64,
    /// A mean that leans to the latest, in nanoseconds: short calls take less
    /// than a microsecond on average.
    nanos: u64,
}

impl Pace {
    /// Takes in that a call took so long.
    pub(super) fn ended(&mut self, micros: u64) {
        let nanos = micros.saturating_mul(NANOS);
        self.nanos = match self.calls {
            0 => nanos,
            _ => (self.nanos / PACE_SHARE).saturating_mul(PACE_SHARE - 1) + nanos / PACE_SHARE,
        };
        self.calls = self.calls.saturating_add(1);
    }

    /// How many calls make a bundle. Trust grows with the number of calls
    /// seen; with none, the user's `estimate_micros` counts (0 is unknown).
    fn bundle(self, estimate_micros: u64) -> u64 {
        let (nanos, trusted) = match (self.calls, estimate_micros) {
            (0, 0) => return 1,
            (0, estimate) => (estimate.saturating_mul(NANOS), BUNDLE_TASKS_MAX),
            (calls, _) => (self.nanos, calls.saturating_mul(2)),
        };
        (BUNDLE_WORK_MICROS * NANOS / nanos.max(1)).min(trusted).clamp(1, BUNDLE_TASKS_MAX)
    }
}

/// A call's place among those that one worker makes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Call {
    /// The call before it, whose room it will take.
    behind: Option<TaskKey>,
    /// The call behind it.
    next: Option<TaskKey>,
}

impl Call {
    /// Whether it holds the room of its bundle.
    pub(super) fn leads(self) -> bool {
        self.behind.is_none()
    }
}

/// Functions that are called behind those of a [`super::Start`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct More {
    /// The first.
    pub key: TaskKey,
    /// How many.
    pub count: u64,
    /// Rows that theirs are among.
    pub rows: Arc<Rows>,
    /// The index of the first one's row.
    pub row: u64,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}

impl Queued {
    /// Whether calls of `other` can be made behind calls of this.
    fn is_like(&self, other: &Queued) -> bool {
        self.template == other.template
            && Arc::ptr_eq(&self.class, &other.class)
            && self.data.is_none()
            && other.data.is_none()
    }

    /// The number of this attempt, from 1.
    pub(super) fn attempt(&self) -> u32 {
        self.tries.attempt().saturating_add(self.class.attempts_before)
    }

    /// How they are started behind others.
    pub(super) fn to_more(&self) -> More {
        More {
            key: self.key(),
            count: self.count,
            rows: self.rows.clone(),
            row: self.row,
            attempt: self.attempt(),
        }
    }
}

impl Start {
    /// The start of some of the calls that are behind the first ones.
    #[must_use]
    pub fn one_of(&self, more: &More) -> Start {
        let More { key, count, rows, row, attempt } = more.clone();
        Start { key, count, rows, row, attempt, more: Vec::new(), ..self.clone() }
    }
}

impl Executor {
    /// How many tasks, of the queued run at `at` and of those like it that
    /// follow, are started in one room.
    pub(super) fn bundle(&self, at: usize) -> u64 {
        let run = &self.queue[at];
        if run.class.kind != Kind::Function {
            return 1;
        }
        let most =
            self.templates.pace(run.template).bundle(run.class.given_estimate().unwrap_or(0));
        let mut calls = run.count;
        if most > 1 && run.data.is_none() {
            let enough = self.room.capacity().count_of(&run.class.resources, most).max(1) * most;
            for other in self.queue.range(at + 1..).take(BUNDLE_SEARCH_RUNS_MAX) {
                if calls >= enough || !run.is_like(other) {
                    break;
                }
                calls += other.count;
            }
        }
        // The last calls are to end together, on all workers.
        let rooms = self.room.capacity().count_of(&run.class.resources, calls).max(1);
        let count = most.min(calls.div_ceil(rooms));
        // An attempt that was disowned may still be running.
        let own = count.min(run.count);
        if count > 1 && self.is_running(run.instance, run.first, own) { 1 } else { count }
    }

    /// Takes the first `count` tasks of a queued run.
    pub(super) fn take_queued(&mut self, at: usize, count: u64) -> Option<Queued> {
        let run = self.queue.get_mut(at)?;
        run.passed_since = None;
        let first = Queued { count, ..run.clone() };
        run.first += count;
        run.row += count;
        run.count -= count;
        if run.count == 0 {
            self.queue.remove(at);
        } else {
            self.templates.add_uses(first.template, 1);
        }
        Some(first)
    }

    /// Takes up to `count` calls off the queued runs from `at` on, as long as
    /// they are like the `first`, which was taken from there.
    pub(super) fn take_more(&mut self, at: usize, first: &Queued, count: u64) -> Vec<Queued> {
        let (mut more, mut left) = (Vec::new(), count);
        while left > 0
            && let Some(next) = self.queue.get(at).filter(|next| first.is_like(next))
        {
            let calls = left.min(next.count);
            if self.is_running(next.instance, next.first, calls) {
                break;
            }
            let Some(run) = self.take_queued(at, calls) else { break };
            left -= run.count;
            more.push(run);
        }
        more
    }

    /// Notes the calls of a bundle behind its first one. Gives the first one's
    /// place.
    pub(super) fn start_behind<'a>(&mut self, first: &'a Queued, more: &'a [Queued]) -> Call {
        for run in std::iter::once(first).chain(more) {
            self.templates.add_uses(run.template, run.count - 1);
        }
        let calls = |run: &'a Queued| (0..run.count).map(move |at| (run, at));
        let mut calls = std::iter::once(first).chain(more).flat_map(calls).peekable();
        let (mut leads, mut behind) = (Call::default(), None);
        while let Some((run, at)) = calls.next() {
            let next = calls.peek().map(|(run, at)| run.key_at(*at));
            let call = Call { behind, next };
            let key = run.key_at(at);
            match behind.replace(key) {
                None => leads = call,
                Some(_) => {
                    let (first, row) = (run.first + at, run.row + at);
                    let one = Queued { first, row, ..run.clone() };
                    let running = Running::new(one, Grant::default(), Link::Call(call));
                    self.running.insert(key, Box::new(running));
                }
            }
        }
        leads
    }

    /// Passes the room of a call that has ended on to the call behind it;
    /// `false` if there is none.
    pub(super) fn lead(&mut self, call: Call, grant: &Grant) -> bool {
        let Some(next) = call.next else { return false };
        let behind = self.started(next);
        behind.grant = grant.clone();
        if let Some(call) = behind.call_mut() {
            call.behind = None;
        }
        self.begun(next);
        true
    }

    /// Takes a call that is over, or comes back, out from between those before
    /// and behind it. The one behind a call that leads stays behind it until it
    /// leads itself.
    pub(super) fn unlink(&mut self, gone: Call) {
        let Some(before) = gone.behind else { return };
        // A shell that returns calls run by run may return the first ones first.
        if let Some(call) = self.running.find_mut(&before).and_then(|run| run.call_mut()) {
            call.next = gone.next;
        }
        let next = gone.next.and_then(|next| self.running.find_mut(&next));
        if let Some(call) = next.and_then(|run| run.call_mut()) {
            call.behind = Some(before);
        }
    }

    /// The time of a call that leads runs from now on.
    pub(super) fn begun(&mut self, key: TaskKey) {
        let Some(run) = self.running.find_mut(&key) else { return };
        let timed = run.class.kind == Kind::Function && run.class.timeout_micros > 0;
        if timed && run.has_room() && run.deadline.is_none() {
            let at = self.now.after(run.class.timeout_micros);
            run.deadline = Some(at);
            self.deadlines.insert((at, key));
        }
    }

    /// Takes back `count` calls from `key` on, which have not begun.
    pub(super) fn returned(&mut self, key: TaskKey, count: u64) {
        // The last first, so that none is behind one that is gone.
        for at in (0..count).rev() {
            let Some(task) = key.task.0.checked_add(at) else { continue };
            let key = TaskKey { instance: key.instance, task: TaskId(task) };
            if self.running.find(&key).is_none_or(|run| run.class.kind != Kind::Function) {
                continue;
            }
            let Some(run) = self.vacate(key, None) else { continue };
            // A deadline that passed before the call began is none.
            if matches!(run.killed, Some(Killed::Timeout) | None) {
                self.requeue(key, &run);
                self.release_template(run.template);
                continue;
            }
            self.release_template(run.template);
            let cancelled = (run.killed == Some(Killed::Cancelled)).then_some(Report {
                instance: key.instance,
                first: key.task,
                count: 1,
                tries: run.tries,
                outcome: Outcome::Cancelled,
                started: self.now,
                ended: self.now,
                detail: None,
            });
            match (&run.data, cancelled) {
                (Some(task), cancelled) => self.finish(key, task, cancelled),
                (None, Some(cancelled)) => self.updates.push(cancelled),
                (None, None) => {}
            }
        }
    }

    /// Puts a call at the front of the queue, with those that follow it.
    fn requeue(&mut self, key: TaskKey, run: &Running) {
        if let Some(front) = self.queue.front_mut()
            && front.instance == key.instance
            && front.first == key.task.0 + 1
            && front.tries == run.tries
            && front.template == run.template
            && front.row == run.row + 1
            && front.data.is_none()
            && run.data.is_none()
            && Arc::ptr_eq(&front.class, &run.class)
            && Arc::ptr_eq(&front.rows, &run.rows)
        {
            front.first -= 1;
            front.row -= 1;
            front.count += 1;
            return;
        }
        self.templates.add_uses(run.template, 1);
        if let Some(task) = &run.data {
            self.unstart(key, task);
        }
        self.queue.push_front(Queued {
            instance: key.instance,
            first: key.task.0,
            count: 1,
            tries: run.tries,
            template: run.template,
            class: run.class.clone(),
            rows: run.rows.clone(),
            row: run.row,
            data: run.data.clone(),
            passed_since: None,
            asked: None,
        });
    }
    /// A call stands behind the one whose next it is, and has no deadline and no
    /// GPUs before it leads.
    pub(super) fn check_call(&self, key: TaskKey, run: &Running) -> Result<(), CheckError> {
        let task = key.task;
        let is_function = run.class.kind == Kind::Function;
        ensure!(run.call().is_some() == is_function, "task {task} is a call, or is not");
        let Some(call) = run.call() else { return Ok(()) };
        let of = |key: TaskKey| self.running.find(&key).and_then(|run| run.call());
        if let Some(next) = call.next {
            let behind = of(next).and_then(|next| next.behind);
            ensure!(behind == Some(key), "task {task} has lost a call");
        }
        if let Some(before) = call.behind {
            let next = of(before).and_then(|before| before.next);
            ensure!(next == Some(key), "task {task} is behind a task that is gone");
            ensure!(run.grant == Grant::default(), "task {task} has gpus or cpus early");
            ensure!(run.deadline.is_none(), "task {task} has its deadline early");
        }
        Ok(())
    }
}
