//! The state checker: what must hold after every step. Tests and the
//! simulator run it; it costs time in proportion to the state.

mod data;
mod settled;

use super::instance::Instance;
use super::subscriptions::Subscriptions;
use super::values::Value;
use super::{Dispatcher, InstanceView};
use crate::runset::RunSet;
use crate::task::Resources;
use std::collections::BTreeMap;

/// Something that must hold does not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CheckError(String);

impl CheckError {
    pub(crate) fn new(text: String) -> CheckError {
        CheckError(text)
    }
}

macro_rules! ensure {
    ($holds:expr, $($text:tt)*) => {
        if !$holds {
            return Err($crate::dispatch::CheckError::new(format!($($text)*)));
        }
    };
}

pub(crate) use ensure;

impl Dispatcher {
    /// Output is known of results that are held, and of no others.
    fn check_outputs(&self) -> Result<(), CheckError> {
        let wrong = self.outputs.check();
        ensure!(wrong.is_none(), "the books on kept output do not agree: {wrong:?}");
        for id in self.outputs.instances() {
            let Some(instance) = self.instances.get(&id) else {
                return Err(CheckError::new(format!("output of instance {id}, which is gone")));
            };
            let held = instance.results.start()..instance.results.end();
            let is_held = self.outputs.positions(id).all(|position| held.contains(&position));
            ensure!(is_held, "instance {id}: output of results that are not held");
        }
        Ok(())
    }

    /// Subscribers are known by connection as they are by instance.
    fn check_subscriptions(&self) -> Result<(), CheckError> {
        let mut counted = Subscriptions::default();
        let mut subscribers = 0;
        for instance in self.instances.values() {
            subscribers += instance.subscribers.len();
            for found in &instance.subscribers {
                counted.add(found.connection, instance.id);
            }
        }
        ensure!(counted == self.subscriptions, "subscribers that would never end, or are gone");
        ensure!(subscribers == counted.len(), "a connection subscribes twice");
        ensure!(self.outflow.is_sound(), "what is unwritten is counted wrongly");
        Ok(())
    }

    /// Checks the whole state.
    ///
    /// # Errors
    /// Says what does not hold.
    pub fn check(&self) -> Result<(), CheckError> {
        let are_sent = self.orders.is_sound(|id| self.executors.contains_key(id));
        ensure!(are_sent, "an order waits that is never sent, or is for nobody");
        self.check_outputs()?;
        self.check_subscriptions()?;
        let alive = self.lifetimes.ids().eq(self.instances.keys().copied());
        ensure!(alive, "lifetimes are not those of the instances");
        let mut in_flight: BTreeMap<_, RunSet> = BTreeMap::new();
        for executor in self.executors.values() {
            let mut counts: BTreeMap<_, u64> = BTreeMap::new();
            for ((instance, first), run) in &executor.in_flight {
                ensure!(*first == run.first, "executor {}: misfiled run {first}", executor.id);
                let new = in_flight.entry(*instance).or_default().insert(run.first, run.count);
                ensure!(new == run.count, "task {first} of instance {instance} is in flight twice");
                *counts.entry(run.need).or_default() += run.count;
            }
            let mut free = executor.capacity.clone();
            for (need, load) in executor.loads.iter() {
                let resources = &self.needs[need].resources;
                let fits = free.count_of(resources, load.slotted);
                ensure!(fits == load.slotted, "executor {} has more than its room", executor.id);
                free.take(resources, load.slotted);
                ensure!(
                    counts.remove(&need) == Some(load.slotted + load.prefetched),
                    "executor {}: load and tasks in flight differ",
                    executor.id
                );
            }
            ensure!(counts.is_empty(), "executor {}: tasks without load", executor.id);
            executor.loads.check()?;
            ensure!(free == executor.free, "executor {}: free room is miscounted", executor.id);
        }
        for instance in self.instances.values() {
            let flying = in_flight.remove(&instance.id).unwrap_or_default();
            check_instance(instance, &flying)?;
            self.check_needs(instance)?;
            if self.runnable.is_stale(instance.id) {
                continue;
            }
            let is_runnable = instance.ready > 0 && !self.is_clogged(instance);
            ensure!(
                is_runnable == self.runnable.contains(instance.id, &instance.share),
                "instance {}: runnable but not listed under its turn, or not",
                instance.id
            );
        }
        ensure!(in_flight.is_empty(), "tasks of a destroyed instance are in flight");
        if self.instances.is_empty() {
            ensure!(self.runnable.len() == 0, "an instance that is gone is runnable");
            ensure!(self.prefetched.is_empty(), "tasks that are gone are prefetched");
            ensure!(self.reserved.is_empty(), "an executor is emptied for nothing");
            ensure!(
                self.executors.values().all(|one| one.reserved.is_none()),
                "emptied for nothing"
            );
            ensure!(self.needs.is_empty(), "needs outlive all instances");
        }
        if self.executors.is_empty() {
            ensure!(self.registry.is_empty(), "a connection or incarnation outlives its executor");
            ensure!(self.available.is_empty(), "an executor that is gone is available");
            ensure!(self.fresh.is_empty(), "an executor that is gone gained room");
        }
        for executor in self.executors.values() {
            let id = &executor.id;
            let listed = self.reserved.contains(id);
            ensure!(listed == executor.reserved.is_some(), "executor {id}: misreserved");
            let Some(connection) = executor.connection else { continue };
            let mine = self.registry.of(connection) == Some(*id);
            ensure!(mine, "executor {id} is connected but not listed");
        }
        for (turn, id) in &self.available {
            let turned = self.executors.find(id).is_some_and(|found| found.turn == Some(*turn));
            ensure!(turned, "executor {id} is available under a stale turn");
        }
        self.check_settled()?;
        self.check_data()
    }

    /// An instance's queues are those of its unfinished tasks' needs, and some
    /// that had tasks, each where searches find it.
    fn check_needs(&self, instance: &Instance) -> Result<(), CheckError> {
        let id = instance.id;
        let mut users = BTreeMap::<_, u64>::new();
        for batch in instance.batches.values() {
            let expected = if batch.unfinished > 0 { batch.submission.classes.len() } else { 0 };
            ensure!(batch.needs.len() == expected, "instance {id}: a batch's needs are miscounted");
            batch.needs.iter().for_each(|need| *users.entry(*need).or_default() += 1);
        }
        for (need, counted) in instance.queues.users() {
            let expected = users.remove(&need).unwrap_or_default();
            ensure!(counted == expected, "instance {id}: users of a need are miscounted");
        }
        ensure!(users.is_empty(), "instance {id}: tasks have a need without a queue");
        instance.queues.check(id, &self.needs)
    }
}

/// Every accepted task is in exactly one place.
fn check_instance(instance: &Instance, flying: &RunSet) -> Result<(), CheckError> {
    let id = instance.id;
    let mut seen = instance.finished.clone();
    for task in &instance.kept.again {
        let ended = seen.remove(*task, 1);
        ensure!(ended == 1, "instance {id}: task {task} runs again and has not ended");
    }
    for task in instance.kept.parked.keys() {
        let waits = instance.missing.contains_key(task);
        ensure!(waits, "instance {id}: task {task} is parked and does not wait");
    }
    let mut place = |what: &str, first: u64, count: u64| {
        let new = seen.insert(first, count);
        ensure!(new == count, "instance {id}: task {first}+{count} {what} is elsewhere too");
        Ok(())
    };
    for (first, count) in flying.iter() {
        place("in flight", first, count)?;
    }
    for task in instance.missing.keys() {
        place("waiting", *task, 1)?;
    }
    let mut ready = 0;
    for queue in instance.queues.values() {
        let mut len = 0;
        for run in queue.runs.iter() {
            ensure!(run.count > 0, "instance {id}: an empty ready run");
            place("ready", run.first, run.count)?;
            len += run.count;
        }
        for task in queue.located.iter().flat_map(|located| located.numbers()) {
            place("located", task, 1)?;
            len += 1;
        }
        ensure!(len == queue.len, "instance {id}: a queue's length is miscounted");
        ready += len;
    }
    ensure!(seen.len() == instance.total, "instance {id}: a task is nowhere");
    ensure!(ready == instance.ready, "instance {id}: ready is miscounted");
    ensure!(flying.len() == instance.dispatched, "instance {id}: dispatched is miscounted");
    let ended = instance.ended.ended();
    ensure!(ended == instance.finished.len(), "instance {id}: ended is miscounted");
    ensure!(
        instance.results.end() == ended,
        "instance {id}: {ended} ended but {} results",
        instance.results.end()
    );
    check_values(instance)?;
    let unfinished: u64 = instance.batches.values().map(|batch| batch.unfinished).sum();
    let open = instance.total - ended + instance.kept.again.len() as u64;
    ensure!(unfinished == open, "instance {id}: {unfinished} tasks are unfinished, not {open}");
    let mut told = BTreeMap::<_, u64>::new();
    for batch in instance.batches.values().filter(|batch| batch.unfinished > 0) {
        *told.entry(batch.id).or_default() += 1;
    }
    ensure!(
        told.into_iter().eq(instance.told.iter().map(|(id, told)| (*id, told.batches))),
        "instance {id}: what executors are told is miscounted"
    );
    Ok(())
}

/// Exactly those values are held that tasks take that have not ended, or may
/// run again.
fn check_values(instance: &Instance) -> Result<(), CheckError> {
    let id = instance.id;
    let mut takers = BTreeMap::<u64, u64>::new();
    for batch in instance.batches.values() {
        for after in &batch.submission.after {
            if batch.leaves_any || !instance.finished.contains(batch.first + after.offset) {
                after.taken().iter().for_each(|task| *takers.entry(task.0).or_default() += 1);
            }
        }
    }
    let mut bytes = 0;
    for (task, wanted) in &instance.values.wanted {
        let expected = takers.remove(task).unwrap_or_default();
        ensure!(
            expected == wanted.takers && expected > 0,
            "instance {id}: the value of task {task} has {} takers, not {expected}",
            wanted.takers
        );
        let is_done = instance.finished.contains(*task) && !instance.failed.contains(*task);
        let is_awaited = wanted.value == Value::Awaited;
        ensure!(is_done != is_awaited, "instance {id}: the value of task {task} was missed");
        if let Value::Held(Some(detail)) = &wanted.value {
            bytes += detail.bytes();
        }
    }
    ensure!(takers.is_empty(), "instance {id}: values are wanted of {takers:?}");
    ensure!(bytes == instance.values.bytes, "instance {id}: bytes of values are miscounted");
    Ok(())
}

impl InstanceView<'_> {
    /// The largest room any executor offers, for messages about tasks that fit
    /// none.
    #[must_use]
    pub fn largest_offer(&self) -> Option<&Resources> {
        self.dispatcher
            .executors
            .values()
            .map(|executor| &executor.capacity)
            .max_by_key(|capacity| capacity.cpus_milli)
    }
}
