//! Overflows: output that stays here because it is too long to be sent, as far
//! as its reports were acknowledged: the dispatcher knows whether it is still needed.
//! A dispatcher that was killed may not have said so, so the executor names in
//! each session what it keeps. Output of reports that were not acknowledged is
//! named by these. A relay does the same for the executors below it.

use crate::limits::UPDATE_KEPT_RUNS_MAX;
use crate::result::Report;
use crate::runset::RunSet;
use crate::seldom::Empty;

#[derive(Debug, Default)]
pub(crate) struct Overflows {
    numbers: RunSet,
    /// The executor has still to report the runs that begin there or later.
    untold: Option<u64>,
}

impl Empty for Overflows {
    const EMPTY: &'static Overflows = &Overflows { numbers: RunSet::EMPTY, untold: None };
}

impl Overflows {
    /// Runs of numbers are kept, as is known from before.
    pub(crate) fn insert(&mut self, first: u64, count: u64) {
        self.numbers.insert(first, count);
    }

    /// All that is kept, as (first, count).
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.numbers.iter()
    }

    /// Whether nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Whether it is kept.
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.numbers.contains(number)
    }

    /// The dispatcher has taken a report in.
    pub(crate) fn acknowledged(&mut self, report: &Report) {
        let detail = report.detail.iter();
        for overflow in detail.flat_map(|detail| detail.overflows()).flatten() {
            self.numbers.insert(overflow.number, 1);
        }
    }

    /// Runs of numbers whose output is not needed any more.
    pub(crate) fn discard(&mut self, runs: &[(u64, u64)]) {
        for &(first, count) in runs {
            self.numbers.remove(first, count);
        }
    }

    /// A session begins.
    pub(crate) fn tell_anew(&mut self) {
        self.untold = (!self.numbers.is_empty()).then_some(0);
    }

    /// Whether there is something to tell.
    pub(crate) fn is_telling(&self) -> bool {
        self.untold.is_some()
    }

    /// What to tell in the next message: runs of numbers, as (first, count).
    pub(crate) fn next(&mut self) -> Vec<(u64, u64)> {
        let Some(from) = self.untold else { return Vec::new() };
        let mut runs = self.numbers.iter_from(from);
        let told: Vec<(u64, u64)> = runs.by_ref().take(UPDATE_KEPT_RUNS_MAX).collect();
        self.untold = runs.next().map(|(first, _)| first);
        told
    }
}
