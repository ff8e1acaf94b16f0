//! Instances and tasks as people name them.

use crate::exit::Exit;
use falkon_core::task::{InstanceId, TaskId};
use falkon_net::client::{Client, ClientError};
use falkon_wire::message::InstanceStatus;
use std::str::FromStr;

/// A task within its instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Task {
    /// Its number, from 0.
    Number(u64),
    /// The name that its user gave it.
    Name(String),
}

/// An instance, or a task of it: `0`, `screening`, `0/17`, `screening/17`, `0/ligand-17`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct What {
    pub(super) instance: String,
    pub(super) task: Option<Task>,
}

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<What, String> {
        let what = |instance: &str, task| What { instance: instance.to_owned(), task: Some(task) };
        let wrong = "it takes an instance, or a task as INSTANCE/TASK, as in 0/17";
        match text.rsplit_once('/') {
            None => Ok(What { instance: text.to_owned(), task: None }),
            Some((instance, task)) if !instance.is_empty() && !task.is_empty() => {
                if let Ok(number) = task.parse() {
                    return Ok(what(instance, Task::Number(number)));
                }
                // Names of tasks may have slashes, as file names do.
                match text.split_once('/') {
                    Some((instance, name)) if !instance.is_empty() => {
                        Ok(what(instance, Task::Name(name.to_owned())))
                    }
                    _ => Err(wrong.to_owned()),
                }
            }
            Some(_) => Err(wrong.to_owned()),
        }
    }
}

/// A task: `0/17`, `screening/17`, `0/ligand-17`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TaskName {
    pub(super) instance: String,
    pub(super) task: Task,
}

impl FromStr for TaskName {
    type Err = String;

    fn from_str(text: &str) -> Result<TaskName, String> {
        match text.parse()? {
            What { instance, task: Some(task) } => Ok(TaskName { instance, task }),
            _ => Err("it takes a task as INSTANCE/TASK, as in 0/17".to_owned()),
        }
    }
}

/// The number of a task. A name is looked for among all tasks of the instance, as many as are
/// described in one answer at a time.
pub(super) async fn named_task(
    client: &Client,
    instance: InstanceId,
    task: &Task,
) -> Result<Result<u64, Exit>, ClientError> {
    let name = match task {
        Task::Number(number) => return Ok(Ok(*number)),
        Task::Name(name) => name,
    };
    let mut at = 0;
    loop {
        let tasks = client.tasks(instance, TaskId(at), u64::MAX - at).await?;
        let is_named = |found: &&falkon_wire::message::TaskInfo| {
            found.name.as_deref().is_some_and(|found| found == name.as_bytes())
        };
        if let Some(found) = tasks.iter().find(is_named) {
            return Ok(Ok(found.task.0));
        }
        let Some(last) = tasks.last() else {
            return Ok(Err(Exit::usage(format!("instance {instance} has no task named {name:?}"))));
        };
        at = last.task.0 + 1;
    }
}

/// The instance that a number or a name means.
pub(crate) async fn named_instance(
    client: &Client,
    text: &str,
) -> Result<Result<InstanceId, Exit>, ClientError> {
    let found = named_status(client, text).await?;
    Ok(found.map(|instance| InstanceId(instance.id)))
}

/// How the instance is that a number or a name means.
pub(super) async fn named_status(
    client: &Client,
    text: &str,
) -> Result<Result<InstanceStatus, Exit>, ClientError> {
    if let Ok(number) = text.parse() {
        let found = client.status(Some(InstanceId(number))).await?.instances;
        let found = found.into_iter().find(|found| found.id == number);
        let none = || Exit::usage(format!("there is no instance {number}"));
        return Ok(found.ok_or_else(none));
    }
    let mut found = client.status(None).await?.instances;
    found.retain(|instance| instance.name == text);
    if found.len() > 1 {
        let numbers: Vec<String> = found.iter().map(|found| found.id.to_string()).collect();
        let numbers = numbers.join(", ");
        return Ok(Err(Exit::usage(format!(
            "several instances are named {text:?}: give the number of one ({numbers})"
        ))));
    }
    let none = || Exit::usage(format!("there is no instance named {text:?}"));
    Ok(found.pop().ok_or_else(none))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_go_by_number_or_name() {
        let task = |text: &str| text.parse::<TaskName>().ok().map(|one| (one.instance, one.task));
        let some = |instance: &str, task| Some((instance.to_owned(), task));
        let name = |name: &str| Task::Name(name.to_owned());
        assert_eq!(task("0/17"), some("0", Task::Number(17)));
        assert_eq!(task("a/b/17"), some("a/b", Task::Number(17)));
        assert_eq!(task("0/in/ligand.pdb"), some("0", name("in/ligand.pdb")));
        for wrong in ["0", "", "/", "0/", "/17"] {
            assert_eq!(task(wrong), None, "{wrong:?}");
        }
        assert_eq!("0".parse(), Ok(What { instance: "0".to_owned(), task: None }));
    }
}
