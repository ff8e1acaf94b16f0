//! The cancelled tasks whose outputs are staged, and how long their archives may
//! still take.

use super::OwnerId;
use crate::task::Time;
use std::collections::{BTreeMap, BTreeSet};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Cancelled {
    until: BTreeMap<OwnerId, Time>,
    times: BTreeSet<(Time, OwnerId)>,
}

impl Cancelled {
    /// A task is given up at `until`. One that is cancelled again keeps its time.
    pub(super) fn add(&mut self, owner: OwnerId, until: Time) {
        let until = *self.until.entry(owner).or_insert(until);
        self.times.insert((until, owner));
    }

    /// A task has ended.
    pub(super) fn remove(&mut self, owner: OwnerId) {
        if let Some(until) = self.until.remove(&owner) {
            self.times.remove(&(until, owner));
        }
    }

    pub(super) fn contains(&self, owner: OwnerId) -> bool {
        self.until.contains_key(&owner)
    }

    /// When the next of them is given up.
    pub(super) fn next(&self) -> Option<Time> {
        self.times.first().map(|(at, _)| *at)
    }

    /// A task that is given up by `now`.
    pub(super) fn due(&self, now: Time) -> Option<OwnerId> {
        self.times.first().filter(|(at, _)| *at <= now).map(|(_, owner)| *owner)
    }

    /// The tasks.
    pub(super) fn owners(&self) -> impl Iterator<Item = OwnerId> + '_ {
        self.until.keys().copied()
    }
}
