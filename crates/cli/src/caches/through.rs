//! Objects that executors below relays hold: they come through the dispatcher, in parts.

use falkon_core::dispatch::{AccessError, HolderStatus};
use falkon_core::part::PartAnswer;
use falkon_core::task::{ExecutorId, InstanceId};
use falkon_data::peer::{Fetcher, PartAsked, PeerError, Through};
use falkon_net::client::{Client, ClientError};
use falkon_wire::message::Refusal;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How often a part is asked for while too many are on their way.
const ROUNDS_MAX: u32 = 200;
/// The pause before it is asked for again, in milliseconds.
const BUSY_MS: u64 = 100;

/// A fetcher of what executors below relays hold, over a connection to the dispatcher. What it
/// needs ends with it.
pub(super) fn fetcher(client: Client, instance: Option<InstanceId>) -> Fetcher {
    let (through, mut asked) = Through::new();
    tokio::spawn(async move {
        // No more than transfers ask for at a time; they end with this set.
        let mut answering = JoinSet::new();
        while let Some(part) = asked.recv().await {
            while answering.try_join_next().is_some() {}
            answering.spawn(answer(client.clone(), instance, part));
        }
    });
    Fetcher::through(through)
}

/// Has the dispatcher answer a question.
async fn answer(client: Client, instance: Option<InstanceId>, asked: PartAsked) {
    for _ in 0..ROUNDS_MAX {
        let told = match client.read_part_below(instance, asked.question).await {
            Ok(PartAnswer::Busy) | Err(ClientError::Refused(Refusal::Busy)) => None,
            Ok(answer) => Some(answer),
            Err(error) if is_not_held(&error) => Some(PartAnswer::Gone),
            Err(_) => Some(PartAnswer::Unreached),
        };
        if let Some(told) = told {
            return asked.end(told);
        }
        if asked.answer.is_closed() {
            return;
        }
        sleep(Duration::from_millis(BUSY_MS)).await;
    }
    asked.end(PartAnswer::Busy);
}

/// Whether the dispatcher knows of no holder that could be asked.
pub(super) fn is_not_held(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(Refusal::Access(AccessError::NotHeld)))
}

/// The relays among the holders of an object: those that cannot be gone to, and are not among
/// the executors that can.
pub(super) fn relays(
    holders: &[HolderStatus],
    reached: impl Fn(ExecutorId) -> bool,
) -> Vec<&HolderStatus> {
    holders.iter().filter(|holder| holder.holds && !reached(holder.executor)).collect()
}

/// Why an object did not come from relays.
pub(super) fn why(error: &PeerError) -> String {
    match error {
        PeerError::Gone => "no executor below has it (any more)".to_owned(),
        PeerError::Busy => "too many objects are on their way; try again".to_owned(),
        PeerError::Lost { arrived, reason, .. } => {
            format!("it was lost after {arrived} bytes: {reason}")
        }
        error => error.to_string(),
    }
}
