//! What always holds, for tests and the simulator.

use super::{Provisioner, QueueId};

/// What does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CheckError(String);

impl Provisioner {
    /// Whether books are in order. Whether bounds are kept is for whoever knows
    /// what LRMs have: found allocations may exceed them.
    ///
    /// # Errors
    /// The defect.
    pub fn check(&self) -> Result<(), CheckError> {
        let wrong = |what: String| Err(CheckError(what));
        for one in self.allocations.values() {
            if !self.queues.contains_key(&one.queue) {
                return wrong(format!("allocation {} is of a queue that is gone", one.id));
            }
            if one.id.0 >= self.next_allocation {
                return wrong(format!("allocation {} has a number to come", one.id));
            }
            if self.losses.contains(one.id) {
                return wrong(format!("allocation {} is given up and there", one.id));
            }
            for id in &one.executors {
                let of = self.members.get(id).and_then(|member| member.allocation);
                if of != Some(one.id) {
                    return wrong(format!("executor {id} is not of allocation {}", one.id));
                }
            }
            if !one.released.is_subset(&one.executors) {
                return wrong(format!("allocation {}: executors are released twice", one.id));
            }
            if one.ending && one.released.len() < one.executors.len() && one.cancelling.is_none() {
                return wrong(format!("allocation {} ends, and its executors stay", one.id));
            }
        }
        for (id, member) in &self.members {
            let one = member.allocation.and_then(|one| self.allocations.get(&one));
            if one.is_some_and(|one| !one.executors.contains(id)) {
                return wrong(format!("executor {id} is missing in its allocation"));
            }
        }
        for id in self.queues.keys() {
            self.check_queue(*id)?;
        }
        Ok(())
    }

    fn check_queue(&self, id: QueueId) -> Result<(), CheckError> {
        let Some(queue) = self.queues.get(&id) else { return Ok(()) };
        match queue.options.check() {
            Ok(()) => Ok(()),
            Err(error) => Err(CheckError(format!("queue {id}: {error}"))),
        }
    }
}
