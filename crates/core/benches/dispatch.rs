//! Tasks per second through the dispatcher alone, policy `first-available`:
//! executors answer at once and cost nothing, nothing is encoded or written.
//!
//! `cargo bench -p falkon-core --bench dispatch` prints a table; with
//! `-- NAME`, one line of it.

use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, InstanceOptions, Join, Lease, Update,
};
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{
    InstanceId, Kind, Packed, Range, Resources, Rows, Submission, TaskClass, TaskId, Time,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CLIENT: ConnectionId = ConnectionId(u64::MAX);
const INSTANCE: InstanceId = InstanceId(0);
/// Updates handled before the next polling: as many however many executors
/// there are, so that the cost per task can be compared.
const ROUND_UPDATES_MAX: usize = 64;

/// What is measured.
struct Case {
    name: &'static str,
    kind: Kind,
    packed: bool,
    /// Tasks queued at first.
    queued: u64,
    /// Tasks run, of those queued.
    run: u64,
    executors: u64,
    slots: u32,
    /// How long each task takes, in microseconds: long ones are not sent ahead.
    micros: u64,
    /// One report each task, as processes give, rather than one each run.
    singly: bool,
    /// What memory tasks ask for.
    sizes: Sizes,
}

/// Memory that tasks ask for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sizes {
    /// All the same, in one class.
    Alike,
    /// All the same, with a class each.
    AlikeEach,
    /// Each a size of its own, ascending.
    Each,
    /// Each a size of its own, over nine octaves in turn.
    Spread,
}

/// Tasks of one submission: as many as fit whatever they ask for.
const SUBMISSION_TASKS: u64 = 100_000;

/// The tasks from `first` on that are submitted together.
fn submission(case: &Case, first: u64) -> Submission {
    // Computed rows are one submission, however many.
    let count = if case.packed { SUBMISSION_TASKS.min(case.queued - first) } else { case.queued };
    let rows = if case.packed {
        let mut rows = Packed::default();
        for task in first..first + count {
            assert!(rows.push(format!("input-{task:08}.dat").as_bytes()), "rows fit");
        }
        Rows::Packed(rows)
    } else {
        Rows::Computed { factors: vec![Range { start: 0, step: 1, count }], offset: 0 }
    };
    let classes = if case.sizes == Sizes::Alike { 1 } else { count };
    let class = |number: u64| {
        let octave = 1 << (20 + number % 9);
        let memory_bytes = match case.sizes {
            Sizes::Each => (1 << 20) + number,
            Sizes::Spread => octave + octave / classes.div_ceil(9) * (number / 9),
            Sizes::Alike | Sizes::AlikeEach => 1 << 20,
        };
        TaskClass {
            kind: case.kind,
            resources: Resources { memory_bytes, ..Resources::cpus(1) },
            ..TaskClass::default()
        }
    };
    Submission {
        data: None,
        count,
        template: Arc::new(vec![0; 100]),
        rows,
        classes: (0..classes).map(class).collect(),
        class_runs: (0..classes).map(|class| (count / classes, class as u32)).collect(),
        names: None,
        after: Vec::new(),
        everywhere: None,
    }
}

fn prepared(case: &Case) -> Dispatcher {
    let mut dispatcher = Dispatcher::new();
    let (connection, instance) = (CLIENT, INSTANCE);
    let options = InstanceOptions { keep_results: false, ..InstanceOptions::default() };
    for event in [
        Event::Create { connection, request: 0, options },
        Event::Subscribe { connection, request: 1, instance, from: 0 },
    ] {
        dispatcher.handle(Time(0), event);
    }
    let mut first = 0;
    for request in 2.. {
        if first == case.queued {
            break;
        }
        let submission = submission(case, first);
        let (task, count) = (TaskId(first), submission.count);
        let event =
            Event::Submit { client: 1, connection, request, instance, first: task, submission };
        dispatcher.handle(Time(0), event);
        first += count;
    }
    while dispatcher.poll_action().is_some() {}
    for connection in (0..case.executors).map(ConnectionId) {
        let join = Join {
            gangs: Vec::new(),
            alternatives: Vec::new(),
            serves: None,
            cache: Default::default(),
            lease: Lease::default(),
            incarnation: connection.0 + 1,
            name: String::new(),
            capacity: Resources { memory_bytes: 1 << 40, ..Resources::cpus(case.slots) },
            held: Vec::new(),
            reports: Vec::new(),
        };
        dispatcher.handle(Time(0), Event::Join { connection, join });
    }
    dispatcher
}

/// Tasks in a row that an executor was sent. The order itself is let go at once,
/// as a shell does that has encoded it: how long it would stay, and how much of
/// the processor's caches it would take, depends on how many executors there are.
type Sent = (TaskId, u64, Tries);

/// What an executor answers: everything it was sent has ended well.
fn answer(case: &Case, now: Time, sent: &[Sent]) -> Vec<Report> {
    let mut reports = Vec::new();
    for &(first, count, tries) in sent {
        let pieces = if case.singly { count } else { 1 };
        for piece in 0..pieces {
            reports.push(Report {
                instance: INSTANCE,
                first: TaskId(first.0 + piece),
                count: count / pieces,
                tries,
                outcome: Outcome::Exit(0),
                started: Time(now.0 - case.micros - piece % 97),
                ended: now,
                detail: None,
            });
        }
    }
    reports
}

/// Nanoseconds in the dispatcher for one task.
fn measure(case: &Case) -> f64 {
    let mut dispatcher = prepared(case);
    let mut spent = Duration::ZERO;
    let mut numbers = vec![0u64; case.executors as usize];
    let (mut delivered, mut now) = (0, Time(2_000_000));
    let mut actions = Vec::new();
    let mut orders = VecDeque::new();
    while delivered < case.run {
        now = now.after(1_000);
        let begun = Instant::now();
        actions.extend(std::iter::from_fn(|| dispatcher.poll_action()));
        spent += begun.elapsed();
        let idle = actions.is_empty() && orders.is_empty();
        assert!(!idle, "{}: nothing happens after {delivered} tasks", case.name);
        let mut events = Vec::new();
        for action in actions.drain(..) {
            match action {
                Action::Order { connection, order } if !order.assign.is_empty() => {
                    let sent = order.assign.iter();
                    let sent: Vec<Sent> =
                        sent.map(|run| (run.first, run.count, run.tries)).collect();
                    orders.push_back((connection, sent));
                }
                Action::Deliver { connection, delivery } => {
                    events.push(Event::Written { connection, messages: 1 });
                    delivered =
                        delivery.from + delivery.results.iter().map(|run| run.count).sum::<u64>();
                    events.push(Event::Acknowledge {
                        connection: CLIENT,
                        instance: INSTANCE,
                        upto: delivered,
                    });
                }
                _ => {}
            }
        }
        // Answers are made when they are handed in, as a shell decodes
        // messages, not kept until they have left the processor's caches.
        for (connection, sent) in orders.drain(..orders.len().min(ROUND_UPDATES_MAX)) {
            let number = &mut numbers[connection.0 as usize];
            *number += 1;
            let reports = answer(case, now, &sent);
            let update = Update { number: *number, reports, ..Update::default() };
            events.push(Event::Update { connection, update });
        }
        let begun = Instant::now();
        for event in events {
            dispatcher.handle(now, event);
        }
        spent += begun.elapsed();
    }
    spent.as_nanos() as f64 / delivered as f64
}

fn main() {
    const ALL: u64 = 1_000_000;
    const LONG: u64 = 1_000_000;
    let distinct = |name, queued, run, executors, slots, micros| Case {
        micros,
        name,
        kind: Kind::Process,
        packed: true,
        queued,
        run,
        executors,
        slots,
        singly: true,
        sizes: Sizes::Alike,
    };
    let sized =
        |name, kind, sizes| Case { kind, sizes, ..distinct(name, ALL / 10, ALL / 10, 2, 8, 100) };
    let cases = [
        Case {
            name: "noop array",
            kind: Kind::Noop,
            packed: false,
            queued: 1_000_000_000,
            run: 1_000_000_000,
            executors: 2,
            slots: 1,
            micros: 0,
            singly: false,
            sizes: Sizes::Alike,
        },
        distinct("distinct", ALL, ALL, 64, 128, 1_000),
        distinct("distinct, long", ALL, ALL, 64, 128, LONG),
        distinct("2 executors", ALL, ALL, 2, 8, LONG),
        distinct("100 executors", ALL, ALL, 100, 8, LONG),
        distinct("1,000 executors", ALL, ALL, 1_000, 8, LONG),
        distinct("10,000 executors", ALL, ALL, 10_000, 8, LONG),
        distinct("10^4 queued", 10_000, 10_000, 64, 16, 1_000),
        distinct("10^5 queued", 100_000, 100_000, 64, 16, 1_000),
        distinct("10^6 queued", ALL, ALL, 64, 16, 1_000),
        distinct("10^7 queued", 10 * ALL, ALL, 64, 16, 1_000),
        sized("one size", Kind::Process, Sizes::Alike),
        sized("10^5 classes", Kind::Process, Sizes::AlikeEach),
        sized("10^5 sizes", Kind::Process, Sizes::Each),
        sized("10^5 sizes, spread", Kind::Process, Sizes::Spread),
        sized("noop, one size", Kind::Noop, Sizes::Alike),
        sized("noop, 10^5 classes", Kind::Noop, Sizes::AlikeEach),
        sized("noop, 10^5 sizes", Kind::Noop, Sizes::Each),
        sized("noop, spread", Kind::Noop, Sizes::Spread),
    ];
    println!(
        "{:<19} {:>14} {:>9} {:>8} {:>16}",
        "case", "queued", "executors", "ns/task", "tasks/s"
    );
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    for case in cases.iter().filter(|case| wanted.as_deref().is_none_or(|name| case.name == name)) {
        let nanos = measure(case);
        println!(
            "{:<19} {:>14} {:>9} {:>8.4} {:>16.0}",
            case.name,
            case.queued,
            case.executors,
            nanos,
            1e9 / nanos
        );
    }
}
