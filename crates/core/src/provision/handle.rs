//! What users and dispatchers do, and acting on what was decided.

use super::allocation::Allocation;
use super::decide::Intent;
use super::limits::{
    LOOK_MICROS, QUEUE_ALLOCATIONS_MAX, QUEUE_EXECUTORS_MAX, QUEUES_MAX, UNSERVED_MICROS,
};
use super::queue::Queue;
use super::release::{Lot, with_policy};
use super::{Action, Demand, Member, Provisioner, QueueId, QueueOptions, Reason, Verdict};
use crate::task::{AllocationId, ExecutorId, Resources, Time};

impl Provisioner {
    /// Options that make no sense, and queues beyond the bound, are not taken:
    /// the shell checks them first and says so.
    pub(super) fn add_queue(&mut self, id: QueueId, options: QueueOptions) {
        if options.check().is_err() || self.queues.len() >= QUEUES_MAX {
            return;
        }
        if self.queues.contains_key(&id) {
            self.change_queue(id, options);
            return;
        }
        self.queues.insert(id, Queue::new(id, options));
    }

    pub(super) fn change_queue(&mut self, id: QueueId, options: QueueOptions) {
        if options.check().is_err() {
            return;
        }
        if let Some(queue) = self.queues.get_mut(&id) {
            if queue.options.node != options.node {
                queue.node = options.node.clone();
                queue.is_guess = options.node_is_guess;
            }
            queue.options = options;
        }
    }

    pub(super) fn pause_queue(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.paused.get_or_insert_default();
        self.decided(id, Verdict::Pause, Reason::Asked);
    }

    pub(super) fn resume_queue(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.paused = None;
        queue.refusals = 0;
        queue.barren = 0;
        queue.vanished = 0;
        queue.size.unlearn();
        queue.query_failures = 0;
        queue.not_before = Time::default();
        // A pause that has grown is over; no query comes earlier than always.
        let soon = self.now.after(queue.options.query_micros);
        queue.query_after = queue.query_after.min(soon);
        self.decided(id, Verdict::Resume, Reason::Asked);
    }

    pub(super) fn remove_queue(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.removing = true;
        }
    }

    pub(super) fn ask_once(&mut self, id: QueueId, nodes: u64, walltime_micros: u64) {
        let Some(queue) = self.queues.get(&id) else { return };
        if nodes == 0 || nodes > QUEUE_EXECUTORS_MAX || queue.removing {
            return;
        }
        let options = &queue.options;
        if options.max_is_strict && nodes > options.executors_max.saturating_sub(self.held(queue)) {
            return;
        }
        let walltime = match walltime_micros {
            0 => queue.options.walltime_micros,
            micros => micros,
        };
        let allocation = self.submit(id, nodes, walltime, Reason::Asked);
        if let Some(one) = self.allocations.get_mut(&allocation) {
            one.is_fixed = true;
        }
    }

    pub(super) fn hear_demand(&mut self, demand: Demand) {
        if let Some(waiting) = demand.waiting.first() {
            self.last_need.clone_from(&waiting.need);
        }
        let is_quiet = demand.queued() == 0 && demand.running == 0;
        self.quiet_since = is_quiet.then(|| self.quiet_since.unwrap_or(self.now));
        self.forecast.demand(self.now, &demand, self.members.len() as u64);
        self.demand = demand;
    }

    pub(super) fn executor_joined(
        &mut self,
        id: ExecutorId,
        allocation: Option<AllocationId>,
        capacity: Resources,
        leaves_at: Option<Time>,
    ) {
        let member = Member {
            allocation,
            capacity: capacity.clone(),
            leaves_at,
            idle_since: Some(self.now),
            released: false,
        };
        self.executor_left(id);
        self.members.insert(id, member);
        if let Some(allocation) = allocation {
            self.attach(id, allocation, capacity);
        }
    }

    /// An executor belongs to an allocation that is known.
    pub(super) fn attach(&mut self, id: ExecutorId, allocation: AllocationId, node: Resources) {
        let now = self.now;
        let Some(one) = self.allocations.get_mut(&allocation) else { return };
        let queue = one.queue;
        let is_first = one.joined == 0;
        one.executors.insert(id);
        // One that comes back is no further node.
        one.joined = (one.joined + 1).min(one.nodes.max(one.executors.len() as u64));
        one.empty_since = None;
        one.absence = None;
        if one.is_pending() {
            one.state = super::AllocationState::Running;
            one.since = now;
        }
        one.started.get_or_insert(now);
        let (ending, delay_micros) = (one.ending, now.since(one.asked));
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.barren = 0;
            queue.vanished = 0;
            queue.node = node;
            queue.is_guess = false;
        }
        if is_first {
            self.note_start(allocation, delay_micros);
        }
        if ending {
            self.release_executor(id);
        }
    }

    pub(super) fn set_idle(&mut self, id: ExecutorId, since: Option<Time>) {
        if let Some(member) = self.members.get_mut(&id) {
            member.idle_since = since.map(|since| since.min(self.now));
        }
    }

    pub(super) fn executor_left(&mut self, id: ExecutorId) {
        let Some(member) = self.members.remove(&id) else { return };
        let now = self.now;
        let one = member.allocation.and_then(|one| self.allocations.get_mut(&one));
        let Some(one) = one else { return };
        one.executors.remove(&id);
        one.released.remove(&id);
        if one.executors.is_empty() {
            one.empty_since = Some(now);
        }
    }

    fn release_executor(&mut self, id: ExecutorId) {
        let Some(member) = self.members.get_mut(&id) else { return };
        if std::mem::replace(&mut member.released, true) {
            return;
        }
        let one = member.allocation.and_then(|one| self.allocations.get_mut(&one));
        if let Some(one) = one {
            one.released.insert(id);
        }
        self.actions.push_back(Action::Release { executor: id });
    }

    /// Makes a request.
    fn submit(&mut self, queue: QueueId, nodes: u64, walltime: u64, why: Reason) -> AllocationId {
        let allocation = AllocationId(self.next_allocation);
        self.next_allocation += 1;
        let mut one = Allocation::new(allocation, queue, nodes, self.now);
        one.walltime_micros = walltime;
        self.allocations.insert(allocation, one);
        let walltime_micros = walltime;
        self.decided(queue, Verdict::Ask { allocation, nodes, walltime_micros }, why);
        self.actions.push_back(Action::Submit { queue, allocation, nodes, walltime_micros });
        allocation
    }

    pub(super) fn decide_and_act(&mut self) {
        self.note_wants();
        for intent in self.decide() {
            self.act(intent);
        }
        self.release_strangers();
        self.tell_unserved();
        self.query_queues();
        self.ask_sizes();
        self.forget_removed();
        self.plan_look();
    }

    /// Tells of tasks that nobody can serve, now and then while there are any.
    fn tell_unserved(&mut self) {
        let now = self.now;
        let is_new = |queue: &Queue| {
            let said = queue.said_unserved.map(|at| now.since(at));
            !queue.removing && said.is_none_or(|ago| ago >= UNSERVED_MICROS)
        };
        let Some(waiting) = self.unserved() else { return };
        let verdict = Verdict::Unserved { tasks: waiting.tasks };
        let queues = self.queues.values().filter(|queue| is_new(queue));
        let told: Vec<(QueueId, Reason)> =
            queues.map(|queue| (queue.id, queue.unsuited(waiting))).collect();
        for (id, reason) in told {
            if let Some(queue) = self.queues.get_mut(&id) {
                queue.said_unserved = Some(now);
            }
            self.decided(id, verdict.clone(), reason);
        }
    }

    fn act(&mut self, intent: Intent) {
        match intent {
            Intent::Satisfied { queue } => {
                if let Some(queue) = self.queues.get_mut(&queue) {
                    queue.made = 0;
                    queue.free = None;
                }
            }
            Intent::AskFree { queue } => self.ask_free(queue),
            Intent::Ask { queue, requests, reason } => {
                let Some(found) = self.queues.get_mut(&queue) else { return };
                found.made = found.made.saturating_add(requests.len() as u64);
                found.free = None;
                let walltime = found.options.walltime_micros;
                if self.allocations_of(queue).count() + requests.len() > QUEUE_ALLOCATIONS_MAX {
                    return;
                }
                for nodes in requests {
                    self.submit(queue, nodes, walltime, reason.clone());
                }
            }
            Intent::Release { queue, lot, reason } => self.release(queue, &lot, reason),
            Intent::Cancel { allocation, reason } => self.cancel(allocation, reason),
        }
    }

    /// Tells executors to leave; with all of an allocation's, it is to end.
    fn release(&mut self, id: QueueId, lot: &Lot, reason: Reason) {
        let now = self.now;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.released_one = Some(now);
        let allocation = lot.allocation;
        let executors = lot.executors.len() as u64;
        let is_removing = reason == Reason::Removing;
        self.decided(id, Verdict::Release { allocation, executors }, reason);
        for executor in &lot.executors {
            self.release_executor(*executor);
        }
        if let Some(one) = self.allocations.get_mut(&allocation) {
            let all = one.released.len() == one.executors.len();
            one.ending |= all && (one.coming() == 0 || is_removing);
        }
    }

    /// Remembers how many nodes had or wanted work, and which requests nothing
    /// waits for.
    fn note_wants(&mut self) {
        let (mut busy, mut wanted, mut most, mut delay) = (0u64, 0u64, 0u64, 0u64);
        for queue in self.queues.values() {
            busy += self.busy_nodes(queue.id);
            most = most.saturating_add(queue.executors_max());
            delay = delay.max(queue.delay_micros());
        }
        if let Some(queue) = self.queues.values().next() {
            wanted = self.wanted_now(queue);
        }
        let slots = self.queues.values().map(|queue| self.slots_of(queue)).max();
        self.forecast.measure_fetching(delay, slots.unwrap_or(1));
        let again = delay.saturating_add(self.forecast.refill_micros(delay));
        let window = again.saturating_mul(2);
        self.forecast.peak(self.now, busy.saturating_add(wanted).min(most), window);
        let wishes = self.queues.values().filter_map(|queue| self.stream_wants(queue));
        self.forecast.wish(self.now, wishes.max().unwrap_or(0), window);
        let (now, is_wanted) = (self.now, self.demand.queued() > 0);
        let expects: Vec<bool> = self
            .allocations
            .values()
            .map(|one| self.queues.get(&one.queue).is_some_and(|queue| self.expects(queue)))
            .collect();
        for (one, expects) in self.allocations.values_mut().zip(expects) {
            match is_wanted || expects || !one.is_pending() {
                true => one.unwanted_since = None,
                false => {
                    one.unwanted_since.get_or_insert(now);
                }
            }
        }
    }

    /// Executors of allocations that no queue knows leave when they have been
    /// idle for long: nobody else would tell them.
    fn release_strangers(&mut self) {
        let now = self.now;
        let is_due = |member: &Member| {
            let since = member.idle_since.filter(|_| !member.released);
            since.is_some_and(|since| now.since(since) >= super::limits::STRANGER_IDLE_MICROS)
        };
        let lost: Vec<ExecutorId> = self
            .members
            .iter()
            .filter(|(_, member)| {
                let unknown =
                    member.allocation.is_some_and(|one| !self.allocations.contains_key(&one));
                unknown && is_due(member)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            self.release_executor(id);
        }
    }

    fn forget_removed(&mut self) {
        let gone: Vec<QueueId> = self
            .queues
            .values()
            .filter(|queue| queue.removing && self.allocations_of(queue.id).next().is_none())
            .map(|queue| queue.id)
            .collect();
        for queue in gone {
            self.cancel_losses(queue);
            self.queues.remove(&queue);
            self.actions.push_back(Action::Removed { queue });
        }
    }

    /// When policies may decide differently though nothing has happened.
    fn plan_look(&mut self) {
        let mut at: Option<(Time, &'static str)> = None;
        let mut sooner = |time: Time, why| {
            at = Some(at.map_or((time, why), |found: (Time, _)| found.min((time, why))));
        };
        let soon = self.now.after(LOOK_MICROS);
        let is_wanted = self.demand.queued() > 0;
        for queue in self.queues.values() {
            let lots = self.lots(queue);
            let outlook = super::outlook::Outlook::default();
            let holding = self.holding(queue, &outlook, &lots);
            let due = with_policy(queue.options.release, |policy| policy.look_at(&holding));
            if let Some(due) = due {
                sooner(if due > self.now { due } else { soon }, "release");
            }
            let waits = is_wanted || queue.options.executors_min > 0 || self.expects(queue);
            for (until, why) in [(queue.not_before, "pause"), (queue.free_after, "free nodes")] {
                if waits && until > self.now {
                    sooner(until, why);
                }
            }
            if self.expects(queue) {
                sooner(soon, "expected work");
            }
        }
        let unwanted = self.allocations.values().filter_map(|one| {
            let patience = self.queues.get(&one.queue)?.patience_micros()?;
            Some(one.unwanted_since.filter(|_| !one.ending)?.after(patience))
        });
        if let Some(due) = unwanted.min() {
            sooner(due.max(soon), "request that nothing waits for");
        }
        let strangers = self.members.values().any(|member| {
            let unknown = member.allocation.is_some_and(|one| !self.allocations.contains_key(&one));
            unknown && member.idle_since.is_some() && !member.released
        });
        if strangers {
            sooner(self.now.after(super::limits::STRANGER_IDLE_MICROS), "executor of nobody");
        }
        self.look = at;
    }
}
