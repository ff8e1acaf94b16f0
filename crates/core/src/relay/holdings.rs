//! What the executors below hold, on its way to the dispatcher above.

use crate::data::limits::CHANGES_OBJECTS_MAX;
use crate::data::object::ObjectId;
use crate::data::stage::Changes;
use crate::dispatch::{Holdings, LetGo};
use std::collections::{BTreeMap, BTreeSet};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Held {
    /// What to ask the dispatcher below with.
    upto: u64,
    objects: BTreeMap<ObjectId, u64>,
    /// What the dispatcher above has been told, in this session.
    told: BTreeSet<ObjectId>,
    /// Objects of which it has been told otherwise, or nothing.
    untold: BTreeSet<ObjectId>,
    /// It has been told nothing in this session.
    anew: bool,
    /// The dispatcher below has said all that its executors hold.
    is_known: bool,
    /// It has said so since this session above began: what tasks have left whose reports the
    /// dispatcher above has is among it.
    is_recent: bool,
}

impl Held {
    /// What to ask the dispatcher below with next.
    pub(super) fn upto(&self) -> u64 {
        self.upto
    }

    /// The dispatcher below is another process, perhaps.
    pub(super) fn ask_anew(&mut self) {
        self.upto = 0;
        self.is_known = false;
    }

    /// The dispatcher below says what has changed.
    pub(super) fn take(&mut self, holdings: Holdings) {
        let Holdings { anew, upto, added, removed } = holdings;
        self.upto = upto;
        self.is_known |= anew;
        self.is_recent = true;
        if anew {
            let before = std::mem::take(&mut self.objects);
            self.untold.extend(before.into_keys());
        }
        self.untold.extend(added.iter().map(|(object, _)| *object).chain(removed.iter().copied()));
        self.objects.extend(added);
        for object in &removed {
            self.objects.remove(object);
        }
    }

    /// A session with the dispatcher above begins.
    pub(super) fn connected(&mut self) {
        self.anew = true;
        self.is_recent = false;
        self.told.clear();
        self.untold = self.objects.keys().copied().collect();
    }

    fn is_complete(&self) -> bool {
        self.is_known && self.is_recent
    }

    /// Whether there is something to tell.
    pub(super) fn has_news(&self) -> bool {
        self.is_complete() && (self.anew || !self.untold.is_empty())
    }

    /// What to tell next.
    pub(super) fn changes(&mut self) -> Option<Box<Changes>> {
        if !self.is_complete() {
            return None;
        }
        let mut changes = Changes::default();
        while changes.added.len() + changes.removed.len() < CHANGES_OBJECTS_MAX
            && let Some(object) = self.untold.pop_first()
        {
            match self.objects.get(&object) {
                Some(size) if self.told.insert(object) => changes.added.push((object, *size)),
                None if self.told.remove(&object) => changes.removed.push(object),
                _ => {}
            }
        }
        if changes == Changes::default() && !self.anew {
            return None;
        }
        changes.anew = std::mem::take(&mut self.anew);
        Some(Box::new(changes))
    }

    /// The dispatcher above needs objects no more. Where it was wrong about who holds them, it
    /// is told so.
    pub(super) fn let_go(&mut self, objects: &LetGo) {
        for object in objects.release.iter().chain(&objects.drop) {
            if !self.objects.contains_key(object) {
                self.told.insert(*object);
                self.untold.insert(*object);
            }
        }
    }
}
