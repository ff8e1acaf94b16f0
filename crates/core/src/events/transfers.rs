//! Transfers between executors: the bytes that each had from which others.

use super::{Event, What};
use crate::limits::TRANSFER_EXECUTORS_MAX;
use crate::task::ExecutorId;
use std::collections::BTreeMap;

/// Bytes that executors had from the caches of others, by pairs.
#[derive(Debug, Clone, Default)]
pub struct Transfers {
    /// By who had them, and from whom.
    pairs: BTreeMap<(ExecutorId, ExecutorId), u64>,
    other_bytes: u64,
}

impl Transfers {
    /// Takes in the next event.
    pub fn add(&mut self, event: &Event) {
        match &event.what {
            What::Moved { executor, from, bytes } => {
                let pair = (*executor, *from);
                let has_room =
                    self.pairs.len() < TRANSFER_EXECUTORS_MAX || self.pairs.contains_key(&pair);
                let sum = match has_room {
                    true => self.pairs.entry(pair).or_default(),
                    false => &mut self.other_bytes,
                };
                *sum = sum.saturating_add(*bytes);
            }
            What::ExecutorGone { executor, .. } => self.forget(|one| one == *executor),
            What::DispatcherStarted { .. } => self.forget(|_| true),
            _ => {}
        }
    }

    fn forget(&mut self, is_gone: impl Fn(ExecutorId) -> bool) {
        let other = &mut self.other_bytes;
        self.pairs.retain(|(to, from), bytes| {
            let is_kept = !is_gone(*to) && !is_gone(*from);
            if !is_kept {
                *other = other.saturating_add(*bytes);
            }
            is_kept
        });
    }

    /// Bytes of executors that are there: who had them, from whom, and how many.
    pub fn pairs(&self) -> impl Iterator<Item = (ExecutorId, ExecutorId, u64)> {
        self.pairs.iter().map(|((to, from), bytes)| (*to, *from, *bytes))
    }

    /// Bytes of pairs that are not kept: an executor of them is gone, or there are too many.
    #[must_use]
    pub fn other_bytes(&self) -> u64 {
        self.other_bytes
    }

    /// The executors that had or gave most, at most so many, in the order of their numbers.
    #[must_use]
    pub fn busiest(&self, most: usize) -> Vec<ExecutorId> {
        let mut sums: BTreeMap<ExecutorId, u64> = BTreeMap::new();
        for (to, from, bytes) in self.pairs() {
            for one in [to, from] {
                let sum = sums.entry(one).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
        let mut all: Vec<(ExecutorId, u64)> = sums.into_iter().collect();
        all.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let mut busiest: Vec<ExecutorId> = all.into_iter().take(most).map(|(id, _)| id).collect();
        busiest.sort_unstable();
        busiest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Time;

    fn moved(executor: u64, from: u64, bytes: u64) -> Event {
        let (executor, from) = (ExecutorId(executor), ExecutorId(from));
        Event { at: Time(0), what: What::Moved { executor, from, bytes } }
    }

    #[test]
    fn bytes_add_up_whoever_goes_and_however_many_there_are() {
        let mut transfers = Transfers::default();
        for event in [moved(1, 2, 10), moved(3, 2, 5), moved(1, 2, 7), moved(2, 3, u64::MAX)] {
            transfers.add(&event);
        }
        let pair = |to, from, bytes| (ExecutorId(to), ExecutorId(from), bytes);
        let found: Vec<_> = transfers.pairs().collect();
        assert_eq!(found, [pair(1, 2, 17), pair(2, 3, u64::MAX), pair(3, 2, 5)]);
        assert_eq!(transfers.busiest(2), [ExecutorId(2), ExecutorId(3)]);
        let gone = What::ExecutorGone { executor: ExecutorId(3), why: "it left".into() };
        transfers.add(&Event { at: Time(1), what: gone });
        assert_eq!(transfers.pairs().collect::<Vec<_>>(), [pair(1, 2, 17)]);
        assert_eq!(transfers.other_bytes(), u64::MAX);
        let mut many = Transfers::default();
        for number in 0..TRANSFER_EXECUTORS_MAX as u64 + 5 {
            many.add(&moved(number, number + 1, 1));
            many.add(&moved(0, 1, 1));
        }
        assert_eq!((many.pairs().count(), many.other_bytes()), (TRANSFER_EXECUTORS_MAX, 5));
        many.add(&Event { at: Time(1), what: What::DispatcherStarted { version: "2".into() } });
        let all = 2 * TRANSFER_EXECUTORS_MAX as u64 + 10;
        assert_eq!((many.pairs().count(), many.other_bytes()), (0, all));
    }
}
