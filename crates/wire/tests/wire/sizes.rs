//! What the core says of lengths is what the codec writes, and whatever is
//! legal fits where it has to go.

use crate::strategies as any;
use falkon_core::data::declared::{Declared, Lists, Serving};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::{Count, Usage};
use falkon_core::dispatch::{
    Action, ConnectionId, Delivery, Dispatcher, Event, InstanceOptions, Join, Lease, Record, Reply,
    Selection, Update,
};
use falkon_core::encoded::Encoded;
use falkon_core::gang::{GANG_USAGE_BYTES_MAX, GangUsage, NodeUsage, RankUsage};
use falkon_core::limits::{
    ERROR_BYTES_MAX, EXECUTOR_PATH_BYTES_MAX, GANG_USAGE_NODES_MAX, GANG_USAGE_RANKS_MAX,
    MESSAGE_BYTES_MAX, NAME_BYTES_MAX, RECORD_BYTES_MAX, RECORD_RUNS_MAX, TASK_NAME_BYTES_MAX,
    URL_BYTES_MAX, VALUE_BYTES_MAX,
};
use falkon_core::result::{
    Captured, Cause, Counts, Detail, Finished, Outcome, Overflow, Report, ResourceUsage, Tries,
};
use falkon_core::task::{
    After, ExecutorId, InstanceId, MILLI, Packed, Range, Resources, Rows, Submission, TaskClass,
    TaskId, Time,
};
use falkon_wire::codec::Wire;
use falkon_wire::message::{FromClient, FromExecutor, ToClient, ToExecutor};
use proptest::prelude::*;
use std::sync::Arc;

const CLIENT: ConnectionId = ConnectionId(1);
const EXECUTOR: ConnectionId = ConnectionId(2);
const INSTANCE: InstanceId = InstanceId(0);

fn encoded(value: &impl Wire) -> u64 {
    value.to_bytes().len() as u64
}

proptest! {
    #[test]
    fn the_core_counts_the_bytes_of_a_submission_exactly(submission in any::submission()) {
        prop_assert_eq!(submission.encoded_bytes(), encoded(&submission));
    }

    #[test]
    fn the_core_counts_no_fewer_bytes_of_an_order_than_there_are(order in any::order()) {
        prop_assert!(order.bytes_max() >= encoded(&order), "{} bytes", encoded(&order));
    }

    #[test]
    fn the_core_counts_the_bytes_of_numbers_exactly(value: i64, shift in 0u32..64) {
        let (signed, unsigned) = (value >> shift, value as u64 >> shift);
        prop_assert_eq!(signed.encoded_bytes(), encoded(&signed));
        prop_assert_eq!(unsigned.encoded_bytes(), encoded(&unsigned));
    }
}

/// Numbers that are accepted in a longer form than they are written.
#[test]
fn every_form_of_a_number_is_read() {
    for (form, value) in [
        (&[0xd0, 0x9c][..], -100),
        (&[0xd1, 0xff, 0x9c], -100),
        (&[0xd2, 0xff, 0xff, 0xff, 0x9c], -100),
        (&[0xd3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x9c], -100),
        (&[0xd3, 0, 0, 0, 0, 0, 0, 0, 7], 7),
        (&[0xcf, 0, 0, 0, 0, 0, 0, 0, 7], 7),
    ] {
        assert_eq!(i64::from_bytes(form), Ok(value));
        assert!(value.to_bytes().len() <= form.len());
    }
    for edge in [-33i64, -128, -129, -32_768, -32_769, -2_147_483_648, -2_147_483_649] {
        assert_eq!(i64::from_bytes(&edge.to_bytes()), Ok(edge));
        assert_eq!(edge.encoded_bytes(), encoded(&edge), "{edge}");
    }
}

/// Lets a dispatcher act; every record, order and delivery must fit. Returns
/// the records and the last reply.
fn act(dispatcher: &mut Dispatcher) -> (Vec<Record>, Option<Reply>) {
    let (mut records, mut last) = (Vec::new(), None);
    while let Some(action) = dispatcher.poll_action() {
        match action {
            Action::Journal(record) => {
                assert!(encoded(&record) <= RECORD_BYTES_MAX, "a record of {}", encoded(&record));
                records.push(record);
            }
            Action::Order { order, .. } => fits(&ToExecutor::Order(order)),
            Action::Deliver { delivery, .. } => fits(&ToClient::Results(delivery)),
            Action::Reply { reply, .. } => last = Some(reply),
            _ => {}
        }
    }
    (records, last)
}

fn fits(message: &impl Wire) {
    assert!(encoded(message) <= MESSAGE_BYTES_MAX, "a message of {} bytes", encoded(message));
}

/// A dispatcher with an instance and an executor that takes everything.
fn dispatcher() -> Dispatcher {
    let mut dispatcher = Dispatcher::new();
    let name = "n".repeat(NAME_BYTES_MAX);
    let options = InstanceOptions { name: name.clone(), ..InstanceOptions::default() };
    dispatcher.handle(Time(0), Event::Create { connection: CLIENT, request: 0, options });
    let capacity = Resources { cpus_milli: 64 * MILLI, ..Resources::default() };
    let serves = Some(Serving { address: "node:7000".to_owned(), fingerprint: vec![7; 32] });
    let join = Join {
        incarnation: 1,
        name,
        capacity,
        held: Vec::new(),
        reports: Vec::new(),
        gangs: Vec::new(),
        alternatives: Vec::new(),
        serves,
        cache: Default::default(),
        lease: Lease::default(),
    };
    dispatcher.handle(Time(0), Event::Join { connection: EXECUTOR, join });
    act(&mut dispatcher);
    dispatcher
}

fn tasks(rows: Rows, count: u64) -> Submission {
    Submission {
        count,
        template: Arc::default(),
        rows,
        classes: vec![TaskClass::default()],
        class_runs: vec![(count, 0)],
        names: None,
        after: Vec::new(),
        everywhere: None,
        data: None,
    }
}

fn column(count: u64, length: usize) -> Packed {
    let ends = (1..=count).map(|end| (end * length as u64) as u32).collect();
    Packed { blob: Arc::new(vec![b'x'; count as usize * length]), ends: Arc::new(ends) }
}

fn ranges(count: u64, start: i64) -> Rows {
    let range = Range { start, step: start, count: 1 };
    Rows::Computed { factors: vec![range; count as usize], offset: 0 }
}

fn object(number: u64, url: usize) -> Object {
    let url = "u".repeat(url).into();
    Object { id: ObjectId(u128::from(number)), url, version: "v".into(), size: Some(u64::MAX) }
}

/// A way in which submissions are large: `size` of something.
type Shape = (&'static str, fn(u64) -> Submission);

const SHAPES: [Shape; 11] = [
    ("ranges in few bytes", |size| tasks(ranges(size, -100), 1)),
    ("ranges in many bytes", |size| tasks(ranges(size, i64::MIN), 1)),
    ("one long row", |size| tasks(Rows::Packed(column(1, size as usize)), 1)),
    ("short rows", |size| tasks(Rows::Packed(column(size, 1)), size)),
    ("a long template", |size| Submission {
        template: Arc::new(vec![0; size as usize]),
        ..tasks(ranges(1, 0), 1)
    }),
    ("many classes", |size| Submission {
        classes: vec![TaskClass { priority: -1000, ..TaskClass::default() }; size as usize],
        ..tasks(ranges(1, 0), 1)
    }),
    ("many runs of classes", |size| Submission {
        class_runs: vec![(1, 0); size as usize],
        ..tasks(
            Rows::Computed { factors: vec![Range { start: 0, step: 1, count: size }], offset: 0 },
            size,
        )
    }),
    ("names", |size| {
        let names = Some(column(size, TASK_NAME_BYTES_MAX));
        let one = Range { start: 0, step: 1, count: size };
        Submission { names, ..tasks(Rows::Computed { factors: vec![one], offset: 0 }, size) }
    }),
    ("dependencies", |size| {
        let waits = vec![TaskId(1 << 60); size as usize];
        let after = vec![After { offset: 0, tasks: waits, takes: 0 }];
        Submission { after, ..tasks(ranges(1, 0), 1) }
    }),
    ("one task with many objects", |size| {
        let objects = (0..size).map(|number| object(number, 1)).collect();
        let inputs = Lists::Same((0..size as u32).collect());
        let data = Declared { objects: Arc::new(objects), inputs, outputs: Lists::default() };
        Submission { data: Some(Arc::new(data)), ..tasks(ranges(1, 0), 1) }
    }),
    ("many tasks with an object each", |size| {
        let objects = (0..size).map(|number| object(number, URL_BYTES_MAX)).collect();
        let (items, ends) = ((0..size as u32).collect(), (1..=size as u32).collect());
        let inputs = Lists::Each { items: Arc::new(items), ends: Arc::new(ends) };
        let data = Declared { objects: Arc::new(objects), inputs, outputs: Lists::default() };
        let one = Range { start: 0, step: 1, count: size };
        let rows = Rows::Computed { factors: vec![one], offset: 0 };
        Submission { data: Some(Arc::new(data)), ..tasks(rows, size) }
    }),
];

fn submit(dispatcher: &mut Dispatcher, submission: Submission) -> (Vec<Record>, Option<Reply>) {
    let first = TaskId(0);
    let (connection, request, instance) = (CLIENT, 1, INSTANCE);
    let event = Event::Submit { connection, request, instance, first, client: 1, submission };
    dispatcher.handle(Time(1), event);
    act(dispatcher)
}

/// The largest submission of each shape goes into the journal and, in orders,
/// to an executor; one entry more is refused, and nothing is journaled.
#[test]
fn the_largest_submission_of_each_shape_fits_records_and_orders_and_a_larger_one_is_refused() {
    for (name, shape) in SHAPES {
        let is_legal = |size| {
            let submission = shape(size);
            submission.check() == Ok(()) && submission.check_lengths() == Ok(())
        };
        let (mut legal, mut illegal) = (1, 2);
        assert!(is_legal(legal), "{name}");
        while is_legal(illegal) {
            (legal, illegal) = (illegal, 2 * illegal);
        }
        while legal + 1 < illegal {
            let middle = legal + (illegal - legal) / 2;
            if is_legal(middle) { legal = middle } else { illegal = middle }
        }
        let submission = shape(legal);
        let instance = INSTANCE;
        let first = TaskId(u64::MAX);
        let request = u64::MAX;
        fits(&FromClient::Submit {
            request,
            instance,
            first,
            client: 1,
            submission: submission.clone(),
        });
        let mut accepts = dispatcher();
        let (records, reply) = submit(&mut accepts, submission);
        assert!(matches!(reply, Some(Reply::Accepted { .. })), "{name}: {reply:?}");
        let submitted = records.iter().filter(|found| matches!(found, Record::Submitted { .. }));
        assert_eq!(submitted.count(), 1, "{name}");
        for record in accepts.snapshot() {
            assert!(encoded(&record) <= RECORD_BYTES_MAX, "{name}");
        }
        let (records, reply) = submit(&mut dispatcher(), shape(illegal));
        assert!(matches!(reply, Some(Reply::Refused(_))), "{name}: {reply:?}");
        assert!(records.is_empty(), "{name}");
    }
}

/// Tasks of which every other one has ended are as many runs as there can be.
#[test]
fn what_is_cancelled_and_what_has_ended_is_recorded_in_records_that_fit_each() {
    let count = 4 * RECORD_RUNS_MAX as u64 + 1000;
    let mut dispatcher = dispatcher();
    let range = Range { start: 0, step: 1, count };
    let rows = Rows::Computed { factors: vec![range], offset: 0 };
    let instance = INSTANCE;
    let (_, reply) = submit(
        &mut dispatcher,
        Submission {
            classes: vec![TaskClass {
                resources: Resources { gpus: 1, ..Resources::default() },
                ..TaskClass::default()
            }],
            ..tasks(rows, count)
        },
    );
    assert!(matches!(reply, Some(Reply::Accepted { .. })));
    let mut again = Dispatcher::new();
    let cancel = |dispatcher: &mut Dispatcher, selection| {
        let event = Event::Cancel { connection: CLIENT, request: 2, instance, selection };
        dispatcher.handle(Time(2), event);
        act(dispatcher)
    };
    let odd = (0..count / 2).map(|half| (2 * half + 1, 1)).collect();
    let (cancelled, _) = cancel(&mut dispatcher, Selection::Runs(odd));
    let runs = |record: &Record| match record {
        Record::Cancelled { runs, .. } => runs.len() as u64,
        _ => 0,
    };
    assert_eq!(cancelled.iter().map(runs).sum::<u64>(), count / 2);
    assert!(cancelled.iter().filter(|record| runs(record) > 0).count() > 1);
    // What is left, in as many runs again.
    let (cancelled, _) = cancel(&mut dispatcher, Selection::All);
    assert_eq!(cancelled.iter().map(runs).sum::<u64>(), count / 2);
    for record in dispatcher.snapshot() {
        assert!(encoded(&record) <= RECORD_BYTES_MAX);
        assert_eq!(again.recover(record), Ok(()));
    }
    again.recovered(Time(3));
    assert_eq!(again.check(), Ok(()));
    let counts = |dispatcher: &Dispatcher| dispatcher.instance_view(instance).unwrap().counts();
    assert_eq!(counts(&again), counts(&dispatcher));
    assert_eq!(counts(&again).cancelled, count);
}

/// What the nodes of a gang used, as long as it may be.
fn widest() -> Arc<GangUsage> {
    let used = ResourceUsage {
        user_micros: u64::MAX,
        system_micros: u64::MAX,
        rss_max_bytes: u64::MAX,
        read_bytes: u64::MAX,
        written_bytes: u64::MAX,
        disk_max_bytes: Some(u64::MAX),
    };
    let executor = "n".repeat(NAME_BYTES_MAX);
    let ranks =
        vec![RankUsage { rank: u32::MAX, used }; GANG_USAGE_RANKS_MAX / GANG_USAGE_NODES_MAX];
    let node = NodeUsage { executor, used: Some(used), is_missing: true, ranks };
    let listed = vec![node; GANG_USAGE_NODES_MAX];
    Arc::new(GangUsage { nodes: u32::MAX, missing: u32::MAX, listed })
}

#[test]
fn what_the_nodes_of_a_gang_used_is_within_its_bound_and_dropped_beyond() {
    let widest = widest();
    assert!(encoded(&*widest) <= GANG_USAGE_BYTES_MAX);
    let mut wider = (*widest).clone();
    wider.listed.push(NodeUsage { ranks: Vec::new(), ..wider.listed[0].clone() });
    let mut fuller = (*widest).clone();
    let rank = fuller.listed[0].ranks[0];
    fuller.listed[7].ranks.push(rank);
    let (number, time) = (u64::MAX, Time(u64::MAX));
    for (gang, is_kept) in [(widest, true), (Arc::new(wider), false), (Arc::new(fuller), false)] {
        let detail = Detail { gang: Some(gang), ..Detail::default() };
        let mut report = Report {
            instance: InstanceId(number),
            first: TaskId(1),
            count: 1,
            tries: Tries::default(),
            outcome: Outcome::Exit(0),
            started: time,
            ended: time,
            detail: Some(Arc::new(detail)),
        };
        report.bound();
        assert_eq!(report.detail.unwrap().gang.is_some(), is_kept);
    }
}

/// The largest report there is, in every message and record that it goes into.
#[test]
fn the_largest_report_fits_updates_records_and_deliveries() {
    let captured = |bytes| Captured {
        head: vec![b'x'; bytes],
        total_bytes: u64::MAX,
        overflow: Some(Overflow { incarnation: u64::MAX, number: u64::MAX }),
        member: Some("m".repeat(URL_BYTES_MAX).into()),
    };
    for (value, stdout, stderr) in
        [(20 << 20, 0, 0), (8 << 20, 9 << 20, 9 << 20), (0, 9 << 20, 1), (0, 20 << 20, 20 << 20)]
    {
        let usage = Count { objects: u64::MAX, bytes: u64::MAX };
        let detail = Detail {
            stdout: captured(stdout),
            stderr: captured(stderr),
            error: "e".repeat(17 << 20),
            value: vec![7; value],
            usage: Usage { local: usage, peer: usage, store: usage },
            staging_micros: u64::MAX,
            cause: Some(Cause::FileSystemSilent),
            outputs: vec!["o".repeat(100); 2000],
            resources: Some(ResourceUsage {
                user_micros: u64::MAX,
                system_micros: u64::MAX,
                rss_max_bytes: u64::MAX,
                read_bytes: u64::MAX,
                written_bytes: u64::MAX,
                disk_max_bytes: Some(u64::MAX),
            }),
            executor: "n".repeat(2 * EXECUTOR_PATH_BYTES_MAX),
            alternative: u32::MAX,
            given_cpus_milli: u32::MAX,
            given_memory_bytes: u64::MAX,
            gang: Some(widest()),
        };
        let (number, task, time) = (u64::MAX, TaskId(u64::MAX - 1), Time(u64::MAX));
        let tries = Tries { failures: u32::MAX, losses: u32::MAX };
        let mut report = Report {
            instance: InstanceId(number),
            first: task,
            count: 1,
            tries,
            outcome: Outcome::Exit(0),
            started: time,
            ended: time,
            detail: Some(Arc::new(detail)),
        };
        report.bound();
        let outcome = report.outcome;
        assert_eq!(outcome != Outcome::Exit(0), value as u64 > VALUE_BYTES_MAX);
        let detail = report.detail.clone();
        assert!(detail.as_ref().unwrap().error.len() as u64 <= ERROR_BYTES_MAX);
        let update = Update { number, reports: vec![report], ..Update::default() };
        fits(&FromExecutor::Update(update));
        let finished = Finished {
            first: task,
            count: 1,
            outcome: Outcome::UpstreamFailed(task),
            executor: Some(ExecutorId(number)),
            attempts: u32::MAX,
            queued: time,
            dispatched: time,
            started: time,
            ended: time,
            detail,
        };
        let (instance, from, results) = (InstanceId(number), number, vec![finished]);
        let record = Record::Finished { instance, from, results: results.clone() };
        assert!(encoded(&record) <= RECORD_BYTES_MAX);
        let executors = vec![(ExecutorId(number), "n".repeat(NAME_BYTES_MAX))];
        let counts = Counts { total: number, done: number, ..Counts::default() };
        let complete = true;
        let (upto, again) = (number, vec![(number, 1)]);
        fits(&ToClient::Results(Delivery {
            instance,
            from,
            results,
            executors,
            counts,
            complete,
            upto,
            again,
        }));
    }
}
