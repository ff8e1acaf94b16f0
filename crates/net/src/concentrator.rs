//! Connections that other processes hold for a dispatcher.
//!
//! A process has a limited number of descriptors, and a dispatcher needs one
//! for each connection that it holds itself. A *concentrator* is the same
//! binary, executed again by the dispatcher with the argument
//! [`CONCENTRATOR_ARGUMENT`], which holds connections for it. There is one port
//! all the same: the dispatcher accepts a connection and passes the socket on,
//! before anything is sent on it ([`arrivals`]). The concentrator carries out
//! the handshake, with the keys that it was given, checks and decrypts what
//! arrives, encrypts what leaves, and knows nothing of the contents. The
//! messages of all its connections go over one socket pair, in both directions
//! ([`item`]). So the messages that many executors send at the same time wake
//! the dispatcher once and are read with one system call, and so are those that
//! it sends to them.
//!
//! Neither half outlives the other by much: a concentrator ends with its link,
//! and a dispatcher takes the connections of a concentrator that has ended, or
//! is silent, for closed. Executors then reconnect, as after any failure.

use std::time::Duration;

mod arrivals;
mod frames;
mod item;
mod relay;
mod upstream;

pub use relay::concentrator_main;

pub use arrivals::Arrivals;
pub use item::{Down, Up};

/// The hidden first argument with which a binary is executed again as a
/// concentrator.
pub const CONCENTRATOR_ARGUMENT: &str = "concentrator";

/// Descriptors that a concentrator needs beside its connections: standard
/// streams, the event loop, the link, what is being passed to it.
pub const DESCRIPTORS_SPARE: u64 = 16;

/// The longest time between two signs of life of a concentrator.
pub const PULSE: Duration = Duration::from_secs(2);

/// Silence after which a concentrator is given up.
pub const SILENT: Duration = Duration::from_secs(20);

/// Bytes on their way to one peer through a concentrator before the dispatcher
/// keeps the rest: what one peer that does not read can make it hold. The last
/// message may go over it by its own size.
pub const WINDOW_BYTES: u64 = 4 << 20;

/// Bytes passed on to a peer that a concentrator tells together.
pub(crate) const PASSED_BYTES: u64 = 1 << 20;

const _: () = assert!(PASSED_BYTES * 2 <= WINDOW_BYTES, "the window opens before it is used up");
const _: () = assert!(PULSE.as_secs() * 3 <= SILENT.as_secs());

/// How many descriptors this process may have.
pub fn descriptors_max() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}
