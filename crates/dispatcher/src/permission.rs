//! Permissions: which role may ask for what.

use super::known::Known;
use falkon_core::dispatch::{Purpose, Scope};
use falkon_core::task::InstanceId;
use falkon_net::secure::Role;
use falkon_wire::message::FromClient;

/// The instance that a message is about, if it is about one.
fn instance_of(message: &FromClient) -> Option<InstanceId> {
    match message {
        FromClient::Submit { instance, .. }
        | FromClient::Seal { instance, .. }
        | FromClient::Subscribe { instance, .. }
        | FromClient::Acknowledge { instance, .. }
        | FromClient::Cancel { instance, .. }
        | FromClient::Retry { instance, .. }
        | FromClient::Destroy { instance, .. }
        | FromClient::Withdraw { instance, .. }
        | FromClient::AwaitStaged { instance, .. }
        | FromClient::Pause { instance, .. }
        | FromClient::Prioritize { instance, .. }
        | FromClient::ReachOutput { instance, .. }
        | FromClient::ReachTail { instance, .. }
        | FromClient::AskTail { instance, .. }
        | FromClient::ReadOutput { instance, .. }
        | FromClient::ReleaseOutput { instance, .. }
        | FromClient::Explain { instance, .. }
        | FromClient::Tasks { instance, .. } => Some(*instance),
        FromClient::Status { instance, .. }
        | FromClient::Objects { instance, .. }
        | FromClient::Find { instance, .. }
        | FromClient::Reach { instance, .. } => *instance,
        FromClient::Create { .. }
        | FromClient::Forget { .. }
        | FromClient::Events { .. }
        | FromClient::ExplainIdle { .. }
        | FromClient::Stop { .. }
        | FromClient::Drain { .. }
        | FromClient::Provision { .. }
        | FromClient::Unmet { .. }
        | FromClient::ReadPart { .. }
        | FromClient::AwaitParts { .. }
        | FromClient::TellPart { .. }
        | FromClient::LetGo { .. }
        | FromClient::Subtree { .. } => None,
    }
}

/// The number under which an answer is awaited.
pub(super) fn request_of(message: &FromClient) -> Option<u64> {
    match message {
        FromClient::Create { request, .. }
        | FromClient::Submit { request, .. }
        | FromClient::Seal { request, .. }
        | FromClient::Subscribe { request, .. }
        | FromClient::Cancel { request, .. }
        | FromClient::Retry { request, .. }
        | FromClient::Destroy { request, .. }
        | FromClient::Status { request, .. }
        | FromClient::Tasks { request, .. }
        | FromClient::Explain { request, .. }
        | FromClient::Events { request, .. }
        | FromClient::ExplainIdle { request }
        | FromClient::Objects { request, .. }
        | FromClient::Find { request, .. }
        | FromClient::Forget { request, .. }
        | FromClient::Reach { request, .. }
        | FromClient::ReachOutput { request, .. }
        | FromClient::ReachTail { request, .. }
        | FromClient::AskTail { request, .. }
        | FromClient::ReadOutput { request, .. }
        | FromClient::ReleaseOutput { request, .. }
        | FromClient::ReadPart { request, .. }
        | FromClient::AwaitParts { request }
        | FromClient::LetGo { request, .. }
        | FromClient::Provision { request, .. }
        | FromClient::Subtree { request, .. }
        | FromClient::Withdraw { request, .. }
        | FromClient::AwaitStaged { request, .. }
        | FromClient::Pause { request, .. }
        | FromClient::Prioritize { request, .. }
        | FromClient::Drain { request, .. }
        | FromClient::Stop { request } => Some(*request),
        FromClient::Acknowledge { .. } | FromClient::Unmet { .. } | FromClient::TellPart { .. } => {
            None
        }
    }
}

/// Whether a peer of `role` that created `own` instances on this connection
/// may say `message`.
pub(super) fn allows(role: Role, own: &Known, message: &FromClient) -> bool {
    let about = instance_of(message);
    let asks = matches!(message, FromClient::Objects { .. } | FromClient::Find { .. });
    let reaches = matches!(message, FromClient::Reach { .. });
    // An object that is put into a cache serves all who may submit.
    let puts = matches!(message, FromClient::Reach { purpose: Purpose::Put, .. });
    // To go before others is not for those others' peers to decide.
    let goes_before = matches!(message, FromClient::Prioritize { priority: 1.., .. });
    match role {
        Role::Client | Role::Instance(_) if goes_before => false,
        Role::Owner => !puts || about.is_none(),
        Role::Client => {
            matches!(message, FromClient::Create { .. })
                || ((asks || reaches) && about.is_none())
                || (!puts && about.is_some_and(|instance| own.contains(instance)))
        }
        Role::Instance(id) => !puts && about == Some(InstanceId(id)),
        Role::Observer => {
            // How tasks are, and why, is what events say of them: no result is among it.
            let looks = matches!(
                message,
                FromClient::Status { .. }
                    | FromClient::Events { .. }
                    | FromClient::ExplainIdle { .. }
                    | FromClient::Tasks { .. }
                    | FromClient::Explain { .. }
            );
            looks || asks
        }
        Role::Executor => false,
    }
}

/// The data objects that a peer of `role` may know of, who asks about
/// `instance` or about all.
pub(super) fn scope(role: Role, instance: Option<InstanceId>) -> Scope {
    match (role, instance) {
        (_, Some(instance)) => Scope::Of(instance),
        (Role::Owner | Role::Observer, None) => Scope::All,
        (Role::Client | Role::Instance(_) | Role::Executor, None) => Scope::Placed,
    }
}
