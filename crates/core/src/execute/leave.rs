//! An executor that leaves: when it may go.

use super::Executor;
use crate::limits::LEAVE_MICROS_MAX;
use crate::task::Time;

impl Executor {
    /// Nothing more is started, and it goes as soon as it may.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
        self.leave_by.get_or_insert(self.now.after(LEAVE_MICROS_MAX));
    }

    /// Whether it goes now: nothing runs, and nothing is unreported.
    pub(super) fn may_go(&self) -> bool {
        self.leaving && !self.left && self.is_idle() && !self.lingers()
    }

    /// When it goes if nobody says before that it may.
    pub(super) fn leave_timeout(&self) -> Option<(Time, &'static str)> {
        let lingers = self.leaving && !self.left && self.is_idle() && self.lingers();
        self.leave_by.filter(|_| lingers).map(|at| (at, "copies elsewhere"))
    }

    /// Whether it waits until what only it holds is held by others; not for
    /// long, and not for a dispatcher that is away.
    fn lingers(&self) -> bool {
        let in_time = self.leave_by.is_some_and(|at| self.now < at);
        in_time && self.connected && self.is_being_copied()
    }
}
