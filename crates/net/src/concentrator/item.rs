//! The items that a dispatcher and a concentrator exchange.
//!
//! Each item is a frame: a byte for its kind, the connection's number
//! (little-endian, 8 bytes), and what else there is. Messages are not copied
//! into items: [`Up::Said`] and [`Down::Tell`] announce frames, which follow as
//! they came from, or go to, the peer. Both sides are the same binary, so there
//! are no versions.

use crate::secure::{RefusedKind, Role};
use falkon_core::dispatch::ConnectionId;

/// From a concentrator to its dispatcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Up {
    /// A peer has proved to be of a role.
    Opened {
        /// The connection.
        connection: ConnectionId,
        /// The role.
        role: Role,
        /// The protocol version that both sides speak on it.
        version: u16,
        /// The address of the peer.
        peer: String,
    },
    /// A connection came to nothing; why.
    Refused {
        /// The connection.
        connection: ConnectionId,
        /// The kind of the refusal.
        kind: RefusedKind,
        /// The reason.
        why: String,
    },
    /// The next frames are what a peer said.
    Said {
        /// The connection.
        connection: ConnectionId,
        /// How many frames.
        frames: u32,
    },
    /// A connection is over; if it failed, why.
    Closed {
        /// The connection.
        connection: ConnectionId,
        /// The reason.
        why: Option<String>,
    },
    /// The number of bytes that were passed on to a peer since.
    Passed {
        /// The connection.
        connection: ConnectionId,
        /// How many bytes.
        bytes: u64,
    },
    /// Asks whether an instance or a user exists.
    Asks {
        /// The connection.
        connection: ConnectionId,
        /// The role of its holder.
        role: Role,
    },
    /// The concentrator is alive.
    Pulse,
}

/// From a dispatcher to a concentrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Down {
    /// The next frame is for a peer; it is sealed if only the peer may read it.
    Tell {
        /// The connection.
        connection: ConnectionId,
        /// Whether it is to be sealed.
        sealed: bool,
    },
    /// End a connection once its frames have been passed on.
    End {
        /// The connection.
        connection: ConnectionId,
    },
    /// End a connection now.
    HangUp {
        /// The connection.
        connection: ConnectionId,
    },
    /// The answer to [`Up::Asks`].
    Exists {
        /// The connection.
        connection: ConnectionId,
        /// Whether it exists.
        yes: bool,
    },
}

const NO_CONNECTION: ConnectionId = ConnectionId(0);

fn head(out: &mut Vec<u8>, kind: u8, connection: ConnectionId) {
    out.push(kind);
    out.extend_from_slice(&connection.0.to_le_bytes());
}

fn split_head(bytes: &[u8]) -> Option<(u8, ConnectionId, &[u8])> {
    let (kind, bytes) = bytes.split_first()?;
    let (connection, rest) = bytes.split_first_chunk()?;
    Some((*kind, ConnectionId(u64::from_le_bytes(*connection)), rest))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Up {
    /// Appends the item's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Up::Opened { connection, role, version, peer } => {
                head(out, 0, *connection);
                out.extend_from_slice(&role.encode());
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(peer.as_bytes());
            }
            Up::Refused { connection, kind, why } => {
                head(out, 1, *connection);
                out.push(*kind as u8);
                out.extend_from_slice(why.as_bytes());
            }
            Up::Said { connection, frames } => {
                head(out, 2, *connection);
                out.extend_from_slice(&frames.to_le_bytes());
            }
            Up::Closed { connection, why } => {
                head(out, 3, *connection);
                out.push(u8::from(why.is_some()));
                out.extend_from_slice(why.as_deref().unwrap_or_default().as_bytes());
            }
            Up::Passed { connection, bytes } => {
                head(out, 4, *connection);
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            Up::Asks { connection, role } => {
                head(out, 5, *connection);
                out.extend_from_slice(&role.encode());
            }
            Up::Pulse => head(out, 6, NO_CONNECTION),
        }
    }

    /// `None` for what no concentrator says.
    pub fn decode(bytes: &[u8]) -> Option<Up> {
        let (kind, connection, rest) = split_head(bytes)?;
        Some(match kind {
            0 => {
                let (role, rest) = rest.split_first_chunk()?;
                let (version, peer) = rest.split_first_chunk()?;
                let (role, version) = (Role::decode(*role)?, u16::from_le_bytes(*version));
                Up::Opened { connection, role, version, peer: text(peer) }
            }
            1 => {
                let (kind, why) = rest.split_first()?;
                let kind = *RefusedKind::ALL.get(usize::from(*kind))?;
                Up::Refused { connection, kind, why: text(why) }
            }
            2 => Up::Said { connection, frames: u32::from_le_bytes(rest.try_into().ok()?) },
            3 => {
                let (failed, why) = rest.split_first()?;
                Up::Closed { connection, why: (*failed != 0).then(|| text(why)) }
            }
            4 => Up::Passed { connection, bytes: u64::from_le_bytes(rest.try_into().ok()?) },
            5 => Up::Asks { connection, role: Role::decode(rest.try_into().ok()?)? },
            6 => Up::Pulse,
            _ => return None,
        })
    }
}

impl Down {
    /// Appends the item's bytes.
    pub fn encode(self, out: &mut Vec<u8>) {
        match self {
            Down::Tell { connection, sealed } => {
                head(out, 0, connection);
                out.push(u8::from(sealed));
            }
            Down::End { connection } => head(out, 1, connection),
            Down::HangUp { connection } => head(out, 2, connection),
            Down::Exists { connection, yes } => {
                head(out, 3, connection);
                out.push(u8::from(yes));
            }
        }
    }

    /// `None` for what no dispatcher says.
    pub fn decode(bytes: &[u8]) -> Option<Down> {
        let (kind, connection, rest) = split_head(bytes)?;
        Some(match (kind, rest) {
            (0, [sealed]) => Down::Tell { connection, sealed: *sealed != 0 },
            (1, []) => Down::End { connection },
            (2, []) => Down::HangUp { connection },
            (3, [yes]) => Down::Exists { connection, yes: *yes != 0 },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn role() -> impl Strategy<Value = Role> {
        prop_oneof![
            proptest::sample::select(&Role::FIXED[..]),
            any::<u64>().prop_map(Role::Instance),
            any::<u64>().prop_map(Role::User)
        ]
    }

    fn up() -> impl Strategy<Value = Up> {
        let connection = || any::<u64>().prop_map(ConnectionId);
        prop_oneof![
            (connection(), role(), any::<u16>(), any::<String>()).prop_map(
                |(connection, role, version, peer)| Up::Opened { connection, role, version, peer }
            ),
            (connection(), proptest::sample::select(&RefusedKind::ALL[..]), any::<String>())
                .prop_map(|(connection, kind, why)| Up::Refused { connection, kind, why }),
            (connection(), any::<u32>())
                .prop_map(|(connection, frames)| Up::Said { connection, frames }),
            (connection(), any::<Option<String>>())
                .prop_map(|(connection, why)| Up::Closed { connection, why }),
            (connection(), any::<u64>())
                .prop_map(|(connection, bytes)| Up::Passed { connection, bytes }),
            (connection(), role()).prop_map(|(connection, role)| Up::Asks { connection, role }),
            Just(Up::Pulse),
        ]
    }

    proptest! {
        #[test]
        fn what_a_concentrator_says_reads_back(up in up()) {
            let mut bytes = Vec::new();
            up.encode(&mut bytes);
            prop_assert_eq!(Up::decode(&bytes), Some(up));
        }

        #[test]
        fn what_a_dispatcher_says_reads_back(number: u64, yes: bool) {
            let connection = ConnectionId(number);
            let all = [
                Down::Tell { connection, sealed: yes },
                Down::End { connection },
                Down::HangUp { connection },
                Down::Exists { connection, yes },
            ];
            for down in all {
                let mut bytes = Vec::new();
                down.encode(&mut bytes);
                prop_assert_eq!(Down::decode(&bytes), Some(down));
            }
        }

        #[test]
        fn no_bytes_panic_either_side(bytes: Vec<u8>) {
            Up::decode(&bytes);
            Down::decode(&bytes);
        }
    }
}
