//! What is asked for and what is given back, decided without doing it: the
//! provisioner acts on it, and a plan shows it.

use super::acquire::{Wish, strategy};
use super::allocation::Allocation;
use super::limits::HELD_ALLOCATIONS_MAX;
use super::outlook::Outlook;
use super::queue::Queue;
use super::release::{Holding, Lot, with_policy};
use super::{Plan, PlanLine, Provisioner, QueueId, Reason, ReleaseName, Waiting};
use crate::task::{AllocationId, Resources, Time};
use std::collections::BTreeMap;

/// Something to do.
#[derive(Debug, Clone)]
pub(super) enum Intent {
    /// Make requests for so many nodes each.
    Ask { queue: QueueId, requests: Vec<u64>, reason: Reason },
    /// Ask the LRM what is free: nodes are wanted.
    AskFree { queue: QueueId },
    /// Nothing is wanted: a series of requests is over.
    Satisfied { queue: QueueId },
    /// Tell executors to leave.
    Release { queue: QueueId, lot: Lot, reason: Reason },
    /// Take a request back.
    Cancel { allocation: AllocationId, reason: Reason },
}

/// Nodes that can take tasks that wait, or will.
#[derive(Debug, Clone)]
struct Supply {
    node: Resources,
    /// What it offers is guessed: it may be enough for anything.
    is_guess: bool,
    nodes: u64,
    leaves_at: Option<Time>,
}

impl Supply {
    /// Whether a task that takes so long can run there.
    fn suits(&self, now: Time, waiting: &Waiting) -> bool {
        let end = now.after(waiting.lasts_micros);
        let lasts = waiting.lasts_micros == 0 || self.leaves_at.is_none_or(|leaves| end <= leaves);
        lasts && (self.is_guess || self.node.fits(&waiting.need))
    }
}

impl Provisioner {
    /// Everything that is to be done now.
    pub(super) fn decide(&self) -> Vec<Intent> {
        let mut intents = Vec::new();
        let mut unmet = self.unmet();
        let mut asked = 0;
        for queue in self.queues_in_order() {
            let outlook = self.outlook(queue, &unmet, asked);
            asked += self.decide_asking(queue, &outlook, &mut unmet, &mut intents);
            self.decide_releases(queue, &outlook, &mut intents);
            self.decide_cancellations(queue, &mut intents);
        }
        intents
    }

    /// Those with more preference first.
    pub(super) fn queues_in_order(&self) -> Vec<&Queue> {
        let mut queues: Vec<&Queue> = self.queues.values().collect();
        queues.sort_by_key(|queue| (std::cmp::Reverse(queue.options.preference), queue.id));
        queues
    }

    pub(super) fn allocations_of(&self, queue: QueueId) -> impl Iterator<Item = &Allocation> {
        self.allocations.values().filter(move |one| one.queue == queue)
    }

    /// Nodes that a queue holds or will hold.
    pub(super) fn held(&self, queue: &Queue) -> u64 {
        let held = self.allocations_of(queue.id).map(|one| one.held(queue.options.is_whole));
        held.fold(0, u64::saturating_add)
    }

    /// Tasks that wait and that neither idle executors nor nodes to come can
    /// take.
    fn unmet(&self) -> Vec<Waiting> {
        if self.demand.waiting.is_empty() {
            return Vec::new();
        }
        let mut supplies = self.supplies();
        let mut unmet = Vec::new();
        for waiting in &self.demand.waiting {
            let suited = supplies.iter().filter(|supply| supply.suits(self.now, waiting));
            let nodes = suited.fold(0u64, |sum, supply| sum.saturating_add(supply.nodes));
            // Fewer nodes than a task takes together do nothing for it.
            let mut left = waiting.places();
            for supply in supplies
                .iter_mut()
                .filter(|supply| nodes >= waiting.width() && supply.suits(self.now, waiting))
            {
                let each = supply.node.count_of(&waiting.need, u64::MAX).max(1);
                let nodes = left.div_ceil(each).min(supply.nodes);
                supply.nodes -= nodes;
                left = left.saturating_sub(nodes.saturating_mul(each));
            }
            let tasks = left.div_ceil(waiting.width());
            if tasks > 0 {
                unmet.push(Waiting { tasks, ..waiting.clone() });
            }
        }
        unmet
    }

    /// Tasks that wait and that no queue and no executor can ever serve.
    pub(super) fn unserved(&self) -> Option<&Waiting> {
        let is_served = |waiting: &&Waiting| {
            let end = self.now.after(waiting.lasts_micros);
            let members = self.members.values().filter(|member| {
                let lasts = member.leaves_at.is_none_or(|leaves| end <= leaves);
                (lasts || waiting.lasts_micros == 0) && member.capacity.fits(&waiting.need)
            });
            let width = usize::try_from(waiting.width()).unwrap_or(usize::MAX);
            self.queues.values().any(|queue| queue.suits(waiting))
                || members.take(width).count() == width
        };
        self.demand.waiting.iter().find(|waiting| !is_served(waiting))
    }

    fn supplies(&self) -> Vec<Supply> {
        let mut strangers: BTreeMap<(&Resources, Option<Time>), u64> = BTreeMap::new();
        let mut idle: BTreeMap<AllocationId, (u64, Option<Time>)> = BTreeMap::new();
        for member in self.members.values().filter(|one| one.idle_since.is_some()) {
            let known = member.allocation.filter(|id| self.allocations.contains_key(id));
            match known {
                Some(id) if !member.released => {
                    let entry = idle.entry(id).or_insert((0, member.leaves_at));
                    entry.0 += 1;
                    entry.1 = entry.1.min(member.leaves_at);
                }
                Some(_) => {}
                None if !member.released => {
                    *strangers.entry((&member.capacity, member.leaves_at)).or_default() += 1;
                }
                None => {}
            }
        }
        let mut supplies = Vec::new();
        for ((node, leaves_at), nodes) in strangers {
            supplies.push(Supply { node: node.clone(), is_guess: false, nodes, leaves_at });
        }
        for allocation in self.allocations.values().filter(|one| !one.ending) {
            let Some(queue) = self.queues.get(&allocation.queue) else { continue };
            let (node, is_guess) = (&queue.node, queue.is_guess);
            if let Some(&(nodes, leaves_at)) = idle.get(&allocation.id) {
                supplies.push(Supply { node: node.clone(), is_guess, nodes, leaves_at });
            }
            let nodes = allocation.coming();
            if nodes > 0 {
                let leaves_at = allocation.until;
                supplies.push(Supply { node: node.clone(), is_guess, nodes, leaves_at });
            }
        }
        supplies
    }

    /// Decides what to ask of a queue; returns how many nodes.
    fn decide_asking(
        &self,
        queue: &Queue,
        outlook: &Outlook,
        unmet: &mut Vec<Waiting>,
        intents: &mut Vec<Intent>,
    ) -> u64 {
        let Some((wanted, reason)) = outlook.asking.clone() else {
            if queue.made > 0 || queue.free.is_some() {
                intents.push(Intent::Satisfied { queue: queue.id });
            }
            return 0;
        };
        let requests = match queue.takes_requests(self.now) {
            true => {
                let widths = unmet.iter().filter(|one| queue.suits(one)).map(Waiting::width);
                self.requests(queue, (wanted, widths.max().unwrap_or(1)), intents)
            }
            false => Vec::new(),
        };
        let asked: u64 = requests.iter().sum();
        let mut nodes = asked;
        if !requests.is_empty() {
            intents.push(Intent::Ask { queue: queue.id, requests, reason });
        }
        // What this queue is asked for, the next need not be.
        for waiting in unmet.iter_mut().filter(|one| queue.suits(one)) {
            let each = queue.node.count_of(&waiting.need, u64::MAX).max(1);
            let width = waiting.width();
            if nodes < width {
                continue;
            }
            let used = waiting.places().div_ceil(each).max(width).min(nodes);
            nodes -= used;
            let served = used.saturating_mul(each) / width;
            waiting.tasks = waiting.tasks.saturating_sub(served);
        }
        unmet.retain(|waiting| waiting.tasks > 0);
        asked
    }

    /// The requests for so many nodes that a queue's bounds allow now; some tasks take so
    /// many of them together.
    fn requests(
        &self,
        queue: &Queue,
        (wanted, width): (u64, u64),
        intents: &mut Vec<Intent>,
    ) -> Vec<u64> {
        let options = &queue.options;
        let (mut held, mut pending, mut allocations) = (0u64, 0u64, 0u64);
        let mut stopped = 0u64;
        let counts = |one: &&Allocation| options.max_is_strict || !one.is_fixed;
        for one in self.allocations_of(queue.id).filter(counts) {
            held = held.saturating_add(one.held(options.is_whole));
            pending += u64::from(one.is_pending() && !one.is_held());
            stopped += u64::from(one.is_held());
            allocations += 1;
        }
        if stopped >= HELD_ALLOCATIONS_MAX {
            return Vec::new();
        }
        let strategy = strategy(options.acquire);
        if strategy.asks_free() && queue.free.is_none() {
            if queue.asked_free.is_none() && queue.free_after <= self.now {
                intents.push(Intent::AskFree { queue: queue.id });
            }
            return Vec::new();
        }
        let mut free = queue.free.flatten();
        let (mut left, mut made) = (wanted, queue.made);
        let request_max = queue.size.request_max(options, self.now);
        let mut requests = Vec::new();
        while left > 0 && pending < options.pending_max && allocations < options.allocations_max {
            let nodes = strategy.next(Wish { nodes: left, made, free });
            let room = queue.executors_max().saturating_sub(held);
            let together = if left >= width { width } else { 1 };
            let nodes = nodes.max(options.request_nodes_min).max(together).min(request_max);
            let too_few = free.is_some_and(|free| free < nodes.min(room));
            let nodes = nodes.min(room);
            if nodes < options.request_nodes_min || too_few {
                break;
            }
            requests.push(nodes);
            held += nodes;
            pending += 1;
            allocations += 1;
            made += 1;
            left = left.saturating_sub(nodes);
            free = free.map(|free| free - nodes);
        }
        requests
    }

    fn decide_releases(&self, queue: &Queue, outlook: &Outlook, intents: &mut Vec<Intent>) {
        let lots = self.lots(queue);
        if lots.is_empty() {
            return;
        }
        let holding = self.holding(queue, outlook, &lots);
        let mut chosen = with_policy(queue.options.release, |policy| policy.choose(&holding));
        let mut many = outlook.useful.saturating_sub(queue.options.executors_max);
        for (at, lot) in lots.iter().enumerate() {
            if many > 0 && !chosen.iter().any(|(other, _)| *other == at) {
                many = many.saturating_sub(lot.executors.len() as u64);
                chosen.push((at, Reason::TooMany));
            }
        }
        if queue.removing {
            chosen = (0..lots.len()).map(|at| (at, Reason::Removing)).collect();
        }
        let least = if queue.removing { 0 } else { queue.options.executors_min };
        let mut spare = outlook.useful.saturating_sub(least);
        for (at, reason) in chosen {
            let nodes = lots[at].executors.len() as u64;
            if nodes <= spare {
                spare -= nodes;
                let lot = lots[at].clone();
                intents.push(Intent::Release { queue: queue.id, lot, reason });
            }
        }
    }

    pub(super) fn holding<'a>(
        &self,
        queue: &'a Queue,
        outlook: &Outlook,
        lots: &'a [Lot],
    ) -> Holding<'a> {
        Holding {
            now: self.now,
            options: &queue.options,
            queued: self.demand.queued(),
            released_one: queue.released_one,
            surplus: outlook.surplus.clone(),
            lots,
        }
    }

    /// What a queue has that may be released: idle for longest first.
    pub(super) fn lots(&self, queue: &Queue) -> Vec<Lot> {
        let mut lots = Vec::new();
        for one in self.allocations_of(queue.id).filter(|one| !one.is_fixed || queue.removing) {
            // Of a queue that is given up, those with tasks leave after them.
            let since = queue.removing.then_some(self.now);
            let idle = |id| self.members.get(id).and_then(|member| member.idle_since.or(since));
            let rest = || one.executors.difference(&one.released);
            let begun = one.started.unwrap_or(one.asked);
            let paid_until = begun.after(queue.options.billing_micros);
            let allocation = one.id;
            if one.ending || rest().next().is_none() {
                continue;
            }
            if !queue.options.is_whole {
                lots.extend(rest().filter_map(|id| {
                    let executors = vec![*id];
                    Some(Lot { allocation, executors, idle_since: idle(id)?, paid_until })
                }));
            } else if let Some(idle_since) =
                rest().map(idle).try_fold(Time(0), |last, since| Some(last.max(since?)))
                && (one.coming() == 0 || queue.removing)
            {
                let executors = rest().copied().collect();
                lots.push(Lot { allocation, executors, idle_since, paid_until });
            }
        }
        lots.sort_by_key(|lot| (lot.idle_since, lot.allocation));
        lots
    }

    /// Requests that nothing waits for any more, and those beyond the queue's
    /// bound, which came back after they were given up or held, the last first.
    fn decide_cancellations(&self, queue: &Queue, intents: &mut Vec<Intent>) {
        let mut useful = self.useful(queue.id);
        let options = &queue.options;
        let counts = |one: &&Allocation| options.max_is_strict || !one.is_fixed;
        let held = self.allocations_of(queue.id).filter(counts);
        let held = held.map(|one| one.held(options.is_whole)).fold(0, u64::saturating_add);
        let mut over = held.saturating_sub(options.executors_max);
        for one in self.allocations.values().rev().filter(|one| one.queue == queue.id) {
            let is_to_come = one.is_pending() || queue.removing && one.joined == 0;
            if !is_to_come || one.ending || one.is_fixed && !queue.removing {
                continue;
            }
            let allocation = one.id;
            if queue.removing {
                intents.push(Intent::Cancel { allocation, reason: Reason::Removing });
                continue;
            }
            if over > 0 && one.coming() > 0 {
                over = over.saturating_sub(one.held(options.is_whole));
                useful = useful.saturating_sub(one.useful());
                intents.push(Intent::Cancel { allocation, reason: Reason::TooMany });
                continue;
            }
            let due = one.unwanted_since.zip(queue.patience_micros());
            let is_due = due.is_some_and(|(since, wait)| self.now.since(since) >= wait);
            let left = useful.saturating_sub(one.useful());
            if is_due && left >= queue.options.executors_min {
                useful = left;
                intents.push(Intent::Cancel { allocation, reason: Reason::NotNeeded });
            }
        }
    }

    /// Nodes of a queue that take tasks, or will.
    pub(super) fn useful(&self, queue: QueueId) -> u64 {
        self.allocations_of(queue).fold(0, |sum, one| sum.saturating_add(one.useful()))
    }

    /// What would be done at `now`, and why. Nothing is done.
    #[must_use]
    pub fn plan(&self, now: Time) -> Plan {
        let mut lines: Vec<PlanLine> = Vec::new();
        let intents = self.decide();
        let unmet = self.unmet();
        let unserved = self.unserved();
        for queue in self.queues_in_order() {
            let outlook = self.outlook(queue, &unmet, 0);
            let mut line = PlanLine {
                queue: queue.id,
                requests: Vec::new(),
                reason: outlook.asking.map(|(_, reason)| reason),
                unserved: unserved.map(|waiting| (waiting.tasks, queue.unsuited(waiting))),
                not_before: Some(queue.not_before).filter(|at| *at > now),
                is_paused: queue.paused.is_some(),
                releases: 0,
            };
            for intent in &intents {
                match intent {
                    Intent::Ask { queue: of, requests, .. } if *of == queue.id => {
                        line.requests.clone_from(requests);
                    }
                    Intent::Release { queue: of, lot, .. } if *of == queue.id => {
                        line.releases += lot.executors.len() as u64;
                    }
                    _ => {}
                }
            }
            lines.push(line);
        }
        Plan { queues: lines }
    }
}

impl Queue {
    /// Why a queue does not suit tasks that it does not suit.
    pub(super) fn unsuited(&self, waiting: &Waiting) -> Reason {
        let estimate_micros = waiting.lasts_micros;
        let (nodes, nodes_max) = (waiting.width(), self.width_max());
        if nodes > nodes_max {
            return Reason::TooWide { nodes, nodes_max };
        }
        match self.lasts(estimate_micros) {
            false => Reason::TooLong { estimate_micros, stay_micros: self.stay_micros() },
            true => {
                let mut node = self.node.clone();
                // Not known: as much as anybody wants.
                if node.memory_bytes == u64::MAX {
                    node.memory_bytes = 0;
                }
                Reason::TooLarge { need: waiting.need.clone(), node }
            }
        }
    }

    /// How long a request may wait in the LRM though nothing waits for it.
    pub(super) fn patience_micros(&self) -> Option<u64> {
        match self.options.release {
            ReleaseName::Predictive => Some(self.delay_micros()),
            _ => self.options.idle_micros,
        }
    }
}
