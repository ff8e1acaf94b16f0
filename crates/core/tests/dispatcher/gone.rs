//! Whoever waits for results of an instance that another client destroys is
//! told that none will come.

use crate::fixture;
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, InstanceOptions, Record, Reply,
};
use falkon_core::task::{InstanceId, Time};

const OWNER: ConnectionId = ConnectionId(0);

fn actions(dispatcher: &mut Dispatcher, event: Event) -> Vec<Action> {
    dispatcher.handle(Time(1), event);
    fixture::actions(dispatcher)
}

fn created(dispatcher: &mut Dispatcher) -> InstanceId {
    let options = InstanceOptions::default();
    let create = Event::Create { connection: OWNER, request: 0, options };
    let created = actions(dispatcher, create).into_iter().find_map(|action| match action {
        Action::Reply { reply: Reply::Created(instance), .. } => Some(instance),
        _ => None,
    });
    created.unwrap()
}

fn subscribe(dispatcher: &mut Dispatcher, client: u64, instance: InstanceId) {
    let connection = ConnectionId(client);
    let event = Event::Subscribe { connection, request: 1, instance, from: 0 };
    actions(dispatcher, event);
}

#[test]
fn every_other_subscriber_is_told_once_and_after_the_journal() {
    let mut dispatcher = Dispatcher::new();
    let (lost, kept) = (created(&mut dispatcher), created(&mut dispatcher));
    for client in [0, 1, 2, 2] {
        subscribe(&mut dispatcher, client, lost);
    }
    for client in [2, 3] {
        subscribe(&mut dispatcher, client, kept);
    }
    let destroy = Event::Destroy { connection: OWNER, request: 2, instance: lost };
    let told = actions(&mut dispatcher, destroy);
    let journaled = told
        .iter()
        .position(|action| matches!(action, Action::Journal(Record::Destroyed { .. })))
        .unwrap();
    let gone: Vec<(usize, ConnectionId, InstanceId)> = told
        .iter()
        .enumerate()
        .filter_map(|(at, action)| match action {
            Action::Gone { connection, instance } => Some((at, *connection, *instance)),
            _ => None,
        })
        .collect();
    assert!(gone.iter().all(|(at, _, instance)| *at > journaled && *instance == lost));
    let whom: Vec<ConnectionId> = gone.iter().map(|(_, connection, _)| *connection).collect();
    assert_eq!(whom, [ConnectionId(1), ConnectionId(2)], "the owner knows it by the answer");
}
