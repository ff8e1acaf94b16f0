//! A dispatcher as those see it who bring it connections.

use super::Log;
use super::connection;
use super::connection_placement::{Concentrators, ConnectionPlacement, OwnConnection};
use super::doors::Doors;
use super::peer::Inbound;
use super::refusals::Refusals;
use falkon_core::dispatch::ConnectionId;
use falkon_net::secure::{
    AcceptError, Acceptor, FrameReader, FrameWriter, Identity, RefusedKind, Role, Session,
};
use falkon_provision::{Setup, SetupError};
use falkon_wire::message::PROTOCOL_VERSION;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

/// Connections at once, the ones still shaking hands not counted.
pub const CONNECTIONS_MAX: usize = 262_144;

/// Pause after a connection that could not be accepted: usually there are too
/// many open files, and some must be closed first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running dispatcher.
#[derive(Clone)]
pub struct Handle {
    pub(super) inbox: mpsc::Sender<Inbound>,
    pub(super) next_connection: Arc<AtomicU64>,
    /// Instances and users that there are, for handshakes with their secrets.
    pub(super) doors: Doors,
    pub(super) connections: Arc<AtomicU64>,
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) refusals: Refusals,
    pub(super) log: Log,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl Handle {
    /// The dispatcher's identity if it was started with one: the same, with the
    /// secrets of the journal's instances.
    #[must_use]
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.identity.as_ref()
    }

    /// Adds a connection within this process, whose peer has proved to be of `role`.
    pub fn attach(&self, role: Role, peer: &str, reader: FrameReader, writer: FrameWriter) {
        self.attach_at(None, (role, PROTOCOL_VERSION), peer, reader, writer);
    }

    fn attach_at(
        &self,
        place: Option<OwnConnection>,
        role: (Role, u16),
        peer: &str,
        reader: FrameReader,
        writer: FrameWriter,
    ) {
        let id = self.new_connection();
        self.connections.fetch_add(1, Ordering::Relaxed);
        connection::spawn(id, role, peer.to_owned(), reader, writer, self.inbox.clone(), place);
    }

    pub(super) fn new_connection(&self) -> ConnectionId {
        ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed))
    }

    /// Accepts connections for ever, and waits neither for them nor for a process
    /// that hangs: this process holds them or others, as `concentrators` says.
    pub async fn serve(
        self,
        listener: TcpListener,
        acceptor: Arc<Acceptor>,
        concentrators: Concentrators,
    ) {
        let mut placement = ConnectionPlacement::new(self.clone(), acceptor.clone(), concentrators);
        placement.begin();
        loop {
            let (stream, from) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    let why = format!("cannot accept any for now: {error}");
                    self.refusals.refused(RefusedKind::Own, &why);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if self.connections.load(Ordering::Relaxed) >= CONNECTIONS_MAX as u64 {
                continue;
            }
            let Some((place, stream)) = placement.place(stream).await else { continue };
            let Some(entrant) = acceptor.arrive(from.ip()).await else {
                self.refused(&AcceptError::Busy);
                continue;
            };
            let handle = self.clone();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let known = |role| std::future::ready(handle.doors.let_in(role));
                match acceptor.accept_at(entrant, stream, known).await {
                    Ok(Session { role, peer, version, reader, writer, .. }) => {
                        let role = (role, version);
                        handle.attach_at(Some(place), role, &peer, reader, writer);
                    }
                    Err(error) => handle.refused(&error),
                }
            });
        }
    }

    fn refused(&self, error: &AcceptError) {
        self.refusals.refused(RefusedKind::of(error), error);
    }

    /// Starts the provisioner.
    ///
    /// # Errors
    /// The provisioner, or one of the queues in its configuration, cannot be
    /// started.
    pub async fn provision(&self, setup: Setup) -> Result<(), SetupError> {
        let (answer, started) = oneshot::channel();
        let setup = Box::new(setup);
        // A dispatcher that has ended says so by itself.
        let _ = self.inbox.send(Inbound::Provision { setup, answer }).await;
        started.await.unwrap_or(Ok(()))
    }

    /// Ends the dispatcher as if it had been asked to by its owner.
    pub async fn stop(&self) {
        // If the driver is gone, it has stopped.
        let _ = self.inbox.send(Inbound::Stop).await;
    }
}
