//! The server's side: from an accepted stream to a session.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use zeroize::Zeroizing;

use super::admission::{Admission, Entrant};
use super::breakdown::{Breakdown, Stage};
use super::early::Early;
use super::frames::{
    ReadHalf, Side, WriteHalf, halves, prepare_for, prepare_tcp, protected, tcp_halves,
};
use super::handshake::{self, Manner, Opening, ServeError};
use super::identity::ENCODED_BYTES;
use super::preamble::{Preamble, Status};
use super::{Identity, Level, Role, Session, Versions, tls};

/// Lets peers in that prove themselves. One per listening dispatcher, shared by
/// all its connections.
pub struct Acceptor {
    identity: Arc<Identity>,
    level: Level,
    versions: Versions,
    /// There is one exactly at [`Level::Encrypt`].
    tls: Option<TlsAcceptor>,
    admission: Arc<Admission>,
}

/// The identity's certificate and private key do not make a TLS server.
#[derive(Debug, thiserror::Error)]
#[error("the certificate and private key in identity.json do not fit together: {0}")]
pub struct AcceptorError(#[source] pub rustls::Error);

/// The reason why a connection was refused. The peer has been sent the part of
/// it that it may know; the connection is closed.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// Too many connections are in their handshake.
    #[error("refused: too many connections are in their handshake")]
    Busy,
    /// The peer speaks a version of the protocol that this dispatcher does not.
    #[error(
        "the peer speaks protocol {theirs}, this dispatcher speaks {ours}: {}",
        .ours.remedy(*.theirs, "this dispatcher", "the peer")
    )]
    Version {
        /// The peer's.
        theirs: u16,
        /// This dispatcher's.
        ours: Versions,
    },
    /// The peer of an executor speaks another version of the protocol between executors.
    #[error(
        "the peer speaks protocol {theirs}, executors speak {ours} to each other: use the same \
         release on both sides"
    )]
    PeerVersion {
        /// The peer's.
        theirs: u16,
        /// This executor's.
        ours: u16,
    },
    /// The peer's access file says another security level.
    #[error(fmt = write_level)]
    Level {
        /// The peer's; `None` if this release does not know it.
        theirs: Option<Level>,
        /// This dispatcher's.
        ours: Level,
    },
    /// The peer does not have the secret of the role that it claims.
    #[error("refused: the peer does not have the secret of role {role}")]
    NotProved {
        /// The claimed role.
        role: Role,
    },
    /// The peer has the secret of an instance that does not exist (any more).
    #[error("refused: there is no instance {instance} (any more)")]
    UnknownInstance {
        /// The instance's number.
        instance: u64,
    },
    /// The peer has the secret of a user who was removed.
    #[error("refused: user {user} was removed, and the peer has its access file")]
    UnknownUser {
        /// The user's number.
        user: u64,
    },
    /// The handshake came to nothing.
    #[error(fmt = write_handshake)]
    Handshake {
        /// How far it had come.
        stage: Stage,
        /// The failure.
        source: Breakdown,
    },
}

fn write_level(theirs: &Option<Level>, ours: &Level, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match theirs {
        Some(theirs) => write!(
            f,
            "the peer's access file says security level {theirs}, this dispatcher has {ours}: copy \
             the current access file to the peer"
        ),
        None => write!(
            f,
            "the peer asks for a security level that is not known here, this dispatcher has {ours}"
        ),
    }
}

fn write_handshake(stage: &Stage, source: &Breakdown, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match (stage, source) {
        // The server has proved itself and the client left: its access file is
        // of another dispatcher.
        (Stage::Proof, Breakdown::HungUp) => f.write_str(
            "the peer left when it saw our proof: its access file is probably of another \
             dispatcher or an old one",
        ),
        _ => write!(f, "no session: {source} (at the {stage})"),
    }
}

/// How far a peer got whose connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedKind {
    /// The peer sent no more than its preamble, which anyone can do as often as
    /// they like.
    Stranger,
    /// The peer claimed a role.
    Claimant,
    /// This process could not take the connection.
    Own,
}

impl RefusedKind {
    /// All kinds, by their codes.
    pub const ALL: [RefusedKind; 3] =
        [RefusedKind::Stranger, RefusedKind::Claimant, RefusedKind::Own];

    /// The kind of a connection that was not let in.
    #[must_use]
    pub fn of(error: &AcceptError) -> RefusedKind {
        match error {
            AcceptError::Busy | AcceptError::Handshake { stage: Stage::Preamble, .. } => {
                RefusedKind::Stranger
            }
            _ => RefusedKind::Claimant,
        }
    }
}

impl From<(Stage, Breakdown)> for AcceptError {
    fn from((stage, source): (Stage, Breakdown)) -> AcceptError {
        AcceptError::Handshake { stage, source }
    }
}

impl From<ServeError> for AcceptError {
    fn from(error: ServeError) -> AcceptError {
        match error {
            ServeError::NotProved(role) => AcceptError::NotProved { role },
            ServeError::UnknownInstance(instance) => AcceptError::UnknownInstance { instance },
            ServeError::UnknownUser(user) => AcceptError::UnknownUser { user },
            ServeError::Breakdown(stage, source) => AcceptError::Handshake { stage, source },
        }
    }
}

impl Acceptor {
    /// An acceptor for connections of one level and of these protocol versions.
    ///
    /// # Errors
    /// [`AcceptorError`] at [`Level::Encrypt`] if the identity's certificate
    /// cannot be used.
    pub fn new(
        identity: Arc<Identity>,
        level: Level,
        versions: impl Into<Versions>,
    ) -> Result<Acceptor, AcceptorError> {
        let tls = match level {
            Level::Encrypt => Some(tls::acceptor(&identity).map_err(AcceptorError)?),
            Level::None | Level::Authenticate => None,
        };
        let versions = versions.into();
        Ok(Acceptor { identity, level, versions, tls, admission: Admission::new() })
    }

    /// All that [`Acceptor::from_bytes`] needs to make an acceptor like this
    /// one in another process. Holds the key that all secrets follow from.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(5 + ENCODED_BYTES));
        bytes.push(self.level.code());
        bytes.extend_from_slice(&self.versions.oldest().to_le_bytes());
        bytes.extend_from_slice(&self.versions.newest().to_le_bytes());
        self.identity.encode(&mut bytes);
        bytes
    }

    /// The acceptor that [`Acceptor::to_bytes`] was asked of; `None` for other
    /// bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Acceptor> {
        let (level, bytes) = bytes.split_first()?;
        let (oldest, bytes) = bytes.split_first_chunk()?;
        let (newest, bytes) = bytes.split_first_chunk()?;
        let (oldest, newest) = (u16::from_le_bytes(*oldest), u16::from_le_bytes(*newest));
        let versions = (oldest <= newest).then(|| Versions::between(oldest, newest))?;
        let identity = Arc::new(Identity::decode(bytes)?);
        Acceptor::new(identity, Level::from_code(*level)?, versions).ok()
    }

    /// The level of the sessions.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Takes in a connection from an address: its handshake is to begin. `None`
    /// if there are too many. One that comes after it may have to leave for it.
    pub async fn arrive(&self, from: IpAddr) -> Option<Entrant> {
        self.admission.arrive(from).await
    }

    /// Accepts a connection that arrives at this moment; see
    /// [`accept_at`](Acceptor::accept_at).
    ///
    /// # Errors
    /// [`AcceptError`]; the connection is then closed.
    pub async fn accept(
        &self,
        stream: TcpStream,
        is_known: impl FnOnce(Role) -> bool,
    ) -> Result<Session, AcceptError> {
        let peer = stream.peer_addr().map_err(|error| (Stage::Preamble, error.into()))?;
        let entrant = self.arrive(peer.ip()).await.ok_or(AcceptError::Busy)?;
        self.accept_at(entrant, stream, at_once(is_known)).await
    }

    /// Carries out the handshake on an accepted TCP connection. The peer has
    /// [`PREAMBLE_MS_MAX`](super::PREAMBLE_MS_MAX) to say what it speaks, waits
    /// for a place for [`PLACE_MS_MAX`](super::PLACE_MS_MAX) at most, and has
    /// [`HANDSHAKE_MS_MAX`](super::HANDSHAKE_MS_MAX) then. One for which there
    /// is no place is asked to come back. Whether an instance or a user is
    /// known may take a moment to find out.
    ///
    /// # Errors
    /// [`AcceptError`]; the connection is then closed.
    pub async fn accept_at<K: Future<Output = bool>>(
        &self,
        entrant: Entrant,
        stream: TcpStream,
        is_known: impl FnOnce(Role) -> K,
    ) -> Result<Session, AcceptError> {
        let prepared = prepare_tcp(&stream).and_then(|()| stream.peer_addr());
        let peer = prepared.map_err(|error| (Stage::Preamble, Breakdown::from(error)))?.to_string();
        self.admit(entrant, stream, (prepare_for, tcp_halves), peer, is_known).await
    }

    /// Like [`accept`](Acceptor::accept), over any stream. `peer` names the
    /// other side in messages.
    ///
    /// # Errors
    /// [`AcceptError`]; the stream is then dropped.
    pub async fn accept_over<S>(
        &self,
        stream: S,
        peer: String,
        is_known: impl FnOnce(Role) -> bool,
    ) -> Result<Session, AcceptError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let here = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let entrant = self.arrive(here).await.ok_or(AcceptError::Busy)?;
        self.admit(entrant, stream, (|_, _| Ok(()), halves), peer, at_once(is_known)).await
    }

    async fn admit<S, K>(
        &self,
        entrant: Entrant,
        stream: S,
        (prepare, halves_of): (Prepare<S>, Halves<S>),
        peer: String,
        is_known: impl FnOnce(Role) -> K,
    ) -> Result<Session, AcceptError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        K: Future<Output = bool>,
    {
        let mut stream = Early::new(stream);
        let client = entrant.preamble(&mut stream).await?;
        let has_place = entrant.place().await;
        let (version, status, refusal) = self.judge(&client, has_place);
        let pace = entrant.pace();
        let server = Preamble::new(version, self.level, status);
        stream.hold(&server);
        if let Some(refusal) = refusal {
            // The peer is turned away whether or not the answer reaches it.
            let _ = pace.step(Stage::Preamble, stream.dismiss()).await;
            return Err(refusal);
        }
        if !stream.has_more() {
            // It waits for the preamble. What follows one that does not has its answer with it.
            pace.step(Stage::Preamble, stream.flush()).await?;
        }
        let mut opening = Opening { client, server, binding: None };
        let (level, manner) = (self.level, Manner::of_version(version));
        let serve_secret = |role| self.identity.secret(role);
        let (proved, streams) = match &self.tls {
            Some(acceptor) => {
                let mut stream = pace.step(Stage::Tls, tls::accept(acceptor, stream)).await?;
                let binding = tls::server_binding(&stream, self.identity.fingerprint());
                opening.binding = Some(binding.map_err(|e| (Stage::Tls, Breakdown::Tls(e)))?);
                let about = (&opening, level, manner);
                let proved =
                    handshake::serve(&mut stream, about, pace, serve_secret, is_known).await?;
                let prepared = prepare(stream.get_ref().0.get_ref().stream(), proved.role);
                prepared.map_err(|error| (Stage::Proof, Breakdown::from(error)))?;
                (proved, halves(stream))
            }
            None => {
                let about = (&opening, level, manner);
                let proved =
                    handshake::serve(&mut stream, about, pace, serve_secret, is_known).await?;
                let stream = stream.into_inner().ok_or((Stage::Proof, Breakdown::Malformed))?;
                let prepared = prepare(&stream, proved.role);
                prepared.map_err(|error| (Stage::Proof, Breakdown::from(error)))?;
                (proved, halves_of(stream))
            }
        };
        let role = proved.role;
        let (reader, writer) = protected(streams, level, Side::Server, proved);
        Ok(Session { role, peer, level, version, reader, writer })
    }

    /// The answer to a client's preamble, its version first, and the reason if it is refused.
    fn judge(&self, client: &Preamble, has_place: bool) -> (u16, Status, Option<AcceptError>) {
        let (ours, level, theirs) = (self.versions, self.level, client.version);
        if !ours.includes(theirs) {
            let refusal = AcceptError::Version { theirs, ours };
            (ours.newest(), Status::OtherVersion, Some(refusal))
        } else if client.level != level.code() {
            let refusal =
                AcceptError::Level { theirs: Level::from_code(client.level), ours: level };
            (theirs, Status::OtherLevel, Some(refusal))
        } else if !has_place {
            (theirs, Status::Busy, Some(AcceptError::Busy))
        } else {
            (theirs, Status::Fine, None)
        }
    }
}

/// Parts a stream.
type Halves<S> = fn(S) -> (ReadHalf, WriteHalf);

/// Readies a stream for a client of a role that has proved itself.
type Prepare<S> = fn(&S, Role) -> io::Result<()>;

/// An answer that is there at once.
fn at_once(known: impl FnOnce(Role) -> bool) -> impl FnOnce(Role) -> std::future::Ready<bool> {
    |role| std::future::ready(known(role))
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor")
            .field("identity", &self.identity)
            .field("level", &self.level)
            .field("versions", &self.versions)
            .finish_non_exhaustive()
    }
}
