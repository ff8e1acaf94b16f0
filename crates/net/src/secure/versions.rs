//! The versions of the protocol that a process speaks, and how two sides find one that both do.
//!
//! A client names the newest version that it speaks in its preamble. A server that speaks it
//! answers with the same version, and the connection goes on in that one. Any other server names
//! the newest version that it speaks and refuses; the client connects again in the lower of the
//! two, if it speaks that, and remembers it for the address.
//!
//! Anyone between the two can forge such a refusal, and have two sides that speak version 9 use
//! version 8. Nothing is gained by that: version 8 has the same proofs, the same keys and the same
//! levels, and only the times at which the messages of the handshake are sent differ. Both
//! preambles are in the transcript that the proofs stand for, so the two sides of a session always
//! agree on its version. A version with weaker protection must never be one to fall back to.

use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use falkon_wire::message::{PROTOCOL_VERSION, PROTOCOL_VERSION_OLDEST};

use super::DispatcherId;

/// The environment variable that names the one version that a process is to speak.
pub const PROTOCOL_VARIABLE: &str = "FALKON_PROTOCOL";

/// The first version in which a client sends what follows its preamble without waiting for the
/// server's.
pub(super) const SHORT_VERSION: u16 = 9;

/// The most addresses of which a version is remembered.
const REMEMBERED_ADDRESSES_MAX: usize = 1024;

/// The versions that one side speaks: all from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    oldest: u16,
    newest: u16,
}

/// [`PROTOCOL_VARIABLE`] names no version that this release speaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "FALKON_PROTOCOL is {value:?}, and this falkon speaks protocol {}: set it to one of these, \
     or unset it",
    Versions::RELEASE
)]
pub struct VersionsError {
    value: String,
}

impl Versions {
    /// All versions that this release speaks.
    pub const RELEASE: Versions =
        Versions { oldest: PROTOCOL_VERSION_OLDEST, newest: PROTOCOL_VERSION };

    /// The versions from `oldest` to `newest`.
    ///
    /// # Panics
    /// If the newest is older than the oldest.
    #[must_use]
    pub fn between(oldest: u16, newest: u16) -> Versions {
        assert!(oldest <= newest, "the newest version is not older than the oldest");
        Versions { oldest, newest }
    }

    /// The versions that this process speaks: what [`PROTOCOL_VARIABLE`] says when it is first
    /// asked for, else all of the release.
    ///
    /// # Errors
    /// [`VersionsError`] if the variable's value is no version of this release.
    pub fn of_process() -> Result<Versions, VersionsError> {
        static SPOKEN: OnceLock<Result<Versions, VersionsError>> = OnceLock::new();
        let spoken = SPOKEN.get_or_init(|| match std::env::var_os(PROTOCOL_VARIABLE) {
            None => Ok(Versions::RELEASE),
            Some(value) if value.is_empty() => Ok(Versions::RELEASE),
            Some(value) => Versions::named(&value.to_string_lossy()),
        });
        spoken.clone()
    }

    /// The same where an unusable value was reported already, when the process began.
    #[must_use]
    pub fn spoken() -> Versions {
        Versions::of_process().unwrap_or(Versions::RELEASE)
    }

    fn named(value: &str) -> Result<Versions, VersionsError> {
        let version = value.parse().ok().filter(|version| Versions::RELEASE.includes(*version));
        version.map(Versions::from).ok_or_else(|| VersionsError { value: value.to_owned() })
    }

    /// The oldest version.
    #[must_use]
    pub fn oldest(self) -> u16 {
        self.oldest
    }

    /// The newest version.
    #[must_use]
    pub fn newest(self) -> u16 {
        self.newest
    }

    /// Whether this version is one of them.
    #[must_use]
    pub fn includes(self, version: u16) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// Whether two sides have a version in common.
    #[must_use]
    pub fn overlap(self, other: Versions) -> bool {
        self.oldest <= other.newest && other.oldest <= self.newest
    }

    /// The version in which to try again with a server that speaks `theirs` and no newer one;
    /// `None` if there is no other than `tried`.
    pub(super) fn instead_of(self, tried: u16, theirs: u16) -> Option<u16> {
        let lower = theirs.min(self.newest);
        (self.includes(lower) && lower != tried).then_some(lower)
    }

    /// The advice to the user where two sides have no version in common: `us` and `them` name the
    /// sides.
    pub(super) fn remedy(self, theirs: u16, us: &str, them: &str) -> String {
        if Versions::RELEASE.includes(theirs) {
            format!("unset {PROTOCOL_VARIABLE} where {us} was started, or set it to {theirs}")
        } else if theirs < self.oldest {
            format!("upgrade {them}")
        } else {
            format!("upgrade {us}")
        }
    }
}

impl From<u16> for Versions {
    /// This one version alone.
    fn from(version: u16) -> Versions {
        Versions { oldest: version, newest: version }
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Versions { oldest, newest } = self;
        match newest - oldest {
            0 => write!(f, "{newest}"),
            1 => write!(f, "{oldest} and {newest}"),
            _ => write!(f, "{oldest} to {newest}"),
        }
    }
}

/// The addresses of dispatchers that speak less than this process's newest version.
type Remembered = HashMap<(DispatcherId, String), u16>;

fn remembered() -> MutexGuard<'static, Remembered> {
    static REMEMBERED: LazyLock<Mutex<Remembered>> = LazyLock::new(Mutex::default);
    REMEMBERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The version in which a dispatcher's address was reached after it had refused a newer one.
pub(super) fn recall(dispatcher: DispatcherId, address: &str) -> Option<u16> {
    let remembered = remembered();
    if remembered.is_empty() {
        return None;
    }
    remembered.get(&(dispatcher, address.to_owned())).copied()
}

/// Remembers the version in which an address was reached; `None` forgets it.
pub(super) fn remember(dispatcher: DispatcherId, address: &str, version: Option<u16>) {
    let mut remembered = remembered();
    let key = (dispatcher, address.to_owned());
    match version {
        None => drop(remembered.remove(&key)),
        Some(version) => {
            if remembered.len() >= REMEMBERED_ADDRESSES_MAX {
                // What is forgotten costs one more attempt.
                remembered.clear();
            }
            remembered.insert(key, version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_version_of_both_sides_is_tried_if_it_was_not() {
        let ours = Versions::between(8, 9);
        assert_eq!(ours.instead_of(9, 8), Some(8));
        // A server that was upgraded since.
        assert_eq!(ours.instead_of(8, 9), Some(9));
        assert_eq!(ours.instead_of(8, 10), Some(9));
        for (tried, theirs) in [(9, 7), (9, 9), (9, 10), (8, 8), (8, 7)] {
            assert_eq!(ours.instead_of(tried, theirs), None, "{tried} {theirs}");
        }
    }

    #[test]
    fn the_variable_names_a_version_of_this_release() {
        for version in PROTOCOL_VERSION_OLDEST..=PROTOCOL_VERSION {
            assert_eq!(Versions::named(&version.to_string()), Ok(Versions::from(version)));
        }
        for other in ["7", "10", "eight", "8-9", "-8"] {
            let error = Versions::named(other).unwrap_err().to_string();
            let expected = format!("FALKON_PROTOCOL is {other:?}, and this falkon speaks protocol");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn versions_overlap_where_one_is_in_both() {
        let all = [(8, 8), (8, 9), (9, 9), (9, 10), (10, 10)];
        for (a, b) in all.iter().flat_map(|a| all.iter().map(move |b| (*a, *b))) {
            let (one, other) = (Versions::between(a.0, a.1), Versions::between(b.0, b.1));
            let common = (a.0..=a.1).any(|version| other.includes(version));
            assert_eq!(one.overlap(other), common, "{one} {other}");
        }
    }
}
