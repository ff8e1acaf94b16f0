//! An executor that leaves: when it may go.

use super::Executor;
use crate::limits::{LEAVE_ALONE_MICROS_MAX, LEAVE_MICROS_MAX};
use crate::task::Time;

impl Executor {
    /// Whether it has been asked to leave, or its time here is over.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Nothing more is started, and it goes as soon as it may.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
        self.leave_by.get_or_insert(self.now.after(LEAVE_MICROS_MAX));
    }

    /// If it leaves, notes whether all that keeps it from going is a dispatcher
    /// that is away.
    pub(super) fn note_alone(&mut self) {
        if !self.leaving {
            return;
        }
        let busy = !self.running.is_empty() || self.has_finishing();
        let alone = !self.left && !self.connected && !busy;
        let until = self.alone_until.unwrap_or(self.now.after(LEAVE_ALONE_MICROS_MAX));
        self.alone_until = alone.then_some(until);
    }

    /// Whether it goes now: nothing runs, and nothing is unreported that a
    /// dispatcher may still come for.
    pub(super) fn may_go(&self) -> bool {
        let abandoned = self.alone_until.is_some_and(|until| self.now >= until);
        self.leaving && !self.left && (abandoned || self.is_idle() && !self.lingers())
    }

    /// When it goes if nobody says before that it may.
    pub(super) fn leave_timeout(&self) -> Option<(Time, &'static str)> {
        let lingers = self.leaving && !self.left && self.is_idle() && self.lingers();
        let copied = self.leave_by.filter(|_| lingers).map(|at| (at, "copies elsewhere"));
        let alone = self.alone_until.filter(|_| !self.left).map(|at| (at, "a dispatcher's return"));
        copied.into_iter().chain(alone).min()
    }

    /// Whether it waits until what only it holds is held by others; not for
    /// long, and not for a dispatcher that is away.
    fn lingers(&self) -> bool {
        let in_time = self.leave_by.is_some_and(|at| self.now < at);
        in_time && self.connected && self.is_being_copied()
    }
}
