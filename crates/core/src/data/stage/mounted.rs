//! Inputs that no directory here has room for: where the machine can mount file
//! systems, tasks find them in one that is read-only, and what a task reads comes from
//! the lenders of that part of the object, or from its store.
//!
//! Such an input takes no room, and is there from the start.

use super::event::Action;
use super::{Stage, Wanted};
use crate::data::limits::BROADCAST_OBJECT_BYTES_MIN;
use crate::data::object::{Object, ObjectId};
use crate::task::ExecutorId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The objects that are shown in a file system.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    is_possible: bool,
    shown: BTreeSet<ObjectId>,
}

impl Mounts {
    /// Of a machine that can mount file systems, or cannot.
    pub(super) fn new(is_possible: bool) -> Mounts {
        Mounts { is_possible, shown: BTreeSet::new() }
    }

    /// Whether objects can be shown.
    pub(super) fn is_possible(&self) -> bool {
        self.is_possible
    }

    /// Whether an object is shown.
    pub(super) fn has(&self, object: ObjectId) -> bool {
        self.shown.contains(&object)
    }

    /// The objects that are shown.
    pub(super) fn shown(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.shown.iter().copied()
    }
}

impl Stage {
    /// Whether objects that no directory here has room for can be read here.
    #[must_use]
    pub fn mounts(&self) -> bool {
        self.mounts.is_possible()
    }

    /// Whether a task finds an input in a file system.
    pub(super) fn is_mounted(&self, input: &Wanted) -> bool {
        self.mounts.is_possible() && input.may_mount && self.is_too_large(&input.object)
    }

    /// Whether no directory here has room for an object of which parts can be read.
    fn is_too_large(&self, object: &Object) -> bool {
        let Some(size) = object.size else { return false };
        let in_parts = object.is_stored() && object.member().is_none() && !object.is_unversioned();
        in_parts && size >= BROADCAST_OBJECT_BYTES_MIN && self.cache.is_too_large(size)
    }

    /// Shows an object that a task is to find in a file system.
    pub(super) fn show(&mut self, object: &Arc<Object>) {
        if self.mounts.shown.insert(object.id) {
            self.tell_lenders(object.id);
        }
    }

    /// Others have the stripes of an object from now on: whoever reads it here asks them.
    pub(super) fn tell_lenders(&mut self, object: ObjectId) {
        let item = self.items.get(&object).filter(|_| self.mounts.has(object));
        let Some(item) = item else { return };
        let (object, lenders) = (Arc::clone(&item.object), self.broadcasts.lenders(object));
        self.actions.push_back(Action::Show { object, lenders });
    }

    /// No task reads an object any more.
    pub(super) fn hide(&mut self, object: ObjectId) {
        if self.mounts.shown.remove(&object) {
            self.actions.push_back(Action::Hide(object));
        }
    }

    /// [`super::Event::Silent`].
    pub(super) fn lender_is_silent(&mut self, object: ObjectId, lender: ExecutorId) {
        if self.mounts.has(object) {
            self.broadcasts.gives_nothing(object, lender);
        }
    }
}
