//! What the protocol promises: every message comes back as it was sent, no
//! bytes whatever make the decoder panic or take memory that they do not
//! account for, and the encoding does not change unnoticed.

#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

mod allocation;
mod corpus;
mod events;
mod examples;
mod golden;
mod hidden;
mod hostile;
mod largest;
mod round_trip;
mod sizes;
mod strategies;

/// The function that the fuzz target calls, run here over its corpus.
#[path = "../../../../fuzz/src/decoder.rs"]
#[allow(unreachable_pub, reason = "in its own crate it is public")]
mod decoder;

#[global_allocator]
static ALLOCATOR: allocation::Counting = allocation::Counting;
