//! Messages and journal records: bytes to messages and back.

pub mod codec;
pub mod command;
mod core_types;
pub mod declared;
pub mod hidden;
pub mod message;
pub mod provision;
