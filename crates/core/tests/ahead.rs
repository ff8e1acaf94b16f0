//! A task that was started to come after another, and the word to take it back
//! that crosses the other's end.

use falkon_core::dispatch::{Assigned, BatchId, Order, Prepare};
use falkon_core::execute::{Action, Event, Executor, TaskKey};
use falkon_core::result::{Outcome, Tries};
use falkon_core::task::{InstanceId, Packed, Resources, Rows, TaskClass, TaskId, Time};
use std::sync::Arc;

/// What the executor wants done, checked after each step.
fn actions(executor: &mut Executor) -> Vec<Action> {
    let mut actions = Vec::new();
    while let Some(action) = executor.poll_action() {
        executor.check().expect("the executor's books are in order");
        actions.push(action);
    }
    actions
}

fn started(actions: &[Action]) -> Vec<u64> {
    let starts = actions.iter().filter_map(|action| match action {
        Action::Start(start) => Some(start.key.task.0),
        _ => None,
    });
    starts.collect()
}

#[test]
fn a_task_taken_back_as_the_one_before_it_ends_is_started_again() {
    let mut executor = Executor::new(1, "one slot".to_owned(), Resources::cpus(1));
    executor.handle(Time(1), Event::Connected);
    let mut rows = Packed::default();
    for _ in 0..2 {
        assert!(rows.push(b""));
    }
    let order = Order {
        prepare: vec![Prepare {
            batch: BatchId(0),
            template: Arc::new(Vec::new()),
            classes: vec![TaskClass::default()],
        }],
        assign: vec![Assigned {
            batch: BatchId(0),
            instance: InstanceId(0),
            first: TaskId(0),
            count: 2,
            class: 0,
            tries: Tries::default(),
            rows: Rows::Packed(rows),
        }],
        ..Order::default()
    };
    executor.handle(Time(2), Event::Order(order));
    assert_eq!(started(&actions(&mut executor)), [0, 1]);
    let key = |task| TaskKey { instance: InstanceId(0), task: TaskId(task) };
    executor.handle(Time(3), Event::Order(Order { recall: 1, ..Order::default() }));
    assert!(actions(&mut executor).contains(&Action::TakeBack(key(1))));
    let ended = |task| Event::Ended {
        key: key(task),
        outcome: Outcome::Exit(0),
        started: Time(2),
        ended: Time(4),
        detail: None,
    };
    executor.handle(Time(4), ended(0));
    actions(&mut executor);
    executor.handle(Time(5), Event::TakenBack(key(1)));
    assert_eq!(started(&actions(&mut executor)), [1]);
    executor.handle(Time(6), ended(1));
    let outcomes: Vec<Outcome> = actions(&mut executor)
        .iter()
        .filter_map(|action| match action {
            Action::Update(update) => Some(&update.reports),
            _ => None,
        })
        .flatten()
        .map(|report| report.outcome)
        .collect();
    assert_eq!(outcomes, [Outcome::Exit(0)]);
}
