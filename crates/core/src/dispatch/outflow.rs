//! Results that were handed to the shell and are not on their way yet, for each
//! connection.
//!
//! A subscriber's window says what its client has not taken in. The client
//! decides about that: it may subscribe anew, to many instances, and acknowledge
//! what it never reads. What waits to be written to its connection is the
//! dispatcher's memory all the same. So it is bounded for each connection, over
//! all that the connection subscribes to, and only writing makes room.

use super::ConnectionId;
use crate::limits::UNWRITTEN_BYTES_MAX;
use crate::task::InstanceId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Unwritten bytes at which results go on that have waited for room: half of the
/// bound, so that they do not wait again at once.
const GO_ON_BYTES_MAX: u64 = UNWRITTEN_BYTES_MAX / 2;

#[derive(Debug, Default)]
struct Flow {
    /// The bytes of each message, in the order of writing.
    messages: VecDeque<u64>,
    bytes: u64,
    /// Instances that have more for the connection.
    waiting: BTreeSet<InstanceId>,
}

/// What has come of messages that were written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// Instances that may send more.
    pub(super) go_on: BTreeSet<InstanceId>,
    /// Some still wait, so that it matters when more is written.
    pub(super) is_awaited: bool,
}

/// The unwritten messages of all connections that have any.
#[derive(Debug, Default)]
pub(super) struct Outflow {
    flows: BTreeMap<ConnectionId, Flow>,
}

impl Outflow {
    /// Whether a connection may be sent another message. The last one may go
    /// over the bound by its own size.
    pub(super) fn has_room(&self, connection: ConnectionId) -> bool {
        self.flows.get(&connection).is_none_or(|flow| flow.bytes < UNWRITTEN_BYTES_MAX)
    }

    /// Counts a message that is handed to the shell.
    pub(super) fn sent(&mut self, connection: ConnectionId, bytes: u64) {
        let flow = self.flows.entry(connection).or_default();
        flow.messages.push_back(bytes);
        flow.bytes += bytes;
    }

    /// Notes that an instance waits until more was written. Returns whether it
    /// is the first to wait.
    pub(super) fn wait(&mut self, connection: ConnectionId, instance: InstanceId) -> bool {
        let flow = self.flows.entry(connection).or_default();
        let is_first = flow.waiting.is_empty();
        flow.waiting.insert(instance);
        is_first
    }

    /// The shell has written `messages` to a connection.
    pub(super) fn written(&mut self, connection: ConnectionId, messages: u64) -> Written {
        let Some(flow) = self.flows.get_mut(&connection) else { return Written::default() };
        let count = flow.messages.len().min(usize::try_from(messages).unwrap_or(usize::MAX));
        flow.bytes -= flow.messages.drain(..count).sum::<u64>();
        if flow.bytes > GO_ON_BYTES_MAX {
            let is_awaited = !flow.waiting.is_empty();
            return Written { go_on: BTreeSet::new(), is_awaited };
        }
        let go_on = std::mem::take(&mut flow.waiting);
        if flow.messages.is_empty() {
            self.flows.remove(&connection);
        }
        Written { go_on, is_awaited: false }
    }

    /// A connection is gone, and what was queued for it.
    pub(super) fn close(&mut self, connection: ConnectionId) {
        self.flows.remove(&connection);
    }

    /// Whether the books agree with each other.
    pub(super) fn is_sound(&self) -> bool {
        self.flows.values().all(|flow| {
            let is_counted = flow.bytes == flow.messages.iter().sum();
            is_counted && (flow.waiting.is_empty() || flow.bytes > GO_ON_BYTES_MAX)
        })
    }
}
