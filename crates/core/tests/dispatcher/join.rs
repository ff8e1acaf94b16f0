//! An executor that connects may report only so much.

use crate::fixture::executor;
use falkon_core::dispatch::{
    Action, Assigned, BatchId, ConnectionId, Dispatcher, Event, Held, Join, JoinError, Order,
    Prepare,
};
use falkon_core::execute::{self, Executor};
use falkon_core::limits::JOIN_RUNS_MAX;
use falkon_core::result::Tries;
use falkon_core::task::{InstanceId, Packed, Resources, Rows, TaskClass, TaskId, Time};
use std::sync::Arc;

fn join(runs: usize) -> Join {
    let held = |run: usize| Held {
        instance: InstanceId(0),
        first: TaskId(2 * run as u64),
        count: 1,
        tries: Tries::default(),
    };
    Join { held: (0..runs).map(held).collect(), ..executor(1, 1) }
}

#[test]
fn a_dispatcher_refuses_an_executor_that_claims_to_have_too_much() {
    let connection = ConnectionId(1);
    for (runs, refused) in [(JOIN_RUNS_MAX, false), (JOIN_RUNS_MAX + 1, true)] {
        let mut dispatcher = Dispatcher::new();
        dispatcher.handle(Time(1), Event::Join { connection, join: join(runs) });
        let actions: Vec<Action> = std::iter::from_fn(|| dispatcher.poll_action()).collect();
        let error = JoinError::ManyRuns { runs };
        let is_refused = actions.contains(&Action::Refuse { connection, error });
        assert_eq!(is_refused, refused, "{runs} runs");
        dispatcher.check().unwrap();
    }
}

#[test]
fn an_executor_that_has_too_much_drops_what_waits_and_tells_of_the_rest() {
    let mut executor = Executor::new(1, "one slot".to_owned(), Resources::cpus(1));
    let actions = |executor: &mut Executor| -> Vec<execute::Action> {
        std::iter::from_fn(|| executor.poll_action()).collect()
    };
    executor.handle(Time(1), execute::Event::Connected);
    let mut row = Packed::default();
    assert!(row.push(b""));
    let prepare = Prepare {
        batch: BatchId(0),
        template: Arc::new(Vec::new()),
        classes: vec![TaskClass::default()],
        everywhere: None,
    };
    let assigned = |run: usize| Assigned {
        data: None,
        batch: BatchId(0),
        instance: InstanceId(0),
        first: TaskId(2 * run as u64),
        count: 1,
        class: 0,
        tries: Tries::default(),
        rows: Rows::Packed(row.clone()),
    };
    let assign = (0..JOIN_RUNS_MAX + 100).map(assigned).collect();
    let order = Order { prepare: vec![prepare], assign, ..Order::default() };
    executor.handle(Time(2), execute::Event::Order(order));
    actions(&mut executor);
    for time in 3..6 {
        executor.handle(Time(time), execute::Event::Disconnected);
        executor.handle(Time(time), execute::Event::Connected);
        let told = actions(&mut executor).into_iter().find_map(|action| match action {
            execute::Action::Join(join) => Some(join),
            _ => None,
        });
        let held = told.unwrap().held;
        assert_eq!(held.len(), JOIN_RUNS_MAX);
        // Running tasks are reported in any case.
        assert!(held.iter().any(|held| held.first == TaskId(0)));
        executor.check().unwrap();
    }
}
