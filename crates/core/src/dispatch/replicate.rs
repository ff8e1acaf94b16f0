//! Copies of objects that are in caches alone: as many executors hold each as
//! its task asks for, and none that is still read goes with an executor that
//! leaves in order.
//!
//! An object is copied by an executor that fetches it from a peer, as it
//! fetches what tasks will read, and that is told to keep it. Executors hear
//! when nobody reads an object any more.

use super::Dispatcher;
use super::executor::Executor;
use super::instance::Instance;
use crate::data::declared::DataOrder;
use crate::data::index::ObjectNo;
use crate::data::object::{Object, ObjectId};
use crate::limits::{
    AHEAD_OBJECTS_MAX, COPY_LOSSES_MAX, COPY_OBJECTS_MAX, COPY_SEARCH_EXECUTORS_MAX,
};
use crate::task::{ExecutorId, InstanceId, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// What is being copied, and what is to be.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Objects that may have fewer copies than they should.
    wanted: BTreeSet<(InstanceId, ObjectId)>,
    /// Who was asked to fetch what.
    under_way: BTreeMap<(ExecutorId, ObjectId), InstanceId>,
    /// How often an object was asked for in vain.
    failed: BTreeMap<ObjectId, u32>,
    /// Something may have become possible.
    is_due: bool,
    /// The executor that was asked last.
    turn: ExecutorId,
    /// For executors that leave: what they hold, is read, and must be held by
    /// another before they go.
    leaving: BTreeMap<ExecutorId, BTreeSet<ObjectId>>,
}

impl Copies {
    /// For the state checker: executors that are mentioned.
    pub(super) fn executors(&self) -> impl Iterator<Item = &ExecutorId> {
        self.under_way.keys().map(|(id, _)| id).chain(self.leaving.keys())
    }

    /// For the state checker: instances that are mentioned.
    pub(super) fn instances(&self) -> impl Iterator<Item = &InstanceId> {
        self.wanted.iter().map(|(id, _)| id).chain(self.under_way.values())
    }
}

impl Dispatcher {
    /// Executors may have come, or have less to do.
    pub(super) fn look_for_copiers(&mut self) {
        if !self.copies.wanted.is_empty() {
            self.copies.is_due = true;
            self.unplaced = true;
        }
    }

    /// An object may have fewer copies than it should.
    fn want_copies(&mut self, id: InstanceId, object: ObjectId) {
        self.copies.wanted.insert((id, object));
        self.look_for_copiers();
    }

    /// A task has ended well: what it has left in caches is copied, if it is to
    /// be held more than once, or by others than who leaves.
    pub(super) fn copy_outputs(&mut self, id: InstanceId, task: u64) {
        let Some(instance) = self.instances.get(&id) else { return };
        let Some(batch) = instance.batch_of(TaskId(task)) else { return };
        if !batch.leaves_any {
            return;
        }
        let Some(data) = &batch.submission.data else { return };
        let outputs = data.outputs_of(task - batch.first).filter(|object| !object.is_stored());
        let outputs = outputs.map(|object| object.id);
        let (read, unread): (Vec<_>, Vec<_>) = outputs.partition(|id| instance.is_read(*id));
        let is_one_enough = instance.replicas_of(task) <= 1 && self.copies.leaving.is_empty();
        self.released.extend(unread);
        for object in read.into_iter().filter(|_| !is_one_enough) {
            self.want_copies(id, object);
        }
    }

    /// Objects are held by one executor less: they may need another copy.
    pub(super) fn copy_again(&mut self, objects: &[ObjectId]) {
        if objects.is_empty() {
            return;
        }
        let readable = self.instances.values().filter(|instance| !instance.kept.is_empty());
        let mut fewer = Vec::new();
        for instance in readable {
            for object in objects.iter().filter(|object| instance.is_read(**object)) {
                let writer = instance.kept.objects.get(object).and_then(|entry| entry.writer);
                if writer.is_some_and(|writer| instance.replicas_of(writer) > 1) {
                    fewer.push((instance.id, *object));
                }
            }
        }
        for (id, object) in fewer {
            self.want_copies(id, object);
        }
    }

    /// An object is held by an executor from now on: if it was to be copied
    /// there, it stays there as long as it is read.
    pub(super) fn copied(&mut self, id: ExecutorId, object: ObjectId) {
        if self.copies.under_way.remove(&(id, object)).is_some() {
            self.copies.failed.remove(&object);
            self.order_data(id, |order| order.hold.push(object));
        }
        if !self.copies.leaving.is_empty() && self.stays(id) {
            self.let_leave(object);
        }
    }

    /// Nobody need stay for an object.
    fn let_leave(&mut self, object: ObjectId) {
        let mut free = Vec::new();
        for (leaver, wards) in &mut self.copies.leaving {
            if wards.remove(&object) && wards.is_empty() {
                free.push(*leaver);
            }
        }
        for leaver in free {
            self.order_data(leaver, |order| order.may_leave = true);
        }
    }

    /// An executor does not get an object that it was to copy.
    pub(super) fn not_copied(&mut self, id: ExecutorId, object: ObjectId) {
        let Some(instance) = self.copies.under_way.remove(&(id, object)) else { return };
        let failed = self.copies.failed.entry(object).or_default();
        *failed += 1;
        if *failed < COPY_LOSSES_MAX {
            self.want_copies(instance, object);
        } else {
            self.copies.failed.remove(&object);
            self.copies.wanted.remove(&(instance, object));
            self.let_leave(object);
        }
    }

    /// An executor is gone, with what it was to copy.
    pub(super) fn forget_copies(&mut self, id: ExecutorId) {
        self.copies.leaving.remove(&id);
        let all = (id, ObjectId(0))..=(id, ObjectId(u128::MAX));
        let under_way: Vec<_> =
            self.copies.under_way.range(all).map(|((_, object), _)| *object).collect();
        for object in under_way {
            if let Some(instance) = self.copies.under_way.remove(&(id, object)) {
                self.want_copies(instance, object);
            }
        }
    }

    /// An instance is gone: nobody reads what its tasks have left.
    pub(super) fn forget_kept(&mut self, instance: &Instance) {
        let id = instance.id;
        self.copies.wanted.retain(|(of, _)| *of != id);
        self.copies.under_way.retain(|_, of| *of != id);
        for object in instance.kept.objects.keys() {
            self.copies.failed.remove(object);
            for executor in self.holders_of(*object) {
                self.order_data(executor, |order| order.drop.push(*object));
            }
        }
        let leaving: Vec<ExecutorId> = self.copies.leaving.keys().copied().collect();
        for executor in leaving {
            self.prepare_leaving(executor);
        }
    }

    /// An executor leaves: what it alone holds of what is read is copied first.
    /// It is told when it may go.
    pub(super) fn prepare_leaving(&mut self, id: ExecutorId) {
        let has_cache = self.executors.find(&id).is_some_and(|found| found.serves.is_some());
        let Some(place) = self.index.place(id).filter(|_| has_cache) else { return };
        let held: Vec<ObjectId> = self
            .index
            .held_from(place, ObjectNo(0))
            .filter_map(|number| self.index.id(number))
            .collect();
        let mut wards = BTreeSet::new();
        for instance in self.instances.values().filter(|instance| !instance.kept.is_empty()) {
            for object in held.iter().filter(|object| instance.is_read(**object)) {
                if !self.holders_of(*object).iter().any(|holder| self.stays(*holder)) {
                    wards.insert(*object);
                    self.copies.wanted.insert((instance.id, *object));
                }
            }
        }
        let nobody_takes_any = !self.executors.values().any(may_copy);
        if wards.is_empty() || nobody_takes_any {
            self.copies.leaving.insert(id, BTreeSet::new());
            self.order_data(id, |order| order.may_leave = true);
        } else {
            self.copies.leaving.insert(id, wards);
            self.look_for_copiers();
        }
    }

    /// Has executors copy what has fewer copies than it should, as far as they
    /// have time.
    pub(super) fn copy_wanted(&mut self) {
        if !std::mem::take(&mut self.copies.is_due) {
            return;
        }
        let wanted: Vec<_> = self.copies.wanted.iter().take(COPY_OBJECTS_MAX).copied().collect();
        for (id, object) in wanted {
            if self.copy(id, object) {
                self.copies.wanted.remove(&(id, object));
            }
        }
    }

    /// Has an object copied as often as it lacks copies; false if somebody
    /// should do so who cannot yet.
    fn copy(&mut self, id: InstanceId, object: ObjectId) -> bool {
        let Some(instance) = self.instances.get(&id).filter(|found| found.is_read(object)) else {
            return true;
        };
        let Some((writer, found)) = instance.made(object) else { return true };
        let (found, wanted) = (found.clone(), instance.replicas_of(writer).max(1) as usize);
        let Some(number) = self.index.number(object) else { return true };
        let stays = |dispatcher: &Dispatcher, place| {
            let id = dispatcher.index.executor(place);
            id.filter(|id| dispatcher.stays(*id)).is_some()
        };
        let holders = self.index.holders(number);
        if holders.is_empty() {
            // It is lost; whoever reads it has it made again.
            return true;
        }
        let held = holders.iter().filter(|place| stays(self, **place)).count();
        let coming = self.index.coming(number).filter(|place| stays(self, *place)).count();
        for _ in held + coming..wanted {
            let Some(to) = self.next_to_copy(number) else { return false };
            let located = self.locate(to, &found);
            self.copies.under_way.insert((to, object), id);
            self.order_data(to, |order| order.fetch.push(located));
        }
        true
    }

    /// An executor that could fetch an object, one after the other; a few are
    /// looked at.
    fn next_to_copy(&mut self, object: ObjectNo) -> Option<ExecutorId> {
        let turn = self.copies.turn;
        let next = self
            .executors
            .after(Some(turn))
            .chain(self.executors.after(None).take_while(|executor| executor.id <= turn))
            .take(COPY_SEARCH_EXECUTORS_MAX);
        let mut fit = next.filter(|executor| {
            let Some(place) = self.index.place(executor.id) else { return false };
            may_copy(executor)
                && !self.index.holds(place, object)
                && !self.index.is_coming(place, object)
                && self.index.coming_to(place) < AHEAD_OBJECTS_MAX
        });
        let id = fit.next()?.id;
        self.copies.turn = id;
        Some(id)
    }

    /// Tells executors of objects that nobody reads any more: they need not be
    /// kept.
    pub(super) fn release_unread(&mut self) {
        for object in std::mem::take(&mut self.released) {
            for executor in self.holders_of(object) {
                self.order_data(executor, |order| order.release.push(object));
            }
            self.let_leave(object);
        }
    }

    fn holders_of(&self, object: ObjectId) -> Vec<ExecutorId> {
        let Some(number) = self.index.number(object) else { return Vec::new() };
        let holders = self.index.holders(number).iter();
        holders.filter_map(|place| self.index.executor(*place)).collect()
    }

    /// Whether an executor is there and does not leave.
    fn stays(&self, id: ExecutorId) -> bool {
        self.executors.find(&id).is_some_and(|executor| !executor.leaving)
    }

    /// Adds to what an executor is told of data.
    fn order_data(&mut self, id: ExecutorId, add: impl FnOnce(&mut DataOrder)) {
        if let Some(executor) = self.executors.find_mut(&id) {
            add(executor.order.data.get_or_insert_default());
            self.orders.send(id);
        }
    }
}

/// Whether an executor could hold a copy of something.
fn may_copy(executor: &Executor) -> bool {
    executor.serves.is_some() && executor.connection.is_some() && !executor.leaving
}

impl Instance {
    /// How many executors are to hold what a task leaves in caches.
    fn replicas_of(&self, task: u64) -> u32 {
        let class = self.class_of(task).zip(self.batch_of(TaskId(task)));
        let class = class.and_then(|(at, batch)| batch.submission.classes.get(at as usize));
        class.map_or(1, |class| class.replicas)
    }

    /// Whether a task reads an object of this instance, or may come to do so.
    fn is_read(&self, object: ObjectId) -> bool {
        let entry = self.kept.objects.get(&object);
        entry.is_some_and(|entry| entry.readers > 0 || !self.sealed)
    }

    /// An object that a task of this instance has made, and the task.
    fn made(&self, object: ObjectId) -> Option<(u64, &Object)> {
        let writer = self.kept.objects.get(&object)?.writer?;
        let batch = self.batch_of(TaskId(writer))?;
        let data = batch.submission.data.as_ref()?;
        let mut outputs = data.outputs_of(writer - batch.first);
        Some((writer, outputs.find(|output| output.id == object)?))
    }
}
