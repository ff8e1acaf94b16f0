//! Data objects outside the core: where they come from and go to (stores, other
//! executors), the cache on disk, and output that is too long for a report.

pub mod archives;
pub mod cache;
pub mod object;
pub mod overflow;
pub mod peer;
pub mod store;
pub mod unpack;
