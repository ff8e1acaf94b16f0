//! The workload of data-diffusion §5.2 ("MI") on a sketch of its machine:
//! nodes with two slots and a cache, links of 1 Gb/s, a persistent store of
//! 4.4 Gb/s that all share, transfers sharing links and store evenly. What a
//! policy is worth shows here; the numbers of record are the simulator's.

use crate::Rng;
use falkon_core::data::index::{Index, ObjectNo, Place};
use falkon_core::data::object::ObjectId;
use falkon_core::dispatch::diffusion::{
    Costs, Free, Load, PolicyName, PolicyOptions, Taken, Waiting,
};
use falkon_core::task::{ExecutorId, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

const SLOTS: usize = 2;
const FILE_BYTES: f64 = 10e6;
const LINK_BYTES_PER_SECOND: f64 = 125e6;
const COMPUTE_SECONDS: f64 = 0.010;
/// Fetches ahead of tasks that a node has under way at most.
const FETCHES_MAX: usize = 2;

/// The paper's machine divided by `scale`.
struct Machine {
    scale: u64,
    /// Files that a node's cache holds.
    cache_files: usize,
    options: PolicyOptions,
}

struct Transfer {
    file: u64,
    to: usize,
    from: Option<usize>,
    left: f64,
}

#[derive(Default)]
struct Node {
    running: usize,
    /// When each file was used last.
    cache: BTreeMap<u64, u64>,
    pinned: BTreeMap<u64, usize>,
    /// Tasks that hold a slot until their file has come.
    blocked: BTreeMap<u64, Vec<f64>>,
    fetching: usize,
}

struct World {
    machine: Machine,
    index: Index,
    waiting: Waiting,
    places: Vec<Place>,
    nodes: Vec<Node>,
    free: BTreeSet<usize>,
    transfers: Vec<Transfer>,
    ends: BinaryHeap<Reverse<(u64, usize, u64)>>,
    arrived: Vec<f64>,
    started: BTreeMap<(usize, u64), Vec<f64>>,
    now: f64,
    response: f64,
    done: u64,
    peak: usize,
    /// Reads of the cache, of another's, of the store.
    reads: [u64; 3],
    uses: u64,
}

struct FreeNodes<'a>(&'a World);

impl Free for FreeNodes<'_> {
    fn is_free(&self, place: Place) -> bool {
        self.0.nodes[place.0 as usize].running < SLOTS
    }

    fn first(&self) -> Option<Place> {
        self.0.free.first().map(|node| self.0.places[*node])
    }
}

fn id(file: u64) -> ObjectId {
    ObjectId(u128::from(file))
}

impl World {
    fn new(machine: Machine) -> World {
        let mut index = Index::new();
        let count = 64 / machine.scale;
        let places = (0..count).map(|id| index.join(ExecutorId(id))).collect();
        World {
            waiting: Waiting::new(&machine.options).expect("the options are good"),
            machine,
            index,
            places,
            nodes: (0..count).map(|_| Node::default()).collect(),
            free: (0..count as usize).collect(),
            transfers: Vec::new(),
            ends: BinaryHeap::new(),
            arrived: Vec::new(),
            started: BTreeMap::new(),
            now: 0.0,
            response: 0.0,
            done: 0,
            peak: 0,
            reads: [0; 3],
            uses: 0,
        }
    }

    fn load(&self) -> Load {
        let busy = self.nodes.iter().filter(|node| node.running > 0).count() as u64;
        Load { busy, executors: self.nodes.len() as u64 }
    }

    fn file(&self, object: ObjectNo) -> u64 {
        self.index.id(object).expect("it is known").0 as u64
    }

    /// A node has a task from now on.
    fn assign(&mut self, node: usize, taken: &Taken) {
        let object = taken.inputs.as_slice()[0];
        let file = self.file(object);
        self.nodes[node].running += 1;
        self.refresh(node);
        if self.nodes[node].cache.contains_key(&file) {
            self.reads[0] += 1;
            self.compute(node, file, taken.task);
        } else {
            let blocked = self.nodes[node].blocked.entry(file).or_default();
            blocked.push(self.arrived[taken.task as usize]);
            if !self.index.is_coming(self.places[node], object) {
                self.begin_fetch(node, object);
            } else {
                self.reads[0] += 1;
            }
        }
        self.index.unwant(object);
    }

    fn compute(&mut self, node: usize, file: u64, task: u64) {
        self.run(node, file, self.arrived[task as usize]);
    }

    fn run(&mut self, node: usize, file: u64, arrived: f64) {
        self.uses += 1;
        self.nodes[node].cache.insert(file, self.uses);
        *self.nodes[node].pinned.entry(file).or_default() += 1;
        let end = ((self.now + COMPUTE_SECONDS) * 1e6) as u64;
        self.ends.push(Reverse((end, node, file)));
        self.started.entry((node, file)).or_default().push(arrived);
    }

    fn begin_fetch(&mut self, node: usize, object: ObjectNo) {
        let file = self.file(object);
        let sources = self.index.hints(object, self.places[node], 1);
        self.waiting.coming_changed(&self.index, object);
        let from = sources.first().map(|executor| executor.0 as usize);
        self.reads[if from.is_some() { 1 } else { 2 }] += 1;
        self.nodes[node].fetching += 1;
        self.transfers.push(Transfer { file, to: node, from, left: FILE_BYTES });
    }

    fn refresh(&mut self, node: usize) {
        match self.nodes[node].running < SLOTS {
            true => self.free.insert(node),
            false => self.free.remove(&node),
        };
    }

    fn serve(&mut self, node: usize) {
        let room = SLOTS - self.nodes[node].running;
        let mut taken = Vec::new();
        let load = self.load();
        self.waiting.select(&self.index, self.places[node], room, load, &mut taken);
        for taken in &taken {
            self.assign(node, taken);
        }
    }

    fn offer(&mut self) {
        loop {
            // The queue is set aside while it is asked, for it looks at the
            // world.
            let empty = Waiting::new(&self.machine.options).expect("the options are good");
            let mut waiting = std::mem::replace(&mut self.waiting, empty);
            let offer = waiting.offer(&self.index, &FreeNodes(self), self.load());
            self.waiting = waiting;
            let Some(offer) = offer else { break };
            self.assign(offer.place.0 as usize, &offer.taken);
        }
        if !self.waiting.fetches_ahead() {
            return;
        }
        let costs = Costs {
            task_micros: (COMPUTE_SECONDS * 1e6) as u64,
            peer_bytes_per_second: LINK_BYTES_PER_SECOND as u64 / 2,
            slots: SLOTS as u64,
            now: Time((self.now * 1e6) as u64),
        };
        for fetches in 0..FETCHES_MAX {
            for at in 0..self.nodes.len() {
                let node = (at + self.uses as usize) % self.nodes.len();
                if self.nodes[node].fetching > fetches {
                    continue;
                }
                let Some(object) = self.waiting.fetch(&self.index, self.places[node], &costs)
                else {
                    continue;
                };
                self.begin_fetch(node, object);
            }
        }
    }

    /// Makes room for a file: under `queue-aware` by what the queue wants
    /// least, else by what was used longest ago.
    fn evict(&mut self, node: usize) {
        while self.nodes[node].cache.len() >= self.machine.cache_files {
            let here = &self.nodes[node];
            let aware = self.waiting.fetches_ahead();
            let wanted = |file: u64| match aware {
                true => self.index.number(id(file)).map_or(0, |object| self.index.wanted(object)),
                false => 0,
            };
            let unpinned = here.cache.iter().filter(|(file, _)| !here.pinned.contains_key(file));
            let victim = unpinned.min_by_key(|(file, used)| (wanted(**file), **used));
            let Some(file) = victim.map(|(file, _)| *file) else { return };
            self.nodes[node].cache.remove(&file);
            if let Some(object) = self.index.remove(self.places[node], id(file)) {
                self.waiting.holder_removed(&self.index, self.places[node], object);
            }
        }
    }

    fn fetched(&mut self, transfer: &Transfer) {
        let (node, file) = (transfer.to, transfer.file);
        self.evict(node);
        self.uses += 1;
        self.nodes[node].fetching -= 1;
        self.nodes[node].cache.insert(file, self.uses);
        let size = Some(FILE_BYTES as u64);
        if let Some(object) = self.index.add(self.places[node], id(file), size) {
            self.waiting.holder_added(&self.index, self.places[node], object);
        }
        for arrived in self.nodes[node].blocked.remove(&file).unwrap_or_default() {
            self.run(node, file, arrived);
        }
        self.serve(node);
    }

    fn ended(&mut self, node: usize, file: u64) {
        let arrived = self.started.get_mut(&(node, file)).and_then(Vec::pop).expect("it ran");
        self.response += self.now - arrived;
        self.done += 1;
        let here = &mut self.nodes[node];
        here.running -= 1;
        if let Some(pins) = here.pinned.get_mut(&file) {
            *pins -= 1;
            if *pins == 0 {
                here.pinned.remove(&file);
            }
        }
        self.refresh(node);
        self.serve(node);
    }

    /// Bytes per second of each transfer: the store and the links are shared
    /// evenly.
    fn rates(&self) -> Vec<f64> {
        let mut inward = vec![0.0; self.nodes.len()];
        let mut outward = vec![0.0; self.nodes.len()];
        let mut stored = 0.0;
        for transfer in &self.transfers {
            inward[transfer.to] += 1.0;
            match transfer.from {
                Some(from) => outward[from] += 1.0,
                None => stored += 1.0,
            }
        }
        let store = 550e6 / self.machine.scale as f64 / stored;
        let rate = |transfer: &Transfer| {
            let source = match transfer.from {
                Some(from) => LINK_BYTES_PER_SECOND / outward[from],
                None => store,
            };
            source.min(LINK_BYTES_PER_SECOND / inward[transfer.to])
        };
        self.transfers.iter().map(rate).collect()
    }

    fn run_all(&mut self, seed: u64) -> f64 {
        let scale = self.machine.scale;
        let (tasks, files) = (250_000 / scale, 10_000 / scale);
        let mut rng = Rng(seed);
        let (mut rate, mut until, mut next) = (1.0_f64, 60.0, 0.0);
        while self.done < tasks {
            let rates = self.rates();
            let arrival = if self.arrived.len() as u64 == tasks { f64::INFINITY } else { next };
            let end = self.ends.peek().map_or(f64::INFINITY, |end| end.0.0 as f64 / 1e6);
            let landed =
                self.transfers.iter().zip(&rates).map(|(t, rate)| self.now + t.left / rate);
            let landed = landed.fold(f64::INFINITY, f64::min);
            let at = arrival.min(end).min(landed).max(self.now);
            for (transfer, rate) in self.transfers.iter_mut().zip(&rates) {
                transfer.left -= rate * (at - self.now);
            }
            self.now = at;
            while let Some(done) = self.transfers.iter().position(|transfer| transfer.left < 1.0) {
                let transfer = self.transfers.swap_remove(done);
                self.fetched(&transfer);
            }
            while self.ends.peek().is_some_and(|end| end.0.0 as f64 / 1e6 <= at) {
                let Some(Reverse((_, node, file))) = self.ends.pop() else { break };
                self.ended(node, file);
            }
            if arrival <= at {
                let object = self.index.want(id(rng.below(files)), Some(FILE_BYTES as u64));
                self.waiting.push(&self.index, self.arrived.len() as u64, &[object]);
                self.arrived.push(at);
                next += scale as f64 / rate;
                if next >= until {
                    (rate, until) = ((rate * 1.3).ceil().min(1000.0), until + 60.0);
                }
            }
            self.offer();
            self.peak = self.peak.max(self.waiting.len());
        }
        self.now
    }
}

/// The efficiency (of 1,415 s) and the mean response in seconds.
fn measure(options: PolicyOptions, cache_files: usize, scale: u64) -> (f64, f64) {
    let mut world = World::new(Machine { scale, cache_files, options });
    let time = world.run_all(1);
    let efficiency = 1415.0 / time;
    let response = world.response / world.done as f64;
    println!(
        "{} {cache_files} files: {time:.0} s, {:.1} %, response {response:.2} s, peak {}, reads {:?}",
        options.policy,
        efficiency * 100.0,
        world.peak,
        world.reads,
    );
    (efficiency, response)
}

#[test]
fn queue_aware_beats_the_papers_policies_on_their_workload() {
    let scale = 8;
    let aware = PolicyOptions { policy: PolicyName::QueueAware, ..PolicyOptions::default() };
    let (efficiency, _) = measure(aware, 100, scale);
    assert!(efficiency >= 0.9, "{efficiency}");
    let (_, response) = measure(aware, 200, scale);
    assert!(response <= 1.0, "{response}");
    let good = PolicyOptions {
        policy: PolicyName::GoodCacheCompute,
        window: 3200 / scale,
        utilization_threshold_milli: 800,
        replication_max: 0,
    };
    let (theirs, _) = measure(good, 100, scale);
    assert!(theirs < efficiency, "{theirs}");
}
