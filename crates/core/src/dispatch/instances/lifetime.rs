//! How long instances live: the lease of a client that may vanish, and the age
//! of results that nobody looks at.
//!
//! An instance with a *lease* is destroyed when no connection has been its
//! client's for that long. Any other is destroyed when all of its tasks have
//! ended and nobody has looked at it for as long as it is kept. Neither happens
//! while a client of the instance is connected. A lease begins anew at a
//! restart, as clients must find the dispatcher again; an age does not.
//!
//! Where there are as many instances as there may be, one that never had a task
//! and whose client has been away for a while gives way to a new one.

use super::Instances;
use crate::dispatch::instance::Instance;
use crate::dispatch::{ConnectionId, InstanceOptions, Keep, Record, RequestError};
use crate::limits::{EXPIRED_INSTANCES_MAX, LOOK_JOURNAL_MICROS, VACANT_INSTANCE_MICROS};
use crate::task::{InstanceId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Why an instance was destroyed by its dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Its client was away for longer than its lease.
    Lease {
        /// The lease, in microseconds.
        micros: u64,
    },
    /// Nobody had looked at its results for as long as they are kept.
    Age {
        /// How long they are kept, in microseconds.
        micros: u64,
    },
    /// It never had a task, its client was away, and there were as many
    /// instances as there may be.
    Vacant,
}

impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expiry::Lease { micros } => {
                write!(f, "its client was away for more than {} s", micros / 1_000_000)
            }
            Expiry::Age { micros } => write!(
                f,
                "its tasks had ended, and nobody had looked at it for {} s",
                micros / 1_000_000
            ),
            Expiry::Vacant => f.write_str(
                "it had no tasks, its client was away, and there were too many instances",
            ),
        }
    }
}

/// When an instance was created, when a client of it was last there, and when
/// it expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// When it was created.
    pub created: Time,
    /// When a client of it was last connected or asked about it.
    pub heard: Time,
    /// When it is destroyed if nobody looks at it; `None` while a client is
    /// connected, while tasks have not ended, or if it is kept for ever.
    pub expires: Option<Time>,
}

#[derive(Debug)]
struct Life {
    created: Time,
    /// When a client was last connected, or asked.
    heard: Time,
    /// The value of `heard` that the journal has.
    journaled: Time,
    /// Since when the lease runs.
    leased: Time,
    /// When the last of its tasks ended.
    ended: Time,
    lease_micros: Option<u64>,
    keep: Keep,
    /// Connections of its clients.
    clients: BTreeSet<ConnectionId>,
    /// When it is next looked at.
    check: Option<Time>,
    /// Since when it has had no client, where it is listed as vacant.
    vacant: Option<Time>,
}

impl Life {
    fn keep_micros(&self, default: Option<u64>) -> Option<u64> {
        match self.keep {
            Keep::AsDispatcher => default,
            Keep::Forever => None,
            Keep::Micros(micros) => Some(micros),
        }
    }

    /// When it expires as things are, and why.
    fn expiry(&self, default: Option<u64>, is_idle: bool) -> Option<(Time, Expiry)> {
        if !self.clients.is_empty() {
            return None;
        }
        let lease =
            self.lease_micros.map(|micros| (self.leased.after(micros), Expiry::Lease { micros }));
        let age = self
            .keep_micros(default)
            .filter(|_| is_idle)
            .map(|micros| (self.heard.max(self.ended).after(micros), Expiry::Age { micros }));
        [lease, age].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// The time before which it cannot expire, whatever happens from `now` on.
    fn expiry_min(&self, default: Option<u64>, now: Time) -> Option<Time> {
        let micros = self.lease_micros.into_iter().chain(self.keep_micros(default)).min();
        micros.map(|micros| now.after(micros.max(1)))
    }
}

/// The lifetimes of a dispatcher's instances.
#[derive(Debug, Default)]
pub(super) struct Lifetimes {
    /// How long instances are kept that leave it to the dispatcher.
    keep_micros: Option<u64>,
    lives: BTreeMap<InstanceId, Life>,
    /// Of which instances each connection is a client.
    clients: BTreeMap<ConnectionId, BTreeSet<InstanceId>>,
    checks: BTreeSet<(Time, InstanceId)>,
    /// Instances without a client, and since when; of those with tasks, not all.
    vacant: BTreeSet<(Time, InstanceId)>,
    /// The last instances that have expired, and when.
    expired: BTreeMap<InstanceId, Time>,
}

impl Lifetimes {
    pub(super) fn set_keep(&mut self, now: Time, micros: Option<u64>) {
        self.keep_micros = micros;
        let ids: Vec<_> = self.lives.keys().copied().collect();
        for id in ids {
            self.check_again(now, id);
        }
    }

    pub(super) fn begin(
        &mut self,
        now: Time,
        id: InstanceId,
        created: Time,
        options: &InstanceOptions,
    ) {
        let life = Life {
            created,
            heard: created,
            journaled: created,
            leased: now,
            ended: created,
            lease_micros: options.lease_micros,
            keep: options.keep,
            clients: BTreeSet::new(),
            check: None,
            vacant: None,
        };
        self.lives.insert(id, life);
        self.check_again(now, id);
        self.list_vacant(now, id);
    }

    /// Lists an instance as one without a client, if it has none.
    fn list_vacant(&mut self, now: Time, id: InstanceId) {
        self.unlist_vacant(id);
        if let Some(life) = self.lives.get_mut(&id).filter(|life| life.clients.is_empty()) {
            life.vacant = Some(now);
            self.vacant.insert((now, id));
        }
    }

    fn unlist_vacant(&mut self, id: InstanceId) {
        if let Some(since) = self.lives.get_mut(&id).and_then(|life| life.vacant.take()) {
            self.vacant.remove(&(since, id));
        }
    }

    /// Takes the instance off the list of vacant ones that has been the longest
    /// on it, if that is long enough.
    fn take_vacant(&mut self, now: Time) -> Option<InstanceId> {
        let (since, id) = self.vacant.first().copied()?;
        if since.after(VACANT_INSTANCE_MICROS) > now {
            return None;
        }
        self.unlist_vacant(id);
        Some(id)
    }

    /// Whether an instance has been without a client for long enough to make room.
    fn is_vacant(&self, now: Time, id: InstanceId) -> bool {
        let since = self.lives.get(&id).and_then(|life| life.vacant);
        since.is_some_and(|since| since.after(VACANT_INSTANCE_MICROS) <= now)
    }

    /// Has an instance looked at when it can expire at the earliest.
    fn check_again(&mut self, now: Time, id: InstanceId) {
        let Some(life) = self.lives.get_mut(&id) else { return };
        let next = life.expiry_min(self.keep_micros, now);
        if let Some(old) = std::mem::replace(&mut life.check, next) {
            self.checks.remove(&(old, id));
        }
        self.checks.extend(next.map(|at| (at, id)));
    }

    /// An instance is no more.
    pub(super) fn end(&mut self, id: InstanceId) {
        self.unlist_vacant(id);
        let Some(life) = self.lives.remove(&id) else { return };
        if let Some(check) = life.check {
            self.checks.remove(&(check, id));
        }
        for connection in life.clients {
            if let Some(instances) = self.clients.get_mut(&connection) {
                instances.remove(&id);
            }
        }
    }

    /// Remembers that an instance has expired. Returns the one that is
    /// forgotten for it.
    pub(super) fn remember_expired(&mut self, id: InstanceId, at: Time) -> Option<InstanceId> {
        self.expired.insert(id, at);
        let is_full = self.expired.len() > EXPIRED_INSTANCES_MAX;
        is_full.then(|| self.expired.pop_first()).flatten().map(|(forgotten, _)| forgotten)
    }

    pub(super) fn expired_at(&self, id: InstanceId) -> Option<Time> {
        self.expired.get(&id).copied()
    }

    pub(super) fn all_expired(&self) -> impl Iterator<Item = (InstanceId, Time)> {
        self.expired.iter().map(|(id, at)| (*id, *at))
    }

    /// A connection speaks for an instance. Returns what is to be journaled.
    pub(super) fn attach(
        &mut self,
        now: Time,
        connection: ConnectionId,
        id: InstanceId,
    ) -> Option<Record> {
        let life = self.lives.get_mut(&id)?;
        if !self.clients.entry(connection).or_default().insert(id) {
            return None;
        }
        life.clients.insert(connection);
        self.unlist_vacant(id);
        self.heard(now, id)
    }

    /// A connection is gone. Returns what is to be journaled.
    pub(super) fn detach(&mut self, now: Time, connection: ConnectionId) -> Vec<Record> {
        let ids = self.clients.remove(&connection).unwrap_or_default();
        for id in &ids {
            if let Some(life) = self.lives.get_mut(id) {
                life.clients.remove(&connection);
                life.leased = now;
            }
            self.list_vacant(now, *id);
        }
        ids.into_iter().filter_map(|id| self.heard(now, id)).collect()
    }

    /// Somebody has looked at an instance. Returns what is to be journaled: only
    /// so often that a restart changes little.
    pub(super) fn heard(&mut self, now: Time, id: InstanceId) -> Option<Record> {
        let life = self.lives.get_mut(&id)?;
        life.heard = life.heard.max(now);
        let keep = life.keep_micros(self.keep_micros)?;
        if now.since(life.journaled) < LOOK_JOURNAL_MICROS.min(keep / 16).max(1) {
            return None;
        }
        life.journaled = now;
        Some(Record::Heard { instance: id, at: now })
    }

    pub(super) fn recover_heard(&mut self, id: InstanceId, at: Time) {
        if let Some(life) = self.lives.get_mut(&id) {
            life.heard = life.heard.max(at);
            life.journaled = life.journaled.max(at);
        }
    }

    /// Tasks of an instance ended at `at`.
    pub(super) fn tasks_ended(&mut self, id: InstanceId, at: Time) {
        if let Some(life) = self.lives.get_mut(&id) {
            life.ended = life.ended.max(at);
        }
    }

    /// The journal has been read: leases begin anew.
    pub(super) fn recovered(&mut self, now: Time) {
        let ids: Vec<_> = self.lives.keys().copied().collect();
        for id in ids {
            if let Some(life) = self.lives.get_mut(&id) {
                life.leased = now;
            }
            self.check_again(now, id);
            self.list_vacant(now, id);
        }
    }

    pub(super) fn next_check(&self) -> Option<Time> {
        self.checks.first().map(|(at, _)| *at)
    }

    /// Takes the next instance that may have expired at `now`.
    fn take_due(&mut self, now: Time) -> Option<InstanceId> {
        let (_, id) = self.checks.first().copied().filter(|(at, _)| *at <= now)?;
        self.checks.pop_first();
        if let Some(life) = self.lives.get_mut(&id) {
            life.check = None;
        }
        Some(id)
    }

    /// Why an instance has expired at `now`; if it has not, it is looked at
    /// again when it may have.
    fn expiry_at(&mut self, now: Time, id: InstanceId, is_idle: bool) -> Option<Expiry> {
        let life = self.lives.get_mut(&id)?;
        match life.expiry(self.keep_micros, is_idle) {
            Some((at, why)) if at <= now => return Some(why),
            Some((at, _)) => {
                life.check = Some(at);
                self.checks.insert((at, id));
            }
            None => self.check_again(now, id),
        }
        None
    }

    fn view(&self, now: Time, id: InstanceId, is_idle: bool) -> Option<Lifetime> {
        let life = self.lives.get(&id)?;
        let heard = if life.clients.is_empty() { life.heard } else { now };
        let expires = life.expiry(self.keep_micros, is_idle).map(|(at, _)| at);
        Some(Lifetime { created: life.created, heard, expires })
    }

    /// What a snapshot says of an instance that its creation does not.
    pub(super) fn snapshot(&self, id: InstanceId) -> Option<Record> {
        let life = self.lives.get(&id)?;
        (life.heard > life.created).then_some(Record::Heard { instance: id, at: life.heard })
    }

    pub(super) fn created(&self, id: InstanceId) -> Time {
        self.lives.get(&id).map_or(Time::default(), |life| life.created)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = InstanceId> {
        self.lives.keys().copied()
    }
}

impl Instances {
    /// Says how long instances are kept that leave it to the dispatcher.
    pub(in crate::dispatch) fn set_keep(&mut self, now: Time, micros: Option<u64>) {
        self.lifetimes.set_keep(now, micros);
    }

    /// Somebody asks about an instance, which says that it is still wanted.
    /// Returns what is to be journaled.
    pub(in crate::dispatch) fn heard(&mut self, now: Time, id: InstanceId) -> Option<Record> {
        self.lifetimes.heard(now, id)
    }

    /// When an instance expired, if it did and that is still known.
    pub(in crate::dispatch) fn expired_at(&self, id: InstanceId) -> Option<Time> {
        self.lifetimes.expired_at(id)
    }

    /// The instances that have expired of which it is still known when.
    pub(in crate::dispatch) fn all_expired(&self) -> impl Iterator<Item = (InstanceId, Time)> {
        self.lifetimes.all_expired()
    }

    /// The lifetime of an instance.
    pub(in crate::dispatch) fn lifetime(&self, now: Time, instance: &Instance) -> Lifetime {
        let unknown = Lifetime { created: Time(0), heard: Time(0), expires: None };
        self.lifetimes.view(now, instance.id, instance.is_idle()).unwrap_or(unknown)
    }

    /// A client's connection speaks about an instance. Returns what is to be
    /// journaled.
    ///
    /// # Errors
    /// There is no such instance (any more).
    pub(in crate::dispatch) fn attach(
        &mut self,
        now: Time,
        connection: ConnectionId,
        id: InstanceId,
    ) -> Result<Option<Record>, RequestError> {
        if !self.contains(&id) {
            return Err(match self.lifetimes.expired_at(id) {
                Some(at) => RequestError::Expired { instance: id, at },
                None => RequestError::NoInstance(id),
            });
        }
        Ok(self.lifetimes.attach(now, connection, id))
    }

    /// A connection is gone. Returns what is to be journaled.
    pub(in crate::dispatch) fn detach(
        &mut self,
        now: Time,
        connection: ConnectionId,
    ) -> Vec<Record> {
        self.lifetimes.detach(now, connection)
    }

    /// Tasks of an instance ended at `at`.
    pub(in crate::dispatch) fn tasks_ended(&mut self, id: InstanceId, at: Time) {
        self.lifetimes.tasks_ended(id, at);
    }

    /// When an instance may have expired next.
    pub(in crate::dispatch) fn next_expiry(&self) -> Option<Time> {
        self.lifetimes.next_check()
    }

    /// The next instance whose time is over at `now`, and why. It is to be
    /// removed.
    pub(in crate::dispatch) fn next_expired(&mut self, now: Time) -> Option<(InstanceId, Expiry)> {
        loop {
            let id = self.lifetimes.take_due(now)?;
            let is_idle = self[&id].is_idle();
            if let Some(why) = self.lifetimes.expiry_at(now, id, is_idle) {
                return Some((id, why));
            }
        }
    }

    /// An instance that nobody wants, if there is one. It is to be removed.
    pub(in crate::dispatch) fn next_vacant(&mut self, now: Time) -> Option<InstanceId> {
        loop {
            let id = self.lifetimes.take_vacant(now)?;
            // One with tasks is listed again when its next client goes.
            if self[&id].tasks.total() == 0 {
                return Some(id);
            }
        }
    }

    /// Whether an instance without tasks has had no client for long enough to make room.
    pub(in crate::dispatch) fn is_vacant(&self, now: Time, id: InstanceId) -> bool {
        self.lifetimes.is_vacant(now, id) && self[&id].tasks.total() == 0
    }

    /// Remembers that an instance has expired. Returns the one that is
    /// forgotten for it.
    pub(in crate::dispatch) fn remember_expired(
        &mut self,
        id: InstanceId,
        at: Time,
    ) -> Option<InstanceId> {
        self.never_again(id);
        self.lifetimes.remember_expired(id, at)
    }

    /// A journal says that a client of an instance was there.
    pub(in crate::dispatch) fn recover_heard(&mut self, id: InstanceId, at: Time) {
        self.lifetimes.recover_heard(id, at);
    }

    /// The journal has been read: leases begin anew.
    pub(in crate::dispatch) fn lifetimes_recovered(&mut self, now: Time) {
        self.lifetimes.recovered(now);
        for instance in self.all.values() {
            // When those ended is in their pages: their age begins anew.
            if instance.results.pages().len() > 0 {
                self.lifetimes.tasks_ended(instance.id, now);
            }
        }
    }

    /// When an instance was created, and what a snapshot says beyond that.
    pub(in crate::dispatch) fn snapshot_life(&self, id: InstanceId) -> (Time, Option<Record>) {
        (self.lifetimes.created(id), self.lifetimes.snapshot(id))
    }
}
