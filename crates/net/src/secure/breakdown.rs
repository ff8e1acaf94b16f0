//! The failure of a handshake's step: its stage, its reason, and the time that a
//! handshake has.

use std::fmt;
use std::io;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{HANDSHAKE_MESSAGE_BYTES_MAX, HANDSHAKE_MS_MAX};

/// A part of the handshake, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The 16 bytes in clear.
    Preamble,
    /// The TLS handshake.
    Tls,
    /// The client's claim of a role.
    Hello,
    /// The server's proof.
    Challenge,
    /// The client's proof.
    Proof,
    /// The server's last word.
    Welcome,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Preamble => "preamble",
            Stage::Tls => "TLS handshake",
            Stage::Hello => "hello",
            Stage::Challenge => "challenge",
            Stage::Proof => "proof",
            Stage::Welcome => "welcome",
        })
    }
}

/// Why a step of the handshake came to nothing, for reasons other than a plain
/// answer of the peer.
#[derive(Debug, thiserror::Error)]
pub enum Breakdown {
    /// The time for it went by.
    #[error("the handshake made no progress within {} s", .ms / 1000)]
    Deadline {
        /// How long it was, in milliseconds.
        ms: u64,
    },
    /// The peer did nothing while others waited.
    #[error("the other side sent nothing while others waited")]
    Evicted,
    /// The peer closed the connection.
    #[error("the other side closed the connection")]
    HungUp,
    /// The peer does not speak Falkon's protocol.
    #[error("the other side does not speak Falkon's protocol")]
    NotFalkon,
    /// The peer announced a message of more than [`HANDSHAKE_MESSAGE_BYTES_MAX`].
    #[error(
        "the other side announced {bytes} bytes where at most {HANDSHAKE_MESSAGE_BYTES_MAX} are \
         allowed"
    )]
    TooLong {
        /// The announced length in bytes.
        bytes: usize,
    },
    /// The peer sent something that has no place here.
    #[error("the other side sent a malformed message")]
    Malformed,
    /// TLS failed.
    #[error("TLS failed: {0}")]
    Tls(#[source] rustls::Error),
    /// The connection, or the system's random source, failed.
    #[error("the connection failed: {0}")]
    Io(#[source] io::Error),
}

impl From<io::Error> for Breakdown {
    fn from(error: io::Error) -> Breakdown {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(tls) = tls {
            return Breakdown::Tls(tls.clone());
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Breakdown::HungUp,
            _ => Breakdown::Io(error),
        }
    }
}

/// The end of the time that one handshake has.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    at: Instant,
    ms: u64,
}

impl Deadline {
    pub(super) fn start() -> Deadline {
        Deadline::after(HANDSHAKE_MS_MAX)
    }

    pub(super) fn after(ms: u64) -> Deadline {
        Deadline { at: Instant::now() + Duration::from_millis(ms), ms }
    }

    pub(super) fn at(self) -> Instant {
        self.at
    }

    /// The breakdown after the deadline has passed.
    pub(super) fn passed(self) -> Breakdown {
        Breakdown::Deadline { ms: self.ms }
    }

    /// Runs one step, and says at which stage it broke down if it did.
    pub(super) async fn step<T, E: Into<Breakdown>>(
        self,
        stage: Stage,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, (Stage, Breakdown)> {
        match timeout_at(self.at, step).await {
            Ok(result) => result.map_err(|error| (stage, error.into())),
            Err(_) => Err((stage, self.passed())),
        }
    }
}
