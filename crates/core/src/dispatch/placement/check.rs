//! The state checker of data and of the tasks that it decides about.

use super::queues::QueueId;
use super::readership::Readership;
use super::{CheckError, Instances, Placement, ensure};
use crate::dispatch::fleet::Fleet;
use crate::dispatch::instance::Instance;
use crate::task::TaskId;
use std::collections::BTreeMap;

impl Placement {
    /// The index wants what waiting tasks read, and no more; every queue that
    /// data decides about is known, to its instance as well; nothing is kept for
    /// executors that are gone.
    ///
    /// # Errors
    /// Says what does not hold.
    pub(in crate::dispatch) fn check(
        &self,
        instances: &Instances,
        fleet: &Fleet,
    ) -> Result<(), CheckError> {
        self.queues.check(&self.index)?;
        self.everywhere.check()?;
        let mut wanted = BTreeMap::new();
        for (id, queue) in self.queues.iter() {
            let Some(instance) = instances.find(&id.0) else {
                return Err(CheckError::new(format!(
                    "queue {id:?} is of an instance that is gone"
                )));
            };
            let found = instance.queues.find(&id.1);
            let agrees = found.is_some_and(|found| found.with_data == queue.summary());
            ensure!(agrees, "queue {id:?} and its instance count differently");
            for (task, _) in queue.tasks() {
                let batch = instance.batch_of(TaskId(task));
                let data = batch.and_then(|batch| {
                    let data = batch.submission.data.as_ref()?;
                    Some((data, task - batch.first))
                });
                let Some((data, offset)) = data else {
                    return Err(CheckError::new(format!("task {task} of {id:?} has no data")));
                };
                queue.add_wanted(&mut wanted, data, offset);
            }
        }
        for instance in instances.values() {
            self.check_queues(instance)?;
        }
        self.index.check(&wanted)?;
        let counted = Readership::recount(instances.values());
        ensure!(self.readership.agrees(&counted), "readers of objects are counted wrongly");
        let there = |id: &_| fleet.contains(*id);
        ensure!(self.fetchers.executors().all(there), "an executor that is gone is to fetch");
        let copiers = self.copies.executors().all(there);
        ensure!(copiers, "an executor that is gone copies something, or is to leave");
        let copied = self.copies.instances().all(|id| instances.contains(id));
        ensure!(copied, "what an instance that is gone has left is copied");
        self.memory.check()?;
        self.broadcasts.check(|id| fleet.contains(id))?;
        self.stripes.check(|id| fleet.contains(id))?;
        let told = self.demands.executors().all(there);
        ensure!(told, "an executor that is gone is to be told of demands");
        for executor in fleet.iter() {
            let place = self.index.place(executor.id);
            ensure!(place.is_some(), "executor {} has no place in the index", executor.id);
        }
        Ok(())
    }

    /// An instance believes that data decides about no queue but those here.
    fn check_queues(&self, instance: &Instance) -> Result<(), CheckError> {
        for (key, queue) in instance.queues.iter() {
            let id: QueueId = (instance.id, key);
            let known = queue.with_data.count == 0 || self.queues.find(id).is_some();
            ensure!(known, "queue {id:?} has tasks with data that nobody knows");
        }
        Ok(())
    }
}
