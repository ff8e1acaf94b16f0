//! What is going to happen, in the order of its times.

use falkon_core::task::Time;
use std::collections::BTreeMap;

/// What happens at one time happens in the order in which it was planned.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    due: BTreeMap<(Time, u64), T>,
    next: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Queue<T> {
        Queue { due: BTreeMap::new(), next: 0 }
    }

    pub(crate) fn plan(&mut self, at: Time, what: T) {
        self.due.insert((at, self.next), what);
        self.next += 1;
    }

    /// When the next of it happens.
    pub(crate) fn due(&self) -> Option<Time> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.due.pop_first().map(|(_, what)| what)
    }
}
