//! Where data is, what it is called and who wants it: which executor holds which
//! object or is fetching it, the ready tasks whose data decides where they go,
//! those that are one executor's alone, and what executors are to fetch, keep and let go (data-diffusion §3.1, §3.2).
//!
//! [`Placement`] is told what executors hold and which tasks wait, and returns
//! what follows: tasks for executors, objects to fetch, [`Notices`]. It keeps
//! the index and the queues together: no queue misses a change of the index.
//! Executors and instances belong to others: it is lent them to look at, where
//! it has to ask who stays and who reads what.

mod broadcasts;
mod catalog;
mod check;
mod copies;
mod demands;
pub mod diffusion;
mod fetchers;
mod inspect;
mod memory;
mod queues;
mod readership;
mod stripes;
mod tasks;

use super::check::{CheckError, ensure};
use super::everywhere::Everywhere;
use super::fleet::Fleet;
use super::instance::Instance;
use super::instances::Instances;
use crate::data::declared::{Declared, Located};
use crate::data::index::{Change, Index, ObjectNo, Place};
use crate::data::object::{Object, ObjectId, Sources};
use crate::data::way;
use crate::limits::{HINT_HOLDERS_MAX, READER_EXECUTORS_MAX};
use crate::task::ExecutorId;
use broadcasts::Broadcasts;
use catalog::Catalog;
use copies::Copies;
use demands::Demands;
use fetchers::Fetchers;
use memory::Memory;
use queues::DataQueues;
use readership::Readership;
use std::collections::BTreeSet;
use stripes::Stripes;

pub use memory::Remembered;
pub(super) use queues::{DataTasks, Past, QueueId};
pub(super) use stripes::{Spread, StripeNotice};
pub(super) use tasks::{Rooms, Selected};

/// A message to an executor about what it holds or fetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    /// An object is to stay as long as tasks read it.
    Hold(ObjectId),
    /// An object need not stay any more.
    Release(ObjectId),
    /// An object is to go.
    Drop(ObjectId),
    /// An executor is gone: nothing comes from it any more.
    Gone(ExecutorId),
    /// Nothing that only an executor holds that leaves is needed.
    MayLeave,
}

/// Notices, and who is to be sent each.
pub(super) type Notices = Vec<(ExecutorId, Notice)>;

/// The data that executors hold, and the tasks that it decides about.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// Some tasks have had data objects.
    knows_data: bool,
    /// The holders of each data object, and those that it is on its way to.
    index: Index,
    /// Ready tasks whose data decides where they go.
    queues: DataQueues,
    /// Ready tasks that are one executor's each.
    everywhere: Everywhere,
    /// Executors that fetch ahead of these tasks, in turn.
    fetchers: Fetchers,
    /// Objects of which holders are to be sent how many tasks want them.
    demands: Demands,
    /// Names of objects.
    catalog: Catalog,
    /// The number of tasks that read each object.
    readership: Readership,
    /// Copies of objects that are in caches alone.
    copies: Copies,
    /// Objects on their way to many executors.
    broadcasts: Broadcasts,
    /// Executors that were told where archives are to read members of.
    member_readers: BTreeSet<ExecutorId>,
    /// Objects over the room that executors lend.
    stripes: Stripes,
    /// What earlier tasks did with objects of the same names.
    memory: Memory,
    /// Objects that need not be kept any more, of which nobody was told yet.
    released: Vec<ObjectId>,
    /// Objects that the executor whose update is taken in could get from nobody.
    unobtainable: BTreeSet<ObjectId>,
}

// Executors that come and go, and what they hold.
impl Placement {
    /// An executor registers, as the next of one that was there `before`. Until it
    /// has said what it holds, it is taken to hold what that one held.
    pub(super) fn executor_joined(
        &mut self,
        id: ExecutorId,
        before: Option<ExecutorId>,
        has_cache: bool,
    ) {
        // A relay says later that those below it have caches.
        match before {
            Some(before) => self.index.rename(before, id),
            None => self.index.join(id),
        };
        if has_cache {
            self.fetchers.insert(id);
            self.copies.look_for_copiers();
        }
    }

    /// An executor is gone with all that it held. Those that may be fetching from
    /// it are told so: they need not wait for it.
    pub(super) fn executor_left(&mut self, id: ExecutorId, instances: &Instances) -> Notices {
        self.fetchers.remove(id);
        self.copies.forget(id);
        self.demands.forget(id);
        self.broadcasts.left(id);
        self.stripes.left(id);
        // One that came back under another number has kept its place.
        let Some(place) = self.index.place(id) else { return Notices::new() };
        self.member_readers.remove(&id);
        let mut fetching: BTreeSet<Place> = BTreeSet::new();
        fetching.extend(self.member_readers.iter().filter_map(|reader| self.index.place(*reader)));
        for object in self.index.held_from(place, ObjectNo(0)) {
            fetching.extend(self.index.coming(object).filter(|to| *to != place));
        }
        let fetching = fetching.into_iter().filter_map(|to| self.index.executor(to));
        let notices = fetching.map(|to| (to, Notice::Gone(id))).collect();
        let coming = self.coming_to(place);
        let lost: Vec<ObjectId> = self.held_by(place).collect();
        let held = self.index.leave(place);
        self.copies.copy_again(&lost, instances);
        self.queues.executor_left(&self.index, place, &held);
        self.came_or_went(place, &coming);
        self.queues.offer_all();
        notices
    }

    /// An executor with a cache has reported, and may be asked to fetch ahead.
    pub(super) fn cache_reported(&mut self, id: ExecutorId, unobtainable: Vec<ObjectId>) {
        self.unobtainable.extend(unobtainable);
        self.fetchers.insert(id);
    }

    /// The update is taken in in which an executor has said what it could get
    /// from nobody.
    pub(super) fn update_ended(&mut self) {
        self.unobtainable.clear();
    }

    /// An executor has said all that it holds, whatever it said before.
    pub(super) fn cache_listed(&mut self, id: ExecutorId, held: Vec<(ObjectId, u64)>) {
        let place = self.place(id);
        held.iter().for_each(|(object, _)| self.broadcasts.came(id, *object));
        let all: Vec<_> = held.into_iter().map(|(object, size)| (object, Some(size))).collect();
        let coming = self.coming_to(place);
        for change in self.index.replace(place, &all) {
            match change {
                Change::Added(object) => self.queues.holder_added(&self.index, place, object),
                Change::Removed(object) => self.queues.holder_removed(&self.index, place, object),
            }
        }
        self.came_or_went(place, &coming);
    }

    /// An executor has said what it holds from now on, and what no longer.
    pub(super) fn cache_changed(
        &mut self,
        id: ExecutorId,
        added: Vec<(ObjectId, u64)>,
        removed: &[ObjectId],
        instances: &Instances,
        fleet: &Fleet,
    ) -> Notices {
        let place = self.place(id);
        let stays = copies::stays(fleet, id);
        let mut notices = Notices::new();
        for (object, size) in added {
            notices.extend(self.copies.copied(id, object, stays));
            self.broadcasts.came(id, object);
            let number = self.index.number(object);
            if let Some(object) = self.index.add(place, object, Some(size)) {
                self.queues.holder_added(&self.index, place, object);
            } else if let Some(object) = number {
                self.queues.coming_changed(&self.index, object);
            }
        }
        for object in removed {
            notices.extend(self.copies.not_copied(id, *object));
            self.broadcasts.went(id, *object);
            self.stripes.went(id, *object);
        }
        // What never came is not one copy less.
        let is_held = |object: &ObjectId| {
            self.index.number(*object).is_some_and(|number| self.index.holds(place, number))
        };
        let held: Vec<ObjectId> = removed.iter().copied().filter(is_held).collect();
        self.copies.copy_again(&held, instances);
        for object in removed {
            let Some(number) = self.index.number(*object) else { continue };
            if self.index.remove(place, *object).is_some() {
                self.queues.holder_removed(&self.index, place, number);
            } else if self.index.is_coming(place, number) {
                self.index.cancel_transfer(number, place);
                self.queues.unfetchable(&self.index, number);
            }
        }
        notices
    }

    /// Executors may have become able to copy something.
    pub(super) fn look_for_copiers(&mut self) {
        self.copies.look_for_copiers();
    }

    /// Nobody holds an object, whatever was said. Those that said so are to drop
    /// it.
    pub(super) fn disbelieve(&mut self, object: ObjectId) -> Notices {
        let mut notices = Notices::new();
        let Some(number) = self.index.number(object) else { return notices };
        for place in self.index.holders(number).to_vec() {
            if self.index.remove(place, object).is_some() {
                self.queues.holder_removed(&self.index, place, number);
            }
            notices.extend(self.index.executor(place).map(|id| (id, Notice::Drop(object))));
        }
        notices
    }

    /// An object with where an executor may get it from, counted as on its way
    /// there. Of the executors that are named some may serve nobody; `serves` says
    /// which do. If it `may_be_above`, a dispatcher above may know who has it.
    pub(super) fn locate(
        &mut self,
        to: ExecutorId,
        object: &Object,
        may_be_above: bool,
        serves: impl Fn(ExecutorId) -> bool,
    ) -> Located {
        if let Some(archive) = object.archive() {
            return self.locate_member(to, object, archive, may_be_above, serves);
        }
        let place = self.place(to);
        let mut coming = None;
        let mut object = object.clone();
        // Nobody else may want it any more: the task was the last to wait.
        let number = self.index.want(object.id, object.size);
        // How large an output is nobody knew when its readers were submitted.
        object.size = object.size.or(self.index.held_size(number));
        let peers = self.index.hints(number, place, HINT_HOLDERS_MAX);
        self.queues.coming_changed(&self.index, number);
        let is_out_of_reach = || peers.iter().any(|id| !serves(*id));
        let forwarded = !object.is_stored()
            && (may_be_above || self.index.is_out_of_reach(number) || is_out_of_reach());
        if (object.is_stored() || forwarded) && !self.index.holds(place, number) {
            coming = match way::spreads(&object) {
                // What is broadcast comes from parents. Until they are named, nobody waits
                // for one that may be below it.
                true if peers.is_empty() => self.index.reader(number, place, usize::MAX),
                false if self.index.is_sought(number) => {
                    self.index.reader(number, place, READER_EXECUTORS_MAX)
                }
                _ => None,
            };
        }
        if !self.stripes.has(object.id) {
            self.broadcast(to, &object, (number, place), serves);
        }
        self.index.unwant(number);
        let sources = Sources { peers, store: object.is_stored(), coming, forwarded };
        Located { object, sources }
    }

    /// A task has ended well below a relay: what it leaves in caches is there. The relay says
    /// so later.
    pub(super) fn made_below(&mut self, id: ExecutorId, objects: impl Iterator<Item = ObjectId>) {
        let place = self.place(id);
        for object in objects {
            let number = self.index.number(object);
            if let Some(object) = self.index.add(place, object, None) {
                self.queues.holder_added(&self.index, place, object);
            } else if let Some(object) = number {
                self.queues.coming_changed(&self.index, object);
            }
        }
    }

    /// An executor is a relay: nobody fetches from it what those below it hold.
    pub(super) fn is_relay(&mut self, id: ExecutorId) {
        self.index.keep_to_itself(self.place(id));
    }

    /// Objects that are held, or not any more, since this was last asked.
    pub(super) fn take_held_changes(&mut self) -> (bool, Vec<(ObjectId, Option<u64>)>) {
        self.index.take_held_changes()
    }

    /// A member with the executors that hold its archive, which does not come
    /// with it.
    fn locate_member(
        &mut self,
        to: ExecutorId,
        object: &Object,
        archive: ObjectId,
        may_be_above: bool,
        serves: impl Fn(ExecutorId) -> bool,
    ) -> Located {
        self.member_readers.insert(to);
        let place = self.place(to);
        let number = self.index.number(archive);
        let peers = number.map(|number| self.index.part_hints(number, place, HINT_HOLDERS_MAX));
        let peers: Vec<ExecutorId> = peers.unwrap_or_default();
        let forwarded = may_be_above
            || number.is_some_and(|number| self.index.is_out_of_reach(number))
            || peers.iter().any(|id| !serves(*id));
        let sources = Sources { peers, forwarded, ..Sources::default() };
        Located { object: object.clone(), sources }
    }

    /// Tasks of an executor have ended or come back: what was on its way there
    /// for them, and has not been reported, is not coming.
    pub(super) fn not_coming(&mut self, id: ExecutorId, data: &Declared, offset: u64, count: u64) {
        let place = self.place(id);
        let objects = (offset..offset + count).flat_map(|at| data.inputs_of(at));
        for object in objects.filter(|object| object.archive().is_none()) {
            if let Some(number) = self.index.number(object.id)
                && self.index.is_coming(place, number)
            {
                self.index.cancel_transfer(number, place);
                self.queues.came_or_went(&self.index, place, number);
                self.fetchers.insert(id);
            }
            if !self.is_held_by(id, object.id) {
                self.broadcasts.went(id, object.id);
            }
        }
    }

    /// How many tasks want what an executor holds, of what has changed since it
    /// was told.
    pub(super) fn next_demand(&mut self, to: ExecutorId) -> Vec<(ObjectId, u64)> {
        self.demands.next(&self.index, to)
    }

    /// Notes what of that has changed.
    pub(super) fn note_demands(&mut self) {
        self.demands.note(&mut self.index);
    }
}

// Tasks that run on each executor.
impl Placement {
    pub(super) fn everywhere(&self) -> &Everywhere {
        &self.everywhere
    }

    pub(super) fn everywhere_mut(&mut self) -> &mut Everywhere {
        &mut self.everywhere
    }
}

// Questions about objects.
impl Placement {
    /// Whether some tasks have had data objects.
    pub(super) fn knows_data(&self) -> bool {
        self.knows_data
    }

    /// Whether anybody holds an object, or it is on its way to an executor.
    pub(super) fn is_in_cache(&self, object: ObjectId, or_coming_to: Option<ExecutorId>) -> bool {
        self.index.number(object).is_some_and(|number| {
            let is_coming = |to| self.index.is_coming(self.place(to), number);
            or_coming_to.is_some_and(is_coming) || !self.index.holders(number).is_empty()
        })
    }

    /// Whether an executor holds an object.
    fn is_held_by(&self, id: ExecutorId, object: ObjectId) -> bool {
        let number = self.index.number(object);
        number.is_some_and(|number| self.index.holds(self.place(id), number))
    }

    /// Whether the executor whose update is taken in could get an object from
    /// nobody.
    pub(super) fn is_unobtainable(&self, object: ObjectId) -> bool {
        self.unobtainable.contains(&object)
    }

    /// Whether any object is on its way to anybody.
    pub(super) fn is_anything_coming(&self) -> bool {
        self.index.is_anything_coming()
    }

    /// How many objects an executor holds.
    pub(super) fn held_count(&self, id: ExecutorId) -> u64 {
        self.index.held_count(self.place(id)) as u64
    }

    /// The number of an executor that has joined and not left.
    fn place(&self, id: ExecutorId) -> Place {
        let place = self.index.place(id);
        place.unwrap_or_else(|| panic!("executor {id} has no place in the index"))
    }

    /// The objects that an executor holds.
    fn held_by(&self, place: Place) -> impl Iterator<Item = ObjectId> + '_ {
        let held = self.index.held_from(place, ObjectNo(0));
        held.filter_map(|number| self.index.id(number))
    }

    /// The holders of an object.
    pub(in crate::dispatch) fn holders_of(
        &self,
        object: ObjectId,
    ) -> impl Iterator<Item = ExecutorId> + '_ {
        let holders = self.index.number(object).map(|number| self.index.holders(number));
        let holders = holders.unwrap_or_default().iter();
        holders.filter_map(|place| self.index.executor(*place))
    }

    /// The objects on their way to an executor.
    fn coming_to(&self, place: Place) -> Vec<ObjectId> {
        self.index.coming_objects(place).filter_map(|object| self.index.id(object)).collect()
    }

    /// Objects have come to an executor, or are not coming any more.
    fn came_or_went(&mut self, place: Place, objects: &[ObjectId]) {
        for id in objects {
            if let Some(object) = self.index.number(*id) {
                self.queues.came_or_went(&self.index, place, object);
            }
        }
    }
}
