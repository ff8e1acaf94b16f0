//! Which task below is which task above.

use super::Note;
use crate::dispatch::Held;
use crate::dispatch::check::{CheckError, ensure};
use crate::result::Tries;
use crate::task::{InstanceId, TaskId};
use std::collections::BTreeMap;

/// A run of tasks that have numbers below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    count: u64,
    instance: InstanceId,
    /// Above.
    first: u64,
    tries: Tries,
}

/// The tasks that the relay answers for, and their numbers below. A task from above
/// has one number below at a time.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// By the number of the first task below.
    below: BTreeMap<u64, Run>,
    /// By the first task above: its number below.
    above: BTreeMap<(InstanceId, u64), u64>,
    tasks: u64,
}

impl Ledger {
    pub(super) fn is_empty(&self) -> bool {
        self.below.is_empty()
    }

    pub(super) fn tasks(&self) -> u64 {
        self.tasks
    }

    /// Tasks from above get numbers below. Returns the numbers, as (first, count),
    /// that some of them had before.
    pub(super) fn insert(&mut self, below: u64, held: &Held) -> Vec<(u64, u64)> {
        let _ = self.take_below(below, held.count);
        let before = self.take_above(held, |_| true);
        let Held { instance, first, count, tries } = *held;
        self.below.insert(below, Run { count, instance, first: first.0, tries });
        self.above.insert((instance, first.0), below);
        self.tasks += count;
        before
    }

    /// Takes out the tasks that have these numbers below, each run with the first
    /// of its numbers.
    pub(super) fn take_below(&mut self, first: u64, count: u64) -> Vec<(u64, Held)> {
        let end = first.saturating_add(count);
        self.split(first);
        self.split(end);
        let found: Vec<u64> = self.below.range(first..end).map(|(below, _)| *below).collect();
        found.into_iter().filter_map(|below| self.remove(below)).collect()
    }

    /// Takes out tasks from above whose tries are as asked. Returns their numbers
    /// below, as (first, count).
    pub(super) fn take_above(
        &mut self,
        held: &Held,
        is_meant: impl Fn(Tries) -> bool,
    ) -> Vec<(u64, u64)> {
        let meant = self.find_above(held, is_meant);
        for (below, count) in &meant {
            let _ = self.take_below(*below, *count);
        }
        meant
    }

    /// The numbers below, as (first, count), of tasks from above whose tries are as
    /// asked.
    pub(super) fn find_above(
        &self,
        held: &Held,
        is_meant: impl Fn(Tries) -> bool,
    ) -> Vec<(u64, u64)> {
        let (first, end) = (held.first.0, held.first.0.saturating_add(held.count));
        let instance = held.instance;
        let before = self.above.range((instance, 0)..=(instance, first)).next_back();
        let from = before.map_or(first, |((_, from), _)| *from);
        let mut meant = Vec::new();
        for (_, below) in self.above.range((instance, from)..(instance, end.max(from))) {
            let run = &self.below[below];
            let (start, stop) = (run.first.max(first), (run.first + run.count).min(end));
            if start < stop && is_meant(run.tries) {
                meant.push((below + (start - run.first), stop - start));
            }
        }
        meant
    }

    /// The tasks that have these numbers below, each run with the first of its numbers.
    pub(super) fn find_below(&self, first: u64, count: u64) -> Vec<(u64, Held)> {
        let end = first.saturating_add(count);
        let before = self.below.range(..=first).next_back();
        let from = before.map_or(first, |(below, _)| *below);
        let mut found = Vec::new();
        for (below, run) in self.below.range(from..end.max(from)) {
            let (start, stop) = ((*below).max(first), (below + run.count).min(end));
            if start < stop {
                let first = TaskId(run.first + (start - below));
                found.push((start, Held { first, count: stop - start, ..run.held() }));
            }
        }
        found
    }

    /// The parts of a run of numbers below that tasks have, as (first, count).
    pub(super) fn has(&self, (first, count): (u64, u64)) -> Vec<(u64, u64)> {
        let found = self.find_below(first, count);
        found.into_iter().map(|(below, held)| (below, held.count)).collect()
    }

    /// All tasks, by their numbers above, as long runs as there are.
    pub(super) fn held(&self) -> Vec<Held> {
        let mut held: Vec<Held> = Vec::new();
        for ((instance, first), below) in &self.above {
            let run = &self.below[below];
            match held.last_mut() {
                Some(last)
                    if last.instance == *instance
                        && last.tries == run.tries
                        && last.first.0 + last.count == *first =>
                {
                    last.count += run.count;
                }
                _ => held.push(run.held()),
            }
        }
        held
    }

    /// What brings this ledger about.
    pub(super) fn notes(&self) -> impl Iterator<Item = Note> + '_ {
        self.below.iter().map(|(below, run)| Note::Sent { below: *below, held: run.held() })
    }

    /// Divides the run that has a task before this number below and the task itself.
    fn split(&mut self, at: u64) {
        let Some((below, run)) = self.below.range_mut(..at).next_back() else { return };
        let left = at - below;
        if left >= run.count {
            return;
        }
        let right = Run { count: run.count - left, first: run.first + left, ..*run };
        run.count = left;
        self.below.insert(at, right);
        self.above.insert((right.instance, right.first), at);
    }

    fn remove(&mut self, below: u64) -> Option<(u64, Held)> {
        let run = self.below.remove(&below)?;
        self.above.remove(&(run.instance, run.first));
        self.tasks -= run.count;
        Some((below, run.held()))
    }

    /// Both directions have the same tasks, and no task twice.
    pub(super) fn check(&self) -> Result<(), CheckError> {
        ensure!(self.below.len() == self.above.len(), "the ledger has runs on one side alone");
        let (mut end, mut tasks) = (0, 0);
        for (below, run) in &self.below {
            ensure!(*below >= end, "number {below} below is two tasks'");
            end = below + run.count;
            tasks += run.count;
            let found = self.above.get(&(run.instance, run.first));
            ensure!(found == Some(below), "number {below} below is misfiled");
        }
        ensure!(tasks == self.tasks, "the ledger has {tasks} tasks, not {}", self.tasks);
        let mut last = (InstanceId(0), 0);
        for ((instance, first), below) in &self.above {
            let is_free = last.0 != *instance || last.1 <= *first;
            ensure!(is_free, "task {first} of instance {instance} has two numbers below");
            last = (*instance, first + self.below[below].count);
        }
        Ok(())
    }
}

impl Run {
    fn held(&self) -> Held {
        let Run { count, instance, first, tries } = *self;
        Held { instance, first: TaskId(first), count, tries }
    }
}
