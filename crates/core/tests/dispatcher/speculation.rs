//! Tasks that take far longer than their like: who gets a second try, and what becomes of both.

use crate::fixture::{actions, array, executor};
use falkon_core::data::declared::{Declared, Lists};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::dispatch::{
    Action, ConnectionId, Delivery, Dispatcher, Event, Held, InstanceOptions, Join, Record, Reply,
    RequestError, Selection, Update, Whereabouts,
};
use falkon_core::limits::COPY_OF_EXECUTORS;
use falkon_core::result::{Finished, Outcome, Report, Tries};
use falkon_core::task::{
    Everywhere, ExecutorId, InstanceId, Resources, Submission, SubmissionError, SubmissionPart,
    TaskClass, TaskId, Time,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const CLIENT: ConnectionId = ConnectionId(0);
const SECOND: u64 = 1_000_000;
/// How long the tasks run that do not straggle.
const USUAL: u64 = 2 * SECOND;

/// A task as an executor has it.
type Have = (InstanceId, u64, Tries);

struct World {
    dispatcher: Dispatcher,
    now: Time,
    journal: Vec<Record>,
    /// By executor: the number of its last update.
    updates: BTreeMap<u64, u64>,
    held: BTreeMap<u64, BTreeSet<Have>>,
    disowned: Vec<(u64, u64)>,
    cancelled: Vec<(u64, u64)>,
    results: Vec<Finished>,
    refused: Vec<RequestError>,
}

impl World {
    fn new(executors: u64, cpus: u32) -> World {
        let mut world = World {
            dispatcher: Dispatcher::new(),
            now: Time(0),
            journal: Vec::new(),
            updates: BTreeMap::new(),
            held: BTreeMap::new(),
            disowned: Vec::new(),
            cancelled: Vec::new(),
            results: Vec::new(),
            refused: Vec::new(),
        };
        (1..=executors).for_each(|number| world.join(executor(number, cpus)));
        world
    }

    fn create(&mut self) -> InstanceId {
        let id = self.dispatcher.next_instance();
        let options = InstanceOptions::default();
        self.handle(Event::Create { connection: CLIENT, request: 0, options });
        let from = 0;
        self.handle(Event::Subscribe { connection: CLIENT, request: 0, instance: id, from });
        id
    }

    fn join(&mut self, join: Join) {
        self.updates.insert(join.incarnation, 0);
        self.held.entry(join.incarnation).or_default();
        self.handle(Event::Join { connection: ConnectionId(join.incarnation), join });
    }

    fn handle(&mut self, event: Event) {
        self.dispatcher.handle(self.now, event);
        self.act();
    }

    fn act(&mut self) {
        for action in actions(&mut self.dispatcher) {
            match action {
                Action::Journal(record) => self.journal.push(record),
                Action::Reply { reply: Reply::Refused(error), .. } => self.refused.push(error),
                Action::Deliver { delivery: Delivery { results, .. }, .. } => {
                    self.results.extend(results);
                }
                Action::Order { connection: ConnectionId(to), order } => {
                    let mine = self.held.entry(to).or_default();
                    for run in &order.assign {
                        for task in run.first.0..run.first.0 + run.count {
                            mine.insert((run.instance, task, run.tries));
                        }
                    }
                    for held in &order.disown {
                        mine.remove(&(held.instance, held.first.0, held.tries));
                        self.disowned.push((to, held.first.0));
                    }
                    self.cancelled.extend(order.cancel.iter().map(|held| (to, held.first.0)));
                }
                _ => {}
            }
        }
    }

    fn submit(&mut self, instance: InstanceId, first: u64, submission: Submission) {
        let first = TaskId(first);
        let (client, connection, request) = (1, CLIENT, 1);
        self.handle(Event::Submit { client, connection, request, instance, first, submission });
    }

    fn update(&mut self, executor: u64, update: Update) {
        let number = self.updates.get_mut(&executor).unwrap();
        *number += 1;
        let update = Update { number: *number, ..update };
        self.handle(Event::Update { connection: ConnectionId(executor), update });
    }

    /// Time passes, and executors send heartbeats.
    fn pass(&mut self, mut micros: u64) {
        while micros > 0 {
            let step = micros.min(SECOND / 4);
            micros -= step;
            self.now = self.now.after(step);
            let all: Vec<u64> = self.updates.keys().copied().collect();
            all.into_iter().for_each(|executor| self.update(executor, Update::default()));
            self.dispatcher.handle_timeout(self.now);
            self.act();
        }
    }

    /// Who has a task.
    fn holders(&self, id: InstanceId, task: u64) -> Vec<u64> {
        let has = |held: &BTreeSet<Have>| held.iter().any(|one| (one.0, one.1) == (id, task));
        self.held.iter().filter(|(_, held)| has(held)).map(|(executor, _)| *executor).collect()
    }

    fn end(&mut self, executor: u64, id: InstanceId, task: u64, outcome: Outcome) {
        let mine = self.held.get_mut(&executor).unwrap();
        let have = *mine.iter().find(|one| (one.0, one.1) == (id, task)).expect("it has the task");
        mine.remove(&have);
        let reports = vec![self.report(have, outcome)];
        self.update(executor, Update { reports, ..Update::default() });
    }

    fn report(&self, (instance, task, tries): Have, outcome: Outcome) -> Report {
        Report {
            instance,
            first: TaskId(task),
            count: 1,
            tries,
            outcome,
            started: Time(self.now.0.saturating_sub(USUAL)),
            ended: self.now,
            detail: None,
        }
    }

    /// Ends all tasks that executors have, but for these, until there are no others.
    fn end_all_but(&mut self, id: InstanceId, others: &[u64]) {
        loop {
            let held = self.held.iter().flat_map(|(executor, held)| {
                held.iter().map(|(instance, task, _)| (*executor, *instance, *task))
            });
            let usual: Vec<_> = held
                .filter(|(_, instance, task)| *instance == id && !others.contains(task))
                .collect();
            if usual.is_empty() {
                return;
            }
            self.pass(USUAL);
            for (executor, _, task) in usual {
                self.end(executor, id, task, Outcome::Exit(0));
            }
        }
    }

    /// The results of a task: outcome, executor, attempts.
    fn ends(&self, task: u64) -> Vec<(Outcome, u64, u32)> {
        let of = |run: &&Finished| (run.first.0..run.first.0 + run.count).contains(&task);
        let found = self.results.iter().filter(of);
        found.map(|run| (run.outcome, run.executor.map_or(0, |id| id.0), run.attempts)).collect()
    }

    /// A new dispatcher that knows the journal.
    fn restart(&mut self) {
        let mut dispatcher = Dispatcher::new();
        for record in &self.journal {
            dispatcher.recover(record.clone()).unwrap();
        }
        dispatcher.recovered(self.now);
        self.dispatcher = dispatcher;
        self.updates.clear();
        self.act();
    }

    /// An executor comes back with what it has.
    fn come_back(&mut self, number: u64, cpus: u32) {
        let held = self.held[&number].iter().map(|(instance, task, tries)| Held {
            instance: *instance,
            first: TaskId(*task),
            count: 1,
            tries: *tries,
        });
        let held = held.collect();
        self.join(Join { held, ..executor(number, cpus) });
    }
}

fn class() -> TaskClass {
    TaskClass { speculate: true, ..TaskClass::default() }
}

fn of(class: TaskClass, count: u64) -> Submission {
    Submission { classes: vec![class], ..array(count) }
}

/// Six executors of one CPU and twelve tasks, of which the first one straggles; who has it and
/// who was sent it as well.
fn straggling(class: TaskClass) -> (World, InstanceId, u64, u64) {
    let mut world = World::new(6, 1);
    let id = world.create();
    world.submit(id, 0, of(class, 12));
    let [first] = world.holders(id, 0)[..] else { panic!("task 0 was sent to one executor") };
    world.end_all_but(id, &[0]);
    world.pass(3 * USUAL + 2 * SECOND);
    let holders = world.holders(id, 0);
    assert_eq!(holders.len(), 2, "a straggler runs twice: {holders:?}");
    let copy = holders.into_iter().find(|executor| *executor != first).unwrap();
    (world, id, first, copy)
}

#[test]
fn the_first_result_counts_and_the_other_try_is_stopped() {
    let (mut world, id, first, copy) = straggling(class());
    let [have] = world.held[&first].iter().copied().collect::<Vec<_>>()[..] else {
        panic!("it has the task");
    };
    world.end(copy, id, 0, Outcome::Exit(0));
    assert_eq!(world.disowned, [(first, 0)]);
    assert_eq!(world.ends(0), [(Outcome::Exit(0), copy - 1, 1)]);
    // It had ended there when it was to be stopped.
    let reports = vec![world.report(have, Outcome::Exit(0))];
    world.update(first, Update { reports, ..Update::default() });
    assert_eq!(world.ends(0).len(), 1);
    // The other way round.
    let (mut world, id, first, copy) = straggling(class());
    world.end(first, id, 0, Outcome::Exit(0));
    assert_eq!(world.disowned, [(copy, 0)]);
    assert_eq!(world.ends(0), [(Outcome::Exit(0), first - 1, 1)]);
    let all = world.dispatcher.executor_views();
    assert!(all.into_iter().all(|view| view.free() == &Resources::cpus(1)));
}

#[test]
fn without_the_option_nothing_runs_twice() {
    let mut world = World::new(6, 1);
    let id = world.create();
    world.submit(id, 0, of(TaskClass::default(), 12));
    world.end_all_but(id, &[0]);
    world.pass(60 * SECOND);
    assert_eq!(world.holders(id, 0).len(), 1);
    assert_eq!(world.dispatcher.poll_timeout().filter(|(_, why)| *why == "stragglers"), None);
}

#[test]
fn a_try_that_fails_leaves_the_task_to_the_other_one() {
    // Whichever of them fails first: it does not count.
    for fails_first in [false, true] {
        let (mut world, id, first, copy) = straggling(TaskClass { retries: 1, ..class() });
        let (fails, goes_on) = if fails_first { (first, copy) } else { (copy, first) };
        world.end(fails, id, 0, Outcome::Exit(1));
        assert_eq!((world.holders(id, 0), world.ends(0)), (vec![goes_on], vec![]));
        // The failure of the one that is left counts once: it is tried again, and once more.
        world.end(goes_on, id, 0, Outcome::Exit(2));
        let [again] = world.holders(id, 0)[..] else { panic!("the task is tried again") };
        world.end(again, id, 0, Outcome::Exit(3));
        assert_eq!(world.ends(0), [(Outcome::Exit(3), again - 1, 2)]);
    }
}

#[test]
fn a_lost_executor_loses_no_task_that_goes_on_elsewhere() {
    for loses_first in [false, true] {
        let (mut world, id, first, copy) = straggling(class());
        let (lost, goes_on) = if loses_first { (first, copy) } else { (copy, first) };
        world.updates.remove(&lost);
        world.held.remove(&lost);
        world.handle(Event::Closed { connection: ConnectionId(lost) });
        world.pass(100 * SECOND);
        assert_eq!(world.dispatcher.executor_views().count(), 5, "it is given up");
        assert!(world.holders(id, 0).contains(&goes_on));
        world.end(goes_on, id, 0, Outcome::Exit(0));
        assert_eq!(world.ends(0), [(Outcome::Exit(0), goes_on - 1, 1)], "nothing was lost");
    }
}

#[test]
fn a_cancelled_task_is_stopped_at_both() {
    let (mut world, id, first, copy) = straggling(class());
    let selection = Selection::All;
    world.handle(Event::Cancel { connection: CLIENT, request: 1, instance: id, selection });
    assert_eq!((&world.disowned[..], &world.cancelled[..]), (&[(copy, 0)][..], &[(first, 0)][..]));
    world.end(first, id, 0, Outcome::Cancelled);
    assert_eq!(world.ends(0), [(Outcome::Cancelled, first - 1, 1)]);
}

#[test]
fn a_destroyed_instance_leaves_neither_try() {
    let (mut world, id, first, copy) = straggling(class());
    world.handle(Event::Destroy { connection: CLIENT, request: 1, instance: id });
    world.disowned.sort_unstable();
    let mut both = [(first, 0), (copy, 0)];
    both.sort_unstable();
    assert_eq!(world.disowned, both);
    assert_eq!(world.dispatcher.poll_timeout().filter(|(_, why)| *why == "stragglers"), None);
}

#[test]
fn a_dispatcher_that_comes_back_keeps_one_try() {
    for first_comes_first in [false, true] {
        let (mut world, id, first, copy) = straggling(class());
        world.restart();
        let mut order: Vec<u64> = (1..=6).filter(|one| ![first, copy].contains(one)).collect();
        let (earlier, later) = if first_comes_first { (first, copy) } else { (copy, first) };
        order.extend([earlier, later]);
        order.into_iter().for_each(|number| world.come_back(number, 1));
        assert_eq!(world.disowned, [(later, 0)], "the one that comes later is not known");
        world.handle(Event::Subscribe { connection: CLIENT, request: 0, instance: id, from: 0 });
        world.end(earlier, id, 0, Outcome::Exit(0));
        let ends: Vec<_> =
            world.ends(0).iter().map(|(outcome, _, tries)| (*outcome, *tries)).collect();
        assert_eq!(ends, [(Outcome::Exit(0), 1)]);
    }
}

#[test]
fn an_executor_that_connects_anew_keeps_its_try() {
    let (mut world, id, first, copy) = straggling(class());
    world.handle(Event::Closed { connection: ConnectionId(copy) });
    world.come_back(copy, 1);
    assert_eq!((world.disowned.len(), world.holders(id, 0).len()), (0, 2));
    world.end(first, id, 0, Outcome::Exit(0));
    assert_eq!(world.disowned, [(copy, 0)]);
    assert_eq!(world.ends(0).len(), 1);
}

#[test]
fn a_copy_takes_no_room_that_another_task_waits_for() {
    let mut world = World::new(2, 2);
    let (id, others) = (world.create(), world.create());
    world.submit(id, 0, of(class(), 12));
    let [first] = world.holders(id, 0)[..] else { panic!("task 0 was sent to one executor") };
    world.end_all_but(id, &[0]);
    // One that runs where a copy could, and one that waits for both CPUs there.
    world.submit(others, 0, array(1));
    let wide = TaskClass { resources: Resources::cpus(2), ..TaskClass::default() };
    world.submit(others, 1, of(wide, 1));
    world.pass(20 * SECOND);
    assert_eq!(world.holders(id, 0), [first], "another task waits");
    let selection = Selection::Runs(vec![(1, 1)]);
    world.handle(Event::Cancel { connection: CLIENT, request: 1, instance: others, selection });
    world.pass(2 * SECOND);
    assert_eq!(world.holders(id, 0), [1, 2]);
}

#[test]
fn a_paused_instance_and_a_drained_executor_have_no_copies() {
    let mut world = World::new(2, 1);
    let id = world.create();
    world.submit(id, 0, of(class(), 12));
    let [first] = world.holders(id, 0)[..] else { panic!("task 0 was sent to one executor") };
    world.end_all_but(id, &[0]);
    let pause =
        |is_paused| Event::Pause { connection: CLIENT, request: 1, instance: id, is_paused };
    let other = ExecutorId(2 - first);
    let drain =
        |is_drained| Event::Drain { connection: CLIENT, request: 1, executor: other, is_drained };
    world.handle(pause(true));
    world.pass(20 * SECOND);
    assert_eq!(world.holders(id, 0), [first]);
    world.handle(drain(true));
    world.handle(pause(false));
    world.pass(20 * SECOND);
    assert_eq!(world.holders(id, 0), [first]);
    world.handle(drain(false));
    world.pass(2 * SECOND);
    assert_eq!(world.holders(id, 0), [1, 2]);
}

#[test]
fn a_share_of_the_executors_have_copies() {
    let mut world = World::new(16, 1);
    let id = world.create();
    world.submit(id, 0, of(class(), 64));
    let slow: Vec<u64> = (0..7).collect();
    world.end_all_but(id, &slow);
    world.pass(30 * SECOND);
    let twice = slow.iter().filter(|task| world.holders(id, **task).len() == 2).count() as u64;
    assert_eq!(twice, 16 / COPY_OF_EXECUTORS);
    // People are shown the first try of each.
    let places = world.dispatcher.whereabouts(id, TaskId(0), 7);
    let running = places.iter().filter(|place| matches!(place, Whereabouts::Running(_))).count();
    assert_eq!((running, world.dispatcher.begun()[&id].running), (7, 7));
}

#[test]
fn an_attempt_is_copied_to_each_executor_once() {
    let (mut world, id, first, copy) = straggling(class());
    let mut tried = BTreeSet::from([first, copy]);
    let mut copy = copy;
    for _ in 0..2 {
        world.end(copy, id, 0, Outcome::Exit(1));
        world.pass(2 * SECOND);
        let holders = world.holders(id, 0);
        copy = *holders.iter().find(|executor| **executor != first).expect("another copy");
        assert!(tried.insert(copy), "executor {copy} tried it before");
    }
    world.end(copy, id, 0, Outcome::Exit(1));
    world.pass(20 * SECOND);
    assert_eq!(world.holders(id, 0), [first], "three copies are enough");
}

#[test]
fn what_cannot_run_twice_is_refused() {
    let mut world = World::new(2, 1);
    let id = world.create();
    let written = |url: &str| {
        let object = Object { id: ObjectId(1), url: url.into(), version: "v".into(), size: None };
        let objects = Arc::new(vec![object]);
        let (inputs, outputs) = (Lists::default(), Lists::Same(vec![0]));
        let data = Some(Arc::new(Declared { objects, inputs, outputs }));
        Submission { data, ..of(class(), 1) }
    };
    for submission in [
        of(TaskClass { nodes: 2, ..class() }, 1),
        Submission { everywhere: Some(Everywhere::default()), ..of(class(), 1) },
        written("cache:left"),
        written("/results/all.zip!one"),
    ] {
        world.submit(id, 0, submission);
        let malformed = SubmissionError::Malformed(SubmissionPart::Speculation);
        assert_eq!(world.refused.pop(), Some(RequestError::Submission(malformed)));
    }
    world.submit(id, 0, written("/results/one"));
    assert_eq!(world.refused, []);
}
