//! What reading and writing frames have in common, and sessions.
//!
//! On the wire a frame is its body's length (4 bytes, little-endian), the body,
//! and, at [`Level::Authenticate`], a code of 16 bytes over the frame's number
//! in its direction, the length and the body.

use rustix::net::sockopt;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::handshake::Keys;
use super::{FrameReader, FrameWriter, KEEPALIVE_S, Level, Role, Secret, UNACKNOWLEDGED_MS_MAX};

pub(super) const LENGTH_BYTES: usize = 4;
pub(super) const MAC_BYTES: usize = 16;
/// A frame's number stands before its length while the code is computed, so
/// that one call hashes all of it where it lies. It is never sent.
pub(super) const NUMBER_BYTES: usize = 8;

/// An authenticated connection.
#[derive(Debug)]
pub struct Session {
    /// What the client's side has proved to be. The same on both sides.
    pub role: Role,
    /// The other side's address.
    pub peer: String,
    /// How the connection is protected.
    pub level: Level,
    /// What the other side sends.
    pub reader: FrameReader,
    /// What is sent to the other side.
    pub writer: FrameWriter,
}

/// Frames over a stream within one process: no handshake, no protection.
#[must_use]
pub fn plain<S>(stream: S) -> (FrameReader, FrameWriter)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (read, write) = halves(stream);
    (FrameReader::new(read, None), FrameWriter::new(write, None))
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

/// The halves of a TCP connection, which need no lock.
pub(super) fn tcp_halves(stream: TcpStream) -> (ReadHalf, WriteHalf) {
    let (read, write) = stream.into_split();
    (Box::new(read), Box::new(write))
}

/// Which side of a connection this is.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Client,
    Server,
}

/// The reader and writer of a connection whose handshake is over. Inside TLS,
/// frames need no code of their own.
pub(super) fn protected(
    (read, write): (ReadHalf, WriteHalf),
    level: Level,
    side: Side,
    keys: Keys,
) -> (FrameReader, FrameWriter) {
    let (incoming, outgoing) = match side {
        Side::Client => (keys.to_client, keys.to_server),
        Side::Server => (keys.to_server, keys.to_client),
    };
    let seal = |key| (level == Level::Authenticate).then(|| Seal { key, number: 0 });
    (FrameReader::new(read, seal(incoming)), FrameWriter::new(write, seal(outgoing)))
}

/// Computes the codes of one direction's frames.
#[derive(Debug)]
pub(super) struct Seal {
    key: Secret,
    /// The next frame's number.
    number: u64,
}

impl Seal {
    /// The code of the next frame. `frame` is [`NUMBER_BYTES`] that are
    /// overwritten, then the length and the body.
    pub(super) fn code(&self, frame: &mut [u8]) -> [u8; MAC_BYTES] {
        frame[..NUMBER_BYTES].copy_from_slice(&self.number.to_le_bytes());
        let hash = blake3::keyed_hash(self.key.as_bytes(), frame);
        let mut code = [0; MAC_BYTES];
        code.copy_from_slice(&hash.as_bytes()[..MAC_BYTES]);
        code
    }

    /// Goes on to the next frame. 2^64 frames outlast any connection.
    pub(super) fn advance(&mut self) {
        self.number += 1;
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }
}
