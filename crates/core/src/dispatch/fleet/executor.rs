//! What a dispatcher knows of an executor: its room, its tasks, its silence.

use super::loads::{Load, Loads};
use crate::data::declared::{CacheRoom, Serving};
use crate::data::stage::CacheState;
use crate::dispatch::instance::QueueKey;
use crate::dispatch::needs::{DataNeed, Need, NeedId, Needs};
use crate::dispatch::queues::Takes;
use crate::dispatch::shelf::Room;
use crate::dispatch::subtree::Subtree;
use crate::dispatch::{BatchId, ConnectionId, Held, Join, Order};
use crate::limits::PREFETCH_TASKS_MAX;
use crate::result::Tries;
use crate::runset::RunSet;
use crate::task::{AllocationId, ExecutorId, InstanceId, Resources, TaskId, Time};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Tasks in a row that an executor was sent and has not answered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dispatch) struct InFlight {
    pub(in crate::dispatch) first: u64,
    pub(in crate::dispatch) count: u64,
    pub(in crate::dispatch) batch: BatchId,
    pub(in crate::dispatch) class: u32,
    pub(in crate::dispatch) need: NeedId,
    /// The tries of these tasks when they were assigned: they name the attempt.
    pub(in crate::dispatch) tries: Tries,
    /// Attempts that began after this one, which had been taken for lost, and
    /// were lost before it came back.
    pub(in crate::dispatch) later: u32,
    pub(in crate::dispatch) dispatched: Time,
    /// What each task counts while it is in flight, see [`crate::dispatch::share`].
    pub(in crate::dispatch) counted_micros: u64,
    /// Bytes of one task's row, rounded up.
    pub(in crate::dispatch) row_bytes: u64,
    /// They have ended and hold nothing; they are reported when what they wrote is
    /// safe.
    pub(in crate::dispatch) is_staged: bool,
}

impl InFlight {
    /// How often the tasks were tried, but for this attempt.
    pub(in crate::dispatch) fn counted(&self) -> Tries {
        Tries { losses: self.tries.losses.saturating_add(self.later), ..self.tries }
    }

    /// What they use of an executor.
    pub(in crate::dispatch) fn used(&self, need: &Need) -> u128 {
        if self.is_staged { 0 } else { need.weight(self.count) }
    }
}

#[derive(Debug)]
pub(in crate::dispatch) struct Executor {
    pub(in crate::dispatch) id: ExecutorId,
    pub(in crate::dispatch) incarnation: u64,
    pub(in crate::dispatch) name: String,
    pub(in crate::dispatch) connection: Option<ConnectionId>,
    pub(in crate::dispatch) capacity: Resources,
    pub(in crate::dispatch) free: Resources,
    pub(in crate::dispatch) in_flight: BTreeMap<(InstanceId, u64), InFlight>,
    pub(in crate::dispatch) in_flight_bytes: u64,
    pub(in crate::dispatch) loads: Loads,
    pub(in crate::dispatch) last_heard: Time,
    /// It has missed heartbeats, and may be out of reach.
    pub(in crate::dispatch) is_missed: bool,
    pub(in crate::dispatch) last_report: Time,
    /// Mean run time of its recent tasks, in microseconds.
    pub(in crate::dispatch) mean_micros: u64,
    /// It gives back what it has not started and takes no more.
    pub(in crate::dispatch) leaving: bool,
    /// A recall is under way.
    pub(in crate::dispatch) recalling: bool,
    /// Tasks were asked back from it, and it has not reported since.
    pub(in crate::dispatch) stalled: bool,
    /// Asked for tasks, it had none to give, and has not reported since.
    pub(in crate::dispatch) spent: bool,
    /// It gave back unstarted what was taken to hold room, and has not
    /// reported since: the room that seems free there is not.
    pub(in crate::dispatch) misjudged: bool,
    /// Tasks in a row that it could not start.
    pub(in crate::dispatch) faults: u32,
    /// Until when it is left alone for that.
    pub(in crate::dispatch) suspended_until: Option<Time>,
    /// It is given no tasks, because somebody wants it so.
    pub(in crate::dispatch) drained: bool,
    /// How often in a row it was suspended.
    pub(in crate::dispatch) suspensions: u32,
    /// It is being emptied for a task that needs much room.
    pub(in crate::dispatch) reserved: Option<(InstanceId, QueueKey)>,
    /// Its place among the available ones.
    pub(in crate::dispatch) turn: Option<u64>,
    /// Its key among those that tasks were sent ahead to.
    pub(in crate::dispatch) prefetched_key: Option<u64>,
    /// Where it serves what it caches.
    pub(in crate::dispatch) serves: Option<Serving>,
    /// What its cache takes.
    pub(in crate::dispatch) room: CacheRoom,
    /// The allocation that it runs in, if a provisioner asked for it.
    pub(in crate::dispatch) allocation: Option<AllocationId>,
    /// When it leaves: no task goes there that is expected to end later.
    pub(in crate::dispatch) leaves_at: Option<Time>,
    /// How its cache stood when it last said so.
    pub(in crate::dispatch) cache: Option<CacheState>,
    /// What is below it, if it is a relay.
    pub(in crate::dispatch) subtree: Option<Box<Subtree>>,
    /// It counts among the nodes that this dispatcher lends.
    pub(in crate::dispatch) is_lent: bool,
    /// It counts among the busy ones.
    pub(in crate::dispatch) is_busy: bool,
    /// Since when it has not, if it does not.
    pub(in crate::dispatch) idle_since: Time,
    /// What it is to be told next.
    pub(in crate::dispatch) order: Order,
    pub(in crate::dispatch) updates_seen: u64,
}

impl Executor {
    /// Where others fetch what it holds, if they can.
    pub(in crate::dispatch) fn listens_at(&self) -> Option<&Serving> {
        self.serves.as_ref().filter(|serves| !serves.address.is_empty())
    }

    /// Whether others can fetch what it holds.
    pub(in crate::dispatch) fn serves_others(&self) -> bool {
        self.listens_at().is_some()
    }

    pub(super) fn new(id: ExecutorId, incarnation: u64, name: String) -> Executor {
        Executor {
            id,
            incarnation,
            name,
            connection: None,
            capacity: Resources::default(),
            free: Resources::default(),
            in_flight: BTreeMap::new(),
            in_flight_bytes: 0,
            loads: Loads::default(),
            last_heard: Time::default(),
            is_missed: false,
            last_report: Time::default(),
            mean_micros: 0,
            leaving: false,
            recalling: false,
            stalled: false,
            spent: false,
            misjudged: false,
            faults: 0,
            suspended_until: None,
            drained: false,
            suspensions: 0,
            reserved: None,
            turn: None,
            prefetched_key: None,
            serves: None,
            room: CacheRoom::default(),
            allocation: None,
            leaves_at: None,
            cache: None,
            subtree: None,
            is_lent: false,
            is_busy: false,
            idle_since: Time::default(),
            order: Order::default(),
            updates_seen: 0,
        }
    }

    /// An executor as it joins over a connection.
    pub(super) fn of(id: ExecutorId, connection: ConnectionId, join: &Join, now: Time) -> Executor {
        Executor {
            connection: Some(connection),
            capacity: join.capacity.clone(),
            free: join.capacity.clone(),
            last_heard: now,
            last_report: now,
            serves: join.serves.clone(),
            room: join.cache,
            allocation: join.lease.allocation,
            leaves_at: join.lease.leaves_in_micros.map(|micros| now.after(micros)),
            idle_since: now,
            ..Executor::new(id, join.incarnation, join.name.clone())
        }
    }

    /// A disconnected executor has less time than a silent one.
    pub(super) fn silence_allowed(&self, connected_micros: u64) -> u64 {
        if self.connection.is_some() {
            connected_micros
        } else {
            crate::limits::RECONNECT_GRACE_MICROS
        }
    }

    pub(in crate::dispatch) fn in_flight_count(&self) -> u64 {
        self.loads.count()
    }

    pub(in crate::dispatch) fn prefetched(&self) -> u64 {
        self.loads.prefetched()
    }

    /// Whether it may be given tasks at all.
    pub(in crate::dispatch) fn takes_tasks(&self) -> bool {
        self.connection.is_some() && !self.leaving && !self.is_missed && !self.is_left_alone()
    }

    /// Whether it is given no tasks although it is there.
    pub(in crate::dispatch) fn is_left_alone(&self) -> bool {
        self.drained || self.suspended_until.is_some()
    }

    /// What each node there offers: its own capacity, or a relay's classes.
    pub(in crate::dispatch) fn node_capacities(&self) -> impl Iterator<Item = &Resources> {
        let own = self.subtree.is_none().then_some(&self.capacity);
        let below = self.subtree.iter().flat_map(|subtree| &subtree.nodes);
        own.into_iter().chain(below.map(|class| &class.capacity))
    }

    /// How many nodes there are that offer this, free or not, to tasks whose data ask so
    /// much: itself, or those below a relay. What a relay lends is not known when it joins.
    pub(in crate::dispatch) fn nodes_offering(&self, offering: &Resources, data: DataNeed) -> u64 {
        match &self.subtree {
            None if self.capacity == Resources::default() => 0,
            None => u64::from(self.capacity.fits(offering)),
            Some(_) if data > DataNeed::Stored => 0,
            Some(subtree) => subtree.nodes_offering(offering, data > DataNeed::None),
        }
    }

    /// Whether tasks of this need could ever run there.
    pub(in crate::dispatch) fn offers(&self, need: &Need) -> bool {
        let fits = match &self.subtree {
            None => self.capacity.fits(&need.resources),
            Some(subtree) => subtree.fits(&need.resources, need.data > DataNeed::None),
        };
        fits && need.data <= self.data_offer()
    }

    /// The most that the data of tasks there may ask.
    pub(in crate::dispatch) fn data_offer(&self) -> DataNeed {
        match &self.subtree {
            Some(subtree) if subtree.has_cache() => DataNeed::Stored,
            None if self.serves.is_some() => DataNeed::Cached,
            _ => DataNeed::None,
        }
    }

    /// Whether it may be given a task of a need now: its room is free, it is not
    /// being emptied for another queue, and the task would end before it leaves.
    pub(in crate::dispatch) fn has_room_for(
        &self,
        need: &Need,
        now: Time,
        lasts_micros: u64,
    ) -> bool {
        self.reserved.is_none() && self.has_free(need, now, lasts_micros)
    }

    /// The same, whether it is being emptied or not.
    pub(in crate::dispatch) fn has_free(&self, need: &Need, now: Time, lasts_micros: u64) -> bool {
        self.takes_tasks()
            && (self.in_flight.is_empty() || !self.misjudged)
            && self.offers(need)
            && self.outlasts(now, lasts_micros)
            && self.free.count_of(&need.resources, 1) > 0
    }

    /// Room of the executor, for a search among queues. `wide` has those found as
    /// well of which no task fits its free room.
    pub(in crate::dispatch) fn takes(&self, wide: bool) -> Takes<'_> {
        let data = self.data_offer();
        let instant = self.loads.prefetched() * 2 <= PREFETCH_TASKS_MAX;
        Takes {
            free: Room { resources: &self.free, data },
            capacity: Room { resources: &self.capacity, data },
            instant: wide || instant,
            wide,
        }
    }

    /// How many tasks of a need run side by side there.
    pub(in crate::dispatch) fn slots_for(&self, need: &Need) -> u64 {
        match &self.subtree {
            None => self.capacity.count_of(&need.resources, PREFETCH_TASKS_MAX),
            Some(subtree) => {
                let caches = need.data > DataNeed::None;
                subtree.count_of(&need.resources, caches, PREFETCH_TASKS_MAX)
            }
        }
    }

    /// Whether a task that its user expects to take so long ends before the
    /// executor leaves; 0 is unknown, and goes anywhere.
    pub(in crate::dispatch) fn outlasts(&self, now: Time, estimate_micros: u64) -> bool {
        estimate_micros == 0
            || self.leaves_at.is_none_or(|leaves| now.after(estimate_micros) <= leaves)
    }

    /// Counts tasks as sent: as many as fit hold their resources. The others
    /// keep the executor busy for `each_nanos` each, as far as is known.
    pub(super) fn add(
        &mut self,
        instance: InstanceId,
        run: InFlight,
        needs: &Needs,
        each_nanos: u64,
    ) {
        let need = &needs[run.need];
        let holding = if run.is_staged { 0 } else { run.count };
        let slots = if need.instant { 0 } else { self.free.count_of(&need.resources, holding) };
        self.free.take(&need.resources, slots);
        self.loads.change(needs, run.need, |load| {
            load.instant = need.instant;
            load.each_nanos = each_nanos;
            load.slotted += slots;
            load.prefetched += holding - slots;
            load.staged += run.count - holding;
        });
        self.in_flight_bytes += run.row_bytes * run.count;
        self.in_flight.insert((instance, run.first), run);
    }

    /// It is a relay, and this is below it: its tasks take their room anew.
    pub(super) fn resize(&mut self, subtree: Subtree, needs: &Needs) {
        self.capacity = subtree.total();
        self.free = self.capacity.clone();
        self.subtree = Some(Box::new(subtree));
        self.in_flight_bytes = 0;
        let loads = std::mem::take(&mut self.loads);
        for ((instance, _), run) in std::mem::take(&mut self.in_flight) {
            let each_nanos = loads.of(run.need).each_nanos;
            self.add(instance, run, needs, each_nanos);
        }
    }

    /// Takes out what is in flight of `held`, if the attempt is the same.
    pub(super) fn take(&mut self, held: &Held) -> Vec<InFlight> {
        let mut taken = Vec::new();
        self.take_into(held, &mut taken);
        taken
    }

    /// As [`Executor::take`], into a list whose memory is used again.
    pub(super) fn take_into(&mut self, held: &Held, taken: &mut Vec<InFlight>) {
        let (first, end) = (held.first.0, held.first.0.saturating_add(held.count));
        let mut at = first;
        while let Some(run) = in_flight_from(&self.in_flight, held.instance, at, end) {
            let run_end = run.first + run.count;
            let (from, until) = (run.first.max(first), run_end.min(end));
            at = until;
            if run.tries != held.tries || from >= until {
                continue;
            }
            let key = (held.instance, run.first);
            // What is left goes in before the rest goes out: an executor's
            // last run need not give up its place in memory for each task.
            if until < run_end {
                let right = InFlight { first: until, count: run_end - until, ..run };
                self.in_flight.insert((held.instance, until), right);
            }
            if run.first < from {
                if let Some(left) = self.in_flight.get_mut(&key) {
                    left.count = from - run.first;
                }
            } else {
                self.in_flight.remove(&key);
            }
            self.in_flight_bytes -= run.row_bytes * (until - from);
            taken.push(InFlight { first: from, count: until - from, ..run });
        }
    }

    /// Tasks of `held` hold nothing any more. Returns those that did before.
    pub(super) fn stage(&mut self, needs: &Needs, held: &Held) -> Vec<InFlight> {
        let mut staged = Vec::new();
        for run in self.take(held) {
            if !run.is_staged {
                self.release(needs, &run, false);
                self.loads.change(needs, run.need, |load| load.staged += run.count);
                staged.push(run);
            }
            self.in_flight_bytes += run.row_bytes * run.count;
            let run = InFlight { is_staged: true, ..run };
            self.in_flight.insert((held.instance, run.first), run);
        }
        staged
    }

    /// Gives back the room of the tasks of a run that ended (or, if `unstarted`,
    /// were given back); prefetched tasks move up. Returns how many held room.
    pub(super) fn release(&mut self, needs: &Needs, run: &InFlight, unstarted: bool) -> u64 {
        let InFlight { need, count, .. } = *run;
        if self.loads.of(need) == Load::default() {
            debug_assert!(false, "an executor gives back what it has");
            return 0;
        }
        if run.is_staged {
            self.loads.change(needs, need, |load| load.staged -= count);
            return 0;
        }
        let resources = &needs[need].resources;
        let mut freed = 0;
        self.loads.change(needs, need, |load| {
            freed = match unstarted {
                true => count - count.min(load.prefetched),
                false => count.min(load.slotted),
            };
            load.slotted -= freed;
            load.prefetched -= count - freed;
        });
        self.free.give(resources, freed);
        self.loads.move_up(needs, &mut self.free);
        freed
    }

    /// Orders that what it has of `wanted` be stopped. Returns how many tasks that
    /// are.
    pub(super) fn cancel(&mut self, instance: InstanceId, wanted: &RunSet) -> u64 {
        let mut stopped = 0;
        let mut stop = |first: u64, count: u64, tries: Tries| {
            self.order.cancel.push(Held { instance, first: TaskId(first), count, tries });
            stopped += count;
        };
        if wanted.run_count() > self.in_flight.len() {
            for (_, run) in self.in_flight.range((instance, 0)..=(instance, u64::MAX)) {
                for (first, count) in wanted.within(run.first, run.count) {
                    stop(first, count, run.tries);
                }
            }
            return stopped;
        }
        for (first, count) in wanted.iter() {
            let (mut at, end) = (first, first.saturating_add(count));
            while let Some(run) = in_flight_from(&self.in_flight, instance, at, end) {
                let until = (run.first + run.count).min(end);
                let from = run.first.max(at);
                stop(from, until - from, run.tries);
                at = until;
            }
        }
        stopped
    }

    /// The instances whose tasks it has.
    pub(in crate::dispatch) fn instances(&self) -> Vec<InstanceId> {
        let mut instances: Vec<InstanceId> = Vec::new();
        loop {
            let after = match instances.last() {
                None => Bound::Unbounded,
                Some(last) => Bound::Excluded((*last, u64::MAX)),
            };
            let next = self.in_flight.range((after, Bound::Unbounded)).next();
            let Some(((instance, _), _)) = next else { return instances };
            instances.push(*instance);
        }
    }

    /// Tasks of one instance in flight, as an executor would name them.
    pub(in crate::dispatch) fn held_of(&self, instance: InstanceId) -> Vec<Held> {
        let runs = self.in_flight.range((instance, 0)..=(instance, u64::MAX));
        let held = runs.map(|(_, run)| {
            let (first, count, tries) = (TaskId(run.first), run.count, run.tries);
            Held { instance, first, count, tries }
        });
        held.collect()
    }

    /// Everything in flight, as an executor would name it.
    pub(in crate::dispatch) fn held(&self) -> impl Iterator<Item = Held> + '_ {
        self.in_flight.iter().map(|((instance, first), run)| Held {
            instance: *instance,
            first: TaskId(*first),
            count: run.count,
            tries: run.tries,
        })
    }
}

/// The first run in flight with tasks at or after `at` and before `end`.
pub(in crate::dispatch) fn in_flight_from(
    in_flight: &BTreeMap<(InstanceId, u64), InFlight>,
    instance: InstanceId,
    at: u64,
    end: u64,
) -> Option<InFlight> {
    if at >= end {
        return None;
    }
    let covering = in_flight
        .range((instance, 0)..=(instance, at))
        .next_back()
        .filter(|(_, run)| run.first + run.count > at);
    let next = || in_flight.range((instance, at)..(instance, end)).next();
    covering.or_else(next).map(|(_, run)| *run)
}
