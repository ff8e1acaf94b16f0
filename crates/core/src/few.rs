//! Maps of few entries, in the order of their keys: [`Few`], and [`FewOrMany`] for those that are
//! large now and then.
//!
//! [`Few`] takes as much memory as its entries, where a tree has room for eleven from the first on:
//! there may be a million executors, each with an entry or two. A new last entry costs O(1), any
//! other change moves the entries behind it.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Few<K, V>(Vec<(K, V)>);

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Few(Vec::new())
    }
}

impl<K: Ord, V> Few<K, V> {
    fn place(&self, key: &K) -> Result<usize, usize> {
        match self.0.last() {
            Some((last, _)) if last < key => Err(self.0.len()),
            _ => self.0.binary_search_by(|(there, _)| there.cmp(key)),
        }
    }

    /// Puts a value in; returns the one that was there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.place(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                if self.0.len() == self.0.capacity() {
                    // A vector begins with room for four.
                    self.0.reserve_exact(self.0.len().max(1));
                }
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    /// Takes a value out.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.place(key).ok()?;
        Some(self.0.remove(at).1)
    }

    /// The value of a key.
    pub(crate) fn find(&self, key: &K) -> Option<&V> {
        self.place(key).ok().map(|at| &self.0[at].1)
    }

    /// The value of a key, to be changed.
    pub(crate) fn find_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.place(key).ok()?;
        Some(&mut self.0[at].1)
    }

    /// Whether there is a value of a key.
    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.place(key).is_ok()
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The entries, in the order of their keys.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + Clone {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The entries whose keys are within bounds, in the order of their keys.
    pub(crate) fn range(
        &self,
        (first, last): (Bound<K>, Bound<K>),
    ) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        let start = self.0.partition_point(|(key, _)| match &first {
            Bound::Included(first) => key < first,
            Bound::Excluded(first) => key <= first,
            Bound::Unbounded => false,
        });
        let within = &self.0[start..];
        let count = within.partition_point(|(key, _)| match &last {
            Bound::Included(last) => key <= last,
            Bound::Excluded(last) => key < last,
            Bound::Unbounded => true,
        });
        within[..count].iter().map(|(key, value)| (key, value))
    }

    /// The values, in the order of their keys.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// All entries, in the order of their keys.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = (K, V)> {
        self.0.into_iter()
    }

    /// All values, in the order of their keys.
    pub(crate) fn into_values(self) -> impl Iterator<Item = V> {
        self.0.into_iter().map(|(_, value)| value)
    }
}

/// Entries beyond which [`FewOrMany`] has a tree.
const FEW_MAX: usize = 16;

/// A map of mostly few entries: where there are many, all are in the tree, else all are in the
/// list.
#[derive(Debug)]
pub(crate) struct FewOrMany<K, V> {
    few: Few<K, V>,
    many: BTreeMap<K, V>,
}

impl<K, V> Default for FewOrMany<K, V> {
    fn default() -> Self {
        FewOrMany { few: Few::default(), many: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, V> FewOrMany<K, V> {
    /// Puts a value in; returns the one that was there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if self.many.is_empty() && self.few.len() < FEW_MAX {
            return self.few.insert(key, value);
        }
        if self.many.is_empty() {
            self.many.extend(std::mem::take(&mut self.few).into_entries());
        }
        self.many.insert(key, value)
    }

    /// Takes a value out.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.few.remove(key).or_else(|| self.many.remove(key))
    }

    /// The value of a key.
    pub(crate) fn find(&self, key: &K) -> Option<&V> {
        self.few.find(key).or_else(|| self.many.get(key))
    }

    /// The value of a key, to be changed.
    pub(crate) fn find_mut(&mut self, key: &K) -> Option<&mut V> {
        self.few.find_mut(key).or_else(|| self.many.get_mut(key))
    }

    /// Whether there is a value of a key.
    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_some()
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.few.len() + self.many.len()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries, in the order of their keys.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + Clone {
        self.few.iter().chain(&self.many)
    }

    /// The values, in the order of their keys.
    pub(crate) fn values(&self) -> impl DoubleEndedIterator<Item = &V> + Clone {
        self.iter().map(|(_, value)| value)
    }

    /// The entries whose keys are within bounds, in the order of their keys.
    pub(crate) fn range(
        &self,
        bounds: impl RangeBounds<K>,
    ) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        let bounds = (bounds.start_bound().cloned(), bounds.end_bound().cloned());
        self.few.range(bounds.clone()).chain(self.many.range(bounds))
    }

    /// All entries, in the order of their keys.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = (K, V)> {
        self.few.into_entries().chain(self.many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_does_what_a_tree_does(steps in prop::collection::vec((0..3_u8, 0..9_u8, any::<u8>()), 0..200)) {
            let (mut few, mut tree) = (Few::default(), BTreeMap::new());
            for (what, key, value) in steps {
                match what {
                    0 => prop_assert_eq!(few.insert(key, value), tree.insert(key, value)),
                    1 => prop_assert_eq!(few.remove(&key), tree.remove(&key)),
                    _ => {
                        if let (Some(one), Some(other)) = (few.find_mut(&key), tree.get_mut(&key)) {
                            (*one, *other) = (value, value);
                        }
                    }
                }
                prop_assert_eq!(few.find(&key), tree.get(&key));
                prop_assert_eq!(few.contains_key(&key), tree.contains_key(&key));
                prop_assert!(few.iter().eq(tree.iter()));
                prop_assert_eq!(few.len(), tree.len());
                for bounds in [
                    (Bound::Included(key), Bound::Unbounded),
                    (Bound::Excluded(key), Bound::Excluded(8)),
                    (Bound::Unbounded, Bound::Included(key)),
                ] {
                    if key < 8 {
                        prop_assert!(few.range(bounds).rev().eq(tree.range(bounds).rev()));
                    }
                }
            }
            prop_assert!(few.values().eq(tree.values()));
            prop_assert!(few.into_values().eq(tree.into_values()));
        }

        #[test]
        fn few_or_many_do_as_well(steps in prop::collection::vec((0..5_u8, 0..40_u8, any::<u8>()), 0..300)) {
            let (mut some, mut tree) = (FewOrMany::default(), BTreeMap::new());
            for (what, key, value) in steps {
                match what {
                    0..2 => prop_assert_eq!(some.insert(key, value), tree.insert(key, value)),
                    2 | 3 => prop_assert_eq!(some.remove(&key), tree.remove(&key)),
                    _ => {
                        if let (Some(one), Some(other)) = (some.find_mut(&key), tree.get_mut(&key)) {
                            (*one, *other) = (value, value);
                        }
                    }
                }
                prop_assert_eq!(some.find(&key), tree.get(&key));
                prop_assert_eq!(some.contains_key(&key), tree.contains_key(&key));
                prop_assert_eq!((some.len(), some.is_empty()), (tree.len(), tree.is_empty()));
                prop_assert!(some.values().eq(tree.values()));
                prop_assert!(some.range(..key).rev().eq(tree.range(..key).rev()));
                prop_assert!(some.range(key..).eq(tree.range(key..)));
            }
            prop_assert!(some.into_entries().eq(tree));
        }
    }
}
