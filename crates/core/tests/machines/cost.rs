//! How much is done, counted, not timed.

use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, InstanceOptions, Join, Lease, Order, Update,
};
use falkon_core::execute::{self, Executor};
use falkon_core::limits::{PREFETCH_TASKS_MAX, TELL_MICROS};
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{
    InstanceId, Kind, Packed, Range, Resources, Rows, Submission, TaskClass, TaskId, Time,
};
use std::sync::Arc;

const CLIENT: ConnectionId = ConnectionId(u64::MAX);
const INSTANCE: InstanceId = InstanceId(0);

fn dispatcher(submission: Submission) -> Dispatcher {
    let mut dispatcher = Dispatcher::new();
    let connection = CLIENT;
    let options = InstanceOptions { keep_results: false, ..InstanceOptions::default() };
    dispatcher.handle(Time(0), Event::Create { connection, request: 0, options });
    dispatcher
        .handle(Time(0), Event::Subscribe { connection, request: 1, instance: INSTANCE, from: 0 });
    dispatcher.handle(
        Time(0),
        Event::Submit {
            client: 1,
            connection,
            request: 2,
            instance: INSTANCE,
            first: TaskId(0),
            submission,
        },
    );
    dispatcher.handle(Time(0), Event::Seal { connection, request: 3, instance: INSTANCE });
    dispatcher
}

#[test]
fn a_billion_noops_cost_as_many_messages_as_bundles() {
    const TASKS: u64 = 1_000_000_000;
    let mut dispatcher = dispatcher(Submission {
        data: None,
        count: TASKS,
        template: Arc::default(),
        rows: Rows::Computed {
            factors: vec![Range { start: 0, step: 1, count: TASKS }],
            offset: 0,
        },
        classes: vec![TaskClass { kind: Kind::Noop, ..TaskClass::default() }],
        class_runs: vec![(TASKS, 0)],
        names: None,
        after: Vec::new(),
        everywhere: None,
    });
    let mut executors: Vec<Executor> = (0..2)
        .map(|id| {
            let mut executor = Executor::new(id + 1, String::new(), Resources::cpus(1));
            executor.handle(Time(0), execute::Event::Connected);
            executor
        })
        .collect();
    let mut actions = 0u64;
    let mut delivered = 0;
    let mut now = Time(0);
    while delivered < TASKS {
        now = now.after(1);
        let before = actions;
        for (connection, executor) in (0..).map(ConnectionId).zip(&mut executors) {
            while let Some(action) = executor.poll_action() {
                actions += 1;
                match action {
                    execute::Action::Join(join) => {
                        dispatcher.handle(now, Event::Join { connection, join });
                    }
                    execute::Action::Update(update) => {
                        dispatcher.handle(now, Event::Update { connection, update });
                    }
                    execute::Action::Start(start) => {
                        let event = execute::Event::Ended {
                            key: start.key,
                            outcome: Outcome::Exit(0),
                            started: now,
                            ended: now,
                            detail: None,
                        };
                        executor.handle(now, event);
                    }
                    _ => {}
                }
            }
        }
        while let Some(action) = dispatcher.poll_action() {
            actions += 1;
            match action {
                Action::Order { connection, order } => {
                    let executor = &mut executors[connection.0 as usize];
                    executor.handle(now, execute::Event::Order(order));
                }
                Action::Deliver { delivery, .. } => {
                    let results: u64 = delivery.results.iter().map(|run| run.count).sum();
                    delivered = delivery.from + results;
                    let event = Event::Acknowledge {
                        connection: CLIENT,
                        instance: INSTANCE,
                        upto: delivered,
                    };
                    dispatcher.handle(now, event);
                    let written = Event::Written { connection: CLIENT, messages: 1 };
                    dispatcher.handle(now, written);
                }
                _ => {}
            }
        }
        assert!(actions > before, "nothing happens after {delivered} tasks");
    }
    dispatcher.check().unwrap();
    // A refill is at least half the depth; start, update, order, record,
    // delivery and what goes with them make fewer than eight actions.
    let bundles = TASKS / (PREFETCH_TASKS_MAX / 2);
    assert!(actions < bundles * 8, "{actions} actions for {bundles} bundles");
}

#[test]
fn distinct_tasks_on_many_executors_cost_no_more_messages_than_tasks() {
    const EXECUTORS: u64 = 1_000;
    let tasks: u64 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let mut rows = Packed::default();
    for task in 0..tasks {
        assert!(rows.push(task.to_string().as_bytes()));
    }
    let mut dispatcher = dispatcher(Submission {
        data: None,
        count: tasks,
        template: Arc::default(),
        rows: Rows::Packed(rows),
        classes: vec![TaskClass::default()],
        class_runs: vec![(tasks, 0)],
        names: None,
        after: Vec::new(),
        everywhere: None,
    });
    for connection in (0..EXECUTORS).map(ConnectionId) {
        let join = Join {
            gangs: Vec::new(),
            alternatives: Vec::new(),
            serves: None,
            cache: Default::default(),
            lease: Lease::default(),
            incarnation: connection.0 + 1,
            name: String::new(),
            capacity: Resources::cpus(8),
            held: Vec::new(),
            reports: Vec::new(),
        };
        dispatcher.handle(Time(0), Event::Join { connection, join });
    }
    let (mut orders, mut deliveries, mut delivered) = (0u64, 0u64, 0u64);
    let mut now = Time(0);
    let mut numbers = vec![0; EXECUTORS as usize];
    while delivered < tasks {
        now = now.after(20_000);
        let mut answers: Vec<(ConnectionId, Order)> = Vec::new();
        while let Some(action) = dispatcher.poll_action() {
            match action {
                Action::Order { connection, order } => answers.push((connection, order)),
                Action::Deliver { delivery, .. } => {
                    deliveries += 1;
                    delivered += delivery.results.iter().map(|run| run.count).sum::<u64>();
                    let event = Event::Acknowledge {
                        connection: CLIENT,
                        instance: INSTANCE,
                        upto: delivered,
                    };
                    dispatcher.handle(now, event);
                    let written = Event::Written { connection: CLIENT, messages: 1 };
                    dispatcher.handle(now, written);
                }
                _ => {}
            }
        }
        orders += answers.len() as u64;
        let mut ran = false;
        for (connection, order) in answers {
            let mut reports = Vec::new();
            for assigned in order.assign {
                for task in assigned.first.0..assigned.first.0 + assigned.count {
                    reports.push(Report {
                        instance: INSTANCE,
                        first: TaskId(task),
                        count: 1,
                        tries: assigned.tries,
                        outcome: Outcome::Exit(0),
                        started: Time(now.0 - 10_000 - task % 1_000),
                        ended: now,
                        detail: None,
                    });
                }
            }
            let number = &mut numbers[connection.0 as usize];
            *number += 1;
            ran |= !reports.is_empty();
            let update = Update { number: *number, reports, ..Update::default() };
            dispatcher.handle(now, Event::Update { connection, update });
        }
        assert!(ran || delivered == tasks, "nothing runs after {delivered} tasks");
    }
    dispatcher.check().unwrap();
    assert_eq!(delivered, tasks);
    assert!(orders <= tasks / 4 + 4 * EXECUTORS, "{orders} orders for {tasks} tasks");
    assert!(deliveries <= tasks / 1_000 + 100, "{deliveries} deliveries of {tasks} results");
}

#[test]
fn a_template_goes_to_an_executor_once_while_submissions_have_it() {
    let submission = |template: &[u8]| Submission {
        data: None,
        count: 1,
        template: Arc::new(template.to_vec()),
        rows: Rows::Computed { factors: vec![Range { start: 0, step: 1, count: 1 }], offset: 0 },
        classes: vec![TaskClass::default()],
        class_runs: vec![(1, 0)],
        names: None,
        after: Vec::new(),
        everywhere: None,
    };
    let mut dispatcher = Dispatcher::new();
    let mut now = Time(1);
    let mut happen = |event: Option<Event>| {
        match event {
            Some(event) => dispatcher.handle(now, event),
            // Templates are forgotten when there is an order to say it with, or
            // after a moment.
            None => {
                now = now.after(TELL_MICROS);
                dispatcher.handle_timeout(now);
            }
        }
        let mut orders = Vec::new();
        while let Some(action) = dispatcher.poll_action() {
            dispatcher.check().unwrap();
            if let Action::Order { order, .. } = action {
                orders.push(order);
            }
        }
        let prepared = orders.iter().flat_map(|order| &order.prepare).map(|one| one.batch);
        let forgotten = orders.iter().flat_map(|order| &order.forget).copied();
        (prepared.collect::<Vec<_>>(), forgotten.collect::<Vec<_>>())
    };
    let (connection, options) = (CLIENT, InstanceOptions::default());
    happen(Some(Event::Create { connection, request: 0, options }));
    let connection = ConnectionId(1);
    let (incarnation, capacity) = (1, Resources::cpus(4));
    let (name, held, reports) = (String::new(), Vec::new(), Vec::new());
    happen(Some(Event::Join {
        connection,
        join: Join {
            cache: Default::default(),
            lease: Lease::default(),
            gangs: Vec::new(),
            alternatives: Vec::new(),
            serves: None,
            incarnation,
            name,
            capacity,
            held,
            reports,
        },
    }));
    let mut batches = Vec::new();
    for (task, template) in (0..).zip([b"code", b"code", b"more", b"code"]) {
        let (request, first, submission) = (1 + task, TaskId(task), submission(template));
        let (connection, instance) = (CLIENT, INSTANCE);
        let submit = Event::Submit { client: 1, connection, request, instance, first, submission };
        batches.push(happen(Some(submit)).0);
    }
    assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 1, 1]);
    let forgotten = (0..4).map(|task| {
        let report = Report {
            instance: INSTANCE,
            first: TaskId(task),
            count: 1,
            tries: Tries::default(),
            outcome: Outcome::Exit(0),
            started: Time(1),
            ended: Time(1),
            detail: None,
        };
        let update = Update { number: 1 + task, reports: vec![report], ..Update::default() };
        assert_eq!(happen(Some(Event::Update { connection, update })).1, []);
        happen(None).1
    });
    let kept = Vec::new();
    assert_eq!(
        forgotten.collect::<Vec<_>>(),
        [kept, batches[0].clone(), batches[2].clone(), batches[3].clone()]
    );
}
