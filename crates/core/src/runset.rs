//! Sets of task ids as runs: ten ids or a billion in a row cost the same.

use std::collections::BTreeMap;

/// A set of numbers below 2^64 − 1, kept as disjoint runs that do not touch;
/// runs that would reach further are cut.
/// Every operation costs O(log runs) per run it meets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunSet {
    /// First of a run → one past its last.
    runs: BTreeMap<u64, u64>,
    len: u64,
}

impl RunSet {
    /// No numbers.
    pub(crate) const EMPTY: RunSet = RunSet { runs: BTreeMap::new(), len: 0 };

    /// How many numbers are in the set.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many runs the set is kept as.
    #[must_use]
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Whether `value` is in the set.
    #[must_use]
    pub fn contains(&self, value: u64) -> bool {
        self.runs.range(..=value).next_back().is_some_and(|(_, end)| value < *end)
    }

    /// Adds `count` numbers from `first` on. Returns how many were new.
    pub fn insert(&mut self, first: u64, count: u64) -> u64 {
        let (mut start, mut end) = (first, first.saturating_add(count));
        if start >= end {
            return 0;
        }
        // Most often a run grows at its end, which needs no other place.
        if let Some((begin, until)) = self.runs.range_mut(..=end).next_back()
            && *begin < start
            && *until == start
        {
            *until = end;
            self.len += end - start;
            return end - start;
        }
        let mut merged = 0;
        if let Some((&before, &until)) = self.runs.range(..=start).next_back()
            && until >= start
        {
            if until >= end {
                return 0;
            }
            merged += until - before;
            start = before;
            self.runs.remove(&before);
        }
        while let Some((&next, &until)) = self.runs.range(start..=end).next() {
            merged += until - next;
            end = end.max(until);
            self.runs.remove(&next);
        }
        self.runs.insert(start, end);
        let added = (end - start) - merged;
        self.len += added;
        added
    }

    /// Removes `count` numbers from `first` on. Returns how many were there.
    pub fn remove(&mut self, first: u64, count: u64) -> u64 {
        let end = first.saturating_add(count);
        if first >= end {
            return 0;
        }
        let mut removed = 0;
        while let Some((&start, until)) = self.runs.range_mut(..end).next_back()
            && *until > first
        {
            let whole = *until;
            if start < first {
                *until = first;
            } else {
                self.runs.remove(&start);
            }
            if whole > end {
                self.runs.insert(end, whole);
            }
            removed += whole.min(end) - start.max(first);
        }
        self.len -= removed;
        removed
    }

    /// The parts of `first .. first + count` that are in the set, as
    /// (first, count).
    #[must_use]
    pub fn within(&self, first: u64, count: u64) -> Vec<(u64, u64)> {
        let end = first.saturating_add(count);
        self.overlapping(first, end)
            .into_iter()
            .map(|(start, until)| {
                let start = start.max(first);
                (start, until.min(end) - start)
            })
            .collect()
    }

    /// The parts of `first .. first + count` that are *not* in the set, as
    /// (first, count).
    #[must_use]
    pub fn gaps(&self, first: u64, count: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = first;
        for (start, length) in self.within(first, count) {
            if start > at {
                gaps.push((at, start - at));
            }
            at = start + length;
        }
        let end = first.saturating_add(count);
        if at < end {
            gaps.push((at, end - at));
        }
        gaps
    }

    /// All runs as (first, count), ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.runs.iter().map(|(start, end)| (*start, end - start))
    }

    /// As [`RunSet::iter`] from the first run on that begins at `from` or later.
    pub fn iter_from(&self, from: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.runs.range(from..).map(|(start, end)| (*start, end - start))
    }

    fn overlapping(&self, first: u64, end: u64) -> Vec<(u64, u64)> {
        if first >= end {
            return Vec::new();
        }
        let before = self
            .runs
            .range(..first)
            .next_back()
            .filter(|(_, until)| **until > first)
            .map(|(start, until)| (*start, *until));
        before
            .into_iter()
            .chain(self.runs.range(first..end).map(|(start, until)| (*start, *until)))
            .collect()
    }
}
