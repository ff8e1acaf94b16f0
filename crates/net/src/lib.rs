//! Connections between the parts: their security, frames and messages, clients,
//! the processes that hold connections for a dispatcher, and the clocks and
//! waits of all that serve them.

pub mod client;
pub mod clock;
pub mod concentrator;
pub mod ids;
mod log;
pub mod secure;
pub mod spin;

pub use log::Log;
