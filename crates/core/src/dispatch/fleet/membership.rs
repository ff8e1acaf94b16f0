//! How executors join, send heartbeats and leave.

use super::Fleet;
use super::executor::{Executor, InFlight, InFlights};
use crate::data::stage::CacheState;
use crate::dispatch::instance::QueueKey;
use crate::dispatch::needs::{NeedId, Needs};
use crate::dispatch::{ConnectionId, Join, Update};
use crate::gang::GangKey;
use crate::limits::{HEARTBEAT_MISSED_MICROS, RECONNECT_GRACE_MICROS, RELAY_SPENT_MICROS};
use crate::task::{ExecutorId, InstanceId, Resources, Time};
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
    pub(in crate::dispatch) name: String,
    /// When it was last heard.
    pub(in crate::dispatch) heard: Time,
    /// It had been asked to leave, or had said that it does.
    pub(in crate::dispatch) was_leaving: bool,
    pub(in crate::dispatch) connection: Option<ConnectionId>,
    /// The queue that it was being emptied for.
    pub(in crate::dispatch) reserved: Option<(InstanceId, QueueKey)>,
    /// The tasks that it had.
    pub(in crate::dispatch) in_flight: InFlights,
    /// How long those of each need run, as far as is known.
    run_micros: BTreeMap<NeedId, u64>,
    /// What gangs held of its room.
    pub(in crate::dispatch) gangs: BTreeMap<GangKey, Resources>,
    /// It was a relay: what it had staged may have been lost below it since.
    is_relay: bool,
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
    /// number before. Returns what counts as staged no longer, until it says so again.
    pub(in crate::dispatch) fn admit(
        &mut self,
        id: ExecutorId,
        connection: ConnectionId,
        join: &Join,
        before: Option<Departed>,
        (needs, now): (&Needs, Time),
    ) -> Vec<(InstanceId, InFlight)> {
        let mut executor = Executor::of(id, connection, join, now);
        let mut unstaged = Vec::new();
        if let Some(before) = before {
            executor.idle_since = before.idle_since.unwrap_or(now);
            // What gangs hold was not taken by what was sent ahead.
            for (key, resources) in before.gangs {
                if executor.free.fits(&resources) {
                    executor.take_for_gang(key, &resources);
                }
            }
            for ((instance, _), run) in before.in_flight.into_entries() {
                let is_staged = run.is_staged && !before.is_relay;
                let now = InFlight { is_staged, ..run };
                if run.is_staged != is_staged {
                    unstaged.push((instance, now));
                }
                let run_micros = before.run_micros.get(&now.need).copied().unwrap_or(0);
                executor.add_anew(instance, now, needs, run_micros);
            }
        }
        self.knows_leases |= executor.leaves_at.is_some();
        self.roster.insert(executor);
        self.silence.insert((now.after(HEARTBEAT_MISSED_MICROS), id));
        // The answer to its registration acknowledges its reports.
        self.orders.send(id);
        self.new_room.insert(id);
        self.tell_pulse(id, now);
        unstaged
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
            executor.spent_at = update.returned.is_empty().then_some(now);
        } else if has_reports && !executor.recalling {
            executor.stalled = false;
        }
        executor.leaving |= update.leaving;
        if has_reports {
            executor.misjudged = false;
            executor.spent_at = None;
            executor.last_report = now;
        }
        let asked_again = executor.spent_at.filter(|_| executor.subtree.is_some());
        if let Some(at) = asked_again.map(|at| at.after(RELAY_SPENT_MICROS)) {
            self.check_recall_at(at);
        }
        let executor = &self.roster[id];
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
        self.tell_pulse(id, now);
    }

    /// Tells an executor how far apart its heartbeats are to be, if that has changed with the
    /// number of executors.
    fn tell_pulse(&mut self, id: ExecutorId, now: Time) {
        let count = self.roster.len() as u64;
        let executor = &mut self.roster[id];
        let pulse = executor.pulse.next(count);
        if executor.pulse != pulse {
            executor.pulse = pulse;
            executor.order.edit().heartbeat_micros = pulse.micros();
            self.orders.send_later(id, now);
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
        executor.order.edit().leave = true;
        self.orders.send(id);
        self.list(id, now);
        true
    }

    /// A connection is gone. Returns its executor, and whether that has left; any other
    /// may come back for a while.
    pub(in crate::dispatch) fn disconnect(
        &mut self,
        connection: ConnectionId,
        now: Time,
    ) -> Option<(ExecutorId, bool)> {
        let id = self.registry.disconnect(connection)?;
        let executor = &mut self.roster[id];
        executor.connection = None;
        executor.last_heard = now;
        if executor.leaving && executor.has_nothing() {
            return Some((id, true));
        }
        self.list(id, now);
        self.silence.insert((now.after(RECONNECT_GRACE_MICROS), id));
        Some((id, false))
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
            let allowed = executor.silence_allowed();
            let until = executor.last_heard.after(allowed);
            if until <= now {
                return Some(id);
            }
            let missed = executor.last_heard.after(executor.pulse.missed_micros());
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
    pub(in crate::dispatch) fn remove(
        &mut self,
        id: ExecutorId,
        needs: &Needs,
        now: Time,
    ) -> Departed {
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
        self.kept.remove(&id);
        let run_micros = executor.all_run_micros(needs);
        Departed {
            incarnation: executor.incarnation,
            name: executor.name,
            heard: executor.last_heard,
            was_leaving: executor.leaving,
            connection: executor.connection,
            reserved: executor.reserved,
            run_micros,
            in_flight: executor.in_flight,
            gangs: executor.gangs,
            is_relay: executor.subtree.is_some(),
            idle_since: (!executor.is_busy).then_some(executor.idle_since),
        }
    }

    /// An incarnation does not come back.
    pub(in crate::dispatch) fn forget(&mut self, incarnation: u64) {
        self.registry.forget(incarnation);
    }
}
