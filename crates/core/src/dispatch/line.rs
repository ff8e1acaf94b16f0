//! Ready tasks in the order in which they became ready.

use super::instance::ReadyRun;
use crate::runset::RunSet;
use std::collections::{BTreeMap, VecDeque};

/// Runs in a line below which taking some out looks at all of them.
const SCAN_RUNS: usize = 64;

/// Runs of ready tasks, first come first.
///
/// Most lines are only ever taken from at the front: they are plain lists. When
/// a few tasks are first taken out of a long one (an executor comes back after a
/// restart and has them already; somebody cancels them), the line gets an index
/// by task, and keeps it until it is empty. Building the index costs one pass
/// through runs that are all still to be taken off one by one, so each
/// operation costs O(log runs), and O(1) without an index.
#[derive(Debug, Default)]
pub(super) struct Line {
    plain: VecDeque<ReadyRun>,
    /// Holds all the runs if it is there.
    indexed: Option<Box<Indexed>>,
}

#[derive(Debug, Default)]
struct Indexed {
    /// By turn. What is left of a run out of which some were taken keeps its
    /// turn, in the order of the tasks.
    runs: BTreeMap<(u64, u64), ReadyRun>,
    /// From the first task of each run to its turn.
    turns: BTreeMap<u64, u64>,
    next_turn: u64,
}

impl Indexed {
    fn insert(&mut self, turn: u64, run: ReadyRun) {
        self.runs.insert((turn, run.first), run);
        self.turns.insert(run.first, turn);
    }

    fn remove(&mut self, first: u64, turn: u64) -> Option<ReadyRun> {
        self.turns.remove(&first);
        self.runs.remove(&(turn, first))
    }

    fn push(&mut self, run: ReadyRun) {
        self.insert(self.next_turn, run);
        self.next_turn += 1;
    }

    /// The first task and the turn of each run that has tasks at or after
    /// `first` and before `end`.
    fn within(&self, first: u64, end: u64) -> Vec<(u64, u64)> {
        let covering = self.turns.range(..first).next_back().filter(|(start, turn)| {
            let run = self.runs.get(&(**turn, **start));
            run.is_some_and(|run| run.first + run.count > first)
        });
        covering.into_iter().chain(self.turns.range(first..end)).map(|(a, b)| (*a, *b)).collect()
    }

    fn take_out(&mut self, wanted: &RunSet, removed: &mut Vec<ReadyRun>) {
        for (first, count) in wanted.iter() {
            let end = first.saturating_add(count);
            for (start, turn) in self.within(first, end) {
                let Some(run) = self.remove(start, turn) else { continue };
                let (from, until) = (run.first.max(first), (run.first + run.count).min(end));
                if run.first < from {
                    self.insert(turn, ReadyRun { count: from - run.first, ..run });
                }
                if until < run.first + run.count {
                    let count = run.first + run.count - until;
                    self.insert(turn, ReadyRun { first: until, count, ..run });
                }
                removed.push(ReadyRun { first: from, count: until - from, ..run });
            }
        }
    }
}

impl Line {
    /// The run whose turn it is.
    pub(super) fn front(&self) -> Option<&ReadyRun> {
        match &self.indexed {
            None => self.plain.front(),
            Some(indexed) => indexed.runs.first_key_value().map(|(_, run)| run),
        }
    }

    pub(super) fn back(&self) -> Option<&ReadyRun> {
        match &self.indexed {
            None => self.plain.back(),
            Some(indexed) => indexed.runs.last_key_value().map(|(_, run)| run),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.front().is_none()
    }

    /// All runs, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ReadyRun> {
        let indexed = self.indexed.iter().flat_map(|indexed| indexed.runs.values());
        self.plain.iter().chain(indexed)
    }

    /// Lines a run up. One that continues the last becomes part of it, if
    /// `joins` says that both are of one batch.
    pub(super) fn push(&mut self, run: ReadyRun, joins: bool) {
        let continues = |last: &ReadyRun| {
            joins
                && last.first + last.count == run.first
                && last.class == run.class
                && last.tries == run.tries
        };
        match &mut self.indexed {
            None => match self.plain.back_mut() {
                Some(last) if continues(last) => last.count += run.count,
                _ => self.plain.push_back(run),
            },
            Some(indexed) => match indexed.runs.last_entry() {
                Some(mut last) if continues(last.get()) => last.get_mut().count += run.count,
                _ => indexed.push(run),
            },
        }
    }

    /// Takes up to `count` tasks off the front run.
    pub(super) fn pop(&mut self, count: u64) -> Option<ReadyRun> {
        let Some(indexed) = &mut self.indexed else {
            let front = self.plain.front_mut()?;
            let taken = ReadyRun { count: count.min(front.count), ..*front };
            front.first += taken.count;
            front.count -= taken.count;
            if front.count == 0 {
                self.plain.pop_front();
            }
            return Some(taken);
        };
        let (&(turn, first), _) = indexed.runs.first_key_value()?;
        let front = indexed.remove(first, turn)?;
        let taken = ReadyRun { count: count.min(front.count), ..front };
        if taken.count < front.count {
            let (first, count) = (front.first + taken.count, front.count - taken.count);
            indexed.insert(turn, ReadyRun { first, count, ..front });
        }
        self.end_index();
        Some(taken)
    }

    /// Takes all runs out.
    pub(super) fn drain(&mut self) -> Vec<ReadyRun> {
        let all = self.iter().copied().collect();
        *self = Line::default();
        all
    }

    /// Takes the tasks out that are among `wanted`.
    pub(super) fn take_out(&mut self, wanted: &RunSet) -> Vec<ReadyRun> {
        let mut removed = Vec::new();
        let few = wanted.run_count().saturating_mul(8) < self.plain.len();
        if self.indexed.is_none() && few && self.plain.len() > SCAN_RUNS {
            let mut indexed = Indexed::default();
            self.plain.drain(..).for_each(|run| indexed.push(run));
            self.plain.shrink_to_fit();
            self.indexed = Some(Box::new(indexed));
        }
        if let Some(indexed) = &mut self.indexed {
            indexed.take_out(wanted, &mut removed);
            self.end_index();
            return removed;
        }
        let mut kept = VecDeque::with_capacity(self.plain.len());
        for run in self.plain.drain(..) {
            for (first, count) in wanted.gaps(run.first, run.count) {
                kept.push_back(ReadyRun { first, count, ..run });
            }
            for (first, count) in wanted.within(run.first, run.count) {
                removed.push(ReadyRun { first, count, ..run });
            }
        }
        self.plain = kept;
        removed
    }

    fn end_index(&mut self) {
        if self.indexed.as_ref().is_some_and(|indexed| indexed.runs.is_empty()) {
            self.indexed = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Tries;

    fn run(first: u64, count: u64) -> ReadyRun {
        ReadyRun { first, count, class: 0, tries: Tries::default() }
    }

    /// A long line from which few are taken is indexed, and gives the same
    /// tasks in the same order as a list that is searched through.
    #[test]
    fn a_line_with_an_index_is_the_line_that_it_was() {
        let mut seed = 7_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..20 {
            let mut line = Line::default();
            let mut plain: Vec<u64> = Vec::new();
            for at in 0..200 {
                let first = (at * 7919 % 200) * 10;
                line.push(run(first, 5), false);
                plain.extend(first..first + 5);
            }
            for _ in 0..300 {
                match random(4) {
                    0 => {
                        let taken = line.pop(1 + random(3));
                        let expected: Vec<u64> =
                            plain.drain(..taken.map_or(0, |run| run.count as usize)).collect();
                        let taken =
                            taken.into_iter().flat_map(|run| run.first..run.first + run.count);
                        assert!(taken.eq(expected));
                    }
                    1 => {
                        let first = 10_000 + random(100_000) * 2;
                        if !plain.contains(&first) {
                            line.push(run(first, 1), true);
                            plain.push(first);
                        }
                    }
                    _ => {
                        let mut wanted = RunSet::default();
                        wanted.insert(random(2_000), 1 + random(12));
                        let mut removed: Vec<u64> = line
                            .take_out(&wanted)
                            .iter()
                            .flat_map(|run| run.first..run.first + run.count)
                            .collect();
                        removed.sort_unstable();
                        let mut expected: Vec<u64> =
                            plain.iter().copied().filter(|task| wanted.contains(*task)).collect();
                        expected.sort_unstable();
                        plain.retain(|task| !wanted.contains(*task));
                        assert_eq!(removed, expected);
                    }
                }
                assert!(line.iter().all(|run| run.count > 0), "an empty run");
                let all = line.iter().flat_map(|run| run.first..run.first + run.count);
                assert!(all.eq(plain.iter().copied()));
            }
        }
    }
}
