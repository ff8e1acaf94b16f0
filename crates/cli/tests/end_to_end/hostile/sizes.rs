//! Clients whose messages are as large as they may be and one beyond, and an
//! executor that lies about tasks of others: each gets its answer, the dispatcher
//! stays small, and honest tasks end as they would.

use super::{still_runs, two_run};
use crate::fixture::{Client, Dispatcher, Site};
use falkon_core::data::declared::{Declared, Lists};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::Changes;
use falkon_core::dispatch::{Held, InstanceOptions, Join, Lease, RequestError, Selection, Update};
use falkon_core::limits::{
    CUSTOM_NAMES_MAX, NAME_BYTES_MAX, RANGES_BYTES_MAX, SUBMISSION_BYTES_MAX, TASK_NAME_BYTES_MAX,
    UPDATE_BYTES_MAX, URL_BYTES_MAX, VERSION_BYTES_MAX,
};
use falkon_core::result::{Captured, Detail, Outcome, Report, Tries};
use falkon_core::task::{
    After, InstanceId, Packed, Range, Resources, Rows, Submission, TaskClass, TaskId, Time,
};
use falkon_net::ids::object_id;
use falkon_net::secure::{AccessFile, Role, Session, connect};
use falkon_trials::trial;
use falkon_wire::codec::Wire;
use falkon_wire::command::{CommandTemplate, Piece, Template};
use falkon_wire::message::{FromClient, FromExecutor, PROTOCOL_VERSION, Refusal, ToClient};
use std::sync::Arc;

/// Memory that the dispatcher may have had at its worst, in bytes: some of the
/// largest messages at once, and what is accepted of them.
const DISPATCHER_BYTES_MAX: u64 = 512 << 20;

/// Tasks of a program that nobody has room for.
fn queued(count: u64) -> Submission {
    let literal = |text: &str| vec![Piece::Literal(text.as_bytes().to_vec())];
    let template = CommandTemplate { argv: vec![literal("true")], ..CommandTemplate::default() };
    let custom = vec![("nowhere".to_owned(), 1)];
    let class =
        TaskClass { resources: Resources { custom, ..Resources::cpus(1) }, ..TaskClass::default() };
    Submission {
        count,
        template: Arc::new(Template::Command(template).to_bytes()),
        rows: Rows::Computed { factors: vec![Range { start: 0, step: 1, count }], offset: 0 },
        classes: vec![class],
        class_runs: vec![(count, 0)],
        names: None,
        after: Vec::new(),
        everywhere: None,
        data: None,
    }
}

fn packed(rows: &[&[u8]]) -> Packed {
    let mut packed = Packed::default();
    rows.iter().for_each(|row| assert!(packed.push(row)));
    packed
}

fn named(names: &[&[u8]]) -> Submission {
    Submission { names: Some(packed(names)), ..queued(names.len() as u64) }
}

fn needing(custom: Vec<(String, u64)>) -> Submission {
    let mut submission = queued(1);
    submission.classes[0].resources.custom = custom;
    submission
}

/// Tasks that wait for others.
fn waiting(count: u64, after: Vec<After>) -> Submission {
    Submission { after, ..queued(count) }
}

fn after(offset: u64, tasks: Vec<u64>) -> After {
    After { offset, tasks: tasks.into_iter().map(TaskId).collect(), takes: 0 }
}

fn reading(url: String, version: String, inputs: Vec<u32>) -> Submission {
    let id = object_id(&url, &version);
    let object = Object { id, url: url.into(), version: version.into(), size: Some(u64::MAX) };
    let data = Declared {
        objects: Arc::new(vec![object]),
        inputs: Lists::Same(inputs),
        outputs: Lists::default(),
    };
    Submission { data: Some(Arc::new(data)), ..queued(1) }
}

fn url(bytes: usize) -> String {
    format!("/{}", "u".repeat(bytes - 1))
}

/// A submission with so many ranges of one value: each takes four bytes.
fn product(ranges: usize) -> Submission {
    let range = Range { start: 0, step: 1, count: 1 };
    let rows = Rows::Computed { factors: vec![range; ranges], offset: 0 };
    Submission { rows, ..queued(1) }
}

/// The refusal of a submission that is one too much, or wrong; `None` where it is
/// as large as it may be.
fn cases() -> Vec<(&'static str, Submission, bool)> {
    let name = |length: usize| "n".repeat(length);
    let customs = |count: usize| (0..count).map(|at| (format!("{at:04}"), 1)).collect::<Vec<_>>();
    let long = |bytes: usize| vec![b't'; bytes];
    let template = |bytes: usize| Submission { template: Arc::new(long(bytes)), ..queued(1) };
    let row =
        |bytes: usize| Submission { rows: Rows::Packed(packed(&[&long(bytes)])), ..queued(1) };
    let ends = |ends: Vec<u32>| {
        let packed = Packed { blob: Arc::new(vec![b'x'; 4]), ends: Arc::new(ends) };
        Submission { rows: Rows::Packed(packed), ..queued(2) }
    };
    let bytes_most = SUBMISSION_BYTES_MAX as usize;
    let chain = (1..100_000).map(|at| after(at, vec![at - 1])).collect();
    let star = (1..100_000).map(|at| after(at, vec![0])).collect();
    let twice = vec![after(1, vec![0; 500_000])];
    let mut runs = queued(1_000_000);
    runs.class_runs = vec![(1, 0); 1_000_000];
    let mut classes = queued(20_000);
    classes.classes = (0..20_000)
        .map(|at| {
            let resources = Resources { memory_bytes: at, ..classes.classes[0].resources.clone() };
            TaskClass { resources, priority: i32::MIN + at as i32, ..TaskClass::default() }
        })
        .collect();
    classes.class_runs = (0..20_000).map(|class| (1, class)).collect();
    let mut extremes = queued(1);
    extremes.classes[0] = TaskClass {
        resources: Resources {
            cpus_milli: u32::MAX,
            gpus: u32::MAX,
            memory_bytes: u64::MAX,
            custom: vec![("nowhere".to_owned(), u64::MAX)],
        },
        priority: i32::MAX,
        retries: u32::MAX,
        timeout_micros: u64::MAX,
        estimate_micros: u64::MAX,
        replicas: u32::MAX,
        ..TaskClass::default()
    };
    vec![
        ("the longest name of a task", named(&[&long(TASK_NAME_BYTES_MAX)]), true),
        ("a longer name of a task", named(&[&long(TASK_NAME_BYTES_MAX + 1)]), false),
        ("names that are no text", named(&[b"\xff\xfe", b"\xff\xfe", b""]), true),
        ("a name too few", Submission { count: 3, ..named(&[b"a", b"b"]) }, false),
        ("the longest name of a resource", needing(vec![(name(NAME_BYTES_MAX), 1)]), true),
        ("a longer name of a resource", needing(vec![(name(NAME_BYTES_MAX + 1), 1)]), false),
        ("as many resources as there may be", needing(customs(CUSTOM_NAMES_MAX)), true),
        ("one resource more", needing(customs(CUSTOM_NAMES_MAX + 1)), false),
        ("a resource twice", needing(vec![(name(1), 1), (name(1), 1)]), false),
        ("the longest URL", reading(url(URL_BYTES_MAX), name(9), vec![0]), true),
        ("a longer URL", reading(url(URL_BYTES_MAX + 1), name(9), vec![0]), false),
        ("the longest version", reading(url(9), name(VERSION_BYTES_MAX), vec![0]), true),
        ("a longer version", reading(url(9), name(VERSION_BYTES_MAX + 1), vec![0]), false),
        ("an object that is not there", reading(url(9), name(9), vec![1]), false),
        ("an object a thousand times", reading(url(9), name(9), vec![0; 1_000]), true),
        ("an object too often", reading(url(URL_BYTES_MAX), name(9), vec![0; 100_000]), false),
        ("many ranges", product(RANGES_BYTES_MAX as usize / 8), true),
        ("too many ranges", product(RANGES_BYTES_MAX as usize), false),
        ("no task", queued(0), false),
        ("a trillion tasks", queued(1_000_000_000_000), true),
        ("more tasks than there are numbers", queued(u64::MAX), false),
        ("a template that is none", template(1_000_000), true),
        ("a template of a whole message", template(bytes_most - 2_000), true),
        ("a row of a whole message", row(bytes_most - 2_000), true),
        ("rows that end before they begin", ends(vec![3, 1]), false),
        ("rows that end behind the last byte", ends(vec![3, 9]), false),
        ("a task that waits for itself", waiting(1, vec![after(0, vec![0])]), false),
        ("a task that waits for a later one", waiting(2, vec![after(0, vec![1])]), true),
        (
            "a task that waits for one that is not there",
            waiting(1, vec![after(0, vec![u64::MAX])]),
            true,
        ),
        ("a task beyond the last one that waits", waiting(1, vec![after(9, vec![])]), false),
        ("a task that waits for one half a million times", waiting(2, twice), true),
        ("a chain of a hundred thousand", waiting(100_000, chain), true),
        ("a hundred thousand that wait for one", waiting(100_000, star), true),
        ("a run for each of a million tasks", runs, true),
        ("twenty thousand classes", classes, true),
        ("the largest numbers", extremes, true),
    ]
}

fn create(client: &mut Client) -> InstanceId {
    let options = InstanceOptions::default();
    match client.ask(&FromClient::Create { request: 1, options }) {
        ToClient::Created { instance, .. } => instance,
        other => panic!("{other:?}"),
    }
}

/// Whether it is taken in; if not, the answer says what is wrong.
fn is_accepted(client: &mut Client, instance: InstanceId, submission: Submission) -> bool {
    let (request, first) = (2, TaskId(0));
    match client.ask(&FromClient::Submit { request, instance, first, client: 1, submission }) {
        ToClient::Accepted { request: 2, .. } => true,
        ToClient::Refused { request: 2, reason } => {
            assert!(matches!(reason, Refusal::Request(_) | Refusal::Unreadable(_)), "{reason:?}");
            if let Refusal::Request(error) = &reason {
                assert!(!matches!(error, RequestError::NoInstance(_)), "{error}");
            }
            false
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn serves_honest_clients(dispatcher: &Dispatcher<'_>) {
    let ran = dispatcher.access().run("submit", &["--wait", "--", "echo", "still there"]);
    assert_eq!(ran.exits(0).text(), "still there\n");
}

#[trial]
fn submissions_as_large_as_they_may_be_are_taken_in_and_larger_ones_refused() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let _executor = dispatcher.executor("one", &["--slots", "2"]);
    let mut client = Client::connect(&dispatcher.access_of("access-client.json"));
    let mut wrong = Vec::new();
    for (what, submission, accepted) in cases() {
        let instance = create(&mut client);
        if is_accepted(&mut client, instance, submission) != accepted {
            wrong.push(what);
        }
        // The instance is shown, and goes.
        let (request, selection) = (3, Selection::All);
        let status = FromClient::Status { request, instance: Some(instance), from: None };
        assert!(matches!(client.ask(&status), ToClient::Status { .. }), "{what}");
        let cancel = FromClient::Cancel { request, instance, selection };
        assert!(matches!(client.ask(&cancel), ToClient::Done { .. }), "{what}");
        let destroy = FromClient::Destroy { request, instance };
        assert!(matches!(client.ask(&destroy), ToClient::Done { .. }), "{what}");
    }
    assert!(wrong.is_empty(), "answered otherwise: {wrong:#?}");
    serves_honest_clients(&dispatcher);

    // A name that is no text cannot be read, and says so under its number.
    let options = InstanceOptions { name: "nnnn".to_owned(), ..InstanceOptions::default() };
    let mut bytes = FromClient::Create { request: 9, options }.to_bytes();
    let at = bytes.windows(4).position(|part| part == b"nnnn").unwrap();
    bytes[at..at + 4].fill(0xff);
    client.say_bytes(&bytes).unwrap();
    let answer = client.hear();
    let unreadable = |answer: &ToClient| {
        matches!(answer, ToClient::Refused { request: 9, reason: Refusal::Unreadable(_) })
    };
    assert!(unreadable(&answer), "{answer:?}");
    serves_honest_clients(&dispatcher);
    still_runs(dispatcher.running.as_mut().unwrap(), DISPATCHER_BYTES_MAX);
    // The journal has all of it, and is read.
    dispatcher.kill();
    dispatcher.start();
    serves_honest_clients(&dispatcher);
}

/// A report of an executor that ran nothing: tasks ended well, with much output.
fn lie(instance: InstanceId, first: u64, count: u64, bytes: usize) -> Report {
    let head = b"forged".repeat(bytes / 6 + 1);
    let stdout = Captured { total_bytes: u64::MAX, head, ..Captured::default() };
    let detail = Detail { stdout, value: vec![7; bytes], ..Detail::default() };
    Report {
        instance,
        first: TaskId(first),
        count,
        tries: Tries::default(),
        outcome: Outcome::Exit(0),
        started: Time(0),
        ended: Time(u64::MAX),
        detail: Some(Arc::new(detail)),
    }
}

#[trial]
fn an_executor_that_lies_about_tasks_of_others_changes_nothing() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let _executor = dispatcher.executor("one", &["--slots", "2"]);
    let access = dispatcher.access();
    let go = site.path("go");
    let id = two_run(&access, &go, "1-8");
    let instance = InstanceId(id.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let file = AccessFile::load(&dispatcher.access_of("access-executor.json").file).unwrap();
    let connected = runtime.block_on(connect(&file, Role::Executor, PROTOCOL_VERSION));
    let Session { mut writer, mut reader, .. } = connected.unwrap();
    let held =
        |first, count| Held { instance, first: TaskId(first), count, tries: Tries::default() };
    // The executor offers nothing, and claims to have what others run or nobody has. (Of a
    // task that nobody runs it would be believed: so executors keep theirs over
    // restarts of the dispatcher. Whoever may be an executor is sent such tasks.)
    let join = Join {
        gangs: Vec::new(),
        alternatives: Vec::new(),
        serves: None,
        cache: Default::default(),
        lease: Lease::default(),
        incarnation: 7,
        name: "n".repeat(NAME_BYTES_MAX),
        capacity: Resources::default(),
        held: vec![held(0, 2), held(u64::MAX, 1), held(1 << 40, 1 << 40)],
        reports: vec![lie(instance, 0, 2, 10), lie(InstanceId(u64::MAX), 0, 1, 10)],
    };
    let far = u64::MAX - 1;
    let added = (0..10_000).map(|id| (ObjectId(id), u64::MAX)).collect();
    let cache = Changes { anew: true, added, ..Changes::default() };
    let ranges = [(0, 1), (0, 8), (2, 6), (0, far), (far, 1), (1 << 40, 1 << 40)];
    let lies = [
        Update {
            reports: ranges.map(|(first, count)| lie(instance, first, count, 1_000)).to_vec(),
            ..Update::default()
        },
        Update {
            reports: vec![lie(instance, 0, 8, UPDATE_BYTES_MAX as usize)],
            ..Update::default()
        },
        Update {
            returned: ranges.map(|(first, count)| held(first, count)).to_vec(),
            recalled: true,
            ..Update::default()
        },
        Update { kept: vec![(0, far), (far, far), (5, 0)], ..Update::default() },
        Update { cache: Some(Box::new(cache)), ..Update::default() },
    ];
    runtime.block_on(async {
        writer.queue(&FromExecutor::Join(join).to_bytes()).unwrap();
        for round in 0..20 {
            for (at, lie) in (0..).zip(&lies) {
                let number = round * 10 + at + 1;
                let update = Update { number, ..lie.clone() };
                writer.queue(&FromExecutor::Update(update).to_bytes()).unwrap();
                writer.flush().await.unwrap();
            }
        }
        // The last of it is known to have been taken in by an answer to it.
        let last =
            Update { number: 1_000, reports: vec![lie(instance, 0, 8, 10)], ..Update::default() };
        writer.queue(&FromExecutor::Update(last).to_bytes()).unwrap();
        writer.flush().await.unwrap();
        assert!(reader.read_batch().await.unwrap().is_some(), "it is answered");
    });
    site.write("go", "");
    access.run("wait", &[&id]).exits(0);
    let results = access.results(&id);
    assert_eq!(results.len(), 8);
    for result in &results {
        assert_eq!((&result["stdout"], &result["attempts"]), (&"honest\n".into(), &1.into()));
    }
    serves_honest_clients(&dispatcher);
    still_runs(&mut dispatcher.running.unwrap(), DISPATCHER_BYTES_MAX);
    drop((reader, writer));
}
