//! The cache against a model that looks at everything each time.

use crate::cases;
use falkon_core::data::cache::{
    Cache, CacheOptions, Evicted, Eviction, Recorded, RefusedError, TierId,
};
use falkon_core::data::object::ObjectId;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy)]
enum Op {
    Reserve(u128, u64),
    ReserveTwo(u128, u64, u128, u64),
    Grow(u128, u64),
    Commit(u128, u64, bool),
    Abort(u128),
    Pin(u128),
    Unpin(u128),
    Touch(u128),
    Demand(u128, u64),
    Keep(u128, bool),
    Remove(u128),
    Limit(u8, Option<u64>),
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let id = 0..14u128;
    let size = 0..60u64;
    prop_oneof![
        8 => (id.clone(), size.clone()).prop_map(|(id, size)| Op::Reserve(id, size)),
        3 => (id.clone(), size.clone(), id.clone(), size.clone())
            .prop_map(|(id, size, other, large)| Op::ReserveTwo(id, size, other, large)),
        1 => (id.clone(), size.clone()).prop_map(|(id, size)| Op::Grow(id, size)),
        8 => (id.clone(), size.clone(), prop::bool::weighted(0.1))
            .prop_map(|(id, size, only)| Op::Commit(id, size, only)),
        1 => id.clone().prop_map(Op::Abort),
        2 => id.clone().prop_map(Op::Pin),
        3 => id.clone().prop_map(Op::Unpin),
        4 => id.clone().prop_map(Op::Touch),
        3 => (id.clone(), 0..4u64).prop_map(|(id, tasks)| Op::Demand(id, tasks)),
        1 => (id.clone(), any::<bool>()).prop_map(|(id, only)| Op::Keep(id, only)),
        1 => id.clone().prop_map(Op::Remove),
        1 => (0..3u8, proptest::option::of(0..100u64)).prop_map(|(tier, to)| Op::Limit(tier, to)),
        1 => Just(Op::Restart),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thing {
    tier: usize,
    size: u64,
    held: bool,
    pins: u64,
    only_here: bool,
    came: u64,
    used: u64,
    uses: u64,
    demand: u64,
}

#[derive(Debug, Clone)]
struct Model {
    eviction: Eviction,
    capacity: Vec<u64>,
    limit: Vec<u64>,
    things: BTreeMap<u128, Thing>,
    clock: u64,
}

impl Model {
    fn occupied(&self, tier: usize) -> u64 {
        self.things.values().filter(|thing| thing.tier == tier).map(|thing| thing.size).sum()
    }

    fn rank(&self, thing: &Thing) -> (u64, u64) {
        match self.eviction {
            Eviction::Fifo => (thing.came, 0),
            Eviction::Lru => (thing.used, 0),
            Eviction::Lfu => (thing.uses, thing.used),
            Eviction::QueueAware => (thing.demand, thing.used),
            Eviction::Random => (0, 0),
        }
    }

    fn may_go(thing: &Thing) -> bool {
        thing.held && thing.pins == 0 && !thing.only_here
    }

    /// Evicts one after the other from `tier` until there is room.
    fn make_room(&self, tier: usize, size: u64) -> Option<Vec<u128>> {
        let mut left = self.clone();
        let mut gone = Vec::new();
        while left.occupied(tier) + size > self.limit[tier] {
            let candidates =
                left.things.iter().filter(|(_, thing)| thing.tier == tier && Model::may_go(thing));
            let (&id, _) = candidates.min_by_key(|(id, thing)| (self.rank(thing), **id))?;
            left.things.remove(&id);
            gone.push(id);
        }
        Some(gone)
    }

    fn fits_empty(&self, sizes: &[u64]) -> bool {
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        let mut free = self.capacity.clone();
        sizes.iter().rev().all(|size| {
            let tier = free.iter().position(|free| free >= size);
            tier.map(|tier| free[tier] -= size).is_some()
        })
    }

    /// As the documentation says. `Ok(None)` is too large, or occupied.
    fn reserve(&mut self, wanted: &[(u128, u64)]) -> Option<BTreeSet<u128>> {
        let mut missing: Vec<(u64, u128)> = wanted
            .iter()
            .filter(|(id, _)| !self.things.contains_key(id))
            .map(|(id, size)| (*size, *id))
            .collect();
        missing.sort_unstable();
        missing.reverse();
        missing.dedup_by_key(|(_, id)| *id);
        let mut after = self.clone();
        let mut gone = BTreeSet::new();
        for (size, id) in missing {
            let tiers = 0..after.capacity.len();
            let free = tiers
                .clone()
                .find(|tier| after.occupied(*tier) + size <= after.limit[*tier] || size == 0);
            let tier = free.or_else(|| {
                let plans = tiers.filter_map(|tier| {
                    let victims = after.make_room(tier, size)?;
                    let worth = victims.iter().map(|id| after.rank(&after.things[id])).max();
                    Some((worth, tier, victims))
                });
                let (_, tier, victims) = plans.min_by_key(|(worth, tier, _)| (*worth, *tier))?;
                for victim in victims {
                    after.things.remove(&victim);
                    gone.insert(victim);
                }
                Some(tier)
            })?;
            let (came, used) = (after.clock, after.clock);
            after.clock += 1;
            let thing = Thing {
                tier,
                size,
                held: false,
                pins: 0,
                only_here: false,
                came,
                used,
                uses: 0,
                demand: 0,
            };
            after.things.insert(id, thing);
        }
        *self = after;
        Some(gone)
    }
}

fn ids(evicted: &[Evicted]) -> BTreeSet<u128> {
    let ids: BTreeSet<u128> = evicted.iter().map(|evicted| evicted.object.0).collect();
    assert_eq!(ids.len(), evicted.len(), "nothing is evicted twice");
    ids
}

/// Compares what both hold, whatever was done.
fn compare(cache: &Cache, model: &Model) -> Result<(), TestCaseError> {
    prop_assert!(cache.check().is_ok(), "{:?}", cache.check());
    let held: Vec<_> = cache
        .entries()
        .map(|(id, at)| (id.0, usize::from(at.tier.0), at.size, at.is_held, at.pins, at.only_here))
        .collect();
    let expected: Vec<_> = model
        .things
        .iter()
        .map(|(id, at)| (*id, at.tier, at.size, at.held, at.pins, at.only_here))
        .collect();
    prop_assert_eq!(held, expected);
    Ok(())
}

fn options(eviction: Eviction, tiers_bytes: &[u64]) -> CacheOptions {
    CacheOptions { tiers_bytes: tiers_bytes.to_vec(), eviction, seed: 7 }
}

struct Both {
    cache: Cache,
    model: Model,
    demand: BTreeMap<u128, u64>,
}

impl Both {
    fn reserve(&mut self, wanted: &[(u128, u64)]) -> Result<(), TestCaseError> {
        let given: Vec<_> = wanted.iter().map(|(id, size)| (ObjectId(*id), *size)).collect();
        let before = self.model.clone();
        match (self.cache.reserve_all(&given), self.model.reserve(wanted)) {
            (Ok(evicted), Some(gone)) => prop_assert_eq!(ids(&evicted), gone),
            (Err(error), None) => {
                let mut missing: Vec<_> =
                    wanted.iter().filter(|(id, _)| !before.things.contains_key(id)).collect();
                missing.sort_unstable();
                missing.reverse();
                missing.dedup_by_key(|(id, _)| *id);
                let sizes: Vec<u64> = missing.iter().map(|(_, size)| *size).collect();
                let too_large = matches!(error, RefusedError::TooLarge { .. });
                prop_assert_eq!(too_large, !before.fits_empty(&sizes), "{}", error);
            }
            (cache, model) => prop_assert!(false, "cache {cache:?}, model {model:?}"),
        }
        Ok(())
    }

    fn grow(&mut self, id: u128, size: u64) -> Result<bool, TestCaseError> {
        let tier = self.model.things.get(&id).filter(|at| !at.held).map(|at| at.tier);
        let plan = tier.and_then(|tier| {
            let more = size.saturating_sub(self.model.things[&id].size);
            if more == 0 { Some(Vec::new()) } else { self.model.make_room(tier, more) }
        });
        match (self.cache.grow(ObjectId(id), size), plan) {
            (Ok(evicted), Some(plan)) => {
                prop_assert_eq!(ids(&evicted), plan.iter().copied().collect());
                for victim in plan {
                    self.model.things.remove(&victim);
                }
                let at = self.model.things.get_mut(&id).unwrap();
                at.size = at.size.max(size);
                Ok(true)
            }
            (Err(_), None) => Ok(false),
            (cache, model) => {
                prop_assert!(false, "cache {cache:?}, model {model:?}");
                Ok(false)
            }
        }
    }

    fn apply(&mut self, op: Op) -> Result<(), TestCaseError> {
        let clock = self.model.clock;
        match op {
            Op::Reserve(id, size) => self.reserve(&[(id, size)])?,
            Op::ReserveTwo(id, size, other, large) => {
                self.reserve(&[(id, size), (other, large)])?;
            }
            Op::Grow(id, size) => {
                self.grow(id, size)?;
            }
            Op::Commit(id, size, only_here) => {
                if self.grow(id, size)? {
                    prop_assert_eq!(
                        self.cache.commit(ObjectId(id), size, only_here),
                        Ok(Vec::new())
                    );
                    let at = self.model.things.get_mut(&id).unwrap();
                    *at = Thing { size, held: true, only_here, came: clock, used: clock, ..*at };
                    self.model.clock += 1;
                }
            }
            Op::Abort(id) => {
                let arriving = self.model.things.get(&id).is_some_and(|at| !at.held);
                prop_assert_eq!(self.cache.abort(ObjectId(id)), arriving);
                if arriving {
                    self.model.things.remove(&id);
                }
            }
            Op::Pin(id) => {
                let at = self.model.things.get_mut(&id);
                prop_assert_eq!(self.cache.pin(ObjectId(id)), at.is_some());
                at.into_iter().for_each(|at| at.pins += 1);
            }
            Op::Unpin(id) => {
                let at = self.model.things.get_mut(&id).filter(|at| at.pins > 0);
                prop_assert_eq!(self.cache.unpin(ObjectId(id)), at.is_some());
                at.into_iter().for_each(|at| at.pins -= 1);
            }
            Op::Touch(id) => {
                self.model.clock += 1;
                let at = self.model.things.get_mut(&id);
                prop_assert_eq!(self.cache.touch(ObjectId(id)), at.is_some());
                at.into_iter().for_each(|at| *at = Thing { used: clock, uses: at.uses + 1, ..*at });
            }
            Op::Demand(id, tasks) => {
                let at = self.model.things.get_mut(&id);
                prop_assert_eq!(self.cache.demand(ObjectId(id), tasks), at.is_some());
                at.into_iter().for_each(|at| at.demand = tasks);
                self.demand.insert(id, tasks);
            }
            Op::Keep(id, only_here) => {
                let at = self.model.things.get_mut(&id).filter(|at| at.held);
                prop_assert_eq!(self.cache.keep(ObjectId(id), only_here), at.is_some());
                at.into_iter().for_each(|at| at.only_here = only_here);
            }
            Op::Remove(id) => {
                let held = self.model.things.get(&id).is_some_and(|at| at.held);
                prop_assert_eq!(self.cache.remove(ObjectId(id)).is_some(), held);
                if held {
                    self.model.things.remove(&id);
                }
            }
            Op::Limit(tier, bytes) => self.limit(tier, bytes)?,
            Op::Restart => self.restart()?,
        }
        Ok(())
    }

    fn limit(&mut self, tier: u8, bytes: Option<u64>) -> Result<(), TestCaseError> {
        let at = usize::from(tier);
        let evicted = ids(&self.cache.limit(TierId(tier), bytes));
        let Some(capacity) = self.model.capacity.get(at).copied() else {
            prop_assert!(evicted.is_empty());
            return Ok(());
        };
        let limit = bytes.unwrap_or(capacity).min(capacity);
        self.model.limit[at] = limit;
        let mut gone = BTreeSet::new();
        while self.model.occupied(at) > limit {
            // What has no size frees nothing and stays if nothing else can go.
            let things = self.model.things.iter();
            let mut may: Vec<_> =
                things.filter(|(_, thing)| thing.tier == at && Model::may_go(thing)).collect();
            if may.iter().all(|(_, thing)| thing.size == 0) {
                break;
            }
            may.sort_by_key(|(id, thing)| (self.model.rank(thing), **id));
            let id = *may[0].0;
            self.model.things.remove(&id);
            gone.insert(id);
        }
        prop_assert_eq!(evicted, gone);
        Ok(())
    }

    /// Nothing that was held is lost, and what goes next is the same.
    fn restart(&mut self) -> Result<(), TestCaseError> {
        let recorded: Vec<Recorded> = self.cache.recorded().collect();
        let options = options(self.model.eviction, &self.model.capacity);
        let (cache, dropped) = Cache::restore(&options, &recorded);
        prop_assert!(dropped.is_empty());
        self.cache = cache;
        self.model.limit = self.model.capacity.clone();
        self.model.things.retain(|_, at| at.held);
        self.model.things.values_mut().for_each(|at| at.pins = 0);
        self.model.things.values_mut().for_each(|at| at.demand = 0);
        Ok(())
    }
}

fn play(eviction: Eviction, tiers: &[u64], ops: &[Op]) -> Result<(), TestCaseError> {
    let model = Model {
        eviction,
        capacity: tiers.to_vec(),
        limit: tiers.to_vec(),
        things: BTreeMap::new(),
        clock: 0,
    };
    let cache = Cache::new(&options(eviction, tiers));
    let mut both = Both { cache, model, demand: BTreeMap::new() };
    for op in ops {
        both.apply(*op)?;
        compare(&both.cache, &both.model)?;
    }
    Ok(())
}

fn ranked() -> impl Strategy<Value = Eviction> {
    let all: Vec<Eviction> = Eviction::all().filter(|one| *one != Eviction::Random).collect();
    prop::sample::select(all)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(150)) })]

    #[test]
    fn the_cache_does_what_its_documentation_says(
        eviction in ranked(),
        tiers in prop_oneof![
            3 => Just(vec![100]),
            2 => Just(vec![40, 100]),
            1 => Just(vec![50, 50, 70]),
            1 => Just(vec![]),
        ],
        ops in vec(op(), 0..120),
    ) {
        play(eviction, &tiers, &ops)?;
    }

    #[test]
    fn chance_evicts_no_more_than_needed_and_only_what_may_go(
        seed: u64,
        ops in vec((0..30u128, 1..30u64, any::<bool>()), 0..150),
    ) {
        let mut cache = Cache::new(&CacheOptions {
            tiers_bytes: vec![100], eviction: Eviction::Random, seed,
        });
        for (id, size, pin) in ops {
            let before: BTreeMap<_, _> = cache.entries().collect();
            let free = 100 - cache.tier(TierId(0)).unwrap().1;
            if let Ok(evicted) = cache.reserve(ObjectId(id), size)
                && !before.contains_key(&ObjectId(id))
            {
                for gone in &evicted {
                    prop_assert_eq!(before[&gone.object].pins, 0);
                }
                let last = evicted.last().map_or(0, |gone| gone.size);
                let freed: u64 = evicted.iter().map(|gone| gone.size).sum();
                prop_assert!(evicted.is_empty() || free + freed - last < size);
                cache.commit(ObjectId(id), size, false).unwrap();
            }
            if pin { cache.pin(ObjectId(id)); } else { cache.unpin(ObjectId(id)); }
            prop_assert!(cache.check().is_ok(), "{:?}", cache.check());
        }
    }

    #[test]
    fn a_damaged_record_is_not_believed(recorded in vec(
        (
            0..8u128,
            0..4u8,
            prop_oneof![0..90u64, any::<u64>()],
            prop_oneof![Just(0), 0..90u64, any::<u64>()],
            any::<u64>(),
            any::<u64>(),
            any::<u64>(),
            any::<bool>(),
        ),
        0..30,
    )) {
        let recorded: Vec<Recorded> = recorded
            .into_iter()
            .map(|(id, tier, size, unpacked, came, used, uses, only_here)| Recorded {
                object: ObjectId(id),
                tier: TierId(tier),
                size,
                unpacked,
                came,
                used,
                uses,
                only_here,
            })
            .collect();
        let (mut cache, dropped) = Cache::restore(&options(Eviction::Lfu, &[100, 150]), &recorded);
        prop_assert!(cache.check().is_ok(), "{:?}", cache.check());
        for entry in &recorded {
            let gone = dropped.iter().any(|gone| (gone.object, gone.tier) == (entry.object, entry.tier));
            prop_assert!(gone || cache.entry(entry.object).is_some_and(|at| at.tier == entry.tier));
            cache.touch(entry.object);
        }
        prop_assert!(cache.check().is_ok(), "{:?}", cache.check());
    }
}

#[test]
fn chance_is_fair() {
    let mut cache = Cache::new(&options(Eviction::Random, &[20]));
    for id in 0..20 {
        cache.reserve(ObjectId(id), 1).unwrap();
        cache.commit(ObjectId(id), 1, false).unwrap();
    }
    // How long each had been there when it went: uniform eviction makes that
    // geometric with mean 20.
    let mut since: BTreeMap<u128, u64> = (0..20).map(|id| (id, 0)).collect();
    let (mut ages, mut young) = (0, 0);
    let rounds = 20_000;
    for round in 1..=rounds {
        let id = 1_000 + u128::from(round);
        let gone = cache.reserve(ObjectId(id), 1).unwrap()[0].object.0;
        cache.commit(ObjectId(id), 1, false).unwrap();
        let age = round - since.remove(&gone).unwrap();
        ages += age;
        young += u64::from(age <= 14);
        since.insert(id, round);
    }
    assert!((19 * rounds..21 * rounds).contains(&ages), "mean age {}", ages / rounds);
    // 1 - 0.95^14 = 51.2 %.
    assert!((50 * rounds..53 * rounds).contains(&(100 * young)), "{young} of {rounds} young");
}

#[test]
fn a_refusal_names_the_sizes() {
    let mut cache = Cache::new(&options(Eviction::Lru, &[10, 30]));
    let error = cache.reserve_all(&[(ObjectId(1), 25), (ObjectId(2), 20)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "45 bytes in 2 objects do not fit in a cache of 40 bytes in directories of 10, 30 bytes \
         (the largest object has 25 bytes): give the executor a larger cache"
    );
    cache.reserve(ObjectId(1), 25).unwrap();
    cache.pin(ObjectId(1));
    cache.commit(ObjectId(1), 22, false).unwrap();
    cache.reserve(ObjectId(3), 6).unwrap();
    let error = cache.reserve(ObjectId(2), 20).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no room for 20 bytes in a cache of 40 bytes: 22 bytes are in use, 6 are on their way, \
         0 are kept outputs without a copy elsewhere"
    );
}

#[test]
fn policies_are_found_by_their_names() {
    for eviction in Eviction::all() {
        assert_eq!(Eviction::named(eviction.name()), Some(eviction));
    }
    assert_eq!(Eviction::named("mru"), None);
}

#[test]
fn ids_are_read_as_they_are_written() {
    let id = ObjectId(0x0123_4567_89ab_cdef);
    assert_eq!(ObjectId::parse(&id.to_string()), Some(id));
    for wrong in ["", "0123", "+0000000000000000123456789abcdef", &"G".repeat(32)] {
        assert_eq!(ObjectId::parse(wrong), None, "{wrong}");
    }
}
