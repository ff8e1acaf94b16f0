//! Roles: what a peer may do once it has proved that it holds the secret.

use std::fmt;
use std::str::FromStr;

/// The role of a secret's holder. A role only identifies the peer; the
/// dispatcher decides what each role may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// May do everything.
    Owner,
    /// Creates instances and uses only its own.
    Client,
    /// Runs tasks.
    Executor,
    /// Reads status.
    Observer,
    /// Uses this one instance and nothing else.
    Instance(u64),
    /// One of the dispatcher's named users: creates instances and uses its own. The number is
    /// drawn at random when the user is added, so a name that is given again has another one.
    User(u64),
}

const INSTANCE_PREFIX: &str = "instance-";
const USER_PREFIX: &str = "user-";

impl Role {
    /// The roles that exist once per dispatcher: all but the instances and the users.
    pub const FIXED: [Role; 4] = [Role::Owner, Role::Client, Role::Executor, Role::Observer];

    /// The role as nine bytes: a tag, and the number of the instance or the user (0 for the
    /// other roles).
    pub(crate) fn encode(self) -> [u8; 9] {
        let (tag, number) = match self {
            Role::Owner => (0, 0),
            Role::Client => (1, 0),
            Role::Executor => (2, 0),
            Role::Observer => (3, 0),
            Role::Instance(id) => (4, id),
            Role::User(id) => (5, id),
        };
        let mut bytes = [0; 9];
        bytes[0] = tag;
        bytes[1..].copy_from_slice(&u64::to_le_bytes(number));
        bytes
    }

    /// The inverse of [`Role::encode`]; anything else is `None`, so that every
    /// role has one encoding.
    pub(crate) fn decode(bytes: [u8; 9]) -> Option<Role> {
        let [tag, id @ ..] = bytes;
        match (tag, u64::from_le_bytes(id)) {
            (0, 0) => Some(Role::Owner),
            (1, 0) => Some(Role::Client),
            (2, 0) => Some(Role::Executor),
            (3, 0) => Some(Role::Observer),
            (4, id) => Some(Role::Instance(id)),
            (5, id) => Some(Role::User(id)),
            _ => None,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Owner => f.write_str("owner"),
            Role::Client => f.write_str("client"),
            Role::Executor => f.write_str("executor"),
            Role::Observer => f.write_str("observer"),
            Role::Instance(id) => write!(f, "{INSTANCE_PREFIX}{id}"),
            Role::User(id) => write!(f, "{USER_PREFIX}{id}"),
        }
    }
}

/// A text that names no [`Role`]. Does not repeat the text, which stands beside
/// secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such role: the roles are owner, client, executor, observer, instance-N and user-N")]
pub struct UnknownRole;

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Role, UnknownRole> {
        if let Some(role) = Role::FIXED.into_iter().find(|role| role.to_string() == text) {
            return Ok(role);
        }
        let numbered = |prefix, role: fn(u64) -> Role| {
            text.strip_prefix(prefix).and_then(|id| id.parse().ok()).map(role)
        };
        let instance = numbered(INSTANCE_PREFIX, Role::Instance);
        let role = instance.or_else(|| numbered(USER_PREFIX, Role::User)).ok_or(UnknownRole)?;
        // Each role has one spelling: not `instance-+7`, not `instance-007`.
        if role.to_string() == text { Ok(role) } else { Err(UnknownRole) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_role_reads_back(id: u64) {
            for role in Role::FIXED.into_iter().chain([Role::Instance(id), Role::User(id)]) {
                prop_assert_eq!(Role::decode(role.encode()), Some(role));
                prop_assert_eq!(role.to_string().parse(), Ok(role));
            }
        }

        #[test]
        fn each_role_has_one_encoding(bytes: [u8; 9], tag in 0u8..7) {
            let mut bytes = bytes;
            bytes[0] = tag;
            if let Some(role) = Role::decode(bytes) {
                prop_assert_eq!(role.encode(), bytes);
            }
        }
    }

    #[test]
    fn other_texts_are_no_roles() {
        for text in [
            "",
            "Owner",
            "instance",
            "instance-",
            "instance-+7",
            "instance-07",
            "instance--1",
            "user-",
            "user-07",
        ] {
            assert_eq!(text.parse::<Role>(), Err(UnknownRole), "{text}");
        }
    }
}
