//! Tasks of a run that took place: when each came, how long it ran, how it ended.

use super::NodeGroup;
use super::needs::Needs;
use crate::time::Nanos;
use falkon_core::task::{MILLI, Resources};

/// Tasks that were recorded, in the order in which they came. Those that are alike are
/// stored as runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recorded {
    /// When tasks came: the number of the task behind the last of each run, and its time.
    arrivals: Vec<(u64, Nanos)>,
    /// What they did, likewise.
    ends: Vec<(u64, RecordedEnd)>,
    tasks: u64,
    /// Nanoseconds for which all ran.
    work: u128,
    /// The reservations of tasks, as runs like those before; tasks behind the last run reserve one
    /// CPU.
    reserved: Vec<(u64, Reserved)>,
    needs: Needs,
}

/// What a recorded task reserves, on each of its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// CPUs in thousandths.
    pub cpus_milli: u32,
    /// Whole GPUs.
    pub gpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// How many nodes run it together.
    pub nodes: u32,
}

impl Default for Reserved {
    fn default() -> Reserved {
        Reserved { cpus_milli: MILLI, gpus: 0, memory_bytes: 0, nodes: 1 }
    }
}

impl Reserved {
    /// As the core has it.
    #[must_use]
    pub fn resources(&self) -> Resources {
        let Reserved { cpus_milli, gpus, memory_bytes, .. } = *self;
        Resources { cpus_milli, gpus, memory_bytes, ..Resources::default() }
    }

    /// The CPUs of all its nodes, in thousandths.
    pub(crate) fn milli(&self) -> u64 {
        u64::from(self.cpus_milli) * u64::from(self.nodes)
    }
}

/// What a recorded task did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordedEnd {
    pub(crate) run: Nanos,
    pub(crate) succeeded: bool,
    /// How often it was tried before and failed, each time after as long.
    pub(crate) failures: u32,
}

impl Recorded {
    /// Appends tasks that came at `at`, ran for `run` each, and succeeded or not. No task
    /// comes before the one before it: `at` is raised to that one's time.
    pub fn add(&mut self, count: u64, at: Nanos, run: Nanos, succeeded: bool) {
        self.add_retried(count, at, run, succeeded, 0);
    }

    /// Appends tasks that were tried so often before and failed.
    pub fn add_retried(
        &mut self,
        count: u64,
        at: Nanos,
        run: Nanos,
        succeeded: bool,
        failures: u32,
    ) {
        if count == 0 {
            return;
        }
        self.tasks = self.tasks.saturating_add(count);
        let tries = u128::from(failures) + 1;
        self.work = self.work.saturating_add(u128::from(run.0) * u128::from(count) * tries);
        let at = self.arrivals.last().map_or(at, |(_, before)| at.max(*before));
        append(&mut self.arrivals, self.tasks, at);
        append(&mut self.ends, self.tasks, RecordedEnd { run, succeeded, failures });
    }

    /// The same tasks, which wait for others, and read and write objects.
    #[must_use]
    pub fn with_needs(self, needs: Needs) -> Recorded {
        Recorded { needs, ..self }
    }

    /// The same tasks, some of which reserve other than one CPU: rows of them, as (first,
    /// count), in their order.
    #[must_use]
    pub fn with_reserved(self, rows: impl IntoIterator<Item = (u64, u64, Reserved)>) -> Recorded {
        let mut reserved = Vec::new();
        let mut until = 0;
        for (first, count, of) in rows {
            // Rows that overlap are of events that nobody wrote.
            let end = first.saturating_add(count).min(self.tasks);
            let first = first.max(until);
            if first >= end {
                continue;
            }
            if first > until {
                append(&mut reserved, first, Reserved::default());
            }
            append(&mut reserved, end, of);
            until = end;
        }
        Recorded { reserved, ..self }
    }

    /// Whether any reserve other than one CPU.
    #[must_use]
    pub fn reserves(&self) -> bool {
        !self.reserved.is_empty()
    }

    /// What some tasks reserve and no node of these has, if there is such a thing.
    #[must_use]
    pub fn unfit(&self, nodes: &[NodeGroup]) -> Option<Reserved> {
        let rows = self.reserved.iter().map(|(_, of)| *of);
        let mut asked = rows.filter(|of| of.nodes > 0);
        asked.find(|of| !nodes.iter().any(|group| group.capacity().fits(&of.resources())))
    }

    /// On how many nodes all tasks run, if none shares its nodes.
    #[must_use]
    pub fn places(&self) -> u64 {
        let runs = self.reserved(0, self.tasks);
        runs.fold(0, |sum, (count, of)| sum.saturating_add(count.saturating_mul(of.nodes.into())))
    }

    /// What task `index` reserves.
    pub(crate) fn reserved_of(&self, index: u64) -> Reserved {
        let place = self.reserved.partition_point(|(end, _)| *end <= index);
        self.reserved.get(place).map(|(_, of)| *of).unwrap_or_default()
    }

    /// What the tasks from `first` on reserve, as runs of `count` tasks together.
    pub(crate) fn reserved(&self, first: u64, count: u64) -> impl Iterator<Item = (u64, Reserved)> {
        let end = first.saturating_add(count);
        let place = self.reserved.partition_point(|(last, _)| *last <= first);
        let rest = std::iter::once((u64::MAX, Reserved::default()));
        let mut from = first;
        self.reserved[place..].iter().copied().chain(rest).map_while(move |(last, of)| {
            let until = end.min(last);
            let run = until.checked_sub(from).filter(|run| *run > 0)?;
            from = until;
            Some((run, of))
        })
    }

    /// Their dependencies and objects.
    #[must_use]
    pub fn needs(&self) -> &Needs {
        &self.needs
    }

    /// How many tasks there are.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        self.tasks
    }

    /// How long a task ran on average, all its tries together.
    #[must_use]
    pub fn mean(&self) -> Nanos {
        Nanos((self.work / u128::from(self.tasks.max(1))) as u64)
    }

    /// For how long all tries of all tasks had slots, in seconds: a task has as many as CPUs on
    /// all of its nodes.
    #[must_use]
    pub fn work_s(&self) -> f64 {
        let mut milli = self.work.saturating_mul(u128::from(MILLI));
        let mut first = 0;
        for (end, did) in self.ends.iter().filter(|_| !self.reserved.is_empty()) {
            let tries = u128::from(did.failures) + 1;
            for (count, of) in self.reserved(first, end - first) {
                let time = u128::from(did.run.0) * u128::from(count) * tries;
                milli = milli.saturating_sub(time.saturating_mul(u128::from(MILLI)));
                milli = milli.saturating_add(time.saturating_mul(u128::from(of.milli())));
            }
            first = *end;
        }
        milli as f64 / f64::from(MILLI) / crate::time::SECOND_NANOS as f64
    }

    /// When the first task came.
    #[must_use]
    pub fn first_arrival(&self) -> Nanos {
        self.arrivals.first().map_or(Nanos(0), |(_, at)| *at)
    }

    /// The runs of tasks that came together: the number of the first, and when they came.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = (u64, Nanos)> + '_ {
        let firsts = std::iter::once(0).chain(self.arrivals.iter().map(|(end, _)| *end));
        firsts.zip(self.arrivals.iter().map(|(_, at)| *at))
    }

    /// Whether tasks were tried again.
    pub(crate) fn has_retries(&self) -> bool {
        self.ends.iter().any(|(_, end)| end.failures > 0)
    }

    /// How often the tasks from `first` on were tried and failed before their last try, as
    /// runs of at most `count` tasks together.
    pub(crate) fn failures(&self, first: u64, count: u64) -> impl Iterator<Item = (u64, u32)> {
        let end = first.saturating_add(count);
        let place = self.ends.partition_point(|(last, _)| *last <= first);
        let mut from = first;
        self.ends[place..].iter().map_while(move |(last, of)| {
            let until = end.min(*last);
            let run = until.checked_sub(from).filter(|run| *run > 0)?;
            from = until;
            Some((run, of.failures))
        })
    }

    /// Whether a try of task `index` succeeds; the first is 1.
    pub(crate) fn succeeds(&self, index: u64, attempt: u32) -> bool {
        let end = self.end_of(index);
        end.succeeded && attempt > end.failures
    }

    /// What task `index` did.
    pub(crate) fn end_of(&self, index: u64) -> RecordedEnd {
        let place = self.ends.partition_point(|(end, _)| *end <= index);
        self.ends[place].1
    }
}

/// Extends the last run to `end` if it is alike, or appends one.
fn append<T: PartialEq>(runs: &mut Vec<(u64, T)>, end: u64, value: T) {
    match runs.last_mut() {
        Some((last, same)) if *same == value => *last = end,
        _ => runs.push((end, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_are_alike_are_one_run() {
        let mut recorded = Recorded::default();
        recorded.add(1_000_000_000, Nanos(5), Nanos(7), true);
        recorded.add(0, Nanos(9), Nanos(9), false);
        recorded.add(10, Nanos(5), Nanos(7), true);
        recorded.add(2, Nanos(5), Nanos(7), false);
        recorded.add(1, Nanos(3), Nanos(8), true);
        assert_eq!((recorded.arrivals.len(), recorded.ends.len()), (1, 3));
        assert_eq!(recorded.tasks(), 1_000_000_013);
        assert_eq!(
            recorded.end_of(1_000_000_009),
            RecordedEnd { run: Nanos(7), succeeded: true, failures: 0 }
        );
        assert_eq!(
            recorded.end_of(1_000_000_010),
            RecordedEnd { run: Nanos(7), succeeded: false, failures: 0 }
        );
        assert_eq!(
            recorded.end_of(1_000_000_012),
            RecordedEnd { run: Nanos(8), succeeded: true, failures: 0 }
        );
        recorded.add(1, Nanos(6), Nanos(8), true);
        let arrivals: Vec<_> = recorded.arrivals().collect();
        assert_eq!(arrivals, [(0, Nanos(5)), (1_000_000_013, Nanos(6))]);
    }

    #[test]
    fn tasks_reserve_what_their_rows_say_and_others_one_cpu() {
        let mut recorded = Recorded::default();
        recorded.add(6, Nanos(0), Nanos(1_000_000_000), true);
        recorded.add(4, Nanos(0), Nanos(2_000_000_000), true);
        assert!((recorded.work_s() - 14.0).abs() < 1e-9);
        let wide = Reserved { cpus_milli: 2000, nodes: 3, ..Reserved::default() };
        let half = Reserved { cpus_milli: 500, ..Reserved::default() };
        let rows = [(2, 3, wide), (4, 4, half), (9, u64::MAX, wide)];
        let recorded = recorded.with_reserved(rows);
        let of = |index| recorded.reserved_of(index).milli();
        let all: Vec<u64> = (0..10).map(of).collect();
        assert_eq!(all, [1000, 1000, 6000, 6000, 6000, 500, 500, 500, 1000, 6000]);
        let runs: Vec<(u64, u64)> =
            recorded.reserved(1, 6).map(|(count, of)| (count, of.milli())).collect();
        assert_eq!(runs, [(1, 1000), (3, 6000), (2, 500)]);
        // 2 + 18 + 0.5 of the first, and 1 + 1 + 2 + 12 of the others.
        assert!((recorded.work_s() - 36.5).abs() < 1e-9, "{}", recorded.work_s());
    }
}
