//! One dispatcher, some executors and some clients on a virtual clock, joined
//! by connections that keep order, delay, and break. One seed gives one
//! schedule.
//!
//! This file is long because the parts of a world share its clock, its links
//! and its books.

use crate::attempts::standing;
use crate::client::Client;
use crate::disk::Disk;
use crate::fates::{Fate, History, Ran, check_detail, failure_of, text_of, writes};
use crate::losses::Losses;
use crate::node::{Node, Process};
use crate::rng::Rng;
use crate::workload::{Plan, split_row, value_of};
use falkon_core::dispatch::{
    Action, ConnectionId, Delivery, Dispatcher, Event, Order, Record, Reply,
};
use falkon_core::execute;
use falkon_core::limits::PREFETCH_TASKS_MAX;
use falkon_core::result::{Detail, Outcome};
use falkon_core::task::{InstanceId, Kind, Resources, Rows, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Node(usize),
    Client(usize),
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all of them are the large one")]
enum Up {
    Event(Box<Event>),
    Closed,
}

#[derive(Debug)]
enum Down {
    Order(Order),
    Reply(u64, Reply),
    Delivery(Delivery),
    Closed,
}

/// A connection. Each direction ends with `Closed` once.
#[derive(Debug)]
struct Link {
    peer: Peer,
    up: VecDeque<(Time, Up)>,
    down: VecDeque<(Time, Down)>,
    up_open: bool,
    down_open: bool,
    /// Nothing that is sent from now on arrives, and nobody notices.
    muted: bool,
}

/// Which faults may happen, until `until`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faults {
    pub(crate) until: Time,
    pub(crate) cuts: bool,
    pub(crate) silence: bool,
    pub(crate) deaths: bool,
    pub(crate) restarts: bool,
    /// All processes of some node are killed, many times a second.
    pub(crate) storms: bool,
}

impl Faults {
    pub(crate) fn none() -> Faults {
        Faults {
            until: Time(0),
            cuts: false,
            silence: false,
            deaths: false,
            restarts: false,
            storms: false,
        }
    }
}

/// How a dispatcher is killed in the middle of a round.
#[derive(Debug, Clone, Copy)]
enum Crash {
    /// Nothing of the round is written or sent.
    Before,
    /// All of it is written and some of it sent.
    After,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) now: Time,
    pub(crate) dispatcher: Dispatcher,
    journal: Vec<Record>,
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
    faults: Faults,
    next_fault: Option<Time>,
    history: BTreeMap<(usize, u64), History>,
    of_instance: BTreeMap<InstanceId, usize>,
    losses: Losses,
    pub(crate) steps: u64,
    pub(crate) messages: u64,
    delay_micros: u64,
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
            dispatcher: Dispatcher::new(),
            journal: Vec::new(),
            disk: None,
            lengths: None,
            is_over: false,
            crash: None,
            links: BTreeMap::new(),
            next_connection: 0,
            nodes,
            clients: plans.into_iter().map(Client::new).collect(),
            faults,
            next_fault: faults.any().then_some(Time(1)),
            history: BTreeMap::new(),
            of_instance: BTreeMap::new(),
            losses: Losses::default(),
            steps: 0,
            messages: 0,
            delay_micros,
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
        let dispatcher = new_dispatcher(disk.as_ref());
        let lengths = Some(Rng::new(seed ^ 0x1043));
        World { dispatcher, disk, lengths, ..World::new(seed, capacities, plans, faults) }
    }

    /// Goes on until all clients are done; panics if they are not by `limit`.
    pub(crate) fn run(&mut self, limit: Time) {
        while !self.clients.iter().all(Client::is_done) {
            if !self.step() || self.now > limit || self.steps > STEPS_MAX {
                panic!("at {:?} after {} steps: {}", self.now, self.steps, self.describe());
            }
        }
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
        next.extend(self.next_fault.map(|at| (at, Happening::Fault)));
        next.into_iter().min_by_key(|(at, happening)| (*at, happening.rank(self.steps)))
    }

    /// One thing happens. Returns `false` if nothing will ever happen again.
    pub(crate) fn step(&mut self) -> bool {
        let Some((at, happening)) = self.next() else { return false };
        self.steps += 1;
        self.now = self.now.max(at);
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
        }
        true
    }

    // Connections.

    fn arrival(&mut self, last: Option<Time>) -> Time {
        let delay = 1 + self.rng.below(self.delay_micros);
        self.now.after(delay).max(last.unwrap_or_default())
    }

    fn send_up(&mut self, id: u64, up: Up) {
        self.messages += 1;
        let last = self.links.get(&id).and_then(|link| link.up.back().map(|(at, _)| *at));
        let at = self.arrival(last);
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.up_open && !link.muted {
            link.up_open = !matches!(up, Up::Closed);
            link.up.push_back((at, up));
        }
    }

    fn send_down(&mut self, id: u64, down: Down) {
        self.messages += 1;
        let last = self.links.get(&id).and_then(|link| link.down.back().map(|(at, _)| *at));
        let at = self.arrival(last);
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.down_open && !link.muted {
            link.down_open = !matches!(down, Down::Closed);
            link.down.push_back((at, down));
        }
    }

    /// The end `at_peer` is told that the connection is over, perhaps after
    /// what is under way to it.
    fn close_towards(&mut self, id: u64, at_peer: bool) {
        let lossy = self.rng.percent(50);
        let Some(link) = self.links.get_mut(&id) else { return };
        link.muted = false;
        if at_peer {
            if lossy && link.down_open {
                link.down.clear();
            }
            self.send_down(id, Down::Closed);
        } else {
            if lossy && link.up_open {
                link.up.clear();
            }
            self.send_up(id, Up::Closed);
        }
    }

    /// The network cuts a connection.
    fn cut(&mut self, id: u64) {
        self.close_towards(id, true);
        self.close_towards(id, false);
    }

    fn connect(&mut self, peer: Peer) -> u64 {
        let id = self.next_connection;
        self.next_connection += 1;
        self.links.insert(
            id,
            Link {
                peer,
                up: VecDeque::new(),
                down: VecDeque::new(),
                up_open: true,
                down_open: true,
                muted: false,
            },
        );
        id
    }

    fn drop_if_over(&mut self, id: u64) {
        let over = self.links.get(&id).is_some_and(|link| {
            !link.up_open && !link.down_open && link.up.is_empty() && link.down.is_empty()
        });
        if over {
            self.links.remove(&id);
        }
    }

    fn arrive_up(&mut self, id: u64) {
        let Some((_, up)) = self.links.get_mut(&id).and_then(|link| link.up.pop_front()) else {
            return;
        };
        let event = match up {
            Up::Event(event) => *event,
            Up::Closed => Event::Closed { connection: ConnectionId(id) },
        };
        if let Some(incarnation) = self.incarnation(id) {
            self.losses.hear(incarnation, &event);
        }
        self.dispatcher.handle(self.now, event);
        self.drop_if_over(id);
        // Sometimes more is handled before the polling.
        let more =
            self.links.values().any(|link| link.up.front().is_some_and(|(at, _)| *at <= self.now));
        if !more || self.rng.percent(50) {
            self.drain();
        }
    }

    fn arrive_down(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let peer = link.peer;
        let Some((_, down)) = link.down.pop_front() else { return };
        match peer {
            Peer::Node(index) if self.nodes[index].connection == Some(id) => {
                let node = &mut self.nodes[index];
                match down {
                    Down::Order(order) => node.handle(self.now, execute::Event::Order(order)),
                    Down::Closed => {
                        node.connection = None;
                        let wait = if self.rng.percent(80) { 500_000 } else { 6_000_000 };
                        node.reconnect_at = Some(self.now.after(self.rng.below(wait)));
                        node.handle(self.now, execute::Event::Disconnected);
                        self.close_towards(id, false);
                    }
                    other => panic!("an executor was sent {other:?}"),
                }
                self.pump_node(index);
            }
            Peer::Client(index) if self.clients[index].connection == Some(id) => {
                self.client_hears(index, id, down);
            }
            _ => {}
        }
        self.drop_if_over(id);
    }

    // The dispatcher.

    fn drain(&mut self) {
        let mut messages = Vec::new();
        let mut records = Vec::new();
        while let Some(action) = self.dispatcher.poll_action() {
            match action {
                Action::Journal(record) => records.push(record),
                other => messages.push(other),
            }
        }
        self.dispatcher.check().unwrap();
        for view in self.dispatcher.executor_views() {
            let (_, ahead) = view.load();
            assert!(ahead <= PREFETCH_TASKS_MAX, "executor {} was sent {ahead} ahead", view.id());
        }
        let sent = match self.crash.take() {
            None => messages.len(),
            Some(Crash::Before) => {
                self.restart();
                return;
            }
            Some(Crash::After) => self.rng.below(messages.len() as u64 + 1) as usize,
        };
        let whole = sent == messages.len();
        self.losses.written();
        for record in &records {
            if let Record::ExecutorGone { incarnation } = record {
                self.losses.gone(*incarnation);
            }
        }
        for action in &messages {
            if let Action::Order { connection, order } = action
                && let Some(incarnation) = self.incarnation(connection.0)
            {
                self.losses.sent(incarnation, order);
            }
        }
        self.journal.extend(records);
        for action in messages.into_iter().take(sent) {
            let action = match &mut self.disk {
                Some(disk) => disk.carry_out(self.now, action),
                None => Some(action),
            };
            action.into_iter().for_each(|action| self.carry_out(action));
        }
        if !whole {
            self.restart();
        } else if self.rng.percent(2) {
            self.compact();
        }
    }

    /// The executor at the other end of a connection.
    fn incarnation(&self, id: u64) -> Option<u64> {
        match self.links.get(&id)?.peer {
            Peer::Node(index) => Some(self.nodes[index].incarnation),
            Peer::Client(_) => None,
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Journal(_) => unreachable!("sorted out before"),
            Action::Reply { connection, request, reply } => {
                self.send_down(connection.0, Down::Reply(request, reply));
            }
            Action::Deliver { connection, delivery } => {
                self.send_down(connection.0, Down::Delivery(delivery));
            }
            // A client has one connection, and destroys what it has created.
            Action::Gone { .. } | Action::Expired { .. } | Action::AwaitWritten { .. } => {}
            Action::StorePage { .. } | Action::LoadPage { .. } | Action::DropPages { .. } => {
                panic!("there is no disk for pages");
            }
            Action::Order { connection, order } => self.send_down(connection.0, Down::Order(order)),
            Action::Close { connection, .. } | Action::Refuse { connection, .. } => {
                if let Some(link) = self.links.get_mut(&connection.0) {
                    link.up.clear();
                    link.up_open = false;
                    link.muted = false;
                }
                self.send_down(connection.0, Down::Closed);
            }
        }
    }

    /// A dispatcher made from the journal alone.
    fn recovered(&self) -> Dispatcher {
        let mut dispatcher = new_dispatcher(self.disk.as_ref());
        for record in &self.journal {
            dispatcher.recover(record.clone()).unwrap();
        }
        dispatcher.recovered(self.now);
        dispatcher.check().unwrap();
        dispatcher
    }

    /// One that takes over, and so moves results to disk while it reads.
    fn take_over(&mut self) {
        let mut dispatcher = new_dispatcher(self.disk.as_ref());
        for record in &self.journal {
            dispatcher.recover(record.clone()).unwrap();
            if let Some(disk) = &mut self.disk {
                disk.store_recovering(&mut dispatcher, self.now);
            }
        }
        dispatcher.recovered(self.now);
        dispatcher.check().unwrap();
        if let Some(disk) = &mut self.disk {
            disk.restarted(&dispatcher);
        }
        self.dispatcher = dispatcher;
    }

    /// The journal is compacted to a snapshot, which must say the same.
    fn compact(&mut self) {
        let before = self.recovered();
        self.journal = self.dispatcher.snapshot();
        let after = self.recovered();
        let now = standing(&self.journal);
        assert_eq!(standing(&before.snapshot()), now, "how tasks stand is not in the journal");
        assert_eq!(standing(&after.snapshot()), now, "how tasks stand is not in the snapshot");
        for place in after.page_places() {
            let is_known = self.disk.as_ref().is_some_and(|disk| disk.is_known(&place));
            assert!(is_known, "a snapshot refers to a page that was dropped");
        }
        for view in self.dispatcher.instance_views() {
            let counts = |dispatcher: &Dispatcher| {
                let counts = dispatcher.instance_view(view.id()).expect("recovered").counts();
                (counts.total, counts.done, counts.failed, counts.cancelled)
            };
            assert_eq!(counts(&before), counts(&after), "journal and snapshot differ");
            let now = view.counts();
            let (total, done, failed, cancelled) = counts(&after);
            assert_eq!(total, now.total);
            assert_eq!(done, now.done, "a result was lost or made up");
            // Tasks to be cancelled that were in flight have no executor now.
            assert!(failed >= now.failed && cancelled >= now.cancelled);
        }
        assert_eq!(
            before.instance_views().count(),
            self.dispatcher.instance_views().count(),
            "an instance was lost or made up"
        );
    }

    /// `kill -9`, and a new process that knows the journal.
    fn restart(&mut self) {
        let ids: Vec<u64> = self.links.keys().copied().collect();
        for id in ids {
            if let Some(link) = self.links.get_mut(&id) {
                link.up.clear();
                link.up_open = false;
            }
            self.close_towards(id, true);
            self.drop_if_over(id);
        }
        self.losses.forget_round();
        self.take_over();
        self.drain();
    }

    // Executors.

    fn tend_node(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.reconnect_at.is_some_and(|at| at <= self.now) {
            node.reconnect_at = None;
            let id = self.connect(Peer::Node(index));
            let node = &mut self.nodes[index];
            node.connection = Some(id);
            node.handle(self.now, execute::Event::Connected);
        }
        let delay = self.rng.below(2_000);
        for key in self.nodes[index].answer(self.now, delay) {
            self.nodes[index].handle(self.now, execute::Event::TakenBack(key));
        }
        while let Some((key, process)) = self.nodes[index].reap(self.now) {
            // The next one starts before anybody hears of the end.
            if let Some(start) = self.nodes[index].waiting.remove(&key) {
                self.start(index, execute::Start { after: None, ..start });
            }
            let client = self.of_instance[&key.instance];
            for task in key.task.0..key.task.0 + process.start.count {
                self.history.entry((client, task)).or_default().ended(Ran {
                    incarnation: self.nodes[index].incarnation,
                    started: process.started,
                    ended: process.ends,
                    outcome: process.outcome,
                });
            }
            let ended = execute::Event::Ended {
                key,
                outcome: process.outcome,
                started: process.started,
                ended: process.ends,
                detail: self.detail(index, client, key.task.0, &process),
            };
            self.nodes[index].handle(self.now, ended);
        }
        let node = &mut self.nodes[index];
        if node.machine.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
            node.machine.handle_timeout(self.now);
        }
        self.pump_node(index);
    }

    fn pump_node(&mut self, index: usize) {
        while let Some(action) = self.nodes[index].poll() {
            let connection = self.nodes[index].connection;
            let link = connection.map(ConnectionId);
            match action {
                execute::Action::Join(join) => {
                    let connection = link.expect("joins when connected");
                    self.send_up(
                        connection.0,
                        Up::Event(Box::new(Event::Join { connection, join })),
                    );
                }
                execute::Action::Update(update) => {
                    let connection = link.expect("speaks when connected");
                    self.send_up(
                        connection.0,
                        Up::Event(Box::new(Event::Update { connection, update })),
                    );
                }
                execute::Action::Prepare { template, .. } => {
                    assert!(self.nodes[index].templates.insert(template));
                }
                execute::Action::Forget(template) => {
                    assert!(self.nodes[index].templates.remove(&template));
                }
                execute::Action::Start(start) => self.start(index, start),
                execute::Action::Kill { key, grace_micros } => {
                    let micros = self.rng.below(grace_micros.max(1) + 1);
                    self.nodes[index].kill(key, self.now, micros);
                }
                execute::Action::TakeBack(key) => {
                    let due = self.now.after(self.rng.below(2_000));
                    self.nodes[index].request(due, key, None);
                }
                execute::Action::Stage(_)
                | execute::Action::Peers(_)
                | execute::Action::VisitEnded(..)
                | execute::Action::Clear(_) => panic!("no task has data here"),
                execute::Action::Discard(runs) => self.nodes[index].discard(&runs),
                execute::Action::Left => {
                    self.nodes[index].left = true;
                    self.end_node(index);
                }
            }
        }
    }

    fn start(&mut self, index: usize, start: execute::Start) {
        if let Some(before) = start.after
            && self.nodes[index].holds(before)
        {
            let other = self.nodes[index].waiting.insert(before, start);
            assert!(other.is_none(), "two tasks come after one");
            return;
        }
        let client_index = self.of_instance[&start.key.instance];
        let client = &self.clients[client_index];
        let (first, count) = (start.key.task.0, start.count);
        let mut micros = 1;
        let mut outcome = Outcome::Exit(0);
        for id in first..first + count {
            let task = &client.plan.tasks[id as usize];
            assert_eq!(*start.class, task.class, "task {id} runs as another class");
            for upstream in &task.after {
                let done = self
                    .history
                    .get(&(client_index, *upstream))
                    .is_some_and(|history| history.succeeded);
                assert!(done, "task {id} starts before {upstream} is done");
            }
            self.check_values(client, id, &start, id - first);
            let history = self.history.entry((client_index, id)).or_default();
            history.starts += 1;
            history.running += 1;
            if !self.faults.any() {
                assert_eq!(history.running, 1, "task {id} runs twice at once");
                assert!(!history.succeeded, "task {id} runs again");
                assert_eq!(u64::from(start.attempt), history.starts, "attempts of task {id}");
            }
            if task.class.kind == Kind::Noop {
                continue;
            }
            micros = task.micros.max(1);
            if task.hangs {
                micros = u64::MAX / 4;
            } else if task.always_fails() || history.failed < task.fails {
                outcome = failure_of(client_index, id);
            }
        }
        self.starts.push((self.now, index, client_index, first));
        let now = self.now;
        self.nodes[index].spawn(start, now, micros, outcome);
    }

    /// A report's detail of a task that has ended: its value, and what its node
    /// keeps of what it wrote.
    fn detail(
        &mut self,
        node: usize,
        client: usize,
        task: u64,
        process: &Process,
    ) -> Option<Arc<Detail>> {
        let plan = &self.clients[client].plan.tasks[task as usize];
        let mut detail = Detail::default();
        if process.outcome == Outcome::Exit(0) {
            detail.value = value_of(plan, task);
        }
        if writes(plan, task) {
            detail.stdout.head = text_of(client, task);
            detail.stdout.total_bytes = detail.stdout.head.len() as u64;
        }
        let is_long = self.lengths.as_mut().is_some_and(|lengths| lengths.percent(40));
        if is_long && process.start.class.kind == Kind::Process {
            detail.stdout.total_bytes = 1 << 20;
            detail.stdout.overflow = self.nodes[node].keep();
            if process.ends.0.is_multiple_of(3) {
                detail.stderr = detail.stdout.clone();
            }
        }
        (detail != Detail::default()).then(|| Arc::new(detail))
    }

    /// A task starts with the values that it was submitted to take.
    fn check_values(&self, client: &Client, id: u64, start: &execute::Start, at: u64) {
        let Rows::Packed(rows) = &*start.rows else {
            assert_eq!(client.plan.tasks[id as usize].takes, 0);
            return;
        };
        let (values, _) = split_row(rows.at(start.row + at).unwrap());
        let value = |task: &u64| value_of(&client.plan.tasks[*task as usize], *task);
        let Some(versions) = client.takes.get(&id) else {
            assert!(values.is_empty(), "task {id} is given what it does not take");
            return;
        };
        let right = versions.iter().any(|taken| taken.iter().map(value).eq(values.iter().copied()));
        assert!(right, "task {id} starts with {values:?} of {versions:?}");
    }

    /// A node is gone, with all that ran there.
    fn end_node(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.alive = false;
        node.reconnect_at = None;
        node.clear_waiting();
        for (key, process) in std::mem::take(&mut node.processes) {
            let client = self.of_instance[&key.instance];
            for task in key.task.0..key.task.0 + process.start.count {
                if let Some(history) = self.history.get_mut(&(client, task)) {
                    history.running -= 1;
                }
            }
        }
        if let Some(id) = self.nodes[index].connection.take() {
            if let Some(link) = self.links.get_mut(&id) {
                link.down.clear();
                link.down_open = false;
            }
            self.close_towards(id, false);
            self.drop_if_over(id);
        }
    }

    /// All processes of a node are killed at once; those that were to come
    /// after them do not start.
    fn lose_processes(&mut self, index: usize) {
        for key in self.nodes[index].lose_processes(self.now) {
            self.nodes[index].handle(self.now, execute::Event::TakenBack(key));
        }
        self.pump_node(index);
    }

    /// A node is asked to leave.
    pub(crate) fn leave(&mut self, index: usize) {
        self.nodes[index].handle(self.now, execute::Event::Leave);
        self.pump_node(index);
    }

    // Clients.

    fn tend_client(&mut self, index: usize) {
        self.clients[index].wake_at = None;
        if self.clients[index].connection.is_none() {
            let id = self.connect(Peer::Client(index));
            self.clients[index].connection = Some(id);
        }
        let Some(id) = self.clients[index].connection else { return };
        if let Some(event) = self.clients[index].request(&mut self.rng) {
            self.send_up(id, Up::Event(Box::new(event)));
        }
    }

    fn client_hears(&mut self, index: usize, id: u64, down: Down) {
        let client = &mut self.clients[index];
        match down {
            Down::Reply(request, reply) => {
                client.reply(request, reply);
                if let Some(instance) = client.instance {
                    self.of_instance.insert(instance, index);
                }
                let pause = if self.rng.percent(50) { 1_000 } else { 100_000 };
                client.wake_at = Some(self.now.after(self.rng.below(pause)));
            }
            Down::Delivery(delivery) => {
                let written = Event::Written { connection: ConnectionId(id), messages: 1 };
                self.dispatcher.handle(self.now, written);
                for found in &delivery.results {
                    check_detail(index, &client.plan.tasks, found);
                    let name =
                        delivery.executors.iter().find(|(id, _)| found.executor == Some(*id));
                    let incarnation = name.and_then(|(_, name)| name.strip_prefix("node-"));
                    let incarnation = incarnation.map(|number| number.parse().unwrap());
                    for task in found.first.0..found.first.0 + found.count {
                        let history = self.history.entry((index, task)).or_default();
                        history.check(task, found, incarnation);
                    }
                }
                client.receive(&delivery);
                let last = delivery.complete || self.rng.percent(70);
                let upto = client.log.len() as u64;
                let connection = ConnectionId(id);
                let instance = delivery.instance;
                if last {
                    let event = Event::Acknowledge { connection, instance, upto };
                    self.send_up(id, Up::Event(Box::new(event)));
                }
            }
            Down::Closed => {
                client.disconnected();
                client.wake_at = Some(self.now.after(self.rng.below(1_000_000)));
                self.close_towards(id, false);
            }
            Down::Order(order) => panic!("a client was sent {order:?}"),
        }
    }

    // Faults.

    fn fault(&mut self) {
        if self.now >= self.faults.until {
            self.next_fault = None;
            // The first node is there for good: whoever is muted is cut, so
            // that it comes back.
            let muted: Vec<u64> =
                self.links.iter().filter(|(_, link)| link.muted).map(|(id, _)| *id).collect();
            for id in muted {
                self.cut(id);
            }
            return;
        }
        if self.faults.storms {
            let index = self.rng.below(self.nodes.len() as u64) as usize;
            self.lose_processes(index);
        }
        let pause = if self.faults.storms { 200_000 } else { 600_000 };
        self.next_fault = Some(self.now.after(1 + self.rng.below(pause)));
        let ids: Vec<u64> = self.links.keys().copied().collect();
        match self.rng.below(6) {
            0 | 1 if self.faults.cuts && !ids.is_empty() => {
                let id = *self.rng.pick(&ids);
                self.cut(id);
            }
            2 if self.faults.silence && !ids.is_empty() => {
                let id = *self.rng.pick(&ids);
                if let Some(link) = self.links.get_mut(&id)
                    && matches!(link.peer, Peer::Node(_))
                    && link.up_open
                    && link.down_open
                {
                    link.muted = true;
                }
            }
            3 if self.faults.deaths && self.nodes.len() > 1 => {
                let index = 1 + self.rng.below(self.nodes.len() as u64 - 1) as usize;
                if self.nodes[index].alive {
                    match self.rng.below(4) {
                        0 | 1 => self.end_node(index),
                        2 => self.leave(index),
                        _ => self.lose_processes(index),
                    }
                } else if self.nodes.len() < 12 {
                    let mut node =
                        Node::new(1 + self.nodes.len() as u64, self.nodes[index].capacity.clone());
                    node.reconnect_at = Some(self.now);
                    self.nodes.push(node);
                }
            }
            4 if self.faults.restarts => {
                let how = if self.rng.percent(50) { Crash::Before } else { Crash::After };
                self.crash = Some(how);
            }
            5 if self.faults.restarts && self.rng.percent(50) => self.restart(),
            _ => {}
        }
    }

    // What must be true in the end.

    /// How many tasks ended as lost.
    pub(crate) fn lost(&self) -> usize {
        let ends = self.clients.iter().flat_map(|client| &client.log);
        ends.filter(|(_, outcome, _)| *outcome == Outcome::Lost).count()
    }

    /// Every client's results are those of the model.
    pub(crate) fn judge(&self) {
        for (index, client) in self.clients.iter().enumerate() {
            if client.destroyed {
                continue;
            }
            let plan = &client.plan;
            assert_eq!(client.log.len(), plan.tasks.len(), "client {index} has not all results");
            let mut ends = vec![(Outcome::Unreadable, 0); plan.tasks.len()];
            for (task, outcome, attempts) in &client.log {
                ends[*task as usize] = (*outcome, *attempts);
            }
            let outcomes: Vec<Outcome> = ends.iter().map(|(outcome, _)| *outcome).collect();
            let none = History::default();
            for (at, task) in plan.tasks.iter().enumerate() {
                let id = at as u64;
                let attempts = ends[at].1;
                let history = self.history.get(&(index, id)).unwrap_or(&none);
                let losses = client.instance.map_or(0, |instance| self.losses.of(instance, id));
                let came_back =
                    client.instance.is_some_and(|instance| self.losses.came_back(instance, id));
                let was_cancelled = client.cancelled.contains(id);
                let fate = Fate {
                    client: index,
                    id,
                    task,
                    history,
                    losses,
                    came_back,
                    was_cancelled,
                    attempts,
                };
                fate.judge(&outcomes);
                let starts = history.starts;
                if ran(outcomes[at]) {
                    assert!(starts <= u64::from(attempts), "{starts} starts: {fate:?}");
                }
                let is_calm = !self.faults.any() && client.cancelled.is_empty();
                assert!(!is_calm || starts == u64::from(attempts), "{starts} starts: {fate:?}");
            }
        }
    }

    /// At rest, executors keep exactly what the results refer to that the
    /// dispatcher holds.
    fn judge_outputs(&self) {
        let of_clients = self.clients.iter().flat_map(Client::kept_outputs);
        let of_clients = of_clients.filter(|_| !self.is_over);
        let mut held: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for overflow in of_clients {
            held.entry(overflow.incarnation).or_default().insert(overflow.number);
        }
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.alive) {
            let held = held.remove(&node.incarnation).unwrap_or_default();
            assert_eq!(node.kept, held, "node {index} keeps what no result refers to, or less");
        }
    }

    /// All instances are destroyed and all nodes leave; nothing is left over.
    pub(crate) fn wind_up(&mut self) {
        self.run_for(30_000_000);
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.alive) {
            assert!(node.connection.is_some(), "node {index} has not come back");
            assert!(node.machine.is_idle(), "node {index} still has something to do");
            let kept = node.templates.len();
            let live = self.clients.iter().filter(|client| !client.is_done()).count();
            assert!(kept == 0 || live > 0, "node {index} keeps {kept} templates");
        }
        self.judge_outputs();
        let ids: Vec<InstanceId> = self.dispatcher.instance_views().map(|view| view.id()).collect();
        for (request, instance) in ids.into_iter().enumerate() {
            let connection = ConnectionId(u64::MAX);
            let request = request as u64;
            self.dispatcher.handle(self.now, Event::Destroy { connection, request, instance });
        }
        self.drain();
        self.is_over = true;
        self.run_for(1_000_000);
        self.judge_outputs();
        for index in 0..self.nodes.len() {
            if self.nodes[index].alive {
                self.leave(index);
            }
        }
        self.run_for(30_000_000);
        assert!(self.nodes.iter().all(|node| !node.alive), "a node did not leave");
        assert_eq!(self.dispatcher.executor_views().count(), 0);
        assert_eq!(self.dispatcher.instance_views().count(), 0);
        assert_eq!(self.dispatcher.poll_timeout(), None);
        assert!(self.disk.as_ref().is_none_or(Disk::is_empty), "a page outlives all instances");
        self.dispatcher.check().unwrap();
        let rest: Vec<Record> = self.recovered().snapshot();
        assert!(rest.len() <= 4, "a journal of nothing is compacted to {rest:?}");
    }
}

/// Whether a task may have run that ended so.
fn ran(outcome: Outcome) -> bool {
    let stopped = [Outcome::TimedOut, Outcome::Lost, Outcome::Cancelled].contains(&outcome);
    stopped || matches!(outcome, Outcome::Exit(_) | Outcome::Signal(_) | Outcome::NoOutput)
}

fn new_dispatcher(disk: Option<&Disk>) -> Dispatcher {
    let mut dispatcher = Dispatcher::new();
    if let Some(disk) = disk {
        dispatcher.page_results(disk.bounds());
    }
    dispatcher
}

impl Faults {
    fn any(&self) -> bool {
        self.cuts || self.silence || self.deaths || self.restarts || self.storms
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
        };
        (mine ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}
