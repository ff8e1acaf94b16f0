//! A user's instances among the runnable ones, the user's level, and what the user may have in
//! flight.
//!
//! A user's level is the processor time that all of the user's instances were given of late, as
//! an instance's level is ([`super::share`]), divided by the user's share: whoever has twice the
//! share is given twice the time before it is the others' turn. The user whose level is lowest
//! goes first, and of the user's instances the one whose level is lowest.

use super::share::{Folded, Least, Share, TurnKey, WriteDown};
use crate::task::{InstanceId, UserId};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A user's place among all: the priority of some of the user's instances, the user's level,
/// the last turn, and who it is.
pub(super) type GroupKey = (Reverse<i32>, u128, u64, UserId);

/// A user's instances.
#[derive(Debug)]
pub(super) struct Group {
    /// The user's share, beside those of others.
    weight: u32,
    /// What tasks of the user in flight may weigh together.
    slots_max: Option<u128>,
    /// The weight of the group's tasks in flight.
    usage: u128,
    /// The part of the group's level that its tasks in flight count for.
    in_flight: u128,
    /// What tasks that ended count, times the factors of their times.
    received: u128,
    /// The user's last turn.
    turn: u64,
    /// The runnable instances, the one whose turn it is first.
    pub(super) order: BTreeSet<(TurnKey, InstanceId)>,
    /// What those of the instances have received that are served.
    pub(super) least: Least,
    /// Its places among all groups, one for each priority.
    pub(super) listed: Vec<GroupKey>,
    /// The factor that its level was last listed with.
    listed_with: u128,
    /// Tasks were held back because of `slots_max`, and nobody has looked again since.
    was_full: bool,
    /// There may be room for them now.
    reopens: bool,
    /// The group's part of the weight of all groups that are listed.
    pub(super) listed_weight: u64,
    /// It counts among those that are bound and wait.
    pub(super) is_bound: bool,
}

impl Default for Group {
    fn default() -> Group {
        Group {
            weight: 1,
            slots_max: None,
            usage: 0,
            in_flight: 0,
            received: 0,
            turn: 0,
            order: BTreeSet::new(),
            least: Least::default(),
            listed: Vec::new(),
            listed_with: 0,
            was_full: false,
            reopens: false,
            listed_weight: 0,
            is_bound: false,
        }
    }
}

impl Group {
    /// Says what share the user has, and what tasks in flight may weigh.
    pub(super) fn set(&mut self, weight: u32, slots_max: Option<u128>) {
        (self.weight, self.slots_max) = (weight.max(1), slots_max);
    }

    pub(super) fn weight(&self) -> u32 {
        self.weight
    }

    /// What tasks of the user in flight weigh.
    pub(super) fn usage(&self) -> u128 {
        self.usage
    }

    /// The part of the group's level that its tasks in flight count for.
    pub(super) fn in_flight(&self) -> u128 {
        self.in_flight
    }

    /// What they may weigh.
    pub(super) fn slots_max(&self) -> Option<u128> {
        self.slots_max
    }

    /// How many more tasks that weigh so much each may be in flight.
    pub(super) fn room(&self, each: u128) -> u64 {
        let Some(most) = self.slots_max else { return u64::MAX };
        u64::try_from(most.saturating_sub(self.usage) / each.max(1)).unwrap_or(u64::MAX)
    }

    /// Whether tasks wait of a user who may have so many slots and no more.
    pub(super) fn waits_bound(&self) -> bool {
        self.slots_max.is_some() && !self.order.is_empty()
    }

    /// Tasks wait until fewer are in flight.
    pub(super) fn hold_back(&mut self) {
        self.was_full = true;
    }

    /// Whether nothing more of the user may be in flight.
    pub(super) fn is_full(&self) -> bool {
        self.slots_max.is_some_and(|most| self.usage >= most)
    }

    /// Takes in what has changed of an instance.
    pub(super) fn fold(&mut self, (before, now): (Folded, Folded)) {
        let moved = |of: u128, before, now| of.saturating_add(now).saturating_sub(before);
        self.in_flight = moved(self.in_flight, before.in_flight, now.in_flight);
        self.received = moved(self.received, before.received, now.received);
        self.usage = moved(self.usage, before.usage, now.usage);
        self.was_full |= self.is_full();
        if now.usage < before.usage && !self.is_full() {
            self.reopens |= std::mem::take(&mut self.was_full);
        }
    }

    /// Whether tasks that were held back may have room now, since this was last asked.
    pub(super) fn take_reopens(&mut self) -> bool {
        std::mem::take(&mut self.reopens)
    }

    /// An instance is gone.
    pub(super) fn forget(&mut self, share: &Share) {
        let before = share.folded();
        self.fold((before, Folded { received: before.received, ..Folded::default() }));
    }

    /// The user has runnable instances again, beside users that have received so much for each
    /// part of their shares.
    pub(super) fn come(&mut self, received: u128) {
        self.received = self.received.max(received.saturating_mul(u128::from(self.weight)));
    }

    /// It is the user's turn, the `turn`-th of all. Returns what the user has received for each
    /// part of the share.
    pub(super) fn take_turn(&mut self, turn: u64) -> u128 {
        self.turn = turn;
        self.received / u128::from(self.weight)
    }

    /// Whether it is listed where it belongs at a time of this factor.
    pub(super) fn is_current(&self, factor: u128) -> bool {
        self.listed_with == factor || self.in_flight == 0
    }

    /// Its places at a time of this factor: none if nothing more may be in flight.
    pub(super) fn list(&mut self, user: UserId, factor: u128) {
        self.listed.clear();
        self.listed_with = factor;
        if self.is_full() {
            return;
        }
        let in_flight = self.in_flight.saturating_mul(factor);
        let level = self.received.saturating_add(in_flight) / u128::from(self.weight);
        let mut next = self.order.first();
        // One for each priority of its runnable instances.
        while let Some(((priority, ..), _)) = next {
            self.listed.push((*priority, level, self.turn, user));
            let last = ((*priority, u128::MAX, u64::MAX), InstanceId(u64::MAX));
            next = self.order.range(last..).next();
        }
    }

    /// The instances of a priority, in the order of their turns.
    pub(super) fn of_priority(
        &self,
        priority: Reverse<i32>,
    ) -> impl Iterator<Item = (TurnKey, InstanceId)> {
        let first = ((priority, 0, 0), InstanceId(0));
        let last = ((priority, u128::MAX, u64::MAX), InstanceId(u64::MAX));
        self.order.range(first..=last).copied()
    }

    /// All levels are written down.
    pub(super) fn write_down(&mut self, due: WriteDown) {
        due.level(&mut self.received);
        due.least(&mut self.least);
    }
}
