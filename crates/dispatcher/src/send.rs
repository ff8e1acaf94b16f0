//! The end of a round: what waits, what is sent and in which order, and whose
//! answer may come at once.

use super::Driver;
use super::peer::Outgoing;
use falkon_core::dispatch::{AckEvent, Classify, ConnectionId, Traffic};
use falkon_wire::message::{ToClient, ToExecutor};
use std::collections::BTreeSet;

/// Messages and tasks of a round for which a peer may be waiting: with more
/// there is other work to do.
const AWAITED_MESSAGES_MAX: usize = 4;
const AWAITED_TASKS_MAX: u64 = 4;

impl Classify for Outgoing {
    fn traffic(&self) -> Traffic {
        match self {
            Outgoing::Executor(ToExecutor::Order(order)) => {
                Traffic::Tasks(order.assign.iter().map(|assigned| assigned.count).sum())
            }
            Outgoing::Executor(
                ToExecutor::Welcome { .. }
                | ToExecutor::Unmet { .. }
                | ToExecutor::AskTail { .. }
                | ToExecutor::ReadOutput { .. }
                | ToExecutor::ReadPart { .. }
                | ToExecutor::Part { .. }
                | ToExecutor::Refused { .. },
            ) => Traffic::Tasks(0),
            Outgoing::Client(ToClient::Accepted { count, .. }) => Traffic::Acceptance(*count),
            Outgoing::Client(_) | Outgoing::Answer(_) => Traffic::Other,
        }
    }
}

impl Driver {
    /// Queues a message for an executor or a relay.
    pub(super) fn say(&mut self, connection: ConnectionId, message: ToExecutor) {
        self.outgoing.push((connection, Outgoing::Executor(message)));
    }

    /// Has what is to be sent go past the acceptance that waits: that goes
    /// first, or one of these stays.
    pub(super) fn coalesce(&mut self) {
        let round = std::mem::take(&mut self.outgoing);
        self.acks.handle(self.clock.now(), AckEvent::Round(round));
        self.outgoing.extend(std::iter::from_fn(|| self.acks.poll_message()));
    }

    /// Sends what is to be sent, behind an acceptance that waits no more.
    pub(super) fn send_released(&mut self) {
        let released: Vec<_> = std::iter::from_fn(|| self.acks.poll_message()).collect();
        self.outgoing.splice(0..0, released);
        self.send();
    }

    /// The kind of answer that may come at once after this round: with only a
    /// few tasks about, an executor's to tasks (0), a client's to results (1).
    pub(super) fn awaited(&self) -> Option<usize> {
        if self.core.busy_executors() > 1 || self.outgoing.len() > AWAITED_MESSAGES_MAX {
            return None;
        }
        self.outgoing.iter().find_map(|(_, message)| match message {
            Outgoing::Executor(ToExecutor::Order(order)) => {
                let tasks: u64 = order.assign.iter().map(|assigned| assigned.count).sum();
                (1..=AWAITED_TASKS_MAX).contains(&tasks).then_some(0)
            }
            Outgoing::Client(ToClient::Results(_)) if self.core.busy_executors() == 0 => Some(1),
            _ => None,
        })
    }

    /// Passes on what is to be sent: tasks first, then what clients wait for,
    /// then the rest. A message takes as long as it takes to wake its receiver,
    /// which then wants a processor too.
    pub(super) fn send(&mut self) {
        let with_tasks: BTreeSet<ConnectionId> = self
            .outgoing
            .iter()
            .filter(|(_, message)| {
                matches!(message, Outgoing::Executor(ToExecutor::Order(order)) if !order.assign.is_empty())
            })
            .map(|(connection, _)| *connection)
            .collect();
        // All that one connection is sent has one rank, so it keeps its order.
        self.outgoing.sort_by_key(|(connection, message)| match message {
            Outgoing::Executor(_) if with_tasks.contains(connection) => 0,
            Outgoing::Client(_) | Outgoing::Answer(_) => 1,
            Outgoing::Executor(_) => 2,
        });
        for (connection, message) in self.outgoing.drain(..) {
            let Some(peer) = self.peers.get(&connection) else { continue };
            if !peer.send(message) {
                (self.log)(&format!("{} does not read what it is sent: closing", peer.name));
                if let Some(peer) = self.peers.remove(&connection) {
                    peer.close();
                }
            }
        }
        for connection in self.refused.drain(..) {
            self.peers.remove(&connection);
        }
    }
}
