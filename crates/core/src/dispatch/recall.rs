//! Tasks that were sent ahead are taken back for instances that have less than
//! their share, or a higher priority. [`Fleet::recall_for_idle`](super::fleet::Fleet::recall_for_idle) takes them back
//! for executors that are idle.

use super::Dispatcher;
use super::fleet::Executor;
use super::instance::QueueKey;
use crate::limits::{DUE_INSTANCES_MAX, DUE_WAIT_MICROS};
use crate::task::InstanceId;
use std::cmp::Ordering;

impl Dispatcher {
    /// Takes back what was sent ahead for executors that are idle.
    pub(super) fn recall_for_idle(&mut self) {
        let instances = &self.instances;
        let waits = |executor: &Executor| {
            let of = executor.instances();
            of.iter().any(|id| instances[id].options.policy.policy.waits_for_places())
        };
        self.fleet.recall_for_idle(&self.needs, self.now, waits);
    }

    /// Takes back what was sent ahead of an instance that has less than its
    /// share, or ahead of tasks of the same instance that have more priority,
    /// once these have waited for room longer than what is sent ahead lasts: it
    /// takes longer than was expected.
    pub(super) fn recall_for_due(&mut self) {
        if !self.fleet.has_prefetched() {
            return;
        }
        let all = self.fleet.cpus_milli();
        let mut due = Vec::new();
        for id in self.runnable.ids().take(DUE_INSTANCES_MAX) {
            let instance = &self.instances[&id];
            let Some((key, since)) = instance.queues.first_blocked(&self.needs) else {
                continue;
            };
            let user = instance.share.user();
            if self.runnable.room(user, self.needs[key.1].weight(1)) == 0 {
                continue;
            }
            let share = all / u128::from(self.runnable.shares(user)).max(1);
            let at = since.after(DUE_WAIT_MICROS);
            if at > self.now {
                self.fleet.check_recall_at(at);
            } else {
                due.push((id, key, instance.usage < share));
            }
        }
        for (id, key, has_less) in due {
            let holders = self.fleet.prefetchers().filter(|(_, executor)| {
                !executor.stalled && self.goes_before(executor, id, key, has_less)
            });
            let holders: Vec<_> = holders.map(|(count, executor)| (executor.id, count)).collect();
            for (holder, count) in holders {
                self.fleet.recall_from(holder, count);
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
        let mine = &self.instances[&id];
        let others = executor.instances();
        let gives_way = |other: &InstanceId| {
            let other = &self.instances[other];
            match other.share.priority().cmp(&mine.share.priority()) {
                Ordering::Less => true,
                Ordering::Equal if other.share.user() != mine.share.user() => {
                    has_less && self.runnable.uses_more(other.share.user(), mine.share.user())
                }
                Ordering::Equal => other.id != id && has_less && other.usage > mine.usage,
                Ordering::Greater => false,
            }
        };
        if others.iter().any(gives_way) {
            return true;
        }
        // Priorities of tasks order those of one instance.
        let less = |need| self.needs[need].priority < key.0.0;
        others == [id]
            && executor
                .loads
                .iter()
                .any(|(need, load)| load.prefetched > 0 && !load.instant && less(need))
    }
}
