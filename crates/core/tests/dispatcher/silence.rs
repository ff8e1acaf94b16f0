//! Executors that are not heard from: what they had is lost once, however many of
//! them are out of reach together.

use crate::fixture::{self, array, executor};
use falkon_core::dispatch::{
    Action, Assigned, ConnectionId, Dispatcher, Event, InstanceOptions, Join, Update,
};
use falkon_core::limits::{
    HEARTBEAT_EXECUTORS_MAX, HEARTBEAT_LOST_MICROS, HEARTBEAT_MICROS, RECONNECT_GRACE_MICROS,
};
use falkon_core::task::{InstanceId, TaskId, Time};
use std::collections::BTreeMap;

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

/// Executors that send nothing but heartbeats, as far apart as they are told.
#[derive(Default)]
struct Quiet {
    /// By executor: when its next one is due, how far apart they are, and how many it has sent.
    executors: BTreeMap<u64, (Time, u64, u64)>,
}

impl Quiet {
    /// Runs until then; returns how many heartbeats the last two intervals had at first.
    fn run(&mut self, dispatcher: &mut Dispatcher, until: Time) -> u64 {
        let mut due: BTreeMap<(Time, u64), ()> =
            self.executors.iter().map(|(number, (at, ..))| ((*at, *number), ())).collect();
        let mut of_late = 0;
        while let Some(((now, number), ())) = due.pop_first().filter(|((at, _), ())| *at <= until) {
            of_late += u64::from(until.since(now) < 2 * HEARTBEAT_MICROS);
            let (_, _, sent) = &mut self.executors.get_mut(&number).unwrap();
            *sent += 1;
            let update = Update { number: *sent, ..Update::default() };
            let connection = ConnectionId(number);
            dispatcher.handle(now, Event::Update { connection, update });
            self.obey(dispatcher);
            while dispatcher.poll_timeout().is_some_and(|(at, _)| at <= now) {
                dispatcher.handle_timeout(now);
                self.obey(dispatcher);
            }
            let (next, apart, _) = self.executors.get_mut(&number).unwrap();
            *next = now.after(*apart);
            due.insert((*next, number), ());
        }
        of_late
    }

    fn obey(&mut self, dispatcher: &mut Dispatcher) {
        while let Some(action) = dispatcher.poll_action() {
            if let Action::Order { connection, order } = action
                && order.heartbeat_micros > 0
                && let Some((_, apart, _)) = self.executors.get_mut(&connection.0)
            {
                *apart = order.heartbeat_micros;
            }
        }
    }
}

#[test]
fn very_many_executors_are_heard_less_often_and_none_is_taken_for_lost() {
    // Those of the second half find out when they join.
    let many = 2 * HEARTBEAT_EXECUTORS_MAX;
    let mut dispatcher = Dispatcher::new();
    let mut quiet = Quiet::default();
    for number in 1..=many {
        let now = Time(100 * number);
        join(&mut dispatcher, now, number);
        quiet.executors.insert(number, (now.after(HEARTBEAT_MICROS), HEARTBEAT_MICROS, 0));
        quiet.obey(&mut dispatcher);
    }
    let sent = quiet.run(&mut dispatcher, Time(18_000_000));
    assert_eq!(sent, many, "each sent one in twice the time between those of few");
    assert!(quiet.executors.values().all(|(_, apart, _)| *apart == 2 * HEARTBEAT_MICROS));
    assert_eq!(dispatcher.executor_views().count() as u64, many);

    // One falls silent, and is lost after as many heartbeats as ever.
    let (last, ..) = quiet.executors.remove(&1).unwrap();
    let heard = last.0 - 2 * HEARTBEAT_MICROS;
    quiet.run(&mut dispatcher, Time(heard + 2 * HEARTBEAT_LOST_MICROS - 100_000));
    assert_eq!(dispatcher.executor_views().count() as u64, many);
    let now = Time(heard + 2 * HEARTBEAT_LOST_MICROS + 100_000);
    quiet.run(&mut dispatcher, now);
    assert_eq!(dispatcher.executor_views().count() as u64, many - 1);

    // The others leave but ten, which are heard as often as few are.
    for number in quiet.executors.split_off(&12).into_keys() {
        dispatcher.handle(now, Event::Closed { connection: ConnectionId(number) });
    }
    quiet.run(&mut dispatcher, now.after(RECONNECT_GRACE_MICROS + 5 * HEARTBEAT_MICROS));
    assert_eq!(dispatcher.executor_views().count(), 10);
    assert!(quiet.executors.values().all(|(_, apart, _)| *apart == HEARTBEAT_MICROS));
    dispatcher.check().expect("the dispatcher's books are in order");
}
