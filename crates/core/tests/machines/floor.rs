//! A dispatcher and executors that run tasks of arrays, without faults and
//! without clients that listen: small enough to serve minutes of many instances
//! in a moment.

use crate::queue::Queue;
use crate::rng::Rng;
use falkon_core::dispatch::{Action, ConnectionId, Dispatcher, Event, InstanceOptions, UserLimits};
use falkon_core::execute::{self, Executor, Start, TaskKey};
use falkon_core::gang::{GangAction, GangToken};
use falkon_core::result::Outcome;
use falkon_core::task::{
    InstanceId, Range, Resources, Rows, Submission, TaskClass, TaskId, Time, UserId,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The first of the connections of users' clients: that of the owner.
const CLIENT: ConnectionId = ConnectionId(u64::MAX / 2);

/// Tasks of one need: as many, which run about so long.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) count: u64,
    pub(crate) class: TaskClass,
    pub(crate) micros: u64,
}

/// The tasks of one instance, and when they are submitted.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) comes: Time,
    pub(crate) groups: Vec<Group>,
    pub(crate) user: UserId,
}

/// A task that was started: whose, where, from when until when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) instance: usize,
    pub(crate) node: usize,
    pub(crate) from: Time,
    pub(crate) until: Time,
    /// On how many executors.
    pub(crate) width: u32,
}

#[derive(Debug)]
struct Node {
    machine: Executor,
    running: BTreeMap<TaskKey, Time>,
    /// Started tasks that wait for others to end, by the other.
    waiting: BTreeMap<TaskKey, Start>,
    /// When the last message in each direction arrives.
    last_up: Time,
    last_down: Time,
}

#[derive(Debug)]
enum Happening {
    Up(Event),
    Down(usize, execute::Event),
    End(usize, TaskKey),
    Come(usize),
}

#[derive(Debug)]
pub(crate) struct Floor {
    rng: Rng,
    now: Time,
    pub(crate) dispatcher: Dispatcher,
    nodes: Vec<Node>,
    loads: Vec<Load>,
    /// By the number of the instance.
    came: Vec<usize>,
    queue: Queue<Happening>,
    delay_micros: u64,
    pub(crate) runs: Vec<Run>,
}

impl Floor {
    pub(crate) fn new(seed: u64, capacities: &[Resources], loads: Vec<Load>) -> Floor {
        let mut rng = Rng::new(seed);
        let delay_micros = *rng.pick(&[1, 100, 1_000, 5_000]);
        let node = |(at, capacity): (usize, &Resources)| Node {
            machine: Executor::new(1 + at as u64, format!("node-{at}"), capacity.clone()),
            running: BTreeMap::new(),
            waiting: BTreeMap::new(),
            last_up: Time(0),
            last_down: Time(0),
        };
        let mut floor = Floor {
            rng,
            now: Time(0),
            dispatcher: Dispatcher::new(),
            nodes: capacities.iter().enumerate().map(node).collect(),
            came: Vec::new(),
            queue: Queue::new(),
            delay_micros,
            runs: Vec::new(),
            loads,
        };
        for at in 0..floor.nodes.len() {
            floor.queue.plan(Time(0), Happening::Down(at, execute::Event::Connected));
        }
        for at in 0..floor.loads.len() {
            floor.queue.plan(floor.loads[at].comes, Happening::Come(at));
        }
        floor
    }

    /// There is a user.
    pub(crate) fn set_user(&mut self, user: UserId, limits: UserLimits) {
        self.dispatcher.handle(self.now, Event::UserSet { user, limits });
    }

    pub(crate) fn run_until(&mut self, until: Time) {
        loop {
            let queued = self.queue.due();
            let of_dispatcher = self.dispatcher.poll_timeout().map(|(at, _)| at);
            let timeout = |node: &Node| node.machine.poll_timeout().map(|(at, _)| at);
            let of_nodes = self.nodes.iter().filter_map(timeout).min();
            let next = [queued, of_dispatcher, of_nodes].into_iter().flatten().min();
            let Some(at) = next.filter(|at| *at <= until) else { break };
            self.now = self.now.max(at);
            if of_dispatcher == Some(at) {
                self.dispatcher.handle_timeout(self.now);
                self.drain();
            } else if of_nodes == Some(at) {
                for node in 0..self.nodes.len() {
                    self.nodes[node].machine.handle_timeout(self.now);
                    self.pump(node);
                }
            } else if let Some(what) = self.queue.pop() {
                self.happen(what);
            }
        }
        self.now = until;
        self.dispatcher.check().unwrap();
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Up(event) => {
                self.dispatcher.handle(self.now, event);
                self.drain();
            }
            Happening::Down(node, event) => {
                self.nodes[node].machine.handle(self.now, event);
                self.pump(node);
            }
            Happening::End(node, key) => self.end(node, key),
            Happening::Come(load) => self.come(load),
        }
    }

    fn come(&mut self, load: usize) {
        let user = self.loads[load].user;
        let connection = ConnectionId(CLIENT.0 + user.0);
        self.dispatcher.handle(self.now, Event::SpeaksFor { connection, user });
        let instance = InstanceId(self.came.len() as u64);
        self.came.push(load);
        let options = InstanceOptions { keep_results: true, ..InstanceOptions::default() };
        self.dispatcher.handle(self.now, Event::Create { connection, request: 0, options });
        let mut first = 0;
        for group in &self.loads[load].groups {
            let count = group.count;
            let submission = Submission {
                data: None,
                count,
                template: Arc::new(Vec::new()),
                rows: Rows::Computed {
                    factors: vec![Range { start: 0, step: 1, count }],
                    offset: 0,
                },
                classes: vec![group.class.clone()],
                class_runs: vec![(count, 0)],
                names: None,
                after: Vec::new(),
                everywhere: None,
            };
            let (request, client) = (1, 1);
            let submit = Event::Submit {
                connection,
                request,
                instance,
                first: TaskId(first),
                client,
                submission,
            };
            self.dispatcher.handle(self.now, submit);
            first += count;
        }
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(action) = self.dispatcher.poll_action() {
            if let Action::DrawTokens { count } = &action {
                let tokens = vec![GangToken::default(); *count as usize];
                self.dispatcher.handle(self.now, Event::TokensDrawn(tokens));
            }
            if let Action::Order { connection, order } = action {
                let node = connection.0 as usize;
                let at = self.now.after(1 + self.rng.below(self.delay_micros));
                let at = at.max(self.nodes[node].last_down);
                self.nodes[node].last_down = at;
                self.queue.plan(at, Happening::Down(node, execute::Event::Order(order)));
            }
        }
    }

    fn pump(&mut self, node: usize) {
        while let Some(action) = self.nodes[node].machine.poll_action() {
            let connection = ConnectionId(node as u64);
            match action {
                execute::Action::Join(join) => self.send(node, Event::Join { connection, join }),
                execute::Action::Update(update) => {
                    self.send(node, Event::Update { connection, update });
                }
                execute::Action::Start(start) => self.start(node, start),
                execute::Action::TakeBack(key) => {
                    let of = &mut self.nodes[node];
                    let before = of.waiting.iter().find(|(_, start)| start.key == key);
                    if let Some(before) = before.map(|(before, _)| *before) {
                        of.waiting.remove(&before);
                        if let Some(next) = of.waiting.remove(&key) {
                            of.waiting.insert(before, next);
                        }
                        of.machine.handle(self.now, execute::Event::TakenBack(key));
                    }
                }
                execute::Action::Gang(GangAction::Disband { key }) => {
                    let (at, usage) = (self.now.after(1_000), None);
                    let ended = execute::Event::GangEnded { key, usage };
                    self.queue.plan(at, Happening::Down(node, ended));
                }
                execute::Action::Gang(GangAction::Form { .. })
                | execute::Action::Prepare { .. }
                | execute::Action::Forget(_)
                | execute::Action::Discard(_)
                | execute::Action::Left => {}
                other => panic!("{other:?} of tasks that need nothing of the kind"),
            }
        }
    }

    fn send(&mut self, node: usize, event: Event) {
        let at = self.now.after(1 + self.rng.below(self.delay_micros));
        let at = at.max(self.nodes[node].last_up);
        self.nodes[node].last_up = at;
        self.queue.plan(at, Happening::Up(event));
    }

    fn start(&mut self, node: usize, start: Start) {
        let of = &mut self.nodes[node];
        let (key, count) = (start.key, start.count);
        assert_eq!(count, 1, "a process is a task");
        let waits_for = start.after.filter(|before| {
            of.running.contains_key(before) || of.waiting.values().any(|one| one.key == *before)
        });
        if let Some(before) = waits_for {
            of.waiting.insert(before, start);
            return;
        }
        let instance = self.came[key.instance.0 as usize];
        let mut first = key.task.0;
        let mut groups = self.loads[instance].groups.iter();
        let found = groups.find(|group| match first.checked_sub(group.count) {
            Some(rest) => {
                first = rest;
                false
            }
            None => true,
        });
        let micros = found.unwrap().micros;
        let micros = micros / 2 + self.rng.below(micros.max(1));
        let until = self.now.after(micros.max(1));
        self.nodes[node].running.insert(key, self.now);
        let width = start.class.nodes;
        self.runs.push(Run { instance, node, from: self.now, until, width });
        self.queue.plan(until, Happening::End(node, key));
    }

    fn end(&mut self, node: usize, key: TaskKey) {
        let Some(started) = self.nodes[node].running.remove(&key) else { return };
        if let Some(next) = self.nodes[node].waiting.remove(&key) {
            self.start(node, Start { after: None, ..next });
        }
        let (outcome, ended, detail) = (Outcome::Exit(0), self.now, None);
        let ended = execute::Event::Ended { key, outcome, started, ended, detail };
        self.nodes[node].machine.handle(self.now, ended);
        self.pump(node);
    }
}
