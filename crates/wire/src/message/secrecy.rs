//! Secrecy of answers: some are for their receiver alone.

use super::ToClient;

impl ToClient {
    /// Whether the message has a secret in it, which nobody but its receiver is
    /// to read, at whatever level.
    #[must_use]
    pub fn has_secret(&self) -> bool {
        match self {
            ToClient::Created { .. }
            | ToClient::User { .. }
            | ToClient::Reached { .. }
            | ToClient::OutputReached { .. } => true,
            ToClient::Accepted { .. }
            | ToClient::Done { .. }
            | ToClient::Refused { .. }
            | ToClient::Results(_)
            | ToClient::Status { .. }
            | ToClient::Tasks { .. }
            | ToClient::Gone { .. }
            | ToClient::Objects { .. }
            | ToClient::Found { .. }
            | ToClient::Tail { .. }
            | ToClient::Part { .. }
            | ToClient::Parts { .. }
            | ToClient::Forgotten { .. }
            | ToClient::Provision { .. }
            | ToClient::Subtree { .. }
            | ToClient::Withdrawn { .. }
            | ToClient::Staged { .. }
            | ToClient::Explained { .. }
            | ToClient::Retried { .. }
            | ToClient::Idle { .. }
            | ToClient::Users { .. }
            | ToClient::Program { .. }
            | ToClient::Events { .. } => false,
        }
    }
}
