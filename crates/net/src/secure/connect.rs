//! The client's side: from an access file to a session.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::Connect;

use super::breakdown::{Breakdown, Deadline, Stage};
use super::early::Early;
use super::frames::{
    ReadHalf, Side, WriteHalf, halves, prepare_for, prepare_tcp, protected, tcp_halves,
};
use super::handshake::{Claim, JoinError, Manner, Opening};
use super::preamble::{Preamble, Status};
use super::proxy::{Proxy, ProxyError};
use super::versions::{recall, remember};
use super::{
    AccessError, AccessFile, CONNECT_MS_MAX, Fingerprint, Level, Role, Secret, Session, Versions,
    tls,
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
    /// The dispatcher speaks no version of the protocol that this side does.
    Version {
        /// This side's.
        ours: Versions,
        /// The dispatcher's newest.
        theirs: u16,
    },
    /// The executor at the address speaks another version of the protocol between executors.
    PeerVersion {
        /// This side's.
        ours: u16,
        /// The executor's.
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
                "this falkon speaks protocol {ours}, the dispatcher at {at} speaks {theirs}: {}",
                ours.remedy(*theirs, "this falkon", "the dispatcher")
            ),
            ConnectFailure::PeerVersion { ours, theirs } => write!(
                f,
                "executors speak protocol {ours} to each other, {at} speaks {theirs}: use the same \
                 release on both sides"
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
/// [`HANDSHAKE_MS_MAX`](super::HANDSHAKE_MS_MAX). The connection goes on in the
/// newest of `versions` that the dispatcher speaks. An address may be connected to
/// a second time at once: in an older version, see [`Versions`], or in the oldest
/// if the connection ended before the dispatcher had answered the first bytes.
///
/// # Errors
/// [`ConnectError`], with what happened at each address.
pub async fn connect(
    access: &AccessFile,
    role: Role,
    versions: impl Into<Versions>,
) -> Result<Session, ConnectError> {
    connect_from(None, access, role, versions).await
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
    versions: impl Into<Versions>,
) -> Result<Session, ConnectError> {
    reach_any(Route::From(source), access, role, versions.into()).await
}

/// Like [`connect`], through a proxy.
///
/// # Errors
/// [`ConnectError`], with what happened at each address.
pub async fn connect_through(
    proxy: &Proxy,
    access: &AccessFile,
    role: Role,
    versions: impl Into<Versions>,
) -> Result<Session, ConnectError> {
    reach_any(Route::Through(proxy), access, role, versions.into()).await
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
    versions: Versions,
) -> Result<Session, ConnectError> {
    let secret = access.secret(role).map_err(ConnectError::Access)?;
    let mut attempts = Vec::new();
    for address in &access.addresses {
        let joining = Joining { access, role, secret, versions };
        match joining.reach(address, route).await {
            Ok(session) => return Ok(session),
            Err(failure) => attempts.push(FailedAttempt { address: address.clone(), failure }),
        }
    }
    Err(ConnectError::Failed { attempts })
}

/// Like [`connect`], over any stream that leads to the dispatcher, and in the newest of
/// `versions` alone. `peer` names the dispatcher in messages.
///
/// # Errors
/// [`ConnectError`]; the stream is then dropped.
pub async fn connect_over<S>(
    stream: S,
    peer: String,
    access: &AccessFile,
    role: Role,
    versions: impl Into<Versions>,
) -> Result<Session, ConnectError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let secret = access.secret(role).map_err(ConnectError::Access)?;
    let versions = versions.into();
    let joining = Joining { access, role, secret, versions };
    joining.join(stream, halves, &peer, versions.newest()).await.map_err(|failure| {
        ConnectError::Failed { attempts: vec![FailedAttempt { address: peer, failure }] }
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
    versions: Versions,
}

impl Joining<'_> {
    /// Connects to an address: in the version that was learnt for it, or else in the newest, and
    /// in another one if the dispatcher does not speak that.
    async fn reach(self, address: &str, route: Route<'_>) -> Result<Session, ConnectFailure> {
        let (versions, dispatcher) = (self.versions, self.access.dispatcher);
        let learnt = recall(dispatcher, address).filter(|version| versions.includes(*version));
        let first = learnt.unwrap_or(versions.newest());
        let failure = match self.attempt(address, route, first).await {
            Ok(session) => return Ok(session),
            Err(failure) => failure,
        };
        match failure {
            ConnectFailure::Version { theirs, .. } => {
                let Some(second) = versions.instead_of(first, theirs) else { return Err(failure) };
                let session = self.attempt(address, route, second).await?;
                let is_older = second < versions.newest();
                remember(dispatcher, address, is_older.then_some(second));
                Ok(session)
            }
            // Something on the way may not take bytes that come early.
            ConnectFailure::Handshake { stage: Stage::Preamble, source: Breakdown::HungUp }
                if Manner::of_version(first) == Manner::Short
                    && Manner::of_version(versions.oldest()) == Manner::Waiting =>
            {
                self.attempt(address, route, versions.oldest()).await
            }
            failure => Err(failure),
        }
    }

    async fn attempt(
        self,
        address: &str,
        route: Route<'_>,
        version: u16,
    ) -> Result<Session, ConnectFailure> {
        let limit = Duration::from_millis(CONNECT_MS_MAX);
        let stream =
            timeout(limit, route.dial(address)).await.map_err(|_| ConnectFailure::NoAnswer)??;
        let prepared = prepare_tcp(&stream).and_then(|()| prepare_for(&stream, self.role));
        prepared.map_err(ConnectFailure::Unreachable)?;
        self.join(stream, tcp_halves, address, version).await
    }

    async fn join<S>(
        self,
        stream: S,
        halves_of: fn(S) -> (ReadHalf, WriteHalf),
        peer: &str,
        version: u16,
    ) -> Result<Session, ConnectFailure>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let deadline = Deadline::start();
        let (role, level, manner) = (self.role, self.access.level, Manner::of_version(version));
        let client = Preamble::new(version, level, Status::Fine);
        let mut stream = Early::new(stream);
        stream.hold(&client);
        let claim = Claim::draw(level, role, self.secret)?;
        let (proved, streams) = match level {
            Level::Encrypt => {
                let fingerprint: Fingerprint =
                    self.access.fingerprint.ok_or(ConnectFailure::NoFingerprint)?;
                let mut server = None;
                if manner == Manner::Waiting {
                    deadline.step(Stage::Preamble, stream.flush()).await?;
                    let answer = deadline.step(Stage::Preamble, stream.preamble()).await?;
                    server = Some(self.judge(&client, answer)?);
                }
                let connecting = tls::connect(fingerprint, stream);
                let mut connecting =
                    connecting.map_err(|error| (Stage::Tls, Breakdown::from(error)))?;
                let server = match server {
                    Some(server) => server,
                    None => {
                        let answer = answer_to_first(&mut connecting);
                        let answer = deadline.step(Stage::Preamble, answer).await?;
                        self.judge(&client, answer)?
                    }
                };
                let mut stream = deadline.step(Stage::Tls, connecting).await?;
                let binding = tls::client_binding(&stream, fingerprint);
                let binding = Some(binding.map_err(|e| (Stage::Tls, Breakdown::Tls(e)))?);
                let opening = Opening { client, server, binding };
                deadline.step(Stage::Hello, claim.send(&mut stream)).await?;
                let proved = claim.prove(&mut stream, (&opening, manner), deadline).await;
                (proved.map_err(|error| self.failure(error))?, halves(stream))
            }
            Level::None | Level::Authenticate => {
                if manner == Manner::Waiting {
                    deadline.step(Stage::Preamble, stream.flush()).await?;
                } else {
                    deadline.step(Stage::Preamble, claim.send(&mut stream)).await?;
                }
                let answer = deadline.step(Stage::Preamble, stream.preamble()).await?;
                let server = self.judge(&client, answer)?;
                if manner == Manner::Waiting {
                    deadline.step(Stage::Hello, claim.send(&mut stream)).await?;
                }
                let opening = Opening { client, server, binding: None };
                let proved = claim.prove(&mut stream, (&opening, manner), deadline).await;
                let proved = proved.map_err(|error| self.failure(error))?;
                let stream = stream.into_inner().ok_or((Stage::Challenge, Breakdown::Malformed))?;
                (proved, halves_of(stream))
            }
        };
        let (reader, writer) = protected(streams, level, Side::Client, proved);
        Ok(Session { role, peer: peer.to_owned(), level, version, reader, writer })
    }

    /// Checks a server's answer. The connection goes on only with the access file's level and the
    /// version that the client has named, whatever status the server names.
    fn judge(self, client: &Preamble, server: Preamble) -> Result<Preamble, ConnectFailure> {
        let level = self.access.level;
        if server.version != client.version {
            return Err(ConnectFailure::Version { ours: self.versions, theirs: server.version });
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
        Ok(server)
    }

    fn failure(self, error: JoinError) -> ConnectFailure {
        match (error, self.role) {
            (JoinError::UnknownInstance, Role::Instance(instance)) => {
                ConnectFailure::UnknownInstance { instance }
            }
            (JoinError::NotProved, Role::Instance(instance)) => {
                ConnectFailure::OtherInstance { instance }
            }
            (JoinError::UnknownUser, _) => ConnectFailure::UnknownUser,
            (JoinError::NotProved | JoinError::UnknownInstance, _) => ConnectFailure::NotAccepted,
            (JoinError::Breakdown(stage, cause), _) => (stage, cause).into(),
        }
    }
}

/// Sends the first message of a TLS handshake, which the preamble goes out with, and receives the
/// server's preamble. The handshake finds nothing to read until then.
async fn answer_to_first<S: AsyncRead + AsyncWrite + Unpin>(
    connecting: &mut Connect<BufReader<Early<S>>>,
) -> Result<Preamble, Breakdown> {
    poll_fn(|context| {
        if let Poll::Ready(Err(error)) = Pin::new(&mut *connecting).poll(context) {
            return Poll::Ready(Err(error.into()));
        }
        // There is a stream until the handshake is over, and it cannot be yet.
        let Some(stream) = connecting.get_mut() else {
            return Poll::Ready(Err(Breakdown::Malformed));
        };
        stream.get_mut().poll_preamble(context)
    })
    .await
}
