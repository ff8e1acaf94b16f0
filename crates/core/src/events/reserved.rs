//! How many slots tasks take.

use super::{Reserves, Run};
use crate::task::{InstanceId, MILLI};
use std::collections::BTreeMap;

/// Rows of tasks that are told apart; tasks of further ones take one slot each.
const ROWS_MAX: usize = 1_000_000;

/// The CPUs of tasks that reserve other than one.
#[derive(Debug, Clone, Default)]
pub struct Reserved {
    /// By instance and first task: the number of tasks, and the CPUs of each in thousandths.
    rows: BTreeMap<(InstanceId, u64), (u64, u64)>,
}

impl Reserved {
    /// Takes in what tasks in a row reserve.
    pub fn add(&mut self, reserves: &Reserves) {
        let Run { instance, first, count } = reserves.run;
        if self.rows.len() < ROWS_MAX {
            self.rows.insert((instance, first.0), (count, reserves.cpus_milli()));
        }
    }

    /// An instance is gone: nothing more is asked about its tasks.
    pub(super) fn forget(&mut self, instance: InstanceId) {
        if !self.rows.is_empty() {
            self.rows.retain(|(of, _), _| *of != instance);
        }
    }

    /// The slots that each task of a run takes, all of which reserve alike, in thousandths.
    #[must_use]
    pub fn slots_milli(&self, run: &Run) -> u64 {
        let before = self.rows.range(..=(run.instance, run.first.0)).next_back();
        let found = before.filter(|((instance, first), (count, _))| {
            *instance == run.instance && run.first.0 - first < *count
        });
        found.map_or(u64::from(MILLI), |(_, (_, milli))| *milli)
    }

    /// The slots that each task takes, in thousandths, if all take as many.
    pub(super) fn each_milli(&self) -> Option<u64> {
        self.rows.is_empty().then_some(u64::from(MILLI))
    }

    /// The slots that all tasks of a run take together, in thousandths.
    #[must_use]
    pub fn all_milli(&self, run: &Run) -> u128 {
        let one = u128::from(MILLI);
        let Run { instance, first, count } = *run;
        let mut sum = u128::from(count) * one;
        if self.rows.is_empty() {
            return sum;
        }
        let end = first.0.saturating_add(count);
        // The row before may reach into the run.
        let from = self.rows.range(..=(instance, first.0)).next_back();
        let from = from.map_or((instance, first.0), |(key, _)| *key);
        for ((of, begins), (many, milli)) in self.rows.range(from..(instance, end)) {
            let from = first.0.max(*begins);
            let until = end.min(begins.saturating_add(*many));
            if *of == instance && from < until {
                let tasks = u128::from(until - from);
                sum = sum - tasks * one + tasks * u128::from(*milli);
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Resources, TaskId};

    fn run(instance: u64, first: u64, count: u64) -> Run {
        Run { instance: InstanceId(instance), first: TaskId(first), count }
    }

    #[test]
    fn tasks_take_what_their_rows_reserve_on_all_of_their_nodes() {
        let mut reserved = Reserved::default();
        assert_eq!(reserved.all_milli(&run(1, 0, 7)), 7000);
        for (first, count, cpus, nodes) in [(10, 5, 2, 1), (20, 10, 1, 4)] {
            let (run, resources) = (run(1, first, count), Resources::cpus(cpus));
            reserved.add(&Reserves { run, resources, nodes });
        }
        let each = |task| reserved.slots_milli(&run(1, task, 1));
        for (first, count) in [(0, 40), (12, 1), (12, 20), (9, 2), (30, 5), (15, 5), (0, u64::MAX)]
        {
            let upto = count.min(100);
            let rest = u128::from(count - upto) * 1000;
            let sum: u64 = (first..first + upto).map(each).sum();
            assert_eq!(reserved.all_milli(&run(1, first, count)), u128::from(sum) + rest);
        }
        assert_eq!(reserved.all_milli(&run(2, 10, 5)), 5000);
        reserved.forget(InstanceId(1));
        assert_eq!(reserved.all_milli(&run(1, 10, 5)), 5000);
    }
}
