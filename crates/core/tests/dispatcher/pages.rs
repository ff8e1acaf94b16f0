//! Results that are moved to disk: what stays in memory is bounded, clients
//! receive what they would without, and a page that cannot be written or read
//! costs no more than it must.

use crate::fixture::{array, executor};
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, InstanceOptions, Page, PageBounds, PagePlace, Record,
    Reply, Selection, Update,
};
use falkon_core::limits::LOSSES_MAX;
use falkon_core::result::{Captured, Detail, Finished, Outcome, Report, Tries};
use falkon_core::task::{
    After, InstanceId, Kind, Packed, Resources, Rows, Submission, TaskClass, TaskId, Time,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const EXECUTOR: ConnectionId = ConnectionId(1);
const BOUNDS: PageBounds = PageBounds {
    paged_bytes_min: 20_000,
    memory_bytes_max: 60_000,
    page_bytes_max: 4_000,
    page_runs_max: 100,
};

/// What a task writes.
fn output(task: u64) -> Vec<u8> {
    let length = 200 + task % 7 * 150;
    (0..length).map(|at| (task + at) as u8).collect()
}

/// A dispatcher with a journal and a disk, an executor that ends each task when
/// it is asked to, and clients that take results in.
struct World {
    now: u64,
    dispatcher: Dispatcher,
    journal: Vec<Record>,
    instance: InstanceId,
    disk: BTreeMap<PagePlace, Page>,
    next_place: u64,
    /// What the disk has been asked for and has not done.
    asked: VecDeque<Action>,
    disk_is_full: bool,
    updates: u64,
    /// How long each task runs.
    micros: u64,
    assigned: VecDeque<(u64, Tries, Vec<u8>)>,
    received: BTreeMap<ConnectionId, Vec<Finished>>,
    complete: bool,
}

impl World {
    fn new(keep_results: bool) -> World {
        let mut dispatcher = Dispatcher::new();
        dispatcher.page_results(BOUNDS);
        let mut world = World {
            now: 1,
            dispatcher,
            journal: Vec::new(),
            instance: InstanceId(0),
            disk: BTreeMap::new(),
            next_place: 0,
            asked: VecDeque::new(),
            disk_is_full: false,
            updates: 0,
            micros: 0,
            assigned: VecDeque::new(),
            received: BTreeMap::new(),
            complete: false,
        };
        let options = InstanceOptions { keep_results, ..InstanceOptions::default() };
        world.tell(Event::Create { connection: ConnectionId(0), request: 0, options });
        world.join();
        world
    }

    fn join(&mut self) {
        let join = executor(1, 8);
        self.updates = 0;
        self.assigned.clear();
        self.tell(Event::Join { connection: EXECUTOR, join });
    }

    fn submit(&mut self, count: u64, takes: Option<u64>) {
        let mut rows = Packed::default();
        for _ in 0..count {
            assert!(rows.push(b"row"));
        }
        let view = self.dispatcher.instance_view(self.instance).unwrap();
        let first = TaskId(view.counts().total);
        let after = takes.map(|task| After { offset: 0, tasks: vec![TaskId(task)], takes: 1 });
        let submission = Submission {
            rows: Rows::Packed(rows),
            classes: vec![TaskClass { kind: Kind::Function, ..TaskClass::default() }],
            after: after.into_iter().collect(),
            ..array(count)
        };
        let (connection, instance) = (ConnectionId(0), self.instance);
        self.tell(Event::Submit { connection, request: 1, instance, first, client: 1, submission });
    }

    fn subscribe(&mut self, connection: ConnectionId, from: u64) {
        let instance = self.instance;
        self.received.insert(connection, Vec::new());
        self.tell(Event::Subscribe { connection, request: 2, instance, from });
    }

    fn acknowledge(&mut self, connection: ConnectionId, upto: u64) {
        let instance = self.instance;
        self.tell(Event::Acknowledge { connection, instance, upto });
    }

    /// Ends the next task that the executor has. Returns whether there was one.
    fn end_one(&mut self) -> bool {
        let Some((task, tries, _)) = self.assigned.pop_front() else { return false };
        self.updates += 1;
        let started = Time(self.now);
        self.now += self.micros;
        let head = output(task);
        let stdout = Captured { total_bytes: head.len() as u64, head, ..Captured::default() };
        let value = task.to_le_bytes().to_vec();
        let report = Report {
            instance: self.instance,
            first: TaskId(task),
            count: 1,
            tries,
            outcome: Outcome::Exit(0),
            started,
            ended: Time(self.now),
            detail: Some(Arc::new(Detail { stdout, value, ..Detail::default() })),
        };
        let update = Update { number: self.updates, reports: vec![report], ..Update::default() };
        self.tell(Event::Update { connection: EXECUTOR, update });
        true
    }

    /// The disk does the first thing that it was asked for. Returns whether
    /// there was one.
    fn do_one(&mut self) -> bool {
        let Some(action) = self.asked.pop_front() else { return false };
        match action {
            Action::StorePage { instance, from, page } => {
                let place = (!self.disk_is_full).then(|| self.write(page));
                self.tell(Event::PageStored { instance, from, place });
            }
            Action::LoadPage { instance, from, place } => {
                let page = self.disk.get(&place).cloned();
                let page = page.ok_or_else(|| "the disk is gone".to_owned());
                self.tell(Event::PageLoaded { instance, from, page });
            }
            other => panic!("not for a disk: {other:?}"),
        }
        true
    }

    fn write(&mut self, page: Page) -> PagePlace {
        let place = PagePlace { file: 1, offset: self.next_place, bytes: 4_000 };
        self.next_place += 1;
        self.disk.insert(place, page);
        place
    }

    fn settle(&mut self) {
        while self.do_one() || self.end_one() {}
    }

    fn tell(&mut self, event: Event) {
        self.now += 1;
        self.dispatcher.handle(Time(self.now), event);
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.dispatcher.poll_action() {
            match action {
                Action::Journal(record) => self.journal.push(record),
                Action::Reply { reply: Reply::Created(id), .. } => self.instance = id,
                Action::Reply { reply: Reply::Refused(error), .. } => panic!("{error}"),
                Action::Deliver { connection, delivery } => {
                    self.complete |= delivery.complete;
                    self.received.entry(connection).or_default().extend(delivery.results);
                }
                Action::Order { order, .. } => {
                    for assigned in order.assign {
                        let Rows::Packed(rows) = &assigned.rows else { panic!("they are packed") };
                        for at in 0..assigned.count {
                            let row = rows.at(at).unwrap().to_vec();
                            self.assigned.push_back((assigned.first.0 + at, assigned.tries, row));
                        }
                    }
                }
                Action::DropPages { places } => {
                    for place in places {
                        assert!(self.disk.remove(&place).is_some(), "dropped twice");
                    }
                }
                action @ (Action::StorePage { .. } | Action::LoadPage { .. }) => {
                    self.asked.push_back(action);
                }
                _ => {}
            }
        }
        self.dispatcher.check().unwrap();
    }

    fn held(&self) -> (u64, u64) {
        self.dispatcher.instance_view(self.instance).unwrap().results_held()
    }

    /// `kill -9`, and another dispatcher that reads the journal.
    fn restart(&mut self, compact: bool) {
        if compact {
            self.journal = self.dispatcher.snapshot();
        }
        self.asked.clear();
        self.dispatcher = Dispatcher::new();
        self.dispatcher.page_results(BOUNDS);
        for record in self.journal.clone() {
            self.dispatcher.recover(record).unwrap();
            while let Some((instance, from, page)) = self.dispatcher.next_page() {
                let place = Some(self.write(page));
                let now = Time(self.now);
                self.dispatcher.handle(now, Event::PageStored { instance, from, place });
            }
            let (in_memory, _) = match self.dispatcher.instance_view(self.instance) {
                Some(view) => view.results_held(),
                None => (0, 0),
            };
            assert!(in_memory <= BOUNDS.memory_bytes_max, "{in_memory} bytes while it recovers");
        }
        self.dispatcher.recovered(Time(self.now));
        let known: Vec<PagePlace> = self.dispatcher.page_places().collect();
        assert!(known.iter().all(|place| self.disk.contains_key(place)));
        self.disk.retain(|place, _| known.contains(place));
        self.act();
        self.join();
    }
}

/// Each task's result once, and as the task wrote it.
fn judge(results: &[Finished], count: u64) {
    let mut tasks: Vec<u64> = results.iter().map(|run| run.first.0).collect();
    tasks.sort_unstable();
    assert_eq!(tasks, (0..count).collect::<Vec<u64>>());
    for run in results {
        let detail = run.detail.as_ref().unwrap();
        assert_eq!(detail.stdout.head, output(run.first.0), "task {}", run.first);
    }
}

#[test]
fn results_beyond_the_bound_leave_memory_and_come_back_in_order() {
    let mut world = World::new(true);
    world.submit(2_000, None);
    let mut peak = 0;
    while world.end_one() {
        peak = peak.max(world.held().0);
        world.do_one();
    }
    let (in_memory, on_disk) = world.held();
    assert!(peak <= BOUNDS.memory_bytes_max + 10_000, "{peak} bytes were in memory");
    assert!(in_memory <= BOUNDS.paged_bytes_min && on_disk > 0, "{in_memory}, {on_disk}");
    let client = ConnectionId(7);
    world.subscribe(client, 0);
    world.settle();
    judge(&world.received[&client], 2_000);
}

#[test]
fn a_disk_that_takes_nothing_holds_dispatch_up_and_is_asked_less_and_less() {
    let mut world = World::new(true);
    world.disk_is_full = true;
    world.micros = 1_000_000;
    world.submit(2_000, None);
    let mut asked = 0;
    let mut ended = 0;
    loop {
        let more = world.end_one();
        ended += u64::from(more);
        let store = world.do_one();
        asked += u64::from(store);
        if !more && !store {
            break;
        }
    }
    assert!(ended < 1_000, "{ended} tasks ran although their results have no place");
    let (in_memory, on_disk) = world.held();
    assert!(in_memory > BOUNDS.memory_bytes_max && on_disk == 0, "{in_memory}, {on_disk}");
    // The pauses grow: in ten minutes it is asked a dozen times.
    let until = world.now + 600_000_000;
    while let Some((at, _)) = world.dispatcher.poll_timeout().filter(|(at, _)| at.0 < until) {
        world.now = world.now.max(at.0);
        // The executor is there all the time.
        let (number, connection) = (world.updates + 1, EXECUTOR);
        world.updates = number;
        world.tell(Event::Update { connection, update: Update { number, ..Update::default() } });
        world.dispatcher.handle_timeout(Time(world.now));
        world.act();
        while world.do_one() {
            asked += 1;
        }
    }
    assert!((5..30).contains(&asked), "the disk was asked {asked} times");
    // There is room again: everything goes on.
    world.disk_is_full = false;
    world.now = until + 100_000_000;
    world.dispatcher.handle_timeout(Time(world.now));
    world.join();
    world.settle();
    world.subscribe(ConnectionId(7), 0);
    world.settle();
    judge(&world.received[&ConnectionId(7)], 2_000);
}

#[test]
fn a_page_that_is_lost_costs_its_own_results_alone() {
    for compact in [false, true] {
        let mut world = World::new(true);
        world.submit(500, None);
        world.settle();
        if compact {
            world.restart(true);
        }
        let lost = *world.disk.keys().nth(3).unwrap();
        let page = world.disk.remove(&lost).unwrap();
        let other = *world.disk.keys().nth(5).unwrap();
        let another = *world.disk.keys().nth(6).unwrap();
        let stray = world.disk[&another].clone();
        let mixed_up = world.disk.insert(other, stray).unwrap();
        world.subscribe(ConnectionId(7), 0);
        world.settle();
        let gone: Vec<u64> =
            page.results.iter().chain(&mixed_up.results).map(|run| run.first.0).collect();
        let mut unreadable = Vec::new();
        for run in &world.received[&ConnectionId(7)] {
            if run.outcome == Outcome::Unreadable {
                unreadable.extend(run.first.0..run.first.0 + run.count);
                let error = &run.detail.as_ref().unwrap().error;
                assert!(error.contains("its result is lost: "), "{error}");
            } else {
                assert_eq!(run.detail.as_ref().unwrap().stdout.head, output(run.first.0));
            }
        }
        unreadable.sort_unstable();
        let mut expected = gone.clone();
        expected.sort_unstable();
        assert_eq!(unreadable, expected);
        let read: u64 = world.received[&ConnectionId(7)].iter().map(|run| run.count).sum();
        assert_eq!(read, 500);
    }
}

#[test]
fn a_value_is_read_from_a_page_and_outlives_it() {
    for (compact, lose) in [(false, false), (true, false), (true, true)] {
        let mut world = World::new(false);
        world.submit(300, None);
        world.settle();
        if compact {
            world.restart(true);
        }
        assert!(world.held().1 > 0, "nothing is on disk");
        if lose {
            world.disk.clear();
        }
        world.submit(1, Some(5));
        assert!(world.assigned.is_empty(), "it has to wait for the value");
        while world.do_one() {}
        if lose {
            let counts = world.dispatcher.instance_view(world.instance).unwrap().counts();
            assert_eq!((counts.failed, counts.waiting), (1, 0));
            continue;
        }
        let row = world.assigned.front().unwrap().2.clone();
        assert!(row.ends_with(&[&5u64.to_le_bytes()[..], b"row"].concat()), "{row:?}");
        // The client takes everything in, so the page goes; the value stays.
        world.subscribe(ConnectionId(7), 0);
        while world.do_one() {}
        let upto = world.received[&ConnectionId(7)].len() as u64;
        world.acknowledge(ConnectionId(7), upto);
        assert_eq!((upto, world.disk.len()), (300, 0));
        world.restart(false);
        while world.do_one() {}
        assert_eq!(world.assigned.front().unwrap().2, row);
    }
}

#[test]
fn a_snapshot_refers_to_pages_and_holds_what_is_in_memory() {
    let mut world = World::new(true);
    world.submit(2_000, None);
    world.settle();
    let snapshot = world.dispatcher.snapshot();
    let held: u64 = snapshot
        .iter()
        .map(|record| match record {
            Record::Finished { results, .. } => results.iter().map(Finished::bytes).sum(),
            _ => 0,
        })
        .sum();
    assert!(held <= BOUNDS.paged_bytes_min, "{held} bytes of results are in the snapshot");
    for _ in 0..3 {
        world.restart(true);
        // An executor that is gone is named by two records.
        assert!(world.dispatcher.snapshot().len() <= snapshot.len() + 2);
    }
    world.subscribe(ConnectionId(7), 0);
    world.settle();
    judge(&world.received[&ConnectionId(7)], 2_000);
}

#[test]
fn what_is_destroyed_leaves_no_page() {
    let mut world = World::new(true);
    world.submit(500, None);
    while world.end_one() {}
    // Some are being written, some are being read.
    for _ in 0..5 {
        world.do_one();
    }
    world.subscribe(ConnectionId(7), 0);
    let (connection, instance) = (ConnectionId(0), world.instance);
    world.tell(Event::Destroy { connection, request: 9, instance });
    while world.do_one() {}
    assert!(world.disk.is_empty(), "{} pages are left", world.disk.len());
}

#[derive(Debug, Clone)]
enum Step {
    Submit(u64),
    End(u64),
    Disk(u64),
    Full(bool),
    Subscribe(u64, u64),
    Acknowledge(u64),
    Restart(bool),
    Time,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1..60u64).prop_map(Step::Submit),
        6 => (1..60u64).prop_map(Step::End),
        6 => (1..20u64).prop_map(Step::Disk),
        1 => any::<bool>().prop_map(Step::Full),
        2 => (2..5u64, 0..1000u64).prop_map(|(client, part)| Step::Subscribe(client, part)),
        2 => (2..5u64).prop_map(Step::Acknowledge),
        1 => any::<bool>().prop_map(Step::Restart),
        1 => Just(Step::Time),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    /// The reference model is the list of results in the order of delivery.
    #[test]
    fn whatever_the_disk_does_clients_receive_what_the_model_says(
        keep in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut world = World::new(keep);
        // In the order in which they ended, which is that of delivery.
        let mut model: Vec<u64> = Vec::new();
        let mut start: BTreeMap<ConnectionId, u64> = BTreeMap::new();
        let mut acknowledged = 0u64;
        // An executor that is silent loses its tasks: one more time, and they
        // would end without having run.
        let mut silences = 0;
        for step in steps {
            match step {
                Step::Submit(count) => world.submit(count, None),
                Step::End(count) => for _ in 0..count {
                    let task = world.assigned.front().map(|(task, ..)| *task);
                    model.extend(task);
                    world.end_one();
                },
                Step::Disk(count) => for _ in 0..count {
                    world.do_one();
                },
                Step::Full(is_full) => world.disk_is_full = is_full,
                Step::Subscribe(client, part) => {
                    let first = if keep { 0 } else { acknowledged };
                    let from = first + (model.len() as u64 - first) * part / 1000;
                    let client = ConnectionId(client);
                    start.insert(client, from);
                    world.subscribe(client, from);
                }
                Step::Acknowledge(client) => {
                    let client = ConnectionId(client);
                    if let Some(from) = start.get(&client) {
                        let upto = from + world.received[&client].len() as u64;
                        world.acknowledge(client, upto);
                        acknowledged = acknowledged.max(upto);
                    }
                }
                Step::Restart(compact) => {
                    world.restart(compact);
                    start.clear();
                    world.received.clear();
                }
                Step::Time if silences == LOSSES_MAX => {}
                Step::Time => {
                    silences += 1;
                    world.now += 120_000_000;
                    world.dispatcher.handle_timeout(Time(world.now));
                    world.act();
                    world.join();
                }
            }
            for (client, from) in &start {
                for (at, run) in (*from..).zip(&world.received[client]) {
                    prop_assert_eq!(run.count, 1);
                    prop_assert_eq!(run.first.0, model[at as usize], "result {} of {:?}", at, client);
                    prop_assert_eq!(&run.detail.as_ref().unwrap().stdout.head, &output(run.first.0));
                }
            }
        }
        // In the end a client that begins anew receives all there still is.
        world.disk_is_full = false;
        while world.do_one() {}
        let client = ConnectionId(9);
        let from = if keep { 0 } else { acknowledged };
        world.subscribe(client, from);
        while world.do_one() {}
        let received: Vec<u64> = world.received[&client].iter().map(|run| run.first.0).collect();
        prop_assert_eq!(&received[..], &model[from as usize..]);
    }
}

#[test]
fn what_ended_tasks_were_is_kept_within_a_bound() {
    let mut world = World::new(true);
    let large = vec![7; 1 << 20];
    for _ in 0..100 {
        let mut rows = Packed::default();
        assert!(rows.push(&large));
        let view = world.dispatcher.instance_view(world.instance).unwrap();
        let first = TaskId(view.counts().total);
        let submission = Submission {
            rows: Rows::Packed(rows),
            classes: vec![TaskClass { kind: Kind::Function, ..TaskClass::default() }],
            ..array(1)
        };
        let (connection, instance) = (ConnectionId(0), world.instance);
        world.tell(Event::Submit {
            connection,
            request: 1,
            instance,
            first,
            client: 1,
            submission,
        });
        world.settle();
    }
    for _ in 0..2 {
        let rows = world.dispatcher.snapshot().into_iter().map(|record| match record {
            Record::Submitted { submission, .. } => submission.bytes(),
            _ => 0,
        });
        let bytes: u64 = rows.sum();
        let bound = falkon_core::limits::ENDED_SUBMISSIONS_BYTES_MAX;
        assert!((bound / 2..=bound).contains(&bytes), "{bytes} bytes of submissions");
        world.restart(true);
    }
    world.subscribe(ConnectionId(7), 0);
    world.settle();
    judge(&world.received[&ConnectionId(7)], 100);
}

#[test]
fn what_ended_tasks_were_called_is_kept_within_a_bound() {
    use falkon_core::limits::{ENDED_NAMES_BYTES_MAX, ENDED_SUBMISSIONS_BYTES_MAX};
    const TASKS: u64 = 256;
    let mut world = World::new(true);
    let name = vec![b'n'; 4000];
    for _ in 0..200 {
        let (mut rows, mut names) = (Packed::default(), Packed::default());
        for _ in 0..TASKS {
            assert!(rows.push(b"") && names.push(&name));
        }
        let view = world.dispatcher.instance_view(world.instance).unwrap();
        let first = TaskId(view.counts().total);
        // Nobody offers so much: they end when they are cancelled.
        let resources = Resources::cpus(1_000);
        let submission = Submission {
            rows: Rows::Packed(rows),
            classes: vec![TaskClass { resources, ..TaskClass::default() }],
            names: Some(names),
            ..array(TASKS)
        };
        let (connection, request, instance) = (ConnectionId(0), 1, world.instance);
        let (client, selection) = (1, Selection::Runs(vec![(first.0, TASKS)]));
        world.tell(Event::Submit { connection, request, instance, first, client, submission });
        world.tell(Event::Cancel { connection, request, instance, selection });
        world.settle();
    }
    for _ in 0..2 {
        let view = world.dispatcher.instance_view(world.instance).unwrap();
        let named = |task| view.submission_of(TaskId(task)).is_some();
        assert!(!named(0) && named(200 * TASKS - 1), "the latest are known by their names");
        let submitted = world.dispatcher.snapshot().into_iter().map(|record| match record {
            Record::Submitted { submission, .. } => submission.bytes(),
            _ => 0,
        });
        let bytes: u64 = submitted.sum();
        let bound = ENDED_SUBMISSIONS_BYTES_MAX + ENDED_NAMES_BYTES_MAX;
        assert!((bound / 2..=bound).contains(&bytes), "{bytes} bytes of submissions");
        world.restart(true);
    }
}

#[test]
fn names_of_executors_that_are_gone_are_forgotten_with_their_results() {
    let mut world = World::new(true);
    world.submit(1_000, None);
    for round in 0..5_000 {
        world.tell(Event::Closed { connection: EXECUTOR });
        world.now += 60_000_000;
        world.dispatcher.handle_timeout(Time(world.now));
        world.act();
        world.join();
        if round % 10 == 0 {
            world.end_one();
            while world.do_one() {}
        }
    }
    let named = world.dispatcher.snapshot();
    let named = named.iter().filter(|record| matches!(record, Record::ExecutorSeen { .. })).count();
    assert!(named < 500, "{named} names are in a snapshot");
    world.subscribe(ConnectionId(7), 0);
    world.settle();
    let read: u64 = world.received[&ConnectionId(7)].iter().map(|run| run.count).sum();
    assert_eq!(read, world.dispatcher.instance_view(world.instance).unwrap().counts().ended());
}
