//! Messages, framing and journal records: bytes to messages and back.
