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

impl Processors {
    fn add(&mut self, levels: &Levels, micros: u64) {
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

/// How a run went over time.
#[derive(Debug, Clone)]
pub struct History {
    tally: Tally,
    levels: Levels,
    /// Up to when levels are accounted for.
    until: Option<Time>,
    scales: [Scale; SCALES_MICROS.len()],
}

impl Default for History {
    fn default() -> History {
        let scale = |micros| Scale { micros, first: 0, intervals: VecDeque::new() };
        let scales = SCALES_MICROS.map(scale);
        History { tally: Tally::default(), levels: Levels::default(), until: None, scales }
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
                self.show_levels();
                return;
            }
            What::Submitted { count, .. } => {
                self.each(event.at, |interval| interval.submitted += count);
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
        self.show_levels();
    }

    /// Time has gone on to `now` without another event.
    pub fn advance(&mut self, now: Time) {
        if self.until == Some(now) {
            return;
        }
        let levels = self.levels;
        let since = self.until.unwrap_or(now);
        for scale in &mut self.scales {
            scale.advance(now, levels);
            scale.spread(since, now, |interval, micros| interval.processors.add(&levels, micros));
        }
        self.until = Some(now.max(since));
    }

    /// What all events add up to, without the instances and executors that are gone.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The intervals of the scale at a place of [`SCALES_MICROS`], from the first to the last,
    /// which is not over: when each begins, and what happened in it.
    pub fn intervals(&self, scale: usize) -> impl Iterator<Item = (Time, &Interval)> {
        let found = self.scales.get(scale).into_iter();
        found.flat_map(|scale| {
            let begins = (scale.first..).map(|number| Time(number * scale.micros));
            begins.zip(&scale.intervals)
        })
    }

    fn each(&mut self, at: Time, mut change: impl FnMut(&mut Interval)) {
        self.scales.iter_mut().filter_map(|scale| scale.at(at)).for_each(&mut change);
    }

    fn ended(&mut self, at: Time, ended: &Ended) {
        let count = ended.run.count;
        let times = u128::from(count);
        self.each(at, |interval| {
            interval.ended.end(ended.outcome.status(), count);
            interval.staging_micros += u128::from(ended.staging_micros) * times;
            interval.usage.add(&ended.usage);
        });
        let milli = self.tally.all_milli(&ended.run);
        for scale in &mut self.scales {
            let ran = |interval: &mut Interval, micros: u64| {
                interval.processors.ran += u128::from(micros) * milli;
            };
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

    fn show_levels(&mut self) {
        for scale in &mut self.scales {
            if let Some(last) = scale.intervals.back_mut() {
                last.levels = self.levels;
            }
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
mod tests {
    use super::*;
    use crate::events::{Reserves, Run};
    use crate::result::Outcome;
    use crate::task::{ExecutorId, MILLI, Resources, TaskId};

    /// Two tasks of two CPUs on an executor of eight: half of it has tasks, not a quarter.
    #[test]
    fn tasks_take_the_processors_that_they_reserve() {
        let run = Run { instance: InstanceId(0), first: TaskId(0), count: 2 };
        let executor = ExecutorId(1);
        let at = |seconds: u64| Time(1_000_000_000 + seconds * 1_000_000);
        let name: std::sync::Arc<str> = "node".into();
        let joined = What::ExecutorJoined {
            executor,
            name,
            capacity: Resources::cpus(8),
            cache_bytes: 0,
            allocation: None,
        };
        let command = "work".into();
        let submitted =
            What::Submitted { instance: run.instance, first: run.first, count: 2, command };
        let (resources, nodes) = (Resources::cpus(2), 1);
        let reserves = What::Reserves(Reserves { run, resources, nodes });
        let ended = Ended {
            run,
            outcome: Outcome::Exit(0),
            executor: Some(executor),
            attempts: 1,
            queued: at(0),
            dispatched: at(0),
            started: at(1),
            ended: at(3),
            staging_micros: 0,
            usage: Usage::default(),
            error: None,
        };
        let mut history = History::default();
        for (seconds, what) in [
            (0, joined),
            (0, submitted),
            (0, reserves),
            (1, What::Assigned { run, executor, attempt: 1 }),
            (3, What::Ended(ended)),
        ] {
            history.add(&Event { at: at(seconds), what });
        }
        history.advance(at(4));
        let second = u128::from(MILLI) * 1_000_000;
        let found: Vec<Processors> =
            history.intervals(0).take(4).map(|(_, interval)| interval.processors).collect();
        let of = |taken, ran, idle_while_waiting| Processors {
            offered: 8 * second,
            taken: taken * second,
            idle_while_waiting: idle_while_waiting * second,
            ran: ran * second,
        };
        assert_eq!(found, [of(0, 0, 8), of(4, 4, 0), of(4, 4, 0), of(0, 0, 0)]);
    }
}
