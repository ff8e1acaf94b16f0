//! Connections that other processes hold for a dispatcher.
//!
//! A process may have only so many descriptors, and a dispatcher needs one for
//! each connection that it holds itself. A *concentrator* is the same binary,
//! executed again by the dispatcher with the argument [`CONCENTRATOR_ARGUMENT`],
//! which holds connections for it. There is one port all the same: the
//! dispatcher accepts a connection and passes the socket on, before anything
//! was said on it ([`arrivals`]). The concentrator carries out the handshake,
//! with the keys that it was given, checks and decrypts what comes, encrypts
//! what goes, and knows nothing of what it carries. The messages of all its
//! connections go over one socket pair, in both directions ([`item`]): so what
//! many executors say at the same time wakes the dispatcher once and is read
//! with one system call, and so is what it says to them.
//!
//! Neither half outlives the other by much: a concentrator ends with its link,
//! and a dispatcher takes the connections of one that has ended, or that is
//! silent, for closed. Executors connect anew then, as after any failure.

use std::time::Duration;

mod arrivals;
mod carry;
mod item;
mod outbox;

pub use carry::concentrator_main;

pub(crate) use arrivals::Arrivals;
pub(crate) use item::{Down, Up};

/// The hidden first argument with which a binary is executed again as a
/// concentrator.
pub const CONCENTRATOR_ARGUMENT: &str = "concentrator";

/// Descriptors that a concentrator needs beside its connections: standard
/// streams, the event loop, the link, what is being passed to it.
pub(crate) const DESCRIPTORS_SPARE: u64 = 16;

/// How often a concentrator is heard from at least.
pub(crate) const PULSE: Duration = Duration::from_secs(2);

/// Silence after which a concentrator is given up.
pub(crate) const SILENT: Duration = Duration::from_secs(20);

/// Bytes on their way to one peer through a concentrator before the dispatcher
/// keeps the rest: what one peer that does not read can make it hold. The last
/// message may go over it by its own size.
pub(crate) const WINDOW_BYTES: u64 = 4 << 20;

/// Bytes passed on to a peer that a concentrator tells together.
pub(crate) const PASSED_BYTES: u64 = 1 << 20;

const _: () = assert!(PASSED_BYTES * 2 <= WINDOW_BYTES, "the window opens before it is used up");
const _: () = assert!(PULSE.as_secs() * 3 <= SILENT.as_secs());

/// How many descriptors this process may have.
pub(crate) fn descriptors_max() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}
