//! `falkon tasks`: the tasks of an instance, those that are wanted, in the order that is.

use super::chosen::Chosen;
use super::{named_instance, show, with_client};
use crate::access::AccessArgs;
use crate::exit::{Exit, say};
use crate::results::usage::UsageTable;
use clap::{Args, ValueEnum};
use falkon_core::result::{Outcome, ResourceUsage};
use falkon_core::task::TaskId;
use falkon_net::client::Client;
use falkon_wire::message::TaskInfo;
use std::cmp::Reverse;

/// Tasks beyond those shown that are held while the first ones are looked for.
const HELD_TASKS: usize = 10_000;

/// What tasks are sorted by, the greatest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Measure {
    /// How long it ran
    RunTime,
    /// How long it waited, from its submission to its start
    WaitTime,
    /// When it started
    Started,
    /// When it ended
    Ended,
    /// How many attempts it took
    Attempts,
    /// Its exit status
    ExitCode,
    /// The most memory that it had
    Memory,
    /// Its processor time
    CpuTime,
}

/// `falkon tasks`
#[derive(Args, Debug)]
pub(crate) struct TasksArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// The instance, by its number or name
    #[arg(value_name = "INSTANCE")]
    instance: String,
    /// The first task looked at
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// How many are shown at most
    #[arg(long, value_name = "N", default_value_t = 1000)]
    count: u64,
    #[command(flatten)]
    chosen: Chosen,
    /// Only tasks that exited with this status
    #[arg(long, value_name = "STATUS", allow_hyphen_values = true)]
    exit_code: Option<i32>,
    /// Only tasks that ran at least so long: 30s, 5m, 2h
    #[arg(long, value_name = "TIME", value_parser = crate::plan::duration_micros)]
    longer: Option<u64>,
    /// Only tasks that ran at most so long
    #[arg(long, value_name = "TIME", value_parser = crate::plan::duration_micros)]
    shorter: Option<u64>,
    /// Show those first that have most of this, among all that are wanted
    #[arg(long, value_name = "MEASURE")]
    sort: Option<Measure>,
    /// Show what all of these tasks used, in place of each: processor time, memory and bytes, by
    /// program
    #[arg(long, conflicts_with_all = ["count", "sort", "json"])]
    usage: bool,
    /// Print a line of JSON per task
    #[arg(long)]
    json: bool,
}

/// How long a task ran, in microseconds, if it has.
fn run_micros(task: &TaskInfo) -> Option<u64> {
    let end = task.end.as_ref().filter(|end| end.executor.is_some())?;
    Some(end.ended.since(end.started))
}

/// The resources that a task used; `None` if they were not measured, or its result is not in
/// memory.
fn used(task: &TaskInfo) -> Option<&ResourceUsage> {
    task.end.as_ref()?.detail.as_deref()?.resources.as_ref()
}

/// The resources that tasks used, by program.
#[derive(Default)]
struct Used {
    table: UsageTable,
    /// Ended tasks whose results are on disk alone.
    unknown: u64,
}

impl Used {
    fn add(&mut self, task: &TaskInfo) {
        match (used(task), run_micros(task)) {
            (Some(used), Some(ran)) => {
                self.table.add_task(task.argv.first().map_or(&[], Vec::as_slice), ran, used);
            }
            _ => {
                // Ended tasks without a result in memory have these states.
                let is_over = matches!(task.state.as_str(), "done" | "ended");
                self.unknown += u64::from(task.end.is_none() && is_over);
            }
        }
    }

    fn show(&self) -> Option<Exit> {
        if self.unknown > 0 {
            say(format_args!(
                "{} tasks have ended whose results are on the dispatcher's disk: `falkon results \
                 --usage` reads them",
                self.unknown
            ));
        }
        show::print(&self.table.lines().iter().map(|line| format!("{line}\n")).collect::<String>())
    }
}

impl TasksArgs {
    /// Whether all tasks are wanted.
    fn takes_all(&self) -> bool {
        self.chosen.takes_all()
            && self.exit_code.is_none()
            && self.longer.is_none()
            && self.shorter.is_none()
    }

    fn takes(&self, task: &TaskInfo) -> bool {
        let code = |code| matches!(&task.end, Some(end) if end.outcome == Outcome::Exit(code));
        if !self.exit_code.is_none_or(code) {
            return false;
        }
        let ran = run_micros(task);
        // A task that has not run is neither.
        let is_long = self.longer.is_none_or(|least| ran.is_some_and(|ran| ran >= least));
        let is_short = self.shorter.is_none_or(|most| ran.is_some_and(|ran| ran <= most));
        is_long && is_short && self.chosen.takes(task)
    }
}

impl Measure {
    /// How much of it a task has; nothing is less than anything.
    fn of(self, task: &TaskInfo) -> Option<i64> {
        let end = task.end.as_ref();
        let ran = end.filter(|end| end.executor.is_some());
        let found = match self {
            Measure::RunTime => run_micros(task)?,
            Measure::WaitTime => ran.map(|end| end.started.since(end.queued))?,
            Measure::Started => ran.map(|end| end.started.0)?,
            Measure::Ended => end.map(|end| end.ended.0)?,
            Measure::Attempts => end.map(|end| u64::from(end.attempts))?,
            Measure::ExitCode => match end?.outcome {
                Outcome::Exit(code) => return Some(i64::from(code)),
                _ => return None,
            },
            Measure::Memory => used(task)?.rss_max_bytes,
            Measure::CpuTime => {
                let used = used(task)?;
                used.user_micros.saturating_add(used.system_micros)
            }
        };
        Some(i64::try_from(found).unwrap_or(i64::MAX))
    }
}

/// The first tasks in the order that is wanted, of those that were looked at.
struct First {
    measure: Measure,
    count: usize,
    tasks: Vec<TaskInfo>,
}

impl First {
    fn add(&mut self, task: TaskInfo) {
        self.tasks.push(task);
        if self.tasks.len() > self.count.saturating_add(HELD_TASKS) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        // Tasks that have the same come in the order of their numbers.
        self.tasks.sort_by_key(|task| (Reverse(self.measure.of(task)), task.task));
        self.tasks.truncate(self.count);
    }
}

/// Runs the command.
pub(crate) fn tasks(args: TasksArgs) -> Exit {
    with_client(&args.access, args.instance.parse().ok(), async |client: Client| {
        let instance = match named_instance(&client, &args.instance).await? {
            Ok(instance) => instance,
            Err(exit) => return Ok(exit),
        };
        let count = usize::try_from(args.count).unwrap_or(usize::MAX);
        let mut first = args.sort.map(|measure| First { measure, count, tasks: Vec::new() });
        let mut used = args.usage.then(Used::default);
        let mut left = args.count;
        let mut at = args.from;
        while left > 0 {
            let some = first.is_none() && used.is_none() && args.takes_all();
            let asked = if some { left } else { u64::MAX - at };
            let mut tasks = client.tasks(instance, TaskId(at), asked).await?;
            let Some(last) = tasks.last() else { break };
            at = last.task.0 + 1;
            tasks.retain(|task| args.takes(task));
            if let Some(used) = &mut used {
                tasks.iter().for_each(|task| used.add(task));
                continue;
            }
            if let Some(first) = &mut first {
                tasks.into_iter().for_each(|task| first.add(task));
                continue;
            }
            tasks.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= tasks.len() as u64;
            if let Some(exit) = show::tasks(&tasks, args.json) {
                return Ok(exit);
            }
        }
        if let Some(exit) = used.and_then(|used| used.show()) {
            return Ok(exit);
        }
        if let Some(mut first) = first {
            first.cut();
            if let Some(exit) = show::tasks(&first.tasks, args.json) {
                return Ok(exit);
            }
        }
        Ok(Exit::Success)
    })
}
