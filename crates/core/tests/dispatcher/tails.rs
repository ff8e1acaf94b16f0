//! Questions about what tasks write below relays: each is answered once, by the relay that was
//! asked, or for it.

use crate::fixture::{actions, array, executor};
use falkon_core::dispatch::{
    AccessError, Action, ConnectionId, Dispatcher, Event, InstanceOptions, NodeClass, Reply,
    Subtree, Update,
};
use falkon_core::limits::{PEER_TAIL_REQUESTS_MAX, TAIL_ANSWER_MICROS_MAX};
use falkon_core::result::Stream;
use falkon_core::tail::{TAIL_PART_BYTES_MAX, TAIL_PATIENCE_MS_MAX, Tail, TailQuestion, TailState};
use falkon_core::task::{InstanceId, Resources, TaskId, TaskKey, Time};
use proptest::prelude::*;
use std::collections::BTreeMap;

const CLIENT: ConnectionId = ConnectionId(1);
const OTHER: ConnectionId = ConnectionId(2);
const RELAYS: [ConnectionId; 2] = [ConnectionId(10), ConnectionId(11)];
const DIRECT: ConnectionId = ConnectionId(12);
const TASKS: u64 = 8;

/// To whom, under which request, and what.
type Answers = Vec<(ConnectionId, u64, Result<Tail, AccessError>)>;

/// A dispatcher with two relays and an executor of its own, each of which has a task or more.
/// Returns whose each task is.
fn world() -> (Dispatcher, BTreeMap<u64, ConnectionId>) {
    let mut dispatcher = Dispatcher::new();
    let now = Time(1);
    for (relay, number) in RELAYS.into_iter().zip(1..) {
        let name = format!("relay-{number}");
        let join = falkon_core::dispatch::Join { name, ..executor(number, 0) };
        dispatcher.handle(now, Event::Join { connection: relay, join });
        let capacity = Resources::cpus(1);
        let subtree = Subtree {
            process: number,
            relays: vec![number],
            nodes: vec![NodeClass { capacity, has_cache: false, count: 2 }],
            ..Subtree::default()
        };
        let update = Update { number: 1, subtree: Some(Box::new(subtree)), ..Update::default() };
        dispatcher.handle(now, Event::Update { connection: relay, update });
    }
    dispatcher.handle(now, Event::Join { connection: DIRECT, join: executor(3, 1) });
    let (connection, request, instance) = (CLIENT, 1, InstanceId(0));
    let options = InstanceOptions::default();
    dispatcher.handle(now, Event::Create { connection, request, options });
    let (first, client, submission) = (TaskId(0), 1, array(TASKS));
    let submit = Event::Submit { connection, request, instance, first, client, submission };
    dispatcher.handle(now, submit);
    let mut owners = BTreeMap::new();
    for action in actions(&mut dispatcher) {
        let Action::Order { connection, order } = action else { continue };
        for run in order.assign {
            owners.extend((run.first.0..run.first.0 + run.count).map(|task| (task, connection)));
        }
    }
    for owner in [RELAYS[0], RELAYS[1], DIRECT] {
        assert!(owners.values().any(|found| *found == owner), "{owner:?} has a task: {owners:?}");
    }
    (dispatcher, owners)
}

fn ask(connection: ConnectionId, request: u64, task: u64) -> Event {
    let task = TaskKey { instance: InstanceId(0), task: TaskId(task) };
    let question = TailQuestion { task, stream: Stream::Stdout, from: 0, patience_ms: u32::MAX };
    Event::AskTail { connection, request, question }
}

fn tail(bytes: usize) -> Tail {
    let total_bytes = bytes as u64;
    Tail { state: TailState::Running, is_cut: false, total_bytes, bytes: vec![7; bytes] }
}

/// The answers among what a dispatcher does, and what relays are asked.
fn said(dispatcher: &mut Dispatcher) -> (Answers, Vec<(ConnectionId, u64)>) {
    let (mut answers, mut asked) = (Vec::new(), Vec::new());
    for action in actions(dispatcher) {
        match action {
            Action::Reply { connection, request, reply: Reply::Tail(told) } => {
                answers.push((connection, request, told));
            }
            Action::AskTail { connection, number, question } => {
                assert!(question.patience_ms <= TAIL_PATIENCE_MS_MAX);
                asked.push((connection, number));
            }
            _ => {}
        }
    }
    (answers, asked)
}

fn of(owners: &BTreeMap<u64, ConnectionId>, whose: ConnectionId) -> u64 {
    *owners.iter().find(|(_, owner)| **owner == whose).unwrap().0
}

#[test]
fn what_no_relay_has_is_answered_at_once() {
    let (mut dispatcher, owners) = world();
    let waiting = (0..TASKS).find(|task| !owners.contains_key(task)).unwrap();
    let direct = of(&owners, DIRECT);
    for (request, task) in [(7, direct), (8, waiting), (9, TASKS)] {
        dispatcher.handle(Time(2), ask(CLIENT, request, task));
    }
    let (answers, asked) = said(&mut dispatcher);
    assert_eq!(asked, []);
    let expected = [
        (CLIENT, 7, Ok(Tail::without_bytes(TailState::Gone))),
        (CLIENT, 8, Err(AccessError::NotSent)),
        (CLIENT, 9, Err(AccessError::NoTask)),
    ];
    assert_eq!(answers, expected);
}

#[test]
fn a_relay_answers_what_it_was_asked_and_no_more_than_a_part() {
    let (mut dispatcher, owners) = world();
    dispatcher.handle(Time(2), ask(CLIENT, 7, of(&owners, RELAYS[0])));
    let (answers, asked) = said(&mut dispatcher);
    assert_eq!((answers.len(), asked.len(), asked[0].0), (0, 1, RELAYS[0]));
    let number = asked[0].1;
    // Another relay, an executor, and a number that nobody was asked under.
    for (connection, number) in
        [(RELAYS[1], number), (DIRECT, number), (CLIENT, number), (RELAYS[0], number + 1)]
    {
        dispatcher.handle(Time(3), Event::TailTold { connection, number, told: Ok(tail(1)) });
        assert_eq!(said(&mut dispatcher).0, []);
    }
    let long = tail(TAIL_PART_BYTES_MAX + 9);
    for expected in [1, 0] {
        let told = Ok(long.clone());
        let connection = RELAYS[0];
        dispatcher.handle(Time(3), Event::TailTold { connection, number, told });
        let (answers, _) = said(&mut dispatcher);
        assert_eq!(answers.len(), expected);
        for (_, _, told) in answers {
            assert_eq!(told.unwrap().bytes.len(), TAIL_PART_BYTES_MAX);
        }
    }
}

#[test]
fn a_client_asks_no_more_than_so_much_at_a_time() {
    let (mut dispatcher, owners) = world();
    let task = of(&owners, RELAYS[0]);
    for request in 0..=PEER_TAIL_REQUESTS_MAX as u64 {
        dispatcher.handle(Time(2), ask(CLIENT, request, task));
    }
    dispatcher.handle(Time(2), ask(OTHER, 7, task));
    let (answers, asked) = said(&mut dispatcher);
    assert_eq!(asked.len(), PEER_TAIL_REQUESTS_MAX + 1);
    let [(connection, request, Err(AccessError::Unreached { .. }))] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!((*connection, *request), (CLIENT, PEER_TAIL_REQUESTS_MAX as u64));
}

#[derive(Debug, Clone)]
enum Step {
    Ask { asker: bool, relay: usize },
    Tell { relay: usize, pick: usize, known: bool },
    CloseRelay(usize),
    CloseAsker,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<bool>(), 0..2_usize).prop_map(|(asker, relay)| Step::Ask { asker, relay }),
        6 => (0..2_usize, any::<usize>(), any::<bool>())
            .prop_map(|(relay, pick, known)| Step::Tell { relay, pick, known }),
        1 => (0..2_usize).prop_map(Step::CloseRelay),
        1 => Just(Step::CloseAsker),
        2 => (0..TAIL_ANSWER_MICROS_MAX).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Whatever relays say and whoever goes: a question of a connection that is there has one
    /// answer, at the latest when its relay has had its time.
    #[test]
    fn each_question_has_one_answer(steps in prop::collection::vec(step(), 0..80)) {
        let (mut dispatcher, owners) = world();
        let mut now = 10;
        // By number: who asked under which request, and until when it may stay open.
        let mut open: BTreeMap<u64, (ConnectionId, u64, ConnectionId, u64)> = BTreeMap::new();
        let mut is_there = [true, true];
        let mut request = 0;
        for step in steps {
            let mut ends: Vec<(ConnectionId, u64)> = Vec::new();
            let mut new = None;
            match step {
                Step::Ask { asker, relay } if is_there[relay] => {
                    request += 1;
                    let asker = if asker { CLIENT } else { OTHER };
                    dispatcher.handle(Time(now), ask(asker, request, of(&owners, RELAYS[relay])));
                    new = Some((asker, request, RELAYS[relay]));
                }
                Step::Tell { relay, pick, known } if is_there[relay] && !open.is_empty() => {
                    let (number, (asker, asked, whose, _)) =
                        open.iter().nth(pick % open.len()).unwrap();
                    if *whose == RELAYS[relay] {
                        ends.push((*asker, *asked));
                    }
                    let told = if known { Ok(tail(3)) } else { Err(AccessError::ExecutorGone) };
                    let (connection, number) = (RELAYS[relay], *number);
                    dispatcher.handle(Time(now), Event::TailTold { connection, number, told });
                }
                Step::CloseRelay(relay) if is_there[relay] => {
                    is_there[relay] = false;
                    let of_it = open.values().filter(|(_, _, whose, _)| *whose == RELAYS[relay]);
                    ends.extend(of_it.map(|(asker, asked, _, _)| (*asker, *asked)));
                    dispatcher.handle(Time(now), Event::Closed { connection: RELAYS[relay] });
                }
                Step::CloseAsker => {
                    open.retain(|_, (asker, _, _, _)| *asker != OTHER);
                    dispatcher.handle(Time(now), Event::Closed { connection: OTHER });
                }
                Step::Wait(micros) => {
                    now += micros;
                    // Relays that are there stay so.
                    for relay in (0..2).filter(|relay| is_there[*relay]) {
                        let update = Update { number: 1 + now, ..Update::default() };
                        let event = Event::Update { connection: RELAYS[relay], update };
                        dispatcher.handle(Time(now), event);
                    }
                    dispatcher.handle_timeout(Time(now));
                    let late = open.values().filter(|(_, _, _, until)| *until <= now);
                    ends.extend(late.map(|(asker, asked, _, _)| (*asker, *asked)));
                }
                _ => {}
            }
            let (answers, asked) = said(&mut dispatcher);
            if let Some((asker, request, relay)) = new
                && let [(connection, number)] = asked[..]
            {
                prop_assert_eq!(connection, relay);
                let until = now + u64::from(TAIL_PATIENCE_MS_MAX) * 1000 + TAIL_ANSWER_MICROS_MAX;
                open.insert(number, (asker, request, relay, until));
            } else if let Some((asker, request, _)) = new {
                // There was no room.
                ends.push((asker, request));
            }
            let mut answered: Vec<_> = answers.iter().map(|(to, asked, _)| (*to, *asked)).collect();
            answered.sort_unstable();
            ends.sort_unstable();
            prop_assert_eq!(&answered, &ends);
            open.retain(|_, (asker, asked, _, _)| !answered.contains(&(*asker, *asked)));
        }
    }
}
