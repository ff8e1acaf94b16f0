//! What those who watch have a dispatcher do, from `falkon top` and from the page.

use super::counted;
use falkon_core::dispatch::Selection;
use falkon_core::task::{ExecutorId, InstanceId};
use falkon_net::client::{Client, ClientError};

/// An action on one instance or one executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Dispatch no more tasks of an instance, or go on.
    Pause(InstanceId, bool),
    /// Set an instance's priority.
    Prioritize(InstanceId, i32),
    /// Cancel all of an instance's tasks that have not ended.
    Cancel(InstanceId),
    /// Run all failed tasks of an instance again.
    Retry(InstanceId),
    /// Give an executor no more tasks, or some again.
    Drain(ExecutorId, bool),
}

impl Action {
    /// Performs the action, and returns what has changed, for people.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub(crate) async fn perform(self, client: &Client) -> Result<String, ClientError> {
        Ok(match self {
            Action::Pause(instance, is_paused) => {
                client.pause(instance, is_paused).await?;
                format!("instance {instance} {}", if is_paused { "paused" } else { "resumed" })
            }
            Action::Prioritize(instance, priority) => {
                client.prioritize(instance, priority).await?;
                format!("instance {instance} has priority {priority}")
            }
            Action::Cancel(instance) => {
                client.cancel(instance, Selection::All).await?;
                format!("instance {instance} cancelled")
            }
            Action::Retry(instance) => {
                let (retried, forgotten) = client.retry(instance, Selection::All).await?;
                let mut said = format!("{} retried", counted(retried, "task"));
                if forgotten > 0 {
                    said.push_str(&format!(
                        "; {} cannot be: what they were is not known any more, or they are one \
                         executor's alone",
                        counted(forgotten, "task")
                    ));
                }
                said
            }
            Action::Drain(executor, is_drained) => {
                client.drain(executor, is_drained).await?;
                let what = if is_drained { "drained" } else { "gets tasks again" };
                format!("executor {executor} {what}")
            }
        })
    }
}
