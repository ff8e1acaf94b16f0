//! Acceptances that wait for company.
//!
//! When tasks go to executors the moment they are submitted, their results may
//! follow within microseconds. Then the client would be woken twice, and the
//! first time for nothing; where processors are few it even takes one from the
//! executor. So an acceptance waits for a moment, if that is all there is to
//! say to anyone, for the results that it can go with. It has been journaled
//! like any other.

use super::connection::{Outgoing, Peer};
use falkon_core::dispatch::ConnectionId;
use falkon_wire::message::{ToClient, ToExecutor};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How long an acceptance waits at most.
const HELD_MS_MAX: u64 = 1;

/// The acceptances that wait.
#[derive(Debug, Default)]
pub(super) struct Held {
    by_connection: BTreeMap<ConnectionId, ToClient>,
    /// When all of them go out, if no reason comes sooner.
    due: Option<Instant>,
}

impl Held {
    /// When [`Held::release_due`] has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Puts what was held, and need not wait any more, in front of what is to
    /// be sent, and holds the acceptance in there if it is worth it.
    pub(super) fn pass(
        &mut self,
        outgoing: &mut Vec<(ConnectionId, Outgoing)>,
        peers: &BTreeMap<ConnectionId, Peer>,
    ) {
        if !self.by_connection.is_empty() {
            let spoken_to: Vec<ConnectionId> = outgoing.iter().map(|(to, _)| *to).collect();
            spoken_to.into_iter().for_each(|connection| self.release(connection, outgoing));
            return;
        }
        let Some(at) = lone_acceptance(outgoing) else { return };
        let (connection, _) = outgoing[at];
        if peers.get(&connection).is_some_and(|peer| peer.awaits_results)
            && let (connection, Outgoing::Client(message)) = outgoing.remove(at)
        {
            self.by_connection.insert(connection, message);
            self.due.get_or_insert(Instant::now() + Duration::from_millis(HELD_MS_MAX));
        }
    }

    /// Sends what is held for a connection, before anything else: its client
    /// does not just wait for results.
    pub(super) fn release(
        &mut self,
        connection: ConnectionId,
        outgoing: &mut Vec<(ConnectionId, Outgoing)>,
    ) {
        if let Some(message) = self.by_connection.remove(&connection) {
            outgoing.insert(0, (connection, Outgoing::Client(message)));
        }
        if self.by_connection.is_empty() {
            self.due = None;
        }
    }

    /// Sends what has waited for long enough.
    pub(super) fn release_due(&mut self, outgoing: &mut Vec<(ConnectionId, Outgoing)>) {
        if self.due.is_some_and(|due| due <= Instant::now()) {
            self.release_all(outgoing);
        }
    }

    /// Sends everything that is held.
    pub(super) fn release_all(&mut self, outgoing: &mut Vec<(ConnectionId, Outgoing)>) {
        let held = std::mem::take(&mut self.by_connection).into_iter();
        let held = held.map(|(connection, message)| (connection, Outgoing::Client(message)));
        outgoing.splice(0..0, held);
        self.due = None;
    }

    /// A connection is gone.
    pub(super) fn forget(&mut self, connection: ConnectionId) {
        self.release(connection, &mut Vec::new());
    }
}

/// Where the one message to a client is, if that is the acceptance of tasks
/// all of which executors are sent at the same time.
fn lone_acceptance(outgoing: &[(ConnectionId, Outgoing)]) -> Option<usize> {
    let mut acceptance = None;
    let mut sent = 0;
    for (at, (_, message)) in outgoing.iter().enumerate() {
        match message {
            Outgoing::Executor(ToExecutor::Order(order)) => {
                sent += order.assign.iter().map(|assigned| assigned.count).sum::<u64>();
            }
            Outgoing::Executor(ToExecutor::Welcome { .. } | ToExecutor::Refused { .. }) => {}
            Outgoing::Client(ToClient::Accepted { count, .. }) if acceptance.is_none() => {
                acceptance = Some((at, *count));
            }
            Outgoing::Client(_) | Outgoing::Answer(_) => return None,
        }
    }
    acceptance.filter(|(_, count)| *count <= sent).map(|(at, _)| at)
}
