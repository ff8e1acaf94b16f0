//! Copies of objects that are in caches alone: as many executors hold each as
//! its task asks for, and none that is still read goes with an executor that
//! leaves in order.
//!
//! An object is copied by an executor that fetches it from a peer, as it
//! fetches what tasks will read, and that is told to keep it. Executors are told
//! when nobody reads an object any more.

use super::{Instances, Notice, Notices, Placement};
use crate::data::declared::Located;
use crate::data::index::ObjectNo;
use crate::data::object::ObjectId;
use crate::dispatch::fleet::{Executor, Fleet};
use crate::dispatch::instance::Instance;
use crate::limits::{
    AHEAD_OBJECTS_MAX, COPY_LOSSES_MAX, COPY_OBJECTS_MAX, COPY_SEARCH_EXECUTORS_MAX,
};
use crate::task::{ExecutorId, InstanceId, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// Objects that are being copied, and those that are to be.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Objects that may have fewer copies than they should.
    wanted: BTreeSet<(InstanceId, ObjectId)>,
    /// Executors that were asked to fetch a copy, and for which instance.
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
    /// Executors may have come, or have less to do.
    pub(super) fn look_for_copiers(&mut self) {
        self.is_due |= !self.wanted.is_empty();
    }

    /// An object may have fewer copies than it should.
    fn want(&mut self, id: InstanceId, object: ObjectId) {
        self.wanted.insert((id, object));
        self.is_due = true;
    }

    /// An object is held by an executor from now on, which `stays`, or leaves: if
    /// it was to be copied there, it stays there as long as it is read.
    pub(super) fn copied(&mut self, id: ExecutorId, object: ObjectId, stays: bool) -> Notices {
        let mut notices = Notices::new();
        if self.under_way.remove(&(id, object)).is_some() {
            self.failed.remove(&object);
            notices.push((id, Notice::Hold(object)));
        }
        if stays {
            notices.extend(self.let_leave(object));
        }
        notices
    }

    /// An executor does not get an object that it was to copy.
    pub(super) fn not_copied(&mut self, id: ExecutorId, object: ObjectId) -> Notices {
        let Some(instance) = self.under_way.remove(&(id, object)) else { return Notices::new() };
        let failed = self.failed.entry(object).or_default();
        *failed += 1;
        if *failed < COPY_LOSSES_MAX {
            self.want(instance, object);
            return Notices::new();
        }
        self.failed.remove(&object);
        self.wanted.remove(&(instance, object));
        self.let_leave(object)
    }

    /// Nobody need stay for an object.
    pub(super) fn let_leave(&mut self, object: ObjectId) -> Notices {
        let mut notices = Notices::new();
        for (leaver, wards) in &mut self.leaving {
            if wards.remove(&object) && wards.is_empty() {
                notices.push((*leaver, Notice::MayLeave));
            }
        }
        notices
    }

    /// Objects are held by one executor less: they may need another copy.
    pub(super) fn copy_again(&mut self, objects: &[ObjectId], instances: &Instances) {
        if objects.is_empty() {
            return;
        }
        for instance in instances.values().filter(|instance| !instance.intermediates.is_empty()) {
            for object in objects.iter().filter(|object| instance.is_read(**object)) {
                let writer = instance.intermediates.writer(*object);
                if writer.is_some_and(|writer| instance.replicas_of(writer) > 1) {
                    self.want(instance.id, *object);
                }
            }
        }
    }

    /// An executor is gone, with what it was to copy.
    pub(super) fn forget(&mut self, id: ExecutorId) {
        self.leaving.remove(&id);
        let all = (id, ObjectId(0))..=(id, ObjectId(u128::MAX));
        let under_way: Vec<_> = self.under_way.range(all).map(|((_, object), _)| *object).collect();
        for object in under_way {
            if let Some(instance) = self.under_way.remove(&(id, object)) {
                self.want(instance, object);
            }
        }
    }

    /// For the state checker: executors that are mentioned.
    pub(super) fn executors(&self) -> impl Iterator<Item = &ExecutorId> {
        self.under_way.keys().map(|(id, _)| id).chain(self.leaving.keys())
    }

    /// For the state checker: instances that are mentioned.
    pub(super) fn instances(&self) -> impl Iterator<Item = &InstanceId> {
        self.wanted.iter().map(|(id, _)| id).chain(self.under_way.values())
    }
}

impl Placement {
    /// Whether [`Placement::start_copies`] may find something to do.
    pub(in crate::dispatch) fn has_copies_due(&self) -> bool {
        self.copies.is_due
    }

    /// A task has ended well: what it has left in caches is copied, if it is to
    /// be held more than once, or by others than who leaves. What nobody reads
    /// need not be kept.
    pub(in crate::dispatch) fn copy_outputs(&mut self, instance: &Instance, task: u64) {
        let Some(batch) = instance.batch_of(TaskId(task)).filter(|batch| batch.leaves_any) else {
            return;
        };
        let Some(data) = &batch.submission.data else { return };
        let is_one_enough = instance.replicas_of(task) <= 1 && self.copies.leaving.is_empty();
        for object in data.outputs_of(task - batch.first).filter(|object| !object.is_stored()) {
            if !instance.is_read(object.id) {
                self.released.push(object.id);
            } else if !is_one_enough {
                self.copies.want(instance.id, object.id);
            }
        }
    }

    /// An instance is gone: nobody reads what its tasks have left.
    pub(in crate::dispatch) fn forget_kept(
        &mut self,
        gone: &Instance,
        instances: &Instances,
        fleet: &Fleet,
    ) -> Notices {
        self.copies.wanted.retain(|(of, _)| *of != gone.id);
        self.copies.under_way.retain(|_, of| *of != gone.id);
        let mut notices = Notices::new();
        for object in gone.intermediates.ids() {
            self.copies.failed.remove(&object);
            notices.extend(self.holders_of(object).map(|holder| (holder, Notice::Drop(object))));
        }
        let leaving: Vec<ExecutorId> = self.copies.leaving.keys().copied().collect();
        for executor in leaving {
            notices.extend(self.prepare_leaving(executor, instances, fleet));
        }
        notices
    }

    /// An executor leaves: what it alone holds of what is read is copied first.
    /// It is told when it may go.
    pub(in crate::dispatch) fn prepare_leaving(
        &mut self,
        id: ExecutorId,
        instances: &Instances,
        fleet: &Fleet,
    ) -> Notices {
        if fleet[id].serves.is_none() {
            return Notices::new();
        }
        let held: Vec<ObjectId> = self.held_by(self.place(id)).collect();
        let mut wards = BTreeSet::new();
        for instance in instances.values().filter(|instance| !instance.intermediates.is_empty()) {
            for object in held.iter().filter(|object| instance.is_read(**object)) {
                if !self.holders_of(*object).any(|holder| stays(fleet, holder)) {
                    wards.insert(*object);
                    self.copies.wanted.insert((instance.id, *object));
                }
            }
        }
        let nobody_takes_any = !fleet.iter().any(may_copy);
        if wards.is_empty() || nobody_takes_any {
            self.copies.leaving.insert(id, BTreeSet::new());
            return vec![(id, Notice::MayLeave)];
        }
        self.copies.leaving.insert(id, wards);
        self.copies.look_for_copiers();
        Notices::new()
    }

    /// Executors and what each is to fetch, so that objects have as many copies as
    /// they should, as far as executors have time.
    pub(in crate::dispatch) fn start_copies(
        &mut self,
        instances: &Instances,
        fleet: &Fleet,
    ) -> Vec<(ExecutorId, Located)> {
        let mut fetches = Vec::new();
        if !std::mem::take(&mut self.copies.is_due) {
            return fetches;
        }
        let wanted: Vec<_> = self.copies.wanted.iter().take(COPY_OBJECTS_MAX).copied().collect();
        for (id, object) in wanted {
            if self.start_copies_of(object, &instances[&id], fleet, &mut fetches) {
                self.copies.wanted.remove(&(id, object));
            }
        }
        fetches
    }

    /// Has an object copied as often as it lacks copies; false if somebody
    /// should do so who cannot yet.
    fn start_copies_of(
        &mut self,
        object: ObjectId,
        instance: &Instance,
        fleet: &Fleet,
        fetches: &mut Vec<(ExecutorId, Located)>,
    ) -> bool {
        if !instance.is_read(object) {
            return true;
        }
        let Some((writer, found)) = instance.made(object) else { return true };
        let wanted = instance.replicas_of(writer).max(1) as usize;
        let Some(number) = self.index.number(object) else { return true };
        let stays = |place| self.index.executor(place).is_some_and(|id| stays(fleet, id));
        let holders = self.index.holders(number);
        if holders.is_empty() {
            // The object is lost; tasks that read it have it made again.
            return true;
        }
        let held = holders.iter().filter(|place| stays(**place)).count();
        let coming = self.index.coming(number).filter(|place| stays(*place)).count();
        for _ in held + coming..wanted {
            let Some(to) = self.next_to_copy(number, fleet) else { return false };
            let serves = |id| fleet[id].serves_others();
            fetches.push((to, self.locate(to, found, false, serves)));
            self.copies.under_way.insert((to, object), instance.id);
        }
        true
    }

    /// An executor that could fetch an object, one after the other; a few are
    /// looked at.
    fn next_to_copy(&mut self, object: ObjectNo, fleet: &Fleet) -> Option<ExecutorId> {
        let turn = self.copies.turn;
        let next = fleet
            .after(Some(turn))
            .chain(fleet.after(None).take_while(|executor| executor.id <= turn))
            .take(COPY_SEARCH_EXECUTORS_MAX);
        let mut fit = next.filter(|executor| {
            let place = self.place(executor.id);
            may_copy(executor)
                && !self.index.holds(place, object)
                && !self.index.is_coming(place, object)
                && self.index.coming_to(place) < AHEAD_OBJECTS_MAX
        });
        let id = fit.next()?.id;
        self.copies.turn = id;
        Some(id)
    }

    /// Objects need not be kept any more.
    pub(in crate::dispatch) fn release(&mut self, objects: impl IntoIterator<Item = ObjectId>) {
        self.released.extend(objects);
    }

    /// Notices about objects that nobody reads any more.
    pub(in crate::dispatch) fn notices_of_released(&mut self) -> Notices {
        let mut notices = Notices::new();
        for object in std::mem::take(&mut self.released) {
            notices.extend(self.holders_of(object).map(|holder| (holder, Notice::Release(object))));
            notices.extend(self.copies.let_leave(object));
        }
        notices
    }
}

/// Whether an executor does not leave.
pub(super) fn stays(fleet: &Fleet, id: ExecutorId) -> bool {
    !fleet[id].leaving
}

/// Whether an executor could hold a copy of something.
pub(super) fn may_copy(executor: &Executor) -> bool {
    executor.serves.is_some() && executor.connection.is_some() && !executor.leaving
}
