//! Executors that have to leave: by their lease, or because they are released.

use crate::fixture::{self, array, executor};
use falkon_core::dispatch::{
    Action, ConnectionId, Delivery, Dispatcher, Event, InstanceOptions, Join, Lease, Order, Record,
    Update,
};
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{
    AUTO_TIME, AllocationId, ExecutorId, InstanceId, Resources, Submission, TaskClass, TaskId, Time,
};
use proptest::collection::vec;
use proptest::prelude::*;

const CLIENT: ConnectionId = ConnectionId(0);
const SECOND: u64 = 1_000_000;

fn join(dispatcher: &mut Dispatcher, connection: u64, leaves_in_s: u64) {
    let lease = Lease {
        allocation: Some(AllocationId(connection)),
        leaves_in_micros: Some(leaves_in_s * SECOND),
    };
    let join = Join { name: connection.to_string(), lease, ..executor(connection, 4) };
    let now = dispatcher.now();
    dispatcher.handle(now, Event::Join { connection: ConnectionId(connection), join });
}

fn submit(dispatcher: &mut Dispatcher, first: u64, tasks: u64, estimate_s: u64) {
    let class = TaskClass { estimate_micros: estimate_s * SECOND, ..TaskClass::default() };
    let submission = Submission {
        classes: vec![TaskClass { resources: Resources::cpus(1), ..class }],
        ..array(tasks)
    };
    let (instance, first) = (InstanceId(0), TaskId(first));
    let event =
        Event::Submit { client: 1, connection: CLIENT, request: 1, instance, first, submission };
    dispatcher.handle(Time(0), event);
}

fn submit_auto(dispatcher: &mut Dispatcher, first: u64, tasks: u64) {
    let class = TaskClass { estimate_micros: AUTO_TIME, ..TaskClass::default() };
    let classes = vec![TaskClass { resources: Resources::cpus(1), ..class }];
    let submission = Submission { classes, ..array(tasks) };
    let (instance, first) = (InstanceId(0), TaskId(first));
    let event =
        Event::Submit { client: 1, connection: CLIENT, request: 1, instance, first, submission };
    let now = dispatcher.now();
    dispatcher.handle(now, event);
}

/// Tasks have ended on the executor 1, so many seconds after the start, and lasted as long.
fn end(dispatcher: &mut Dispatcher, at_s: u64, first: u64, count: u64) {
    let report = Report {
        instance: InstanceId(0),
        first: TaskId(first),
        count,
        tries: Default::default(),
        outcome: Outcome::Exit(0),
        started: Time(0),
        ended: Time(at_s * SECOND),
        detail: None,
    };
    let update = Update { number: at_s, reports: vec![report], ..Update::default() };
    let event = Event::Update { connection: ConnectionId(1), update };
    dispatcher.handle(Time(at_s * SECOND), event);
}

fn orders(dispatcher: &mut Dispatcher) -> Vec<(u64, Order)> {
    fixture::orders(dispatcher)
        .into_iter()
        .map(|(connection, order)| (connection.0, order))
        .collect()
}

fn assigned(orders: &[(u64, Order)], connection: u64) -> u64 {
    let mine = orders.iter().filter(|(to, _)| *to == connection);
    mine.flat_map(|(_, order)| &order.assign).map(|assigned| assigned.count).sum()
}

fn with_instance() -> Dispatcher {
    let mut dispatcher = Dispatcher::new();
    let options = InstanceOptions::default();
    dispatcher.handle(Time(0), Event::Create { connection: CLIENT, request: 0, options });
    dispatcher
}

#[test]
fn a_task_is_not_started_where_it_cannot_end() {
    let mut dispatcher = with_instance();
    join(&mut dispatcher, 1, 10);
    submit(&mut dispatcher, 0, 2, 20);
    let found = orders(&mut dispatcher);
    assert_eq!(assigned(&found, 1), 0);
    // Which can be read.
    let overlong = |dispatcher: &Dispatcher| dispatcher.instance_views().next().unwrap().overlong();
    assert_eq!(overlong(&dispatcher), [(20 * SECOND, 2)]);
    // Of unknown length, they go anywhere.
    submit(&mut dispatcher, 2, 1, 0);
    join(&mut dispatcher, 2, 3600);
    let found = orders(&mut dispatcher);
    assert_eq!(assigned(&found, 1) + assigned(&found, 2), 3);
    assert!(assigned(&found, 2) >= 2, "{found:?}");
    assert_eq!(overlong(&dispatcher), []);
    dispatcher.check().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn how_long_tasks_last_is_found_out() {
    let mut dispatcher = with_instance();
    join(&mut dispatcher, 1, 100);
    submit_auto(&mut dispatcher, 0, 6);
    // Nothing is known: they go anywhere.
    let found = orders(&mut dispatcher);
    assert_eq!(assigned(&found, 1), 4);
    // Some end after 40 s: 60 s are left, in which two others end.
    end(&mut dispatcher, 40, 0, 2);
    let found = orders(&mut dispatcher);
    assert_eq!(assigned(&found, 1), 2);
    submit_auto(&mut dispatcher, 6, 2);
    // The next ones end after 70 s, and the others would not in the 30 s that are left.
    end(&mut dispatcher, 70, 2, 2);
    assert_eq!(assigned(&orders(&mut dispatcher), 1), 0);
    let overlong = |dispatcher: &Dispatcher| dispatcher.instance_views().next().unwrap().overlong();
    assert_eq!(overlong(&dispatcher), [(70 * SECOND, 2)]);
    dispatcher.check().unwrap_or_else(|error| panic!("{error}"));
    join(&mut dispatcher, 2, 200);
    assert_eq!(assigned(&orders(&mut dispatcher), 2), 2);
    assert_eq!(overlong(&dispatcher), []);
    dispatcher.check().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn what_is_released_gets_no_more_and_is_told_to_leave() {
    let mut dispatcher = with_instance();
    join(&mut dispatcher, 1, 3600);
    orders(&mut dispatcher);
    dispatcher.handle(Time(1), Event::Release { executor: ExecutorId(0) });
    submit(&mut dispatcher, 0, 2, 1);
    let found = orders(&mut dispatcher);
    assert_eq!(assigned(&found, 1), 0);
    assert!(found.iter().any(|(to, order)| *to == 1 && order.leave), "{found:?}");
    let demand = dispatcher.demand(Time(2));
    assert_eq!((demand.queued(), demand.running, demand.submitted), (2, 0, 2));
}

/// A step of a world of executors that leave, in seconds and tasks.
#[derive(Debug, Clone, Copy)]
enum Step {
    Join {
        stays_s: u64,
    },
    Submit {
        tasks: u64,
    },
    /// The task that runs with this number, modulo how many do, ends after so long.
    End {
        task: usize,
        after_s: u64,
    },
    Pass {
        seconds: u64,
    },
    /// The client takes all results in that there are: the dispatcher forgets them.
    Receive,
    /// The dispatcher is killed, and all executors with it. It starts again from its journal, which
    /// may be compacted before.
    Restart {
        compacts: bool,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (10..200_u64).prop_map(|stays_s| Step::Join { stays_s }),
        (1..8_u64).prop_map(|tasks| Step::Submit { tasks }),
        (any::<usize>(), 1..60_u64).prop_map(|(task, after_s)| Step::End { task, after_s }),
        (1..20_u64).prop_map(|seconds| Step::Pass { seconds }),
        Just(Step::Receive),
        any::<bool>().prop_map(|compacts| Step::Restart { compacts }),
    ]
}

/// An executor, with the tasks that it has: the number of each, and how often it was tried.
struct Node {
    connection: u64,
    leaves_at: Time,
    has: Vec<(u64, Tries)>,
    updates: u64,
}

struct World {
    dispatcher: Dispatcher,
    journal: Vec<Record>,
    now: Time,
    nodes: Vec<Node>,
    joined: u64,
    submitted: u64,
    longest: u64,
}

impl World {
    fn new() -> World {
        let (mut dispatcher, now) = (Dispatcher::new(), Time(0));
        let options = InstanceOptions { keep_results: false, ..InstanceOptions::default() };
        dispatcher.handle(now, Event::Create { connection: CLIENT, request: 0, options });
        let (nodes, journal) = (Vec::new(), Vec::new());
        let mut world =
            World { dispatcher, journal, now, nodes, joined: 0, submitted: 0, longest: 0 };
        world.take_orders();
        world
    }

    fn join(&mut self, stays_s: u64) {
        self.joined += 1;
        self.dispatcher.handle_timeout(self.now);
        join(&mut self.dispatcher, self.joined, stays_s);
        let (connection, leaves_at) = (self.joined, self.now.after(stays_s * SECOND));
        self.nodes.push(Node { connection, leaves_at, has: Vec::new(), updates: 0 });
    }

    /// An executor says that it lives and, of a task, that it has ended.
    fn update(&mut self, node: usize, ended: Option<(u64, Tries, u64)>) {
        let node = &mut self.nodes[node];
        node.updates += 1;
        let reports = ended.map(|(task, tries, lasted)| Report {
            instance: InstanceId(0),
            first: TaskId(task),
            count: 1,
            tries,
            outcome: Outcome::Exit(0),
            started: Time(self.now.0 - lasted),
            ended: self.now,
            detail: None,
        });
        let reports = reports.into_iter().collect();
        let update = Update { number: node.updates, reports, ..Update::default() };
        let connection = ConnectionId(node.connection);
        self.dispatcher.handle(self.now, Event::Update { connection, update });
    }

    /// Executors live until they leave, with what they run.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = self.now.after(SECOND);
            for node in 0..self.nodes.len() {
                self.update(node, None);
            }
            let (left, stay) = std::mem::take(&mut self.nodes)
                .into_iter()
                .partition(|node: &Node| node.leaves_at <= self.now);
            self.nodes = stay;
            let left: Vec<Node> = left;
            for node in left {
                let connection = ConnectionId(node.connection);
                self.dispatcher.handle(self.now, Event::Closed { connection });
            }
            self.dispatcher.handle_timeout(self.now);
            self.take_orders();
        }
    }

    fn take_orders(&mut self) {
        while let Some(action) = self.dispatcher.poll_action() {
            let (connection, order) = match action {
                Action::Order { connection, order } => (connection.0, order),
                Action::Journal(record) => {
                    self.journal.push(record);
                    continue;
                }
                Action::Deliver { connection, delivery } => {
                    let Delivery { instance, from, results, .. } = delivery;
                    let upto = from + results.iter().map(|run| run.count).sum::<u64>();
                    let received = Event::Acknowledge { connection, instance, upto };
                    self.dispatcher.handle(self.now, received);
                    continue;
                }
                _ => continue,
            };
            let Some(node) = self.nodes.iter_mut().find(|node| node.connection == connection)
            else {
                continue;
            };
            for assigned in order.assign {
                let left = node.leaves_at.since(self.now);
                assert!(left >= self.longest, "{left} µs are left of {}", self.longest);
                let numbers = assigned.first.0..assigned.first.0 + assigned.count;
                node.has.extend(numbers.map(|task| (task, assigned.tries)));
            }
        }
    }

    /// The number of ended tasks.
    fn ended(&self) -> u64 {
        let counts = self.dispatcher.instance_views().next().unwrap().counts();
        counts.done + counts.failed
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Join { stays_s } => self.join(stays_s),
            Step::Submit { tasks } => {
                submit_auto(&mut self.dispatcher, self.submitted, tasks);
                self.submitted += tasks;
            }
            Step::End { task, after_s } => {
                self.pass(after_s);
                let running: Vec<(usize, usize)> = (self.nodes.iter().enumerate())
                    .flat_map(|(node, found)| (0..found.has.len()).map(move |at| (node, at)))
                    .collect();
                if let Some(&(node, at)) = running.get(task % running.len().max(1)) {
                    let (task, tries) = self.nodes[node].has.remove(at);
                    let lasted = after_s * SECOND;
                    self.longest = self.longest.max(lasted);
                    self.update(node, Some((task, tries, lasted)));
                }
            }
            Step::Pass { seconds } => self.pass(seconds),
            Step::Receive => {
                let (connection, instance) = (CLIENT, InstanceId(0));
                let subscribe = Event::Subscribe { connection, request: 1, instance, from: 0 };
                self.dispatcher.handle(self.now, subscribe);
                self.take_orders();
                self.dispatcher.handle(self.now, Event::Closed { connection });
            }
            Step::Restart { compacts } => {
                if compacts {
                    self.journal = self.dispatcher.snapshot();
                    if self.ended() == self.submitted {
                        // No task is left by which the dispatcher would know others as like these.
                        self.longest = 0;
                    }
                }
                self.nodes.clear();
                self.dispatcher = Dispatcher::new();
                for record in &self.journal {
                    self.dispatcher.recover(record.clone()).unwrap();
                }
                self.dispatcher.recovered(self.now);
            }
        }
        self.take_orders();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// No task starts where there is less time left than the longest took, before a restart or
    /// since, and all run as soon as somebody stays.
    #[test]
    fn what_is_found_out_of_time_holds_in_random_worlds(steps in vec(any_step(), 1..60)) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.step(step));
        world.step(Step::Join { stays_s: 1_000_000 });
        // An executor that has left with tasks is waited for.
        for _ in 0..2_000 {
            if world.ended() == world.submitted {
                break;
            }
            world.step(Step::End { task: 0, after_s: 1 });
        }
        prop_assert_eq!(world.ended(), world.submitted);
    }
}
