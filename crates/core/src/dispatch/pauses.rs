//! What people hold up, until they let it go on: instances whose tasks are not
//! dispatched, and executors that are given none. What runs goes on.

use super::{Dispatcher, Record, RequestError};
use crate::events::What;
use crate::task::{ExecutorId, InstanceId};
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Pauses {
    paused: BTreeSet<InstanceId>,
    /// By incarnation: an executor that connects anew stays drained.
    drained: BTreeSet<u64>,
}

impl Pauses {
    /// Whether no task of an instance is dispatched.
    pub(super) fn is_paused(&self, instance: InstanceId) -> bool {
        self.paused.contains(&instance)
    }

    /// Whether an executor is given no tasks.
    pub(super) fn is_drained(&self, incarnation: u64) -> bool {
        self.drained.contains(&incarnation)
    }

    /// Pauses an instance or resumes it. Returns whether that changes anything.
    pub(super) fn pause(&mut self, instance: InstanceId, is_paused: bool) -> bool {
        match is_paused {
            true => self.paused.insert(instance),
            false => self.paused.remove(&instance),
        }
    }

    /// Drains an executor or ends that. Returns whether that changes anything.
    pub(super) fn drain(&mut self, incarnation: u64, is_drained: bool) -> bool {
        match is_drained {
            true => self.drained.insert(incarnation),
            false => self.drained.remove(&incarnation),
        }
    }

    /// An instance is gone.
    pub(super) fn forget_instance(&mut self, instance: InstanceId) {
        self.paused.remove(&instance);
    }

    /// An executor does not come back.
    pub(super) fn forget_executor(&mut self, incarnation: u64) {
        self.drained.remove(&incarnation);
    }

    /// What a snapshot says of them.
    pub(super) fn snapshot(&self) -> impl Iterator<Item = Record> {
        let paused = self.paused.iter();
        let paused = paused.map(|id| Record::Paused { instance: *id, is_paused: true });
        let drained = self.drained.iter().copied();
        let drained = drained.map(|incarnation| Record::Drained { incarnation, is_drained: true });
        paused.chain(drained)
    }
}

impl Dispatcher {
    /// Pauses an instance: none of its tasks is dispatched until it is resumed. Tasks
    /// that executors have end as if nothing had happened.
    pub(super) fn pause(&mut self, id: InstanceId, is_paused: bool) -> Result<(), RequestError> {
        if !self.instances.contains(&id) {
            return Err(RequestError::NoInstance(id));
        }
        if self.pauses.pause(id, is_paused) {
            self.journal(Record::Paused { instance: id, is_paused });
            self.runnable.mark(id);
            self.unplaced = true;
        }
        Ok(())
    }

    /// Gives an instance a priority: it goes before all that have less. What executors
    /// have stays there.
    pub(super) fn prioritize(&mut self, id: InstanceId, priority: i32) -> Result<(), RequestError> {
        let instance = self.instances.find_mut(&id).ok_or(RequestError::NoInstance(id))?;
        if instance.share.prioritize(priority) {
            self.journal(Record::Prioritized { instance: id, priority });
            self.runnable.mark(id);
            self.unplaced = true;
        }
        Ok(())
    }

    /// Drains an executor: it gives back what it has not started, and is given no more
    /// until that ends.
    pub(super) fn drain_executor(
        &mut self,
        id: ExecutorId,
        is_drained: bool,
    ) -> Result<(), RequestError> {
        if !self.fleet.contains(id) {
            return Err(RequestError::NoExecutor(id));
        }
        let incarnation = self.fleet[id].incarnation;
        if self.pauses.drain(incarnation, is_drained) {
            self.journal(Record::Drained { incarnation, is_drained });
            self.happenings.note(|| What::ExecutorDrained { executor: id, is_drained });
            self.fleet.set_drained(id, is_drained, self.now);
            self.unplaced = true;
        }
        Ok(())
    }

    /// An executor that has connected anew is drained if it was before.
    pub(super) fn drain_again(&mut self, id: ExecutorId) {
        if self.pauses.is_drained(self.fleet[id].incarnation) {
            self.fleet.set_drained(id, true, self.now);
        }
    }
}
