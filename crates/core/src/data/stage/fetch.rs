//! Files in the making: one per object, from one source or several.

use super::event::{Action, ByteRange, FetchError, FetchId, PartialId, Usage};
use super::source::{Choice, SourceKey, Standing};
use super::{Rank, Stage, StageError, State, Timer};
use crate::data::cache::TierId;
use crate::data::limits::{
    BUSY_PAUSE_MICROS, BUSY_PAUSE_MICROS_MAX, BUSY_PAUSES_MAX, COMING_ORDER_MICROS,
    COMING_PAUSE_MICROS, COMING_PAUSE_MICROS_MAX, COMING_SECOND_BYTES, COMING_WAIT_MICROS,
    FETCH_RESTARTS_MAX, RANGE_BYTES, RANGES_MAX, RANGES_OBJECT_BYTES_MIN, UNREACHABLE_PAUSE_MICROS,
    UNREACHABLE_PAUSE_MICROS_MAX, UNREACHABLE_PAUSES_MAX, WRONG_SOURCES_MAX,
};
use crate::data::object::{ObjectId, Source};
use crate::data::stripes::share_of;
use crate::runset::RunSet;
use crate::task::Time;
use std::collections::BTreeSet;
use std::sync::Arc;

/// An object on its way here.
#[derive(Debug)]
pub(super) struct Making {
    pub(super) partial: PartialId,
    pub(super) tier: TierId,
    /// That of the first task that waits for it.
    pub(super) rank: Rank,
    pub(super) sealing: bool,
    /// Bytes that nobody is sending.
    pub(super) pending: RunSet,
    /// From where on nobody is sending, if the size is not known.
    pub(super) tail: Option<u64>,
    pub(super) active: BTreeSet<FetchId>,
    /// Something was asked to be written.
    begun: bool,
    /// Who sent what is there.
    pub(super) from: BTreeSet<Source>,
    /// One source at a time: something that came from several was wrong.
    pub(super) single: bool,
    pub(super) retry_at: Option<Time>,
    /// Which sources are asked then.
    again: Standing,
    busy_pauses: u32,
    unreachable_pauses: u32,
    restarts: u32,
    /// Since when it waits for another to get it.
    pub(super) coming_since: Option<Time>,
    /// Where its bytes came from.
    pub(super) usage: Usage,
    /// At which limits it waits.
    pub(super) parked: Vec<SourceKey>,
}

/// A transfer in progress.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) object: ObjectId,
    pub(super) source: Source,
    pub(super) key: SourceKey,
    pub(super) offset: u64,
    pub(super) length: Option<u64>,
    /// The tree that it is a chunk of, if a parent in a broadcast sends it.
    pub(super) tree: Option<usize>,
    /// How many bytes it has brought from its start without a gap, as far as that
    /// was told.
    pub(super) written: u64,
    /// When it began, or its source last said something.
    pub(super) heard: Time,
    /// It was asked to end.
    pub(super) is_given_up: bool,
}

impl Transfer {
    /// Whether half of its bytes have come, or nobody waits for the rest.
    pub(super) fn is_half_here(&self) -> bool {
        self.is_given_up || self.length.is_some_and(|length| self.written >= length / 2)
    }
}

/// All of an object that is to come.
fn all(size: Option<u64>) -> (RunSet, Option<u64>) {
    let mut pending = RunSet::default();
    match size {
        // An empty file has no range to ask for.
        None | Some(0) => (pending, Some(0)),
        Some(size) => {
            pending.insert(0, size);
            (pending, None)
        }
    }
}

impl Stage {
    /// Room for an object is reserved and nobody fetches it yet: begins to.
    pub(super) fn begin(&mut self, object: ObjectId, rank: Rank) {
        if self.cache.entry(object).is_none_or(|entry| entry.is_held) {
            return;
        }
        let adopted = self.adopted.contains(&object);
        let Some(item) = self.items.get(&object).filter(|_| !adopted) else { return };
        if item.making.is_some() {
            return self.hasten(object, rank);
        }
        let all = all(item.size);
        self.broadcasts.begin(self.now, object);
        self.make(object, rank, all);
        self.hunger(object);
    }

    /// Begins a file for an object that has its room, with what is to come.
    pub(super) fn make(
        &mut self,
        object: ObjectId,
        rank: Rank,
        (pending, tail): (RunSet, Option<u64>),
    ) {
        let Some(tier) = self.cache.entry(object).map(|entry| entry.tier) else { return };
        let Some(item) = self.items.get_mut(&object) else { return };
        item.candidates.reopen();
        item.making = Some(Making {
            partial: PartialId(self.next_partial),
            tier,
            rank,
            sealing: false,
            pending,
            tail,
            active: BTreeSet::new(),
            begun: false,
            from: BTreeSet::new(),
            single: false,
            retry_at: None,
            again: Standing::Busy,
            busy_pauses: 0,
            unreachable_pauses: 0,
            restarts: 0,
            coming_since: None,
            usage: Default::default(),
            parked: Vec::new(),
        });
        self.partials.insert(PartialId(self.next_partial), object);
        self.next_partial += 1;
    }

    /// An object may be fetched further.
    pub(super) fn hunger(&mut self, object: ObjectId) {
        self.unpark(object);
        let Some(making) = self.items.get(&object).and_then(|item| item.making.as_ref()) else {
            return;
        };
        let open = !making.pending.is_empty() || making.tail.is_some();
        if open && !making.sealing && making.retry_at.is_none() {
            self.hungry.insert((making.rank, object));
        }
    }

    /// A task of this rank waits for an object as well.
    pub(super) fn hasten(&mut self, object: ObjectId, rank: Rank) {
        let making = self.items.get(&object).and_then(|item| item.making.as_ref());
        let Some(old) = making.map(|making| making.rank).filter(|old| rank < *old) else { return };
        let was_hungry = self.hungry.remove(&(old, object));
        let parked = self.unpark(object);
        if let Some(making) = self.items.get_mut(&object).and_then(|item| item.making.as_mut()) {
            making.rank = rank;
        }
        if was_hungry || parked {
            self.hunger(object);
        }
    }

    /// Takes an object from where it waits. Returns whether it did.
    fn unpark(&mut self, object: ObjectId) -> bool {
        let making = self.items.get_mut(&object).and_then(|item| item.making.as_mut());
        let Some(making) = making else { return false };
        let places = std::mem::take(&mut making.parked);
        let rank = making.rank;
        for key in &places {
            if let Some(parked) = self.parked.get_mut(key) {
                parked.remove(&(rank, object));
                if parked.is_empty() {
                    self.parked.remove(key);
                }
            }
        }
        !places.is_empty()
    }

    /// Begins as many transfers as the limits allow.
    pub(super) fn feed(&mut self) {
        loop {
            while self.transfers.len() < self.fetches_max
                && let Some((_, object)) = self.hungry.pop_first()
            {
                self.feed_one(object);
            }
            if self.transfers.len() >= self.fetches_max {
                return;
            }
            // Those that wait for a source that has come below its limit.
            // Each one woken takes a transfer, or finds its sources full, so
            // this ends.
            let max = self.source_fetches_max;
            let woken = self.freed.iter().find_map(|key| {
                let free = self.loads.get(key).copied().unwrap_or(0) < max;
                let parked = self.parked.get(key).filter(|_| free)?;
                parked.first().map(|(_, object)| *object)
            });
            let Some(object) = woken else {
                self.freed.clear();
                return;
            };
            self.hunger(object);
        }
    }

    fn feed_one(&mut self, object: ObjectId) {
        if self.feed_chunks(object) {
            return;
        }
        loop {
            let Some(item) = self.items.get_mut(&object) else { return };
            let Some(making) = item.making.as_mut().filter(|making| !making.sealing) else {
                return;
            };
            let open = !making.pending.is_empty() || making.tail.is_some();
            let in_ranges = !making.single
                && making.tail.is_none()
                && item.object.archive().is_none()
                && item.size.is_some_and(|size| size >= RANGES_OBJECT_BYTES_MIN)
                && item.candidates.open_peers() >= 2;
            let at_most = if in_ranges { RANGES_MAX } else { 1 };
            if !open || making.active.len() >= at_most {
                return;
            }
            if self.transfers.len() >= self.fetches_max {
                self.hungry.insert((making.rank, object));
                return;
            }
            let (max, loads, what) = (self.source_fetches_max, &self.loads, &item.object);
            let choice = item.candidates.choose(
                |source| SourceKey::of(source, what),
                |key| loads.get(key).is_some_and(|load| *load >= max),
            );
            match choice {
                Choice::Ask(source) => {
                    if self.wrong.contains(&(object, SourceKey::of(source, what))) {
                        item.candidates.bar(source);
                        continue;
                    }
                    self.fetch(object, source, in_ranges);
                }
                Choice::Later(keys) => {
                    for key in &keys {
                        let parked = self.parked.entry(key.clone()).or_default();
                        parked.insert((making.rank, object));
                    }
                    making.parked = keys;
                    return;
                }
                Choice::Sending => return,
                Choice::Coming => return self.wait_for_reader(object),
                Choice::None => return self.exhausted(object),
            }
        }
    }

    /// Asks a source for the next part of an object.
    fn fetch(&mut self, object: ObjectId, source: Source, in_ranges: bool) {
        let Some(item) = self.items.get_mut(&object) else { return };
        let Some(making) = item.making.as_mut() else { return };
        let part = match making.tail {
            Some(offset) => (offset, None),
            None => {
                let Some((offset, run)) = making.pending.iter().next() else { return };
                let ranged = in_ranges && source != Source::Store;
                let length = if ranged { run.min(RANGE_BYTES) } else { run };
                (offset, Some(length))
            }
        };
        self.fetch_part(object, source, part, None);
    }

    /// Asks a source for a part of an object that nobody is sending; for a chunk
    /// of a tree, if it is a parent there.
    pub(super) fn fetch_part(
        &mut self,
        object: ObjectId,
        source: Source,
        (offset, length): ByteRange,
        tree: Option<usize>,
    ) {
        let now = self.now;
        let Some(item) = self.items.get_mut(&object) else { return };
        let Some(making) = item.making.as_mut() else { return };
        match length {
            Some(length) => {
                making.pending.remove(offset, length);
            }
            None => making.tail = None,
        }
        if let Some(candidate) = item.candidates.find(source) {
            candidate.in_use = true;
        }
        let fetch = FetchId(self.next_fetch);
        self.next_fetch += 1;
        making.active.insert(fetch);
        making.begun = true;
        let key = SourceKey::of(source, &item.object);
        *self.loads.entry(key.clone()).or_default() += 1;
        let (partial, tier) = (making.partial, making.tier);
        let transfer = Transfer {
            object,
            source,
            key,
            offset,
            length,
            tree,
            written: 0,
            heard: now,
            is_given_up: false,
        };
        self.transfers.insert(fetch, transfer);
        let is_of_lender = self.broadcasts.is_striped(object) && tree.is_some();
        let object = match is_of_lender && !self.lending.has(object) {
            true => Arc::new(share_of(&item.object)),
            false => Arc::clone(&item.object),
        };
        self.actions.push_back(Action::Fetch {
            fetch,
            partial,
            tier,
            object,
            source,
            offset,
            length,
        });
    }

    /// A transfer is over, or nobody wants it.
    pub(super) fn end_transfer(&mut self, fetch: FetchId) -> Option<Transfer> {
        let transfer = self.transfers.remove(&fetch)?;
        if let Some(load) = self.loads.get_mut(&transfer.key) {
            *load -= 1;
            if *load == 0 {
                self.loads.remove(&transfer.key);
            }
        }
        self.freed.insert(transfer.key.clone());
        if let Some(item) = self.items.get_mut(&transfer.object) {
            if let Some(candidate) = item.candidates.find(transfer.source) {
                candidate.in_use = false;
            }
            if let Some(making) = item.making.as_mut() {
                making.active.remove(&fetch);
            }
        }
        Some(transfer)
    }

    /// Nobody waits for an object that is on its way: gives its room back.
    pub(super) fn abandon(&mut self, object: ObjectId) {
        self.stop(object, true);
        let Some(making) = self.items.get_mut(&object).and_then(|item| item.making.take()) else {
            return;
        };
        add(&mut self.totals.peer.bytes, making.usage.peer.bytes);
        add(&mut self.totals.store.bytes, making.usage.store.bytes);
        self.cache.abort(object);
        self.doomed.remove(&object);
        self.dirty = true;
    }

    /// Ends all that goes on for a file in the making, and the file.
    pub(super) fn stop(&mut self, object: ObjectId, is_there: bool) {
        self.unpark(object);
        let Some(making) = self.items.get_mut(&object).and_then(|item| item.making.as_mut()) else {
            return;
        };
        let (partial, tier, rank) = (making.partial, making.tier, making.rank);
        let begun = std::mem::take(&mut making.begun);
        let active = std::mem::take(&mut making.active);
        if let Some(at) = making.retry_at.take() {
            self.timers.remove(&(at, Timer::Fetch(object)));
        }
        self.hungry.remove(&(rank, object));
        self.partials.remove(&partial);
        for fetch in active {
            self.end_transfer(fetch);
        }
        if begun && is_there {
            self.actions.push_back(Action::Discard { partial, tier });
        }
    }

    /// Something that has come is wrong: all of it is fetched again.
    pub(super) fn restart(&mut self, object: ObjectId, is_there: bool) {
        self.stop(object, is_there);
        let Some(item) = self.items.get_mut(&object) else { return };
        let Some(making) = item.making.as_mut() else { return };
        making.restarts += 1;
        if making.restarts > FETCH_RESTARTS_MAX {
            return self.fail_making(object);
        }
        (making.pending, making.tail) = match self.lending.has(object) {
            true => (self.lending.runs(object, item.size.unwrap_or(0)), None),
            false => all(item.size),
        };
        making.sealing = false;
        making.from.clear();
        making.partial = PartialId(self.next_partial);
        self.partials.insert(making.partial, object);
        self.next_partial += 1;
        self.hunger(object);
    }

    /// A source that gave something else is not asked for this object again.
    pub(super) fn distrust(&mut self, object: ObjectId, source: Source, why: FetchError) {
        let Some(item) = self.items.get_mut(&object) else { return };
        item.candidates.answered(source, Standing::Wrong, why);
        let entry = (object, SourceKey::of(source, &item.object));
        if self.wrong.insert(entry.clone()) {
            self.wrong_order.push_back(entry);
        }
        if self.wrong_order.len() > WRONG_SOURCES_MAX
            && let Some(oldest) = self.wrong_order.pop_front()
        {
            self.wrong.remove(&oldest);
        }
    }

    /// Something has come; if it `lasts`, what went wrong before is forgiven.
    pub(super) fn headway(&mut self, object: ObjectId, source: Source, bytes: u64, lasts: bool) {
        if let Source::Peer(executor) = source {
            self.moved.add(executor, bytes);
        }
        let Some(item) = self.items.get_mut(&object) else { return };
        let Some(making) = item.making.as_mut() else { return };
        making.from.insert(source);
        match source {
            Source::Own => {}
            Source::Peer(_) | Source::Dispatcher => {
                add(&mut making.usage.peer.bytes, bytes);
            }
            Source::Store => add(&mut making.usage.store.bytes, bytes),
        }
        if bytes > 0 {
            making.coming_since = None;
        }
        if bytes > 0 && lasts {
            (making.busy_pauses, making.unreachable_pauses) = (0, 0);
        }
    }

    /// Every source was asked: tries again after a pause those that may give
    /// it then, or fails the tasks that wait.
    fn exhausted(&mut self, object: ObjectId) {
        let Some(item) = self.items.get_mut(&object) else { return };
        let Some(making) = item.making.as_mut() else { return };
        let busy = item.candidates.any(Standing::Busy) && making.busy_pauses < BUSY_PAUSES_MAX;
        let unreachable = item.candidates.any(Standing::Unreachable)
            && making.unreachable_pauses < UNREACHABLE_PAUSES_MAX;
        let pause = if busy {
            making.again = Standing::Busy;
            making.busy_pauses += 1;
            doubled(BUSY_PAUSE_MICROS, making.busy_pauses - 1, BUSY_PAUSE_MICROS_MAX)
        } else if unreachable {
            making.again = Standing::Unreachable;
            making.unreachable_pauses += 1;
            let pauses = making.unreachable_pauses - 1;
            doubled(UNREACHABLE_PAUSE_MICROS, pauses, UNREACHABLE_PAUSE_MICROS_MAX)
        } else {
            return self.fail_making(object);
        };
        let at = self.jitter(pause);
        if let Some(making) = self.items.get_mut(&object).and_then(|item| item.making.as_mut()) {
            making.retry_at = Some(at);
            self.timers.insert((at, Timer::Fetch(object)));
        }
    }

    /// Whether a source was named as one that fetches an object itself.
    pub(super) fn is_reader(&mut self, object: ObjectId, source: Source) -> bool {
        let item = self.items.get_mut(&object);
        item.and_then(|item| item.candidates.find(source)).is_some_and(|one| one.is_reader)
    }

    /// Whether one who has not got an object is to be asked for it again; one
    /// that does not even know of it may hear of it in a moment.
    pub(super) fn may_come(&mut self, object: ObjectId, source: Source, is_known: bool) -> bool {
        let now = self.now;
        let is_reader = self.is_reader(object, source);
        let Some(item) = self.items.get_mut(&object) else { return false };
        let Some(making) = item.making.as_mut() else { return false };
        let waited = now.since(*making.coming_since.get_or_insert(now));
        match is_known {
            true => waited < coming_micros(item.size).saturating_add(COMING_WAIT_MICROS),
            false => is_reader && waited < COMING_ORDER_MICROS,
        }
    }

    /// An object is asked for again where it is on its way to.
    fn wait_for_reader(&mut self, object: ObjectId) {
        let making = self.items.get(&object).and_then(|item| item.making.as_ref());
        let since = making.and_then(|making| making.coming_since).unwrap_or(self.now);
        let pause = self.now.since(since) / 8;
        let at = self.jitter(pause.clamp(COMING_PAUSE_MICROS, COMING_PAUSE_MICROS_MAX));
        if let Some(making) = self.items.get_mut(&object).and_then(|item| item.making.as_mut()) {
            making.again = Standing::Coming;
            making.retry_at = Some(at);
            self.timers.insert((at, Timer::Fetch(object)));
        }
    }

    /// The pause is over.
    pub(super) fn try_again(&mut self, object: ObjectId) {
        let Some(item) = self.items.get_mut(&object) else { return };
        let Some(making) = item.making.as_mut() else { return };
        making.retry_at = None;
        item.candidates.reopen_if(making.again);
        self.hunger(object);
    }

    /// Nobody gives the object: the tasks that wait for it have failed.
    pub(super) fn fail_making(&mut self, object: ObjectId) {
        if self.lending.has(object) {
            return self.share_is_lost(object);
        }
        let Some(item) = self.items.get(&object) else { return };
        let (url, tried) = (Arc::clone(&item.object.url), item.candidates.tried());
        let held = item.object.held_as();
        for task in self.users(object, &[State::Staging]) {
            let object = held;
            let (url, tried) = (Arc::clone(&url), tried.clone());
            self.fail(task, StageError::Unobtainable { object, url, tried });
        }
    }
}

/// Counts what the shell says, whatever that is.
pub(super) fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}

/// How long an object of this size is on its way to somebody, if its links are slow.
pub(super) fn coming_micros(size: Option<u64>) -> u64 {
    size.unwrap_or(0).saturating_mul(1_000_000) / COMING_SECOND_BYTES
}

/// A pause after `before` others in a row.
pub(super) fn doubled(first: u64, before: u32, max: u64) -> u64 {
    first.checked_shl(before.min(40)).unwrap_or(max).min(max)
}
