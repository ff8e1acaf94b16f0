//! A peer as the driver sees it: its messages, and the way to it.

use super::answer::{Answer, Waiting};
use super::backlog::Backlog;
use super::ending::RestartRequest;
use super::known::Known;
use falkon_core::dispatch::ConnectionId;
use falkon_net::secure::Role;
use falkon_provision::{Setup, SetupError};
use falkon_wire::codec::Wire;
use falkon_wire::message::{
    FromClient, FromExecutor, PROTOCOL_VERSION, ToClient, ToExecutor, request_number,
};
use tokio::sync::{mpsc, oneshot};

/// A message of a peer.
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
    /// Decodes a message of a peer of `role`; an error, for people, ends the
    /// connection.
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
    pub(super) fn unreadable(role: Role, head: &[u8], why: String) -> Option<Message> {
        if role == Role::Executor {
            return None;
        }
        request_number(head).map(|request| Message::Unreadable { request, why })
    }
}

/// The items that readers pass to the driver.
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
    /// The items of one read from a concentrator.
    Bundle(Vec<Inbound>),
    /// Start a provisioner; the answer says whether that worked.
    Provision {
        setup: Box<Setup>,
        answer: oneshot::Sender<Result<(), SetupError>>,
    },
    /// Programs that are to take the dispatcher's place are examined there.
    Restarts(mpsc::Sender<RestartRequest>),
    /// A program was examined: its version, or why it will not do.
    Examined {
        wish: RestartRequest,
        verdict: Result<String, String>,
    },
    Stop,
}

/// The items that the driver passes to writers.
#[derive(Debug)]
pub(super) enum Outgoing {
    Client(ToClient),
    Executor(ToExecutor),
    /// To a client that has asked something.
    Answer(Answer),
}

impl Outgoing {
    /// Leaves out what a peer that speaks `version` does not know.
    fn adapt(&mut self, version: u16) {
        match self {
            Outgoing::Client(message) => message.adapt(version),
            Outgoing::Executor(message) => message.adapt(version),
            // None of what is asked for has differed so far.
            Outgoing::Answer(_) => {}
        }
    }

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

    /// Whether only the peer may read it.
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
    /// The protocol version of its session.
    pub(super) version: u16,
    pub(super) name: String,
    /// Instances created over this connection.
    pub(super) instances: Known,
    /// Answers that wait to be read.
    pub(super) answers: Waiting,
    /// Messages that wait for its writer.
    pub(super) backlog: Backlog,
    pub(super) way: Way,
}

/// How a peer is reached.
#[derive(Debug)]
pub(super) enum Way {
    /// Over a connection of this process.
    /// Messages are in boxes, as the channel keeps room for dozens of them.
    Own { queue: mpsc::UnboundedSender<Box<Outgoing>>, hang_up: oneshot::Sender<()> },
    /// Over one that a concentrator holds.
    Held(HeldEnd),
}

impl Peer {
    /// A peer whose connection a concentrator holds.
    pub(super) fn held(
        role: Role,
        version: u16,
        name: String,
        backlog: Backlog,
        end: HeldEnd,
    ) -> Peer {
        Peer {
            role,
            version,
            name,
            instances: Known::default(),
            answers: Waiting::default(),
            backlog,
            way: Way::Held(end),
        }
    }

    /// Queues a message, without what the peer's version does not know; false if too many are
    /// waiting.
    pub(super) fn send(&self, mut message: Outgoing) -> bool {
        if !self.backlog.push() {
            return false;
        }
        if self.version < PROTOCOL_VERSION {
            message.adapt(self.version);
        }
        match &self.way {
            Way::Own { queue, .. } => {
                // A writer that has ended reports so through its reader.
                let _ = queue.send(Box::new(message));
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

/// An item for a concentrator.
#[derive(Debug)]
pub(super) enum Word {
    /// A peer is there; messages for it are counted here.
    Opened(ConnectionId, Backlog),
    /// A message for a peer.
    Say(ConnectionId, Outgoing),
    /// The number of bytes that were passed on to a peer.
    Passed(ConnectionId, u64),
    /// The connection is to end when all of it was passed on.
    End(ConnectionId),
    /// The connection is to end now.
    HangUp(ConnectionId),
    /// The connection is over.
    Over(ConnectionId),
    /// Whether an instance exists.
    Exists(ConnectionId, bool),
}

/// The driver's way to a peer whose connection a concentrator holds. Dropping
/// it ends the connection once all of its messages were passed on.
#[derive(Debug)]
pub(super) struct HeldEnd {
    pub(super) connection: ConnectionId,
    pub(super) words: mpsc::UnboundedSender<Word>,
}

impl HeldEnd {
    pub(super) fn send(&self, message: Outgoing) {
        // A concentrator that has ended is noticed by its reader.
        let _ = self.words.send(Word::Say(self.connection, message));
    }

    pub(super) fn hang_up(self) {
        let _ = self.words.send(Word::HangUp(self.connection));
    }
}

impl Drop for HeldEnd {
    fn drop(&mut self) {
        let _ = self.words.send(Word::End(self.connection));
    }
}
