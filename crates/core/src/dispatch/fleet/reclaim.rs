//! Tasks that were sent ahead to an executor that is out of reach.

use super::Fleet;
use super::executor::InFlight;
use crate::dispatch::Held;
use crate::dispatch::needs::Needs;
use crate::limits::PREFETCH_TASK_MICROS_MAX;
use crate::task::{ExecutorId, InstanceId, TaskId, Time};
use std::cmp::Reverse;

impl Fleet {
    /// Takes the tasks that were sent ahead, those that were sent last first, from an executor
    /// that is out of reach, if its tasks are long: it cannot have begun so many, and others may
    /// have room for them before it is back or given up. Tasks that may not be lost once more
    /// stay.
    pub(in crate::dispatch) fn reclaim_ahead(
        &mut self,
        id: ExecutorId,
        needs: &Needs,
        now: Time,
    ) -> Vec<(InstanceId, InFlight)> {
        let executor = &mut self.roster[id];
        if executor.prefetched() == 0 {
            return Vec::new();
        }
        let runs = executor.in_flight.iter().filter(|(_, run)| run.counted().lost().is_some());
        let mut runs: Vec<(Reverse<Time>, Reverse<u64>, InstanceId)> = runs
            .filter(|(_, run)| run.holds_room())
            .map(|((instance, first), run)| (Reverse(run.dispatched), Reverse(*first), *instance))
            .collect();
        runs.sort_unstable();
        let mut reclaimed = Vec::new();
        for (_, Reverse(first), instance) in runs {
            let Some(run) = executor.in_flight.find(&(instance, first)) else { continue };
            let load = executor.loads.of(run.need);
            let count = run.count.min(load.prefetched);
            if count == 0 || executor.run_micros(run.need, needs) <= PREFETCH_TASK_MICROS_MAX {
                continue;
            }
            let (first, tries) = (TaskId(first + run.count - count), run.tries);
            for run in executor.take(&Held { instance, first, count, tries }) {
                executor.release(needs, &run, true);
                reclaimed.push((instance, run));
            }
        }
        self.list(id, now);
        reclaimed
    }
}
