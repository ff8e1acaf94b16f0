//! One example of every message and record, for the golden bytes and the
//! fuzz corpus. This file is long because it has them all.

mod data;
mod explain;
mod pages;
mod parts;
mod provision;
mod reaches;
mod records;
mod refusals;
mod restart;
mod users;

use data::{cache_state, found_object, object_status, placed};
use falkon_core::collect::Unwritten;
use falkon_core::data::declared::{
    AssignedData, CacheRoom, Collects, DataOrder, Declared, Lend, Lists, Located, Pace, Peer,
    Serving,
};
use falkon_core::data::object::{Object, ObjectId, Sources};
use falkon_core::data::stage::{Changes, Count, Usage};
use falkon_core::dispatch::diffusion::{PolicyError, PolicyName, PolicyOptions};
use falkon_core::dispatch::{
    Access, AccessError, Assigned, BatchId, Delivery, Earlier, Held, HeldAlternative, Holdings,
    Idle, IdleReason, InstanceOptions, Join, Keep, Lease, NodeClass, Order, PagedOutput, Prepare,
    Record, Selection, Site, Standing, Subtree, Survey, Update,
};
use falkon_core::gang::{
    GangKey, GangOrder, GangReport, GangToken, GangUsage, Member, NodeUsage, RankUsage,
};
use falkon_core::provision::Waiting;
use falkon_core::result::{
    Captured, Cause, Counts, Detail, Finished, Outcome, Overflow, Report, ResourceUsage, Stream,
    Tries,
};
use falkon_core::tail::{KeptQuestion, Tail, TailQuestion, TailState};
use falkon_core::task::{
    After, AllocationId, ExecutorId, InstanceId, Kind, Packed, Range, Resources, Rows, Submission,
    SubmissionError, TaskClass, TaskId, TaskKey, Time,
};
use falkon_wire::codec::{DecodeError, Wire};
use falkon_wire::command::{
    Call, Command, CommandTemplate, Digits, Form, Function, Piece, Template, pack_row,
};
use falkon_wire::hidden::Hidden;
use falkon_wire::message::{
    CacheStatus, ExecutorStatus, FromClient, FromExecutor, InstanceStatus, Status, TaskInfo,
    Ticket, ToClient, ToExecutor,
};
use std::sync::Arc;

/// The name of an example and its bytes.
pub(crate) type Example = (String, Vec<u8>);

/// Every example, in a fixed order.
pub(crate) fn all() -> Vec<Example> {
    let mut all = Vec::new();
    named(&mut all, "from_client", from_client().into_iter().chain(parts::from_client()).collect());
    named(&mut all, "to_client", to_client().into_iter().chain(parts::to_client()).collect());
    named(
        &mut all,
        "from_executor",
        from_executor().into_iter().chain(parts::from_executor()).collect(),
    );
    named(&mut all, "to_executor", to_executor().into_iter().chain(parts::to_executor()).collect());
    named(&mut all, "record", records::all());
    named(&mut all, "template", templates());
    all.push(("command".to_owned(), command().to_bytes()));
    all
}

fn named<T: Wire>(all: &mut Vec<Example>, of: &str, examples: Vec<(&str, T)>) {
    all.extend(
        examples.into_iter().map(|(name, value)| (format!("{of}.{name}"), value.to_bytes())),
    );
}

const NOW: Time = Time(1_700_000_000_000_000);
const INSTANCE: InstanceId = InstanceId(7);

fn options() -> InstanceOptions {
    InstanceOptions {
        name: "sweep".to_owned(),
        keep_results: true,
        fail_unschedulable_micros: Some(30_000_000),
        fail_fast: true,
        policy: PolicyOptions {
            policy: PolicyName::GoodCacheCompute,
            window: 3200,
            utilization_threshold_milli: 800,
            replication_max: 4,
        },
        lease_micros: Some(120_000_000),
        keep_output: true,
        keep: Keep::Micros(2_592_000_000_000),
    }
}

fn resources() -> Resources {
    Resources {
        cpus_milli: 500,
        gpus: 1,
        memory_bytes: 2 << 30,
        custom: vec![("licence".to_owned(), 3)],
    }
}

fn class() -> TaskClass {
    TaskClass {
        resources: resources(),
        priority: -4,
        retries: 2,
        timeout_micros: 90_000_000,
        estimate_micros: 1_500_000,
        replicas: 2,
        lenders: 8,
        attempts_before: 3,
        memory_limit_bytes: 3 << 30,
        nodes: 32,
        ranks_per_node: 4,
        ..TaskClass::default()
    }
}

fn template() -> Template {
    let literal = |text: &str| vec![Piece::Literal(text.as_bytes().to_vec())];
    Template::Command(CommandTemplate {
        argv: vec![
            literal("dock"),
            vec![Piece::Literal(b"--in=".to_vec()), Piece::Value { source: 0, form: Form::Whole }],
            vec![Piece::Value { source: 1, form: Form::BaseStem }, Piece::Number],
            vec![Piece::Decimal {
                source: 0,
                form: Form::Whole,
                digits: Digits { places: 1, width: 0 },
            }],
        ],
        env: vec![(b"OMP_NUM_THREADS".to_vec(), literal("1"))],
        cwd: Some(literal("runs")),
        stdin: None,
        inputs: vec![vec![Piece::Value { source: 0, form: Form::Directory }]],
        outputs: vec![
            vec![Piece::Value { source: 0, form: Form::Stem }],
            vec![Piece::Value { source: 0, form: Form::Base }],
        ],
        streams: Some(vec![Piece::Literal(b"/logs.zip!".to_vec()), Piece::Number]),
        call: None,
    })
}

fn command() -> Command {
    Command {
        argv: vec![b"sort".to_vec(), b"\xff\xfe".to_vec()],
        env: vec![(b"LC_ALL".to_vec(), b"C".to_vec())],
        cwd: Some(b"data".to_vec()),
        stdin: Some(b"words".to_vec()),
        inputs: vec![b"words".to_vec()],
        outputs: vec![b"sorted".to_vec()],
        streams: Some(b"/logs.zip!1".to_vec()),
        call: None,
    }
}

fn packed(strings: &[&[u8]]) -> Packed {
    let mut packed = Packed::default();
    for string in strings {
        assert!(packed.push(string), "a few short strings fit");
    }
    packed
}

fn row(values: &[&[u8]]) -> Vec<u8> {
    let mut row = Vec::new();
    pack_row(values, &mut row);
    row
}

/// A file, an object of S3 whose size nobody knows, and one that lives in
/// caches alone.
fn objects() -> Vec<Object> {
    let object = |id, url: &str, version: &str, size| Object {
        id: ObjectId(id),
        url: url.into(),
        version: version.into(),
        size,
    };
    vec![
        object(
            0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
            "/data/sky.fits",
            "2097152-1699999999123456789",
            Some(2 << 20),
        ),
        object(u128::MAX - 1, "s3://survey/tile/7", "\"5d41402abc4b\"", None),
        object(1, "cache:mosaic-7", "", None),
    ]
}

/// Two tasks that read and write objects: numbers of those above.
fn data_submission() -> Submission {
    let declared = Declared {
        objects: Arc::new(objects()),
        inputs: Lists::Each { items: Arc::new(vec![0, 0, 1]), ends: Arc::new(vec![1, 3]) },
        outputs: Lists::Same(vec![2]),
    };
    Submission { data: Some(Arc::new(declared)), ..submission() }
}

fn located() -> Vec<Located> {
    let sources = [
        Sources { peers: vec![ExecutorId(4), ExecutorId(300)], store: true, ..Sources::default() },
        Sources { store: true, coming: Some(ExecutorId(5)), ..Sources::default() },
        Sources { peers: vec![ExecutorId(4)], forwarded: true, ..Sources::default() },
    ];
    let both = objects().into_iter().zip(sources);
    both.map(|(object, sources)| Located { object, sources }).collect()
}

fn data_order() -> DataOrder {
    let serves = |address: &str, fingerprint| Serving { address: address.to_owned(), fingerprint };
    let peer = |executor, serves| Peer { executor: ExecutorId(executor), serves };
    DataOrder {
        peers: vec![
            peer(4, serves("node8:40001", vec![0xfe; 32])),
            peer(300, serves("[2001:db8::9]:40001", Vec::new())),
        ],
        fetch: located()[..1].to_vec(),
        demand: vec![(objects()[0].id, 70_000), (objects()[1].id, 0)],
        gone: vec![ExecutorId(3)],
        drop: vec![objects()[1].id],
        hold: vec![objects()[0].id],
        release: vec![objects()[0].id, objects()[1].id],
        parents: vec![(objects()[0].id, vec![ExecutorId(4), ExecutorId(300)])],
        lend: vec![Lend { located: located()[0].clone(), stripes: vec![1, 5], of: 6 }],
        take_back: vec![objects()[1].id],
        striped: vec![(objects()[0].id, vec![ExecutorId(4), ExecutorId(300), ExecutorId(4)])],
        collects: Some(Collects::Other(ExecutorId(300))),
        may_leave: true,
    }
}

fn unwritten() -> Vec<Unwritten> {
    let error = "No space left on device (os error 28)".into();
    vec![Unwritten { archive: "/store/scores.zip".into(), since: NOW, error }]
}

fn cache_changes() -> Changes {
    let [first, second, third] = [0, 1, 2].map(|at| objects()[at].id);
    Changes {
        anew: false,
        added: vec![(first, 2 << 20), (second, 0)],
        removed: vec![third],
        named: vec![placed()],
        state: Some(cache_state()),
        unobtainable: vec![second],
        silent: vec![(first, ExecutorId(4))],
        moved: vec![(ExecutorId(4), 2 << 20)],
    }
}

fn submission() -> Submission {
    let rows = [row(&[b"lib/a.mol", b"x.pdb"]), row(&[b"lib/b.mol", b"y.pdb"])];
    Submission {
        data: None,
        count: 2,
        template: Arc::new(template().to_bytes()),
        rows: Rows::Packed(packed(&[&rows[0], &rows[1]])),
        classes: vec![class()],
        class_runs: vec![(2, 0)],
        names: Some(packed(&[b"first", b"second"])),
        after: vec![After { offset: 1, tasks: vec![TaskId(0)], takes: 1 }],
        everywhere: None,
    }
}

fn alternatives() -> Submission {
    let alternatives = vec![Resources::cpus(16), resources()];
    let class = TaskClass { alternatives, ..TaskClass::default() };
    Submission { classes: vec![class], ..task_array() }
}

fn task_array() -> Submission {
    Submission {
        count: 1_000_000,
        rows: Rows::Computed {
            factors: vec![
                Range { start: -500, step: 1, count: 1000 },
                Range { start: 0, step: 10, count: 1000 },
            ],
            offset: 0,
        },
        classes: vec![TaskClass { kind: Kind::Noop, speculate: true, ..TaskClass::default() }],
        class_runs: vec![(1_000_000, 0)],
        names: None,
        after: Vec::new(),
        ..submission()
    }
}

fn detail() -> Option<Arc<Detail>> {
    Some(Arc::new(Detail {
        stdout: Captured { head: b"1.5\n".to_vec(), total_bytes: 4, ..Captured::default() },
        stderr: Captured {
            head: b"warn".to_vec(),
            total_bytes: 70_000,
            overflow: Some(Overflow { incarnation: 77, number: 9 }),
            member: Some("/logs.zip!1/stderr".into()),
        },
        error: "the output `x` is missing".to_owned(),
        value: b"j42".to_vec(),
        usage: Usage {
            local: Count { objects: 1, bytes: 2 << 20 },
            peer: Count { objects: 3, bytes: 300 },
            store: Count::default(),
        },
        staging_micros: 1500,
        cause: None,
        outputs: vec!["/scores.part2.zip!7/energy".to_owned()],
        resources: Some(ResourceUsage {
            user_micros: 1_900_000,
            system_micros: 20_000,
            rss_max_bytes: 300 << 20,
            read_bytes: 4096,
            written_bytes: 0,
            disk_max_bytes: Some(2 << 30),
        }),
        executor: "site-a/node-7".to_owned(),
        alternative: 2,
        given_cpus_milli: 4000,
        given_memory_bytes: 3 << 30,
        gang: Some(Arc::new(gang_usage())),
    }))
}

fn gang_usage() -> GangUsage {
    let used = ResourceUsage { user_micros: 950_000, ..ResourceUsage::default() };
    let node = |name: &str, used: Option<ResourceUsage>| {
        let is_missing = used.is_none();
        let ranks = used.map(|used| RankUsage { rank: 3, used });
        let ranks = ranks.into_iter().collect();
        NodeUsage { executor: name.to_owned(), used, is_missing, ranks }
    };
    let listed = vec![node("node7:4711", Some(used)), node("node8:4711", None)];
    GangUsage { nodes: 3, missing: 1, listed }
}

fn tries() -> Tries {
    Tries { failures: 1, losses: 0 }
}

fn finished() -> Vec<Finished> {
    let run = |first: u64, count, outcome| Finished {
        first: TaskId(first),
        count,
        outcome,
        executor: Some(ExecutorId(3)),
        attempts: 1,
        queued: NOW,
        dispatched: NOW.after(10),
        started: NOW.after(300),
        ended: NOW.after(70_000),
        detail: None,
    };
    let of = |cause| Some(Arc::new(Detail { cause: Some(cause), ..Detail::default() }));
    let caused = |at, outcome, cause| Finished { detail: of(cause), ..run(at, 1, outcome) };
    let mut all = vec![
        run(0, 4096, Outcome::Exit(0)),
        Finished { detail: detail(), ..run(4096, 1, Outcome::Exit(-1)) },
        run(4097, 1, Outcome::Signal(9)),
        run(4098, 1, Outcome::TimedOut),
        run(4099, 1, Outcome::NotRun),
        run(4100, 1, Outcome::Lost),
        run(4104, 1, Outcome::NoOutput),
        run(4105, 1, Outcome::NoInput),
        Finished {
            executor: None,
            attempts: 0,
            ..run(4101, 1, Outcome::UpstreamFailed(TaskId(9)))
        },
        run(4102, 1, Outcome::Unschedulable),
        run(4103, 1, Outcome::Unreadable),
        run(4103, 1, Outcome::Cancelled),
    ];
    let ends = |cause| match cause {
        Cause::Raised | Cause::InitializerFailed | Cause::VersionMismatch => Outcome::Exit(1),
        Cause::WorkerDied => Outcome::Signal(9),
        _ => Outcome::NotRun,
    };
    all.extend((4200..).zip(every()).map(|(at, cause)| caused(at, ends(cause), cause)));
    all
}

fn reports() -> Vec<Report> {
    let report = Report {
        instance: INSTANCE,
        first: TaskId(1000),
        count: 50,
        tries: Tries::default(),
        outcome: Outcome::Exit(0),
        started: NOW,
        ended: NOW.after(2),
        detail: None,
    };
    let failed = Report { count: 1, outcome: Outcome::Exit(2), detail: detail(), ..report.clone() };
    vec![report, failed]
}

fn held() -> Vec<Held> {
    vec![Held { instance: INSTANCE, first: TaskId(70), count: 6, tries: tries() }]
}

fn gang() -> GangKey {
    GangKey { instance: INSTANCE, task: TaskId(70), tries: tries() }
}

fn gang_orders() -> Vec<GangOrder> {
    let serves = Serving { address: "node7:40001".to_owned(), fingerprint: vec![0xab; 32] };
    let first = Member { executor: ExecutorId(3), name: "node7:4711".to_owned(), serves };
    let (executor, name) = (ExecutorId(4), "node8:4712".to_owned());
    let members = vec![first, Member { executor, name, serves: Serving::default() }];
    let form = GangOrder::Form {
        key: gang(),
        index: 1,
        resources: resources(),
        ranks_per_node: 4,
        token: GangToken([0xee; 16]),
        members: Arc::new(members),
    };
    vec![form, GangOrder::Disband { key: gang() }]
}

fn gang_reports() -> Vec<GangReport> {
    let usage = Some(ResourceUsage { user_micros: 70_000, ..ResourceUsage::default() });
    vec![
        GangReport::Released { key: gang(), usage },
        GangReport::Released { key: gang(), usage: None },
        GangReport::Broken { key: gang() },
    ]
}

fn counts() -> Counts {
    Counts {
        total: 300,
        waiting: 1,
        ready: 20,
        dispatched: 4,
        done: 270,
        failed: 3,
        cancelled: 2,
        recomputed: 5,
    }
}

fn from_client() -> Vec<(&'static str, FromClient)> {
    use FromClient::*;
    let (request, instance) = (42, INSTANCE);
    vec![
        ("create", Create { request, options: options() }),
        (
            "submit",
            Submit { request, instance, first: TaskId(0), client: 77, submission: submission() },
        ),
        (
            "submit_data",
            Submit {
                request,
                instance,
                first: TaskId(2),
                client: 77,
                submission: data_submission(),
            },
        ),
        (
            "submit_array",
            Submit { request, instance, first: TaskId(2), client: 77, submission: task_array() },
        ),
        (
            "submit_alternatives",
            Submit { request, instance, first: TaskId(2), client: 77, submission: alternatives() },
        ),
        ("seal", Seal { request, instance }),
        ("forget", Forget { request, name: Some("/data/nr.fa".into()) }),
        ("forget_all", Forget { request, name: None }),
        ("subscribe", Subscribe { request, instance, from: 300 }),
        ("acknowledge", Acknowledge { instance, upto: 300 }),
        ("cancel_all", Cancel { request, instance, selection: Selection::All }),
        (
            "cancel",
            Cancel { request, instance, selection: Selection::Runs(vec![(5, 1), (70_000, 9)]) },
        ),
        ("retry", Retry { request, instance, selection: Selection::All }),
        ("explain_idle", ExplainIdle { request }),
        ("destroy", Destroy { request, instance }),
        ("pause", Pause { request, instance, is_paused: true }),
        ("prioritize", Prioritize { request, instance, priority: -3 }),
        ("drain", Drain { request, executor: ExecutorId(3), is_drained: true }),
        ("status_all", Status { request, instance: None, from: None }),
        ("status", Status { request, instance: Some(instance), from: Some((3, 70)) }),
        ("tasks", Tasks { request, instance, first: TaskId(10), count: 1000 }),
        ("stop", Stop { request }),
        ("subtree", Subtree { request, relay: 0x0123_4567_89ab_cdef, since: 12 }),
        ("unmet", Unmet { waiting: waiting() }),
        ("explain", Explain { request, instance: INSTANCE, task: Some(TaskId(10)) }),
        ("events", Events { request, from: Some((3, 4096)) }),
        ("events-oldest", Events { request, from: None }),
        ("withdraw", Withdraw { request, instance: INSTANCE, count: 100 }),
        ("await_staged", AwaitStaged { request, instance: INSTANCE }),
        (
            "objects",
            Objects {
                request,
                instance: Some(instance),
                executor: Some(ExecutorId(3)),
                prefix: "cache:".to_owned(),
                after: Some(placed().id),
            },
        ),
        ("find", Find { request, instance: None, name: "cache:key".to_owned() }),
    ]
    .into_iter()
    .chain(reaches::all())
    .chain(users::asked())
    .chain(restart::asked())
    .chain(provision::asks().into_iter().map(|(name, ask)| (name, Provision { request, ask })))
    .collect()
}

fn idle() -> Idle {
    let some = vec!["node7:4711".to_owned()];
    Idle { reason: IdleReason::Larger, tasks: 12, executors: 3, cpus_milli: 5_500, some }
}

fn to_client() -> Vec<(&'static str, ToClient)> {
    let request = 42;
    let delivery = Delivery {
        instance: INSTANCE,
        from: 0,
        results: finished(),
        executors: vec![(ExecutorId(3), "node7:4711".to_owned())],
        counts: counts(),
        complete: true,
        upto: 310,
        again: vec![(7, 1)],
    };
    let instances = vec![InstanceStatus {
        id: 7,
        name: "sweep".to_owned(),
        created: NOW,
        heard: NOW.after(3),
        expires: Some(NOW.after(9)),
        counts: counts(),
        running: 2,
        staged: 5,
        sealed: true,
        complete: false,
        named: true,
        queued_bytes: 70_000,
        held_bytes: 9000,
        stored_bytes: 70_000,
        clogged: false,
        paused: true,
        priority: -3,
        unschedulable: vec![(resources(), 12)],
        overlong: vec![(7_200_000_000, 3)],
        results: 310,
        user: "alice".to_owned(),
    }];
    let executors = vec![ExecutorStatus {
        id: ExecutorId(3),
        name: "node7:4711".to_owned(),
        capacity: Resources::cpus(64),
        free: resources(),
        tasks: 80,
        prefetched: 16,
        connected: true,
        suspended_until: Some(NOW.after(9)),
        drained: true,
        cache: Some(CacheStatus {
            objects: 12,
            state: cache_state(),
            object_bytes: 1 << 30,
            lent_bytes: 64 << 20,
            lent_used_bytes: 8 << 20,
            mounts: true,
        }),
        nodes: Some(640),
        relays: standings(),
        unwritten: unwritten(),
    }];
    let version = "0.1.0".to_owned();
    let (now, coming, next) = (NOW.after(5), provision::coming(), Some((4, 300)));
    let away = standings();
    let (started, users) = (NOW, Vec::new());
    let status = Status { version, started, now, instances, executors, coming, away, next, users };
    let task = |name: Option<&str>, state: &str, argv: &[&str]| TaskInfo {
        task: TaskId(10),
        name: name.map(|name| name.as_bytes().to_vec()),
        state: state.to_owned(),
        argv: argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
        executor: None,
        end: None,
    };
    let mut ended = task(None, "failed", &[]);
    ended.executor = Some("node7:4711".to_owned());
    ended.end = finished().pop().map(|end| Finished { detail: None, ..end });
    let tasks = vec![task(Some("a"), "ready", &["echo", "1"]), ended];
    let mut messages = vec![
        (
            "created",
            ToClient::Created { request, instance: INSTANCE, secret: Hidden(vec![0xab; 32]) },
        ),
        ("accepted", ToClient::Accepted { request, first: TaskId(10), count: 1_000_000 }),
        ("done", ToClient::Done { request }),
        ("results", ToClient::Results(delivery)),
        ("status", ToClient::Status { request, status }),
        ("tasks", ToClient::Tasks { request, tasks }),
        ("gone", ToClient::Gone { instance: INSTANCE }),
        (
            "objects",
            ToClient::Objects {
                request,
                objects: vec![object_status()],
                next: Some(object_status().id),
            },
        ),
        (
            "found",
            ToClient::Found {
                request,
                found: vec![found_object()],
                earlier: Some(Earlier { readers: 10_000, executors: 64, size: 12 << 30 }),
            },
        ),
        ("tail", ToClient::Tail { request, tail: tail() }),
        ("names_forgotten", ToClient::Forgotten { request, names: 3 }),
        (
            "output_reached",
            ToClient::OutputReached {
                request,
                ticket: Ticket { number: 9, secret: Hidden([0xcd; 32]), expires: NOW.after(600) },
                access: Access {
                    executor: ExecutorId(3),
                    name: "node7:4711".to_owned(),
                    serves: Serving { address: "node7:40001".to_owned(), fingerprint: vec![1; 32] },
                },
                number: 5,
            },
        ),
        (
            "reached",
            ToClient::Reached {
                request,
                ticket: Ticket { number: 9, secret: Hidden([0xcd; 32]), expires: NOW.after(600) },
                access: vec![Access {
                    executor: ExecutorId(3),
                    name: "node7:4711".to_owned(),
                    serves: Serving { address: "node7:40001".to_owned(), fingerprint: vec![1; 32] },
                }],
            },
        ),
        ("provision", ToClient::Provision { request, status: provision::status() }),
        (
            "subtree",
            ToClient::Subtree {
                request,
                subtree: subtree(),
                holdings: holdings(),
                survey: Box::new(survey()),
            },
        ),
        ("explained", ToClient::Explained { request, explained: explain::all() }),
        (
            "events-read",
            ToClient::Events { request, blocks: vec![1, 2], next: (3, 4098), is_end: true },
        ),
        ("withdrawn", ToClient::Withdrawn { request, runs: vec![(10, 90), (300, 1)] }),
        (
            "staged",
            ToClient::Staged { request, staged: vec![(10, 90), (300, 1)], unstaged: vec![(7, 1)] },
        ),
        ("retried", ToClient::Retried { request, count: 91, forgotten: 3 }),
        ("idle", ToClient::Idle { request, idle: vec![idle()] }),
    ];
    let refused = |(name, reason)| (name, ToClient::Refused { request, reason });
    messages.extend(refusals::all().into_iter().map(refused));
    messages.extend(users::answers());
    messages.push(restart::answer());
    messages
}

fn from_executor() -> Vec<(&'static str, FromExecutor)> {
    let serves = Serving { address: "node7:40001".to_owned(), fingerprint: vec![0xab; 32] };
    let join = Join {
        gangs: Vec::new(),
        alternatives: Vec::new(),
        serves: None,
        cache: CacheRoom { object_bytes: 5 << 30, lent_bytes: 0, mounts: true },
        lease: Lease::default(),
        incarnation: 0x0123_4567_89ab_cdef,
        name: "node7:4711".to_owned(),
        capacity: Resources::cpus(64),
        held: held(),
        reports: reports(),
    };
    let of = |held| HeldAlternative { held, alternative: 2 };
    let alternatives = held().into_iter().map(of).collect();
    let lease = Lease { allocation: Some(AllocationId(12)), leaves_in_micros: Some(3_540_000_000) };
    let update = Update {
        number: 9,
        reports: reports(),
        returned: held(),
        recalled: true,
        staged: held(),
        unstaged: held(),
        kept: vec![(9, 1), (300, 70_000)],
        ..Update::default()
    };
    let failing = Update { number: 2, unwritten: Some(unwritten()), ..Update::default() };
    let gangs = Update { number: 4, gangs: gang_reports(), ..Update::default() };
    let behind = Update { number: 3, pace: Some(Pace::Behind), ..Update::default() };
    let lending = Update {
        number: 1,
        subtree: Some(Box::new(subtree())),
        survey: Some(Box::new(survey())),
        ..Update::default()
    };
    vec![
        ("join_serving", FromExecutor::Join(Join { serves: Some(serves), ..join.clone() })),
        ("join_leased", FromExecutor::Join(Join { lease, ..join.clone() })),
        ("join_gangs", FromExecutor::Join(Join { gangs: vec![gang()], ..join.clone() })),
        ("join_alternatives", FromExecutor::Join(Join { alternatives, ..join.clone() })),
        ("join", FromExecutor::Join(join)),
        ("update", FromExecutor::Update(update)),
        ("update_cache", cached(11, cache_changes())),
        ("update_cache_anew", cached(1, Changes { anew: true, ..Changes::default() })),
        ("update_subtree", FromExecutor::Update(lending)),
        ("update_unwritten", FromExecutor::Update(failing)),
        ("update_pace", FromExecutor::Update(behind)),
        ("update_gangs", FromExecutor::Update(gangs)),
        ("tail", FromExecutor::Tail { number: 3, tail: tail() }),
        ("no_tail", FromExecutor::NoTail { number: 4, why: AccessError::ExecutorGone }),
        ("heartbeat", FromExecutor::Update(Update { number: 10, ..Update::default() })),
    ]
}

fn holdings() -> Holdings {
    let added = vec![(ObjectId(0x0123_4567_89ab_cdef), 1 << 20)];
    Holdings { anew: true, upto: 14, added, removed: vec![ObjectId(7)] }
}

fn subtree() -> Subtree {
    let nodes = vec![NodeClass { capacity: Resources::cpus(64), has_cache: true, count: 640 }];
    Subtree {
        process: 5,
        relays: vec![0x0123_4567_89ab_cdef, 7],
        nodes,
        obtainable: vec![Resources::cpus(64)],
        is_unknown_obtainable: true,
    }
}

fn survey() -> Survey {
    let site = Site {
        relays: "login1:site/rack1:site".to_owned(),
        queue: "slurm".to_owned(),
        node: Resources::cpus(64),
        held: 4,
        nodes_max: 640,
        delay_micros: 60_000_000,
        walltime_micros: 3_600_000_000,
        billing_micros: 60_000_000,
        unmet: 1000,
        requests: vec![16],
        reason: "1000 tasks wait".to_owned(),
    };
    Survey { relays: standings(), sites: vec![site] }
}

fn standings() -> Vec<Standing> {
    let standing = |name: &str, depth, away_micros| Standing {
        name: name.to_owned(),
        depth,
        nodes: 640,
        cpus_milli: 40_960_000,
        used_milli: 20_480_000,
        running: 20_480,
        ahead: 4096,
        ended: 1 << 40,
        away_micros,
    };
    vec![standing("login1:site", 0, None), standing("rack1:site", 1, Some(9_000_000))]
}

fn waiting() -> Vec<Waiting> {
    let need = Resources::cpus(4);
    vec![Waiting { need, tasks: 1000, estimate_micros: Some(4_000_000), lasts_micros: 0, nodes: 1 }]
}

fn cached(number: u64, changes: Changes) -> FromExecutor {
    FromExecutor::Update(Update { number, cache: Some(Box::new(changes)), ..Update::default() })
}

fn to_executor() -> Vec<(&'static str, ToExecutor)> {
    let assigned = |first, rows| Assigned {
        data: None,
        batch: BatchId(5),
        instance: INSTANCE,
        first: TaskId(first),
        count: 2,
        class: 0,
        tries: tries(),
        rows,
    };
    let template = Arc::new(template().to_bytes());
    let with_data = |count, inputs, outputs| Assigned {
        count,
        data: Some(Box::new(AssignedData { objects: located(), inputs, outputs, read: vec![2] })),
        ..assigned(0, submission().rows)
    };
    let each = Lists::Each { items: Arc::new(vec![0, 1]), ends: Arc::new(vec![0, 2]) };
    let data = Order {
        acknowledged: 9,
        assign: vec![
            with_data(1, Lists::Same(vec![0, 1]), Lists::Same(vec![2])),
            with_data(2, each, Lists::default()),
        ],
        data: Some(Box::new(data_order())),
        ..Order::default()
    };
    let order = Order {
        data: None,
        acknowledged: 8,
        prepare: vec![Prepare {
            batch: BatchId(5),
            template,
            classes: vec![class(), TaskClass { alternative: 2, ..class() }],
            everywhere: Some(class().resources),
        }],
        assign: vec![assigned(0, submission().rows), assigned(2, task_array().rows)],
        recall: 3,
        cancel: held(),
        disown: held(),
        forget: vec![BatchId(4)],
        discard: vec![(9, 1), (300, 70_000)],
        leave: true,
        heartbeat_micros: 4_000_000,
        gangs: Vec::new(),
    };
    let gangs = Order { acknowledged: 10, gangs: gang_orders(), ..Order::default() };
    vec![
        ("welcome", ToExecutor::Welcome { now: NOW, peer_secret: Some(Hidden([0xcd; 32])) }),
        ("welcome_alone", ToExecutor::Welcome { now: NOW, peer_secret: None }),
        ("order_data", ToExecutor::Order(data)),
        ("order", ToExecutor::Order(order)),
        ("order_gangs", ToExecutor::Order(gangs)),
        ("unmet", ToExecutor::Unmet { waiting: waiting() }),
        (
            "ask_tail",
            ToExecutor::AskTail {
                number: 3,
                question: TailQuestion {
                    task: TaskKey { instance: INSTANCE, task: TaskId(9) },
                    stream: Stream::Stdout,
                    from: 70_000,
                    patience_ms: 5000,
                },
            },
        ),
        (
            "read_output",
            ToExecutor::ReadOutput {
                number: 3,
                question: KeptQuestion {
                    output: 11,
                    stream: Stream::Stdout,
                    from: 70_000,
                    count: 65_536,
                },
            },
        ),
        ("order_empty", ToExecutor::Order(Order { acknowledged: 9, ..Order::default() })),
        ("refused", ToExecutor::Refused { reason: "its name is too long".to_owned() }),
    ]
}

fn tail() -> Tail {
    let bytes = b"step 9\n".to_vec();
    Tail { state: TailState::Running, is_cut: false, total_bytes: 70_007, bytes }
}

fn templates() -> Vec<(&'static str, Template)> {
    vec![("command", template()), ("each", Template::Each), ("calls", calls())]
}

fn calls() -> Template {
    let function = Function {
        language: "python".to_owned(),
        name: b"sky.py:stack".to_vec(),
        code: Arc::new(b"ssky.py\0def stack(tile): pass".to_vec()),
    };
    let call = Call { function: Arc::new(function), payload: Vec::new() };
    Template::Calls(Command { call: Some(call), ..Command::default() })
}

/// How many variants `T` has: tags count up from 0, and the first that is
/// unknown ends them.
pub(crate) fn variants<T: Wire>() -> u8 {
    let unknown =
        |tag: &u8| matches!(T::from_bytes(&[0x91, *tag]), Err(DecodeError::UnknownTag { .. }));
    (0..0x80).find(unknown).unwrap_or(0x80)
}

/// All values of an enum whose variants have no fields, in the order of their
/// tags.
pub(crate) fn every<T: Wire>() -> Vec<T> {
    (0..variants::<T>()).map(|tag| T::from_bytes(&[0x91, tag]).expect("a tag alone")).collect()
}

fn every_variant_is_there<T: Wire>(of: &str) {
    let prefix = format!("{of}.");
    let mut tags: Vec<u8> = all()
        .iter()
        .filter(|(name, _)| name.starts_with(&prefix))
        // An enum is an array (one byte of head) whose first value is the tag.
        .map(|(_, bytes)| bytes[1])
        .collect();
    tags.sort_unstable();
    tags.dedup();
    let expected: Vec<u8> = (0..variants::<T>()).collect();
    assert_eq!(tags, expected, "{of}: an example of every variant, by tag");
}

#[test]
fn there_is_an_example_of_every_message_and_record() {
    every_variant_is_there::<FromClient>("from_client");
    every_variant_is_there::<ToClient>("to_client");
    every_variant_is_there::<FromExecutor>("from_executor");
    every_variant_is_there::<ToExecutor>("to_executor");
    every_variant_is_there::<Record>("record");
    every_variant_is_there::<Template>("template");
}

#[test]
fn names_of_examples_differ() {
    let mut names: Vec<String> = all().into_iter().map(|(name, _)| name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// Whatever a submission is refused for, the peer reads the same.
#[test]
fn every_reason_to_refuse_a_submission_comes_back() {
    type Spoil = fn(&mut Submission);
    let spoils: &[Spoil] = &[
        |s| s.count = 0,
        |s| s.count = 3,
        |s| s.rows = Rows::Packed(Packed::default()),
        |s| s.rows = Rows::Packed(Packed { ends: Arc::new(vec![3, 1]), ..packed(&[b"abc"]) }),
        |s| {
            s.rows = Rows::Computed {
                factors: vec![Range { start: 0, step: 1, count: u64::MAX }; 2],
                offset: 0,
            }
        },
        |s| s.classes[0].resources.custom = vec![("b".to_owned(), 1), ("a".to_owned(), 1)],
        |s| s.classes[0].speculate = true,
        |s| {
            s.classes[0].kind = Kind::Function;
            s.classes[0].resources.set_disk_bytes(1);
        },
        |s| s.class_runs = vec![(1, 0)],
        |s| s.class_runs = vec![(2, 1)],
        |s| s.class_runs = vec![(u64::MAX, 0), (2, 0)],
        |s| s.names = Some(packed(&[b"one"])),
        |s| s.names = Some(Packed { ends: Arc::new(vec![3, 1]), ..packed(&[b"abc"]) }),
        |s| s.after[0].offset = 2,
        |s| s.after[0].takes = 2,
        |s| {
            s.data = Some(Arc::new(Declared { inputs: Lists::Same(vec![0]), ..Default::default() }))
        },
    ];
    assert_eq!(data_submission().check(), Ok(()));
    for (at, spoil) in spoils.iter().enumerate() {
        let mut submission = data_submission();
        spoil(&mut submission);
        let error = submission.check().expect_err(&format!("spoil {at}"));
        assert_eq!(SubmissionError::from_bytes(&error.to_bytes()), Ok(error));
    }
}

/// Whatever a policy is refused for, the peer reads the same.
#[test]
fn every_reason_to_refuse_a_policy_comes_back() {
    type Spoil = fn(&mut PolicyOptions);
    let spoils: [Spoil; 4] = [
        |p| p.utilization_threshold_milli = 1001,
        |p| p.window = 1,
        |p| p.utilization_threshold_milli = 1,
        |p| p.replication_max = 1,
    ];
    for (at, spoil) in spoils.iter().enumerate() {
        let mut options = PolicyOptions::default();
        spoil(&mut options);
        let error = options.check().expect_err(&format!("spoil {at}"));
        assert_eq!(PolicyError::from_bytes(&error.to_bytes()), Ok(error));
    }
    let unknown = PolicyName::named("best").expect_err("no policy is called that");
    assert_eq!(PolicyError::from_bytes(&unknown.to_bytes()), Ok(unknown));
}
