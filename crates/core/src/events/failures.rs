//! Tasks that did not end well, by what they ran and how they ended.

use super::{Ended, Event, Run, What};
use crate::limits::{
    COMMAND_RUNS_MAX, FAILED_RUNS_MAX, FAILURE_CLASSES_MAX, FAILURE_EXECUTORS_MAX,
};
use crate::result::{Outcome, Status};
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, TaskId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What failures that are alike have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailureClass {
    /// The instance.
    pub instance: InstanceId,
    /// What the tasks run, as the beginning of their common command line; empty if that is not
    /// known.
    pub command: Arc<str>,
    /// How they ended; whatever task they waited for in vain, that is task 0 here.
    pub outcome: Outcome,
    /// What went wrong, with `#` in place of each number: tasks that lack one file each are
    /// alike. Empty if nothing but the outcome is known.
    pub message: Arc<str>,
}

/// Tasks that failed alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureGroup {
    /// How many.
    pub count: u64,
    /// How the first of them ended.
    pub outcome: Outcome,
    /// What went wrong with the first, as it was reported.
    pub error: Option<Arc<str>>,
    /// The first that failed so.
    pub first: TaskId,
    /// When the first failed.
    pub from: Time,
    /// When the last one failed.
    pub until: Time,
    /// Where they ran; not all of them if they are many.
    pub executors: BTreeSet<ExecutorId>,
}

/// The tasks of an instance, as far as failures need them.
#[derive(Debug, Clone, Default)]
struct Submitted {
    /// Commands, by the first task of those in a row that run the same: how many, and which.
    commands: BTreeMap<u64, (u64, Arc<str>)>,
    failed: RunSet,
}

/// Tasks that did not end well.
#[derive(Debug, Clone, Default)]
pub struct Failures {
    instances: BTreeMap<InstanceId, Submitted>,
    groups: BTreeMap<FailureClass, FailureGroup>,
    /// Failed tasks that are of no group, as there are too many groups.
    ungrouped: u64,
    /// Failed tasks whose numbers are not kept, as they are too scattered.
    unlisted: u64,
    /// Runs of the numbers that are kept.
    runs: usize,
    /// Runs of tasks whose commands are kept.
    commands: usize,
}

impl Failures {
    /// Takes in the next event.
    pub fn add(&mut self, event: &Event) {
        match &event.what {
            What::Submitted { instance, first, count, command } => {
                let submitted = self.instances.entry(*instance).or_default();
                let room = self.commands < COMMAND_RUNS_MAX;
                self.commands += usize::from(submitted.submit(*first, *count, command, room));
            }
            What::Ended(ended) if ended.outcome.status() == Status::Failed => {
                self.failed(event.at, ended);
            }
            What::InstanceGone { instance, .. } => {
                if let Some(gone) = self.instances.remove(instance) {
                    self.runs -= gone.failed.run_count();
                    self.commands -= gone.commands.len();
                }
                self.groups.retain(|kind, _| kind.instance != *instance);
            }
            _ => {}
        }
    }

    /// The groups, in no particular order.
    pub fn groups(&self) -> impl Iterator<Item = (&FailureClass, &FailureGroup)> {
        self.groups.iter()
    }

    /// Failed tasks that are in no group, as there are too many kinds of them.
    #[must_use]
    pub fn ungrouped(&self) -> u64 {
        self.ungrouped
    }

    /// Failed tasks that [`Failures::failed_from`] leaves out, as too many are scattered.
    #[must_use]
    pub fn unlisted(&self) -> u64 {
        self.unlisted
    }

    /// Runs of the failed tasks of an instance, from a number on, as first and count.
    pub fn failed_from(
        &self,
        instance: InstanceId,
        from: u64,
    ) -> impl Iterator<Item = (u64, u64)> + '_ {
        let found = self.instances.get(&instance).into_iter();
        found.flat_map(move |found| found.failed.iter_from(from))
    }

    fn failed(&mut self, at: Time, ended: &Ended) {
        let Run { instance, first, count } = ended.run;
        let submitted = self.instances.entry(instance).or_default();
        let command = submitted.command(first);
        let before = submitted.failed.run_count();
        if self.runs < FAILED_RUNS_MAX {
            submitted.failed.insert(first.0, count);
            self.runs = (self.runs + submitted.failed.run_count()) - before;
        } else {
            self.unlisted += count;
        }
        let outcome = match ended.outcome {
            Outcome::UpstreamFailed(_) => Outcome::UpstreamFailed(TaskId(0)),
            other => other,
        };
        let message = ended.error.as_deref().map_or_else(|| "".into(), without_numbers);
        let kind = FailureClass { instance, command, outcome, message };
        if let Some(group) = self.groups.get_mut(&kind) {
            group.count += count;
            group.until = at;
            if let Some(executor) = ended.executor
                && group.executors.len() < FAILURE_EXECUTORS_MAX
            {
                group.executors.insert(executor);
            }
            return;
        }
        if self.groups.len() >= FAILURE_CLASSES_MAX {
            self.ungrouped += count;
            return;
        }
        let group = FailureGroup {
            count,
            outcome: ended.outcome,
            error: ended.error.clone(),
            first,
            from: at,
            until: at,
            executors: ended.executor.into_iter().collect(),
        };
        self.groups.insert(kind, group);
    }
}

impl Submitted {
    /// Tasks in a row that run the same are one entry, in however many pieces they came.
    /// Returns whether there is another entry, for which there has to be room.
    fn submit(&mut self, first: TaskId, count: u64, command: &Arc<str>, has_room: bool) -> bool {
        if let Some(mut last) = self.commands.last_entry() {
            let begin = *last.key();
            let (known, same) = last.get_mut();
            if begin + *known == first.0 && same == command {
                *known += count;
                return false;
            }
        }
        has_room && self.commands.insert(first.0, (count, command.clone())).is_none()
    }

    fn command(&self, task: TaskId) -> Arc<str> {
        let found = self.commands.range(..=task.0).next_back();
        let found = found.filter(|(first, (count, _))| task.0 - **first < *count);
        found.map_or_else(|| "".into(), |(_, (_, command))| command.clone())
    }
}

/// A text with `#` in place of each number.
fn without_numbers(text: &str) -> Arc<str> {
    let mut out = String::with_capacity(text.len());
    let mut in_number = false;
    for c in text.chars() {
        let is_digit = c.is_ascii_digit();
        match (is_digit, in_number) {
            (true, false) => out.push('#'),
            (true, true) => {}
            (false, _) => out.push(c),
        }
        in_number = is_digit;
    }
    out.into()
}
