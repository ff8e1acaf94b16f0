//! The key exchange of a handshake: X25519, with a pair of keys for this one
//! connection. The agreed secret is unknown to anyone who has recorded the
//! connection, even to one who has the role's secret, or gets it later.
//!
//! Inside TLS, which has an exchange of its own, shares are random numbers and
//! nothing is agreed on: thousands of executors that come back at once need not
//! pay for it twice. At level none, no frame is protected, and it is the same.

use std::io;

use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use ring::rand::SystemRandom;

use super::Secret;
use super::secret::fill_randomly;

/// The bytes of what a side shows of its pair.
pub(super) const SHARE_BYTES: usize = 32;

/// One side's pair of keys.
pub(super) struct Exchange {
    /// `None` inside TLS, and at level none.
    private: Option<EphemeralPrivateKey>,
    share: [u8; SHARE_BYTES],
}

impl Exchange {
    /// A new pair.
    pub(super) fn draw() -> io::Result<Exchange> {
        let failed = |_| io::Error::other("the system provided no random numbers");
        let private =
            EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).map_err(failed)?;
        let public = private.compute_public_key().map_err(failed)?;
        let share = public.as_ref().try_into().map_err(io::Error::other)?;
        Ok(Exchange { private: Some(private), share })
    }

    /// A share for a connection inside TLS, or at level none.
    pub(super) fn without_keys() -> io::Result<Exchange> {
        let mut share = [0; SHARE_BYTES];
        fill_randomly(&mut share)?;
        Ok(Exchange { private: None, share })
    }

    /// The public key, for the other side.
    pub(super) fn share(&self) -> [u8; SHARE_BYTES] {
        self.share
    }

    /// The secret that both sides agree on, from the other side's public key;
    /// `None` if that is one of the keys that would fix the outcome alone.
    /// Without keys this is no secret.
    pub(super) fn agree(self, theirs: &[u8; SHARE_BYTES]) -> Option<Secret> {
        let Some(private) = self.private else { return Some(Secret::from_bytes([0; 32])) };
        let theirs = UnparsedPublicKey::new(&X25519, theirs);
        let agreed = agree_ephemeral(private, &theirs, |agreed| {
            agreed.try_into().ok().map(Secret::from_bytes)
        });
        agreed.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_and_each_time_on_something_else() {
        let agree = || {
            let (one, other) = (Exchange::draw().unwrap(), Exchange::draw().unwrap());
            let (of_one, of_other) = (one.share(), other.share());
            assert_ne!(of_one, of_other);
            let agreed = one.agree(&of_other).unwrap();
            assert_eq!(agreed, other.agree(&of_one).unwrap());
            agreed
        };
        assert_ne!(agree(), agree());
    }

    #[test]
    fn a_share_that_decides_alone_what_is_agreed_on_is_refused() {
        let mut one = [0; SHARE_BYTES];
        for first in [0, 1] {
            one[0] = first;
            assert!(Exchange::draw().unwrap().agree(&one).is_none());
        }
    }
}
