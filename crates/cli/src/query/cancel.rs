//! `falkon cancel`: an instance, some of its tasks, or those that options choose.

use super::chosen::{Chosen, is_under_way};
use super::{What, named_instance, named_task, show, with_client};
use crate::access::AccessArgs;
use crate::exit::{Exit, say};
use clap::Args;
use falkon_core::dispatch::Selection;
use falkon_core::task::{InstanceId, TaskId};
use falkon_net::client::{Client, ClientError};
use falkon_wire::message::TaskInfo;

/// `falkon cancel`
#[derive(Args, Debug)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// The instance, by its number or name, or one of its tasks
    #[arg(value_name = "INSTANCE[/TASK]")]
    what: What,
    /// Only these tasks, as FIRST or FIRST-LAST; may be repeated [default: all, and the
    /// instance accepts no more]
    #[arg(long, value_name = "RANGE", value_parser = task_range)]
    tasks: Vec<(u64, u64)>,
    #[command(flatten)]
    chosen: Chosen,
}

/// `7` or `7-9` as (first, count).
pub(crate) fn task_range(text: &str) -> Result<(u64, u64), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last && last < u64::MAX => Ok((first, last - first + 1)),
        _ => Err("it takes a task's number, or FIRST-LAST".to_owned()),
    }
}

pub(crate) fn cancel(args: CancelArgs) -> Exit {
    let CancelArgs { access, what, mut tasks, chosen } = args;
    let number = what.instance.parse().ok();
    with_client(&access, number, async |client: Client| {
        let instance = match number {
            Some(number) => InstanceId(number),
            None => match named_instance(&client, &what.instance).await? {
                Ok(instance) => instance,
                Err(exit) => return Ok(exit),
            },
        };
        if let Some(task) = &what.task {
            match named_task(&client, instance, task).await? {
                Ok(number) => tasks.push((number, 1)),
                Err(exit) => return Ok(exit),
            }
        }
        if chosen.takes_all() {
            let all = tasks.is_empty();
            let selection = if all { Selection::All } else { Selection::Runs(tasks) };
            client.cancel(instance, selection).await?;
        } else {
            let count = cancel_chosen(&client, instance, &tasks, &chosen).await?;
            say(format_args!("{} cancelled", show::counted(count, "task")));
        }
        Ok(Exit::Success)
    })
}

/// Cancels the tasks that are chosen and have not ended, among all or some. Returns how
/// many they are.
async fn cancel_chosen(
    client: &Client,
    instance: InstanceId,
    among: &[(u64, u64)],
    chosen: &Chosen,
) -> Result<u64, ClientError> {
    let all = [(0, u64::MAX)];
    let mut cancelled = 0;
    for &(first, count) in if among.is_empty() { &all } else { among } {
        let (mut at, end) = (first, first.saturating_add(count));
        while at < end {
            let tasks = client.tasks(instance, TaskId(at), end - at).await?;
            let Some(last) = tasks.last() else { break };
            at = last.task.0 + 1;
            let wanted = tasks.iter().filter(|task| is_under_way(task) && chosen.takes(task));
            let runs = runs_of(wanted);
            if !runs.is_empty() {
                cancelled += runs.iter().map(|(_, count)| count).sum::<u64>();
                client.cancel(instance, Selection::Runs(runs)).await?;
            }
        }
    }
    Ok(cancelled)
}

/// Tasks in the order of their numbers as (first, count).
pub(super) fn runs_of<'a>(tasks: impl Iterator<Item = &'a TaskInfo>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for task in tasks {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == task.task.0 => *count += 1,
            _ => runs.push((task.task.0, 1)),
        }
    }
    runs
}
