//! Answers to questions, which change nothing: encoded at once, so that what
//! waits for peers that do not read is bounded by bytes.

use super::Driver;
use super::answer::Answer;
use super::peer::Outgoing;
use falkon_core::dispatch::ConnectionId;
use falkon_net::secure::FRAME_BYTES_MAX;
use falkon_wire::codec::Wire;
use falkon_wire::message::{FromClient, Refusal, ToClient};
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
            | FromClient::Subtree { .. }
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
        answer: ToClient,
    ) {
        let Some(peer) = self.peers.get(&connection) else { return };
        let mut bytes = answer.to_bytes();
        if bytes.len() > FRAME_BYTES_MAX {
            let reason = Refusal::TooLong { bytes: bytes.len() as u64 };
            bytes = ToClient::Refused { request, reason }.to_bytes();
        }
        let has_secret = answer.has_secret();
        let answer = Answer::new(bytes, has_secret, [peer.answers.clone(), self.answers.clone()]);
        self.outgoing.push((connection, Outgoing::Answer(answer)));
    }
}
