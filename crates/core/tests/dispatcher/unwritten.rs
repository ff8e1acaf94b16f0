//! Results for a client that does not read: what is handed to the shell for its
//! connection is bounded, whatever it subscribes to and acknowledges, and
//! nothing is missing once it reads.

use crate::fixture::{array, executor};
use falkon_core::dispatch::{
    Action, ConnectionId, Delivery, Dispatcher, Event, InstanceOptions, Update,
};
use falkon_core::limits::{DELIVERY_BYTES_MAX, UNWRITTEN_BYTES_MAX};
use falkon_core::result::{Captured, Detail, Finished, Outcome, Report};
use falkon_core::task::{InstanceId, Packed, Rows, Submission, TaskId, Time};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const EXECUTOR: ConnectionId = ConnectionId(1);
const HOSTILE: ConnectionId = ConnectionId(2);
const HONEST: ConnectionId = ConnectionId(3);
const INSTANCES: u64 = 3;
const TASKS: u64 = 90;
/// What each of them has written.
const OUTPUT_BYTES: usize = 256 << 10;

/// A dispatcher whose tasks have ended, and what it wants sent.
struct World {
    dispatcher: Dispatcher,
    /// Unwritten, by connection.
    queues: BTreeMap<ConnectionId, VecDeque<Delivery>>,
    awaited: BTreeMap<ConnectionId, u64>,
}

impl World {
    fn new() -> World {
        let mut world = World {
            dispatcher: Dispatcher::new(),
            queues: BTreeMap::new(),
            awaited: BTreeMap::new(),
        };
        let join = executor(1, TASKS as u32);
        world.handle(Event::Join { connection: EXECUTOR, join });
        let stdout = Captured {
            head: vec![b'x'; OUTPUT_BYTES],
            total_bytes: OUTPUT_BYTES as u64,
            overflow: None,
            member: None,
        };
        let detail = Arc::new(Detail { stdout, ..Detail::default() });
        let connection = HONEST;
        let mut number = 0;
        for id in 0..INSTANCES {
            let options = InstanceOptions { keep_results: true, ..InstanceOptions::default() };
            world.handle(Event::Create { connection, request: 0, options });
            let mut rows = Packed::default();
            assert!((0..TASKS).all(|_| rows.push(b"row")));
            let submission = Submission { rows: Rows::Packed(rows), ..array(TASKS) };
            let (instance, first) = (InstanceId(id), TaskId(0));
            let mut assigned = VecDeque::new();
            let submit =
                Event::Submit { client: 1, connection, request: 1, instance, first, submission };
            assigned.extend(world.handle(submit));
            world.handle(Event::Seal { connection, request: 2, instance });
            while let Some((first, count, tries)) = assigned.pop_front() {
                let report = |task| Report {
                    instance,
                    first: TaskId(task),
                    count: 1,
                    tries,
                    outcome: Outcome::Exit(0),
                    started: Time(0),
                    ended: Time(0),
                    detail: Some(detail.clone()),
                };
                number += 1;
                let reports = (first.0..first.0 + count).map(report).collect();
                let update = Update { number, reports, ..Update::default() };
                assigned.extend(world.handle(Event::Update { connection: EXECUTOR, update }));
            }
        }
        world
    }

    /// Takes an event in. Returns what executors are to run.
    fn handle(&mut self, event: Event) -> Vec<(TaskId, u64, falkon_core::result::Tries)> {
        let mut assigned = Vec::new();
        self.dispatcher.handle(Time(0), event);
        while let Some(action) = self.dispatcher.poll_action() {
            match action {
                Action::Deliver { connection, delivery } => {
                    self.queues.entry(connection).or_default().push_back(delivery);
                }
                Action::AwaitWritten { connection } => {
                    *self.awaited.entry(connection).or_default() += 1;
                }
                Action::Order { order, .. } => {
                    let runs = order.assign.iter();
                    assigned.extend(runs.map(|run| (run.first, run.count, run.tries)));
                }
                _ => {}
            }
        }
        self.dispatcher.check().unwrap();
        assigned
    }

    fn unwritten(&self, connection: ConnectionId) -> u64 {
        let queue = self.queues.get(&connection).into_iter().flatten();
        queue.flat_map(|delivery| &delivery.results).map(Finished::bytes).sum()
    }

    /// Writes so many messages; returns them.
    fn write(&mut self, connection: ConnectionId, messages: usize) -> Vec<Delivery> {
        let queue = self.queues.entry(connection).or_default();
        let written: Vec<Delivery> = queue.drain(..messages.min(queue.len())).collect();
        if !written.is_empty() {
            let messages = written.len() as u64;
            self.handle(Event::Written { connection, messages });
        }
        written
    }

    /// Reads all results of an instance as a client does.
    fn read(&mut self, connection: ConnectionId, instance: InstanceId) {
        while !self.write(connection, usize::MAX).is_empty() {}
        self.handle(Event::Subscribe { connection, request: 9, instance, from: 0 });
        let (mut next, mut complete) = (0, false);
        while let [delivery] = &self.write(connection, 1)[..] {
            if delivery.instance != instance {
                continue;
            }
            assert!(delivery.from <= next, "results are missing");
            let count = delivery.results.iter().map(|run| run.count).sum::<u64>();
            (next, complete) = (delivery.from + count, delivery.complete);
            self.handle(Event::Acknowledge { connection, instance, upto: next });
        }
        assert_eq!((next, complete), (TASKS, true), "of instance {instance}");
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Subscribe(u64),
    Acknowledge(u64, u64),
    Write(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..INSTANCES).prop_map(Step::Subscribe),
        6 => (0..INSTANCES, 0..=TASKS).prop_map(|(id, upto)| Step::Acknowledge(id, upto)),
        1 => (1usize..4).prop_map(Step::Write),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_client_that_does_not_read_costs_no_more_than_the_bound(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = World::new();
        let connection = HOSTILE;
        for step in steps {
            match step {
                Step::Subscribe(id) => {
                    let instance = InstanceId(id);
                    world.handle(Event::Subscribe { connection, request: 3, instance, from: 0 });
                }
                Step::Acknowledge(id, upto) => {
                    let instance = InstanceId(id);
                    world.handle(Event::Acknowledge { connection, instance, upto });
                }
                Step::Write(messages) => {
                    world.write(connection, messages);
                }
            }
            // The last message may go over it.
            let unwritten = world.unwritten(connection);
            prop_assert!(unwritten < UNWRITTEN_BYTES_MAX + DELIVERY_BYTES_MAX, "{unwritten}");
        }
        // Others are served meanwhile, and so is this one when it reads.
        for reader in [HONEST, HOSTILE] {
            for id in 0..INSTANCES {
                world.read(reader, InstanceId(id));
            }
        }
    }
}

#[test]
fn the_shell_is_asked_to_report_once_while_results_wait() {
    let mut world = World::new();
    let connection = HOSTILE;
    for id in 0..INSTANCES {
        let instance = InstanceId(id);
        for _ in 0..3 {
            world.handle(Event::Subscribe { connection, request: 3, instance, from: 0 });
        }
    }
    assert_eq!(world.awaited[&connection], 1);
    // More is written, but not enough: the next report is awaited, too.
    world.write(connection, 1);
    assert_eq!(world.awaited[&connection], 2);
    world.handle(Event::Closed { connection });
    assert!(world.write(HONEST, 1).is_empty());
}
