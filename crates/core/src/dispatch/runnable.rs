//! The runnable instances, those with ready tasks that may be dispatched, in the
//! order of their turns ([`super::share`]): by priority, then in the order of their users
//! ([`super::groups`]). Where a dispatcher has no users, all instances are the owner's, and
//! nothing is listed or counted by user.

use super::check::{CheckError, ensure};
use super::groups::{Group, GroupKey};
use super::instance::Instance;
use super::share::{Least, Share, TurnKey, Turns, WriteDown};
use crate::task::{InstanceId, Time, UserId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A runnable instance: its user's turn, its own turn, and which it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    group: GroupKey,
    turn: TurnKey,
    pub(super) id: InstanceId,
}

/// What follows from where an instance was placed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    /// It has become runnable.
    pub(super) is_new: bool,
    /// Tasks of its user were held back, and may have room now.
    pub(super) reopens: bool,
}

/// The runnable instances.
#[derive(Debug, Default)]
pub(super) struct Runnable {
    /// The owner's instances.
    own: Group,
    /// Those of users.
    users: BTreeMap<UserId, Group>,
    /// The groups whose turn it is first; none without users.
    order: BTreeSet<GroupKey>,
    /// What the shares of the users add up to whose turn it is at some time.
    listed_weight: u64,
    /// How many users have ready tasks who may have so many slots and no more.
    bound: usize,
    /// What those users have received, for each part of their shares, that are served.
    least: Least,
    /// Instances that may stand in the wrong place, or where they should not.
    stale: Vec<InstanceId>,
    turns: Turns,
}

impl Entry {
    /// Whose instance it is.
    pub(super) fn user(self) -> UserId {
        self.group.3
    }
}

/// The group of a user who was added.
fn group_mut<'a>(
    own: &'a mut Group,
    users: &'a mut BTreeMap<UserId, Group>,
    user: UserId,
) -> &'a mut Group {
    if user == UserId::OWNER { own } else { users.entry(user).or_default() }
}

/// Users.
impl Runnable {
    /// Whether there are users beside the owner.
    pub(super) fn has_users(&self) -> bool {
        !self.users.is_empty()
    }

    fn group(&self, user: UserId) -> Option<&Group> {
        if user == UserId::OWNER { Some(&self.own) } else { self.users.get(&user) }
    }

    fn groups(&self) -> impl Iterator<Item = (UserId, &Group)> {
        let users = self.users.iter().map(|(user, group)| (*user, group));
        std::iter::once((UserId::OWNER, &self.own)).chain(users)
    }

    /// There is a user. Returns whether the user is the first: all instances are to be
    /// [marked](Runnable::mark) then, as levels of users have not counted until now.
    pub(super) fn add_user(&mut self, user: UserId, now: Time) -> bool {
        let had_users = self.has_users();
        if user != UserId::OWNER {
            self.users.entry(user).or_default();
        }
        let is_first = self.has_users() && !had_users;
        if is_first {
            self.relist_all(self.turns.factor(now));
        }
        is_first
    }

    /// Says what share a user, who was added, has, and what tasks of the user in flight may weigh
    /// together.
    pub(super) fn set_user(
        &mut self,
        user: UserId,
        weight: u32,
        slots_max: Option<u128>,
        now: Time,
    ) {
        group_mut(&mut self.own, &mut self.users, user).set(weight, slots_max);
        self.relist(user, self.turns.factor(now));
    }

    /// A user is gone, with all instances.
    pub(super) fn forget_user(&mut self, user: UserId, now: Time) {
        if let Some(group) = self.users.remove(&user) {
            debug_assert!(group.order.is_empty(), "a user who is gone has instances");
            for key in &group.listed {
                self.order.remove(key);
            }
            self.listed_weight -= group.listed_weight;
            self.bound -= usize::from(group.is_bound);
        }
        if !self.has_users() {
            self.relist_all(self.turns.factor(now));
        }
    }

    /// How many more tasks of a user that weigh so much each may be in flight.
    pub(super) fn room(&self, user: UserId, each: u128) -> u64 {
        match self.has_users() {
            true => self.group(user).map_or(u64::MAX, |group| group.room(each)),
            false => u64::MAX,
        }
    }

    /// Whether tasks wait of any user who may have so many slots and no more.
    pub(super) fn is_any_bound(&self) -> bool {
        self.bound > 0
    }

    /// Tasks of a user wait until fewer are in flight.
    pub(super) fn hold_back(&mut self, user: UserId) {
        group_mut(&mut self.own, &mut self.users, user).hold_back();
    }

    /// What tasks of a user in flight weigh, and what they may.
    pub(super) fn usage(&self, user: UserId) -> (u128, Option<u128>) {
        self.group(user).map_or((0, None), |group| (group.usage(), group.slots_max()))
    }

    /// Whether tasks of one user in flight weigh more than another's, each beside the user's
    /// share.
    pub(super) fn uses_more(&self, one: UserId, other: UserId) -> bool {
        let parts = |user| self.group(user).map(|group| (group.usage(), group.weight()));
        let (Some((one, of_one)), Some((other, of_other))) = (parts(one), parts(other)) else {
            return false;
        };
        one.saturating_mul(u128::from(of_other)) > other.saturating_mul(u128::from(of_one))
    }

    /// The runnable instances of a user.
    pub(super) fn ids_of(&self, user: UserId) -> impl Iterator<Item = InstanceId> {
        self.group(user).into_iter().flat_map(|group| group.order.iter().map(|(_, id)| *id))
    }

    /// In how many equal parts all is divided of which an instance of a user has one.
    pub(super) fn shares(&self, user: UserId) -> u64 {
        let Some(own) = self.group(user) else { return 1 };
        let instances = own.order.len() as u64;
        if !self.has_users() {
            return instances;
        }
        (self.listed_weight * instances).div_ceil(u64::from(own.weight())).max(1)
    }

    fn relist_all(&mut self, factor: u128) {
        let users: Vec<UserId> = self.groups().map(|(user, _)| user).collect();
        users.into_iter().for_each(|user| self.relist(user, factor));
    }

    /// Lists a user's instances where they belong at a time of this factor.
    fn relist(&mut self, user: UserId, factor: u128) {
        let has_users = self.has_users();
        let group = group_mut(&mut self.own, &mut self.users, user);
        for key in group.listed.drain(..) {
            self.order.remove(&key);
        }
        if has_users {
            group.list(user, factor);
        }
        let is_listed = !group.listed.is_empty();
        let weight = if is_listed { u64::from(group.weight()) } else { 0 };
        self.listed_weight -= std::mem::replace(&mut group.listed_weight, weight);
        self.listed_weight += weight;
        let is_bound = group.waits_bound();
        self.bound -= usize::from(std::mem::replace(&mut group.is_bound, is_bound));
        self.bound += usize::from(is_bound);
        self.order.extend(&group.listed);
    }
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

    /// Puts an instance, whose tasks in flight weigh `usage`, where it belongs.
    pub(super) fn place(
        &mut self,
        id: InstanceId,
        (share, usage): (&mut Share, u128),
        is_runnable: bool,
        now: Time,
    ) -> Placed {
        let factor = self.turns.factor(now);
        let (user, has_users) = (share.user(), self.has_users());
        let group = group_mut(&mut self.own, &mut self.users, user);
        let mut reopens = false;
        if has_users {
            group.fold(share.fold(usage));
            reopens = group.take_reopens();
        }
        let before = share.listed();
        if is_runnable && before.is_none() {
            share.come(group.least.received());
            if has_users && group.order.is_empty() {
                group.come(self.least.received());
            }
        }
        let key = share.list(is_runnable, factor);
        if key != before {
            if let Some(old) = before {
                group.order.remove(&(old, id));
            }
            if let Some(new) = key {
                group.order.insert((new, id));
            }
        }
        if has_users {
            self.relist(user, factor);
        }
        Placed { is_new: before.is_none() && key.is_some(), reopens }
    }

    /// Takes an instance out that is destroyed. Returns whether tasks of its user were held
    /// back, and may have room now.
    pub(super) fn remove(&mut self, id: InstanceId, share: &Share, now: Time) -> bool {
        self.stale.retain(|stale| *stale != id);
        let has_users = self.has_users();
        let group = group_mut(&mut self.own, &mut self.users, share.user());
        if let Some(key) = share.listed() {
            group.order.remove(&(key, id));
        }
        group.forget(share);
        if !has_users {
            return false;
        }
        let reopens = group.take_reopens();
        self.relist(share.user(), self.turns.factor(now));
        reopens
    }

    /// The instance whose turn it is, or is after another's.
    pub(super) fn next(&mut self, after: Option<Entry>, now: Time) -> Option<Entry> {
        if !self.has_users() {
            let after = after.map_or(Bound::Unbounded, |one| Bound::Excluded((one.turn, one.id)));
            let (turn, id) = self.own.order.range((after, Bound::Unbounded)).next().copied()?;
            return Some(Entry { group: (turn.0, 0, 0, UserId::OWNER), turn, id });
        }
        let mut bound = Bound::Unbounded;
        if let Some(Entry { group, turn, id }) = after {
            let next = self.within(group, Bound::Excluded((turn, id)));
            if next.is_some() {
                return next;
            }
            bound = Bound::Excluded(group);
        }
        loop {
            let key = self.order.range((bound, Bound::Unbounded)).next().copied()?;
            let factor = self.turns.factor(now);
            if self.group(key.3).is_some_and(|group| !group.is_current(factor)) {
                self.relist(key.3, factor);
                continue;
            }
            let next = self.within(key, Bound::Unbounded);
            if next.is_some() {
                return next;
            }
            bound = Bound::Excluded(key);
        }
    }

    /// The next instance of a group's priority.
    fn within(&self, group: GroupKey, after: Bound<(TurnKey, InstanceId)>) -> Option<Entry> {
        let found = self.group(group.3)?;
        let after = match after {
            Bound::Unbounded => Bound::Included(((group.0, 0, 0), InstanceId(0))),
            after => after,
        };
        let (turn, id) = found.order.range((after, Bound::Unbounded)).next().copied()?;
        (turn.0 == group.0).then_some(Entry { group, turn, id })
    }

    /// The instances, the one whose turn it is first.
    pub(super) fn ids(&self) -> impl Iterator<Item = InstanceId> {
        let own = (!self.has_users()).then_some(&self.own.order);
        let groups = self.order.iter().filter_map(|key| Some((key.0, self.group(key.3)?)));
        let of_users = groups.flat_map(|(priority, group)| group.of_priority(priority));
        own.into_iter().flatten().copied().chain(of_users).map(|(_, id)| id)
    }

    /// The instances, those included whose users may have nothing more in flight.
    pub(super) fn all(&self) -> impl Iterator<Item = InstanceId> {
        self.groups().flat_map(|(_, group)| group.order.iter().map(|(_, id)| *id))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.groups().map(|(_, group)| group.order.len()).sum()
    }

    /// Whether an instance stands where it belongs although time has passed.
    pub(super) fn is_current(&self, share: &Share, now: Time) -> bool {
        share.is_listed_with(self.turns.factor(now))
    }

    /// Whether an instance, whose share this is, has its turn at some time: it is runnable, and
    /// its user may have more in flight.
    pub(super) fn has_turn(&self, share: &Share) -> bool {
        let is_full = || self.group(share.user()).is_some_and(Group::is_full);
        share.listed().is_some() && !(self.has_users() && is_full())
    }

    /// It was an instance's turn: tasks that weigh so much were sent, each expected to
    /// take so long. Its tasks in flight weigh `usage` now.
    pub(super) fn serve(
        &mut self,
        (share, usage): (&mut Share, u128),
        weight: u128,
        counted_micros: u64,
        now: Time,
    ) {
        let factor = self.turns.factor(now);
        let turn = self.turns.take();
        let has_users = self.has_users();
        share.take_turn(turn);
        let group = group_mut(&mut self.own, &mut self.users, share.user());
        group.least.note(share.received(), factor);
        share.send(weight, counted_micros);
        if has_users {
            self.least.note(group.take_turn(turn), factor);
            group.fold(share.fold(usage));
        }
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
        let due = self.turns.due(now)?;
        due.least(&mut self.least);
        self.own.write_down(due);
        self.users.values_mut().for_each(|group| group.write_down(due));
        Some(due)
    }

    /// Whether an instance was noted and not placed since.
    pub(super) fn is_stale(&self, id: InstanceId) -> bool {
        self.stale.contains(&id)
    }

    /// Users' levels are what their instances add up to, and users are listed who may have more.
    ///
    /// # Errors
    /// Says what does not hold.
    pub(super) fn check<'a>(
        &self,
        instances: impl Iterator<Item = &'a Instance>,
    ) -> Result<(), CheckError> {
        if !self.has_users() {
            ensure!(self.order.is_empty(), "users have turns where there are none");
            return Ok(());
        }
        let mut folded: BTreeMap<UserId, (u128, u128)> = BTreeMap::new();
        for instance in instances {
            let (of_user, sums) = (instance.share.folded(), instance.share.user());
            let (in_flight, usage) = folded.entry(sums).or_default();
            *in_flight += of_user.in_flight;
            *usage += of_user.usage;
        }
        for (user, group) in self.groups() {
            let (in_flight, usage) = folded.remove(&user).unwrap_or_default();
            let is_sum = group.usage() == usage && group.in_flight() == in_flight;
            ensure!(is_sum, "user {user:?}: what is in flight is miscounted");
            let is_listed = group.listed.iter().all(|key| self.order.contains(key));
            ensure!(is_listed, "user {user:?} is not listed under the turn");
            let has_turn = !group.order.is_empty() && !group.is_full();
            ensure!(has_turn != group.listed.is_empty(), "user {user:?} is listed, or is not");
        }
        ensure!(folded.is_empty(), "users have instances and no level");
        let listed: usize = self.groups().map(|(_, group)| group.listed.len()).sum();
        ensure!(listed == self.order.len(), "a user who is gone has a turn");
        let has_turn = self.groups().filter(|(_, group)| !group.listed.is_empty());
        let weight: u64 = has_turn.map(|(_, group)| u64::from(group.weight())).sum();
        ensure!(weight == self.listed_weight, "the shares of users do not add up");
        let bound = self.groups().filter(|(_, group)| group.waits_bound()).count();
        ensure!(bound == self.bound, "users who are bound and wait are miscounted");
        Ok(())
    }

    /// Whether an instance stands under its turn.
    pub(super) fn contains(&self, id: InstanceId, share: &Share) -> bool {
        let group = self.group(share.user());
        let is_there = |key| group.is_some_and(|group| group.order.contains(&(key, id)));
        share.listed().is_some_and(|key| key == share.key() && is_there(key))
    }
}
