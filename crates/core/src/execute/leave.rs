//! An executor that leaves: when it may go.

use super::Executor;
use crate::limits::{LEAVE_ALONE_MICROS_MAX, LEAVE_MICROS_MAX};
use crate::task::Time;

/// The departure of an executor: how far it is.
#[derive(Debug, Default)]
pub(super) struct Departure {
    /// When its time here is over.
    leaves_at: Option<Time>,
    is_leaving: bool,
    /// This session's dispatcher was told.
    is_announced: bool,
    /// When it leaves at the latest, once nothing runs.
    leave_by: Option<Time>,
    /// When it leaves all the same, if nothing but a dispatcher that is away
    /// keeps it.
    alone_until: Option<Time>,
    has_left: bool,
}

impl Departure {
    /// When its time here is over, from now on.
    pub(super) fn set_lease(&mut self, leaves_at: Option<Time>) {
        self.leaves_at = leaves_at;
    }

    /// When its time here is over.
    pub(super) fn leaves_at(&self) -> Option<Time> {
        self.leaves_at
    }

    fn begin(&mut self, now: Time) {
        self.is_leaving = true;
        self.leave_by.get_or_insert(now.after(LEAVE_MICROS_MAX));
    }

    /// A session begins: its dispatcher does not know yet.
    pub(super) fn restart(&mut self) {
        self.is_announced = false;
    }

    /// Whether the dispatcher is to be told now: once per session.
    pub(super) fn announce(&mut self) -> bool {
        !std::mem::replace(&mut self.is_announced, true)
    }

    /// It has left.
    pub(super) fn complete(&mut self) {
        self.has_left = true;
    }

    /// Takes in whether a dispatcher that is away is all that keeps it at `now`.
    fn observe(&mut self, now: Time, is_alone: bool) {
        let until = self.alone_until.unwrap_or(now.after(LEAVE_ALONE_MICROS_MAX));
        self.alone_until = (is_alone && !self.has_left).then_some(until);
    }

    fn is_abandoned(&self, now: Time) -> bool {
        self.alone_until.is_some_and(|until| now >= until)
    }

    fn is_under_way(&self) -> bool {
        self.is_leaving && !self.has_left
    }
}

impl Executor {
    /// Whether it has been asked to leave, or its time here is over.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.departure.is_leaving
    }

    /// Nothing more is started, and it goes as soon as it may.
    pub(super) fn leave(&mut self) {
        self.departure.begin(self.now);
        self.release_waiting_gangs();
        self.refuse_offers();
    }

    /// If it leaves, notes whether all that keeps it from going is a dispatcher
    /// that is away.
    pub(super) fn note_alone(&mut self) {
        if self.is_leaving() {
            let is_busy =
                !self.running.is_empty() || self.has_finishing() || !self.collecting.is_empty();
            self.departure.observe(self.now, !self.connected && !is_busy);
        }
    }

    /// Whether it goes now: nothing runs, and nothing is unreported that a
    /// dispatcher may still come for.
    pub(super) fn may_go(&self) -> bool {
        let abandoned = self.departure.is_abandoned(self.now);
        self.departure.is_under_way() && (abandoned || self.is_idle() && !self.lingers())
    }

    /// When it goes if nobody says before that it may.
    pub(super) fn leave_timeout(&self) -> Option<(Time, &'static str)> {
        let Departure { leave_by, alone_until, has_left, .. } = self.departure;
        let lingers = self.departure.is_under_way() && self.is_idle() && self.lingers();
        let copied = leave_by.filter(|_| lingers).map(|at| (at, "copies elsewhere"));
        let alone = alone_until.filter(|_| !has_left).map(|at| (at, "a dispatcher's return"));
        copied.into_iter().chain(alone).min()
    }

    /// Whether it waits until what only it holds is held by others; not for
    /// long, and not for a dispatcher that is away.
    fn lingers(&self) -> bool {
        let in_time = self.departure.leave_by.is_some_and(|at| self.now < at);
        in_time && self.connected && self.is_being_copied()
    }
}
