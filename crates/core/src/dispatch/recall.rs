//! Tasks that were sent ahead are taken back: for executors that are idle, and
//! for instances that have less than their share.

use super::Dispatcher;
use super::executor::Executor;
use super::instance::QueueKey;
use super::shelf::Room;
use crate::limits::{
    DUE_INSTANCES_MAX, DUE_WAIT_MICROS, RECALL_EXECUTORS_MAX, RECALL_SILENCE_MICROS,
    RECALL_WORK_MICROS,
};
use crate::task::{ExecutorId, InstanceId};

impl Dispatcher {
    /// Takes prefetched tasks back when an executor has room for them and it
    /// is worth the messages. What is still ready fits no free room.
    pub(super) fn recall(&mut self) {
        if self.prefetched.is_empty() || self.available.is_empty() {
            return;
        }
        let mut later = false;
        let holders: Vec<ExecutorId> = self
            .prefetched
            .iter()
            .rev()
            .map(|(_, id)| *id)
            .filter(|id| !self.executors[id].recalling && !self.executors[id].spent)
            .take(RECALL_EXECUTORS_MAX)
            .collect();
        let idle: Vec<(u64, ExecutorId)> = self
            .available
            .range(self.recall_turn..)
            .chain(self.available.range(..self.recall_turn))
            .map(|(turn, id)| (*turn, *id))
            .take(RECALL_EXECUTORS_MAX)
            .collect();
        for (turn, idle) in idle {
            let (room, reserved, has_cache) = {
                let executor = &self.executors[&idle];
                (executor.free.clone(), executor.reserved.is_some(), executor.serves.is_some())
            };
            for id in holders.iter().copied().filter(|id| *id != idle && !reserved) {
                let Some(executor) = self.executors.find_mut(&id) else { continue };
                let room = Room { resources: &room, has_cache };
                let fits = executor.loads.has_ahead_for(room, &self.needs);
                if !fits {
                    continue;
                }
                let count = executor.prefetched();
                let work = executor.mean_micros.saturating_mul(count);
                let silent = self.now.since(executor.last_report) >= RECALL_SILENCE_MICROS;
                if work < RECALL_WORK_MICROS && !silent {
                    later = true;
                    continue;
                }
                executor.recalling = true;
                executor.stalled = true;
                executor.order.recall = count.div_ceil(2);
                self.orders.send(id);
                return;
            }
            self.recall_turn = turn + 1;
        }
        if later || self.available.len() > RECALL_EXECUTORS_MAX {
            self.recall_check.get_or_insert(self.now.after(RECALL_SILENCE_MICROS));
        }
    }

    /// Takes back what was sent ahead of an instance that has less than its
    /// share, or ahead of tasks of the same instance that have more priority,
    /// once these have waited for room longer than what is sent ahead lasts: it
    /// takes longer than was expected.
    pub(super) fn recall_for_due(&mut self) {
        if self.prefetched.is_empty() {
            return;
        }
        let share = self.executors.cpus_milli() / (self.runnable.len() as u128).max(1);
        let mut due = Vec::new();
        for id in self.runnable.ids().take(DUE_INSTANCES_MAX) {
            let instance = &self.instances[&id];
            let Some((key, since)) = instance.queues.first_blocked(&self.needs) else {
                continue;
            };
            let at = since.after(DUE_WAIT_MICROS);
            if at > self.now {
                self.recall_check = Some(self.recall_check.map_or(at, |check| check.min(at)));
            } else {
                due.push((id, key, instance.usage < share));
            }
        }
        for (id, key, has_less) in due {
            let holders: Vec<(u64, ExecutorId)> =
                self.prefetched.iter().rev().take(RECALL_EXECUTORS_MAX).copied().collect();
            for (count, holder) in holders {
                let executor = &self.executors[&holder];
                if executor.stalled || !self.goes_before(executor, id, key, has_less) {
                    continue;
                }
                let Some(executor) = self.executors.find_mut(&holder) else { continue };
                executor.recalling = true;
                executor.stalled = true;
                executor.order.recall = count;
                self.orders.send(holder);
            }
        }
    }

    /// Whether tasks of a queue are to go before some that an executor was sent
    /// ahead.
    fn goes_before(
        &self,
        executor: &Executor,
        id: InstanceId,
        key: QueueKey,
        has_less: bool,
    ) -> bool {
        if !executor.offers(&self.needs[key.1]) {
            return false;
        }
        let mine = self.instances[&id].usage;
        let others = executor.instances();
        let have_more = |other: &InstanceId| {
            *other != id && self.instances.get(other).is_some_and(|other| other.usage > mine)
        };
        if has_less && others.iter().any(have_more) {
            return true;
        }
        // Priorities order the tasks of one instance.
        let less = |need| self.needs[need].priority < key.0.0;
        others == [id]
            && executor
                .loads
                .iter()
                .any(|(need, load)| load.prefetched > 0 && !load.instant && less(need))
    }
}
