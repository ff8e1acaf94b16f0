//! The course of a run: means over intervals of equal length, however long it lasts.

use falkon_core::task::Time;
use std::collections::VecDeque;

/// Intervals that are held.
const INTERVALS_MAX: usize = 512;
/// How long they are at first, in microseconds.
const INTERVAL_MICROS_MIN: u64 = 1000;

/// A quantity of a run that the report shows over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// Tasks that were accepted and not sent to an executor.
    Queued,
    /// Tasks at executors that had not started.
    Sent,
    /// Tasks that ran.
    Running,
    /// Slots that there were.
    Slots,
    /// Executors that there were.
    Executors,
    /// Slots for queued tasks.
    SlotsWanted,
    /// Slots for tasks at executors that had not started.
    SlotsStarting,
    /// Slots of tasks that ran.
    SlotsBusy,
}

const MEASURES: usize = 8;

/// An interval of a run.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    ended: u64,
    failed: u64,
    /// Microseconds times how many.
    areas: [f64; MEASURES],
}

/// An interval, with means.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval {
    /// Its beginning.
    pub(super) from: Time,
    /// How long it is, in microseconds.
    pub(super) micros: u64,
    /// Tasks that ended in it.
    pub(super) ended: u64,
    /// The ended tasks that did not succeed.
    pub(super) failed: u64,
    means: [f64; MEASURES],
}

impl Interval {
    /// A mean over the interval.
    pub(super) fn mean(&self, measure: Measure) -> f64 {
        self.means[measure as usize]
    }

    /// Tasks that ended in a second.
    pub(super) fn rate(&self) -> f64 {
        self.ended as f64 / (self.micros.max(1) as f64 / 1e6)
    }
}

/// Sums by time. Intervals are made twice as long whenever there would be too many.
#[derive(Debug, Clone, Default)]
pub(super) struct Course {
    doublings: u32,
    /// The number of the first: it begins so many lengths after the epoch.
    first: u64,
    all: VecDeque<Sum>,
}

impl Course {
    fn micros(&self) -> u64 {
        INTERVAL_MICROS_MIN << self.doublings
    }

    /// Tasks ended.
    pub(super) fn end(&mut self, at: Time, count: u64, is_failed: bool) {
        let sum = self.at(at);
        sum.ended += count;
        sum.failed += if is_failed { count } else { 0 };
    }

    /// There were so many between two times.
    pub(super) fn add(&mut self, measure: Measure, from: Time, until: Time, count: f64) {
        if until <= from {
            return;
        }
        // Both are held before anything is added: making room changes lengths.
        self.at(from);
        self.at(Time(until.0 - 1));
        let micros = self.micros();
        let mut at = from.0;
        while at < until.0 {
            let end = ((at / micros + 1) * micros).min(until.0);
            let place = (at / micros - self.first) as usize;
            self.all[place].areas[measure as usize] += (end - at) as f64 * count;
            at = end;
        }
    }

    fn at(&mut self, time: Time) -> &mut Sum {
        loop {
            let number = time.0 / self.micros();
            if self.all.is_empty() {
                self.first = number;
            }
            let last = self.first + self.all.len() as u64;
            let span = last.max(number + 1) - self.first.min(number);
            if span > INTERVALS_MAX as u64 {
                self.coarsen();
                continue;
            }
            while self.first > number {
                self.all.push_front(Sum::default());
                self.first -= 1;
            }
            let at = (number - self.first) as usize;
            if self.all.len() <= at {
                self.all.resize(at + 1, Sum::default());
            }
            return &mut self.all[at];
        }
    }

    fn coarsen(&mut self) {
        let mut all: VecDeque<Sum> = VecDeque::with_capacity(self.all.len() / 2 + 1);
        let first = self.first / 2;
        for (number, sum) in (self.first..).zip(&self.all) {
            let into = (number / 2 - first) as usize;
            if all.len() <= into {
                all.push_back(Sum::default());
            }
            all[into].ended += sum.ended;
            all[into].failed += sum.failed;
            for (area, more) in all[into].areas.iter_mut().zip(sum.areas) {
                *area += more;
            }
        }
        self.first = first;
        self.all = all;
        self.doublings += 1;
    }

    /// The intervals of a span, at most so many (2 at least): means are over the part of an
    /// interval that is within the span.
    pub(super) fn intervals(&self, from: Time, until: Time, most: usize) -> Vec<Interval> {
        let mut course = self.clone();
        while course.all.len() > most.max(2) {
            course.coarsen();
        }
        let micros = course.micros();
        let border = |number: u64| Time(number.saturating_mul(micros));
        let each = (course.first..).zip(&course.all);
        let within = each.filter_map(|(number, sum)| {
            let (begin, end) = (border(number).max(from), border(number + 1).min(until));
            let micros = end.0.checked_sub(begin.0).filter(|micros| *micros > 0)?;
            let means = sum.areas.map(|area| area / micros as f64);
            Some(Interval { from: begin, micros, ended: sum.ended, failed: sum.failed, means })
        });
        within.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is added is there, however far apart the times are.
        #[test]
        fn areas_are_what_was_added(
            added in proptest::collection::vec((0_u64..5_000_000, 1_u64..3_000_000, 1_u32..5), 1..20),
            most in 2_usize..40,
        ) {
            let mut course = Course::default();
            let mut area = 0.0;
            for (from, micros, count) in &added {
                let count = f64::from(*count);
                course.add(Measure::Running, Time(*from), Time(from + micros), count);
                course.end(Time(*from), 1, false);
                area += *micros as f64 * count;
            }
            let from = added.iter().map(|one| one.0).min().unwrap();
            let until = added.iter().map(|one| one.0 + one.1).max().unwrap();
            let intervals = course.intervals(Time(from), Time(until), most);
            prop_assert!(intervals.len() <= most);
            let found: f64 = intervals
                .iter()
                .map(|one| one.mean(Measure::Running) * one.micros as f64)
                .sum();
            prop_assert!((found - area).abs() <= area * 1e-9 + 1.0, "{} is not {}", found, area);
            let ended: u64 = intervals.iter().map(|one| one.ended).sum();
            prop_assert_eq!(ended, added.len() as u64);
            let micros: u64 = intervals.iter().map(|one| one.micros).sum();
            prop_assert!(micros <= until - from);
        }
    }
}
