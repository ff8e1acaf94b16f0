//! A node's cache and its staging, proved: eviction against brute force,
//! staging in random worlds with faults.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod cache;
mod hostile;
mod index;
mod members;
mod particular;
#[path = "../machines/queue.rs"]
mod queue;
#[path = "../machines/rng.rs"]
mod rng;
mod silence;
mod sources;
mod stage;
mod striped;
mod trees;
mod unpacked;
mod world;

/// `PROPTEST_CASES` raises the number of cases.
fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
