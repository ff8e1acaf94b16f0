//! How executors join, send heartbeats and leave.

use super::Fleet;
use super::executor::{Executor, InFlight};
use crate::data::stage::CacheState;
use crate::dispatch::instance::QueueKey;
use crate::dispatch::needs::Needs;
use crate::dispatch::{ConnectionId, Join, Update};
use crate::limits::{HEARTBEAT_LOST_MICROS, HEARTBEAT_MISSED_MICROS, RECONNECT_GRACE_MICROS};
use crate::task::{ExecutorId, InstanceId, Time};
use std::collections::BTreeMap;

/// A number that an executor got.
#[derive(Debug, Clone, Copy)]
pub(in crate::dispatch) struct Registered {
    pub(in crate::dispatch) id: ExecutorId,
    /// The number under which the same process was registered until now.
    pub(in crate::dispatch) before: Option<ExecutorId>,
}

/// An executor that is registered no more.
#[derive(Debug)]
pub(in crate::dispatch) struct Departed {
    pub(in crate::dispatch) incarnation: u64,
    pub(in crate::dispatch) connection: Option<ConnectionId>,
    /// The queue that it was being emptied for.
    pub(in crate::dispatch) reserved: Option<(InstanceId, QueueKey)>,
    /// The tasks that it had.
    pub(in crate::dispatch) in_flight: BTreeMap<(InstanceId, u64), InFlight>,
    /// Since when it had none.
    idle_since: Option<Time>,
}

impl Fleet {
    /// Gives an executor that joins a number.
    pub(in crate::dispatch) fn register(
        &mut self,
        connection: ConnectionId,
        join: &Join,
    ) -> Registered {
        let (id, before) = self.registry.register(connection, join.incarnation);
        self.names.insert(id, join.name.clone());
        Registered { id, before }
    }

    /// A journal says that an executor was there before a restart.
    pub(in crate::dispatch) fn recover(&mut self, id: ExecutorId, name: String) {
        self.registry.recover(id);
        self.names.insert(id, name);
    }

    /// Takes in an executor that was registered, with what it had under its
    /// number before.
    pub(in crate::dispatch) fn admit(
        &mut self,
        id: ExecutorId,
        connection: ConnectionId,
        join: &Join,
        before: Option<Departed>,
        (needs, now): (&Needs, Time),
    ) {
        let mut executor = Executor::of(id, connection, join, now);
        if let Some(before) = before {
            executor.idle_since = before.idle_since.unwrap_or(now);
            for ((instance, _), run) in before.in_flight {
                executor.add(instance, run, needs, 0);
            }
        }
        self.knows_leases |= executor.leaves_at.is_some();
        self.roster.insert(executor);
        self.silence.insert((now.after(HEARTBEAT_MISSED_MICROS), id));
        // The answer to its registration acknowledges its reports.
        self.orders.send(id);
        self.new_room.insert(id);
    }

    /// An executor speaks: notes what its update says of itself, acknowledges it,
    /// and has it looked at for tasks if it has gained room.
    pub(in crate::dispatch) fn hear(&mut self, id: ExecutorId, update: &Update, now: Time) {
        let executor = &mut self.roster[id];
        let has_reports = !update.reports.is_empty() || !update.staged.is_empty();
        executor.last_heard = now;
        let was_missed = std::mem::take(&mut executor.is_missed);
        executor.updates_seen = update.number;
        if update.recalled {
            executor.recalling = false;
            executor.spent = update.returned.is_empty();
        } else if has_reports && !executor.recalling {
            executor.stalled = false;
        }
        executor.leaving |= update.leaving;
        if has_reports {
            executor.misjudged = false;
            executor.spent = false;
            executor.last_report = now;
        }
        // With the next order or, without one, after a moment, as it waits for
        // nothing. One that leaves waits for this.
        if executor.leaving {
            if has_reports || self.orders.is_later(id) {
                self.orders.send(id);
            }
        } else if has_reports {
            self.orders.send_later(id, now);
        }
        if has_reports || !update.returned.is_empty() || update.leaving || was_missed {
            // It is listed once it has been given what it has room for: most
            // often that is where it was before.
            self.new_room.insert(id);
        } else {
            self.list(id, now);
        }
    }

    /// An executor has said how its cache stands.
    pub(in crate::dispatch) fn note_cache(&mut self, id: ExecutorId, state: CacheState) {
        self.roster[id].cache = Some(state);
    }

    /// An executor takes no more tasks, and leaves when those it has ended.
    /// Returns whether it is there.
    pub(in crate::dispatch) fn release(&mut self, id: ExecutorId, now: Time) -> bool {
        let Some(executor) = self.roster.find_mut(&id) else { return false };
        executor.leaving = true;
        executor.order.leave = true;
        self.orders.send(id);
        self.list(id, now);
        true
    }

    /// A connection is gone. Returns its executor if that has left; any other
    /// may come back for a while.
    pub(in crate::dispatch) fn disconnect(
        &mut self,
        connection: ConnectionId,
        now: Time,
    ) -> Option<ExecutorId> {
        let id = self.registry.disconnect(connection)?;
        let executor = &mut self.roster[id];
        executor.connection = None;
        executor.last_heard = now;
        if executor.leaving && executor.in_flight.is_empty() {
            return Some(id);
        }
        self.list(id, now);
        self.silence.insert((now.after(RECONNECT_GRACE_MICROS), id));
        None
    }

    /// An executor that has been silent for too long. Those that are silent for
    /// less, but have missed heartbeats, are given no more tasks.
    pub(in crate::dispatch) fn due_silent(&mut self, now: Time) -> Option<ExecutorId> {
        while let Some(&(at, id)) = self.silence.first() {
            if at > now {
                return None;
            }
            self.silence.remove(&(at, id));
            let Some(executor) = self.roster.find_mut(&id) else { continue };
            let allowed = executor.silence_allowed(HEARTBEAT_LOST_MICROS);
            let until = executor.last_heard.after(allowed);
            if until <= now {
                return Some(id);
            }
            let missed = executor.last_heard.after(HEARTBEAT_MISSED_MICROS);
            if executor.connection.is_some() && missed > now {
                self.silence.insert((missed, id));
                continue;
            }
            self.silence.insert((until, id));
            executor.is_missed = true;
            self.list(id, now);
        }
        None
    }

    /// Takes an executor out of the books.
    ///
    /// # Panics
    /// It is not registered.
    pub(in crate::dispatch) fn remove(&mut self, id: ExecutorId, now: Time) -> Departed {
        let executor = self.roster.remove(&id);
        let mut executor = executor.unwrap_or_else(|| panic!("executor {id} is not registered"));
        self.classes.count(&mut executor, false);
        self.classes.remove_relays(&executor);
        self.busy.count(now);
        self.busy.executors -= u64::from(executor.is_busy);
        if let Some(connection) = executor.connection {
            self.registry.disconnect(connection);
        }
        if let Some(turn) = executor.turn {
            self.available.remove(&turn);
        }
        if let Some(key) = executor.prefetched_key {
            self.prefetched.remove(&(key, id));
        }
        self.orders.remove(id);
        self.new_room.remove(&id);
        self.reserved.remove(&id);
        Departed {
            incarnation: executor.incarnation,
            connection: executor.connection,
            reserved: executor.reserved,
            in_flight: executor.in_flight,
            idle_since: (!executor.is_busy).then_some(executor.idle_since),
        }
    }

    /// An incarnation does not come back.
    pub(in crate::dispatch) fn forget(&mut self, incarnation: u64) {
        self.registry.forget(incarnation);
    }
}
