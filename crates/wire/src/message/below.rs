//! Questions of clients about objects that executors below relays hold.

use crate::codec::wire_enum;
use falkon_core::data::object::ObjectId;
use falkon_core::part::PartQuestion;

/// A question about an object below relays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BelowAsk {
    /// Read a part of it. Answer: [`ToClient::Part`](super::ToClient::Part).
    Read(PartQuestion),
    /// Have it dropped there. Answer: [`ToClient::Done`](super::ToClient::Done), before it is
    /// gone.
    Drop {
        /// The object.
        object: ObjectId,
        /// Even if tasks need it that find it nowhere else then.
        force: bool,
    },
}
wire_enum!(BelowAsk {
    0 => Read(question),
    1 => Drop { object, force },
});
