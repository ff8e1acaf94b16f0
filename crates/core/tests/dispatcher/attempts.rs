//! How often tasks were tried is known across restarts: random schedules of
//! failures, losses and returns, with restarts at any point, against a
//! reference model.

use crate::fixture::{array, executor};
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, Held, InstanceOptions, Join, Order, Record, Update,
};
use falkon_core::limits::{LOSSES_MAX, RECONNECT_GRACE_MICROS};
use falkon_core::result::{Finished, Outcome, Report, Tries};
use falkon_core::task::{InstanceId, Submission, TaskClass, TaskId, Time};
use proptest::prelude::*;
use std::collections::BTreeMap;

const CLIENT: ConnectionId = ConnectionId(u64::MAX);
const INSTANCE: InstanceId = InstanceId(0);
const TASKS: u64 = 24;
const STEPS: u64 = 150;

/// How a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Queued(Tries),
    /// With an executor, by its incarnation.
    With(u64, Tries),
    Ended(Outcome, u32),
}

/// All that a journal is to remember of tasks.
#[derive(Debug, Clone)]
struct Model {
    tasks: Vec<Standing>,
    retries: Vec<u32>,
}

impl Model {
    fn ended(&mut self, task: u64, tries: Tries, outcome: Outcome) {
        let standing = &mut self.tasks[task as usize];
        let is_due = match *standing {
            Standing::Queued(known) | Standing::With(_, known) => known == tries,
            Standing::Ended(..) => false,
        };
        if !is_due {
            return;
        }
        let fails_again =
            outcome == Outcome::Exit(0) || tries.failures == self.retries[task as usize];
        *standing = match fails_again {
            true => Standing::Ended(outcome, tries.attempt()),
            false => Standing::Queued(Tries { failures: tries.failures + 1, ..tries }),
        };
    }

    fn lost_with(&mut self, incarnation: u64) {
        for standing in &mut self.tasks {
            if let Standing::With(at, tries) = *standing
                && at == incarnation
            {
                *standing = match tries.losses == LOSSES_MAX {
                    true => Standing::Ended(Outcome::Lost, tries.attempt()),
                    false => Standing::Queued(Tries { losses: tries.losses + 1, ..tries }),
                };
            }
        }
    }

    /// An executor has these tasks, and no others.
    fn has(&mut self, incarnation: u64, held: &BTreeMap<u64, Tries>) {
        for (task, standing) in (0..).zip(&mut self.tasks) {
            if let Standing::With(at, tries) = *standing
                && at == incarnation
                && held.get(&task) != Some(&tries)
            {
                *standing = Standing::Queued(tries);
            }
        }
    }
}

#[derive(Debug)]
struct Node {
    incarnation: u64,
    connection: Option<ConnectionId>,
    updates: u64,
    held: BTreeMap<u64, Tries>,
    /// Reports that the dispatcher may not have taken in.
    reports: Vec<Report>,
}

/// How far a dispatcher gets with a round before it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crash {
    Not,
    BeforeItsRecords,
    BeforeItsMessages,
}

#[derive(Debug)]
struct World {
    seed: u64,
    now: u64,
    dispatcher: Dispatcher,
    journal: Vec<Record>,
    model: Model,
    nodes: Vec<Node>,
    next: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            seed,
            now: 0,
            dispatcher: Dispatcher::new(),
            journal: Vec::new(),
            model: Model { tasks: Vec::new(), retries: Vec::new() },
            nodes: Vec::new(),
            next: 0,
        };
        let options = InstanceOptions::default();
        world.handle(Event::Create { connection: CLIENT, request: 0, options });
        let retries: Vec<u32> = (0..4).map(|_| world.below(4) as u32).collect();
        let classes =
            retries.iter().map(|retries| TaskClass { retries: *retries, ..TaskClass::default() });
        let each = TASKS / 4;
        let submission = Submission {
            classes: classes.collect(),
            class_runs: (0..4).map(|class| (each, class)).collect(),
            ..array(TASKS)
        };
        world.model.tasks = vec![Standing::Queued(Tries::default()); TASKS as usize];
        world.model.retries = (0..TASKS).map(|task| retries[(task / each) as usize]).collect();
        let (instance, first) = (INSTANCE, TaskId(0));
        world.handle(Event::Submit {
            connection: CLIENT,
            request: 1,
            instance,
            first,
            client: 1,
            submission,
        });
        world.round(Crash::Not);
        world
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % bound
    }

    fn handle(&mut self, event: Event) {
        self.dispatcher.handle(Time(self.now), event);
    }

    /// The dispatcher acts on what it was told, as far as it comes.
    fn round(&mut self, crash: Crash) {
        let actions: Vec<Action> = std::iter::from_fn(|| self.dispatcher.poll_action()).collect();
        self.dispatcher.check().unwrap();
        if crash == Crash::BeforeItsRecords {
            return;
        }
        for action in actions {
            match action {
                Action::Journal(record) => {
                    match &record {
                        Record::ExecutorGone { incarnation } => self.model.lost_with(*incarnation),
                        Record::Finished { results, .. } => self.judge(results),
                        _ => {}
                    }
                    self.journal.push(record);
                }
                Action::Order { connection, order } => {
                    self.assigned(connection, &order, crash == Crash::Not);
                }
                _ => {}
            }
        }
    }

    /// Tasks go to an executor with the tries that the model knows of them.
    fn assigned(&mut self, connection: ConnectionId, order: &Order, arrives: bool) {
        let node = self.nodes.iter_mut().find(|node| node.connection == Some(connection));
        let Some(node) = node else { return };
        // What was reported twice; what it has is nobody else's.
        for held in &order.disown {
            for task in held.first.0..held.first.0 + held.count {
                assert_eq!(node.held.get(&task), None, "task {task} is disowned");
            }
        }
        for run in &order.assign {
            for task in run.first.0..run.first.0 + run.count {
                let standing = &mut self.model.tasks[task as usize];
                assert_eq!(*standing, Standing::Queued(run.tries), "task {task} is sent");
                *standing = Standing::With(node.incarnation, run.tries);
                if arrives {
                    node.held.insert(task, run.tries);
                }
            }
        }
        if arrives && order.acknowledged == node.updates {
            node.reports.clear();
        }
    }

    fn judge(&self, results: &[Finished]) {
        for run in results {
            for task in run.first.0..run.first.0 + run.count {
                let ended = Standing::Ended(run.outcome, run.attempts);
                assert_eq!(self.model.tasks[task as usize], ended, "task {task}");
            }
        }
    }

    /// A new executor.
    fn arrive(&mut self) {
        self.next += 1;
        let incarnation = self.next;
        let (held, reports) = (BTreeMap::new(), Vec::new());
        self.nodes.push(Node { incarnation, connection: None, updates: 0, held, reports });
        self.connect(self.nodes.len() - 1);
    }

    fn connect(&mut self, at: usize) {
        self.next += 1;
        let connection = ConnectionId(self.next);
        let node = &mut self.nodes[at];
        node.connection = Some(connection);
        node.updates = 0;
        for report in &node.reports {
            self.model.ended(report.first.0, report.tries, report.outcome);
        }
        self.model.has(node.incarnation, &node.held);
        let held = node.held.iter().map(|(task, tries)| held(*task, *tries));
        let join = Join {
            held: held.collect(),
            reports: node.reports.clone(),
            ..executor(node.incarnation, 2)
        };
        self.handle(Event::Join { connection, join });
    }

    /// An executor reports how some of its tasks ended, or returns them.
    fn speak(&mut self, may_fail: bool) {
        let at = self.below(self.nodes.len() as u64) as usize;
        let Some(connection) = self.nodes[at].connection else { return };
        let held: Vec<(u64, Tries)> = self.nodes[at].held.clone().into_iter().collect();
        let mut update = Update { number: self.nodes[at].updates + 1, ..Update::default() };
        for (task, tries) in held {
            let what = self.below(10);
            match what {
                0..5 => {}
                5 if may_fail => {
                    let standing = &mut self.model.tasks[task as usize];
                    *standing = Standing::Queued(tries);
                    self.nodes[at].held.remove(&task);
                    update.returned.push(self::held(task, tries));
                }
                _ => {
                    let outcome =
                        if may_fail && what < 9 { Outcome::Exit(1) } else { Outcome::Exit(0) };
                    self.nodes[at].held.remove(&task);
                    let report = Report {
                        instance: INSTANCE,
                        first: TaskId(task),
                        count: 1,
                        tries,
                        outcome,
                        started: Time(self.now - 1),
                        ended: Time(self.now),
                        detail: None,
                    };
                    self.model.ended(task, tries, outcome);
                    self.nodes[at].reports.push(report.clone());
                    update.reports.push(report);
                }
            }
        }
        self.nodes[at].updates += 1;
        self.handle(Event::Update { connection, update });
    }

    /// An executor is gone for good, whether its dispatcher knows or not.
    fn die(&mut self) {
        let at = self.below(self.nodes.len() as u64) as usize;
        let node = self.nodes.swap_remove(at);
        if let Some(connection) = node.connection {
            self.handle(Event::Closed { connection });
        }
    }

    /// Everybody who is there is heard from for so long.
    fn pass(&mut self, micros: u64, crash: Crash) {
        let end = self.now + micros;
        loop {
            let due = self.dispatcher.poll_timeout().map(|(at, _)| at.0).filter(|at| *at <= end);
            self.now = due.unwrap_or(end).max(self.now);
            for at in 0..self.nodes.len() {
                let Some(connection) = self.nodes[at].connection else { continue };
                self.nodes[at].updates += 1;
                let update = Update { number: self.nodes[at].updates, ..Update::default() };
                self.handle(Event::Update { connection, update });
            }
            self.dispatcher.handle_timeout(Time(self.now));
            if due.is_none() || crash != Crash::Not {
                return;
            }
            self.round(Crash::Not);
        }
    }

    fn restart(&mut self) {
        let mut dispatcher = Dispatcher::new();
        for record in &self.journal {
            dispatcher.recover(record.clone()).unwrap();
        }
        dispatcher.recovered(Time(self.now));
        self.dispatcher = dispatcher;
        self.nodes.iter_mut().for_each(|node| node.connection = None);
    }

    fn all_come_back(&mut self) {
        for at in 0..self.nodes.len() {
            if self.nodes[at].connection.is_none() {
                self.connect(at);
                self.round(Crash::Not);
            }
        }
    }

    /// One thing happens; the dispatcher may be killed on the way.
    fn step(&mut self) {
        self.now += 1 + self.below(1_000);
        let crash = match self.below(10) {
            0 => Crash::BeforeItsRecords,
            1 => Crash::BeforeItsMessages,
            _ => Crash::Not,
        };
        let mut before = self.model.clone();
        let what = self.below(20);
        match what {
            _ if self.nodes.is_empty() => self.arrive(),
            0 if self.nodes.len() < 4 => self.arrive(),
            1 => self.die(),
            2 => {
                self.all_come_back();
                before = self.model.clone();
                self.pass(RECONNECT_GRACE_MICROS, crash);
            }
            3 => {
                self.round(Crash::Not);
                self.journal = self.dispatcher.snapshot();
                before = self.model.clone();
            }
            4..10 => {
                let away = self.nodes.iter().position(|node| node.connection.is_none());
                away.into_iter().for_each(|at| self.connect(at));
            }
            _ => self.speak(true),
        }
        self.round(crash);
        if crash == Crash::BeforeItsRecords {
            self.model = before;
        }
        if crash != Crash::Not {
            self.restart();
        }
    }

    fn play(&mut self) {
        for _ in 0..STEPS {
            self.step();
        }
        self.arrive();
        self.all_come_back();
        let all_ended = |world: &World| {
            let counts = world.dispatcher.instance_view(INSTANCE).unwrap().counts();
            counts.done + counts.failed == TASKS
        };
        for _ in 0..2_000 {
            if all_ended(self) {
                break;
            }
            self.pass(RECONNECT_GRACE_MICROS / 4, Crash::Not);
            self.round(Crash::Not);
            self.speak(false);
            self.round(Crash::Not);
        }
        assert!(all_ended(self), "{:?}", self.model.tasks);
    }
}

fn held(task: u64, tries: Tries) -> Held {
    Held { instance: INSTANCE, first: TaskId(task), count: 1, tries }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn tries_are_counted_as_if_the_dispatcher_had_never_ended(seed: u64) {
        World::new(seed).play();
    }
}

/// A dispatcher is killed when a part of a round's records is written: that an
/// executor is given up, and not yet that its tasks are lost.
#[test]
fn tasks_of_an_executor_that_was_given_up_are_lost_wherever_the_journal_ends() {
    let mut world = World::new(1);
    world.arrive();
    world.round(Crash::Not);
    world.die();
    let written = world.journal.len();
    world.now += RECONNECT_GRACE_MICROS;
    world.dispatcher.handle_timeout(Time(world.now));
    world.round(Crash::Not);
    let gone = |record: &Record| matches!(record, Record::ExecutorGone { .. });
    let at = written + world.journal[written..].iter().position(gone).unwrap();
    assert!(at + 1 < world.journal.len(), "the losses are recorded behind it");
    world.journal.truncate(at + 1);
    world.restart();
    world.play();
}
