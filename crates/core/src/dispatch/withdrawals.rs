//! Tasks that a relay takes back for the dispatcher above: first those that no executor
//! has, then those that were sent ahead to executors, which return them.

use super::{ConnectionId, Dispatcher, Reply, RequestError};
use crate::limits::{RECORD_RUNS_MAX, WITHDRAWAL_MICROS_MAX};
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// What is being taken back, at most once over each connection.
#[derive(Debug, Default)]
pub(super) struct Withdrawals {
    pending: BTreeMap<ConnectionId, Withdrawal>,
    /// Executors have returned tasks, or will not any more.
    has_news: bool,
}

#[derive(Debug)]
struct Withdrawal {
    request: u64,
    instance: InstanceId,
    /// How many tasks more, at most.
    left: u64,
    taken: RunSet,
    /// Executors that have not answered.
    asked: BTreeSet<ExecutorId>,
    /// When it is answered with what there is.
    until: Time,
}

impl Withdrawals {
    /// An executor has returned tasks, and `is_over` says that it has returned all that
    /// it was asked for.
    pub(super) fn returned(&mut self, id: ExecutorId, is_over: bool) {
        for withdrawal in self.pending.values_mut() {
            self.has_news = true;
            if is_over {
                withdrawal.asked.remove(&id);
            }
        }
    }

    /// A connection is gone. Whoever comes back learns of tasks that were taken back
    /// from their results.
    pub(super) fn close(&mut self, connection: ConnectionId) {
        self.pending.remove(&connection);
    }

    /// Executors are not waited for any more after a restart: what they did not come back with
    /// can be taken back.
    pub(super) fn recovered(&mut self) {
        self.has_news = true;
    }

    /// When one is due.
    pub(super) fn due(&self) -> Option<Time> {
        self.pending.values().map(|withdrawal| withdrawal.until).min()
    }

    /// Has those that are due answered.
    pub(super) fn look(&mut self, now: Time) {
        self.has_news |= self.due().is_some_and(|at| at <= now);
    }
}

impl Dispatcher {
    /// Takes up to `count` tasks back. The answer may take as long as executors take to
    /// return what was sent ahead.
    pub(super) fn withdraw_for_above(
        &mut self,
        connection: ConnectionId,
        request: u64,
        instance: InstanceId,
        count: u64,
    ) -> Result<(), RequestError> {
        self.attach(connection, instance)?;
        if let Some(before) = self.withdrawals.pending.remove(&connection) {
            self.answer_withdrawal(connection, before);
        }
        let mut withdrawal = Withdrawal {
            request,
            instance,
            left: count,
            taken: RunSet::default(),
            asked: BTreeSet::new(),
            until: self.now.after(WITHDRAWAL_MICROS_MAX),
        };
        self.take_back(&mut withdrawal)?;
        withdrawal.asked = self.fleet.recall_for_above(instance, withdrawal.left, self.now);
        match self.is_awaited(&withdrawal) {
            true => drop(self.withdrawals.pending.insert(connection, withdrawal)),
            false => self.answer_withdrawal(connection, withdrawal),
        }
        Ok(())
    }

    /// Takes back what executors have returned, before it is placed again.
    pub(super) fn settle_withdrawals(&mut self) {
        if !std::mem::take(&mut self.withdrawals.has_news) {
            return;
        }
        for (connection, mut withdrawal) in std::mem::take(&mut self.withdrawals.pending) {
            let is_there = self.take_back(&mut withdrawal).is_ok();
            let is_awaited = self.is_awaited(&withdrawal);
            match is_there && is_awaited && withdrawal.until > self.now {
                true => drop(self.withdrawals.pending.insert(connection, withdrawal)),
                false => self.answer_withdrawal(connection, withdrawal),
            }
        }
    }

    /// Whether there may be more to take back in a moment: executors were asked for tasks, or
    /// may come back after a restart.
    fn is_awaited(&self, withdrawal: &Withdrawal) -> bool {
        let is_recovering = self.comeback.until().is_some();
        withdrawal.left > 0 && (is_recovering || !withdrawal.asked.is_empty())
    }

    /// Takes back what no executor has.
    fn take_back(&mut self, withdrawal: &mut Withdrawal) -> Result<(), RequestError> {
        let runs_max = RECORD_RUNS_MAX.saturating_sub(withdrawal.taken.run_count());
        let taken = self.withdraw_ready(withdrawal.instance, withdrawal.left, runs_max)?;
        for (first, count) in taken {
            withdrawal.left -= count;
            withdrawal.taken.insert(first, count);
        }
        if withdrawal.taken.run_count() >= RECORD_RUNS_MAX {
            withdrawal.left = 0;
        }
        Ok(())
    }

    fn answer_withdrawal(&mut self, connection: ConnectionId, withdrawal: Withdrawal) {
        let runs = withdrawal.taken.iter().collect();
        self.reply(connection, withdrawal.request, Reply::Withdrawn(runs));
    }
}
