//! How much work a task is for the core, counted, not timed. A scenario that
//! needs more than its ceiling in `bench/ceilings.toml` fails; if the change
//! is worth it, the ceiling is raised in the same commit.

#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

mod besides;
mod growth;
mod guard;
mod requests;
mod stories;
mod story;

use falkon_core::dispatch::{
    Action, Assigned, BatchId, ConnectionId, Dispatcher, Event, InstanceOptions, Join, Lease,
    Order, Prepare, Update,
};
use falkon_core::execute::{self, Executor};
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{
    InstanceId, Kind, Packed, Range, Resources, Rows, Submission, TaskClass, TaskId, Time,
};
use falkon_trials::trial;
use guard::Scenario;
use std::sync::Arc;

const CLIENT: ConnectionId = ConnectionId(u64::MAX);
const INSTANCE: InstanceId = InstanceId(0);
/// Executors of the dispatcher's scenarios, and slots of each.
const EXECUTORS: u64 = 8;
const SLOTS: u32 = 16;

const SCENARIOS: [Scenario; 3] = [
    Scenario {
        name: "core-array",
        tasks: (10_000_000, 110_000_000),
        run: |tasks| dispatch(tasks, Kind::Noop, computed(tasks)),
    },
    Scenario {
        name: "core-distinct",
        tasks: (2_000, 12_000),
        run: |tasks| dispatch(tasks, Kind::Process, packed(tasks)),
    },
    Scenario { name: "core-executor", tasks: (2_000, 12_000), run: execute },
];

fn main() -> std::process::ExitCode {
    falkon_trials::main()
}

guard::tests!(SCENARIOS);

#[cfg_attr(debug_assertions, trial(ignore))]
#[cfg_attr(not(debug_assertions), trial)]
fn no_request_costs_more_beside_more_of_what_it_is_not_about() {
    growth::hold_growths(&requests::GROWTHS, "one_request");
}

#[trial(ignore)]
fn one_request() {
    growth::run_growth(&requests::GROWTHS);
}

#[cfg_attr(debug_assertions, trial(ignore))]
#[cfg_attr(not(debug_assertions), trial)]
fn no_decision_costs_more_beside_more_of_what_it_is_not_about() {
    stories::hold_stories(&besides::STORIES, "one_story");
}

#[trial(ignore)]
fn one_story() {
    stories::tell_one(&besides::STORIES);
}

fn computed(tasks: u64) -> Rows {
    Rows::Computed { factors: vec![Range { start: 0, step: 1, count: tasks }], offset: 0 }
}

fn packed(tasks: u64) -> Rows {
    let mut rows = Packed::default();
    for task in 0..tasks {
        assert!(rows.push(&task.to_be_bytes()));
    }
    Rows::Packed(rows)
}

/// A dispatcher from the submission to the last acknowledgement. Each process
/// task is reported on its own, each run of no-op tasks as a whole.
fn dispatch(tasks: u64, kind: Kind, rows: Rows) {
    let mut dispatcher = Dispatcher::new();
    let connection = CLIENT;
    let options = InstanceOptions { keep_results: false, ..InstanceOptions::default() };
    let submission = Submission {
        data: None,
        count: tasks,
        template: Arc::default(),
        rows,
        classes: vec![TaskClass { kind, ..TaskClass::default() }],
        class_runs: vec![(tasks, 0)],
        names: None,
        after: Vec::new(),
        everywhere: None,
    };
    let (instance, first) = (INSTANCE, TaskId(0));
    for event in [
        Event::Create { connection, request: 0, options },
        Event::Subscribe { connection, request: 1, instance, from: 0 },
        Event::Submit { client: 1, connection, request: 2, instance, first, submission },
        Event::Seal { connection, request: 3, instance },
    ] {
        dispatcher.handle(Time(0), event);
    }
    for connection in (0..EXECUTORS).map(ConnectionId) {
        let join = Join {
            gangs: Vec::new(),
            alternatives: Vec::new(),
            serves: None,
            cache: Default::default(),
            lease: Lease::default(),
            incarnation: connection.0 + 1,
            name: String::new(),
            capacity: Resources::cpus(SLOTS),
            held: Vec::new(),
            reports: Vec::new(),
        };
        dispatcher.handle(Time(0), Event::Join { connection, join });
    }
    let (mut delivered, mut now) = (0, Time(0));
    let mut numbers = [0; EXECUTORS as usize];
    while delivered < tasks {
        now = now.after(20_000);
        let actions: Vec<Action> = std::iter::from_fn(|| dispatcher.poll_action()).collect();
        assert!(!actions.is_empty(), "nothing happens after {delivered} of {tasks} tasks");
        for action in actions {
            match action {
                Action::Order { connection, order } => {
                    let number: &mut u64 = &mut numbers[connection.0 as usize];
                    *number += 1;
                    let reports = answer(&order, kind, now);
                    let update = Update { number: *number, reports, ..Update::default() };
                    dispatcher.handle(now, Event::Update { connection, update });
                }
                Action::Deliver { connection, delivery } => {
                    dispatcher.handle(now, Event::Written { connection, messages: 1 });
                    delivered += delivery.results.iter().map(|run| run.count).sum::<u64>();
                    let upto = delivered;
                    dispatcher.handle(now, Event::Acknowledge { connection, instance, upto });
                }
                _ => {}
            }
        }
    }
}

/// Reports that everything ordered has ended well.
fn answer(order: &Order, kind: Kind, now: Time) -> Vec<Report> {
    let mut reports = Vec::new();
    for assigned in &order.assign {
        let pieces = if kind == Kind::Noop { 1 } else { assigned.count };
        for piece in 0..pieces {
            reports.push(Report {
                instance: INSTANCE,
                first: TaskId(assigned.first.0 + piece),
                count: assigned.count / pieces,
                tries: assigned.tries,
                outcome: Outcome::Exit(0),
                started: Time(now.0 - 1_000 - piece % 97),
                ended: now,
                detail: None,
            });
        }
    }
    reports
}

/// An executor that is sent process tasks a hundred at a time and runs them.
fn execute(tasks: u64) {
    const ORDER_TASKS: u64 = 100;
    let mut executor = Executor::new(1, String::new(), Resources::cpus(SLOTS));
    executor.handle(Time(0), execute::Event::Connected);
    let rows = packed(tasks);
    let (mut sent, mut reported, mut now) = (0, 0, Time(0));
    let mut acknowledged = 0;
    while reported < tasks {
        now = now.after(1_000);
        let mut running = Vec::new();
        while let Some(action) = executor.poll_action() {
            match action {
                execute::Action::Start(start) => running.push(start.key),
                execute::Action::Update(update) => {
                    reported += update.reports.iter().map(|report| report.count).sum::<u64>();
                    acknowledged = update.number;
                }
                _ => {}
            }
        }
        let idle = running.is_empty();
        for key in running {
            let event = execute::Event::Ended {
                key,
                outcome: Outcome::Exit(0),
                started: now,
                ended: now,
                detail: None,
            };
            executor.handle(now, event);
        }
        if idle && sent < tasks {
            let count = ORDER_TASKS.min(tasks - sent);
            let order = ordered(sent, count, &rows, acknowledged);
            executor.handle(now, execute::Event::Order(order));
            sent += count;
        }
    }
}

fn ordered(first: u64, count: u64, rows: &Rows, acknowledged: u64) -> Order {
    let batch = BatchId(0);
    let template = Prepare {
        batch,
        template: Arc::default(),
        classes: vec![TaskClass { kind: Kind::Process, ..TaskClass::default() }],
        everywhere: None,
    };
    Order {
        acknowledged,
        prepare: (first == 0).then_some(template).into_iter().collect(),
        assign: vec![Assigned {
            data: None,
            batch,
            instance: INSTANCE,
            first: TaskId(first),
            count,
            class: 0,
            tries: Tries::default(),
            rows: rows.slice(first, count),
        }],
        ..Order::default()
    }
}
