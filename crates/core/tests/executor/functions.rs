//! Functions in an executor: bundles of calls against a plain model of workers
//! that are slow, die and give calls back.

use crate::shell::{INSTANCE, order};
use falkon_core::dispatch::{Held, Order};
use falkon_core::execute::{Action, Event, Executor, Start, TaskKey};
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{Kind, Resources, Rows, TaskClass, TaskId, Time};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter::once;

/// A bundle with a worker: its calls that have not ended.
type Bundle = VecDeque<u64>;

struct World {
    now: u64,
    machine: Executor,
    bundles: Vec<Bundle>,
    /// Ended, by the machine's reports.
    reported: BTreeMap<u64, Outcome>,
    returned: BTreeSet<u64>,
    largest: u64,
}

/// Tasks of one batch in pieces of this length: every other one, and then the
/// rest.
fn assigned(first: u64, count: u64, timeout: bool, piece: u64) -> Order {
    let class = TaskClass {
        kind: Kind::Function,
        timeout_micros: if timeout { 20_000 } else { 0 },
        ..TaskClass::default()
    };
    let pieces: Vec<u64> = (first..first + count).step_by(piece as usize).collect();
    let (even, odd): (Vec<_>, Vec<_>) =
        pieces.into_iter().partition(|at| ((at - first) / piece).is_multiple_of(2));
    let run = |at| (at, piece.min(first + count - at));
    order(class, even.into_iter().chain(odd).map(run).collect())
}

impl World {
    fn new(slots: u32) -> World {
        let machine = Executor::new(1, "here".to_owned(), Resources::cpus(slots));
        let mut world = World {
            now: 1,
            machine,
            bundles: Vec::new(),
            reported: BTreeMap::new(),
            returned: BTreeSet::new(),
            largest: 0,
        };
        world.handle(Event::Connected);
        world
    }

    fn handle(&mut self, event: Event) {
        self.machine.handle(Time(self.now), event);
        self.pump();
    }

    fn pump(&mut self) {
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Start(start) => self.start(&start),
                Action::Kill { key, .. } => self.kill(key.task.0),
                Action::Update(update) => {
                    self.hear(&update.reports, update.number);
                    for held in update.returned {
                        self.returned.extend(held.first.0..held.first.0 + held.count);
                    }
                }
                Action::Join(join) => self.hear(&join.reports, 0),
                Action::TakeBack(key) => panic!("no function waits, but {key:?} is taken back"),
                Action::Prepare { .. }
                | Action::Forget(_)
                | Action::Stage(_)
                | Action::Peers(_)
                | Action::Clear(_)
                | Action::Discard(_)
                | Action::Collect(_)
                | Action::VisitEnded(..)
                | Action::Gang(_)
                | Action::Left => {}
            }
        }
        self.machine.check().unwrap();
    }

    /// Takes in the reports of update `number`.
    fn hear(&mut self, reports: &[Report], number: u64) {
        for report in reports {
            for task in report.first.0..report.first.0 + report.count {
                let before = self.reported.insert(task, report.outcome);
                assert_eq!(before, None, "task {task} ends twice");
            }
        }
        let order = Order { acknowledged: number, ..Order::default() };
        self.machine.handle(Time(self.now), Event::Order(order));
    }

    fn start(&mut self, start: &Start) {
        let more = start.more.iter().map(|more| (more.key, more.count, &more.rows, more.row));
        let mut calls = Bundle::new();
        for (key, count, rows, row) in
            once((start.key, start.count, &start.rows, start.row)).chain(more)
        {
            let first = key.task.0;
            let Rows::Computed { offset, .. } = &**rows else { panic!("rows are computed") };
            assert_eq!(offset + row, first, "task {first} starts with another's row");
            calls.extend(first..first + count);
        }
        for task in &calls {
            let twice = self.bundles.iter().any(|bundle| bundle.contains(task));
            assert!(!twice, "call {task} is made twice");
            assert!(!self.reported.contains_key(task), "task {task} starts after its end");
        }
        self.largest = self.largest.max(calls.len() as u64);
        self.bundles.push(calls);
        self.machine.handle(Time(self.now), Event::Begun { key: start.key });
    }

    fn kill(&mut self, task: u64) {
        let Some(at) = self.bundles.iter().position(|one| one.contains(&task)) else { return };
        self.give_back(at, 1);
        if self.bundles[at][0] == task {
            self.end_call(at, 0, Outcome::Signal(15));
        }
    }

    /// All but the next `keep` calls of a bundle come back.
    fn give_back(&mut self, at: usize, keep: u64) {
        while self.bundles[at].len() as u64 > keep {
            // As many at a time as are in a row, the last first.
            let Some(last) = self.bundles[at].pop_back() else { return };
            let (mut first, mut count) = (last, 1);
            while self.bundles[at].len() as u64 > keep
                && self.bundles[at].back().is_some_and(|before| before + 1 == first)
            {
                self.bundles[at].pop_back();
                (first, count) = (first - 1, count + 1);
            }
            let key = TaskKey { instance: INSTANCE, task: TaskId(first) };
            self.machine.handle(Time(self.now), Event::Returned { key, count });
        }
    }

    /// The next call of a bundle ends.
    fn end_call(&mut self, at: usize, micros: u64, outcome: Outcome) {
        let started = Time(self.now);
        self.now += micros;
        let Some(task) = self.bundles[at].pop_front() else { return };
        let key = TaskKey { instance: INSTANCE, task: TaskId(task) };
        if self.bundles[at].is_empty() {
            self.bundles.remove(at);
        }
        let ended = Time(self.now);
        let event = Event::Ended { key, outcome, started, ended, detail: None };
        self.machine.handle(Time(self.now), event);
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Calls of a bundle end, each after so many microseconds.
    End {
        bundle: usize,
        calls: u64,
        micros: u64,
    },
    /// A worker dies in a call.
    Die {
        bundle: usize,
    },
    /// A call turns out to be long.
    Long {
        bundle: usize,
    },
    /// A worker is gone before it has begun.
    Refuse {
        bundle: usize,
    },
    Cancel {
        first: u64,
        count: u64,
    },
    Recall {
        count: u64,
    },
    Later {
        micros: u64,
    },
    Reconnect,
}

fn step() -> impl Strategy<Value = Step> {
    let bundle = 0usize..8;
    prop_oneof![
        8 => (bundle.clone(), 1u64..60, prop_oneof![Just(0u64), 1u64..30, 500u64..9000])
            .prop_map(|(bundle, calls, micros)| Step::End { bundle, calls, micros }),
        1 => bundle.clone().prop_map(|bundle| Step::Die { bundle }),
        2 => bundle.clone().prop_map(|bundle| Step::Long { bundle }),
        1 => bundle.prop_map(|bundle| Step::Refuse { bundle }),
        1 => (0u64..2000, 1u64..50).prop_map(|(first, count)| Step::Cancel { first, count }),
        1 => (1u64..50).prop_map(|count| Step::Recall { count }),
        1 => (1u64..40_000).prop_map(|micros| Step::Later { micros }),
        1 => Just(Step::Reconnect),
    ]
}

fn held(first: u64, count: u64) -> Held {
    Held { instance: INSTANCE, first: TaskId(first), count, tries: Tries::default() }
}

impl World {
    fn take(&mut self, step: &Step, tasks: u64) {
        let pick = |bundle: usize| (!self.bundles.is_empty()).then(|| bundle % self.bundles.len());
        match *step {
            Step::End { bundle, calls, micros } => {
                let Some(at) = pick(bundle) else { return };
                let calls = calls.min(self.bundles[at].len() as u64);
                for _ in 0..calls {
                    self.end_call(at, micros, Outcome::Exit(0));
                }
            }
            Step::Die { bundle } => {
                let Some(at) = pick(bundle) else { return };
                self.give_back(at, 1);
                self.end_call(at, 3, Outcome::Signal(9));
            }
            Step::Long { bundle } => {
                let Some(at) = pick(bundle) else { return };
                self.give_back(at, 1);
            }
            Step::Refuse { bundle } => {
                let Some(at) = pick(bundle) else { return };
                self.give_back(at, 0);
                self.bundles.remove(at);
            }
            Step::Cancel { first, count } => {
                let first = first % tasks;
                let count = count.min(tasks - first);
                let order = Order { cancel: vec![held(first, count)], ..Order::default() };
                self.machine.handle(Time(self.now), Event::Order(order));
            }
            Step::Recall { count } => {
                let order = Order { recall: count, ..Order::default() };
                self.machine.handle(Time(self.now), Event::Order(order));
            }
            Step::Later { micros } => {
                self.now += micros;
                self.machine.handle_timeout(Time(self.now));
            }
            Step::Reconnect => {
                self.machine.handle(Time(self.now), Event::Disconnected);
                self.machine.handle(Time(self.now), Event::Connected);
            }
        }
        self.pump();
    }
}

proptest! {
    #[test]
    fn every_call_ends_once_or_is_given_back(
        slots in 1u32..5,
        counts in prop::collection::vec(1u64..300, 1..4),
        timeout in any::<bool>(),
        piece in prop_oneof![Just(1u64), 2u64..9, Just(1000u64)],
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut world = World::new(slots);
        let mut tasks = 0;
        for count in counts {
            world.handle(Event::Order(assigned(tasks, count, timeout, piece)));
            tasks += count;
        }
        for step in &steps {
            world.take(step, tasks);
            prop_assert!(world.bundles.len() <= slots as usize, "more workers than room");
        }
        while !world.bundles.is_empty() {
            world.end_call(0, 1, Outcome::Exit(0));
            world.pump();
        }
        prop_assert_eq!(world.machine.free(), &Resources::cpus(slots));
        prop_assert!(world.machine.is_idle());
        for task in 0..tasks {
            let ended = world.reported.contains_key(&task);
            prop_assert_ne!(ended, world.returned.contains(&task), "task {}", task);
        }
    }
}

#[test]
fn short_calls_go_in_large_bundles_and_long_ones_alone() {
    for (piece, micros, least, most) in
        [(100_000, 3, 500, 4096), (1, 3, 500, 4096), (7, 3, 500, 4096), (1, 50_000, 1, 1)]
    {
        let mut world = World::new(2);
        let count = if piece < 10 { 2_000 } else { 100_000 };
        world.handle(Event::Order(assigned(0, count, false, piece)));
        for _ in 0..900 {
            if !world.bundles.is_empty() {
                world.end_call(0, micros, Outcome::Exit(0));
                world.pump();
            }
        }
        assert!((least..=most).contains(&world.largest), "{micros} us: {}", world.largest);
    }
}
