//! Messages, framing and journal records: bytes to messages and back.

pub mod codec;
pub mod command;
