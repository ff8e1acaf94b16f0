//! Cancellation: queued tasks end at once, running ones are stopped.

use super::instance::Instance;
use super::{Dispatcher, Record, RequestError};
use crate::limits::RECORD_RUNS_MAX;
use crate::result::{Outcome, Tries};
use crate::runset::RunSet;
use crate::task::InstanceId;

/// Tasks of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All of them; the instance takes no more.
    All,
    /// Runs of (first, count).
    Runs(Vec<(u64, u64)>),
}

/// The runs of a set, in parts that fit a record each.
pub(super) fn records_of(set: &RunSet) -> Vec<Vec<(u64, u64)>> {
    let mut runs = set.iter().peekable();
    let mut parts = Vec::new();
    while runs.peek().is_some() {
        parts.push(runs.by_ref().take(RECORD_RUNS_MAX).collect());
    }
    parts
}

impl Dispatcher {
    pub(super) fn cancel(
        &mut self,
        id: InstanceId,
        selection: &Selection,
    ) -> Result<(), RequestError> {
        let instance = self.instances.find_mut(&id).ok_or(RequestError::NoInstance(id))?;
        let asked = match selection {
            Selection::All => &[(0, instance.tasks.total())][..],
            Selection::Runs(runs) => runs,
        };
        // A task that is named many times is looked up once.
        let mut named = RunSet::default();
        for (first, count) in asked {
            named.insert(*first, (*count).min(instance.tasks.total().saturating_sub(*first)));
        }
        let mut wanted = RunSet::default();
        for (first, count) in named.iter() {
            for (first, count) in instance.tasks.unended(first, count) {
                wanted.insert(first, count);
            }
        }
        for runs in records_of(&wanted) {
            self.journal(Record::Cancelled { instance: id, runs });
        }
        self.stop_copies(id, &wanted);
        self.mark_cancelled(id, &wanted);
        self.end_queued(id, &wanted);
        // All that has not ended by now is at executors.
        let left = |instance: &Instance| {
            let ended = |(first, count)| instance.tasks.unended(first, count);
            wanted.iter().flat_map(ended).map(|(_, count)| count).sum::<u64>()
        };
        let left = left(&self.instances[&id]);
        self.fleet.cancel(id, &wanted, left);
        if *selection == Selection::All {
            self.seal(id)?;
        }
        self.outbound.mark(id);
        self.unplaced = true;
        Ok(())
    }

    /// Takes up to `count` tasks back that no executor has, the last in their queues
    /// first, in at most `runs_max` runs: they end as cancelled. Returns which. There are
    /// none while executors may come back with them.
    pub(super) fn withdraw_ready(
        &mut self,
        id: InstanceId,
        count: u64,
        runs_max: usize,
    ) -> Result<Vec<(u64, u64)>, RequestError> {
        let instance = self.instances.find(&id).ok_or(RequestError::NoInstance(id))?;
        let mut wanted = RunSet::default();
        if self.comeback.until().is_none() {
            let mut left = count;
            for (key, queue) in instance.queues.iter() {
                let runs: Vec<_> = queue.runs().map(|run| (run.first, run.count)).collect();
                // Tasks whose data decides where they run stand in another line.
                let placed = self.placement.tasks_of((id, key)).rev().map(|(task, _)| (task, 1));
                for (first, there) in placed.chain(runs.into_iter().rev()) {
                    if left == 0 || wanted.run_count() >= runs_max {
                        break;
                    }
                    let taken = there.min(left);
                    wanted.insert(first + there - taken, taken);
                    left -= taken;
                }
            }
        }
        for runs in records_of(&wanted) {
            self.journal(Record::Cancelled { instance: id, runs });
        }
        self.end_queued(id, &wanted);
        self.outbound.mark(id);
        self.unplaced = true;
        Ok(wanted.iter().collect())
    }

    /// Cancels the rest of instances that are to end with the first failure,
    /// and have had it.
    pub(super) fn fail_fast(&mut self) {
        let ids: Vec<InstanceId> =
            self.outbound.marked().filter(|id| self.instances[id].failed_fast).collect();
        for id in ids {
            let instance = &mut self.instances[&id];
            instance.failed_fast = false;
            if instance.is_complete() {
                continue;
            }
            // The instance is there, which is all that cancelling asks for.
            let _ = self.cancel(id, &Selection::All);
        }
    }

    /// Notes that these tasks are to be cancelled however they come back.
    pub(super) fn mark_cancelled(&mut self, id: InstanceId, wanted: &RunSet) {
        self.instances[&id].tasks.mark_cancelling(wanted);
    }

    /// Ends the waiting and ready ones of these tasks.
    pub(super) fn end_queued(&mut self, id: InstanceId, wanted: &RunSet) {
        let instance = &mut self.instances[&id];
        // All of them are taken out before the first ends, so that those that
        // wait for one another are cancelled as asked rather than failed.
        let mut waiting = Vec::new();
        for (first, count) in wanted.iter() {
            waiting.extend(instance.tasks.waiting(first, count));
        }
        let tries: Vec<Tries> =
            waiting.iter().map(|task| instance.tasks.release(*task).unwrap_or_default()).collect();
        let ready = instance.remove_ready(&self.needs, &mut self.placement, wanted);
        for (task, tries) in waiting.into_iter().zip(tries) {
            self.end_unrun(id, (task, 1), Outcome::Cancelled, tries);
        }
        for run in ready {
            // What an executor had before a restart may have begun there.
            for (first, count, had) in self.attempts.split(id, &run) {
                let losses = run.tries.losses.saturating_add(u32::from(had));
                let tries = Tries { losses, ..run.tries };
                self.end_unrun(id, (first, count), Outcome::Cancelled, tries);
            }
        }
        self.runnable.mark(id);
    }
}
