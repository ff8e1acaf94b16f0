//! The executors: who is registered, what room each has, and which of them are
//! to be looked at next.
//!
//! The rest of the dispatcher reads executors and never changes one. Each
//! change is a method here, which also keeps the lists that the executor
//! stands in. An id of an executor is one that the dispatcher issued and that is
//! forgotten everywhere when the executor goes: `fleet[id]` panics where that
//! does not hold. Only timers and ids from outside may be stale.

mod check;
mod classes;
mod drain;
mod executor;
mod loads;
mod membership;
mod names;
mod orders;
mod recall;
mod reclaim;
mod registry;
mod roster;
mod suspend;
mod tasks;
pub(super) mod wide;

use super::ConnectionId;
use super::Held;
use super::instance::QueueKey;
use super::needs::Needs;
use crate::result::Finished;
use crate::task::{ExecutorId, InstanceId, Time};
use classes::Classes;
use names::Names;
use orders::Orders;
use registry::Registry;
use roster::Roster;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Index;

pub(super) use executor::{Executor, InFlight, nanos_of};
pub(super) use membership::{Departed, Registered};
pub(super) use orders::Outgoing;
pub(super) use tasks::Serving;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Fleet {
    roster: Roster,
    registry: Registry,
    /// Names of executors that results refer to, those gone included.
    names: Names,
    /// Executors with free room, the one free longest first.
    available: BTreeMap<u64, ExecutorId>,
    next_turn: u64,
    /// Executors that gained room since they were last given tasks.
    new_room: BTreeSet<ExecutorId>,
    /// The executor that is being given tasks, until it is listed again.
    served: Option<ExecutorId>,
    /// Executors with tasks prefetched, fewest first.
    prefetched: BTreeSet<(u64, ExecutorId)>,
    /// Executors that are being emptied for a task that needs much room.
    reserved: BTreeSet<ExecutorId>,
    /// Executors whose room is kept for a gang.
    kept: BTreeSet<ExecutorId>,
    /// Among the available executors, where to look next for room for
    /// prefetched tasks.
    recall_turn: u64,
    recall_check: Option<Time>,
    /// When each executor's silence is next looked at.
    silence: BTreeSet<(Time, ExecutorId)>,
    /// Executors that are left alone, and until when.
    suspended: BTreeSet<(Time, ExecutorId)>,
    orders: Orders,
    classes: Classes,
    busy: Busy,
    /// Some executors have had a time after which they leave.
    knows_leases: bool,
    /// Room to work in, used again for each report.
    scratch: Vec<InFlight>,
}

/// How many executors have tasks, and for how long executors have had any.
#[derive(Debug, Default)]
struct Busy {
    executors: u64,
    /// The sum over all executors, up to `upto`.
    micros: u64,
    upto: Time,
}

impl Busy {
    /// Counts the time until now.
    fn count(&mut self, now: Time) {
        let micros = now.since(self.upto).saturating_mul(self.executors);
        self.micros = self.micros.saturating_add(micros);
        self.upto = now;
    }

    /// Counts an executor among the busy ones, or not.
    fn change(&mut self, executor: &mut Executor, is_busy: bool, now: Time) {
        if is_busy != std::mem::replace(&mut executor.is_busy, is_busy) {
            self.count(now);
            self.executors = if is_busy { self.executors + 1 } else { self.executors - 1 };
            executor.idle_since = now;
        }
    }
}

impl Index<ExecutorId> for Fleet {
    type Output = Executor;

    /// # Panics
    /// No such executor is registered.
    fn index(&self, id: ExecutorId) -> &Executor {
        &self.roster[id]
    }
}

// Who is there.
impl Fleet {
    pub(super) fn contains(&self, id: ExecutorId) -> bool {
        self.roster.contains_key(&id)
    }

    /// All executors, in the order of their registration.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Executor> {
        self.roster.values()
    }

    /// The executors registered after `id`, or all.
    pub(super) fn after(&self, id: Option<ExecutorId>) -> impl Iterator<Item = &Executor> {
        self.roster.after(id)
    }

    pub(super) fn len(&self) -> usize {
        self.roster.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.roster.is_empty()
    }

    /// The CPUs of all executors, in thousandths.
    pub(super) fn cpus_milli(&self) -> u128 {
        self.roster.cpus_milli()
    }

    /// How many executors are connected.
    pub(super) fn connected(&self) -> u64 {
        self.registry.connected()
    }

    /// The executor of a connection.
    pub(super) fn of_connection(&self, connection: ConnectionId) -> Option<ExecutorId> {
        self.registry.of(connection)
    }

    /// The executor of an incarnation.
    pub(super) fn of_incarnation(&self, incarnation: u64) -> Option<ExecutorId> {
        self.registry.of_incarnation(incarnation)
    }

    /// The number that was given last.
    pub(super) fn last_number(&self) -> Option<ExecutorId> {
        self.registry.last()
    }

    /// How many executors have tasks.
    pub(super) fn busy(&self) -> u64 {
        self.busy.executors
    }

    /// For how long executors have had tasks until now, in microseconds.
    pub(super) fn busy_micros(&mut self, now: Time) -> u64 {
        self.busy.count(now);
        self.busy.micros
    }

    /// Whether some executors have had a time after which they leave.
    pub(super) fn knows_leases(&self) -> bool {
        self.knows_leases
    }
}

// What executors are called.
impl Fleet {
    /// The name of an executor, also of one that is gone while results name it.
    pub(super) fn name(&self, id: ExecutorId) -> Option<&String> {
        self.names.find(id)
    }

    pub(super) fn names_len(&self) -> usize {
        self.names.len()
    }

    /// Names of the executors in these results.
    pub(super) fn names_in(&self, results: &[Finished]) -> Vec<(ExecutorId, String)> {
        self.names.in_results(results)
    }

    /// Whether so many names have come that it is time to forget some.
    pub(super) fn has_many_names(&self) -> bool {
        self.names.is_due()
    }

    /// Forgets the names of executors that are gone, but for those needed.
    pub(super) fn forget_names(&mut self, is_needed: impl Fn(ExecutorId) -> bool) {
        let roster = &self.roster;
        self.names.retain(|id| roster.contains_key(&id) || is_needed(id));
    }
}

// Who has room.
impl Fleet {
    /// Whether some executors gained room since they were last given tasks.
    pub(super) fn has_new_room(&self) -> bool {
        !self.new_room.is_empty()
    }

    /// Has an executor looked at anew when tasks are placed.
    pub(super) fn gain_room(&mut self, id: ExecutorId) {
        debug_assert!(self.contains(id), "executor {id} is gone and gains room");
        self.new_room.insert(id);
    }

    /// An executor that gained room, to be given tasks and then
    /// [listed](Fleet::list).
    pub(super) fn take_new_room(&mut self, now: Time) -> Option<ExecutorId> {
        debug_assert!(self.served.is_none(), "executor {:?} is not listed", self.served);
        let id = self.new_room.pop_first()?;
        self.served = Some(id);
        self.count_busy(id, now);
        Some(id)
    }

    /// The available executor with the first turn from `turn` on, with its turn.
    pub(super) fn next_available(&self, turn: u64) -> Option<(u64, ExecutorId)> {
        debug_assert!(self.served.is_none(), "executor {:?} is not listed", self.served);
        self.available.range(turn..).next().map(|(turn, id)| (*turn, *id))
    }

    /// The next executor after `id` that takes tasks and has no processor free.
    pub(super) fn next_full(&self, id: Option<ExecutorId>) -> Option<ExecutorId> {
        debug_assert!(self.served.is_none(), "executor {:?} is not listed", self.served);
        let mut next = self.roster.after(id);
        next.find(|executor| executor.turn.is_none() && executor.takes_tasks())
            .map(|executor| executor.id)
    }

    /// The available executors, the one free longest first.
    pub(super) fn available(&self) -> impl Iterator<Item = ExecutorId> {
        debug_assert!(self.served.is_none(), "executor {:?} is not listed", self.served);
        self.available.values().copied()
    }

    pub(super) fn has_available(&self) -> bool {
        !self.available.is_empty()
    }

    /// Puts an executor where it belongs: among the available ones, the
    /// busy ones, and those with tasks prefetched.
    pub(super) fn list(&mut self, id: ExecutorId, now: Time) {
        self.served.take_if(|served| *served == id);
        self.count_busy(id, now);
        let executor = &mut self.roster[id];
        let is_lent = !executor.leaving && !executor.is_left_alone();
        self.classes.count(executor, is_lent);
        let is_available = executor.takes_tasks()
            && (executor.free.cpus_milli > 0 || executor.capacity.cpus_milli == 0);
        match executor.turn {
            None if is_available => {
                executor.turn = Some(self.next_turn);
                self.available.insert(self.next_turn, id);
                self.next_turn += 1;
            }
            Some(turn) if !is_available => {
                executor.turn = None;
                self.available.remove(&turn);
            }
            _ => {}
        }
        let waiting = executor.loads.waiting();
        let key = (waiting > 0 && executor.takes_tasks()).then_some(waiting);
        if key != executor.prefetched_key {
            if let Some(old) = executor.prefetched_key {
                self.prefetched.remove(&(old, id));
            }
            if let Some(new) = key {
                self.prefetched.insert((new, id));
            }
            executor.prefetched_key = key;
        }
    }

    fn count_busy(&mut self, id: ExecutorId, now: Time) {
        let executor = &mut self.roster[id];
        let is_busy = !executor.has_nothing();
        self.busy.change(executor, is_busy, now);
    }
}

// Executors that are emptied for a task that needs much room.
impl Fleet {
    /// Takes a task from an executor that has it, and is to forget it.
    pub(super) fn take_lost(
        &mut self,
        id: ExecutorId,
        held: &Held,
        needs: &Needs,
        now: Time,
    ) -> Vec<InFlight> {
        let executor = &mut self.roster[id];
        let taken = executor.take(held);
        for run in &taken {
            executor.release(needs, run, true);
        }
        executor.order.edit().disown.push(*held);
        self.orders.send(id);
        self.new_room.insert(id);
        self.list(id, now);
        taken
    }

    /// Empties an executor for a queue, and for no other.
    pub(super) fn reserve(&mut self, id: ExecutorId, queue: (InstanceId, QueueKey)) {
        self.roster[id].reserved = Some(queue);
        self.reserved.insert(id);
    }

    /// An executor is emptied no more.
    pub(super) fn end_reservation(&mut self, id: ExecutorId) {
        self.roster[id].reserved = None;
        self.reserved.remove(&id);
    }

    pub(super) fn end_reservations(&mut self) {
        for id in std::mem::take(&mut self.reserved) {
            self.roster[id].reserved = None;
        }
    }

    /// The executors that are being emptied, each with the queue.
    pub(super) fn reservations(&self) -> impl Iterator<Item = (&Executor, (InstanceId, QueueKey))> {
        let reserved = self.reserved.iter().map(|id| &self.roster[*id]);
        reserved.filter_map(|executor| Some((executor, executor.reserved?)))
    }
}

// What is due.
impl Fleet {
    /// When something is due, and what.
    pub(super) fn next_timeout(&self) -> Option<(Time, &'static str)> {
        let silence = self.silence.first().map(|(at, _)| (*at, "executor silence"));
        let suspension = self.suspended.first().map(|(at, _)| (*at, "suspension"));
        let recall = self.recall_check.map(|at| (at, "recall"));
        let news = self.orders.due().map(|at| (at, "news for executors"));
        [silence, suspension, recall, news].into_iter().flatten().min()
    }
}
