//! Executors that fetch ahead of the tasks, in turn.

use crate::limits::FETCH_SEARCH_EXECUTORS_MAX;
use crate::task::ExecutorId;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Executors with caches that may fetch more ahead, in turn.
#[derive(Debug, Default)]
pub(super) struct Fetchers {
    ids: BTreeSet<ExecutorId>,
    /// The executor after which the search goes on.
    turn: ExecutorId,
}

impl Fetchers {
    pub(super) fn insert(&mut self, id: ExecutorId) {
        self.ids.insert(id);
    }

    pub(super) fn remove(&mut self, id: ExecutorId) {
        self.ids.remove(&id);
    }

    /// The next few, who have had their turn then.
    pub(super) fn next(&mut self) -> Vec<ExecutorId> {
        let after = self.ids.range((Bound::Excluded(self.turn), Bound::Unbounded));
        let others = self.ids.range(..=self.turn);
        let next: Vec<ExecutorId> =
            after.chain(others).take(FETCH_SEARCH_EXECUTORS_MAX).copied().collect();
        self.turn = next.last().copied().unwrap_or(self.turn);
        next
    }

    /// The executor after `last`, which fetches, is asked first the next time, so
    /// that none fetches more than others where there is little to fetch.
    pub(super) fn go_on_after(&mut self, last: ExecutorId) {
        self.turn = last;
    }

    /// For the state checker: executors that are mentioned.
    pub(super) fn executors(&self) -> impl Iterator<Item = &ExecutorId> {
        self.ids.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetchers(count: u64) -> Fetchers {
        let mut fetchers = Fetchers::default();
        (1..=count).for_each(|id| fetchers.insert(ExecutorId(id)));
        fetchers
    }

    #[test]
    fn each_executor_has_its_turn_before_any_has_another() {
        let most = FETCH_SEARCH_EXECUTORS_MAX as u64;
        let mut fetchers = fetchers(2 * most);
        let ids = |from: u64, to: u64| (from..=to).map(ExecutorId).collect::<Vec<_>>();
        assert_eq!(fetchers.next(), ids(1, most));
        assert_eq!(fetchers.next(), ids(most + 1, 2 * most));
        assert_eq!(fetchers.next(), ids(1, most));
    }

    #[test]
    fn the_search_goes_on_after_the_last_that_fetches() {
        let mut fetchers = fetchers(3);
        let [one, two, three] = [1, 2, 3].map(ExecutorId);
        assert_eq!(fetchers.next(), [one, two, three]);
        fetchers.go_on_after(one);
        assert_eq!(fetchers.next(), [two, three, one]);
        fetchers.go_on_after(two);
        fetchers.remove(three);
        assert_eq!(fetchers.next(), [one, two]);
    }
}
