//! What an owner has the dispatcher do from the page: what `falkon pause`, `resume`, `priority`,
//! `cancel`, `retry`, `drain` and `undrain` do.

use super::answers::{needed, refused};
use crate::query::Action;
use falkon_core::task::{ExecutorId, InstanceId};
use falkon_net::client::Client;
use falkon_web::{Answer, Question};
use serde_json::{Value, json};

/// The action that a request names, or what is wrong with the request.
pub(super) fn action(request: &Question) -> Result<Action, Answer> {
    let instance = || needed(request, "instance").map(InstanceId);
    let executor = || needed(request, "executor").map(ExecutorId);
    match request.name.as_str() {
        "pause" => Ok(Action::Pause(instance()?, true)),
        "resume" => Ok(Action::Pause(instance()?, false)),
        "prioritize" => Ok(Action::Prioritize(instance()?, priority(request)?)),
        "cancel" => Ok(Action::Cancel(instance()?)),
        "retry" => Ok(Action::Retry(instance()?)),
        "drain" => Ok(Action::Drain(executor()?, true)),
        "undrain" => Ok(Action::Drain(executor()?, false)),
        _ => Err(Answer::NotFound("there is no such action".to_owned())),
    }
}

fn priority(request: &Question) -> Result<i32, Answer> {
    let found = request.value("priority").and_then(|text| text.parse().ok());
    let wrong = || format!("a priority is a whole number from {} to {}", i32::MIN, i32::MAX);
    found.ok_or_else(|| Answer::Wrong(wrong()))
}

/// Performs an action over a connection with an owner's rights.
pub(super) async fn act(client: &Client, action: Action) -> Result<Value, Answer> {
    let said = action.perform(client).await.map_err(refused)?;
    Ok(json!({ "said": said }))
}
