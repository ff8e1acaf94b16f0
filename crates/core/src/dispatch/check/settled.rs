//! Invariants that hold once all that follows from an event has been done.

use super::{CheckError, ensure};
use crate::dispatch::executor::Executor;
use crate::dispatch::{Dispatcher, Order};

impl Dispatcher {
    /// Executors are listed where they belong, and whoever is to be told
    /// something is.
    pub(super) fn check_settled(&self) -> Result<(), CheckError> {
        if !self.actions.is_empty() || !self.orders.is_sent() || self.unplaced {
            return Ok(());
        }
        for executor in self.executors.values() {
            let id = executor.id;
            let is_told = executor.connection.is_none()
                || executor.order == Order::default()
                || self.orders.is_later(id);
            ensure!(is_told, "executor {id}: an order that is never sent");
            if !self.fresh.contains(&id) {
                self.check_listed(executor)?;
            }
        }
        let available = self.executors.values().filter(|found| found.turn.is_some()).count();
        ensure!(available == self.available.len(), "executors are available under two turns");
        let ahead = self.executors.values().filter(|found| found.prefetched_key.is_some()).count();
        ensure!(
            ahead == self.prefetched.len(),
            "executors are listed twice with what they wait for"
        );
        for instance in self.instances.values() {
            let is_over = instance.finished.len() == instance.total;
            let is_idle = instance.ready == 0 && instance.dispatched == 0;
            ensure!(!is_over || is_idle, "instance {}: a task runs again for nobody", instance.id);
        }
        Ok(())
    }

    /// An executor is available if it has a free processor, or none at all, and
    /// listed with what was sent ahead to it.
    fn check_listed(&self, executor: &Executor) -> Result<(), CheckError> {
        let id = executor.id;
        let has_room = executor.free.cpus_milli > 0 || executor.capacity.cpus_milli == 0;
        let is_available = executor.takes_tasks() && has_room;
        ensure!(executor.turn.is_some() == is_available, "executor {id}: available, or not");
        let listed = executor.turn.is_none_or(|turn| self.available.get(&turn) == Some(&id));
        ensure!(listed, "executor {id} is available and not listed");
        let waiting = executor.loads.waiting();
        let key = (waiting > 0 && executor.takes_tasks()).then_some(waiting);
        ensure!(executor.prefetched_key == key, "executor {id}: what waits there is miscounted");
        let listed = key.is_none_or(|key| self.prefetched.contains(&(key, id)));
        ensure!(listed, "executor {id} is not listed with what waits there");
        Ok(())
    }
}
