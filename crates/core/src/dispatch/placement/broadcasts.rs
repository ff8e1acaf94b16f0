//! Objects that are broadcast: which executors receive each, and from whom
//! (`data/broadcast.rs` has the trees).
//!
//! A large object is broadcast while more executors fetch it than hold it
//! (`data/way.rs`). One of them is its source: a holder, or the one that was the first to be
//! asked, which reads the store. The others are members, in the order in which
//! they came; one that has the object stays, for those below it, until all have
//! it. One that is gone gives its place to the last, so few others notice.
//!
//! A member that its children have heard nothing of is set aside: it keeps
//! receiving, below the last members, and nobody waits for it any more.

use super::{ExecutorId, Object, ObjectId, Placement};
use crate::data::broadcast::parents;
use crate::data::index::{ObjectNo, Place};
use crate::data::way;
use crate::dispatch::check::{CheckError, ensure};
use crate::limits::BROADCAST_LOSSES_MAX;
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
}

impl Broadcast {
    fn knows(&self, id: ExecutorId) -> bool {
        self.source == Some(id) || self.members.contains(&id) || self.aside.contains(&id)
    }

    /// Takes an executor out of its place. Returns whether it had one.
    fn remove(&mut self, id: ExecutorId) -> bool {
        if self.source == Some(id) {
            self.source = None;
            // Who has the object need not fetch it first.
            let has_it = |member: &ExecutorId| !self.waiting.contains(member);
            let next = self.members.iter().position(has_it).unwrap_or(0);
            if !self.members.is_empty() {
                self.source = Some(self.members.swap_remove(next));
            }
            return true;
        }
        if let Some(place) = self.members.iter().position(|member| *member == id) {
            self.members.swap_remove(place);
            return true;
        }
        let before = self.aside.len();
        self.aside.retain(|one| *one != id);
        self.aside.len() < before
    }

    /// An executor receives nothing any more, or is gone.
    fn forget(&mut self, id: ExecutorId) -> bool {
        self.waiting.remove(&id);
        self.told.remove(&id);
        self.complaints.remove(&id);
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
                broadcast.members.push(id);
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
    }

    /// A child has heard nothing of a parent for too long. A child that says so
    /// of one after another is believed no more: it is what they have in common.
    pub(super) fn is_silent(&mut self, child: ExecutorId, object: ObjectId, parent: ExecutorId) {
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
            broadcast.aside.push(at_fault);
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

    /// Executors that are to receive objects from others than they were told.
    pub(in crate::dispatch) fn next_parents(&mut self) -> Vec<Told> {
        self.broadcasts.next_told()
    }

    /// An executor has heard nothing of those that it receives objects from.
    pub(in crate::dispatch) fn are_silent(
        &mut self,
        child: ExecutorId,
        silent: &[(ObjectId, ExecutorId)],
    ) {
        for (object, parent) in silent {
            self.broadcasts.is_silent(child, *object, *parent);
            self.stripes.is_silent(child, *object, *parent);
        }
    }
}
