//! Tasks of a run that took place: when each came, how long it ran, how it ended.

use super::needs::Needs;
use crate::time::Nanos;

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
    needs: Needs,
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

    /// How long all tries of all tasks ran together, in seconds.
    #[must_use]
    pub fn work_s(&self) -> f64 {
        self.work as f64 / crate::time::SECOND_NANOS as f64
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
}
