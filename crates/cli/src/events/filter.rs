//! Which events are wanted.

use super::Names;
use crate::query::task_range;
use clap::{Args, ValueEnum};
use falkon_core::events::{Event, Run, What};
use falkon_core::result::Status;
use falkon_core::task::{ExecutorId, InstanceId, Time};

/// Kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Instances that are created, sealed, paused or gone
    Instances,
    /// Tasks that are accepted, and what they wait for, read and write
    Submitted,
    /// Tasks that are assigned to executors, or come back from them
    Assigned,
    /// Tasks that end
    Ended,
    /// Bytes of data objects that executors have from each other
    Transfers,
    /// Executors that join, leave, are suspended or drained
    Executors,
    /// What the provisioner decides
    Provisioner,
    /// The dispatcher itself: starts, and events that are missing
    Dispatcher,
}

impl Kind {
    pub(crate) fn of(what: &What) -> Kind {
        match what {
            What::InstanceCreated { .. }
            | What::Sealed { .. }
            | What::Paused { .. }
            | What::Prioritized { .. }
            | What::InstanceGone { .. } => Kind::Instances,
            What::Submitted { .. } | What::Waits(_) | What::Uses(_) | What::Reserves(_) => {
                Kind::Submitted
            }
            What::Assigned { .. }
            | What::Requeued { .. }
            | What::Copied { .. }
            | What::Retried { .. }
            | What::Recomputed { .. } => Kind::Assigned,
            What::Moved { .. } => Kind::Transfers,
            What::Ended(_) | What::Cancelling { .. } | What::RecomputationEnded { .. } => {
                Kind::Ended
            }
            What::ExecutorJoined { .. }
            | What::ExecutorGone { .. }
            | What::ExecutorSuspended { .. }
            | What::ExecutorDrained { .. } => Kind::Executors,
            What::Provisioned { .. } => Kind::Provisioner,
            What::DispatcherStarted { .. } | What::Missing { .. } => Kind::Dispatcher,
        }
    }
}

/// Options that say which events are wanted.
#[derive(Args, Debug, Clone)]
pub(crate) struct FilterArgs {
    /// Only events of this instance, by its number or name
    #[arg(long, short, value_name = "INSTANCE")]
    instance: Option<String>,
    /// Only events of these tasks, as FIRST or FIRST-LAST
    #[arg(long, value_name = "RANGE", value_parser = task_range)]
    tasks: Option<(u64, u64)>,
    /// Only events of this executor, by its number or name
    #[arg(long, value_name = "EXECUTOR")]
    executor: Option<String>,
    /// Only events of these kinds
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kind: Vec<Kind>,
    /// Only tasks that ended and did not succeed
    #[arg(long)]
    failed: bool,
    /// Only events from this time on: seconds since 1970, or before now as -SECONDS
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    since: Option<f64>,
    /// Only events until this time
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    until: Option<f64>,
}

/// Events are wanted of something that no event speaks of.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotThere {
    /// An instance.
    #[error("no event is of {}: --kind instances shows those that there are", named("an instance", .0))]
    Instance(String),
    /// An executor.
    #[error("no event is of {}: --kind executors shows those that there are", named("an executor", .0))]
    Executor(String),
}

fn named(what: &str, wanted: &str) -> String {
    match wanted.parse::<u64>() {
        Ok(number) => format!("{what} {number}"),
        Err(_) => format!("{what} named {wanted:?}"),
    }
}

/// The wanted events.
#[derive(Debug)]
pub(crate) struct Filter {
    args: FilterArgs,
    since: Time,
    until: Time,
}

impl FilterArgs {
    pub(crate) fn filter(self) -> Result<Filter, String> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now_s = now.map_or(0.0, |now| now.as_secs_f64());
        let time = |seconds: f64| {
            let seconds = if seconds < 0.0 { now_s + seconds } else { seconds };
            match seconds.is_finite() {
                true => Ok(Time((seconds.max(0.0) * 1e6) as u64)),
                false => Err("times are seconds".to_owned()),
            }
        };
        let since = self.since.map_or(Ok(Time(0)), time)?;
        let until = self.until.map_or(Ok(Time(u64::MAX)), time)?;
        Ok(Filter { args: self, since, until })
    }
}

/// The instance that an event is about, and the tasks.
fn about(what: &What) -> (Option<InstanceId>, Option<(u64, u64)>) {
    let tasks = |run: &Run| (Some(run.instance), Some((run.first.0, run.count)));
    match what {
        What::InstanceCreated { instance, .. }
        | What::Sealed { instance }
        | What::Paused { instance, .. }
        | What::Prioritized { instance, .. }
        | What::InstanceGone { instance, .. } => (Some(*instance), None),
        What::Submitted { instance, first, count, .. } => {
            (Some(*instance), Some((first.0, *count)))
        }
        What::Recomputed { instance, task } | What::Copied { instance, task, .. } => {
            (Some(*instance), Some((task.0, 1)))
        }
        What::Assigned { run, .. }
        | What::Requeued { run, .. }
        | What::Cancelling { run }
        | What::Retried { run }
        | What::RecomputationEnded { run, .. } => tasks(run),
        What::Ended(ended) => tasks(&ended.run),
        What::Waits(waits) => tasks(&waits.run),
        What::Uses(uses) => tasks(&uses.run),
        What::Reserves(reserves) => tasks(&reserves.run),
        What::DispatcherStarted { .. }
        | What::ExecutorJoined { .. }
        | What::ExecutorGone { .. }
        | What::ExecutorSuspended { .. }
        | What::ExecutorDrained { .. }
        | What::Moved { .. }
        | What::Provisioned { .. }
        | What::Missing { .. } => (None, None),
    }
}

fn executor_of(what: &What) -> Option<ExecutorId> {
    match what {
        What::Assigned { executor, .. }
        | What::Moved { executor, .. }
        | What::ExecutorJoined { executor, .. }
        | What::ExecutorGone { executor, .. }
        | What::ExecutorSuspended { executor, .. }
        | What::ExecutorDrained { executor, .. } => Some(*executor),
        What::Ended(ended) => ended.executor,
        _ => None,
    }
}

/// Whether a number, or a name, is what the user wrote.
fn is_named(wanted: &str, number: u64, name: Option<&str>) -> bool {
    wanted.parse() == Ok(number) || name == Some(wanted)
}

impl Filter {
    /// The instance or executor that is wanted, if it is not among the names of all events that were
    /// read.
    pub(crate) fn not_there(&self, names: &Names) -> Option<NotThere> {
        let Filter { args, .. } = self;
        if let Some(wanted) = &args.instance {
            let mut known = names.instances.keys();
            if !known.any(|id| is_named(wanted, id.0, names.instance(*id))) {
                return Some(NotThere::Instance(wanted.clone()));
            }
        }
        let wanted = args.executor.as_ref()?;
        let mut known = names.executors();
        let is_there = known.any(|(id, name)| is_named(wanted, id.0, Some(name)));
        (!is_there).then(|| NotThere::Executor(wanted.clone()))
    }

    /// Whether an event is wanted.
    pub(crate) fn takes(&self, event: &Event, names: &Names) -> bool {
        let Filter { args, since, until } = self;
        if event.at < *since || event.at > *until {
            return false;
        }
        if !args.kind.is_empty() && !args.kind.contains(&Kind::of(&event.what)) {
            return false;
        }
        if args.failed {
            let failed = match &event.what {
                What::Ended(ended) => ended.outcome.status() == Status::Failed,
                _ => false,
            };
            if !failed {
                return false;
            }
        }
        let (instance, tasks) = about(&event.what);
        if let Some(wanted) = &args.instance {
            let found = instance.is_some_and(|id| is_named(wanted, id.0, names.instance(id)));
            if !found {
                return false;
            }
        }
        if let Some((first, count)) = args.tasks {
            let overlaps = |(from, there): (u64, u64)| {
                from < first.saturating_add(count) && first < from.saturating_add(there)
            };
            if !tasks.is_some_and(overlaps) {
                return false;
            }
        }
        args.executor.as_ref().is_none_or(|wanted| {
            let executor = executor_of(&event.what);
            executor.is_some_and(|id| is_named(wanted, id.0, names.executor(id)))
        })
    }
}
