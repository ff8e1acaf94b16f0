//! A client's connection to a dispatcher.
//!
//! Requests may be made by many tasks at once; results arrive on a channel of
//! their own. When the connection is lost every request under way fails with
//! [`ClientError::Lost`] and the channel ends: connect again, submit what was
//! not accepted again under the same ids, and subscribe from where the results
//! stopped. `client/requests.rs` has a method for each request.

mod requests;

use crate::secure::{
    AccessFile, ConnectError, FrameReader, FrameWriter, Role, Versions, WriteError, connect,
};
use falkon_core::dispatch::{Delivery, RequestError};
use falkon_core::task::InstanceId;
use falkon_wire::codec::Wire;
use falkon_wire::message::{ALTERNATIVES_SINCE, FromClient, PROTOCOL_VERSION, Refusal, ToClient};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Requests waiting to be written; more wait in their callers.
const REQUESTS_QUEUED_MAX: usize = 64;
/// Bytes of requests that are written together, beyond the last one.
const WRITE_BYTES_MAX: usize = 256 << 10;
/// How long an acknowledgement of results waits for a request to go with.
const ACKNOWLEDGE_MS: u64 = 10;
/// Deliveries waiting to be taken in; the dispatcher's window keeps them few.
const DELIVERIES_QUEUED_MAX: usize = 1024;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection could be made.
    #[error(transparent)]
    Connect(ConnectError),
    /// The connection was lost; the request may or may not have been carried
    /// out.
    #[error("the connection to the dispatcher was lost")]
    Lost,
    /// The dispatcher refused.
    #[error("the dispatcher refused: {0}")]
    Refused(#[source] Refusal),
    /// The session's protocol has no such request.
    #[error(
        "the session with the dispatcher is in protocol {spoken}, and this request is in protocol \
         {since} and later: {}",
        if *since > *newest { "unset FALKON_PROTOCOL" } else { "upgrade the dispatcher" }
    )]
    Older {
        /// What both sides speak.
        spoken: u16,
        /// The first version that has the request.
        since: u16,
        /// The newest version that this side speaks.
        newest: u16,
    },
    /// The dispatcher is of a release that does not know what was asked for.
    #[error(
        "the dispatcher speaks protocol {theirs} and cannot place tasks with alternatives (--or): \
         upgrade it to a release that speaks protocol {ALTERNATIVES_SINCE}, as this one does"
    )]
    NoAlternatives {
        /// The version that it speaks.
        theirs: u16,
    },
    /// The dispatcher answered another question.
    #[error("the dispatcher's answer does not fit the request")]
    Protocol,
}

impl ClientError {
    /// Whether trying again later, with nothing else changed, may help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            ClientError::Connect(error) => error.is_transient(),
            ClientError::Lost => true,
            ClientError::Refused(_)
            | ClientError::Older { .. }
            | ClientError::NoAlternatives { .. }
            | ClientError::Protocol => false,
        }
    }
}

#[derive(Debug, Default)]
struct Waiting {
    answers: HashMap<u64, oneshot::Sender<ToClient>>,
    next_request: u64,
    /// The connection is gone: nothing will be answered any more.
    over: bool,
}

/// A connection to a dispatcher. Clones share it.
#[derive(Debug, Clone)]
pub struct Client {
    queue: mpsc::Sender<FromClient>,
    waiting: Arc<Mutex<Waiting>>,
    /// The version of the protocol that both sides speak.
    version: u16,
}

/// Results as they come.
#[derive(Debug)]
pub struct Deliveries(mpsc::Receiver<Result<Delivery, InstanceId>>);

impl Deliveries {
    /// The next results of an instance that was subscribed to. May be given up
    /// half-way; nothing is lost by that.
    ///
    /// # Errors
    /// [`ClientError::Lost`] with the connection, and [`ClientError::Refused`]
    /// once for each instance that another client has destroyed.
    pub async fn recv(&mut self) -> Result<Delivery, ClientError> {
        let next = self.0.recv().await.ok_or(ClientError::Lost)?;
        next.map_err(|gone| ClientError::Refused(Refusal::Request(RequestError::NoInstance(gone))))
    }
}

impl Client {
    /// Connects as `role`.
    ///
    /// # Errors
    /// [`ClientError::Connect`] says why, per address.
    pub async fn connect(
        access: &AccessFile,
        role: Role,
    ) -> Result<(Client, Deliveries), ClientError> {
        let session =
            connect(access, role, Versions::spoken()).await.map_err(ClientError::Connect)?;
        let (client, deliveries) = Client::over(session.reader, session.writer);
        Ok((Client { version: session.version, ..client }, deliveries))
    }

    /// Uses a connection that is established already, in this release's newest version.
    #[must_use]
    pub fn over(reader: FrameReader, writer: FrameWriter) -> (Client, Deliveries) {
        let (queue, requests) = mpsc::channel(REQUESTS_QUEUED_MAX);
        let (deliver, deliveries) = mpsc::channel(DELIVERIES_QUEUED_MAX);
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let client = Client { queue, waiting: waiting.clone(), version: PROTOCOL_VERSION };
        tokio::spawn(async move {
            tokio::select! {
                () = read(reader, waiting.clone(), deliver) => {}
                () = write(writer, requests) => {}
            }
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.over = true;
            waiting.answers.clear();
        });
        (client, Deliveries(deliveries))
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, message: impl FnOnce(u64) -> FromClient) -> Result<ToClient, ClientError> {
        self.begin(message).await?.answer().await
    }

    /// Sends a request; its answer comes later.
    async fn begin(&self, message: impl FnOnce(u64) -> FromClient) -> Result<Pending, ClientError> {
        let (sender, answer) = oneshot::channel();
        let request = {
            let mut waiting = self.waiting();
            if waiting.over {
                return Err(ClientError::Lost);
            }
            let request = waiting.next_request;
            waiting.next_request += 1;
            waiting.answers.insert(request, sender);
            request
        };
        self.queue.send(message(request)).await.map_err(|_| ClientError::Lost)?;
        Ok(Pending(answer))
    }

    /// Sends a message that has no answer.
    async fn notify(&self, message: FromClient) -> Result<(), ClientError> {
        self.queue.send(message).await.map_err(|_| ClientError::Lost)
    }
}

/// An answer that is awaited.
#[derive(Debug)]
pub struct Pending(oneshot::Receiver<ToClient>);

impl Pending {
    async fn answer(self) -> Result<ToClient, ClientError> {
        match self.0.await {
            Ok(ToClient::Refused { reason, .. }) => Err(ClientError::Refused(reason)),
            Ok(answer) => Ok(answer),
            Err(_) => Err(ClientError::Lost),
        }
    }

    /// Waits until the tasks are accepted: from then on each will end exactly
    /// once. Returns how many they are: of a task that runs everywhere, as many as
    /// there are executors.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn accepted(self) -> Result<u64, ClientError> {
        match self.answer().await? {
            ToClient::Accepted { count, .. } => Ok(count),
            other => Err(unexpected(other)),
        }
    }
}

fn done(answer: ToClient) -> Result<(), ClientError> {
    match answer {
        ToClient::Done { .. } => Ok(()),
        other => Err(unexpected(other)),
    }
}

fn unexpected(answer: ToClient) -> ClientError {
    match answer {
        ToClient::Refused { reason, .. } => ClientError::Refused(reason),
        _ => ClientError::Protocol,
    }
}

async fn read(
    mut reader: FrameReader,
    waiting: Arc<Mutex<Waiting>>,
    deliver: mpsc::Sender<Result<Delivery, InstanceId>>,
) {
    // Whatever ends the connection, callers learn of it as Lost.
    while let Ok(Some(batch)) = reader.read_batch().await {
        let mut deliveries = Vec::new();
        for frame in batch {
            let Ok(message) = ToClient::from_bytes(frame) else { return };
            let request = match &message {
                ToClient::Created { request, .. }
                | ToClient::Accepted { request, .. }
                | ToClient::Done { request }
                | ToClient::Refused { request, .. }
                | ToClient::Status { request, .. }
                | ToClient::Tasks { request, .. }
                | ToClient::Objects { request, .. }
                | ToClient::Found { request, .. }
                | ToClient::Forgotten { request, .. }
                | ToClient::Reached { request, .. }
                | ToClient::OutputReached { request, .. }
                | ToClient::Tail { request, .. }
                | ToClient::Part { request, .. }
                | ToClient::Parts { request, .. }
                | ToClient::Provision { request, .. }
                | ToClient::Subtree { request, .. }
                | ToClient::Withdrawn { request, .. }
                | ToClient::Staged { request, .. }
                | ToClient::Explained { request, .. }
                | ToClient::Retried { request, .. }
                | ToClient::Idle { request, .. }
                | ToClient::User { request, .. }
                | ToClient::Users { request, .. }
                | ToClient::Program { request, .. }
                | ToClient::Events { request, .. } => *request,
                ToClient::Results(_) => {
                    if let ToClient::Results(delivery) = message {
                        deliveries.push(Ok(delivery));
                    }
                    continue;
                }
                ToClient::Gone { instance } => {
                    deliveries.push(Err(*instance));
                    continue;
                }
            };
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(answer) = waiting.answers.remove(&request) {
                // The requester may have given up.
                let _ = answer.send(message);
            }
        }
        for delivery in deliveries {
            if deliver.send(delivery).await.is_err() {
                // The receiver of results is gone; requests continue.
                break;
            }
        }
    }
}

/// Writes what is asked for, together what comes together. The dispatcher waits
/// for no acknowledgement of results, so these go with the next request or
/// after a moment: each message of its own would wake it.
async fn write(mut writer: FrameWriter, mut requests: mpsc::Receiver<FromClient>) {
    let mut batch = Vec::new();
    let mut acknowledged: BTreeMap<InstanceId, u64> = BTreeMap::new();
    let mut due = None;
    loop {
        let open = tokio::select! {
            biased;
            count = requests.recv_many(&mut batch, REQUESTS_QUEUED_MAX) => count > 0,
            () = until(due) => true,
        };
        batch.retain(|message| match message {
            FromClient::Acknowledge { instance, upto } => {
                let known = acknowledged.entry(*instance).or_default();
                *known = (*known).max(*upto);
                false
            }
            _ => true,
        });
        let now = Instant::now();
        if open && batch.is_empty() && due.is_none_or(|due| now < due) {
            due.get_or_insert(now + Duration::from_millis(ACKNOWLEDGE_MS));
            continue;
        }
        due = None;
        let acknowledgements = std::mem::take(&mut acknowledged)
            .into_iter()
            .map(|(instance, upto)| FromClient::Acknowledge { instance, upto });
        let sent = send(&mut writer, acknowledgements.chain(batch.drain(..))).await;
        if sent.is_err() {
            return;
        }
        if !open {
            // The last handle was dropped: say goodbye.
            let _ = writer.close().await;
            return;
        }
    }
}

/// Waits until `due`; for ever if that is never.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Sends messages, so that they wake the dispatcher once.
async fn send(
    writer: &mut FrameWriter,
    messages: impl Iterator<Item = FromClient>,
) -> Result<(), WriteError> {
    for message in messages {
        if writer.queue_with(|out| message.encode(out)).is_err() {
            // Too large or too much: submissions are cut to fit a frame and
            // the queue is flushed, so this cannot be.
            return Err(WriteError(std::io::ErrorKind::InvalidData.into()));
        }
        if writer.queued_bytes() > WRITE_BYTES_MAX {
            writer.flush().await?;
        }
    }
    writer.flush().await
}
