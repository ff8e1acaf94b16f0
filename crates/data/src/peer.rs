//! Serving cached objects to other executors, and fetching theirs.
//!
//! Peers prove themselves to each other with a secret that the dispatcher hands
//! out (see [`PeerAcceptor`](falkon_net::secure::PeerAcceptor)). After that, bulk
//! bytes have framing of their own, all numbers little-endian:
//!
//! | | content | bytes |
//! |---|---|---|
//! | request | object, offset, length (all ones: all that follow) | 16 + 8 + 8 |
//! | answer | status, bytes of the whole object, bytes that follow | 1 + 8 + 8 |
//! | body | the bytes | |
//!
//! Statuses are 0 (here it is), 1 (gone), 2 (busy), 3 (it has no such bytes);
//! all but 0 are without a body. At level `authenticate`, a code of 16 bytes
//! follows each request, each answer and each body. At level `encrypt` all of
//! it is inside TLS; at level `none` bodies go by sendfile(2).
//!
//! Many requests may be under way on one connection; they are answered in
//! order. The core decides about small objects as they are asked for, and about what is
//! large when it is its turn. A peer that cannot go on in the middle of a body closes the
//! connection. Connections are kept for [`IDLE_MS_MAX`] and used again.

mod connection;
mod entrust;
mod error;
mod fetch;
mod pipeline;
mod receive;
pub mod remote;
mod requests;
mod sender;
mod serve;
mod silence;
mod tail;
mod through;
mod visit;
mod visitor;
mod wire;

pub use entrust::EntrustError;
pub use error::PeerError;
pub use fetch::{Fetcher, Peer, Piece};
pub use requests::{FromPeers, Verdict, Written};
pub use serve::{Server, StartError};
pub use tail::TailVisit;
pub use through::{PARTS_ASKED_MAX, PartAsked, Through};
pub use visitor::{VisitError, Visitor};

/// Up to this size, in bytes, an object goes through memory together with
/// others; larger ones have a connection to themselves.
pub const SMALL_BYTES_MAX: u64 = 64 << 10;

/// Connections to one peer for chunks of objects that are broadcast. The chunks of an
/// object take one of them, one after another, and nothing else waits for them.
pub(crate) const CHUNK_CONNECTIONS_MAX: usize = 4;

/// Requests for small objects or chunks that are under way on one connection.
pub(crate) const PIPELINE_REQUESTS_MAX: usize = 128;

/// Requests of one connection that wait for decisions at once.
pub(crate) const ASKED_AHEAD_MAX: usize = 8;

/// How long a connection is kept without a request, in milliseconds.
pub const IDLE_MS_MAX: u64 = 60_000;

/// How long a peer may send or take nothing in the middle of a transfer, in
/// milliseconds, before the connection counts as broken.
pub const SILENCE_MS_MAX: u64 = 20_000;

/// How often an executor says that something takes a while, in milliseconds.
pub const WAIT_MS: u64 = 5_000;

/// Connections of peers that are served at once; further ones are closed.
pub const CONNECTIONS_MAX: usize = 1024;

/// Connections to one peer that are kept without being used.
pub(crate) const IDLE_CONNECTIONS_MAX: usize = 4;

/// How much is read and written at once, in bytes.
pub const BUFFER_BYTES: usize = 256 << 10;

/// The bytes of one object after which other objects have their turn.
pub(crate) const TURN_BYTES: u64 = 8 << 20;
