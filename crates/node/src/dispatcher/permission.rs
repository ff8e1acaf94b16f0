//! Who may ask for what.

use crate::secure::Role;
use falkon_core::task::InstanceId;
use falkon_wire::message::FromClient;
use std::collections::HashSet;

/// The instance that a message is about, if it is about one.
fn instance_of(message: &FromClient) -> Option<InstanceId> {
    match message {
        FromClient::Submit { instance, .. }
        | FromClient::Seal { instance, .. }
        | FromClient::Subscribe { instance, .. }
        | FromClient::Acknowledge { instance, .. }
        | FromClient::Cancel { instance, .. }
        | FromClient::Destroy { instance, .. }
        | FromClient::Tasks { instance, .. } => Some(*instance),
        FromClient::Status { instance, .. } => *instance,
        FromClient::Create { .. } | FromClient::Stop { .. } | FromClient::Provision { .. } => None,
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
        | FromClient::Destroy { request, .. }
        | FromClient::Status { request, .. }
        | FromClient::Tasks { request, .. }
        | FromClient::Provision { request, .. }
        | FromClient::Stop { request } => Some(*request),
        FromClient::Acknowledge { .. } => None,
    }
}

/// Whether a peer of `role` that created `own` instances on this connection
/// may say `message`.
pub(super) fn allows(role: Role, own: &HashSet<InstanceId>, message: &FromClient) -> bool {
    let about = instance_of(message);
    match role {
        Role::Owner => true,
        Role::Client => {
            matches!(message, FromClient::Create { .. })
                || about.is_some_and(|instance| own.contains(&instance))
        }
        Role::Instance(id) => about == Some(InstanceId(id)),
        Role::Observer => matches!(message, FromClient::Status { .. }),
        Role::Executor => false,
    }
}
