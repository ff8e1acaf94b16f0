//! How the inputs of tasks that have several come together, under a policy that
//! fetches ahead.
//!
//! An executor *has* what it holds and what is on its way to it. A task is
//! *whole* at an executor that has all its inputs. Each executor fetches just so
//! much that whole tasks last it until the next objects can be there, and then
//! the object that makes the most tasks whole or nearly so. So it grows a set of
//! objects whose tasks hang together, as fast as it works them off, and what one
//! does not take on is left to the others.
//!
//! # Costs
//! Each waiting task is looked at once for each executor that has one of its
//! inputs, no more than [`COLOCATE_TASKS_MAX`] of them in one decision, and to
//! count anew what objects are worth no more than [`RECOUNT_TASKS_MAX`].

use super::queue::{Mark, NONE, Queue};
use super::select::bytes;
use super::wait_lists::WaitLists;
use super::{Costs, Waiting};
use crate::data::index::{Index, ObjectNo, Place};
use crate::limits::{
    AHEAD_OBJECTS_MAX, COLOCATE_TASKS_MAX, GAINS_OBJECTS_MAX, HINT_EXECUTORS_MAX,
    RECOUNT_TASKS_MAX, SCAN_TASKS_MAX, SENDS_OBJECTS_MAX, WHOLE_TASKS_MAX,
};
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Tasks of each slot that an executor should have whole at least.
const SLOT_TASKS: u64 = 2;
/// The gain of an object for a task that is whole with it; each further input that
/// is missing makes it a quarter.
const WHOLE_GAIN: u64 = 256;
/// The most that an object may gain, before it is counted.
const UNKNOWN_GAIN: u64 = WHOLE_GAIN * COLOCATE_TASKS_MAX as u64;
/// By how much less it is worth to make a task whole that is so elsewhere.
const ELSEWHERE: u64 = 16;
/// Objects that are looked at for the one that gains most.
const BEST_SEARCH: usize = 32;

/// An object by what it gains, and by chance.
type Ranked = (Reverse<u64>, u64, ObjectNo);

/// The tasks of which an executor has inputs, as far as they were looked at.
#[derive(Debug, Default)]
struct Near {
    /// Objects that the executor has and that were noticed, and before which place
    /// in the queue that object's tasks were looked at.
    noted: BTreeMap<ObjectNo, u64>,
    /// Objects that the executor has not, and what each would gain; too much where
    /// tasks have gone since.
    gains: BTreeMap<ObjectNo, u64>,
    /// Objects in `gains` with tasks that were not looked at: perhaps, if more than
    /// before are queued since `upto`.
    behind: BTreeSet<ObjectNo>,
    /// The place behind the queue when all of them were last taken to be behind.
    upto: u64,
    /// Tasks that were whole when they were looked at.
    whole: VecDeque<Mark>,
    /// The least number of these that still are whole, and whether it is exact.
    sure: usize,
    is_counted: bool,
    /// The objects that gain most, the best first, as long as gains are what
    /// they were.
    ranked: Vec<Ranked>,
    /// Behind which of the objects that it holds the search for new ones goes on.
    searched: Option<ObjectNo>,
}

/// The executors at which a task became whole.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Homes {
    None,
    One(Place),
    More(Box<[Place]>),
}

impl Homes {
    fn as_slice(&self) -> &[Place] {
        match self {
            Homes::None => &[],
            Homes::One(one) => std::slice::from_ref(one),
            Homes::More(more) => more,
        }
    }

    fn add(&mut self, place: Place) {
        let before = self.as_slice();
        if before.contains(&place) {
            return;
        }
        *self = match before {
            [] => Homes::One(place),
            before => Homes::More(before.iter().copied().chain([place]).collect()),
        };
    }
}

/// The tasks near all executors, by the executors' numbers.
#[derive(Debug)]
pub(super) struct Colocation {
    places: Vec<Near>,
    /// Where a task became whole, by where it is stored.
    homes: Vec<Homes>,
    /// By object, whether the executor that is looked at has it.
    here: Vec<bool>,
    /// The task that the next executor begins with that has nothing to go on.
    seed: Mark,
}

impl Default for Colocation {
    fn default() -> Colocation {
        let (places, homes, here) = (Vec::new(), Vec::new(), Vec::new());
        Colocation { places, homes, here, seed: Mark { seq: 0, slot: NONE } }
    }
}

impl Colocation {
    /// A task was queued.
    pub(super) fn pushed(&mut self, mark: Mark) {
        let at = mark.slot as usize;
        if self.homes.len() <= at {
            self.homes.resize(at + 1, Homes::None);
        }
        self.homes[at] = Homes::None;
    }

    /// A task waits no longer.
    pub(super) fn taken(&mut self, slot: u32) {
        let Some(homes) = self.homes.get(slot as usize) else { return };
        for place in homes.as_slice() {
            if let Some(near) = self.places.get_mut(place.0 as usize) {
                near.recount_whole();
            }
        }
    }

    /// An executor has an object no longer, or will not have it after all.
    pub(super) fn lost(&mut self, place: Place, object: ObjectNo) {
        if let Some(near) = self.places.get_mut(place.0 as usize) {
            near.forget(object);
        }
    }

    /// An executor could not fetch an object.
    pub(super) fn failed(&mut self, index: &Index, object: ObjectNo) {
        for (at, near) in self.places.iter_mut().enumerate() {
            if !has(index, Place(at as u32), object) {
                near.forget(object);
            }
        }
    }

    /// An executor is gone.
    pub(super) fn left(&mut self, place: Place) {
        if let Some(near) = self.places.get_mut(place.0 as usize) {
            *near = Near::default();
        }
    }

    fn near(&mut self, place: Place) -> &mut Near {
        let at = place.0 as usize;
        if self.places.len() <= at {
            self.places.resize_with(at + 1, Near::default);
        }
        &mut self.places[at]
    }
}

fn is_in(here: &[bool], object: &ObjectNo) -> bool {
    here.get(object.0 as usize).copied().unwrap_or(false)
}

fn has(index: &Index, place: Place, object: ObjectNo) -> bool {
    index.holds(place, object) || index.is_coming(place, object)
}

/// The order of objects, the best first: by what they gain, whether nobody holds
/// them, and chance.
type Worth = (Reverse<u64>, bool, u64);

/// The gain of one object for a task that lacks so many.
fn gain(lacks: usize) -> u64 {
    let quarters = 2 * (lacks as u32).saturating_sub(1);
    (WHOLE_GAIN >> quarters.min(WHOLE_GAIN.ilog2())).max(1)
}

/// Puts objects that gain the same in another order for each executor.
fn tie(place: Place, object: ObjectNo) -> u64 {
    let mixed =
        (u64::from(place.0) << 32 | u64::from(object.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

impl Near {
    /// The executor has an object from now on, or is about to.
    fn note(&mut self, object: ObjectNo) {
        self.gains.remove(&object);
        self.ranked.clear();
        self.noted.insert(object, 0);
        self.behind.insert(object);
    }

    /// The executor has an object no longer. Its gain is to be counted anew.
    fn forget(&mut self, object: ObjectNo) {
        self.recount_whole();
        self.behind.remove(&object);
        if self.noted.remove(&object).is_some() && self.gains.len() < GAINS_OBJECTS_MAX {
            self.gains.insert(object, UNKNOWN_GAIN);
            self.ranked.clear();
        }
    }

    /// Tasks that were whole may be so no longer.
    fn recount_whole(&mut self) {
        (self.sure, self.is_counted) = (0, false);
    }

    /// Says by object what it has, or lets that be forgotten.
    fn show(&self, here: &mut Vec<bool>, is_here: bool) {
        for object in self.noted.keys() {
            let at = object.0 as usize;
            if here.len() <= at {
                here.resize(at + 1, false);
            }
            here[at] = is_here;
        }
    }

    /// Looks at the tasks of what it has that were not looked at, up to so many.
    fn catch_up(
        &mut self,
        place: Place,
        (queue, wait_lists): (&Queue, &WaitLists),
        homes: &mut [Homes],
        here: &mut Vec<bool>,
    ) {
        if self.upto < queue.next_seq() {
            self.upto = queue.next_seq();
            self.behind.extend(self.noted.keys());
        }
        if self.behind.is_empty() {
            return;
        }
        self.show(here, true);
        let mut tasks = COLOCATE_TASKS_MAX;
        let mut behind = std::mem::take(&mut self.behind);
        behind.retain(|object| {
            if tasks == 0 {
                return true;
            }
            let (Some(local), Some(&from)) = (wait_lists.local(*object), self.noted.get(object))
            else {
                return false;
            };
            let mut looked = from;
            for mark in wait_lists.marks_from(queue, local, from).take(tasks) {
                tasks -= 1;
                looked = mark.seq + 1;
                if let Some(home) = homes.get_mut(mark.slot as usize) {
                    self.look(queue, *object, mark, home, (place, here));
                }
            }
            self.noted.insert(*object, looked);
            tasks == 0
        });
        self.behind = behind;
        self.show(here, false);
    }

    /// Looks at a task of something that it has.
    fn look(
        &mut self,
        queue: &Queue,
        object: ObjectNo,
        mark: Mark,
        home: &mut Homes,
        (place, here): (Place, &[bool]),
    ) {
        let inputs = queue.inputs(mark.slot);
        let lacks = inputs.iter().filter(|input| !is_in(here, input));
        let count = lacks.clone().count();
        if count == 0 {
            // The last of its inputs that is looked at tells of it.
            let is_past = |input: &ObjectNo| {
                *input == object || self.noted.get(input).is_some_and(|from| *from > mark.seq)
            };
            if inputs.len() > 1 && inputs.iter().all(is_past) {
                self.whole.push_back(mark);
                self.is_counted = false;
                home.add(place);
            }
            return;
        }
        let gain = gain(count);
        self.ranked.clear();
        for object in lacks {
            let is_room = self.gains.len() < GAINS_OBJECTS_MAX;
            match self.gains.entry(*object) {
                Entry::Occupied(mut known) => *known.get_mut() += gain,
                Entry::Vacant(place) if is_room => {
                    place.insert(gain);
                }
                Entry::Vacant(_) => {}
            }
        }
    }

    /// Finds the objects that gain most, if it is not known which.
    fn rank(&mut self, place: Place) {
        if !self.ranked.is_empty() {
            return;
        }
        let key =
            |(object, gain): (&ObjectNo, &u64)| (Reverse(*gain), tie(place, *object), *object);
        self.ranked.extend(self.gains.iter().map(key));
        if self.ranked.len() > BEST_SEARCH {
            self.ranked.select_nth_unstable(BEST_SEARCH);
            self.ranked.truncate(BEST_SEARCH);
        }
    }

    /// The gain of an object now, of its first tasks, of which `tasks` are left to be
    /// looked at.
    fn recount(
        &mut self,
        queue: &Queue,
        wait_lists: &WaitLists,
        (homes, here): (&[Homes], &[bool]),
        object: ObjectNo,
        tasks: &mut usize,
    ) -> u64 {
        self.ranked.clear();
        let Some(local) = wait_lists.local(object) else {
            self.gains.remove(&object);
            return 0;
        };
        let (mut fresh, mut elsewhere) = (0, 0);
        for mark in wait_lists.marks_from(queue, local, 0).take(COLOCATE_TASKS_MAX) {
            *tasks = tasks.saturating_sub(1);
            let inputs = queue.inputs(mark.slot);
            let lacks = inputs.iter().filter(|input| !is_in(here, input)).count();
            // One with no other input here says nothing.
            if lacks == inputs.len() {
                continue;
            }
            match homes.get(mark.slot as usize) {
                None | Some(Homes::None) => fresh += gain(lacks),
                Some(_) => elsewhere += gain(lacks),
            }
        }
        let sum = fresh + elsewhere.div_ceil(ELSEWHERE);
        match sum {
            0 => self.gains.remove(&object),
            sum => self.gains.insert(object, sum),
        };
        // Tasks that are whole elsewhere are only taken over by one that has nothing
        // else to do.
        if self.whole.is_empty() { sum } else { fresh }
    }
}

impl Waiting {
    /// The object that an executor should fetch next for tasks with several inputs;
    /// nothing while those that are whole there last.
    pub(super) fn colocate(
        &mut self,
        index: &Index,
        place: Place,
        costs: &Costs,
    ) -> Option<ObjectNo> {
        let transfer = self.transfer_micros(index, costs);
        self.reads.retire_finished(index, costs.now, transfer);
        let ahead = transfer.saturating_mul(AHEAD_OBJECTS_MAX as u64) / costs.task_micros.max(1);
        let enough = (SLOT_TASKS + ahead).saturating_mul(costs.slots.max(1));
        let enough = enough.min(WHOLE_TASKS_MAX as u64) as usize;
        if self.has_whole(index, place, enough) {
            return None;
        }
        self.notice(index, place);
        let Colocation { places, homes, here, .. } = &mut self.colocation;
        if let Some(near) = places.get_mut(place.0 as usize) {
            near.catch_up(place, (&self.queue, &self.wait_lists), homes, here);
        }
        if self.has_whole(index, place, enough) {
            return None;
        }
        let oldest = if self.wishes.is_oldest_s_turn() { self.oldest(index, place) } else { None };
        let found = oldest.or_else(|| self.best(index, place));
        let found = found.or_else(|| self.seed(index, place))?;
        if index.holders(found).is_empty() {
            self.reads.begin(costs.now, found);
        }
        self.colocation.near(place).note(found);
        Some(found)
    }

    /// The time that a transfer of an object like those of the first task takes.
    fn transfer_micros(&self, index: &Index, costs: &Costs) -> u64 {
        let first = self.first_inputs().and_then(<[ObjectNo]>::first);
        let size = first.map_or(0, |object| bytes(index, *object));
        let micros = size * 1_000_000 / u128::from(costs.peer_bytes_per_second.max(1));
        u64::try_from(micros).unwrap_or(u64::MAX)
    }

    /// Whether so many tasks wait that are whole at an executor.
    fn has_whole(&mut self, index: &Index, place: Place, enough: usize) -> bool {
        let near = self.colocation.near(place);
        if near.sure >= enough || near.is_counted {
            return near.sure >= enough;
        }
        let mut count = 0;
        while let Some(mark) = near.whole.get(count) {
            if count >= enough {
                break;
            }
            let waits = self.queue.has(*mark);
            let lost = match waits {
                true => self.queue.inputs(mark.slot).iter().find(|o| !has(index, place, **o)),
                false => None,
            };
            if let Some(lost) = lost {
                near.forget(*lost);
            }
            if waits && lost.is_none() {
                count += 1;
            } else {
                near.whole.remove(count);
            }
        }
        (near.sure, near.is_counted) = (count, count >= near.whole.len());
        count >= enough
    }

    /// Takes notice of what an executor holds, a few objects at a time.
    fn notice(&mut self, index: &Index, place: Place) {
        let near = self.colocation.near(place);
        let from = near.searched.map_or(0, |object| object.0.saturating_add(1));
        let mut held = index.held_from(place, ObjectNo(from));
        for object in held.by_ref().take(SCAN_TASKS_MAX) {
            near.searched = Some(object);
            if self.wait_lists.local(object).is_some() && !near.noted.contains_key(&object) {
                near.note(object);
            }
        }
        if held.next().is_none() {
            near.searched = None;
        }
    }

    /// The object that gains most of those that can be fetched now.
    fn best(&mut self, index: &Index, place: Place) -> Option<ObjectNo> {
        let near = self.colocation.places.get_mut(place.0 as usize)?;
        near.rank(place);
        let near = self.colocation.places.get(place.0 as usize)?;
        let mut best: BTreeMap<Worth, ObjectNo> = BTreeMap::new();
        for &(gain, tie, object) in &near.ranked {
            if self.can_come(index, place, object) {
                best.insert((gain, index.holders(object).is_empty(), tie), object);
            }
        }
        // Gains only fall while nothing is noted, so that one that is still as
        // large as the next was is the largest.
        let mut tasks = RECOUNT_TASKS_MAX;
        let mut most: Option<(Worth, ObjectNo)> = None;
        let Colocation { places, homes, here, .. } = &mut self.colocation;
        let near = places.get_mut(place.0 as usize)?;
        near.show(here, true);
        while let Some(((Reverse(before), absent, tie), object)) = best.pop_first() {
            if tasks == 0 || most.is_some_and(|((Reverse(most), ..), _)| before <= most) {
                break;
            }
            let known = (&homes[..], &here[..]);
            let now = near.recount(&self.queue, &self.wait_lists, known, object, &mut tasks);
            let found = ((Reverse(now), absent, tie), object);
            if now > 0 && most.is_none_or(|most| found < most) {
                most = Some(found);
            }
        }
        near.show(here, false);
        most.map(|(_, object)| object)
    }

    /// An input of the first task that is whole nowhere, so that none waits for
    /// ever.
    fn oldest(&self, index: &Index, place: Place) -> Option<ObjectNo> {
        let mut at = self.queue.first();
        for _ in 0..SCAN_TASKS_MAX {
            if at == NONE {
                return None;
            }
            let inputs = self.queue.inputs(at);
            if inputs.len() > 1 && self.colocation.homes.get(at as usize) == Some(&Homes::None) {
                let mut inputs = inputs.iter().copied();
                return inputs.find(|object| self.can_come(index, place, *object));
            }
            at = self.queue.after(at);
        }
        None
    }

    /// An input of the next task that nobody has begun with, for an executor
    /// that has nothing to go on.
    fn seed(&mut self, index: &Index, place: Place) -> Option<ObjectNo> {
        if index.coming_to(place) > 0 {
            return None;
        }
        for _ in 0..SCAN_TASKS_MAX {
            let Mark { slot, .. } = self.colocation.seed;
            let is_there = slot != NONE && self.queue.has(self.colocation.seed);
            let slot = if is_there { slot } else { self.queue.first() };
            if slot == NONE {
                return None;
            }
            let next = self.queue.after(slot);
            self.colocation.seed = match next {
                NONE => Mark { seq: 0, slot: NONE },
                next => self.queue.mark(next),
            };
            let inputs = self.queue.inputs(slot);
            if inputs.len() < 2 {
                continue;
            }
            let mut inputs = inputs.iter().copied();
            if let Some(object) = inputs.find(|object| self.can_come(index, place, *object)) {
                return Some(object);
            }
        }
        // Or anything that others have: to wait for the store is worse.
        let from = tie(place, ObjectNo(0)) as usize;
        let mut some = self.wait_lists.some_objects(from, SCAN_TASKS_MAX);
        some.find(|object| {
            !index.holders(*object).is_empty() && self.can_come(index, place, *object)
        })
    }

    /// Whether an object is to be fetched by an executor at this moment: from
    /// one that sends little else, or from the store, if nobody else reads it
    /// there and the executor reads nothing else.
    fn can_come(&self, index: &Index, place: Place, object: ObjectNo) -> bool {
        if has(index, place, object) || self.unfetchable.contains(&object) {
            return false;
        }
        let holders = index.holders(object);
        if holders.is_empty() {
            let mut coming = index.coming_objects(place);
            return index.coming_count(object) == 0
                && self.reads.may_begin()
                && coming.all(|other| !index.holders(other).is_empty());
        }
        let mut some = holders.iter().take(HINT_EXECUTORS_MAX);
        some.any(|holder| index.sends(*holder) < SENDS_OBJECTS_MAX)
    }

    /// A task that is whole at an executor and was seen when it became so.
    pub(super) fn next_whole(&mut self, index: &Index, place: Place) -> Option<u32> {
        let near = self.colocation.places.get_mut(place.0 as usize)?;
        while near.whole.front().is_some_and(|mark| !self.queue.has(*mark)) {
            near.whole.pop_front();
        }
        let mut some = near.whole.iter().take(SCAN_TASKS_MAX);
        let holds = |mark: &&Mark| {
            let inputs = || self.queue.inputs(mark.slot).iter();
            self.queue.has(**mark) && inputs().all(|object| index.holds(place, *object))
        };
        some.find(holds).map(|mark| mark.slot)
    }
}
