//! What a dispatcher knows of an executor: its room, its tasks, its silence.

use super::loads::{Load, Loads};
use super::orders::Draft;
use crate::data::declared::{CacheRoom, Serving};
use crate::data::stage::CacheState;
use crate::dispatch::alternatives::Chosen;
use crate::dispatch::instance::QueueKey;
use crate::dispatch::needs::{DataNeed, Need, NeedId, Needs};
use crate::dispatch::queues::Takes;
use crate::dispatch::shelf::Room;
use crate::dispatch::subtree::Subtree;
use crate::dispatch::{BatchId, ConnectionId, Held, Join};
use crate::few::FewOrMany;
use crate::gang::GangKey;
use crate::heartbeats::Pulse;
use crate::limits::{
    PREFETCH_TASK_MICROS_MAX, PREFETCH_TASKS_MAX, RELAY_PREFETCH_TASK_MICROS_MAX,
    RELAY_PREFETCH_TASKS_MAX, RELAY_RUNS_MAX, RELAY_SPENT_MICROS, RUN_MICROS_MAX,
};
use crate::result::Tries;
use crate::runset::RunSet;
use crate::task::{AllocationId, ExecutorId, InstanceId, Resources, TaskId, Time};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The tasks that one executor has, as runs by the instance and number of their first task. A
/// relay has very many, most executors one or two.
pub(in crate::dispatch) type InFlights = FewOrMany<(InstanceId, u64), InFlight>;

/// Tasks in a row that an executor was sent and has not answered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dispatch) struct InFlight {
    pub(in crate::dispatch) first: u64,
    pub(in crate::dispatch) count: u64,
    pub(in crate::dispatch) batch: BatchId,
    pub(in crate::dispatch) class: u32,
    pub(in crate::dispatch) need: NeedId,
    /// The number of that alternative of their class, from 1; 0 if it has one alone.
    pub(in crate::dispatch) alternative: u32,
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
    /// They run on several executors each, of which this is the first: the gang has their
    /// room.
    pub(in crate::dispatch) is_gang: bool,
    /// Each is for one executor below a relay and waits for room there: they hold none
    /// of the relay's.
    pub(in crate::dispatch) is_below: bool,
}

impl InFlight {
    /// The need that they were sent with.
    pub(in crate::dispatch) fn chosen(&self) -> Chosen {
        Chosen { need: self.need, alternative: self.alternative }
    }

    /// How often the tasks were tried, but for this attempt.
    pub(in crate::dispatch) fn counted(&self) -> Tries {
        Tries { losses: self.tries.losses.saturating_add(self.later), ..self.tries }
    }

    /// What they use of an executor.
    pub(in crate::dispatch) fn used(&self, need: &Need) -> u128 {
        let is_using = self.holds_room() || (self.is_gang && !self.is_staged);
        if is_using { need.weight(self.count) } else { 0 }
    }

    /// Whether they hold room of the executor, or wait there for some.
    pub(in crate::dispatch) fn holds_room(&self) -> bool {
        !self.is_staged && !self.is_below && !self.is_gang
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
    pub(in crate::dispatch) in_flight: InFlights,
    pub(in crate::dispatch) in_flight_bytes: u64,
    pub(in crate::dispatch) loads: Loads,
    pub(in crate::dispatch) last_heard: Time,
    /// How far apart its heartbeats are, as it was told.
    pub(super) pulse: Pulse,
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
    /// When it was asked for tasks and had none to give, if it has not reported since.
    pub(super) spent_at: Option<Time>,
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
    /// Its room is kept for a gang: other tasks get it only if they are known to end before
    /// this.
    pub(in crate::dispatch) kept_until: Option<Time>,
    /// What gangs hold of its room.
    pub(in crate::dispatch) gangs: BTreeMap<GangKey, Resources>,
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
    pub(in crate::dispatch) order: Draft,
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
            in_flight: InFlights::default(),
            in_flight_bytes: 0,
            loads: Loads::default(),
            last_heard: Time::default(),
            pulse: Pulse::default(),
            is_missed: false,
            last_report: Time::default(),
            mean_micros: 0,
            leaving: false,
            recalling: false,
            stalled: false,
            spent_at: None,
            misjudged: false,
            faults: 0,
            suspended_until: None,
            drained: false,
            suspensions: 0,
            reserved: None,
            kept_until: None,
            gangs: BTreeMap::new(),
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
            order: Draft::default(),
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
    pub(super) fn silence_allowed(&self) -> u64 {
        if self.connection.is_some() {
            self.pulse.lost_micros()
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

    /// Whether tasks of this need could ever run there. Of those that run on several
    /// executors each, one node is meant.
    pub(in crate::dispatch) fn offers(&self, need: &Need) -> bool {
        if need.is_gang() && (self.subtree.is_some() || self.capacity == Resources::default()) {
            return false;
        }
        let fits = match &self.subtree {
            None => need.any(|request| self.capacity.fits(request)),
            Some(subtree) => subtree.runs(need),
        };
        fits && need.data <= self.data_offer()
    }

    /// Whether it has free room now for a task of a need that it offers. Where tasks have
    /// alternatives, that is room for one of those that it offers.
    fn has_room_of(&self, need: &Need) -> bool {
        let caches = need.data > DataNeed::None;
        need.any(|request| {
            let is_offered = match &self.subtree {
                _ if !need.has_alternatives() => true,
                None => self.capacity.fits(request),
                Some(subtree) => subtree.fits(request, caches),
            };
            is_offered && self.free.count_of(request, 1) > 0
        })
    }

    /// The most that the data of tasks there may ask.
    pub(in crate::dispatch) fn data_offer(&self) -> DataNeed {
        match &self.subtree {
            Some(subtree) if subtree.has_cache() => DataNeed::Cached,
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
        self.reserved.is_none()
            && self.ends_in_time(now, Some(lasts_micros))
            && self.has_free(need, now, lasts_micros)
    }

    /// Whether a task that is expected to last so long, if that is known, ends before a gang
    /// begins for which the room is kept.
    pub(in crate::dispatch) fn ends_in_time(&self, now: Time, lasts_micros: Option<u64>) -> bool {
        let lasts = lasts_micros.filter(|micros| *micros > 0);
        self.kept_until.is_none_or(|until| lasts.is_some_and(|micros| now.after(micros) <= until))
    }

    /// Whether it has neither tasks nor room that gangs hold.
    pub(in crate::dispatch) fn has_nothing(&self) -> bool {
        self.in_flight.is_empty() && self.gangs.is_empty()
    }

    /// The same, whether it is being emptied or not.
    pub(in crate::dispatch) fn has_free(&self, need: &Need, now: Time, lasts_micros: u64) -> bool {
        self.takes_tasks()
            && (self.in_flight.is_empty() || !self.misjudged)
            && self.offers(need)
            && self.outlasts(now, lasts_micros)
            && self.has_room_of(need)
    }

    /// Room of the executor, for a search among queues. `wide` has those found as
    /// well of which no task fits its free room.
    pub(in crate::dispatch) fn takes(&self, wide: bool) -> Takes<'_> {
        let data = self.data_offer();
        let instant = self.loads.prefetched() * 2 <= self.ahead_max();
        Takes {
            free: Room { resources: &self.free, data },
            capacity: Room { resources: &self.capacity, data },
            instant: wide || instant,
            wide,
        }
    }

    /// Whether it has no tasks to give, as far as is known: it had none, and has not reported
    /// since. A relay is asked again after a while, as it may have got some in other ways: its
    /// dispatcher gives none while executors may come back to it.
    pub(in crate::dispatch) fn is_spent(&self, now: Time) -> bool {
        let is_over = |at: Time| self.subtree.is_some() && now >= at.after(RELAY_SPENT_MICROS);
        self.spent_at.is_some_and(|at| !is_over(at))
    }

    /// How many tasks may be sent ahead of free slots there.
    pub(in crate::dispatch) fn ahead_max(&self) -> u64 {
        let nodes = self.subtree.as_ref().map_or(1, |subtree| subtree.node_count());
        PREFETCH_TASKS_MAX.saturating_mul(nodes.max(1)).min(RELAY_PREFETCH_TASKS_MAX)
    }

    /// The mean run time of tasks up to which one is sent ahead for each slot.
    pub(in crate::dispatch) fn one_ahead_micros_max(&self) -> u64 {
        match self.subtree {
            None => PREFETCH_TASK_MICROS_MAX,
            Some(_) => RELAY_PREFETCH_TASK_MICROS_MAX,
        }
    }

    /// Whether it is a relay that has tasks in as many runs as it can say.
    pub(in crate::dispatch) fn has_many_runs(&self) -> bool {
        self.subtree.is_some() && self.in_flight.len() >= RELAY_RUNS_MAX
    }

    /// How many tasks of a need run side by side there.
    pub(in crate::dispatch) fn slots_for(&self, need: &Need) -> u64 {
        match &self.subtree {
            None => self.capacity.count_of(&need.resources, PREFETCH_TASKS_MAX),
            Some(subtree) => {
                let caches = need.data > DataNeed::None;
                subtree.count_of(&need.resources, caches, RELAY_PREFETCH_TASKS_MAX)
            }
        }
    }

    /// Whether a task that its user expects to take so long ends before the
    /// executor leaves; 0 is unknown, and goes anywhere.
    pub(in crate::dispatch) fn outlasts(&self, now: Time, estimate_micros: u64) -> bool {
        estimate_micros == 0
            || self.leaves_at.is_none_or(|leaves| now.after(estimate_micros) <= leaves)
    }

    /// How long tasks of a need run that were sent ahead there, as far as is known.
    pub(super) fn run_micros(&self, need: NeedId, needs: &Needs) -> u64 {
        let each_nanos = self.loads.of(need).each_nanos;
        each_nanos.saturating_mul(self.slots_for(&needs[need]).max(1)) / 1_000
    }

    /// The same of each need that it has tasks of.
    pub(super) fn all_run_micros(&self, needs: &Needs) -> BTreeMap<NeedId, u64> {
        self.loads.iter().map(|(need, _)| (need, self.run_micros(need, needs))).collect()
    }

    /// Counts tasks as sent that it has already, which run for so long as far as is known.
    pub(super) fn add_anew(
        &mut self,
        instance: InstanceId,
        run: InFlight,
        needs: &Needs,
        run_micros: u64,
    ) {
        let each_nanos = nanos_of(run_micros, self.slots_for(&needs[run.need]));
        self.add(instance, run, needs, each_nanos);
    }

    /// A gang takes room there.
    pub(super) fn take_for_gang(&mut self, key: GangKey, resources: &Resources) {
        self.free.take(resources, 1);
        self.gangs.insert(key, resources.clone());
    }

    /// A gang gives its room back: prefetched tasks move up.
    pub(super) fn give_from_gang(&mut self, key: GangKey, needs: &Needs) {
        if let Some(resources) = self.gangs.remove(&key) {
            self.free.give(&resources, 1);
            self.move_up(needs);
        }
    }

    /// Counts tasks as sent: as many as fit hold their resources, but for those that no
    /// node below a relay is large enough for any more. The others keep the executor busy for `each_nanos` each, as far as is known.
    pub(super) fn add(
        &mut self,
        instance: InstanceId,
        run: InFlight,
        needs: &Needs,
        each_nanos: u64,
    ) {
        let need = &needs[run.need];
        let holding = if run.holds_room() { run.count } else { 0 };
        let holds_none = need.instant || self.subtree.as_ref().is_some_and(|all| !all.runs(need));
        let slots = if holds_none { 0 } else { self.free.count_of(&need.resources, holding) };
        self.free.take(&need.resources, slots);
        self.loads.change(needs, run.need, |load| {
            load.instant = need.instant;
            load.each_nanos = each_nanos;
            load.slotted += slots;
            load.prefetched += holding - slots;
            load.resting += run.count - holding;
        });
        self.in_flight_bytes += run.row_bytes * run.count;
        self.in_flight.insert((instance, run.first), run);
    }

    /// It is a relay, and this is below it: its tasks take their room anew.
    pub(super) fn resize(&mut self, subtree: Subtree, needs: &Needs) {
        let run_micros = self.all_run_micros(needs);
        self.capacity = subtree.total();
        self.free = self.capacity.clone();
        self.subtree = Some(Box::new(subtree));
        self.in_flight_bytes = 0;
        self.loads = Loads::default();
        for ((instance, _), run) in std::mem::take(&mut self.in_flight).into_entries() {
            let run_micros = run_micros.get(&run.need).copied().unwrap_or(0);
            self.add_anew(instance, run, needs, run_micros);
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
                if let Some(left) = self.in_flight.find_mut(&key) {
                    left.count = from - run.first;
                }
            } else {
                self.in_flight.remove(&key);
            }
            self.in_flight_bytes -= run.row_bytes * (until - from);
            taken.push(InFlight { first: from, count: until - from, ..run });
        }
    }

    /// Tasks of `held` hold nothing any more. Returns those that were not staged
    /// before, as they were.
    pub(super) fn stage(&mut self, needs: &Needs, held: &Held) -> Vec<InFlight> {
        let mut staged = Vec::new();
        for run in self.take(held) {
            if run.holds_room() {
                self.release(needs, &run, false);
                self.loads.change(needs, run.need, |load| load.resting += run.count);
            }
            if !run.is_staged {
                staged.push(run);
            }
            self.in_flight_bytes += run.row_bytes * run.count;
            let run = InFlight { is_staged: true, ..run };
            self.in_flight.insert((held.instance, run.first), run);
        }
        staged
    }

    /// What tasks of `held` had staged is lost: they hold room again, or wait for some.
    /// Returns those that were staged, as they are now.
    pub(super) fn unstage(&mut self, needs: &Needs, held: &Held) -> Vec<InFlight> {
        let mut unstaged = Vec::new();
        for run in self.take(held) {
            if !run.is_staged {
                self.in_flight_bytes += run.row_bytes * run.count;
                self.in_flight.insert((held.instance, run.first), run);
                continue;
            }
            let each_nanos = self.loads.of(run.need).each_nanos;
            self.release(needs, &run, false);
            let run = InFlight { is_staged: false, ..run };
            self.add(held.instance, run, needs, each_nanos);
            unstaged.push(run);
        }
        unstaged
    }

    /// Gives back the room of the tasks of a run that ended (or, if `unstarted`,
    /// were given back); prefetched tasks move up. Returns how many held room.
    pub(super) fn release(&mut self, needs: &Needs, run: &InFlight, unstarted: bool) -> u64 {
        let InFlight { need, count, .. } = *run;
        if self.loads.of(need) == Load::default() {
            debug_assert!(false, "an executor gives back what it has");
            return 0;
        }
        if !run.holds_room() {
            self.loads.change(needs, need, |load| load.resting -= count);
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
        self.move_up(needs);
        freed
    }

    /// Tasks that were sent ahead hold their resources, as many as there is room for.
    fn move_up(&mut self, needs: &Needs) {
        let subtree = self.subtree.as_deref();
        let runs = |need: &Need| subtree.is_none_or(|subtree| subtree.runs(need));
        self.loads.move_up(needs, &mut self.free, runs);
    }

    /// Orders that what it has of `wanted` be stopped. Returns how many tasks that
    /// are.
    pub(super) fn cancel(&mut self, instance: InstanceId, wanted: &RunSet) -> u64 {
        let mut stopped = 0;
        let mut stop = |first: u64, count: u64, tries: Tries| {
            self.order.edit().cancel.push(Held { instance, first: TaskId(first), count, tries });
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

/// For how long a task keeps an executor busy on which so many run side by side.
pub(in crate::dispatch) fn nanos_of(micros: u64, slots: u64) -> u64 {
    micros.min(RUN_MICROS_MAX).saturating_mul(1_000) / slots.max(1)
}

/// The first run in flight with tasks at or after `at` and before `end`.
pub(in crate::dispatch) fn in_flight_from(
    in_flight: &InFlights,
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
