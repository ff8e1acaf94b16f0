//! Executors that have to leave: by their lease, or because they are released.

use crate::fixture::{self, array, executor};
use falkon_core::dispatch::{
    ConnectionId, Dispatcher, Event, InstanceOptions, Join, Lease, Order, Update,
};
use falkon_core::result::{Outcome, Report};
use falkon_core::task::{
    AUTO_TIME, AllocationId, ExecutorId, InstanceId, Resources, Submission, TaskClass, TaskId, Time,
};

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
