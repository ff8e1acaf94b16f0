//! Room that is kept for one gang at a time: the executors that are expected to have room for
//! it first are given nothing meanwhile that is not known to end before it begins, or little
//! later: tasks that are as long as those that the gang waits for, and that start a moment after
//! these, would not run otherwise. So wide tasks are not passed by for ever, and what is idle for
//! them is little. How much later is settled when room is first kept for a gang.

use super::GangQueue;
use crate::dispatch::Dispatcher;
use crate::dispatch::fleet::Executor;
use crate::dispatch::fleet::wide::FreeAt;
use crate::dispatch::needs::Need;
use crate::limits::{GANG_GATHER_MICROS, GANG_LOOK_MICROS, GANG_SLACK_MICROS_MIN};
use crate::task::{AllocationId, ExecutorId, Resources, Time};
use std::collections::{BTreeMap, BTreeSet};

/// The part of a gang's expected wait by which it may begin later, for the sake of others.
const SLACK_OF_WAIT: u64 = 16;

/// Executors whose room is kept for a gang.
#[derive(Debug)]
pub(super) struct Reservation {
    pub(super) queue: GangQueue,
    /// The gang's task.
    task: Option<u64>,
    /// Until when others may run there, however early it could begin.
    limit: Time,
    /// When the gang is expected to begin; `None` if nobody knows.
    pub(super) begins: Option<Time>,
    /// Others may be better by now.
    pub(super) is_stale: bool,
}

impl Dispatcher {
    /// Keeps room for the next gang of a queue, on the executors that are expected to have it
    /// first. What was sent ahead to them is taken back.
    pub(super) fn keep_for(&mut self, queue: GangQueue) {
        let need = &self.needs[queue.1.1];
        let outlook = self
            .fleet
            .wide_outlook(self.wide(need, queue), |executor| self.free_at(executor, need));
        let nodes = need.nodes as usize;
        self.gangs.look_at = Some(self.now.after(GANG_LOOK_MICROS));
        let chosen = choose(outlook, nodes, |id| self.fleet.allocation_of(id));
        let Some((ids, begins)) = chosen else {
            self.end_keeping();
            self.gangs.look_at = Some(self.now.after(GANG_LOOK_MICROS));
            self.gangs.unable.insert(queue);
            return;
        };
        for id in &ids {
            let executor = &self.fleet[*id];
            let count = executor.prefetched();
            if count > 0 && !executor.recalling && !executor.is_spent(self.now) {
                self.fleet.recall_from(*id, count);
            }
        }
        let task = self.next_gang(queue);
        let before = self.gangs.reservation.take();
        let before = before.filter(|before| before.queue == queue && before.task == task);
        let limit = match (before, begins) {
            (Some(before), _) => before.limit,
            (None, Some(begins)) => begins.after(slack_micros(begins.since(self.now))),
            (None, None) => Time::default(),
        };
        self.fleet.keep(&ids, begins.unwrap_or_default().max(limit));
        self.gangs.reservation = Some(Reservation { queue, task, limit, begins, is_stale: false });
    }

    /// The task of the next gang of a queue.
    fn next_gang(&self, (id, key): GangQueue) -> Option<u64> {
        let queue = self.instances.find(&id)?.queues.find(&key)?;
        queue.front().map(|run| run.first)
    }

    /// No room is kept any more; it is for others.
    pub(super) fn end_keeping(&mut self) {
        if self.gangs.reservation.take().is_some() {
            self.fleet.keep(&BTreeSet::new(), Time::default());
        }
        // Queues for which no room could be kept are looked at again all the same.
        self.gangs.look_at.take_if(|_| self.gangs.unable.is_empty());
    }

    /// Whether other executors are to be looked for than those whose room is kept.
    pub(super) fn is_keeping_stale(&self) -> bool {
        self.gangs.reservation.as_ref().is_some_and(|reservation| {
            let nodes = self.needs[reservation.queue.1.1].nodes as usize;
            let kept = self.fleet.kept();
            reservation.is_stale
                || kept.len() < nodes
                || kept.iter().any(|id| !self.fleet[*id].takes_tasks())
        })
    }

    /// A gang has ended whose executors suit the next one of its queue: they are kept for that,
    /// or else the next one would have to wait for as many to come free again.
    pub(super) fn follow_up(&mut self, queue: GangQueue, began: Time) {
        if let Some(reservation) = &mut self.gangs.reservation {
            reservation.is_stale = true;
        } else if self.comeback.until().is_none() && self.may_follow(queue, began) {
            self.keep_for(queue);
        }
    }

    /// When an executor is expected to have room for a node of a gang, and when what it waits
    /// for was sent there.
    fn free_at(&self, executor: &Executor, need: &Need) -> (Time, Time) {
        let mut ends: Vec<(Time, Time, &Resources, u64)> = Vec::new();
        for ((instance, _), run) in executor.in_flight.iter() {
            if run.holds_room() {
                let lasts = self.estimate_of(*instance, run);
                let at = lasts.map_or(Time(u64::MAX), |micros| run.dispatched.after(micros));
                let resources = &self.needs[run.need].resources;
                ends.push((at.max(self.now), run.dispatched, resources, run.count));
            }
        }
        for (key, resources) in &executor.gangs {
            ends.push((self.gangs.end_of(key, self.now), Time::default(), resources, 1));
        }
        ends.sort_unstable_by_key(|(at, since, ..)| (*at, *since));
        let mut free = executor.free.clone();
        for (at, since, resources, count) in ends {
            free.give(resources, count);
            if free.fits(&need.resources) {
                return (at, since);
            }
        }
        (Time(u64::MAX), Time(u64::MAX))
    }

    /// When the gang is expected to begin that room is kept for, if it is of this queue.
    pub(in crate::dispatch) fn kept_until(&self, queue: GangQueue) -> Option<Option<Time>> {
        let reservation = self.gangs.reservation.as_ref();
        reservation.filter(|one| one.queue == queue).map(|one| one.begins)
    }
}

/// How much later a gang may begin, for the sake of others, that is to wait for so long.
fn slack_micros(wait_micros: u64) -> u64 {
    (wait_micros / SLACK_OF_WAIT).max(GANG_SLACK_MICROS_MIN)
}

/// As many executors as are needed, and when the last of them has room, if that is known: those
/// that have it first, or those of one allocation if they have it little later.
fn choose(
    mut outlook: Vec<FreeAt>,
    nodes: usize,
    allocation_of: impl Fn(ExecutorId) -> Option<AllocationId>,
) -> Option<(BTreeSet<ExecutorId>, Option<Time>)> {
    outlook.sort_unstable();
    let latest = outlook.get(nodes.checked_sub(1)?)?.at;
    let known = |at: Time| (at != Time(u64::MAX)).then_some(at);
    let mut groups: BTreeMap<Option<AllocationId>, Vec<ExecutorId>> = BTreeMap::new();
    for one in outlook.iter().take_while(|one| one.at <= latest.after(GANG_GATHER_MICROS)) {
        let group = groups.entry(allocation_of(one.executor)).or_default();
        group.push(one.executor);
        if group.len() == nodes {
            return Some((group.iter().copied().collect(), known(one.at)));
        }
    }
    let first = outlook.iter().take(nodes).map(|one| one.executor);
    Some((first.collect(), known(latest)))
}
