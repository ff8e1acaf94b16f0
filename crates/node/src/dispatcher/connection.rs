//! One connection of a dispatcher: its reader and its writer.

use super::answers::{Answer, Waiting};
use super::backlog::Backlog;
use super::concentrated::HeldEnd;
use super::crew::OwnPlace;
use super::known::Known;
use crate::provision::{Setup, SetupError};
use crate::secure::{FrameReader, FrameWriter, QueueError, ReadError, Role, WRITE_QUEUE_BYTES_MAX};
use falkon_core::dispatch::ConnectionId;
use falkon_wire::codec::Wire;
use falkon_wire::message::{FromClient, FromExecutor, ToClient, ToExecutor, request_number};
use tokio::sync::{mpsc, oneshot};

/// Messages encoded between two writes.
const WRITE_MESSAGES_MAX: usize = 1024;

/// What a peer said.
#[derive(Debug)]
pub(super) enum Message {
    Client(FromClient),
    Executor(FromExecutor),
    /// A client's request of which nothing but its number can be read.
    Unreadable {
        request: u64,
        why: String,
    },
}

impl Message {
    /// What a peer of `role` said; an error, for people, ends the connection.
    pub(super) fn decode(role: Role, frame: &[u8]) -> Result<Message, String> {
        let error = match role {
            Role::Executor => match FromExecutor::from_bytes(frame) {
                Ok(message) => return Ok(Message::Executor(message)),
                Err(error) => error,
            },
            _ => match FromClient::from_bytes(frame) {
                Ok(message) => return Ok(Message::Client(message)),
                Err(error) => error,
            },
        };
        Message::unreadable(role, frame, error.to_string())
            .ok_or_else(|| format!("it sent what is no message: {error}"))
    }

    /// A message that begins with `head` and cannot be read. `None` if it is no
    /// request of a client: it can only be answered by the connection's end.
    fn unreadable(role: Role, head: &[u8], why: String) -> Option<Message> {
        if role == Role::Executor {
            return None;
        }
        request_number(head).map(|request| Message::Unreadable { request, why })
    }
}

/// What readers hand to the driver.
#[derive(Debug)]
pub(super) enum Inbound {
    Opened {
        connection: ConnectionId,
        peer: Peer,
    },
    Messages {
        connection: ConnectionId,
        messages: Vec<Message>,
    },
    Closed {
        connection: ConnectionId,
        why: Option<String>,
    },
    /// More results were written to a connection, as the driver awaits.
    Written {
        connection: ConnectionId,
    },
    /// What a concentrator brought at once.
    Bundle(Vec<Inbound>),
    /// Start a provisioner; the answer says whether that worked.
    Provision {
        setup: Box<Setup>,
        answer: oneshot::Sender<Result<(), SetupError>>,
    },
    Stop,
}

/// What the driver hands to writers.
#[derive(Debug)]
pub(super) enum Outgoing {
    Client(ToClient),
    Executor(ToExecutor),
    /// To a client that has asked something.
    Answer(Answer),
}

impl Outgoing {
    /// Whether it counts as unwritten results.
    pub(super) fn has_results(&self) -> bool {
        matches!(self, Outgoing::Client(ToClient::Results(_)))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Outgoing::Client(message) => message.encode(out),
            Outgoing::Executor(message) => message.encode(out),
            Outgoing::Answer(answer) => out.extend_from_slice(answer.bytes()),
        }
    }

    /// Whether nobody but the peer is to read it.
    pub(super) fn has_secret(&self) -> bool {
        match self {
            Outgoing::Client(message) => message.has_secret(),
            Outgoing::Executor(message) => message.has_secret(),
            Outgoing::Answer(answer) => answer.has_secret(),
        }
    }
}

/// The driver's end of a connection. Dropping it ends the connection once
/// everything queued was written.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) role: Role,
    pub(super) name: String,
    /// Instances created over this connection.
    pub(super) instances: Known,
    /// Answers that wait to be read.
    pub(super) answers: Waiting,
    /// Messages that wait for its writer.
    pub(super) backlog: Backlog,
    way: Way,
}

/// How a peer is reached.
#[derive(Debug)]
enum Way {
    /// Over a connection of this process.
    Own { queue: mpsc::UnboundedSender<Outgoing>, hang_up: oneshot::Sender<()> },
    /// Over one that a concentrator holds.
    Held(HeldEnd),
}

impl Peer {
    /// A peer whose connection a concentrator holds.
    pub(super) fn held(role: Role, name: String, backlog: Backlog, end: HeldEnd) -> Peer {
        Peer {
            role,
            name,
            instances: Known::default(),
            answers: Waiting::default(),
            backlog,
            way: Way::Held(end),
        }
    }

    /// Queues a message; false if too many are waiting.
    pub(super) fn send(&self, message: Outgoing) -> bool {
        if !self.backlog.push() {
            return false;
        }
        match &self.way {
            Way::Own { queue, .. } => {
                // A writer that has ended reports so through its reader.
                let _ = queue.send(message);
            }
            Way::Held(end) => end.send(message),
        }
        true
    }

    /// Ends the connection without waiting for what is queued.
    pub(super) fn close(self) {
        match self.way {
            Way::Own { hang_up, .. } => {
                let _ = hang_up.send(());
            }
            Way::Held(end) => end.hang_up(),
        }
    }
}

/// Starts the reader and the writer of a connection.
pub(super) fn spawn(
    connection: ConnectionId,
    role: Role,
    name: String,
    reader: FrameReader,
    writer: FrameWriter,
    inbox: mpsc::Sender<Inbound>,
    place: Option<OwnPlace>,
) {
    let (queue, messages) = mpsc::unbounded_channel();
    let (hang_up, hung_up) = oneshot::channel();
    let backlog = Backlog::default();
    let peer = Peer {
        role,
        name,
        instances: Known::default(),
        answers: Waiting::default(),
        backlog: backlog.clone(),
        way: Way::Own { queue, hang_up },
    };
    tokio::spawn(async move {
        // Taken until the connection is closed.
        let _place = place;
        if inbox.send(Inbound::Opened { connection, peer }).await.is_err() {
            return;
        }
        // Whichever side ends, the other ends with it: dropping the halves
        // closes the connection.
        let why = tokio::select! {
            why = read(connection, role, reader, &inbox) => why,
            why = write(connection, writer, messages, &backlog, &inbox) => why,
            _ = wait_for(hung_up) => None,
        };
        // If the driver is gone nobody needs to know.
        let _ = inbox.send(Inbound::Closed { connection, why }).await;
    });
}

/// Waits for the word to hang up; a peer that was merely dropped gives none.
async fn wait_for(hung_up: oneshot::Receiver<()>) {
    if hung_up.await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn read(
    connection: ConnectionId,
    role: Role,
    mut reader: FrameReader,
    inbox: &mpsc::Sender<Inbound>,
) -> Option<String> {
    loop {
        let batch = match reader.read_batch().await {
            Ok(Some(batch)) => batch,
            Ok(None) => return None,
            Err(error) => {
                let answered = match &error {
                    ReadError::Skipped { head, .. } => {
                        Message::unreadable(role, head, error.to_string())
                    }
                    _ => None,
                };
                let Some(message) = answered else { return Some(error.to_string()) };
                let messages = vec![message];
                if inbox.send(Inbound::Messages { connection, messages }).await.is_err() {
                    return None;
                }
                continue;
            }
        };
        let mut messages = Vec::with_capacity(batch.len());
        let mut broken = None;
        for frame in batch {
            match Message::decode(role, frame) {
                Ok(message) => messages.push(message),
                Err(why) => {
                    broken = Some(why);
                    break;
                }
            }
        }
        if inbox.send(Inbound::Messages { connection, messages }).await.is_err() {
            return None;
        }
        if broken.is_some() {
            return broken;
        }
    }
}

async fn write(
    connection: ConnectionId,
    mut writer: FrameWriter,
    mut messages: mpsc::UnboundedReceiver<Outgoing>,
    backlog: &Backlog,
    inbox: &mpsc::Sender<Inbound>,
) -> Option<String> {
    let mut batch = Vec::new();
    loop {
        let count = messages.recv_many(&mut batch, WRITE_MESSAGES_MAX).await;
        if count == 0 {
            // The driver let go: say goodbye properly.
            return writer.close().await.err().map(|error| error.to_string());
        }
        let mut with_results = 0;
        for message in batch.drain(..) {
            with_results += u64::from(message.has_results());
            if writer.queued_bytes() >= WRITE_QUEUE_BYTES_MAX
                && let Err(error) = writer.flush().await
            {
                return Some(error.to_string());
            }
            let encoded = match message.has_secret() {
                true => writer.queue_sealed_with(|out| message.encode(out)),
                false => writer.queue_with(|out| message.encode(out)),
            };
            if let Err(QueueError::TooLarge { bytes }) = encoded {
                return Some(format!("a message of {bytes} bytes is too large to be sent"));
            }
        }
        if let Err(error) = writer.flush().await {
            return Some(error.to_string());
        }
        if backlog.written(count, with_results)
            && inbox.send(Inbound::Written { connection }).await.is_err()
        {
            return None;
        }
    }
}
