//! Parts that reading and writing of frames share, and sessions.
//!
//! On the wire a frame is its body's length (4 bytes, little-endian), the body,
//! and, at [`Level::Authenticate`], a code of 16 bytes over the frame's number
//! in its direction, the length and the body.
//!
//! The highest bit of the length says that the frame is sealed: its body is
//! encrypted with ChaCha20-Poly1305 under a key of the direction, with the
//! frame's number for a nonce and the length for associated data, and ends in a
//! tag of 16 bytes. So go messages with secrets at the levels that leave all
//! others readable; inside TLS nothing is sealed once more.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use rustix::net::sockopt;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use falkon_wire::message::PROTOCOL_VERSION;

use super::handshake::{DirectionKeys, Proved};
use super::{
    FRAME_BYTES_MAX, FrameReader, FrameWriter, HEARTBEAT_KEEPALIVE_S, KEEPALIVE_S, Level, Role,
    Secret, UNACKNOWLEDGED_MS_MAX,
};

pub(super) const LENGTH_BYTES: usize = 4;
pub(super) const MAC_BYTES: usize = 16;
/// A frame's number stands before its length while the code is computed, so
/// that one call hashes all of it where it lies. It is never sent.
pub(super) const NUMBER_BYTES: usize = 8;
/// The bytes that sealing adds to a body.
pub(super) const TAG_BYTES: usize = 16;
/// The bit of a frame's length that says that the frame is sealed.
pub(super) const SEALED: u32 = 1 << 31;

const _: () = assert!(FRAME_BYTES_MAX + TAG_BYTES < SEALED as usize);
const _: () = assert!(NUMBER_BYTES <= NONCE_LEN);

/// An authenticated connection.
#[derive(Debug)]
pub struct Session {
    /// The role that the client has proved. The same on both sides.
    pub role: Role,
    /// The other side's address.
    pub peer: String,
    /// How the connection is protected.
    pub level: Level,
    /// The protocol version that both sides speak on it.
    pub version: u16,
    /// The reader of frames from the other side.
    pub reader: FrameReader,
    /// The writer of frames to the other side.
    pub writer: FrameWriter,
}

impl Session {
    /// The other side's address for logs, with the version if it is not this release's newest.
    #[must_use]
    pub fn described(&self) -> String {
        match self.version {
            PROTOCOL_VERSION => self.peer.clone(),
            older => format!("{}, in protocol {older}", self.peer),
        }
    }
}

/// Frames over a stream within one process: no handshake, no protection.
#[must_use]
pub fn plain<S>(stream: S) -> (FrameReader, FrameWriter)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (read, write) = halves(stream);
    (FrameReader::new(read, None, Vec::new()), FrameWriter::new(write, None, &[]))
}

pub(super) type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type WriteHalf = Box<dyn AsyncWrite + Send + Unpin>;

/// The halves of any stream. They share a lock.
pub(super) fn halves<S>(stream: S) -> (ReadHalf, WriteHalf)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (read, write) = tokio::io::split(stream);
    (Box::new(read), Box::new(write))
}

/// Readies a connection: small messages leave at once, and a peer that is gone
/// without a word is noticed, also when there is nothing to say to it.
pub(super) fn prepare_tcp(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let pause = Duration::from_secs(KEEPALIVE_S);
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, pause)?;
    sockopt::set_tcp_keepintvl(stream, pause)?;
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MS_MAX)?;
    Ok(())
}

/// Readies a connection for what its client is. Executors send heartbeats: the dispatcher
/// misses them if they stop, and the executor notices that nobody acknowledges them.
pub(super) fn prepare_for(stream: &TcpStream, role: Role) -> io::Result<()> {
    if matches!(role, Role::Executor) {
        sockopt::set_tcp_keepidle(stream, Duration::from_secs(HEARTBEAT_KEEPALIVE_S))?;
    }
    Ok(())
}

/// The halves of a TCP connection, which need no lock.
pub(super) fn tcp_halves(stream: TcpStream) -> (ReadHalf, WriteHalf) {
    let (read, write) = stream.into_split();
    (Box::new(read), Box::new(write))
}

/// The side of a connection.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Client,
    Server,
}

/// The reader and writer of a connection whose handshake is over, but for a welcome that stands
/// before the server's first frame. Inside TLS, frames need no code of their own.
pub(super) fn protected(
    (read, write): (ReadHalf, WriteHalf),
    level: Level,
    side: Side,
    Proved { keys, welcome, .. }: Proved,
) -> (FrameReader, FrameWriter) {
    let (incoming, outgoing) = match side {
        Side::Client => (keys.to_client, keys.to_server),
        Side::Server => (keys.to_server, keys.to_client),
    };
    let seal = |keys: DirectionKeys| {
        let codes = (level == Level::Authenticate).then_some(keys.codes);
        (level != Level::Encrypt).then_some(Seal { codes, sealing: keys.sealing, number: 0 })
    };
    let (expected, first) = match side {
        Side::Client => (welcome, Vec::new()),
        Side::Server => (Vec::new(), welcome),
    };
    let reader = FrameReader::new(read, seal(incoming), expected);
    (reader, FrameWriter::new(write, seal(outgoing), &first))
}

/// Protects the frames of one direction where TLS does not: with codes, and by
/// sealing the few that only their receiver may read.
#[derive(Debug)]
pub(super) struct Seal {
    /// At [`Level::Authenticate`].
    codes: Option<Secret>,
    sealing: Secret,
    /// The next frame's number.
    number: u64,
}

impl Seal {
    /// How many bytes a code has here.
    pub(super) fn code_bytes(&self) -> usize {
        if self.codes.is_some() { MAC_BYTES } else { 0 }
    }

    /// The code of the next frame, if frames have codes. `frame` is
    /// [`NUMBER_BYTES`] that are overwritten then, and the length and the body.
    pub(super) fn code(&self, frame: &mut [u8]) -> Option<[u8; MAC_BYTES]> {
        let key = self.codes.as_ref()?;
        frame[..NUMBER_BYTES].copy_from_slice(&self.number.to_le_bytes());
        let hash = blake3::keyed_hash(key.as_bytes(), frame);
        let mut code = [0; MAC_BYTES];
        code.copy_from_slice(&hash.as_bytes()[..MAC_BYTES]);
        Some(code)
    }

    /// Encrypts the next frame's body where it lies, for the length that it has
    /// then. What is returned belongs behind it.
    pub(super) fn seal(
        &self,
        length: u32,
        body: &mut [u8],
    ) -> Result<[u8; TAG_BYTES], Unspecified> {
        let aad = Aad::from(length.to_le_bytes());
        let tag = self.sealing()?.seal_in_place_separate_tag(self.nonce(), aad, body)?;
        tag.as_ref().try_into().map_err(|_| Unspecified)
    }

    /// Decrypts the next frame's body where it lies, which ends in what
    /// [`Seal::seal`] returned. `None` if that is not what the other side sent
    /// at this place.
    pub(super) fn open(&self, length: u32, body: &mut [u8]) -> Option<()> {
        let aad = Aad::from(length.to_le_bytes());
        self.sealing().ok()?.open_in_place(self.nonce(), aad, body).ok().map(|_| ())
    }

    /// Made when it is needed: it is larger than the secret, and there are tens
    /// of thousands of connections.
    fn sealing(&self) -> Result<LessSafeKey, Unspecified> {
        UnboundKey::new(&CHACHA20_POLY1305, self.sealing.as_bytes()).map(LessSafeKey::new)
    }

    /// The next frame's number: there is a key for each connection and
    /// direction, and each number is used once.
    fn nonce(&self) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[..NUMBER_BYTES].copy_from_slice(&self.number.to_le_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    /// Goes on to the next frame. 2^64 frames outlast any connection.
    pub(super) fn advance(&mut self) {
        self.number += 1;
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }
}
