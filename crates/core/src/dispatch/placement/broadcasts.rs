//! Objects that are broadcast: which executors receive each, and from whom
//! (`data/broadcast.rs` has the trees).
//!
//! A large object is broadcast while more executors fetch it than hold it
//! (`data/way.rs`). One of them is its source: a holder, or the one that was the first to be
//! asked, which reads the store. The others are members, in the order in which
//! they came; one that has the object stays, for those below it, until all have
//! it. Where one is gone, one of its children takes its place, one of that one's children
//! the place that is free then, and so on; the last member takes the place at the end. Each
//! of them has nearly as much of the object as the one before, so that those below wait for
//! little, and few others notice.
//!
//! A member that its children have heard nothing of is set aside: it keeps
//! receiving, below the last members, and nobody waits for it. When the dispatcher
//! hears of it after [`BROADCAST_ASIDE_MICROS`], it becomes a member again, the last;
//! each time in a row it is set aside for twice as long.

use super::{ExecutorId, Object, ObjectId, Placement};
use crate::data::broadcast::{heir, parents};
use crate::data::index::{ObjectNo, Place};
use crate::data::way;
use crate::dispatch::check::{CheckError, ensure};
use crate::limits::{BROADCAST_ASIDE_MICROS, BROADCAST_ASIDE_MICROS_MAX, BROADCAST_LOSSES_MAX};
use crate::task::Time;
use std::collections::{BTreeMap, BTreeSet};

/// An executor, the object that it receives, and its parents there: one for each
/// tree, or nobody, if it is to fetch the object itself.
pub(super) type Told = (ExecutorId, ObjectId, Vec<ExecutorId>);

/// One object on its way to many.
#[derive(Debug, Default)]
struct Broadcast {
    source: Option<ExecutorId>,
    members: Vec<ExecutorId>,
    /// Members that others have heard nothing of.
    aside: Vec<ExecutorId>,
    /// Until when at least each was set aside last, and for how long.
    rests: BTreeMap<ExecutorId, (Time, u64)>,
    /// Those of all that have not got the object yet.
    waiting: BTreeSet<ExecutorId>,
    /// The parents that each was told last.
    told: BTreeMap<ExecutorId, Vec<ExecutorId>>,
    /// How often each has complained about a parent.
    complaints: BTreeMap<ExecutorId, u32>,
}

/// All broadcasts.
#[derive(Debug, Default)]
pub(super) struct Broadcasts {
    of: BTreeMap<ObjectId, Broadcast>,
    /// Those of which some executor may have other parents now.
    changed: BTreeSet<ObjectId>,
    /// Executors that were set aside. Some may have received the object since.
    aside: BTreeSet<(ExecutorId, ObjectId)>,
}

impl Broadcast {
    fn knows(&self, id: ExecutorId) -> bool {
        self.source == Some(id) || self.members.contains(&id) || self.aside.contains(&id)
    }

    /// Gives an executor the last place. Without a source it is the source: it has
    /// nobody else to receive from.
    fn add(&mut self, id: ExecutorId) {
        match self.source {
            None => self.source = Some(id),
            Some(_) => self.members.push(id),
        }
    }

    /// Sets an executor aside that is to receive the object.
    fn set_aside(&mut self, now: Time, id: ExecutorId) {
        let last = self.rests.get(&id).map(|(_, micros)| micros.saturating_mul(2));
        let micros = last.unwrap_or(BROADCAST_ASIDE_MICROS).min(BROADCAST_ASIDE_MICROS_MAX);
        self.rests.insert(id, (now.after(micros), micros));
        self.aside.push(id);
    }

    /// An executor that was set aside for long enough works.
    fn take_back(&mut self, id: ExecutorId) {
        self.aside.retain(|one| *one != id);
        self.complaints.remove(&id);
        self.add(id);
    }

    /// Takes an executor out of its place. Returns whether it had one.
    fn remove(&mut self, id: ExecutorId) -> bool {
        if self.source == Some(id) {
            self.source = None;
            // Who has the object need not fetch it first.
            let has_it = |member: &ExecutorId| !self.waiting.contains(member);
            let next = self.members.iter().position(has_it).unwrap_or(0);
            if !self.members.is_empty() {
                self.source = Some(self.members[next]);
                self.vacate(next);
            }
            return true;
        }
        if let Some(place) = self.members.iter().position(|member| *member == id) {
            self.vacate(place);
            return true;
        }
        let before = self.aside.len();
        self.aside.retain(|one| *one != id);
        self.aside.len() < before
    }

    /// Nobody is at a place any more: the heirs move up, and the last member moves to
    /// the place that is free then.
    fn vacate(&mut self, mut place: usize) {
        while let Some(heir) = heir(place, self.members.len()) {
            self.members[place] = self.members[heir];
            place = heir;
        }
        self.members.swap_remove(place);
    }

    /// An executor receives nothing any more, or is gone.
    fn forget(&mut self, id: ExecutorId) -> bool {
        self.waiting.remove(&id);
        self.told.remove(&id);
        self.complaints.remove(&id);
        self.rests.remove(&id);
        self.remove(id)
    }

    /// The parents of all that have not got the object.
    fn parents(&self) -> BTreeMap<ExecutorId, Vec<ExecutorId>> {
        let mut all = BTreeMap::new();
        let Some(source) = self.source else {
            all.extend(self.aside.iter().map(|one| (*one, Vec::new())));
            return all;
        };
        let to_ids = |of: [Option<usize>; 2]| {
            of.map(|parent| parent.map_or(source, |place| self.members[place])).to_vec()
        };
        let trees = parents(self.members.len()).into_iter().map(to_ids);
        all.extend(self.members.iter().copied().zip(trees));
        for (at, one) in self.aside.iter().enumerate() {
            // The last members have the fewest children.
            let parent = self.members.iter().rev().cycle().nth(at).copied().unwrap_or(source);
            all.insert(*one, vec![parent, parent]);
        }
        all.insert(source, Vec::new());
        all.retain(|id, _| self.waiting.contains(id));
        all
    }
}

impl Broadcasts {
    /// Whether an object is being broadcast.
    pub(super) fn has(&self, object: ObjectId) -> bool {
        self.of.contains_key(&object)
    }

    /// An object is broadcast from now on, from `source`, which may be fetching
    /// it as well.
    pub(super) fn begin(&mut self, object: ObjectId, source: ExecutorId, is_fetching: bool) {
        let broadcast = self.of.entry(object).or_default();
        broadcast.source = Some(source);
        if is_fetching {
            // It may have parents that a dispatcher named that is gone: it is told too.
            broadcast.waiting.insert(source);
            self.changed.insert(object);
        }
    }

    /// An executor is to receive an object that is broadcast.
    pub(super) fn join(&mut self, object: ObjectId, id: ExecutorId) {
        let Some(broadcast) = self.of.get_mut(&object) else { return };
        if broadcast.source != Some(id) && broadcast.waiting.insert(id) {
            if !broadcast.knows(id) {
                broadcast.add(id);
            }
            broadcast.told.remove(&id);
            self.changed.insert(object);
        }
    }

    /// An executor holds an object.
    pub(super) fn came(&mut self, id: ExecutorId, object: ObjectId) {
        let Some(broadcast) = self.of.get_mut(&object) else { return };
        if broadcast.waiting.remove(&id) {
            broadcast.told.remove(&id);
            broadcast.aside.retain(|one| *one != id);
        }
        self.end_if_over(object);
    }

    /// An object is not coming to an executor, or not there any more.
    pub(super) fn went(&mut self, id: ExecutorId, object: ObjectId) {
        let Some(broadcast) = self.of.get_mut(&object) else { return };
        if broadcast.forget(id) {
            self.changed.insert(object);
        }
        self.end_if_over(object);
    }

    /// An executor is gone.
    pub(super) fn left(&mut self, id: ExecutorId) {
        let objects: Vec<ObjectId> = self.of.keys().copied().collect();
        for object in objects {
            self.went(id, object);
        }
        self.aside.retain(|(aside, _)| *aside != id);
    }

    /// An executor says something: it may have been set aside for long enough.
    pub(super) fn heard(&mut self, now: Time, id: ExecutorId) {
        let of_id = (id, ObjectId(0))..=(id, ObjectId(u128::MAX));
        let aside: Vec<ObjectId> = self.aside.range(of_id).map(|(_, object)| *object).collect();
        for object in aside {
            let broadcast = self.of.get_mut(&object).filter(|one| one.aside.contains(&id));
            if let Some(broadcast) = broadcast {
                if broadcast.rests.get(&id).is_some_and(|(until, _)| now < *until) {
                    continue;
                }
                broadcast.take_back(id);
                self.changed.insert(object);
            }
            self.aside.remove(&(id, object));
        }
    }

    /// A child has heard nothing of a parent for too long. A child that says so
    /// of one after another is believed no more: it is what they have in common.
    pub(super) fn is_silent(
        &mut self,
        now: Time,
        child: ExecutorId,
        object: ObjectId,
        parent: ExecutorId,
    ) {
        let Some(broadcast) = self.of.get_mut(&object) else { return };
        let is_parent = broadcast.told.get(&child).is_some_and(|told| told.contains(&parent));
        if !is_parent || !broadcast.knows(parent) {
            return;
        }
        let complaints = broadcast.complaints.entry(child).or_default();
        *complaints = complaints.saturating_add(1);
        let is_believed = *complaints <= BROADCAST_LOSSES_MAX;
        let at_fault = if is_believed { parent } else { child };
        broadcast.told.remove(&child);
        broadcast.remove(at_fault);
        if broadcast.waiting.contains(&at_fault) {
            broadcast.set_aside(now, at_fault);
            self.aside.insert((at_fault, object));
        }
        self.changed.insert(object);
        self.end_if_over(object);
    }

    /// Executors with other parents than they were told.
    pub(super) fn next_told(&mut self) -> Vec<Told> {
        let mut all = Vec::new();
        for object in std::mem::take(&mut self.changed) {
            let Some(broadcast) = self.of.get_mut(&object) else { continue };
            for (id, parents) in broadcast.parents() {
                if broadcast.told.get(&id) != Some(&parents) {
                    broadcast.told.insert(id, parents.clone());
                    all.push((id, object, parents));
                }
            }
        }
        all
    }

    fn end_if_over(&mut self, object: ObjectId) {
        let is_over = |broadcast: &Broadcast| broadcast.waiting.is_empty();
        if self.of.get(&object).is_some_and(is_over) {
            self.of.remove(&object);
            self.changed.remove(&object);
        }
    }

    /// For the state checker: everybody has one place, is there, and is below
    /// the source.
    pub(super) fn check(&self, is_there: impl Fn(ExecutorId) -> bool) -> Result<(), CheckError> {
        for (object, broadcast) in &self.of {
            let Broadcast { source, members, aside, waiting, .. } = broadcast;
            let all: Vec<ExecutorId> = source.iter().chain(members).chain(aside).copied().collect();
            let different: BTreeSet<ExecutorId> = all.iter().copied().collect();
            ensure!(all.len() == different.len(), "{object}: an executor has two places");
            ensure!(
                all.iter().all(|id| is_there(*id)),
                "{object} is broadcast to one that is gone"
            );
            ensure!(waiting.is_subset(&different), "{object}: one that waits has no place");
            ensure!(!waiting.is_empty(), "{object} is broadcast to nobody");
            let has_source = source.is_some() || members.is_empty();
            ensure!(has_source, "{object} is broadcast from nowhere");
            let may_return = |id: &ExecutorId| self.aside.contains(&(*id, *object));
            ensure!(aside.iter().all(may_return), "{object}: an executor is aside for ever");
        }
        Ok(())
    }
}

impl Placement {
    /// An executor is to fetch an object, which has a number: if more do so than
    /// hold it, it is broadcast. Executors that serve nobody take no part.
    pub(super) fn broadcast(
        &mut self,
        to: ExecutorId,
        object: &Object,
        (number, place): (ObjectNo, Place),
        serves: impl Fn(ExecutorId) -> bool,
    ) {
        let holders = self.index.holders(number);
        let fetching = self.index.coming_count(number);
        if !way::spreads_now(object, fetching, holders.len()) || !serves(to) {
            return;
        }
        if self.index.holds(place, number) {
            return;
        }
        if !self.broadcasts.has(object.id) {
            let ids = |places: &mut dyn Iterator<Item = Place>| -> Vec<ExecutorId> {
                let ids = places.filter_map(|place| self.index.executor(place));
                ids.filter(|id| serves(*id)).collect()
            };
            let holders = ids(&mut holders.iter().copied());
            let fetching = ids(&mut self.index.coming(number));
            let source = holders.first().or(fetching.first()).copied();
            // Nobody reads it for the others if they cannot get it from there.
            let Some(source) = source.filter(|source| *source != to) else { return };
            self.broadcasts.begin(object.id, source, holders.is_empty());
            for other in fetching {
                self.broadcasts.join(object.id, other);
            }
        }
        self.broadcasts.join(object.id, to);
    }

    /// An executor says something.
    pub(in crate::dispatch) fn heard(&mut self, now: Time, id: ExecutorId) {
        self.broadcasts.heard(now, id);
    }

    /// Executors that are to receive objects from others than they were told.
    pub(in crate::dispatch) fn next_parents(&mut self) -> Vec<Told> {
        self.broadcasts.next_told()
    }

    /// An executor has heard nothing of those that it receives objects from.
    pub(in crate::dispatch) fn are_silent(
        &mut self,
        now: Time,
        child: ExecutorId,
        silent: &[(ObjectId, ExecutorId)],
    ) {
        for (object, parent) in silent {
            self.broadcasts.is_silent(now, child, *object, *parent);
            self.stripes.is_silent(child, *object, *parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: ObjectId = ObjectId(7);
    const LATE: Time = Time(u64::MAX / 2);

    /// The next of a sequence without pattern.
    fn next(state: &mut u64, below: u64) -> u64 {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % below
    }

    impl Broadcast {
        fn all(&self) -> usize {
            self.members.len() + self.aside.len() + 1
        }
    }

    /// Who was told what, and that everybody gets the object in the end: by its parents,
    /// theirs and so on it comes from one that has it or fetches it itself.
    fn arrives(broadcasts: &mut Broadcasts, seed: u64) {
        broadcasts.next_told();
        broadcasts.check(|_| true).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let Some(broadcast) = broadcasts.of.get(&OBJECT) else { return };
        for id in &broadcast.waiting {
            for tree in 0..2 {
                let (mut at, mut steps) = (*id, 0);
                while broadcast.waiting.contains(&at) {
                    let told = broadcast.told.get(&at);
                    let parents = told.unwrap_or_else(|| panic!("seed {seed}: {at:?} waits"));
                    let Some(parent) = parents.get(tree) else { break };
                    (at, steps) = (*parent, steps + 1);
                    assert!(steps <= broadcast.all(), "seed {seed}: {id:?} waits for itself");
                }
            }
        }
        sends_no_more_than_twice(broadcast, seed);
    }

    /// Who sends an object sends it twice at most, half of it to each of four or all of it
    /// to each of two, and once more to each of those set aside that are its share.
    fn sends_no_more_than_twice(broadcast: &Broadcast, seed: u64) {
        let mut halves: BTreeMap<ExecutorId, usize> = BTreeMap::new();
        for parent in broadcast.told.values().flatten() {
            *halves.entry(*parent).or_default() += 1;
        }
        let share = broadcast.aside.len().div_ceil(broadcast.members.len().max(1));
        for (parent, halves) in halves {
            assert!(halves <= 4 + 2 * share, "seed {seed}: {parent:?} sends {halves} halves");
        }
    }

    /// Broadcasts to few and to many executors, which join, receive, lose and complain.
    #[test]
    fn whoever_is_silent_or_dies_it_reaches_all_and_nobody_is_aside_for_ever() {
        for seed in 0..600 {
            let (mut state, mut broadcasts) = (seed, Broadcasts::default());
            let mut now = Time(0);
            let executors = if seed % 20 == 0 { 7 + next(&mut state, 120) } else { 6 };
            for _ in 0..40.max(4 * executors) {
                now = now.after(next(&mut state, 4_000_000));
                let id = ExecutorId(next(&mut state, executors));
                let mut other = ExecutorId(next(&mut state, executors));
                let told = broadcasts.of.get(&OBJECT).and_then(|of| of.told.get(&id));
                if let Some([first, ..]) = told.map(Vec::as_slice) {
                    // Complaints about others are of no consequence.
                    other = if next(&mut state, 4) == 0 { other } else { *first };
                }
                match next(&mut state, 12) {
                    _ if !broadcasts.has(OBJECT) => {
                        broadcasts.begin(OBJECT, id, seed % 2 == 0);
                        broadcasts.join(OBJECT, ExecutorId((id.0 + 1) % executors));
                    }
                    0..5 => broadcasts.join(OBJECT, id),
                    5 => broadcasts.came(id, OBJECT),
                    6 => broadcasts.went(id, OBJECT),
                    7 => broadcasts.left(id),
                    8 => broadcasts.heard(now, id),
                    _ => broadcasts.is_silent(now, id, OBJECT, other),
                }
                arrives(&mut broadcasts, seed);
            }
            (0..executors).for_each(|id| broadcasts.heard(LATE, ExecutorId(id)));
            arrives(&mut broadcasts, seed);
            let aside = broadcasts.of.get(&OBJECT).map_or(0, |broadcast| broadcast.aside.len());
            assert_eq!((aside, broadcasts.aside.len()), (0, 0), "seed {seed}");
        }
    }

    #[test]
    fn one_that_is_set_aside_again_rests_for_longer() {
        let [one, two, three] = [1, 2, 3].map(ExecutorId);
        let mut broadcasts = Broadcasts::default();
        broadcasts.begin(OBJECT, one, false);
        for id in [two, three] {
            broadcasts.join(OBJECT, id);
        }
        let mut now = Time(0);
        for micros in [BROADCAST_ASIDE_MICROS, 2 * BROADCAST_ASIDE_MICROS] {
            broadcasts.next_told();
            broadcasts.is_silent(now, three, OBJECT, two);
            broadcasts.heard(now.after(micros - 1), two);
            assert_eq!(broadcasts.of[&OBJECT].aside, [two]);
            now = now.after(micros);
            broadcasts.heard(now, two);
            assert_eq!(broadcasts.of[&OBJECT].aside, []);
        }
    }
}
