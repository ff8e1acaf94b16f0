//! The executor's staging of inputs and keeping of outputs, as a state
//! machine.
//!
//! # The pump
//! Call [`Stage::handle`] for each event, then [`Stage::poll_action`] until it
//! gives `None`, then wait until [`Stage::poll_timeout`] or the next event; at
//! the timeout call [`Stage::handle_timeout`]. [`Action::Unready`] must have
//! reached whoever starts tasks before it starts the next.
//!
//! # How it works
//! A task's inputs are pinned and the room for what is missing is reserved all
//! at once or not at all, so two tasks that do not fit together never wait for
//! each other. Tasks are admitted in the order in which they came, those that
//! a slot waits for first; a later one may pass one that does not fit, within
//! bounds. What is missing is fetched once, however many wait for it.

mod admit;
mod check;
mod chunks;
mod error;
mod event;
mod fetch;
mod fetched;
mod keep;
mod lend;
mod mounted;
mod moved;
mod parts;
mod report;
mod resolve;
mod source;
mod unpack;

pub use error::StageError;
pub use event::{
    Action, ByteRange, CacheState, Changes, Count, Event, FetchError, FetchId, Input, PartialId,
    Refusal, Requester, ServeId, StageOptions, Staged, UnpackError, UnpackId, Usage, WriteError,
};

use crate::data::cache::{Cache, Evicted, Recorded, TierId};
use crate::data::limits::{
    DEMANDS_OBJECTS_MAX, DISK_FULL_MICROS, DISK_FULL_TRIES_MAX, ROOM_WAIT_MICROS,
};
use crate::data::object::{Object, ObjectId, Sources};
use crate::task::{ExecutorId, Time};
use chunks::Broadcasts;
use fetch::{Making, Transfer};
use keep::Keeping;
use lend::Lending;
use mounted::Mounts;
use moved::Moved;
use parts::Waits;
use resolve::Resolving;
use source::{Candidates, SourceKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use unpack::Trees;

/// In which order tasks are admitted and fetched for: those that a slot waits
/// for first, then as they came.
type Rank = (bool, u64);

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// What an input without a version is now is being asked.
    Resolving,
    /// It waits for room.
    Waiting,
    /// It has its room, and waits for inputs.
    Staging,
    /// All inputs are here.
    Ready,
    /// It runs.
    Started,
}

#[derive(Debug)]
struct Wanted {
    /// What the task asked for.
    wanted: ObjectId,
    /// What it gets, as far as is known.
    object: Arc<Object>,
    /// It gets it unpacked.
    is_unpacked: bool,
    /// It may find it in a file system instead of in the cache.
    may_mount: bool,
    pinned: bool,
    /// It was fetched for this task.
    charged: bool,
}

#[derive(Debug)]
struct Task {
    rank: Rank,
    state: State,
    inputs: Vec<Wanted>,
    /// Inputs of which it is being asked what they are.
    unresolved: usize,
    /// While it is staging: its objects that are not here.
    missing: usize,
    /// What was fetched for it.
    usage: Usage,
    /// How many later ones were admitted before it.
    passed: u32,
    disk_full: u32,
    redirects: u32,
}

/// An object that tasks here want.
#[derive(Debug)]
struct Item {
    object: Arc<Object>,
    /// Those tasks.
    users: BTreeSet<Requester>,
    candidates: Candidates,
    /// Its bytes, if anybody has said.
    size: Option<u64>,
    /// Bytes it has at least, if nobody has.
    least: u64,
    making: Option<Making>,
}

impl Item {
    fn new(object: Arc<Object>) -> Item {
        let size = object.size;
        Item {
            object,
            users: BTreeSet::new(),
            candidates: Candidates::default(),
            size,
            least: 0,
            making: None,
        }
    }

    fn room(&self) -> u64 {
        self.size.unwrap_or(self.least)
    }
}

/// What is to be done at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Try sources again.
    Fetch(ObjectId),
    /// Ask the store again.
    Resolve(ObjectId),
    /// A directory may take its whole capacity again.
    Tier(TierId),
    /// Something is due in a broadcast.
    Chunks(ObjectId),
    /// Requests for chunks have waited for long enough.
    Waits,
    /// Give up the first that waits for room.
    Stuck,
}

/// One executor's staging, whole.
#[derive(Debug)]
pub struct Stage {
    now: Time,
    random: u64,
    fetches_max: usize,
    source_fetches_max: usize,
    serves_max: usize,
    cache: Cache,
    trees: Trees,
    tasks: BTreeMap<Requester, Task>,
    next_ticket: u64,
    waiting: BTreeMap<Rank, Requester>,
    /// Admitted tasks that no slot waits for, the last to come last.
    ahead: BTreeMap<Rank, Requester>,
    /// How many tasks hold their room.
    admitted: usize,
    items: BTreeMap<ObjectId, Item>,
    partials: BTreeMap<PartialId, ObjectId>,
    next_partial: u64,
    transfers: BTreeMap<FetchId, Transfer>,
    next_fetch: u64,
    /// Objects that could be fetched further, if nothing were at its limit.
    hungry: BTreeSet<(Rank, ObjectId)>,
    /// Transfers in progress by source.
    loads: BTreeMap<SourceKey, usize>,
    /// Objects that wait for a source at its limit.
    parked: BTreeMap<SourceKey, BTreeSet<(Rank, ObjectId)>>,
    /// Sources that have come below their limit since.
    freed: BTreeSet<SourceKey>,
    /// Sources that gave something else.
    wrong: BTreeSet<(ObjectId, SourceKey)>,
    wrong_order: VecDeque<(ObjectId, SourceKey)>,
    resolving: BTreeMap<ObjectId, Resolving>,
    /// Outputs that wait for room.
    outputs: VecDeque<Keeping>,
    /// Outputs on their way into the cache.
    adopting: BTreeMap<PartialId, Keeping>,
    /// The objects of those.
    adopted: BTreeSet<ObjectId>,
    /// What is broadcast and received here.
    broadcasts: Broadcasts,
    /// Who waits for chunks of what is on its way here.
    waits: Waits,
    /// What is here for others.
    lending: Lending,
    /// Bytes that came from others.
    moved: Moved,
    /// What tasks find in a file system.
    mounts: Mounts,
    /// What is served, and whether it is pinned for that.
    serves: BTreeMap<ServeId, (ObjectId, bool)>,
    /// To be deleted when nobody uses it.
    doomed: BTreeSet<ObjectId>,
    /// Good for one use, and told to nobody.
    fleeting: BTreeSet<ObjectId>,
    demand: BTreeMap<ObjectId, u64>,
    /// What the dispatcher has been told is here.
    told: BTreeSet<ObjectId>,
    /// What may differ from that.
    untold: BTreeSet<ObjectId>,
    anew: bool,
    timers: BTreeSet<(Time, Timer)>,
    stuck: Option<Time>,
    totals: Usage,
    /// Somebody may be admitted now.
    dirty: bool,
    actions: VecDeque<Action>,
}

impl Stage {
    /// A stage around an empty cache.
    #[must_use]
    pub fn new(options: &StageOptions) -> Stage {
        Stage::restore(options, &[])
    }

    /// A stage around what was written down of its cache before a restart (see
    /// [`Stage::cache`], [`Cache::recorded`]) and is still there. Files that
    /// have no room any more are to be deleted by its first actions.
    #[must_use]
    pub fn restore(options: &StageOptions, recorded: &[Recorded]) -> Stage {
        let (mut cache, dropped) = Cache::restore(&options.cache, recorded);
        if options.lends_last {
            cache.lend_last();
        }
        let untold = cache.entries().map(|(object, _)| object).collect();
        let unpacked = cache.entries().map(|(object, entry)| (object, entry.unpacked));
        let trees = Trees::restore(unpacked.filter(|(_, bytes)| *bytes > 0));
        Stage {
            now: Time::default(),
            random: options.seed,
            fetches_max: options.fetches_max.max(1),
            source_fetches_max: options.source_fetches_max.max(1),
            serves_max: options.serves_max,
            cache,
            trees,
            tasks: BTreeMap::new(),
            next_ticket: 0,
            waiting: BTreeMap::new(),
            ahead: BTreeMap::new(),
            admitted: 0,
            items: BTreeMap::new(),
            partials: BTreeMap::new(),
            next_partial: 0,
            transfers: BTreeMap::new(),
            next_fetch: 0,
            hungry: BTreeSet::new(),
            loads: BTreeMap::new(),
            parked: BTreeMap::new(),
            freed: BTreeSet::new(),
            wrong: BTreeSet::new(),
            wrong_order: VecDeque::new(),
            resolving: BTreeMap::new(),
            outputs: VecDeque::new(),
            adopting: BTreeMap::new(),
            adopted: BTreeSet::new(),
            broadcasts: Broadcasts::default(),
            waits: Waits::default(),
            lending: Lending::default(),
            moved: Moved::default(),
            mounts: Mounts::new(options.mounts),
            serves: BTreeMap::new(),
            doomed: BTreeSet::new(),
            fleeting: BTreeSet::new(),
            demand: BTreeMap::new(),
            told: BTreeSet::new(),
            untold,
            anew: true,
            timers: BTreeSet::new(),
            stuck: None,
            totals: Usage::default(),
            dirty: false,
            actions: dropped.into_iter().map(Action::Delete).collect(),
        }
    }

    /// Takes one event in.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.now = self.now.max(now);
        match event {
            Event::Connected => {
                self.broadcasts.connected();
                self.tell_anew();
            }
            Event::Want { requester, inputs } => self.want(requester, inputs),
            Event::Needed(task) => self.needed(task),
            Event::Hints { object, sources } => self.hint(object, &sources),
            Event::Gone(peers) => self.gone(&peers),
            Event::Started(task) => self.started(task),
            Event::Ended(task) => self.forget(task),
            Event::Keep { requester, object, only_here } => self.keep(requester, object, only_here),
            Event::Adopted { partial, result } => self.adopted(partial, result),
            Event::Hold(objects) => {
                for object in objects {
                    self.cache.keep(object, true);
                }
            }
            Event::Release(objects) => {
                for object in objects {
                    self.dirty |= self.cache.keep(object, false);
                }
            }
            Event::Drop(objects) => {
                for object in objects {
                    self.doom(object);
                }
            }
            Event::Demand(counts) => {
                for (object, tasks) in counts {
                    self.demand(object, tasks);
                }
            }
            Event::Sized { fetch, size } => self.sized(fetch, size),
            Event::Arriving { fetch, until } => self.arriving(fetch, until),
            Event::Fetched { fetch, bytes } => self.fetched(fetch, bytes),
            Event::FetchFailed { fetch, bytes, why } => self.fetch_failed(fetch, bytes, why),
            Event::Sealed { partial, result } => self.sealed(partial, result),
            Event::Unpacked { unpack, result } => self.unpacked(unpack, result),
            Event::Resolved { object, now } => self.resolved(object, now),
            Event::Written { fetch, bytes } => self.written(fetch, bytes),
            Event::Parents { object, parents } => self.parents(object, parents),
            Event::Striped { object, lenders } => self.striped(object, lenders),
            Event::Lend { object, sources, stripes, of } => {
                self.lend(&object, &sources, (stripes, of));
            }
            Event::Silent { object, lender } => self.lender_is_silent(object, lender),
            Event::TakeBack(objects) => {
                for object in objects {
                    self.take_back(object);
                }
            }
            Event::Ask { serve, object, range } => self.ask(serve, object, range),
            Event::Served(serve) => self.served(serve),
            Event::Lost(object) => self.lost(object),
            Event::Full(tier) => self.full(tier),
        }
        self.advance();
    }

    /// Whether all inputs of a task that was started are still here; one that
    /// has none is not known.
    #[must_use]
    pub fn has_all(&self, task: Requester) -> bool {
        let is_there = |input: &Wanted| input.pinned || self.is_mounted(input);
        self.tasks.get(&task).is_none_or(|task| task.inputs.iter().all(is_there))
    }

    /// What to do next; `None` until the next event or timeout.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Stage::handle_timeout`] is due, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, &'static str)> {
        let (at, timer) = self.timers.first()?;
        let why = match timer {
            Timer::Fetch(_) => "sources are tried again",
            Timer::Resolve(_) => "the store is asked again",
            Timer::Chunks(_) => "a parent in a broadcast is due",
            Timer::Waits => "requests for chunks are answered",
            Timer::Tier(_) => "a full directory is tried again",
            Timer::Stuck => "nothing frees room",
        };
        Some((*at, why))
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(&(at, timer)) = self.timers.first() {
            if at > self.now {
                break;
            }
            self.timers.remove(&(at, timer));
            match timer {
                Timer::Fetch(object) => self.try_again(object),
                Timer::Resolve(object) => self.resolve(object),
                Timer::Tier(tier) => {
                    let evicted = self.cache.limit(tier, None);
                    self.evicted(evicted);
                    self.dirty = true;
                }
                Timer::Chunks(object) => self.chunks_due(object),
                Timer::Waits => self.waits_due(),
                Timer::Stuck => self.give_up(),
            }
            self.advance();
        }
    }

    /// The cache as it stands.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// What was brought here in all, and used from here; the totals of all
    /// tasks, those that failed or ended early included.
    #[must_use]
    pub fn totals(&self) -> Usage {
        self.totals
    }

    /// Tasks that wait for room or inputs, and transfers in progress.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        let ready = |task: &&Task| matches!(task.state, State::Ready | State::Started);
        (self.tasks.len() - self.tasks.values().filter(ready).count(), self.transfers.len())
    }

    /// The tasks that want something here.
    pub(crate) fn requesters(&self) -> impl Iterator<Item = Requester> + '_ {
        self.tasks.keys().copied()
    }

    /// Does what has become possible.
    fn advance(&mut self) {
        loop {
            if std::mem::take(&mut self.dirty) {
                self.admit();
            }
            self.feed();
            if !self.dirty {
                break;
            }
        }
        self.watch_for_standstill();
    }

    /// More is known of where an object is.
    fn hint(&mut self, object: ObjectId, sources: &Sources) {
        let Some(item) = self.items.get_mut(&object) else { return };
        let own = item.object.archive().is_some_and(|archive| self.cache.holds(archive));
        if !item.candidates.add(sources, own) {
            return;
        }
        // There is somebody to ask before the pause is over.
        let paused = item.making.as_mut().and_then(|making| making.retry_at.take());
        if let Some(at) = paused {
            self.timers.remove(&(at, Timer::Fetch(object)));
        }
        self.hunger(object);
    }

    /// Nothing comes from these any more. What only they could have given, and
    /// waits to ask them again, waits no longer.
    fn gone(&mut self, peers: &[ExecutorId]) {
        let mut changed = Vec::new();
        for (object, item) in &mut self.items {
            let known = peers.iter().filter(|peer| item.candidates.gone(**peer)).count();
            if known > 0 {
                changed.push(*object);
            }
        }
        for object in changed {
            let making = self.items.get_mut(&object).and_then(|item| item.making.as_mut());
            if let Some(at) = making.and_then(|making| making.retry_at.take()) {
                self.timers.remove(&(at, Timer::Fetch(object)));
            }
            self.hunger(object);
        }
    }

    fn demand(&mut self, object: ObjectId, tasks: u64) {
        if tasks == 0 {
            self.demand.remove(&object);
        } else if self.demand.len() < DEMANDS_OBJECTS_MAX || self.demand.contains_key(&object) {
            self.demand.insert(object, tasks);
        }
        self.weigh(object);
    }

    /// Tells the cache who waits for an object: those in the dispatcher's
    /// queue, and those here.
    fn weigh(&mut self, object: ObjectId) {
        let here = self.items.get(&object).map_or(0, |item| item.users.len() as u64);
        let there = self.demand.get(&object).copied().unwrap_or(0);
        self.cache.demand(object, here.saturating_add(there));
    }

    /// The files of these are to be deleted.
    fn evicted(&mut self, evicted: Vec<Evicted>) {
        for gone in evicted {
            self.untold.insert(gone.object);
            self.doomed.remove(&gone.object);
            // A task that waits for it fetches it anew, for one use again.
            if !self.items.contains_key(&gone.object) {
                self.fleeting.remove(&gone.object);
            }
            self.trees.gone(gone.object, self.items.contains_key(&gone.object));
            self.actions.push_back(Action::Delete(gone));
        }
    }

    /// A directory takes no more than it holds, for a while; for a shorter one if
    /// nothing that goes on here can free its disk.
    fn full(&mut self, tier: TierId) {
        let Some((_, occupied)) = self.cache.tier(tier) else { return };
        let evicted = self.cache.limit(tier, Some(occupied));
        self.evicted(evicted);
        self.timers.retain(|(_, timer)| *timer != Timer::Tier(tier));
        let micros = match self.is_standing_still() {
            true => ROOM_WAIT_MICROS / u64::from(DISK_FULL_TRIES_MAX),
            false => DISK_FULL_MICROS,
        };
        self.timers.insert((self.now.after(micros), Timer::Tier(tier)));
    }

    /// `micros`, by chance up to half less or half more.
    fn jitter(&mut self, micros: u64) -> Time {
        let spread = crate::data::mix(&mut self.random) % (micros + 1);
        self.now.after(micros / 2 + spread)
    }
}
