//! Relays: trees of dispatchers, of which each lends its executors to the one above.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod collected;
mod credit;
mod everywhere;
mod objects;
mod outputs;
#[allow(dead_code, reason = "other tests draw more")]
#[path = "../machines/rng.rs"]
mod rng;
mod storms;
mod surveys;
mod trees;
mod world;
