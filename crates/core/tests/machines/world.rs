//! One dispatcher, some executors and some clients on a virtual clock, joined
//! by connections that keep order, delay, and break. Executors may have caches,
//! and tasks data objects. One seed gives one schedule.

mod clients;
mod collected;
mod data;
mod dispatcher;
mod end;
mod executors;
mod faults;
mod links;
mod users;
mod watched;

pub(crate) use faults::Faults;

use crate::client::Client;
use crate::disk::Disk;
use crate::fates::History;
use crate::losses::Losses;
use crate::node::Node;
use crate::queue::Queue;
use crate::rng::Rng;
use crate::workload::Plan;
use crate::workload::data::{Flavour, MIB, Objects};
use data::{Data, Due};
use dispatcher::{Crash, new_dispatcher};
use falkon_core::data::cache::{CacheOptions, Eviction};
use falkon_core::dispatch::{Dispatcher, Record, Remembered};
use falkon_core::task::{InstanceId, Resources, Time};
use links::Link;
use std::collections::BTreeMap;
use users::Users;
use watched::Watched;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) now: Time,
    pub(crate) dispatcher: Dispatcher,
    journal: Vec<Record>,
    /// What those know who see only the events.
    watched: Watched,
    users: Users,
    /// For pages of results.
    disk: Option<Disk>,
    /// Tasks that write more than a report holds; `None`: none.
    lengths: Option<Rng>,
    /// All instances are destroyed.
    is_over: bool,
    crash: Option<Crash>,
    links: BTreeMap<u64, Link>,
    next_connection: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: Vec<Client>,
    data: Data,
    /// What stores, peers and disks do in a while.
    later: Queue<Due>,
    /// One schedule is run again, to be looked at.
    is_loud: bool,
    /// The node that is there in the end, and can run everything.
    anchor: usize,
    /// How many nodes from the first on are there all along.
    pub(crate) steadies: usize,
    faults: Faults,
    next_fault: Option<Time>,
    /// What somebody holds up, and when.
    holds: Rng,
    history: BTreeMap<(usize, u64), History>,
    of_instance: BTreeMap<InstanceId, usize>,
    losses: Losses,
    pub(crate) steps: u64,
    pub(crate) messages: u64,
    delay_micros: u64,
    /// How many executors collect for all.
    collectors: Option<usize>,
    /// When each executor started which tasks: (time, node, client, task).
    pub(crate) starts: Vec<(Time, usize, usize, u64)>,
}

/// Steps after which a schedule is taken for one that never ends.
const STEPS_MAX: u64 = 400_000;

impl World {
    pub(crate) fn new(
        seed: u64,
        capacities: Vec<Resources>,
        plans: Vec<Plan>,
        faults: Faults,
    ) -> World {
        let mut rng = Rng::new(seed);
        let delay_micros = *rng.pick(&[1, 200, 5_000, 40_000]);
        let nodes = capacities
            .into_iter()
            .enumerate()
            .map(|(index, capacity)| Node::new(1 + index as u64, capacity))
            .collect();
        World {
            rng,
            now: Time(0),
            dispatcher: new_dispatcher(None, None),
            journal: Vec::new(),
            watched: Watched::default(),
            users: Users::default(),
            disk: None,
            lengths: None,
            is_over: false,
            crash: None,
            links: BTreeMap::new(),
            next_connection: 0,
            nodes,
            clients: plans.into_iter().map(Client::new).collect(),
            data: Data::default(),
            later: Queue::new(),
            is_loud: std::env::var("SEED").is_ok(),
            anchor: 0,
            steadies: 0,
            faults,
            next_fault: faults.any().then_some(Time(1)),
            holds: Rng::new(seed ^ 0x401d),
            history: BTreeMap::new(),
            of_instance: BTreeMap::new(),
            losses: Losses::default(),
            steps: 0,
            messages: 0,
            delay_micros,
            collectors: None,
            starts: Vec::new(),
        }
    }

    /// As [`World::new`]; most of them have a disk for pages of results, and
    /// some tasks write more than can be sent.
    pub(crate) fn with_disk(
        seed: u64,
        capacities: Vec<Resources>,
        plans: Vec<Plan>,
        faults: Faults,
    ) -> World {
        let disk = Disk::random(seed);
        let dispatcher = new_dispatcher(disk.as_ref(), None);
        let lengths = Some(Rng::new(seed ^ 0x1043));
        let users = Users::random(seed, &plans);
        let world = World::new(seed, capacities, plans, faults);
        let mut world = World { dispatcher, disk, lengths, users, ..world };
        world.begin_users();
        world
    }

    /// Random plans with data objects on random nodes.
    pub(crate) fn with_data(seed: u64, flavour: Flavour) -> World {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let mut objects = Objects::random(&mut rng);
        let plans = 1 + rng.below(3);
        let plans: Vec<Plan> =
            (0..plans).map(|_| Plan::with_data(&mut rng, &mut objects, flavour)).collect();
        let users = Users::random(seed, &plans);
        let mut world = World::new(seed, Vec::new(), plans, flavour.faults());
        world.users = users;
        world.data = Data::new(objects);
        world.collectors = [None, Some(1), Some(2)][(seed % 3) as usize];
        world.dispatcher.set_collectors(world.collectors);
        let large = 400 * MIB;
        world.add_random_node(Resources::cpus(2), Some(large), Time(0));
        if flavour.gangs {
            world.add_random_node(Resources::cpus(2), Some(large), Time(0));
            world.add_random_node(Resources::cpus(2), Some(large), Time(0));
            world.steadies = 3;
        }
        for _ in 0..rng.below(5) {
            let capacity = Resources {
                cpus_milli: *rng.pick(&[500, 1000, 2000, 4000]),
                ..Resources::default()
            };
            let small = *rng.pick(&[20 * MIB, 60 * MIB, large]);
            let bytes = if world.faults.any() { small } else { large };
            let at = if rng.percent(60) { 0 } else { rng.below(4_000_000) };
            world.add_random_node(capacity, rng.percent(85).then_some(bytes), Time(at));
        }
        world.remember(&mut Rng::new(seed ^ 0x4e4d));
        world.begin_users();
        world
    }

    /// Half of the objects of stores were read on several executors before.
    fn remember(&mut self, rng: &mut Rng) {
        for real in self.data.objects.reals.values().filter(|real| real.in_store) {
            if rng.percent(50) {
                let (url, read) = (real.object.url.clone(), Time(0));
                let executors = 2 + rng.below(5);
                let (readers, size) = (executors, real.object.size.unwrap_or(0));
                let record = Record::Remembered(Remembered { url, readers, executors, read, size });
                self.dispatcher.recover(record.clone()).unwrap();
                self.journal.push(record);
            }
        }
    }

    fn add_random_node(&mut self, capacity: Resources, cache: Option<u64>, at: Time) {
        let evictions: Vec<Eviction> = Eviction::all().collect();
        let eviction = *self.rng.pick(&evictions);
        let cache = cache.map(|bytes| CacheOptions { tiers_bytes: vec![bytes], eviction, seed: 7 });
        self.add_node(capacity, cache, at);
    }

    fn add_node(&mut self, capacity: Resources, cache: Option<CacheOptions>, at: Time) {
        let incarnation = 1 + self.nodes.len() as u64;
        let mut node = match cache {
            Some(cache) => {
                let fetches = 1 + self.rng.below(8) as usize;
                Node::with_cache(incarnation, capacity, cache, fetches)
            }
            None => Node::new(incarnation, capacity),
        };
        node.reconnect_at = Some(at);
        self.nodes.push(node);
    }

    /// Whether tasks have data objects.
    fn has_data(&self) -> bool {
        let first = self.clients.first().and_then(|client| client.plan.tasks.first());
        first.is_some_and(|task| task.data.is_some())
    }

    /// Goes on until all clients are done; panics if they are not by `limit`.
    pub(crate) fn run(&mut self, limit: Time) {
        while !self.is_done() {
            if !self.step() || self.now > limit || self.steps > STEPS_MAX {
                panic!("at {:?} after {} steps: {}", self.now, self.steps, self.describe());
            }
        }
    }

    /// Whether all clients have done what they were to do.
    pub(crate) fn is_done(&self) -> bool {
        self.clients.iter().all(Client::is_done)
    }

    /// Goes on for a while.
    pub(crate) fn run_for(&mut self, micros: u64) {
        let until = self.now.after(micros);
        while self.next().is_some_and(|(at, _)| at <= until) {
            self.step();
            assert!(self.steps <= STEPS_MAX, "at {:?}: {}", self.now, self.describe());
        }
        self.now = until;
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for view in self.dispatcher.instance_views() {
            text += &format!(
                "\ninstance {}: {:?} sealed {} unschedulable {:?}",
                view.id(),
                view.counts(),
                view.is_sealed(),
                view.unschedulable()
            );
        }
        for view in self.dispatcher.executor_views() {
            text += &format!(
                "\nexecutor {} {}: load {:?} free {} connected {}",
                view.id(),
                view.name(),
                view.load(),
                view.free(),
                view.is_connected()
            );
        }
        for (index, node) in self.nodes.iter().enumerate() {
            text += &format!(
                "\nnode {index}: alive {} left {} load {:?} free {} connection {:?}",
                node.alive,
                node.left,
                node.machine.load(),
                node.machine.free(),
                node.connection
            );
        }
        for (index, client) in self.clients.iter().enumerate() {
            text += &format!(
                "\nclient {index}: awaits {:?}, then {:?}; {} results, complete {}",
                client.awaiting.as_ref().map(|(_, op)| op),
                client.ops,
                client.log.len(),
                client.complete
            );
        }
        text
    }

    /// Says what happens, if one schedule is run again.
    fn note(&self, text: impl FnOnce() -> String) {
        if self.is_loud {
            eprintln!("{:?} {}", self.now, text());
        }
    }

    // What happens next.

    fn next(&self) -> Option<(Time, Happening)> {
        let mut next: Vec<(Time, Happening)> = Vec::new();
        for (id, link) in &self.links {
            next.extend(link.up.front().map(|(at, _)| (*at, Happening::Up(*id))));
            next.extend(link.down.front().map(|(at, _)| (*at, Happening::Down(*id))));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            next.extend(node.next().map(|at| (at, Happening::Node(index))));
        }
        for (index, client) in self.clients.iter().enumerate() {
            next.extend(client.wake_at.map(|at| (at, Happening::Client(index))));
        }
        let timeout = self.dispatcher.poll_timeout().map(|(at, _)| at);
        next.extend(timeout.map(|at| (at, Happening::Timeout)));
        let page = self.disk.as_ref().and_then(Disk::next_due);
        next.extend(page.map(|at| (at, Happening::Disk)));
        next.extend(self.later.due().map(|at| (at, Happening::Later)));
        next.extend(self.next_fault.map(|at| (at, Happening::Fault)));
        next.into_iter().min_by_key(|(at, happening)| (*at, happening.rank(self.steps)))
    }

    /// One thing happens. Returns `false` if nothing will ever happen again.
    pub(crate) fn step(&mut self) -> bool {
        let Some((at, happening)) = self.next() else { return false };
        self.steps += 1;
        self.now = self.now.max(at);
        self.note(|| format!("{happening:?}"));
        match happening {
            Happening::Up(id) => self.arrive_up(id),
            Happening::Down(id) => self.arrive_down(id),
            Happening::Node(index) => self.tend_node(index),
            Happening::Client(index) => self.tend_client(index),
            Happening::Timeout => {
                self.dispatcher.handle_timeout(self.now);
                self.drain();
            }
            Happening::Disk => {
                if let Some(event) = self.disk.as_mut().and_then(Disk::answer) {
                    self.dispatcher.handle(self.now, event);
                    self.drain();
                }
            }
            Happening::Fault => self.fault(),
            Happening::Later => {
                if let Some(due) = self.later.pop() {
                    self.happen(due);
                }
            }
        }
        true
    }
}

#[derive(Debug, Clone, Copy)]
enum Happening {
    Up(u64),
    Down(u64),
    Node(usize),
    Client(usize),
    Timeout,
    Disk,
    Fault,
    Later,
}

impl Happening {
    /// What goes first of things due at the same time changes from step to
    /// step.
    fn rank(self, step: u64) -> u64 {
        let mine = match self {
            Happening::Up(id) => id * 7 + 1,
            Happening::Down(id) => id * 7 + 2,
            Happening::Node(index) => index as u64 * 7 + 3,
            Happening::Client(index) => index as u64 * 7 + 4,
            Happening::Timeout => 5,
            Happening::Fault => 6,
            Happening::Disk => 8,
            Happening::Later => 9,
        };
        (mine ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}
