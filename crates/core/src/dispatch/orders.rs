//! Executors to which orders are to be sent: at once, or with the next order.

use crate::limits::TELL_MICROS;
use crate::task::{ExecutorId, Time};
use std::collections::BTreeSet;

/// Executors to which orders are to be sent.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// Executors whose order goes out once the event is taken in.
    now: BTreeSet<ExecutorId>,
    /// Executors that wait for nothing: their order goes out when there is
    /// something else to send, or when `due` has come.
    later: BTreeSet<ExecutorId>,
    due: Option<Time>,
}

impl Orders {
    /// Sends an executor its order.
    pub(super) fn send(&mut self, id: ExecutorId) {
        self.now.insert(id);
    }

    /// Sends an executor its order together with something else, at the latest
    /// after [`TELL_MICROS`].
    pub(super) fn send_later(&mut self, id: ExecutorId, now: Time) {
        self.later.insert(id);
        self.due.get_or_insert(now.after(TELL_MICROS));
    }

    /// When orders are due that waited.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Sends the orders that waited, if they are due.
    pub(super) fn send_due(&mut self, now: Time) {
        if self.due.is_some_and(|at| at <= now) {
            self.due = None;
            self.now.append(&mut self.later);
        }
    }

    /// Returns an executor whose order goes out now.
    pub(super) fn pop(&mut self) -> Option<ExecutorId> {
        let id = self.now.pop_first()?;
        self.later.remove(&id);
        Some(id)
    }

    /// All that goes out now is sent.
    pub(super) fn sent(&mut self) {
        if self.later.is_empty() {
            self.due = None;
        }
    }

    /// An executor is gone.
    pub(super) fn remove(&mut self, id: ExecutorId) {
        self.now.remove(&id);
        self.later.remove(&id);
    }

    /// Whether an executor's order waits for something else.
    pub(super) fn is_later(&self, id: ExecutorId) -> bool {
        self.later.contains(&id)
    }

    /// Whether no order goes out now.
    pub(super) fn is_sent(&self) -> bool {
        self.now.is_empty()
    }

    /// Whether every order that waits goes out some time, to an executor that is there.
    pub(super) fn is_sound(&self, is_there: impl Fn(&ExecutorId) -> bool) -> bool {
        self.later.iter().all(is_there) && (self.later.is_empty() || self.due.is_some())
    }
}
