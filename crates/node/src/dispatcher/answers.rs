//! Answers to questions, which change nothing: encoded at once, so that what
//! waits for peers that do not read is bounded by bytes.

use super::Driver;
use super::connection::Outgoing;
use crate::secure::FRAME_BYTES_MAX;
use falkon_core::dispatch::ConnectionId;
use falkon_wire::codec::Wire;
use falkon_wire::message::{FromClient, Refusal, ToClient};
use falkon_wire::provision::ProvisionAsk;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Answers that wait for one peer before it gets no more of them.
const PEER_ANSWERS_BYTES_MAX: usize = 4 << 20;
/// Answers that wait for all peers together before nobody gets more of them.
const ANSWERS_BYTES_MAX: usize = 256 << 20;

const _: () = assert!(PEER_ANSWERS_BYTES_MAX + FRAME_BYTES_MAX < ANSWERS_BYTES_MAX);

/// How many bytes of answers wait: for one peer, or for all.
#[derive(Debug, Clone, Default)]
pub(super) struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// An encoded answer. It waits until it is dropped, which is when it was
/// written or its connection is gone.
#[derive(Debug)]
pub(super) struct Answer {
    bytes: Vec<u8>,
    has_secret: bool,
    among: [Waiting; 2],
}

impl Answer {
    fn new(bytes: Vec<u8>, has_secret: bool, among: [Waiting; 2]) -> Answer {
        for Waiting(count) in &among {
            count.fetch_add(bytes.len(), Ordering::Relaxed);
        }
        Answer { bytes, has_secret, among }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn has_secret(&self) -> bool {
        self.has_secret
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        for Waiting(count) in &self.among {
            count.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        }
    }
}

/// Whether a message asks something and changes nothing.
pub(super) fn is_question(message: &FromClient) -> bool {
    matches!(
        message,
        FromClient::Status { .. }
            | FromClient::Tasks { .. }
            | FromClient::Objects { .. }
            | FromClient::Find { .. }
            | FromClient::Reach { .. }
            | FromClient::ReachOutput { .. }
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
