//! Cancellation: queued tasks end at once, running ones are stopped.

use super::{Dispatcher, Held, Record, RequestError};
use crate::result::Outcome;
use crate::task::InstanceId;

/// Tasks of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All of them; the instance takes no more.
    All,
    /// Runs of (first, count).
    Runs(Vec<(u64, u64)>),
}

impl Dispatcher {
    pub(super) fn cancel(
        &mut self,
        id: InstanceId,
        selection: &Selection,
    ) -> Result<(), RequestError> {
        let instance = self.instances.get_mut(&id).ok_or(RequestError::NoInstance(id))?;
        let asked = match selection {
            Selection::All => vec![(0, instance.total)],
            Selection::Runs(runs) => runs.clone(),
        };
        let mut runs = Vec::new();
        for (first, count) in asked {
            let count = count.min(instance.total.saturating_sub(first));
            if count > 0 {
                runs.extend(instance.finished.gaps(first, count));
            }
        }
        self.journal(Record::Cancelled { instance: id, runs: runs.clone() });
        self.mark_cancelled(id, &runs);
        for (first, count) in runs {
            self.end_queued(id, first, count);
            self.stop_in_flight(id, first, count);
        }
        if *selection == Selection::All {
            self.seal(id)?;
        }
        self.to_deliver.insert(id);
        self.unplaced = true;
        Ok(())
    }

    /// Notes that these tasks are to be cancelled however they come back.
    pub(super) fn mark_cancelled(&mut self, id: InstanceId, runs: &[(u64, u64)]) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        for &(first, count) in runs {
            for (first, count) in instance.finished.gaps(first, count) {
                instance.cancelling.insert(first, count);
            }
        }
    }

    /// Ends the waiting and ready ones of these tasks.
    pub(super) fn end_queued(&mut self, id: InstanceId, first: u64, count: u64) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let waiting: Vec<u64> =
            instance.missing.range(first..first + count).map(|(task, _)| *task).collect();
        for task in &waiting {
            instance.missing.remove(task);
        }
        let ready = instance.remove_ready(first, count);
        for task in waiting {
            self.end_unrun(id, task, 1, Outcome::Cancelled);
        }
        for run in ready {
            self.end_unrun(id, run.first, run.count, Outcome::Cancelled);
        }
        self.refresh_hungry(id);
    }

    fn stop_in_flight(&mut self, id: InstanceId, first: u64, count: u64) {
        let end = first + count;
        for executor in self.executors.values_mut() {
            let mine: Vec<Held> = executor
                .held()
                .filter(|held| held.instance == id)
                .filter(|held| held.first.0 < end && held.first.0 + held.count > first)
                .collect();
            for held in mine {
                let from = held.first.0.max(first);
                let until = (held.first.0 + held.count).min(end);
                let part = Held { first: crate::task::TaskId(from), count: until - from, ..held };
                executor.order.cancel.push(part);
                self.ordered.insert(executor.id);
            }
        }
    }
}
