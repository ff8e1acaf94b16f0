//! A shell whose processes end when the test says.

use falkon_core::dispatch::{Assigned, BatchId, Order, Prepare};
use falkon_core::execute::{Action, Event, Executor, TaskKey};
use falkon_core::result::{Outcome, Tries};
use falkon_core::task::{InstanceId, Rows, TaskClass, TaskId, Time};
use std::sync::Arc;

pub(crate) const INSTANCE: InstanceId = InstanceId(1);

/// A run of tasks that was started, perhaps to come after another.
struct Started {
    key: TaskKey,
    count: u64,
    after: Option<TaskKey>,
}

pub(crate) struct Shell {
    pub(crate) now: u64,
    pub(crate) machine: Executor,
    started: Vec<Started>,
    next_task: u64,
}

impl Shell {
    pub(crate) fn new(machine: Executor) -> Shell {
        Shell { now: 1, machine, started: Vec::new(), next_task: 0 }
    }

    pub(crate) fn handle(&mut self, event: Event) {
        self.machine.handle(Time(self.now), event);
    }

    /// How many tasks were assigned.
    pub(crate) fn assigned(&self) -> u64 {
        self.next_task
    }

    /// The first of each run that runs.
    pub(crate) fn running(&self) -> Vec<u64> {
        let running = self.started.iter().filter(|one| one.after.is_none());
        running.map(|one| one.key.task.0).collect()
    }

    /// The order that assigns so many more tasks, and the first of them.
    pub(crate) fn assign(&mut self, count: u64, class: TaskClass) -> (u64, Order) {
        let first = self.next_task;
        self.next_task += count;
        (first, order(class, vec![(first, count)]))
    }

    /// A run ends now. Gives its tasks.
    pub(crate) fn end(&mut self, first: u64, outcome: Outcome) -> std::ops::Range<u64> {
        let gone = self.remove(key(first)).expect("it was started");
        self.handle(ended(gone.key, outcome, self.now));
        first..first + gone.count
    }

    /// What the machine wants of others; what it wants of this shell is done.
    pub(crate) fn poll(&mut self) -> Option<Action> {
        loop {
            match self.machine.poll_action()? {
                Action::Start(start) => {
                    let is_there =
                        |after: &TaskKey| self.started.iter().any(|one| one.key == *after);
                    let after = start.after.filter(is_there);
                    self.started.push(Started { key: start.key, count: start.count, after });
                }
                Action::TakeBack(key) => {
                    if self.waits(key) {
                        self.remove(key);
                        self.handle(Event::TakenBack(key));
                    }
                }
                Action::Kill { key, .. } => {
                    let is_waiting = self.waits(key);
                    if self.remove(key).is_some() {
                        self.handle(match is_waiting {
                            true => Event::TakenBack(key),
                            false => ended(key, Outcome::Signal(15), self.now),
                        });
                    }
                }
                action => return Some(action),
            }
        }
    }

    /// Time goes on to what is due next, if that is by `until`.
    pub(crate) fn passes_to_due(&mut self, until: u64) -> bool {
        let due = self.machine.poll_timeout().filter(|(at, _)| at.0 <= until);
        if let Some((at, _)) = due {
            self.now = self.now.max(at.0);
            self.machine.handle_timeout(Time(self.now));
        }
        due.is_some()
    }

    /// How long from now each timeout comes until the executor leaves.
    pub(crate) fn timeouts_to_the_end(&mut self) -> Vec<u64> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.machine.poll_timeout() {
            due.push(at.0 - self.now);
            self.machine.handle_timeout(at);
            if std::iter::from_fn(|| self.machine.poll_action()).any(|one| one == Action::Left) {
                break;
            }
        }
        due
    }

    fn waits(&self, key: TaskKey) -> bool {
        self.started.iter().any(|one| one.key == key && one.after.is_some())
    }

    /// A run is gone; those behind it come after what it came after.
    fn remove(&mut self, key: TaskKey) -> Option<Started> {
        let at = self.started.iter().position(|one| one.key == key)?;
        let gone = self.started.remove(at);
        for one in self.started.iter_mut().filter(|one| one.after == Some(gone.key)) {
            one.after = gone.after;
        }
        Some(gone)
    }
}

pub(crate) fn key(task: u64) -> TaskKey {
    TaskKey { instance: INSTANCE, task: TaskId(task) }
}

fn ended(key: TaskKey, outcome: Outcome, now: u64) -> Event {
    Event::Ended { key, outcome, started: Time(now), ended: Time(now), detail: None }
}

/// Assigns runs of tasks, as (first, count), of one batch of their own.
pub(crate) fn order(class: TaskClass, runs: Vec<(u64, u64)>) -> Order {
    let batch = BatchId(runs[0].0 + 1);
    let assign = |(first, count)| Assigned {
        data: None,
        batch,
        instance: INSTANCE,
        first: TaskId(first),
        count,
        class: 0,
        tries: Tries::default(),
        rows: Rows::Computed { factors: Vec::new(), offset: first },
    };
    Order {
        prepare: vec![Prepare {
            batch,
            template: Arc::new(Vec::new()),
            classes: vec![class],
            everywhere: None,
        }],
        assign: runs.into_iter().map(assign).collect(),
        forget: vec![batch],
        ..Order::default()
    }
}
