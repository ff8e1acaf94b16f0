//! A client's connection to a dispatcher.
//!
//! Requests may be made by many tasks at once; results arrive on a channel of
//! their own. When the connection is lost every request under way fails with
//! [`ClientError::Lost`] and the channel ends: connect again, submit what was
//! not accepted again under the same ids, and subscribe from where the results
//! stopped.
//!
//! This file is long because each request has a method, with its errors.

use crate::secure::{
    AccessFile, ConnectError, FrameReader, FrameWriter, Role, WriteError, connect, fill_randomly,
};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::dispatch::{
    Access, Delivery, Earlier, Explained, FoundObject, Holdings, Idle, InstanceOptions,
    ObjectStatus, Purpose, RequestError, Selection, Subtree,
};
use falkon_core::provision;
use falkon_core::result::Stream;
use falkon_core::task::{ExecutorId, InstanceId, Submission, TaskId};
use falkon_wire::codec::Wire;
use falkon_wire::message::{
    FromClient, PROTOCOL_VERSION, Refusal, Status, TaskInfo, Ticket, ToClient,
};
use falkon_wire::provision::{ProvisionAsk, ProvisionStatus};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
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
            ClientError::Refused(_) | ClientError::Protocol => false,
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
            connect(access, role, PROTOCOL_VERSION).await.map_err(ClientError::Connect)?;
        Ok(Client::over(session.reader, session.writer))
    }

    /// Uses a connection that is established already.
    #[must_use]
    pub fn over(reader: FrameReader, writer: FrameWriter) -> (Client, Deliveries) {
        let (queue, requests) = mpsc::channel(REQUESTS_QUEUED_MAX);
        let (deliver, deliveries) = mpsc::channel(DELIVERIES_QUEUED_MAX);
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let client = Client { queue, waiting: waiting.clone() };
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

    /// Creates an instance. Returns its number and the secret that opens it.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn create(
        &self,
        options: InstanceOptions,
    ) -> Result<(InstanceId, Vec<u8>), ClientError> {
        match self.ask(|request| FromClient::Create { request, options }).await? {
            ToClient::Created { instance, secret, .. } => Ok((instance, secret.0)),
            _ => Err(ClientError::Protocol),
        }
    }

    /// Sends tasks. The first gets the id `first`, which must be one past
    /// those submitted before. Wait for the returned [`Pending`] to know them
    /// accepted; several submissions may be on their way at once.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn submit(
        &self,
        instance: InstanceId,
        first: TaskId,
        submission: Submission,
    ) -> Result<Pending, ClientError> {
        let client = submitter();
        self.begin(|request| FromClient::Submit { request, instance, first, client, submission })
            .await
    }

    /// Seals an instance: no more tasks will come.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn seal(&self, instance: InstanceId) -> Result<(), ClientError> {
        let answer = self.ask(|request| FromClient::Seal { request, instance }).await?;
        done(answer)
    }

    /// Asks for results from the `from`-th on.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn subscribe(&self, instance: InstanceId, from: u64) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::Subscribe { request, instance, from }).await?)
    }

    /// Acknowledges the first `upto` results, which are safe here. The
    /// acknowledgement goes with the next request, or within some milliseconds.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn acknowledge(&self, instance: InstanceId, upto: u64) -> Result<(), ClientError> {
        let message = FromClient::Acknowledge { instance, upto };
        self.queue.send(message).await.map_err(|_| ClientError::Lost)
    }

    /// Cancels tasks.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn cancel(
        &self,
        instance: InstanceId,
        selection: Selection,
    ) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::Cancel { request, instance, selection }).await?)
    }

    /// Has no more tasks of an instance dispatched, or has it go on.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn pause(&self, instance: InstanceId, is_paused: bool) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::Pause { request, instance, is_paused }).await?)
    }

    /// Has an instance go before all that have a lower priority.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn prioritize(&self, instance: InstanceId, priority: i32) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::Prioritize { request, instance, priority }).await?)
    }

    /// Has an executor given no more tasks, or some again.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn drain(&self, executor: ExecutorId, is_drained: bool) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::Drain { request, executor, is_drained }).await?)
    }

    /// Takes up to `count` tasks back that no executor has: they end as cancelled.
    /// Returns runs of them, as (first, count).
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn withdraw(
        &self,
        instance: InstanceId,
        count: u64,
    ) -> Result<Vec<(u64, u64)>, ClientError> {
        match self.ask(|request| FromClient::Withdraw { request, instance, count }).await? {
            ToClient::Withdrawn { runs, .. } => Ok(runs),
            other => Err(unexpected(other)),
        }
    }

    /// Why slots of executors are idle.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn explain_idle(&self) -> Result<Vec<Idle>, ClientError> {
        match self.ask(|request| FromClient::ExplainIdle { request }).await? {
            ToClient::Idle { idle, .. } => Ok(idle),
            other => Err(unexpected(other)),
        }
    }

    /// Has tasks run again that have failed, or that are named and were cancelled. Returns how
    /// many do, and how many cannot because it is not known any more what they were.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn retry(
        &self,
        instance: InstanceId,
        selection: Selection,
    ) -> Result<(u64, u64), ClientError> {
        match self.ask(|request| FromClient::Retry { request, instance, selection }).await? {
            ToClient::Retried { count, forgotten, .. } => Ok((count, forgotten)),
            other => Err(unexpected(other)),
        }
    }

    /// The nodes that a relay of this identity lends, and what has changed in what they
    /// hold.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn subtree(
        &self,
        relay: u64,
        since: u64,
    ) -> Result<(Subtree, Holdings), ClientError> {
        match self.ask(|request| FromClient::Subtree { request, relay, since }).await? {
            ToClient::Subtree { subtree, holdings, .. } => Ok((subtree, holdings)),
            other => Err(unexpected(other)),
        }
    }

    /// Says which tasks wait at a dispatcher above, for a relay: instead of what was
    /// said before over this connection. There is no answer.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn tell_unmet(&self, waiting: Vec<provision::Waiting>) -> Result<(), ClientError> {
        let message = FromClient::Unmet { waiting };
        self.queue.send(message).await.map_err(|_| ClientError::Lost)
    }

    /// Frees an instance with everything in it.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn destroy(&self, instance: InstanceId) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::Destroy { request, instance }).await?)
    }

    /// How things are: with one instance, or with all.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn status(&self, instance: Option<InstanceId>) -> Result<Status, ClientError> {
        let mut whole: Option<Status> = None;
        let mut from = None;
        loop {
            let status =
                match self.ask(|request| FromClient::Status { request, instance, from }).await? {
                    ToClient::Status { status, .. } => status,
                    other => return Err(unexpected(other)),
                };
            // A place that does not advance would make this loop endless.
            let next = status.next.filter(|next| Some(*next) > from);
            let whole = match &mut whole {
                None => whole.insert(status),
                Some(whole) => {
                    whole.instances.extend(status.instances);
                    whole.executors.extend(status.executors);
                    whole
                }
            };
            if next.is_none() {
                return Ok(Status { next: None, ..std::mem::take(whole) });
            }
            from = next;
        }
    }

    /// The states of tasks, at most [`falkon_wire::message::TASKS_ASKED_MAX`]
    /// at a time.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn tasks(
        &self,
        instance: InstanceId,
        first: TaskId,
        count: u64,
    ) -> Result<Vec<TaskInfo>, ClientError> {
        match self.ask(|request| FromClient::Tasks { request, instance, first, count }).await? {
            ToClient::Tasks { tasks, .. } => Ok(tasks),
            other => Err(unexpected(other)),
        }
    }

    /// Why a task waits, or all that wait of an instance.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn explain(
        &self,
        instance: InstanceId,
        task: Option<TaskId>,
    ) -> Result<Vec<Explained>, ClientError> {
        match self.ask(|request| FromClient::Explain { request, instance, task }).await? {
            ToClient::Explained { explained, .. } => Ok(explained),
            other => Err(unexpected(other)),
        }
    }

    /// Asks for events from a position on, or for the oldest. Returns blocks as they are
    /// in files, the position behind them, and whether that is the end for now.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn events(
        &self,
        from: Option<(u64, u64)>,
    ) -> Result<(Vec<u8>, (u64, u64), bool), ClientError> {
        match self.ask(|request| FromClient::Events { request, from }).await? {
            ToClient::Events { blocks, next, is_end, .. } => Ok((blocks, next, is_end)),
            other => Err(unexpected(other)),
        }
    }

    /// Asks how the provisioner is: all its queues or one, with at most `log`
    /// lines of its log.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn provision_status(
        &self,
        queue: Option<String>,
        log: u64,
    ) -> Result<ProvisionStatus, ClientError> {
        let ask = ProvisionAsk::Status { queue, log };
        match self.ask(|request| FromClient::Provision { request, ask }).await? {
            ToClient::Provision { status, .. } => Ok(status),
            other => Err(unexpected(other)),
        }
    }

    /// The data objects after one, as many as fit into one answer; and the
    /// place to continue from, if there may be more.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn objects(
        &self,
        instance: Option<InstanceId>,
        executor: Option<ExecutorId>,
        prefix: &str,
        after: Option<ObjectId>,
    ) -> Result<(Vec<ObjectStatus>, Option<ObjectId>), ClientError> {
        let prefix = prefix.to_owned();
        let asked =
            self.ask(|request| FromClient::Objects { request, instance, executor, prefix, after });
        match asked.await? {
            ToClient::Objects { objects, next, .. } => Ok((objects, next)),
            other => Err(unexpected(other)),
        }
    }

    /// The data objects that a URL or an id means, and where they are; and what
    /// earlier tasks did with objects of that name.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn find(
        &self,
        instance: Option<InstanceId>,
        name: &str,
    ) -> Result<(Vec<FoundObject>, Option<Earlier>), ClientError> {
        let name = name.to_owned();
        match self.ask(|request| FromClient::Find { request, instance, name }).await? {
            ToClient::Found { found, earlier, .. } => Ok((found, earlier)),
            other => Err(unexpected(other)),
        }
    }

    /// Has what tasks did with large objects of a name, or of all, forgotten. Returns how
    /// many names were known.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn forget(&self, name: Option<&str>) -> Result<u64, ClientError> {
        let name: Option<Arc<str>> = name.map(Arc::from);
        match self.ask(|request| FromClient::Forget { request, name }).await? {
            ToClient::Forgotten { names, .. } => Ok(names),
            other => Err(unexpected(other)),
        }
    }

    /// The peer that has a data object, and the ticket for it.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn reach(
        &self,
        instance: Option<InstanceId>,
        object: &Object,
        purpose: Purpose,
    ) -> Result<(Ticket, Vec<Access>), ClientError> {
        let object = object.clone();
        match self.ask(|request| FromClient::Reach { request, instance, object, purpose }).await? {
            ToClient::Reached { ticket, access, .. } => Ok((ticket, access)),
            other => Err(unexpected(other)),
        }
    }

    /// Where all of what a task wrote to a stream is, and a ticket for it.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn reach_output(
        &self,
        instance: InstanceId,
        task: TaskId,
        stream: Stream,
    ) -> Result<(Ticket, Vec<Access>), ClientError> {
        let asked = |request| FromClient::ReachOutput { request, instance, task, stream };
        match self.ask(asked).await? {
            ToClient::Reached { ticket, access, .. } => Ok((ticket, access)),
            other => Err(unexpected(other)),
        }
    }

    /// The executor that runs a task, and a ticket for what the task writes to a stream.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn reach_tail(
        &self,
        instance: InstanceId,
        task: TaskId,
        stream: Stream,
    ) -> Result<(Ticket, Vec<Access>), ClientError> {
        let asked = |request| FromClient::ReachTail { request, instance, task, stream };
        match self.ask(asked).await? {
            ToClient::Reached { ticket, access, .. } => Ok((ticket, access)),
            other => Err(unexpected(other)),
        }
    }

    /// Has the provisioner do something.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn provision(&self, ask: ProvisionAsk) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::Provision { request, ask }).await?)
    }

    /// Ends the dispatcher.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn stop(&self) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::Stop { request }).await?)
    }
}

/// The number by which this process is known in submissions: tasks that it
/// sends again over another connection are known as its own.
fn submitter() -> u64 {
    static DRAWN: OnceLock<u64> = OnceLock::new();
    *DRAWN.get_or_init(|| {
        let mut bytes = [0; 8];
        // Without random numbers, processes are distinguished by these.
        let fallback = u64::from(std::process::id());
        match fill_randomly(&mut bytes) {
            Ok(()) => u64::from_le_bytes(bytes).max(1),
            Err(_) => fallback,
        }
    })
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
                | ToClient::Provision { request, .. }
                | ToClient::Subtree { request, .. }
                | ToClient::Withdrawn { request, .. }
                | ToClient::Explained { request, .. }
                | ToClient::Retried { request, .. }
                | ToClient::Idle { request, .. }
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
