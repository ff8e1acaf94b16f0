//! A task with data that does not begin: its inputs are gone, or the worker that
//! was to call it is.

use falkon_core::data::cache::{CacheOptions, Eviction};
use falkon_core::data::declared::{AssignedData, Lists, Located};
use falkon_core::data::object::{Object, ObjectId, Sources};
use falkon_core::data::stage::{self, StageOptions};
use falkon_core::dispatch::{Assigned, BatchId, Held, Order, Prepare};
use falkon_core::execute::{Action, Event, Executor, Start};
use falkon_core::limits::INPUT_LOSSES_MAX;
use falkon_core::result::{Outcome, Tries};
use falkon_core::task::{InstanceId, Kind, Packed, Resources, Rows, TaskClass, TaskId, Time};
use std::sync::Arc;

const OBJECT: ObjectId = ObjectId(7);
const SIZE_BYTES: u64 = 10;

/// An executor with a cache that was sent one task, which reads one object.
fn executor(kind: Kind) -> Executor {
    let cache =
        CacheOptions { tiers_bytes: vec![2 * SIZE_BYTES], eviction: Eviction::Lru, seed: 1 };
    let mut executor = Executor::new(1, "one slot".to_owned(), Resources::cpus(1)).with_cache(
        &StageOptions::new(cache, 1),
        &[],
        None,
    );
    executor.handle(Time(1), Event::Connected);
    let mut rows = Packed::default();
    assert!(rows.push(b""));
    let object =
        Object { id: OBJECT, url: "/source".into(), version: "1".into(), size: Some(SIZE_BYTES) };
    let data = AssignedData {
        objects: vec![Located { object, sources: Sources { store: true, ..Sources::default() } }],
        inputs: Lists::Same(vec![0]),
        outputs: Lists::default(),
        read: Vec::new(),
    };
    let order = Order {
        prepare: vec![Prepare {
            batch: BatchId(0),
            template: Arc::new(Vec::new()),
            classes: vec![TaskClass { kind, ..TaskClass::default() }],
            everywhere: None,
        }],
        assign: vec![Assigned {
            data: Some(Box::new(data)),
            batch: BatchId(0),
            instance: InstanceId(0),
            first: TaskId(0),
            count: 1,
            class: 0,
            tries: Tries::default(),
            rows: Rows::Packed(rows),
        }],
        ..Order::default()
    };
    executor.handle(Time(2), Event::Order(order));
    executor
}

/// Fetches whatever is wanted, until there is nothing more to do. Returns how
/// many fetches that were, and what else is to be done.
fn fetch_all(executor: &mut Executor) -> (usize, Vec<Action>) {
    let (mut fetches, mut rest) = (0, Vec::new());
    while let Some(action) = executor.poll_action() {
        executor.check().expect("the executor's books are in order");
        let said = match action {
            Action::Stage(stage::Action::Fetch { fetch, .. }) => {
                fetches += 1;
                stage::Event::Fetched { fetch, bytes: SIZE_BYTES }
            }
            Action::Stage(stage::Action::Seal { partial, .. }) => {
                stage::Event::Sealed { partial, result: Ok(()) }
            }
            action => {
                rest.push(action);
                continue;
            }
        };
        executor.handle(Time(3), Event::Stage(said));
    }
    (fetches, rest)
}

fn starts(actions: Vec<Action>) -> Vec<Start> {
    let starts = actions.into_iter().filter_map(|action| match action {
        Action::Start(start) => Some(start),
        _ => None,
    });
    starts.collect()
}

/// What is reported of tasks.
fn reports(actions: &[Action]) -> Vec<Outcome> {
    let reports = actions.iter().filter_map(|action| match action {
        Action::Update(update) => Some(update.reports.iter()),
        _ => None,
    });
    reports.flatten().map(|report| report.outcome).collect()
}

/// The dispatcher cancels the task.
fn cancel(executor: &mut Executor) {
    let held =
        Held { instance: InstanceId(0), first: TaskId(0), count: 1, tries: Tries::default() };
    let order = Order { cancel: vec![held], ..Order::default() };
    executor.handle(Time(4), Event::Order(order));
}

/// The input is found to be gone as the task is to begin.
fn lose(executor: &mut Executor, start: Start) {
    executor.handle(Time(4), Event::Stage(stage::Event::Lost(OBJECT)));
    executor.handle(Time(4), Event::Unstarted(Box::new(start)));
}

#[test]
fn inputs_that_are_gone_are_staged_again_before_the_task_begins() {
    let mut executor = executor(Kind::Process);
    let (fetches, actions) = fetch_all(&mut executor);
    let mut started = starts(actions);
    assert_eq!((fetches, started.len()), (1, 1));
    for _ in 0..INPUT_LOSSES_MAX {
        let start = started.remove(0);
        lose(&mut executor, start.clone());
        let (fetches, actions) = fetch_all(&mut executor);
        started = starts(actions);
        assert_eq!(fetches, 1);
        assert_eq!(started, [start]);
    }
    // Not for ever.
    lose(&mut executor, started.remove(0));
    let (_, actions) = fetch_all(&mut executor);
    assert_eq!(reports(&actions), [Outcome::NoInput]);
    assert!(starts(actions).is_empty());
}

#[test]
fn a_task_that_was_cancelled_meanwhile_is_not_staged_again() {
    let mut executor = executor(Kind::Process);
    let (_, actions) = fetch_all(&mut executor);
    let start = starts(actions).remove(0);
    cancel(&mut executor);
    lose(&mut executor, start);
    let (fetches, actions) = fetch_all(&mut executor);
    assert_eq!((fetches, starts(actions).len()), (0, 0));
}

/// No worker has begun a call.
fn give_back(executor: &mut Executor, start: &Start) {
    executor.handle(Time(4), Event::Returned { key: start.key, count: 1 });
}

#[test]
fn a_call_that_no_worker_has_made_keeps_its_inputs() {
    let mut executor = executor(Kind::Function);
    let (fetches, actions) = fetch_all(&mut executor);
    let mut started = starts(actions);
    assert_eq!((fetches, started.len()), (1, 1));
    assert!(started[0].data.is_some());
    for _ in 0..3 {
        let start = started.remove(0);
        give_back(&mut executor, &start);
        let (fetches, actions) = fetch_all(&mut executor);
        assert!(actions.contains(&Action::Clear(start.key)), "its directory goes");
        started = starts(actions);
        assert_eq!((fetches, &started), (0, &vec![start]));
    }
    // Also if they are gone.
    executor.handle(Time(4), Event::Stage(stage::Event::Lost(OBJECT)));
    give_back(&mut executor, &started[0]);
    let (fetches, actions) = fetch_all(&mut executor);
    assert_eq!((fetches, starts(actions)), (1, started));
}

#[test]
fn a_call_that_was_cancelled_before_a_worker_made_it_is_reported_once() {
    let mut executor = executor(Kind::Function);
    let (_, actions) = fetch_all(&mut executor);
    let start = starts(actions).remove(0);
    cancel(&mut executor);
    give_back(&mut executor, &start);
    let (_, actions) = fetch_all(&mut executor);
    assert_eq!(reports(&actions), [Outcome::Cancelled]);
    assert!(actions.contains(&Action::Clear(start.key)));
}

#[test]
fn an_executor_is_idle_once_it_has_returned_the_task_that_waited_for_data() {
    let mut executor = executor(Kind::Process).with_idle_exit(Some(1_000));
    while executor.poll_action().is_some() {}
    executor.handle(Time(1_000), Event::Order(Order { recall: 1, ..Order::default() }));
    let actions: Vec<Action> = std::iter::from_fn(|| executor.poll_action()).collect();
    let returned =
        |action: &Action| matches!(action, Action::Update(update) if update.returned.len() == 1);
    assert!(actions.iter().any(returned), "{actions:?}");
    assert_eq!(executor.poll_timeout(), Some((Time(2_000), "idle exit")));
}
