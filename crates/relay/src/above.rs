//! Sessions with the dispatcher above, one after another.

use super::Upstream;
use falkon_core::dispatch::Order;
use falkon_core::part::{PartAnswer, PartQuestion};
use falkon_core::provision::Waiting;
use falkon_core::tail::{KeptQuestion, TailQuestion};
use falkon_core::task::Time;
use falkon_net::Log;
use falkon_net::secure::{
    ConnectError, FrameReader, FrameWriter, Role, Versions, connect, connect_through,
};
use falkon_wire::codec::Wire;
use falkon_wire::message::{FromExecutor, PROTOCOL_VERSION, ToExecutor};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// First and longest pause before connecting again.
const RECONNECT_MS: (u64, u64) = (20, 1000);
/// First and longest pause after sessions in which nothing was ordered: what ended
/// them may end the next one too.
const SHORT_SESSION_PAUSE_MS: (u64, u64) = (20, 30_000);
/// Messages waiting for the writer.
const SESSION_MESSAGES_MAX: usize = 64;
/// Bytes that wait to be written before they are.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// What comes from above.
pub(super) enum FromAbove {
    Connected(Session, Time),
    Order(Order),
    Unmet(Vec<Waiting>),
    /// The number of a question, and what is asked.
    AskTail(u64, TailQuestion),
    ReadOutput(u64, KeptQuestion),
    /// The same of a part of an object.
    ReadPart(u64, PartQuestion),
    /// The answer to a question of the relay's with this number.
    Part(u64, PartAnswer),
    /// It does not take the relay in; why.
    Refused(String),
    /// It cannot be reached at all.
    Failed(ConnectError),
    Ended,
}

/// The way to the dispatcher above.
pub(super) struct Session {
    pub(super) say: mpsc::Sender<FromExecutor>,
}

/// Makes sessions, one after another, until nobody listens. At the first attempt of
/// all a refusal is for good.
pub(super) async fn keep_connected(
    upstream: Arc<Upstream>,
    mut is_first: bool,
    log: Log,
    hear: mpsc::Sender<FromAbove>,
) {
    let (mut pause, mut after_short) = (RECONNECT_MS.0, SHORT_SESSION_PAUSE_MS.0);
    let mut said = String::new();
    while !hear.is_closed() {
        match open(&upstream, &log).await {
            Ok(opened) => {
                is_first = false;
                said.clear();
                let (why, ordered) = hold_session(opened, &hear).await;
                // A handshake that succeeds says nothing of what follows it.
                (pause, after_short) = match ordered {
                    true => (RECONNECT_MS.0, SHORT_SESSION_PAUSE_MS.0),
                    false => (after_short, (after_short * 2).min(SHORT_SESSION_PAUSE_MS.1)),
                };
                let why = why.unwrap_or_else(|| "it closed the connection".to_owned());
                log(&format!("lost the dispatcher above ({why}); reconnecting"));
            }
            // Later than that the dispatcher may be in the middle of a restart.
            Err(error) if is_first && !error.is_transient() => {
                let _ = hear.send(FromAbove::Failed(error)).await;
                return;
            }
            Err(error) => {
                let reason = error.to_string();
                if reason != said {
                    log(&format!("{reason}; retrying"));
                    said = reason;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(pause)).await;
        pause = (pause * 2).min(RECONNECT_MS.1.max(pause));
    }
}

/// A connection's halves, and the protocol version that both sides speak on it.
type Opened = (FrameReader, FrameWriter, u16);

/// Opens a connection.
async fn open(upstream: &Upstream, log: &Log) -> Result<Opened, ConnectError> {
    match upstream {
        Upstream::Here(open) => {
            let (reader, writer) = open();
            Ok((reader, writer, PROTOCOL_VERSION))
        }
        Upstream::Access { access, proxy } => {
            let (role, versions) = (Role::Executor, Versions::spoken());
            let session = match proxy {
                Some(proxy) => connect_through(proxy, access, role, versions).await?,
                None => connect(access, role, versions).await?,
            };
            log(&format!("connected to the dispatcher above at {}", session.described()));
            Ok((session.reader, session.writer, session.version))
        }
    }
}

/// Carries the messages of one session; says why it ended, and whether the
/// dispatcher had ordered anything.
async fn hold_session(
    (reader, writer, version): Opened,
    hear: &mpsc::Sender<FromAbove>,
) -> (Option<String>, bool) {
    let (say, to_say) = mpsc::channel(SESSION_MESSAGES_MAX);
    let mut ordered = false;
    let why = tokio::select! {
        why = read(reader, hear, say, &mut ordered) => why,
        why = write(writer, version, to_say) => why,
    };
    let _ = hear.send(FromAbove::Ended).await;
    (why, ordered)
}

async fn read(
    mut reader: FrameReader,
    hear: &mpsc::Sender<FromAbove>,
    say: mpsc::Sender<FromExecutor>,
    ordered: &mut bool,
) -> Option<String> {
    loop {
        let batch = match reader.read_batch().await {
            Ok(Some(batch)) => batch,
            Ok(None) => return None,
            Err(error) => return Some(error.to_string()),
        };
        let mut messages = Vec::with_capacity(batch.len());
        for frame in batch {
            match ToExecutor::from_bytes(frame) {
                Ok(ToExecutor::Welcome { now, .. }) => {
                    messages.push(FromAbove::Connected(Session { say: say.clone() }, now));
                }
                Ok(ToExecutor::Order(order)) => messages.push(FromAbove::Order(order)),
                Ok(ToExecutor::Unmet { waiting }) => messages.push(FromAbove::Unmet(waiting)),
                Ok(ToExecutor::AskTail { number, question }) => {
                    messages.push(FromAbove::AskTail(number, question));
                }
                Ok(ToExecutor::ReadOutput { number, question }) => {
                    messages.push(FromAbove::ReadOutput(number, question));
                }
                Ok(ToExecutor::ReadPart { number, question }) => {
                    messages.push(FromAbove::ReadPart(number, question));
                }
                Ok(ToExecutor::Part { number, answer }) => {
                    messages.push(FromAbove::Part(number, answer));
                }
                Ok(ToExecutor::Refused { reason }) => messages.push(FromAbove::Refused(reason)),
                Err(error) => return Some(format!("it sent what is no message: {error}")),
            }
        }
        for message in messages {
            *ordered |= matches!(message, FromAbove::Order(_));
            if hear.send(message).await.is_err() {
                return None;
            }
        }
    }
}

async fn write(
    mut writer: FrameWriter,
    version: u16,
    mut messages: mpsc::Receiver<FromExecutor>,
) -> Option<String> {
    let mut batch = Vec::new();
    while messages.recv_many(&mut batch, SESSION_MESSAGES_MAX).await > 0 {
        for mut message in batch.drain(..) {
            message.adapt(version);
            if let Err(error) = writer.queue_with(|out| message.encode(out)) {
                return Some(error.to_string());
            }
            if writer.queued_bytes() > WRITE_BYTES_MAX
                && let Err(error) = writer.flush().await
            {
                return Some(error.to_string());
            }
        }
        if let Err(error) = writer.flush().await {
            return Some(error.to_string());
        }
    }
    None
}
