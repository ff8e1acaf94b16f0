//! Errors of a node, told from errors of its tasks (ARCHITECTURE.md): a task that
//! could not even be started is tried elsewhere, and an executor that can
//! start nothing is left alone for a while.

use super::Fleet;
use crate::dispatch::needs::Need;
use crate::limits::{FAULTS_MAX, SUSPENSION_DOUBLINGS_MAX, SUSPENSION_MICROS};
use crate::result::{Outcome, Tries};
use crate::task::{ExecutorId, Time};

impl Fleet {
    /// What an outcome says about the executor it comes from.
    pub(super) fn judge(&mut self, id: ExecutorId, outcome: Outcome, now: Time) {
        let executor = &mut self.roster[id];
        match outcome {
            Outcome::NotRun => executor.faults = executor.faults.saturating_add(1),
            Outcome::Exit(_) | Outcome::Signal(_) | Outcome::TimedOut | Outcome::NoOutput => {
                executor.faults = 0;
                executor.suspensions = 0;
            }
            _ => return,
        }
        if executor.faults < FAULTS_MAX || executor.suspended_until.is_some() {
            return;
        }
        if self.has_sound_executor(id, None) {
            self.suspend(id, now);
        } else {
            // Tasks cannot be started anywhere: that is not the nodes' fault.
            self.end_suspensions(now);
        }
    }

    /// Whether tasks that were lost on `id`, though it goes on, run again; or,
    /// if they could not be started there, are worth trying elsewhere.
    pub(in crate::dispatch) fn is_tried_anew(
        &self,
        id: ExecutorId,
        outcome: Outcome,
        tries: Tries,
        need: &Need,
    ) -> bool {
        let may = match outcome {
            Outcome::Lost => true,
            Outcome::NotRun => self.has_sound_executor(id, Some(need)),
            _ => false,
        };
        may && tries.lost().is_some()
    }

    /// Whether another executor is there that has started what it was given
    /// (and offers `need`).
    fn has_sound_executor(&self, but: ExecutorId, need: Option<&Need>) -> bool {
        self.roster.values().any(|executor| {
            executor.id != but
                && executor.takes_tasks()
                && executor.faults == 0
                && need.is_none_or(|need| executor.offers(need))
        })
    }

    fn suspend(&mut self, id: ExecutorId, now: Time) {
        let executor = &mut self.roster[id];
        let until = now.after(SUSPENSION_MICROS << executor.suspensions);
        executor.suspensions = (executor.suspensions + 1).min(SUSPENSION_DOUBLINGS_MAX);
        executor.suspended_until = Some(until);
        self.recall_all(id);
        self.suspended.insert((until, id));
        self.list(id, now);
    }

    /// Executors whose time is up are tried again; one more fault suspends
    /// them for longer.
    pub(in crate::dispatch) fn end_due_suspensions(&mut self, now: Time) {
        while let Some(&(until, id)) = self.suspended.first() {
            if until > now {
                return;
            }
            self.suspended.remove(&(until, id));
            self.resume(id, now);
        }
    }

    fn end_suspensions(&mut self, now: Time) {
        for (_, id) in std::mem::take(&mut self.suspended) {
            self.resume(id, now);
        }
    }

    /// An executor that may be gone by now is given tasks again.
    fn resume(&mut self, id: ExecutorId, now: Time) {
        let Some(executor) = self.roster.find_mut(&id) else { return };
        executor.suspended_until = None;
        executor.faults = FAULTS_MAX - 1;
        self.new_room.insert(id);
        self.list(id, now);
    }
}
