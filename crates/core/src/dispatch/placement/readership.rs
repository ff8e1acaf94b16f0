//! How many tasks still read each data object: for people who ask, and before
//! an object that is in caches alone is dropped by hand. No decision of where
//! tasks go depends on it.
//!
//! Counting costs a task its inputs when it is submitted and when it ends;
//! asking costs one look-up, whatever the number of tasks.

use super::Placement;
use crate::data::declared::{Declared, Lists};
use crate::data::object::{Object, ObjectId};
use crate::dispatch::instance::{Batch, Instance};
use std::collections::BTreeMap;

/// Tasks that have not ended, or run again, by the objects that they read.
#[derive(Debug, Default)]
pub(super) struct Readership {
    readers: BTreeMap<ObjectId, u64>,
    /// Room to work in: what one task reads, each once.
    inputs: Vec<ObjectId>,
}

impl Readership {
    /// How many tasks read `object`.
    pub(super) fn of(&self, object: ObjectId) -> u64 {
        self.readers.get(&object).copied().unwrap_or_default()
    }

    /// Tasks of a batch were submitted, or run again.
    pub(super) fn join(&mut self, data: &Declared, offset: u64, count: u64) {
        self.each_read(data, offset, count, |readers, object, tasks| {
            let readers = readers.entry(object).or_default();
            *readers = readers.saturating_add(tasks);
        });
    }

    /// Tasks of a batch have ended.
    pub(super) fn leave(&mut self, data: &Declared, offset: u64, count: u64) {
        self.each_read(data, offset, count, |readers, object, tasks| {
            if let Some(left) = readers.get_mut(&object) {
                *left = left.saturating_sub(tasks);
                if *left == 0 {
                    readers.remove(&object);
                }
            }
        });
    }

    /// An instance is gone, with all tasks of it that have not ended.
    pub(super) fn forget(&mut self, instance: &Instance) {
        for (batch, offset, count) in unended(instance) {
            if let Some(data) = &batch.submission.data {
                self.leave(data, offset, count);
            }
        }
    }

    /// The readers in the books of these instances, counted anew.
    pub(super) fn recount<'a>(instances: impl Iterator<Item = &'a Instance>) -> Readership {
        let mut counted = Readership::default();
        for (batch, offset, count) in instances.flat_map(unended) {
            if let Some(data) = &batch.submission.data {
                counted.join(data, offset, count);
            }
        }
        counted
    }

    /// Whether both count the same.
    pub(super) fn agrees(&self, other: &Readership) -> bool {
        self.readers == other.readers
    }

    fn each_read(
        &mut self,
        data: &Declared,
        offset: u64,
        count: u64,
        change: fn(&mut BTreeMap<ObjectId, u64>, ObjectId, u64),
    ) {
        let (readers, inputs) = (&mut self.readers, &mut self.inputs);
        let mut read = |items: &[u32], tasks| {
            inputs.clear();
            let objects = items.iter().filter_map(|item| data.objects.get(*item as usize));
            inputs.extend(objects.map(Object::held_as));
            inputs.sort_unstable();
            inputs.dedup();
            for object in &*inputs {
                change(readers, *object, tasks);
            }
        };
        match &data.inputs {
            Lists::Same(items) => read(items, count),
            each @ Lists::Each { .. } => {
                (offset..offset + count).for_each(|at| read(each.of(at), 1))
            }
        }
    }
}

impl Placement {
    /// Whether an output is to stay in the cache of the executor that writes it into
    /// an archive: those who read it find it there.
    pub(in crate::dispatch) fn is_to_stay(&self, object: &Object) -> bool {
        object.member().is_some() && self.readership.of(object.id) > 0
    }

    /// A task of a batch runs again.
    pub(in crate::dispatch) fn runs_again(&mut self, data: &Declared, offset: u64) {
        self.readership.join(data, offset, 1);
    }

    /// Tasks of a batch have ended.
    pub(in crate::dispatch) fn ended(&mut self, data: &Declared, offset: u64, count: u64) {
        self.readership.leave(data, offset, count);
    }
}

/// Runs of tasks that have not ended, or run again, as (batch, offset, count).
fn unended(instance: &Instance) -> impl Iterator<Item = (&Batch, u64, u64)> {
    let batches = instance.batches.values().filter(|batch| batch.unfinished > 0);
    batches.flat_map(|batch| {
        let (first, count) = (batch.first, batch.submission.count);
        let open = instance.tasks.unended(first, count);
        let again = instance.tasks.recomputing(first, count).map(|task| (task, 1));
        let runs: Vec<(u64, u64)> = open.into_iter().chain(again).collect();
        runs.into_iter().map(move |(at, count)| (batch, at - first, count))
    })
}
