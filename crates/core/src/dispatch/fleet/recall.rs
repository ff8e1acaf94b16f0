//! Tasks that were sent ahead are recalled from executors.

use super::Fleet;
use super::executor::Executor;
use crate::dispatch::needs::{DataNeed, Needs};
use crate::dispatch::shelf::Room;
use crate::limits::{
    RECALL_EXECUTORS_MAX, RECALL_PLACED_MICROS, RECALL_SILENCE_MICROS, RECALL_WORK_MICROS,
    WITHDRAWAL_EXECUTORS_MAX,
};
use crate::task::{ExecutorId, InstanceId, Time};
use std::collections::BTreeSet;

impl Fleet {
    /// Recalls prefetched tasks when an executor has room for them and it
    /// is worth the messages. What is still ready fits no free room. Tasks with data that may
    /// wait for executors which hold it, as `waits` says, would most often go back where they
    /// came from: they stay as long as that executor gets on.
    pub(in crate::dispatch) fn recall_for_idle(
        &mut self,
        needs: &Needs,
        now: Time,
        waits: impl Fn(&Executor) -> bool,
    ) {
        debug_assert!(self.served.is_none(), "executor {:?} is not listed", self.served);
        if self.prefetched.is_empty() || self.available.is_empty() {
            return;
        }
        let mut later = false;
        let holders: Vec<ExecutorId> = self
            .prefetched
            .iter()
            .rev()
            .map(|(_, id)| *id)
            .filter(|id| !self.roster[*id].recalling && !self.roster[*id].is_spent(now))
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
            let (room, reserved, data) = {
                let executor = &self.roster[idle];
                let is_kept = executor.reserved.is_some() || executor.kept_until.is_some();
                (executor.free.clone(), is_kept, executor.data_offer())
            };
            for id in holders.iter().copied().filter(|id| *id != idle && !reserved) {
                let executor = &mut self.roster[id];
                let room = Room { resources: &room, data };
                let fits = executor.loads.has_ahead_for(room, needs);
                if !fits {
                    continue;
                }
                let count = executor.prefetched();
                let work = executor.mean_micros.saturating_mul(count);
                let silent_micros = now.since(executor.last_report);
                let plain = Room { data: DataNeed::None, ..room };
                if silent_micros < RECALL_PLACED_MICROS
                    && waits(executor)
                    && !executor.loads.has_ahead_for(plain, needs)
                {
                    later = true;
                    continue;
                }
                let silent = silent_micros >= RECALL_SILENCE_MICROS;
                if work < RECALL_WORK_MICROS && !silent {
                    later = true;
                    continue;
                }
                self.recall_from(id, count.div_ceil(2));
                return;
            }
            self.recall_turn = turn + 1;
        }
        if later || self.available.len() > RECALL_EXECUTORS_MAX {
            self.recall_check.get_or_insert(now.after(RECALL_SILENCE_MICROS));
        }
    }

    /// Has executors return tasks of an instance that were sent ahead, `count` in all,
    /// those with most of them first. Returns who answers, also those that were asked
    /// before.
    pub(in crate::dispatch) fn recall_for_above(
        &mut self,
        instance: InstanceId,
        mut count: u64,
        now: Time,
    ) -> BTreeSet<ExecutorId> {
        let mut asked = BTreeSet::new();
        let holders = self.prefetched.iter().rev().copied();
        let holders = holders.filter(|(_, id)| !self.roster[*id].is_spent(now));
        let holders: Vec<_> = holders.take(WITHDRAWAL_EXECUTORS_MAX).collect();
        for (there, id) in holders {
            let executor = &self.roster[id];
            if count == 0 {
                break;
            }
            if executor.recalling {
                asked.insert(id);
            } else if executor.instances().contains(&instance) {
                asked.insert(id);
                self.recall_from(id, there.min(count));
                count -= there.min(count);
            }
        }
        asked
    }

    /// Has an executor return so many tasks that it has not started.
    pub(in crate::dispatch) fn recall_from(&mut self, id: ExecutorId, count: u64) {
        let executor = &mut self.roster[id];
        executor.recalling = true;
        executor.stalled = true;
        executor.order.edit().recall = count;
        self.orders.send(id);
    }

    /// Whether tasks are prefetched anywhere.
    pub(in crate::dispatch) fn has_prefetched(&self) -> bool {
        !self.prefetched.is_empty()
    }

    /// The executors with most tasks prefetched, and how many these are.
    pub(in crate::dispatch) fn prefetchers(&self) -> impl Iterator<Item = (u64, &Executor)> {
        let most = self.prefetched.iter().rev().take(RECALL_EXECUTORS_MAX);
        most.map(|(count, id)| (*count, &self.roster[*id]))
    }

    /// Has recalls looked at again at this time, or before.
    pub(in crate::dispatch) fn check_recall_at(&mut self, at: Time) {
        self.recall_check = Some(self.recall_check.map_or(at, |check| check.min(at)));
    }

    /// Whether recalls are to be looked at again now.
    pub(in crate::dispatch) fn take_due_recall(&mut self, now: Time) -> bool {
        self.recall_check.take_if(|at| *at <= now).is_some()
    }
}
