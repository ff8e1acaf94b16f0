//! Tasks with alternatives: which one an executor is sent, what it holds, and what is refused.

use crate::fixture::{actions, array, executor, orders};
use falkon_core::dispatch::{
    Action, Assigned, ConnectionId, Dispatcher, Event, Held, HeldAlternative, InstanceOptions,
    Join, Prepare, Record, Reply, RequestError, Update,
};
use falkon_core::limits::ALTERNATIVES_MAX;
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{
    AUTO_CPUS, AUTO_MEMORY, Everywhere, InstanceId, Kind, Resources, Submission, SubmissionError,
    SubmissionPart, TaskClass, TaskId, Time,
};
use std::collections::BTreeMap;

const CLIENT: ConnectionId = ConnectionId(u64::MAX);
const INSTANCE: InstanceId = InstanceId(0);

fn gpu() -> Resources {
    Resources { gpus: 1, ..Resources::cpus(1) }
}

/// `1 gpu`, or `4 cpus`.
fn class() -> TaskClass {
    TaskClass { resources: gpu(), alternatives: vec![Resources::cpus(4)], ..TaskClass::default() }
}

fn of(class: TaskClass, count: u64) -> Submission {
    Submission { classes: vec![class], ..array(count) }
}

/// A dispatcher, and what its executors were sent.
struct World {
    dispatcher: Dispatcher,
    now: Time,
    /// By executor: the number of its last update.
    updates: BTreeMap<u64, u64>,
    prepared: Vec<Prepare>,
    /// By executor: which alternatives it was sent, with the task of each.
    sent: BTreeMap<u64, Vec<(u64, u32)>>,
}

impl World {
    fn new(records: Vec<Record>) -> World {
        let mut dispatcher = Dispatcher::new();
        records.into_iter().for_each(|record| dispatcher.recover(record).unwrap());
        dispatcher.recovered(Time(1));
        let (updates, prepared, sent) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        World { dispatcher, now: Time(1), updates, prepared, sent }
    }

    fn submit(&mut self, submission: Submission) {
        let (connection, client, instance, first) = (CLIENT, 1, INSTANCE, TaskId(0));
        let options = InstanceOptions::default();
        self.handle(Event::Create { connection, request: 0, options });
        self.handle(Event::Submit { client, connection, request: 1, instance, first, submission });
    }

    fn join(&mut self, number: u64, capacity: Resources) {
        self.join_with(Join { capacity, ..executor(number, 1) });
    }

    fn join_with(&mut self, join: Join) {
        self.updates.insert(join.incarnation, 0);
        self.handle(Event::Join { connection: ConnectionId(join.incarnation), join });
    }

    fn handle(&mut self, event: Event) {
        self.dispatcher.handle(self.now, event);
        self.dispatcher.check().unwrap();
        for (ConnectionId(to), order) in orders(&mut self.dispatcher) {
            self.prepared.extend(order.prepare);
            for run in order.assign {
                let Assigned { batch, first, count, class, .. } = run;
                let prepared = self.prepared.iter().rfind(|prepare| prepare.batch == batch);
                let class = &prepared.expect("a template comes first").classes[class as usize];
                assert!(class.alternatives.is_empty(), "executors get one alternative");
                let tasks = (first.0..first.0 + count).map(|task| (task, class.alternative));
                self.sent.entry(to).or_default().extend(tasks);
            }
        }
        self.dispatcher.check().unwrap();
    }

    /// The alternatives that an executor was sent, in order.
    fn alternatives(&self, executor: u64) -> Vec<u32> {
        self.sent.get(&executor).into_iter().flatten().map(|(_, number)| *number).collect()
    }

    fn end(&mut self, executor: u64, task: u64) {
        let report = Report {
            instance: INSTANCE,
            first: TaskId(task),
            count: 1,
            tries: Tries::default(),
            outcome: Outcome::Exit(0),
            started: self.now,
            ended: self.now.after(1),
            detail: None,
        };
        self.update(executor, Update { reports: vec![report], ..Update::default() });
    }

    fn update(&mut self, executor: u64, update: Update) {
        let number = self.updates.get_mut(&executor).unwrap();
        *number += 1;
        let update = Update { number: *number, ..update };
        self.handle(Event::Update { connection: ConnectionId(executor), update });
    }
}

#[test]
fn each_kind_of_executor_runs_what_it_has_and_one_with_both_uses_both_at_once() {
    let mut world = World::new(Vec::new());
    world.submit(of(class(), 100));
    world.join(1, Resources { gpus: 2, ..Resources::cpus(2) });
    assert_eq!(world.alternatives(1), [1, 1]);
    world.join(2, Resources::cpus(8));
    assert_eq!(world.alternatives(2), [2, 2]);
    world.join(3, Resources { gpus: 1, ..Resources::cpus(9) });
    assert_eq!(world.alternatives(3), [1, 2, 2]);
    // What is given back is what was held.
    let (task, _) = world.sent[&3][1];
    world.end(3, task);
    assert_eq!(world.alternatives(3), [1, 2, 2, 2]);
    let (task, _) = world.sent[&3][0];
    world.end(3, task);
    assert_eq!(world.alternatives(3), [1, 2, 2, 2, 1]);
}

#[test]
fn none_is_sent_where_no_alternative_fits_and_none_ahead_of_room() {
    let mut world = World::new(Vec::new());
    world.submit(of(TaskClass { estimate_micros: 10, ..class() }, 100));
    world.join(1, Resources::cpus(3));
    assert_eq!(world.alternatives(1), []);
    world.join(2, Resources::cpus(4));
    assert_eq!(world.alternatives(2), [2]);
}

#[test]
fn a_task_that_comes_back_may_be_sent_with_another_alternative() {
    let mut world = World::new(Vec::new());
    world.submit(of(class(), 1));
    world.join(1, Resources::cpus(4));
    assert_eq!(world.sent[&1], [(0, 2)]);
    let held = Held { instance: INSTANCE, first: TaskId(0), count: 1, tries: Tries::default() };
    world.join(2, gpu());
    let update = Update { returned: vec![held], leaving: true, ..Update::default() };
    world.update(1, update);
    assert_eq!(world.sent[&2], [(0, 1)]);
}

#[test]
fn an_executor_that_comes_back_says_which_alternatives_its_tasks_have() {
    let mut records = Vec::new();
    let mut world = World::new(Vec::new());
    let (connection, options) = (CLIENT, InstanceOptions::default());
    for event in [
        Event::Create { connection, request: 0, options },
        Event::Submit {
            client: 1,
            connection,
            request: 1,
            instance: INSTANCE,
            first: TaskId(0),
            submission: of(class(), 5),
        },
    ] {
        world.dispatcher.handle(Time(1), event);
        records.extend(actions(&mut world.dispatcher).into_iter().filter_map(|action| {
            let Action::Journal(record) = action else { return None };
            Some(record)
        }));
    }
    // One gpu and four cpus are in use there: one gpu is left, and no four cpus.
    let held = |first, count| {
        let (instance, first, tries) = (INSTANCE, TaskId(first), Tries::default());
        Held { instance, first, count, tries }
    };
    let said = |alternative, held| HeldAlternative { held, alternative };
    for (alternatives, free) in [
        (vec![said(1, held(0, 1)), said(2, held(1, 1))], vec![1]),
        // Without a word of it, or with nonsense, the first alternative counts.
        (vec![], vec![2]),
        (vec![said(9, held(0, 2)), said(2, held(7, u64::MAX))], vec![2]),
    ] {
        let mut world = World::new(records.clone());
        let capacity = Resources { gpus: 2, ..Resources::cpus(7) };
        let join = Join { capacity, held: vec![held(0, 2)], alternatives, ..executor(1, 1) };
        world.join_with(join);
        assert_eq!(world.alternatives(1), free);
        world.end(1, 0);
        world.end(1, 1);
        world.dispatcher.check().unwrap();
    }
}

#[test]
fn submissions_with_unsound_alternatives_are_refused() {
    let many = |count: u32| (2..2 + count).map(Resources::cpus).collect::<Vec<_>>();
    let auto = Resources { memory_bytes: AUTO_MEMORY, ..Resources::cpus(2) };
    let auto_cpus = Resources { cpus_milli: AUTO_CPUS, ..Resources::default() };
    let with = |alternatives| TaskClass { alternatives, ..class() };
    let everywhere = Some(Everywhere::default());
    for submission in [
        of(with(vec![gpu()]), 1),
        of(with(vec![Resources::cpus(4), Resources::cpus(4)]), 1),
        of(with(many(ALTERNATIVES_MAX as u32)), 1),
        of(with(vec![auto.clone()]), 1),
        of(with(vec![auto_cpus.clone()]), 1),
        of(TaskClass { resources: auto_cpus, ..class() }, 1),
        of(TaskClass { resources: auto, ..class() }, 1),
        of(TaskClass { nodes: 2, ..class() }, 1),
        of(TaskClass { speculate: true, ..class() }, 1),
        of(TaskClass { kind: Kind::Noop, ..class() }, 1),
        of(TaskClass { alternative: 1, ..class() }, 1),
        Submission { everywhere, ..of(class(), 1) },
    ] {
        let mut world = World::new(Vec::new());
        world.join(1, gpu());
        let connection = CLIENT;
        let options = InstanceOptions::default();
        world.dispatcher.handle(Time(1), Event::Create { connection, request: 0, options });
        let first = TaskId(0);
        let (client, instance) = (1, INSTANCE);
        let event = Event::Submit { client, connection, request: 1, instance, first, submission };
        world.dispatcher.handle(Time(1), event);
        let malformed = SubmissionError::Malformed(SubmissionPart::Alternatives);
        let is_refused = actions(&mut world.dispatcher).into_iter().any(|action| {
            let refused = RequestError::Submission(malformed.clone());
            matches!(action, Action::Reply { reply: Reply::Refused(error), .. } if error == refused)
        });
        assert!(is_refused);
    }
}

#[test]
fn most_alternatives_are_tried_in_their_order() {
    let alternatives = vec![Resources::cpus(4), Resources::cpus(3), Resources::cpus(2)];
    let mut world = World::new(Vec::new());
    world.submit(of(TaskClass { alternatives, ..class() }, 100));
    world.join(1, Resources { gpus: 1, ..Resources::cpus(10) });
    assert_eq!(world.alternatives(1), [1, 2, 2]);
    world.join(2, Resources::cpus(9));
    assert_eq!(world.alternatives(2), [2, 2]);
    world.join(3, Resources::cpus(5));
    assert_eq!(world.alternatives(3), [2]);
    world.join(4, Resources::cpus(3));
    assert_eq!(world.alternatives(4), [3]);
    world.join(5, Resources::cpus(2));
    assert_eq!(world.alternatives(5), [4]);
}
