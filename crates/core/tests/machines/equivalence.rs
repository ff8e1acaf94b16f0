//! However events are bundled, the outcome is the same.

use crate::faults::cases;
use crate::rng::Rng;
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, InstanceOptions, Join, Lease, Order, Update,
};
use falkon_core::result::{Counts, Outcome, Report, Tries};
use falkon_core::task::{
    After, InstanceId, Kind, Packed, Resources, Rows, Submission, TaskClass, TaskId, Time,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How the same events are handed in.
#[derive(Debug, Clone, Copy)]
struct Manner {
    /// One submission each task.
    submit_singly: bool,
    /// One update each report.
    update_singly: bool,
    /// Polled after each event instead of after all.
    poll_each: bool,
}

#[derive(Debug, Clone)]
struct Job {
    class: u32,
    after: Vec<u64>,
    fails: u32,
}

fn classes() -> Vec<TaskClass> {
    [Kind::Process, Kind::Noop]
        .into_iter()
        .flat_map(|kind| {
            (0..3).map(move |retries| TaskClass { kind, retries, ..TaskClass::default() })
        })
        .collect()
}

fn submission(jobs: &[Job]) -> Submission {
    let mut rows = Packed::default();
    for job in jobs {
        assert!(rows.push(&job.class.to_le_bytes()));
    }
    Submission {
        data: None,
        count: jobs.len() as u64,
        template: Arc::default(),
        rows: Rows::Packed(rows),
        classes: classes(),
        class_runs: jobs.iter().map(|job| (1, job.class)).collect(),
        names: None,
        everywhere: None,
        after: jobs
            .iter()
            .enumerate()
            .filter(|(_, job)| !job.after.is_empty())
            .map(|(offset, job)| After {
                offset: offset as u64,
                tasks: job.after.iter().copied().map(TaskId).collect(),
                takes: offset as u64 % 2,
            })
            .collect(),
    }
}

/// A dispatcher, and what it has answered with.
struct Bench {
    dispatcher: Dispatcher,
    manner: Manner,
    orders: VecDeque<Order>,
    outcomes: BTreeMap<u64, Outcome>,
    counts: Counts,
    complete: bool,
}

impl Bench {
    fn hand_in(&mut self, events: Vec<Event>) {
        for event in events {
            self.dispatcher.handle(Time(1), event);
            if self.manner.poll_each {
                self.poll();
            }
        }
        self.poll();
    }

    fn poll(&mut self) {
        while let Some(action) = self.dispatcher.poll_action() {
            match action {
                Action::Order { order, .. } => self.orders.push_back(order),
                Action::Deliver { connection, delivery } => {
                    let written = Event::Written { connection, messages: 1 };
                    self.dispatcher.handle(Time(0), written);
                    for run in &delivery.results {
                        for task in run.first.0..run.first.0 + run.count {
                            let outcome = match run.outcome {
                                // Which of several is a matter of order.
                                Outcome::UpstreamFailed(_) => Outcome::UpstreamFailed(TaskId(0)),
                                other => other,
                            };
                            assert_eq!(self.outcomes.insert(task, outcome), None);
                        }
                    }
                    self.counts = delivery.counts;
                    self.complete |= delivery.complete;
                }
                _ => {}
            }
        }
        self.dispatcher.check().unwrap();
    }
}

fn outcomes(jobs: &[Job], manner: Manner) -> (BTreeMap<u64, Outcome>, Counts) {
    let mut bench = Bench {
        dispatcher: Dispatcher::new(),
        manner,
        orders: VecDeque::new(),
        outcomes: BTreeMap::new(),
        counts: Counts::default(),
        complete: false,
    };
    let client = ConnectionId(0);
    let instance = InstanceId(0);
    let options = InstanceOptions { keep_results: false, ..InstanceOptions::default() };
    let mut events = vec![
        Event::Create { connection: client, request: 0, options },
        Event::Subscribe { connection: client, request: 1, instance, from: 0 },
    ];
    let size = if manner.submit_singly { 1 } else { jobs.len() };
    for (number, part) in jobs.chunks(size).enumerate() {
        events.push(Event::Submit {
            client: 1,
            connection: client,
            request: 2,
            instance,
            first: TaskId((number * size) as u64),
            submission: submission(part),
        });
    }
    events.push(Event::Seal { connection: client, request: 3, instance });
    for connection in [1, 2].map(ConnectionId) {
        let join = Join {
            gangs: Vec::new(),
            alternatives: Vec::new(),
            serves: None,
            cache: Default::default(),
            lease: Lease::default(),
            incarnation: connection.0,
            name: String::new(),
            capacity: Resources::cpus(7),
            held: Vec::new(),
            reports: Vec::new(),
        };
        events.push(Event::Join { connection, join });
    }
    bench.hand_in(events);
    let mut number = 0;
    let mut failures: BTreeMap<u64, Tries> = BTreeMap::new();
    while !bench.complete {
        let orders: Vec<Order> = bench.orders.drain(..).collect();
        let mut events = Vec::new();
        for connection in [1, 2].map(ConnectionId) {
            let mut reports = Vec::new();
            for assigned in orders.iter().flat_map(|order| &order.assign) {
                // Each executor answers for what it was sent; which that was
                // does not matter here, as reports of others' are ignored.
                for task in assigned.first.0..assigned.first.0 + assigned.count {
                    let fails = jobs[task as usize].fails > assigned.tries.failures;
                    failures.insert(task, assigned.tries);
                    reports.push(Report {
                        instance,
                        first: TaskId(task),
                        count: 1,
                        tries: assigned.tries,
                        outcome: Outcome::Exit(i32::from(fails)),
                        started: Time(0),
                        ended: Time(1),
                        detail: None,
                    });
                }
            }
            let size = if manner.update_singly { 1 } else { reports.len().max(1) };
            for part in reports.chunks(size) {
                number += 1;
                let update = Update { number, reports: part.to_vec(), ..Update::default() };
                events.push(Event::Update { connection, update });
            }
        }
        assert!(!events.is_empty(), "nothing runs, and not all has ended");
        bench.hand_in(events);
    }
    (bench.outcomes, bench.counts)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(48)) })]

    #[test]
    fn bundles_change_nothing(seed: u64, count in 1..60u64) {
        let mut rng = Rng::new(seed);
        let jobs: Vec<Job> = (0..count)
            .map(|id| {
                let mut after = Vec::new();
                while rng.percent(25) {
                    let upstream = rng.below(count + 1);
                    if upstream != id {
                        after.push(upstream);
                    }
                }
                Job { class: rng.below(6) as u32, after, fails: rng.below(6).saturating_sub(2) as u32 }
            })
            .collect();
        let manner = |bits: u8| Manner {
            submit_singly: bits & 1 > 0,
            update_singly: bits & 2 > 0,
            poll_each: bits & 4 > 0,
        };
        let reference = outcomes(&jobs, manner(0));
        prop_assert_eq!(reference.0.len() as u64, count);
        for bits in 1..8 {
            prop_assert_eq!(&outcomes(&jobs, manner(bits)), &reference, "{:?}", manner(bits));
        }
    }
}
