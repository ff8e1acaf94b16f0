//! The IO shell around the core: sockets, security, journal, processes.

pub mod journal;
pub mod process;
pub mod secure;
