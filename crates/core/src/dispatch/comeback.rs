//! Executors that were there before the dispatcher was restarted, and for how
//! long they are waited for.

use crate::limits::{RECONNECT_GRACE_MICROS, RECOVERY_MICROS_MAX};
use crate::task::{ExecutorId, Time};
use std::collections::BTreeMap;

/// Who is waited for after a restart. Nothing is dispatched meanwhile, so that
/// executors keep the tasks that they have.
///
/// The wait ends when all are back, or when none has come for
/// [`RECONNECT_GRACE_MICROS`]: thousands of executors, each with a handshake to
/// carry out, take longer than one. It lasts no longer than
/// [`RECOVERY_MICROS_MAX`] however many there are.
#[derive(Debug, Default)]
pub(super) struct Comeback {
    /// By incarnation: the number and the name each had.
    expected: BTreeMap<u64, (ExecutorId, String)>,
    /// By number: the incarnation.
    numbers: BTreeMap<ExecutorId, u64>,
    /// Nothing is dispatched until then.
    until: Option<Time>,
    /// The wait is not extended beyond this.
    latest: Time,
}

impl Comeback {
    /// An executor was there when this was journaled.
    pub(super) fn expect(&mut self, incarnation: u64, executor: ExecutorId, name: String) {
        self.give_up(incarnation);
        self.numbers.insert(executor, incarnation);
        self.expected.insert(incarnation, (executor, name));
    }

    /// Whether an executor may still come back.
    pub(super) fn expects(&self, incarnation: u64) -> bool {
        self.expected.contains_key(&incarnation)
    }

    /// An executor will not be back.
    pub(super) fn give_up(&mut self, incarnation: u64) {
        if let Some((executor, _)) = self.expected.remove(&incarnation) {
            self.numbers.remove(&executor);
        }
    }

    /// The journal has been read, and there are tasks that executors may have.
    /// Returns whether anybody is waited for.
    pub(super) fn begin(&mut self, now: Time) -> bool {
        if self.expected.is_empty() {
            return false;
        }
        self.until = Some(now.after(RECONNECT_GRACE_MICROS));
        self.latest = now.after(RECOVERY_MICROS_MAX);
        true
    }

    /// Until when nothing is dispatched.
    pub(super) fn until(&self) -> Option<Time> {
        self.until
    }

    /// An executor has connected: if it is one of those waited for, others may
    /// be on their way as well.
    pub(super) fn came(&mut self, now: Time, incarnation: u64) {
        if self.expected.contains_key(&incarnation)
            && let Some(until) = &mut self.until
        {
            *until = now.after(RECONNECT_GRACE_MICROS).min(self.latest).max(*until);
        }
    }

    /// An executor has said all that it has. Returns whether nobody is waited
    /// for any more.
    pub(super) fn is_back(&mut self, incarnation: u64) -> bool {
        self.give_up(incarnation);
        self.until.is_some() && self.expected.is_empty()
    }

    /// Nobody is waited for any more. Gives the incarnations and the numbers of
    /// those that did not come.
    pub(super) fn end(&mut self) -> Vec<(u64, ExecutorId)> {
        self.until = None;
        self.numbers.clear();
        let missing = std::mem::take(&mut self.expected).into_iter();
        missing.map(|(incarnation, (executor, _))| (incarnation, executor)).collect()
    }

    /// Whether the executor of that number may still come back.
    pub(super) fn expects_number(&self, executor: ExecutorId) -> bool {
        self.numbers.contains_key(&executor)
    }

    /// The incarnation of an executor that may still come back.
    pub(super) fn incarnation(&self, executor: ExecutorId) -> Option<u64> {
        self.numbers.get(&executor).copied()
    }

    /// The number of an executor that may still come back.
    pub(super) fn number(&self, incarnation: u64) -> Option<ExecutorId> {
        self.expected.get(&incarnation).map(|(executor, _)| *executor)
    }

    /// The executors that have not come back: incarnation, number and name.
    pub(super) fn missing(&self) -> impl Iterator<Item = (u64, ExecutorId, &str)> {
        self.expected.iter().map(|(incarnation, (id, name))| (*incarnation, *id, name.as_str()))
    }
}
