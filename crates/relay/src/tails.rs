//! What tasks below write, and have written: the dispatcher above asks, and the relay goes to
//! the executor, or has the relay below it asked.
//!
//! Each question is a task of its own, so that one executor that does not answer holds up
//! nothing else.

use falkon_core::dispatch::{Access, AccessError};
use falkon_core::result::shortened;
use falkon_core::tail::{OutputQuestion, Tail, TailQuestion, TailState};
use falkon_core::task::TaskKey;
use falkon_data::object::Landing;
use falkon_data::peer::{Peer, PeerError, Piece, Visitor};
use falkon_net::client::{Client, ClientError};
use falkon_net::ids::{output_id, tail_id};
use falkon_net::secure::{Level, VisitPurpose};
use falkon_wire::message::{FromExecutor, Refusal};
use std::sync::{Arc, Mutex, PoisonError};
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
        let patience_ms = question.map_or(0, |question| question.patience_ms);
        // Without one the task has ended, or has not got a number yet.
        let asking = question.map(|question| async move { ask(level, &client, question).await });
        self.put(number, patience_ms, asking);
    }

    /// Reads long output of a task of the relay's instance below.
    pub(super) fn read(&mut self, number: u64, question: Option<OutputQuestion>, below: &Client) {
        let (level, client) = (self.level, below.clone());
        let reading = question.map(|question| async move { read(level, &client, question).await });
        self.put(number, 0, reading);
    }

    fn put(
        &mut self,
        number: u64,
        patience_ms: u32,
        asking: Option<impl Future<Output = Told> + Send + 'static>,
    ) {
        let is_busy = self.open.len() >= QUESTIONS_MAX;
        self.open.spawn(async move {
            let told = match asking {
                None => Ok(Tail::without_bytes(TailState::Gone)),
                Some(_) if is_busy => Err(unreached("", "too many others ask it")),
                Some(asking) => {
                    let limit = Duration::from_millis(u64::from(patience_ms) + ANSWER_MS_MAX);
                    let told = tokio::time::timeout(limit, asking).await;
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
    let (name, peer) = peer_of(access)?;
    let id = tail_id(key.instance, key.task, stream);
    let visitor = Visitor::new(level, VisitPurpose::Tail, id, &ticket);
    let asked = async {
        let mut visit = visitor.tail(&peer, key, stream).await?;
        visit.ask(from, Duration::from_millis(u64::from(patience_ms))).await
    };
    asked.await.map_err(|error| unreached(&name, error))
}

/// Reads of the executor that keeps the output, or has whoever can read of it.
async fn read(level: Level, client: &Client, question: OutputQuestion) -> Told {
    let OutputQuestion { task: TaskKey { instance, task }, stream, from, count } = question;
    let (ticket, access, number) = match client.reach_output(instance, task, stream).await {
        Ok(found) => found,
        Err(ClientError::Refused(Refusal::Access(AccessError::Below(_)))) => {
            return client.read_output(question).await.map_err(refused);
        }
        Err(error) => return Err(refused(error)),
    };
    let (name, peer) = peer_of(access)?;
    let object = output_id(instance, task, stream, number);
    let visitor = Visitor::new(level, VisitPurpose::Output, object, &ticket);
    let piece = Piece { object, offset: from, length: Some(count), size: None };
    let taken = Arc::new(Mutex::new(Vec::new()));
    let taking = Arc::clone(&taken);
    let landing = Landing::taking(
        move |bytes| {
            taking.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(())
        },
        |_| {},
    );
    match visitor.fetcher().fetch(&peer, &piece, &landing).await {
        Ok(_) => {}
        Err(PeerError::Gone) => return Ok(Tail::without_bytes(TailState::Gone)),
        Err(error) => return Err(unreached(&name, error)),
    }
    let bytes = std::mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner));
    let total_bytes = from.saturating_add(bytes.len() as u64);
    Ok(Tail { state: TailState::Ended, is_cut: false, total_bytes, bytes })
}

/// An executor's name, and where to visit it.
fn peer_of(access: Access) -> Result<(String, Peer), AccessError> {
    let Access { name, serves, .. } = access;
    if serves.address.is_empty() {
        return Err(unreached(&name, "it does not listen for others"));
    }
    let fingerprint = serves.fingerprint.as_slice().try_into().ok();
    Ok((name, Peer { address: serves.address, fingerprint }))
}

/// The dispatcher below refuses, or the connection to it is lost.
fn refused(error: ClientError) -> AccessError {
    match error {
        ClientError::Refused(Refusal::Access(error)) => error,
        // The relay leaves the dispatcher above until it has a connection again.
        ClientError::Lost => AccessError::Away(String::new()),
        error => unreached("", error),
    }
}
