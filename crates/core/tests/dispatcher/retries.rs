//! Tasks that are retried: random schedules of tasks that fail, depend on others, are cancelled
//! and retried, with results on disk and restarts of the dispatcher. Whoever reads results, from
//! the first or all along, has the last one of each task.

use crate::fixture::{array, executor};
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, InstanceOptions, Page, PageBounds, PagePlace, Record,
    Reply, RequestError, Retried, Selection, Update,
};
use falkon_core::result::{Captured, Detail, Outcome, Report, Status, Tries};
use falkon_core::task::{After, InstanceId, Packed, Rows, Submission, TaskId, Time};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

const CLIENT: ConnectionId = ConnectionId(0);
const EXECUTOR: ConnectionId = ConnectionId(1);
/// Reads results all along.
const READER: ConnectionId = ConnectionId(2);
const STEPS: u64 = 80;
/// More pages than are read and written before a dispatcher has no more to ask for.
const DISK_ACTIONS_MAX: u64 = 10_000;
const BOUNDS: PageBounds = PageBounds {
    paged_bytes_min: 1_500,
    memory_bytes_max: 1 << 30,
    page_bytes_max: 600,
    page_runs_max: 4,
};

/// What a reader of results knows.
#[derive(Debug, Default)]
struct Reader {
    position: u64,
    results: BTreeMap<u64, Outcome>,
    complete: bool,
}

struct World {
    seed: u64,
    now: u64,
    dispatcher: Dispatcher,
    journal: Vec<Record>,
    instance: InstanceId,
    total: u64,
    disk: BTreeMap<PagePlace, Page>,
    next_place: u64,
    asked: VecDeque<Action>,
    updates: u64,
    assigned: BTreeMap<u64, Tries>,
    readers: BTreeMap<ConnectionId, Reader>,
    next_reader: u64,
    replies: VecDeque<Reply>,
}

impl World {
    fn new(seed: u64, keep_results: bool) -> World {
        let mut dispatcher = Dispatcher::new();
        dispatcher.page_results(BOUNDS);
        let mut world = World {
            seed,
            now: 1,
            dispatcher,
            journal: Vec::new(),
            instance: InstanceId(0),
            total: 0,
            disk: BTreeMap::new(),
            next_place: 0,
            asked: VecDeque::new(),
            updates: 0,
            assigned: BTreeMap::new(),
            readers: BTreeMap::new(),
            next_reader: 10,
            replies: VecDeque::new(),
        };
        let options = InstanceOptions { keep_results, ..InstanceOptions::default() };
        world.tell(Event::Create { connection: CLIENT, request: 0, options });
        world.join();
        world.subscribe(READER);
        world
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % bound
    }

    fn join(&mut self) {
        self.updates = 0;
        self.assigned.clear();
        self.tell(Event::Join { connection: EXECUTOR, join: executor(1, 4) });
    }

    /// Tasks, some of which depend on earlier ones.
    fn submit(&mut self) {
        let (count, first) = (1 + self.below(8), self.total);
        let mut after: Vec<After> = Vec::new();
        for offset in 0..count {
            if first + offset > 0 && self.below(3) == 0 {
                let task = TaskId(self.below(first + offset));
                let takes = u64::from(self.below(2) == 0);
                after.push(After { offset, tasks: vec![task], takes });
            }
        }
        let mut rows = Packed::default();
        (0..count).for_each(|_| assert!(rows.push(b"row")));
        let (template, rows) = (Arc::new(vec![1]), Rows::Packed(rows));
        let submission = Submission { template, rows, after, ..array(count) };
        let (instance, first) = (self.instance, TaskId(first));
        self.total += count;
        let event = Event::Submit {
            connection: CLIENT,
            request: 1,
            instance,
            first,
            client: 1,
            submission,
        };
        self.tell(event);
    }

    /// Ends a task that the executor has.
    fn end_one(&mut self, outcome: Outcome) -> bool {
        let running = self.assigned.len() as u64;
        if running == 0 {
            return false;
        }
        let at = self.below(running) as usize;
        let (task, tries) = self.assigned.iter().nth(at).map(|(a, b)| (*a, *b)).unwrap();
        self.assigned.remove(&task);
        self.updates += 1;
        let head = vec![7; self.below(200) as usize];
        let stdout = Captured { total_bytes: head.len() as u64, head, ..Captured::default() };
        let detail = Detail { stdout, value: vec![9], ..Detail::default() };
        let report = Report {
            instance: self.instance,
            first: TaskId(task),
            count: 1,
            tries,
            outcome,
            started: Time(self.now),
            ended: Time(self.now),
            detail: Some(Arc::new(detail)),
        };
        let update = Update { number: self.updates, reports: vec![report], ..Update::default() };
        self.tell(Event::Update { connection: EXECUTOR, update });
        true
    }

    fn do_one(&mut self) -> bool {
        let Some(action) = self.asked.pop_front() else { return false };
        match action {
            Action::StorePage { instance, from, page } => {
                let place = Some(self.write(page));
                self.tell(Event::PageStored { instance, from, place });
            }
            Action::LoadPage { instance, from, place } => {
                let page = Ok(self.disk[&place].clone());
                self.tell(Event::PageLoaded { instance, from, page });
            }
            other => panic!("not for a disk: {other:?}"),
        }
        true
    }

    /// The disk does all that it is asked for, which comes to an end.
    fn do_all(&mut self) {
        let mut done = 0;
        while self.do_one() {
            done += 1;
            assert!(done < DISK_ACTIONS_MAX, "the disk is asked for the same again and again");
        }
    }

    fn write(&mut self, page: Page) -> PagePlace {
        let place = PagePlace { file: 1, offset: self.next_place, bytes: 600 };
        self.next_place += 1;
        self.disk.insert(place, page);
        place
    }

    fn retry(&mut self, selection: Selection) -> Result<Retried, RequestError> {
        let instance = self.instance;
        self.tell(Event::Retry { connection: CLIENT, request: 4, instance, selection });
        match self.replies.pop_back() {
            Some(Reply::Retried(retried)) => Ok(retried),
            Some(Reply::Refused(error)) => Err(error),
            other => panic!("no answer: {other:?}"),
        }
    }

    fn subscribe(&mut self, connection: ConnectionId) {
        let (instance, from) =
            (self.instance, self.readers.entry(connection).or_default().position);
        self.tell(Event::Subscribe { connection, request: 2, instance, from });
    }

    fn tell(&mut self, event: Event) {
        self.now += 1;
        self.dispatcher.handle(Time(self.now), event);
        self.act();
    }

    fn act(&mut self) {
        let mut acknowledged = Vec::new();
        while let Some(action) = self.dispatcher.poll_action() {
            match action {
                Action::Journal(record) => self.journal.push(record),
                Action::Reply { reply, .. } => {
                    if let Reply::Created(id) = reply {
                        self.instance = id;
                    }
                    self.replies.push_back(reply);
                }
                Action::Deliver { connection, delivery } => {
                    let reader = self.readers.get_mut(&connection).unwrap();
                    assert_eq!(delivery.from, reader.position, "results are delivered in order");
                    for (first, count) in &delivery.again {
                        for task in *first..first + count {
                            reader.results.remove(&task);
                        }
                    }
                    for run in &delivery.results {
                        for task in run.first.0..run.first.0 + run.count {
                            let before = reader.results.insert(task, run.outcome);
                            assert_eq!(before, None, "task {task} ended twice for {connection:?}");
                        }
                    }
                    reader.position = delivery.upto;
                    reader.complete = delivery.complete;
                    acknowledged.push((connection, delivery.upto));
                }
                Action::Order { order, .. } => {
                    for assigned in order.assign {
                        for at in 0..assigned.count {
                            let task = assigned.first.0 + at;
                            let before = self.assigned.insert(task, assigned.tries);
                            assert_eq!(before, None, "task {task} runs twice at a time");
                        }
                    }
                    // A task that is to be cancelled ends, too: with its next report.
                }
                Action::DropPages { places } => {
                    places.iter().for_each(|place| drop(self.disk.remove(place)));
                }
                action @ (Action::StorePage { .. } | Action::LoadPage { .. }) => {
                    self.asked.push_back(action);
                }
                _ => {}
            }
        }
        self.dispatcher.check().unwrap();
        for (connection, upto) in acknowledged {
            let instance = self.instance;
            self.tell(Event::Acknowledge { connection, instance, upto });
        }
    }

    /// `kill -9`, and another dispatcher that reads the journal.
    fn restart(&mut self, compact: bool) {
        if compact {
            self.journal = self.dispatcher.snapshot();
        }
        self.asked.clear();
        self.readers.retain(|connection, _| *connection == READER);
        self.dispatcher = Dispatcher::new();
        self.dispatcher.page_results(BOUNDS);
        for record in self.journal.clone() {
            self.dispatcher.recover(record).unwrap();
            while let Some((instance, from, page)) = self.dispatcher.next_page() {
                let place = Some(self.write(page));
                self.dispatcher.handle(Time(self.now), Event::PageStored { instance, from, place });
            }
        }
        self.dispatcher.recovered(Time(self.now));
        let known: BTreeSet<PagePlace> = self.dispatcher.page_places().collect();
        self.disk.retain(|place, _| known.contains(place));
        self.act();
        self.join();
        self.subscribe(READER);
    }

    /// Everything runs to its end, well or not.
    fn settle(&mut self, outcome: Outcome) {
        loop {
            self.do_all();
            if !self.end_one(outcome) {
                return;
            }
        }
    }

    /// Those who have read all along and those who begin now know the same, and that is what the
    /// dispatcher counts.
    fn judge(&mut self) {
        self.do_all();
        let fresh = ConnectionId(self.next_reader);
        self.next_reader += 1;
        self.subscribe(fresh);
        self.do_all();
        let (all_along, now) = (&self.readers[&READER], &self.readers[&fresh]);
        for (task, outcome) in &all_along.results {
            // Who has read a result learns that it is replaced with the new one.
            let whereabouts = self.dispatcher.whereabouts(self.instance, TaskId(*task), 1);
            let word = whereabouts[0].word();
            let has_ended = matches!(word, "done" | "failed" | "cancelled" | "ended");
            let expected = has_ended.then_some(outcome);
            assert_eq!(now.results.get(task), expected, "task {task} is {word}");
        }
        assert!(now.results.keys().all(|task| all_along.results.contains_key(task)));
        assert_eq!(all_along.position, now.position);
        let view = self.dispatcher.instance_view(self.instance).unwrap();
        assert_eq!(view.results(), now.position);
        let count = |status| now.results.values().filter(|one| one.status() == status).count();
        let counts = view.counts();
        let told = [Status::Done, Status::Failed, Status::Cancelled].map(|one| count(one) as u64);
        assert_eq!([counts.done, counts.failed, counts.cancelled], told);
        let (complete, is_complete) = (now.complete, view.is_complete());
        assert_eq!(complete, is_complete);
        self.tell(Event::Closed { connection: fresh });
        self.readers.remove(&fresh);
    }

    fn step(&mut self) {
        let outcome = match self.below(3) {
            0 => Outcome::Exit(0),
            1 => Outcome::Exit(1),
            _ => Outcome::Signal(9),
        };
        match self.below(16) {
            0 | 1 if self.total < 60 => self.submit(),
            0..=6 => drop(self.end_one(outcome)),
            7 | 8 => drop(self.do_one()),
            9 if self.total > 0 => {
                let (first, count) = (self.below(self.total), 1 + self.below(5));
                let (instance, selection) = (self.instance, Selection::Runs(vec![(first, count)]));
                self.tell(Event::Cancel { connection: CLIENT, request: 3, instance, selection });
                self.replies.clear();
            }
            10 => {
                let failed = self.counts().failed;
                let retried = self.retry(Selection::All).unwrap();
                assert_eq!(retried, Retried { count: failed, forgotten: 0 });
            }
            11 | 12 if self.total > 0 => {
                let run = (self.below(self.total), 1 + self.below(20));
                let before = self.counts();
                let retried = self.retry(Selection::Runs(vec![run])).unwrap();
                assert!(retried.count <= before.failed + before.cancelled);
            }
            13 => self.restart(false),
            14 => self.restart(true),
            _ => self.judge(),
        }
    }

    fn counts(&self) -> falkon_core::result::Counts {
        self.dispatcher.instance_view(self.instance).unwrap().counts()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn readers_have_the_last_result_of_each_task(seed: u64) {
        let mut world = World::new(seed, true);
        for _ in 0..STEPS {
            world.step();
        }
        let instance = world.instance;
        world.tell(Event::Seal { connection: CLIENT, request: 5, instance });
        world.replies.clear();
        world.settle(Outcome::Exit(1));
        world.judge();
        // Those that were cancelled are named.
        let total = world.total;
        world.retry(Selection::Runs(vec![(0, u64::MAX)])).unwrap();
        world.restart(seed % 2 == 0);
        world.settle(Outcome::Exit(0));
        world.judge();
        let counts = world.counts();
        // What an executor had when a dispatcher was killed may have been lost too often.
        let retried = world.retry(Selection::All).unwrap();
        prop_assert_eq!(retried.count, counts.failed);
        world.settle(Outcome::Exit(0));
        world.judge();
        prop_assert_eq!(world.counts().done, total);
    }
}

#[test]
fn results_that_a_client_has_taken_over_are_not_replaced() {
    let mut world = World::new(1, false);
    world.submit();
    world.settle(Outcome::Exit(1));
    let refused = world.retry(Selection::All);
    assert_eq!(refused, Err(RequestError::ResultsNotKept(world.instance)));
}

#[test]
fn a_task_that_failed_with_another_waits_for_it_if_both_are_retried() {
    let mut world = World::new(1, true);
    let after = vec![After { offset: 1, tasks: vec![TaskId(0)], takes: 0 }];
    let template = Arc::new(vec![1]);
    let submission = Submission { template, after, ..array(2) };
    let (instance, first) = (world.instance, TaskId(0));
    world.total = 2;
    let event =
        Event::Submit { connection: CLIENT, request: 1, instance, first, client: 1, submission };
    world.tell(event);
    world.settle(Outcome::Exit(3));
    let results = |world: &World| world.readers[&READER].results.values().copied().collect();
    let failed: Vec<Outcome> = results(&world);
    assert_eq!(failed, [Outcome::Exit(3), Outcome::UpstreamFailed(TaskId(0))]);
    // Alone, it fails again: what it waits for has not changed.
    assert_eq!(world.retry(Selection::Runs(vec![(1, 1)])).unwrap().count, 1);
    world.settle(Outcome::Exit(0));
    assert_eq!(results(&world), failed);
    assert_eq!(world.retry(Selection::All).unwrap().count, 2);
    assert_eq!(world.assigned.keys().copied().collect::<Vec<_>>(), [0]);
    world.settle(Outcome::Exit(0));
    let done: Vec<Outcome> = results(&world);
    assert_eq!(done, [Outcome::Exit(0), Outcome::Exit(0)]);
    let retried: Vec<&Record> =
        world.journal.iter().filter(|one| matches!(one, Record::Retried { .. })).collect();
    assert_eq!(retried.len(), 2);
    world.judge();
}
