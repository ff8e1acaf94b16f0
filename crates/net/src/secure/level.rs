//! Security levels, and where each may be used.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// How a connection is protected once both sides have proved themselves
/// (falkon-sc07 §4.6). Ordered from weakest to strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Both sides prove themselves; what follows is neither protected against
    /// change nor against being read.
    None,
    /// Every frame also carries a code that shows any change, replay or
    /// reordering; it can be read.
    Authenticate,
    /// Everything is inside TLS 1.3.
    Encrypt,
}

impl Level {
    /// The level to use at a listen address when the user names none:
    /// [`Level::Authenticate`] on loopback, [`Level::Encrypt`] elsewhere.
    #[must_use]
    pub fn default_for(address: SocketAddr) -> Level {
        if is_loopback(address) { Level::Authenticate } else { Level::Encrypt }
    }

    /// Checks that this level may be used at a listen address. `forced` is the
    /// user's word that it may all the same.
    ///
    /// # Errors
    /// [`LevelError`] for any but [`Level::Encrypt`] at an address that other
    /// machines can reach: below it, an eavesdropper reads all messages.
    pub fn allowed(self, address: SocketAddr, forced: bool) -> Result<(), LevelError> {
        if self != Level::Encrypt && !is_loopback(address) && !forced {
            return Err(LevelError { level: self, address });
        }
        Ok(())
    }

    pub(super) fn code(self) -> u8 {
        match self {
            Level::None => 0,
            Level::Authenticate => 1,
            Level::Encrypt => 2,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Level> {
        [Level::None, Level::Authenticate, Level::Encrypt].into_iter().find(|l| l.code() == code)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::None => "none",
            Level::Authenticate => "authenticate",
            Level::Encrypt => "encrypt",
        })
    }
}

/// An address that maps IPv4 into IPv6 counts as the IPv4 address it stands
/// for; the unspecified address is reachable from outside.
fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// A security level at which others can read along was asked for at an address
/// beyond loopback.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "security level {level} is for loopback addresses only, as others can read along, and other \
     machines can reach {address}: use encrypt, listen on 127.0.0.1, or insist with --force"
)]
pub struct LevelError {
    /// The level.
    pub level: Level,
    /// The listen address.
    pub address: SocketAddr,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_can_read_is_for_loopback_unless_forced() {
        let check = |address: &str, loopback: bool| {
            let address = address.parse().unwrap();
            assert_eq!(Level::None.allowed(address, false).is_ok(), loopback, "{address}");
            assert!(Level::None.allowed(address, true).is_ok());
            assert_eq!(Level::Authenticate.allowed(address, false).is_ok(), loopback, "{address}");
            assert!(Level::Authenticate.allowed(address, true).is_ok());
            assert!(Level::Encrypt.allowed(address, false).is_ok());
            let default = if loopback { Level::Authenticate } else { Level::Encrypt };
            assert_eq!(Level::default_for(address), default, "{address}");
        };
        check("127.0.0.1:1", true);
        check("127.9.9.9:1", true);
        check("[::1]:1", true);
        check("[::ffff:127.0.0.1]:1", true);
        check("0.0.0.0:1", false);
        check("[::]:1", false);
        check("10.0.0.1:1", false);
        check("[::ffff:10.0.0.1]:1", false);
    }
}
