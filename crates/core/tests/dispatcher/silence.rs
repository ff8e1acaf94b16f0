//! Executors that are not heard from: what they had is lost once, however many of
//! them are out of reach together.

use crate::fixture::{self, array, executor};
use falkon_core::dispatch::{
    Assigned, ConnectionId, Dispatcher, Event, InstanceOptions, Join, Update,
};
use falkon_core::limits::HEARTBEAT_LOST_MICROS;
use falkon_core::task::{InstanceId, TaskId, Time};

const CLIENT: ConnectionId = ConnectionId(0);

/// A dispatcher with so many executors, one after another, and a task.
fn cluster(executors: u64) -> Dispatcher {
    let mut dispatcher = Dispatcher::new();
    for number in 1..=executors {
        join(&mut dispatcher, Time(number), number);
    }
    let (connection, instance, first) = (CLIENT, InstanceId(0), TaskId(0));
    let (options, submission) = (InstanceOptions::default(), array(1));
    for event in [
        Event::Create { connection, request: 0, options },
        Event::Submit { client: 1, connection, request: 1, instance, first, submission },
    ] {
        dispatcher.handle(Time(executors), event);
        fixture::actions(&mut dispatcher);
    }
    dispatcher
}

fn join(dispatcher: &mut Dispatcher, now: Time, number: u64) {
    let join = Join { name: format!("executor {number}"), ..executor(number, 1) };
    dispatcher.handle(now, Event::Join { connection: ConnectionId(number), join });
}

/// What is sent off until then, and to whom.
fn sent(dispatcher: &mut Dispatcher, until: Time) -> Vec<(ConnectionId, Assigned)> {
    let mut sent = Vec::new();
    loop {
        for (connection, order) in fixture::orders(dispatcher) {
            sent.extend(order.assign.into_iter().map(|assigned| (connection, assigned)));
        }
        let Some((due, _)) = dispatcher.poll_timeout().filter(|(due, _)| *due <= until) else {
            return sent;
        };
        dispatcher.handle_timeout(due);
    }
}

#[test]
fn where_all_are_out_of_reach_a_task_does_not_go_from_one_to_the_next() {
    let mut dispatcher = cluster(20);
    let lost = Time(20).after(HEARTBEAT_LOST_MICROS);
    let on_the_way = sent(&mut dispatcher, lost);
    assert!(on_the_way.is_empty(), "{on_the_way:?}");
    assert_eq!(dispatcher.executor_views().count(), 0);
    join(&mut dispatcher, lost, 21);
    let sent = sent(&mut dispatcher, lost);
    let losses: Vec<u32> = sent.iter().map(|(_, assigned)| assigned.tries.losses).collect();
    assert_eq!(losses, [1]);
}

#[test]
fn an_executor_that_was_not_heard_for_a_while_is_given_tasks_once_it_is() {
    // The task is with the first one, and the other one is heard before that is
    // lost, or just after.
    let lost = Time(1).after(HEARTBEAT_LOST_MICROS);
    for heard in [Time(lost.0 - 100), lost] {
        let mut dispatcher = cluster(2);
        assert!(sent(&mut dispatcher, heard).is_empty());
        let update = Update { number: 1, ..Update::default() };
        dispatcher.handle(heard, Event::Update { connection: ConnectionId(2), update });
        let sent = sent(&mut dispatcher, lost);
        let whom: Vec<ConnectionId> = sent.iter().map(|(connection, _)| *connection).collect();
        assert_eq!(whom, [ConnectionId(2)]);
    }
}
