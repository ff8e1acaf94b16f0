//! When an executor tells what has ended, and when it hears that this was taken
//! in.

use crate::fixture::{self, executor};
use falkon_core::dispatch::{
    Assigned, BatchId, ConnectionId, Dispatcher, Event, Order, Prepare, Update,
};
use falkon_core::execute::{self, Executor, TaskKey};
use falkon_core::limits::{LEAVE_ALONE_MICROS_MAX, REPORTS_APART_MICROS};
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{InstanceId, Kind, Range, Resources, Rows, TaskClass, TaskId, Time};
use std::sync::Arc;

const EXECUTOR: ConnectionId = ConnectionId(0);

/// A dispatcher with one executor.
fn dispatcher() -> Dispatcher {
    let mut dispatcher = Dispatcher::new();
    let join = executor(1, 1);
    dispatcher.handle(Time(0), Event::Join { connection: EXECUTOR, join });
    orders(&mut dispatcher);
    dispatcher
}

/// What the executor is told, checked after each step.
fn orders(dispatcher: &mut Dispatcher) -> Vec<Order> {
    fixture::orders(dispatcher).into_iter().map(|(_, order)| order).collect()
}

/// A report about a task that nobody knows: it calls for no other order.
fn update(number: u64) -> Update {
    let report = Report {
        instance: InstanceId(7),
        first: TaskId(0),
        count: 1,
        tries: Tries::default(),
        outcome: Outcome::Exit(0),
        started: Time(0),
        ended: Time(0),
        detail: None,
    };
    Update { number, reports: vec![report], ..Update::default() }
}

fn says(dispatcher: &mut Dispatcher, now: Time, update: Update) -> Vec<Order> {
    dispatcher.handle(now, Event::Update { connection: EXECUTOR, update });
    orders(dispatcher)
}

#[test]
fn reports_are_acknowledged_together_after_a_moment() {
    let mut dispatcher = dispatcher();
    for number in 1..=3 {
        assert_eq!(says(&mut dispatcher, Time(number), update(number)), []);
    }
    let (due, why) = dispatcher.poll_timeout().expect("a time is set");
    assert_eq!(why, "news for executors");
    dispatcher.handle_timeout(due);
    assert_eq!(orders(&mut dispatcher), [Order { acknowledged: 3, ..Order::default() }]);
    let (_, why) = dispatcher.poll_timeout().expect("silence is watched");
    assert_ne!(why, "news for executors");
}

#[test]
fn an_executor_that_leaves_does_not_wait_for_its_acknowledgement() {
    let mut dispatcher = dispatcher();
    assert_eq!(says(&mut dispatcher, Time(1), update(1)), []);
    let leaving = Update { number: 2, leaving: true, ..Update::default() };
    let told = says(&mut dispatcher, Time(2), leaving);
    assert_eq!(told, [Order { acknowledged: 2, ..Order::default() }]);
    let told = says(&mut dispatcher, Time(3), update(3));
    assert_eq!(told, [Order { acknowledged: 3, ..Order::default() }]);
}

/// A connected executor with one slot and so many tasks.
fn busy_executor(tasks: u64) -> Executor {
    let mut executor = Executor::new(1, String::new(), Resources::cpus(1));
    executor.handle(Time(0), execute::Event::Connected);
    let class = TaskClass { kind: Kind::Sleep, ..TaskClass::default() };
    let prepare = Prepare {
        batch: BatchId(1),
        template: Arc::new(Vec::new()),
        classes: vec![class],
        everywhere: None,
    };
    let range = Range { start: 0, step: 1, count: tasks };
    let assigned = Assigned {
        batch: BatchId(1),
        instance: InstanceId(7),
        first: TaskId(0),
        count: tasks,
        class: 0,
        tries: Tries::default(),
        rows: Rows::Computed { factors: vec![range], offset: 0 },
        data: None,
    };
    let order = Order { prepare: vec![prepare], assign: vec![assigned], ..Order::default() };
    executor.handle(Time(0), execute::Event::Order(order));
    updates(&mut executor);
    executor
}

/// The first task of each report in each update.
fn updates(executor: &mut Executor) -> Vec<Vec<u64>> {
    let mut updates = Vec::new();
    while let Some(action) = executor.poll_action() {
        if let execute::Action::Update(update) = action {
            updates.push(update.reports.iter().map(|report| report.first.0).collect());
        }
        executor.check().expect("the executor's books are in order");
    }
    updates
}

fn ends(executor: &mut Executor, now: Time, task: u64) -> Vec<Vec<u64>> {
    let key = TaskKey { instance: InstanceId(7), task: TaskId(task) };
    // Ends at times of their own are not one report.
    let (started, ended) = (now, now);
    let (outcome, detail) = (Outcome::Exit(0), None);
    executor.handle(now, execute::Event::Ended { key, outcome, started, ended, detail });
    updates(executor)
}

#[test]
fn an_executor_that_has_enough_to_do_tells_of_ends_together() {
    let mut executor = busy_executor(8);
    let at = |micros| Time(2 * REPORTS_APART_MICROS + micros);
    assert_eq!(ends(&mut executor, at(0), 0), [[0]], "the first after a pause goes at once");
    assert_eq!(ends(&mut executor, at(1), 1), [[]; 0]);
    assert_eq!(ends(&mut executor, at(2), 2), [[]; 0]);
    let due = at(REPORTS_APART_MICROS);
    assert_eq!(executor.poll_timeout(), Some((due, "reports")));
    executor.handle_timeout(due);
    assert_eq!(updates(&mut executor), [[1, 2]]);
    assert_ne!(executor.poll_timeout().map(|(_, why)| why), Some("reports"));
    assert_eq!(ends(&mut executor, due.after(1), 3), [[]; 0]);
    assert_eq!(ends(&mut executor, due.after(2), 4), [[]; 0]);
    assert_eq!(ends(&mut executor, due.after(3), 5), [[]; 0]);
    let last_starts = ends(&mut executor, due.after(4), 6);
    assert_eq!(last_starts, [[3, 4, 5, 6]], "with nothing queued, room is to be filled");
    assert_eq!(ends(&mut executor, due.after(5), 7), [[7]]);
}

#[test]
fn an_executor_with_room_tells_of_each_end() {
    let mut executor = busy_executor(2);
    let at = |micros| Time(2 * REPORTS_APART_MICROS + micros);
    assert_eq!(ends(&mut executor, at(0), 0), [[0]]);
    assert_eq!(ends(&mut executor, at(1), 1), [[1]]);
}

fn leaves(executor: &mut Executor) -> bool {
    let mut left = false;
    while let Some(action) = executor.poll_action() {
        left |= action == execute::Action::Left;
    }
    left
}

#[test]
fn an_executor_that_leaves_waits_for_a_dispatcher_that_is_away_only_for_a_while() {
    let mut executor = busy_executor(1);
    executor.handle(Time(1), execute::Event::Leave);
    executor.handle(Time(2), execute::Event::Disconnected);
    assert!(!leaves(&mut executor), "it waits for what runs");
    assert!(executor.poll_timeout().is_none_or(|(_, why)| why != "a dispatcher's return"));
    ends(&mut executor, Time(50_000_000), 0);
    // The dispatcher may be back in a moment.
    let (at, why) = executor.poll_timeout().expect("a time is set");
    assert_eq!((at, why), (Time(50_000_000 + LEAVE_ALONE_MICROS_MAX), "a dispatcher's return"));
    executor.handle(Time(51_000_000), execute::Event::Connected);
    assert!(!leaves(&mut executor), "the report is handed over first");
    executor.handle(Time(52_000_000), execute::Event::Disconnected);
    executor.handle_timeout(Time(52_000_000 + LEAVE_ALONE_MICROS_MAX - 1));
    assert!(!leaves(&mut executor));
    executor.handle_timeout(Time(52_000_000 + LEAVE_ALONE_MICROS_MAX));
    assert!(leaves(&mut executor));
}
