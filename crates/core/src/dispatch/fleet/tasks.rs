//! The tasks that executors have: how they are sent, end, and are taken back.

use super::executor::{Executor, InFlight, in_flight_from};
use super::orders::Orders;
use super::{Busy, Fleet};
use crate::dispatch::needs::Needs;
use crate::dispatch::update::held_of;
use crate::dispatch::{Assigned, Held, Prepare};
use crate::limits::RUN_MICROS_MAX;
use crate::result::Report;
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, TaskId, Time};
use std::ops::Deref;

/// An executor that is given tasks.
#[derive(Debug)]
pub(in crate::dispatch) struct Serving<'a> {
    executor: &'a mut Executor,
    served: &'a mut Option<ExecutorId>,
    orders: &'a mut Orders,
    busy: &'a mut Busy,
}

impl Deref for Serving<'_> {
    type Target = Executor;

    fn deref(&self) -> &Executor {
        self.executor
    }
}

impl Serving<'_> {
    /// Counts tasks as sent, see [`Executor::add`]. They go with an
    /// [assignment](Serving::assign), and the executor is listed afterwards.
    pub(in crate::dispatch) fn send(
        &mut self,
        instance: InstanceId,
        run: InFlight,
        needs: &Needs,
        each_nanos: u64,
    ) {
        debug_assert!(
            self.served.is_none_or(|served| served == self.executor.id),
            "executor {:?} is not listed",
            self.served
        );
        *self.served = Some(self.executor.id);
        self.busy.change(self.executor, true, run.dispatched);
        self.executor.add(instance, run, needs, each_nanos);
    }

    /// Counts tasks as sent that an executor which joins has already, and that run for so
    /// long as far as is known.
    pub(in crate::dispatch) fn adopt(
        &mut self,
        instance: InstanceId,
        run: InFlight,
        needs: &Needs,
        run_micros: u64,
    ) {
        self.executor.add_anew(instance, run, needs, run_micros);
    }

    /// Adds tasks to its order, which is sent.
    pub(in crate::dispatch) fn assign(&mut self, assigned: Assigned) {
        self.executor.order.edit().assign.push(assigned);
        self.orders.send(self.executor.id);
    }

    /// Adds the template of tasks to its order.
    pub(in crate::dispatch) fn prepare(&mut self, prepare: Prepare) {
        // It may be told anew what it was to forget.
        self.executor.order.edit().forget.retain(|forgotten| *forgotten != prepare.batch);
        self.executor.order.edit().prepare.push(prepare);
    }

    /// Orders that tasks be forgotten.
    pub(in crate::dispatch) fn disown(&mut self, held: Held) {
        self.executor.order.edit().disown.push(held);
        self.orders.send(self.executor.id);
    }
}

impl Fleet {
    /// An executor, to be given tasks.
    pub(in crate::dispatch) fn serving(&mut self, id: ExecutorId) -> Serving<'_> {
        Serving {
            executor: &mut self.roster[id],
            served: &mut self.served,
            orders: &mut self.orders,
            busy: &mut self.busy,
        }
    }

    /// Takes out what a report is about: the room of these tasks is free again,
    /// and their outcome speaks for the executor or against it. The list is to be
    /// [given back](Fleet::recycle).
    pub(in crate::dispatch) fn take_ended(
        &mut self,
        id: ExecutorId,
        report: &Report,
        needs: &Needs,
        now: Time,
    ) -> Vec<InFlight> {
        debug_assert!(self.new_room.contains(&id), "executor {id} gains room unseen");
        let mut ended = std::mem::take(&mut self.scratch);
        let executor = &mut self.roster[id];
        executor.take_into(&held_of(report), &mut ended);
        let micros = report.ended.since(report.started);
        executor.mean_micros = (executor.mean_micros * 7 + micros.min(RUN_MICROS_MAX)) / 8;
        for run in &ended {
            executor.release(needs, run, false);
        }
        if !ended.is_empty() {
            self.judge(id, report.outcome, now);
        }
        ended
    }

    /// Tasks have ended and hold nothing any more. Returns those of which that was
    /// not known, as they were.
    pub(in crate::dispatch) fn stage(
        &mut self,
        id: ExecutorId,
        held: &Held,
        needs: &Needs,
    ) -> Vec<InFlight> {
        debug_assert!(self.new_room.contains(&id), "executor {id} gains room unseen");
        self.roster[id].stage(needs, held)
    }

    /// What tasks below a relay had staged is lost: they have not ended. Returns those of
    /// which that was not known, as they are now.
    pub(in crate::dispatch) fn unstage(
        &mut self,
        id: ExecutorId,
        held: &Held,
        needs: &Needs,
    ) -> Vec<InFlight> {
        self.new_room.insert(id);
        self.roster[id].unstage(needs, held)
    }

    /// Takes the memory of a list back, to be used again.
    pub(in crate::dispatch) fn recycle(&mut self, mut list: Vec<InFlight>) {
        list.clear();
        self.scratch = list;
    }

    /// Takes out tasks that come back unstarted. Returns them, and how many were
    /// taken to hold room.
    pub(in crate::dispatch) fn take_returned(
        &mut self,
        id: ExecutorId,
        held: &Held,
        needs: &Needs,
    ) -> (Vec<InFlight>, u64) {
        debug_assert!(self.new_room.contains(&id), "executor {id} gains room unseen");
        let executor = &mut self.roster[id];
        let taken = executor.take(held);
        let freed = taken.iter().map(|run| executor.release(needs, run, true));
        let freed = freed.sum();
        (taken, freed)
    }

    /// Tasks that an executor has are a run of their own from now on.
    pub(in crate::dispatch) fn single_out(&mut self, id: ExecutorId, held: &Held) {
        let executor = &mut self.roster[id];
        for run in executor.take(held) {
            executor.in_flight_bytes += run.row_bytes * run.count;
            executor.in_flight.insert((held.instance, run.first), run);
        }
    }

    /// An executor gave back unstarted what was taken to hold room there.
    pub(in crate::dispatch) fn misjudge(&mut self, id: ExecutorId) {
        self.roster[id].misjudged = true;
    }

    /// The tasks that an executor was sent and that are not among those it says
    /// it has.
    pub(in crate::dispatch) fn never_arrived(&mut self, id: ExecutorId, has: &[Held]) -> Vec<Held> {
        let executor = &mut self.roster[id];
        let mut arrived = Vec::new();
        for held in has {
            arrived.extend(executor.take(held).into_iter().map(|run| (held.instance, run)));
        }
        let missing = executor.held().collect();
        for (instance, run) in arrived {
            executor.in_flight_bytes += run.row_bytes * run.count;
            executor.in_flight.insert((instance, run.first), run);
        }
        missing
    }

    /// Has executors stop what they have of `wanted`, which are `left` tasks at
    /// most: the executors behind the last one with such tasks are not looked at.
    pub(in crate::dispatch) fn cancel(
        &mut self,
        instance: InstanceId,
        wanted: &RunSet,
        mut left: u64,
    ) {
        for executor in self.roster.values_mut() {
            if left == 0 {
                break;
            }
            let stopped = executor.cancel(instance, wanted);
            left = left.saturating_sub(stopped);
            if stopped > 0 {
                self.orders.send(executor.id);
            }
        }
    }

    /// Has one executor stop what it has of `wanted`.
    pub(in crate::dispatch) fn cancel_at(
        &mut self,
        id: ExecutorId,
        instance: InstanceId,
        wanted: &RunSet,
    ) {
        if self.roster[id].cancel(instance, wanted) > 0 {
            self.orders.send(id);
        }
    }

    /// Takes a task from the executor that has it, if one has.
    pub(in crate::dispatch) fn withdraw(
        &mut self,
        instance: InstanceId,
        task: u64,
        needs: &Needs,
        now: Time,
    ) -> Option<(ExecutorId, InFlight)> {
        let (id, tries) = self.roster.values().find_map(|executor| {
            let run = in_flight_from(&executor.in_flight, instance, task, task + 1)?;
            Some((executor.id, run.tries))
        })?;
        let held = Held { instance, first: TaskId(task), count: 1, tries };
        let executor = &mut self.roster[id];
        let run = executor.take(&held).pop()?;
        executor.order.edit().disown.push(held);
        executor.release(needs, &run, true);
        self.orders.send(id);
        self.new_room.insert(id);
        self.list(id, now);
        Some((id, run))
    }

    /// Takes an instance's tasks from executors, which have `left` of them: the
    /// executors behind the last one with such tasks are not looked at.
    pub(in crate::dispatch) fn drop_instance(
        &mut self,
        instance: InstanceId,
        mut left: u64,
        needs: &Needs,
        now: Time,
    ) {
        for executor in self.roster.values_mut() {
            if left == 0 {
                break;
            }
            for held in executor.held_of(instance) {
                left = left.saturating_sub(held.count);
                for run in executor.take(&held) {
                    executor.release(needs, &run, true);
                }
                executor.order.edit().disown.push(held);
                self.orders.send(executor.id);
                self.new_room.insert(executor.id);
            }
        }
        let ids: Vec<_> = self.new_room.iter().copied().collect();
        for id in ids {
            self.list(id, now);
        }
    }
}
