//! The instances whose results each connection receives, so that a connection that
//! closes costs as much as it subscribed to, however many instances there are.

use super::ConnectionId;
use crate::task::InstanceId;
use std::collections::BTreeSet;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Subscriptions {
    all: BTreeSet<(ConnectionId, InstanceId)>,
}

impl Subscriptions {
    pub(super) fn add(&mut self, connection: ConnectionId, instance: InstanceId) {
        self.all.insert((connection, instance));
    }

    pub(super) fn remove(&mut self, connection: ConnectionId, instance: InstanceId) {
        self.all.remove(&(connection, instance));
    }

    /// Ends the subscriptions of a connection, and returns their instances.
    pub(super) fn take(&mut self, connection: ConnectionId) -> Vec<InstanceId> {
        let range = (connection, InstanceId(0))..=(connection, InstanceId(u64::MAX));
        let taken: Vec<_> = self.all.range(range).map(|(_, instance)| *instance).collect();
        for instance in &taken {
            self.remove(connection, *instance);
        }
        taken
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}
