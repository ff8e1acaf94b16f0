//! Fetching objects from peers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use falkon_core::data::limits::{BROADCAST_CHUNK_BYTES_MAX, BROADCAST_OBJECT_BYTES_MIN};
use falkon_core::data::object::ObjectId;

use super::connection::{Connection, Writer};
use super::pipeline::Pipeline;
use super::receive::{Reader, is_usable};
use super::through::Through;
use super::wire::Request;
use super::{CHUNK_CONNECTIONS_MAX, IDLE_CONNECTIONS_MAX, IDLE_MS_MAX, PeerError, SMALL_BYTES_MAX};
use crate::object::Landing;
use falkon_net::secure::{Claims, Fingerprint, Level, Role, Secret, connect_peer};

/// Where an executor serves its objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// `host:port`
    pub address: String,
    /// The fingerprint of its certificate, needed at level `encrypt`.
    pub fingerprint: Option<[u8; 32]>,
}

/// The object or the part to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The object.
    pub object: ObjectId,
    /// The first byte.
    pub offset: u64,
    /// How many bytes; `None` is all that follow.
    pub length: Option<u64>,
    /// Bytes of the whole object, if they are known: small ones go together.
    pub size: Option<u64>,
}

/// Fetches from peers. Cheap to clone; connections are shared and kept.
///
/// Arriving bytes are written where the future is polled: use a runtime that
/// may block for as long as a write takes.
#[derive(Clone)]
pub struct Fetcher {
    inner: Arc<Inner>,
}

struct Inner {
    level: Level,
    secret: Secret,
    /// The ticket, unless this process is an executor.
    ticket: Option<(u64, Claims)>,
    /// Nobody is connected to: it all comes this way.
    through: Option<Through>,
    connections: Mutex<BTreeMap<Peer, PeerConnections>>,
}

/// A place for a connection that many use at once. Locked while it is being made, so
/// that many who want it at once make one.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<Pipeline>>>>;

/// What goes over connections that many use at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pipelined {
    /// Small objects.
    Small,
    /// Chunks of one object, and perhaps of others: over which of the connections.
    Chunks(usize),
}

impl Piece {
    /// What it goes with; nothing, if it has a connection to itself.
    fn pipelined(&self) -> Option<Pipelined> {
        let bytes = self.length.or_else(|| self.size?.checked_sub(self.offset))?;
        if bytes <= SMALL_BYTES_MAX {
            return Some(Pipelined::Small);
        }
        let is_large = self.size.is_some_and(|size| size >= BROADCAST_OBJECT_BYTES_MIN);
        let is_chunk = is_large && bytes <= BROADCAST_CHUNK_BYTES_MAX;
        is_chunk.then_some(Pipelined::Chunks((self.object.0 as usize) % CHUNK_CONNECTIONS_MAX))
    }
}

/// Connections to one peer.
#[derive(Default)]
struct PeerConnections {
    small: Slot,
    chunks: [Slot; CHUNK_CONNECTIONS_MAX],
    /// For what is large; since when they are not used.
    idle: Vec<(Connection, Instant)>,
}

impl PeerConnections {
    fn slot(&self, which: Pipelined) -> &Slot {
        match which {
            Pipelined::Small => &self.small,
            Pipelined::Chunks(place) => &self.chunks[place],
        }
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("level", &self.inner.level).finish_non_exhaustive()
    }
}

impl Fetcher {
    /// A fetcher for peers of one level that hold the same secret.
    #[must_use]
    pub fn new(level: Level, secret: Secret) -> Fetcher {
        Fetcher::of(level, secret, None, None)
    }

    /// A fetcher that uses a ticket.
    pub(super) fn visiting(level: Level, secret: Secret, number: u64, claims: Claims) -> Fetcher {
        Fetcher::of(level, secret, Some((number, claims)), None)
    }

    /// A fetcher from any executors that cannot be reached: through the
    /// dispatcher.
    #[must_use]
    pub fn through(through: Through) -> Fetcher {
        Fetcher::of(Level::None, Secret::from_bytes([0; 32]), None, Some(through))
    }

    fn of(
        level: Level,
        secret: Secret,
        ticket: Option<(u64, Claims)>,
        through: Option<Through>,
    ) -> Fetcher {
        let connections = Mutex::default();
        Fetcher { inner: Arc::new(Inner { level, secret, ticket, through, connections }) }
    }

    /// Fetches a piece of an object to where `landing` says, and says how many
    /// bytes it had. To drop the future gives the transfer up.
    ///
    /// # Errors
    /// [`PeerError`]; [`Landing::written`] says how much arrived.
    pub async fn fetch(
        &self,
        peer: &Peer,
        piece: &Piece,
        landing: &Arc<Landing>,
    ) -> Result<u64, PeerError> {
        if let Some(through) = &self.inner.through {
            return through.fetch(piece, landing).await;
        }
        let request = Request { object: piece.object, offset: piece.offset, length: piece.length };
        if let Some(which) = piece.pipelined() {
            return self.fetch_pipelined(peer, which, request, landing).await;
        }
        loop {
            let (mut connection, is_used) = match self.take_idle(peer) {
                Some(connection) => (connection, true),
                None => (self.connect(peer).await?, false),
            };
            let result = connection.fetch(&peer.address, &request, landing).await;
            if is_usable(&result) {
                self.keep(peer, connection);
            }
            // A connection that was kept may have been closed meanwhile.
            match &result {
                Err(PeerError::Lost { arrived: 0, expected: None, .. }) if is_used => {}
                _ => return result,
            }
        }
    }

    async fn fetch_pipelined(
        &self,
        peer: &Peer,
        which: Pipelined,
        request: Request,
        landing: &Arc<Landing>,
    ) -> Result<u64, PeerError> {
        loop {
            let (pipeline, is_used) = self.pipeline(peer, which).await?;
            let result = match which {
                Pipelined::Small => pipeline.fetch(request, landing).await,
                Pipelined::Chunks(_) => pipeline.fetch_chunk(request, landing).await,
            };
            if let Some(result) = result {
                return result;
            }
            // The connection ended before the answer, or somebody broke it off: it is
            // not offered again. One that was kept may have been closed meanwhile.
            pipeline.end();
            let arrived = landing.written();
            if !is_used || arrived > 0 {
                return Err(PeerError::Lost {
                    peer: peer.address.clone(),
                    arrived,
                    expected: request.length.filter(|_| arrived > 0),
                    reason: "the connection ended".to_owned(),
                });
            }
        }
    }

    /// A connection that many use at once, and whether it was there before.
    async fn pipeline(
        &self,
        peer: &Peer,
        which: Pipelined,
    ) -> Result<(Arc<Pipeline>, bool), PeerError> {
        let slot = Arc::clone(self.connections().entry(peer.clone()).or_default().slot(which));
        let mut slot = slot.lock().await;
        if let Some(pipeline) = slot.as_ref().filter(|pipeline| !pipeline.is_over()) {
            return Ok((Arc::clone(pipeline), true));
        }
        sweep(&mut self.connections());
        let connection = self.connect(peer).await?;
        let pipeline = Arc::new(Pipeline::start(peer.address.clone(), connection));
        *slot = Some(Arc::clone(&pipeline));
        Ok((pipeline, false))
    }

    pub(super) async fn connect(&self, peer: &Peer) -> Result<Connection, PeerError> {
        let fingerprint = peer.fingerprint.map(Fingerprint);
        let role = self.inner.ticket.map_or(Role::Executor, |(number, _)| Role::Instance(number));
        let (level, secret) = (self.inner.level, &self.inner.secret);
        let bare = connect_peer(&peer.address, level, fingerprint, role, secret)
            .await
            .map_err(|failure| PeerError::connect(&peer.address, failure))?;
        let reader = Reader::new(bare.incoming, bare.check);
        let mut writer = Writer { stream: bare.outgoing, seal: bare.seal };
        if let Some((_, claims)) = &self.inner.ticket {
            let said = writer.say(&claims.encode()).await;
            said.map_err(|error| PeerError::Unreachable {
                peer: peer.address.clone(),
                reason: error.to_string(),
            })?;
        }
        Ok(Connection { reader, writer })
    }

    fn take_idle(&self, peer: &Peer) -> Option<Connection> {
        let mut connections = self.connections();
        let idle = &mut connections.get_mut(peer)?.idle;
        let limit = Duration::from_millis(IDLE_MS_MAX);
        idle.retain(|(_, since)| since.elapsed() < limit);
        idle.pop().map(|(connection, _)| connection)
    }

    fn keep(&self, peer: &Peer, connection: Connection) {
        let mut connections = self.connections();
        sweep(&mut connections);
        let idle = &mut connections.entry(peer.clone()).or_default().idle;
        if idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push((connection, Instant::now()));
        }
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<Peer, PeerConnections>> {
        self.inner.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes connections that have been idle for long: peers come and go.
fn sweep(connections: &mut BTreeMap<Peer, PeerConnections>) {
    let limit = Duration::from_millis(IDLE_MS_MAX);
    connections.retain(|_, of| {
        of.idle.retain(|(_, since)| since.elapsed() < limit);
        // A locked one is being made.
        let is_over = |slot: &Slot| {
            slot.try_lock()
                .is_ok_and(|pipeline| pipeline.as_ref().is_none_or(|pipeline| pipeline.is_over()))
        };
        !of.idle.is_empty() || !is_over(&of.small) || !of.chunks.iter().all(is_over)
    });
}
