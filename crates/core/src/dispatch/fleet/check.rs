//! What must hold of executors and of the lists that they stand in.

use super::{Executor, Fleet};
use crate::dispatch::check::{CheckError, ensure};
use crate::dispatch::needs::Needs;
use std::collections::BTreeMap;

impl Fleet {
    /// Executors have no more than their room, and are listed only where they
    /// belong.
    pub(in crate::dispatch) fn check(&self, needs: &Needs) -> Result<(), CheckError> {
        let are_sent = self.orders.is_sound(|id| self.roster.contains_key(id));
        ensure!(are_sent, "an order waits that is never sent, or is for nobody");
        for executor in self.roster.values() {
            check_tasks(executor, needs)?;
            let id = executor.id;
            let listed = self.reserved.contains(&id);
            ensure!(listed == executor.reserved.is_some(), "executor {id}: misreserved");
            let kept = self.kept.contains(&id);
            ensure!(kept == executor.kept_until.is_some(), "executor {id}: kept, or not");
            let Some(connection) = executor.connection else { continue };
            let mine = self.registry.of(connection) == Some(id);
            ensure!(mine, "executor {id} is connected but not listed");
        }
        for (turn, id) in &self.available {
            let turned = self.roster.find(id).is_some_and(|found| found.turn == Some(*turn));
            ensure!(turned, "executor {id} is available under a stale turn");
        }
        for id in self.new_room.iter().chain(&self.reserved).chain(&self.kept) {
            ensure!(self.contains(*id), "executor {id} is gone and listed");
        }
        let outlived = self.registry.ids().find(|id| !self.roster.contains_key(id));
        ensure!(outlived.is_none(), "a connection or incarnation outlives executor {outlived:?}");
        let busy = self.roster.values().filter(|executor| executor.is_busy).count() as u64;
        ensure!(busy == self.busy.executors, "{busy} executors are busy, not {}", self.busy());
        ensure!(
            self.served.is_none(),
            "executor {:?} was given tasks and is not listed",
            self.served
        );
        Ok(())
    }

    /// What holds where there are no tasks.
    pub(in crate::dispatch) fn check_without_tasks(&self) -> Result<(), CheckError> {
        ensure!(self.prefetched.is_empty(), "tasks that are gone are prefetched");
        ensure!(self.reserved.is_empty(), "an executor is emptied for nothing");
        ensure!(self.kept.is_empty(), "an executor is kept for nothing");
        let reserved = self.roster.values().any(|executor| executor.reserved.is_some());
        ensure!(!reserved, "emptied for nothing");
        Ok(())
    }

    /// What holds once all that follows from an event has been done: executors
    /// are listed where they belong, and whoever is to be told something is.
    pub(in crate::dispatch) fn check_quiescent(&self) -> Result<(), CheckError> {
        for executor in self.roster.values() {
            let id = executor.id;
            let is_told = executor.connection.is_none()
                || executor.order.is_empty()
                || self.orders.is_later(id);
            ensure!(is_told, "executor {id}: an order that is never sent");
            if !self.new_room.contains(&id) {
                self.check_listed(executor)?;
            }
        }
        let available = self.roster.values().filter(|found| found.turn.is_some()).count();
        ensure!(available == self.available.len(), "executors are available under two turns");
        let ahead = self.roster.values().filter(|found| found.prefetched_key.is_some()).count();
        ensure!(
            ahead == self.prefetched.len(),
            "executors are listed twice with what they wait for"
        );
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

/// An executor's loads are those of its tasks, and hold what is not free.
fn check_tasks(executor: &Executor, needs: &Needs) -> Result<(), CheckError> {
    let id = executor.id;
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for ((_, first), run) in executor.in_flight.iter() {
        ensure!(*first == run.first, "executor {id}: misfiled run {first}");
        *counts.entry(run.need).or_default() += run.count;
    }
    let mut free = executor.capacity.clone();
    for resources in executor.gangs.values() {
        ensure!(free.fits(resources), "executor {id}: gangs have more than its room");
        free.take(resources, 1);
    }
    for (need, load) in executor.loads.iter() {
        let resources = &needs[need].resources;
        let fits = free.count_of(resources, load.slotted);
        ensure!(fits == load.slotted, "executor {id} has more than its room");
        free.take(resources, load.slotted);
        let counted = counts.remove(&need) == Some(load.slotted + load.prefetched + load.resting);
        ensure!(counted, "executor {id}: load and tasks in flight differ");
    }
    ensure!(counts.is_empty(), "executor {id}: tasks without load");
    executor.loads.check()?;
    ensure!(free == executor.free, "executor {id}: free room is miscounted");
    Ok(())
}
