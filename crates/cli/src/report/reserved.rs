//! How many slots tasks take.

use falkon_core::events::{Reserves, Run};
use falkon_core::task::{InstanceId, MILLI};
use std::collections::BTreeMap;

/// Rows of tasks that are told apart; tasks of further ones take one slot each.
const ROWS_MAX: usize = 1_000_000;

/// The CPUs of tasks that reserve other than one.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    /// By instance and first task: the number of tasks, and the CPUs of each in thousandths.
    rows: BTreeMap<(InstanceId, u64), (u64, u64)>,
}

impl Reserved {
    pub(super) fn add(&mut self, reserves: &Reserves) {
        let Run { instance, first, count } = reserves.run;
        if self.rows.len() < ROWS_MAX {
            self.rows.insert((instance, first.0), (count, reserves.cpus_milli()));
        }
    }

    /// The slots that each task of a run takes, in thousandths.
    pub(super) fn slots_milli(&self, run: &Run) -> u64 {
        let before = self.rows.range(..=(run.instance, run.first.0)).next_back();
        let found = before.filter(|((instance, first), (count, _))| {
            *instance == run.instance && run.first.0 - first < *count
        });
        found.map_or(u64::from(MILLI), |(_, (_, milli))| *milli)
    }
}
