//! Executors to which orders are to be sent: at once, or with the next order.

use super::Fleet;
use crate::data::declared::DataOrder;
use crate::dispatch::{BatchId, ConnectionId, Order};
use crate::limits::TELL_MICROS;
use crate::runset::RunSet;
use crate::task::{ExecutorId, Time};
use std::collections::BTreeSet;

/// Executors to which orders are to be sent.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// Executors whose order goes out once the event is taken in.
    now: BTreeSet<ExecutorId>,
    /// Executors that wait for nothing: their order goes out when there is
    /// something else to send, or when `due` has come.
    later: BTreeSet<ExecutorId>,
    due: Option<Time>,
}

impl Orders {
    /// Sends an executor its order.
    pub(super) fn send(&mut self, id: ExecutorId) {
        self.now.insert(id);
    }

    /// Sends an executor its order together with something else, at the latest
    /// after [`TELL_MICROS`].
    pub(super) fn send_later(&mut self, id: ExecutorId, now: Time) {
        self.later.insert(id);
        self.due.get_or_insert(now.after(TELL_MICROS));
    }

    /// When orders are due that waited.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Sends the orders that waited, if they are due.
    pub(super) fn send_due(&mut self, now: Time) {
        if self.due.is_some_and(|at| at <= now) {
            self.due = None;
            self.now.append(&mut self.later);
        }
    }

    /// Returns an executor whose order goes out now.
    pub(super) fn pop(&mut self) -> Option<ExecutorId> {
        let id = self.now.pop_first()?;
        self.later.remove(&id);
        Some(id)
    }

    /// All that goes out now is sent.
    pub(super) fn sent(&mut self) {
        if self.later.is_empty() {
            self.due = None;
        }
    }

    /// An executor is gone.
    pub(super) fn remove(&mut self, id: ExecutorId) {
        self.now.remove(&id);
        self.later.remove(&id);
    }

    /// Whether an executor's order waits for something else.
    pub(super) fn is_later(&self, id: ExecutorId) -> bool {
        self.later.contains(&id)
    }

    /// Whether no order goes out now.
    pub(super) fn is_sent(&self) -> bool {
        self.now.is_empty()
    }

    /// Whether every order that waits goes out some time, to an executor that is there.
    pub(super) fn is_sound(&self, is_there: impl Fn(&ExecutorId) -> bool) -> bool {
        self.later.iter().all(is_there) && (self.later.is_empty() || self.due.is_some())
    }
}

/// The order that an executor is sent next: most executors are to be told nothing.
#[derive(Debug, Default)]
pub(in crate::dispatch) struct Draft(Option<Box<Order>>);

impl Draft {
    /// The order, to be added to.
    pub(in crate::dispatch) fn edit(&mut self) -> &mut Order {
        self.0.get_or_insert_default()
    }

    /// Takes the order out.
    fn take(&mut self) -> Order {
        self.0.take().map(|order| *order).unwrap_or_default()
    }

    /// Whether the executor is to be told nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.0.as_deref().is_none_or(|order| *order == Order::default())
    }
}

/// An order that goes out.
#[derive(Debug)]
pub(in crate::dispatch) struct Outgoing {
    pub(in crate::dispatch) executor: ExecutorId,
    pub(in crate::dispatch) incarnation: u64,
    pub(in crate::dispatch) connection: ConnectionId,
    pub(in crate::dispatch) order: Order,
}

impl Fleet {
    /// An executor's order, to be added to: it is sent.
    pub(in crate::dispatch) fn order(&mut self, id: ExecutorId) -> &mut Order {
        self.orders.send(id);
        self.roster[id].order.edit()
    }

    /// What an executor's order says of data, to be added to: it is sent.
    pub(in crate::dispatch) fn data_order(&mut self, id: ExecutorId) -> &mut DataOrder {
        self.order(id).data.get_or_insert_default()
    }

    /// Has executors told that no task needs a batch's template any more. They
    /// wait for nothing, so that goes with the next order or after a moment: a
    /// message of its own would wake each of them for nothing. Some of those
    /// that know the template may be gone.
    pub(in crate::dispatch) fn forget_batch(
        &mut self,
        batch: BatchId,
        known_by: &RunSet,
        now: Time,
    ) {
        let all = known_by.iter().flat_map(|(first, count)| first..first + count);
        for id in all.map(ExecutorId) {
            if let Some(executor) = self.roster.find_mut(&id) {
                executor.order.edit().forget.push(batch);
                self.orders.send_later(id, now);
            }
        }
    }

    /// Sends an executor its order together with something else, or after a
    /// moment.
    pub(in crate::dispatch) fn send_later(&mut self, id: ExecutorId, now: Time) {
        self.orders.send_later(id, now);
    }

    /// Takes the next order that goes out now. Those of executors that are away
    /// stay.
    pub(in crate::dispatch) fn next_order(&mut self) -> Option<Outgoing> {
        while let Some(id) = self.orders.pop() {
            let executor = &mut self.roster[id];
            let Some(connection) = executor.connection else { continue };
            let acknowledged = executor.updates_seen;
            let order = Order { acknowledged, ..executor.order.take() };
            let incarnation = executor.incarnation;
            return Some(Outgoing { executor: id, incarnation, connection, order });
        }
        None
    }

    /// Whether orders are to be sent now.
    pub(in crate::dispatch) fn has_orders(&self) -> bool {
        !self.orders.is_sent()
    }

    /// All orders that go out now are sent.
    pub(in crate::dispatch) fn orders_sent(&mut self) {
        self.orders.sent();
    }

    /// Has the orders that waited sent, if they are due.
    pub(in crate::dispatch) fn send_due_orders(&mut self, now: Time) {
        self.orders.send_due(now);
    }
}
