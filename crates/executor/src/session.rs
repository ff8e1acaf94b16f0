//! Sessions of an executor with its dispatcher, one after another.

use super::{ExecutorError, Link, Log};
use falkon_core::dispatch::Update;
use falkon_net::secure::{FrameReader, FrameWriter, Role, Versions, connect_from};
use falkon_wire::codec::Wire;
use falkon_wire::message::{FromExecutor, PROTOCOL_VERSION, ToExecutor};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::sync::mpsc;

/// First and longest pause before connecting again.
const RECONNECT_MS: (u64, u64) = (20, 1000);
/// First and longest pause after sessions that end before the dispatcher has
/// ordered anything, and within [`SESSION_STABLE_MS`]: what ends them may end
/// the next one too.
const SHORT_SESSION_PAUSE_MS: (u64, u64) = (20, 30_000);
/// How long a session lasts that is not taken for one of these.
const SESSION_STABLE_MS: u64 = 3000;
/// Messages waiting for the writer of a session that does not get through;
/// more wait in the core.
pub(super) const SESSION_MESSAGES_MAX: usize = 64;

/// The messages from a session's reader to the driver.
pub(super) enum FromSession {
    Said(Vec<ToExecutor>),
    Ended,
}

/// A session's two ends, as the driver sees them.
pub(super) struct Session {
    pub(super) said: mpsc::Receiver<FromSession>,
    /// In boxes: a channel has room for 32 messages from the first one on.
    pub(super) say: mpsc::Sender<Box<FromExecutor>>,
}

/// The next message of the session; waits for ever if there is none.
pub(super) async fn said(session: &mut Option<Session>) -> FromSession {
    match session {
        Some(session) => session.said.recv().await.unwrap_or(FromSession::Ended),
        None => std::future::pending().await,
    }
}

/// The sending half of the session there is, for the session's own writer and
/// for the [watchdog](super::watchdog).
#[derive(Debug, Clone, Default)]
pub(super) struct Voice(Arc<tokio::sync::Mutex<Option<Sending>>>);

struct Sending {
    writer: FrameWriter,
    /// The number of the last update, once the executor has registered.
    last: Option<u64>,
    /// The protocol version that the dispatcher speaks on it.
    version: u16,
}

impl fmt::Debug for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending").field("last", &self.last).finish_non_exhaustive()
    }
}

impl Voice {
    /// Sends a heartbeat at once, or not at all: a connection that does not take
    /// it has bytes in it that are not read, and the dispatcher is no better
    /// served by more of them. Never waits.
    pub(super) fn heartbeat(&self) {
        let Ok(mut sending) = self.0.try_lock() else { return };
        let Some(Sending { writer, last: Some(last), .. }) = &mut *sending else { return };
        let heartbeat = Update { number: *last, ..Update::default() };
        let heartbeat = FromExecutor::Update(heartbeat);
        if writer.queued_bytes() == 0 && writer.queue_with(|out| heartbeat.encode(out)).is_ok() {
            // Bytes that are not sent now stay queued for the session's writer, which
            // also learns of a connection that has failed.
            let mut context = Context::from_waker(Waker::noop());
            let _ = pin!(writer.flush()).as_mut().poll(&mut context);
        }
    }

    /// Queues and sends messages.
    #[expect(clippy::vec_box, reason = "the channel gives boxes")]
    async fn send(&self, batch: &mut Vec<Box<FromExecutor>>) -> Result<(), String> {
        let mut sending = self.0.lock().await;
        let Some(Sending { writer, last, version }) = &mut *sending else { return Ok(()) };
        for mut message in batch.drain(..) {
            message.adapt(*version);
            match &*message {
                FromExecutor::Join(_) => *last = Some(0),
                FromExecutor::Update(update) => *last = Some(update.number),
                FromExecutor::Tail { .. }
                | FromExecutor::NoTail { .. }
                | FromExecutor::ReadPart { .. }
                | FromExecutor::Part { .. } => {}
            }
            writer.queue_with(|out| message.encode(out)).map_err(|error| error.to_string())?;
            // A single update may be large; the queue holds one at a time.
            if writer.queued_bytes() > (1 << 20) {
                writer.flush().await.map_err(|error| error.to_string())?;
            }
        }
        writer.flush().await.map_err(|error| error.to_string())
    }
}

/// Makes sessions, one after another.
pub(super) async fn keep_connected(
    link: Link,
    give_up: Option<Duration>,
    log: Log,
    voice: Voice,
    sessions: mpsc::Sender<Session>,
) -> Result<(), ExecutorError> {
    let (access, source) = match link {
        Link::Access { access, source } => (access, source),
        Link::Here(ends) => {
            let (reader, writer) = *ends;
            let _ = hold_session(reader, writer, PROTOCOL_VERSION, &voice, &sessions).await;
            return Err(ExecutorError::Over);
        }
    };
    let mut pause = RECONNECT_MS.0;
    let mut after_short = SHORT_SESSION_PAUSE_MS.0;
    let mut last = tokio::time::Instant::now();
    let mut first = true;
    let mut said = String::new();
    loop {
        // In a box: what connecting takes is not kept for as long as the session lasts.
        let connecting = connect_from(source, &access, Role::Executor, Versions::spoken());
        match Box::pin(connecting).await {
            Ok(session) => {
                log(&format!("connected to the dispatcher at {}", session.described()));
                pause = RECONNECT_MS.0;
                said.clear();
                let begun = tokio::time::Instant::now();
                let (reader, writer, version) = (session.reader, session.writer, session.version);
                let (why, ordered) = hold_session(reader, writer, version, &voice, &sessions).await;
                // A handshake that succeeds says nothing of what follows it.
                let stable = Duration::from_millis(SESSION_STABLE_MS);
                if ordered || begun.elapsed() >= stable {
                    after_short = SHORT_SESSION_PAUSE_MS.0;
                } else {
                    pause = after_short;
                    after_short = (after_short * 2).min(SHORT_SESSION_PAUSE_MS.1);
                }
                if sessions.is_closed() {
                    return Ok(());
                }
                let why = why.unwrap_or_else(|| "it closed the connection".to_owned());
                log(&format!("lost the dispatcher ({why}); reconnecting"));
                last = tokio::time::Instant::now();
                first = false;
            }
            // At the first attempt a refusal is for good; later the dispatcher
            // may be in the middle of a restart.
            Err(error) if first && !error.is_transient() => {
                return Err(ExecutorError::Connect(error));
            }
            Err(error) => {
                if give_up.is_some_and(|limit| last.elapsed() >= limit) {
                    return Err(match give_up {
                        Some(limit) if !first => ExecutorError::GaveUp(limit),
                        _ => ExecutorError::Connect(error),
                    });
                }
                let reason = error.to_string();
                if reason != said {
                    log(&format!("{reason}; retrying"));
                    said = reason;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(pause)).await;
        pause = (pause * 2).min(RECONNECT_MS.1);
    }
}

/// Carries messages of one session until it ends; says why it did, and whether
/// the dispatcher had ordered anything.
async fn hold_session(
    reader: FrameReader,
    writer: FrameWriter,
    version: u16,
    voice: &Voice,
    sessions: &mpsc::Sender<Session>,
) -> (Option<String>, bool) {
    let (hear, said) = mpsc::channel(SESSION_MESSAGES_MAX);
    let (say, to_say) = mpsc::channel(SESSION_MESSAGES_MAX);
    if sessions.send(Session { said, say }).await.is_err() {
        return (None, false);
    }
    let mut ordered = false;
    *voice.0.lock().await = Some(Sending { writer, last: None, version });
    let why = tokio::select! {
        why = read(reader, hear.clone(), &mut ordered) => why,
        why = write(voice, to_say) => why,
    };
    voice.0.lock().await.take();
    // The driver may have ended meanwhile.
    let _ = hear.send(FromSession::Ended).await;
    (why, ordered)
}

async fn read(
    mut reader: FrameReader,
    hear: mpsc::Sender<FromSession>,
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
                Ok(message) => messages.push(message),
                Err(error) => return Some(format!("it sent what is no message: {error}")),
            }
        }
        *ordered |= messages.iter().any(|message| matches!(message, ToExecutor::Order(_)));
        if hear.send(FromSession::Said(messages)).await.is_err() {
            return None;
        }
    }
}

async fn write(voice: &Voice, mut messages: mpsc::Receiver<Box<FromExecutor>>) -> Option<String> {
    let mut batch = Vec::new();
    while messages.recv_many(&mut batch, SESSION_MESSAGES_MAX).await > 0 {
        if let Err(error) = voice.send(&mut batch).await {
            return Some(error);
        }
    }
    let sending = voice.0.lock().await.take()?;
    sending.writer.close().await.err().map(|error| error.to_string())
}
