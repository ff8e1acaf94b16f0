//! How many nodes an LRM's queue has at all: no more are asked for, and what
//! the LRM says can never start is asked for anew, smaller.

use super::limits::{LEARNED_MICROS, QUERY_ANSWER_MICROS, SIZE_MICROS};
use super::{Action, AllocationState, Provisioner, QueueId, QueueOptions, Reason};
use crate::task::{AllocationId, Time};

/// Bounds on requests that the LRM has named or shown.
#[derive(Debug, Default)]
pub(super) struct Size {
    /// The LRM has answered, or did not in time.
    is_known: bool,
    /// Nodes of all its jobs together.
    nodes: Option<u64>,
    /// Nodes of one job.
    job_nodes: Option<u64>,
    /// When the LRM was asked, while that is not answered.
    asked: Option<Time>,
    /// The LRM is not asked again before then.
    after: Time,
    /// Nodes of one job at most, going by one that could never have started,
    /// and when that was.
    learned: Option<(u64, Time)>,
}

impl Size {
    /// Nodes of all jobs together at most.
    pub(super) fn executors_max(&self, options: &QueueOptions) -> u64 {
        let there = self.nodes.unwrap_or(u64::MAX).max(1);
        options.executors_max.min(there).max(options.request_nodes_min)
    }

    /// Nodes of one request at most.
    pub(super) fn request_max(&self, options: &QueueOptions, now: Time) -> u64 {
        let learned = self.learned.filter(|(_, at)| now.since(*at) < LEARNED_MICROS);
        let bounds = [self.nodes, self.job_nodes, learned.map(|(nodes, _)| nodes)];
        let most = bounds.into_iter().flatten().min().unwrap_or(u64::MAX).max(1);
        options.request_nodes_max.min(most).max(options.request_nodes_min)
    }

    /// Whether the first answer is still to come.
    pub(super) fn is_awaited(&self, options: &QueueOptions) -> bool {
        options.tells_size && !self.is_known
    }

    /// Nodes of all jobs together, if the LRM has said it.
    pub(super) fn nodes(&self) -> Option<u64> {
        self.nodes
    }

    /// Bounds that were concluded from the LRM's words count no more.
    pub(super) fn unlearn(&mut self) {
        self.learned = None;
    }

    /// An answer that is overdue is not waited for: it sets no bound.
    pub(super) fn give_up_waiting(&mut self, now: Time) {
        if self.asked.is_some_and(|asked| asked.after(QUERY_ANSWER_MICROS) <= now) {
            self.asked = None;
            self.is_known = true;
        }
    }

    fn due(&self, is_of_use: bool) -> Option<Time> {
        match self.asked {
            Some(asked) => Some(asked.after(QUERY_ANSWER_MICROS)),
            None => (is_of_use || !self.is_known).then_some(self.after),
        }
    }
}

impl Provisioner {
    /// Whether it matters how large a queue is: something waits for its nodes.
    fn size_matters(&self, id: QueueId) -> bool {
        self.allocations_of(id).any(|one| one.state == AllocationState::Pending && !one.ending)
    }

    /// When the LRM is asked how large a queue is, or its answer is overdue.
    pub(super) fn size_due(&self, id: QueueId) -> Option<Time> {
        let queue = self.queues.get(&id).filter(|queue| queue.options.tells_size)?;
        queue.size.due(self.size_matters(id))
    }

    /// Asks how large the queues are for which it is time.
    pub(super) fn ask_sizes(&mut self) {
        let now = self.now;
        let ids: Vec<QueueId> = self.queues.keys().copied().collect();
        for id in ids {
            let is_due = self.size_due(id).is_some_and(|at| at <= now);
            let Some(queue) = self.queues.get_mut(&id) else { continue };
            let size = &mut queue.size;
            if !is_due || size.asked.is_some() {
                continue;
            }
            size.after = now.after(SIZE_MICROS);
            size.asked = Some(now);
            self.actions.push_back(Action::AskSize { queue: id });
        }
    }

    /// The LRM has said how large a queue is: requests that wait for more are
    /// made anew.
    pub(super) fn hear_size(&mut self, id: QueueId, nodes: Option<u64>, job_nodes: Option<u64>) {
        let now = self.now;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        if queue.size.asked.take().is_none() {
            return;
        }
        (queue.size.nodes, queue.size.job_nodes) = (nodes, job_nodes);
        queue.size.is_known = true;
        queue.size.after = queue.size.after.max(now.after(SIZE_MICROS));
        let most = queue.size.request_max(&queue.options, now);
        let is_too_large = |one: &&super::allocation::Allocation| {
            one.state == AllocationState::Pending && one.executors.is_empty() && one.nodes > most
        };
        let large: Vec<(AllocationId, u64)> = self
            .allocations_of(id)
            .filter(is_too_large)
            .filter(|one| !one.ending && !one.is_fixed)
            .map(|one| (one.id, one.nodes))
            .collect();
        for (allocation, nodes) in large {
            self.cancel(allocation, Reason::MoreThanThereIs { nodes, most });
        }
    }

    /// The LRM says that a request can never start: it is made anew with fewer
    /// nodes where that may help, and else it counts as refused. What somebody
    /// asked for stays as it was asked for.
    pub(super) fn cannot_start(&mut self, id: AllocationId, is_too_large: bool) {
        let Some(one) = self.allocations.get(&id) else { return };
        if one.ending || one.is_fixed || !one.executors.is_empty() {
            return;
        }
        let (queue, nodes, words) = (one.queue, one.nodes, one.words.clone());
        let can_shrink = is_too_large && self.shrink(queue, nodes);
        self.cancel(id, Reason::NeverStarts { nodes, words: words.clone() });
        if !can_shrink {
            self.refused(queue, words);
        }
    }

    /// The LRM did not take a request because of how many nodes it is for.
    pub(super) fn refused_as_too_large(&mut self, id: AllocationId, words: String) {
        let Some(one) = self.allocations.get(&id) else { return };
        let (queue, nodes, is_fixed) = (one.queue, one.nodes, one.is_fixed);
        let words = super::queue::shortened(words);
        self.end_allocation(id, Reason::NeverStarts { nodes, words: words.clone() });
        if is_fixed || !self.shrink(queue, nodes) {
            self.refused(queue, words);
        }
    }

    /// A request for `nodes` was too large: returns whether fewer can be asked
    /// for.
    fn shrink(&mut self, id: QueueId, nodes: u64) -> bool {
        let now = self.now;
        let Some(queue) = self.queues.get_mut(&id) else { return false };
        let least = queue.options.request_nodes_min;
        if nodes <= least {
            return false;
        }
        let told = queue.size.request_max(&queue.options, now);
        let most = if told < nodes { told } else { (nodes / 2).max(least) };
        queue.size.learned = Some((most, now));
        true
    }
}
