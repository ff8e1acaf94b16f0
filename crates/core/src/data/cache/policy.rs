//! Eviction policies: which unpinned object goes next. One trait, one table.

use super::Facts;
use crate::data::object::ObjectId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Which unpinned object goes first when room is needed (data-diffusion §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Eviction {
    /// Any, each as likely as any other.
    Random,
    /// The one that came first.
    Fifo,
    /// The one not used for longest.
    #[default]
    Lru,
    /// The one used least often; of several, the one not used for longest.
    Lfu,
    /// The one that the fewest waiting tasks read; of several, the one not
    /// used for longest.
    QueueAware,
}

/// The objects of one directory that may be evicted. An object's facts do not
/// change while it is in: it is taken out and put in again.
pub(super) trait EvictionOrder: fmt::Debug + Send + Sync {
    /// An object may be evicted from now on.
    fn insert(&mut self, object: ObjectId, facts: &Facts);
    /// An object may not be evicted any more, or is.
    fn remove(&mut self, object: ObjectId, facts: &Facts);
    /// The one that goes next: the same until something is put in or taken
    /// out.
    fn first(&self) -> Option<ObjectId>;
    /// How much is lost with an object, to choose between directories.
    fn worth(&self, facts: &Facts) -> (u64, u64);
    /// All objects, in any order; for the state checker.
    fn objects(&self) -> BTreeSet<ObjectId>;
}

/// Lower goes first.
type Rank = fn(&Facts) -> (u64, u64);

/// All policies: their names, and the rank by which each evicts; none is by
/// chance.
const POLICIES: [(Eviction, &str, Option<Rank>); 5] = [
    (Eviction::Random, "random", None),
    (Eviction::Fifo, "fifo", Some(|facts| (facts.came, 0))),
    (Eviction::Lru, "lru", Some(|facts| (facts.used, 0))),
    (Eviction::Lfu, "lfu", Some(|facts| (facts.uses, facts.used))),
    (Eviction::QueueAware, "queue-aware", Some(|facts| (facts.demand, facts.used))),
];

impl Eviction {
    /// All of them, in the order in which they are listed to people.
    pub fn all() -> impl Iterator<Item = Eviction> {
        POLICIES.iter().map(|(eviction, _, _)| *eviction)
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        POLICIES.iter().find(|(of, _, _)| *of == self).map_or("", |(_, name, _)| name)
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Eviction> {
        POLICIES.iter().find(|(_, of, _)| *of == name).map(|(eviction, _, _)| *eviction)
    }
}

impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())
    }
}

/// An empty order of this policy.
pub(super) fn order(eviction: Eviction, seed: u64) -> Box<dyn EvictionOrder> {
    match POLICIES.iter().find(|(of, _, _)| *of == eviction).and_then(|(_, _, rank)| *rank) {
        Some(rank) => Box::new(Ranked { rank, set: BTreeSet::new() }),
        None => Box::new(Shuffled::new(seed)),
    }
}

/// By a rank; equal ones by id.
#[derive(Debug)]
struct Ranked {
    rank: Rank,
    set: BTreeSet<((u64, u64), ObjectId)>,
}

impl EvictionOrder for Ranked {
    fn insert(&mut self, object: ObjectId, facts: &Facts) {
        self.set.insert(((self.rank)(facts), object));
    }

    fn remove(&mut self, object: ObjectId, facts: &Facts) {
        self.set.remove(&((self.rank)(facts), object));
    }

    fn first(&self) -> Option<ObjectId> {
        self.set.first().map(|(_, object)| *object)
    }

    fn worth(&self, facts: &Facts) -> (u64, u64) {
        (self.rank)(facts)
    }

    fn objects(&self) -> BTreeSet<ObjectId> {
        self.set.iter().map(|(_, object)| *object).collect()
    }
}

/// By chance: each object is as likely to go as any other.
#[derive(Debug)]
struct Shuffled {
    state: u64,
    /// Drawn anew with each change.
    draw: u64,
    list: Vec<ObjectId>,
    places: BTreeMap<ObjectId, usize>,
}

impl Shuffled {
    fn new(seed: u64) -> Shuffled {
        let mut shuffled =
            Shuffled { state: seed, draw: 0, list: Vec::new(), places: BTreeMap::new() };
        shuffled.redraw();
        shuffled
    }

    fn redraw(&mut self) {
        self.draw = crate::data::mix(&mut self.state);
    }
}

impl EvictionOrder for Shuffled {
    fn insert(&mut self, object: ObjectId, _: &Facts) {
        self.places.insert(object, self.list.len());
        self.list.push(object);
        self.redraw();
    }

    fn remove(&mut self, object: ObjectId, _: &Facts) {
        let Some(place) = self.places.remove(&object) else { return };
        self.list.swap_remove(place);
        if let Some(moved) = self.list.get(place) {
            self.places.insert(*moved, place);
        }
        self.redraw();
    }

    fn first(&self) -> Option<ObjectId> {
        let len = self.list.len() as u64;
        let at = self.draw.checked_rem(len)?;
        self.list.get(usize::try_from(at).ok()?).copied()
    }

    fn worth(&self, _: &Facts) -> (u64, u64) {
        (0, 0)
    }

    fn objects(&self) -> BTreeSet<ObjectId> {
        self.list.iter().copied().collect()
    }
}
