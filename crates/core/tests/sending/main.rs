//! What a dispatcher sends to whom, and when: exact numbers of tasks ahead of
//! free slots, what is taken back, copied, cancelled and remembered.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ahead;
mod back;
mod data;
mod messages;
mod needs;
mod world;
