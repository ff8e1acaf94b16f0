//! Outputs that are kept, objects that are served, dropped, or lost.

use super::event::{Action, ByteRange, PartialId, Refusal, ServeId, WriteError};
use super::fetch::coming_micros;
use super::{Requester, Stage, StageError, State};
use crate::data::cache::RefusedError;
use crate::data::limits::{BROADCAST_OBJECT_BYTES_MIN, COMING_CHAIN_MICROS};
use crate::data::object::{Object, ObjectId};
use std::sync::Arc;

/// An output that is to be held.
#[derive(Debug)]
pub(super) struct Keeping {
    requester: Requester,
    pub(super) object: Arc<Object>,
    size: u64,
    only_here: bool,
}

impl Stage {
    /// [`super::Event::Keep`].
    pub(super) fn keep(&mut self, requester: Requester, object: Arc<Object>, only_here: bool) {
        let Some(size) = object.size else {
            let error = StageError::NoSize { url: Arc::clone(&object.url) };
            self.actions.push_back(Action::NotKept { requester, object: object.id, error });
            return;
        };
        self.outputs.push_back(Keeping { requester, object, size, only_here });
        self.dirty = true;
    }

    /// Takes outputs in, in their order. Returns whether none waits any more.
    pub(super) fn admit_outputs(&mut self) -> bool {
        while let Some(keeping) = self.outputs.pop_front() {
            let (requester, object, size) = (keeping.requester, keeping.object.id, keeping.size);
            if self.trees.is_alone(object) {
                // Its place is free when those who run have ended.
                self.outputs.push_front(keeping);
                return false;
            }
            if self.cache.holds(object) {
                if keeping.only_here {
                    self.cache.keep(object, true);
                }
                self.doomed.remove(&object);
                // Whoever made it anew was told that it was nowhere.
                self.told.remove(&object);
                self.untold.insert(object);
                self.actions.push_back(Action::Kept { requester, object });
                continue;
            }
            if self.adopted.contains(&object) {
                self.outputs.push_front(keeping);
                return false;
            }
            // Who waits for it from elsewhere gets this one.
            for task in self.users(object, &[State::Staging]) {
                self.put_back(task);
            }
            if self.cache.entry(object).is_some() {
                // It is being put in its place.
                self.outputs.push_front(keeping);
                return false;
            }
            match self.reserve_for_output(object, size) {
                Ok(tier) => {
                    let partial = PartialId(self.next_partial);
                    self.next_partial += 1;
                    let object = Arc::clone(&keeping.object);
                    self.actions.push_back(Action::Adopt { partial, tier, requester, object });
                    self.adopted.insert(keeping.object.id);
                    self.adopting.insert(partial, keeping);
                }
                Err(RefusedError::Occupied { .. }) if !self.is_standing_still() => {
                    self.outputs.push_front(keeping);
                    return false;
                }
                Err(error) => {
                    let error = StageError::Room(error);
                    self.actions.push_back(Action::NotKept { requester, object, error });
                }
            }
        }
        true
    }

    /// Takes room for an output, if need be that of tasks that no slot waits
    /// for, and for one that is too large for the cache that of shares.
    fn reserve_for_output(
        &mut self,
        object: ObjectId,
        size: u64,
    ) -> Result<crate::data::cache::TierId, RefusedError> {
        loop {
            match self.cache.reserve(object, size) {
                Ok(evicted) => {
                    self.evicted(evicted);
                    let entry = self.cache.entry(object);
                    return entry.map(|entry| entry.tier).ok_or(RefusedError::Unknown(object));
                }
                Err(refused @ RefusedError::Occupied { .. }) => {
                    let last = self.ahead.last_key_value().map(|(_, other)| *other);
                    match last {
                        Some(other) => self.put_back(other),
                        None if self.cache.is_for_lent(size) && self.lend_less() => {}
                        None => return Err(refused),
                    }
                }
                Err(refused) => return Err(refused),
            }
        }
    }

    /// [`super::Event::Adopted`].
    pub(super) fn adopted(&mut self, partial: PartialId, result: Result<(), WriteError>) {
        let Some(keeping) = self.adopting.remove(&partial) else { return };
        let Keeping { requester, object, size, only_here } = keeping;
        self.adopted.remove(&object.id);
        let tier = self.cache.entry(object.id).map(|entry| entry.tier);
        self.dirty = true;
        let error = match result {
            Ok(()) => match self.cache.commit(object.id, size, only_here) {
                Ok(evicted) => {
                    self.evicted(evicted);
                    self.actions.push_back(Action::Kept { requester, object: object.id });
                    return self.here(object.id);
                }
                Err(refused) => StageError::Room(refused),
            },
            Err(error) => StageError::Write { url: Arc::clone(&object.url), error },
        };
        for user in self.users(object.id, &[State::Staging]) {
            self.put_back(user);
        }
        self.cache.abort(object.id);
        self.doomed.remove(&object.id);
        if let (StageError::Write { error: WriteError::Full, .. }, Some(tier)) = (&error, tier) {
            self.full(tier);
        }
        self.actions.push_back(Action::NotKept { requester, object: object.id, error });
    }

    /// An object is to go when nobody uses it.
    pub(super) fn doom(&mut self, object: ObjectId) {
        if self.cache.entry(object).is_some() {
            self.cache.keep(object, false);
            self.doomed.insert(object);
            self.dirty = true;
            if self.cache.holds(object) {
                self.sweep(object);
            }
        }
    }

    /// [`super::Event::Ask`].
    pub(super) fn ask(&mut self, serve: ServeId, object: ObjectId, range: ByteRange) {
        let entry = self.cache.entry(object).filter(|entry| entry.is_held);
        let entry =
            entry.filter(|_| !self.fleeting.contains(&object) && !self.trees.is_alone(object));
        let is_known = self.serves.contains_key(&serve) || self.waits.has(serve);
        let Some(entry) = entry.filter(|_| !is_known) else {
            if !is_known && self.ask_for_chunk(serve, object, range) {
                return;
            }
            let is_coming = self.is_reading(object) && !self.lending.has(object);
            let why = if is_coming { Refusal::Coming } else { Refusal::Gone };
            self.actions.push_back(Action::Refuse { serve, why });
            return;
        };
        if self.serves.len() >= self.serves_max {
            self.actions.push_back(Action::Refuse { serve, why: Refusal::Busy });
            return;
        }
        self.cache.touch(object);
        self.cache.pin(object);
        self.serves.insert(serve, (object, true));
        let (tier, size) = (entry.tier, entry.size);
        self.actions.push_back(Action::Serve { serve, object, tier, size });
    }

    /// Whether an object is on its way here. One who waits for another to get a small one
    /// is help for a while only: those who wait for each other, because what they were
    /// told is old, turn to others then. For one who waits for a large one, nobody waits.
    fn is_reading(&self, object: ObjectId) -> bool {
        let Some(item) = self.items.get(&object) else { return false };
        let Some(making) = &item.making else { return false };
        let waited = making.coming_since.map_or(0, |since| self.now.since(since));
        let is_small = item.size.is_none_or(|size| size < BROADCAST_OBJECT_BYTES_MIN);
        let patience = coming_micros(item.size).saturating_add(COMING_CHAIN_MICROS);
        let is_new = is_small && waited < patience;
        !self.fleeting.contains(&object) && (is_new || !item.candidates.waits_for_another())
    }

    /// [`super::Event::Served`].
    pub(super) fn served(&mut self, serve: ServeId) {
        self.waits.remove(serve);
        let Some((object, pinned)) = self.serves.remove(&serve) else { return };
        if pinned {
            self.cache.unpin(object);
            self.sweep(object);
        }
        self.dirty = true;
    }

    /// [`super::Event::Lost`].
    pub(super) fn lost(&mut self, object: ObjectId) {
        if self.leave_tree(object) {
            return;
        }
        let Some(gone) = self.cache.remove(object) else { return };
        for (_, pinned) in self.serves.values_mut().filter(|(of, _)| *of == object) {
            *pinned = false;
        }
        for key in self.users(object, &[State::Staging, State::Ready, State::Started]) {
            let Some(task) = self.tasks.get_mut(&key) else { continue };
            for input in task.inputs.iter_mut().filter(|input| input.object.id == object) {
                input.pinned = false;
            }
            self.put_back(key);
        }
        // Behind those who do not have it any more.
        self.evicted(vec![gone]);
        self.dirty = true;
    }
}
