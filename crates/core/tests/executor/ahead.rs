//! A task that was started to come after another, and the word to take it back
//! that crosses the other's end.

use falkon_core::dispatch::{Assigned, BatchId, Held, Order, Prepare};
use falkon_core::execute::{Action, Event, Executor, TaskKey};
use falkon_core::limits::{AHEAD_CHAIN_TASKS_MAX, RUNNING_TASKS_MAX};
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

/// The same where a check of all books at each step would take too long.
fn actions_unchecked(executor: &mut Executor) -> Vec<Action> {
    let actions = std::iter::from_fn(|| executor.poll_action()).collect();
    executor.check().expect("the executor's books are in order");
    actions
}

fn started(actions: &[Action]) -> Vec<u64> {
    let starts = actions.iter().filter_map(|action| match action {
        Action::Start(start) => Some(start.key.task.0),
        _ => None,
    });
    starts.collect()
}

fn key(task: u64) -> TaskKey {
    TaskKey { instance: InstanceId(0), task: TaskId(task) }
}

/// Success of a task that ran from 2 to `ended`.
fn ended(task: u64, ended: u64) -> Event {
    Event::Ended {
        key: key(task),
        outcome: Outcome::Exit(0),
        started: Time(2),
        ended: Time(ended),
        detail: None,
    }
}

/// An executor with one slot that was sent `count` tasks.
fn executor(count: u64) -> Executor {
    sent(count, Resources::cpus(1))
}

/// An executor that was sent `count` tasks of one slot each.
fn sent(count: u64, capacity: Resources) -> Executor {
    let mut executor = Executor::new(1, "node".to_owned(), capacity);
    executor.handle(Time(1), Event::Connected);
    let mut rows = Packed::default();
    for _ in 0..count {
        assert!(rows.push(b""));
    }
    let order = Order {
        prepare: vec![Prepare {
            batch: BatchId(0),
            template: Arc::new(Vec::new()),
            classes: vec![TaskClass::default()],
            everywhere: None,
        }],
        assign: vec![Assigned {
            data: None,
            batch: BatchId(0),
            instance: InstanceId(0),
            first: TaskId(0),
            count,
            class: 0,
            tries: Tries::default(),
            rows: Rows::Packed(rows),
        }],
        ..Order::default()
    };
    executor.handle(Time(2), Event::Order(order));
    executor
}

#[test]
fn a_task_taken_back_as_the_one_before_it_ends_is_started_again() {
    let mut executor = executor(2);
    assert_eq!(started(&actions(&mut executor)), [0, 1]);
    executor.handle(Time(3), Event::Order(Order { recall: 1, ..Order::default() }));
    assert!(actions(&mut executor).contains(&Action::TakeBack(key(1))));
    executor.handle(Time(4), ended(0, 4));
    actions(&mut executor);
    executor.handle(Time(5), Event::TakenBack(key(1)));
    assert_eq!(started(&actions(&mut executor)), [1]);
    executor.handle(Time(6), ended(1, 4));
    assert_eq!(reported(&actions(&mut executor)), [(1, Outcome::Exit(0))]);
}

#[test]
fn what_was_taken_back_between_two_sessions_is_given_back_once() {
    let mut executor = executor(2);
    assert_eq!(started(&actions(&mut executor)), [0, 1]);
    executor.handle(Time(3), Event::Order(Order { recall: 1, ..Order::default() }));
    assert!(actions(&mut executor).contains(&Action::TakeBack(key(1))));
    executor.handle(Time(4), Event::Disconnected);
    executor.handle(Time(5), Event::TakenBack(key(1)));
    executor.handle(Time(6), Event::Connected);
    let all = actions(&mut executor);
    // The dispatcher may send a task here again that is not held.
    let held = all.iter().find_map(|action| match action {
        Action::Join(join) => Some(join.held.iter().map(|held| held.first.0).collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!(held, Some(vec![0]));
    let given_back = |action: &Action| match action {
        Action::Update(update) => update.returned.len(),
        _ => 0,
    };
    assert_eq!(all.iter().map(given_back).sum::<usize>(), 0);
}

/// Tasks that updates report, and how they ended.
fn reported(actions: &[Action]) -> Vec<(u64, Outcome)> {
    let updates = actions.iter().filter_map(|action| match action {
        Action::Update(update) => Some(&update.reports),
        _ => None,
    });
    updates.flatten().map(|report| (report.first.0, report.outcome)).collect()
}

#[test]
fn a_task_taken_back_as_the_one_before_it_ends_and_cancelled_is_not_started_again() {
    let mut executor = executor(2);
    assert_eq!(started(&actions(&mut executor)), [0, 1]);
    executor.handle(Time(3), Event::Order(Order { recall: 1, ..Order::default() }));
    executor.handle(Time(4), ended(0, 4));
    actions(&mut executor);
    let (instance, first, tries) = (InstanceId(0), TaskId(1), Tries::default());
    let cancel = vec![Held { instance, first, count: 1, tries }];
    executor.handle(Time(5), Event::Order(Order { cancel, acknowledged: 1, ..Order::default() }));
    let mut all = actions(&mut executor);
    executor.handle(Time(6), Event::TakenBack(key(1)));
    all.extend(actions(&mut executor));
    assert_eq!(started(&all), [0u64; 0]);
    let ended: Vec<u64> = reported(&all).iter().map(|(task, _)| *task).collect();
    assert_eq!(ended, [1]);
}

#[test]
fn an_executor_runs_as_many_as_it_can_tell_of() {
    let count = RUNNING_TASKS_MAX as u64 + 1;
    let mut executor = sent(count, Resources::cpus(u32::MAX));
    let all = actions_unchecked(&mut executor);
    let in_line = |all: &[Action]| lines(all).iter().filter(|(_, after)| after.is_some()).count();
    assert_eq!(
        (started(&all).len() as u64, in_line(&all)),
        (count, 1),
        "the last waits for another"
    );
}

/// What each task that is started is to come after.
fn lines(actions: &[Action]) -> Vec<(u64, Option<u64>)> {
    let starts = actions.iter().filter_map(|action| match action {
        Action::Start(start) => Some((start.key.task.0, start.after.map(|key| key.task.0))),
        _ => None,
    });
    starts.collect()
}

#[test]
fn short_tasks_stand_in_line_and_long_ones_do_not() {
    for (micros, waiting) in [(500, AHEAD_CHAIN_TASKS_MAX as u64), (1_000_000, 1)] {
        let mut executor = executor(20);
        assert_eq!(lines(&actions(&mut executor)), [(0, None), (1, Some(0))]);
        executor.handle(Time(2 + micros), ended(0, 2 + micros));
        let line: Vec<_> = (2..2 + waiting).map(|task| (task, Some(task - 1))).collect();
        assert_eq!(lines(&actions(&mut executor)), line);
        // One that is asked for may be anywhere: nothing comes after it until it is found.
        executor.handle(Time(3 + micros), Event::Order(Order { recall: 20, ..Order::default() }));
        let asked = actions(&mut executor);
        assert!((2..2 + waiting).all(|task| asked.contains(&Action::TakeBack(key(task)))));
        executor.handle(Time(4 + micros), Event::TakenBack(key(2)));
        assert_eq!(lines(&actions(&mut executor)), []);
    }
}
