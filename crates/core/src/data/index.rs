//! The dispatcher's index of what executors hold (data-diffusion §3.1.1):
//! `I_map` and `E_map` of the paper in one.
//!
//! It is loosely coherent: executors report additions and removals, and what
//! they have not reported yet is not known here. A wrong entry costs time, not
//! correctness.
//!
//! Objects and executors are known by small numbers while the index needs
//! them; a number is used again when its object is neither held, nor on its
//! way, nor wanted by a waiting task. Costs: a lookup of an id is O(log
//! objects), a change of one holder O(replicas) copies of four bytes, hints
//! O([`HINT_EXECUTORS_MAX`]).

mod check;

use super::object::ObjectId;
use crate::limits::{
    EXECUTOR_OBJECTS_MAX, HELD_CHANGE_OBJECTS_MAX, HINT_EXECUTORS_MAX, READER_EXECUTORS_MAX,
};
use crate::task::ExecutorId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// An object's number in an [`Index`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectNo(pub u32);

/// An executor's number in an [`Index`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u32);

/// What a report changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The executor holds the object from now on.
    Added(ObjectNo),
    /// The executor holds the object no longer.
    Removed(ObjectNo),
}

/// Which executors hold which objects, and who is fetching what from whom.
#[derive(Debug, Default)]
pub struct Index {
    numbers: BTreeMap<ObjectId, ObjectNo>,
    objects: Vec<Object>,
    free_objects: Vec<ObjectNo>,
    places: BTreeMap<ExecutorId, Place>,
    executors: Vec<Executor>,
    free_places: Vec<Place>,
    /// With which of many holders hints begin, so that all get their turn.
    turn: usize,
    /// Objects on their way.
    transfers: usize,
    /// Objects that somebody holds and that another number of waiting tasks
    /// wants than when this was last taken.
    rewanted: BTreeSet<ObjectNo>,
    /// Objects that somebody holds, and nobody held, or the other way round, since this
    /// was last taken; `None` if nobody asks.
    held_changed: Option<BTreeSet<ObjectId>>,
}

#[derive(Debug)]
struct Object {
    id: ObjectId,
    size: Option<u64>,
    /// Its size as the first of its holders said: what a task writes again may have
    /// another one.
    held_size: Option<u64>,
    /// In the order of their numbers.
    holders: Vec<Place>,
    /// The first to have been asked foremost.
    coming: Vec<Transfer>,
    /// Inputs of waiting tasks.
    wanted: u64,
    /// Whether the number is given to the object.
    is_used: bool,
}

/// An object on its way, from the holder that was named first, if any was.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    to: Place,
    from: Option<Place>,
}

#[derive(Debug, Default)]
struct Executor {
    id: Option<ExecutorId>,
    held: BTreeSet<ObjectNo>,
    /// What is on its way to it.
    coming: BTreeSet<ObjectNo>,
    /// What is on its way from it: as often as it is being sent.
    sending: BTreeMap<ObjectNo, u32>,
    sends: u64,
    /// Nobody fetches from it.
    keeps_to_itself: bool,
}

impl Index {
    /// An index of nothing.
    #[must_use]
    pub fn new() -> Index {
        Index::default()
    }

    /// The number of an executor, given to it now if it has none.
    pub fn join(&mut self, id: ExecutorId) -> Place {
        if let Some(place) = self.places.get(&id) {
            return *place;
        }
        let place = self.free_places.pop().unwrap_or_else(|| {
            self.executors.push(Executor::default());
            Place(number(self.executors.len() - 1))
        });
        self.executors[place.0 as usize].id = Some(id);
        self.places.insert(id, place);
        place
    }

    /// An executor is gone, with all that it held, and its number may be given
    /// to another. Returns what it held. What was on its way from it may still
    /// arrive from elsewhere.
    pub fn leave(&mut self, place: Place) -> Vec<ObjectNo> {
        let Some(id) = self.executor(place) else { return Vec::new() };
        let executor = std::mem::take(&mut self.executors[place.0 as usize]);
        for object in &executor.coming {
            self.end_transfer(*object, place);
        }
        for object in executor.sending.keys() {
            for transfer in &mut self.objects[object.0 as usize].coming {
                if transfer.from == Some(place) {
                    transfer.from = None;
                }
            }
        }
        for object in &executor.held {
            let holders = &mut self.objects[object.0 as usize].holders;
            if let Ok(at) = holders.binary_search(&place) {
                holders.remove(at);
            }
            self.note_held_changed(*object, 0);
        }
        for object in executor.held.iter().chain(&executor.coming) {
            self.free_if_unused(*object);
        }
        self.places.remove(&id);
        self.free_places.push(place);
        executor.held.into_iter().collect()
    }

    /// An executor is known by another number from now on, and keeps all that
    /// it holds until [`Index::replace`]. Returns its place.
    pub fn rename(&mut self, before: ExecutorId, now: ExecutorId) -> Place {
        let Some(place) = self.places.remove(&before) else { return self.join(now) };
        self.executors[place.0 as usize].id = Some(now);
        self.places.insert(now, place);
        place
    }

    /// The number of an executor that has joined.
    #[must_use]
    pub fn place(&self, id: ExecutorId) -> Option<Place> {
        self.places.get(&id).copied()
    }

    /// The executor that has a number.
    #[must_use]
    pub fn executor(&self, place: Place) -> Option<ExecutorId> {
        self.executors.get(place.0 as usize).and_then(|executor| executor.id)
    }

    /// One more waiting task has this input. Its number is valid until
    /// [`Index::unwant`] has been called as often.
    pub fn want(&mut self, id: ObjectId, size: Option<u64>) -> ObjectNo {
        let object = self.intern(id, size);
        let found = &mut self.objects[object.0 as usize];
        found.wanted += 1;
        if !found.holders.is_empty() {
            self.rewanted.insert(object);
        }
        object
    }

    /// A task with this input waits no longer.
    pub fn unwant(&mut self, object: ObjectNo) {
        let Some(found) = self.objects.get_mut(object.0 as usize) else { return };
        found.wanted = found.wanted.saturating_sub(1);
        if !found.holders.is_empty() {
            self.rewanted.insert(object);
        }
        self.free_if_unused(object);
    }

    /// An object that somebody holds and that another number of waiting tasks
    /// wants than when it was last given.
    pub fn next_rewanted(&mut self) -> Option<ObjectNo> {
        self.rewanted.pop_first()
    }

    /// How many waiting tasks, of all instances, have this input: what an
    /// eviction that looks at the queue goes by.
    #[must_use]
    pub fn wanted(&self, object: ObjectNo) -> u64 {
        self.objects.get(object.0 as usize).map_or(0, |found| found.wanted)
    }

    /// The number of an object that is held, on its way or wanted.
    #[must_use]
    pub fn number(&self, id: ObjectId) -> Option<ObjectNo> {
        self.numbers.get(&id).copied()
    }

    /// All objects that are held, on their way or wanted, by id, after one.
    pub fn ids_after(&self, after: Option<ObjectId>) -> impl Iterator<Item = ObjectId> + '_ {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.numbers.range((from, Bound::Unbounded)).map(|(id, _)| *id)
    }

    /// The object that has a number.
    #[must_use]
    pub fn id(&self, object: ObjectNo) -> Option<ObjectId> {
        let found = self.objects.get(object.0 as usize)?;
        found.is_used.then_some(found.id)
    }

    /// The size of an object in bytes, if anybody has said it.
    #[must_use]
    pub fn size(&self, object: ObjectNo) -> Option<u64> {
        self.objects.get(object.0 as usize).and_then(|found| found.size)
    }

    /// The size of an object in bytes, as those who hold it say.
    #[must_use]
    pub fn held_size(&self, object: ObjectNo) -> Option<u64> {
        let found = self.objects.get(object.0 as usize)?;
        found.held_size.filter(|_| !found.holders.is_empty())
    }

    /// An executor holds an object. Gives its number if that is news: then
    /// queues must be told before the next change. Of an executor that says that
    /// it holds more than [`EXECUTOR_OBJECTS_MAX`], the rest is not kept.
    pub fn add(&mut self, place: Place, id: ObjectId, size: Option<u64>) -> Option<ObjectNo> {
        self.executor(place)?;
        if self.held_count(place) >= EXECUTOR_OBJECTS_MAX {
            let known = self.number(id);
            if !known.is_some_and(|object| self.holds(place, object)) {
                if let Some(object) = known {
                    self.cancel_transfer(object, place);
                }
                return None;
            }
        }
        let object = self.intern(id, size);
        self.end_transfer(object, place);
        let found = &mut self.objects[object.0 as usize];
        if found.holders.is_empty() {
            found.held_size = size;
        } else if found.held_size.is_none() && size.is_some() {
            // Somebody was known to hold it before anybody said how large it is.
            found.held_size = size;
            self.note_size_known(object);
        }
        let found = &mut self.objects[object.0 as usize];
        let at = found.holders.binary_search(&place).err()?;
        found.holders.insert(at, place);
        self.executors[place.0 as usize].held.insert(object);
        self.note_held_changed(object, 1);
        Some(object)
    }

    /// An executor holds an object no longer. Gives its number if that is
    /// news: then queues must be told before the next change.
    pub fn remove(&mut self, place: Place, id: ObjectId) -> Option<ObjectNo> {
        let object = self.number(id)?;
        let holders = &mut self.objects[object.0 as usize].holders;
        let at = holders.binary_search(&place).ok()?;
        holders.remove(at);
        self.executors[place.0 as usize].held.remove(&object);
        self.note_held_changed(object, 0);
        self.free_if_unused(object);
        Some(object)
    }

    /// An executor that was away says all that it holds. Returns what that
    /// changes. What was on its way to it is not any longer.
    pub fn replace(&mut self, place: Place, all: &[(ObjectId, Option<u64>)]) -> Vec<Change> {
        if self.executor(place).is_none() {
            return Vec::new();
        }
        let executor = &mut self.executors[place.0 as usize];
        for object in std::mem::take(&mut executor.coming) {
            self.end_transfer(object, place);
            self.free_if_unused(object);
        }
        let before = self.executors[place.0 as usize].held.clone();
        let mut changes: Vec<Change> = all
            .iter()
            .filter_map(|(id, size)| self.add(place, *id, *size))
            .map(Change::Added)
            .collect();
        let said: BTreeSet<ObjectId> = all.iter().map(|(id, _)| *id).collect();
        for object in before {
            let id = self.objects[object.0 as usize].id;
            if !said.contains(&id) && self.remove(place, id).is_some() {
                changes.push(Change::Removed(object));
            }
        }
        changes
    }

    /// Who holds an object, in the order of their numbers.
    #[must_use]
    pub fn holders(&self, object: ObjectNo) -> &[Place] {
        self.objects.get(object.0 as usize).map_or(&[], |found| &found.holders)
    }

    /// Whether an executor holds an object.
    #[must_use]
    pub fn holds(&self, place: Place, object: ObjectNo) -> bool {
        self.holders(object).binary_search(&place).is_ok()
    }

    /// What an executor holds, from an object's number on, in the order of
    /// the numbers.
    pub fn held_from(&self, place: Place, from: ObjectNo) -> impl Iterator<Item = ObjectNo> + '_ {
        let executor = self.executors.get(place.0 as usize);
        executor.into_iter().flat_map(move |executor| executor.held.range(from..).copied())
    }

    /// How many objects an executor holds.
    #[must_use]
    pub fn held_count(&self, place: Place) -> usize {
        self.executors.get(place.0 as usize).map_or(0, |executor| executor.held.len())
    }

    /// To how many executors an object is on its way.
    #[must_use]
    pub fn coming_count(&self, object: ObjectNo) -> usize {
        self.objects.get(object.0 as usize).map_or(0, |found| found.coming.len())
    }

    /// To whom an object is on its way.
    pub fn coming(&self, object: ObjectNo) -> impl Iterator<Item = Place> + '_ {
        let found = self.objects.get(object.0 as usize);
        found.into_iter().flat_map(|found| found.coming.iter().map(|transfer| transfer.to))
    }

    /// Whether an object is on its way to an executor.
    #[must_use]
    pub fn is_coming(&self, place: Place, object: ObjectNo) -> bool {
        self.executors.get(place.0 as usize).is_some_and(|found| found.coming.contains(&object))
    }

    /// What is on its way to an executor.
    pub fn coming_objects(&self, place: Place) -> impl Iterator<Item = ObjectNo> + '_ {
        let executor = self.executors.get(place.0 as usize);
        executor.into_iter().flat_map(|executor| executor.coming.iter().copied())
    }

    /// How many objects are on their way to an executor.
    #[must_use]
    pub fn coming_to(&self, place: Place) -> usize {
        self.executors.get(place.0 as usize).map_or(0, |executor| executor.coming.len())
    }

    /// An executor is about to fetch an object: names up to `count` holders,
    /// the least loaded first (none if nobody else holds it: then it comes
    /// from the persistent store), and counts the transfer against the first
    /// until the object is reported or [`Index::cancel_transfer`] says that it is not
    /// coming. Of many holders, [`HINT_EXECUTORS_MAX`] are looked at.
    pub fn hints(&mut self, object: ObjectNo, to: Place, count: usize) -> Vec<ExecutorId> {
        let Some(sources) = self.sources(object, to, count) else { return Vec::new() };
        self.begin_transfer(object, to, sources.first().copied());
        sources.iter().filter_map(|place| self.executor(*place)).collect()
    }

    /// Whether somebody holds an object from whom nobody fetches.
    #[must_use]
    pub fn is_out_of_reach(&self, object: ObjectNo) -> bool {
        let mut holders = self.holders(object).iter().take(HINT_EXECUTORS_MAX);
        holders.any(|place| self.executors[place.0 as usize].keeps_to_itself)
    }

    /// Nobody fetches from an executor, whatever it holds.
    pub fn keep_to_itself(&mut self, place: Place) {
        if let Some(executor) = self.executors.get_mut(place.0 as usize) {
            executor.keeps_to_itself = true;
        }
    }

    /// Objects that somebody holds, with their size, or that nobody holds any more, of
    /// those of which that has changed since this was last asked; and whether they are
    /// all that are held, as nobody has asked for long.
    pub fn take_held_changes(&mut self) -> (bool, Vec<(ObjectId, Option<u64>)>) {
        let changed = self.held_changed.replace(BTreeSet::new());
        let is_all = changed.is_none();
        let held = self.objects.iter().filter(|object| !object.holders.is_empty());
        let changed = changed.unwrap_or_else(|| held.map(|object| object.id).collect());
        // What is held of unknown size is said when its size is known.
        let now = |id: ObjectId| {
            let object = self.number(id).map(|number| &self.objects[number.0 as usize]);
            let held = object.filter(|object| !object.holders.is_empty());
            (id, held.and_then(|object| object.held_size.or(object.size)))
        };
        (is_all, changed.into_iter().map(now).collect())
    }

    /// The size of an object that is held is known now.
    fn note_size_known(&mut self, object: ObjectNo) {
        let holders = self.objects[object.0 as usize].holders.len();
        self.note_held_changed(object, holders);
    }

    /// The holders of an object have become so many, or more.
    fn note_held_changed(&mut self, object: ObjectNo, holders: usize) {
        let Some(changed) = &mut self.held_changed else { return };
        let found = &self.objects[object.0 as usize];
        if found.holders.len() == holders {
            changed.insert(found.id);
        }
        if changed.len() > HELD_CHANGE_OBJECTS_MAX {
            self.held_changed = None;
        }
    }

    /// The same for a part of an object, which is no transfer of the object.
    pub fn part_hints(&mut self, object: ObjectNo, to: Place, count: usize) -> Vec<ExecutorId> {
        let sources = self.sources(object, to, count).unwrap_or_default();
        sources.iter().filter_map(|place| self.executor(*place)).collect()
    }

    /// The holders of an object that another executor is to ask; `None` if it
    /// need not ask anybody.
    fn sources(&mut self, object: ObjectNo, to: Place, count: usize) -> Option<Vec<Place>> {
        if self.executor(to).is_none() || self.holds(to, object) {
            return None;
        }
        let holders = &self.objects.get(object.0 as usize)?.holders;
        let from = if holders.len() > HINT_EXECUTORS_MAX { self.turn % holders.len() } else { 0 };
        self.turn = self.turn.wrapping_add(1);
        let considered = holders[from..].iter().chain(&holders[..from]);
        let mut sources: Vec<(u64, Place)> = considered
            .filter(|place| !self.executors[place.0 as usize].keeps_to_itself)
            .take(HINT_EXECUTORS_MAX)
            .map(|place| (self.executors[place.0 as usize].sends, *place))
            .collect();
        sources.sort_by_key(|(sends, _)| *sends);
        sources.truncate(count);
        Some(sources.into_iter().map(|(_, place)| place).collect())
    }

    /// Whether so many fetch an object that those who hold it do not serve all of them at
    /// once.
    #[must_use]
    pub fn is_sought(&self, object: ObjectNo) -> bool {
        let Some(found) = self.objects.get(object.0 as usize) else { return false };
        let serves = |place: &&Place| !self.executors[place.0 as usize].keeps_to_itself;
        let mut serving = found.holders.iter().filter(serves);
        let most = found.coming.len().div_ceil(READER_EXECUTORS_MAX);
        serving.by_ref().take(most).count() < most
    }

    /// Who is about to have an object, for another that is to fetch it and would read it
    /// at the store, too. Those that fetch it form a tree in the order in which they were
    /// asked to: each is named to so many others at most, and the first of them reads the
    /// store. All of them come before those they are named to, so that no two are told to
    /// wait for each other.
    #[must_use]
    pub fn reader(&self, object: ObjectNo, to: Place, followers_max: usize) -> Option<ExecutorId> {
        let coming = &self.objects.get(object.0 as usize)?.coming;
        // It is usually the last that was asked.
        let at = coming.iter().rposition(|transfer| transfer.to == to)?;
        let above = at.checked_sub(1)? / followers_max;
        self.executor(coming.get(above)?.to)
    }

    /// What an executor was to fetch has not come and will not: the fetch
    /// failed, or the task that it was for has ended.
    pub fn cancel_transfer(&mut self, object: ObjectNo, to: Place) {
        if (object.0 as usize) < self.objects.len() && self.is_coming(to, object) {
            self.end_transfer(object, to);
            self.free_if_unused(object);
        }
    }

    /// Whether any object is on its way to anybody.
    #[must_use]
    pub fn is_anything_coming(&self) -> bool {
        self.transfers > 0
    }

    /// Transfers counted against an executor as their source.
    #[must_use]
    pub fn sends(&self, place: Place) -> u64 {
        self.executors.get(place.0 as usize).map_or(0, |executor| executor.sends)
    }

    fn begin_transfer(&mut self, object: ObjectNo, to: Place, from: Option<Place>) {
        if !self.executors[to.0 as usize].coming.insert(object) {
            return;
        }
        self.objects[object.0 as usize].coming.push(Transfer { to, from });
        self.transfers += 1;
        if let Some(from) = from {
            let source = &mut self.executors[from.0 as usize];
            *source.sending.entry(object).or_insert(0) += 1;
            source.sends += 1;
        }
    }

    fn end_transfer(&mut self, object: ObjectNo, to: Place) {
        self.executors[to.0 as usize].coming.remove(&object);
        let coming = &mut self.objects[object.0 as usize].coming;
        let Some(at) = coming.iter().position(|transfer| transfer.to == to) else { return };
        let transfer = coming.remove(at);
        self.transfers -= 1;
        let Some(from) = transfer.from else { return };
        let source = &mut self.executors[from.0 as usize];
        source.sends = source.sends.saturating_sub(1);
        if let Some(times) = source.sending.get_mut(&object) {
            *times -= 1;
            if *times == 0 {
                source.sending.remove(&object);
            }
        }
    }

    fn intern(&mut self, id: ObjectId, size: Option<u64>) -> ObjectNo {
        let object = *self.numbers.entry(id).or_insert_with(|| {
            let fresh = Object {
                id,
                size: None,
                held_size: None,
                holders: Vec::new(),
                coming: Vec::new(),
                wanted: 0,
                is_used: true,
            };
            if let Some(object) = self.free_objects.pop() {
                self.objects[object.0 as usize] = fresh;
                return object;
            }
            self.objects.push(fresh);
            ObjectNo(number(self.objects.len() - 1))
        });
        let known = &mut self.objects[object.0 as usize].size;
        *known = known.or(size);
        object
    }

    fn free_if_unused(&mut self, object: ObjectNo) {
        let found = &mut self.objects[object.0 as usize];
        if found.wanted > 0 || !found.holders.is_empty() || !found.coming.is_empty() {
            return;
        }
        if std::mem::take(&mut found.is_used) {
            self.numbers.remove(&found.id);
            found.holders = Vec::new();
            found.coming = Vec::new();
            self.free_objects.push(object);
        }
    }
}

fn number(at: usize) -> u32 {
    u32::try_from(at).expect("memory ends before four billion entries of an index do")
}
