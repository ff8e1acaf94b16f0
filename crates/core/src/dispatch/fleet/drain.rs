//! Executors that are given no tasks because somebody wants it so.

use super::Fleet;
use crate::task::{ExecutorId, Time};

impl Fleet {
    /// Has an executor give back what it has not started, and gives it no more; or ends
    /// that.
    pub(in crate::dispatch) fn set_drained(&mut self, id: ExecutorId, is_drained: bool, now: Time) {
        let executor = &mut self.roster[id];
        executor.drained = is_drained;
        match is_drained {
            true => self.recall_all(id),
            false => self.gain_room(id),
        }
        self.list(id, now);
    }

    /// Has an executor give back all that it has not started.
    pub(super) fn recall_all(&mut self, id: ExecutorId) {
        let executor = &mut self.roster[id];
        executor.order.edit().recall = executor.in_flight_count();
        executor.recalling = executor.in_flight_count() > 0;
        executor.stalled |= executor.recalling;
        self.orders.send(id);
    }
}
