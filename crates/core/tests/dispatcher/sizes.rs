//! Tasks that each ask for a size of memory of their own.

use crate::fixture::{self, array, executor};
use falkon_core::dispatch::{ConnectionId, Dispatcher, Event, InstanceOptions, Join, Update};
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{
    InstanceId, Kind, Range, Resources, Rows, Submission, TaskClass, TaskId, Time,
};

const CLIENT: ConnectionId = ConnectionId(u64::MAX);
const EXECUTOR: ConnectionId = ConnectionId(0);
const INSTANCE: InstanceId = InstanceId(0);

/// A dispatcher with an executor of one slot, and a task of each size.
fn dispatcher(sizes: &[u64]) -> Dispatcher {
    let mut dispatcher = Dispatcher::new();
    let (connection, instance, count) = (CLIENT, INSTANCE, sizes.len() as u64);
    let class = |memory_bytes: &u64| TaskClass {
        kind: Kind::Process,
        resources: Resources { memory_bytes: *memory_bytes, ..Resources::cpus(1) },
        ..TaskClass::default()
    };
    let submission = Submission {
        rows: Rows::Computed { factors: vec![Range { start: 0, step: 1, count }], offset: 0 },
        classes: sizes.iter().map(class).collect(),
        class_runs: (0..sizes.len() as u32).map(|class| (1, class)).collect(),
        ..array(count)
    };
    let options = InstanceOptions::default();
    let first = TaskId(0);
    let join = Join {
        capacity: Resources { memory_bytes: 1 << 40, ..Resources::cpus(1) },
        ..executor(1, 1)
    };
    for event in [
        Event::Create { connection, request: 0, options },
        Event::Submit { client: 1, connection, request: 1, instance, first, submission },
        Event::Join { connection: EXECUTOR, join },
    ] {
        dispatcher.handle(Time(1), event);
    }
    dispatcher
}

/// The tasks that are sent now.
fn sent(dispatcher: &mut Dispatcher) -> Vec<u64> {
    let runs = fixture::orders(dispatcher).into_iter().flat_map(|(_, order)| order.assign);
    runs.flat_map(|run| run.first.0..run.first.0 + run.count).collect()
}

fn end(dispatcher: &mut Dispatcher, number: u64, task: u64, micros: u64) {
    let ended = Time(10_000_000 * number + micros);
    let report = Report {
        instance: INSTANCE,
        first: TaskId(task),
        count: 1,
        tries: Tries::default(),
        outcome: Outcome::Exit(0),
        started: Time(10_000_000 * number),
        ended,
        detail: None,
    };
    let update = Update { number, reports: vec![report], ..Update::default() };
    dispatcher.handle(ended, Event::Update { connection: EXECUTOR, update });
}

/// How long tasks of about the same size take is known from the first that ends,
/// and others are sent ahead, if they are short; nothing is known of tasks that
/// ask for twice as much.
#[test]
fn tasks_are_sent_ahead_if_those_of_about_their_size_were_short() {
    let small = (0..20).map(|task| (1 << 20) + task);
    let sizes: Vec<u64> = small.chain((20..40).map(|task| (2 << 20) + task)).collect();
    for (micros, ahead) in [(10, 19), (60_000_000, 1)] {
        let mut dispatcher = dispatcher(&sizes);
        assert_eq!(sent(&mut dispatcher), [0]);
        end(&mut dispatcher, 1, 0, micros);
        assert_eq!(sent(&mut dispatcher), (1..1 + ahead).collect::<Vec<u64>>());
    }
}

/// A task that was sent ahead and holds memory that the next would need moves up in
/// turn, each as soon as it fits, and never beyond what there is.
#[test]
fn a_thousand_sizes_sent_ahead_all_end() {
    let sizes: Vec<u64> = (0..1_000).map(|task| (1 << 30) + (task * 7_919 % 1_000)).collect();
    let mut dispatcher = dispatcher(&sizes);
    let mut waiting = sent(&mut dispatcher);
    let mut number = 0;
    while !waiting.is_empty() {
        number += 1;
        let task = waiting.remove(waiting.len() / 2);
        end(&mut dispatcher, number, task, 10);
        waiting.extend(sent(&mut dispatcher));
    }
    assert_eq!(number, 1_000);
}
