//! The executors, by number.

use super::executor::Executor;
use crate::task::ExecutorId;
use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

/// Executors on one page.
const PAGE_EXECUTORS: u64 = 64;

/// Executors by number, in pages. Each task that ends and each that is sent
/// looks its executor up several times: that takes two steps here however many
/// there are, where a tree takes more comparisons and more memory that is not
/// in the processor's caches the more there are. Numbers go up and are given
/// once, so pages whose executors are all gone hold nothing, and those before
/// the first in use are let go.
#[derive(Debug, Default)]
pub(super) struct Roster {
    pages: VecDeque<Option<Box<Page>>>,
    /// The number of the first page.
    first: u64,
    len: usize,
    /// Of all of them.
    cpus_milli: u128,
}

#[derive(Debug)]
struct Page {
    used: u64,
    slots: [Option<Box<Executor>>; PAGE_EXECUTORS as usize],
}

impl Roster {
    /// The page and the place on it of an executor, if there is such a page.
    fn place(&self, id: ExecutorId) -> Option<(usize, usize)> {
        let page = usize::try_from((id.0 / PAGE_EXECUTORS).checked_sub(self.first)?).ok()?;
        Some((page, (id.0 % PAGE_EXECUTORS) as usize))
    }

    pub(super) fn find(&self, id: &ExecutorId) -> Option<&Executor> {
        let (page, slot) = self.place(*id)?;
        self.pages.get(page)?.as_ref()?.slots[slot].as_deref()
    }

    pub(super) fn find_mut(&mut self, id: &ExecutorId) -> Option<&mut Executor> {
        let (page, slot) = self.place(*id)?;
        self.pages.get_mut(page)?.as_mut()?.slots[slot].as_deref_mut()
    }

    pub(super) fn contains_key(&self, id: &ExecutorId) -> bool {
        self.find(id).is_some()
    }

    /// Takes an executor in, under its own number.
    pub(super) fn insert(&mut self, executor: Executor) {
        let number = executor.id.0 / PAGE_EXECUTORS;
        if self.pages.is_empty() {
            self.first = number;
        }
        while number < self.first {
            self.first -= 1;
            self.pages.push_front(None);
        }
        let page = (number - self.first) as usize;
        while self.pages.len() <= page {
            self.pages.push_back(None);
        }
        let slot = (executor.id.0 % PAGE_EXECUTORS) as usize;
        self.cpus_milli += u128::from(executor.capacity.cpus_milli);
        let page = self.pages[page]
            .get_or_insert_with(|| Box::new(Page { used: 0, slots: [const { None }; _] }));
        match page.slots[slot].replace(Box::new(executor)) {
            None => {
                page.used += 1;
                self.len += 1;
            }
            Some(before) => self.cpus_milli -= u128::from(before.capacity.cpus_milli),
        }
    }

    pub(super) fn remove(&mut self, id: &ExecutorId) -> Option<Executor> {
        let (at, slot) = self.place(*id)?;
        let page = self.pages.get_mut(at)?.as_mut()?;
        let executor = page.slots[slot].take()?;
        self.cpus_milli -= u128::from(executor.capacity.cpus_milli);
        page.used -= 1;
        self.len -= 1;
        if page.used == 0 {
            self.pages[at] = None;
            while self.pages.front().is_some_and(Option::is_none) {
                self.pages.pop_front();
                self.first += 1;
            }
        }
        Some(*executor)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The CPUs of all of them, in thousandths.
    pub(super) fn cpus_milli(&self) -> u128 {
        self.cpus_milli
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of them, in the order of their numbers.
    pub(super) fn values(&self) -> impl Iterator<Item = &Executor> {
        self.pages
            .iter()
            .flatten()
            .flat_map(|page| page.slots.iter().flatten())
            .map(|found| &**found)
    }

    /// As [`Roster::values`], to be changed.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Executor> {
        let pages = self.pages.iter_mut().flatten();
        pages.flat_map(|page| page.slots.iter_mut().flatten()).map(|found| &mut **found)
    }

    /// Those after `id`, or all, in the order of their numbers.
    pub(super) fn after(&self, id: Option<ExecutorId>) -> impl Iterator<Item = &Executor> {
        let from = id.and_then(|id| self.place(id)).map_or(0, |(page, _)| page);
        let pages = self.pages.iter().skip(from).flatten();
        let all = pages.flat_map(|page| page.slots.iter().flatten()).map(|found| &**found);
        all.skip_while(move |executor| id.is_some_and(|id| executor.id <= id))
    }
}

impl Index<ExecutorId> for Roster {
    type Output = Executor;

    /// # Panics
    /// The executor is not registered, although its id was issued and not
    /// withdrawn.
    fn index(&self, id: ExecutorId) -> &Executor {
        self.find(&id).unwrap_or_else(|| panic!("executor {id} is not registered"))
    }
}

impl IndexMut<ExecutorId> for Roster {
    fn index_mut(&mut self, id: ExecutorId) -> &mut Executor {
        self.find_mut(&id).unwrap_or_else(|| panic!("executor {id} is not registered"))
    }
}

#[cfg(test)]
mod tests {
    use super::{PAGE_EXECUTORS, Roster};
    use crate::dispatch::fleet::executor::Executor;
    use crate::task::ExecutorId;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn ids(roster: &Roster, after: Option<u64>) -> Vec<u64> {
        roster.after(after.map(ExecutorId)).map(|executor| executor.id.0).collect()
    }

    proptest! {
        /// It is an ordered map.
        #[test]
        fn agrees_with_a_tree(
            start in 0..3 * PAGE_EXECUTORS,
            steps in prop::collection::vec((0..5 * PAGE_EXECUTORS, any::<bool>()), 0..200),
        ) {
            let (mut roster, mut tree) = (Roster::default(), BTreeMap::new());
            for (at, (number, comes)) in steps.into_iter().enumerate() {
                let (number, incarnation) = (start + number, at as u64);
                let id = ExecutorId(number);
                if comes {
                    roster.insert(Executor::new(id, incarnation, String::new()));
                    tree.insert(number, incarnation);
                } else {
                    let gone = roster.remove(&id).map(|executor| executor.incarnation);
                    prop_assert_eq!(gone, tree.remove(&number));
                }
                let found = roster.find(&id).map(|executor| executor.incarnation);
                prop_assert_eq!(found, tree.get(&number).copied());
                let found = roster.find_mut(&id).map(|executor| executor.incarnation);
                prop_assert_eq!(found, tree.get(&number).copied());
                prop_assert_eq!(roster.contains_key(&id), tree.contains_key(&number));
                prop_assert_eq!(roster.len(), tree.len());
                prop_assert_eq!(roster.is_empty(), tree.is_empty());
                prop_assert_eq!(ids(&roster, None), tree.keys().copied().collect::<Vec<_>>());
                let later = tree.range(number + 1..).map(|(id, _)| *id).collect::<Vec<_>>();
                prop_assert_eq!(ids(&roster, Some(number)), later);
                let all = roster.values().map(|executor| (executor.id.0, executor.incarnation));
                let both = tree.iter().map(|(id, found)| (*id, *found));
                prop_assert_eq!(all.collect::<Vec<_>>(), both.collect::<Vec<_>>());
                prop_assert_eq!(roster.values_mut().count(), tree.len());
            }
        }
    }
}
