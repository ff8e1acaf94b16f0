//! What a provisioner is told of the work there is.

use super::Dispatcher;
use super::fleet::{Executor, InFlight};
use super::instance::Instance;
use super::needs::NeedId;
use crate::limits::OBSTACLE_NEEDS_MAX;
use crate::provision::limits::DEMAND_NEEDS_MAX;
use crate::provision::{Demand, Durations, Waiting};
use crate::task::{ExecutorId, InstanceId, Resources, Time};
use std::cmp::Reverse;

/// Tasks that came and went.
#[derive(Debug, Default)]
pub(super) struct Tally {
    submitted: u64,
    ended: u64,
    /// Run times since they were last asked for.
    durations: Durations,
}

impl Tally {
    /// Tasks were accepted.
    pub(super) fn submitted(&mut self, tasks: u64) {
        self.submitted = self.submitted.saturating_add(tasks);
    }

    /// Tasks that ran.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// Tasks ran, and took so long each.
    pub(super) fn ran(&mut self, micros: u64, tasks: u64) {
        self.ended = self.ended.saturating_add(tasks);
        self.durations.add(micros, tasks);
    }
}

impl Dispatcher {
    /// What there is to do. Costs O(queues + tasks' runs that executors have).
    pub fn demand(&mut self, now: Time) -> Demand {
        self.now = self.now.max(now);
        self.place_marked_instances();
        let mut demand = Demand {
            submitted: self.tally.submitted,
            ended: self.tally.ended,
            busy_micros: self.fleet.busy_micros(self.now),
            durations: std::mem::take(&mut self.tally.durations),
            ..Demand::default()
        };
        self.add_ready(&mut demand.waiting, |_| true);
        let mut until = self.now;
        let mut knows_all = true;
        for executor in self.fleet.iter() {
            if let Some(cache) = &executor.cache {
                let (local, all) = (cache.usage.local.bytes, cache.usage.all().bytes);
                let sum = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
                sum(&mut demand.cached_bytes, cache.used);
                sum(&mut demand.local_bytes, local);
                sum(&mut demand.fetched_bytes, all.saturating_sub(local));
            }
            for ((instance, _), run) in executor.in_flight.iter() {
                demand.running = demand.running.saturating_add(run.count);
                demand.last_sent = demand.last_sent.max(Some(run.dispatched));
                let Some(estimate) = self.estimate_of(*instance, run) else {
                    knows_all = false;
                    continue;
                };
                let end = self.end_of(executor, run, estimate);
                until = until.max(end);
                let work = estimate.saturating_mul(run.count - 1);
                let last = run.dispatched.after(estimate).since(self.now);
                demand.running_micros =
                    demand.running_micros.saturating_add(work).saturating_add(last);
            }
        }
        demand.running_until = (demand.running > 0 && knows_all).then_some(until);
        demand
    }

    /// The run time to expect of tasks in flight.
    pub(super) fn estimate_of(&self, id: InstanceId, run: &InFlight) -> Option<u64> {
        let instance = &self.instances[&id];
        let (_, batch) = instance.batches.range(..=run.first).next_back()?;
        let class = batch.submission.classes.get(run.class as usize)?;
        if let Some(given) = class.given_estimate() {
            return Some(given);
        }
        let need = &self.needs[run.need];
        instance.queues.find(&(Reverse(need.priority), run.need))?.measured.mean_micros
    }

    /// When the last of a run of tasks in flight is expected to end.
    fn end_of(&self, executor: &Executor, run: &InFlight, estimate_micros: u64) -> Time {
        let slots = executor.slots_for(&self.needs[run.need]).clamp(1, run.count.max(1));
        run.dispatched.after(estimate_micros.saturating_mul(run.count.div_ceil(slots)))
    }

    /// For how long ready tasks last, by their users or as was found out, that could
    /// run on executors there are, all of which leave before that; and how many
    /// tasks wait with them.
    pub(super) fn overlong(&self, instance: &Instance) -> Vec<(u64, u64)> {
        let waiting =
            instance.queues.iter().filter(|(_, queue)| self.fleet.knows_leases() && queue.len > 0);
        let overlong = waiting.filter_map(|((_, need), queue)| {
            let need = &self.needs[need];
            let lasts = queue.lasts(&instance.batches)?;
            let mut offering = self.fleet.iter().filter(|one| one.offers(need)).peekable();
            offering.peek()?;
            let is_overlong = offering.all(|executor| !executor.outlasts(self.now, lasts));
            is_overlong.then_some((lasts, queue.len))
        });
        overlong.take(OBSTACLE_NEEDS_MAX).collect()
    }

    /// An executor takes no more tasks, and leaves when those it has ended.
    pub(super) fn release_executor(&mut self, id: ExecutorId) {
        if self.fleet.release(id, self.now) {
            self.unplaced = true;
            let incarnation = self.fleet[id].incarnation;
            self.placement.everywhere_mut().look_at(incarnation);
        }
    }

    /// How long the next task of a queue lasts, for executors that leave; 0 is
    /// unknown, or matters to no executor.
    pub(super) fn lasts_micros(&self, id: InstanceId, key: (Reverse<i32>, NeedId)) -> u64 {
        if !self.fleet.knows_leases() {
            return 0;
        }
        let instance = &self.instances[&id];
        let queue = instance.queues.find(&key);
        queue.and_then(|queue| queue.lasts(&instance.batches)).unwrap_or(0)
    }
}

/// Adds tasks, how long they are expected to run and how long their users say,
/// to those with the same need of which the latter is not very different.
pub(super) fn add_waiting(
    waiting: &mut Vec<Waiting>,
    (need, nodes): (&Resources, u32),
    added: (u64, Option<u64>, u64),
) {
    let (tasks, estimate, lasts) = added;
    let is_full = waiting.len() >= DEMAND_NEEDS_MAX;
    let is_like = |one: &Waiting| one.lasts_micros.checked_ilog2() == lasts.checked_ilog2();
    let same =
        waiting.iter().position(|one| one.need == *need && one.nodes == nodes && is_like(one));
    let last = waiting.len().checked_sub(1).filter(|_| is_full);
    let Some(at) = same.or(last) else {
        let need = need.clone();
        let (estimate_micros, lasts_micros) = (estimate, lasts);
        waiting.push(Waiting { need, tasks, estimate_micros, lasts_micros, nodes });
        return;
    };
    let one = &mut waiting[at];
    let sum = one.tasks.saturating_add(tasks);
    one.estimate_micros = match (one.estimate_micros, estimate) {
        (Some(have), Some(more)) => {
            let micros =
                u128::from(have) * u128::from(one.tasks) + u128::from(more) * u128::from(tasks);
            Some(u64::try_from(micros / u128::from(sum.max(1))).unwrap_or(u64::MAX))
        }
        (have, more) => have.or(more),
    };
    one.tasks = sum;
    // Nodes that serve some of them are of use.
    one.lasts_micros = one.lasts_micros.min(lasts);
}
