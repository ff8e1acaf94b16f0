//! Executors that come, speak and go, and what becomes of their tasks.

use super::end::unrun;
use super::executor::{Executor, InFlight};
use super::instance::ReadyRun;
use super::outputs::admit_overflow;
use super::queues::key_of;
use super::share::counted_micros;
use super::{Action, ConnectionId, Dispatcher, Held, Join, Record, Update};
use crate::limits::{HEARTBEAT_LOST_MICROS, RECONNECT_GRACE_MICROS};
use crate::result::{Finished, Outcome, Report, Tries};
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, TaskId, Time};
use std::collections::{BTreeMap, BTreeSet};

impl Dispatcher {
    /// An executor registers, or comes back with what it had. Each
    /// registration gets a number of its own.
    pub(super) fn join(&mut self, connection: ConnectionId, mut join: Join) {
        if self.registry.of(connection).is_some() {
            let reason = "an executor registered twice over one connection";
            self.actions.push_back(Action::Close { connection, reason });
            return;
        }
        if let Err(error) = join.check() {
            self.actions.push_back(Action::Refuse { connection, error });
            return;
        }
        admit_reports(self.now, &mut join.reports);
        admit_overflow(join.incarnation, &mut join.reports);
        admit_held(&mut join.held);
        self.comeback.came(self.now, join.incarnation);
        let (id, before) = self.registry.register(connection, join.incarnation);
        let mut executor = Executor::new(id, join.incarnation, join.name.clone());
        executor.connection = Some(connection);
        executor.free = join.capacity.clone();
        executor.capacity = join.capacity;
        executor.last_heard = self.now;
        executor.last_report = self.now;
        executor.allocation = join.lease.allocation;
        executor.leaves_at = join.lease.leaves_in_micros.map(|micros| self.now.after(micros));
        executor.idle_since = self.now;
        self.knows_leases |= executor.leaves_at.is_some();
        self.journal(Record::ExecutorSeen {
            executor: id,
            incarnation: join.incarnation,
            name: join.name.clone(),
        });
        let has_cache = join.serves.is_some();
        executor.serves = join.serves;
        self.executor_names.insert(id, join.name);
        self.forget_names();
        // Until it says what it holds, that is what it held.
        match before.filter(|_| has_cache) {
            Some(before) => self.index.rename(before, id),
            None => self.index.join(id),
        };
        if has_cache {
            self.fetchers.insert(id);
            self.look_for_copiers();
        }
        if let Some(before) = before {
            let before = self.remove_executor(before, "the executor connected anew");
            if let Some(before) = before.as_ref().filter(|before| !before.is_busy) {
                executor.idle_since = before.idle_since;
            }
            for ((instance, _), run) in before.map(|before| before.in_flight).unwrap_or_default() {
                executor.add(instance, run, &self.needs, 0);
            }
        }
        self.executors.insert(executor);
        self.watch(id, HEARTBEAT_LOST_MICROS);
        let mut unknown = Vec::new();
        for report in join.reports {
            if self.report(id, &report) {
                self.outputs.settle(&report);
            } else {
                unknown.push(report);
            }
        }
        for is_lost in [false, true] {
            let same = unknown.iter().filter(|report| (report.outcome == Outcome::Lost) == is_lost);
            let held: Vec<Held> = same.map(held_of).collect();
            self.adopt(id, &held, is_lost);
        }
        for report in unknown {
            self.report(id, &report);
            self.outputs.settle(&report);
        }
        self.reconcile(id, &join.held);
        self.no_longer_awaited(join.incarnation);
        self.repeat_cancellations(id);
        // One with a cache is back when it has said what it holds.
        if !has_cache {
            self.is_back(join.incarnation);
        }
        // It must hear that its reports were taken in even if there is nothing
        // to run.
        self.orders.send(id);
        self.fresh.insert(id);
        self.unplaced = true;
        self.refresh_executor(id);
    }

    /// An executor that was there before a restart is there again.
    pub(super) fn is_back(&mut self, incarnation: u64) {
        if self.comeback.is_back(incarnation) {
            self.end_recovery();
        }
    }

    /// Makes what an executor says it has and what we think it has the same.
    fn reconcile(&mut self, id: ExecutorId, held: &[Held]) {
        let Some(executor) = self.executors.find_mut(&id) else { return };
        let mut kept = Vec::new();
        for held in held {
            for run in executor.take(held) {
                kept.push((held.instance, run));
            }
        }
        let never_arrived: Vec<Held> = executor.held().collect();
        for held in never_arrived {
            self.take_back(id, &held);
        }
        if let Some(executor) = self.executors.find_mut(&id) {
            for (instance, run) in kept {
                executor.in_flight_bytes += run.row_bytes * run.count;
                executor.in_flight.insert((instance, run.first), run);
            }
        }
        self.adopt(id, held, false);
    }

    /// Counts tasks that an executor has, unknown to us, as dispatched to it,
    /// if they are ready; tells it to forget them if not. Those that `are_lost`
    /// it has no longer.
    fn adopt(&mut self, id: ExecutorId, held: &[Held], are_lost: bool) {
        let Some(executor) = self.executors.find_mut(&id) else { return };
        let mut unknown: BTreeMap<(InstanceId, Tries), RunSet> = BTreeMap::new();
        for held in held {
            let set = unknown.entry((held.instance, held.tries)).or_default();
            set.insert(held.first.0, held.count);
        }
        for ((id, tries), mut wanted) in unknown {
            for (_, run) in executor.in_flight.range((id, 0)..=(id, u64::MAX)) {
                if run.tries == tries {
                    wanted.remove(run.first, run.count);
                }
            }
            let mut ready = Vec::new();
            if let Some(instance) = self.instances.get_mut(&id) {
                ready = instance.remove_ready(&self.needs, &mut self.index, &wanted);
                let had = self.attempts.had_by(Some(executor.incarnation), id, &wanted);
                ready.extend(instance.remove_reading(&had));
            }
            for run in ready {
                let Some(instance) = self.instances.get_mut(&id) else { continue };
                // An attempt that is known to have failed, or that is lost and
                // counted, is not the task's last: it goes on waiting for the
                // next.
                let is_counted = are_lost && run.tries.losses > tries.losses;
                if is_counted || run.tries.failures > tries.failures {
                    let key = instance.push_ready(&self.needs, &mut self.index, run);
                    self.located.grew(id, key);
                    continue;
                }
                wanted.remove(run.first, run.count);
                let Some(batch) = instance.batch_of(TaskId(run.first)) else { continue };
                let Some(&need_id) = batch.needs.get(run.class as usize) else { continue };
                let need = &self.needs[need_id];
                let (batch, dispatched) = (batch.id, self.now);
                instance.dispatched += run.count;
                instance.usage += need.weight(run.count);
                let counted_micros = counted_micros(None, None);
                instance.share.send(need.weight(run.count), counted_micros);
                let losses = run.tries.losses.saturating_sub(tries.losses);
                // The attempt that comes back was lost once, unless the latest one
                // has not been given up: that is this one, or is still out.
                for (first, count, had) in self.attempts.split(id, &run) {
                    let later = losses.saturating_sub(u32::from(!had));
                    let (class, need_id, row_bytes) = (run.class, need_id, 0);
                    let in_flight = InFlight {
                        first,
                        count,
                        batch,
                        class,
                        need: need_id,
                        tries,
                        later,
                        dispatched,
                        counted_micros,
                        row_bytes,
                    };
                    let counted = in_flight.counted();
                    self.attempts.note(id, first, count, counted, Some(executor.id));
                    executor.add(id, in_flight, &self.needs, 0);
                }
            }
            for (first, count) in wanted.iter() {
                let first = TaskId(first);
                executor.order.disown.push(Held { instance: id, first, count, tries });
                self.orders.send(executor.id);
            }
        }
        let instances: BTreeSet<InstanceId> = held.iter().map(|held| held.instance).collect();
        for instance in instances {
            self.runnable.mark(instance);
        }
    }

    /// An executor that comes back may not have heard which of its tasks are
    /// to be cancelled.
    fn repeat_cancellations(&mut self, id: ExecutorId) {
        let Some(executor) = self.executors.find_mut(&id) else { return };
        for instance in executor.instances() {
            let Some(instance) = self.instances.get(&instance) else { continue };
            if !instance.cancelling.is_empty()
                && executor.cancel(instance.id, &instance.cancelling) > 0
            {
                self.orders.send(id);
            }
        }
    }

    /// An executor speaks.
    pub(super) fn update(&mut self, connection: ConnectionId, mut update: Update) {
        let Some(id) = self.registry.of(connection) else {
            self.actions.push_back(Action::Close {
                connection,
                reason: "an executor spoke before it registered, or after it was given up",
            });
            return;
        };
        let now = self.now;
        admit_reports(now, &mut update.reports);
        admit_held(&mut update.returned);
        let Some(executor) = self.executors.find_mut(&id) else { return };
        admit_overflow(executor.incarnation, &mut update.reports);
        executor.last_heard = now;
        executor.updates_seen = update.number;
        if update.recalled {
            executor.recalling = false;
            executor.spent = update.returned.is_empty();
            self.unplaced = true;
        } else if !update.reports.is_empty() && !executor.recalling {
            executor.stalled = false;
        }
        if update.leaving {
            executor.leaving = true;
        }
        if !update.reports.is_empty() {
            executor.misjudged = false;
            executor.spent = false;
            executor.last_report = now;
        }
        if !update.reports.is_empty() || executor.leaving {
            self.acknowledge_update(id, !update.reports.is_empty());
        }
        if let Some(changes) = update.cache {
            self.cache_changed(id, *changes);
        }
        for report in &update.reports {
            self.report(id, report);
            self.outputs.settle(report);
        }
        if !update.kept.is_empty() {
            self.settle_kept(id, &update.kept);
        }
        self.unobtainable.clear();
        if update.leaving || (!update.reports.is_empty() && self.is_leaving(id)) {
            self.prepare_leaving(id);
        }
        for held in &update.returned {
            if self.take_back(id, held) > 0
                && let Some(executor) = self.executors.find_mut(&id)
            {
                executor.misjudged = true;
            }
        }
        if update.reports.is_empty() && update.returned.is_empty() && !update.leaving {
            self.refresh_executor(id);
            return;
        }
        // It is put where it belongs once it has been given what it has room
        // for: most often that is where it was before.
        self.fresh.insert(id);
        self.unplaced = true;
    }

    fn is_leaving(&self, id: ExecutorId) -> bool {
        self.executors.find(&id).is_some_and(|executor| executor.leaving)
    }

    /// Acknowledges an executor's update: with the next order or, without one,
    /// after a moment, as it waits for nothing. One that leaves waits for this.
    fn acknowledge_update(&mut self, id: ExecutorId, has_reports: bool) {
        let leaving = self.executors.find(&id).is_some_and(|executor| executor.leaving);
        if leaving {
            if has_reports || self.orders.is_later(id) {
                self.orders.send(id);
            }
        } else if has_reports {
            self.orders.send_later(id, self.now);
        }
    }

    /// Takes in a report. Returns whether it was about tasks that the executor
    /// was known to have.
    fn report(&mut self, id: ExecutorId, report: &Report) -> bool {
        let held = held_of(report);
        let Some(executor) = self.executors.find_mut(&id) else { return false };
        let mut taken = std::mem::take(&mut self.taken);
        executor.take_into(&held, &mut taken);
        let micros = report.ended.since(report.started);
        executor.mean_micros = (executor.mean_micros * 7 + micros.min(1 << 50)) / 8;
        for run in &taken {
            executor.release(&self.needs, run.need, run.count, false);
        }
        if !taken.is_empty() {
            self.judge_executor(id, report.outcome);
        }
        self.tally.ran(micros, taken.iter().map(|run| run.count).sum());
        for run in &taken {
            self.settle_inputs(id, report.instance, run);
            self.conclude(id, report, run, micros);
        }
        let known = !taken.is_empty();
        taken.clear();
        self.taken = taken;
        known
    }

    /// Tasks came back from an executor with an outcome: they end, or are
    /// tried again.
    fn conclude(&mut self, id: ExecutorId, report: &Report, run: &InFlight, micros: u64) {
        let need = &self.needs[run.need];
        let Some(instance) = self.instances.get_mut(&report.instance) else { return };
        instance.dispatched -= run.count;
        let weight = need.weight(run.count);
        instance.usage -= weight;
        let took = (run.counted_micros, micros);
        self.runnable.end(&mut instance.share, weight, took, self.now);
        if matches!(report.outcome, Outcome::Exit(_) | Outcome::Signal(_)) {
            instance.queues.measure(&key_of(need, run.need), micros, run.count);
        }
        if report.outcome == Outcome::NoInput && self.goes_on_without_input(report.instance, run) {
            return;
        }
        let tries = run.counted();
        let anew = {
            let need = &self.needs[run.need];
            self.is_tried_anew(id, report.outcome, tries, need)
        };
        let Some(instance) = self.instances.get(&report.instance) else { return };
        let Some(batch) = instance.batch_of(TaskId(run.first)) else { return };
        let (queued, retries) =
            (batch.queued, batch.submission.classes[run.class as usize].retries);
        let finished = |first, count, outcome| Finished {
            first: TaskId(first),
            count,
            outcome,
            executor: Some(id),
            attempts: tries.attempt(),
            queued,
            dispatched: run.dispatched,
            started: report.started,
            ended: report.ended,
            detail: report.detail.clone(),
        };
        let again = report.outcome.may_retry() && tries.failures < retries;
        if instance.cancelling.is_empty() && !again && !anew {
            self.end(report.instance, finished(run.first, run.count, report.outcome));
            return;
        }
        let cancelled = instance.cancelling.within(run.first, run.count);
        let live = instance.cancelling.gaps(run.first, run.count);
        for (first, count) in live {
            if anew {
                let tries = Tries { losses: tries.losses + 1, ..tries };
                self.requeue(report.instance, first, count, run.class, tries);
            } else if again {
                let tries = Tries { failures: tries.failures + 1, ..tries };
                self.requeue(report.instance, first, count, run.class, tries);
            } else {
                self.end(report.instance, finished(first, count, report.outcome));
            }
        }
        for (first, count) in cancelled {
            // What succeeded before the cancellation reached it has succeeded.
            let outcome = match report.outcome {
                Outcome::Exit(0) => Outcome::Exit(0),
                _ => Outcome::Cancelled,
            };
            self.end(report.instance, finished(first, count, outcome));
        }
        self.runnable.mark(report.instance);
    }

    /// Tasks come back unstarted: they are ready again as they were. Returns
    /// how many of them were taken to hold room.
    pub(super) fn take_back(&mut self, id: ExecutorId, held: &Held) -> u64 {
        let Some(executor) = self.executors.find_mut(&id) else { return 0 };
        let mut freed = 0;
        let taken = executor.take(held);
        for run in &taken {
            freed += executor.release(&self.needs, run.need, run.count, true);
        }
        for run in taken {
            self.settle_inputs(id, held.instance, &run);
            self.put_back(held.instance, &run, run.counted());
        }
        freed
    }

    /// Tasks that were in flight are ready again, or end if they were to be
    /// cancelled.
    fn put_back(&mut self, id: InstanceId, run: &InFlight, tries: Tries) {
        let weight = self.needs[run.need].weight(run.count);
        let Some(instance) = self.instances.get_mut(&id) else { return };
        instance.dispatched -= run.count;
        instance.usage -= weight;
        instance.share.take_back(weight, run.counted_micros);
        let cancelled = instance.cancelling.within(run.first, run.count);
        let live = instance.cancelling.gaps(run.first, run.count);
        for (first, count) in cancelled {
            self.end_unrun(id, (first, count), Outcome::Cancelled, tries);
        }
        for (first, count) in live {
            self.requeue(id, first, count, run.class, tries);
        }
        self.runnable.mark(id);
    }

    pub(super) fn requeue(
        &mut self,
        id: InstanceId,
        first: u64,
        count: u64,
        class: u32,
        tries: Tries,
    ) {
        if let Some(instance) = self.instances.get_mut(&id) {
            let run = ReadyRun { first, count, class, tries };
            let key = instance.push_ready(&self.needs, &mut self.index, run);
            self.attempts.note(id, first, count, tries, None);
            self.located.grew(id, key);
            self.runnable.mark(id);
            self.unplaced = true;
        }
    }

    /// A connection is gone: an executor may come back for a while, a client's
    /// subscriptions end.
    pub(super) fn closed(&mut self, connection: ConnectionId) {
        self.unsubscribe(connection);
        let Some(id) = self.registry.disconnect(connection) else { return };
        let now = self.now;
        let Some(executor) = self.executors.find_mut(&id) else { return };
        executor.connection = None;
        executor.last_heard = now;
        if executor.leaving && executor.in_flight.is_empty() {
            self.lose_executor(id, "it left");
            return;
        }
        self.refresh_executor(id);
        self.watch(id, RECONNECT_GRACE_MICROS);
    }

    /// An executor is given up: its tasks run elsewhere.
    pub(super) fn lose_executor(&mut self, id: ExecutorId, reason: &'static str) {
        let Some(executor) = self.remove_executor(id, reason) else { return };
        self.registry.forget(executor.incarnation);
        self.outputs.executor_gone(executor.incarnation);
        self.journal(Record::ExecutorGone { incarnation: executor.incarnation });
        for ((instance, _), run) in executor.in_flight {
            if let Some(tries) = run.counted().lost() {
                self.put_back(instance, &run, tries);
                continue;
            }
            let weight = self.needs[run.need].weight(run.count);
            if let Some(instance) = self.instances.get_mut(&instance) {
                instance.dispatched -= run.count;
                instance.usage -= weight;
                instance.share.take_back(weight, run.counted_micros);
            }
            let of_run = (run.first, run.count);
            self.end_lost(instance, of_run, run.counted(), Some(id), run.dispatched);
            self.runnable.mark(instance);
        }
        self.unplaced = true;
    }

    /// Tasks were lost as often as is allowed, and once more.
    pub(super) fn end_lost(
        &mut self,
        id: InstanceId,
        (first, count): (u64, u64),
        tries: Tries,
        executor: Option<ExecutorId>,
        dispatched: Time,
    ) {
        let Some(instance) = self.instances.get(&id) else { return };
        let first = TaskId(first);
        let queued = instance.batch_of(first).map_or(Time::default(), |batch| batch.queued);
        let unrun = unrun(first, count, Outcome::Lost, queued, self.now);
        let attempts = tries.attempt();
        self.end(id, Finished { executor, attempts, dispatched, ..unrun });
    }

    /// Takes an executor out of the books, with its tasks still in flight.
    fn remove_executor(&mut self, id: ExecutorId, reason: &'static str) -> Option<Executor> {
        let executor = self.executors.remove(&id)?;
        self.forget_cache(id);
        self.tally.were_busy(self.now, self.busy);
        self.busy -= u64::from(executor.is_busy);
        if let Some(connection) = executor.connection {
            self.registry.disconnect(connection);
            self.actions.push_back(Action::Close { connection, reason });
        }
        if let Some(turn) = executor.turn {
            self.available.remove(&turn);
        }
        if let Some(key) = executor.prefetched_key {
            self.prefetched.remove(&(key, id));
        }
        if let Some((instance, key)) = executor.reserved
            && let Some(instance) = self.instances.get_mut(&instance)
            && let Some(queue) = instance.queues.find_mut(&key)
            && queue.reserved == Some(id)
        {
            queue.reserved = None;
        }
        self.orders.remove(id);
        self.fresh.remove(&id);
        self.reserved.remove(&id);
        Some(executor)
    }
}

/// Cuts what is too long, drops reports that name no tasks or more than there are numbers, and sets
/// times that are still to come to now: a peer must not move the clock that a
/// restarted dispatcher reads from its journal.
fn admit_reports(now: Time, reports: &mut Vec<Report>) {
    reports.retain(|report| is_run(report.first, report.count));
    for report in reports {
        report.bound();
        report.ended = report.ended.min(now);
        report.started = report.started.min(report.ended);
    }
}

fn admit_held(held: &mut Vec<Held>) {
    held.retain(|held| is_run(held.first, held.count));
}

/// The tasks that a report is about.
fn held_of(report: &Report) -> Held {
    Held {
        instance: report.instance,
        first: report.first,
        count: report.count,
        tries: report.tries,
    }
}

fn is_run(first: TaskId, count: u64) -> bool {
    count > 0 && first.0.checked_add(count).is_some()
}
