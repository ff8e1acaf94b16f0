//! The runnable instances, those with ready tasks that may be dispatched, in the
//! order of their turns ([`super::share`]).

use super::share::{Share, TurnKey, Turns, WriteDown};
use crate::task::{InstanceId, Time};
use std::collections::BTreeSet;
use std::ops::Bound;

/// A runnable instance: its turn, and which it is.
pub(super) type Entry = (TurnKey, InstanceId);

/// The runnable instances.
#[derive(Debug, Default)]
pub(super) struct Runnable {
    /// The instance whose turn it is first.
    order: BTreeSet<Entry>,
    /// Instances that may stand in the wrong place, or where they should not.
    stale: Vec<InstanceId>,
    turns: Turns,
}

impl Runnable {
    /// Notes that an instance may belong elsewhere: a thousand results move it once.
    pub(super) fn mark(&mut self, id: InstanceId) {
        if self.stale.last() != Some(&id) {
            self.stale.push(id);
        }
    }

    /// Returns an instance that was noted, which is to be [placed](Runnable::place).
    pub(super) fn pop_stale(&mut self) -> Option<InstanceId> {
        self.stale.pop()
    }

    /// Puts an instance where it belongs. Returns whether it has become runnable.
    pub(super) fn place(
        &mut self,
        id: InstanceId,
        share: &mut Share,
        is_runnable: bool,
        now: Time,
    ) -> bool {
        let factor = self.turns.factor(now);
        let before = share.listed();
        if is_runnable && before.is_none() {
            share.come(self.turns.received());
        }
        let key = share.list(is_runnable, factor);
        if key == before {
            return false;
        }
        if let Some(old) = before {
            self.order.remove(&(old, id));
        }
        if let Some(new) = key {
            self.order.insert((new, id));
        }
        before.is_none()
    }

    /// Takes an instance out that is destroyed.
    pub(super) fn remove(&mut self, id: InstanceId, share: &Share) {
        if let Some(key) = share.listed() {
            self.order.remove(&(key, id));
        }
        self.stale.retain(|stale| *stale != id);
    }

    /// The instance whose turn it is, or is after another's.
    pub(super) fn next(&self, after: Option<Entry>) -> Option<Entry> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.order.range((after, Bound::Unbounded)).next().copied()
    }

    /// The instances, the one whose turn it is first.
    pub(super) fn ids(&self) -> impl Iterator<Item = InstanceId> {
        self.order.iter().map(|(_, id)| *id)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether an instance stands where it belongs although time has passed.
    pub(super) fn is_current(&self, share: &Share, now: Time) -> bool {
        share.is_listed_with(self.turns.factor(now))
    }

    /// It was an instance's turn: tasks that weigh so much were sent, each expected to
    /// take so long.
    pub(super) fn serve(
        &mut self,
        share: &mut Share,
        weight: u128,
        counted_micros: u64,
        now: Time,
    ) {
        let factor = self.turns.factor(now);
        self.turns.take(share, factor);
        share.send(weight, counted_micros);
    }

    /// Tasks that were sent have run, each for so long.
    pub(super) fn end(
        &self,
        share: &mut Share,
        weight: u128,
        (counted_micros, micros): (u64, u64),
        now: Time,
    ) {
        share.end(weight, counted_micros, micros, self.turns.factor(now));
    }

    /// By how much all shares are to be written down now, if they are.
    pub(super) fn due(&mut self, now: Time) -> Option<WriteDown> {
        self.turns.due(now)
    }

    /// Whether an instance was noted and not placed since.
    pub(super) fn is_stale(&self, id: InstanceId) -> bool {
        self.stale.contains(&id)
    }

    /// Whether an instance stands under its turn.
    pub(super) fn contains(&self, id: InstanceId, share: &Share) -> bool {
        share.listed().is_some_and(|key| key == share.key() && self.order.contains(&(key, id)))
    }
}
