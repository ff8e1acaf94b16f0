//! Fetching objects from peers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use falkon_core::data::object::ObjectId;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::pipeline::Pipeline;
use super::receive::{Reader, is_usable};
use super::wire::Request;
use super::{IDLE_CONNECTIONS_MAX, IDLE_MS_MAX, PeerError, SMALL_BYTES_MAX};
use crate::object::Landing;
use crate::secure::{Claims, Code, Fingerprint, Level, Outgoing, Role, Secret, connect_peer};

/// Where an executor serves its objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// `host:port`
    pub address: String,
    /// Its certificate's, needed at level `encrypt`.
    pub fingerprint: Option<[u8; 32]>,
}

/// What to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which object.
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
/// What arrives is written where the future is polled: use a runtime that may
/// be held up for as long as a write takes.
#[derive(Clone)]
pub struct Fetcher {
    inner: Arc<Inner>,
}

struct Inner {
    level: Level,
    secret: Secret,
    /// With which ticket, if we are no executor.
    ticket: Option<(u64, Claims)>,
    kept: Mutex<BTreeMap<Peer, Kept>>,
}

/// Connections to one peer.
#[derive(Default)]
struct Kept {
    /// For small objects. Locked while it is being made, so that many who want
    /// it at once make one.
    pipeline: Arc<tokio::sync::Mutex<Option<Arc<Pipeline>>>>,
    /// For large ones; since when they are not used.
    idle: Vec<(Connection, Instant)>,
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
        let kept = Mutex::default();
        Fetcher { inner: Arc::new(Inner { level, secret, ticket: None, kept }) }
    }

    /// One that fetches with a ticket.
    pub(super) fn visiting(level: Level, secret: Secret, number: u64, claims: Claims) -> Fetcher {
        let ticket = Some((number, claims));
        Fetcher { inner: Arc::new(Inner { level, secret, ticket, kept: Mutex::default() }) }
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
        let request = Request { object: piece.object, offset: piece.offset, length: piece.length };
        let bytes = piece.length.or_else(|| piece.size?.checked_sub(piece.offset));
        if bytes.is_some_and(|bytes| bytes <= SMALL_BYTES_MAX) {
            return self.fetch_small(peer, request, landing).await;
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

    async fn fetch_small(
        &self,
        peer: &Peer,
        request: Request,
        landing: &Arc<Landing>,
    ) -> Result<u64, PeerError> {
        loop {
            let (pipeline, is_used) = self.pipeline(peer).await?;
            if let Some(result) = pipeline.fetch(request, landing).await {
                return result;
            }
            // It ended before the answer began: it is not offered again. One
            // that was kept may have been closed meanwhile.
            pipeline.end();
            if !is_used {
                return Err(PeerError::Lost {
                    peer: peer.address.clone(),
                    arrived: 0,
                    expected: None,
                    reason: "the connection ended".to_owned(),
                });
            }
        }
    }

    /// The connection for small objects, and whether it was there before.
    async fn pipeline(&self, peer: &Peer) -> Result<(Arc<Pipeline>, bool), PeerError> {
        let slot = Arc::clone(&self.kept().entry(peer.clone()).or_default().pipeline);
        let mut slot = slot.lock().await;
        if let Some(pipeline) = slot.as_ref().filter(|pipeline| !pipeline.is_over()) {
            return Ok((Arc::clone(pipeline), true));
        }
        sweep(&mut self.kept());
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
        let mut kept = self.kept();
        let idle = &mut kept.get_mut(peer)?.idle;
        let limit = Duration::from_millis(IDLE_MS_MAX);
        idle.retain(|(_, since)| since.elapsed() < limit);
        idle.pop().map(|(connection, _)| connection)
    }

    fn keep(&self, peer: &Peer, connection: Connection) {
        let mut kept = self.kept();
        sweep(&mut kept);
        let idle = &mut kept.entry(peer.clone()).or_default().idle;
        if idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push((connection, Instant::now()));
        }
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<Peer, Kept>> {
        self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets go of what nobody has used for long: peers come and go.
fn sweep(kept: &mut BTreeMap<Peer, Kept>) {
    let limit = Duration::from_millis(IDLE_MS_MAX);
    kept.retain(|_, kept| {
        kept.idle.retain(|(_, since)| since.elapsed() < limit);
        // One that is locked is being made.
        let is_over = kept
            .pipeline
            .try_lock()
            .is_ok_and(|pipeline| pipeline.as_ref().is_none_or(|pipeline| pipeline.is_over()));
        !kept.idle.is_empty() || !is_over
    });
}

/// A connection to a peer.
pub(super) struct Connection {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
}

impl Connection {
    async fn fetch(
        &mut self,
        peer: &str,
        request: &Request,
        landing: &Landing,
    ) -> Result<u64, PeerError> {
        let mut bytes = Vec::new();
        self.writer.encode(request, &mut bytes);
        if let Err(error) = self.writer.write(&bytes).await {
            let reason = error.to_string();
            return Err(PeerError::Lost {
                peer: peer.to_owned(),
                arrived: 0,
                expected: None,
                reason,
            });
        }
        self.reader.receive(peer, request, Some(landing)).await
    }
}

/// The sending side of a connection to a peer.
pub(super) struct Writer {
    stream: Outgoing,
    seal: Option<Code>,
}

impl Writer {
    /// Adds a request, and its code, to `bytes`. Requests are written in the
    /// order in which they were encoded.
    pub(super) fn encode(&mut self, request: &Request, bytes: &mut Vec<u8>) {
        let request = request.encode();
        bytes.extend_from_slice(&request);
        if let Some(seal) = &mut self.seal {
            let mut hasher = seal.begin();
            hasher.update(&request);
            bytes.extend_from_slice(&Code::end(&hasher));
        }
    }

    /// Says something, with its code.
    pub(super) async fn say(&mut self, message: &[u8]) -> std::io::Result<()> {
        let mut bytes = message.to_vec();
        if let Some(seal) = &mut self.seal {
            let mut hasher = seal.begin();
            hasher.update(message);
            bytes.extend_from_slice(&Code::end(&hasher));
        }
        self.write(&bytes).await
    }

    /// Begins the code of a body that goes out in parts, if there are codes.
    pub(super) fn begin_code(&mut self) -> Option<blake3::Hasher> {
        self.seal.as_mut().map(Code::begin)
    }

    /// Ends a body with its code.
    pub(super) async fn end_code(&mut self, hasher: Option<blake3::Hasher>) -> std::io::Result<()> {
        let code = hasher.map(|hasher| Code::end(&hasher));
        self.write(code.as_ref().map_or(&[], |code| &code[..])).await
    }

    pub(super) fn stream(&mut self) -> &mut (dyn AsyncWrite + Send + Unpin) {
        self.stream.stream()
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let stream = self.stream.stream();
        stream.write_all(bytes).await?;
        stream.flush().await
    }
}
