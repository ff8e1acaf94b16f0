//! `falkon retry`: tasks that have ended and not well run again, in their places.

use super::cancel::{runs_of, task_range};
use super::chosen::{Chosen, is_retriable};
use super::{What, named_instance, named_task, show, with_client};
use crate::access::AccessArgs;
use crate::exit::{Exit, say};
use clap::Args;
use falkon_core::dispatch::Selection;
use falkon_core::task::{InstanceId, TaskId};
use falkon_net::client::{Client, ClientError};

/// `falkon retry`
#[derive(Args, Debug)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// The instance, by its number or name, or one of its tasks
    #[arg(value_name = "INSTANCE[/TASK]")]
    what: What,
    /// All tasks that have failed; so it is if nothing else chooses tasks
    #[arg(long, conflicts_with_all = ["tasks", "state", "command", "executor"])]
    failed: bool,
    /// Only these tasks, as FIRST or FIRST-LAST; may be repeated
    #[arg(long, value_name = "RANGE", value_parser = task_range)]
    tasks: Vec<(u64, u64)>,
    #[command(flatten)]
    chosen: Chosen,
}

/// How many tasks run again, and how many cannot.
#[derive(Default)]
struct Count {
    retried: u64,
    forgotten: u64,
}

pub(crate) fn retry(args: RetryArgs) -> Exit {
    let RetryArgs { access, what, failed: _, mut tasks, chosen } = args;
    with_client(&access, what.instance.parse().ok(), async |client: Client| {
        let instance = match named_instance(&client, &what.instance).await? {
            Ok(instance) => instance,
            Err(exit) => return Ok(exit),
        };
        if let Some(task) = &what.task {
            match named_task(&client, instance, task).await? {
                Ok(number) => tasks.push((number, 1)),
                Err(exit) => return Ok(exit),
            }
        }
        let mut count = Count::default();
        if tasks.is_empty() && chosen.takes_all() {
            count.add(&client, instance, Selection::All).await?;
        } else {
            retry_chosen(&client, instance, &tasks, &chosen, &mut count).await?;
        }
        Ok(count.exit())
    })
}

impl Count {
    async fn add(
        &mut self,
        client: &Client,
        instance: InstanceId,
        selection: Selection,
    ) -> Result<(), ClientError> {
        let (retried, forgotten) = client.retry(instance, selection).await?;
        self.retried += retried;
        self.forgotten += forgotten;
        Ok(())
    }

    fn exit(&self) -> Exit {
        let Count { retried, forgotten } = self;
        if *forgotten > 0 {
            let tasks = show::counted(*forgotten, "task");
            say(format_args!(
                "{tasks} cannot be retried: what they were is not known any more, or they are \
                 one executor's alone; submit them again"
            ));
        }
        let printed = show::print(&format!("{} retried\n", show::counted(*retried, "task")));
        let exit = if *retried == 0 && *forgotten > 0 { Exit::Usage } else { Exit::Success };
        printed.unwrap_or(exit)
    }
}

/// Retries the tasks that are chosen and have ended, among all or some: those that failed, and
/// those that were cancelled if their state, or they themselves, are named.
async fn retry_chosen(
    client: &Client,
    instance: InstanceId,
    among: &[(u64, u64)],
    chosen: &Chosen,
    count: &mut Count,
) -> Result<(), ClientError> {
    let all = [(0, u64::MAX)];
    let with_cancelled = !among.is_empty() || chosen.names_states();
    for &(first, length) in if among.is_empty() { &all } else { among } {
        let (mut at, end) = (first, first.saturating_add(length));
        while at < end {
            let tasks = client.tasks(instance, TaskId(at), end - at).await?;
            let Some(last) = tasks.last() else { break };
            at = last.task.0 + 1;
            let wanted = tasks
                .iter()
                .filter(|task| is_retriable(task, with_cancelled) && chosen.takes(task));
            let runs = runs_of(wanted);
            if !runs.is_empty() {
                count.add(client, instance, Selection::Runs(runs)).await?;
            }
        }
    }
    Ok(())
}
