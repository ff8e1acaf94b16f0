//! Where tasks are: which run, which are sent ahead, how the others ended. For
//! people who ask; nothing is decided by it.

use super::Dispatcher;
use super::fleet::Executor;
use super::needs::NeedId;
use super::state::State;
use crate::result::{Detail, Finished, Status};
use crate::task::{ExecutorId, InstanceId, TaskId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a task is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whereabouts {
    /// It waits for other tasks.
    Waiting,
    /// It can be sent to an executor.
    Ready,
    /// It was sent to an executor ahead of time, and starts when others end.
    Sent(ExecutorId),
    /// It has its resources on an executor.
    Running(ExecutorId),
    /// It has ended, and what it wrote is on its way from an executor's disk to
    /// archives.
    Staged(ExecutorId),
    /// It ended, and its result is here, without what it wrote.
    Ended(Finished),
    /// It ended well, and its result is not in memory any more.
    Done,
    /// It failed or was cancelled, and its result is not in memory any more.
    NotDone,
}

impl Whereabouts {
    /// One word for it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Whereabouts::Waiting => "waiting",
            Whereabouts::Ready => "ready",
            Whereabouts::Sent(_) => "sent",
            Whereabouts::Running(_) => "running",
            Whereabouts::Staged(_) => "staged",
            Whereabouts::Ended(finished) => match finished.outcome.status() {
                Status::Done => "done",
                Status::Failed => "failed",
                Status::Cancelled => "cancelled",
            },
            Whereabouts::Done => "done",
            Whereabouts::NotDone => "ended",
        }
    }

    /// The executor that has it, or had it last.
    #[must_use]
    pub fn executor(&self) -> Option<ExecutorId> {
        match self {
            Whereabouts::Sent(executor)
            | Whereabouts::Running(executor)
            | Whereabouts::Staged(executor) => Some(*executor),
            Whereabouts::Ended(finished) => finished.executor,
            _ => None,
        }
    }
}

/// Tasks of an instance in a row that an executor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    instance: InstanceId,
    first: u64,
    count: u64,
    progress: Progress,
}

/// How many of an instance's tasks executors have that have begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Begun {
    /// Those that run.
    pub running: u64,
    /// Those that have ended, and whose outputs are staged for archives.
    pub staged: u64,
}

/// How far an executor is with tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Sent,
    Running,
    Staged,
}

impl Executor {
    /// What it has, and which of that runs: of each need, as many tasks as hold
    /// their resources, those first that were sent first.
    fn parts(&self) -> Vec<Part> {
        let mut order: Vec<_> = self.in_flight.iter().collect();
        order.sort_by_key(|(_, run)| run.dispatched);
        let mut room: BTreeMap<NeedId, u64> = BTreeMap::new();
        let mut parts = Vec::with_capacity(order.len());
        for ((instance, _), run) in order {
            let room = room.entry(run.need).or_insert_with(|| self.loads.of(run.need).slotted);
            let running = if run.holds_room() { run.count.min(*room) } else { 0 };
            *room -= running;
            let rest = if run.is_staged { Progress::Staged } else { Progress::Sent };
            let halves = [
                (run.first, running, Progress::Running),
                (run.first + running, run.count - running, rest),
            ];
            parts.extend(halves.into_iter().filter(|(_, count, _)| *count > 0).map(
                |(first, count, progress)| Part { instance: *instance, first, count, progress },
            ));
        }
        parts
    }
}

impl Dispatcher {
    /// What an executor has, but for the second tries of tasks.
    fn first_tries(&self, executor: &Executor) -> Vec<Part> {
        let mut parts = executor.parts();
        let is_copy =
            |part: &Part| self.speculation.is_copy(executor.id, part.instance, part.first);
        parts.retain(|part| !is_copy(part));
        parts
    }

    /// How many tasks of each instance run, never more than executors have room
    /// for, and how many are staged. Costs time in proportion to what executors
    /// have.
    #[must_use]
    pub fn begun(&self) -> BTreeMap<InstanceId, Begun> {
        let mut all: BTreeMap<InstanceId, Begun> = BTreeMap::new();
        for part in self.fleet.iter().flat_map(|executor| self.first_tries(executor)) {
            let begun = all.entry(part.instance).or_default();
            match part.progress {
                Progress::Running => begun.running += part.count,
                Progress::Staged => begun.staged += part.count,
                Progress::Sent => {}
            }
        }
        all
    }

    /// Where an instance's tasks from `first` on are, as many as there are of
    /// `count`. Costs time in proportion to those, to the executors, and to what
    /// those executors have that have any of these tasks.
    pub fn whereabouts(
        &mut self,
        instance: InstanceId,
        first: TaskId,
        count: u64,
    ) -> Vec<Whereabouts> {
        let mut sent: BTreeMap<u64, Whereabouts> = BTreeMap::new();
        let end = first.0.saturating_add(count);
        for executor in self.fleet.iter() {
            // Runs of one executor do not overlap: the last that begins before
            // the end tells whether there is any.
            let mut before = executor.in_flight.range((instance, 0)..(instance, end));
            let has_any =
                before.next_back().is_some_and(|(_, run)| run.first + run.count > first.0);
            let parts = if has_any { self.first_tries(executor) } else { Vec::new() };
            for part in parts.into_iter().filter(|part| part.instance == instance) {
                let tasks = part.first.max(first.0)..(part.first + part.count).min(end);
                sent.extend(tasks.map(|task| match part.progress {
                    Progress::Sent => (task, Whereabouts::Sent(executor.id)),
                    Progress::Running => (task, Whereabouts::Running(executor.id)),
                    Progress::Staged => (task, Whereabouts::Staged(executor.id)),
                }));
            }
        }
        let Some(instance) = self.instances.find_mut(&instance) else { return Vec::new() };
        let of = |task: u64| {
            let sent = sent.remove(&task);
            match (instance.tasks.state(task, sent.is_some()), sent) {
                (State::Ended, _) => match instance.results.ended(task) {
                    Some(run) => {
                        let (first, count) = (TaskId(task), 1);
                        let detail = run.detail.as_deref().and_then(Detail::measured_alone);
                        let detail = detail.map(Arc::new);
                        Whereabouts::Ended(Finished { first, count, detail, ..run.clone() })
                    }
                    None if instance.tasks.has_failed(task) => Whereabouts::NotDone,
                    None => Whereabouts::Done,
                },
                (State::Assigned, Some(sent)) => sent,
                (State::Waiting, _) => Whereabouts::Waiting,
                _ => Whereabouts::Ready,
            }
        };
        (first.0..end.min(instance.tasks.total())).map(of).collect()
    }

    /// An executor's name, also of one that is gone while results name it.
    #[must_use]
    pub fn executor_name(&self, id: ExecutorId) -> Option<&str> {
        self.fleet.name(id).map(String::as_str)
    }
}
