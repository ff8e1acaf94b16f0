//! Messages, journal records and events: bytes to messages and back.

pub mod codec;
pub mod command;
mod core_types;
pub mod declared;
pub mod events;
pub mod hidden;
pub mod message;
pub mod provision;
