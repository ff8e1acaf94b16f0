//! Executors that come back to a dispatcher that was restarted.

use crate::fixture::{self, array, executor};
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, Held, InstanceOptions, Join, Record, Update,
};
use falkon_core::limits::{RECONNECT_GRACE_MICROS, RECOVERY_MICROS_MAX};
use falkon_core::result::Tries;
use falkon_core::task::{ExecutorId, InstanceId, TaskId, Time};

const INSTANCE: InstanceId = InstanceId(0);

/// A dispatcher that was restarted with so many tasks and executors.
fn restarted(tasks: u64, executors: u64) -> Dispatcher {
    let mut dispatcher = Dispatcher::new();
    let options = InstanceOptions::default();
    dispatcher.recover(Record::Created { instance: INSTANCE, created: Time(0), options }).unwrap();
    let submission = array(tasks);
    let (instance, first, queued) = (INSTANCE, TaskId(0), Time(0));
    dispatcher
        .recover(Record::Submitted { instance, first, queued, client: 1, submission })
        .unwrap();
    for executor in 0..executors {
        let (incarnation, name) = (1 + executor, String::new());
        let executor = ExecutorId(executor);
        dispatcher.recover(Record::ExecutorSeen { executor, incarnation, name }).unwrap();
    }
    dispatcher.recovered(Time(0));
    dispatcher
}

fn actions(dispatcher: &mut Dispatcher, now: Time) -> Vec<Action> {
    dispatcher.handle_timeout(now);
    fixture::actions(dispatcher)
}

/// The executor numbered so comes back with the task of that number; those
/// before it are heard from.
fn come_back(dispatcher: &mut Dispatcher, now: Time, number: u64) -> Vec<Action> {
    for connection in (0..number).map(ConnectionId) {
        dispatcher.handle(now, Event::Update { connection, update: Update::default() });
    }
    let (instance, first, count) = (INSTANCE, TaskId(number), 1);
    let join = Join {
        held: vec![Held { instance, first, count, tries: Tries::default() }],
        ..executor(1 + number, 2)
    };
    dispatcher.handle(now, Event::Join { connection: ConnectionId(number), join });
    actions(dispatcher, now)
}

fn sent_or_disowned(actions: &[Action]) -> usize {
    let orders = actions.iter().filter_map(|action| match action {
        Action::Order { order, .. } => Some(order.assign.len() + order.disown.len()),
        _ => None,
    });
    orders.sum()
}

#[test]
fn executors_that_keep_coming_back_keep_their_tasks() {
    const EXECUTORS: u64 = 100;
    let mut dispatcher = restarted(1_000, EXECUTORS);
    let mut now = Time(0);
    for number in 0..EXECUTORS - 1 {
        now = now.after(RECONNECT_GRACE_MICROS / 4);
        let done = come_back(&mut dispatcher, now, number);
        assert_eq!(sent_or_disowned(&done), 0, "executor {number}");
    }
    // The last one does not come: it is given up when nobody has come for a
    // while, and what waits goes to those that are there.
    let done = actions(&mut dispatcher, now.after(RECONNECT_GRACE_MICROS - 1));
    assert_eq!(sent_or_disowned(&done), 0);
    actions(&mut dispatcher, now.after(RECONNECT_GRACE_MICROS));
    let counts = dispatcher.instance_view(INSTANCE).unwrap().counts();
    assert_eq!(counts.dispatched, 2 * (EXECUTORS - 1), "each has what it had, and one more");
}

#[test]
fn the_wait_for_executors_has_an_end() {
    let mut dispatcher = restarted(1_000, 1_000);
    let mut now = Time(0);
    let sent = (0..100).find(|number| {
        now = now.after(RECONNECT_GRACE_MICROS - 1);
        sent_or_disowned(&come_back(&mut dispatcher, now, *number)) > 0
    });
    assert!(sent.is_some(), "nothing is ever sent");
    assert!(now >= Time(RECOVERY_MICROS_MAX));
    assert!(now < Time(RECOVERY_MICROS_MAX + RECONNECT_GRACE_MICROS));
}
