//! Tasks that run once on each executor: random schedules of executors that join,
//! connect anew, leave, die and lie, with restarts of the dispatcher at any point.
//! What is to come of each task follows from the journal.

use crate::fixture::{array, executor};
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, Held, InstanceOptions, Join, Order, Record, Reply,
    RequestError, Selection, Update,
};
use falkon_core::limits::{RECONNECT_GRACE_MICROS, RESERVE_AFTER_MICROS};
use falkon_core::result::{Cause, Finished, Outcome, Report, Tries};
use falkon_core::task::{
    Everywhere, InstanceId, Resources, Submission, SubmissionError, SubmissionPart, TaskClass,
    TaskId, Time,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const CLIENT: ConnectionId = ConnectionId(u64::MAX);
const STEPS: u64 = 120;
const INSTANCES: u64 = 8;
/// The slots of each executor.
const CPUS: u32 = 2;

type Task = (InstanceId, u64);

/// A task that is to run on each executor.
fn everywhere(cpus: u32, joining: bool) -> Submission {
    let resources = Resources::cpus(cpus);
    Submission {
        classes: vec![TaskClass { resources, ..TaskClass::default() }],
        everywhere: Some(Everywhere { joining, ..Everywhere::default() }),
        ..array(1)
    }
}

/// What a journal says.
#[derive(Debug, Default)]
struct Told {
    /// The executors that are there.
    present: BTreeSet<u64>,
    /// Whose each task is.
    owners: BTreeMap<Task, u64>,
    /// The needs of instances' tasks.
    cpus: BTreeMap<InstanceId, u32>,
    /// Which executors are to have a task of which instance, and how many.
    wanted: BTreeMap<(InstanceId, u64), u64>,
    /// Instances whose tasks executors get that join.
    joining: BTreeSet<InstanceId>,
    ended: BTreeMap<Task, Finished>,
}

impl Told {
    /// An executor registers, as one that joins or comes back.
    fn seen(&mut self, incarnation: u64) {
        if !self.present.insert(incarnation) {
            return;
        }
        for id in &self.joining {
            *self.wanted.entry((*id, incarnation)).or_default() += 1;
        }
    }
}

#[derive(Debug)]
struct Node {
    incarnation: u64,
    connection: Option<ConnectionId>,
    updates: u64,
    held: BTreeMap<Task, Tries>,
    /// Reports that the dispatcher may not have taken in.
    reports: Vec<Report>,
    /// The first of them were in a message of this session.
    sent: usize,
    leaving: bool,
}

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
    told: Told,
    nodes: Vec<Node>,
    /// Executors that have said to this dispatcher that they leave; some are gone.
    left: BTreeSet<u64>,
    /// Who completed which task.
    ran: BTreeMap<Task, Vec<u64>>,
    next: u64,
    instances: u64,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            seed,
            now: 1,
            dispatcher: Dispatcher::new(),
            journal: Vec::new(),
            told: Told::default(),
            nodes: Vec::new(),
            left: BTreeSet::new(),
            ran: BTreeMap::new(),
            next: 0,
            instances: 0,
        }
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

    fn round(&mut self, crash: Crash) {
        let actions: Vec<Action> = std::iter::from_fn(|| self.dispatcher.poll_action()).collect();
        self.dispatcher.check().unwrap();
        if crash == Crash::BeforeItsRecords {
            return;
        }
        for action in actions {
            match action {
                Action::Journal(record) => {
                    self.tell(&record);
                    self.journal.push(record);
                }
                Action::Order { connection, order } => {
                    self.order(connection, &order, crash == Crash::Not);
                }
                _ => {}
            }
        }
    }

    fn tell(&mut self, record: &Record) {
        let told = &mut self.told;
        match record {
            Record::ExecutorSeen { incarnation, .. } => told.seen(*incarnation),
            Record::ExecutorGone { incarnation } => {
                told.present.remove(incarnation);
            }
            Record::Joining { instance, .. } => {
                told.joining.insert(*instance);
                self.is_accepted(*instance);
            }
            Record::Sealed { instance } => {
                told.joining.remove(instance);
            }
            Record::Submitted { instance, first, submission, .. } => {
                let Some(everywhere) = &submission.everywhere else { return };
                let is_first = !told.wanted.keys().any(|(id, _)| id == instance);
                let owners = everywhere.executors.iter().copied();
                told.owners.extend((first.0..).map(|task| (*instance, task)).zip(owners));
                let cpus = submission.classes[0].resources.cpus_milli / 1000;
                told.cpus.insert(*instance, cpus);
                if is_first {
                    self.is_accepted(*instance);
                }
            }
            Record::Finished { instance, results, .. } => {
                for run in results {
                    for task in run.first.0..run.first.0 + run.count {
                        let before = told.ended.insert((*instance, task), run.clone());
                        assert_eq!(before, None, "task {task} of {instance} ended twice");
                        let Some(owner) = told.owners.get(&(*instance, task)) else { continue };
                        if let Some(id) = run.executor {
                            let name = self.dispatcher.executor_name(id);
                            assert_eq!(name, Some(&*owner.to_string()), "its own executor");
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// A task for each executor is accepted: those that are there are to have one.
    fn is_accepted(&mut self, id: InstanceId) {
        for incarnation in self.told.present.difference(&self.left) {
            *self.told.wanted.entry((id, *incarnation)).or_insert(1) = 1;
        }
    }

    fn order(&mut self, connection: ConnectionId, order: &Order, arrives: bool) {
        let node = self.nodes.iter_mut().find(|node| node.connection == Some(connection));
        let Some(node) = node else { return };
        for run in &order.assign {
            for task in run.first.0..run.first.0 + run.count {
                let task = (run.instance, task);
                if let Some(owner) = self.told.owners.get(&task) {
                    assert_eq!(*owner, node.incarnation, "{task:?} goes to its own executor");
                    assert_eq!(run.count, 1);
                }
                if arrives {
                    node.held.insert(task, run.tries);
                }
            }
        }
        if !arrives {
            return;
        }
        for held in &order.disown {
            let same = |task: &Task, tries: &Tries| {
                task.0 == held.instance && task.1 == held.first.0 && *tries == held.tries
            };
            node.held.retain(|task, tries| !same(task, tries));
        }
        if order.acknowledged == node.updates {
            node.reports.drain(..node.sent);
            node.sent = 0;
        }
        let cancelled: Vec<Held> = order.cancel.clone();
        for held in cancelled {
            let task = (held.instance, held.first.0);
            if node.held.remove(&task).is_some() {
                let report = report(task, held.tries, Outcome::Cancelled, self.now);
                node.reports.push(report);
            }
        }
    }

    fn arrive(&mut self) {
        self.next += 1;
        self.nodes.push(Node {
            incarnation: self.next,
            connection: None,
            updates: 0,
            held: BTreeMap::new(),
            reports: Vec::new(),
            sent: 0,
            leaving: false,
        });
        self.connect(self.nodes.len() - 1);
    }

    fn connect(&mut self, at: usize) {
        self.next += 1;
        let connection = ConnectionId(self.next);
        // It may claim to have, or to have run, what is another's.
        let claimed = self.claim(at);
        let node = &mut self.nodes[at];
        node.connection = Some(connection);
        node.updates = 0;
        let mut held: Vec<Held> =
            node.held.iter().map(|(task, tries)| held(*task, *tries)).collect();
        let mut reports = node.reports.clone();
        node.sent = reports.len();
        match claimed {
            Some((task, true)) => held.push(self::held(task, Tries::default())),
            Some((task, false)) => {
                reports.push(report(task, Tries::default(), Outcome::Exit(0), self.now));
            }
            None => {}
        }
        let join = Join {
            held,
            reports,
            name: node.incarnation.to_string(),
            ..executor(node.incarnation, CPUS)
        };
        self.handle(Event::Join { connection, join });
    }

    /// Sometimes, a task that is another executor's, and whether it claims to have it.
    fn claim(&mut self, at: usize) -> Option<(Task, bool)> {
        let mine = self.nodes[at].incarnation;
        let others: Vec<Task> = self
            .told
            .owners
            .iter()
            .filter(|(_, owner)| **owner != mine)
            .map(|(task, _)| *task)
            .collect();
        if others.is_empty() || self.below(3) > 0 {
            return None;
        }
        let task = others[self.below(others.len() as u64) as usize];
        Some((task, self.below(2) == 0))
    }

    fn speak(&mut self, may_fail: bool) {
        let at = self.below(self.nodes.len() as u64) as usize;
        let Some(connection) = self.nodes[at].connection else { return };
        let held: Vec<(Task, Tries)> = self.nodes[at].held.clone().into_iter().collect();
        let number = self.nodes[at].updates + 1;
        let mut update = Update { number, ..Update::default() };
        for (task, tries) in held {
            match self.below(10) {
                0..5 => {}
                5 if may_fail => {
                    self.nodes[at].held.remove(&task);
                    update.returned.push(self::held(task, tries));
                }
                what => {
                    let code = i32::from(may_fail && what == 6);
                    self.nodes[at].held.remove(&task);
                    let incarnation = self.nodes[at].incarnation;
                    self.ran.entry(task).or_default().push(incarnation);
                    let report = report(task, tries, Outcome::Exit(code), self.now);
                    self.nodes[at].reports.push(report);
                }
            }
        }
        update.reports = self.nodes[at].reports.clone();
        self.nodes[at].sent = update.reports.len();
        if let Some((task, false)) = self.claim(at) {
            update.reports.push(report(task, Tries::default(), Outcome::Exit(0), self.now));
        }
        self.nodes[at].updates = number;
        self.handle(Event::Update { connection, update });
    }

    /// An executor says that it leaves, gives back what it has not begun, and goes
    /// later.
    fn leave(&mut self) {
        let at = self.below(self.nodes.len() as u64) as usize;
        let Some(connection) = self.nodes[at].connection else { return };
        let held: Vec<(Task, Tries)> = self.nodes[at].held.clone().into_iter().collect();
        let number = self.nodes[at].updates + 1;
        let mut update = Update { number, leaving: true, ..Update::default() };
        for (task, tries) in held {
            if self.below(2) == 0 {
                self.nodes[at].held.remove(&task);
                update.returned.push(self::held(task, tries));
            }
        }
        self.nodes[at].updates = number;
        self.nodes[at].leaving = true;
        self.left.insert(self.nodes[at].incarnation);
        self.handle(Event::Update { connection, update });
    }

    fn die(&mut self) {
        let at = self.below(self.nodes.len() as u64) as usize;
        let node = self.nodes.swap_remove(at);
        if let Some(connection) = node.connection {
            self.handle(Event::Closed { connection });
        }
    }

    /// An executor's connection is lost; it connects anew later.
    fn drop_connection(&mut self) {
        let at = self.below(self.nodes.len() as u64) as usize;
        if self.nodes[at].leaving {
            return;
        }
        if let Some(connection) = self.nodes[at].connection.take() {
            self.handle(Event::Closed { connection });
        }
    }

    fn create(&mut self) -> InstanceId {
        let options = InstanceOptions::default();
        self.handle(Event::Create { connection: CLIENT, request: 0, options });
        let id = self.dispatcher.next_instance().0 - 1;
        self.instances = self.instances.max(id + 1);
        InstanceId(id)
    }

    fn submit(&mut self, submission: Submission, joining: bool) {
        if self.instances >= INSTANCES {
            return;
        }
        let (connection, request) = (CLIENT, 1);
        let instance = self.create();
        let first = TaskId(0);
        let event = Event::Submit { connection, request, instance, first, client: 1, submission };
        self.handle(event.clone());
        // A client that heard nothing submits again.
        self.handle(event);
        if !joining {
            self.handle(Event::Seal { connection, request, instance });
        }
    }

    fn pass(&mut self, micros: u64) {
        let end = self.now + micros;
        loop {
            let due = self.dispatcher.poll_timeout().map(|(at, _)| at.0).filter(|at| *at <= end);
            self.now = due.unwrap_or(end).max(self.now);
            for at in 0..self.nodes.len() {
                let Some(connection) = self.nodes[at].connection else { continue };
                self.nodes[at].updates += 1;
                let number = self.nodes[at].updates;
                let reports = self.nodes[at].reports.clone();
                self.nodes[at].sent = reports.len();
                let update = Update { number, reports, ..Update::default() };
                self.handle(Event::Update { connection, update });
            }
            self.dispatcher.handle_timeout(Time(self.now));
            self.round(Crash::Not);
            if due.is_none() {
                return;
            }
        }
    }

    fn restart(&mut self) {
        let mut dispatcher = Dispatcher::new();
        for record in &self.journal {
            dispatcher.recover(record.clone()).unwrap();
        }
        dispatcher.recovered(Time(self.now));
        self.dispatcher = dispatcher;
        self.nodes.retain(|node| !node.leaving);
        self.left.clear();
        self.nodes.iter_mut().for_each(|node| node.connection = None);
    }

    fn step(&mut self) {
        self.now += 1 + self.below(400_000);
        let crash = match self.below(12) {
            0 => Crash::BeforeItsRecords,
            1 => Crash::BeforeItsMessages,
            _ => Crash::Not,
        };
        let what = self.below(24);
        match what {
            _ if self.nodes.is_empty() => self.arrive(),
            0 | 1 if self.nodes.len() < 5 => self.arrive(),
            2 => self.die(),
            3 => self.leave(),
            4 => self.drop_connection(),
            5 => self.pass(RECONNECT_GRACE_MICROS / 2),
            6 => {
                self.round(Crash::Not);
                self.journal = self.dispatcher.snapshot();
            }
            7 | 8 => {
                let cpus = self.below(4) as u32;
                let joining = self.below(2) == 0;
                self.submit(everywhere(cpus, joining), joining);
            }
            9 => self.submit(array(6), false),
            10 if self.instances > 0 => {
                let instance = InstanceId(self.below(self.instances));
                let selection = Selection::All;
                self.handle(Event::Cancel { connection: CLIENT, request: 2, instance, selection });
            }
            11..15 => {
                let away = self.nodes.iter().position(|node| node.connection.is_none());
                away.into_iter().for_each(|at| self.connect(at));
            }
            _ => self.speak(true),
        }
        self.round(crash);
        if crash != Crash::Not {
            self.restart();
        }
    }

    fn play(&mut self) {
        for _ in 0..STEPS {
            self.step();
        }
        self.nodes.retain(|node| !node.leaving || node.connection.is_some());
        self.arrive();
        self.round(Crash::Not);
        for at in 0..self.nodes.len() {
            if self.nodes[at].connection.is_none() {
                self.connect(at);
                self.round(Crash::Not);
            }
        }
        let have_all_ended = |world: &World| {
            let mut views = world.dispatcher.instance_views();
            views.all(|view| view.counts().ended() == view.counts().total)
        };
        for _ in 0..2_000 {
            if have_all_ended(self) {
                break;
            }
            self.pass(RECONNECT_GRACE_MICROS / 4);
            self.speak(false);
            self.round(Crash::Not);
        }
        assert!(have_all_ended(self), "{:?}", self.told);
        self.judge();
    }

    /// Each executor that was there has had its task, and each task has run once
    /// there, or ended for a reason.
    fn judge(&self) {
        let told = &self.told;
        let mut had: BTreeMap<(InstanceId, u64), u64> = BTreeMap::new();
        for (task, owner) in &told.owners {
            *had.entry((task.0, *owner)).or_default() += 1;
        }
        assert_eq!(had, told.wanted, "each executor has its tasks");
        for (task, owner) in &told.owners {
            let ended = &told.ended[task];
            let cause = ended.detail.as_ref().and_then(|detail| detail.cause);
            let ran = self.ran.get(task).cloned().unwrap_or_default();
            assert!(ran.len() <= 1 && ran.iter().all(|by| by == owner), "{task:?} ran by {ran:?}");
            match ended.outcome {
                Outcome::Exit(_) => assert_eq!(ran, [*owner], "{task:?}"),
                Outcome::Lost => assert_eq!(cause, Some(Cause::ExecutorLeft), "{task:?}"),
                Outcome::Unschedulable => assert!(told.cpus[&task.0] > CPUS, "{task:?}"),
                Outcome::Cancelled => {}
                other => panic!("{task:?} ended with {other:?}"),
            }
        }
    }
}

fn held((instance, task): Task, tries: Tries) -> Held {
    Held { instance, first: TaskId(task), count: 1, tries }
}

fn report((instance, task): Task, tries: Tries, outcome: Outcome, now: u64) -> Report {
    let (started, ended) = (Time(now - 1), Time(now));
    let first = TaskId(task);
    Report { instance, first, count: 1, tries, outcome, started, ended, detail: None }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn each_executor_that_was_there_runs_its_task_once_or_has_left(seed: u64) {
        World::new(seed).play();
    }
}

/// Seeds that once failed.
#[test]
fn schedules_that_failed_pass() {
    World::new(16_980_188_607_649_546_719).play();
}

/// The answer to a submission to a new instance.
fn answer(world: &mut World, submission: Submission) -> Reply {
    let instance = world.create();
    world.round(Crash::Not);
    let (connection, request, first) = (CLIENT, 9, TaskId(0));
    world.handle(Event::Submit { connection, request, instance, first, client: 1, submission });
    let actions: Vec<Action> = std::iter::from_fn(|| world.dispatcher.poll_action()).collect();
    let replies = actions.into_iter().filter_map(|action| match action {
        Action::Reply { request: 9, reply, .. } => Some(reply),
        _ => None,
    });
    replies.last().unwrap()
}

#[test]
fn without_executors_a_task_is_refused_unless_it_is_for_those_that_join() {
    let mut world = World::new(1);
    let refused = Reply::Refused(RequestError::NoExecutors);
    assert_eq!(answer(&mut world, everywhere(1, false)), refused);
    let accepted = Reply::Accepted { first: TaskId(0), count: 0 };
    assert_eq!(answer(&mut world, everywhere(1, true)), accepted);
    world.arrive();
    world.round(Crash::Not);
    assert_eq!(world.nodes[0].held.len(), 1);
}

#[test]
fn what_is_more_than_one_task_or_names_executors_itself_is_refused() {
    let mut world = World::new(1);
    world.arrive();
    let malformed = SubmissionError::Malformed(SubmissionPart::Everywhere);
    let refused = Reply::Refused(RequestError::Submission(malformed));
    let two = Submission { everywhere: everywhere(1, false).everywhere, ..array(2) };
    assert_eq!(answer(&mut world, two), refused);
    let named = everywhere(1, false).placed(vec![1]);
    assert_eq!(answer(&mut world, named), refused);
}

/// A restart makes nobody one that joins, whether there is something to run or not.
#[test]
fn executors_that_come_back_after_a_restart_have_not_joined() {
    let mut world = World::new(1);
    world.arrive();
    world.submit(everywhere(1, true), true);
    world.round(Crash::Not);
    let own = (InstanceId(0), 0);
    while !world.told.ended.contains_key(&own) {
        world.speak(false);
        world.round(Crash::Not);
    }
    world.restart();
    world.connect(0);
    world.arrive();
    world.round(Crash::Not);
    let owners: Vec<u64> = world.told.owners.values().copied().collect();
    assert_eq!(owners, world.nodes.iter().map(|node| node.incarnation).collect::<Vec<_>>());
}

/// Others keep an executor busy with small tasks: it is emptied all the same.
#[test]
fn a_task_that_needs_all_of_a_busy_executor_gets_it_in_the_end() {
    let mut world = World::new(1);
    world.arrive();
    world.submit(array(1_000), false);
    world.submit(everywhere(CPUS, false), false);
    world.round(Crash::Not);
    let own = (InstanceId(1), 0);
    for _ in 0..200 {
        world.now += RESERVE_AFTER_MICROS / 4;
        world.speak(false);
        world.round(Crash::Not);
        if world.told.ended.contains_key(&own) {
            return;
        }
    }
    panic!("it waits for ever");
}

/// The task that an executor was emptied for is cancelled: the next one runs there.
#[test]
fn an_executor_is_not_emptied_for_a_task_that_is_cancelled() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.arrive();
        world.submit(array(1_000), false);
        world.round(Crash::Not);
        let instance = InstanceId(1);
        world.submit(everywhere(CPUS, false), true);
        let (connection, request, client, first) = (CLIENT, 1, 1, TaskId(1));
        let submission = everywhere(1, false);
        world.handle(Event::Submit { connection, request, instance, first, client, submission });
        world.round(Crash::Not);
        world.now += 2 * RESERVE_AFTER_MICROS;
        world.speak(false);
        world.round(Crash::Not);
        let selection = Selection::Runs(vec![(0, 1)]);
        world.handle(Event::Cancel { connection, request, instance, selection });
        let has_ended = |world: &mut World| {
            world.now += RESERVE_AFTER_MICROS / 4;
            world.speak(false);
            world.round(Crash::Not);
            world.told.ended.contains_key(&(instance, 1))
        };
        assert!((0..200).any(|_| has_ended(&mut world)), "seed {seed}: it waits for ever");
    }
}
