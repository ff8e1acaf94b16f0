//! What a queue is wanted for: by the tasks that wait, and, with the policy
//! `predictive`, by those that are to be expected.

use super::allocation::Allocation;
use super::queue::Queue;
use super::{Provisioner, Reason, ReleaseName, Waiting};
use crate::task::Time;

/// The share of its time for which a node that serves a stream is to be busy.
const STREAM_BUSY: f64 = 0.8;

/// What a queue is wanted for.
#[derive(Debug, Clone, Default)]
pub(super) struct Outlook {
    /// Nodes that it has, is asked for or will have.
    pub(super) useful: u64,
    /// Further nodes that are wanted, and why.
    pub(super) asking: Option<(u64, Reason)>,
    /// Nodes that are better given back than held, and why: for `predictive`.
    pub(super) surplus: (u64, Option<Reason>),
}

/// What is expected of a queue, in nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Coming {
    nodes: u64,
    tasks: u64,
    at: Time,
    /// The next stage; otherwise the stream as it will be.
    is_stage: bool,
}

impl Provisioner {
    /// What a queue is wanted for, if others do not meet `unmet` and `asked`
    /// nodes are about to be asked of them.
    pub(super) fn outlook(&self, queue: &Queue, unmet: &[Waiting], asked: u64) -> Outlook {
        let useful = self.useful(queue.id);
        let options = &queue.options;
        let is_predictive = options.release == ReleaseName::Predictive;
        let queued = self.demand.queued();
        let coming = self.coming(queue, useful).filter(|_| is_predictive);
        let mut wanted = 0u64;
        // What a stream wants is counted as a whole.
        let is_stream = coming.is_some_and(|coming| !coming.is_stage);
        let unmet = if is_stream { &[] } else { unmet };
        for waiting in unmet.iter().filter(|one| queue.suits(one)) {
            let estimate = waiting.estimate_micros.filter(|_| is_predictive);
            let is_learning = is_predictive && estimate.is_none();
            let nodes = nodes_for(queue, waiting, estimate, useful + wanted, is_learning);
            wanted = wanted.saturating_add(nodes);
        }
        let total = useful.saturating_add(wanted);
        let mut asking = (wanted > 0)
            .then_some((wanted, Reason::Demand { queued, wanted: total, held: useful }));
        let least = options.executors_min;
        if useful.saturating_add(wanted) < least {
            asking = Some((least - useful, Reason::Minimum { executors_min: least }));
        }
        if !is_predictive {
            return Outlook { useful, asking, surplus: (0, None) };
        }
        let there = self.nodes_there().saturating_add(asked);
        if let Some(Coming { nodes, tasks, at, .. }) = coming
            && nodes > there.saturating_add(wanted)
            && at.since(self.now) <= queue.longest_delay_micros()
        {
            let reason = Reason::Expected { tasks, at, wanted: nodes, held: there };
            asking = Some((nodes - there, reason));
        }
        Outlook { useful, asking, surplus: self.surplus(queue, useful, wanted, coming) }
    }

    /// The nodes that the next stage or the stream will want, if a trend says
    /// so that is to be relied on.
    fn coming(&self, queue: &Queue, useful: u64) -> Option<Coming> {
        let each = self.slots_of(queue);
        let most = queue.executors_max().saturating_mul(each);
        let delay = queue.delay_micros();
        let is_over = self.quiet_since.is_some_and(|since| self.now.since(since) > delay);
        if is_over {
            return None;
        }
        let mean = self.forecast.mean_micros();
        if let Some((tasks, true)) = self.forecast.next_stage(most) {
            let slots = useful.saturating_mul(each);
            let at = self.forecast.done_at(self.now, &self.demand, slots)?;
            let nodes = worth(tasks, mean, each, delay).max(u64::from(tasks > 0));
            let nodes = nodes.min(queue.executors_max());
            return Some(Coming { nodes, tasks, at, is_stage: true });
        }
        let rate = self.forecast.rate_ahead(delay)?;
        let micros = self.forecast.node_micros(delay)?.max(mean? / each) as f64;
        // What waits is to be done when nodes that are asked for now are there
        // and have been for as long.
        let queued = self.demand.queued() as f64 / delay.max(1) as f64;
        let nodes = micros * (rate / 1e6 / STREAM_BUSY + queued);
        let nodes = (nodes.ceil() as u64).min(queue.executors_max());
        let tasks = (rate * delay as f64 / 1e6) as u64;
        Some(Coming { nodes, tasks, at: self.now.after(delay), is_stage: false })
    }

    /// Nodes that are better given back. Held are those that have work; those
    /// that what is coming wants, if it comes before they could be had again;
    /// and, where nothing is foreseen, as many as had work within the time that
    /// getting them again takes: held for longer, they would have cost more
    /// than that; or half as long again where what runs is expected to end by
    /// then, as more work may follow it. Of a stream, as many as it was expected
    /// to want within that time: what is expected of it changes with every task.
    /// To get a node again takes the time until it is there, and the time until
    /// it has fetched again what the one that is given back has in its cache
    /// and tasks read. Nor is one given back whose cache saves the others more
    /// time than it costs. Nodes that are yet to come are no reason to give back
    /// one that is there.
    fn surplus(
        &self,
        queue: &Queue,
        useful: u64,
        wanted: u64,
        coming: Option<Coming>,
    ) -> (u64, Option<Reason>) {
        let delay = queue.delay_micros();
        if wanted > 0 || self.forecast.is_behind(delay) {
            return (0, None);
        }
        let busy = self.busy_nodes(queue.id);
        let each = self.slots_of(queue);
        let soon = self.forecast.done_at(self.now, &self.demand, useful.saturating_mul(each));
        let soon = soon.map_or(0, |at| (delay + delay / 2).saturating_sub(at.since(self.now)));
        let again = delay.saturating_add(self.forecast.refill_micros(delay));
        let peak = || self.forecast.peak_within(self.now, again.max(soon));
        let hold = match coming {
            Some(coming) if !coming.is_stage => {
                let wish = self.forecast.wish_within(self.now, again);
                coming.nodes.max(peak()).max(wish).max(self.forecast.saving_nodes(delay))
            }
            Some(coming) if coming.at.since(self.now) <= delay => coming.nodes,
            Some(_) => 0,
            None => peak(),
        };
        let hold = hold.max(busy).max(queue.options.executors_min);
        let yet_to_come = self.allocations_of(queue.id).map(Allocation::coming);
        let here = useful.saturating_sub(yet_to_come.fold(0, u64::saturating_add));
        let surplus = here.saturating_sub(hold);
        let until = coming.map_or(again, |coming| coming.at.since(self.now)).max(again);
        let reason = Reason::Dearer {
            hold_micros: until.saturating_mul(surplus),
            again_micros: again.saturating_mul(surplus.min(hold)),
        };
        (surplus, (surplus > 0).then_some(reason))
    }

    /// Nodes that take tasks or will: of all queues, and of nobody's.
    fn nodes_there(&self) -> u64 {
        let strangers = self.members.values().filter(|member| {
            let known = member.allocation.is_some_and(|one| self.allocations.contains_key(&one));
            !known && !member.released
        });
        let useful = self.allocations.values().map(Allocation::useful);
        useful.fold(strangers.count() as u64, u64::saturating_add)
    }

    /// The nodes of a queue that the stream is expected to want, if there is one.
    pub(super) fn stream_wants(&self, queue: &Queue) -> Option<u64> {
        let coming = self.coming(queue, self.useful(queue.id))?;
        (!coming.is_stage).then_some(coming.nodes)
    }

    /// Whether more work is expected that a queue's nodes would serve.
    pub(super) fn expects(&self, queue: &Queue) -> bool {
        queue.options.release == ReleaseName::Predictive
            && self.coming(queue, self.useful(queue.id)).is_some()
    }

    /// Nodes that tasks that wait now are worth.
    pub(super) fn wanted_now(&self, queue: &Queue) -> u64 {
        self.demand.waiting.iter().fold(0u64, |sum, waiting| {
            let nodes = nodes_for(queue, waiting, waiting.estimate_micros, 1, false);
            sum.saturating_add(nodes)
        })
    }

    /// Tasks that run side by side on a node of a queue, going by what waits or
    /// ran last.
    pub(super) fn slots_of(&self, queue: &Queue) -> u64 {
        queue.node.count_of(&self.last_need, u64::from(u32::MAX)).max(1)
    }
}

/// Nodes that so many waiting tasks are worth asking for; some are there.
fn nodes_for(
    queue: &Queue,
    waiting: &Waiting,
    estimate: Option<u64>,
    there: u64,
    is_learning: bool,
) -> u64 {
    let each = queue.node.count_of(&waiting.need, u64::from(u32::MAX)).max(1);
    let nodes = worth(waiting.places(), estimate, each, queue.delay_micros());
    // Those that are there have been counted: they are too few for a task on several.
    if waiting.width() > 1 {
        return nodes.max(waiting.width());
    }
    // While nobody knows how long tasks run, what is there or comes will tell:
    // more is asked for only when that is far too little.
    if is_learning && nodes < there {
        return 0;
    }
    // Short tasks that wait are done by those that are there, too.
    if estimate.is_some_and(|micros| micros < queue.delay_micros() / 2) {
        return nodes.saturating_sub(there).max(u64::from(there == 0));
    }
    nodes.max(u64::from(there == 0))
}

/// Nodes that so many tasks are worth: one for each that can run at a time, but
/// none that would have to do for less than half the time that it takes to get
/// it.
fn worth(tasks: u64, estimate_micros: Option<u64>, each: u64, delay_micros: u64) -> u64 {
    let all = tasks.div_ceil(each);
    let least = (delay_micros / 2).max(1);
    let Some(micros) = estimate_micros.filter(|micros| *micros < least) else { return all };
    let work = u128::from(tasks) * u128::from(micros);
    let nodes = work / (u128::from(each) * u128::from(least));
    u64::try_from(nodes).unwrap_or(u64::MAX).min(all)
}
