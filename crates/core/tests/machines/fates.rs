//! How tasks must have ended: as the model says, whatever was lost or cut, but
//! for those that were cancelled or lost too often themselves.

use crate::workload::{Task, value_of};
use falkon_core::limits::LOSSES_MAX;
use falkon_core::result::{Detail, Finished, Outcome, Status};
use falkon_core::task::{Kind, Time};

/// A process that has run, as its node saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) incarnation: u64,
    pub(crate) started: Time,
    pub(crate) ended: Time,
    pub(crate) outcome: Outcome,
}

/// The runs of a task, as far as they are known.
#[derive(Debug, Default, Clone)]
pub(crate) struct History {
    pub(crate) starts: u64,
    pub(crate) running: u64,
    /// Runs that ended by themselves or were killed for what they are, and did
    /// not succeed.
    pub(crate) failed: u32,
    pub(crate) succeeded: bool,
    pub(crate) ran: Vec<Ran>,
}

impl History {
    pub(crate) fn ended(&mut self, ran: Ran) {
        self.running -= 1;
        match ran.outcome {
            Outcome::Exit(0) => self.succeeded = true,
            Outcome::Lost => {}
            _ => self.failed += 1,
        }
        self.ran.push(ran);
    }

    /// Runs that were killed with all others of their node.
    fn killed(&self) -> u32 {
        self.ran.iter().filter(|ran| ran.outcome == Outcome::Lost).count() as u32
    }

    /// A result is that of one of the task's own runs, where and when that was.
    pub(crate) fn check(&self, task: u64, found: &Finished, incarnation: Option<u64>) {
        let what = format!("task {task}: {found:?} of {:?}", self.ran);
        let has_error = found.detail.as_ref().is_some_and(|detail| !detail.error.is_empty());
        let is_own = |ran: &Ran| {
            let is_there = Some(ran.incarnation) == incarnation
                && (ran.started, ran.ended) == (found.started, found.ended);
            is_there
                && match found.outcome {
                    // Killed for it, whatever the process said.
                    Outcome::TimedOut => ran.outcome != Outcome::Exit(0),
                    // What it wrote could not be kept.
                    Outcome::NoOutput if has_error => ran.outcome == Outcome::Exit(0),
                    outcome => ran.outcome == outcome,
                }
        };
        let is_of_a_run = matches!(
            found.outcome,
            Outcome::Exit(_) | Outcome::Signal(_) | Outcome::NoOutput | Outcome::TimedOut
        );
        assert!(!is_of_a_run || self.ran.iter().any(is_own), "another's result: {what}");
    }
}

/// The output of a client's task.
pub(crate) fn text_of(client: usize, task: u64) -> Vec<u8> {
    format!("client {client}, task {task}").into_bytes()
}

/// Whether a task writes anything.
pub(crate) fn writes(task: &Task, id: u64) -> bool {
    task.class.kind == Kind::Process && id.is_multiple_of(3)
}

/// The member that a task's standard output becomes, of those with data that
/// collect it.
pub(crate) fn collected_stream(client: usize, task: &Task, id: u64) -> Option<String> {
    let is_collected = task.data.is_some() && writes(task, id) && id.is_multiple_of(2);
    is_collected.then(|| format!("/logs/{}.zip!{client}/{id}/stdout", id % 5))
}

/// How a task's run ends that fails.
pub(crate) fn failure_of(plan: &Task, client: usize, task: u64) -> Outcome {
    match task % 5 {
        // What becomes of data objects has outcomes of its own.
        _ if plan.data.is_some() => Outcome::Exit(1),
        0 => Outcome::NoOutput,
        1 => Outcome::Signal(1 + (task / 5 % 9) as i32),
        _ => Outcome::Exit(1 + ((task * 3 + client as u64) % 250) as i32),
    }
}

/// Checks that a result comes with the task's own output and value.
pub(crate) fn check_detail(client: usize, plan: &[Task], found: &Finished) {
    for id in found.first.0..found.first.0 + found.count {
        let task = &plan[id as usize];
        let none = Detail::default();
        let detail = found.detail.as_deref().unwrap_or(&none);
        let what = || format!("client {client} task {id}: {found:?}");
        if found.outcome == Outcome::Exit(0) {
            assert_eq!(detail.value, value_of(task, id), "another's value: {}", what());
        }
        let has_run =
            found.outcome == Outcome::Exit(0) || found.outcome == failure_of(task, client, id);
        let member = collected_stream(client, task, id);
        let named = detail.stdout.member.as_deref();
        // A stream that could not be staged comes with its result.
        let is_collected = named.is_some() && found.outcome == Outcome::Exit(0);
        assert_eq!(named, member.as_deref().filter(|_| is_collected), "{}", what());
        if has_run && writes(task, id) && !is_collected {
            assert_eq!(detail.stdout.head, text_of(client, id), "another's output: {}", what());
        }
        if !writes(task, id) || is_collected {
            assert!(detail.stdout.head.is_empty(), "another's output: {}", what());
        }
    }
}

/// The evidence that a task's end is judged by.
#[derive(Debug)]
pub(crate) struct Fate<'a> {
    pub(crate) client: usize,
    pub(crate) id: u64,
    pub(crate) task: &'a Task,
    pub(crate) history: &'a History,
    pub(crate) losses: u32,
    /// An attempt that had been given up went on.
    pub(crate) came_back: bool,
    pub(crate) was_cancelled: bool,
    pub(crate) attempts: u32,
}

impl Fate<'_> {
    /// The model: without losses and cancellations, once the tasks that it
    /// waits for have ended well, a task ends so.
    fn own(&self) -> Outcome {
        if self.task.hangs {
            return Outcome::TimedOut;
        }
        match self.task.always_fails() {
            true => failure_of(self.task, self.client, self.id),
            false => Outcome::Exit(0),
        }
    }

    pub(crate) fn judge(&self, outcomes: &[Outcome]) {
        let outcome = outcomes[self.id as usize];
        let what = || format!("{outcome:?} of {self:?}");
        let failed = |id: &u64| outcomes.get(*id as usize).map(|found| found.status());
        let failed = |id: &u64| failed(id) != Some(Status::Done);
        match outcome {
            Outcome::Cancelled => assert!(self.was_cancelled, "unasked: {}", what()),
            Outcome::UpstreamFailed(upstream) => {
                assert!(self.task.after.contains(&upstream.0), "not its own: {}", what());
                assert!(failed(&upstream.0), "it has not failed: {}", what());
            }
            _ if self.task.after.iter().any(failed) => {
                panic!("it waits for what is not done: {}", what());
            }
            Outcome::Lost => assert!(self.losses > LOSSES_MAX, "too early: {}", what()),
            _ => assert_eq!(outcome, self.own(), "{}", what()),
        }
        let is_over = self.losses > LOSSES_MAX && !self.came_back;
        let has_ended = matches!(outcome, Outcome::Lost | Outcome::Cancelled);
        assert!(!is_over || has_ended, "lost too often to go on: {}", what());
        let kills = if self.task.hangs { self.history.killed() } else { 0 };
        let failures = self.history.failed + kills;
        if outcome.status() == Status::Failed && outcome == self.own() {
            assert!(failures > self.task.class.retries, "too early: {}", what());
        }
        let most = failures + self.losses + 1;
        assert!(self.attempts <= most, "more than {most} attempts: {}", what());
    }
}
