use super::super::{Change, ReplayError, compare, fewest};
use super::*;
use falkon_core::events;
use falkon_core::result::Outcome;
use falkon_core::task::{Resources, TaskId};

const SECOND: u64 = 1_000_000;
const CACHE: u64 = 1 << 30;
const DONE: Outcome = Outcome::Exit(0);

/// A time of the record, in seconds from its beginning.
fn at(seconds: f64) -> Time {
    Time(1_700_000_000 * SECOND + (seconds * 1e6) as u64)
}

fn event(seconds: f64, what: What) -> Event {
    Event { at: at(seconds), what }
}

fn joined(seconds: f64, executor: u64, slots: u32) -> Event {
    let (executor, name, capacity) = (ExecutorId(executor), "node".into(), Resources::cpus(slots));
    event(
        seconds,
        What::ExecutorJoined { executor, name, capacity, allocation: None, cache_bytes: CACHE },
    )
}

fn submitted(seconds: f64, first: u64, count: u64) -> Event {
    let (instance, first) = (InstanceId(0), TaskId(first));
    event(seconds, What::Submitted { instance, first, count, command: "@sleep {}".into() })
}

/// Tasks that were accepted, started and ended at these seconds.
fn ended(first: u64, count: u64, times: (f64, f64, f64), outcome: Outcome) -> Event {
    let run = events::Run { instance: InstanceId(0), first: TaskId(first), count };
    let ended = Ended {
        run,
        outcome,
        executor: Some(ExecutorId(1)),
        attempts: 1,
        queued: at(times.0),
        dispatched: at(times.0),
        started: at(times.1),
        ended: at(times.2),
        staging_micros: 0,
        usage: falkon_core::data::stage::Usage::default(),
        resources: None,
        error: None,
    };
    event(times.2, What::Ended(ended))
}

/// Four tasks of 10 s on two slots, of which the last fails, and one more 30 s after them.
fn record() -> Vec<Event> {
    vec![
        joined(0.0, 1, 2),
        submitted(5.0, 0, 4),
        ended(0, 2, (5.0, 5.0, 15.0), DONE),
        ended(2, 1, (5.0, 15.0, 25.0), DONE),
        ended(3, 1, (5.0, 15.0, 25.0), Outcome::Exit(3)),
        submitted(35.0, 4, 1),
        ended(4, 1, (35.0, 35.0, 36.0), DONE),
    ]
}

/// The first four tasks alone.
fn four() -> Vec<Event> {
    record()[..5].to_vec()
}

fn machine(executors: Option<u64>, slots: Option<u32>) -> Change {
    Change { executors, slots, ..Change::default() }
}

fn run_of(events: &[Event]) -> Result<Run, RecordError> {
    let mut record = Record::default();
    events.iter().for_each(|event| record.add(event, false));
    record.run()
}

#[track_caller]
fn near(found: f64, expected: f64) {
    let off = (found - expected).abs();
    assert!(off <= 0.01 * expected.max(0.1), "{found}, not {expected}");
}

#[test]
fn the_largest_numbers_that_events_may_have_do_no_harm() {
    let mut record = Record::new(None);
    record.add(&joined(0.0, 1, 2), false);
    for first in [0, u64::MAX] {
        record.add(&submitted(5.0, first, u64::MAX), false);
        let mut ended = ended(first, u64::MAX, (5.0, 5.0, 15.0), DONE);
        if let What::Ended(ended) = &mut ended.what {
            ended.staging_micros = u64::MAX;
            ended.usage.store.bytes = u64::MAX;
            ended.ended = Time(u64::MAX);
        }
        record.add(&ended, false);
    }
    let run = record.run().unwrap();
    assert_eq!((run.tasks.tasks(), run.done, run.unknown.bytes.2), (u64::MAX, u64::MAX, u64::MAX));
}

#[test]
fn a_replay_without_a_change_takes_as_long_as_the_run_did() {
    let run = run_of(&record()).unwrap();
    assert_eq!((run.done, run.failed, run.kind), (4, 1, TaskKind::Sleep));
    let compared = compare(&run, &Change::default(), None).unwrap();
    assert!(compared.changed.is_none());
    for one in [&compared.recorded, &compared.replayed] {
        assert_eq!((one.executors, one.slots, one.done, one.failed), (1, 2, 4, 1));
        near(one.makespan_s, 31.0);
        near(one.efficiency, 1.0);
        near(one.slot_s, 62.0);
        near(one.utilization, 41.0 / 62.0);
    }
    let text = compared.text();
    assert!(!text.contains("trust no replay"), "{text}");
}

#[test]
fn another_machine_takes_another_time() {
    let run = run_of(&four()).unwrap();
    let compared = compare(&run, &machine(Some(2), None), None).unwrap();
    near(compared.replayed.makespan_s, 20.0);
    let changed = compared.changed.unwrap();
    assert_eq!((changed.executors, changed.slots), (2, 4));
    near(changed.makespan_s, 10.0);
    let changed = compare(&run, &machine(None, Some(1)), None).unwrap().changed.unwrap();
    assert_eq!((changed.executors, changed.slots), (1, 1));
    near(changed.makespan_s, 40.0);
    near(changed.slot_s, 40.0);
}

#[test]
fn the_fewest_executors_that_make_a_deadline_are_found() {
    let tasks =
        [joined(0.0, 1, 2), submitted(5.0, 0, 1000), ended(0, 1000, (5.0, 5.0, 15.0), DONE)];
    let run = run_of(&tasks).unwrap();
    // 1,000 tasks of 10 s, in rounds on so many slots; a second is more than the rest takes.
    for (deadline_s, slots, expected) in [(11.0, 1, 1000), (11.0, 4, 250), (51.0, 1, 200)] {
        assert_eq!(
            fewest(&run, &machine(None, Some(slots)), deadline_s).unwrap(),
            expected,
            "{deadline_s} s"
        );
    }
    assert_eq!(fewest(&run, &Change::default(), 1e6).unwrap(), 1);
    let refused = fewest(&run, &Change::default(), 9.0).unwrap_err().to_string();
    assert!(refused.contains("with 500, which are a slot for each task"), "{refused}");
}

#[test]
fn executors_come_and_go_as_they_did() {
    let mut events = four();
    events.insert(2, joined(10.0, 2, 2));
    let gone = What::ExecutorGone { executor: ExecutorId(2), why: "it left".into() };
    events.insert(4, event(16.0, gone));
    let run = run_of(&events).unwrap();
    let found: Vec<_> =
        run.executors.iter().map(|one| (one.count, one.from.seconds(), one.until)).collect();
    assert_eq!(found, [(1, 0.0, None), (1, 6.0, Some(Nanos(12_000_000_000)))]);
    // The second one cannot end a task of 10 s in the 6 s that it is there.
    let compared = compare(&run, &Change::default(), None).unwrap();
    assert_eq!((compared.replayed.done, compared.replayed.failed), (3, 1));
    // Its tasks are sent again when it has not come back for a while.
    assert!((20.0..26.0).contains(&compared.replayed.makespan_s), "{compared:?}");
    near(compared.recorded.slot_s, 52.0);
    // What others would have is not known.
    events.push(joined(17.0, 3, 8));
    let run = run_of(&events).unwrap();
    let refused = compare(&run, &machine(Some(3), None), None).unwrap_err().to_string();
    assert!(refused.contains("from 2 to 8 slots"), "{refused}");
    assert!(compare(&run, &machine(Some(3), Some(4)), None).is_ok());
}

#[test]
fn a_replay_that_differs_from_its_record_says_so() {
    // The second half waited for the first, and nothing says so.
    let events = [
        joined(0.0, 1, 4),
        submitted(5.0, 0, 4),
        ended(0, 2, (5.0, 5.0, 15.0), DONE),
        ended(2, 2, (5.0, 15.0, 25.0), DONE),
    ];
    let text = compare(&run_of(&events).unwrap(), &Change::default(), None).unwrap().text();
    assert!(text.contains("the replay takes 50 % less than the run did"), "{text}");
}

#[test]
fn tasks_that_never_ran_are_left_out_and_counted() {
    let mut events = record();
    let Event { what: What::Ended(never), .. } = &mut events[4] else { unreachable!() };
    (never.executor, never.attempts, never.outcome) = (None, 0, Outcome::Cancelled);
    let run = run_of(&events).unwrap();
    assert_eq!((run.done, run.failed, run.unknown.unstarted), (4, 0, 1));
    let text = compare(&run, &Change::default(), None).unwrap().text();
    assert!(text.contains("1 tasks never ran"), "{text}");
}

#[test]
fn what_is_no_whole_run_is_refused() {
    #[track_caller]
    fn check(events: &[Event], expected: RecordError) {
        assert_eq!(run_of(events).unwrap_err(), expected);
    }
    check(&[joined(0.0, 1, 2)], RecordError::Empty { of: String::new() });
    let all = record();
    check(&all[..4], RecordError::Unended { ended: 3, submitted: 4 });
    check(&all[2..], RecordError::Headless { ended: 5, submitted: 1 });
    let twice = [&all[..], &[submitted(40.0, 0, 1)], &all[2..3]].concat();
    check(&twice, RecordError::Again { task: 0 });
    let missing = [&all[..], &[event(40.0, What::Missing { events: 3 })]].concat();
    check(&missing, RecordError::Missing { missing: 3 });
    check(&all[1..], RecordError::NoExecutors);
    let mut other = submitted(40.0, 0, 1);
    let What::Submitted { instance, .. } = &mut other.what else { unreachable!() };
    *instance = InstanceId(7);
    let two = [&all[..], &[other]].concat();
    check(&two, RecordError::Several { found: 2, names: "0, 7".to_owned() });
    // The one that is named is whole.
    let mut record = Record::new(Some("0".to_owned()));
    two.iter().for_each(|event| record.add(event, false));
    assert!(record.run().is_ok());
}

fn row(first: u64, count: u64) -> events::Run {
    events::Run { instance: InstanceId(0), first: TaskId(first), count }
}

/// Task `first` and further ones wait for tasks from `before` on.
fn waits(first: u64, count: u64, (before, many, moves): (u64, u64, bool)) -> Event {
    let before = [events::Before { first: TaskId(before), count: many, moves }];
    event(5.0, What::Waits(events::Waits { run: row(first, count), before: before.into() }))
}

#[test]
fn tasks_of_a_graph_wait_for_each_other() {
    // Two that come first, two after one of them each, one after those, and one that never
    // ran; four slots.
    let mut never = ended(5, 1, (5.0, 5.0, 5.0), Outcome::UpstreamFailed(TaskId(4)));
    let What::Ended(of) = &mut never.what else { unreachable!() };
    (of.executor, of.attempts) = (None, 0);
    let events = [
        joined(0.0, 1, 4),
        submitted(5.0, 0, 6),
        waits(2, 2, (0, 1, true)),
        waits(4, 1, (2, 2, false)),
        waits(5, 1, (4, 1, false)),
        ended(0, 2, (5.0, 5.0, 15.0), DONE),
        ended(2, 1, (5.0, 15.0, 20.0), DONE),
        ended(3, 1, (5.0, 15.0, 25.0), DONE),
        ended(4, 1, (5.0, 25.0, 35.0), Outcome::Exit(1)),
        never,
    ];
    let run = run_of(&events).unwrap();
    let after = &run.tasks.needs().after;
    let lists: Vec<&[u64]> = (0..5).map(|place| after.of(place)).collect();
    assert_eq!(lists, [&[][..], &[], &[0], &[1], &[2, 3]]);
    let compared = compare(&run, &Change::default(), None).unwrap();
    near(compared.replayed.makespan_s, 30.0);
    near(compared.recorded.efficiency, 1.0);
    // Nothing else makes the longest way shorter.
    let others = compare(&run, &machine(Some(9), None), None).unwrap().changed.unwrap();
    near(others.makespan_s, 30.0);
    let refused = Change { cache_bytes: Some(1), ..Change::default() }.check(&run).unwrap_err();
    assert!(matches!(refused, ReplayError::NoObjects("--cache")), "{refused}");
}

#[test]
fn tasks_find_their_objects_in_caches_and_stores() {
    let object = |id: u128, url: &str, size| {
        let id = falkon_core::data::object::ObjectId(id);
        Arc::new(events::NamedObject { id, url: url.into(), size })
    };
    let (input, kept) = (object(1, "/in", Some(50_000_000)), object(2, "cache:x", None));
    let uses = |first, inputs: &[_], outputs: &[_]| {
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        event(5.0, What::Uses(events::Uses { run: row(first, 1), inputs, outputs }))
    };
    // A task reads 50 MB of a store for 2 s, and another what it leaves: 1 MB.
    let mut first = ended(0, 1, (5.0, 7.0, 8.0), DONE);
    let mut second = ended(1, 1, (5.0, 8.0, 10.0), DONE);
    let (What::Ended(one), What::Ended(other)) = (&mut first.what, &mut second.what) else {
        unreachable!()
    };
    one.staging_micros = 2 * SECOND;
    one.usage.store = falkon_core::data::stage::Count { objects: 1, bytes: 50_000_000 };
    other.usage.local = falkon_core::data::stage::Count { objects: 1, bytes: 1_000_000 };
    let name = "".into();
    let created =
        What::InstanceCreated { instance: InstanceId(0), name, policy: PolicyName::MaxComputeUtil };
    let events = [
        event(0.0, created),
        joined(0.0, 1, 1),
        submitted(5.0, 0, 2),
        waits(1, 1, (0, 1, false)),
        uses(0, &[input], std::slice::from_ref(&kept)),
        uses(1, &[kept], &[]),
        first,
        second,
    ];
    let run = run_of(&events).unwrap();
    let sizes: Vec<_> =
        run.tasks.needs().objects.iter().map(|one| (one.bytes, one.is_stored)).collect();
    assert_eq!(sizes, [(50_000_000, true), (1_000_000, false)]);
    assert_eq!(run.rates.store_bytes_per_s, Some(25e6));
    assert_eq!((run.kind, run.policy), (TaskKind::Compute, PolicyName::MaxComputeUtil));
    let compared = compare(&run, &Change::default(), None).unwrap();
    near(compared.replayed.makespan_s, 5.0);
    assert_eq!(compared.replayed.bytes, compared.recorded.bytes);
    let with = |policy| Change { policy: Some(policy), ..Change::default() };
    let refused = with(PolicyName::FirstAvailable).check(&run).unwrap_err();
    assert!(matches!(refused, ReplayError::NoPlaces), "{refused}");
    let queue_aware = with(PolicyName::QueueAware);
    queue_aware.check(&run).unwrap();
    near(compare(&run, &queue_aware, None).unwrap().changed.unwrap().makespan_s, 5.0);
}

#[test]
fn events_that_name_too_much_are_refused() {
    let mut events = record();
    let most = u64::MAX / 4;
    events.insert(2, submitted(5.0, 5, most));
    events.push(ended(5, most, (5.0, 5.0, 15.0), DONE));
    events.push(waits(5, most, (0, 1, true)));
    assert!(matches!(run_of(&events), Err(RecordError::Large { .. })));
}

#[test]
fn tries_that_failed_are_repeated_and_lost_ones_are_not() {
    // Both tasks were tried three times: the first failed twice; the second was lost with its
    // executor, and then failed.
    let mut events = vec![joined(0.0, 1, 2), joined(0.0, 2, 2), submitted(5.0, 0, 2)];
    let requeued =
        |seconds, first| event(seconds, What::Requeued { run: row(first, 1), attempt: 2 });
    events.push(requeued(6.0, 0));
    let gone = What::ExecutorGone { executor: ExecutorId(2), why: "it is silent".into() };
    events.extend([event(7.0, gone), requeued(7.0, 1), requeued(8.0, 0), requeued(8.0, 1)]);
    for first in 0..2 {
        let mut last = ended(first, 1, (5.0, 14.0, 15.0), DONE);
        let What::Ended(of) = &mut last.what else { unreachable!() };
        of.attempts = 3;
        events.push(last);
    }
    let run = run_of(&events).unwrap();
    assert_eq!(run.unknown.lost_tries, 1);
    // Five tries of a second.
    near(run.tasks.work_s(), 5.0);
    let replayed = compare(&run, &Change::default(), None).unwrap().replayed;
    assert_eq!((replayed.done, replayed.failed), (2, 0));
}
