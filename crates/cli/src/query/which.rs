//! The tasks of an instance that a command is for: all, some by number or name, or those that
//! are chosen by what they are.

use super::chosen::Chosen;
use super::named::{What, named_instance, named_task};
use super::with_client;
use crate::access::AccessArgs;
use crate::exit::Exit;
use clap::Args;
use falkon_core::dispatch::Selection;
use falkon_core::task::{InstanceId, TaskId};
use falkon_net::client::{Client, ClientError};
use falkon_wire::message::TaskInfo;

/// Options that name an instance and tasks of it.
#[derive(Args, Debug)]
pub(crate) struct Which {
    #[command(flatten)]
    access: AccessArgs,
    /// The instance, by its number or name, or one of its tasks
    #[arg(value_name = "INSTANCE[/TASK]")]
    what: What,
    /// Only these tasks, as FIRST or FIRST-LAST; may be repeated
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

/// The tasks that a command is for, of an instance that a dispatcher knows.
pub(super) struct Among {
    pub(super) client: Client,
    pub(super) instance: InstanceId,
    /// The tasks that are numbered or named, as (first, count); none: all.
    pub(super) tasks: Vec<(u64, u64)>,
    pub(super) chosen: Chosen,
}

impl Which {
    /// Connects, finds the instance and the tasks that have names, and goes on with them.
    pub(super) fn find<F>(self, go_on: F) -> Exit
    where
        F: AsyncFnOnce(Among) -> Result<Exit, ClientError>,
    {
        let Which { access, what, mut tasks, chosen } = self;
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
            go_on(Among { client, instance, tasks, chosen }).await
        })
    }
}

impl Among {
    /// All of the tasks, whatever they are.
    pub(super) fn selection(&self) -> Selection {
        if self.tasks.is_empty() { Selection::All } else { Selection::Runs(self.tasks.clone()) }
    }

    /// Looks at the tasks, as many as are described in one answer at a time, and has `act` do
    /// something with those that are wanted and chosen, as (first, count).
    pub(super) async fn act_on<F>(
        &self,
        is_wanted: impl Fn(&TaskInfo) -> bool,
        mut act: F,
    ) -> Result<(), ClientError>
    where
        F: AsyncFnMut(Vec<(u64, u64)>) -> Result<(), ClientError>,
    {
        let all = [(0, u64::MAX)];
        for &(first, count) in if self.tasks.is_empty() { &all } else { &self.tasks[..] } {
            let (mut at, end) = (first, first.saturating_add(count));
            while at < end {
                let tasks = self.client.tasks(self.instance, TaskId(at), end - at).await?;
                let Some(last) = tasks.last() else { break };
                at = last.task.0 + 1;
                let wanted = |task: &&TaskInfo| is_wanted(task) && self.chosen.takes(task);
                let runs = runs_of(tasks.iter().filter(wanted).map(|task| task.task));
                if !runs.is_empty() {
                    act(runs).await?;
                }
            }
        }
        Ok(())
    }
}

/// Tasks in the order of their numbers as (first, count).
fn runs_of(tasks: impl Iterator<Item = TaskId>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for TaskId(task) in tasks {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == task => *count += 1,
            _ => runs.push((task, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_in_a_row_are_one_run() {
        let runs = |tasks: &[u64]| runs_of(tasks.iter().copied().map(TaskId));
        assert_eq!(runs(&[]), []);
        assert_eq!(runs(&[3, 4, 5, 7, 9, 10]), [(3, 3), (7, 1), (9, 2)]);
    }

    #[test]
    fn a_range_has_a_first_and_a_last_task() {
        assert_eq!(task_range("7"), Ok((7, 1)));
        assert_eq!(task_range("7-9"), Ok((7, 3)));
        for wrong in ["", "-", "9-7", "7-", "x", "18446744073709551615"] {
            assert!(task_range(wrong).is_err(), "{wrong:?}");
        }
    }
}
