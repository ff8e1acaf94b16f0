//! Arbitrary things about users.

use super::{bytes, number, text};
use falkon_core::dispatch::{RequestError, UserLimits, UserUse};
use falkon_core::task::UserId;
use falkon_wire::hidden::Hidden;
use falkon_wire::message::{
    FromClient, QuotaChange, Refusal, ToClient, UserAsk, UserChange, UserError, UserStatus,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn limits() -> impl Strategy<Value = UserLimits> {
    let most = || option::of(number());
    (any::<u32>(), most(), most(), most(), most()).prop_map(
        |(share, tasks_max, slots_max, bytes_max, instances_max)| UserLimits {
            share,
            tasks_max,
            slots_max,
            bytes_max,
            instances_max,
        },
    )
}

fn change() -> impl Strategy<Value = UserChange> {
    let quota = || {
        prop_oneof![
            Just(QuotaChange::Keep),
            Just(QuotaChange::Lift),
            number().prop_map(QuotaChange::Set)
        ]
    };
    let quotas = (quota(), quota(), quota(), quota());
    (option::of(any::<u32>()), quotas, option::of(any::<bool>())).prop_map(
        |(share, (tasks_max, slots_max, bytes_max, instances_max), sees_all)| UserChange {
            share,
            tasks_max,
            slots_max,
            bytes_max,
            instances_max,
            sees_all,
        },
    )
}

pub(super) fn request() -> impl Strategy<Value = FromClient> {
    let ask = prop_oneof![
        (text(), limits(), any::<bool>()).prop_map(|(name, limits, sees_all)| UserAsk::Add {
            name,
            limits,
            sees_all
        }),
        text().prop_map(|name| UserAsk::Access { name }),
        (text(), any::<bool>()).prop_map(|(name, keeps)| UserAsk::Revoke { name, keeps }),
        Just(UserAsk::List),
        (text(), change()).prop_map(|(name, change)| UserAsk::Set { name, change }),
    ];
    (number(), ask).prop_map(|(request, ask)| FromClient::User { request, ask })
}

pub(super) fn status() -> impl Strategy<Value = UserStatus> {
    let has = (number(), number(), number(), number()).prop_map(
        |(instances, tasks, slots_milli, bytes)| UserUse { instances, tasks, slots_milli, bytes },
    );
    (text(), limits(), has, any::<bool>(), any::<bool>(), number()).prop_map(
        |(name, limits, has, sees_all, is_revoked, connections)| UserStatus {
            name,
            limits,
            has,
            sees_all,
            is_revoked,
            connections,
        },
    )
}

pub(super) fn answer() -> impl Strategy<Value = ToClient> {
    prop_oneof![
        (number(), number(), bytes()).prop_map(|(request, user, secret)| ToClient::User {
            request,
            user: UserId(user),
            secret: Hidden(secret)
        }),
        (number(), vec(status(), 0..4))
            .prop_map(|(request, users)| ToClient::Users { request, users }),
    ]
}

pub(super) fn over() -> impl Strategy<Value = RequestError> {
    prop_oneof![
        (number(), number(), number()).prop_map(|(queued, wanted, tasks_max)| {
            RequestError::OverTasks { queued, wanted, tasks_max }
        }),
        (number(), number())
            .prop_map(|(wanted, slots_max)| RequestError::OverSlots { wanted, slots_max }),
        (number(), number()).prop_map(|(instances, instances_max)| {
            RequestError::OverInstances { instances, instances_max }
        }),
        (number(), number())
            .prop_map(|(kept_bytes, bytes_max)| RequestError::OverBytes { kept_bytes, bytes_max }),
    ]
}

pub(super) fn refusal() -> impl Strategy<Value = Refusal> {
    let error = prop_oneof![
        Just(UserError::Unprotected),
        Just(UserError::NoUsers),
        number().prop_map(|bytes_max| UserError::Name { bytes_max }),
        text().prop_map(UserError::Unknown),
        text().prop_map(UserError::Taken),
        text().prop_map(UserError::Leaving),
        any::<u32>().prop_map(|share_max| UserError::Limits { share_max }),
        number().prop_map(|users_max| UserError::TooMany { users_max }),
        text().prop_map(UserError::File),
        number().prop_map(|instances_max| UserError::Instances { instances_max }),
        Just(UserError::Busy),
    ];
    prop_oneof![text().prop_map(Refusal::OwnerOnly), error.prop_map(Refusal::User)]
}
