//! Which ready task goes to which executor: the policy `first-available`
//! (data-diffusion §3.2), with room as credit, adaptive prefetch, fair shares
//! between instances. `recall.rs` takes back what was sent ahead.
//!
//! Cost: a run of tasks that goes to an executor costs O(log) whatever its
//! length. Executors that cannot take any ready task are not looked at again
//! until they gain room.

use super::alternatives::Chosen;
use super::data_tasks::{announce, unlocated_data};
use super::everywhere::OwnTask;
use super::fleet::{Executor, InFlight, Outgoing, nanos_of};
use super::instance::{Instance, QueueKey};
use super::needs::{Need, NeedId};
use super::queues::Pace;
use super::runnable::{Entry, Placed};
use super::share::counted_micros;
use super::{Action, Assigned, Dispatcher, Order};
use crate::limits::{
    LOOK_NEEDS_MAX, OBSTACLE_NEEDS_MAX, ORDER_BYTES_MAX, ORDER_DATA_TASKS_MAX,
    PREFETCH_WORK_MICROS, RECALL_WORK_MICROS, RESERVE_AFTER_MICROS,
};
use crate::result::Outcome;
use crate::task::{ExecutorId, InstanceId, Resources, Rows, TaskId};

impl Dispatcher {
    /// Gives ready tasks to executors with room, as far as both go.
    pub(super) fn place(&mut self) {
        self.place_marked_instances();
        if self.comeback.until().is_some() {
            return;
        }
        self.drop_idle_reservations();
        self.place_gangs();
        while let Some(id) = self.fleet.take_new_room(self.now) {
            self.serve(id, true);
        }
        self.offer_data_tasks();
        let mut at = 0;
        while self.has_unblocked() {
            let Some((turn, id)) = self.fleet.next_available(at) else {
                self.serve_busy();
                self.block_queues();
                break;
            };
            at = turn + 1;
            self.serve(id, false);
        }
        self.fill_with_gangs();
        // The last task of a queue may have gone elsewhere than to the
        // executor that was being emptied for it.
        self.unplaced |= self.drop_idle_reservations();
        self.fail_unschedulable();
        self.recall_for_idle();
        self.recall_for_due();
        self.copy_wanted();
        if self.placement.has_tasks() {
            self.fetch_ahead();
            self.end_standstill();
            // Executors that got nothing while others were busy may get
            // something now.
            self.unplaced |= self.placement.load() != self.utilization();
        }
        self.speculate();
    }

    /// Whether a task is ready that some executor may still take.
    fn has_unblocked(&mut self) -> bool {
        let instances = &mut self.instances;
        self.runnable.ids().any(|id| instances[&id].queues.has_open())
    }

    /// Tasks that need no CPU may go to executors that have none free.
    fn serve_busy(&mut self) {
        let any_slotless = |dispatcher: &Dispatcher| {
            dispatcher.runnable.ids().any(|id| {
                dispatcher.instances[&id].queues.open().any(|(key, queue)| {
                    queue.len > 0
                        && queue.blocked_since.is_none()
                        && dispatcher.needs[key.1].is_slotless()
                })
            })
        };
        let mut after = None;
        while any_slotless(self) {
            let Some(id) = self.fleet.next_full(after) else { return };
            after = Some(id);
            self.serve(id, false);
        }
    }

    /// All available executors were looked at: what is still ready fits none.
    fn block_queues(&mut self) {
        let now = self.now;
        for id in self.runnable.ids() {
            self.instances[&id].queues.block(now);
        }
    }

    /// Gives one executor what it has room for, the least served instance
    /// first. `gained` says that it gained room: then queues that nothing else
    /// had room for are looked at as well.
    fn serve(&mut self, id: ExecutorId, gained: bool) {
        loop {
            if !self.fleet[id].takes_tasks() {
                break;
            }
            let mut next = self.next_runnable(None);
            let mut terms = Terms { gained, shares: 1, goes_ahead: true, is_awaited: false };
            while let Some(entry) = next {
                terms.shares = self.runnable.shares(entry.user());
                if self.assign(id, entry.id, &mut terms) {
                    break;
                }
                next = self.next_runnable(Some(entry));
            }
            if next.is_none() {
                break;
            }
        }
        self.fleet.list(id, self.now);
    }

    /// The instance whose turn it is, or is after another's. What is in flight
    /// is counted anew of those that come before it, as time has passed.
    fn next_runnable(&mut self, after: Option<Entry>) -> Option<Entry> {
        loop {
            let next = self.runnable.next(after, self.now)?;
            if self.runnable.is_current(&self.instances[&next.id].share, self.now) {
                return Some(next);
            }
            self.place_instance(next.id);
        }
    }

    /// Halves all levels, as often as the time that has passed says, when they
    /// have grown large.
    pub(super) fn write_levels_down(&mut self) {
        let Some(due) = self.runnable.due(self.now) else { return };
        for instance in self.instances.values_mut() {
            due.share(&mut instance.share);
        }
        let all: Vec<InstanceId> = self.runnable.all().collect();
        all.into_iter().for_each(|id| self.place_instance(id));
    }

    /// No executor need be emptied for a queue that has emptied itself, or by
    /// one that takes no more; it has gained room for others. Returns whether
    /// there were any.
    fn drop_idle_reservations(&mut self) -> bool {
        let mut idle = Vec::new();
        for (executor, (id, key)) in self.fleet.reservations() {
            let instance = self.instances.find_mut(&id);
            let runnable = &self.runnable;
            let has_turn = instance.as_ref().is_some_and(|found| runnable.has_turn(&found.share));
            let queue = instance.and_then(|instance| instance.queues.find_mut(&key));
            if let Some(queue) = queue.filter(|queue| queue.reserved == Some(executor.id)) {
                if queue.len > 0 && has_turn && executor.takes_tasks() {
                    continue;
                }
                queue.reserved = None;
            }
            let is_own = || self.has_own(executor.incarnation, id, key);
            if has_turn && executor.takes_tasks() && is_own() {
                continue;
            }
            idle.push(executor.id);
        }
        for id in &idle {
            self.fleet.end_reservation(*id);
            self.fleet.gain_room(*id);
        }
        !idle.is_empty()
    }

    /// Assigns tasks of one instance to one executor: of the first queue, in
    /// order of priority, that fits. Returns whether any were.
    ///
    /// A queue that is due and can only wait for room here has nothing sent
    /// ahead of those after it: where tasks are sent ahead, room hardly ever
    /// comes free, and it would never get its turn.
    fn assign(
        &mut self,
        executor_id: ExecutorId,
        instance_id: InstanceId,
        terms: &mut Terms,
    ) -> bool {
        let connected = self.fleet.connected();
        let share = self.fleet.cpus_milli() / u128::from(terms.shares.max(1));
        if !self.placement.everywhere().is_empty() {
            match self.send_own(executor_id, instance_id) {
                OwnTask::Sent => return true,
                OwnTask::Waits => (terms.goes_ahead, terms.is_awaited) = (false, true),
                OwnTask::None => {}
            }
        }
        let is_awaited = terms.is_awaited;
        let (mut after, mut looked) = (None, 0);
        loop {
            let executor = &self.fleet[executor_id];
            let instance = &mut self.instances[&instance_id];
            let is_due = instance.usage < share;
            // Where none of many queues fits the free room, those that do are
            // looked for, and no others. An executor that has tasks is looked
            // at again when one of them ends.
            let wide = looked < LOOK_NEEDS_MAX;
            if looked >= 2 * LOOK_NEEDS_MAX && !executor.in_flight.is_empty() {
                return false;
            }
            let next = match executor.reserved {
                None => instance.queues.next(after, executor.takes(wide), &self.needs),
                // It is being emptied for one queue, and for no other.
                Some((id, key)) if id == instance_id && looked == 0 => {
                    instance.queues.pace_of(key, &self.needs)
                }
                Some(_) => None,
            };
            looked += 1;
            let Some((key, pace)) = next else { return false };
            after = Some(key);
            let user = instance.share.user();
            let may_have = |need: &Need| self.runnable.room(user, need.weight(1)) > 0;
            let chosen = instance.choose((key, None), executor, &self.needs, may_have);
            let found = instance.queues.find_with_likes(&key);
            let Some((queue, measured)) = found else { return false };
            if queue.blocked_since.is_some() && !terms.gained {
                continue;
            }
            if !executor.offers(&self.needs[key.1])
                || executor.has_many_runs()
                || (executor.misjudged
                    && !executor.in_flight.is_empty()
                    && !self.needs[key.1].instant)
            {
                continue;
            }
            let (need_id, need) = (chosen.need, &self.needs[chosen.need]);
            let mut quota = u64::MAX;
            if self.runnable.has_users() {
                quota = self.runnable.room(user, need.weight(1));
                if quota == 0 {
                    self.runnable.hold_back(user);
                    continue;
                }
            }
            // A task that could not end there is not started there.
            if executor.leaves_at.is_some() {
                let lasts = queue.lasts(&instance.batches).unwrap_or(0);
                if !executor.outlasts(self.now, lasts) {
                    continue;
                }
            }
            let is_kept = executor.kept_until.is_some();
            if is_kept && !need.instant {
                let lasts = queue.estimate(&instance.batches, measured);
                if !executor.ends_in_time(self.now, lasts) {
                    continue;
                }
            }
            let room = match pace {
                Pace::Timeless => 0,
                _ => executor.free.count_of(&need.resources, queue.len),
            };
            // What stands in line is in flight: one who may have little has it run.
            let is_bound = quota != u64::MAX;
            let goes_ahead = terms.goes_ahead && !is_awaited && !is_kept && !is_bound;
            let ahead = match goes_ahead || need.instant {
                true => {
                    // Beside others nobody holds slots for longer than the mean
                    // of tasks that differ makes believe.
                    let longest = if terms.shares > 1 { measured.longest_micros } else { 0 };
                    let estimate = queue.estimate(&instance.batches, measured);
                    let estimate = estimate.map(|micros| micros.max(longest));
                    let slots = executor.slots_for(need);
                    let each_nanos = estimate.map(|micros| nanos_of(micros, slots));
                    let fills = !self.runnable.is_any_bound();
                    let queued = (queue.len, fills);
                    // A task is bound to no alternative before there is room for it.
                    let ahead = match chosen.alternative {
                        0 => {
                            prefetch((need, need_id), queued, estimate, slots, executor, connected)
                        }
                        _ => 0,
                    };
                    // One that may not go ahead, however much is sent ahead already.
                    let longest_ahead = executor.one_ahead_micros_max() * 1_000;
                    let waits =
                        each_nanos.is_none_or(|nanos| nanos.saturating_mul(slots) > longest_ahead);
                    if room == 0 && waits && is_due && queue.reserved.is_none() && !need.instant {
                        terms.goes_ahead = false;
                    }
                    ahead
                }
                false => 0,
            };
            let room_share = room.div_ceil(terms.shares).min(quota);
            let ahead_share = ahead.div_ceil(terms.shares).min(quota - room_share);
            let count = room_share + ahead_share;
            if count == 0 {
                let waited = queue.blocked_since.map_or(0, |since| self.now.since(since));
                terms.is_awaited |= room == 0 && !need.instant;
                if room == 0
                    && !is_kept
                    && !need.instant
                    && !is_awaited
                    && waited >= RESERVE_AFTER_MICROS
                    && queue.reserved.is_none()
                    && executor.loads.of(need_id).slotted == 0
                {
                    queue.reserved = Some(executor_id);
                    self.fleet.reserve(executor_id, (instance_id, key));
                    return false;
                }
                continue;
            }
            let was_reserved = executor.reserved.is_some();
            if was_reserved {
                self.fleet.end_reservation(executor_id);
                queue.reserved = None;
            }
            if queue.blocked_since.is_some() {
                queue.blocked_since = Some(self.now);
            }
            if queue.with_data.count > 0
                && terms.gained
                && self.send_data_tasks(executor_id, instance_id, key, (room_share, ahead_share))
                    > 0
            {
                return true;
            }
            if self.send_tasks(executor_id, instance_id, (key, chosen), count) > 0 {
                return true;
            }
            if was_reserved {
                // Its data is elsewhere: the room is for others after all.
                self.fleet.gain_room(executor_id);
            }
        }
    }

    /// Moves up to `count` tasks of a queue to an executor's order. Returns
    /// how many: at least one, and no more than the order has bytes for. They are sent with the
    /// alternative that was chosen.
    fn send_tasks(
        &mut self,
        executor_id: ExecutorId,
        instance_id: InstanceId,
        (key, chosen): (QueueKey, Chosen),
        count: u64,
    ) -> u64 {
        let mut executor = self.fleet.serving(executor_id);
        let instance = &mut self.instances[&instance_id];
        let need = &self.needs[chosen.need];
        let found = instance.queues.find_with_likes(&key);
        let (estimate, measured) = found.map_or((None, None), |(queue, measured)| {
            (queue.estimate(&instance.batches, measured), measured.mean_micros)
        });
        let each_nanos = estimate.map_or(0, |micros| nanos_of(micros, executor.slots_for(need)));
        let counted_micros = counted_micros(measured, estimate);
        let mut sent = 0;
        while sent < count {
            let budget = ORDER_BYTES_MAX.saturating_sub(executor.in_flight_bytes);
            // A free slot gets its task, however long rows are.
            let is_free = !need.is_slotless() && executor.free.fits(&need.resources);
            if budget == 0 && executor.in_flight_count() > 0 && !is_free {
                break;
            }
            let Some(front) = instance.queues.find(&key).and_then(|queue| queue.front().copied())
            else {
                break;
            };
            let Some(batch) = instance.batch_of(TaskId(front.first)) else { break };
            let offset = front.first - batch.first;
            if sent > 0 && executor.leaves_at.is_some() {
                let queue = instance.queues.find(&key);
                let lasts = queue.and_then(|queue| queue.lasts(&instance.batches));
                let lasts = lasts.unwrap_or(0);
                if !executor.outlasts(self.now, lasts) {
                    break;
                }
            }
            let rows = &batch.submission.rows;
            let mut take = rows_within(rows, offset, front.count.min(count - sent), budget);
            let data_bytes =
                batch.submission.data.as_ref().map_or(0, |data| data.task_bytes(offset));
            if let Some(data) = &batch.submission.data {
                take = take.min(ORDER_DATA_TASKS_MAX);
                take = data.tasks_within(offset, take, budget);
            }
            let rows = instance.rows_for(batch, offset, take, budget);
            let mut row_bytes = data_bytes;
            if let Rows::Packed(packed) = &rows {
                // Values in front of rows may leave room for fewer.
                take = packed.len();
                row_bytes += (packed.blob.len() as u64).div_ceil(take);
            }
            let batch_id = batch.id;
            let sent_class = batch.sent_class(front.class, chosen.alternative);
            let data = batch.submission.data.as_ref();
            let knows_places = instance.options.policy.policy.knows_places();
            let is_to_stay = |object: &_| knows_places && self.placement.is_to_stay(object);
            let data = data.map(|data| Box::new(unlocated_data(data, offset, take, is_to_stay)));
            announce(instance, TaskId(front.first), &mut executor);
            let Some(run) = instance.assign_ready(&key, take) else { break };
            executor.assign(Assigned {
                batch: batch_id,
                instance: instance_id,
                first: TaskId(run.first),
                count: run.count,
                class: sent_class,
                tries: run.tries,
                rows,
                data,
            });
            self.attempts.note(instance_id, run.first, run.count, run.tries, Some(executor_id));
            executor.send(
                instance_id,
                InFlight {
                    first: run.first,
                    count: run.count,
                    batch: batch_id,
                    class: run.class,
                    need: chosen.need,
                    alternative: chosen.alternative,
                    tries: run.tries,
                    later: 0,
                    dispatched: self.now,
                    counted_micros,
                    row_bytes,
                    is_staged: false,
                    is_gang: false,
                    is_below: false,
                },
                &self.needs,
                each_nanos,
            );
            sent += run.count;
        }
        if sent > 0 {
            let weight = need.weight(sent);
            instance.usage += weight;
            let share = (&mut instance.share, instance.usage);
            self.runnable.serve(share, weight, counted_micros, self.now);
            self.speculation.sent(instance_id, self.now);
            self.place_instance(instance_id);
        }
        sent
    }

    /// Sends the orders that have come together.
    pub(super) fn send_orders(&mut self) {
        self.journal_results();
        self.journal_attempts();
        let notices = self.placement.notices_of_released();
        self.notify(notices);
        self.placement.note_demands();
        self.tell_parents();
        self.tell_of_stripes();
        self.tell_discards();
        while let Some(outgoing) = self.fleet.next_order() {
            let Outgoing { executor, incarnation, connection, mut order } = outgoing;
            self.add_demand(executor, &mut order);
            order.discard = self.outputs.take_discards(incarnation);
            let acknowledged = order.acknowledged;
            if !order.is_long() {
                self.outbound.push(Action::Order { connection, order });
                continue;
            }
            for part in order.parts() {
                let order = Order { acknowledged, ..part };
                self.outbound.push(Action::Order { connection, order });
            }
        }
        self.tell_discards();
        self.fleet.orders_sent();
    }

    /// Fails ready tasks that no executor could run for long enough, for
    /// instances that want it so.
    fn fail_unschedulable(&mut self) {
        let unoffered = self.unoffered_queues();
        let over = self.unoffered.look(self.now, unoffered);
        for of_one in over.chunk_by(|one, next| one.0 == next.0) {
            let id = of_one[0].0;
            for &(_, key) in of_one {
                let instance = &mut self.instances[&id];
                for run in instance.drain(&key, &mut self.placement) {
                    let tasks = (run.first, run.count);
                    self.end_unrun(id, tasks, Outcome::Unschedulable, run.tries);
                }
            }
            self.place_instance(id);
        }
    }

    /// The queues of tasks that nobody could run now, or be asked of a
    /// provisioner for, of instances that fail these; and how long each is given.
    fn unoffered_queues(&self) -> Vec<((InstanceId, QueueKey), u64)> {
        let mut unoffered = Vec::new();
        // Without any executor nobody knows what there will be.
        for id in self.runnable.ids().filter(|_| !self.fleet.is_empty()) {
            let instance = &self.instances[&id];
            let Some(micros) = instance.options.fail_unschedulable_micros else { continue };
            let queues = instance.queues.iter().filter(|(key, queue)| {
                queue.len > 0
                    && queue.blocked_since.is_some()
                    && !self.could_run(key.1)
                    && !self.needs[key.1].any(|request| self.can_be_obtained(request))
            });
            unoffered.extend(queues.map(|(key, _)| ((id, key), micros)));
        }
        unoffered
    }

    fn could_run(&self, need: NeedId) -> bool {
        let need = &self.needs[need];
        match need.is_gang() {
            true => self.fleet.could_run_wide(need),
            false => self.fleet.iter().any(|executor| executor.offers(need)),
        }
    }

    /// Needs of ready tasks that no executor offers, as many of them as status shows:
    /// to find that nobody offers a need takes a look at all executors.
    pub(super) fn unschedulable(&self, instance: &Instance) -> Vec<(Resources, u64)> {
        instance
            .queues
            .iter()
            .filter(|(key, queue)| queue.len > 0 && !self.could_run(key.1))
            .map(|(key, queue)| (self.needs[key.1].resources.clone(), queue.len))
            .take(OBSTACLE_NEEDS_MAX)
            .collect()
    }

    /// Puts the instances that were marked where they belong.
    pub(super) fn place_marked_instances(&mut self) {
        while let Some(id) = self.runnable.pop_stale() {
            self.place_instance(id);
        }
    }

    /// Whether an instance has tasks that may be dispatched.
    pub(super) fn is_runnable(&self, instance: &Instance) -> bool {
        instance.tasks.ready() > 0 && !self.is_held(instance)
    }

    /// Whether none of an instance's tasks is dispatched for now.
    pub(super) fn is_held(&self, instance: &Instance) -> bool {
        self.is_clogged(instance) || self.pauses.is_paused(instance.id)
    }

    /// Puts an instance where it belongs among the runnable ones.
    pub(super) fn place_instance(&mut self, id: InstanceId) {
        let is_runnable = self.is_runnable(&self.instances[&id]);
        let instance = &mut self.instances[&id];
        let share = (&mut instance.share, instance.usage);
        let Placed { is_new, reopens } = self.runnable.place(id, share, is_runnable, self.now);
        if is_new {
            self.look_again(id);
        }
        if reopens {
            self.reopen(self.instances[&id].share.user());
        }
    }

    /// Executors may have gained room while an instance was not looked at.
    pub(super) fn look_again(&mut self, id: InstanceId) {
        let instance = &mut self.instances[&id];
        instance.queues.unblock(&self.needs);
        self.placement.everywhere_mut().look_again(id);
        if instance.options.policy.policy.knows_places() {
            self.placement.offer_instance(id);
        }
    }
}

/// How an executor is served.
struct Terms {
    /// It gained room: queues that nothing else had room for are looked at as
    /// well.
    gained: bool,
    /// Instances that have tasks.
    shares: u64,
    /// Tasks may be sent ahead of free room: nobody who is due waits for it.
    goes_ahead: bool,
    /// Somebody whose turn it is before waits for room: nothing of others is sent
    /// ahead, and the executor is not emptied for them.
    is_awaited: bool,
}

/// How many tasks to send ahead of free room: as many as keep the executor
/// busy for [`PREFETCH_WORK_MICROS`], and at least one for each slot unless
/// tasks are long, those of other needs that were sent ahead counted; nothing
/// while the run time is unknown; never more than this executor's share of the
/// queue, unless that is too little work to be worth spreading (instant tasks
/// always are); and only when half of them have been used up, so that bundles
/// stay large. Where tasks had to be taken back, nothing until the executor
/// gets on. Where somebody may have so many slots and waits for one, nothing that is longer than
/// what is sent ahead for a slot `fills` one that comes free.
fn prefetch(
    (need, need_id): (&Need, NeedId),
    (queued, fills): (u64, bool),
    estimate_micros: Option<u64>,
    slots: u64,
    executor: &Executor,
    executors: u64,
) -> u64 {
    let loads = &executor.loads;
    if !loads.has_place_for(need_id) {
        return 0;
    }
    let most = executor.ahead_max();
    let left = most.saturating_sub(loads.prefetched());
    if need.instant {
        return if loads.prefetched() * 2 > most { 0 } else { left };
    }
    let Some(mean) = estimate_micros.filter(|_| !executor.stalled) else { return 0 };
    if !fills && mean > PREFETCH_WORK_MICROS {
        return 0;
    }
    let load = loads.of(need_id);
    let (mine, others) = (load.prefetched, loads.waiting() - load.prefetched);
    let their_nanos =
        loads.waiting_nanos() - u128::from(load.prefetched) * u128::from(load.each_nanos);
    let each_nanos = u128::from(nanos_of(mean, slots).max(1));
    let theirs = u64::try_from(their_nanos / each_nanos).unwrap_or(u64::MAX);
    let tasks_in = |micros: u64| slots.saturating_mul(micros) / mean.max(1);
    let (waiting, executors) = (queued + mine, executors.max(1));
    let share = waiting.div_ceil(executors).max(tasks_in(RECALL_WORK_MICROS));
    // The last tasks of a queue go to whoever has room first.
    let one_each = match fills && mean <= executor.one_ahead_micros_max() {
        true => slots.min(waiting / executors),
        false => 0,
    };
    let refill = |depth: u64, there: u64| {
        let is_half_full = there.saturating_mul(2) > depth;
        if is_half_full { 0 } else { depth - there }
    };
    let by_work = tasks_in(PREFETCH_WORK_MICROS).min(share).min(most);
    let wanted = refill(by_work, mine.saturating_add(theirs));
    wanted.max(refill(one_each, mine + others)).min(left)
}

/// How many rows from `offset` on, at most `count`, stay within `budget`
/// bytes; at least one.
fn rows_within(rows: &Rows, offset: u64, count: u64, budget: u64) -> u64 {
    let Rows::Packed(packed) = rows else { return count };
    let first = offset as usize;
    let last = (offset + count).min(packed.len()) as usize;
    let start = if first == 0 { 0 } else { u64::from(packed.ends[first - 1]) };
    let fitting = packed.ends[first..last]
        .partition_point(|end| u64::from(*end).saturating_sub(start) <= budget);
    (fitting as u64).max(1)
}
