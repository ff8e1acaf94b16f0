//! Executors' shells: processes start and end, nodes leave and die.

use super::World;
use super::links::{Peer, Up};
use crate::client::Client;
use crate::fates::{Ran, collected_stream, failure_of, text_of, writes};
use crate::node::Process;
use crate::workload::{split_row, value_of};
use falkon_core::dispatch::{ConnectionId, Event};
use falkon_core::execute;
use falkon_core::gang::GangAction;
use falkon_core::result::{Detail, Outcome};
use falkon_core::task::{Kind, Rows, TaskClass};
use std::sync::Arc;

impl World {
    pub(super) fn tend_node(&mut self, index: usize) {
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
        while let Some(key) = self.nodes[index].reap_gang(self.now) {
            let ended = execute::Event::GangEnded { key, usage: None };
            self.nodes[index].handle(self.now, ended);
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
            if process.outcome == Outcome::Exit(0)
                && let Some(data) = &process.start.data
            {
                self.tell_written(index, key, &data.outputs);
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

    pub(super) fn pump_node(&mut self, index: usize) {
        while let Some(action) = self.nodes[index].poll() {
            self.note(|| format!("  node {index}: {action:?}"));
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
                execute::Action::Stage(action) => self.act_stage(index, action),
                execute::Action::Collect(action) => self.act_collect(index, action),
                execute::Action::Peers(peers) => {
                    for peer in peers {
                        let node = peer.serves.address.parse().unwrap();
                        self.nodes[index].files.peers.insert(peer.executor, node);
                    }
                }
                execute::Action::VisitEnded(..) => panic!("nobody visits"),
                execute::Action::Clear(key) => self.nodes[index].clear(key),
                execute::Action::Discard(runs) => self.nodes[index].discard(&runs),
                execute::Action::Gang(GangAction::Form { key, resources, grant, .. }) => {
                    self.nodes[index].form(key, resources, grant);
                }
                execute::Action::Gang(GangAction::Disband { key }) => {
                    let ends = self.now.after(self.rng.below(50_000));
                    self.nodes[index].disband(key, ends);
                }
                execute::Action::Left => {
                    self.nodes[index].files.assert_no_sandboxes();
                    self.nodes[index].left = true;
                    self.end_node(index);
                }
            }
        }
    }

    pub(super) fn start(&mut self, index: usize, start: execute::Start) {
        if let Some(before) = start.after
            && self.nodes[index].holds(before)
        {
            return self.nodes[index].hand_over(before, start);
        }
        let client_index = self.of_instance[&start.key.instance];
        let has_data = self.has_data();
        let (first, count) = (start.key.task.0, start.count);
        let mut micros = 1;
        let mut outcome = Outcome::Exit(0);
        for id in first..first + count {
            self.check_start(client_index, id, &start);
            let client = &self.clients[client_index];
            self.check_values(client, id, &start, id - first);
            let task = &client.plan.tasks[id as usize];
            let history = self.history.entry((client_index, id)).or_default();
            history.starts += 1;
            history.running += 1;
            if !self.faults.any() && !has_data && task.class.speculate {
                assert!(history.running <= 2, "three tries of task {id} run at once");
            } else if !self.faults.any() && !has_data {
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
                outcome = failure_of(task, client_index, id);
            }
        }
        self.starts.push((self.now, index, client_index, first));
        let now = self.now;
        self.nodes[index].spawn(start, now, micros, outcome);
    }

    /// A task starts with what it reads, and after what it waits for.
    pub(super) fn check_start(&self, client: usize, id: u64, start: &execute::Start) {
        let task = &self.clients[client].plan.tasks[id as usize];
        assert_eq!(*start.class, sent_class(&task.class, start), "task {id} runs as another class");
        let members = start.gang.as_ref().map_or(1, |gang| gang.members.len());
        assert_eq!(members, task.class.nodes as usize, "nodes of task {id} of client {client}");
        let inputs = start.data.as_ref().map_or(0, |data| data.inputs.len());
        let reads = task.data.as_ref().map_or(0, |data| data.inputs.len());
        assert_eq!(inputs, reads, "task {id} of client {client} reads something else");
        for upstream in &task.after {
            let history = self.history.get(&(client, *upstream));
            let done = history.is_some_and(|history| history.succeeded);
            assert!(done, "task {id} starts before {upstream} is done");
        }
    }

    /// A report's detail of a task that has ended: its value, and what its node
    /// keeps of what it wrote.
    pub(super) fn detail(
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
        detail.stdout.member = collected_stream(client, plan, task).map(Into::into);
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
    pub(super) fn check_values(&self, client: &Client, id: u64, start: &execute::Start, at: u64) {
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
    pub(super) fn end_node(&mut self, index: usize) {
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
        self.break_serves(index);
        self.break_offers(index);
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
    pub(super) fn lose_processes(&mut self, index: usize) {
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
}

/// A task's class as executors get it, with the alternative that it starts with.
fn sent_class(class: &TaskClass, start: &execute::Start) -> TaskClass {
    let alternative = start.class.alternative;
    if class.alternatives.is_empty() {
        return class.clone();
    }
    let request = class.requests().nth((alternative as usize).wrapping_sub(1));
    let resources = request.expect("its class has that alternative").clone();
    TaskClass { resources, alternatives: Vec::new(), alternative, ..class.clone() }
}
