//! That work goes on: nobody waits while somebody could run something.

use super::{CheckError, ensure};
use crate::dispatch::Dispatcher;
use crate::dispatch::needs::NeedId;

impl Dispatcher {
    /// Where an executor is idle, no task waits that it could run, unless something
    /// is under way for it.
    pub(super) fn check_progress(&self) -> Result<(), CheckError> {
        let free = self.fleet.available().any(|id| self.fleet[id].has_nothing());
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
            executor.has_nothing() && executor.connection.is_some() && !executor.leaving
        });
        let runs_somewhere = |need: NeedId, lasts_micros: u64| {
            let need = &self.needs[need];
            let able = self.fleet.iter().filter(|found| {
                found.takes_tasks() && found.offers(need) && found.outlasts(self.now, lasts_micros)
            });
            let nodes = need.nodes as usize;
            able.take(nodes).count() == nodes
                && !(need.is_gang() && self.gangs.are_tokens_on_their_way())
        };
        is_idle
            && !self.placement.is_anything_coming()
            && (self.own_task_waits_in_vain()
                || self.runnable.ids().any(|id| {
                    let instance = &self.instances[&id];
                    let mut ready = instance.queues.iter().filter(|(_, queue)| queue.len > 0);
                    ready.any(|((_, need), queue)| {
                        let lasts = queue.lasts(&instance.batches);
                        runs_somewhere(need, lasts.unwrap_or(0))
                    })
                }))
    }
}
