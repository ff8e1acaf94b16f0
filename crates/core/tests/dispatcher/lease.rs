//! Executors that have to leave: by their lease, or because they are released.

use crate::fixture::{self, array, executor};
use falkon_core::dispatch::{ConnectionId, Dispatcher, Event, InstanceOptions, Join, Lease, Order};
use falkon_core::task::{
    AllocationId, ExecutorId, InstanceId, Resources, Submission, TaskClass, TaskId, Time,
};

const CLIENT: ConnectionId = ConnectionId(0);
const SECOND: u64 = 1_000_000;

fn join(dispatcher: &mut Dispatcher, connection: u64, leaves_in_s: u64) {
    let lease = Lease {
        allocation: Some(AllocationId(connection)),
        leaves_in_micros: Some(leaves_in_s * SECOND),
    };
    let join = Join { name: connection.to_string(), lease, ..executor(connection, 4) };
    dispatcher.handle(Time(0), Event::Join { connection: ConnectionId(connection), join });
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
