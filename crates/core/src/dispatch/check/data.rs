//! What must hold of data and of the tasks that it decides about.

use super::{CheckError, ensure};
use crate::data::object::ObjectId;
use crate::dispatch::Dispatcher;
use crate::dispatch::readership::Readership;
use crate::task::TaskId;
use std::collections::{BTreeMap, BTreeSet};

impl Dispatcher {
    /// The index wants what waiting tasks read, and no more; every queue that
    /// data decides about is known; nothing is kept for executors that are
    /// gone.
    pub(super) fn check_data(&self) -> Result<(), CheckError> {
        let mut wanted: BTreeMap<ObjectId, u64> = BTreeMap::new();
        for instance in self.instances.values() {
            for (key, queue) in instance.queues.iter() {
                let Some(located) = &queue.located else { continue };
                let (id, known) = (instance.id, (instance.id, key));
                located.waiting.check(&self.index)?;
                let tasks = located.numbers().count();
                ensure!(tasks == located.waiting.len(), "instance {id}: a located task is lost");
                let listed = tasks == 0 || self.located.all.contains(&known);
                ensure!(listed, "instance {id}: a located queue hears of no changes");
                for task in located.numbers() {
                    let batch = instance.batch_of(TaskId(task));
                    let data = batch.and_then(|batch| {
                        let data = batch.submission.data.as_ref()?;
                        Some((data, task - batch.first))
                    });
                    let Some((data, offset)) = data else {
                        ensure!(false, "instance {id}: located task {task} has no data");
                        continue;
                    };
                    let inputs: BTreeSet<ObjectId> =
                        data.inputs_of(offset).map(|object| object.id).collect();
                    for input in inputs {
                        *wanted.entry(input).or_default() += 1;
                    }
                }
            }
        }
        self.index.check(&wanted)?;
        let counted = Readership::recount(self.instances.values());
        ensure!(self.readership.agrees(&counted), "readers of objects are counted wrongly");
        for (id, key) in &self.located.all {
            let queue = self.instances.get(id).and_then(|found| found.queues.find(key));
            let located = queue.is_some_and(|queue| queue.located.is_some());
            ensure!(located, "instance {id}: a located queue is gone");
        }
        let known = self.located.unoffered.iter().all(|queue| self.located.all.contains(queue));
        ensure!(known, "tasks of a queue that is not known are to be offered");
        let there = |id| self.executors.contains_key(id);
        ensure!(self.fetchers.iter().all(there), "an executor that is gone is to fetch");
        let copiers = self.copies.executors().all(there);
        ensure!(copiers, "an executor that is gone copies something, or is to leave");
        let copied = self.copies.instances().all(|id| self.instances.contains_key(id));
        ensure!(copied, "what an instance that is gone has left is copied");
        let mut demands = self.demands.iter().map(|(id, _)| id);
        ensure!(demands.all(there), "an executor that is gone is to hear of demands");
        for executor in self.executors.values() {
            let place = self.index.place(executor.id);
            ensure!(place.is_some(), "executor {} has no place in the index", executor.id);
        }
        let busy = self.executors.values().filter(|executor| executor.is_busy).count() as u64;
        ensure!(busy == self.busy, "{busy} executors are busy, not {}", self.busy);
        let free = self
            .available
            .values()
            .any(|id| self.executors.find(id).is_some_and(|found| found.in_flight.is_empty()));
        ensure!(
            !free || self.unplaced || self.comeback.until().is_some() || !self.waits_in_vain(),
            "tasks wait, and nothing is under way"
        );
        Ok(())
    }

    /// Whether nobody has anything to do, although tasks are ready that some
    /// idle executor could run.
    fn waits_in_vain(&self) -> bool {
        let is_idle = self.executors.values().all(|executor| {
            executor.in_flight.is_empty() && executor.connection.is_some() && !executor.leaving
        });
        let runs_somewhere = |need: super::super::needs::NeedId, lasts_micros: u64| {
            let need = &self.needs[need];
            self.executors.values().any(|found| {
                found.takes_tasks() && found.offers(need) && found.outlasts(self.now, lasts_micros)
            })
        };
        is_idle
            && !self.index.is_anything_coming()
            && self.runnable.ids().any(|id| {
                let Some(instance) = self.instances.get(&id) else { return false };
                let mut ready = instance.queues.iter().filter(|(_, queue)| queue.len > 0);
                ready.any(|((_, need), queue)| {
                    let lasts = queue.user_estimate(&instance.batches);
                    runs_somewhere(need, lasts.unwrap_or(0))
                })
            })
    }
}
