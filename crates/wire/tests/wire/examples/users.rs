//! One example of everything that is asked about users, and of every answer.

use falkon_core::dispatch::{RequestError, UserLimits, UserUse};
use falkon_core::task::UserId;
use falkon_wire::hidden::Hidden;
use falkon_wire::message::{
    FromClient, QuotaChange, Refusal, Status, ToClient, UserAsk, UserChange, UserError, UserStatus,
};

fn limits() -> UserLimits {
    UserLimits {
        share: 3,
        tasks_max: Some(10_000),
        slots_max: Some(64),
        bytes_max: None,
        instances_max: None,
    }
}

fn limits_with_instances() -> UserLimits {
    UserLimits { instances_max: Some(200), ..limits() }
}

pub(super) fn asked() -> Vec<(&'static str, FromClient)> {
    let request = 9;
    let name = || "alice".to_owned();
    let ask = |ask| FromClient::User { request, ask };
    vec![
        ("user_add", ask(UserAsk::Add { name: name(), limits: limits(), sees_all: true })),
        ("user_access", ask(UserAsk::Access { name: name() })),
        ("user_revoke", ask(UserAsk::Revoke { name: name(), keeps: true })),
        ("user_list", ask(UserAsk::List)),
        ("user_add_with_instances", {
            let (name, limits) = (name(), limits_with_instances());
            ask(UserAsk::Add { name, limits, sees_all: false })
        }),
        ("user_set", {
            let change = UserChange {
                share: Some(4),
                tasks_max: QuotaChange::Lift,
                slots_max: QuotaChange::Set(32),
                sees_all: Some(true),
                ..UserChange::default()
            };
            ask(UserAsk::Set { name: name(), change })
        }),
    ]
}

fn user() -> UserStatus {
    UserStatus {
        name: "alice".to_owned(),
        limits: limits(),
        has: UserUse { instances: 2, tasks: 300, slots_milli: 16_500, bytes: 70_000 },
        sees_all: true,
        is_revoked: false,
        connections: 3,
    }
}

pub(super) fn answers() -> Vec<(&'static str, ToClient)> {
    let request = 9;
    let with_instances = UserStatus { limits: limits_with_instances(), ..user() };
    let status = Status { users: vec![with_instances], ..Status::default() };
    vec![
        ("user", ToClient::User { request, user: UserId(1 << 60), secret: Hidden(vec![0xcd; 32]) }),
        ("users", ToClient::Users { request, users: vec![user()] }),
        ("status_with_users", ToClient::Status { request, status }),
    ]
}

pub(super) fn refusals() -> Vec<(&'static str, Refusal)> {
    let (user, request) = (Refusal::User, Refusal::Request);
    let name = || "alice".to_owned();
    let over_tasks = RequestError::OverTasks { queued: 90, wanted: 20, tasks_max: 100 };
    let over_instances = RequestError::OverInstances { instances: 1000, instances_max: 1000 };
    let over_bytes = RequestError::OverBytes { kept_bytes: 2 << 30, bytes_max: 1 << 30 };
    vec![
        ("over_tasks", request(over_tasks)),
        ("over_slots", request(RequestError::OverSlots { wanted: 8, slots_max: 4 })),
        ("over_bytes", request(over_bytes)),
        ("over_instances", request(over_instances)),
        ("owner_only", Refusal::OwnerOnly("stop it".to_owned())),
        ("users_unprotected", user(UserError::Unprotected)),
        ("no_users", user(UserError::NoUsers)),
        ("user_name", user(UserError::Name { bytes_max: 64 })),
        ("user_unknown", user(UserError::Unknown(name()))),
        ("user_taken", user(UserError::Taken(name()))),
        ("user_leaving", user(UserError::Leaving(name()))),
        ("user_limits", user(UserError::Limits { share_max: 1_000_000 })),
        ("too_many_users", user(UserError::TooMany { users_max: 200 })),
        ("user_instances", user(UserError::Instances { instances_max: 16_384 })),
        ("users_busy", user(UserError::Busy)),
        ("users_file", user(UserError::File("no space left".to_owned()))),
    ]
}
