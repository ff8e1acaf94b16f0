//! Values of tasks for the tasks that take them: across restarts, when it is
//! too late, and when there are too many.

use crate::fixture::{array, executor};
use falkon_core::dispatch::{
    Action, Assigned, ConnectionId, Dispatcher, Event, InstanceOptions, Record, Reply, Update,
    Whereabouts,
};
use falkon_core::limits::{
    ORDER_BYTES_MAX, ROW_WITH_VALUES_BYTES_MAX, VALUE_BYTES_MAX, VALUES_HELD_BYTES_MAX,
};
use falkon_core::result::{Detail, Finished, Outcome, Report, Tries};
use falkon_core::task::{
    After, InstanceId, Kind, Packed, Rows, Submission, TaskClass, TaskId, Time,
};
use std::sync::Arc;

const CLIENT: ConnectionId = ConnectionId(0);
const EXECUTOR: ConnectionId = ConnectionId(1);

/// A dispatcher with its journal, a client, and an executor that keeps what it
/// is told until it is asked to report.
struct Trio {
    dispatcher: Dispatcher,
    journal: Vec<Record>,
    instance: InstanceId,
    updates: u64,
    acknowledges: bool,
    received: u64,
    /// Task and row.
    assigned: Vec<(u64, Tries, Vec<u8>)>,
    results: Vec<Finished>,
}

/// A task of each row, and the tasks that it takes values of.
fn submission(tasks: &[(&[u8], &[u64])]) -> Submission {
    let mut rows = Packed::default();
    for (row, _) in tasks {
        assert!(rows.push(row));
    }
    let count = tasks.len() as u64;
    let after = tasks.iter().enumerate().filter(|(_, (_, taken))| !taken.is_empty());
    Submission {
        rows: Rows::Packed(rows),
        classes: vec![TaskClass { kind: Kind::Function, ..TaskClass::default() }],
        after: after
            .map(|(offset, (_, taken))| After {
                offset: offset as u64,
                tasks: taken.iter().copied().map(TaskId).collect(),
                takes: taken.len() as u64,
            })
            .collect(),
        ..array(count)
    }
}

impl Trio {
    fn new() -> Trio {
        let mut trio = Trio {
            dispatcher: Dispatcher::new(),
            journal: Vec::new(),
            instance: InstanceId(0),
            updates: 0,
            acknowledges: true,
            received: 0,
            assigned: Vec::new(),
            results: Vec::new(),
        };
        let options = InstanceOptions { keep_results: false, ..InstanceOptions::default() };
        trio.tell(Event::Create { connection: CLIENT, request: 0, options });
        trio.connect();
        trio
    }

    fn connect(&mut self) {
        let (instance, from) = (self.instance, self.received);
        self.tell(Event::Subscribe { connection: CLIENT, request: 1, instance, from });
        let join = executor(1, 100);
        self.updates = 0;
        self.assigned.clear();
        self.tell(Event::Join { connection: EXECUTOR, join });
    }

    /// Another dispatcher takes over, from the journal or from a snapshot.
    fn restart(&mut self, compact: bool) {
        if compact {
            self.journal = self.dispatcher.snapshot();
        }
        self.dispatcher = Dispatcher::new();
        for record in &self.journal {
            self.dispatcher.recover(record.clone()).unwrap();
        }
        self.dispatcher.recovered(Time(1));
        self.dispatcher.check().unwrap();
        self.connect();
    }

    fn submit(&mut self, submission: Submission) {
        let (connection, instance) = (CLIENT, self.instance);
        let first = TaskId(self.dispatcher.instance_view(instance).unwrap().counts().total);
        self.tell(Event::Submit { client: 1, connection, request: 2, instance, first, submission });
    }

    /// The executor has done a task that it has.
    fn done(&mut self, task: u64, detail: Option<Arc<Detail>>) {
        let at = self.assigned.iter().position(|(id, ..)| *id == task).expect("it was assigned");
        let (_, tries, _) = self.assigned.remove(at);
        self.updates += 1;
        let (started, ended) = (Time(1), Time(1));
        let report = Report {
            instance: self.instance,
            first: TaskId(task),
            count: 1,
            tries,
            outcome: Outcome::Exit(0),
            started,
            ended,
            detail,
        };
        let update = Update { number: self.updates, reports: vec![report], ..Update::default() };
        self.tell(Event::Update { connection: EXECUTOR, update });
    }

    fn row(&self, task: u64) -> &[u8] {
        let found = self.assigned.iter().find(|(id, ..)| *id == task);
        &found.expect("it was assigned").2
    }

    fn why(&self, task: u64) -> (Outcome, &str) {
        let found = self.results.iter().find(|run| run.first.0 == task).expect("it has ended");
        (found.outcome, found.detail.as_ref().map_or("", |detail| &detail.error))
    }

    fn tell(&mut self, event: Event) {
        self.dispatcher.handle(Time(1), event);
        while let Some(action) = self.dispatcher.poll_action() {
            match action {
                Action::Journal(record) => self.journal.push(record),
                Action::Reply { reply: Reply::Created(id), .. } => self.instance = id,
                Action::Reply { reply: Reply::Refused(error), .. } => panic!("{error}"),
                Action::Deliver { connection, delivery, .. } => {
                    self.dispatcher.handle(Time(1), Event::Written { connection, messages: 1 });
                    self.received += delivery.results.iter().map(|run| run.count).sum::<u64>();
                    self.results.extend(delivery.results);
                }
                Action::Order { order, .. } => {
                    let rows = |assigned: &Assigned| match &assigned.rows {
                        Rows::Packed(rows) => rows.blob.len() as u64,
                        Rows::Computed { .. } => 0,
                    };
                    let bytes: u64 = order.assign.iter().map(rows).sum();
                    assert!(bytes <= ORDER_BYTES_MAX || order.assign.len() == 1, "{bytes} bytes");
                    for assigned in order.assign {
                        let Rows::Packed(rows) = &assigned.rows else { panic!("they are packed") };
                        for at in 0..assigned.count {
                            let row = rows.at(at).unwrap().to_vec();
                            self.assigned.push((assigned.first.0 + at, assigned.tries, row));
                        }
                    }
                }
                _ => {}
            }
            self.dispatcher.check().unwrap();
        }
        if self.acknowledges {
            let (instance, upto) = (self.instance, self.received);
            let event = Event::Acknowledge { connection: CLIENT, instance, upto };
            self.dispatcher.handle(Time(1), event);
            while let Some(action) = self.dispatcher.poll_action() {
                if let Action::Journal(record) = action {
                    self.journal.push(record);
                }
            }
        }
    }
}

fn value(bytes: &[u8]) -> Option<Arc<Detail>> {
    Some(Arc::new(Detail { value: bytes.to_vec(), ..Detail::default() }))
}

#[test]
fn a_row_comes_with_the_values_in_front() {
    let mut trio = Trio::new();
    trio.submit(submission(&[(b"a", &[]), (b"b", &[]), (b"row", &[1, 0, 1])]));
    assert_eq!(trio.row(0), b"a");
    trio.done(0, value(b"zero"));
    trio.done(1, None);
    let mut expected = b"v".to_vec();
    for word in [3u32, 0, 4, 0] {
        expected.extend(word.to_le_bytes());
    }
    expected.extend(b"zerorow");
    assert_eq!(trio.row(2), expected);
}

#[test]
fn values_of_forgotten_results_outlive_the_dispatcher() {
    for compact in [false, true] {
        let mut trio = Trio::new();
        trio.submit(submission(&[(b"a", &[]), (b"b", &[]), (b"c", &[0, 1])]));
        trio.done(0, value(b"zero"));
        trio.restart(compact);
        trio.done(1, value(b"one"));
        assert!(trio.row(2).ends_with(b"zeroonec"), "{:?}", trio.row(2));
        // It is sent again, to whoever is there.
        trio.restart(compact);
        assert!(trio.row(2).ends_with(b"zeroonec"), "{:?}", trio.row(2));
        trio.done(2, None);
        assert_eq!(trio.results.len(), 3);
        trio.restart(true);
        let held = trio.journal.iter().any(|record| matches!(record, Record::Values { .. }));
        assert!(!held, "nobody wants a value any more");
    }
}

#[test]
fn a_value_can_be_wanted_until_its_result_is_acknowledged() {
    let mut trio = Trio::new();
    trio.acknowledges = false;
    trio.submit(submission(&[(b"a", &[]), (b"b", &[])]));
    trio.done(1, value(b"one"));
    trio.done(0, value(b"zero"));
    trio.submit(submission(&[(b"c", &[1])]));
    assert!(trio.row(2).ends_with(b"onec"));
    // It stays for those that come later, although its result is forgotten.
    trio.acknowledges = true;
    trio.submit(submission(&[(b"d", &[1])]));
    trio.submit(submission(&[(b"e", &[0, 1])]));
    assert!(trio.row(3).ends_with(b"oned"));
    let (outcome, error) = trio.why(4);
    assert_eq!(outcome, Outcome::NoInput);
    assert!(error.contains("value of task 0") && error.contains("forgotten"), "{error}");
}

#[test]
fn a_failure_goes_on_to_all_who_take_it() {
    let mut trio = Trio::new();
    trio.submit(submission(&[(b"a", &[]), (b"b", &[0]), (b"c", &[1])]));
    let runs = falkon_core::dispatch::Selection::Runs(vec![(0, 1)]);
    let (connection, instance) = (CLIENT, trio.instance);
    trio.tell(Event::Cancel { connection, request: 3, instance, selection: runs });
    let (_, tries, _) = trio.assigned.remove(0);
    let (started, ended) = (Time(1), Time(1));
    let report = Report {
        instance,
        first: TaskId(0),
        count: 1,
        tries,
        outcome: Outcome::Cancelled,
        started,
        ended,
        detail: None,
    };
    let update = Update { number: 1, reports: vec![report], ..Update::default() };
    trio.tell(Event::Update { connection: EXECUTOR, update });
    assert_eq!(trio.why(1).0, Outcome::UpstreamFailed(TaskId(0)));
    assert_eq!(trio.why(2).0, Outcome::UpstreamFailed(TaskId(1)));
    // That is known when their results are forgotten, too.
    trio.submit(submission(&[(b"d", &[])]));
    trio.done(3, None);
    trio.submit(submission(&[(b"e", &[])]));
    let found = trio.dispatcher.whereabouts(instance, TaskId(2), 2);
    assert_eq!(found, [Whereabouts::NotDone, Whereabouts::Done]);
}

#[test]
fn what_does_not_fit_fails_those_who_take_it() {
    let mut trio = Trio::new();
    let large = value(&vec![0; VALUE_BYTES_MAX as usize]);
    trio.submit(submission(&[(b"a", &[]), (b"a", &[]), (b"b", &[0, 1])]));
    trio.done(0, large.clone());
    trio.done(1, large.clone());
    let (outcome, error) = trio.why(2);
    assert_eq!(outcome, Outcome::NoInput);
    assert!(error.contains("bytes with the values"), "{error}");

    // A row with its values is as long as it may be, and no longer.
    let rest = ROW_WITH_VALUES_BYTES_MAX - 4 - VALUE_BYTES_MAX - 4 - 1;
    for (beyond, outcome) in [(0, None), (1, Some(Outcome::NoInput))] {
        let mut trio = Trio::new();
        trio.submit(submission(&[(b"a", &[]), (b"a", &[]), (b"b", &[0, 1])]));
        trio.done(0, large.clone());
        trio.done(1, value(&vec![0; (rest + beyond) as usize]));
        let found = trio.results.iter().find(|run| run.first.0 == 2).map(|run| run.outcome);
        assert_eq!(found, outcome, "{beyond} bytes beyond");
        assert_eq!(trio.assigned.len(), usize::from(outcome.is_none()));
    }

    // The last one does not fit; those before it may still be taken.
    let count = VALUES_HELD_BYTES_MAX / VALUE_BYTES_MAX + 1;
    let (a, rows): (&[u8], Vec<_>) = (b"a", (3..3 + count).collect());
    let mut tasks: Vec<(&[u8], &[u64])> = vec![(a, &[]); count as usize];
    let last = [rows[count as usize - 1]];
    tasks.push((b"all", &rows));
    tasks.push((b"last", &last));
    trio.submit(submission(&tasks));
    while let Some((task, ..)) = trio.assigned.first().cloned() {
        trio.done(task, large.clone());
    }
    let (outcome, error) = trio.why(3 + count + 1);
    assert_eq!(outcome, Outcome::NoInput);
    assert!(error.contains("4 GiB"), "{error}");
}

#[test]
fn a_value_in_a_cache_is_not_handed_on() {
    let mut trio = Trio::new();
    trio.submit(submission(&[(b"a", &[]), (b"b", &[0]), (b"c", &[1])]));
    trio.done(0, value(b"c and the name of an object"));
    let (outcome, error) = trio.why(1);
    assert_eq!(outcome, Outcome::NoInput);
    assert!(error.contains("in the cache of an executor"), "{error}");
    assert_eq!(trio.why(2).0, Outcome::UpstreamFailed(TaskId(1)));
    // Also of those that are submitted later.
    trio.submit(submission(&[(b"d", &[0])]));
    assert_eq!(trio.why(3).0, Outcome::NoInput);
}

#[test]
fn rows_however_long_go_to_free_slots_in_messages_of_bounded_length() {
    let mut trio = Trio::new();
    let lengths = [3900, 15_900, 1, 5000, 5000, 200, 5000, 3000, 3000, 3000];
    let rows: Vec<Vec<u8>> = lengths.iter().map(|kib| vec![7; kib << 10]).collect();
    for row in &rows {
        trio.submit(submission(&[(&row[..], &[][..])]));
    }
    let found: Vec<usize> = trio.assigned.iter().map(|(.., row)| row.len() >> 10).collect();
    assert_eq!(found, lengths);
    // Without a free slot no more is sent ahead than one order's worth.
    for task in 0..lengths.len() as u64 {
        trio.done(task, None);
    }
    let many = vec![(&rows[7][..], &[][..]); 120];
    for some in many.chunks(5) {
        trio.submit(submission(some));
    }
    assert!((100..=102).contains(&trio.assigned.len()), "{}", trio.assigned.len());
}
