//! One connection of a dispatcher: its reader and its writer.

use super::answer::Waiting;
use super::backlog::Backlog;
use super::connection_placement::OwnConnection;
use super::known::Known;
use super::peer::{Inbound, Message, Outgoing, Peer, Way};
use falkon_core::dispatch::ConnectionId;
use falkon_net::secure::{
    FrameReader, FrameWriter, QueueError, ReadError, Role, WRITE_QUEUE_BYTES_MAX,
};
use tokio::sync::{mpsc, oneshot};

/// Messages encoded between two writes.
const WRITE_MESSAGES_MAX: usize = 1024;

/// Starts the reader and the writer of a connection.
pub(super) fn spawn(
    connection: ConnectionId,
    (role, version): (Role, u16),
    name: String,
    reader: FrameReader,
    writer: FrameWriter,
    inbox: mpsc::Sender<Inbound>,
    place: Option<OwnConnection>,
) {
    let (queue, messages) = mpsc::unbounded_channel();
    let (hang_up, hung_up) = oneshot::channel();
    let backlog = Backlog::default();
    let peer = Peer {
        role,
        version,
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
        // Without a driver the notice is of no use.
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
    mut messages: mpsc::UnboundedReceiver<Box<Outgoing>>,
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
