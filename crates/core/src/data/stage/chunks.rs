//! Receiving an object that is broadcast: each chunk from the parent in its
//! tree.
//!
//! A parent that has not got a chunk yet says so in time. One that says nothing
//! for as long as [`PARENT_SILENCE_BYTES`] take at its pace, or for
//! [`PARENT_SILENCE_MICROS`] if that is longer, hangs: the dispatcher is told, and
//! names another. If it does not within [`PARENT_WAIT_MICROS`], the chunks come from a
//! holder or the store, so nothing depends on the dispatcher's answer. So they do if
//! a parent of an earlier session only says that it waits, for as long as anybody who
//! is still fetching an object is waited for.

use super::event::{Action, FetchError, FetchId};
use super::fetch::Transfer;
use super::source::SourceKey;
use super::{Stage, Timer};
use crate::data::broadcast::{Chunks, TREES};
use crate::data::limits::{
    BROADCAST_ASKED_CHUNKS_MAX, BROADCAST_CHUNK_BYTES_MAX, BROADCAST_OBJECT_BYTES_MIN,
    BROADCASTS_MAX, CHUNK_PAUSE_MICROS, PACE_BYTES, PARENT_SILENCE_BYTES, PARENT_SILENCE_MICROS,
    PARENT_SILENCE_MICROS_MAX, PARENT_WAIT_MICROS, STRIPE_ASKED_UNITS_MAX, STRIPE_BYTES,
};
use crate::data::object::{ObjectId, Source};
use crate::data::stripes::{next_in_stripe, within_unit};
use crate::limits::STRIPES_MAX;
use crate::task::{ExecutorId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// Who sends the chunks of one tree.
#[derive(Debug, Clone, Copy)]
struct Parent {
    /// An executor; for a stripe that is lent here and that no other has, the store.
    source: Source,
    /// When it last said something.
    heard: Time,
    /// It had not got a chunk, and is asked again then.
    paused_until: Option<Time>,
    /// Since when it gives nothing.
    failed: Option<Time>,
    /// It was named in an earlier session: it may have been given other parents
    /// since, of which this node heard nothing, and wait for this node now.
    is_old: bool,
    pace: Pace,
}

/// How long somebody takes to send bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    /// Since when these bytes have come; `None` while nothing comes.
    since: Option<Time>,
    bytes: u64,
    /// The time for [`PARENT_SILENCE_BYTES`] as was measured last, if ever, and
    /// whether over [`PACE_BYTES`].
    silence_micros: Option<u64>,
    is_whole: bool,
}

impl Pace {
    /// So many bytes have come. The first ones only say that it has begun.
    fn gave(&mut self, now: Time, bytes: u64) {
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.bytes = self.bytes.saturating_add(bytes);
        let is_whole = self.bytes >= PACE_BYTES;
        if self.bytes > 0 && (is_whole || !self.is_whole) {
            let silence = now.since(since).saturating_mul(PARENT_SILENCE_BYTES);
            self.silence_micros = Some(silence / self.bytes);
        }
        if is_whole {
            (self.since, self.bytes, self.is_whole) = (Some(now), 0, true);
        }
    }

    /// Nothing comes for now, which says nothing of the pace.
    fn pause(&mut self) {
        (self.since, self.bytes) = (None, 0);
    }
}

/// The parents in one broadcast, or the lenders of the stripes of an object.
#[derive(Debug)]
struct Parents {
    of: Vec<Parent>,
    is_striped: bool,
    timer: Option<Time>,
}

/// The broadcasts in which this node receives.
#[derive(Debug, Default)]
pub(super) struct Broadcasts {
    parents: BTreeMap<ObjectId, Parents>,
    /// Parents of which nothing was heard, to be told.
    silent: BTreeSet<(ObjectId, ExecutorId)>,
    /// The time for [`PARENT_SILENCE_BYTES`] of the parent that was measured last.
    silence_micros: u64,
}

impl Broadcasts {
    /// Whether there is anything to tell.
    pub(super) fn has_silent(&self) -> bool {
        !self.silent.is_empty()
    }

    /// Objects, and parents of which nothing was heard since the last call.
    pub(super) fn take_silent(&mut self) -> Vec<(ObjectId, ExecutorId)> {
        std::mem::take(&mut self.silent).into_iter().collect()
    }

    /// An object is asked for from now on.
    pub(super) fn begin(&mut self, now: Time, object: ObjectId) {
        let parents = self.parents.get_mut(&object).into_iter();
        parents.flat_map(|parents| &mut parents.of).for_each(|parent| parent.heard = now);
    }

    /// A session begins, of which no parents were named yet.
    pub(super) fn connected(&mut self) {
        let all = self.parents.values_mut().flat_map(|parents| &mut parents.of);
        all.for_each(|parent| parent.is_old = true);
    }

    fn parent(&mut self, object: ObjectId, tree: usize) -> Option<&mut Parent> {
        self.parents.get_mut(&object)?.of.get_mut(tree)
    }

    /// A parent gives nothing.
    fn failed(&mut self, now: Time, object: ObjectId, tree: usize) {
        let Some(parent) = self.parent(object, tree) else { return };
        parent.failed.get_or_insert(now);
        if let Source::Peer(id) = parent.source
            && self.silent.len() < BROADCASTS_MAX
        {
            self.silent.insert((object, id));
        }
    }

    /// Bytes have come from the parent in a tree.
    fn gave(&mut self, now: Time, object: ObjectId, tree: usize, bytes: u64) {
        let Some(parent) = self.parent(object, tree) else { return };
        parent.pace.gave(now, bytes);
        if let Some(micros) = parent.pace.silence_micros.filter(|_| parent.pace.is_whole) {
            self.silence_micros = micros;
        }
    }

    /// How long the parent in a tree may say nothing. Of one that has sent nothing
    /// yet the pace is that of others: it may be this node's own link that is slow.
    fn silence_micros(&self, object: ObjectId, tree: usize) -> u64 {
        let parents = self.parents.get(&object);
        let own = parents.and_then(|parents| parents.of.get(tree)?.pace.silence_micros);
        let micros = own.unwrap_or(self.silence_micros);
        micros.clamp(PARENT_SILENCE_MICROS, PARENT_SILENCE_MICROS_MAX)
    }

    /// Whether lenders have the stripes of an object.
    pub(super) fn is_striped(&self, object: ObjectId) -> bool {
        self.parents.get(&object).is_some_and(|parents| parents.is_striped)
    }

    /// How many chunks of one tree, or stripe, are asked for at a time.
    fn chunks_max(&self, object: ObjectId, fetches_max: usize) -> usize {
        match self.is_striped(object) {
            // All lenders are asked at once.
            true => (fetches_max / self.trees(object).max(1)).clamp(1, STRIPE_ASKED_UNITS_MAX),
            false => BROADCAST_ASKED_CHUNKS_MAX,
        }
    }

    /// The executors that have the stripes of an object, one after another.
    pub(super) fn lenders(&self, object: ObjectId) -> Vec<ExecutorId> {
        let striped = self.parents.get(&object).filter(|parents| parents.is_striped);
        let all = striped.into_iter().flat_map(|parents| &parents.of);
        let lenders = all.filter_map(|parent| match parent.source {
            Source::Peer(id) => Some(id),
            Source::Own | Source::Store | Source::Dispatcher => None,
        });
        lenders.collect()
    }

    /// A lender gives nothing to those who read an object in a file system.
    pub(super) fn gives_nothing(&mut self, object: ObjectId, lender: ExecutorId) {
        if self.silent.len() < BROADCASTS_MAX && self.lenders(object).contains(&lender) {
            self.silent.insert((object, lender));
        }
    }

    /// How many trees, or stripes, the chunks of an object are part of.
    fn trees(&self, object: ObjectId) -> usize {
        self.parents.get(&object).map_or(0, |parents| parents.of.len())
    }

    /// When a broadcast is to be looked at again.
    pub(super) fn timer(&self, object: ObjectId) -> Option<Time> {
        self.parents.get(&object).and_then(|parents| parents.timer)
    }
}

impl Stage {
    /// [`super::Event::Parents`].
    pub(super) fn parents(&mut self, object: ObjectId, parents: Vec<ExecutorId>) {
        let ids = Some(parents).filter(|ids| ids.len() == TREES);
        self.receive_from(object, ids, false);
    }

    /// [`super::Event::Striped`].
    pub(super) fn striped(&mut self, object: ObjectId, lenders: Vec<ExecutorId>) {
        let ids = Some(lenders).filter(|ids| (1..=STRIPES_MAX).contains(&ids.len()));
        self.receive_from(object, ids, true);
        self.tell_lenders(object);
    }

    fn receive_from(&mut self, object: ObjectId, ids: Option<Vec<ExecutorId>>, is_striped: bool) {
        let Some(ids) = ids else {
            self.leave_broadcast(object);
            return self.hunger(object);
        };
        let parents = (0..).zip(ids.iter().map(|id| Source::Peer(*id))).collect();
        self.name_parents(object, parents, ids.len(), is_striped);
    }

    /// These stripes of a share, of so many, come from an executor that has them, or from
    /// the store.
    pub(super) fn copy_stripes(&mut self, share: ObjectId, stripes: &[u32], of: u32, from: Source) {
        // Where all come from the store, they come like any other object.
        if from != Source::Store || self.broadcasts.parents.contains_key(&share) {
            let parents = stripes.iter().map(|stripe| (*stripe as usize, from)).collect();
            self.name_parents(share, parents, of as usize, true);
        }
    }

    /// Names the parents of some trees, or stripes, of so many.
    fn name_parents(
        &mut self,
        object: ObjectId,
        named: Vec<(usize, Source)>,
        count: usize,
        is_striped: bool,
    ) {
        let now = self.now;
        let known = self.broadcasts.parents.get(&object);
        if known.is_some_and(|one| one.is_striped != is_striped || one.of.len() != count) {
            self.leave_broadcast(object);
        }
        if self.broadcasts.parents.len() >= BROADCASTS_MAX {
            let items = &self.items;
            self.broadcasts.parents.retain(|known, _| items.contains_key(known));
            if self.broadcasts.parents.len() >= BROADCASTS_MAX {
                return;
            }
        }
        let fresh = |source| Parent {
            source,
            heard: now,
            paused_until: None,
            failed: None,
            is_old: false,
            pace: Pace::default(),
        };
        let known = self.broadcasts.parents.entry(object);
        let known = known.or_insert_with(|| {
            let of = vec![fresh(Source::Store); count];
            Parents { of, is_striped, timer: None }
        });
        for (number, source) in named {
            let Some(parent) = known.of.get_mut(number) else { continue };
            if parent.source != source || parent.failed.is_some() {
                *parent = fresh(source);
            }
            parent.is_old = false;
        }
        self.end_long_transfers(object);
        let making = self.items.get_mut(&object).and_then(|item| item.making.as_mut());
        if let Some(at) = making.and_then(|making| making.retry_at.take()) {
            self.timers.remove(&(at, Timer::Fetch(object)));
        }
        self.hunger(object);
    }

    /// What comes in one piece from elsewhere comes in chunks from now on.
    fn end_long_transfers(&mut self, object: ObjectId) {
        if !self.is_in_chunks(object) {
            return;
        }
        let Some(making) = self.items.get(&object).and_then(|item| item.making.as_ref()) else {
            return;
        };
        let partial = making.partial;
        let is_striped = self.broadcasts.is_striped(object);
        let most = if is_striped { STRIPE_BYTES } else { BROADCAST_CHUNK_BYTES_MAX };
        for fetch in making.active.clone() {
            let Some(transfer) = self.transfers.get_mut(&fetch) else { continue };
            let is_long = transfer.length.is_none_or(|length| length > most);
            let is_long = is_long && transfer.source != Source::Store;
            if is_long && !std::mem::replace(&mut transfer.is_given_up, true) {
                self.actions.push_back(Action::GiveUp { fetch, partial });
            }
        }
    }

    /// Whether an object on its way here comes in chunks.
    fn is_in_chunks(&self, object: ObjectId) -> bool {
        let Some(item) = self.items.get(&object) else { return false };
        let is_large = item.size.is_some_and(|size| size >= BROADCAST_OBJECT_BYTES_MIN);
        let in_parts = item.making.as_ref().is_some_and(|one| !one.single && one.tail.is_none());
        is_large && in_parts && self.broadcasts.parents.contains_key(&object)
    }

    /// An object comes like any other from now on, or not at all.
    pub(super) fn leave_broadcast(&mut self, object: ObjectId) {
        if let Some(parents) = self.broadcasts.parents.remove(&object)
            && let Some(at) = parents.timer
        {
            self.timers.remove(&(at, Timer::Chunks(object)));
        }
    }

    /// Asks for as many chunks of an object as may be. Returns false if it does
    /// not come in chunks, or has no source left but those of any object.
    pub(super) fn feed_chunks(&mut self, object: ObjectId) -> bool {
        if !self.is_in_chunks(object) {
            return false;
        }
        for tree in 0..self.broadcasts.trees(object) {
            while let Some((offset, length)) = self.next_chunk(object, tree) {
                let Some((source, tree)) = self.chunk_source(object, tree) else { break };
                if self.transfers.len() >= self.fetches_max {
                    let making = self.items.get(&object).and_then(|item| item.making.as_ref());
                    self.hungry.extend(making.map(|making| (making.rank, object)));
                    break;
                }
                self.fetch_part(object, source, (offset, Some(length)), tree);
            }
        }
        self.set_chunk_timer(object);
        let making = self.items.get(&object).and_then(|item| item.making.as_ref());
        let Some(making) = making else { return true };
        let is_hungry = self.hungry.contains(&(making.rank, object));
        let is_waiting = !making.active.is_empty() || !making.parked.is_empty() || is_hungry;
        if is_waiting || self.broadcasts.timer(object).is_some() || making.pending.is_empty() {
            return true;
        }
        self.leave_broadcast(object);
        false
    }

    /// The first bytes that nobody is sending of the chunks of a tree.
    fn next_chunk(&self, object: ObjectId, tree: usize) -> Option<(u64, u64)> {
        let item = self.items.get(&object)?;
        let (making, chunks) = (item.making.as_ref()?, Chunks::of(item.size?));
        let trees = self.broadcasts.trees(object);
        let is_striped = self.broadcasts.is_striped(object);
        making.pending.iter().find_map(|(first, count)| {
            let end = first + count;
            let from = match is_striped {
                true => next_in_stripe(first, tree, trees),
                false => chunks.next_in_tree(first, tree),
            };
            let within = |bytes| match is_striped {
                true => within_unit(from, bytes),
                false => chunks.within(from, bytes),
            };
            (from < end).then(|| (from, within(end - from)))
        })
    }

    /// Whom to ask for the next chunk of a tree, and whether as its parent; nobody
    /// if that is to wait.
    fn chunk_source(&mut self, object: ObjectId, tree: usize) -> Option<(Source, Option<usize>)> {
        let now = self.now;
        let parent = *self.broadcasts.parent(object, tree)?;
        if parent.source == Source::Store {
            return self.store_source(object);
        }
        let item = self.items.get(&object)?;
        let key = SourceKey::of(parent.source, &item.object);
        if parent.failed.is_none() && self.wrong.contains(&(object, key.clone())) {
            self.broadcasts.failed(now, object, tree);
        }
        let Some(failed) = self.broadcasts.parent(object, tree)?.failed else {
            let making = self.items.get_mut(&object)?.making.as_mut()?;
            let rank = making.rank;
            let of = making.active.iter().filter_map(|fetch| self.transfers.get(fetch));
            let of: Vec<&Transfer> = of.filter(|one| one.tree == Some(tree)).collect();
            // A lender sends units side by side.
            let is_striped = self.broadcasts.is_striped(object);
            let from_parent = |one: &&&Transfer| one.source == parent.source;
            let is_early =
                is_striped && of.iter().filter(from_parent).any(|one| !one.is_half_here());
            let most = self.broadcasts.chunks_max(object, self.fetches_max);
            let is_busy = is_early || of.len() >= most;
            if is_busy || parent.paused_until.is_some_and(|at| at > now) {
                return None;
            }
            if self.loads.get(&key).is_some_and(|load| *load >= self.source_fetches_max) {
                if !making.parked.contains(&key) {
                    self.parked.entry(key.clone()).or_default().insert((rank, object));
                    making.parked.push(key);
                }
                return None;
            }
            return Some((parent.source, Some(tree)));
        };
        if now < failed.after(PARENT_WAIT_MICROS) {
            return None;
        }
        let (wrong, loads, max) = (&self.wrong, &self.loads, self.source_fetches_max);
        let item = self.items.get(&object)?;
        let may_be_asked = |source| {
            let key = SourceKey::of(source, &item.object);
            let is_free = loads.get(&key).is_none_or(|load| *load < max);
            is_free && !wrong.contains(&(object, key))
        };
        item.candidates.spare(may_be_asked).map(|source| (source, None))
    }

    /// The store, for a stripe that is lent here and that no other has: one unit after
    /// another. Nobody for now, if it is at its limit.
    fn store_source(&mut self, object: ObjectId) -> Option<(Source, Option<usize>)> {
        let item = self.items.get_mut(&object)?;
        let key = SourceKey::of(Source::Store, &item.object);
        item.candidates.spare(|source| source == Source::Store)?;
        let making = item.making.as_mut()?;
        if self.loads.get(&key).is_some_and(|load| *load >= self.source_fetches_max) {
            if !making.parked.contains(&key) {
                self.parked.entry(key.clone()).or_default().insert((making.rank, object));
                making.parked.push(key);
            }
            return None;
        }
        Some((Source::Store, None))
    }

    /// A source has said something. It sends chunks one after another, so it is not
    /// silent about those that it sends next.
    pub(super) fn heard(&mut self, object: ObjectId, source: Source) {
        let making = self.items.get(&object).and_then(|item| item.making.as_ref());
        for fetch in making.into_iter().flat_map(|making| &making.active) {
            if let Some(one) = self.transfers.get_mut(fetch).filter(|one| one.source == source) {
                one.heard = self.now;
            }
        }
    }

    /// A chunk has come whole from a parent, or it has said that it lives.
    pub(super) fn heard_parent(&mut self, transfer: &Transfer, paused: bool) {
        let now = self.now;
        let Some(tree) = transfer.tree else { return };
        self.heard(transfer.object, transfer.source);
        let Some(parent) = self.broadcasts.parent(transfer.object, tree) else { return };
        if transfer.source == parent.source {
            parent.heard = now;
            parent.paused_until = paused.then(|| now.after(CHUNK_PAUSE_MICROS));
            if paused {
                parent.pace.pause();
            }
        }
    }

    /// More of a transfer has come: `bytes` in all.
    pub(super) fn chunk_goes_on(&mut self, fetch: FetchId, bytes: u64) {
        let Some(transfer) = self.transfers.get(&fetch) else { return };
        let (object, more) = (transfer.object, bytes.saturating_sub(transfer.written));
        let Some(tree) = transfer.tree else { return };
        let parent = self.broadcasts.parent(object, tree);
        if parent.is_some_and(|parent| transfer.source == parent.source) {
            self.broadcasts.gave(self.now, object, tree, more);
        }
    }

    /// A parent has not sent a chunk.
    pub(super) fn chunk_failed(&mut self, transfer: &Transfer, tree: usize, why: &FetchError) {
        let (now, object) = (self.now, transfer.object);
        let is_late = *why == FetchError::Coming && !self.may_come(object, transfer.source, true);
        let Some(parent) = self.broadcasts.parent(object, tree) else { return };
        // What one says that is a parent no more, or was given up, is old.
        if transfer.source != parent.source || transfer.is_given_up {
            return;
        }
        match why {
            FetchError::Coming if parent.is_old && is_late => {
                self.broadcasts.failed(now, object, tree);
            }
            FetchError::Coming | FetchError::Busy => self.heard_parent(transfer, true),
            // It may hear of the object in a moment.
            FetchError::Gone if now.since(parent.heard) < PARENT_SILENCE_MICROS => {
                parent.paused_until = Some(now.after(CHUNK_PAUSE_MICROS));
            }
            // That is this node's own trouble.
            FetchError::Write(_) => {}
            _ => self.broadcasts.failed(now, object, tree),
        }
    }

    /// Something is due in a broadcast.
    pub(super) fn chunks_due(&mut self, object: ObjectId) {
        let now = self.now;
        if let Some(parents) = self.broadcasts.parents.get_mut(&object) {
            parents.timer = None;
        }
        let making = self.items.get(&object).and_then(|item| item.making.as_ref());
        let Some(making) = making else { return };
        let partial = making.partial;
        for fetch in making.active.clone() {
            let Some(transfer) = self.transfers.get_mut(&fetch) else { continue };
            let Some(tree) = transfer.tree.filter(|_| !transfer.is_given_up) else { continue };
            if now.since(transfer.heard) < self.broadcasts.silence_micros(object, tree) {
                continue;
            }
            transfer.is_given_up = true;
            let source = transfer.source;
            self.actions.push_back(Action::GiveUp { fetch, partial });
            let parent = self.broadcasts.parent(object, tree);
            if parent.is_some_and(|parent| source == parent.source) {
                self.broadcasts.failed(now, object, tree);
            }
        }
        self.hunger(object);
        self.set_chunk_timer(object);
    }

    /// Has a broadcast looked at when the next thing is due in it.
    fn set_chunk_timer(&mut self, object: ObjectId) {
        let making = self.items.get(&object).and_then(|item| item.making.as_ref());
        let active = making.into_iter().flat_map(|making| &making.active);
        let asked = active.filter_map(|fetch| self.transfers.get(fetch));
        let silent = asked.filter(|one| !one.is_given_up).filter_map(|one| {
            Some(one.heard.after(self.broadcasts.silence_micros(object, one.tree?)))
        });
        let silent = silent.min();
        let Some(parents) = self.broadcasts.parents.get_mut(&object) else { return };
        let waits = parents.of.iter().flat_map(|parent| {
            let failed = parent.failed.map(|at| at.after(PARENT_WAIT_MICROS));
            [parent.paused_until, failed]
        });
        let waits = waits.flatten().filter(|at| *at > self.now).min();
        let is_open = making.is_some_and(|making| !making.pending.is_empty() && !making.sealing);
        let next = waits.filter(|_| is_open).into_iter().chain(silent).min();
        if parents.timer != next {
            if let Some(at) = std::mem::replace(&mut parents.timer, next) {
                self.timers.remove(&(at, Timer::Chunks(object)));
            }
            self.timers.extend(next.map(|at| (at, Timer::Chunks(object))));
        }
    }
}
