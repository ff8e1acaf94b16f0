//! One dispatcher, executors with caches and without, stores that fail, on a
//! virtual clock. One seed gives one schedule.
//!
//! This file is long because the parts of a world share its clock, its links
//! and its books.

use crate::node::Node;
use crate::rng::Rng;
use crate::workload::{Flavour, MIB, Objects, Plan};
use falkon_core::data::cache::{CacheOptions, Eviction, TierId};
use falkon_core::data::object::{Object, ObjectId, Source};
use falkon_core::data::stage::{
    self, FetchError, FetchId, PartialId, Refusal, ServeId, WriteError,
};
use falkon_core::dispatch::{
    Action, ConnectionId, Delivery, Dispatcher, Event, Order, Record, Reply, Selection, Update,
};
use falkon_core::execute::{self, Start, TaskKey};
use falkon_core::result::{Detail, Finished, Outcome, Status};
use falkon_core::task::{InstanceId, Resources, Rows, TaskId, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Steps after which a world is taken for one that never ends.
const STEPS_MAX: u64 = 40_000;
/// With nothing under way but heartbeats for so long, a world stands still.
const QUIET_MICROS: u64 = 20_000_000;
/// When nothing goes wrong any more.
const FAULTS_UNTIL: Time = Time(12_000_000);
/// The connection of all clients.
const CLIENT: ConnectionId = ConnectionId(u64::MAX);

/// What is on its way, or will happen.
#[derive(Debug)]
enum Due {
    Up(u64, Event),
    Down(u64, Order),
    /// The node at the other end hears that a connection is over.
    Hangup(u64),
    /// Something for the stage of a node, in this life of it.
    Stage(usize, u64, stage::Event),
    /// A peer asks a node: which, its life, what, and for which transfer.
    Ask(usize, u64, ObjectId, Request),
    Ended(usize, u64, TaskKey, u32),
    TakenBack(usize, u64, TaskKey),
    Connect(usize, u64),
    Submit(usize, usize),
    Cancel(usize),
    Chance,
}

impl Due {
    fn is_heartbeat(&self) -> bool {
        let Due::Up(_, Event::Update { update, .. }) = self else { return false };
        *update == Update { number: update.number, ..Update::default() }
    }
}

/// A transfer from one node to another.
#[derive(Debug, Clone, Copy)]
struct Request {
    node: usize,
    life: u64,
    fetch: FetchId,
    offset: u64,
    length: Option<u64>,
}

/// How a task ended.
#[derive(Debug, Clone)]
struct End {
    outcome: Outcome,
    error: String,
}

#[derive(Debug)]
pub(crate) struct World {
    flavour: Flavour,
    rng: Rng,
    now: Time,
    dispatcher: Dispatcher,
    journal: Vec<Record>,
    pub(crate) nodes: Vec<Node>,
    objects: Objects,
    plans: Vec<Plan>,
    instances: Vec<Option<InstanceId>>,
    destroyed: BTreeSet<usize>,
    cancelled: BTreeSet<(usize, u64)>,
    ends: BTreeMap<(usize, u64), End>,
    failed_runs: BTreeMap<(usize, u64), u32>,
    accepted: Vec<u64>,
    /// Connection → node; those the dispatcher has closed are gone.
    links: BTreeMap<u64, usize>,
    next_connection: u64,
    /// When the last message of each direction arrives: order is kept.
    last: BTreeMap<(u64, bool), Time>,
    due: BTreeMap<(Time, u64), Due>,
    next: u64,
    serves: BTreeMap<(usize, ServeId), Request>,
    next_serve: u64,
    next_life: u64,
    store_down_until: Time,
    delay_micros: u64,
    active: Time,
    steps: u64,
    pub(crate) log: VecDeque<String>,
}

impl World {
    pub(crate) fn new(seed: u64, flavour: Flavour, objects: Objects, plans: Vec<Plan>) -> World {
        let mut rng = Rng::new(seed);
        let delay_micros = *rng.pick(&[1, 300, 5_000, 60_000]);
        World {
            flavour,
            rng,
            now: Time(0),
            dispatcher: Dispatcher::new(),
            journal: Vec::new(),
            nodes: Vec::new(),
            objects,
            instances: plans.iter().map(|_| None).collect(),
            accepted: plans.iter().map(|_| 0).collect(),
            plans,
            destroyed: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            ends: BTreeMap::new(),
            failed_runs: BTreeMap::new(),
            links: BTreeMap::new(),
            next_connection: 0,
            last: BTreeMap::new(),
            due: BTreeMap::new(),
            next: 0,
            serves: BTreeMap::new(),
            next_serve: 0,
            next_life: 1,
            store_down_until: Time(0),
            delay_micros,
            active: Time(0),
            steps: 0,
            log: VecDeque::new(),
        }
    }

    /// Random plans on random nodes.
    pub(crate) fn random(seed: u64, flavour: Flavour) -> World {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let mut objects = Objects::random(&mut rng);
        let plans: Vec<Plan> =
            (0..1 + rng.below(3)).map(|_| Plan::random(&mut rng, &mut objects, flavour)).collect();
        let mut world = World::new(seed, flavour, objects, plans);
        // One that can run everything is always there in the end.
        let large = 400 * MIB;
        world.add_node(Resources::cpus(2), Some(large), 0);
        for _ in 0..rng.below(5) {
            let capacity = Resources {
                cpus_milli: *rng.pick(&[500, 1000, 2000, 4000]),
                ..Resources::default()
            };
            let small = *rng.pick(&[20 * MIB, 60 * MIB, large]);
            let cache = if flavour.churn || flavour.faults > 0 { small } else { large };
            let at = if rng.percent(60) { 0 } else { rng.below(4_000_000) };
            world.add_node(capacity, rng.percent(85).then_some(cache), at);
        }
        for client in 0..world.plans.len() {
            let mut at = rng.below(2_000_000);
            for submission in 0..world.plans[client].submissions.len() {
                world.plan(Time(at), Due::Submit(client, submission));
                at += rng.below(2_000_000);
            }
            if flavour.cancels && rng.percent(60) {
                world.plan(Time(rng.below(6_000_000)), Due::Cancel(client));
            }
        }
        for _ in 0..if flavour.losses { 40 } else { 20 } {
            world.plan(Time(rng.below(FAULTS_UNTIL.0)), Due::Chance);
        }
        world
    }

    pub(crate) fn add_node(&mut self, capacity: Resources, cache: Option<u64>, at: u64) -> usize {
        let index = self.nodes.len();
        let evictions: Vec<Eviction> = Eviction::all().collect();
        let eviction = *self.rng.pick(&evictions);
        let cache = cache.map(|bytes| CacheOptions { tiers_bytes: vec![bytes], eviction, seed: 7 });
        let node = self.fresh_node(index, capacity, cache);
        self.plan(Time(at), Due::Connect(index, node.incarnation));
        self.nodes.push(node);
        index
    }

    fn fresh_node(
        &mut self,
        index: usize,
        capacity: Resources,
        cache: Option<CacheOptions>,
    ) -> Node {
        let life = self.next_life;
        self.next_life += 1;
        let fetches = 1 + self.rng.below(8) as usize;
        Node::new(index, life, capacity, cache, fetches)
    }

    // The clock.

    fn plan(&mut self, at: Time, due: Due) {
        if !due.is_heartbeat() {
            self.active = self.now;
        }
        self.next += 1;
        self.due.insert((at, self.next), due);
    }

    fn soon(&mut self, due: Due) {
        let most = *self.rng.pick(&[1, 2_000, 50_000, 400_000]);
        let at = self.now.after(self.rng.below(most));
        self.plan(at, due);
    }

    fn stage_soon(&mut self, index: usize, event: stage::Event) {
        let life = self.nodes[index].incarnation;
        self.soon(Due::Stage(index, life, event));
    }

    fn note(&mut self, text: String) {
        if self.log.len() >= 400 {
            self.log.pop_front();
        }
        self.log.push_back(format!("{:?} {text}", self.now));
    }

    fn is_faulty(&self) -> bool {
        self.now < FAULTS_UNTIL
    }

    fn fault(&mut self) -> bool {
        self.is_faulty() && self.rng.percent(self.flavour.faults)
    }

    fn is_done(&self) -> bool {
        (0..self.plans.len()).all(|client| {
            self.destroyed.contains(&client)
                || self.plans[client].tasks.len() as u64 == self.ended(client)
        })
    }

    fn ended(&self, client: usize) -> u64 {
        self.ends.range((client, 0)..=(client, u64::MAX)).count() as u64
    }

    /// Goes on until every task has ended, and then until nothing is under
    /// way.
    pub(crate) fn run(&mut self) {
        loop {
            let (at, _) = self.next_at();
            if self.is_done() && at > self.active.after(QUIET_MICROS) && !self.is_resting() {
                break;
            }
            let quiet = self.now.since(self.active) > QUIET_MICROS && !self.is_resting();
            assert!(
                !quiet && self.steps < STEPS_MAX,
                "the world stands still at {:?} after {} steps{}",
                self.now,
                self.steps,
                self.describe()
            );
            self.step();
        }
    }

    /// Somebody waits for a time that will come.
    fn is_resting(&self) -> bool {
        let staging =
            self.nodes.iter().filter(|node| node.alive).any(|node| {
                node.machine.stage().is_some_and(|stage| stage.poll_timeout().is_some())
            });
        let suspended =
            self.dispatcher.executor_views().any(|view| view.suspended_until().is_some());
        staging
            || suspended
            || self.dispatcher.poll_timeout().is_some_and(|(_, why)| why == "recovery")
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for view in self.dispatcher.instance_views() {
            let policy = view.options().policy;
            text += &format!("\ninstance {}: {:?} {policy:?}", view.id(), view.counts());
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
            let stage = node.machine.stage().map(|stage| stage.load());
            text += &format!(
                "\nnode {index}: alive {} load {:?} free {} connection {:?} stage {stage:?}",
                node.alive,
                node.machine.load(),
                node.machine.free(),
                node.connection
            );
        }
        text
    }

    fn next_at(&self) -> (Time, Option<usize>) {
        let due = self.due.first_key_value().map(|((at, _), _)| *at);
        let mut next = (due.unwrap_or(Time(u64::MAX)), None);
        if let Some((at, _)) = self.dispatcher.poll_timeout()
            && at < next.0
        {
            next = (at, Some(usize::MAX));
        }
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.alive) {
            if let Some((at, _)) = node.machine.poll_timeout()
                && at < next.0
            {
                next = (at, Some(index));
            }
        }
        next
    }

    /// One thing happens.
    pub(crate) fn step(&mut self) {
        self.steps += 1;
        let (at, whose) = self.next_at();
        self.now = self.now.max(at);
        match whose {
            Some(usize::MAX) => {
                let why = self.dispatcher.poll_timeout().map_or("", |(_, why)| why);
                self.note(why.to_owned());
                if why != "executor silence" {
                    self.active = self.now;
                }
                self.dispatcher.handle_timeout(self.now);
                self.drain();
            }
            Some(index) => {
                let why = self.nodes[index].machine.poll_timeout().map_or("", |(_, why)| why);
                if why != "heartbeat" {
                    self.active = self.now;
                }
                self.nodes[index].machine.handle_timeout(self.now);
                self.pump(index);
            }
            None => {
                let Some((_, due)) = self.due.pop_first() else { return };
                if !due.is_heartbeat() {
                    self.active = self.now;
                }
                self.note(format!("{due:?}"));
                self.happen(due);
            }
        }
    }

    fn is_alive(&self, index: usize, life: u64) -> bool {
        self.nodes[index].alive && self.nodes[index].incarnation == life
    }

    fn happen(&mut self, due: Due) {
        let is_heartbeat = due.is_heartbeat();
        match due {
            Due::Up(connection, event)
                if matches!(event, Event::Closed { .. })
                    || self.links.contains_key(&connection) =>
            {
                self.dispatcher.handle(self.now, event);
                // Sometimes more is handled before the polling.
                // A heartbeat alone must not keep a world going.
                if is_heartbeat || self.rng.percent(70) || self.due.is_empty() {
                    self.drain();
                } else {
                    self.soon(Due::Chance);
                }
            }
            Due::Down(connection, order) => {
                let found = self.nodes.iter().position(|node| node.connection == Some(connection));
                if let Some(index) = found.filter(|index| self.nodes[*index].alive) {
                    self.nodes[index].machine.handle(self.now, execute::Event::Order(order));
                    self.pump(index);
                }
            }
            Due::Hangup(connection) => self.hangup(connection),
            Due::Stage(index, life, event) if self.is_alive(index, life) => {
                self.deliver(index, event);
            }
            Due::Ask(index, life, object, request) => self.ask(index, life, object, request),
            Due::Ended(index, life, key, attempt) if self.is_alive(index, life) => {
                self.end(index, key, attempt);
            }
            Due::TakenBack(index, life, key) if self.is_alive(index, life) => {
                self.nodes[index].machine.handle(self.now, execute::Event::TakenBack(key));
                self.pump(index);
            }
            Due::Connect(index, life) if self.is_alive(index, life) => self.connect(index),
            Due::Submit(client, submission) => self.submit(client, submission),
            Due::Cancel(client) => self.cancel(client),
            Due::Chance => self.chance(),
            _ => {}
        }
    }

    // Links.

    fn arrival(&mut self, connection: u64, up: bool) -> Time {
        let at = self.now.after(1 + self.rng.below(self.delay_micros));
        let last = self.last.entry((connection, up)).or_default();
        *last = at.max(*last);
        *last
    }

    fn send_up(&mut self, connection: u64, event: Event) {
        let at = self.arrival(connection, true);
        self.plan(at, Due::Up(connection, event));
    }

    fn connect(&mut self, index: usize) {
        if self.nodes[index].connection.is_some() {
            return;
        }
        let connection = self.next_connection;
        self.next_connection += 1;
        self.links.insert(connection, index);
        self.nodes[index].connection = Some(connection);
        self.nodes[index].machine.handle(self.now, execute::Event::Connected);
        self.pump(index);
    }

    /// A node hears that its connection is over, and connects anew.
    fn hangup(&mut self, connection: u64) {
        let found = self.nodes.iter().position(|node| node.connection == Some(connection));
        let Some(index) = found else { return };
        let node = &mut self.nodes[index];
        node.connection = None;
        if !node.alive {
            return;
        }
        node.machine.handle(self.now, execute::Event::Disconnected);
        let life = node.incarnation;
        self.send_up(connection, Event::Closed { connection: ConnectionId(connection) });
        let wait = if self.rng.percent(70) { 800_000 } else { 6_000_000 };
        let at = self.now.after(self.rng.below(wait));
        self.plan(at, Due::Connect(index, life));
        self.pump(index);
    }

    /// A node dies, with all that it held; another may come in its place.
    fn die(&mut self, index: usize) {
        self.nodes[index].alive = false;
        if let Some(connection) = self.nodes[index].connection.take() {
            self.send_up(connection, Event::Closed { connection: ConnectionId(connection) });
        }
        let mine = |key: &(usize, ServeId)| key.0 == index;
        let serves: Vec<_> = self.serves.keys().copied().filter(mine).collect();
        for key in serves {
            if let Some(request) = self.serves.remove(&key) {
                let why = FetchError::Unreachable("it died".to_owned());
                self.answer(request, 0, Err(why));
            }
        }
        if index == 0 || self.rng.percent(60) {
            let (capacity, cache) =
                (self.nodes[index].capacity.clone(), self.nodes[index].cache.clone());
            let node = self.fresh_node(index, capacity, cache);
            let at = self.now.after(self.rng.below(4_000_000));
            self.plan(at, Due::Connect(index, node.incarnation));
            self.nodes[index] = node;
        }
    }

    // The dispatcher.

    fn drain(&mut self) {
        while let Some(action) = self.dispatcher.poll_action() {
            match action {
                Action::Journal(record) => self.journal.push(record),
                Action::Reply { reply: Reply::Done, .. } => {}
                Action::Reply { reply: Reply::Created(id), request, .. } => {
                    self.instances[request as usize] = Some(id);
                }
                Action::Reply { reply: Reply::Accepted { first, count }, request, .. } => {
                    let accepted = &mut self.accepted[request as usize];
                    assert_eq!(*accepted, first.0);
                    *accepted += count;
                }
                Action::Reply { reply: Reply::Refused(error), .. } => panic!("refused: {error}"),
                Action::Deliver { connection, delivery } => {
                    let written = Event::Written { connection, messages: 1 };
                    self.dispatcher.handle(self.now, written);
                    self.receive(delivery);
                }
                Action::Order { connection, order } => {
                    let at = self.arrival(connection.0, false);
                    self.plan(at, Due::Down(connection.0, order));
                }
                // Instances are destroyed by whoever has subscribed.
                Action::Gone { .. } | Action::Expired { .. } | Action::AwaitWritten { .. } => {}
                Action::StorePage { .. } | Action::LoadPage { .. } | Action::DropPages { .. } => {
                    panic!("this world has no disk for pages");
                }
                Action::Close { connection, .. } | Action::Refuse { connection, .. } => {
                    self.links.remove(&connection.0);
                    let at = self.arrival(connection.0, false);
                    self.plan(at, Due::Hangup(connection.0));
                }
            }
        }
        self.dispatcher.check().unwrap();
    }

    /// The dispatcher dies, and another reads its journal.
    fn restart(&mut self) {
        if self.rng.percent(50) {
            self.drain();
            self.journal = self.dispatcher.snapshot();
        }
        self.dispatcher = Dispatcher::new();
        for record in &self.journal {
            self.dispatcher.recover(record.clone()).unwrap();
        }
        self.dispatcher.recovered(self.now);
        for connection in std::mem::take(&mut self.links).into_keys() {
            let at = self.arrival(connection, false);
            self.plan(at, Due::Hangup(connection));
        }
        for client in 0..self.plans.len() {
            let Some(instance) = self.instances[client] else { continue };
            if !self.destroyed.contains(&client) {
                let (connection, request) = (CLIENT, client as u64);
                let from = self.ended(client);
                let event = Event::Subscribe { connection, request, instance, from };
                self.dispatcher.handle(self.now, event);
            }
        }
        self.drain();
    }

    fn client_of(&self, instance: InstanceId) -> usize {
        let found = self.instances.iter().position(|id| *id == Some(instance));
        found.expect("an instance of ours")
    }

    fn receive(&mut self, delivery: Delivery) {
        let client = self.client_of(delivery.instance);
        let mut upto = delivery.from;
        for Finished { first, count, outcome, detail, .. } in delivery.results {
            let error = detail.map_or_else(String::new, |detail| detail.error.clone());
            for task in first.0..first.0 + count {
                let end = End { outcome, error: error.clone() };
                let before = self.ends.insert((client, task), end);
                assert!(before.is_none(), "task {task} of client {client} ended twice");
            }
            upto += count;
        }
        let instance = delivery.instance;
        self.dispatcher.handle(self.now, Event::Acknowledge { connection: CLIENT, instance, upto });
    }

    fn submit(&mut self, client: usize, submission: usize) {
        if self.destroyed.contains(&client) {
            return;
        }
        let request = client as u64;
        let connection = CLIENT;
        let instance = match self.instances[client] {
            Some(instance) => instance,
            None => {
                let options = self.plans[client].options.clone();
                let event = Event::Create { connection, request, options };
                self.dispatcher.handle(self.now, event);
                self.drain();
                let instance = self.instances[client].unwrap();
                let event = Event::Subscribe { connection, request, instance, from: 0 };
                self.dispatcher.handle(self.now, event);
                instance
            }
        };
        let (first, tasks) = self.plans[client].submissions[submission].clone();
        let first = TaskId(first);
        let event =
            Event::Submit { client: 1, connection, request, instance, first, submission: tasks };
        self.dispatcher.handle(self.now, event);
        if submission + 1 == self.plans[client].submissions.len() {
            self.dispatcher.handle(self.now, Event::Seal { connection, request, instance });
        }
        self.drain();
    }

    fn cancel(&mut self, client: usize) {
        let Some(instance) = self.instances[client] else { return };
        let (connection, request) = (CLIENT, client as u64);
        if self.rng.percent(25) {
            self.destroyed.insert(client);
            self.dispatcher.handle(self.now, Event::Destroy { connection, request, instance });
        } else {
            let first = self.rng.below(self.accepted[client] + 1);
            let count = 1 + self.rng.below(15);
            self.cancelled.extend((first..first + count).map(|task| (client, task)));
            let selection = Selection::Runs(vec![(first, count)]);
            let event = Event::Cancel { connection, request, instance, selection };
            self.dispatcher.handle(self.now, event);
        }
        self.drain();
    }

    // Chance.

    fn chance(&mut self) {
        // What was handled and not polled for.
        self.drain();
        if !self.is_faulty() {
            return;
        }
        let index = self.rng.below(self.nodes.len() as u64) as usize;
        let churn = self.flavour.churn && self.nodes[index].alive;
        match self.rng.below(10) {
            9 if churn => self.restart(),
            0 if churn => self.die(index),
            1 if churn && index > 0 && !self.nodes[index].leaving => {
                self.nodes[index].leaving = true;
                self.nodes[index].machine.handle(self.now, execute::Event::Leave);
                self.pump(index);
            }
            2 | 3 if churn => {
                if let Some(connection) = self.nodes[index].connection {
                    self.links.remove(&connection);
                    let at = self.arrival(connection, false);
                    self.plan(at, Due::Hangup(connection));
                }
            }
            4 if self.flavour.faults > 0 => {
                self.store_down_until = self.now.after(self.rng.below(4_000_000));
            }
            5 if self.fault() && self.nodes[index].cache.is_some() => {
                self.handle_stage(index, stage::Event::Full(TierId(0)));
            }
            6 if self.fault() => self.lose_file(index),
            7 if self.flavour.losses => self.lose_file(index),
            8 if self.flavour.losses => {
                // Its directory is deleted.
                for _ in 0..self.nodes[index].files.len() {
                    self.lose_file(index);
                }
            }
            _ => {}
        }
    }

    fn lose_file(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let held = |object: &ObjectId| {
            node.machine.stage().is_some_and(|stage| stage.cache().holds(*object))
        };
        let files: Vec<ObjectId> = node.files.keys().copied().filter(held).collect();
        if files.is_empty() || !node.alive {
            return;
        }
        let object = *self.rng.pick(&files);
        let node = &mut self.nodes[index];
        node.files.remove(&object);
        node.serving.retain(|_, served| *served != object);
        let started = node.processes.values().map(|process| &process.start);
        for start in started.chain(node.waiting.values()) {
            let mut inputs = start.data.iter().flat_map(|data| &data.inputs);
            if inputs.any(|input| input.object.id == object) {
                node.damaged.insert(start.key);
            }
        }
        self.handle_stage(index, stage::Event::Lost(object));
    }

    // Nodes.

    fn handle_stage(&mut self, index: usize, event: stage::Event) {
        if self.nodes[index].alive {
            self.nodes[index].machine.handle(self.now, execute::Event::Stage(event));
            self.pump(index);
        }
    }

    fn pump(&mut self, index: usize) {
        while let Some(action) = self.nodes[index].machine.poll_action() {
            self.note(format!("  node {index}: {action:?}"));
            self.act(index, action);
            if !self.nodes[index].alive {
                return;
            }
        }
        self.nodes[index].check();
        self.nodes[index].check_inputs();
    }

    fn act(&mut self, index: usize, action: execute::Action) {
        let connection = self.nodes[index].connection;
        match action {
            execute::Action::Join(join) => {
                let id = connection.expect("it is connected");
                self.send_up(id, Event::Join { connection: ConnectionId(id), join });
            }
            execute::Action::Update(update) => {
                let id = connection.expect("it is connected");
                self.send_up(id, Event::Update { connection: ConnectionId(id), update });
            }
            execute::Action::Prepare { .. } | execute::Action::Forget(_) => {}
            execute::Action::Start(start) => match start.after {
                Some(before)
                    if self.nodes[index].processes.contains_key(&before)
                        || self.nodes[index].waiting.values().any(|it| it.key == before) =>
                {
                    self.nodes[index].hand_over(before, start);
                }
                _ => self.start(index, start),
            },
            execute::Action::Kill { key, .. } => self.kill(index, key),
            execute::Action::TakeBack(key) => {
                if self.nodes[index].take_back(key) {
                    let life = self.nodes[index].incarnation;
                    self.soon(Due::TakenBack(index, life, key));
                }
            }
            execute::Action::Stage(action) => self.act_stage(index, action),
            execute::Action::Peers(peers) => {
                for peer in peers {
                    let (node, life) = peer.serves.address.split_once(':').unwrap();
                    let at = (node.parse().unwrap(), life.parse().unwrap());
                    self.nodes[index].peers.insert(peer.executor, at);
                }
            }
            execute::Action::VisitEnded(..) => panic!("nobody visits"),
            execute::Action::Discard(_) => panic!("no task writes that much"),
            execute::Action::Clear(key) => {
                assert!(!self.nodes[index].uses_sandbox(key), "a sandbox in use goes");
                self.nodes[index].sandboxes.remove(&key);
            }
            execute::Action::Left => {
                assert!(self.nodes[index].sandboxes.is_empty(), "sandboxes are left");
                self.nodes[index].alive = false;
                if let Some(id) = self.nodes[index].connection.take() {
                    self.send_up(id, Event::Closed { connection: ConnectionId(id) });
                }
            }
        }
    }

    fn start(&mut self, index: usize, start: Start) {
        let key = start.key;
        let client = self.client_of(key.instance);
        for (client, task) in (0..start.count).map(|at| (client, key.task.0 + at)) {
            let plan = &self.plans[client].tasks[task as usize];
            let inputs = start.data.as_ref().map_or(0, |data| data.inputs.len());
            assert_eq!(inputs, plan.inputs.len(), "task {task} of client {client}");
            let row = start.row + task - key.task.0;
            assert_eq!(row_of(&start, row), self.expected_row(client, task), "row of {task}");
            for upstream in &plan.after {
                let ended = self.ends.get(&(client, *upstream));
                let done = ended.is_none_or(|end| end.outcome == Outcome::Exit(0));
                assert!(
                    done || self.destroyed.contains(&client),
                    "task {task} starts all the same"
                );
            }
        }
        let plan = &self.plans[client].tasks[key.task.0 as usize];
        let failed = self.failed_runs.get(&(client, key.task.0)).copied().unwrap_or(0);
        let outcome = Outcome::Exit(i32::from(failed < plan.fails));
        let at = self.now.after(plan.micros);
        let (life, attempt) = (self.nodes[index].incarnation, start.attempt);
        self.nodes[index].spawn(start, self.now, outcome);
        self.plan(at, Due::Ended(index, life, key, attempt));
    }

    /// The row of a task, with what it takes in front.
    fn expected_row(&self, client: usize, task: u64) -> Vec<u8> {
        let tasks = &self.plans[client].tasks;
        let plan = &tasks[task as usize];
        let taken = plan.after[..plan.takes].iter().map(|task| &tasks[*task as usize].value);
        let mut row = Vec::new();
        if plan.takes > 0 {
            row.push(b'v');
            row.extend((plan.takes as u32).to_le_bytes());
            taken.clone().for_each(|value| row.extend((value.len() as u32).to_le_bytes()));
            taken.for_each(|value| row.extend(value));
        }
        row.extend(format!("row of {task}").into_bytes());
        row
    }

    fn kill(&mut self, index: usize, key: TaskKey) {
        let life = self.nodes[index].incarnation;
        if self.nodes[index].take_back(key) {
            self.soon(Due::TakenBack(index, life, key));
        } else if let Some(process) = self.nodes[index].processes.get_mut(&key) {
            process.outcome = Outcome::Signal(15);
            let attempt = process.start.attempt;
            self.soon(Due::Ended(index, life, key, attempt));
        }
    }

    fn end(&mut self, index: usize, key: TaskKey, attempt: u32) {
        let node = &mut self.nodes[index];
        if node.processes.get(&key).is_none_or(|process| process.start.attempt != attempt) {
            return;
        }
        let Some(process) = node.processes.remove(&key) else { return };
        node.damaged.remove(&key);
        let next = node.waiting.remove(&key);
        if let Some(next) = next {
            self.start(index, next);
        }
        let client = self.client_of(key.instance);
        if matches!(process.outcome, Outcome::Exit(code) if code != 0) {
            *self.failed_runs.entry((client, key.task.0)).or_default() += 1;
        }
        let outputs = process.start.data.iter().flat_map(|data| &data.outputs);
        let outputs: Vec<ObjectId> = outputs.map(|object| object.id).collect();
        if process.outcome == Outcome::Exit(0) && !outputs.is_empty() {
            let mut sizes = Vec::new();
            for id in outputs {
                let real = self.objects.reals.get_mut(&id).unwrap();
                real.in_store |= real.object.is_stored();
                sizes.push(real.size);
            }
            let event = execute::Event::Wrote { key, sizes };
            self.nodes[index].machine.handle(self.now, event);
        }
        let value = self.plans[client].tasks[key.task.0 as usize].value.clone();
        let says = process.outcome == Outcome::Exit(0) && !value.is_empty();
        let event = execute::Event::Ended {
            key,
            outcome: process.outcome,
            started: process.started,
            ended: self.now,
            detail: says.then(|| Arc::new(Detail { value, ..Detail::default() })),
        };
        self.nodes[index].machine.handle(self.now, event);
        self.pump(index);
    }

    // What a stage wants done.

    fn act_stage(&mut self, index: usize, action: stage::Action) {
        match action {
            stage::Action::Delete(gone) => {
                self.nodes[index].files.remove(&gone.object);
            }
            stage::Action::Fetch { fetch, partial, object, source, offset, length, .. } => {
                let node = &mut self.nodes[index];
                node.partials.entry(partial).or_default().object = Some(object.id);
                node.fetching.insert(fetch, (partial, offset));
                let life = node.incarnation;
                let request = Request { node: index, life, fetch, offset, length };
                self.fetch(index, request, object.id, source);
            }
            stage::Action::Seal { partial, object, size, .. } => {
                let mut file = self.nodes[index].partials.remove(&partial).unwrap_or_default();
                assert!(file.whole() >= size, "{object:?} is not whole");
                assert_eq!(size, self.objects.reals[&object.id].size);
                let result = self.write_result();
                if result.is_ok() {
                    self.nodes[index].files.insert(object.id, size);
                }
                self.stage_soon(index, stage::Event::Sealed { partial, result });
            }
            stage::Action::Discard { partial, .. } => self.discard(index, partial),
            stage::Action::Adopt { partial, object, .. } => {
                let result = self.write_result();
                if result.is_ok() {
                    self.nodes[index].files.insert(object.id, object.size.unwrap());
                }
                self.stage_soon(index, stage::Event::Adopted { partial, result });
            }
            stage::Action::Resolve(object) => {
                let now = if self.now < self.store_down_until {
                    Err(FetchError::Unreachable("the store is down".to_owned()))
                } else {
                    let becomes = self.objects.reals[&object.id].becomes.unwrap();
                    Ok(self.current(becomes))
                };
                self.stage_soon(index, stage::Event::Resolved { object: object.id, now });
            }
            stage::Action::Serve { serve, object, .. } => {
                assert!(self.nodes[index].files.contains_key(&object));
                self.nodes[index].serving.insert(serve, object);
                self.serve(index, serve, object);
            }
            stage::Action::Refuse { serve, why } => {
                let why = match why {
                    Refusal::Busy => FetchError::Busy,
                    Refusal::Coming => FetchError::Coming,
                    Refusal::Gone => FetchError::Gone,
                };
                if let Some(request) = self.serves.remove(&(index, serve)) {
                    self.answer(request, 0, Err(why));
                }
            }
            other => panic!("the shell is to do {other:?}"),
        }
    }

    /// What an object without a version has become; without one, it has an id
    /// of its own each time.
    fn current(&mut self, becomes: ObjectId) -> Arc<Object> {
        let real = self.objects.reals[&becomes].clone();
        if !real.object.is_unversioned() {
            return real.object;
        }
        let id = self.objects.make("s3://once/", "", real.size, true);
        let once = self.objects.reals.get_mut(&id).unwrap();
        once.in_store = true;
        once.object = Arc::new(Object { url: real.object.url.clone(), ..(*once.object).clone() });
        once.object.clone()
    }

    fn write_result(&mut self) -> Result<(), WriteError> {
        if !self.fault() || self.rng.percent(60) {
            return Ok(());
        }
        let full = self.rng.percent(50);
        Err(if full { WriteError::Full } else { WriteError::Failed("torn".to_owned()) })
    }

    fn discard(&mut self, index: usize, partial: PartialId) {
        let node = &mut self.nodes[index];
        node.partials.remove(&partial);
        node.fetching.retain(|_, (of, _)| *of != partial);
    }

    fn fetch(&mut self, index: usize, request: Request, object: ObjectId, source: Source) {
        if let Source::Peer(peer) = source {
            let at = self.nodes[index].peers.get(&peer).copied();
            let (node, life) = at.expect("a source was named, and not where it listens");
            self.soon(Due::Ask(node, life, object, request));
            return;
        }
        let real = self.objects.reals[&object].clone();
        if self.now < self.store_down_until {
            let why = FetchError::Unreachable("the store is down".to_owned());
            return self.answer(request, 0, Err(why));
        }
        if !real.in_store {
            return self.answer(request, 0, Err(FetchError::Gone));
        }
        if let Some(becomes) = real.becomes {
            let now = self.current(becomes);
            return self.answer(request, 0, Err(FetchError::Changed(now)));
        }
        self.transfer(request, real.size);
    }

    fn ask(&mut self, index: usize, life: u64, object: ObjectId, request: Request) {
        if !self.is_alive(index, life) {
            let why = FetchError::Unreachable("nobody listens".to_owned());
            return self.answer(request, 0, Err(why));
        }
        let serve = ServeId(self.next_serve);
        self.next_serve += 1;
        self.serves.insert((index, serve), request);
        self.handle_stage(index, stage::Event::Ask { serve, object });
    }

    fn serve(&mut self, index: usize, serve: ServeId, object: ObjectId) {
        let size = self.objects.reals[&object].size;
        if let Some(request) = self.serves.remove(&(index, serve)) {
            self.transfer(request, size);
        }
        self.stage_soon(index, stage::Event::Served(serve));
    }

    /// Bytes flow, all of them or a part.
    fn transfer(&mut self, request: Request, size: u64) {
        let length = request.length.unwrap_or(size.saturating_sub(request.offset));
        if !self.fault() {
            return self.answer(request, length, Ok(()));
        }
        let part = self.rng.below(length + 1);
        let why = match self.rng.below(6) {
            0 => return self.answer(request, 0, Err(FetchError::Gone)),
            1 => return self.answer(request, 0, Err(FetchError::Busy)),
            2 => FetchError::Unreachable("it broke off".to_owned()),
            3 => FetchError::Wrong("odd".to_owned()),
            4 => FetchError::Write(WriteError::Full),
            _ => FetchError::Refused("no".to_owned()),
        };
        self.answer(request, part, Err(why));
    }

    fn answer(&mut self, request: Request, bytes: u64, result: Result<(), FetchError>) {
        let Request { node, life, fetch, offset, .. } = request;
        if bytes > 0 {
            let until = offset + bytes;
            for until in (1..=until / (8 * MIB)).map(|at| at * 8 * MIB).chain([until]) {
                let event = stage::Event::Arriving { fetch, until };
                self.plan(self.now, Due::Stage(node, life, event));
            }
        }
        let event = match result {
            Ok(()) => stage::Event::Fetched { fetch, bytes },
            Err(why) => stage::Event::FetchFailed { fetch, bytes, why },
        };
        // A byte takes some ten nanoseconds.
        let at = self.now.after(1 + bytes / 100 + self.rng.below(20_000));
        self.plan(at, Due::Stage(node, life, event));
    }

    /// Something for a stage: what it says is on the disk by then.
    fn deliver(&mut self, index: usize, event: stage::Event) {
        let node = &mut self.nodes[index];
        match &event {
            stage::Event::Fetched { fetch, bytes }
            | stage::Event::FetchFailed { fetch, bytes, .. } => {
                if let Some((partial, offset)) = node.fetching.remove(fetch)
                    && let Some(file) = node.partials.get_mut(&partial)
                {
                    file.wrote(offset, *bytes);
                }
            }
            stage::Event::Served(serve) => {
                node.serving.remove(serve);
            }
            _ => {}
        }
        self.handle_stage(index, event);
    }

    // The end.

    /// Every task has ended as it may, and nothing is left behind.
    pub(crate) fn judge(&self) {
        for client in 0..self.plans.len() {
            if self.destroyed.contains(&client) {
                continue;
            }
            for task in 0..self.plans[client].tasks.len() as u64 {
                self.judge_task(client, task);
            }
        }
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.alive) {
            assert!(node.processes.is_empty(), "node {index} still runs something");
            assert!(node.sandboxes.is_empty(), "node {index}: {:?} are left", node.sandboxes);
            assert!(node.partials.is_empty(), "node {index}: files are left half made");
            let Some(stage) = node.machine.stage() else { continue };
            assert_eq!(stage.load(), (0, 0), "node {index} still stages something");
            let held: Vec<ObjectId> = node.files.keys().copied().collect();
            let cached: Vec<ObjectId> = stage.cache().entries().map(|(id, _)| id).collect();
            assert_eq!(held, cached, "node {index} holds something else than it says");
            for (object, entry) in stage.cache().entries() {
                assert!(entry.is_held && entry.pins == 0, "{object} is pinned for nothing");
            }
        }
    }

    /// How often tasks that had ended ran again for what they had left.
    pub(crate) fn remade(&self) -> u64 {
        self.dispatcher.instance_views().map(|view| view.counts().remade).sum()
    }

    fn judge_task(&self, client: usize, task: u64) {
        let plan = &self.plans[client].tasks[task as usize];
        let End { outcome, error } = &self.ends[&(client, task)];
        let Flavour { faults, churn, failures, .. } = self.flavour;
        let why = format!("task {task} of client {client}: {outcome:?} {error}");
        let any_missing = plan.inputs.iter().any(|id| self.objects.is_missing(*id));
        match outcome {
            Outcome::Exit(0) => assert!(!any_missing, "{why}: made of nothing"),
            Outcome::Exit(_) => {
                // Other failures use up the same tries.
                let others = faults > 0 || churn;
                assert!(failures && plan.fails > if others { 0 } else { plan.retries }, "{why}");
            }
            Outcome::Cancelled => assert!(self.cancelled.contains(&(client, task)), "{why}"),
            Outcome::UpstreamFailed(upstream) => {
                assert!(plan.after.contains(&upstream.0), "{why}");
                let end = &self.ends[&(client, upstream.0)];
                assert_ne!(end.outcome.status(), Status::Done, "{why}");
            }
            Outcome::NoInput => {
                assert!(!error.is_empty(), "{why}");
                // What was lost is made again, as long as that succeeds.
                let is_room = error.starts_with("no room for") || error.contains("larger cache");
                let no_remake = error.contains("was run again for that");
                let losses = churn && (is_room || no_remake);
                assert!(faults > 0 || losses || any_missing, "{why}");
            }
            Outcome::NoOutput => assert!(faults > 0 || error.contains("kept outputs"), "{why}"),
            Outcome::Lost => assert!(churn, "{why}"),
            _ => panic!("{why}"),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var("SEED").is_ok() {
            for line in &self.log {
                eprintln!("{line}");
            }
            eprintln!("{}", self.describe());
        }
    }
}

fn row_of(start: &Start, row: u64) -> &[u8] {
    let Rows::Packed(rows) = &*start.rows else { panic!("rows are packed") };
    rows.at(row).unwrap()
}
