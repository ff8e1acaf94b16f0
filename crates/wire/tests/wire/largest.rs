//! The largest legal value of every message and every journal record, by the bounds of
//! `falkon_core::limits`: each fits the frame or the record that it goes into. Submissions, orders
//! and reports of every shape are in [`crate::sizes`].

use crate::examples::variants;
use falkon_core::collect::Unwritten;
use falkon_core::data::declared::{CacheRoom, Pace, Serving};
use falkon_core::data::limits::{BROADCASTS_MAX, CHANGES_OBJECTS_MAX, MOVED_EXECUTORS_MAX};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::{CacheState, Changes, Count, Usage};
use falkon_core::data::way::{Chosen, Way, Why};
use falkon_core::dispatch::{
    Access, AccessError, Assigned, Attempts, BatchId, Delivery, Earlier, FoundObject, Held,
    HeldAlternative, HolderStatus, Holdings, Idle, IdleReason, InstanceOptions, Join, Keep, Lease,
    LetGo, NodeClass, ObjectStatus, Order, PagePlace, PagedOutput, Prepare, Purpose, Record,
    Remembered, Selection, Site, Standing, StoredPage, Subtree, Survey, Update,
};
use falkon_core::encoded::Encoded;
use falkon_core::gang::{GangKey, GangOrder, GangReport, GangToken, Member};
use falkon_core::limits::*;
use falkon_core::part::{OBJECT_PART_BYTES_MAX, PartAnswer, PartQuestion};
use falkon_core::provision::Waiting;
use falkon_core::provision::limits::DEMAND_NEEDS_MAX;
use falkon_core::result::{
    Captured, Cause, Counts, Detail, Finished, Outcome, Overflow, Report, ResourceUsage, Stream,
    Tries,
};
use falkon_core::tail::{KeptQuestion, TAIL_PART_BYTES_MAX, Tail, TailQuestion, TailState};
use falkon_core::task::{
    AllocationId, ExecutorId, InstanceId, Packed, Range, Resources, Rows, Submission, TaskClass,
    TaskId, TaskKey, Time, UserId,
};
use falkon_wire::codec::Wire;
use falkon_wire::hidden::Hidden;
use falkon_wire::message::{
    BelowAsk, FromClient, FromExecutor, Refusal, RestartAsk, Status, Ticket, ToClient, ToExecutor,
    UserAsk,
};
use std::sync::Arc;

const NUMBER: u64 = u64::MAX;
const INSTANCE: InstanceId = InstanceId(NUMBER);
const EXECUTOR: ExecutorId = ExecutorId(NUMBER);
const TASK: TaskId = TaskId(NUMBER);
const TIME: Time = Time(NUMBER);
const TRIES: Tries = Tries { failures: u32::MAX, losses: u32::MAX };
const GANG: GangKey = GangKey { instance: INSTANCE, task: TASK, tries: TRIES };

/// Each value fits, and there is one of every variant: variants have tags that count up from 0.
fn all_fit<T: Wire>(what: &str, bytes_max: u64, values: &[T]) {
    let mut tags = Vec::new();
    for value in values {
        let bytes = value.to_bytes();
        // An enum is an array (one byte of head) whose first value is the tag.
        let (tag, length) = (bytes[1], bytes.len() as u64);
        assert!(length <= bytes_max, "{what} {tag}: {length} bytes, at most {bytes_max}");
        tags.push(tag);
    }
    tags.sort_unstable();
    tags.dedup();
    let expected: Vec<u8> = (0..variants::<T>()).collect();
    assert_eq!(tags, expected, "{what}: the largest value of every variant, by tag");
}

fn name() -> String {
    "n".repeat(NAME_BYTES_MAX)
}

fn serving() -> Serving {
    Serving { address: "a".repeat(ADDRESS_BYTES_MAX), fingerprint: vec![7; FINGERPRINT_BYTES_MAX] }
}

fn url() -> String {
    "u".repeat(URL_BYTES_MAX)
}

fn object() -> Object {
    let (id, size) = (ObjectId(u128::MAX), Some(NUMBER));
    Object { id, url: url().into(), version: "v".repeat(VERSION_BYTES_MAX).into(), size }
}

fn resources() -> Resources {
    let custom = (0..CUSTOM_NAMES_MAX).map(|number| (format!("{number:0>256}"), NUMBER));
    Resources {
        cpus_milli: u32::MAX,
        gpus: u32::MAX,
        memory_bytes: NUMBER,
        custom: custom.collect(),
    }
}

fn options() -> InstanceOptions {
    InstanceOptions {
        name: name(),
        fail_unschedulable_micros: Some(NUMBER),
        lease_micros: Some(NUMBER),
        keep: Keep::Micros(NUMBER),
        ..InstanceOptions::default()
    }
}

/// A submission of exactly as many bytes as there may be.
fn submission() -> Submission {
    let of = |template: usize| Submission {
        count: 1,
        template: Arc::new(vec![7; template]),
        rows: Rows::Computed { factors: vec![Range { start: 0, step: 1, count: 1 }], offset: 0 },
        classes: vec![TaskClass { resources: resources(), ..TaskClass::default() }],
        class_runs: vec![(1, 0)],
        names: None,
        after: Vec::new(),
        everywhere: None,
        data: None,
    };
    // The head of a long template is as long as that of any other.
    let beside = of(1 << 20).encoded_bytes() - (1 << 20);
    let submission = of((SUBMISSION_BYTES_MAX - beside) as usize);
    assert_eq!(submission.encoded_bytes(), SUBMISSION_BYTES_MAX);
    assert_eq!(submission.check_lengths(), Ok(()));
    submission
}

fn runs(count: usize) -> Vec<(u64, u64)> {
    vec![(NUMBER, NUMBER); count]
}

fn held(count: usize) -> Vec<Held> {
    vec![Held { instance: INSTANCE, first: TASK, count: NUMBER, tries: TRIES }; count]
}

fn detail(bytes: usize) -> Arc<Detail> {
    let overflow = Some(Overflow { incarnation: NUMBER, number: NUMBER });
    let stream =
        |bytes| Captured { head: vec![7; bytes], total_bytes: NUMBER, overflow, member: None };
    let count = Count { objects: NUMBER, bytes: NUMBER };
    Arc::new(Detail {
        stdout: stream(bytes),
        stderr: stream(0),
        error: String::new(),
        value: Vec::new(),
        usage: Usage { local: count, peer: count, store: count },
        staging_micros: NUMBER,
        cause: Some(Cause::FileSystemSilent),
        outputs: Vec::new(),
        resources: Some(usage()),
        executor: String::new(),
        alternative: u32::MAX,
        given_cpus_milli: u32::MAX,
        given_memory_bytes: NUMBER,
        gang: None,
    })
}

fn usage() -> ResourceUsage {
    ResourceUsage {
        user_micros: NUMBER,
        system_micros: NUMBER,
        rss_max_bytes: NUMBER,
        read_bytes: NUMBER,
        written_bytes: NUMBER,
        disk_max_bytes: Some(NUMBER),
    }
}

fn report() -> Report {
    Report {
        instance: INSTANCE,
        first: TASK,
        count: NUMBER,
        tries: TRIES,
        outcome: Outcome::UpstreamFailed(TASK),
        started: TIME,
        ended: TIME,
        detail: None,
    }
}

/// As many reports as go into one message, and as many bytes.
fn reports() -> Vec<Report> {
    let mut reports = vec![report(); UPDATE_REPORTS_MAX];
    let beside = UPDATE_REPORTS_MAX as u64 * report().to_bytes().len() as u64;
    let bytes = CAPTURE_BYTES_MAX.min(UPDATE_BYTES_MAX - beside) as usize;
    reports[0].detail = Some(detail(bytes));
    reports
}

fn finished() -> Finished {
    Finished {
        first: TASK,
        count: NUMBER,
        outcome: Outcome::UpstreamFailed(TASK),
        executor: Some(EXECUTOR),
        attempts: u32::MAX,
        queued: TIME,
        dispatched: TIME,
        started: TIME,
        ended: TIME,
        detail: None,
    }
}

/// As many results as go into one message and one record, all of different executors, and as many
/// bytes: the last result that fits may be the longest.
fn results() -> Vec<Finished> {
    let mut results = vec![finished(); DELIVERY_RUNS_MAX];
    results[0].detail = Some(detail(DELIVERY_BYTES_MAX as usize));
    results
}

#[test]
fn the_largest_message_of_every_kind_from_a_client_fits_a_frame() {
    let (request, instance) = (NUMBER, INSTANCE);
    // Selections, prefixes and names of objects come in one frame or not at all; what becomes of a
    // selection is in records of their own.
    let room = (MESSAGE_BYTES_MAX - ENVELOPE_BYTES_MAX) as usize;
    let ask = falkon_wire::provision::ProvisionAsk::Status { queue: Some(name()), log: NUMBER };
    let all = [
        FromClient::Create { request, options: options() },
        FromClient::Submit {
            request,
            instance,
            first: TASK,
            client: NUMBER,
            submission: submission(),
        },
        FromClient::Seal { request, instance },
        FromClient::Forget { request, name: None },
        FromClient::Subscribe { request, instance, from: NUMBER },
        FromClient::Acknowledge { instance, upto: NUMBER },
        FromClient::Cancel { request, instance, selection: Selection::Runs(runs(room / 19)) },
        FromClient::Retry { request, instance, selection: Selection::Runs(runs(room / 19)) },
        FromClient::Pause { request, instance, is_paused: true },
        FromClient::Prioritize { request, instance, priority: i32::MIN },
        FromClient::Drain { request, executor: EXECUTOR, is_drained: true },
        FromClient::Destroy { request, instance },
        FromClient::Status { request, instance: Some(instance), from: Some((NUMBER, NUMBER)) },
        FromClient::Tasks { request, instance, first: TASK, count: NUMBER },
        FromClient::Stop { request },
        FromClient::Subtree { request, relay: NUMBER, since: NUMBER },
        FromClient::Explain { request, instance, task: Some(TASK) },
        FromClient::ExplainIdle { request },
        FromClient::Events { request, from: Some((NUMBER, NUMBER)) },
        FromClient::Withdraw { request, instance: INSTANCE, count: NUMBER },
        FromClient::AwaitStaged { request, instance: INSTANCE },
        FromClient::Unmet { waiting: waiting() },
        FromClient::Objects {
            request,
            instance: Some(instance),
            executor: Some(EXECUTOR),
            prefix: url(),
            after: Some(ObjectId(u128::MAX)),
        },
        FromClient::Find { request, instance: Some(instance), name: url() },
        FromClient::Reach {
            request,
            instance: Some(instance),
            object: object(),
            purpose: Purpose::Drop { force: true },
        },
        FromClient::Provision { request, ask },
        FromClient::ReachOutput { request, instance, task: TASK, stream: Stream::Stderr },
        FromClient::ReachTail { request, instance, task: TASK, stream: Stream::Stderr },
        FromClient::AskTail {
            request,
            instance,
            task: TASK,
            stream: Stream::Stderr,
            from: u64::MAX,
            patience_ms: u32::MAX,
        },
        FromClient::ReadOutput {
            request,
            instance,
            task: TASK,
            stream: Stream::Stderr,
            from: u64::MAX,
            count: u64::MAX,
        },
        FromClient::ReleaseOutput { request, instance, runs: runs(ORDER_DISCARDED_RUNS_MAX) },
        FromClient::ReadPart { request, question: part_question() },
        FromClient::AwaitParts { request },
        FromClient::TellPart { number: NUMBER, answer: part() },
        FromClient::LetGo { request, objects: let_go() },
        FromClient::Below {
            request,
            instance: Some(instance),
            ask: BelowAsk::Read(part_question()),
        },
        FromClient::User { request, ask: UserAsk::Access { name: name() } },
        FromClient::Restart { request, ask: RestartAsk::Replace { program: Some(url()) } },
    ];
    all_fit("from a client", MESSAGE_BYTES_MAX, &all);
}

fn part_question() -> PartQuestion {
    PartQuestion { object: ObjectId(u128::MAX), from: u64::MAX, count: u64::MAX }
}

fn part() -> PartAnswer {
    PartAnswer::Here { whole: u64::MAX, bytes: vec![7; OBJECT_PART_BYTES_MAX] }
}

/// What an order names.
fn let_go() -> LetGo {
    let named = ObjectId(u128::MAX).to_bytes().len();
    LetGo { release: vec![ObjectId(u128::MAX); ORDER_BYTES_MAX as usize / named], drop: Vec::new() }
}

fn tail() -> Tail {
    let bytes = vec![7; TAIL_PART_BYTES_MAX];
    Tail { state: TailState::Gone, is_cut: true, total_bytes: u64::MAX, bytes }
}

#[test]
fn the_largest_message_of_every_kind_to_a_client_fits_a_frame() {
    let (request, instance) = (NUMBER, INSTANCE);
    let executors: Vec<(ExecutorId, String)> =
        (0..DELIVERY_RUNS_MAX as u64).map(|back| (ExecutorId(NUMBER - back), name())).collect();
    let counts = Counts { total: NUMBER, done: NUMBER, ..Counts::default() };
    let delivery = Delivery {
        instance,
        from: NUMBER,
        results: results(),
        executors,
        counts,
        complete: true,
        upto: NUMBER,
        again: runs(DELIVERY_RUNS_MAX),
    };
    let object = |url: &str| ObjectStatus {
        id: ObjectId(u128::MAX),
        url: url.into(),
        version: "v".repeat(VERSION_BYTES_MAX).into(),
        size: Some(NUMBER),
        holders: NUMBER,
        coming: NUMBER,
        waiting: NUMBER,
    };
    let short = "u".repeat(LISTED_BYTES_MAX as usize / LISTED_OBJECTS_MAX);
    let mut objects = vec![object(&short); LISTED_OBJECTS_MAX - 1];
    objects.push(object(&url()));
    let holder = HolderStatus {
        executor: EXECUTOR,
        name: name(),
        holds: true,
        connected: true,
        lends: u64::MAX,
    };
    let mut found = vec![
        FoundObject {
            object: object(&url()),
            readers: NUMBER,
            chosen: Chosen { way: Way::Written, why: Why::Target },
            cache_bytes: Some(NUMBER),
            holders: Vec::new(),
        };
        FOUND_OBJECTS_MAX
    ];
    found[0].holders = vec![holder; FOUND_EXECUTORS_MAX];
    let access = Access { executor: EXECUTOR, name: name(), serves: serving() };
    let ticket = Ticket { number: NUMBER, secret: Hidden([7; 32]), expires: TIME };
    let wrong = Refusal::WrongId { id: ObjectId(u128::MAX), url: url().into() };
    let all = [
        ToClient::Created {
            request,
            instance,
            secret: Hidden(vec![7; ENVELOPE_BYTES_MAX as usize]),
        },
        ToClient::Accepted { request, first: TASK, count: NUMBER },
        ToClient::Done { request },
        ToClient::Refused { request, reason: wrong },
        ToClient::Results(delivery),
        // The node measures these when they are encoded, and refuses what is longer.
        ToClient::Explained { request, explained: Vec::new() },
        ToClient::Events {
            request,
            blocks: vec![0; EVENTS_ANSWER_BYTES + EVENT_BLOCK_BYTES_MAX],
            next: (NUMBER, NUMBER),
            is_end: false,
        },
        ToClient::Status { request, status: Status::default() },
        ToClient::Users { request, users: Vec::new() },
        ToClient::Program { request, version: name(), next: Some(name()) },
        ToClient::User { request, user: UserId(NUMBER), secret: Hidden(vec![7; 32]) },
        ToClient::Tasks { request, tasks: Vec::new() },
        ToClient::Provision { request, status: Default::default() },
        ToClient::Gone { instance },
        ToClient::Forgotten { request, names: NUMBER },
        ToClient::Objects { request, objects, next: Some(ObjectId(u128::MAX)) },
        ToClient::Found {
            request,
            found,
            earlier: Some(Earlier { readers: NUMBER, executors: NUMBER, size: NUMBER }),
        },
        ToClient::Tail { request, tail: tail() },
        ToClient::Part { request, answer: part() },
        ToClient::Parts {
            request,
            questions: vec![(NUMBER, part_question()); PEER_PART_REQUESTS_MAX],
        },
        ToClient::OutputReached {
            request,
            ticket: ticket.clone(),
            access: access.clone(),
            number: NUMBER,
        },
        ToClient::Reached { request, ticket, access: vec![access; FOUND_EXECUTORS_MAX] },
        ToClient::Subtree {
            request,
            subtree: subtree(),
            holdings: holdings(),
            survey: Box::new(survey()),
        },
        ToClient::Withdrawn { request, runs: runs(RECORD_RUNS_MAX) },
        ToClient::Staged {
            request,
            staged: runs(UPDATE_RUNS_MAX / 2),
            unstaged: runs(UPDATE_RUNS_MAX / 2),
        },
        ToClient::Retried { request, count: NUMBER, forgotten: NUMBER },
        ToClient::Idle {
            request,
            idle: vec![
                Idle {
                    reason: IdleReason::NoTasks,
                    tasks: NUMBER,
                    executors: NUMBER,
                    cpus_milli: NUMBER,
                    some: vec![name(); EXPLAINED_NAMES_MAX],
                };
                13
            ],
        },
    ];
    all_fit("to a client", MESSAGE_BYTES_MAX, &all);
}

fn waiting() -> Vec<Waiting> {
    let one = Waiting {
        need: resources(),
        tasks: NUMBER,
        estimate_micros: Some(NUMBER),
        lasts_micros: NUMBER,
        nodes: u32::MAX,
    };
    vec![one; DEMAND_NEEDS_MAX]
}

fn holdings() -> Holdings {
    Holdings {
        anew: true,
        upto: NUMBER,
        added: vec![(ObjectId(u128::MAX), NUMBER); HOLDINGS_OBJECTS_MAX],
        removed: vec![ObjectId(u128::MAX); HOLDINGS_OBJECTS_MAX],
    }
}

fn subtree() -> Subtree {
    let node = NodeClass { capacity: resources(), has_cache: true, count: NUMBER };
    let (relays, nodes) = (vec![NUMBER; SUBTREE_RELAYS_MAX], vec![node; NODE_CLASSES_MAX]);
    let obtainable = vec![resources(); NODE_CLASSES_MAX];
    Subtree { process: NUMBER, relays, nodes, obtainable, is_unknown_obtainable: true }
}

fn survey() -> Survey {
    let standing = Standing {
        name: "n".repeat(NAME_BYTES_MAX),
        depth: NUMBER,
        nodes: NUMBER,
        cpus_milli: NUMBER,
        used_milli: NUMBER,
        running: NUMBER,
        ahead: NUMBER,
        ended: NUMBER,
        away_micros: Some(NUMBER),
    };
    let site = Site {
        relays: "r".repeat(SITE_NAME_BYTES_MAX),
        queue: "q".repeat(NAME_BYTES_MAX),
        node: resources(),
        held: NUMBER,
        nodes_max: NUMBER,
        delay_micros: NUMBER,
        walltime_micros: NUMBER,
        billing_micros: NUMBER,
        unmet: NUMBER,
        requests: vec![NUMBER; SITE_REQUESTS_MAX],
        reason: "w".repeat(SITE_REASON_BYTES_MAX),
    };
    Survey { relays: vec![standing; SUBTREE_RELAYS_MAX], sites: vec![site; SURVEY_QUEUES_MAX] }
}

#[test]
fn the_largest_message_of_every_kind_from_an_executor_fits_a_frame() {
    let alternative = HeldAlternative { held: held(1)[0], alternative: u32::MAX };
    let join = Join {
        incarnation: NUMBER,
        name: name(),
        capacity: resources(),
        held: held(JOIN_RUNS_MAX),
        reports: reports(),
        gangs: vec![GANG; HELD_GANGS_MAX],
        alternatives: vec![alternative; JOIN_ALTERNATIVES_MAX],
        serves: Some(serving()),
        cache: CacheRoom { object_bytes: NUMBER, lent_bytes: NUMBER, mounts: true },
        lease: Lease { allocation: Some(AllocationId(NUMBER)), leaves_in_micros: Some(NUMBER) },
    };
    let count = Count { objects: NUMBER, bytes: NUMBER };
    let usage = Usage { local: count, peer: count, store: count };
    let named = UPDATE_NAMED_BYTES_MAX as usize / object().to_bytes().len();
    let changes = Changes {
        anew: true,
        added: vec![(ObjectId(u128::MAX), NUMBER); CHANGES_OBJECTS_MAX],
        removed: Vec::new(),
        named: vec![object(); named],
        state: Some(CacheState { capacity: NUMBER, used: NUMBER, usage }),
        unobtainable: vec![ObjectId(u128::MAX); UNOBTAINABLE_OBJECTS_MAX],
        silent: vec![(ObjectId(u128::MAX), ExecutorId(NUMBER)); BROADCASTS_MAX],
        moved: vec![(ExecutorId(NUMBER), NUMBER); MOVED_EXECUTORS_MAX],
    };
    let unwritten = Unwritten {
        archive: "a".repeat(URL_BYTES_MAX).into(),
        since: Time(NUMBER),
        error: "e".repeat(UNWRITTEN_ERROR_BYTES_MAX).into(),
    };
    let released = GangReport::Released { key: GANG, usage: Some(self::usage()) };
    let update = Update {
        number: NUMBER,
        reports: reports(),
        returned: held(UPDATE_RUNS_MAX),
        recalled: true,
        leaving: true,
        staged: held(UPDATE_RUNS_MAX / 2),
        unstaged: held(UPDATE_RUNS_MAX / 2),
        kept: runs(UPDATE_KEPT_RUNS_MAX),
        cache: Some(Box::new(changes)),
        subtree: Some(Box::new(subtree())),
        survey: Some(Box::new(survey())),
        unwritten: Some(vec![unwritten; UNWRITTEN_ARCHIVES_MAX]),
        pace: Some(Pace::Behind),
        gangs: vec![released; HELD_GANGS_MAX],
    };
    let unreached = AccessError::Unreached {
        executor: "e".repeat(NAME_BYTES_MAX),
        why: "w".repeat(ERROR_BYTES_MAX as usize),
    };
    let all = [
        FromExecutor::Join(join),
        FromExecutor::Update(update),
        FromExecutor::Tail { number: NUMBER, tail: tail() },
        FromExecutor::NoTail { number: NUMBER, why: unreached },
        FromExecutor::ReadPart { number: NUMBER, question: part_question() },
        FromExecutor::Part { number: NUMBER, answer: part() },
    ];
    all_fit("from an executor", MESSAGE_BYTES_MAX, &all);
}

#[test]
fn the_largest_message_of_every_kind_to_an_executor_fits_a_frame() {
    let template = submission().template;
    let classes = vec![TaskClass { resources: resources(), ..TaskClass::default() }];
    let row = Packed {
        blob: Arc::new(vec![7; (TASK_BYTES_MAX - 64) as usize]),
        ends: Arc::new(vec![(TASK_BYTES_MAX - 64) as u32]),
    };
    let task = Assigned {
        batch: BatchId(NUMBER),
        instance: INSTANCE,
        first: TASK,
        count: NUMBER,
        class: u32::MAX,
        tries: TRIES,
        rows: Rows::Packed(row),
        data: None,
    };
    let discard = runs(ORDER_DISCARDED_RUNS_MAX);
    let prepare = Prepare { batch: BatchId(NUMBER), template, classes, everywhere: None };
    let member = Member { executor: EXECUTOR, name: name(), serves: serving() };
    let form = GangOrder::Form {
        key: GANG,
        index: u32::MAX,
        resources: resources(),
        ranks_per_node: u32::MAX,
        token: GangToken([7; 16]),
        members: Arc::new(vec![member; GANG_NODES_MAX as usize]),
    };
    let all = [
        ToExecutor::Order(Order { gangs: vec![form], ..Order::default() }),
        ToExecutor::Welcome { now: TIME, peer_secret: Some(Hidden([7; 32])) },
        ToExecutor::Order(Order { prepare: vec![prepare], ..Order::default() }),
        ToExecutor::Order(Order { assign: vec![task], ..Order::default() }),
        ToExecutor::Order(Order { discard, ..Order::default() }),
        ToExecutor::Unmet { waiting: waiting() },
        ToExecutor::ReadPart { number: NUMBER, question: part_question() },
        ToExecutor::Part { number: NUMBER, answer: part() },
        ToExecutor::AskTail {
            number: NUMBER,
            question: TailQuestion {
                task: TaskKey { instance: INSTANCE, task: TASK },
                stream: Stream::Stderr,
                from: u64::MAX,
                patience_ms: u32::MAX,
            },
        },
        ToExecutor::ReadOutput {
            number: NUMBER,
            question: KeptQuestion {
                output: NUMBER,
                stream: Stream::Stderr,
                from: u64::MAX,
                count: u64::MAX,
            },
        },
        ToExecutor::Refused { reason: "r".repeat(ERROR_BYTES_MAX as usize) },
    ];
    all_fit("to an executor", MESSAGE_BYTES_MAX, &all);
}

#[test]
fn the_largest_record_of_every_kind_is_no_longer_than_a_record() {
    let (instance, executor, incarnation) = (INSTANCE, EXECUTOR, NUMBER);
    let values = |count: usize, bytes: usize| Record::Values {
        instance,
        tasks: vec![TASK; count],
        values: Packed {
            blob: Arc::new(vec![7; bytes]),
            ends: Arc::new(vec![bytes as u32; count]),
        },
    };
    let overflow = Some(Overflow { incarnation, number: NUMBER });
    let output = PagedOutput { position: NUMBER, task: TASK, stdout: overflow, stderr: overflow };
    let place = PagePlace { file: NUMBER, offset: NUMBER, bytes: u32::MAX.into() };
    let page =
        |runs_of: usize| StoredPage { from: NUMBER, count: NUMBER, tasks: runs(runs_of), place };
    let restored = |finished, failed, cancelled| Record::Restored {
        instance,
        total: NUMBER,
        forgotten: NUMBER,
        finished,
        failed,
        cancelled,
        ended: Counts { done: NUMBER, failed: NUMBER, cancelled: NUMBER, ..Counts::default() },
    };
    let (first, executor_now) = (TASK, Some(EXECUTOR));
    let attempt = Attempts { instance, first, count: NUMBER, tries: TRIES, executor: executor_now };
    let all = [
        Record::Created { instance, created: TIME, options: options() },
        Record::Submitted {
            instance,
            first: TASK,
            queued: TIME,
            client: NUMBER,
            submission: submission(),
        },
        Record::Joining { instance, first: TASK, client: NUMBER, submission: submission() },
        Record::Sealed { instance },
        Record::Paused { instance, is_paused: true },
        Record::Prioritized { instance, priority: i32::MIN },
        Record::Drained { incarnation: NUMBER, is_drained: true },
        Record::Lasted { instance, first: TASK, class: u32::MAX, micros: NUMBER },
        Record::Finished { instance, from: NUMBER, results: results() },
        Record::Acknowledged { instance, upto: NUMBER },
        Record::Cancelled { instance, runs: runs(RECORD_RUNS_MAX) },
        Record::Destroyed { instance },
        Record::Expired { instance, at: TIME },
        Record::Heard { instance, at: TIME },
        Record::Submitters { instance, client: NUMBER, runs: runs(SUBMITTER_RUNS_MAX) },
        Record::ExecutorSeen { executor, incarnation, name: name() },
        Record::ExecutorGone { incarnation },
        Record::Attempts { runs: vec![attempt; RECORD_RUNS_MAX] },
        Record::Recomputed { instance, task: TASK, times: u32::MAX },
        values(RECORD_RUNS_MAX, DELIVERY_BYTES_MAX as usize),
        values(1, VALUE_BYTES_MAX as usize),
        Record::Paged { instance, pages: vec![page(1); RECORD_RUNS_MAX / 2] },
        Record::Paged {
            instance,
            pages: vec![page(PAGE_RUNS_MAX); RECORD_RUNS_MAX / PAGE_RUNS_MAX],
        },
        Record::Outputs { instance, outputs: vec![output; RECORD_RUNS_MAX] },
        Record::OutputReleased { instance, runs: runs(ORDER_DISCARDED_RUNS_MAX) },
        Record::Owned { instance, user: UserId(NUMBER) },
        Record::Remembered(Remembered {
            url: url().into(),
            readers: NUMBER,
            executors: NUMBER,
            read: TIME,
            size: NUMBER,
        }),
        Record::Forgotten { name: Some(url().into()) },
        restored(runs(RECORD_RUNS_MAX), Vec::new(), Vec::new()),
        restored(Vec::new(), runs(RECORD_RUNS_MAX), Vec::new()),
        restored(Vec::new(), Vec::new(), runs(RECORD_RUNS_MAX)),
        Record::Retried { instance, since: NUMBER, runs: runs(RECORD_RUNS_MAX) },
    ];
    all_fit("record", RECORD_BYTES_MAX, &all);
}
