//! Who may see the site: those who have the secret. Those who may act have another secret.
//!
//! Whoever has the secret makes a link that logs a browser in for a while. Neither the link nor
//! the cookie contains the secret; both are signed under a key that follows from it, and end at
//! a time that is part of what is signed. Nothing has to be remembered, so that a restart logs
//! nobody out.

use std::fmt;
use zeroize::Zeroizing;

/// What the key is derived for.
const CONTEXT: &str = "falkon 2026-11-25 login of the dashboard";
/// Seconds for which a link can be used.
const LINK_S: u64 = 600;
/// Seconds for which a browser stays logged in.
pub const SESSION_S: u64 = 12 * 3600;
/// The longest text that can be a code.
const CODE_BYTES_MAX: usize = 96;

/// What a code is for: one cannot be used for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Link,
    Session,
}

/// Logs in, and knows who is.
#[derive(Clone)]
pub struct Login {
    key: Zeroizing<[u8; 32]>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(…)")
    }
}

impl Login {
    /// For those who have a secret.
    #[must_use]
    pub fn new(secret: &[u8; 32]) -> Login {
        Login { key: Zeroizing::new(blake3::derive_key(CONTEXT, secret)) }
    }

    /// The code of a link that logs in, from `now` on for ten minutes; times are in seconds.
    #[must_use]
    pub fn link(&self, now: u64) -> String {
        self.code(Purpose::Link, now + LINK_S)
    }

    /// Whether a link's code logs in at `now`.
    #[must_use]
    pub fn opens(&self, now: u64, code: &str) -> bool {
        self.holds(Purpose::Link, LINK_S, now, code)
    }

    /// The token with which a program reads metrics, for as long as the secret holds.
    #[must_use]
    pub fn token(&self) -> String {
        self.token_hash().to_hex().to_string()
    }

    /// Whether a text is the token.
    pub(crate) fn is_token(&self, text: &str) -> bool {
        // Hashes compare in constant time.
        blake3::Hash::from_hex(text).is_ok_and(|hash| hash == self.token_hash())
    }

    fn token_hash(&self) -> blake3::Hash {
        blake3::keyed_hash(&self.key, b"metrics")
    }

    /// A session that begins at `now`.
    pub(crate) fn session(&self, now: u64) -> String {
        self.code(Purpose::Session, now + SESSION_S)
    }

    /// Whether a session is one, and goes on at `now`.
    pub(crate) fn is_session(&self, now: u64, code: &str) -> bool {
        self.holds(Purpose::Session, SESSION_S, now, code)
    }

    /// The name of the cookie. Browsers send the cookies of all ports of a machine to each:
    /// dispatchers on one machine do not log each other's browsers out.
    pub(crate) fn cookie(&self) -> String {
        let named = blake3::keyed_hash(&self.key, b"cookie");
        format!("falkon-{}", &named.to_hex()[..12])
    }

    fn code(&self, purpose: Purpose, until: u64) -> String {
        format!("{until:x}.{}", self.signature(purpose, until).to_hex())
    }

    fn holds(&self, purpose: Purpose, longest: u64, now: u64, code: &str) -> bool {
        if code.len() > CODE_BYTES_MAX {
            return false;
        }
        let Some((until, signature)) = code.split_once('.') else { return false };
        let Ok(until) = u64::from_str_radix(until, 16) else { return false };
        let Ok(signature) = blake3::Hash::from_hex(signature) else { return false };
        // Hashes compare in constant time.
        let is_signed = signature == self.signature(purpose, until);
        is_signed && now < until && until - now <= longest
    }

    fn signature(&self, purpose: Purpose, until: u64) -> blake3::Hash {
        let mut text = [0; 9];
        text[0] = match purpose {
            Purpose::Link => 1,
            Purpose::Session => 2,
        };
        text[1..].copy_from_slice(&until.to_le_bytes());
        blake3::keyed_hash(&self.key, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn links_and_sessions_end_and_are_not_each_other() {
        let login = Login::new(&[7; 32]);
        let (link, session) = (login.link(1_000), login.session(1_000));
        assert!(login.opens(1_000, &link) && login.opens(1_000 + LINK_S - 1, &link));
        assert!(!login.opens(1_000 + LINK_S, &link));
        assert!(
            login.is_session(1_000, &session) && !login.is_session(1_000 + SESSION_S, &session)
        );
        assert!(!login.is_session(1_000, &link) && !login.opens(1_000, &session));
        let other = Login::new(&[8; 32]);
        assert!(!other.opens(1_000, &link) && !other.is_session(1_000, &session));
        assert_ne!(other.cookie(), login.cookie());
        let token = login.token();
        assert!(login.is_token(&token) && !other.is_token(&token) && !login.is_token(""));
        assert!(!login.opens(1_000, &token) && !login.is_session(1_000, &token));
        assert!(!format!("{login:?}").contains("07"));
    }

    proptest! {
        #[test]
        fn no_other_text_logs_in(text in "\\PC{0,100}", at in 0usize..80, byte in 0u8..128) {
            let login = Login::new(&[7; 32]);
            prop_assert!(!login.opens(1_000, &text));
            let mut changed = login.link(1_000).into_bytes();
            let place = at % changed.len();
            let before = changed[place];
            changed[place] = byte;
            let changed = String::from_utf8(changed).unwrap();
            // Digits of a signature may be capitals.
            if !before.eq_ignore_ascii_case(&byte) {
                prop_assert!(!login.opens(1_000, &changed), "{}", changed);
            }
        }
    }
}
