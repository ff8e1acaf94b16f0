//! Connections between executors: the same preamble, TLS and proofs as with a
//! dispatcher, and then a bare stream in place of frames, over which bulk bytes
//! can go without being copied.
//!
//! Both sides hold a secret that their dispatcher handed out to its executors
//! ([`Identity::peer_secret`]); each executor has a certificate of its own,
//! whose fingerprint the dispatcher passes on with its address.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::unix;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::admission::{Admission, Entrant};
use super::breakdown::{Breakdown, Deadline, Stage};
use super::early::Early;
use super::frames::{MAC_BYTES, ReadHalf, WriteHalf, halves, prepare_tcp};
use super::handshake::{self, Claim, JoinError, Keys, Manner, Opening, Proved};
use super::preamble::{Preamble, Status};
use super::ticket::{Claims, secret_at_peer};
use super::{
    AcceptError, AcceptorError, CONNECT_MS_MAX, ConnectFailure, Fingerprint, IdentityError, Level,
    Role, Secret, tls,
};

/// The protocol version between executors. It is far from the versions of the
/// protocol with a dispatcher, so that a client at the wrong port gets an error
/// that says so. It is not negotiated: executors that do not speak the same one fetch from stores,
/// or by way of the dispatcher.
const PEER_VERSION: u16 = 0x5001;

/// The bytes of an authentication code.
pub const CODE_BYTES: usize = MAC_BYTES;

/// An executor's certificate, created each time it starts.
pub struct PeerIdentity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl PeerIdentity {
    /// A new one.
    ///
    /// # Errors
    /// [`IdentityError::Certificate`].
    pub fn generate() -> Result<PeerIdentity, IdentityError> {
        let made = rcgen::generate_simple_self_signed(vec![tls::SERVER_NAME.to_owned()])
            .map_err(IdentityError::Certificate)?;
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        Ok(PeerIdentity { certificate: made.cert.der().clone(), key })
    }

    /// The fingerprint by which peers know it.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }
}

impl fmt::Debug for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerIdentity").field("fingerprint", &self.fingerprint()).finish()
    }
}

/// Lets peers in that hold the secret.
pub struct PeerAcceptor {
    level: Level,
    secret: Secret,
    /// There is one exactly at [`Level::Encrypt`].
    tls: Option<(TlsAcceptor, Fingerprint)>,
    admission: Arc<Admission>,
}

impl fmt::Debug for PeerAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerAcceptor").field("level", &self.level).finish_non_exhaustive()
    }
}

impl PeerAcceptor {
    /// An acceptor for connections of one level.
    ///
    /// # Errors
    /// [`AcceptorError`] at [`Level::Encrypt`] if the certificate cannot be
    /// used.
    pub fn new(
        identity: &PeerIdentity,
        level: Level,
        secret: Secret,
    ) -> Result<PeerAcceptor, AcceptorError> {
        let (certificate, key) = (identity.certificate.clone(), identity.key.clone_key());
        let tls = match level {
            Level::Encrypt => {
                let acceptor = tls::acceptor_of(certificate, key).map_err(AcceptorError)?;
                Some((acceptor, identity.fingerprint()))
            }
            Level::None | Level::Authenticate => None,
        };
        Ok(PeerAcceptor { level, secret, tls, admission: Admission::new() })
    }

    /// Whether a ticket of this number allows what is claimed.
    pub fn allows(&self, number: u64, claims: &Claims) -> bool {
        claims.number(&self.secret) == number
    }

    /// Takes in a connection whose handshake is to begin. `None` if there are
    /// too many.
    pub async fn arrive(&self, from: IpAddr) -> Option<Entrant> {
        self.admission.arrive(from).await
    }

    /// Carries out the handshake on an accepted connection. Says also which
    /// ticket the peer has, if it is a visitor.
    pub async fn accept(
        &self,
        entrant: Entrant,
        stream: TcpStream,
    ) -> Result<(Bare, Option<u64>), AcceptError> {
        prepare_tcp(&stream).map_err(|error| (Stage::Preamble, Breakdown::from(error)))?;
        let mut stream = Early::new(stream);
        let client = entrant.preamble(&mut stream).await?;
        if !entrant.place().await {
            return Err(AcceptError::Busy);
        }
        let pace = entrant.pace();
        let (theirs, ours) = (client.version, PEER_VERSION);
        let status = match (theirs == ours, client.level == self.level.code()) {
            (false, _) => Status::OtherVersion,
            (_, false) => Status::OtherLevel,
            _ => Status::Fine,
        };
        let server = Preamble::new(ours, self.level, status);
        stream.hold(&server);
        pace.step(Stage::Preamble, stream.flush()).await?;
        match status {
            Status::Fine => {}
            Status::OtherVersion => return Err(AcceptError::PeerVersion { theirs, ours }),
            _ => {
                let theirs = Level::from_code(client.level);
                return Err(AcceptError::Level { theirs, ours: self.level });
            }
        }
        let mut stream = stream.into_inner().ok_or((Stage::Preamble, Breakdown::Malformed))?;
        let mut opening = Opening { client, server, binding: None };
        let level = self.level;
        let secret = |role| secret_at_peer(&self.secret, role);
        let known = |_| std::future::ready(true);
        let (proved, streams) = match &self.tls {
            None => {
                let about = (&opening, level, Manner::Waiting);
                let proved = handshake::serve(&mut stream, about, pace, secret, known);
                (proved.await?, bare_halves(stream))
            }
            Some((acceptor, fingerprint)) => {
                let mut stream = pace.step(Stage::Tls, tls::accept(acceptor, stream)).await?;
                let binding = tls::server_binding(&stream, *fingerprint);
                opening.binding = Some(binding.map_err(|e| (Stage::Tls, Breakdown::Tls(e)))?);
                let about = (&opening, level, Manner::Waiting);
                let proved = handshake::serve(&mut stream, about, pace, secret, known);
                (proved.await?, tls_halves(stream))
            }
        };
        let Proved { role, keys, .. } = proved;
        let Keys { to_server, to_client } = keys;
        let visitor = match role {
            Role::Instance(number) => Some(number),
            _ => None,
        };
        Ok((Bare::new(streams, self.level, to_server.codes, to_client.codes), visitor))
    }
}

/// Connects to a peer, as an executor or with a ticket. `fingerprint` is needed
/// at [`Level::Encrypt`].
pub async fn connect_peer(
    address: &str,
    level: Level,
    fingerprint: Option<Fingerprint>,
    role: Role,
    secret: &Secret,
) -> Result<Bare, ConnectFailure> {
    let limit = Duration::from_millis(CONNECT_MS_MAX);
    let stream = timeout(limit, TcpStream::connect(address))
        .await
        .map_err(|_| ConnectFailure::NoAnswer)?
        .map_err(ConnectFailure::Unreachable)?;
    prepare_tcp(&stream).map_err(ConnectFailure::Unreachable)?;
    let deadline = Deadline::start();
    let client = Preamble::new(PEER_VERSION, level, Status::Fine);
    let mut stream = Early::new(stream);
    stream.hold(&client);
    deadline.step(Stage::Preamble, stream.flush()).await?;
    let server = deadline.step(Stage::Preamble, stream.preamble()).await?;
    if server.version != PEER_VERSION {
        return Err(ConnectFailure::PeerVersion { ours: PEER_VERSION, theirs: server.version });
    }
    if server.level != level.code() {
        let theirs = Level::from_code(server.level);
        return Err(ConnectFailure::Level { ours: level, theirs });
    }
    if server.status != Some(Status::Fine) {
        return Err((Stage::Preamble, Breakdown::Malformed).into());
    }
    let mut stream = stream.into_inner().ok_or((Stage::Preamble, Breakdown::Malformed))?;
    let mut opening = Opening { client, server, binding: None };
    let refused = |error| match error {
        JoinError::NotProved | JoinError::UnknownInstance | JoinError::UnknownUser => {
            ConnectFailure::NotAccepted
        }
        JoinError::Breakdown(stage, cause) => (stage, cause).into(),
    };
    let claim = Claim::draw(level, role, secret)?;
    let (proved, streams) = match level {
        Level::Encrypt => {
            let fingerprint = fingerprint.ok_or(ConnectFailure::NoFingerprint)?;
            let connecting = async { tls::connect(fingerprint, stream)?.await };
            let mut stream = deadline.step(Stage::Tls, connecting).await?;
            let binding = tls::client_binding(&stream, fingerprint);
            opening.binding = Some(binding.map_err(|e| (Stage::Tls, Breakdown::Tls(e)))?);
            deadline.step(Stage::Hello, claim.send(&mut stream)).await?;
            let proved = claim.prove(&mut stream, (&opening, Manner::Waiting), deadline).await;
            (proved.map_err(refused)?, tls_halves(stream))
        }
        Level::None | Level::Authenticate => {
            deadline.step(Stage::Hello, claim.send(&mut stream)).await?;
            let proved = claim.prove(&mut stream, (&opening, Manner::Waiting), deadline).await;
            (proved.map_err(refused)?, bare_halves(stream))
        }
    };
    let Keys { to_server, to_client } = proved.keys;
    Ok(Bare::new(streams, level, to_client.codes, to_server.codes))
}

/// A connection whose handshake is over.
pub struct Bare {
    /// The reading half.
    pub incoming: Incoming,
    /// The writing half.
    pub outgoing: Outgoing,
    /// Codes of what comes in, at [`Level::Authenticate`].
    pub check: Option<Code>,
    /// Codes of what goes out, at [`Level::Authenticate`].
    pub seal: Option<Code>,
}

impl Bare {
    fn new(
        (incoming, outgoing): (Incoming, Outgoing),
        level: Level,
        incoming_key: Secret,
        outgoing_key: Secret,
    ) -> Bare {
        let code = |key| (level == Level::Authenticate).then_some(Code { key, number: 0 });
        Bare { incoming, outgoing, check: code(incoming_key), seal: code(outgoing_key) }
    }
}

/// The reading half of a connection.
pub enum Incoming {
    /// Without encryption.
    Tcp(OwnedReadHalf),
    /// From a process of this machine.
    Unix(unix::OwnedReadHalf),
    /// Out of TLS.
    Tls(ReadHalf),
}

/// The writing half of a connection.
pub enum Outgoing {
    /// Without encryption.
    Tcp(OwnedWriteHalf),
    /// To a process of this machine.
    Unix(unix::OwnedWriteHalf),
    /// Into TLS.
    Tls(WriteHalf),
}

impl Incoming {
    /// Where it is read.
    pub fn stream(&mut self) -> &mut (dyn AsyncRead + Send + Unpin) {
        match self {
            Incoming::Tcp(half) => half,
            Incoming::Unix(half) => half,
            Incoming::Tls(half) => half,
        }
    }
}

impl Outgoing {
    /// Where it is written.
    pub fn stream(&mut self) -> &mut (dyn AsyncWrite + Send + Unpin) {
        match self {
            Outgoing::Tcp(half) => half,
            Outgoing::Unix(half) => half,
            Outgoing::Tls(half) => half,
        }
    }
}

fn bare_halves(stream: TcpStream) -> (Incoming, Outgoing) {
    let (read, write) = stream.into_split();
    (Incoming::Tcp(read), Outgoing::Tcp(write))
}

fn tls_halves<S: AsyncRead + AsyncWrite + Send + 'static>(stream: S) -> (Incoming, Outgoing) {
    let (read, write) = halves(stream);
    (Incoming::Tls(read), Outgoing::Tls(write))
}

/// Makes the codes of what goes in one direction. Each covers its place in the
/// stream.
pub struct Code {
    key: Secret,
    number: u64,
}

impl Code {
    /// Begins the next code. What it covers is added by the caller.
    pub fn begin(&mut self) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new_keyed(self.key.as_bytes());
        hasher.update(&self.number.to_le_bytes());
        self.number += 1;
        hasher
    }

    /// The code over what was added.
    pub fn end(hasher: &blake3::Hasher) -> [u8; CODE_BYTES] {
        let mut code = [0; CODE_BYTES];
        code.copy_from_slice(&hasher.finalize().as_bytes()[..CODE_BYTES]);
        code
    }
}
