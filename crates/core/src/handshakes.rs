//! Peers that have not proved who they are, and which of them may go on.
//!
//! Anybody who reaches a port can open connections and leave them there. So a
//! handshake has one of three standings, each with a bound of its own:
//!
//! - **silent**: the peer has sent nothing yet. A peer that means it speaks at
//!   once. Where silent ones are too many, in all or from one source, the
//!   oldest one of the source with most of them is evicted.
//! - **waiting**: the peer has spoken, and waits for a place. The next place is
//!   for the source that has fewest. Where too many wait, the last one of the
//!   source with most of them is turned away.
//! - **in a place**: the handshake is under way. A peer that leaves its part of
//!   it out for too long has stalled. While others wait, one of the source with
//!   most stalled handshakes is evicted for each of them.
//!
//! An eviction is a request: what the peer has sent may be there already and
//! not be read yet. The handshake looks once more, and either goes on or leaves.
//!
//! Nothing here knows the time: how long a peer may be silent or stall is
//! measured where the handshakes are carried out.

use crate::limits::{HANDSHAKE_CONNECTIONS_MAX, SILENT_CONNECTIONS_MAX, WAITING_CONNECTIONS_MAX};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The part of the silent peers that may come from one source, as a divisor.
/// Executors that share an address speak as soon as they are connected, so that
/// thousands of them are silent for a moment only.
const SOURCE_SHARE: usize = 2;
/// The part of a process's descriptors that silent peers may have, as a divisor;
/// handshakes under way may have as much, and peers that wait twice that.
const DESCRIPTORS_SHARE: u64 = 8;

/// A handshake, numbered in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandshakeId(pub u64);

/// Where a connection comes from: one address, or one network of those that are
/// given out whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u128);

/// How many handshakes there may be of each standing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeBounds {
    /// Peers that have sent nothing yet. Those that have been asked to leave
    /// come on top, as many at most.
    pub silent_max: usize,
    /// The same of one source.
    pub source_silent_max: usize,
    /// Peers that wait for a place.
    pub waiting_max: usize,
    /// Handshakes under way.
    pub places_max: usize,
}

impl HandshakeBounds {
    /// The bounds of a process that may have so many descriptors: most of them
    /// are for peers that have proved who they are.
    #[must_use]
    pub fn for_descriptors(descriptors: u64) -> HandshakeBounds {
        let share = usize::try_from(descriptors / DESCRIPTORS_SHARE).unwrap_or(usize::MAX);
        let silent_max = share.clamp(SOURCE_SHARE, SILENT_CONNECTIONS_MAX);
        HandshakeBounds {
            silent_max,
            source_silent_max: silent_max / SOURCE_SHARE,
            waiting_max: share.saturating_mul(2).clamp(1, WAITING_CONNECTIONS_MAX),
            places_max: share.clamp(1, HANDSHAKE_CONNECTIONS_MAX),
        }
    }
}

/// A connection that may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Its handshake.
    pub id: HandshakeId,
    /// A silent one that is to leave for it.
    pub evict: Option<HandshakeId>,
}

/// What becomes of a peer that has spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// There is a place: the handshake goes on.
    Begin,
    /// It waits for a place.
    Wait {
        /// One that has stalled and is to leave.
        evict: Option<HandshakeId>,
        /// One that waited, and is turned away.
        turned_away: Option<HandshakeId>,
    },
    /// Too many of its source wait: it is turned away.
    TurnedAway,
}

/// How it stands with a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its peer has sent nothing yet.
    Silent,
    /// It waits for a place.
    Waiting,
    /// It is under way.
    InPlace,
    /// It is to leave, unless its peer has gone on meanwhile.
    Evicted,
    /// It is over, or was turned away.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Silent,
    Waiting,
    InPlace,
}

#[derive(Debug, Clone, Copy)]
struct Handshake {
    source: SourceId,
    state: State,
    evicted: bool,
}

/// The handshakes of one source; those that are to leave count nowhere but
/// among the places.
#[derive(Debug, Default)]
struct Source {
    silent: BTreeSet<HandshakeId>,
    waiting: BTreeSet<HandshakeId>,
    stalled: BTreeSet<HandshakeId>,
    places: usize,
}

/// Sources by how many of something they have, and since when.
type Crowds = BTreeSet<(usize, Reverse<HandshakeId>, SourceId)>;

/// The handshakes of one process.
#[derive(Debug)]
pub struct Handshakes {
    bounds: HandshakeBounds,
    next: u64,
    all: BTreeMap<HandshakeId, Handshake>,
    sources: BTreeMap<SourceId, Source>,
    silent: Crowds,
    waiting: Crowds,
    stalled: Crowds,
    /// Sources that wait, by the places that they have.
    turns: BTreeSet<(usize, HandshakeId, SourceId)>,
    silent_count: usize,
    waiting_count: usize,
    places: usize,
    /// Silent ones, and ones in a place, that are to leave.
    silent_evicted: usize,
    places_evicted: usize,
}

fn crowd(
    of: &BTreeSet<HandshakeId>,
    source: SourceId,
) -> Option<(usize, Reverse<HandshakeId>, SourceId)> {
    of.first().map(|oldest| (of.len(), Reverse(*oldest), source))
}

impl Handshakes {
    /// None yet.
    #[must_use]
    pub fn new(bounds: HandshakeBounds) -> Handshakes {
        Handshakes {
            bounds,
            next: 0,
            all: BTreeMap::new(),
            sources: BTreeMap::new(),
            silent: Crowds::new(),
            waiting: Crowds::new(),
            stalled: Crowds::new(),
            turns: BTreeSet::new(),
            silent_count: 0,
            waiting_count: 0,
            places: 0,
            silent_evicted: 0,
            places_evicted: 0,
        }
    }

    /// Whether a connection that comes now would cost another one: a silent one would be
    /// evicted for it, or one that waits would be turned away. A crowd that comes at once is
    /// better left where it is for a moment, as it speaks by then.
    #[must_use]
    pub fn is_crowded(&self, source: SourceId) -> bool {
        self.waiting_count >= self.bounds.waiting_max || self.crowded(source).is_some()
    }

    /// The source that has too many silent ones if another one comes from `source`.
    fn crowded(&self, source: SourceId) -> Option<SourceId> {
        let HandshakeBounds { silent_max, source_silent_max, .. } = self.bounds;
        let own = self.sources.get(&source).map_or(0, |source| source.silent.len());
        if own >= source_silent_max {
            Some(source)
        } else if self.silent_count - self.silent_evicted >= silent_max {
            self.silent.last().map(|(_, _, source)| *source)
        } else {
            None
        }
    }

    /// Takes in a connection, whose peer has sent nothing yet. `None` if there
    /// are too many, those included that are about to leave.
    pub fn arrive(&mut self, source: SourceId) -> Option<Arrived> {
        if self.silent_count >= self.bounds.silent_max.saturating_mul(2) {
            return None;
        }
        let crowded = self.crowded(source);
        let evict = crowded.and_then(|source| self.sources.get(&source)?.silent.first().copied());
        if let Some(evicted) = evict {
            self.evict(evicted);
        }
        let id = HandshakeId(self.next);
        self.next += 1;
        self.all.insert(id, Handshake { source, state: State::Silent, evicted: false });
        self.silent_count += 1;
        self.change(source, |source| {
            source.silent.insert(id);
        });
        Some(Arrived { id, evict })
    }

    /// Notes that the peer of a silent handshake has spoken.
    pub fn spoke(&mut self, id: HandshakeId) -> Spoken {
        let Some(Handshake { source, .. }) = self.remove_from_standing(id) else {
            return Spoken::TurnedAway;
        };
        if self.waiting_count == 0 && self.places < self.bounds.places_max {
            self.begin(id, source);
            return Spoken::Begin;
        }
        let mut turned_away = None;
        if self.waiting_count >= self.bounds.waiting_max {
            let own = self.sources.get(&source).map_or(0, |source| source.waiting.len());
            let most = self.waiting.last().filter(|(count, _, _)| *count > own + 1);
            let last = most.and_then(|(_, _, most)| self.sources.get(most)?.waiting.last());
            let Some(&last) = last else {
                self.all.remove(&id);
                return Spoken::TurnedAway;
            };
            self.remove_from_standing(last);
            self.all.remove(&last);
            turned_away = Some(last);
        }
        self.all.insert(id, Handshake { source, state: State::Waiting, evicted: false });
        self.waiting_count += 1;
        self.change(source, |source| {
            source.waiting.insert(id);
        });
        Spoken::Wait { evict: self.evict_stalled(), turned_away }
    }

    /// Notes that a handshake in a place has waited for its peer for too long.
    /// Returns whether it is to leave, as somebody else waits for the place.
    pub fn stalled(&mut self, id: HandshakeId) -> bool {
        let Some(Handshake { source, state: State::InPlace, evicted }) = self.all.get(&id).copied()
        else {
            return true;
        };
        if evicted {
            return true;
        }
        self.change(source, |source| {
            source.stalled.insert(id);
        });
        let is_wanted = self.waiting_count > self.places_evicted;
        if is_wanted {
            self.evict(id);
        }
        is_wanted
    }

    /// Notes that the peer of a handshake in a place has done its part. Returns
    /// another one that is to leave, if this one was to.
    pub fn advanced(&mut self, id: HandshakeId) -> Option<HandshakeId> {
        let handshake = self.all.get_mut(&id)?;
        let source = handshake.source;
        if std::mem::take(&mut handshake.evicted) {
            self.places_evicted -= 1;
            return self.evict_stalled();
        }
        self.change(source, |source| {
            source.stalled.remove(&id);
        });
        None
    }

    /// Notes that a handshake is over, however it ended. Returns one that waited
    /// and has its place now.
    pub fn leave(&mut self, id: HandshakeId) -> Option<HandshakeId> {
        self.remove_from_standing(id)?;
        self.all.remove(&id);
        if self.places >= self.bounds.places_max {
            return None;
        }
        let (_, next, source) = *self.turns.first()?;
        self.remove_from_standing(next);
        self.begin(next, source);
        Some(next)
    }

    /// How it stands with a handshake.
    #[must_use]
    pub fn standing(&self, id: HandshakeId) -> Standing {
        match self.all.get(&id) {
            None => Standing::Gone,
            Some(Handshake { evicted: true, .. }) => Standing::Evicted,
            Some(Handshake { state: State::Silent, .. }) => Standing::Silent,
            Some(Handshake { state: State::Waiting, .. }) => Standing::Waiting,
            Some(Handshake { state: State::InPlace, .. }) => Standing::InPlace,
        }
    }

    fn begin(&mut self, id: HandshakeId, source: SourceId) {
        self.all.insert(id, Handshake { source, state: State::InPlace, evicted: false });
        self.places += 1;
        self.change(source, |source| source.places += 1);
    }

    /// Asks a stalled handshake to leave if more wait than are to leave.
    fn evict_stalled(&mut self) -> Option<HandshakeId> {
        if self.waiting_count <= self.places_evicted {
            return None;
        }
        let (_, Reverse(oldest), _) = *self.stalled.last()?;
        self.evict(oldest);
        Some(oldest)
    }

    fn evict(&mut self, id: HandshakeId) {
        let Some(handshake) = self.all.get_mut(&id) else { return };
        handshake.evicted = true;
        let source = handshake.source;
        match handshake.state {
            State::Silent => self.silent_evicted += 1,
            State::InPlace => self.places_evicted += 1,
            // Who waits is turned away rather than evicted.
            State::Waiting => {}
        }
        self.change(source, |source| {
            source.silent.remove(&id);
            source.stalled.remove(&id);
        });
    }

    /// Takes a handshake out of its standing, which it is to get another of.
    fn remove_from_standing(&mut self, id: HandshakeId) -> Option<Handshake> {
        let handshake = *self.all.get(&id)?;
        let Handshake { source, state, evicted } = handshake;
        match state {
            State::Silent => {
                self.silent_count -= 1;
                self.silent_evicted -= usize::from(evicted);
            }
            State::Waiting => self.waiting_count -= 1,
            State::InPlace => {
                self.places -= 1;
                self.places_evicted -= usize::from(evicted);
            }
        }
        self.change(source, |source| {
            source.silent.remove(&id);
            source.waiting.remove(&id);
            source.stalled.remove(&id);
            source.places -= usize::from(state == State::InPlace);
        });
        Some(handshake)
    }

    /// Changes what a source has, and keeps the orders of sources in step.
    fn change(&mut self, id: SourceId, change: impl FnOnce(&mut Source)) {
        let source = self.sources.entry(id).or_default();
        let orders = [&mut self.silent, &mut self.waiting, &mut self.stalled];
        for (order, of) in
            orders.into_iter().zip([&source.silent, &source.waiting, &source.stalled])
        {
            if let Some(key) = crowd(of, id) {
                order.remove(&key);
            }
        }
        if let Some(first) = source.waiting.first() {
            self.turns.remove(&(source.places, *first, id));
        }
        change(source);
        let orders = [&mut self.silent, &mut self.waiting, &mut self.stalled];
        for (order, of) in
            orders.into_iter().zip([&source.silent, &source.waiting, &source.stalled])
        {
            order.extend(crowd(of, id));
        }
        if let Some(first) = source.waiting.first() {
            self.turns.insert((source.places, *first, id));
        }
        let Source { silent, waiting, stalled, places } = &*source;
        if silent.is_empty() && waiting.is_empty() && stalled.is_empty() && *places == 0 {
            self.sources.remove(&id);
        }
    }
}
