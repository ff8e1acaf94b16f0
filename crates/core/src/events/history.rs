//! How a run went over time: sums over intervals, exact however many tasks there were.
//!
//! Time is kept at several scales, each with a bounded number of intervals: the last minutes by
//! the second, the last weeks by the half hour.

use super::{Ended, Event, Tally, What};
use crate::data::stage::Usage;
use crate::limits::HISTORY_INTERVALS;
use crate::result::Counts;
use crate::task::{InstanceId, Time};
use std::collections::VecDeque;

/// The lengths of the intervals of each scale, in microseconds.
pub const SCALES_MICROS: [u64; 4] = [1_000_000, 10_000_000, 120_000_000, 1_800_000_000];

/// What happened in an interval, and how things were at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interval {
    /// Tasks accepted.
    pub submitted: u64,
    /// Tasks that ended, and how.
    pub ended: Counts,
    /// Microseconds for which tasks that ended had waited for inputs.
    pub staging_micros: u128,
    /// Where the inputs of tasks that ended came from.
    pub usage: Usage,
    /// Where the time of processors went.
    pub processors: Processors,
    /// How things were at the end.
    pub levels: Levels,
}

/// Processors times time, in thousandths of microseconds. Tasks count as those that they reserve,
/// on all of their nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Processors {
    /// Executors offered it.
    pub offered: u128,
    /// Of that, executors had tasks for it: these ran, waited for inputs there, or were on
    /// their way.
    pub taken: u128,
    /// Of the rest, tasks waited meanwhile.
    pub idle_while_waiting: u128,
    /// Tasks ran there, of those that have ended since.
    pub ran: u128,
}

impl Interval {
    /// Adds what happened in a part of it.
    fn add(&mut self, part: &Interval) {
        self.submitted += part.submitted;
        self.ended.add_ended(&part.ended);
        self.staging_micros += part.staging_micros;
        self.usage.add(&part.usage);
        self.processors.add(&part.processors);
    }

    /// Tasks ended in it.
    fn end(&mut self, ended: &Ended) {
        let count = ended.run.count;
        self.ended.end(ended.outcome.status(), count);
        self.staging_micros += u128::from(ended.staging_micros) * u128::from(count);
        self.usage.add(&ended.usage);
    }
}

impl Processors {
    fn add(&mut self, other: &Processors) {
        self.offered += other.offered;
        self.taken += other.taken;
        self.idle_while_waiting += other.idle_while_waiting;
        self.ran += other.ran;
    }

    /// Adds a time for which levels were these.
    fn add_time(&mut self, levels: &Levels, micros: u64) {
        let offered = u128::from(levels.cpus_milli);
        let taken = levels.assigned_milli.min(offered);
        let micros = u128::from(micros);
        self.offered += offered * micros;
        self.taken += taken * micros;
        if levels.queued > 0 {
            self.idle_while_waiting += (offered - taken) * micros;
        }
    }
}

/// How many there are of what waits and of what runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Levels {
    /// Tasks that wait.
    pub queued: u64,
    /// Tasks that executors have, sent ahead or running.
    pub assigned: u64,
    /// The slots that these take, in thousandths.
    pub assigned_milli: u128,
    /// Executors that are registered.
    pub executors: u64,
    /// Thousandths of processors that those offer.
    pub cpus_milli: u64,
}

/// The intervals of one length.
#[derive(Debug, Clone)]
struct Scale {
    micros: u64,
    /// The number of the first interval that is kept, from the epoch.
    first: u64,
    intervals: VecDeque<Interval>,
}

impl Scale {
    fn number(&self, at: Time) -> u64 {
        at.0 / self.micros
    }

    /// Continues to the interval of a time; those in between are as things have been since.
    fn advance(&mut self, at: Time, levels: Levels) {
        let number = self.number(at);
        let next = self.first + self.intervals.len() as u64;
        if self.intervals.is_empty() || number >= next + HISTORY_INTERVALS as u64 {
            // What was before is out of sight.
            self.intervals.clear();
            self.first = number.saturating_sub(HISTORY_INTERVALS as u64 - 1);
            if next == 0 {
                self.first = number;
            }
        }
        while self.first + self.intervals.len() as u64 <= number {
            if self.intervals.len() == HISTORY_INTERVALS {
                self.intervals.pop_front();
                self.first += 1;
            }
            self.intervals.push_back(Interval { levels, ..Interval::default() });
        }
    }

    /// The interval of a time, if it is kept.
    fn at(&mut self, at: Time) -> Option<&mut Interval> {
        let place = self.number(at).checked_sub(self.first)?;
        self.intervals.get_mut(usize::try_from(place).ok()?)
    }

    /// Gives the time from one to another to the intervals that are kept, each its part.
    fn spread(&mut self, started: Time, ended: Time, give: impl Fn(&mut Interval, u64)) {
        let mut from = started.0.max(self.first * self.micros);
        while from < ended.0 {
            let until = ((from / self.micros + 1) * self.micros).min(ended.0);
            // A task that is known to end later than the last event has nothing to add there.
            let Some(interval) = self.at(Time(from)) else { return };
            give(interval, until - from);
            from = until;
        }
    }
}

/// Most of what happens has begun and ended within the second: it is added up once, not at each
/// scale.
#[derive(Debug, Clone, Default)]
struct Recent {
    /// The last interval of the finest scale, which is in the last of each other.
    from: Time,
    until: Time,
    /// What happened in it and is not in the scales.
    sums: Interval,
}

impl Recent {
    fn has(&self, at: Time) -> bool {
        self.from <= at && at < self.until
    }
}

/// How a run went over time.
#[derive(Debug, Clone)]
pub struct History {
    tally: Tally,
    levels: Levels,
    /// Up to when levels are accounted for.
    until: Option<Time>,
    recent: Recent,
    scales: [Scale; SCALES_MICROS.len()],
}

impl Default for History {
    fn default() -> History {
        let scale = |micros| Scale { micros, first: 0, intervals: VecDeque::new() };
        let scales = SCALES_MICROS.map(scale);
        History {
            tally: Tally::default(),
            levels: Levels::default(),
            until: None,
            recent: Recent::default(),
            scales,
        }
    }
}

impl History {
    /// Takes in the next event. An event that repeats what is known, as each file's first ones
    /// do, changes nothing.
    pub fn add(&mut self, event: &Event) {
        self.advance(event.at);
        let about = instance_of(&event.what);
        let before = about.map_or((0, 0, 0), |instance| self.waits_and_runs(instance));
        match &event.what {
            What::ExecutorJoined { executor, capacity, .. }
                if !self.tally.executors.contains_key(executor) =>
            {
                self.levels.executors += 1;
                self.levels.cpus_milli += u64::from(capacity.cpus_milli);
            }
            What::ExecutorGone { executor, .. } => {
                if let Some(gone) = self.tally.executors.remove(executor) {
                    self.levels.executors -= 1;
                    self.levels.cpus_milli -= u64::from(gone.capacity.cpus_milli);
                }
            }
            What::DispatcherStarted { .. } => {
                self.tally.add(event);
                // They come back under other numbers.
                self.tally.executors.clear();
                let queued = self.tally.instances.values().map(|one| one.queued()).sum();
                self.levels = Levels { queued, ..Levels::default() };
                return;
            }
            What::Submitted { count, .. } => {
                self.at(event.at, |interval| interval.submitted += count);
            }
            What::Ended(ended) => self.ended(event.at, ended),
            _ => {}
        }
        self.tally.add(event);
        let after = about.map_or((0, 0, 0), |instance| self.waits_and_runs(instance));
        let levels = &mut self.levels;
        levels.queued = (levels.queued + after.0).saturating_sub(before.0);
        levels.assigned = (levels.assigned + after.1).saturating_sub(before.1);
        levels.assigned_milli = (levels.assigned_milli + after.2).saturating_sub(before.2);
        if let What::InstanceGone { instance, .. } = &event.what {
            // Nothing more happens to it, and instances come and go for ever.
            self.tally.forget(*instance);
        }
    }

    /// Time has gone on to `now` without another event.
    pub fn advance(&mut self, now: Time) {
        let since = self.until.unwrap_or(now);
        if self.recent.has(now) {
            self.recent.sums.processors.add_time(&self.levels, now.since(since));
            self.until = Some(now.max(since));
            return;
        }
        if now < since {
            return;
        }
        self.add_recent();
        let levels = self.levels;
        for scale in &mut self.scales {
            scale.advance(now, levels);
            scale.spread(since, now, |interval, micros| {
                interval.processors.add_time(&levels, micros)
            });
        }
        self.until = Some(now);
        let [finest, ..] = SCALES_MICROS;
        let from = now.0 - now.0 % finest;
        (self.recent.from, self.recent.until) = (Time(from), Time(from.saturating_add(finest)));
    }

    /// Adds what is not in the scales yet.
    fn add_recent(&mut self) {
        let sums = std::mem::take(&mut self.recent.sums);
        for last in self.scales.iter_mut().filter_map(|scale| scale.intervals.back_mut()) {
            last.add(&sums);
            last.levels = self.levels;
        }
    }

    /// What all events add up to, without the instances and executors that are gone.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The intervals of the scale at a place of [`SCALES_MICROS`], from the first to the last,
    /// which is not over: when each begins, and what happened in it.
    pub fn intervals(&self, scale: usize) -> impl Iterator<Item = (Time, Interval)> {
        let found = self.scales.get(scale).into_iter();
        found.flat_map(|scale| {
            let begins = (scale.first..).map(|number| Time(number * scale.micros));
            let last = scale.intervals.back().map(|last| {
                let mut last = Interval { levels: self.levels, ..*last };
                last.add(&self.recent.sums);
                last
            });
            let earlier = scale.intervals.iter().take(scale.intervals.len().saturating_sub(1));
            begins.zip(earlier.copied().chain(last))
        })
    }

    /// Changes the interval of a time, at each scale that has it.
    fn at(&mut self, at: Time, mut change: impl FnMut(&mut Interval)) {
        if self.recent.has(at) {
            change(&mut self.recent.sums);
        } else {
            self.scales.iter_mut().filter_map(|scale| scale.at(at)).for_each(change);
        }
    }

    fn ended(&mut self, at: Time, ended: &Ended) {
        self.at(at, |interval| interval.end(ended));
        let milli = self.tally.all_milli(&ended.run);
        let ran = |interval: &mut Interval, micros: u64| {
            interval.processors.ran += u128::from(micros) * milli;
        };
        if self.recent.has(ended.started) && self.recent.has(ended.ended) {
            ran(&mut self.recent.sums, ended.run_micros());
            return;
        }
        for scale in &mut self.scales {
            scale.spread(ended.started, ended.ended, ran);
        }
    }

    /// How many tasks of an instance wait, how many executors have, and how many slots these
    /// take, in thousandths.
    fn waits_and_runs(&self, instance: InstanceId) -> (u64, u64, u128) {
        match self.tally.instances.get(&instance) {
            Some(found) if !found.is_gone => {
                (found.queued(), found.assigned(), found.assigned_milli())
            }
            _ => (0, 0, 0),
        }
    }
}

/// The instance whose tasks an event is about.
fn instance_of(what: &What) -> Option<InstanceId> {
    match what {
        What::InstanceCreated { instance, .. }
        | What::Submitted { instance, .. }
        | What::Recomputed { instance, .. }
        | What::Copied { instance, .. }
        | What::InstanceGone { instance, .. } => Some(*instance),
        What::Assigned { run, .. }
        | What::Requeued { run, .. }
        | What::Retried { run, .. }
        | What::RecomputationEnded { run, .. } => Some(run.instance),
        What::Ended(ended) => Some(ended.run.instance),
        What::DispatcherStarted { .. }
        | What::Waits(_)
        | What::Uses(_)
        | What::Reserves(_)
        | What::Moved { .. }
        | What::Sealed { .. }
        | What::Cancelling { .. }
        | What::ExecutorJoined { .. }
        | What::ExecutorGone { .. }
        | What::ExecutorSuspended { .. }
        | What::ExecutorDrained { .. }
        | What::Prioritized { .. }
        | What::Paused { .. }
        | What::Provisioned { .. }
        | What::Missing { .. } => None,
    }
}

#[cfg(test)]
mod tests;
