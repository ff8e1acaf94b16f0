//! Errors of a node are told from errors of its tasks (ARCHITECTURE.md).

use crate::fixture::{array, executor};
use falkon_core::dispatch::{
    Action, Assigned, ConnectionId, Dispatcher, Event, InstanceOptions, Join, Reply, Update,
};
use falkon_core::limits::{LOSSES_MAX, SUSPENSION_MICROS};
use falkon_core::result::{Outcome, Report, Status};
use falkon_core::task::{InstanceId, Packed, Rows, Submission, TaskId, Time};
use std::collections::BTreeMap;

const CLIENT: ConnectionId = ConnectionId(0);

/// A dispatcher with executors that answer at once, as `answer` says.
struct Cluster<F> {
    dispatcher: Dispatcher,
    now: Time,
    updates: BTreeMap<ConnectionId, u64>,
    answer: F,
    outcomes: BTreeMap<TaskId, Outcome>,
    ran: Vec<(ConnectionId, TaskId)>,
}

impl<F: FnMut(ConnectionId, TaskId) -> Outcome> Cluster<F> {
    fn new(executors: u64, answer: F) -> Cluster<F> {
        let mut cluster = Cluster {
            dispatcher: Dispatcher::new(),
            now: Time(1),
            updates: BTreeMap::new(),
            answer,
            outcomes: BTreeMap::new(),
            ran: Vec::new(),
        };
        for number in 1..=executors {
            let connection = ConnectionId(number);
            let join = Join { name: format!("executor {number}"), ..executor(number, 1) };
            cluster.dispatcher.handle(cluster.now, Event::Join { connection, join });
        }
        cluster
    }

    fn submit(&mut self, count: u64) {
        let options = InstanceOptions::default();
        let create = Event::Create { connection: CLIENT, request: 0, options };
        self.dispatcher.handle(self.now, create);
        let instance = self.pump().expect("an instance is created");
        let mut rows = Packed::default();
        for _ in 0..count {
            assert!(rows.push(b""));
        }
        let submission = Submission { rows: Rows::Packed(rows), ..array(count) };
        let first = TaskId(0);
        for event in [
            Event::Subscribe { connection: CLIENT, request: 1, instance, from: 0 },
            Event::Submit {
                client: 1,
                connection: CLIENT,
                request: 2,
                instance,
                first,
                submission,
            },
            Event::Seal { connection: CLIENT, request: 3, instance },
        ] {
            self.dispatcher.handle(self.now, event);
        }
        self.pump();
    }

    /// Lets everything happen that happens at this time.
    fn pump(&mut self) -> Option<InstanceId> {
        let mut created = None;
        while let Some(action) = self.dispatcher.poll_action() {
            self.dispatcher.check().unwrap();
            match action {
                Action::Reply { reply: Reply::Created(id), .. } => created = Some(id),
                Action::Reply { reply: Reply::Refused(error), .. } => panic!("{error}"),
                Action::Deliver { delivery, .. } => {
                    for run in delivery.results {
                        for task in run.first.0..run.first.0 + run.count {
                            self.outcomes.insert(TaskId(task), run.outcome);
                        }
                    }
                }
                Action::Order { connection, order } => {
                    for assigned in order.assign {
                        self.run(connection, &assigned);
                    }
                }
                _ => {}
            }
        }
        created
    }

    fn run(&mut self, connection: ConnectionId, assigned: &Assigned) {
        for task in assigned.first.0..assigned.first.0 + assigned.count {
            let task = TaskId(task);
            self.ran.push((connection, task));
            let number = self.updates.entry(connection).or_default();
            *number += 1;
            let started = self.now;
            self.now = started.after(1_000_000);
            let report = Report {
                instance: assigned.instance,
                first: task,
                count: 1,
                tries: assigned.tries,
                outcome: (self.answer)(connection, task),
                started,
                ended: self.now,
                detail: None,
            };
            let update = Update { number: *number, reports: vec![report], ..Update::default() };
            self.dispatcher.handle(self.now, Event::Update { connection, update });
        }
    }

    fn suspended(&self) -> usize {
        self.dispatcher.executor_views().filter(|view| view.suspended_until().is_some()).count()
    }
}

#[test]
fn a_node_that_can_start_nothing_is_suspended_and_costs_no_task() {
    let broken = ConnectionId(1);
    let mut cluster =
        Cluster::new(
            2,
            move |connection, _| {
                if connection == broken { Outcome::NotRun } else { Outcome::Exit(0) }
            },
        );
    cluster.submit(50);
    assert_eq!(cluster.outcomes.len(), 50);
    assert!(cluster.outcomes.values().all(|outcome| outcome.status() == Status::Done));
    let tried = cluster.ran.iter().filter(|(connection, _)| *connection == broken).count();
    assert!((1..=4).contains(&tried), "the broken node was given {tried} tasks");
    assert_eq!(cluster.suspended(), 1);
}

#[test]
fn a_suspended_node_is_tried_again_later() {
    let mut cluster = Cluster::new(2, |connection, _| {
        if connection == ConnectionId(1) { Outcome::NotRun } else { Outcome::Exit(0) }
    });
    cluster.submit(4);
    let suspended = |cluster: &Cluster<_>| {
        cluster.dispatcher.executor_views().find_map(|view| view.suspended_until())
    };
    let until = suspended(&cluster).expect("the broken node is suspended");
    assert!(until <= cluster.now.after(SUSPENSION_MICROS));
    // Meanwhile both are heard from.
    cluster.now = until;
    for connection in [ConnectionId(1), ConnectionId(2)] {
        let number = cluster.updates.entry(connection).or_default();
        *number += 1;
        let update = Update { number: *number, ..Update::default() };
        cluster.dispatcher.handle(until, Event::Update { connection, update });
    }
    cluster.dispatcher.handle_timeout(until);
    cluster.pump();
    assert_eq!(suspended(&cluster), None);
    let before = cluster.ran.len();
    cluster.submit(4);
    assert!(cluster.ran[before..].iter().any(|(connection, _)| *connection == ConnectionId(1)));
    assert!(suspended(&cluster).is_some_and(|again| again.since(until) > SUSPENSION_MICROS));
}

#[test]
fn a_command_that_nobody_can_start_fails_and_suspends_nobody_for_long() {
    let mut cluster = Cluster::new(3, |_, _| Outcome::NotRun);
    cluster.submit(30);
    assert_eq!(cluster.outcomes.len(), 30);
    assert!(cluster.outcomes.values().all(|outcome| *outcome == Outcome::NotRun));
    assert_eq!(cluster.suspended(), 0);
}

#[test]
fn a_task_that_an_executor_lost_runs_again_there_and_nobody_is_suspended() {
    let mut left = 2;
    let mut cluster = Cluster::new(1, move |_, _| {
        let outcome = if left > 0 { Outcome::Lost } else { Outcome::Exit(0) };
        left -= i32::from(left > 0);
        outcome
    });
    cluster.submit(1);
    assert_eq!(cluster.outcomes[&TaskId(0)], Outcome::Exit(0));
    assert_eq!((cluster.ran.len(), cluster.suspended()), (3, 0));
}

#[test]
fn a_task_that_is_lost_each_time_is_lost_for_good_in_the_end() {
    let mut cluster = Cluster::new(2, |_, _| Outcome::Lost);
    cluster.submit(1);
    assert_eq!(cluster.outcomes[&TaskId(0)], Outcome::Lost);
    assert_eq!(cluster.ran.len() as u32, LOSSES_MAX + 1);
}
