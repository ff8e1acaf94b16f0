//! The end of a task: its room, its report.

use super::{Action, Executor, Killed, Link, Running, TaskKey};
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
        if run.class.kind == Kind::Function && outcome != Outcome::NotRun {
            self.templates.call_ended(run.template, ended.since(started));
        }
        self.release_template(run.template);
        if let Some(gang) = run.gang {
            self.disband(gang);
        }
        if run.class.kind == Kind::Process && matches!(outcome, Outcome::Exit(_)) {
            self.chains.note_run_time(ended.since(started));
        }
        let outcome = match &run.asked {
            Some(asked) => {
                let of = (key.instance, asked);
                let (end, capacity) = ((outcome, ended.since(started)), self.room.capacity());
                self.sizes.ended(of, &run.class.resources, end, detail.as_deref(), capacity)
            }
            None => outcome,
        };
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
        let detail = match (run.class.alternative, &run.asked) {
            (0, None) => detail,
            (alternative, asked) => {
                let mut detail = detail.map_or_else(Detail::default, Arc::unwrap_or_clone);
                detail.alternative = alternative;
                if let Some(asked) = asked {
                    let given = run.class.resources.found_out(&asked.resources);
                    detail.given_cpus_milli = given.cpus_milli;
                    detail.given_memory_bytes = given.memory_bytes;
                }
                Some(Arc::new(detail))
            }
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
            None => self.through(report, Vec::new()),
        }
    }

    /// Takes a started task out of the books. If it has `ended`, its room
    /// passes on to the call behind it or the process that comes after it;
    /// else, or without one, it is free.
    pub(super) fn vacate(&mut self, key: TaskKey, ended: Option<Time>) -> Option<Box<Running>> {
        let run = self.running.remove(&key)?;
        if let Some(at) = run.deadline {
            self.deadlines.remove(&(at, key));
        }
        let passed_on = match &run.link {
            Link::Alone => false,
            Link::Call(call) => {
                self.unlink(*call);
                call.leads() && ended.is_some() && self.lead(*call, &run.grant)
            }
            Link::Leads(leader) => self.move_up(leader, ended.unwrap_or(self.now)),
            Link::Follows(follower) => {
                let answered = self.chains.leave(key, follower);
                self.answer_recall(answered);
                false
            }
        };
        if run.has_room() && !passed_on {
            self.room.give(&run.class.resources, &run.grant);
        }
        if let Some(gang) = run.gang {
            self.release_gang(gang);
        }
        self.startable = true;
        Some(run)
    }

    pub(super) fn kill(&mut self, key: TaskKey, why: Killed, grace_micros: u64) {
        let Some(run) = self.running.find_mut(&key) else { return };
        // The first reason stands, but whoever disowns wants no report.
        if run.killed.is_none() || why == Killed::Disowned {
            run.killed = Some(why);
            if let Link::Follows(follower) = &mut run.link {
                self.chains.kill(follower);
            }
            self.actions.push_back(Action::Kill { key, grace_micros });
        }
    }
    /// A started task that another one refers to.
    pub(super) fn started(&mut self, key: TaskKey) -> &mut Running {
        let TaskKey { instance, task } = key;
        let run = self.running.find_mut(&key);
        run.unwrap_or_else(|| panic!("task {task} of instance {instance} is not started"))
    }
}

impl Running {
    /// Whether it holds what it needs: what comes after another does not.
    pub(super) fn has_room(&self) -> bool {
        match &self.link {
            Link::Alone => self.class.kind != Kind::Noop && self.gang.is_none(),
            Link::Call(call) => call.leads(),
            Link::Leads(_) => true,
            Link::Follows(_) => false,
        }
    }
}
