//! Executors that register or come back, with the tasks that they have.

use super::alternatives::Said;
use super::fleet::{InFlight, Registered};
use super::instance::ReadyRun;
use super::outputs::admit_overflow;
use super::share::counted_micros;
use super::update::{admit_held, admit_reports, held_of};
use super::{Action, ConnectionId, Dispatcher, Held, HeldAlternative, Join, Record};
use crate::events::{What, text};
use crate::limits::{HELD_GANGS_MAX, JOIN_ALTERNATIVES_MAX};
use crate::result::{Outcome, Tries};
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, Resources, TaskClass, TaskId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

impl Dispatcher {
    /// An executor registers, or comes back with what it had. Each
    /// registration gets a number of its own.
    pub(super) fn join(&mut self, connection: ConnectionId, mut join: Join) {
        if self.fleet.of_connection(connection).is_some() {
            let reason = "an executor registered twice over one connection";
            self.outbound.push(Action::Close { connection, reason });
            return;
        }
        if let Err(error) = join.check() {
            self.outbound.push(Action::Refuse { connection, error });
            return;
        }
        admit_reports(self.now, &mut join.reports);
        admit_overflow(join.incarnation, &mut join.reports);
        admit_held(&mut join.held);
        join.gangs.truncate(HELD_GANGS_MAX);
        join.alternatives.truncate(JOIN_ALTERNATIVES_MAX);
        self.comeback.came(self.now, join.incarnation);
        let is_expected = self.comeback.expects(join.incarnation);
        let Registered { id, before } = self.fleet.register(connection, &join);
        if before.is_none() && !is_expected {
            self.placement.everywhere_mut().joined(join.incarnation, &join.capacity);
        }
        self.placement.everywhere_mut().look_at(join.incarnation);
        self.journal(Record::ExecutorSeen {
            executor: id,
            incarnation: join.incarnation,
            name: join.name.clone(),
        });
        let has_cache = join.serves.is_some();
        self.forget_names();
        self.placement.executor_joined(id, before, has_cache);
        let number = before;
        let before = before.map(|id| self.remove_executor(id, "the executor connected anew"));
        let unstaged = self.fleet.admit(id, connection, &join, before, (&self.needs, self.now));
        for (instance, run) in unstaged {
            self.is_unstaged(instance, &run);
        }
        if let Some(before) = number {
            self.speculation.renumbered(before, id);
            self.gang_member_renumbered((before, id));
        }
        self.gangs_return(id, &join.gangs);
        self.happenings.note(|| What::ExecutorJoined {
            executor: id,
            name: text(&join.name),
            capacity: join.capacity.clone(),
            allocation: join.lease.allocation,
            cache_bytes: join.cache.object_bytes,
        });
        self.collector_joined(id);
        if self.fleet[id].serves_others() {
            self.placement.lends(id, join.cache.lent_bytes);
        }
        let mut unknown = Vec::new();
        for report in join.reports {
            if self.report(id, &report) {
                self.outputs.discard_unreferenced(&report);
            } else {
                unknown.push(report);
            }
        }
        for is_lost in [false, true] {
            let same = unknown.iter().filter(|report| (report.outcome == Outcome::Lost) == is_lost);
            let said = same.clone().filter_map(|report| {
                let alternative = report.detail.as_ref()?.alternative;
                Some(HeldAlternative { held: held_of(report), alternative })
            });
            let said: Vec<HeldAlternative> = said.collect();
            let held: Vec<Held> = same.map(held_of).collect();
            self.adopt(id, (&held, &said), is_lost);
        }
        for report in unknown {
            self.report(id, &report);
            self.outputs.discard_unreferenced(&report);
        }
        self.reconcile(id, &join.held, &join.alternatives);
        self.reconcile_gangs(id, &join.gangs);
        self.no_longer_awaited(join.incarnation);
        self.repeat_cancellations(id);
        self.drain_again(id);
        // One with a cache, or a relay, is back when it has said what is held there.
        let is_relay = join.capacity == Resources::default();
        if !has_cache && !is_relay {
            self.is_back(join.incarnation);
        }
        self.fleet.list(id, self.now);
    }

    /// Notes that an executor which was there before a restart has come back.
    pub(super) fn is_back(&mut self, incarnation: u64) {
        if self.comeback.is_back(incarnation) {
            self.end_recovery();
        }
    }

    /// Makes the tasks that an executor reports to have, and those in its books
    /// here, the same.
    fn reconcile(&mut self, id: ExecutorId, held: &[Held], alternatives: &[HeldAlternative]) {
        for held in self.fleet.never_arrived(id, held) {
            self.take_returned(id, &held);
        }
        let mut rest = Vec::new();
        for held in held {
            let lost = self.of_lost_gangs(id, held);
            let of = |(first, count)| Held { first: TaskId(first), count, ..*held };
            for run in lost.iter() {
                self.fleet.serving(id).disown(of(run));
            }
            rest.extend(lost.gaps(held.first.0, held.count).into_iter().map(of));
        }
        self.adopt(id, (&rest, alternatives), false);
    }

    /// Counts tasks that an executor has, unknown to us, as dispatched to it,
    /// if they are ready; tells it to forget them if not. Those that `are_lost`
    /// it has no longer. Of those that have alternatives, it says which one; where it does not,
    /// the first is taken for it.
    fn adopt(
        &mut self,
        id: ExecutorId,
        (held, alternatives): (&[Held], &[HeldAlternative]),
        are_lost: bool,
    ) {
        let said = Said::new(alternatives);
        let mut executor = self.fleet.serving(id);
        let mut unknown: BTreeMap<(InstanceId, Tries), RunSet> = BTreeMap::new();
        for held in held {
            let set = unknown.entry((held.instance, held.tries)).or_default();
            set.insert(held.first.0, held.count);
        }
        let mut singles = HELD_GANGS_MAX as u64;
        for ((id, tries), mut wanted) in unknown {
            for (_, run) in executor.in_flight.range((id, 0)..=(id, u64::MAX)) {
                if run.tries == tries {
                    wanted.remove(run.first, run.count);
                }
            }
            let mut ready = Vec::new();
            if let Some(instance) = self.instances.find_mut(&id) {
                // Nobody has what is another's alone.
                let everywhere = self.placement.everywhere();
                let others = everywhere.of_others(id, executor.incarnation, &wanted);
                let mut own = wanted.clone();
                for (first, count) in others.iter() {
                    own.remove(first, count);
                }
                ready = instance.remove_ready(&self.needs, &mut self.placement, &own);
                let had = self.attempts.had_by(Some(executor.incarnation), id, &wanted);
                ready.extend(instance.remove_reading(&had));
            }
            let divided = |run: ReadyRun| {
                let has_several = self.instances[&id].has_alternatives(&run);
                if has_several { said.divide((id, tries), run) } else { vec![(run, 0)] }
            };
            let ready: Vec<(ReadyRun, u32)> = ready.into_iter().flat_map(divided).collect();
            for (run, number) in ready {
                let instance = &mut self.instances[&id];
                // An attempt that is known to have failed, or that is lost and
                // counted, is not the task's last: it goes on waiting for the
                // next.
                let is_counted = are_lost && run.tries.losses > tries.losses;
                if is_counted || run.tries.failures > tries.failures {
                    instance.push_ready(&self.needs, &mut self.placement, run);
                    continue;
                }
                wanted.remove(run.first, run.count);
                let Some(batch) = instance.batch_of(TaskId(run.first)) else { continue };
                let class = batch.submission.classes.get(run.class as usize);
                let estimate = class.and_then(TaskClass::given_estimate);
                let Some(chosen) = batch.alternative(run.class, number) else { continue };
                let (need, need_id) = (&self.needs[chosen.need], chosen.need);
                let (batch, dispatched) = (batch.id, self.now);
                let key = (Reverse(need.priority), need_id);
                let found = instance.queues.find_with_likes(&key);
                let measured = found.and_then(|(_, measured)| measured.mean_micros);
                let run_micros = estimate.or(measured).unwrap_or(0);
                let is_gang = need.is_gang();
                instance.tasks.assign(run.first, run.count);
                instance.usage += need.weight(run.count);
                let counted_micros = counted_micros(None, None);
                instance.share.send(need.weight(run.count), counted_micros);
                let losses = run.tries.losses.saturating_sub(tries.losses);
                // The attempt that comes back was lost once, unless the latest one
                // has not been given up: that is this one, or is still out.
                // Each task that runs on several executors is by itself. No executor that is
                // sound has more of them than it may hold gangs.
                let mut parts = Vec::new();
                for (first, count, had) in self.attempts.split(id, &run) {
                    if is_gang && count <= singles {
                        singles -= count;
                        parts.extend((first..first + count).map(|at| (at, 1, had)));
                    } else {
                        parts.push((first, count, had));
                    }
                }
                for (first, count, had) in parts {
                    let later = losses.saturating_sub(u32::from(!had));
                    let (class, need_id, row_bytes) = (run.class, need_id, 0);
                    let in_flight = InFlight {
                        first,
                        count,
                        batch,
                        class,
                        need: need_id,
                        alternative: chosen.alternative,
                        tries,
                        later,
                        dispatched,
                        counted_micros,
                        row_bytes,
                        is_staged: false,
                        is_gang,
                        is_below: false,
                    };
                    let counted = in_flight.counted();
                    self.attempts.note(id, first, count, counted, Some(executor.id));
                    executor.adopt(id, in_flight, &self.needs, run_micros);
                }
            }
            for (first, count) in wanted.iter() {
                let first = TaskId(first);
                executor.disown(Held { instance: id, first, count, tries });
            }
        }
        let instances: BTreeSet<InstanceId> = held.iter().map(|held| held.instance).collect();
        for instance in instances {
            if self.instances.contains(&instance) {
                self.runnable.mark(instance);
            }
        }
    }

    /// An executor that comes back may not have heard which of its tasks are
    /// to be cancelled.
    fn repeat_cancellations(&mut self, id: ExecutorId) {
        for instance in self.fleet[id].instances() {
            let instance = &self.instances[&instance];
            let cancelling = instance.tasks.cancelling();
            if !cancelling.is_empty() {
                self.fleet.cancel_at(id, instance.id, cancelling);
            }
        }
    }

    /// Forgets names of executors that nobody will ask for, if there are many.
    fn forget_names(&mut self) {
        if !self.fleet.has_many_names() {
            return;
        }
        let results = self.instances.values().flat_map(|instance| instance.results.iter());
        let mentioned: BTreeSet<_> = results.filter_map(|(_, run)| run.executor).collect();
        let comeback = &self.comeback;
        self.fleet.forget_names(|id| comeback.expects_number(id) || mentioned.contains(&id));
    }
}
