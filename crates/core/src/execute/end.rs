//! The end of a task: its room, its report.

use super::{Action, Executor, Killed, Running, TaskKey};
use crate::result::{Detail, Outcome, Report};
use crate::task::{Kind, Time};
use std::sync::Arc;

/// How a started task ended, as the shell saw it.
#[derive(Debug)]
pub(super) struct End {
    pub(super) key: TaskKey,
    pub(super) outcome: Outcome,
    pub(super) started: Time,
    pub(super) ended: Time,
    pub(super) detail: Option<Arc<Detail>>,
}

impl Executor {
    /// A task has ended: its room passes on, and its report is made.
    pub(super) fn ended(&mut self, end: End) {
        let End { key, outcome, started, ended, detail } = end;
        let Some(run) = self.vacate(key, Some(ended.min(self.now))) else {
            self.discard(detail.as_deref());
            return;
        };
        if run.class.kind == Kind::Function
            && outcome != Outcome::NotRun
            && let Some(prepared) = self.templates.get_mut(&run.template)
        {
            prepared.pace.ended(ended.since(started));
        }
        self.release_template(run.template);
        if run.class.kind == Kind::Process && matches!(outcome, Outcome::Exit(_)) {
            self.note_run_time(ended.since(started));
        }
        // A task that succeeded before the signal reached it has succeeded.
        let outcome = match (run.killed, outcome) {
            (Some(Killed::Disowned), _) => {
                self.discard(detail.as_deref());
                if let Some(task) = &run.data {
                    self.finish(key, task, None);
                }
                return;
            }
            (_, Outcome::Exit(0)) | (None, _) => outcome,
            (Some(Killed::Timeout), _) => Outcome::TimedOut,
            (Some(Killed::Cancelled), _) => Outcome::Cancelled,
        };
        let report = Report {
            instance: key.instance,
            first: key.task,
            count: run.count,
            tries: run.tries,
            outcome,
            started,
            ended,
            detail,
        };
        match &run.data {
            Some(task) => self.finish(key, task, Some(report)),
            None => self.outbox.push(report),
        }
    }

    /// Takes a started task out of the books. If it has `ended`, its room
    /// passes on to the call behind it or the process that comes after it;
    /// else, or without one, it is free.
    pub(super) fn vacate(&mut self, key: TaskKey, ended: Option<Time>) -> Option<Running> {
        let mut run = self.running.remove(&key)?;
        if let Some(at) = run.deadline {
            self.deadlines.remove(&(at, key));
        }
        self.leaders.remove(&(run.followers.len(), key));
        let waited = self.unchain(key, &mut run).is_some();
        let has_room = run.class.kind != Kind::Noop && run.behind.is_none() && !waited;
        self.unlink(&run);
        let passed_on =
            has_room && ended.is_some_and(|ended| self.lead(&run) || self.move_up(&mut run, ended));
        if has_room && !passed_on {
            self.free.give(&run.class.resources, 1);
            self.free_gpus.extend(&run.gpus);
        }
        self.startable = true;
        Some(run)
    }

    pub(super) fn kill(&mut self, key: TaskKey, why: Killed, grace_micros: u64) {
        let Some(run) = self.running.get_mut(&key) else { return };
        // The first reason stands, but whoever disowns wants no report.
        if run.killed.is_none() || why == Killed::Disowned {
            let in_doubt = run.is_in_doubt();
            run.killed = Some(why);
            self.in_doubt += u64::from(run.is_in_doubt() && !in_doubt);
            self.actions.push_back(Action::Kill { key, grace_micros });
        }
    }
}
