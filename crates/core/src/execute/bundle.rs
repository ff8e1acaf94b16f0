//! Calls of functions: handed over several at a time, while they are short.
//!
//! The calls of a bundle are made one after another by one worker, in the room
//! of one task. The first *leads*: it holds the room and has the deadline. When
//! it ends, the one *behind* it leads. What turns out to be behind a long call
//! comes back ([`super::Event::Returned`]) and waits for any room again.

use super::{Executor, Killed, Queued, Running, TaskKey};
use crate::limits::{BUNDLE_TASKS_MAX, BUNDLE_WORK_MICROS};
use crate::result::{Outcome, Report};
use crate::task::{Kind, TaskId};
use std::collections::VecDeque;
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

impl Executor {
    /// How many tasks from the front of `run` are started in one room.
    pub(super) fn bundle(&self, run: &Queued) -> u64 {
        if run.class.kind != Kind::Function {
            return 1;
        }
        let Some(prepared) = self.templates.get(&run.template) else { return 1 };
        // The last calls are to end together, on all workers.
        let rooms = self.capacity.count_of(&run.class.resources, run.count).max(1);
        let count = prepared.pace.bundle(run.class.estimate_micros).min(run.count.div_ceil(rooms));
        // An attempt that was disowned may still be running.
        if count > 1 && self.is_running(run.instance, run.first, count) { 1 } else { count }
    }

    /// Notes the calls of a bundle of `calls` that are behind its `leader`.
    pub(super) fn start_behind(&mut self, key: TaskKey, calls: u64, leader: &Running) {
        if calls < 2 {
            return;
        }
        if let Some(prepared) = self.templates.get_mut(&leader.template) {
            prepared.uses += calls - 1;
        }
        for at in 1..calls {
            let key = TaskKey { instance: key.instance, task: TaskId(key.task.0 + at) };
            let behind = Running {
                count: 1,
                tries: leader.tries,
                template: leader.template,
                class: leader.class.clone(),
                gpus: Vec::new(),
                data: None,
                deadline: None,
                killed: None,
                rows: leader.rows.clone(),
                row: leader.row + at,
                behind: true,
                waits: None,
                moved_up: None,
                chain: 0,
                followers: VecDeque::new(),
            };
            self.running.insert(key, behind);
        }
    }

    /// Passes the room of `run`, which has ended, on to the call behind it;
    /// `false` if there is none.
    pub(super) fn lead(&mut self, key: TaskKey, run: &Running) -> bool {
        let next = key.task.0.checked_add(1).map(|task| TaskKey { task: TaskId(task), ..key });
        let Some((next, behind)) = next
            .and_then(|next| self.running.get_mut(&next).map(|running| (next, running)))
            .filter(|(_, next)| next.behind && !run.behind)
        else {
            return false;
        };
        behind.behind = false;
        behind.gpus.clone_from(&run.gpus);
        self.begun(next);
        true
    }

    /// The time of a call that leads runs from now on.
    pub(super) fn begun(&mut self, key: TaskKey) {
        let Some(run) = self.running.get_mut(&key) else { return };
        let timed = run.class.kind == Kind::Function && run.class.timeout_micros > 0;
        if timed && !run.behind && run.deadline.is_none() {
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
            if self.running.get(&key).is_none_or(|run| run.class.kind != Kind::Function) {
                continue;
            }
            let Some(run) = self.vacate(key, None) else { continue };
            match run.killed {
                Some(Killed::Disowned) => {}
                Some(Killed::Cancelled) => self.outbox.push(Report {
                    instance: key.instance,
                    first: key.task,
                    count: 1,
                    tries: run.tries,
                    outcome: Outcome::Cancelled,
                    started: self.now,
                    ended: self.now,
                    detail: None,
                }),
                // A deadline that passed before the call began is none.
                Some(Killed::Timeout) | None => self.requeue(key, &run),
            }
            self.release_template(run.template);
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
            && Arc::ptr_eq(&front.class, &run.class)
            && Arc::ptr_eq(&front.rows, &run.rows)
        {
            front.first -= 1;
            front.row -= 1;
            front.count += 1;
            return;
        }
        if let Some(prepared) = self.templates.get_mut(&run.template) {
            prepared.uses += 1;
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
            data: None,
            passed_since: None,
        });
    }
}
