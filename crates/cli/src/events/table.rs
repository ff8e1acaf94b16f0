//! Tasks that ended as a table: a row for each run of tasks that ended alike.

use super::Names;
use super::parquet::{Declared, Kind, Table};
use falkon_core::events::{Ended, Event, What};
use falkon_core::result::{Outcome, ResourceUsage, Status};
use falkon_core::task::{ExecutorId, Time};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// The columns, in the order in which [`Tasks::add`] fills them. docs/events.md explains them.
const COLUMNS: [Declared; 32] = {
    const fn column(name: &'static str, kind: Kind, is_optional: bool) -> Declared {
        Declared { name, kind, is_optional }
    }
    [
        column("instance", Kind::Int64, false),
        column("first", Kind::Int64, false),
        column("count", Kind::Int64, false),
        column("status", Kind::Text, false),
        column("exit_code", Kind::Int32, true),
        column("signal", Kind::Int32, true),
        column("outcome", Kind::Text, true),
        column("upstream", Kind::Int64, true),
        column("command", Kind::Text, true),
        column("executor", Kind::Int64, true),
        column("executor_name", Kind::Text, true),
        column("attempts", Kind::Int32, false),
        column("queued", Kind::Time, false),
        column("dispatched", Kind::Time, true),
        column("started", Kind::Time, true),
        column("ended", Kind::Time, false),
        column("wait_us", Kind::Int64, true),
        column("run_us", Kind::Int64, true),
        column("staging_us", Kind::Int64, false),
        column("local_objects", Kind::Int64, false),
        column("local_bytes", Kind::Int64, false),
        column("peer_objects", Kind::Int64, false),
        column("peer_bytes", Kind::Int64, false),
        column("store_objects", Kind::Int64, false),
        column("store_bytes", Kind::Int64, false),
        column("user_us", Kind::Int64, true),
        column("system_us", Kind::Int64, true),
        column("rss_max_bytes", Kind::Int64, true),
        column("read_bytes", Kind::Int64, true),
        column("written_bytes", Kind::Int64, true),
        column("disk_max_bytes", Kind::Int64, true),
        column("error", Kind::Text, true),
    ]
};

/// Writes the table.
pub(super) struct Tasks {
    table: Table,
    commands: Commands,
    executors: HashMap<ExecutorId, Arc<str>>,
    words: Words,
}

/// Texts of which many rows have each.
struct Words {
    statuses: [Arc<str>; 3],
    outcomes: HashMap<&'static str, Arc<str>>,
}

/// The command of each submission.
#[derive(Default)]
struct Commands {
    /// By instance and first task.
    submitted: BTreeMap<u64, BTreeMap<u64, Arc<str>>>,
    /// The submission that was looked up last: its instance, its tasks and its command. Tasks that
    /// end one after another are often of the same submission.
    found: Option<(u64, Range<u64>, Arc<str>)>,
}

impl Commands {
    fn add(&mut self, instance: u64, first: u64, command: Arc<str>) {
        self.found = None;
        self.submitted.entry(instance).or_default().insert(first, command);
    }

    fn forget(&mut self, instance: u64) {
        self.found = None;
        self.submitted.remove(&instance);
    }

    fn of(&mut self, instance: u64, task: u64) -> Option<&Arc<str>> {
        let is_found =
            |(of, tasks, _): &(u64, Range<u64>, _)| *of == instance && tasks.contains(&task);
        if !self.found.as_ref().is_some_and(is_found) {
            let submitted = self.submitted.get(&instance)?;
            let (first, command) = submitted.range(..=task).next_back()?;
            let behind = submitted.range(task.saturating_add(1)..).next();
            let end = behind.map_or(u64::MAX, |(next, _)| *next);
            self.found = Some((instance, *first..end, command.clone()));
        }
        self.found.as_ref().map(|(_, _, command)| command)
    }
}

/// A number as the format has it, which has no larger ones than that.
fn signed(number: u64) -> Option<i64> {
    Some(i64::try_from(number).unwrap_or(i64::MAX))
}

fn micros(time: Time) -> Option<i64> {
    signed(time.0)
}

impl Tasks {
    pub(super) fn new() -> Tasks {
        let statuses = ["done", "failed", "cancelled"].map(Arc::from);
        Tasks {
            table: Table::new(&COLUMNS),
            commands: Commands::default(),
            executors: HashMap::new(),
            words: Words { statuses, outcomes: HashMap::new() },
        }
    }

    /// How much of the file waits to be taken.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// What there is of the file since this was last called.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.table.take()
    }

    /// Writes what is left.
    pub(super) fn end(&mut self) {
        self.table.end();
    }

    pub(super) fn add(&mut self, event: &Event, names: &Names) {
        match &event.what {
            What::Submitted { instance, first, command, .. } => {
                self.commands.add(instance.0, first.0, command.clone());
            }
            What::InstanceGone { instance, .. } => {
                self.commands.forget(instance.0);
            }
            What::ExecutorJoined { executor, name, .. } => {
                self.executors.insert(*executor, name.clone());
            }
            What::Ended(ended) => self.ended(ended, names),
            _ => {}
        }
    }

    fn ended(&mut self, ended: &Ended, names: &Names) {
        let (instance, run) = (ended.run.instance.0, ended.run);
        let command = self.commands.of(instance, run.first.0);
        let status = &self.words.statuses[match ended.outcome.status() {
            Status::Done => 0,
            Status::Failed => 1,
            Status::Cancelled => 2,
        }];
        let name = ended.executor.and_then(|id| match self.executors.entry(id) {
            Entry::Occupied(known) => Some(&*known.into_mut()),
            Entry::Vacant(new) => Some(&*new.insert(names.executor(id)?.into())),
        });
        let (code, signal, upstream, word) = match ended.outcome {
            Outcome::Exit(code) => (Some(code), None, None, None),
            Outcome::Signal(signal) => (None, Some(signal), None, None),
            Outcome::UpstreamFailed(task) => (None, None, Some(task.0), None),
            Outcome::Cancelled => (None, None, None, None),
            Outcome::TimedOut => (None, None, None, Some("timed_out")),
            Outcome::NotRun => (None, None, None, Some("not_run")),
            Outcome::NoOutput => (None, None, None, Some("no_output")),
            Outcome::NoInput => (None, None, None, Some("no_input")),
            Outcome::Lost => (None, None, None, Some("lost")),
            Outcome::Unschedulable => (None, None, None, Some("unschedulable")),
            Outcome::Unreadable => (None, None, None, Some("unreadable")),
        };
        let outcomes = &mut self.words.outcomes;
        let outcome = word.map(|word| &*outcomes.entry(word).or_insert_with(|| word.into()));
        let ran = |number: Option<i64>| ended.executor.and(number);
        let usage = &ended.usage;
        let mut row = self.table.row();
        row.number(signed(instance)).number(signed(run.first.0)).number(signed(run.count));
        row.text(Some(status)).number(code.map(i64::from)).number(signal.map(i64::from));
        row.text(outcome).number(upstream.and_then(signed));
        row.text(command);
        row.number(ended.executor.and_then(|id| signed(id.0))).text(name);
        row.number(Some(i64::from(ended.attempts))).number(micros(ended.queued));
        row.number(ran(micros(ended.dispatched))).number(ran(micros(ended.started)));
        row.number(micros(ended.ended)).number(ran(signed(ended.wait_micros())));
        row.number(ran(signed(ended.run_micros()))).number(signed(ended.staging_micros));
        for count in [usage.local, usage.peer, usage.store] {
            row.number(signed(count.objects)).number(signed(count.bytes));
        }
        let used = ended.resources.as_deref();
        let used = |of: fn(&ResourceUsage) -> u64| used.map(of).and_then(signed);
        row.number(used(|used| used.user_micros)).number(used(|used| used.system_micros));
        row.number(used(|used| used.rss_max_bytes)).number(used(|used| used.read_bytes));
        row.number(used(|used| used.written_bytes));
        row.number(ended.resources.as_ref().and_then(|used| signed(used.disk_max_bytes?)));
        row.text(ended.error.as_ref());
    }
}
