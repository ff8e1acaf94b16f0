//! The client's side: from an access file to a session.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;

use super::breakdown::{Breakdown, Deadline, Stage};
use super::frames::{
    ReadHalf, Side, WriteHalf, halves, prepare_for, prepare_tcp, protected, tcp_halves,
};
use super::handshake::{self, JoinError, Opening};
use super::preamble::{Preamble, Status};
use super::proxy::{Proxy, ProxyError};
use super::{
    AccessError, AccessFile, CONNECT_MS_MAX, Fingerprint, Level, Role, Secret, Session, tls,
};

/// Why no session could be had with a dispatcher.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The access file is not for this role.
    #[error(transparent)]
    Access(AccessError),
    /// Every address failed.
    #[error("{}", .attempts.iter().map(FailedAttempt::to_string).collect::<Vec<_>>().join("\n"))]
    Failed {
        /// The failures at each address, in the order they were tried.
        attempts: Vec<FailedAttempt>,
    },
}

/// The failure at one address.
#[derive(Debug)]
pub struct FailedAttempt {
    /// The address, as the access file has it.
    pub address: String,
    /// The failure.
    pub failure: ConnectFailure,
}

/// Why no session could be had at one address.
#[derive(Debug)]
pub enum ConnectFailure {
    /// The address could not be reached.
    Unreachable(io::Error),
    /// The proxy makes no connection to it.
    Proxy {
        /// The proxy.
        proxy: Proxy,
        /// Why.
        error: ProxyError,
    },
    /// The address did not answer within [`CONNECT_MS_MAX`].
    NoAnswer,
    /// The dispatcher speaks another version of the protocol.
    Version {
        /// This side's.
        ours: u16,
        /// The dispatcher's.
        theirs: u16,
    },
    /// The dispatcher has another security level than the access file says.
    Level {
        /// The access file's.
        ours: Level,
        /// The dispatcher's; `None` if this release does not know it.
        theirs: Option<Level>,
    },
    /// The dispatcher has too many connections in their handshake.
    Busy,
    /// The access file says `encrypt` and names no fingerprint.
    NoFingerprint,
    /// The dispatcher showed another certificate than the access file names.
    OtherCertificate,
    /// The two sides do not have the same secret for this role.
    NotAccepted,
    /// The dispatcher has another secret for the instance than the access file.
    OtherInstance {
        /// The instance's number.
        instance: u64,
    },
    /// There is no such instance (any more).
    UnknownInstance {
        /// The instance's number.
        instance: u64,
    },
    /// The user of the access file was removed.
    UnknownUser,
    /// The handshake came to nothing.
    Handshake {
        /// How far it had come.
        stage: Stage,
        /// The failure.
        source: Breakdown,
    },
}

impl ConnectError {
    /// Whether trying again later, with nothing else changed, may help: true if
    /// at one address at least the dispatcher was away, slow or busy.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            ConnectError::Access(_) => false,
            ConnectError::Failed { attempts } => {
                attempts.iter().any(|attempt| attempt.failure.is_transient())
            }
        }
    }
}

impl ConnectFailure {
    fn is_transient(&self) -> bool {
        match self {
            ConnectFailure::Unreachable(_) | ConnectFailure::NoAnswer | ConnectFailure::Busy => {
                true
            }
            ConnectFailure::Proxy { error, .. } => error.is_transient(),
            ConnectFailure::Handshake { source, .. } => {
                matches!(source, Breakdown::Deadline { .. } | Breakdown::HungUp | Breakdown::Io(_))
            }
            _ => false,
        }
    }
}

/// The remedy for every access file that does not fit.
const COPY: &str = "copy the current one from its directory";

impl fmt::Display for FailedAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = &self.address;
        match &self.failure {
            ConnectFailure::Unreachable(source) => match source.kind() {
                io::ErrorKind::ConnectionRefused => {
                    write!(f, "{at} refused the connection: is the dispatcher running?")
                }
                _ => write!(
                    f,
                    "cannot reach {at}: {source}; is the address right, and reachable from here?"
                ),
            },
            ConnectFailure::Proxy { proxy, error } => {
                write!(f, "the proxy {proxy} makes no connection to {at}: {error}")
            }
            ConnectFailure::NoAnswer => write!(
                f,
                "{at} did not answer within {} s: is the machine up, and does a firewall let \
                 connections through?",
                CONNECT_MS_MAX / 1000
            ),
            ConnectFailure::Version { ours, theirs } => write!(
                f,
                "this falkon speaks protocol {ours}, the dispatcher at {at} speaks {theirs}: \
                 use the same release on both sides"
            ),
            ConnectFailure::Level { ours, theirs } => write_level(f, at, *ours, *theirs),
            ConnectFailure::Busy => write!(
                f,
                "the dispatcher at {at} is busy with too many new connections: try again in a \
                 moment"
            ),
            ConnectFailure::NoFingerprint => {
                write!(f, "the access file for {at} names no certificate fingerprint: {COPY}")
            }
            ConnectFailure::OtherCertificate => write!(
                f,
                "{at} showed another certificate than the access file names: if the dispatcher \
                 was set up anew, {COPY}; if not, this is not the dispatcher"
            ),
            ConnectFailure::NotAccepted => write!(
                f,
                "the dispatcher at {at} does not accept this access file (it is of another \
                 dispatcher or was renewed): {COPY}"
            ),
            ConnectFailure::OtherInstance { instance } => write!(
                f,
                "this access file does not open instance {instance} at {at}: the dispatcher was \
                 set up anew, or has lost its journal, since the file was written, and the instance \
                 is gone"
            ),
            ConnectFailure::UnknownInstance { instance } => write!(
                f,
                "the dispatcher at {at} has no instance {instance} (any more): was it destroyed?"
            ),
            ConnectFailure::UnknownUser => write!(
                f,
                "the dispatcher at {at} does not accept this access file any more: its owner has \
                 removed the user (falkon user revoke)"
            ),
            ConnectFailure::Handshake { stage, source } => write_breakdown(f, at, *stage, source),
        }
    }
}

fn write_level(
    f: &mut fmt::Formatter<'_>,
    at: &str,
    ours: Level,
    theirs: Option<Level>,
) -> fmt::Result {
    match theirs {
        Some(theirs) if theirs < ours => write!(
            f,
            "the dispatcher at {at} offers only security level {theirs} and the access file \
             demands {ours}: if the dispatcher was restarted with another level, {COPY}; if not, \
             this is not the dispatcher"
        ),
        Some(theirs) => write!(
            f,
            "the dispatcher at {at} demands security level {theirs} and the access file says \
             {ours}: {COPY}"
        ),
        None => write!(
            f,
            "the dispatcher at {at} demands a security level that this falkon does not know, and \
             the access file says {ours}: use the same release on both sides"
        ),
    }
}

fn write_breakdown(
    f: &mut fmt::Formatter<'_>,
    at: &str,
    stage: Stage,
    source: &Breakdown,
) -> fmt::Result {
    match (stage, source) {
        (_, Breakdown::NotFalkon) => {
            write!(f, "{at} did not answer like a falkon dispatcher: is the address right?")
        }
        (Stage::Preamble, Breakdown::HungUp) => write!(
            f,
            "{at} closed the connection and did not answer like a falkon dispatcher: is the address \
             right, or is it overloaded?"
        ),
        (Stage::Preamble, Breakdown::Deadline { .. }) => write!(
            f,
            "{at} took the connection and did not answer like a falkon dispatcher: is the address \
             right, or does it hang?"
        ),
        _ => write!(f, "no session with the dispatcher at {at}: {source} (at the {stage})"),
    }
}

impl std::error::Error for FailedAttempt {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.failure {
            ConnectFailure::Unreachable(source) => Some(source),
            ConnectFailure::Proxy { error, .. } => Some(error),
            ConnectFailure::Handshake { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<(Stage, Breakdown)> for ConnectFailure {
    fn from((stage, source): (Stage, Breakdown)) -> ConnectFailure {
        match source {
            Breakdown::Tls(error) if tls::is_other_certificate(&error) => {
                ConnectFailure::OtherCertificate
            }
            source => ConnectFailure::Handshake { stage, source },
        }
    }
}

/// Connects to the dispatcher of an access file as `role`: tries the addresses
/// in turn and returns the first session that comes about. Reaching an address
/// may take [`CONNECT_MS_MAX`], the handshake
/// [`HANDSHAKE_MS_MAX`](super::HANDSHAKE_MS_MAX). `version` is this side's
/// protocol version.
///
/// # Errors
/// [`ConnectError`], with what happened at each address.
pub async fn connect(
    access: &AccessFile,
    role: Role,
    version: u16,
) -> Result<Session, ConnectError> {
    connect_from(None, access, role, version).await
}

/// Like [`connect`], from one of this machine's addresses rather than from the
/// one that the system would choose.
///
/// # Errors
/// [`ConnectError`], with what happened at each address.
pub async fn connect_from(
    source: Option<IpAddr>,
    access: &AccessFile,
    role: Role,
    version: u16,
) -> Result<Session, ConnectError> {
    reach_any(Route::From(source), access, role, version).await
}

/// Like [`connect`], through a proxy.
///
/// # Errors
/// [`ConnectError`], with what happened at each address.
pub async fn connect_through(
    proxy: &Proxy,
    access: &AccessFile,
    role: Role,
    version: u16,
) -> Result<Session, ConnectError> {
    reach_any(Route::Through(proxy), access, role, version).await
}

/// How an address is reached.
#[derive(Debug, Clone, Copy)]
enum Route<'a> {
    /// From one of this machine's addresses, or from that which the system chooses.
    From(Option<IpAddr>),
    Through(&'a Proxy),
}

async fn reach_any(
    route: Route<'_>,
    access: &AccessFile,
    role: Role,
    version: u16,
) -> Result<Session, ConnectError> {
    let secret = access.secret(role).map_err(ConnectError::Access)?;
    let mut attempts = Vec::new();
    for address in &access.addresses {
        let joining = Joining { access, role, secret, version };
        match joining.reach(address, route).await {
            Ok(session) => return Ok(session),
            Err(failure) => attempts.push(FailedAttempt { address: address.clone(), failure }),
        }
    }
    Err(ConnectError::Failed { attempts })
}

/// Like [`connect`], over any stream that leads to the dispatcher. `peer` names
/// the dispatcher in messages.
///
/// # Errors
/// [`ConnectError`]; the stream is then dropped.
pub async fn connect_over<S>(
    stream: S,
    peer: String,
    access: &AccessFile,
    role: Role,
    version: u16,
) -> Result<Session, ConnectError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let secret = access.secret(role).map_err(ConnectError::Access)?;
    let joining = Joining { access, role, secret, version };
    joining.join(stream, halves, &peer).await.map_err(|failure| ConnectError::Failed {
        attempts: vec![FailedAttempt { address: peer, failure }],
    })
}

/// Opens a connection to the first address that takes one, of those that a name
/// has and that can be reached from `source`.
async fn dial(address: &str, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let Some(source) = source else { return TcpStream::connect(address).await };
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in lookup_host(address).await? {
        if address.is_ipv4() != source.is_ipv4() {
            continue;
        }
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        choose_port_late(&socket);
        socket.bind(SocketAddr::new(source, 0))?;
        match socket.connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The port is chosen when the connection is made, among those that are free for its two
/// addresses, and not when the socket is bound, among those that no other connection has
/// from there. With thousands of connections the kernel searches long for one of these.
/// Kernels before 4.2 do not know the choice, and search.
fn choose_port_late(socket: &TcpSocket) {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open while `socket` is borrowed, and the kernel reads as
    // many bytes of `on` as it is told to.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        );
    }
}

impl Route<'_> {
    async fn dial(self, address: &str) -> Result<TcpStream, ConnectFailure> {
        match self {
            Route::From(source) => dial(address, source).await.map_err(ConnectFailure::Unreachable),
            Route::Through(proxy) => proxy
                .dial(address)
                .await
                .map_err(|error| ConnectFailure::Proxy { proxy: proxy.clone(), error }),
        }
    }
}

/// The credentials of a client.
#[derive(Clone, Copy)]
struct Joining<'a> {
    access: &'a AccessFile,
    role: Role,
    secret: &'a Secret,
    version: u16,
}

impl Joining<'_> {
    async fn reach(self, address: &str, route: Route<'_>) -> Result<Session, ConnectFailure> {
        let limit = Duration::from_millis(CONNECT_MS_MAX);
        let stream =
            timeout(limit, route.dial(address)).await.map_err(|_| ConnectFailure::NoAnswer)??;
        let prepared = prepare_tcp(&stream).and_then(|()| prepare_for(&stream, self.role));
        prepared.map_err(ConnectFailure::Unreachable)?;
        self.join(stream, tcp_halves, address).await
    }

    async fn join<S>(
        self,
        mut stream: S,
        halves_of: fn(S) -> (ReadHalf, WriteHalf),
        peer: &str,
    ) -> Result<Session, ConnectFailure>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let deadline = Deadline::start();
        let mut opening = self.open(&mut stream, deadline).await?;
        let (keys, streams) = match self.access.level {
            Level::Encrypt => {
                let fingerprint: Fingerprint =
                    self.access.fingerprint.ok_or(ConnectFailure::NoFingerprint)?;
                let connecting = tls::connect(fingerprint, stream);
                let mut stream = deadline.step(Stage::Tls, connecting).await?;
                let binding = tls::client_binding(&stream, fingerprint);
                opening.binding = Some(binding.map_err(|e| (Stage::Tls, Breakdown::Tls(e)))?);
                (self.prove(&mut stream, &opening, deadline).await?, halves(stream))
            }
            Level::None | Level::Authenticate => {
                (self.prove(&mut stream, &opening, deadline).await?, halves_of(stream))
            }
        };
        let (reader, writer) = protected(streams, self.access.level, Side::Client, keys);
        let (role, level) = (self.role, self.access.level);
        Ok(Session { role, peer: peer.to_owned(), level, reader, writer })
    }

    /// Exchanges preambles. Goes on only with the access file's level and this
    /// side's version, whatever status the server names.
    async fn open<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        stream: &mut S,
        deadline: Deadline,
    ) -> Result<Opening, ConnectFailure> {
        let (ours, level) = (self.version, self.access.level);
        let client = Preamble::new(ours, level, Status::Fine);
        deadline.step(Stage::Preamble, client.send(stream)).await?;
        let server = deadline.step(Stage::Preamble, Preamble::receive(stream)).await?;
        if server.version != ours {
            return Err(ConnectFailure::Version { ours, theirs: server.version });
        }
        if server.status == Some(Status::Busy) {
            return Err(ConnectFailure::Busy);
        }
        if server.level != level.code() {
            let theirs = Level::from_code(server.level);
            return Err(ConnectFailure::Level { ours: level, theirs });
        }
        if server.status != Some(Status::Fine) {
            return Err((Stage::Preamble, Breakdown::Malformed).into());
        }
        Ok(Opening { client, server, binding: None })
    }

    async fn prove<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        stream: &mut S,
        opening: &Opening,
        deadline: Deadline,
    ) -> Result<handshake::Keys, ConnectFailure> {
        handshake::join(stream, opening, deadline, self.role, self.secret).await.map_err(|error| {
            match (error, self.role) {
                (JoinError::UnknownInstance, Role::Instance(instance)) => {
                    ConnectFailure::UnknownInstance { instance }
                }
                (JoinError::NotProved, Role::Instance(instance)) => {
                    ConnectFailure::OtherInstance { instance }
                }
                (JoinError::UnknownUser, _) => ConnectFailure::UnknownUser,
                (JoinError::NotProved | JoinError::UnknownInstance, _) => {
                    ConnectFailure::NotAccepted
                }
                (JoinError::Breakdown(stage, cause), _) => (stage, cause).into(),
            }
        })
    }
}
