//! Values at each bound are accepted and refused one beyond it; so are submissions
//! that are sound but for one thing.

use crate::fixture::array;
use falkon_core::data::declared::{Declared, Lists};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::Changes;
use falkon_core::dispatch::{Held, Update};
use falkon_core::encoded::Encoded;
use falkon_core::gang::GANG_USAGE_BYTES_MAX;
use falkon_core::limits::*;
use falkon_core::result::{Captured, Detail, Outcome, Report, Tries, shortened};
use falkon_core::task::{
    After, InstanceId, Kind, Packed, Range, Resources, Rows, Submission, SubmissionError,
    SubmissionPart, TaskClass, TaskId, Time,
};
use std::sync::Arc;

/// A column with entries of these lengths.
fn column(lengths: &[usize]) -> Packed {
    let mut packed = Packed::default();
    for length in lengths {
        assert!(packed.push(&vec![b'x'; *length]));
    }
    packed
}

fn object(number: u128, url: usize, version: usize) -> Object {
    let (url, version) = ("u".repeat(url).into(), "v".repeat(version).into());
    Object { id: ObjectId(number), url, version, size: None }
}

fn each(items: &[u32], ends: &[u32]) -> Lists {
    Lists::Each { items: Arc::new(items.to_vec()), ends: Arc::new(ends.to_vec()) }
}

/// Three tasks that have all that a submission may have.
fn submission() -> Submission {
    let class =
        TaskClass { kind: Kind::Process, resources: Resources::default(), ..TaskClass::default() };
    Submission {
        template: Arc::new(vec![1; 10]),
        rows: Rows::Packed(column(&[4, 5, 6])),
        classes: vec![class.clone(), class],
        class_runs: vec![(1, 1), (2, 0)],
        names: Some(column(&[1, 2, 3])),
        after: vec![
            After { offset: 0, tasks: vec![TaskId(0), TaskId(1)], takes: 2 },
            After { offset: 2, tasks: vec![TaskId(0)], takes: 0 },
        ],
        data: Some(Arc::new(Declared {
            objects: Arc::new(vec![object(0, 5, 5), object(1, 6, 6)]),
            inputs: each(&[0, 1, 1], &[1, 3, 3]),
            outputs: Lists::Same(vec![1]),
        })),
        ..array(3)
    }
}

/// The check of a submission in which this is changed.
fn changed(change: impl FnOnce(&mut Submission)) -> Result<(), SubmissionError> {
    let mut submission = submission();
    change(&mut submission);
    submission.check().and_then(|()| submission.check_lengths())
}

fn with_data(inputs: Lists, outputs: Lists) -> Result<(), SubmissionError> {
    changed(|it| {
        let objects = Arc::clone(&it.data.as_ref().unwrap().objects);
        it.data = Some(Arc::new(Declared { objects, inputs, outputs }));
    })
}

fn malformed(what: SubmissionPart) -> Result<(), SubmissionError> {
    Err(SubmissionError::Malformed(what))
}

fn mismatch(what: SubmissionPart, found: u64) -> Result<(), SubmissionError> {
    Err(SubmissionError::CountMismatch { what, expected: 3, found })
}

#[test]
fn a_submission_is_refused_for_each_part_that_does_not_agree() {
    assert_eq!(changed(|_| ()), Ok(()));
    assert_eq!(changed(|it| it.count = 0), Err(SubmissionError::Empty));
    assert_eq!(
        changed(|it| it.rows = Rows::Packed(column(&[4, 5]))),
        mismatch(SubmissionPart::Rows, 2)
    );
    assert_eq!(
        changed(|it| it.rows = Rows::Packed(column(&[4; 4]))),
        mismatch(SubmissionPart::Rows, 4)
    );
    assert_eq!(changed(|it| it.names = Some(column(&[1, 2]))), mismatch(SubmissionPart::Names, 2));
    assert_eq!(
        changed(|it| it.class_runs = vec![(2, 0)]),
        mismatch(SubmissionPart::ClassedTasks, 2)
    );
    let wrapping = |it: &mut Submission| it.class_runs = vec![(u64::MAX, 0), (4, 0)];
    assert_eq!(changed(wrapping), Err(SubmissionError::TooMany));
    let none = |it: &mut Submission| it.class_runs = vec![(3, 0), (0, 0)];
    assert_eq!(changed(none), malformed(SubmissionPart::ClassRun));
    assert_eq!(changed(|it| it.class_runs = vec![(3, 2)]), malformed(SubmissionPart::ClassRun));
    assert_eq!(changed(|it| it.classes.truncate(1)), malformed(SubmissionPart::ClassRun));
}

#[test]
fn computed_rows_may_be_a_window_of_more_and_not_of_fewer() {
    let window = |counts: &[u64], offset| {
        let factors = counts.iter().map(|count| Range { start: 0, count: *count, step: 1 });
        let rows = Rows::Computed { factors: factors.collect(), offset };
        changed(|it| {
            it.rows = rows;
            it.after.clear();
        })
    };
    assert_eq!(window(&[3], 0), Ok(()));
    assert_eq!(window(&[2, 2], 1), Ok(()));
    assert!(window(&[2, 2], 2).is_err());
    assert!(window(&[2], 0).is_err());
}

#[test]
fn dependencies_ascend_and_take_what_there_is() {
    let list = SubmissionPart::DependencyOffset;
    let after = |offset, takes| After { offset, tasks: vec![TaskId(0), TaskId(1)], takes };
    let of = |all: Vec<After>| changed(|it| it.after = all);
    assert_eq!(of(vec![after(0, 0), after(1, 1), after(2, 2)]), Ok(()));
    assert_eq!(of(vec![after(3, 0)]), malformed(list));
    assert_eq!(of(vec![after(1, 0), after(1, 0)]), malformed(list));
    assert_eq!(of(vec![after(2, 0), after(1, 0)]), malformed(list));
    assert_eq!(of(vec![after(2, 3)]), malformed(SubmissionPart::ValuesToTake));
    let computed = |takes| {
        changed(|it| {
            let factors = vec![Range { start: 0, count: 3, step: 1 }];
            it.rows = Rows::Computed { factors, offset: 0 };
            it.after = vec![after(1, takes)];
        })
    };
    assert_eq!(computed(0), Ok(()));
    assert_eq!(
        computed(1),
        malformed(SubmissionPart::ValuesToTake),
        "they have no row to stand in"
    );
}

#[test]
fn lists_of_objects_are_those_of_the_tasks() {
    let sound = || each(&[0, 1, 1], &[1, 3, 3]);
    let wrong = malformed(SubmissionPart::DataObjects);
    assert_eq!(with_data(sound(), sound()), Ok(()));
    for unsound in [
        each(&[0, 1, 2], &[1, 3, 3]),
        each(&[0, 1, 1], &[1, 3]),
        each(&[0, 1, 1], &[1, 3, 3, 3]),
        each(&[0, 1, 1], &[1, 2, 2]),
        each(&[0, 1, 1], &[2, 1, 3]),
        Lists::Same(vec![0, 2]),
    ] {
        assert_eq!(with_data(unsound.clone(), sound()), wrong, "{unsound:?} of inputs");
        assert_eq!(with_data(sound(), unsound.clone()), wrong, "{unsound:?} of outputs");
    }
}

#[test]
fn a_submission_is_as_long_as_its_bounds_and_no_longer() {
    fn too_long(result: Result<(), SubmissionError>) -> Option<(SubmissionPart, u64)> {
        match result {
            Ok(()) => None,
            Err(SubmissionError::TooLong { what, bytes, bytes_max }) => {
                assert!(bytes > bytes_max, "{what}: {bytes} of {bytes_max}");
                Some((what, bytes - bytes_max))
            }
            Err(other) => panic!("{other}"),
        }
    }
    let template = |bytes: u64| changed(|it| it.template = Arc::new(vec![0; bytes as usize]));
    let rest = submission().encoded_bytes() - 10;
    // A longer template has a longer length in front.
    let head = {
        let mut longer = submission();
        longer.template = Arc::new(vec![0; 1 << 20]);
        longer.encoded_bytes() - (1 << 20) - rest
    };
    let most = SUBMISSION_BYTES_MAX - rest - head;
    assert_eq!(too_long(template(most)), None);
    assert_eq!(too_long(template(most + 1)), Some((SubmissionPart::Tasks, 1)));

    let name = |bytes| changed(|it| it.names = Some(column(&[1, bytes, 1])));
    assert_eq!(too_long(name(TASK_NAME_BYTES_MAX)), None);
    assert_eq!(too_long(name(TASK_NAME_BYTES_MAX + 1)), Some((SubmissionPart::TaskName, 1)));

    let named = |url, version| {
        changed(|it| {
            let mut data = (**it.data.as_ref().unwrap()).clone();
            data.objects = Arc::new(vec![object(0, 5, 5), object(1, url, version)]);
            it.data = Some(Arc::new(data));
        })
    };
    assert_eq!(too_long(named(URL_BYTES_MAX, VERSION_BYTES_MAX)), None);
    assert_eq!(too_long(named(URL_BYTES_MAX + 1, 1)), Some((SubmissionPart::ObjectUrl, 1)));
    let version = Some((SubmissionPart::ObjectVersion, 1));
    assert_eq!(too_long(named(1, VERSION_BYTES_MAX + 1)), version);

    let ranges = |count: usize| {
        changed(|it| {
            let one = Range { start: 0, count: 1, step: 1 };
            let mut factors = vec![one; count];
            factors[0].count = 3;
            it.rows = Rows::Computed { factors, offset: 0 };
            it.after.clear();
        })
    };
    let most = (1..).find(|count| ranges(1 << count).is_err()).unwrap();
    let (mut fits, mut fails) = (1 << (most - 1), 1 << most);
    while fails - fits > 1 {
        let middle = usize::midpoint(fits, fails);
        if ranges(middle).is_ok() { fits = middle } else { fails = middle }
    }
    let bytes = |count| {
        let factors = vec![Range { start: 0, count: 1, step: 1 }; count];
        Rows::Computed { factors, offset: 0 }.encoded_bytes()
    };
    assert!(bytes(fits) <= RANGES_BYTES_MAX && bytes(fails) > RANGES_BYTES_MAX);
    assert_eq!(too_long(ranges(fails)).map(|(what, _)| what), Some(SubmissionPart::Ranges));
}

/// All that a task reads, all that it writes, and its row are sent together.
#[test]
fn a_task_s_objects_and_row_count_together() {
    const OBJECTS: u32 = 700;
    let with = |inputs: u32, outputs: u32, same: bool| {
        let objects = (0..OBJECTS).map(|number| object(number.into(), URL_BYTES_MAX, 10)).collect();
        let list = |count: u32| match same {
            true => Lists::Same((0..count).collect()),
            false => each(&(0..count).collect::<Vec<_>>(), &[0, count, count]),
        };
        let (inputs, outputs) = (list(inputs), list(outputs));
        let data = Declared { objects: Arc::new(objects), inputs, outputs };
        (data.task_bytes(1), changed(|it| it.data = Some(Arc::new(data))))
    };
    let is_within = |result: Result<(), SubmissionError>| match result {
        Ok(()) => true,
        Err(SubmissionError::TooLong { what: SubmissionPart::TaskWithData, .. }) => false,
        Err(other) => panic!("{other}"),
    };
    for same in [true, false] {
        let (one, result) = with(1, 0, same);
        assert!(result.is_ok());
        assert_eq!(with(300, 400, same).0, 700 * one, "each object counts");
        assert!(is_within(with(400, 200, same).1) && is_within(with(200, 400, same).1));
        // More than fit, and either half alone would.
        assert!(600 * one < TASK_BYTES_MAX);
        for (inputs, outputs) in [(600, 600), (700, 500), (500, 700)] {
            assert!(!is_within(with(inputs, outputs, same).1), "{inputs} + {outputs}");
        }
    }
}

fn captured(bytes: u64) -> Captured {
    Captured { head: vec![b'o'; bytes as usize], total_bytes: bytes, ..Captured::default() }
}

fn detail(stdout: u64, stderr: u64, error: u64, value: u64) -> Detail {
    Detail {
        stdout: captured(stdout),
        stderr: captured(stderr),
        error: "e".repeat(error as usize),
        value: vec![7; value as usize],
        ..Detail::default()
    }
}

fn report(detail: Detail) -> Report {
    Report {
        instance: InstanceId(0),
        first: TaskId(0),
        count: 1,
        tries: Tries::default(),
        outcome: Outcome::Exit(0),
        started: Time(0),
        ended: Time(0),
        detail: Some(Arc::new(detail)),
    }
}

/// The lengths of a detail once it was bounded, and how its task ended.
fn bounded(detail: Detail) -> ([u64; 4], Outcome) {
    let mut report = report(detail);
    report.bound();
    let detail = report.detail.unwrap();
    let (stdout, stderr) = (&detail.stdout.head, &detail.stderr.head);
    let lengths = [stdout.len(), stderr.len(), detail.error.len(), detail.value.len()];
    (lengths.map(|length| length as u64), report.outcome)
}

#[test]
fn a_report_is_cut_where_it_is_too_long_and_nowhere_else() {
    let (capture, error, value) = (CAPTURE_BYTES_MAX, ERROR_BYTES_MAX, VALUE_BYTES_MAX);
    let streams = 2 * URL_BYTES_MAX as u64;
    let path = EXECUTOR_PATH_BYTES_MAX as u64 + GANG_USAGE_BYTES_MAX;
    let texts = ERROR_BYTES_MAX + OUTPUTS_BYTES_MAX + streams + path + ENVELOPE_BYTES_MAX;
    let room = REPORT_BYTES_MAX - texts;
    let same = |lengths: [u64; 4]| {
        let [stdout, stderr, error, value] = lengths;
        assert_eq!(bounded(detail(stdout, stderr, error, value)), (lengths, Outcome::Exit(0)));
    };
    same([0, 0, 0, 0]);
    same([capture, capture, error, 0]);
    same([0, room - value, error, value]);
    same([room - value, 0, error, value]);
    same([1, room - value - 1, 0, value]);

    // The name of a member that is too long is left out.
    let member_of = |bytes: usize| {
        let stdout = Captured { member: Some("m".repeat(bytes).into()), ..captured(3) };
        let mut report = report(Detail { stdout, ..Detail::default() });
        report.bound();
        report.detail.unwrap().stdout.member.clone().map_or(0, |member| member.len())
    };
    assert_eq!([URL_BYTES_MAX, URL_BYTES_MAX + 1].map(member_of), [URL_BYTES_MAX, 0]);

    // Of the places of outputs, as many are named as fit.
    let places_of = |bytes: u64| {
        let place = "p".repeat(bytes as usize - size_of::<String>());
        let mut report = report(Detail { outputs: vec![place; 3], ..Detail::default() });
        report.bound();
        report.detail.unwrap().outputs.len()
    };
    let third = OUTPUTS_BYTES_MAX / 3;
    assert_eq!([third, third + 1, OUTPUTS_BYTES_MAX + 1].map(places_of), [3, 2, 0]);

    // One stream is cut, and the other is as it was.
    assert_eq!(bounded(detail(capture + 1, 5, 6, 7)).0, [capture, 5, 6, 7]);
    assert_eq!(bounded(detail(5, capture + 1, 6, 7)).0, [5, capture, 6, 7]);
    // With the longest value both streams share what is left.
    let left = room - value;
    assert_eq!(bounded(detail(left, left, 0, value)).0, [left - left / 2, left / 2, 0, value]);
    assert_eq!(bounded(detail(left, 10, 0, value)).0, [left - 10, 10, 0, value]);
    assert_eq!(bounded(detail(10, left, 0, value)).0, [10, left / 2, 0, value]);
    // An error keeps its beginning and its end.
    let ([.., cut, _], outcome) = bounded(detail(0, 0, error + 1, 0));
    assert!(cut <= error && cut > error - 8, "{cut}");
    assert_eq!(outcome, Outcome::Exit(0));
    // A part of a value is of no use: the task has failed, and says why.
    let ([5, 6, said, 0], Outcome::Exit(1)) = bounded(detail(5, 6, 0, value + 1)) else {
        panic!("a value that is too long was sent")
    };
    assert!(said > 0);
}

#[test]
fn details_count_all_bytes_that_they_hold() {
    let size = size_of::<Detail>() as u64;
    for lengths in [[0, 0, 0, 0], [10, 0, 0, 0], [0, 20, 0, 0], [0, 0, 30, 0], [3, 5, 7, 40]] {
        let [stdout, stderr, error, value] = lengths;
        let held = detail(stdout, stderr, error, value).bytes();
        assert_eq!(held, size + lengths.iter().sum::<u64>());
    }
}

#[test]
fn a_shortened_text_has_both_its_ends() {
    for (text, most) in [("a".repeat(1000), 100), ("ä€𝄞".repeat(300), 101), ("a".repeat(100), 99)]
    {
        let short = shortened(&text, most);
        assert!(short.len() <= most && short.len() > most - 12, "{} of {most}", short.len());
        let (start, end) = short.split_once('\n').unwrap();
        let (gap, end) = end.split_once('\n').unwrap();
        assert!(text.starts_with(start) && text.ends_with(end) && !start.is_empty());
        assert!(start.len().abs_diff(end.len()) <= 4);
        assert_eq!(gap, format!("[{} bytes in all]", text.len()));
    }
    assert_eq!(shortened("abc", 3), "abc");
}

#[test]
fn whoever_says_anything_is_more_than_alive() {
    let held =
        Held { instance: InstanceId(0), first: TaskId(0), count: 1, tries: Tries::default() };
    let report = Report {
        instance: InstanceId(0),
        first: TaskId(0),
        count: 1,
        tries: Tries::default(),
        outcome: Outcome::Exit(0),
        started: Time(0),
        ended: Time(0),
        detail: None,
    };
    assert!(Update::default().is_heartbeat());
    assert!(Update { number: 7, ..Update::default() }.is_heartbeat());
    for update in [
        Update { reports: vec![report], ..Update::default() },
        Update { returned: vec![held], ..Update::default() },
        Update { recalled: true, ..Update::default() },
        Update { leaving: true, ..Update::default() },
        Update { kept: vec![(1, 2)], ..Update::default() },
        Update { cache: Some(Box::<Changes>::default()), ..Update::default() },
        Update { unwritten: Some(Vec::new()), ..Update::default() },
    ] {
        assert!(!update.is_heartbeat(), "{update:?}");
    }
}
