//! A tree of dispatchers, relays and executors on a virtual clock.

mod account;
mod acts;
mod collected;
pub(crate) mod data;
mod faults;
mod kept;
mod parts;
mod submissions;

use crate::rng::Rng;
use falkon_core::data::stage;
use falkon_core::dispatch::diffusion::{PolicyName, PolicyOptions};
use falkon_core::dispatch::{self, ConnectionId, Dispatcher, InstanceOptions, Order, Record};
use falkon_core::execute::{self, CollectEvent, Executor, TaskKey};
use falkon_core::gang::GangKey;
use falkon_core::part::{PartAnswer, PartQuestion};
use falkon_core::provision::Waiting;
use falkon_core::relay::{self, Note, Relay};
use falkon_core::result::{Finished, Outcome};
use falkon_core::task::{InstanceId, Resources, Time};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const SECOND: u64 = 1_000_000;
/// The client of the dispatcher at the root.
const CLIENT: ConnectionId = ConnectionId(0);

/// Who is at the other end of a dispatcher's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Client,
    Node(usize),
    /// A relay, as an executor.
    Lender(usize),
    /// A relay, as a client of its own dispatcher.
    Owner(usize),
}

#[derive(Debug)]
enum Happening {
    Up(ConnectionId, dispatch::Event),
    Down(ConnectionId, Order),
    Unmet(ConnectionId, Vec<Waiting>),
    Welcome(ConnectionId),
    Connect(End),
    Ended(usize, u64, TaskKey, Outcome),
    GangEnded(usize, u64, GangKey),
    Restart(usize),
    /// A relay reaches its own dispatcher again.
    Reach(usize),
    Stage(usize, u64, stage::Event),
    Collect(usize, u64, CollectEvent),
    AskPart(ConnectionId, u64, PartQuestion),
    Part(ConnectionId, u64, PartAnswer),
}

/// A request of a relay to its own dispatcher.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Create,
    Submit,
    Withdraw,
    Subscribe,
    Staged,
    /// The dispatcher above knows the question by this number.
    Part(u64),
    Parts,
    Other,
}

/// A dispatcher with its journal, and the relay above it.
struct Site {
    core: Dispatcher,
    journal: Vec<Record>,
    alive: bool,
    /// Queues from which it requests nodes.
    queues: Vec<dispatch::Site>,
    /// The site above, and the relay that lends this one's executors to it.
    lends: Option<Lends>,
}

struct Lends {
    above: usize,
    relay: Relay,
    notes: Vec<Note>,
    connection: Option<ConnectionId>,
    owner: ConnectionId,
    asked: BTreeMap<u64, Asked>,
    last_subtree: Option<dispatch::Subtree>,
    /// It is connected to its own dispatcher.
    is_attached: bool,
}

struct Node {
    site: usize,
    machine: Executor,
    incarnation: u64,
    capacity: Resources,
    connection: Option<ConnectionId>,
    is_gone: bool,
    started: BTreeMap<TaskKey, (u64, Time)>,
    templates: BTreeMap<execute::TemplateId, Vec<u8>>,
}

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) rng: Rng,
    sites: Vec<Site>,
    nodes: Vec<Node>,
    ends: BTreeMap<ConnectionId, (usize, End)>,
    /// Messages arrive in the order in which they were sent.
    arrives: BTreeMap<(ConnectionId, bool), u64>,
    queue: BTreeMap<(u64, u64), Happening>,
    sequence: u64,
    next: u64,
    /// Relays die between a note and what follows it in so many of 100 cases.
    pub(crate) dies_percent: u64,
    /// Results at the client, by task.
    pub(crate) results: BTreeMap<u64, Finished>,
    pub(crate) submitted: u64,
    /// How often tasks were started, by their rows.
    pub(crate) starts: u64,
    /// Messages between all parts.
    pub(crate) messages: u64,
    /// How often processes of executors, by their incarnations, have started the task of a
    /// submission that runs everywhere, by the submission's number.
    pub(crate) everywhere: BTreeMap<(u64, u64), u64>,
    /// How many tasks the last submission became.
    accepted: u64,
    instance: Option<InstanceId>,
    /// What the root has withdrawn last.
    withdrawn: Vec<(u64, u64)>,
    data: data::Data,
    archives: collected::Archives,
    books: kept::Books,
    parts: parts::Parts,
    /// The account of what is sent, if there is one.
    accounts: Option<account::Accounts>,
    /// How long the shortest tasks run that were submitted.
    shortest_micros: u64,
    /// The policy of all dispatchers.
    policy: PolicyName,
    /// Tasks that write objects to caches alone.
    shuffled: Vec<u64>,
    /// How often something happened that tasks may be sent again for: faults, executors
    /// that come, and what people do to them.
    pub(crate) incidents: u64,
}

impl World {
    /// A dispatcher without executors.
    pub(crate) fn new(seed: u64) -> World {
        World::under(PolicyName::MaxComputeUtil, seed)
    }

    /// A dispatcher without executors, whose tasks go by a policy there and below.
    pub(crate) fn under(policy: PolicyName, seed: u64) -> World {
        let mut world = World {
            now: 1 << 40,
            rng: Rng::new(seed),
            sites: Vec::new(),
            nodes: Vec::new(),
            ends: BTreeMap::new(),
            arrives: BTreeMap::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            next: 1,
            dies_percent: 0,
            results: BTreeMap::new(),
            submitted: 0,
            starts: 0,
            messages: 0,
            everywhere: BTreeMap::new(),
            accepted: 0,
            instance: None,
            withdrawn: Vec::new(),
            data: data::Data::default(),
            archives: collected::Archives::default(),
            books: kept::Books::default(),
            parts: parts::Parts::default(),
            accounts: None,
            shortest_micros: u64::MAX,
            policy,
            shuffled: Vec::new(),
            incidents: 0,
        };
        world.sites.push(Site {
            core: Dispatcher::new(),
            journal: Vec::new(),
            alive: true,
            queues: Vec::new(),
            lends: None,
        });
        world.ends.insert(CLIENT, (0, End::Client));
        let policy = PolicyOptions { policy, ..PolicyOptions::default() };
        let options = InstanceOptions { policy, ..InstanceOptions::default() };
        let create = dispatch::Event::Create { connection: CLIENT, request: 0, options };
        world.tell(0, create);
        let instance = world.instance.expect("the dispatcher creates an instance");
        let subscribe =
            dispatch::Event::Subscribe { connection: CLIENT, request: 1, instance, from: 0 };
        world.tell(0, subscribe);
        world
    }

    /// A site whose executors are lent to the one above.
    pub(crate) fn site(&mut self, above: usize) -> usize {
        let site = self.sites.len();
        let identity = 1_000_000 + site as u64;
        let relay = Relay::new(identity, self.number(), format!("relay {site}"));
        let lends = Lends {
            above,
            notes: relay.notes(),
            relay,
            connection: None,
            owner: ConnectionId(0),
            asked: BTreeMap::new(),
            last_subtree: None,
            is_attached: false,
        };
        let core = Dispatcher::new();
        let (journal, queues, lends) = (Vec::new(), Vec::new(), Some(lends));
        self.sites.push(Site { core, journal, alive: true, queues, lends });
        self.open(site);
        site
    }

    /// An executor.
    pub(crate) fn node(&mut self, site: usize, capacity: Resources) -> usize {
        let incarnation = self.number();
        let machine = data::machine(self.nodes.len(), incarnation, capacity.clone());
        self.nodes.push(Node {
            site,
            machine,
            incarnation,
            capacity,
            connection: None,
            is_gone: false,
            started: BTreeMap::new(),
            templates: BTreeMap::new(),
        });
        let node = self.nodes.len() - 1;
        self.later(0, Happening::Connect(End::Node(node)));
        node
    }

    /// Whether the dispatchers tell executors who holds what.
    pub(crate) fn knows_places(&self) -> bool {
        self.policy.knows_places()
    }

    /// The processes of all executors.
    pub(crate) fn incarnations(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| node.incarnation).collect()
    }

    pub(crate) fn dispatcher(&self, site: usize) -> &Dispatcher {
        &self.sites[site].core
    }

    pub(crate) fn dispatcher_mut(&mut self, site: usize) -> &mut Dispatcher {
        &mut self.sites[site].core
    }

    pub(crate) fn relay(&self, site: usize) -> &Relay {
        &self.sites[site].lends.as_ref().unwrap().relay
    }

    pub(crate) fn site_count(&self) -> usize {
        self.sites.len()
    }

    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Does the next thing that happens. Returns whether there was any until then.
    pub(crate) fn step(&mut self, until: u64) -> bool {
        let timers = self.sites.iter().filter(|site| site.alive).flat_map(|site| {
            let relay = site.lends.as_ref().and_then(|lends| lends.relay.poll_timeout());
            [site.core.poll_timeout(), relay]
        });
        let nodes = self.nodes.iter().map(|node| node.machine.poll_timeout());
        let timer = timers.chain(nodes).flatten().map(|(at, _)| at.0).min();
        let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
        let Some(at) = [timer, queued].into_iter().flatten().min().filter(|at| *at <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(at);
        if queued == Some(at) {
            let (_, happening) = self.queue.pop_first().unwrap();
            self.happen(happening);
            return true;
        }
        let now = Time(self.now);
        for site in 0..self.sites.len() {
            if self.sites[site].alive {
                if self.sites[site].core.poll_timeout().is_some_and(|(at, _)| at <= now) {
                    self.sites[site].core.handle_timeout(now);
                    self.pump(site);
                }
                let lends = self.sites[site].lends.as_mut();
                if let Some(lends) = lends
                    && lends.relay.poll_timeout().is_some_and(|(at, _)| at <= now)
                {
                    lends.relay.handle_timeout(now);
                    self.pump_relay(site);
                }
            }
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].machine.poll_timeout().is_some_and(|(at, _)| at <= now) {
                self.nodes[node].machine.handle_timeout(now);
                self.pump_node(node);
            }
        }
        true
    }

    /// Goes on for so long.
    pub(crate) fn run(&mut self, micros: u64) {
        let until = self.now + micros;
        while self.step(until) {}
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn later(&mut self, micros: u64, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((self.now + micros, self.sequence), happening);
    }

    /// Sends a message over a connection, in its order.
    fn send(&mut self, connection: ConnectionId, is_up: bool, happening: Happening) {
        self.messages += 1;
        let is_own = matches!(self.ends.get(&connection), Some((_, End::Owner(_))));
        let latency = if is_own { 0 } else { 50 + self.rng.below(2000) };
        let arrives = self.arrives.entry((connection, is_up)).or_default();
        *arrives = (*arrives).max(self.now + latency);
        self.sequence += 1;
        self.queue.insert((*arrives, self.sequence), happening);
    }

    fn open(&mut self, site: usize) {
        let owner = ConnectionId(self.number());
        let now = Time(self.now);
        self.ends.insert(owner, (site, End::Owner(site)));
        let there = &self.sites[site].core;
        let lends = self.sites[site].lends.as_ref().unwrap();
        let before = lends.relay.instance().and_then(|id| there.instance_view(id));
        let accepted = before.map(|view| (view.id(), view.counts().total));
        let lends = self.sites[site].lends.as_mut().unwrap();
        lends.owner = owner;
        lends.is_attached = true;
        lends.asked.clear();
        lends.last_subtree = None;
        match accepted {
            Some((instance, total)) => {
                lends.relay.begin(instance, total);
                self.subscribe(site, instance, 0);
                self.await_staged(site, instance);
            }
            None => {
                let policy = PolicyOptions { policy: self.policy, ..PolicyOptions::default() };
                let options = InstanceOptions { policy, ..lends.relay.instance_options(None) };
                let request = self.ask(site, Asked::Create);
                let create = dispatch::Event::Create { connection: owner, request, options };
                self.sites[site].core.handle(now, create);
                self.pump(site);
            }
        }
        self.await_parts(site);
        self.later(0, Happening::Connect(End::Lender(site)));
    }

    fn subscribe(&mut self, site: usize, instance: InstanceId, from: u64) {
        let request = self.ask(site, Asked::Subscribe);
        let connection = self.sites[site].lends.as_ref().unwrap().owner;
        let event = dispatch::Event::Subscribe { connection, request, instance, from };
        self.send(connection, true, Happening::Up(connection, event));
    }

    fn await_staged(&mut self, site: usize, instance: InstanceId) {
        let request = self.ask(site, Asked::Staged);
        let connection = self.sites[site].lends.as_ref().unwrap().owner;
        let event = dispatch::Event::AwaitStaged { connection, request, instance };
        self.send(connection, true, Happening::Up(connection, event));
    }

    fn ask(&mut self, site: usize, asked: Asked) -> u64 {
        let request = self.number();
        self.sites[site].lends.as_mut().unwrap().asked.insert(request, asked);
        request
    }

    fn close(&mut self, connection: ConnectionId) {
        let Some((site, end)) = self.ends.remove(&connection) else { return };
        self.incidents += 1;
        self.tell(site, dispatch::Event::Closed { connection });
        self.parts_are_cut(connection);
        let reconnects = 20_000 + self.rng.below(200_000);
        let now = Time(self.now);
        match end {
            End::Node(node) => {
                self.nodes[node].connection = None;
                self.nodes[node].machine.handle(now, execute::Event::Disconnected);
                self.pump_node(node);
                self.later(reconnects, Happening::Connect(end));
            }
            End::Lender(below) => {
                let lends = self.sites[below].lends.as_mut().unwrap();
                lends.connection = None;
                lends.relay.handle(now, relay::Event::Disconnected);
                if self.sites[below].alive && self.is_attached(below) {
                    self.pump_relay(below);
                    self.later(reconnects, Happening::Connect(end));
                }
            }
            End::Client | End::Owner(_) => {}
        }
    }

    fn happen(&mut self, happening: Happening) {
        let now = Time(self.now);
        match happening {
            Happening::Up(connection, event) => {
                let Some((site, _)) = self.ends.get(&connection).copied() else { return };
                self.tell(site, event);
            }
            Happening::Down(connection, order) => match self.ends.get(&connection).copied() {
                Some((_, End::Node(node))) => {
                    order.data.iter().for_each(|data| self.hear_peers(node, data));
                    self.nodes[node].machine.handle(now, execute::Event::Order(order));
                    self.pump_node(node);
                }
                Some((_, End::Lender(site))) => {
                    let lends = self.sites[site].lends.as_mut().unwrap();
                    lends.relay.handle(now, relay::Event::Order(order));
                    self.pump_relay(site);
                }
                _ => {}
            },
            Happening::Unmet(connection, waiting) => {
                let Some((_, End::Lender(site))) = self.ends.get(&connection).copied() else {
                    return;
                };
                let lends = self.sites[site].lends.as_mut().unwrap();
                lends.relay.handle(now, relay::Event::Unmet(waiting));
                self.pump_relay(site);
            }
            Happening::Welcome(connection) => match self.ends.get(&connection).copied() {
                Some((_, End::Node(node))) => {
                    self.nodes[node].machine.handle(now, execute::Event::Connected);
                    self.pump_node(node);
                }
                Some((_, End::Lender(site))) => {
                    self.tell_subtree(site);
                    let lends = self.sites[site].lends.as_mut().unwrap();
                    lends.relay.handle(now, relay::Event::Connected { above: now });
                    self.tell_all_holdings(site);
                    self.pump_relay(site);
                }
                _ => {}
            },
            Happening::Connect(end) => self.connect(end),
            Happening::Ended(node, incarnation, key, outcome) => {
                let there = &mut self.nodes[node];
                if there.incarnation != incarnation {
                    return;
                }
                let Some((count, started)) = there.started.remove(&key) else { return };
                self.tell_written(node, key);
                let detail = if count == 1 { self.written(incarnation) } else { None };
                let there = &mut self.nodes[node];
                let ended = now;
                let event = execute::Event::Ended { key, outcome, started, ended, detail };
                there.machine.handle(now, event);
                self.pump_node(node);
            }
            Happening::GangEnded(node, incarnation, key) => {
                if self.nodes[node].incarnation == incarnation {
                    let event = execute::Event::GangEnded { key, usage: None };
                    self.nodes[node].machine.handle(now, event);
                    self.pump_node(node);
                }
            }
            Happening::Stage(node, incarnation, event) => self.stage(node, incarnation, event),
            Happening::Collect(node, incarnation, event) => {
                self.collect(node, incarnation, event);
            }
            Happening::AskPart(connection, number, question) => {
                self.asked_for_part(connection, number, question);
            }
            Happening::Part(connection, number, answer) => self.part(connection, number, answer),
            Happening::Reach(site) => {
                if self.sites[site].alive && !self.is_attached(site) {
                    self.open(site);
                }
            }
            Happening::Restart(site) => {
                let process = self.number();
                // A journal that was compacted says the same.
                let is_compacted = self.rng.percent(50);
                let there = &mut self.sites[site];
                if is_compacted {
                    there.journal = recovered(&there.journal).snapshot();
                }
                there.core = recovered(&there.journal);
                there.core.recovered(now);
                there.alive = true;
                let lends = there.lends.as_mut().unwrap();
                lends.relay = Relay::new(0, process, format!("relay {site}"));
                lends.notes.iter().for_each(|note| lends.relay.recover(*note));
                self.pump(site);
                self.open(site);
            }
        }
    }

    fn is_attached(&self, site: usize) -> bool {
        self.sites[site].lends.as_ref().is_some_and(|lends| lends.is_attached)
    }

    fn connect(&mut self, end: End) {
        let (site, is_there) = match end {
            End::Node(node) => {
                let there = &self.nodes[node];
                (there.site, there.connection.is_some() || there.is_gone)
            }
            End::Lender(below) => {
                let lends = self.sites[below].lends.as_ref().unwrap();
                let waits = !self.sites[below].alive || !lends.is_attached;
                (lends.above, lends.connection.is_some() || waits)
            }
            End::Client | End::Owner(_) => return,
        };
        if is_there {
            return;
        }
        if !self.sites[site].alive {
            self.later(50_000, Happening::Connect(end));
            return;
        }
        let connection = ConnectionId(self.number());
        self.incidents += 1;
        self.ends.insert(connection, (site, end));
        match end {
            End::Node(node) => self.nodes[node].connection = Some(connection),
            End::Lender(below) => {
                self.sites[below].lends.as_mut().unwrap().connection = Some(connection);
            }
            End::Client | End::Owner(_) => {}
        }
        self.send(connection, false, Happening::Welcome(connection));
    }

    fn tell(&mut self, site: usize, event: dispatch::Event) {
        if self.sites[site].alive {
            if let Some(accounts) = &mut self.accounts {
                accounts.heard(&event);
            }
            self.sites[site].core.handle(Time(self.now), event);
            self.pump(site);
        }
    }

    fn pump(&mut self, site: usize) {
        while self.sites[site].alive {
            let Some(action) = self.sites[site].core.poll_action() else { break };
            self.act(site, action);
        }
        self.sites[site].core.check().unwrap();
        if self.sites[site].alive && self.sites[site].lends.is_some() {
            self.tell_subtree(site);
        }
    }
}

fn recovered(journal: &[Record]) -> Dispatcher {
    let mut core = Dispatcher::new();
    for record in journal.iter().cloned() {
        core.recover(record).unwrap();
    }
    core
}

/// No executor or relay has more tasks that hold room than it has room, which each
/// task takes a CPU of.
pub(crate) fn assert_room(world: &World) {
    for site in 0..world.site_count() {
        for view in world.dispatcher(site).executor_views() {
            let (tasks, ahead) = view.load();
            let slots = u64::from(view.capacity().cpus_milli / 1000);
            let name = view.name();
            assert!(tasks - ahead <= slots, "{name}: {tasks} tasks, {ahead} of them ahead");
        }
    }
}

/// All parts of the tree are done.
pub(crate) fn assert_empty(world: &World) {
    for site in 1..world.site_count() {
        assert_eq!(world.relay(site).tasks(), 0, "relay {site} answers for tasks");
        for view in world.dispatcher(site).instance_views() {
            let counts = view.counts();
            assert_eq!(counts.ended(), counts.total, "site {site} has tasks left");
            assert_eq!(view.results_held().0, 0, "site {site} holds results");
        }
    }
    let all: BTreeSet<u64> = (0..world.submitted).collect();
    let ended: BTreeSet<u64> = world.results.keys().copied().collect();
    assert_eq!(ended, all);
}
