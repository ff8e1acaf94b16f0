//! The registry of executors: their numbers, connections and incarnations.

use crate::dispatch::ConnectionId;
use crate::task::ExecutorId;
use std::collections::BTreeMap;

/// The executors' numbers, connections and incarnations.
#[derive(Debug, Default)]
pub(super) struct Registry {
    next: u64,
    by_connection: BTreeMap<ConnectionId, ExecutorId>,
    by_incarnation: BTreeMap<u64, ExecutorId>,
}

impl Registry {
    /// Registers an executor over a connection. Returns its number, and the one
    /// under which this incarnation was registered before.
    pub(super) fn register(
        &mut self,
        connection: ConnectionId,
        incarnation: u64,
    ) -> (ExecutorId, Option<ExecutorId>) {
        let id = ExecutorId(self.next);
        self.next += 1;
        self.by_connection.insert(connection, id);
        (id, self.by_incarnation.insert(incarnation, id))
    }

    /// An executor of this number was there before a restart.
    pub(super) fn recover(&mut self, id: ExecutorId) {
        self.next = self.next.max(id.0 + 1);
    }

    /// The number that was given last.
    pub(super) fn last(&self) -> Option<ExecutorId> {
        self.next.checked_sub(1).map(ExecutorId)
    }

    /// The executor of a connection.
    pub(super) fn of(&self, connection: ConnectionId) -> Option<ExecutorId> {
        self.by_connection.get(&connection).copied()
    }

    /// The executor of an incarnation.
    pub(super) fn of_incarnation(&self, incarnation: u64) -> Option<ExecutorId> {
        self.by_incarnation.get(&incarnation).copied()
    }

    /// How many executors are connected.
    pub(super) fn connected(&self) -> u64 {
        self.by_connection.len() as u64
    }

    /// A connection is gone. Returns its executor.
    pub(super) fn disconnect(&mut self, connection: ConnectionId) -> Option<ExecutorId> {
        self.by_connection.remove(&connection)
    }

    /// An incarnation does not come back.
    pub(super) fn forget(&mut self, incarnation: u64) {
        self.by_incarnation.remove(&incarnation);
    }

    /// The executors of all connections and incarnations.
    pub(super) fn ids(&self) -> impl Iterator<Item = &ExecutorId> {
        self.by_connection.values().chain(self.by_incarnation.values())
    }
}
