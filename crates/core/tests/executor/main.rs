//! The executor's machine by itself, with a dispatcher and a shell that do what
//! the test says.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod ahead;
mod automatic;
mod doubts;
mod functions;
mod idle;
mod shell;
mod streams;
mod unstarted;
