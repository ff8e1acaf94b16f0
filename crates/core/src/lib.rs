//! Falkon's logic: state machines without IO.
//!
//! Nothing here reads a clock, a random source or the environment, starts a
//! thread or does IO, and nothing depends on hash order. Time comes in with
//! each event. Every machine has the same face, the pump: `handle(now, event)`,
//! then `poll_action()` until it is empty, then `poll_timeout()`.

pub mod archive;
pub mod collect;
pub mod data;
pub mod dispatch;
pub mod encoded;
pub mod events;
pub mod execute;
mod few;
pub mod gang;
pub mod handshakes;
mod heartbeats;
pub mod limits;
pub mod metrics;
pub mod model;
pub mod part;
pub mod provision;
pub mod relay;
pub mod result;
pub mod runset;
mod seldom;
pub mod tail;
pub mod task;
mod utc;
