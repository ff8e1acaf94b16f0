//! What an owner asks about the users of a dispatcher, and what the dispatcher says of them.

use crate::codec::{wire_enum, wire_list, wire_struct};
use falkon_core::dispatch::{UserLimits, UserUse};

/// What is asked about users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserAsk {
    /// Add one. Answer: [`ToClient::User`](super::ToClient::User).
    Add {
        /// The name, which no other has.
        name: String,
        /// How much the user may have.
        limits: UserLimits,
        /// The user may see how all are, as an observer may.
        sees_all: bool,
    },
    /// Say the secret of one again. Answer: [`ToClient::User`](super::ToClient::User).
    Access {
        /// The name.
        name: String,
    },
    /// Remove one. Answer: [`ToClient::Done`](super::ToClient::Done).
    Revoke {
        /// The name.
        name: String,
        /// Tasks of the user go on; else those that have not ended are cancelled.
        keeps: bool,
    },
    /// List all. Answer: [`ToClient::Users`](super::ToClient::Users).
    List,
}
wire_enum!(UserAsk {
    0 => Add { name, limits, sees_all },
    1 => Access { name },
    2 => Revoke { name, keeps },
    3 => List,
});

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserStatus {
    /// The name.
    pub name: String,
    /// How much the user may have.
    pub limits: UserLimits,
    /// How much the user has.
    pub has: UserUse,
    /// The user may see how all are.
    pub sees_all: bool,
    /// The user was removed, and has instances that are kept.
    pub is_revoked: bool,
    /// The user's connections.
    pub connections: u64,
}
wire_struct!(UserStatus { name, limits, has, sees_all, is_revoked, connections });
wire_list!(UserStatus);

/// Why something asked about users is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// The dispatcher has no users, because its connections are not protected.
    #[error(
        "a dispatcher has users only where its connections are protected: start it with --security \
         authenticate or encrypt"
    )]
    Unprotected,
    /// The dispatcher keeps no users.
    #[error("this dispatcher has no users: start one with falkon start")]
    NoUsers,
    /// The name cannot be one.
    #[error(
        "a user's name has letters, digits, and any of . _ - after the first, {bytes_max} of these \
         at most"
    )]
    Name {
        /// How long names are at most.
        bytes_max: u64,
    },
    /// The name is that of no user.
    #[error("there is no user {0}: falkon user list shows those that are there")]
    Unknown(String),
    /// The name is another user's.
    #[error("there is a user {0} already: revoke that one first, or choose another name")]
    Taken(String),
    /// A user was removed, and instances of the user are still there.
    #[error(
        "user {0} was revoked, and instances of that user are still there: destroy them first, or \
         choose another name"
    )]
    Leaving(String),
    /// The limits make no sense.
    #[error("a share is 1 to {share_max}, and a quota is at least 1")]
    Limits {
        /// The largest share.
        share_max: u32,
    },
    /// There are as many users as a dispatcher keeps.
    #[error("a dispatcher keeps at most {users_max} users: revoke some")]
    TooMany {
        /// How many.
        users_max: u64,
    },
    /// The users cannot be written to the dispatcher's directory; why. Nothing has changed.
    #[error("{0}")]
    File(String),
}
wire_enum!(UserError {
    0 => Unprotected,
    1 => NoUsers,
    2 => Name { bytes_max },
    3 => Unknown(name),
    4 => Taken(name),
    5 => Leaving(name),
    6 => Limits { share_max },
    7 => TooMany { users_max },
    8 => File(why),
});
