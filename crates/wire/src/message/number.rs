//! Numbers of requests whose messages are not read.

use crate::codec::Decoder;

/// The number of a request, from the beginning of a message that need not be
/// whole or readable otherwise; none of a message that has no answer.
#[must_use]
pub fn request_number(head: &[u8]) -> Option<u64> {
    let mut from = Decoder::new(head);
    // Cut short, a message may have fewer bytes than values.
    let tag = from.array_head().and_then(|_| from.uint()).ok()?;
    (tag != ACKNOWLEDGE).then(|| from.uint().ok()).flatten()
}

/// The tag of the message that has no answer, and so no number.
const ACKNOWLEDGE: u64 = 4;
