//! What tasks below write: the dispatcher above asks, and the relay goes to the executor, or
//! has the relay below it asked.
//!
//! Each question is a task of its own, so that one executor that does not answer holds up
//! nothing else.

use falkon_core::dispatch::AccessError;
use falkon_core::result::shortened;
use falkon_core::tail::{Tail, TailQuestion, TailState};
use falkon_data::peer::{Peer, Visitor};
use falkon_net::client::{Client, ClientError};
use falkon_net::ids::tail_id;
use falkon_net::secure::{Level, VisitPurpose};
use falkon_wire::message::{FromExecutor, Refusal};
use std::time::Duration;
use tokio::task::JoinSet;

/// Questions that are asked below at a time.
const QUESTIONS_MAX: usize = 256;
/// How long an executor may take for an answer, beside the question's patience.
const ANSWER_MS_MAX: u64 = 20_000;
/// Why an executor was not reached, for people.
const WHY_BYTES_MAX: usize = 1024;

/// What a task has written, or why that is not known.
type Told = Result<Tail, AccessError>;

/// See the [module](self).
pub(super) struct Tails {
    level: Level,
    /// They end with this.
    open: JoinSet<(u64, Told)>,
}

impl Tails {
    pub(super) fn new(level: Level) -> Tails {
        Tails { level, open: JoinSet::new() }
    }

    /// Asks below about a task of the relay's instance there.
    pub(super) fn ask(&mut self, number: u64, question: Option<TailQuestion>, below: &Client) {
        let (level, client) = (self.level, below.clone());
        let is_busy = self.open.len() >= QUESTIONS_MAX;
        self.open.spawn(async move {
            let told = match question {
                // It has ended, or has not got a number yet.
                None => Ok(Tail::without_bytes(TailState::Gone)),
                Some(_) if is_busy => Err(unreached("", "too many others ask it")),
                Some(question) => {
                    let limit = u64::from(question.patience_ms) + ANSWER_MS_MAX;
                    let asking = ask(level, &client, question);
                    let told = tokio::time::timeout(Duration::from_millis(limit), asking).await;
                    told.unwrap_or_else(|_| Err(unreached("", "it has not answered in time")))
                }
            };
            (number, told)
        });
    }

    /// The next answer; waits for it.
    pub(super) async fn told(&mut self) -> (u64, Told) {
        loop {
            match self.open.join_next().await {
                Some(Ok(told)) => return told,
                // It has been stopped with the rest.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

/// The message that carries an answer.
pub(super) fn tail_message(number: u64, told: Told) -> FromExecutor {
    match told {
        Ok(tail) => FromExecutor::Tail { number, tail },
        Err(why) => FromExecutor::NoTail { number, why },
    }
}

fn unreached(executor: &str, why: impl ToString) -> AccessError {
    let why = shortened(&why.to_string(), WHY_BYTES_MAX);
    AccessError::Unreached { executor: executor.to_owned(), why }
}

/// Asks the executor that has the task, or whoever can ask it.
async fn ask(level: Level, client: &Client, question: TailQuestion) -> Told {
    let TailQuestion { task: key, stream, from, patience_ms } = question;
    let reached = client.reach_tail(key.instance, key.task, stream).await;
    let (ticket, access) = match reached {
        Ok((ticket, access)) => match access.into_iter().next() {
            Some(access) => (ticket, access),
            None => return Ok(Tail::without_bytes(TailState::Waiting)),
        },
        Err(ClientError::Refused(Refusal::Access(error))) => {
            return match error {
                AccessError::Below(_) => match client.ask_tail(question).await {
                    Ok(tail) => Ok(tail),
                    Err(error) => Err(refused(error)),
                },
                AccessError::NotSent => Ok(Tail::without_bytes(TailState::Waiting)),
                // Its result is on its way.
                AccessError::Ended | AccessError::NoTask => {
                    Ok(Tail::without_bytes(TailState::Gone))
                }
                error => Err(error),
            };
        }
        Err(error) => return Err(refused(error)),
    };
    let name = access.name;
    if access.serves.address.is_empty() {
        return Err(unreached(&name, "it does not listen for others"));
    }
    let peer = Peer {
        address: access.serves.address,
        fingerprint: access.serves.fingerprint.as_slice().try_into().ok(),
    };
    let id = tail_id(key.instance, key.task, stream);
    let visitor = Visitor::new(level, VisitPurpose::Tail, id, &ticket);
    let asked = async {
        let mut visit = visitor.tail(&peer, key, stream).await?;
        visit.ask(from, Duration::from_millis(u64::from(patience_ms))).await
    };
    asked.await.map_err(|error| unreached(&name, error))
}

/// The dispatcher below refuses, or the connection to it is lost.
fn refused(error: ClientError) -> AccessError {
    match error {
        ClientError::Refused(Refusal::Access(error)) => error,
        error => unreached("", error),
    }
}
