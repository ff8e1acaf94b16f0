//! Some tasks of a plan: positions and the indices they had.

use std::ops::Range;

/// Indices in ascending order, kept as runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    runs: Vec<Run>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    position: u64,
    indices: Range<u64>,
}

impl Selection {
    /// The indices of `ranges` that are below `count`, each once.
    pub(crate) fn new(ranges: impl IntoIterator<Item = Range<u64>>, count: u64) -> Selection {
        let mut ranges: Vec<Range<u64>> = ranges
            .into_iter()
            .map(|range| range.start..range.end.min(count))
            .filter(|range| !range.is_empty())
            .collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut runs: Vec<Run> = Vec::new();
        let mut position = 0;
        for range in ranges {
            match runs.last_mut() {
                Some(last) if range.start <= last.indices.end => {
                    let end = last.indices.end.max(range.end);
                    position += end - last.indices.end;
                    last.indices.end = end;
                }
                _ => {
                    let length = range.end - range.start;
                    runs.push(Run { position, indices: range });
                    position += length;
                }
            }
        }
        runs.shrink_to_fit();
        Selection { runs }
    }

    /// How many indices.
    pub(crate) fn len(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.position + (run.indices.end - run.indices.start))
    }

    /// The index at `position`, and how many follow it without a gap, itself
    /// counted.
    pub(crate) fn run_at(&self, position: u64) -> Option<(u64, u64)> {
        let at = self.runs.partition_point(|run| run.position <= position).checked_sub(1)?;
        let run = &self.runs[at];
        let index = run.indices.start + (position - run.position);
        (index < run.indices.end).then(|| (index, run.indices.end - index))
    }

    /// Where `index` is, if it is selected.
    pub(crate) fn position_of(&self, index: u64) -> Option<u64> {
        let at = self.runs.partition_point(|run| run.indices.start <= index).checked_sub(1)?;
        let run = &self.runs[at];
        run.indices.contains(&index).then(|| run.position + (index - run.indices.start))
    }

    /// The intersection with `other`.
    pub(crate) fn and(&self, other: &Selection) -> Selection {
        let mut both = Vec::new();
        let (mut ours, mut theirs) = (self.runs.iter().peekable(), other.runs.iter().peekable());
        while let (Some(a), Some(b)) = (ours.peek(), theirs.peek()) {
            let (a, b) = (&a.indices, &b.indices);
            both.push(a.start.max(b.start)..a.end.min(b.end));
            if a.end <= b.end {
                ours.next();
            } else {
                theirs.next();
            }
        }
        Selection::new(both, u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_selection_is_a_sorted_set(
            ranges in prop::collection::vec((0u64..40, 0u64..8), 0..8),
            others in prop::collection::vec((0u64..40, 0u64..8), 0..8),
            count in 0u64..45,
        ) {
            let make = |list: &[(u64, u64)]| -> Vec<Range<u64>> {
                list.iter().map(|(start, length)| *start..start + length).collect()
            };
            let set = |list: &[(u64, u64)]| -> BTreeSet<u64> {
                make(list).into_iter().flatten().filter(|index| *index < count).collect()
            };
            let selection = Selection::new(make(&ranges), count);
            let expected: Vec<u64> = set(&ranges).into_iter().collect();
            prop_assert_eq!(selection.len(), expected.len() as u64);
            for (position, index) in expected.iter().enumerate() {
                let (found, run) = selection.run_at(position as u64).unwrap();
                prop_assert_eq!(found, *index);
                prop_assert!(run >= 1 && expected.contains(&(index + run - 1)));
                prop_assert!(!expected.contains(&(index + run)));
            }
            prop_assert_eq!(selection.run_at(selection.len()), None);
            for index in 0..50 {
                let position = expected.iter().position(|at| *at == index).map(|at| at as u64);
                prop_assert_eq!(selection.position_of(index), position);
            }
            let other = Selection::new(make(&others), count);
            let both: Vec<Range<u64>> =
                set(&ranges).intersection(&set(&others)).map(|at| *at..at + 1).collect();
            prop_assert_eq!(selection.and(&other), Selection::new(both, count));
        }
    }
}
