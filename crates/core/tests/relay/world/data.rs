//! Data objects: a store that everybody reaches, and caches that serve those beside
//! them.

use super::{Happening, World};
use falkon_core::collect::CollectOptions;
use falkon_core::data::cache::{CacheOptions, Eviction};
use falkon_core::data::declared::{DataOrder, Declared, Lists, Serving};
use falkon_core::data::object::{Object, ObjectId, Source};
use falkon_core::data::stage::{Action, Event, FetchError, StageOptions};
use falkon_core::execute::{self, Executor, TaskKey};
use falkon_core::relay;
use falkon_core::task::{After, ExecutorId, Resources, TaskClass, TaskId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Each dispatcher knows what nodes hold here and below.
pub(crate) fn assert_known(world: &mut World) {
    for site in 0..world.sites.len() {
        let below = |at: usize| {
            let mut at = Some(at);
            while let Some(here) = at.filter(|here| *here != site) {
                at = world.sites[here].lends.as_ref().map(|lends| lends.above);
            }
            at.is_some()
        };
        let nodes = world.nodes.iter().filter(|node| below(node.site));
        let caches: Vec<_> = nodes.map(|node| node.machine.stage().unwrap().cache()).collect();
        let held = (0..=OBJECTS).map(|number| ObjectId(u128::from(number)));
        let held: Vec<_> = held.filter(|id| caches.iter().any(|cache| cache.holds(*id))).collect();
        let added = world.sites[site].core.holdings(0).added;
        let known = added.into_iter().map(|(object, _)| object);
        // What tasks have written stays in caches, too.
        let mut known: Vec<_> = known.filter(|id| id.0 <= u128::from(OBJECTS)).collect();
        known.sort_unstable();
        assert_eq!(known, held, "what site {site} knows");
    }
}

/// Tasks read some of so many objects.
pub(crate) const OBJECTS: u64 = 30;
/// The ids of objects in caches alone begin here.
const INTERMEDIATE: u128 = 1 << 64;
/// The bytes of each of these: they stay as long as their instance.
const INTERMEDIATE_BYTES: u64 = 1 << 10;
/// The bytes of each object.
pub(crate) const OBJECT_BYTES: u64 = 1 << 20;
/// How many objects a cache takes.
const CACHED_OBJECTS: u64 = 20;

/// Where peers listen, what the store was asked for, and what tasks write.
#[derive(Default)]
pub(super) struct Data {
    /// The node at which each executor listens, as each node was told.
    peers: BTreeMap<(usize, ExecutorId), usize>,
    /// How often nodes of each site read each object at the store.
    reads: BTreeMap<(usize, ObjectId), u64>,
    /// Relays ask what nodes hold whenever something happens, not now and then.
    asks_always: bool,
    /// The sizes of the outputs that tasks have that run.
    outputs: BTreeMap<(usize, TaskKey), Vec<u64>>,
}

/// An object in the store.
pub(crate) fn object(number: u64) -> Object {
    Object {
        id: ObjectId(u128::from(number)),
        url: format!("/store/{number}").into(),
        version: "1".into(),
        size: Some(OBJECT_BYTES),
    }
}

/// What the task of a number writes to caches alone.
fn intermediate(task: u64) -> Object {
    Object {
        id: ObjectId(INTERMEDIATE + u128::from(task)),
        url: format!("cache:{task}").into(),
        version: "made".into(),
        size: None,
    }
}

/// An executor with a cache, the node of this number.
pub(super) fn machine(node: usize, incarnation: u64, capacity: Resources) -> Executor {
    let tiers_bytes = vec![CACHED_OBJECTS * OBJECT_BYTES];
    let cache = CacheOptions { tiers_bytes, eviction: Eviction::Lru, seed: 1 };
    let serves = Serving { address: node.to_string(), ..Serving::default() };
    let machine = Executor::new(incarnation, format!("node {incarnation}"), capacity);
    let machine = machine.with_collector(CollectOptions::default());
    machine.with_cache(&StageOptions::new(cache, incarnation), &[], Some(serves))
}

impl World {
    /// Submits tasks at the root, one for each of these objects, which read it, and the
    /// first of them all. Each writes an object of its own to the store.
    pub(crate) fn submit_readers(&mut self, class: TaskClass, reads: &[u64]) {
        let own = (0..reads.len() as u64).map(|at| 1_000_000 + self.submitted + at);
        let named = [0].into_iter().chain(reads.iter().copied()).chain(own);
        let objects: Vec<Object> = named.map(object).collect();
        let count = reads.len() as u32;
        let each = |items: Vec<u32>, step: u32| Lists::Each {
            items: items.into(),
            ends: Arc::new((1..=count).map(|at| at * step).collect()),
        };
        let data = Declared {
            objects: objects.into(),
            inputs: each((1..=count).flat_map(|at| [at, 0]).collect(), 2),
            outputs: each((1..=count).map(|at| count + at).collect(), 1),
        };
        self.submit_with(u64::from(count), class, Some(Arc::new(data)));
    }

    /// Submits so many tasks at the root, each of which writes an object to caches alone and
    /// reads what some of those before it have written.
    pub(crate) fn submit_shuffle(&mut self, count: u64, class: TaskClass) {
        let first = self.submitted;
        let (mut objects, mut numbers) = (Vec::new(), BTreeMap::new());
        let mut number = |task: u64| {
            *numbers.entry(task).or_insert_with(|| {
                objects.push(intermediate(task));
                objects.len() as u32 - 1
            })
        };
        let (mut reads, mut ends, mut outputs, mut after) = (vec![], vec![], vec![], vec![]);
        for offset in 0..count {
            let task = first + offset;
            // Tasks of the first half write alone; the others read what some of the last wrote.
            let readable = self.shuffled.iter().rev().take(30).copied();
            let readable: Vec<u64> = readable.collect();
            let chosen =
                if offset < count / 2 || readable.is_empty() { 0 } else { 1 + self.rng.below(3) };
            let inputs: std::collections::BTreeSet<u64> = (0..chosen)
                .map(|_| readable[self.rng.below(readable.len() as u64) as usize])
                .collect();
            reads.extend(inputs.iter().map(|input| number(*input)));
            ends.push(reads.len() as u32);
            outputs.push(number(task));
            if !inputs.is_empty() {
                let tasks = inputs.into_iter().map(TaskId).collect();
                after.push(After { offset, tasks, takes: 0 });
            }
            self.shuffled.push(task);
        }
        let output_ends = (1..=count as u32).collect();
        let data = Declared {
            objects: objects.into(),
            inputs: Lists::Each { items: reads.into(), ends: Arc::new(ends) },
            outputs: Lists::Each { items: outputs.into(), ends: Arc::new(output_ends) },
        };
        self.submit_data_after(count, class, Arc::new(data), after);
    }

    /// How many objects that are in caches alone nodes hold.
    pub(crate) fn intermediates_held(&self) -> usize {
        let caches = self.nodes.iter().filter_map(|node| node.machine.stage());
        let made = (0..self.submitted).map(|task| intermediate(task).id);
        let made: Vec<ObjectId> = made.collect();
        caches.map(|stage| made.iter().filter(|id| stage.cache().holds(**id)).count()).sum()
    }

    /// How often the nodes of a site read each object at the store, but for the first.
    pub(crate) fn store_reads(&self, site: usize) -> impl Iterator<Item = u64> + '_ {
        self.data
            .reads
            .iter()
            .filter(move |((at, object), _)| *at == site && object.0 > 0)
            .map(|(_, reads)| *reads)
    }

    /// From now on, relays say at once what nodes hold.
    pub(crate) fn ask_always(&mut self) {
        self.data.asks_always = true;
        (1..self.sites.len()).for_each(|site| self.tell_holdings(site));
    }

    /// What nodes below a relay hold, if that has changed.
    pub(super) fn tell_holdings(&mut self, site: usize) {
        if !self.data.asks_always && !self.sequence.is_multiple_of(8) {
            return;
        }
        let there = &mut self.sites[site];
        let Some(lends) = there.lends.as_mut() else { return };
        let before = lends.relay.holdings_known();
        let holdings = there.core.holdings(before);
        if holdings.upto != before {
            lends.relay.handle(Time(self.now), relay::Event::Holdings(holdings));
            self.pump_relay(site);
        }
    }

    /// The same, whether it has changed or not.
    pub(super) fn tell_all_holdings(&mut self, site: usize) {
        let there = &mut self.sites[site];
        let Some(lends) = there.lends.as_mut() else { return };
        let holdings = there.core.holdings(lends.relay.holdings_known());
        lends.relay.handle(Time(self.now), relay::Event::Holdings(holdings));
    }

    pub(super) fn hear_peers(&mut self, node: usize, order: &DataOrder) {
        for peer in &order.peers {
            let at = peer.serves.address.parse().unwrap();
            self.data.peers.insert((node, peer.executor), at);
        }
    }

    pub(super) fn stage(&mut self, node: usize, incarnation: u64, event: Event) {
        if self.nodes[node].incarnation == incarnation {
            let event = execute::Event::Stage(event);
            self.nodes[node].machine.handle(Time(self.now), event);
            self.pump_node(node);
        }
    }

    pub(super) fn act_stage(&mut self, node: usize, action: Action) {
        let incarnation = self.nodes[node].incarnation;
        let event = match action {
            Action::Fetch { fetch, object, source: Source::Dispatcher, length, .. } => {
                return self.want_part(node, &object, fetch, length);
            }
            Action::Fetch { fetch, object, source, offset, length, .. } => {
                let size = object.size.unwrap_or(INTERMEDIATE_BYTES);
                let bytes = length.unwrap_or(size - offset);
                let is_there = match source {
                    Source::Peer(peer) => {
                        let at = self.data.peers[&(node, peer)];
                        let stage = self.nodes[at].machine.stage().unwrap();
                        stage.cache().holds(object.id)
                    }
                    Source::Store => {
                        let site = self.nodes[node].site;
                        *self.data.reads.entry((site, object.id)).or_default() += 1;
                        true
                    }
                    Source::Own | Source::Dispatcher => panic!("no task reads a member"),
                };
                match is_there {
                    true => Event::Fetched { fetch, bytes },
                    false => Event::FetchFailed { fetch, bytes: 0, why: FetchError::Gone },
                }
            }
            Action::Seal { partial, .. } => Event::Sealed { partial, result: Ok(()) },
            Action::Adopt { partial, .. } => Event::Adopted { partial, result: Ok(()) },
            Action::GiveUp { fetch, .. } => {
                let why = FetchError::Unreachable("it was given up".to_owned());
                Event::FetchFailed { fetch, bytes: 0, why }
            }
            Action::Delete(_) | Action::Discard { .. } => return,
            other => panic!("the shell is to do {other:?}"),
        };
        let micros = 1 + self.rng.below(20_000);
        self.later(micros, Happening::Stage(node, incarnation, event));
    }

    /// A task is started that writes these objects.
    pub(super) fn writes(&mut self, node: usize, key: TaskKey, outputs: &[Arc<Object>]) {
        let bytes = |object: &Arc<Object>| match object.is_stored() {
            true => OBJECT_BYTES,
            false => INTERMEDIATE_BYTES,
        };
        self.data.outputs.insert((node, key), outputs.iter().map(bytes).collect());
    }

    /// A task has written its outputs.
    pub(super) fn tell_written(&mut self, node: usize, key: TaskKey) {
        if let Some(sizes) = self.data.outputs.remove(&(node, key)) {
            let event = execute::Event::Wrote { key, sizes };
            self.nodes[node].machine.handle(Time(self.now), event);
        }
    }
}
