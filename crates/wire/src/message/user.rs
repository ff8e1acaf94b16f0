//! What an owner asks about the users of a dispatcher, and what the dispatcher says of them.

use super::{PROTOCOL_VERSION_OLDEST, Refusal, ToClient};
use crate::codec::{wire_enum, wire_list, wire_struct};
use falkon_core::dispatch::{RequestError, UserLimits, UserUse};
use std::fmt;

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
    /// Change what one may have, at once. Answer: [`ToClient::Done`](super::ToClient::Done).
    Set {
        /// The name.
        name: String,
        /// What changes.
        change: UserChange,
    },
}
wire_enum!(UserAsk {
    0 => Add { name, limits, sees_all },
    1 => Access { name },
    2 => Revoke { name, keeps },
    3 => List,
    4 => Set { name, change },
});

/// The first version of the protocol that knows of changes to users and of quotas of instances,
/// and whose [`Status`](super::Status) has users.
const USER_CHANGES_SINCE: u16 = 9;

impl UserAsk {
    /// The first version of the protocol that has this question.
    #[must_use]
    pub fn since(&self) -> u16 {
        match self {
            UserAsk::Set { .. } => USER_CHANGES_SINCE,
            UserAsk::Add { limits, .. } if limits.instances_max.is_some() => USER_CHANGES_SINCE,
            UserAsk::Add { .. }
            | UserAsk::Access { .. }
            | UserAsk::Revoke { .. }
            | UserAsk::List => PROTOCOL_VERSION_OLDEST,
        }
    }
}

/// How a quota changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QuotaChange {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is what it is for a user for whom none was set.
    Lift,
    /// It is this.
    Set(u64),
}
wire_enum!(QuotaChange { 0 => Keep, 1 => Lift, 2 => Set(most) });

impl QuotaChange {
    fn applied(self, quota: Option<u64>) -> Option<u64> {
        match self {
            QuotaChange::Keep => quota,
            QuotaChange::Lift => None,
            QuotaChange::Set(most) => Some(most),
        }
    }
}

/// A change of what a user may have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserChange {
    /// The share from now on.
    pub share: Option<u32>,
    /// The quota of tasks.
    pub tasks_max: QuotaChange,
    /// The quota of processors.
    pub slots_max: QuotaChange,
    /// The quota of bytes.
    pub bytes_max: QuotaChange,
    /// The quota of instances.
    pub instances_max: QuotaChange,
    /// Whether the user may see how all are.
    pub sees_all: Option<bool>,
}
wire_struct!(UserChange { share, tasks_max, slots_max, bytes_max, instances_max, sees_all });

impl UserChange {
    /// The limits of a user who has had `limits`.
    #[must_use]
    pub fn applied(&self, limits: UserLimits) -> UserLimits {
        UserLimits {
            share: self.share.unwrap_or(limits.share),
            tasks_max: self.tasks_max.applied(limits.tasks_max),
            slots_max: self.slots_max.applied(limits.slots_max),
            bytes_max: self.bytes_max.applied(limits.bytes_max),
            instances_max: self.instances_max.applied(limits.instances_max),
        }
    }
}

impl ToClient {
    /// Leaves out what a client that speaks `version` does not know of users. A refusal of which
    /// version 8 knows nothing becomes one that has the same text.
    pub(super) fn adapt_users(&mut self, version: u16) {
        if version >= USER_CHANGES_SINCE {
            return;
        }
        match self {
            ToClient::Users { users, .. } => {
                users.iter_mut().for_each(|user| user.limits.instances_max = None);
            }
            ToClient::Status { status, .. } => status.users.clear(),
            ToClient::Refused { reason, .. } if is_new(reason) => {
                *reason = Refusal::User(UserError::File(reason.to_string()));
            }
            _ => {}
        }
    }
}

/// Whether version 8 does not know a refusal.
fn is_new(reason: &Refusal) -> bool {
    matches!(
        reason,
        Refusal::Request(RequestError::OverInstances { .. })
            | Refusal::User(UserError::Instances { .. } | UserError::Busy)
    )
}

/// As the options of `falkon user set`, each after a space.
impl fmt::Display for UserChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(share) = self.share {
            write!(f, " --share {share}")?;
        }
        for (name, quota) in [
            ("tasks", self.tasks_max),
            ("slots", self.slots_max),
            ("bytes", self.bytes_max),
            ("instances", self.instances_max),
        ] {
            match quota {
                QuotaChange::Keep => {}
                QuotaChange::Lift => write!(f, " --{name}-max none")?,
                QuotaChange::Set(most) => write!(f, " --{name}-max {most}")?,
            }
        }
        match self.sees_all {
            Some(sees_all) => write!(f, " --sees-all {sees_all}"),
            None => Ok(()),
        }
    }
}

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
    /// The quota of instances is none that a user can have.
    #[error("a user may have 1 to {instances_max} instances")]
    Instances {
        /// The largest quota.
        instances_max: u64,
    },
    /// As many changes of users wait for the disk as may.
    #[error(
        "other changes of users are not on the dispatcher's disk yet: try again, and if this \
         stays so, look at that disk"
    )]
    Busy,
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
    9 => Instances { instances_max },
    10 => Busy,
});

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    /// What a client of a version is sent instead.
    fn adapted(message: &ToClient, version: u16) -> ToClient {
        let mut adapted = message.clone();
        adapted.adapt(version);
        adapted
    }

    #[test]
    fn version_8_hears_nothing_of_quotas_of_instances_nor_of_users_in_a_status() {
        let request = 3;
        let limits = UserLimits { instances_max: Some(9), ..UserLimits::default() };
        let user = UserStatus { limits, ..UserStatus::default() };
        let users = ToClient::Users { request, users: vec![user.clone()] };
        let status = Status { version: "9".to_owned(), users: vec![user], ..Status::default() };
        let status = ToClient::Status { request, status };
        for message in [&users, &status] {
            assert_eq!(adapted(message, USER_CHANGES_SINCE), *message);
        }
        let ToClient::Users { users, .. } = adapted(&users, 8) else { unreachable!() };
        assert_eq!(users, [UserStatus::default()]);
        let ToClient::Status { status, .. } = adapted(&status, 8) else { unreachable!() };
        assert_eq!(status, Status { version: "9".to_owned(), ..Status::default() });
    }

    #[test]
    fn version_8_reads_the_text_of_refusals_that_it_does_not_know() {
        let over = RequestError::OverInstances { instances: 3, instances_max: 3 };
        for reason in [Refusal::Request(over), Refusal::User(UserError::Busy)] {
            let refused = ToClient::Refused { request: 1, reason: reason.clone() };
            assert_eq!(adapted(&refused, USER_CHANGES_SINCE), refused);
            let ToClient::Refused { reason: told, .. } = adapted(&refused, 8) else {
                unreachable!()
            };
            assert_eq!(told, Refusal::User(UserError::File(reason.to_string())));
        }
        let known = ToClient::Refused { request: 1, reason: Refusal::NotAllowed };
        assert_eq!(adapted(&known, 8), known);
    }
}
