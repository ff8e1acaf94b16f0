//! What is done when policies would let tasks wait for ever.

use super::Dispatcher;
use super::diffusion::Free;
use super::instance::QueueKey;
use super::locate::WithRoom;
use crate::data::index::ObjectNo;
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
        if self.available.is_empty() {
            return;
        }
        let queues: Vec<(InstanceId, QueueKey)> = self.located.all.iter().copied().collect();
        for (id, key) in queues {
            while let Some(executor) = self.send_first(id, key) {
                self.refresh_executor(executor);
            }
        }
    }

    /// Sends the first task of a queue if it would wait in vain.
    fn send_first(&mut self, id: InstanceId, key: QueueKey) -> Option<ExecutorId> {
        let need = &self.needs[key.1];
        let instance = self.instances.get(&id).filter(|found| found.share.listed().is_some())?;
        let (executors, available) = (&self.executors, &self.available);
        let lasts_micros = self.user_estimate(id, key);
        let (index, now) = (&self.index, self.now);
        let free = WithRoom { executors, available, index, need, now, lasts_micros };
        let located = instance.queues.find(&key)?.located.as_ref()?;
        let inputs = located.waiting.first_inputs()?;
        free.first()?;
        let waits = match located.waiting.fetches_ahead() {
            true => instance.dispatched > 0 || self.index.is_anything_coming(),
            false => self.is_holder_busy(key, inputs),
        };
        if waits {
            return None;
        }
        let instance = self.instances.get_mut(&id)?;
        let located = instance.queues.find_mut(&key)?.located.as_mut()?;
        let offer = located.waiting.take_first(&self.index, &free)?;
        let executor = self.index.executor(offer.place)?;
        self.send_taken(executor, id, key, &offer.taken);
        self.settle_located(id, key);
        Some(executor)
    }

    /// Whether an executor that holds one of these objects will have room for a
    /// task of this queue, if it has none now.
    fn is_holder_busy(&self, key: QueueKey, inputs: &[ObjectNo]) -> bool {
        let need = &self.needs[key.1];
        let holders = inputs.iter().flat_map(|input| self.index.holders(*input));
        let mut holders = holders.take(HINT_EXECUTORS_MAX).filter_map(|place| {
            let id = self.index.executor(*place)?;
            self.executors.find(&id)
        });
        holders.any(|executor| {
            let is_back_soon = executor.connection.is_none();
            let has_others = executor.takes_tasks() && !executor.in_flight.is_empty();
            executor.offers(need) && !executor.leaving && (is_back_soon || has_others)
        })
    }
}
