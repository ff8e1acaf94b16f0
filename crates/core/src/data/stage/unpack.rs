//! Archives that tasks find unpacked: counted, given room, and unpacked once,
//! however many tasks read them.
//!
//! The unpacked form of an archive is part of the archive in the cache: it is
//! pinned, counted and evicted with it. So whoever evicts knows nothing of it.

use super::event::{Action, UnpackError, UnpackId};
use super::{Requester, Stage, StageError, State};
use crate::data::limits::DISK_FULL_TRIES_MAX;
use crate::data::object::ObjectId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How far the unpacked form of an archive is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tree {
    /// Its bytes are being counted.
    Measuring(UnpackId),
    /// It takes so many bytes, and is not there.
    Measured(u64),
    /// It has room for so many bytes, and is being made.
    Making(UnpackId, u64),
    /// It is there.
    Ready(u64),
    /// It is there for those who run, and its archive is lost.
    Alone(u64),
    /// It cannot be made: why.
    Refused(String),
}

/// The unpacked forms of archives.
#[derive(Debug, Default)]
pub(super) struct Trees {
    trees: BTreeMap<ObjectId, Tree>,
    /// What the shell works on: these archives are pinned.
    working: BTreeMap<UnpackId, ObjectId>,
    next: u64,
}

/// What an archive needs next to be there unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Next {
    Measure,
    Make(u64),
    Wait,
    Refuse(String),
}

impl Trees {
    /// Those that were there before a restart, with their bytes.
    pub(super) fn restore(found: impl Iterator<Item = (ObjectId, u64)>) -> Trees {
        let trees = found.map(|(object, bytes)| (object, Tree::Ready(bytes))).collect();
        Trees { trees, ..Trees::default() }
    }

    /// Whether an archive is there unpacked.
    pub(super) fn is_ready(&self, object: ObjectId) -> bool {
        matches!(self.trees.get(&object), Some(Tree::Ready(_)))
    }

    /// Whether an archive is lost, and its unpacked form there for those who run.
    pub(super) fn is_alone(&self, object: ObjectId) -> bool {
        matches!(self.trees.get(&object), Some(Tree::Alone(_)))
    }

    /// An archive whose unpacked form is in use is lost.
    fn leave_alone(&mut self, object: ObjectId) {
        if let Some(Tree::Ready(bytes)) = self.trees.get(&object) {
            let bytes = *bytes;
            self.trees.insert(object, Tree::Alone(bytes));
        }
    }

    /// Whether nothing is being counted or unpacked.
    pub(super) fn is_idle(&self) -> bool {
        self.working.is_empty()
    }

    /// Bytes that it takes, if they have been counted.
    pub(super) fn bytes(&self, object: ObjectId) -> u64 {
        match self.trees.get(&object) {
            Some(
                Tree::Measured(bytes)
                | Tree::Making(_, bytes)
                | Tree::Ready(bytes)
                | Tree::Alone(bytes),
            ) => *bytes,
            Some(Tree::Measuring(_) | Tree::Refused(_)) | None => 0,
        }
    }

    /// The archives that are being counted or unpacked.
    pub(super) fn working(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.working.values().copied()
    }

    /// An archive has left the cache, and its unpacked form with it. How large
    /// that was is remembered for those who wait.
    pub(super) fn gone(&mut self, object: ObjectId, is_wanted: bool) {
        let bytes = self.bytes(object);
        self.working.retain(|_, of| *of != object);
        if is_wanted && bytes > 0 {
            self.trees.insert(object, Tree::Measured(bytes));
        } else {
            self.trees.remove(&object);
        }
    }

    /// Whether an archive is there unpacked, or being so.
    pub(super) fn is_made(&self, object: ObjectId) -> bool {
        matches!(self.trees.get(&object), Some(Tree::Making(..) | Tree::Ready(_) | Tree::Alone(_)))
    }

    fn next(&self, object: ObjectId) -> Next {
        match self.trees.get(&object) {
            None => Next::Measure,
            Some(Tree::Measured(bytes)) => Next::Make(*bytes),
            Some(Tree::Measuring(_) | Tree::Making(..) | Tree::Ready(_) | Tree::Alone(_)) => {
                Next::Wait
            }
            Some(Tree::Refused(why)) => Next::Refuse(why.clone()),
        }
    }

    fn begin(&mut self, object: ObjectId, tree: impl FnOnce(UnpackId) -> Tree) -> UnpackId {
        let unpack = UnpackId(self.next);
        self.next += 1;
        self.working.insert(unpack, object);
        self.trees.insert(object, tree(unpack));
        unpack
    }

    /// The shell has done something. Returns for which archive, and the bytes
    /// counted for it if it was being made; `None` if nobody waits for it.
    fn end(&mut self, unpack: UnpackId) -> Option<(ObjectId, Option<u64>)> {
        let object = self.working.remove(&unpack)?;
        match self.trees.remove(&object)? {
            Tree::Making(_, bytes) => Some((object, Some(bytes))),
            _ => Some((object, None)),
        }
    }
}

impl Stage {
    /// Whether an object is all that a task waits for: here, and unpacked if
    /// the task wants it so.
    pub(super) fn is_complete(&self, object: ObjectId, is_unpacked: bool) -> bool {
        self.cache.holds(object)
            && !self.trees.is_alone(object)
            && (!is_unpacked || self.trees.is_ready(object))
    }

    /// Whether a task wants an archive that is lost here, and whose unpacked form
    /// others still use: it is fetched anew when that has gone.
    pub(super) fn waits_for_tree(&self, key: Requester) -> bool {
        let mut inputs = self.tasks.get(&key).into_iter().flat_map(|task| &task.inputs);
        inputs.any(|input| self.trees.is_alone(input.object.id))
    }

    /// Whether a task finds an object unpacked.
    pub(super) fn wants_unpacked(&self, key: Requester, object: ObjectId) -> bool {
        let mut inputs = self.tasks.get(&key).into_iter().flat_map(|task| &task.inputs);
        inputs.any(|input| input.is_unpacked && input.object.id == object)
    }

    /// Tasks that have their room wait for an archive that is here to be
    /// unpacked.
    pub(super) fn make_tree(&mut self, object: ObjectId) {
        match self.trees.next(object) {
            Next::Wait => {}
            Next::Measure => self.measure(object),
            Next::Make(bytes) => self.unpack(object, bytes),
            Next::Refuse(why) => self.fail_unpacking(object, &UnpackError::Refused(why)),
        }
    }

    fn measure(&mut self, object: ObjectId) {
        let Some(item) = self.items.get(&object) else { return };
        let archive = Arc::clone(&item.object);
        let size = self.cache.entry(object).map_or(0, |entry| entry.size);
        let bytes_max = self.cache.largest_tier().saturating_sub(size);
        let unpack = self.trees.begin(object, Tree::Measuring);
        self.cache.pin(object);
        self.actions.push_back(Action::Measure { unpack, object: archive, bytes_max });
    }

    /// Unpacks an archive of known size, if there is room; else those that wait
    /// for it wait for room again.
    fn unpack(&mut self, object: ObjectId, bytes: u64) {
        let Some(item) = self.items.get(&object) else { return };
        let archive = Arc::clone(&item.object);
        match self.cache.reserve_with_unpacked(&[], &[(object, bytes)]) {
            Ok(evicted) => {
                self.evicted(evicted);
                let unpack = self.trees.begin(object, |unpack| Tree::Making(unpack, bytes));
                self.cache.pin(object);
                self.actions.push_back(Action::Unpack { unpack, object: archive, bytes });
            }
            Err(_) => {
                for key in self.waiting_for_tree(object) {
                    self.put_back(key);
                }
            }
        }
    }

    /// Gives back the room that a task took for the unpacked form of an archive
    /// if nothing is being unpacked into it: another of the task's archives may
    /// have ended the task.
    pub(super) fn return_unused_room(&mut self, object: ObjectId) {
        if !self.trees.is_made(object) {
            self.cache.unpacked(object, 0);
        }
    }

    /// [`super::Event::Unpacked`].
    pub(super) fn unpacked(&mut self, unpack: UnpackId, result: Result<u64, UnpackError>) {
        let Some((object, room)) = self.trees.end(unpack) else { return };
        self.dirty = true;
        if let (Some(_), Ok(bytes)) = (room, &result) {
            // A tree takes some room, whatever the shell says.
            self.cache.unpacked(object, (*bytes).max(1));
            let bytes = self.cache.entry(object).map_or(0, |entry| entry.unpacked);
            self.trees.trees.insert(object, Tree::Ready(bytes));
            self.cache.unpin(object);
            for key in self.waiting_for_tree(object) {
                self.has_one_more(key);
            }
            return self.sweep(object);
        }
        if room.is_some() {
            self.cache.unpacked(object, 0);
        }
        match result {
            Ok(bytes) => {
                self.trees.trees.insert(object, Tree::Measured(bytes.max(1)));
                if !self.waiting_for_tree(object).is_empty() {
                    // Those who wait hold it, so that room can be taken beside it.
                    self.make_tree(object);
                }
            }
            Err(UnpackError::Lost) => {
                self.cache.unpin(object);
                return self.lost(object);
            }
            Err(UnpackError::Refused(why)) => {
                self.trees.trees.insert(object, Tree::Refused(why.clone()));
                self.fail_unpacking(object, &UnpackError::Refused(why));
            }
            Err(error) => {
                if let Some(bytes) = room {
                    self.trees.trees.insert(object, Tree::Measured(bytes));
                }
                self.unpacking_trouble(object, &error);
            }
        }
        self.cache.unpin(object);
        self.sweep(object);
    }

    /// The disk did not take the unpacked form: those that wait for it wait for
    /// room again, a few times.
    fn unpacking_trouble(&mut self, object: ObjectId, error: &UnpackError) {
        let Some(item) = self.items.get(&object) else { return };
        let url = Arc::clone(&item.object.url);
        for key in self.waiting_for_tree(object) {
            let Some(task) = self.tasks.get_mut(&key) else { continue };
            task.disk_full += 1;
            if task.disk_full > DISK_FULL_TRIES_MAX {
                let (url, error) = (Arc::clone(&url), error.clone());
                self.fail(key, StageError::Unpack { url, error });
            } else {
                self.put_back(key);
            }
        }
        let tier = self.cache.entry(object).map(|entry| entry.tier);
        if let Some(tier) = tier.filter(|_| *error == UnpackError::Full) {
            self.full(tier);
        }
    }

    /// An archive is lost. If a task that runs finds it unpacked, that form stays
    /// for those who run, and is of no use to others: they wait until it can go.
    /// Returns whether it stays.
    pub(super) fn leave_tree(&mut self, object: ObjectId) -> bool {
        let is_there = self.trees.is_ready(object) || self.trees.is_alone(object);
        let running = self.users(object, &[State::Started]);
        if !is_there || !running.iter().any(|key| self.wants_unpacked(*key, object)) {
            return false;
        }
        self.trees.leave_alone(object);
        self.cache.keep(object, false);
        self.untold.insert(object);
        for key in running {
            let Some(task) = self.tasks.get_mut(&key) else { continue };
            let packed = task.inputs.iter_mut().filter(|input| !input.is_unpacked);
            for input in packed.filter(|input| input.object.id == object) {
                if std::mem::take(&mut input.pinned) {
                    self.cache.unpin(object);
                }
            }
        }
        for key in self.users(object, &[State::Staging, State::Ready]) {
            self.put_back(key);
        }
        true
    }

    fn fail_unpacking(&mut self, object: ObjectId, error: &UnpackError) {
        let Some(item) = self.items.get(&object) else { return };
        let url = Arc::clone(&item.object.url);
        for key in self.waiting_for_tree(object) {
            let (url, error) = (Arc::clone(&url), error.clone());
            self.fail(key, StageError::Unpack { url, error });
        }
    }

    /// Tasks that have their room and want an archive unpacked.
    fn waiting_for_tree(&self, object: ObjectId) -> Vec<Requester> {
        let mut users = self.users(object, &[State::Staging]);
        users.retain(|key| self.wants_unpacked(*key, object));
        users
    }
}
