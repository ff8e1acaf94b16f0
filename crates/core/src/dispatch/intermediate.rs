//! What an instance's tasks leave in caches alone: who writes each such object
//! and who still reads it, and which of those who write run again because what
//! they left was lost.
//!
//! An entry is about a hundred bytes and lives as long as the batch of the task
//! that writes the object; instances without such objects keep nothing here.

use super::instance::{Batch, Instance};
use crate::data::declared::{Declared, Lists};
use crate::data::object::{Object, ObjectId};
use crate::task::TaskId;
use std::collections::{BTreeMap, BTreeSet};

/// An object that is in caches alone.
#[derive(Debug, Default)]
pub(super) struct Intermediate {
    /// The task that writes it, once that was submitted.
    pub(super) writer: Option<u64>,
    /// Tasks that read it and have not ended, or run again.
    pub(super) readers: u64,
    /// Batches, other than the writer's, with tasks that read it.
    batches: u32,
    /// A task of the instance writes it: it was not put there by somebody, for
    /// whom it stays.
    is_made: bool,
}

/// The objects in caches alone of one instance.
#[derive(Debug, Default)]
pub(super) struct Intermediates {
    pub(super) objects: BTreeMap<ObjectId, Intermediate>,
    /// How often each task was recomputed.
    pub(super) times: BTreeMap<u64, u32>,
}

impl Intermediates {
    /// Whether no task leaves anything in caches alone, or reads it.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The objects of its tasks that no task reads that has not ended.
    pub(super) fn unread(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.made().filter(|(_, entry)| entry.readers == 0).map(|(object, _)| *object)
    }

    /// All objects of its tasks.
    pub(super) fn ids(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.made().map(|(object, _)| *object)
    }

    fn made(&self) -> impl Iterator<Item = (&ObjectId, &Intermediate)> {
        self.objects.iter().filter(|(_, entry)| entry.is_made)
    }

    /// The task that writes an object, once that was submitted.
    pub(super) fn writer(&self, object: ObjectId) -> Option<u64> {
        self.objects.get(&object)?.writer
    }

    /// A batch is taken into the books. Gives how many of the other batches'
    /// reads are of what its tasks write, and which batches write what they
    /// read. What tasks write that `is_above`'s business, another dispatcher has in its
    /// books: it says when nobody reads it, and has it made again.
    pub(super) fn admit(
        &mut self,
        (first, count): (u64, u64),
        data: &Declared,
        is_above: bool,
    ) -> Links {
        let mut links = Links::default();
        let written = in_caches(data, &data.outputs, first, count).filter(|_| !is_above);
        for (task, object) in written {
            let entry = self.objects.entry(object).or_default();
            if entry.writer.is_none() {
                entry.writer = Some(task);
                entry.is_made = true;
                links.leaves_any = true;
                links.read_by = links.read_by.saturating_add(entry.batches);
            }
        }
        let own = first..first + count;
        self.count_readers(data, 0, count, |readers, tasks| *readers += tasks);
        for object in read_objects(data) {
            let entry = self.objects.entry(object).or_default();
            if entry.writer.is_some_and(|writer| own.contains(&writer)) {
                continue;
            }
            entry.batches += 1;
            links.reads_of.extend(entry.writer);
        }
        links
    }

    /// Tasks of a batch have ended, or run again. Gives what nobody reads now of
    /// what tasks have made.
    pub(super) fn count_readers(
        &mut self,
        data: &Declared,
        offset: u64,
        count: u64,
        change: fn(&mut u64, u64),
    ) -> Vec<ObjectId> {
        let mut unread = Vec::new();
        let mut read = |item: &u32, tasks| {
            let object = data.objects.get(*item as usize).filter(|object| !object.is_stored());
            if let Some(object) = object {
                let held = object.held_as();
                let entry = self.objects.entry(held).or_default();
                change(&mut entry.readers, tasks);
                if entry.readers == 0 && entry.is_made {
                    unread.push(held);
                }
            }
        };
        match &data.inputs {
            Lists::Same(items) => items.iter().for_each(|item| read(item, count)),
            each @ Lists::Each { .. } => {
                for at in offset..offset + count {
                    each.of(at).iter().for_each(|item| read(item, 1));
                }
            }
        }
        unread
    }

    /// A batch goes. Gives the tasks that write what its tasks read: each may
    /// be of a batch that nobody needs any more.
    pub(super) fn forget(&mut self, first: u64, count: u64, data: &Declared) -> Vec<u64> {
        let own = first..first + count;
        let mut writers = Vec::new();
        for object in read_objects(data) {
            let Some(entry) = self.objects.get_mut(&object) else { continue };
            if entry.writer.is_some_and(|writer| own.contains(&writer)) {
                continue;
            }
            entry.batches = entry.batches.saturating_sub(1);
            match entry.writer {
                Some(writer) => writers.push(writer),
                None if entry.batches == 0 => drop(self.objects.remove(&object)),
                None => {}
            }
        }
        for object in data.objects.iter().filter(|object| !object.is_stored()) {
            let Some(entry) = self.objects.get_mut(&object.id) else { continue };
            if entry.writer.is_some_and(|writer| own.contains(&writer)) {
                entry.writer = None;
                if entry.batches == 0 {
                    self.objects.remove(&object.id);
                }
            }
        }
        for task in self.times.range(own).map(|(task, _)| *task).collect::<Vec<_>>() {
            self.times.remove(&task);
        }
        writers
    }
}

/// What a batch has to do with others.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// Its tasks leave objects in caches alone.
    pub(super) leaves_any: bool,
    /// How many reads of other batches are of what its tasks write.
    pub(super) read_by: u32,
    /// Tasks of other batches that write what its tasks read.
    pub(super) reads_of: Vec<u64>,
}

/// The objects in caches alone that tasks of a batch read, each once.
fn read_objects(data: &Declared) -> BTreeSet<ObjectId> {
    let items = match &data.inputs {
        Lists::Same(items) => items,
        Lists::Each { items, .. } => &**items,
    };
    let objects = items.iter().filter_map(|item| data.objects.get(*item as usize));
    objects.filter(|object| !object.is_stored()).map(Object::held_as).collect()
}

/// The objects in caches alone of one side of a batch's tasks, with the task.
fn in_caches<'a>(
    data: &'a Declared,
    side: &'a Lists,
    first: u64,
    count: u64,
) -> impl Iterator<Item = (u64, ObjectId)> + 'a {
    // If all tasks have the same, the first stands for them.
    let tasks = if matches!(side, Lists::Same(_)) { count.min(1) } else { count };
    (0..tasks).flat_map(move |at| {
        let objects = side.of(at).iter().filter_map(|item| data.objects.get(*item as usize));
        let objects = objects.filter(|object| !object.is_stored());
        objects.map(move |object| (first + at, object.id))
    })
}

impl Instance {
    /// How many executors are to hold what a task leaves in caches.
    pub(super) fn replicas_of(&self, task: u64) -> u32 {
        let class = self.class_of(task).zip(self.batch_of(TaskId(task)));
        let class = class.and_then(|(at, batch)| batch.submission.classes.get(at as usize));
        class.map_or(1, |class| class.replicas)
    }

    /// Whether a task reads an object of this instance, or may come to do so.
    pub(super) fn is_read(&self, object: ObjectId) -> bool {
        let entry = self.intermediates.objects.get(&object);
        entry.is_some_and(|entry| entry.readers > 0 || !self.sealed)
    }

    /// An object that a task of this instance has made, and the task.
    pub(super) fn made(&self, object: ObjectId) -> Option<(u64, &Object)> {
        let writer = self.intermediates.writer(object)?;
        let batch = self.batch_of(TaskId(writer))?;
        let data = batch.submission.data.as_ref()?;
        let mut outputs = data.outputs_of(writer - batch.first);
        Some((writer, outputs.find(|output| output.id == object)?))
    }
}

impl Instance {
    /// Whether nobody will ask for this batch: its tasks have ended, results
    /// are not kept, and no task that is known, or may still come, can read
    /// what its tasks have left in caches.
    pub(super) fn is_spent(&self, batch: &Batch) -> bool {
        let is_read = || batch.read_by > 0 || (!self.sealed && batch.leaves_any);
        batch.unfinished == 0 && !self.options.keep_results && (self.is_complete() || !is_read())
    }
}

impl Instance {
    /// Forgets a batch if nobody will ask for it, and then those that only its
    /// tasks could have asked for.
    pub(super) fn forget_if_spent(&mut self, batch_first: u64) {
        let mut next = vec![batch_first];
        while let Some(first) = next.pop() {
            let Some(batch) = self.batches.get(&first) else { continue };
            if !self.is_spent(batch) {
                continue;
            }
            let Some(batch) = self.batches.remove(&first) else { continue };
            self.queued_bytes -= batch.queued_bytes;
            self.release_values_of(&batch);
            let Some(data) = &batch.submission.data else { continue };
            for writer in self.intermediates.forget(first, batch.submission.count, data) {
                if let Some(batch) = self.batch_of_mut(TaskId(writer)) {
                    batch.read_by = batch.read_by.saturating_sub(1);
                    next.push(batch.first);
                }
            }
        }
    }

    /// Forgets all batches that nobody will ask for.
    pub(super) fn forget_spent(&mut self) {
        let all: Vec<u64> = self.batches.keys().copied().collect();
        for first in all {
            self.forget_if_spent(first);
        }
    }
}
