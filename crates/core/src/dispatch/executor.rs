//! What a dispatcher knows of an executor: its room, its tasks, its silence.

use super::instance::{Need, NeedId};
use super::{BatchId, ConnectionId, Held, Order};
use crate::result::Tries;
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, Resources, TaskId, Time};
use std::collections::BTreeMap;

/// Tasks in a row that an executor was sent and has not answered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InFlight {
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) batch: BatchId,
    pub(super) class: u32,
    pub(super) need: NeedId,
    pub(super) tries: Tries,
    pub(super) dispatched: Time,
    /// Bytes of one task's row, rounded up.
    pub(super) row_bytes: u64,
}

/// How many tasks of one need an executor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Load {
    /// Tasks that hold their resources.
    pub(super) slotted: u64,
    /// Tasks sent ahead: they start when others end.
    pub(super) prefetched: u64,
}

#[derive(Debug)]
pub(super) struct Executor {
    pub(super) id: ExecutorId,
    pub(super) incarnation: u64,
    pub(super) name: String,
    pub(super) connection: Option<ConnectionId>,
    pub(super) capacity: Resources,
    pub(super) free: Resources,
    pub(super) in_flight: BTreeMap<(InstanceId, u64), InFlight>,
    pub(super) in_flight_bytes: u64,
    pub(super) loads: BTreeMap<NeedId, Load>,
    pub(super) last_heard: Time,
    pub(super) last_report: Time,
    /// Mean run time of its recent tasks, in microseconds.
    pub(super) mean_micros: u64,
    /// It gives back what it has not started and takes no more.
    pub(super) leaving: bool,
    /// A recall is under way.
    pub(super) recalling: bool,
    /// Tasks were taken back from it, and it has not reported since.
    pub(super) stalled: bool,
    /// It gave back unstarted what was taken to hold room, and has not
    /// reported since: the room that seems free there is not.
    pub(super) misjudged: bool,
    /// Tasks in a row that it could not start.
    pub(super) faults: u32,
    /// Until when it is left alone for that.
    pub(super) suspended_until: Option<Time>,
    /// How often in a row it was.
    pub(super) suspensions: u32,
    /// It is being emptied for a task that needs much room.
    pub(super) reserved: Option<(InstanceId, NeedId)>,
    /// Its place in the dispatcher's `available`.
    pub(super) turn: Option<u64>,
    /// Its key in the dispatcher's `prefetched`.
    pub(super) prefetched_key: Option<u64>,
    /// What it is to be told next.
    pub(super) order: Order,
    pub(super) updates_seen: u64,
}

impl Executor {
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
            loads: BTreeMap::new(),
            last_heard: Time::default(),
            last_report: Time::default(),
            mean_micros: 0,
            leaving: false,
            recalling: false,
            stalled: false,
            misjudged: false,
            faults: 0,
            suspended_until: None,
            suspensions: 0,
            reserved: None,
            turn: None,
            prefetched_key: None,
            order: Order::default(),
            updates_seen: 0,
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

    pub(super) fn in_flight_count(&self) -> u64 {
        self.loads.values().map(|load| load.slotted + load.prefetched).sum()
    }

    pub(super) fn prefetched(&self) -> u64 {
        self.loads.values().map(|load| load.prefetched).sum()
    }

    pub(super) fn load(&self, need: NeedId) -> Load {
        self.loads.get(&need).copied().unwrap_or_default()
    }

    /// Whether it may be given tasks at all.
    pub(super) fn takes_tasks(&self) -> bool {
        self.connection.is_some() && !self.leaving && self.suspended_until.is_none()
    }

    /// Counts `count` tasks as sent: as many as fit hold their resources.
    pub(super) fn add(&mut self, instance: InstanceId, run: InFlight, need: &Need) {
        let slots = if need.instant { 0 } else { self.free.count_of(&need.resources, run.count) };
        self.free.take(&need.resources, slots);
        let load = self.loads.entry(run.need).or_default();
        load.slotted += slots;
        load.prefetched += run.count - slots;
        self.in_flight_bytes += run.row_bytes * run.count;
        self.in_flight.insert((instance, run.first), run);
    }

    /// Takes out what is in flight of `held`, if the attempt is the same.
    pub(super) fn take(&mut self, held: &Held) -> Vec<InFlight> {
        let (first, end) = (held.first.0, held.first.0.saturating_add(held.count));
        let before = self
            .in_flight
            .range((held.instance, 0)..(held.instance, first))
            .next_back()
            .filter(|(_, run)| run.first + run.count > first)
            .map(|(key, _)| *key);
        let keys: Vec<_> = before
            .into_iter()
            .chain(
                self.in_flight
                    .range((held.instance, first)..(held.instance, end))
                    .map(|(key, _)| *key),
            )
            .collect();
        let mut taken = Vec::with_capacity(keys.len());
        for key in keys {
            if self.in_flight[&key].tries != held.tries {
                continue;
            }
            let Some(run) = self.in_flight.remove(&key) else { continue };
            let run_end = run.first + run.count;
            let (from, until) = (run.first.max(first), run_end.min(end));
            if run.first < from {
                let left = InFlight { count: from - run.first, ..run };
                self.in_flight.insert((held.instance, left.first), left);
            }
            if until < run_end {
                let right = InFlight { first: until, count: run_end - until, ..run };
                self.in_flight.insert((held.instance, right.first), right);
            }
            taken.push(InFlight { first: from, count: until - from, ..run });
        }
        for run in &taken {
            self.in_flight_bytes -= run.row_bytes * run.count;
        }
        taken
    }

    /// Gives back the room of `count` tasks that ended (or, if `unstarted`,
    /// were given back); prefetched tasks move up. Returns how many held room.
    pub(super) fn release(
        &mut self,
        needs: &[Need],
        need: NeedId,
        count: u64,
        unstarted: bool,
    ) -> u64 {
        let resources = &needs[need.0 as usize].resources;
        let mut freed = 0;
        if let Some(load) = self.loads.get_mut(&need) {
            let slotted = if unstarted {
                count - count.min(load.prefetched)
            } else {
                count.min(load.slotted)
            };
            freed = slotted;
            load.slotted -= slotted;
            load.prefetched -= count - slotted;
            self.free.give(resources, slotted);
            if *load == Load::default() {
                self.loads.remove(&need);
            }
        }
        for (need, load) in self.loads.iter_mut().filter(|(_, load)| load.prefetched > 0) {
            let need = &needs[need.0 as usize];
            if !need.instant {
                let up = self.free.count_of(&need.resources, load.prefetched);
                self.free.take(&need.resources, up);
                load.slotted += up;
                load.prefetched -= up;
            }
        }
        freed
    }

    /// Orders that what it has of `wanted` be stopped. Returns whether it has
    /// any.
    pub(super) fn cancel(&mut self, instance: InstanceId, wanted: &RunSet) -> bool {
        let before = self.order.cancel.len();
        for (_, run) in self.in_flight.range((instance, 0)..=(instance, u64::MAX)) {
            for (first, count) in wanted.within(run.first, run.count) {
                let first = TaskId(first);
                self.order.cancel.push(Held { instance, first, count, tries: run.tries });
            }
        }
        self.order.cancel.len() > before
    }

    /// Everything in flight, as an executor would name it.
    pub(super) fn held(&self) -> impl Iterator<Item = Held> + '_ {
        self.in_flight.iter().map(|((instance, first), run)| Held {
            instance: *instance,
            first: TaskId(*first),
            count: run.count,
            tries: run.tries,
        })
    }
}
