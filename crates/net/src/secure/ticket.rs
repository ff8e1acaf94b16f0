//! Tickets: what a dispatcher gives to a client that is to do one thing with
//! one data object at its executors, or to read what one task wrote.
//!
//! A ticket follows from the secret by which executors authenticate each other,
//! which the ticket's holder does not learn, and from the rights that it gives.
//! So executors need no list of tickets: a ticket's number is a keyed hash of
//! its claims, and its secret another one of its number. The client proves in
//! the handshake that it has the secret of the number, in the role of an
//! instance of that number, and then sends its claims; the number shows whether
//! they are true.

use falkon_core::data::object::ObjectId;
use falkon_core::dispatch::Purpose;
use falkon_core::task::Time;
use falkon_wire::hidden::Hidden;
use falkon_wire::message::Ticket;

use super::{Role, Secret};

/// The bytes of [`Claims`].
pub const CLAIMS_BYTES: usize = 25;

/// The operation that a visitor may perform, besides its other claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisitPurpose {
    /// Fetch the object.
    Get,
    /// Put the object into the cache.
    Put,
    /// Drop the object from the cache.
    Drop,
    /// Fetch what a task wrote; the object is an
    /// [`output_id`](falkon_net::ids::output_id).
    Output,
    /// Read what a task has written so far; the object is a
    /// [`tail_id`](falkon_net::ids::tail_id).
    Tail,
}

impl From<Purpose> for VisitPurpose {
    fn from(purpose: Purpose) -> VisitPurpose {
        match purpose {
            Purpose::Get => VisitPurpose::Get,
            Purpose::Put => VisitPurpose::Put,
            Purpose::Drop { .. } => VisitPurpose::Drop,
        }
    }
}

/// The rights that a ticket gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The operation.
    pub purpose: VisitPurpose,
    /// The object.
    pub object: ObjectId,
    /// Until when, on the dispatcher's clock; a visit that has begun goes on.
    pub expires: Time,
}

impl Claims {
    /// The ticket for this, from the secret of all executors.
    #[must_use]
    pub fn ticket(&self, peer_secret: &Secret) -> Ticket {
        let number = self.number(peer_secret);
        let secret = Hidden(*ticket_secret(peer_secret, number).as_bytes());
        Ticket { number, secret, expires: self.expires }
    }

    /// The number of the ticket for this.
    pub(crate) fn number(&self, peer_secret: &Secret) -> u64 {
        let hash = peer_secret.derive("falkon 2026 ticket number", &self.encode());
        let mut number = [0; 8];
        number.copy_from_slice(&hash.as_bytes()[..8]);
        u64::from_le_bytes(number)
    }

    /// The claims as they travel.
    pub fn encode(&self) -> [u8; CLAIMS_BYTES] {
        let mut bytes = [0; CLAIMS_BYTES];
        bytes[0] = match self.purpose {
            VisitPurpose::Get => 0,
            VisitPurpose::Put => 1,
            VisitPurpose::Drop => 2,
            VisitPurpose::Output => 3,
            VisitPurpose::Tail => 4,
        };
        bytes[1..17].copy_from_slice(&self.object.0.to_le_bytes());
        bytes[17..].copy_from_slice(&self.expires.0.to_le_bytes());
        bytes
    }

    /// `None` for what is no claim.
    pub fn decode(bytes: &[u8; CLAIMS_BYTES]) -> Option<Claims> {
        let (mut object, mut expires) = ([0; 16], [0; 8]);
        object.copy_from_slice(&bytes[1..17]);
        expires.copy_from_slice(&bytes[17..]);
        let purpose = match bytes[0] {
            0 => VisitPurpose::Get,
            1 => VisitPurpose::Put,
            2 => VisitPurpose::Drop,
            3 => VisitPurpose::Output,
            4 => VisitPurpose::Tail,
            _ => return None,
        };
        let object = ObjectId(u128::from_le_bytes(object));
        Some(Claims { purpose, object, expires: Time(u64::from_le_bytes(expires)) })
    }
}

/// The secret of a role at an executor's server: visitors have that of their
/// ticket, all others that of the executors.
pub(super) fn secret_at_peer(peer_secret: &Secret, role: Role) -> Secret {
    match role {
        Role::Instance(number) => ticket_secret(peer_secret, number),
        _ => peer_secret.clone(),
    }
}

fn ticket_secret(peer_secret: &Secret, number: u64) -> Secret {
    peer_secret.derive("falkon 2026 ticket secret", &number.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn claims_have_one_encoding(mut bytes: [u8; CLAIMS_BYTES], purpose in 0u8..7) {
            bytes[0] = purpose;
            match Claims::decode(&bytes) {
                Some(claims) => prop_assert_eq!(claims.encode(), bytes),
                None => prop_assert!(purpose > 4),
            }
        }

        #[test]
        fn other_claims_are_another_ticket(bytes: [u8; CLAIMS_BYTES], at in 0..CLAIMS_BYTES, secret: [u8; 32]) {
            let secret = Secret::from_bytes(secret);
            let mut bytes = bytes;
            bytes[0] %= 5;
            let claims = Claims::decode(&bytes).unwrap();
            let ticket = claims.ticket(&secret);
            prop_assert_eq!(ticket.number, claims.number(&secret));
            prop_assert_ne!(&ticket.secret.0, secret.as_bytes());
            let shown = secret_at_peer(&secret, Role::Instance(ticket.number));
            prop_assert_eq!(&ticket.secret.0, shown.as_bytes());
            bytes[at] = if at == 0 { (bytes[0] + 1) % 5 } else { bytes[at] ^ 1 };
            let other = Claims::decode(&bytes).unwrap().ticket(&secret);
            prop_assert!(other.number != ticket.number && other.secret != ticket.secret);
        }
    }
}
