//! The first 16 bytes each way, in clear: who speaks, which version, which
//! level. Their layout never changes, so that any two releases can tell each
//! other apart.
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | `FALKON\r\n` (a transfer that mends line ends breaks it) |
//! | 8..10 | protocol version, little-endian |
//! | 10 | level |
//! | 11 | status: 0 from a client; the server's answer from a server |
//! | 12..16 | reserved: 0, ignored when read |

use super::Level;
use super::breakdown::Breakdown;

pub(super) const PREAMBLE_BYTES: usize = 16;

const MAGIC: &[u8; 8] = b"FALKON\r\n";

/// A server's answer to a client's preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Fine,
    OtherVersion,
    OtherLevel,
    Busy,
}

impl Status {
    const ALL: [Status; 4] = [Status::Fine, Status::OtherVersion, Status::OtherLevel, Status::Busy];

    fn code(self) -> u8 {
        match self {
            Status::Fine => 0,
            Status::OtherVersion => 1,
            Status::OtherLevel => 2,
            Status::Busy => 3,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Preamble {
    pub(super) version: u16,
    /// The code of a level, which another release may know and this one not.
    pub(super) level: u8,
    /// `None` for a code that this release does not know.
    pub(super) status: Option<Status>,
    /// The bytes on the wire, for the transcript.
    pub(super) bytes: [u8; PREAMBLE_BYTES],
}

impl Preamble {
    pub(super) fn new(version: u16, level: Level, status: Status) -> Preamble {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&version.to_le_bytes());
        bytes[10] = level.code();
        bytes[11] = status.code();
        Preamble { version, level: level.code(), status: Some(status), bytes }
    }

    /// The preamble that these bytes begin with; `None` if there are too few of them.
    ///
    /// # Errors
    /// [`Breakdown::NotFalkon`] as soon as they cannot be the beginning of one.
    pub(super) fn parse(received: &[u8]) -> Result<Option<Preamble>, Breakdown> {
        let seen = received.len().min(MAGIC.len());
        if received[..seen] != MAGIC[..seen] {
            return Err(Breakdown::NotFalkon);
        }
        Ok(received.first_chunk().map(|bytes: &[u8; PREAMBLE_BYTES]| Preamble {
            version: u16::from_le_bytes([bytes[8], bytes[9]]),
            level: bytes[10],
            status: Status::ALL.into_iter().find(|status| status.code() == bytes[11]),
            bytes: *bytes,
        }))
    }
}
