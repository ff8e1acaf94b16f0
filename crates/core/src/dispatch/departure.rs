//! Executors that disconnect, and those that are given up: their tasks run
//! elsewhere.

use super::fleet::Departed;
use super::{Action, ConnectionId, Dispatcher, Record};
use crate::events::What;
use crate::task::ExecutorId;

impl Dispatcher {
    /// A connection is gone: an executor may come back for a while, a client's
    /// subscriptions end.
    pub(super) fn closed(&mut self, connection: ConnectionId) {
        self.unsubscribe(connection);
        match self.fleet.disconnect(connection, self.now) {
            Some((id, true)) => self.lose_executor(id, "it left"),
            Some((id, false)) => self.reclaim_ahead(id),
            None => {}
        }
    }

    /// An executor is out of reach: long tasks that it cannot have begun run elsewhere.
    fn reclaim_ahead(&mut self, id: ExecutorId) {
        for (instance, run) in self.fleet.reclaim_ahead(id, &self.needs, self.now) {
            let Some(tries) = run.counted().lost() else { continue };
            self.cancel_input_transfers(id, instance, &run);
            if self.goes_on_elsewhere(id, instance, &run) {
                continue;
            }
            self.put_back(instance, &run, tries);
            self.unplaced = true;
        }
    }

    /// An executor is given up: its tasks run elsewhere.
    pub(super) fn lose_executor(&mut self, id: ExecutorId, reason: &'static str) {
        let executor = self.remove_executor(id, reason);
        self.fleet.forget(executor.incarnation);
        self.pauses.forget_executor(executor.incarnation);
        self.placement.everywhere_mut().left(executor.incarnation, Some(id));
        self.outputs.executor_gone(executor.incarnation);
        self.journal(Record::ExecutorGone { incarnation: executor.incarnation });
        for ((instance, _), run) in executor.in_flight.into_entries() {
            self.staged.gone(instance, &run);
            self.lose_run(instance, &run, id);
        }
        self.gang_member_lost(id);
        self.unplaced = true;
    }

    /// Takes an executor out of the books, with its tasks still in flight.
    pub(super) fn remove_executor(&mut self, id: ExecutorId, reason: &'static str) -> Departed {
        let executor = self.fleet.remove(id, &self.needs, self.now);
        self.happenings.note(|| What::ExecutorGone { executor: id, why: reason.into() });
        self.collector_gone(id);
        self.unmet.forget_executor(id);
        self.surveys.forget_executor(id, &executor, self.now);
        self.withdrawals.returned(id, true);
        let notices = self.placement.executor_left(id, &self.instances);
        self.notify(notices);
        if let Some(connection) = executor.connection {
            self.outbound.push(Action::Close { connection, reason });
        }
        if let Some((instance, key)) = executor.reserved
            && let Some(instance) = self.instances.find_mut(&instance)
            && let Some(queue) = instance.queues.find_mut(&key)
            && queue.reserved == Some(id)
        {
            queue.reserved = None;
        }
        executor
    }
}
