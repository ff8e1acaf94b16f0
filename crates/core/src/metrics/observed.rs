//! A run as its results tell it, one by one.

use super::{Response, Run};
use crate::data::stage::Usage;
use crate::limits::METRIC_INTERVALS_MAX;
use crate::task::Time;
use std::collections::VecDeque;

const SECOND_MICROS: f64 = 1e6;
/// How long intervals are at first, in microseconds.
const INTERVAL_MICROS_MIN: u64 = 1000;

/// When the phases of a task that has run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskTimes {
    /// It was submitted.
    pub queued: Time,
    /// It began to run; its inputs were there.
    pub started: Time,
    /// It ended.
    pub ended: Time,
    /// The client had its result.
    pub delivered: Time,
}

/// What happened in one interval of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Its beginning.
    pub from: Time,
    /// How long it is, in microseconds.
    pub micros: u64,
    /// Tasks that ended in it.
    pub ended: u64,
    /// Where inputs of tasks came from that began in it.
    pub usage: Usage,
}

/// Measures a run by its results, in whichever order they come.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    tasks: u64,
    wait_micros: u128,
    execute_micros: u128,
    deliver_micros: u128,
    first_queued: Option<Time>,
    last_delivered: Time,
    /// When the last task would have ended, had each begun when it came.
    last_end: Time,
    usage: Usage,
    intervals: Intervals,
}

impl Observed {
    /// A task has run.
    pub fn add(&mut self, times: &TaskTimes, usage: &Usage) {
        let TaskTimes { queued, started, ended, delivered } = *times;
        let execute = ended.since(started);
        self.tasks += 1;
        self.wait_micros += u128::from(started.since(queued));
        self.execute_micros += u128::from(execute);
        self.deliver_micros += u128::from(delivered.since(ended));
        self.first_queued = Some(self.first_queued.map_or(queued, |first| first.min(queued)));
        self.last_delivered = self.last_delivered.max(delivered);
        self.last_end = self.last_end.max(queued.after(execute));
        self.usage.add(usage);
        if *usage != Usage::default() {
            self.intervals.at(started).usage.add(usage);
        }
        self.intervals.at(ended).ended += 1;
    }

    /// Where inputs came from.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// How long results took, on average.
    #[must_use]
    pub fn response(&self) -> Response {
        let mean = |micros: u128| match self.tasks {
            0 => 0.0,
            tasks => micros as f64 / tasks as f64 / SECOND_MICROS,
        };
        Response {
            wait_s: mean(self.wait_micros),
            execute_s: mean(self.execute_micros),
            deliver_s: mean(self.deliver_micros),
        }
    }

    /// The run, on so many slots, each task having taken one; `None` if none
    /// has run.
    #[must_use]
    pub fn run(&self, slots: f64) -> Option<Run> {
        let first = self.first_queued?;
        let seconds = |until: Time| until.since(first) as f64 / SECOND_MICROS;
        Some(Run {
            tasks: self.tasks,
            slots,
            makespan_s: seconds(self.last_delivered),
            work_s: self.execute_micros as f64 / SECOND_MICROS,
            arrivals_s: seconds(self.last_end),
        })
    }

    /// When the first task was submitted.
    #[must_use]
    pub fn began(&self) -> Option<Time> {
        self.first_queued
    }

    /// What happened when, in at most so many intervals (2 at least) and at
    /// most [`METRIC_INTERVALS_MAX`], all of one length but for the first and
    /// the last: the run begins in one and ends in the other.
    #[must_use]
    pub fn intervals(&self, most: usize) -> Vec<Interval> {
        let Some(first) = self.first_queued else { return Vec::new() };
        let mut intervals = self.intervals.clone();
        while intervals.all.len() > most.max(2) {
            intervals.coarsen();
        }
        let micros = intervals.micros();
        let border = |number: u64| Time(number.saturating_mul(micros));
        let end = self.last_delivered.after(1);
        let each = (intervals.first..).zip(&intervals.all);
        each.map(|(number, sum)| {
            let (from, until) = (border(number).max(first), border(number + 1).min(end));
            Interval { from, micros: until.since(from), ended: sum.ended, usage: sum.usage }
        })
        .collect()
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    ended: u64,
    usage: Usage,
}

/// Sums by time, in intervals that are twice as long whenever there would be
/// too many.
#[derive(Debug, Clone, Default)]
struct Intervals {
    /// How often their length was doubled.
    doublings: u32,
    /// The number of the first: it begins so many lengths after the epoch.
    first: u64,
    all: VecDeque<Sum>,
}

impl Intervals {
    fn micros(&self) -> u64 {
        INTERVAL_MICROS_MIN << self.doublings
    }

    /// The interval that a time is in.
    fn at(&mut self, time: Time) -> &mut Sum {
        loop {
            let number = time.0 / self.micros();
            if self.all.is_empty() {
                self.first = number;
            }
            let last = self.first + self.all.len() as u64;
            let span = last.max(number + 1) - self.first.min(number);
            if span > METRIC_INTERVALS_MAX as u64 {
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

    /// Makes two intervals one.
    fn coarsen(&mut self) {
        let mut all: VecDeque<Sum> = VecDeque::with_capacity(self.all.len() / 2 + 1);
        let first = self.first / 2;
        for (at, sum) in (self.first..).zip(&self.all) {
            let into = (at / 2 - first) as usize;
            if all.len() <= into {
                all.push_back(Sum::default());
            }
            all[into].ended += sum.ended;
            all[into].usage.add(&sum.usage);
        }
        self.first = first;
        self.all = all;
        self.doublings += 1;
    }
}
