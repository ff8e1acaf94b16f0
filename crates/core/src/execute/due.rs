//! What an executor does at a time, rather than because something happened.

use super::{Executor, Killed};
use crate::limits::KILL_GRACE_MICROS;
use crate::task::Time;

impl Executor {
    /// When [`Executor::handle_timeout`] is due, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, &'static str)> {
        let deadline = self.deadlines.first().map(|(at, _)| (*at, "task timeout"));
        let heartbeat = self.connected.then(|| (self.heartbeats.due(), "heartbeat"));
        let stays = !self.is_leaving();
        let lease = self.departure.leaves_at();
        let lease = lease.filter(|_| stays).map(|at| (at, "end of the lease"));
        let idle = self.idle.due().filter(|_| stays).map(|at| (at, "idle exit"));
        let doubt = self.doubts.due().map(|at| (at, "a doubted signal"));
        let reports = self.reports_held_until().map(|at| (at, "reports"));
        let (leave, stage) = (self.leave_timeout(), self.stage_timeout());
        let collect = self.collect_timeout();
        let all = [deadline, heartbeat, lease, idle, doubt, reports, leave, stage, collect];
        all.into_iter().flatten().min()
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(&(at, key)) = self.deadlines.first() {
            if at > self.now {
                break;
            }
            self.deadlines.remove(&(at, key));
            self.kill(key, Killed::Timeout, KILL_GRACE_MICROS);
        }
        self.believe_doubted();
        if self.departure.leaves_at().is_some_and(|at| at <= self.now) {
            self.break_gangs();
        }
        if [self.departure.leaves_at(), self.idle.due()]
            .into_iter()
            .flatten()
            .any(|at| at <= self.now)
        {
            self.leave();
        }
        self.handle_stage_timeout();
        self.handle_collect_timeout();
        if self.connected && self.heartbeats.due() <= self.now {
            self.updates.heartbeat();
        }
        self.note_work();
        self.note_alone();
        self.note_idle();
    }
}
