//! Run times of tasks over a restart: those of the results in the journal and, of tasks whose time
//! is to be found out, those of snapshots, whose results may be gone.

use super::Dispatcher;
use super::instance::{Instance, ReadyQueue};
use super::queues::key_of;
use super::recover::{Record, RecoverError};
use crate::result::{Finished, Outcome};
use crate::task::{AUTO_TIME, InstanceId, TaskId};
use std::collections::BTreeSet;

impl Dispatcher {
    /// Takes the run time of ended tasks into account, for those like them that have not.
    pub(super) fn recover_run_time(&mut self, id: InstanceId, finished: &Finished) {
        if !matches!(finished.outcome, Outcome::Exit(_) | Outcome::Signal(_)) {
            return;
        }
        let Some(instance) = self.instances.find_mut(&id) else { return };
        let first = finished.first.0;
        let need = instance.class_of(first).and_then(|class| instance.need_of_class(first, class));
        if let Some(need) = need {
            let micros = finished.ended.since(finished.started);
            instance.queues.measure(&key_of(&self.needs[need], need), micros, finished.count);
        }
    }

    /// Takes the longest run time of a class from a snapshot.
    pub(super) fn recover_lasted(
        &mut self,
        id: InstanceId,
        first: TaskId,
        class: u32,
        micros: u64,
    ) -> Result<(), RecoverError> {
        let instance = self.instances.find_mut(&id).ok_or(RecoverError::NoInstance(id))?;
        let error = RecoverError::Submission { instance: id, first };
        let need = instance.need_of_class(first.0, class).ok_or(error)?;
        if let Some(queue) = instance.queues.find_mut(&key_of(&self.needs[need], need)) {
            queue.lasted(micros);
        }
        Ok(())
    }

    /// The longest run times of an instance's tasks, of each kind whose time is to be found out.
    pub(super) fn snapshot_lasted(&self, instance: &Instance, records: &mut Vec<Record>) {
        let mut told = BTreeSet::new();
        for batch in instance.batches.values() {
            for (number, (class, need)) in
                (0..).zip(batch.submission.classes.iter().zip(&batch.needs))
            {
                let key = key_of(&self.needs[*need], *need);
                let micros = instance.queues.find(&key).map_or(0, ReadyQueue::most_micros);
                if class.estimate_micros == AUTO_TIME && micros > 0 && told.insert(key) {
                    let first = TaskId(batch.first);
                    let instance = instance.id;
                    records.push(Record::Lasted { instance, first, class: number, micros });
                }
            }
        }
    }
}
