//! Doubted signals, against a reference model: in a scheduler's job the end of a
//! task by SIGTERM or SIGKILL is reported when the executor has outlived it, any
//! other at once, each once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use falkon_core::dispatch::{Assigned, BatchId, Held, Lease, Order, Prepare};
use falkon_core::execute::{Action, Event, Executor, TaskKey};
use falkon_core::limits::{DOUBT_MICROS, LEAVE_ALONE_MICROS_MAX, REPORTS_APART_MICROS};
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{AllocationId, InstanceId, Resources, Rows, TaskClass, TaskId, Time};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const INSTANCE: InstanceId = InstanceId(1);
const OUTCOMES: [Outcome; 6] = [
    Outcome::Exit(0),
    Outcome::Exit(1),
    Outcome::Signal(9),
    Outcome::Signal(11),
    Outcome::Signal(15),
    Outcome::Signal(2),
];

#[derive(Debug, Clone)]
enum Step {
    /// A session begins, by a clock that is ahead by so much.
    Connect(u64),
    Disconnect,
    Assign(u64),
    /// One of the processes ends in one of [`OUTCOMES`].
    End(prop::sample::Index, usize),
    /// A task is cancelled.
    Cancel(prop::sample::Index),
}

/// What the model knows of a task's end.
#[derive(Debug, Clone, Copy)]
struct End {
    /// It is reported from then on.
    believed: u64,
    outcome: Outcome,
}

struct World {
    now: u64,
    in_job: bool,
    machine: Executor,
    next_task: u64,
    connected: bool,
    /// Processes, and those that are started when another ends.
    processes: BTreeMap<u64, Option<u64>>,
    ends: BTreeMap<u64, End>,
    reported: BTreeMap<u64, Outcome>,
}

fn key(task: u64) -> TaskKey {
    TaskKey { instance: INSTANCE, task: TaskId(task) }
}

impl World {
    fn new(in_job: bool) -> World {
        World {
            now: 1,
            in_job,
            machine: Executor::new(1, "node".to_owned(), Resources::cpus(2)),
            next_task: 0,
            connected: false,
            processes: BTreeMap::new(),
            ends: BTreeMap::new(),
            reported: BTreeMap::new(),
        }
    }

    /// A process is gone; what was to come after it comes after what it came
    /// after itself, or starts.
    fn remove(&mut self, task: u64) -> bool {
        let Some(after) = self.processes.remove(&task) else { return false };
        for before in self.processes.values_mut().filter(|before| **before == Some(task)) {
            *before = after;
        }
        true
    }

    /// The model's view of an end that the machine takes in now.
    fn expect(&mut self, task: u64, outcome: Outcome) {
        let of_job = matches!(outcome, Outcome::Signal(9 | 15));
        let delay = if self.in_job && of_job { DOUBT_MICROS } else { 0 };
        self.ends.insert(task, End { believed: self.now + delay, outcome });
    }

    fn pump(&mut self) {
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Join(join) => self.take_in(0, &join.reports),
                Action::Update(update) => self.take_in(update.number, &update.reports),
                Action::Start(start) => {
                    let after = start.after.map(|before| before.task.0);
                    let after = after.filter(|before| self.processes.contains_key(before));
                    self.processes.insert(start.key.task.0, after);
                }
                Action::TakeBack(found)
                    if self.processes.get(&found.task.0).is_some_and(Option::is_some) =>
                {
                    self.remove(found.task.0);
                    self.handle_at_once(Event::TakenBack(found));
                }
                Action::Kill { key: found, .. } => match self.processes.get(&found.task.0) {
                    Some(Some(_)) => {
                        self.remove(found.task.0);
                        self.handle_at_once(Event::TakenBack(found));
                    }
                    Some(None) => {
                        self.remove(found.task.0);
                        self.handle_at_once(self.ended(found.task.0, Outcome::Signal(15)));
                    }
                    None => {}
                },
                _ => {}
            }
        }
        self.machine.check().unwrap();
        for (task, end) in &self.ends {
            let reported = self.reported.get(task);
            if let Some(outcome) = reported {
                assert!(end.believed <= self.now, "task {task} is reported early: {end:?}");
                assert_eq!(*outcome, end.outcome, "task {task}");
                continue;
            }
            let late = end.believed + REPORTS_APART_MICROS <= self.now && self.connected;
            assert!(!late, "task {task} is not reported at {}: {end:?}", self.now);
            if end.believed > self.now {
                let (at, _) = self.machine.poll_timeout().unwrap();
                assert!(at.0 <= end.believed, "it sleeps until {at:?}: {end:?}");
            }
        }
        let unknown = self.reported.keys().find(|task| !self.ends.contains_key(task));
        assert_eq!(unknown, None, "a task is reported that has not ended");
    }

    /// Takes in the reports of update `number`.
    fn take_in(&mut self, number: u64, reports: &[Report]) {
        for report in reports {
            for task in report.first.0..report.first.0 + report.count {
                let before = self.reported.insert(task, report.outcome);
                assert_eq!(before, None, "task {task} is reported twice");
            }
        }
        self.handle_at_once(Event::Order(Order { acknowledged: number, ..Order::default() }));
    }

    fn ended(&self, task: u64, outcome: Outcome) -> Event {
        let now = Time(self.now);
        Event::Ended { key: key(task), outcome, started: now, ended: now, detail: None }
    }

    fn handle_at_once(&mut self, event: Event) {
        self.machine.handle(Time(self.now), event);
    }

    fn handle(&mut self, event: Event) {
        self.handle_at_once(event);
        self.pump();
    }

    fn connect(&mut self, ahead: u64) {
        self.now += ahead;
        self.connected = true;
        for (task, end) in &mut self.ends {
            if !self.reported.contains_key(task) && end.believed + ahead > self.now {
                end.believed = self.now + DOUBT_MICROS;
            }
        }
        let allocation = self.in_job.then_some(AllocationId(1));
        self.handle_at_once(Event::Lease(Lease { allocation, ..Lease::default() }));
        self.handle(Event::Connected);
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Connect(ahead) => self.connect(*ahead),
            Step::Disconnect => {
                self.connected = false;
                self.handle(Event::Disconnected);
            }
            Step::End(index, how) => {
                let started = self.processes.iter().filter(|(_, after)| after.is_none());
                let started: Vec<u64> = started.map(|(task, _)| *task).collect();
                if !started.is_empty() {
                    let (task, outcome) = (*index.get(&started), OUTCOMES[*how]);
                    self.remove(task);
                    self.expect(task, outcome);
                    self.handle(self.ended(task, outcome));
                }
            }
            Step::Assign(count) if self.connected => {
                let first = self.next_task;
                self.next_task += count;
                self.handle(Event::Order(assigned(first, *count)));
            }
            Step::Cancel(index) if self.connected && self.next_task > 0 => {
                let task = index.index(self.next_task as usize) as u64;
                let is_open = !self.reported.contains_key(&task);
                match self.ends.get_mut(&task) {
                    // Doubted ends are still news.
                    Some(end) if is_open && end.believed > self.now => {
                        end.outcome = Outcome::Cancelled;
                    }
                    Some(_) => {}
                    None => {
                        let (believed, outcome) = (self.now, Outcome::Cancelled);
                        self.ends.insert(task, End { believed, outcome });
                    }
                }
                let (first, tries) = (TaskId(task), Tries::default());
                let cancel = vec![Held { instance: INSTANCE, first, count: 1, tries }];
                self.handle(Event::Order(Order { cancel, ..Order::default() }));
            }
            Step::Assign(_) | Step::Cancel(_) => {}
        }
    }

    /// Time passes: what is due happens when it is.
    fn pass(&mut self, micros: u64) {
        let until = self.now + micros;
        while let Some((at, _)) = self.machine.poll_timeout()
            && at.0 <= until
        {
            self.now = self.now.max(at.0);
            self.machine.handle_timeout(Time(self.now));
            self.pump();
        }
        self.now = until;
    }
}

fn assigned(first: u64, count: u64) -> Order {
    let batch = BatchId(first + 1);
    let classes = vec![TaskClass::default()];
    Order {
        prepare: vec![Prepare { batch, template: Arc::new(Vec::new()), classes }],
        assign: vec![Assigned {
            data: None,
            batch,
            instance: INSTANCE,
            first: TaskId(first),
            count,
            class: 0,
            tries: Tries::default(),
            rows: Rows::Computed { factors: Vec::new(), offset: first },
        }],
        forget: vec![batch],
        ..Order::default()
    }
}

fn step() -> impl Strategy<Value = Step> {
    use prop::sample::Index;
    prop_oneof![
        1 => prop_oneof![Just(0), 0..1_000_000u64].prop_map(Step::Connect),
        1 => Just(Step::Disconnect),
        3 => (1..5u64).prop_map(Step::Assign),
        6 => (any::<Index>(), 0..OUTCOMES.len()).prop_map(|(at, how)| Step::End(at, how)),
        1 => any::<Index>().prop_map(Step::Cancel),
    ]
}

proptest! {
    #[test]
    fn ends_by_a_job_s_signals_are_reported_when_they_were_outlived(
        in_job in prop::bool::weighted(0.8),
        steps in prop::collection::vec((step(), prop_oneof![Just(0), 0..400_000u64]), 1..60),
    ) {
        let mut world = World::new(in_job);
        world.connect(0);
        for (step, pause) in steps {
            world.take(&step);
            world.pass(pause);
        }
        world.connect(0);
        world.pass(DOUBT_MICROS + REPORTS_APART_MICROS);
        for task in world.ends.keys() {
            prop_assert!(world.reported.contains_key(task), "task {} is never reported", task);
        }
    }
}

/// A job that is ended: its tasks, then its executor before it believes them.
#[test]
fn what_a_scheduler_ends_with_its_job_is_no_result() {
    let mut world = World::new(true);
    world.connect(0);
    world.take(&Step::Assign(2));
    for task in 0..2 {
        world.remove(task);
        world.expect(task, Outcome::Signal(15));
        world.handle(world.ended(task, Outcome::Signal(15)));
    }
    world.pass(DOUBT_MICROS - 1);
    assert!(world.reported.is_empty(), "{:?}", world.reported);
    assert!(!world.machine.is_idle(), "its tasks are still its own");
}

/// It leaves, its dispatcher is away, and the last end is believed meanwhile.
#[test]
fn doubt_keeps_an_executor_that_leaves_no_longer_than_it_lasts() {
    let mut world = World::new(true);
    world.connect(0);
    world.take(&Step::Assign(1));
    world.take(&Step::Disconnect);
    world.handle(Event::Leave);
    world.remove(0);
    world.expect(0, Outcome::Signal(9));
    world.handle(world.ended(0, Outcome::Signal(9)));
    let mut due = Vec::new();
    while let Some((at, _)) = world.machine.poll_timeout() {
        due.push(at.0 - world.now);
        world.machine.handle_timeout(at);
        if std::iter::from_fn(|| world.machine.poll_action()).any(|one| one == Action::Left) {
            break;
        }
    }
    assert_eq!(due, [DOUBT_MICROS, DOUBT_MICROS + LEAVE_ALONE_MICROS_MAX]);
}
