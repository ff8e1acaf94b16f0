//! Parts of objects that a dispatcher passes on: each question is answered once, with what
//! somebody has who was asked, or for those who do not answer.

use crate::fixture::{actions, executor};
use falkon_core::data::object::ObjectId;
use falkon_core::data::stage::Changes;
use falkon_core::dispatch::{
    AccessError, Action, ConnectionId, Dispatcher, Event, NodeClass, Purpose, Reply, Scope,
    Subtree, Update,
};
use falkon_core::limits::{
    CLIENT_PART_REQUESTS_MAX, CLIENTS_PART_REQUESTS_MAX, PART_ANSWER_MICROS_MAX,
    PEER_PART_REQUESTS_MAX,
};
use falkon_core::part::{PartAnswer, PartQuestion};
use falkon_core::task::{Resources, Time};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Relays to others, and executors.
const BELOW: [ConnectionId; 4] =
    [ConnectionId(10), ConnectionId(11), ConnectionId(12), ConnectionId(13)];
const RELAYS: usize = 2;
/// A relay that lends the executors.
const ABOVE: ConnectionId = ConnectionId(20);
/// A client.
const CLIENT: ConnectionId = ConnectionId(30);
const WHOLE: u64 = 100;

/// A dispatcher with relays and executors, of which the one at a place holds the object of that
/// number, and all hold the object after the last.
fn world() -> Dispatcher {
    let mut dispatcher = Dispatcher::new();
    let now = Time(1);
    for (place, connection) in BELOW.into_iter().enumerate() {
        let is_relay = place < RELAYS;
        let cpus = if is_relay { 0 } else { 1 };
        let join = executor(place as u64 + 1, cpus);
        dispatcher.handle(now, Event::Join { connection, join });
        let held = [place, BELOW.len()].map(|number| (ObjectId(number as u128), WHOLE));
        let cache = Changes { anew: true, added: held.to_vec(), ..Changes::default() };
        let subtree = is_relay.then(|| {
            let capacity = Resources::cpus(1);
            let nodes = vec![NodeClass { capacity, has_cache: true, count: 2 }];
            Box::new(Subtree { relays: vec![place as u64 + 1], nodes, ..Subtree::default() })
        });
        let update =
            Update { number: 1, subtree, cache: Some(Box::new(cache)), ..Update::default() };
        dispatcher.handle(now, Event::Update { connection, update });
    }
    actions(&mut dispatcher);
    dispatcher
}

fn question(object: usize) -> PartQuestion {
    PartQuestion { object: ObjectId(object as u128), from: 10, count: 20 }
}

fn here() -> PartAnswer {
    PartAnswer::Here { whole: WHOLE, bytes: vec![7; 20] }
}

fn read(connection: ConnectionId, number: u64, object: usize) -> Event {
    Event::ReadPart { connection, number, question: question(object) }
}

/// What a dispatcher says about parts.
#[derive(Debug, Default)]
struct Said {
    /// Who is asked, under which number.
    asked: Vec<(ConnectionId, u64)>,
    /// To whom, under which number or request.
    answers: Vec<(ConnectionId, u64, PartAnswer)>,
}

fn said(dispatcher: &mut Dispatcher) -> Said {
    let mut said = Said::default();
    for action in actions(dispatcher) {
        match action {
            Action::AskPart { connection, number, .. } => said.asked.push((connection, number)),
            Action::Part { connection, number, answer } => {
                said.answers.push((connection, number, answer));
            }
            Action::Reply { connection, request, reply: Reply::Part(answer) } => {
                assert_ne!(connection, CLIENT);
                said.answers.push((connection, request, answer));
            }
            Action::Reply { connection, request, reply: Reply::PartForClient(answer) } => {
                said.answers.push((connection, request, answer));
            }
            Action::Reply { connection, reply: Reply::Parts(questions), .. } => {
                said.asked.extend(questions.iter().map(|(number, _)| (connection, *number)));
            }
            _ => {}
        }
    }
    dispatcher.check().unwrap();
    said
}

fn tell(
    dispatcher: &mut Dispatcher,
    (connection, number): (ConnectionId, u64),
    answer: PartAnswer,
) {
    dispatcher.handle(Time(2), Event::PartTold { connection, number, answer });
}

#[test]
fn executors_are_asked_before_relays_and_nobody_twice() {
    let mut dispatcher = world();
    let asker = BELOW[3];
    dispatcher.handle(Time(2), read(asker, 7, BELOW.len()));
    let mut order = Vec::new();
    for _ in 0..3 {
        let Said { asked, answers } = said(&mut dispatcher);
        assert_eq!((asked.len(), answers), (1, Vec::new()));
        order.push(asked[0].0);
        tell(&mut dispatcher, asked[0], PartAnswer::Gone);
    }
    assert_eq!(order[0], BELOW[2]);
    order.sort_unstable();
    assert_eq!(order, BELOW[..3]);
    assert_eq!(said(&mut dispatcher).answers, [(asker, 7, PartAnswer::Gone)]);
}

#[test]
fn what_nobody_here_has_is_asked_for_above_and_never_up_again() {
    let mut dispatcher = world();
    dispatcher.handle(Time(2), read(BELOW[3], 1, 99));
    assert_eq!(said(&mut dispatcher).answers, [(BELOW[3], 1, PartAnswer::Gone)]);
    dispatcher.handle(Time(2), Event::AwaitParts { connection: ABOVE, request: 5 });
    dispatcher.handle(Time(2), read(BELOW[3], 2, 99));
    let Said { asked, answers } = said(&mut dispatcher);
    assert_eq!((asked.len(), asked[0].0, answers), (1, ABOVE, Vec::new()));
    // It takes no more before it asks.
    dispatcher.handle(Time(2), read(BELOW[3], 3, 99));
    assert_eq!(said(&mut dispatcher).asked, []);
    tell(&mut dispatcher, asked[0], here());
    assert_eq!(said(&mut dispatcher).answers, [(BELOW[3], 2, here())]);
    let connection = ABOVE;
    dispatcher.handle(Time(2), Event::AwaitParts { connection, request: 6 });
    let asked = said(&mut dispatcher).asked;
    tell(&mut dispatcher, asked[0], PartAnswer::Gone);
    assert_eq!(said(&mut dispatcher).answers, [(BELOW[3], 3, PartAnswer::Gone)]);
    let event = Event::ReadPartBelow { connection, request: 7, question: question(99) };
    dispatcher.handle(Time(2), event);
    assert_eq!(said(&mut dispatcher).answers, [(ABOVE, 7, PartAnswer::Gone)]);
}

#[test]
fn a_connection_has_no_more_than_so_many_on_their_way() {
    let mut dispatcher = world();
    let most = PEER_PART_REQUESTS_MAX as u64;
    (0..=most).for_each(|number| dispatcher.handle(Time(2), read(BELOW[3], number, 2)));
    let Said { asked, answers } = said(&mut dispatcher);
    assert_eq!(asked.len() as u64, most);
    assert_eq!(answers, [(BELOW[3], most, PartAnswer::Busy)]);
    tell(&mut dispatcher, asked[0], here());
    dispatcher.handle(Time(2), read(BELOW[3], most + 1, 2));
    assert_eq!(said(&mut dispatcher).asked.len(), 1);
}

#[test]
fn those_who_say_nothing_or_something_else_are_answered_for() {
    let mut dispatcher = world();
    dispatcher.handle(Time(2), read(BELOW[3], 1, 2));
    let asked = said(&mut dispatcher).asked;
    // Another one's answer counts for nothing.
    tell(&mut dispatcher, (BELOW[0], asked[0].1), here());
    assert_eq!(said(&mut dispatcher).answers, []);
    tell(&mut dispatcher, asked[0], PartAnswer::Here { whole: WHOLE, bytes: vec![7; 21] });
    assert_eq!(said(&mut dispatcher).answers, [(BELOW[3], 1, PartAnswer::Unreached)]);
    dispatcher.handle(Time(3), read(BELOW[3], 2, 2));
    assert_eq!(said(&mut dispatcher).asked.len(), 1);
    dispatcher.handle_timeout(Time(3 + PART_ANSWER_MICROS_MAX));
    assert_eq!(said(&mut dispatcher).answers, [(BELOW[3], 2, PartAnswer::Unreached)]);
}

fn read_for(client: ConnectionId, request: u64, object: usize) -> Event {
    Event::ReadFromRelays { connection: client, request, question: question(object) }
}

#[test]
fn a_client_reads_from_relays_alone() {
    let mut dispatcher = world();
    dispatcher.handle(Time(2), Event::AwaitParts { connection: ABOVE, request: 1 });
    // An executor's own, which a client goes to by itself.
    dispatcher.handle(Time(2), read_for(CLIENT, 1, RELAYS));
    assert_eq!(said(&mut dispatcher).answers, [(CLIENT, 1, PartAnswer::Gone)]);
    dispatcher.handle(Time(2), read_for(CLIENT, 2, BELOW.len()));
    let first = said(&mut dispatcher).asked;
    tell(&mut dispatcher, first[0], PartAnswer::Gone);
    let second = said(&mut dispatcher).asked;
    let mut order = [first[0].0, second[0].0];
    order.sort_unstable();
    assert_eq!(order, BELOW[..RELAYS]);
    tell(&mut dispatcher, second[0], here());
    assert_eq!(said(&mut dispatcher).answers, [(CLIENT, 2, here())]);
    // A relay that is lost is answered for, and so is one that is away.
    dispatcher.handle(Time(2), read_for(CLIENT, 3, 0));
    assert_eq!(said(&mut dispatcher).asked.len(), 1);
    dispatcher.handle(Time(2), Event::Closed { connection: BELOW[0] });
    assert_eq!(said(&mut dispatcher).answers, [(CLIENT, 3, PartAnswer::Unreached)]);
    dispatcher.handle(Time(2), read_for(CLIENT, 4, 0));
    assert_eq!(said(&mut dispatcher).answers, [(CLIENT, 4, PartAnswer::Unreached)]);
}

#[test]
fn clients_leave_room_for_tasks() {
    let mut dispatcher = world();
    let (own, all) = (CLIENT_PART_REQUESTS_MAX, CLIENTS_PART_REQUESTS_MAX);
    let mut asked = 0;
    let mut refused = 0;
    for number in 0..all as u64 + 10 {
        let client = ConnectionId(100 + number / (own as u64 + 1));
        dispatcher.handle(Time(2), read_for(client, number, 0));
        let said = said(&mut dispatcher);
        asked += said.asked.len();
        refused += said.answers.iter().filter(|(.., told)| *told == PartAnswer::Busy).count();
    }
    // One in so many is one too many for its client.
    assert_eq!((asked, refused), (all, 10));
    dispatcher.handle(Time(2), read_for(CLIENT, 1, 0));
    assert_eq!(said(&mut dispatcher).answers, [(CLIENT, 1, PartAnswer::Busy)]);
    dispatcher.handle(Time(2), read(BELOW[3], 1, 0));
    assert_eq!(said(&mut dispatcher).asked.len(), 1);
    // Those of a client that is gone are free for others.
    dispatcher.handle(Time(2), Event::Closed { connection: ConnectionId(100) });
    dispatcher.handle(Time(2), read_for(CLIENT, 2, 0));
    assert_eq!(said(&mut dispatcher).asked.len(), 1);
}

#[test]
fn what_nobody_has_named_here_is_for_those_below() {
    let dispatcher = world();
    let reach = |scope, object| dispatcher.reach_below(scope, ObjectId(object), Purpose::Get);
    assert_eq!(reach(Scope::All, 0), Err(AccessError::OfOthers));
    assert_eq!(reach(Scope::Placed, 0), Err(AccessError::NotHeld));
    assert_eq!(reach(Scope::All, RELAYS as u128), Err(AccessError::NotHeld));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn each_question_is_answered_once_whatever_happens(
        steps in prop::collection::vec((0..10u8, 0..8usize, 0..8usize, 0..4_000_000u64), 0..150)
    ) {
        let mut dispatcher = world();
        let (mut now, mut number) = (2, 0);
        // Questions by whom has asked, and those that somebody is to answer.
        let mut open: BTreeMap<(ConnectionId, u64), usize> = BTreeMap::new();
        let mut asked: Vec<(ConnectionId, u64)> = Vec::new();
        let mut gone: Vec<ConnectionId> = Vec::new();
        for (what, one, other, micros) in steps {
            now += micros;
            let connection = match one {
                0..4 => BELOW[one],
                4 | 5 => ABOVE,
                _ => CLIENT,
            };
            let is_there = !gone.contains(&connection);
            number += 1;
            match what {
                0..4 if is_there => {
                    open.insert((connection, number), other);
                    dispatcher.handle(Time(now), match one {
                        0..4 => read(connection, number, other),
                        6.. => read_for(connection, number, other),
                        _ => Event::ReadPartBelow {
                            connection,
                            request: number,
                            question: question(other),
                        },
                    });
                }
                4..7 if !asked.is_empty() => {
                    let (connection, number) = asked.swap_remove(other % asked.len());
                    let answer = match what {
                        4 => PartAnswer::Gone,
                        5 => PartAnswer::Busy,
                        _ => here(),
                    };
                    dispatcher.handle(Time(now), Event::PartTold { connection, number, answer });
                }
                7 if is_there && connection == ABOVE => {
                    dispatcher.handle(Time(now), Event::AwaitParts { connection, request: number });
                }
                8 if is_there && other == 0 => {
                    dispatcher.handle(Time(now), Event::Closed { connection });
                    open.retain(|(asker, _), _| *asker != connection);
                    asked.retain(|(asked, _)| *asked != connection);
                    gone.push(connection);
                }
                _ => dispatcher.handle_timeout(Time(now)),
            }
            let said = said(&mut dispatcher);
            for (connection, number, _) in said.answers {
                let object = open.remove(&(connection, number));
                prop_assert!(object.is_some(), "an answer to nobody's question");
            }
            asked.extend(said.asked);
        }
        // All are answered for in the end, those that wait for a relay above as well.
        for _ in 0..2 * BELOW.len() {
            now += PART_ANSWER_MICROS_MAX;
            dispatcher.handle_timeout(Time(now));
            for (connection, number, _) in said(&mut dispatcher).answers {
                open.remove(&(connection, number));
            }
        }
        prop_assert!(open.is_empty(), "{open:?}");
    }
}
