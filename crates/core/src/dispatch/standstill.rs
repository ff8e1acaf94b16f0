//! Tasks that policies would let wait for ever, and that are sent all the same.

use super::Dispatcher;
use super::data_tasks::WithRoom;
use super::instance::QueueKey;
use super::placement::Rooms;
use crate::limits::HINT_EXECUTORS_MAX;
use crate::task::{ExecutorId, InstanceId};

impl Dispatcher {
    /// Tasks may wait for executors that hold their data and can never run
    /// them, or for data that nobody brings together. Where an executor has
    /// room and nothing is under way that the first task of a queue may wait
    /// for, it is sent all the same.
    ///
    /// Only the first task of each queue is looked at, and of its inputs no
    /// more than [`HINT_EXECUTORS_MAX`] holders.
    pub(super) fn end_standstill(&mut self) {
        if !self.fleet.has_available() {
            return;
        }
        for (id, key) in self.placement.queues() {
            while let Some(executor) = self.send_first(id, key) {
                self.fleet.list(executor, self.now);
            }
        }
    }

    /// Sends the first task of a queue if it would wait in vain.
    fn send_first(&mut self, id: InstanceId, key: QueueKey) -> Option<ExecutorId> {
        let instance = &self.instances[&id];
        if !self.runnable.has_turn(&instance.share) {
            return None;
        }
        // The queue may have gone with its last task, which was given up for want of an input.
        instance.queues.find(&key)?;
        if self.holds_back(id, key) {
            return None;
        }
        let instance = &self.instances[&id];
        let need = &self.needs[key.1];
        let (fleet, now) = (&self.fleet, self.now);
        let lasts_micros = self.lasts_micros(id, key);
        let rooms = WithRoom { fleet, need, now, lasts_micros };
        let fetches_ahead = self.placement.first_fetches_ahead((id, key))?;
        rooms.first()?;
        let waits = match fetches_ahead {
            true => instance.tasks.assigned() > 0 || self.placement.is_anything_coming(),
            false => self.is_holder_busy(id, key),
        };
        if waits {
            return None;
        }
        let (executor, selected) = self.placement.offer_first((id, key), &rooms)?;
        self.send_selected(executor, id, key, selected);
        self.note_data_tasks(id, key);
        Some(executor)
    }

    /// Whether an executor that holds an input of the first task of this queue
    /// will have room for it, if it has none now.
    fn is_holder_busy(&self, id: InstanceId, key: QueueKey) -> bool {
        let need = &self.needs[key.1];
        let holders = self.placement.holders_for_first((id, key)).take(HINT_EXECUTORS_MAX);
        let mut holders = holders.map(|id| &self.fleet[id]);
        holders.any(|executor| {
            let is_back_soon = executor.connection.is_none();
            let has_others = executor.takes_tasks() && !executor.has_nothing();
            executor.offers(need) && !executor.leaving && (is_back_soon || has_others)
        })
    }
}
