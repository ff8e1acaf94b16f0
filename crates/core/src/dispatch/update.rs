//! Updates of executors: reports, tasks given back, changes of caches, leaving.

use super::fleet::InFlight;
use super::outputs::admit_overflow;
use super::{Action, ConnectionId, Dispatcher, Held, JoinError, Update};
use crate::events::What;
use crate::result::{Outcome, Report};
use crate::task::{ExecutorId, InstanceId, TaskId, Time};

impl Dispatcher {
    /// An executor speaks.
    pub(super) fn update(&mut self, connection: ConnectionId, mut update: Update) {
        let Some(id) = self.fleet.of_connection(connection) else {
            self.outbound.push(Action::Close {
                connection,
                reason: "an executor spoke before it registered, or after it was given up",
            });
            return;
        };
        let now = self.now;
        admit_reports(now, &mut update.reports);
        admit_held(&mut update.returned);
        admit_held(&mut update.staged);
        admit_held(&mut update.unstaged);
        admit_overflow(self.fleet[id].incarnation, &mut update.reports);
        if let Some(subtree) = update.subtree.take()
            && let Err(error) = self.lend(connection, id, *subtree)
        {
            let error = JoinError::Subtree(error);
            self.outbound.push(Action::Refuse { connection, error });
            return;
        }
        if let Some(survey) = update.survey.take() {
            self.surveys.note(id, *survey);
        }
        self.fleet.hear(id, &update, now);
        self.placement.heard(now, id);
        if update.recalled || !update.returned.is_empty() {
            self.withdrawals.returned(id, update.recalled);
        }
        // What others prefetched may be asked back for it.
        self.unplaced |= update.recalled;
        if let Some(changes) = update.cache {
            self.cache_changed(id, *changes);
        }
        if let Some(unwritten) = update.unwritten {
            self.collectors.note(id, unwritten);
        }
        if let Some(pace) = update.pace {
            self.collector_paces(id, pace);
        }
        self.hear_of_gangs(id, &update.gangs);
        for held in &update.staged {
            self.stage(id, held);
        }
        for held in &update.unstaged {
            self.unstage(id, held);
        }
        for report in &update.reports {
            self.report(id, report);
            self.outputs.discard_unreferenced(report);
        }
        if !update.kept.is_empty() {
            self.discard_unreferenced_outputs(id, &update.kept);
        }
        self.placement.update_ended();
        if update.leaving {
            self.collector_leaves(id);
            let incarnation = self.fleet[id].incarnation;
            self.placement.everywhere_mut().look_at(incarnation);
        }
        if update.leaving || (!update.reports.is_empty() && self.fleet[id].leaving) {
            self.prepare_leaving(id);
        }
        for held in &update.returned {
            if self.take_returned(id, held) > 0 {
                self.fleet.misjudge(id);
            }
        }
        self.gangs.look_at(id);
    }

    /// Takes in a report. Returns whether it was about tasks that the executor
    /// was known to have.
    pub(super) fn report(&mut self, id: ExecutorId, report: &Report) -> bool {
        // Nothing else suspends an executor.
        let was = (report.outcome == Outcome::NotRun).then(|| self.fleet[id].suspended_until);
        let ended = self.fleet.take_ended(id, report, &self.needs, self.now);
        if was == Some(None)
            && let Some(until) = self.fleet[id].suspended_until
        {
            self.happenings.note(|| What::ExecutorSuspended { executor: id, until });
        }
        let micros = report.ended.since(report.started);
        self.tally.ran(micros, ended.iter().map(|run| run.count).sum());
        for run in &ended {
            self.cancel_input_transfers(id, report.instance, run);
            if self.is_left_to_other(id, report, run) {
                self.staged.gone(report.instance, run);
                continue;
            }
            self.conclude(id, report, run, micros);
            self.staged.gone(report.instance, run);
        }
        let known = !ended.is_empty();
        self.fleet.recycle(ended);
        known
    }

    /// Tasks have ended, and are reported when what they wrote is safe: what they
    /// held is free.
    fn stage(&mut self, id: ExecutorId, held: &Held) {
        for run in self.fleet.stage(id, held, &self.needs) {
            let used = run.used(&self.needs[run.need]);
            if let Some(instance) = self.instances.find_mut(&held.instance) {
                instance.usage -= used;
                self.runnable.mark(held.instance);
            }
            self.staged.note(held.instance, run.first, run.count);
        }
    }

    /// What tasks below a relay had staged is lost, before it was safe: they run there
    /// again.
    fn unstage(&mut self, id: ExecutorId, held: &Held) {
        for run in self.fleet.unstage(id, held, &self.needs) {
            self.is_unstaged(held.instance, &run);
        }
    }

    /// Tasks of an executor are not staged any more, and hold what they did before.
    pub(super) fn is_unstaged(&mut self, id: InstanceId, run: &InFlight) {
        let used = run.used(&self.needs[run.need]);
        if let Some(instance) = self.instances.find_mut(&id) {
            instance.usage += used;
            self.runnable.mark(id);
        }
        let run = InFlight { is_staged: true, ..*run };
        self.staged.gone(id, &run);
    }

    /// Tasks come back unstarted: they are ready again as they were. Returns
    /// how many of them were taken to hold room.
    pub(super) fn take_returned(&mut self, id: ExecutorId, held: &Held) -> u64 {
        let (taken, freed) = self.fleet.take_returned(id, held, &self.needs);
        for run in taken {
            self.cancel_input_transfers(id, held.instance, &run);
            if !self.goes_on_elsewhere(id, held.instance, &run) {
                self.put_back(held.instance, &run, run.counted());
            }
            self.staged.gone(held.instance, &run);
        }
        freed
    }
}

/// Cuts what is too long, drops reports that name no tasks or more than there are numbers, and sets
/// times that are still to come to now: a peer must not move the clock that a
/// restarted dispatcher reads from its journal.
pub(super) fn admit_reports(now: Time, reports: &mut Vec<Report>) {
    reports.retain(|report| is_run(report.first, report.count));
    for report in reports {
        report.bound();
        report.ended = report.ended.min(now);
        report.started = report.started.min(report.ended);
    }
}

pub(super) fn admit_held(held: &mut Vec<Held>) {
    held.retain(|held| is_run(held.first, held.count));
}

/// The tasks that a report is about.
pub(super) fn held_of(report: &Report) -> Held {
    Held {
        instance: report.instance,
        first: report.first,
        count: report.count,
        tries: report.tries,
    }
}

fn is_run(first: TaskId, count: u64) -> bool {
    count > 0 && first.0.checked_add(count).is_some()
}
