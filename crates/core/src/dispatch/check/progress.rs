//! That work goes on: nobody waits while somebody could run something.

use super::{CheckError, ensure};
use crate::dispatch::Dispatcher;
use crate::dispatch::needs::NeedId;

impl Dispatcher {
    /// Where an executor is idle, no task waits that it could run, unless something
    /// is under way for it.
    pub(super) fn check_progress(&self) -> Result<(), CheckError> {
        let free = self.fleet.available().any(|id| self.fleet[id].in_flight.is_empty());
        ensure!(
            !free
                || self.has_unplaced()
                || self.comeback.until().is_some()
                || !self.waits_in_vain(),
            "tasks wait, and nothing is under way"
        );
        Ok(())
    }

    /// Whether nobody has anything to do, although tasks are ready that some
    /// idle executor could run.
    fn waits_in_vain(&self) -> bool {
        let is_idle = self.fleet.iter().all(|executor| {
            executor.in_flight.is_empty() && executor.connection.is_some() && !executor.leaving
        });
        let runs_somewhere = |need: NeedId, lasts_micros: u64| {
            let need = &self.needs[need];
            self.fleet.iter().any(|found| {
                found.takes_tasks() && found.offers(need) && found.outlasts(self.now, lasts_micros)
            })
        };
        is_idle
            && !self.placement.is_anything_coming()
            && (self.own_task_waits_in_vain()
                || self.runnable.ids().any(|id| {
                    let instance = &self.instances[&id];
                    let mut ready = instance.queues.iter().filter(|(_, queue)| queue.len > 0);
                    ready.any(|((_, need), queue)| {
                        let lasts = queue.user_estimate(&instance.batches);
                        runs_somewhere(need, lasts.unwrap_or(0))
                    })
                }))
    }
}
