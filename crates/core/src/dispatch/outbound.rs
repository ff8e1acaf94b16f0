//! What leaves the dispatcher: actions in the order in which the shell carries
//! them out, the instances with results to deliver, and the connections that
//! receive results.
//!
//! Orders are put together by [`super::fleet`] and deliveries by
//! [`super::deliver`]; both go out here. A connection is sent results only as far
//! as it has been written to ([`super::outflow`]).

use super::check::{CheckError, ensure};
use super::outflow::Outflow;
use super::subscriptions::Subscriptions;
use super::{Action, ConnectionId, Delivery, Record, Reply};
use crate::task::InstanceId;
use std::collections::{BTreeSet, VecDeque};

/// Actions whose room is kept for the next ones.
const KEPT_ACTIONS_MAX: usize = 128;

/// Actions that the shell has not taken, and results that are to become some.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    /// The oldest first.
    actions: VecDeque<Action>,
    /// Instances with results to journal or to deliver.
    due: BTreeSet<InstanceId>,
    /// The instances whose results each connection receives.
    subscriptions: Subscriptions,
    outflow: Outflow,
}

/// Actions.
impl Outbound {
    /// Whether the shell has taken all actions.
    pub(super) fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<Action> {
        let action = self.actions.pop_front();
        if action.is_none() && self.actions.capacity() > KEPT_ACTIONS_MAX {
            self.actions = VecDeque::new();
        }
        action
    }

    pub(super) fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(super) fn reply(&mut self, connection: ConnectionId, request: u64, reply: Reply) {
        self.push(Action::Reply { connection, request, reply });
    }

    pub(super) fn journal(&mut self, record: Record) {
        self.push(Action::Journal(record));
    }
}

/// Results that are due.
impl Outbound {
    /// An instance has results to journal or to deliver, or subscribers that may
    /// receive more.
    pub(super) fn mark(&mut self, id: InstanceId) {
        self.due.insert(id);
    }

    /// The instances that are marked.
    pub(super) fn marked(&self) -> impl Iterator<Item = InstanceId> + '_ {
        self.due.iter().copied()
    }

    /// The next marked instance, which is marked no longer.
    pub(super) fn take_marked(&mut self) -> Option<InstanceId> {
        self.due.pop_first()
    }

    /// An instance is gone: nothing of it is due.
    pub(super) fn forget(&mut self, id: InstanceId) {
        self.due.remove(&id);
    }
}

/// Connections that receive results.
impl Outbound {
    /// A connection receives an instance's results from now on.
    pub(super) fn subscribe(&mut self, connection: ConnectionId, id: InstanceId) {
        self.subscriptions.add(connection, id);
        self.mark(id);
    }

    /// An instance that a connection subscribed to is gone, which its peer is
    /// notified of unless it `knows`.
    pub(super) fn end_subscription(
        &mut self,
        connection: ConnectionId,
        id: InstanceId,
        knows: bool,
    ) {
        self.subscriptions.remove(connection, id);
        if !knows {
            self.push(Action::Gone { connection, instance: id });
        }
    }

    /// Whether a connection may be sent more results. If not, the instance is
    /// marked again when more was written.
    pub(super) fn has_room(&mut self, connection: ConnectionId, id: InstanceId) -> bool {
        if self.outflow.has_room(connection) {
            return true;
        }
        if self.outflow.wait(connection, id) {
            self.push(Action::AwaitWritten { connection });
        }
        false
    }

    /// Sends results, which take so many bytes until they are written.
    pub(super) fn deliver(&mut self, connection: ConnectionId, delivery: Delivery, bytes: u64) {
        self.outflow.sent(connection, bytes);
        self.push(Action::Deliver { connection, delivery });
    }

    /// The shell has written so many messages to a connection: instances that
    /// waited for that are marked, unless they are gone.
    pub(super) fn written(
        &mut self,
        connection: ConnectionId,
        messages: u64,
        is_there: impl Fn(&InstanceId) -> bool,
    ) {
        let written = self.outflow.written(connection, messages);
        self.due.extend(written.go_on.into_iter().filter(is_there));
        if written.is_awaited {
            self.push(Action::AwaitWritten { connection });
        }
    }

    /// A connection is gone. Gives the instances that it subscribed to.
    pub(super) fn close(&mut self, connection: ConnectionId) -> Vec<InstanceId> {
        self.outflow.close(connection);
        self.subscriptions.take(connection)
    }
}

impl Outbound {
    /// Connections are known as their instances know them, and what is due is
    /// there.
    ///
    /// # Errors
    /// Says what does not hold.
    pub(super) fn check(
        &self,
        subscribers: impl Iterator<Item = (ConnectionId, InstanceId)>,
        is_there: impl FnMut(&InstanceId) -> bool,
    ) -> Result<(), CheckError> {
        let mut counted = Subscriptions::default();
        let mut count = 0;
        for (connection, id) in subscribers {
            counted.add(connection, id);
            count += 1;
        }
        ensure!(counted == self.subscriptions, "subscribers that would never end, or are gone");
        ensure!(count == counted.len(), "a connection subscribes twice");
        ensure!(self.outflow.is_sound(), "what is unwritten is counted wrongly");
        let is_sound = self.due.iter().all(is_there);
        ensure!(is_sound, "results of an instance that is gone are to be delivered");
        Ok(())
    }
}
