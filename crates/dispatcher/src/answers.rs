//! Answers to questions, which change nothing: encoded at once, so that what
//! waits for peers that do not read is bounded by bytes.

use super::Driver;
use super::answer::Answer;
use super::peer::Outgoing;
use falkon_core::dispatch::{ConnectionId, Reply, Retried};
use falkon_net::secure::{FRAME_BYTES_MAX, Role};
use falkon_wire::codec::Wire;
use falkon_wire::hidden::Hidden;
use falkon_wire::message::{BelowAsk, FromClient, Refusal, RestartAsk, ToClient, UserAsk};
use falkon_wire::provision::ProvisionAsk;

/// Answers that wait for one peer before it gets no more of them.
const PEER_ANSWERS_BYTES_MAX: usize = 4 << 20;
/// The answers in transit to all peers together, beyond which no peer gets
/// another one.
const ANSWERS_BYTES_MAX: usize = 256 << 20;

const _: () = assert!(PEER_ANSWERS_BYTES_MAX + FRAME_BYTES_MAX < ANSWERS_BYTES_MAX);

/// Whether a message asks something and changes nothing.
pub(super) fn is_question(message: &FromClient) -> bool {
    matches!(
        message,
        FromClient::Status { .. }
            | FromClient::Tasks { .. }
            | FromClient::Explain { .. }
            | FromClient::ExplainIdle { .. }
            | FromClient::Events { .. }
            | FromClient::Objects { .. }
            | FromClient::Find { .. }
            | FromClient::Reach { .. }
            | FromClient::ReachOutput { .. }
            | FromClient::ReachTail { .. }
            | FromClient::AskTail { .. }
            | FromClient::ReadOutput { .. }
            | FromClient::ReadPart { .. }
            | FromClient::Below { ask: BelowAsk::Read(_), .. }
            | FromClient::Subtree { .. }
            | FromClient::User { ask: UserAsk::List, .. }
            | FromClient::Restart { ask: RestartAsk::Version, .. }
            | FromClient::Provision { ask: ProvisionAsk::Status { .. }, .. }
    )
}

impl Driver {
    /// Whether a peer may be answered now, rather than when it has read more of
    /// the answers that wait for it.
    pub(super) fn may_ask(&self, connection: ConnectionId) -> bool {
        let peer = self.peers.get(&connection).map_or(0, |peer| peer.answers.bytes());
        peer < PEER_ANSWERS_BYTES_MAX && self.answers.bytes() < ANSWERS_BYTES_MAX
    }

    /// Queues the answer to a question.
    pub(super) fn answer_question(
        &mut self,
        connection: ConnectionId,
        request: u64,
        mut answer: ToClient,
    ) {
        self.note_answer(connection, &answer);
        let Some(peer) = self.peers.get(&connection) else { return };
        answer.adapt(peer.version);
        let mut bytes = answer.to_bytes();
        if bytes.len() > FRAME_BYTES_MAX {
            let reason = Refusal::TooLong { bytes: bytes.len() as u64 };
            bytes = ToClient::Refused { request, reason }.to_bytes();
        }
        let has_secret = answer.has_secret();
        let answer = Answer::new(bytes, has_secret, [peer.answers.clone(), self.answers.clone()]);
        self.outgoing.push((connection, Outgoing::Answer(answer)));
    }

    /// The core's reply as the message that carries it.
    pub(super) fn answer(
        &mut self,
        connection: ConnectionId,
        request: u64,
        reply: Reply,
    ) -> ToClient {
        match reply {
            Reply::Created(instance) => {
                self.doors.open_instance(instance);
                if let Some(peer) = self.peers.get_mut(&connection) {
                    let all = || self.core.instance_views().map(|view| view.id()).collect();
                    peer.instances.insert(instance, all);
                }
                let secret = self.identity.as_ref().map_or_else(Vec::new, |identity| {
                    identity.secret(Role::Instance(instance.0)).as_bytes().to_vec()
                });
                ToClient::Created { request, instance, secret: Hidden(secret) }
            }
            Reply::Accepted { first, count } => ToClient::Accepted { request, first, count },
            Reply::Withdrawn(runs) => ToClient::Withdrawn { request, runs },
            Reply::Staged { staged, unstaged } => ToClient::Staged { request, staged, unstaged },
            Reply::Retried(Retried { count, forgotten }) => {
                ToClient::Retried { request, count, forgotten }
            }
            Reply::Tail(Ok(tail)) => ToClient::Tail { request, tail },
            Reply::Tail(Err(error)) => {
                ToClient::Refused { request, reason: Refusal::Access(error) }
            }
            Reply::Part(answer) | Reply::PartForClient(answer) => {
                ToClient::Part { request, answer }
            }
            Reply::Parts(questions) => ToClient::Parts { request, questions },
            Reply::Forgotten(names) => ToClient::Forgotten { request, names },
            Reply::Done => ToClient::Done { request },
            Reply::Refused(error) => ToClient::Refused { request, reason: Refusal::Request(error) },
        }
    }
}
