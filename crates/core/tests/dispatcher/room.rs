//! Room on the journal's disk: what is accepted with how much of it, what goes on
//! without, and when the journal is compacted.

use crate::fixture::{self, array, executor};
use falkon_core::dispatch::{
    Action, Compaction, ConnectionId, Disk, Dispatcher, Event, InstanceOptions, JournalSize, Reply,
    RequestError, Selection, Update,
};
use falkon_core::limits::{
    BALLAST_BYTES, COMPACTION_GAIN_BYTES_MIN, SNAPSHOT_AFTER_BYTES_MIN, SNAPSHOT_RESERVE_BYTES,
    SUBMISSION_RESERVE_BYTES,
};
use falkon_core::result::{Outcome, Report};
use falkon_core::task::{InstanceId, Resources, Submission, TaskClass, TaskId, Time};
use std::sync::Arc;

const CLIENT: ConnectionId = ConnectionId(0);
const EXECUTOR: ConnectionId = ConnectionId(1);
const INSTANCE: InstanceId = InstanceId(0);
const PLENTY: u64 = 1 << 40;
const RESERVES: u64 = SNAPSHOT_RESERVE_BYTES + SUBMISSION_RESERVE_BYTES;

fn disk(free_bytes: u64) -> Event {
    let directory = "/journal".into();
    Event::DiskMeasured(Disk { directory, free_bytes, missing_bytes: 0, is_blocked: false })
}

fn submission(first: u64, template_bytes: usize) -> Event {
    let submission = Submission {
        template: Arc::new(vec![first as u8; template_bytes]),
        classes: vec![TaskClass { resources: Resources::cpus(1), ..TaskClass::default() }],
        ..array(1)
    };
    Event::Submit {
        connection: CLIENT,
        request: 0,
        instance: INSTANCE,
        first: TaskId(first),
        client: 1,
        submission,
    }
}

/// What an event brings about, checked after each step.
fn actions(dispatcher: &mut Dispatcher, event: Event) -> Vec<Action> {
    dispatcher.handle(Time(0), event);
    fixture::actions(dispatcher)
}

fn reply(dispatcher: &mut Dispatcher, event: Event) -> Reply {
    let replies = actions(dispatcher, event).into_iter().find_map(|action| match action {
        Action::Reply { reply, .. } => Some(reply),
        _ => None,
    });
    replies.expect("every request is answered")
}

fn is_accepted(dispatcher: &mut Dispatcher, event: Event) -> bool {
    match reply(dispatcher, event) {
        Reply::Created(_) | Reply::Accepted { .. } | Reply::Done => true,
        Reply::Refused(RequestError::NoRoom { .. }) => false,
        other => panic!("{other:?}"),
    }
}

fn create() -> Event {
    Event::Create { connection: CLIENT, request: 0, options: InstanceOptions::default() }
}

fn assigned(actions: &[Action]) -> usize {
    let orders = actions.iter().map(|action| match action {
        Action::Order { order, .. } => order.assign.len(),
        _ => 0,
    });
    orders.sum()
}

#[test]
fn what_adds_is_refused_with_too_little_room_and_what_frees_goes_on() {
    let mut dispatcher = Dispatcher::new();
    assert!(is_accepted(&mut dispatcher, create()), "nothing was measured yet");
    actions(&mut dispatcher, disk(PLENTY));
    assert!(is_accepted(&mut dispatcher, submission(0, 1 << 20)));
    let needed = dispatcher.snapshot_bytes();
    actions(&mut dispatcher, disk(needed + RESERVES - 1));
    assert!(dispatcher.lacks_room());
    let Reply::Refused(refused) = reply(&mut dispatcher, submission(1, 0)) else {
        panic!("it was accepted")
    };
    let text = refused.to_string();
    assert!(text.contains("/journal") && text.contains("bytes free"), "{text}");
    assert!(!is_accepted(&mut dispatcher, create()));
    // What was accepted before is accepted again.
    assert!(is_accepted(&mut dispatcher, submission(0, 1 << 20)));
    let selection = Selection::All;
    let (connection, request, instance) = (CLIENT, 0, INSTANCE);
    assert!(is_accepted(
        &mut dispatcher,
        Event::Cancel { connection, request, instance, selection }
    ));
    assert!(is_accepted(&mut dispatcher, Event::Destroy { connection, request, instance }));
    actions(&mut dispatcher, disk(PLENTY));
    assert!(!dispatcher.lacks_room());
    assert!(is_accepted(&mut dispatcher, create()));
}

#[test]
fn a_disk_that_had_no_room_for_a_large_request_is_measured_again() {
    let mut dispatcher = Dispatcher::new();
    actions(&mut dispatcher, create());
    // Room for small requests, so that nothing else asks for a measurement.
    actions(&mut dispatcher, disk(RESERVES + (1 << 20)));
    assert!(!dispatcher.awaits_room());
    assert!(!is_accepted(&mut dispatcher, submission(0, 1 << 20)));
    assert!(!dispatcher.lacks_room() && dispatcher.awaits_room());
    actions(&mut dispatcher, disk(PLENTY));
    assert!(!dispatcher.awaits_room());
    assert!(is_accepted(&mut dispatcher, submission(0, 1 << 20)));
}

#[test]
fn what_is_accepted_between_two_measurements_counts() {
    let mut dispatcher = Dispatcher::new();
    actions(&mut dispatcher, create());
    actions(&mut dispatcher, disk(RESERVES + (9 << 20)));
    let accepted = (0..10).take_while(|at| is_accepted(&mut dispatcher, submission(*at, 1 << 20)));
    // Each is written to the journal, and to the next snapshot.
    assert_eq!(accepted.count(), 4);
}

#[test]
fn no_task_is_dispatched_without_room_for_a_snapshot_and_reports_are_taken_in() {
    let mut dispatcher = Dispatcher::new();
    let join = executor(1, 1);
    actions(&mut dispatcher, create());
    actions(&mut dispatcher, Event::Join { connection: EXECUTOR, join });
    assert_eq!(assigned(&actions(&mut dispatcher, submission(0, 0))), 1);
    let mut first = None;
    for task in 1..5 {
        first = first.or(Some(task));
        actions(&mut dispatcher, submission(task, 0));
    }
    let needed = dispatcher.snapshot_bytes();
    actions(&mut dispatcher, disk(needed + SNAPSHOT_RESERVE_BYTES - 1));
    let report = |number: u64| {
        let report = Report {
            instance: INSTANCE,
            first: TaskId(number - 1),
            count: 1,
            tries: falkon_core::result::Tries::default(),
            outcome: Outcome::Exit(0),
            started: Time(0),
            ended: Time(0),
            detail: None,
        };
        let update = Update { number, reports: vec![report], ..Update::default() };
        Event::Update { connection: EXECUTOR, update }
    };
    assert_eq!(assigned(&actions(&mut dispatcher, report(1))), 0);
    let counts = dispatcher.instance_view(INSTANCE).map(|view| view.counts());
    assert!(counts.is_some_and(|counts| counts.done == 1), "{counts:?}");
    assert!(assigned(&actions(&mut dispatcher, disk(PLENTY))) > 0);
    // Records that cannot be written hold dispatch up, whatever is free.
    let blocked = Disk {
        directory: "/journal".into(),
        free_bytes: PLENTY,
        missing_bytes: 0,
        is_blocked: true,
    };
    actions(&mut dispatcher, Event::DiskMeasured(blocked));
    assert!(!is_accepted(&mut dispatcher, create()));
}

#[test]
fn the_journal_is_compacted_the_earlier_the_less_room_there_is() {
    let mut dispatcher = Dispatcher::new();
    let size =
        |snapshot_bytes, since_snapshot_bytes| JournalSize { snapshot_bytes, since_snapshot_bytes };
    let grown = size(0, SNAPSHOT_AFTER_BYTES_MIN + 1);
    assert_eq!(dispatcher.compaction(grown), Some(Compaction::Grown));
    assert_eq!(dispatcher.compaction(size(0, SNAPSHOT_AFTER_BYTES_MIN)), None);
    actions(&mut dispatcher, disk(PLENTY));
    assert_eq!(dispatcher.compaction(grown), Some(Compaction::Grown));
    assert_eq!(dispatcher.compaction(size(0, SNAPSHOT_AFTER_BYTES_MIN)), None);
    let gain = COMPACTION_GAIN_BYTES_MIN;
    actions(&mut dispatcher, create());
    actions(&mut dispatcher, submission(0, 12 << 20));
    let needed = dispatcher.snapshot_bytes();
    // Room for less than two snapshots.
    actions(&mut dispatcher, disk(2 * (needed + SNAPSHOT_RESERVE_BYTES)));
    assert_eq!(dispatcher.compaction(size(8 * gain, 2 * gain)), None);
    actions(&mut dispatcher, disk(2 * (needed + SNAPSHOT_RESERVE_BYTES) - 1));
    assert_eq!(dispatcher.compaction(size(8 * gain, 2 * gain)), Some(Compaction::Tight));
    assert_eq!(dispatcher.compaction(size(8 * gain, 2 * gain - 1)), None);
    assert_eq!(dispatcher.compaction(size(0, gain - 1)), None);
    // Nothing more is accepted: also for what has ended since the last one.
    actions(&mut dispatcher, disk(needed));
    assert_eq!(dispatcher.compaction(size(0, gain)), Some(Compaction::Short));
    assert_eq!(dispatcher.compaction(size(needed, gain - 1)), None);
    assert_eq!(dispatcher.compaction(size(needed + gain, 0)), Some(Compaction::Short));
    // A ballast that is to be filled again takes room as well.
    let missing = Disk {
        directory: "/journal".into(),
        free_bytes: needed + RESERVES,
        missing_bytes: BALLAST_BYTES,
        is_blocked: false,
    };
    actions(&mut dispatcher, Event::DiskMeasured(missing));
    assert!(dispatcher.lacks_room());
}
