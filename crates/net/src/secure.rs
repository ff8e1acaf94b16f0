//! Secured connections: everything between a socket and a stream of
//! authenticated frames of a known [`Role`].
//!
//! A connection comes about in four steps, in this order:
//! 1. A fixed preamble of 16 bytes each way, in clear: who speaks, which
//!    protocol version of the [`Versions`] that both speak, which security
//!    [`Level`].
//! 2. At [`Level::Encrypt`], a TLS 1.3 handshake in which the client accepts
//!    exactly the certificate that its access file names.
//! 3. A mutual challenge-response with the secret of the role, at every level:
//!    nobody without a secret gets past it. The server proves itself first, so
//!    a false server learns nothing that it could use.
//! 4. Frames: a length and a body, at [`Level::Authenticate`] followed by a
//!    message authentication code that also covers the frame's place in the
//!    stream.
//!
//! From version 9 on a side that is in step 1 does not wait: the client sends
//! its part of the next step with its preamble, in one write, and so does the
//! server. In version 8 each waits for the other's preamble.
//!
//! [`Acceptor`] is the server's side and [`connect`] the client's;
//! [`Identity`] is what a dispatcher keeps, [`AccessFile`] what it hands out.
//!
//! After falkon-sc07 §4.6, which compares no security, authentication and
//! authentication with encryption.

mod accept;
mod access;
mod admission;
mod bare;
mod breakdown;
mod connect;
mod early;
mod epochs;
mod exchange;
mod frames;
mod handshake;
mod identity;
mod level;
mod preamble;
mod private_file;
mod proxy;
mod read;
mod role;
mod secret;
mod ticket;
mod tls;
mod versions;
mod write;

pub use accept::{AcceptError, Acceptor, AcceptorError, RefusedKind};
pub use access::{ACCESS_FILE_FORMAT, AccessError, AccessFile, FALLBACKS_MAX, Places};
pub use admission::Entrant;
pub use bare::{Bare, CODE_BYTES, Code, Incoming, Outgoing, connect_peer};
pub use bare::{PeerAcceptor, PeerIdentity};
pub use breakdown::{Breakdown, Stage};
pub use connect::{
    ConnectError, ConnectFailure, FailedAttempt, connect, connect_from, connect_over,
    connect_through,
};
pub use epochs::{Epochs, EpochsError};
pub use frames::{Session, plain};
pub use identity::{Identity, IdentityError};
pub use level::{Level, LevelError};
pub use private_file::FileError;
pub use private_file::{read as read_private, write as write_private};
pub use proxy::{Proxy, ProxyError, ProxyNameError};
pub use read::{Batch, FrameReader, ReadError};
pub use role::{Role, UnknownRole};
pub(crate) use secret::fill_randomly;
pub use secret::{DispatcherId, Fingerprint, NotHex, Secret};
pub use ticket::CLAIMS_BYTES;
pub use ticket::{Claims, VisitPurpose};
pub use versions::{PROTOCOL_VARIABLE, Versions, VersionsError};
pub use write::{FrameWriter, QueueError, WriteError};

/// The largest body of a frame, in bytes: a frame carries one message.
pub const FRAME_BYTES_MAX: usize = falkon_core::limits::MESSAGE_BYTES_MAX as usize;

/// The largest message of the handshake, in bytes: what a peer that has proved
/// nothing yet can make us read at once.
pub(crate) const HANDSHAKE_MESSAGE_BYTES_MAX: usize = 1 << 10;

/// How long a whole handshake may take, in milliseconds, on either side.
pub(crate) const HANDSHAKE_MS_MAX: u64 = 10_000;

/// How long reaching one address may take, in milliseconds, before the next
/// one is tried.
pub const CONNECT_MS_MAX: u64 = 5_000;

/// How long a peer may leave what it was sent unacknowledged, in milliseconds,
/// before the connection counts as broken.
pub(crate) const UNACKNOWLEDGED_MS_MAX: u32 = 20_000;

/// Silence after which a peer is asked, by the kernel, whether it is still
/// there, in seconds; and the pause between questions.
pub(crate) const KEEPALIVE_S: u64 = 5;

/// The same silence where heartbeats are exchanged, which find out earlier. Questions
/// on top of them would be most of what many idle executors cost.
pub(crate) const HEARTBEAT_KEEPALIVE_S: u64 = 300;

/// How long a peer may take for its preamble once it is connected, in
/// milliseconds.
pub const PREAMBLE_MS_MAX: u64 = 2_000;

/// How long a peer may take for one part of the handshake, in milliseconds,
/// before another one that waits is given its place.
pub const STALLED_MS: u64 = 2_000;

/// How long a peer waits for its handshake to begin, in milliseconds, before it
/// receives word that the dispatcher is busy.
pub(crate) const PLACE_MS_MAX: u64 = HANDSHAKE_MS_MAX / 2;

/// The usual size of a connection's read buffer, in bytes. It grows for larger
/// frames and shrinks again.
pub const READ_BUFFER_BYTES: usize = 256 << 10;

/// How many bytes may wait in a [`FrameWriter`] before it takes no further
/// frame; the last frame taken may go over this by its own size.
pub const WRITE_QUEUE_BYTES_MAX: usize = 16 << 20;

/// The largest access or identity file that is read, in bytes.
pub const ACCESS_FILE_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(STALLED_MS < PLACE_MS_MAX, "who waits gets the place of one that stalls");

// A frame of the greatest size can be queued, and its length fits its prefix.
const _: () = assert!(FRAME_BYTES_MAX <= WRITE_QUEUE_BYTES_MAX);
const _: () = assert!(FRAME_BYTES_MAX <= u32::MAX as usize);
