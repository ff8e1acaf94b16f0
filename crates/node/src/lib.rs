//! The IO shell around the core: sockets, security, journal, processes.

mod awake;
pub mod cache;
pub mod client;
pub mod clock;
pub mod concentrator;
pub mod dispatcher;
pub mod executor;
pub mod journal;
pub mod lock;
pub mod lrm;
pub mod object;
pub mod overflow;
pub mod pages;
pub mod peer;
pub mod process;
pub mod provision;
pub mod secure;
pub mod store;
