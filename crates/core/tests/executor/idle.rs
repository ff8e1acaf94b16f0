//! Idle exit, against a reference model that knows of sessions and tasks what
//! went over the wire: an executor leaves exactly when it has been connected,
//! without a task and without an unacknowledged report, for its limit.

use crate::shell::{INSTANCE, Shell};
use falkon_core::dispatch::{Held, Lease, Order, Update};
use falkon_core::execute::{Action, Event, Executor};
use falkon_core::limits::LEAVE_ALONE_MICROS_MAX;
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{Kind, Resources, TaskClass, TaskId, Time};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// What happens, and how long after the step before it.
#[derive(Debug, Clone)]
enum Step {
    /// A session begins, by a clock that is ahead by so much.
    Connect(u64),
    Disconnect,
    /// So many tasks arrive, instant ones or processes.
    Assign(u64, bool),
    /// One of the started tasks ends.
    End(prop::sample::Index),
    /// Updates are acknowledged up to one of them.
    Acknowledge(prop::sample::Index),
    /// Tasks that have not started are asked back.
    Recall,
    /// All tasks are cancelled, or given up.
    Cancel(bool),
}

struct World {
    shell: Shell,
    // The model.
    limit: Option<u64>,
    connected: bool,
    /// Tasks that were assigned, and not returned or acknowledged.
    open: BTreeSet<u64>,
    /// Those of which there is a report.
    over: BTreeSet<u64>,
    /// The reports of each update of this session.
    sent: Vec<(u64, Vec<u64>)>,
    idle_since: Option<u64>,
}

fn tasks_of(reports: &[Report]) -> Vec<u64> {
    let runs = reports.iter().map(|report| report.first.0..report.first.0 + report.count);
    runs.flatten().collect()
}

impl World {
    fn new(limit: Option<u64>) -> World {
        let machine = Executor::new(1, "node".to_owned(), Resources::cpus(2));
        World {
            shell: Shell::new(machine.with_idle_exit(limit)),
            limit,
            connected: false,
            open: BTreeSet::new(),
            over: BTreeSet::new(),
            sent: Vec::new(),
            idle_since: None,
        }
    }

    /// When the model's executor leaves, if nothing happens before.
    fn due(&self) -> Option<u64> {
        Some(self.idle_since? + self.limit?)
    }

    /// Carries out what the machine wants, and compares it with the model.
    fn pump(&mut self) {
        while let Some(action) = self.shell.poll() {
            match action {
                Action::Join(join) => self.sent.push((0, tasks_of(&join.reports))),
                Action::Update(Update { number, reports, returned, .. }) => {
                    self.sent.push((number, tasks_of(&reports)));
                    for held in returned {
                        (held.first.0..held.first.0 + held.count).for_each(|task| {
                            self.open.remove(&task);
                        });
                    }
                }
                _ => {}
            }
        }
        self.shell.machine.check().unwrap();
        let is_idle = self.connected && self.open.is_empty();
        self.idle_since = is_idle.then(|| self.idle_since.unwrap_or(self.shell.now));
        let leaves = self.due().is_some_and(|due| due <= self.shell.now);
        assert_eq!(
            self.shell.machine.is_leaving(),
            leaves,
            "at {}: {:?}",
            self.shell.now,
            self.due()
        );
        if let Some(due) = self.due().filter(|_| !leaves) {
            let (at, _) = self.shell.machine.poll_timeout().unwrap();
            assert!(at <= Time(due), "it sleeps until {at:?} and is to leave at {due}");
        }
    }

    fn handle(&mut self, event: Event) {
        self.shell.handle(event);
        self.pump();
    }

    /// An order comes, which acknowledges updates of this session.
    fn order(&mut self, order: Order) {
        for (number, reports) in &self.sent {
            if *number <= order.acknowledged {
                reports.iter().for_each(|task| {
                    self.open.remove(task);
                });
            }
        }
        self.sent.retain(|(number, _)| *number > order.acknowledged);
        self.handle(Event::Order(order));
    }

    fn take(&mut self, step: &Step) {
        let (instance, first, count) = (INSTANCE, TaskId(0), self.shell.assigned());
        let all = vec![Held { instance, first, count, tries: Tries::default() }];
        match step {
            Step::Connect(ahead) => {
                self.shell.now += ahead;
                self.connected = true;
                self.idle_since = None;
                self.sent.clear();
                self.shell.handle(Event::Lease(Lease::default()));
                self.handle(Event::Connected);
            }
            Step::Disconnect => {
                self.connected = false;
                self.sent.clear();
                self.handle(Event::Disconnected);
            }
            _ if !self.connected => {}
            Step::Assign(count, instant) => {
                let kind = if *instant { Kind::Noop } else { Kind::Process };
                let (first, order) =
                    self.shell.assign(*count, TaskClass { kind, ..TaskClass::default() });
                self.open.extend(first..first + count);
                self.order(order);
            }
            Step::End(index) if !self.shell.running().is_empty() => {
                let first = *index.get(&self.shell.running());
                self.over.extend(self.shell.end(first, Outcome::Exit(0)));
                self.pump();
            }
            Step::Acknowledge(index) if !self.sent.is_empty() => {
                let acknowledged = self.sent[index.index(self.sent.len())].0;
                self.order(Order { acknowledged, ..Order::default() });
            }
            Step::Recall => {
                self.order(Order { recall: u64::MAX, ..Order::default() });
            }
            Step::Cancel(true) => {
                self.over.extend(&self.open);
                self.order(Order { cancel: all, ..Order::default() });
            }
            Step::Cancel(false) => {
                // Nobody wants reports of them; those that were made stay.
                self.open.retain(|task| self.over.contains(task));
                self.order(Order { disown: all, ..Order::default() });
            }
            Step::End(_) | Step::Acknowledge(_) => {}
        }
    }

    /// Time passes: what is due happens when it is.
    fn pass(&mut self, micros: u64) {
        let until = self.shell.now + micros;
        while !self.shell.machine.is_leaving() && self.shell.passes_to_due(until) {
            self.pump();
        }
        self.shell.now = until;
    }
}

fn step() -> impl Strategy<Value = Step> {
    use prop::sample::Index;
    prop_oneof![
        3 => prop_oneof![Just(0), 0..20_000_000u64].prop_map(Step::Connect),
        1 => Just(Step::Disconnect),
        3 => (1..4u64, any::<bool>()).prop_map(|(count, instant)| Step::Assign(count, instant)),
        6 => any::<Index>().prop_map(Step::End),
        6 => any::<Index>().prop_map(Step::Acknowledge),
        1 => Just(Step::Recall),
        1 => any::<bool>().prop_map(Step::Cancel),
    ]
}

proptest! {
    #[test]
    fn an_executor_leaves_when_it_was_idle_for_its_limit_and_never_before(
        limit in prop::option::weighted(0.9, prop_oneof![Just(1), 1..5_000_000u64]),
        steps in prop::collection::vec((step(), prop_oneof![Just(0), 0..3_000_000u64]), 1..60),
    ) {
        let mut world = World::new(limit);
        for (step, pause) in steps {
            world.take(&step);
            world.pass(pause);
            if world.shell.machine.is_leaving() {
                break;
            }
        }
        if limit.is_none() {
            prop_assert!(!world.shell.machine.is_leaving());
        }
    }
}

#[test]
fn one_that_waits_for_its_dispatcher_stays() {
    let mut world = World::new(Some(1_000_000));
    world.pass(60_000_000);
    world.take(&Step::Connect(0));
    world.pass(999_999);
    world.take(&Step::Disconnect);
    world.pass(60_000_000);
    world.take(&Step::Connect(0));
    world.pass(999_999);
    assert!(!world.shell.machine.is_leaving());
    world.pass(1);
    assert!(world.shell.machine.is_leaving());
}

/// With a result that nobody comes for.
#[test]
fn one_whose_lease_ends_while_its_dispatcher_is_away_leaves_too() {
    let mut world = World::new(None);
    let lease = Lease { leaves_in_micros: Some(1_000_000), ..Lease::default() };
    world.handle(Event::Lease(lease));
    world.connected = true;
    world.handle(Event::Connected);
    world.take(&Step::Assign(1, false));
    world.take(&Step::Disconnect);
    world.shell.end(0, Outcome::Exit(0));
    world.pump();
    assert_eq!(world.shell.timeouts_to_the_end(), [1_000_000, 1_000_000 + LEAVE_ALONE_MICROS_MAX]);
}
