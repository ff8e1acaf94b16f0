//! Tasks that run again because what they left in caches was lost: within
//! bounds, without a second result, and known as long as it is needed.

use crate::fixture::{array, executor};
use falkon_core::data::declared::{Declared, Lists, Serving};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::Changes;
use falkon_core::dispatch::diffusion::{PolicyName, PolicyOptions};
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, InstanceOptions, Join, Reply, Update,
};
use falkon_core::limits::{IDLE_NEEDS_MAX, RECOMPUTE_RUNS_MAX};
use falkon_core::result::{Finished, Outcome, Report, Tries};
use falkon_core::task::{After, InstanceId, Kind, Submission, TaskClass, TaskId, Time};
use std::sync::Arc;

const CLIENT: ConnectionId = ConnectionId(0);
const EXECUTOR: ConnectionId = ConnectionId(1);

/// A dispatcher and one executor that does at once what it is told.
struct Pair {
    dispatcher: Dispatcher,
    instance: InstanceId,
    updates: u64,
    /// Whether it keeps what tasks write.
    keeps: bool,
    /// It runs no task with this number or a later one.
    until: u64,
    held: Vec<ObjectId>,
    waiting: Vec<(TaskId, Tries, Vec<ObjectId>)>,
    ran: Vec<u64>,
    results: Vec<Finished>,
}

/// Each task but the first reads what the one before it writes.
fn chain(length: u64) -> Submission {
    let object = |number: u64| Object {
        id: ObjectId(u128::from(number) + 1),
        url: format!("cache:{number}").into(),
        version: "made:1".into(),
        size: Some(1),
    };
    let each =
        |items: Vec<u32>, ends: Vec<u32>| Lists::Each { items: items.into(), ends: ends.into() };
    let last = length as u32;
    let declared = Declared {
        objects: Arc::new((0..length).map(object).collect()),
        inputs: each((0..last - 1).collect(), (0..last).collect()),
        outputs: each((0..last).collect(), (1..=last).collect()),
    };
    let after = |task| After { offset: task, tasks: vec![TaskId(task - 1)], takes: 0 };
    Submission {
        classes: vec![TaskClass { kind: Kind::Process, ..TaskClass::default() }],
        after: (1..length).map(after).collect(),
        data: Some(Arc::new(declared)),
        ..array(length)
    }
}

impl Pair {
    fn new(keep_results: bool) -> Pair {
        let mut pair = Pair {
            dispatcher: Dispatcher::new(),
            instance: InstanceId(0),
            updates: 0,
            keeps: true,
            until: u64::MAX,
            held: Vec::new(),
            waiting: Vec::new(),
            ran: Vec::new(),
            results: Vec::new(),
        };
        let policy = PolicyOptions { policy: PolicyName::MaxComputeUtil, ..Default::default() };
        let options = InstanceOptions { keep_results, policy, ..InstanceOptions::default() };
        pair.tell(Event::Create { connection: CLIENT, request: 0, options });
        let instance = pair.instance;
        pair.tell(Event::Subscribe { connection: CLIENT, request: 1, instance, from: 0 });
        pair.join();
        pair
    }

    fn join(&mut self) {
        let join = Join {
            serves: Some(Serving { address: "here:1".to_owned(), fingerprint: Vec::new() }),
            ..executor(1, 1)
        };
        self.updates = 0;
        self.tell(Event::Join { connection: EXECUTOR, join });
        let added = self.held.iter().map(|object| (*object, 1)).collect();
        self.update(Vec::new(), Changes { anew: true, added, ..Changes::default() });
    }

    fn submit(&mut self, submission: Submission, is_last: bool) {
        let (connection, instance) = (CLIENT, self.instance);
        let total = self.dispatcher.instance_view(instance).unwrap().counts().total;
        let first = TaskId(total);
        self.tell(Event::Submit { client: 1, connection, request: 2, instance, first, submission });
        if is_last {
            self.tell(Event::Seal { connection, request: 3, instance });
        }
    }

    fn update(&mut self, reports: Vec<Report>, cache: Changes) {
        self.updates += 1;
        let cache = Some(Box::new(cache));
        let update = Update { number: self.updates, reports, cache, ..Update::default() };
        self.tell(Event::Update { connection: EXECUTOR, update });
    }

    fn tell(&mut self, event: Event) {
        self.dispatcher.handle(Time(1), event);
        while let Some(action) = self.dispatcher.poll_action() {
            match action {
                Action::Reply { reply: Reply::Created(id), .. } => self.instance = id,
                Action::Reply { reply: Reply::Refused(error), .. } => panic!("{error}"),
                Action::Deliver { delivery, .. } => {
                    let upto =
                        delivery.from + delivery.results.iter().map(|run| run.count).sum::<u64>();
                    self.results.extend(delivery.results);
                    let (connection, instance) = (CLIENT, self.instance);
                    let event = Event::Acknowledge { connection, instance, upto };
                    self.dispatcher.handle(Time(1), event);
                }
                Action::Order { order, .. } => {
                    for assigned in order.assign {
                        let data = assigned.data.unwrap();
                        let outputs = data.outputs.of(0).iter();
                        let outputs = outputs.map(|at| data.objects[*at as usize].object.id);
                        self.waiting.push((assigned.first, assigned.tries, outputs.collect()));
                    }
                }
                _ => {}
            }
            self.dispatcher.check().unwrap();
        }
    }

    /// Runs what there is to run, one task after another.
    fn run(&mut self) {
        while let Some(at) = self.waiting.iter().position(|(task, ..)| task.0 < self.until) {
            let (first, tries, outputs) = self.waiting.remove(at);
            self.ran.push(first.0);
            let mut changes = Changes::default();
            if self.keeps {
                changes.added.extend(outputs.iter().map(|object| (*object, 1)));
                self.held.extend(outputs);
            }
            let report = Report {
                instance: self.instance,
                first,
                count: 1,
                tries,
                outcome: Outcome::Exit(0),
                started: Time(1),
                ended: Time(1),
                detail: None,
            };
            self.update(vec![report], changes);
        }
    }

    /// Everything in the cache is lost.
    fn lose_all(&mut self) {
        let removed = std::mem::take(&mut self.held);
        self.update(Vec::new(), Changes { removed, ..Changes::default() });
    }

    fn knows(&self, task: u64) -> bool {
        let view = self.dispatcher.instance_view(self.instance).unwrap();
        view.submission_of(TaskId(task)).is_some()
    }
}

#[test]
fn a_task_that_loses_what_it_makes_each_time_is_given_up() {
    let mut pair = Pair::new(true);
    pair.keeps = false;
    pair.submit(chain(2), true);
    pair.run();
    assert_eq!(pair.ran, vec![0; 1 + RECOMPUTE_RUNS_MAX as usize]);
    let [made, reader] = &pair.results[..] else { panic!("{:?}", pair.results) };
    assert_eq!((made.first, made.outcome), (TaskId(0), Outcome::Exit(0)));
    assert_eq!((reader.first, reader.outcome), (TaskId(1), Outcome::NoInput));
    let error = &reader.detail.as_ref().unwrap().error;
    assert!(error.starts_with("cache:0 was lost again each time that task 0"), "{error}");
}

#[test]
fn a_queue_may_go_when_its_last_task_is_given_up() {
    let mut pair = Pair::new(true);
    pair.keeps = false;
    // The data of the first tasks of a chain, of which others read these.
    let reads = |items: Vec<u32>, ends: Vec<u32>| {
        let inputs = Lists::Each { items: items.into(), ends: ends.into() };
        let objects = chain(1).data.unwrap().objects.clone();
        Some(Arc::new(Declared { objects, inputs, outputs: Lists::default() }))
    };
    let class = |priority| TaskClass { kind: Kind::Process, priority, ..TaskClass::default() };
    // What the first task makes is lost, and is not made again.
    pair.submit(chain(2), false);
    pair.run();
    // As many needs are remembered as may be; that of the first batch is the oldest.
    for priority in 1..IDLE_NEEDS_MAX as i32 {
        let (classes, data) = (vec![class(priority)], reads(vec![], vec![0]));
        pair.submit(Submission { classes, data, ..array(1) }, false);
        pair.run();
    }
    let reader = TaskId(1 + IDLE_NEEDS_MAX as u64);
    let classes = vec![class(0), class(IDLE_NEEDS_MAX as i32)];
    let after = vec![After { offset: 1, tasks: vec![reader], takes: 0 }];
    let (class_runs, data) = (vec![(1, 0), (1, 1)], reads(vec![0], vec![1, 1]));
    pair.submit(Submission { classes, class_runs, after, data, ..array(2) }, true);
    let [.., given_up, behind] = &pair.results[..] else { panic!("{:?}", pair.results) };
    assert_eq!((given_up.first, given_up.outcome), (reader, Outcome::NoInput));
    assert_eq!(behind.outcome, Outcome::UpstreamFailed(reader));
}

#[test]
fn a_chain_is_made_again_from_its_beginning_after_a_restart_from_a_snapshot() {
    let mut pair = Pair::new(false);
    pair.until = 5;
    pair.submit(chain(6), true);
    pair.run();
    assert_eq!(pair.ran, [0, 1, 2, 3, 4]);
    pair.waiting.clear();
    pair.held.clear();
    let records = pair.dispatcher.snapshot();
    pair.dispatcher = Dispatcher::new();
    for record in records {
        pair.dispatcher.recover(record).unwrap();
    }
    pair.dispatcher.recovered(Time(1));
    let (instance, from) = (pair.instance, pair.results.len() as u64);
    pair.tell(Event::Subscribe { connection: CLIENT, request: 1, instance, from });
    pair.join();
    pair.until = u64::MAX;
    pair.run();
    assert_eq!(pair.ran, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5]);
    assert_eq!(pair.results.iter().map(|run| run.count).sum::<u64>(), 6, "each result comes once");
    let counts = pair.dispatcher.instance_view(instance).unwrap().counts();
    assert_eq!((counts.done, counts.recomputed), (6, 5));
}

#[test]
fn a_batch_is_known_as_long_as_what_it_left_may_be_read() {
    let mut pair = Pair::new(false);
    pair.submit(chain(3), false);
    pair.run();
    assert!(pair.knows(0), "tasks that read it may still come");
    // Another batch reads what the first has left.
    let mut reader = chain(4);
    reader.data = reader.data.map(|data| {
        let mut data = (*data).clone();
        let last = Lists::Each { items: Arc::new(vec![2]), ends: Arc::new(vec![1]) };
        data.inputs = last;
        data.outputs = Lists::default();
        Arc::new(data)
    });
    (reader.count, reader.class_runs) = (1, vec![(1, 0)]);
    reader.after = vec![After { offset: 0, tasks: vec![TaskId(2)], takes: 0 }];
    pair.until = 3;
    pair.submit(reader, true);
    assert!(pair.knows(0) && pair.knows(3), "it has not been read yet");
    pair.lose_all();
    pair.until = u64::MAX;
    pair.run();
    assert_eq!(pair.results.iter().map(|run| run.count).sum::<u64>(), 4);
    assert!(!pair.knows(0) && !pair.knows(3), "nobody can read it any more");
}

#[test]
fn what_runs_again_for_tasks_that_are_cancelled_is_withdrawn() {
    let mut pair = Pair::new(true);
    pair.until = 2;
    pair.submit(chain(3), true);
    pair.run();
    pair.waiting.clear();
    // The executor dies with all that it has, and comes back empty.
    pair.held.clear();
    pair.until = 0;
    pair.tell(Event::Closed { connection: EXECUTOR });
    pair.dispatcher.handle_timeout(Time(60_000_000));
    pair.join();
    let view = pair.dispatcher.instance_view(pair.instance).unwrap().counts();
    assert_eq!((view.recomputed, view.waiting, view.dispatched), (2, 2, 1));
    let selection = falkon_core::dispatch::Selection::Runs(vec![(2, 1)]);
    let (connection, instance) = (CLIENT, pair.instance);
    pair.tell(Event::Cancel { connection, request: 4, instance, selection });
    let counts = pair.dispatcher.instance_view(pair.instance).unwrap().counts();
    assert_eq!((counts.waiting, counts.ready, counts.dispatched), (0, 0, 0));
    assert_eq!((counts.done, counts.cancelled), (2, 1));
}
