//! Doubted signals, against a reference model: in a scheduler's job the end of a
//! task by SIGTERM or SIGKILL is reported when the executor has outlived it, any
//! other at once, each once.

use crate::shell::{INSTANCE, Shell};
use falkon_core::dispatch::{Held, Lease, Order};
use falkon_core::execute::{Action, Event, Executor};
use falkon_core::limits::{DOUBT_MICROS, LEAVE_ALONE_MICROS_MAX, REPORTS_APART_MICROS};
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{AllocationId, Resources, TaskClass, TaskId};
use proptest::prelude::*;
use std::collections::BTreeMap;

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
    shell: Shell,
    in_job: bool,
    connected: bool,
    ends: BTreeMap<u64, End>,
    reported: BTreeMap<u64, Outcome>,
}

impl World {
    fn new(in_job: bool) -> World {
        World {
            shell: Shell::new(Executor::new(1, "node".to_owned(), Resources::cpus(2))),
            in_job,
            connected: false,
            ends: BTreeMap::new(),
            reported: BTreeMap::new(),
        }
    }

    /// A process ends, which the machine takes in now.
    fn end(&mut self, task: u64, outcome: Outcome) {
        let of_job = matches!(outcome, Outcome::Signal(9 | 15));
        let delay = if self.in_job && of_job { DOUBT_MICROS } else { 0 };
        self.ends.insert(task, End { believed: self.shell.now + delay, outcome });
        self.shell.end(task, outcome);
        self.pump();
    }

    fn pump(&mut self) {
        while let Some(action) = self.shell.poll() {
            match action {
                Action::Join(join) => self.take_in(0, &join.reports),
                Action::Update(update) => self.take_in(update.number, &update.reports),
                _ => {}
            }
        }
        self.shell.machine.check().unwrap();
        for (task, end) in &self.ends {
            let reported = self.reported.get(task);
            if let Some(outcome) = reported {
                assert!(end.believed <= self.shell.now, "task {task} is reported early: {end:?}");
                assert_eq!(*outcome, end.outcome, "task {task}");
                continue;
            }
            let late = end.believed + REPORTS_APART_MICROS <= self.shell.now && self.connected;
            assert!(!late, "task {task} is not reported at {}: {end:?}", self.shell.now);
            if end.believed > self.shell.now {
                let (at, _) = self.shell.machine.poll_timeout().unwrap();
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
        self.shell.handle(Event::Order(Order { acknowledged: number, ..Order::default() }));
    }

    fn handle(&mut self, event: Event) {
        self.shell.handle(event);
        self.pump();
    }

    fn connect(&mut self, ahead: u64) {
        self.shell.now += ahead;
        self.connected = true;
        for (task, end) in &mut self.ends {
            if !self.reported.contains_key(task) && end.believed + ahead > self.shell.now {
                end.believed = self.shell.now + DOUBT_MICROS;
            }
        }
        let allocation = self.in_job.then_some(AllocationId(1));
        self.shell.handle(Event::Lease(Lease { allocation, ..Lease::default() }));
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
                let running = self.shell.running();
                if !running.is_empty() {
                    self.end(*index.get(&running), OUTCOMES[*how]);
                }
            }
            Step::Assign(count) if self.connected => {
                let (_, order) = self.shell.assign(*count, TaskClass::default());
                self.handle(Event::Order(order));
            }
            Step::Cancel(index) if self.connected && self.shell.assigned() > 0 => {
                let task = index.index(self.shell.assigned() as usize) as u64;
                let is_open = !self.reported.contains_key(&task);
                match self.ends.get_mut(&task) {
                    // Doubted ends are still news.
                    Some(end) if is_open && end.believed > self.shell.now => {
                        end.outcome = Outcome::Cancelled;
                    }
                    Some(_) => {}
                    None => {
                        let (believed, outcome) = (self.shell.now, Outcome::Cancelled);
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
        let until = self.shell.now + micros;
        while self.shell.passes_to_due(until) {
            self.pump();
        }
        self.shell.now = until;
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
        world.end(task, Outcome::Signal(15));
    }
    world.pass(DOUBT_MICROS - 1);
    assert!(world.reported.is_empty(), "{:?}", world.reported);
    assert!(!world.shell.machine.is_idle(), "its tasks are still its own");
}

/// It leaves, its dispatcher is away, and the last end is believed meanwhile.
#[test]
fn doubt_keeps_an_executor_that_leaves_no_longer_than_it_lasts() {
    let mut world = World::new(true);
    world.connect(0);
    world.take(&Step::Assign(1));
    world.take(&Step::Disconnect);
    world.handle(Event::Leave);
    world.end(0, Outcome::Signal(9));
    assert_eq!(
        world.shell.timeouts_to_the_end(),
        [DOUBT_MICROS, DOUBT_MICROS + LEAVE_ALONE_MICROS_MAX]
    );
}
