//! The state checker: what must hold after every step. Tests and the
//! simulator run it; it costs time in proportion to the state.

mod progress;
mod quiescent;

use super::alternatives::need_count;
use super::fleet::Executor;
use super::instance::Instance;
use super::placement::Placement;
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
            let Some(instance) = self.instances.find(&id) else {
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
        let subscribers = self.instances.values().flat_map(|instance| {
            instance.subscribers.iter().map(|found| (found.connection, instance.id))
        });
        self.outbound.check(subscribers, |id| self.instances.contains(id))
    }

    /// Checks the whole state.
    ///
    /// # Errors
    /// Says what does not hold.
    pub fn check(&self) -> Result<(), CheckError> {
        self.fleet.check(&self.needs)?;
        self.check_outputs()?;
        self.check_subscriptions()?;
        self.instances.check()?;
        self.tails.check()?;
        self.forwarding.check()?;
        let mut in_flight: BTreeMap<_, RunSet> = BTreeMap::new();
        for executor in self.fleet.iter() {
            for ((instance, first), run) in executor.in_flight.iter() {
                if self.speculation.is_copy(executor.id, *instance, *first) {
                    continue;
                }
                let new = in_flight.entry(*instance).or_default().insert(run.first, run.count);
                ensure!(new == run.count, "task {first} of instance {instance} is in flight twice");
            }
        }
        for instance in self.instances.values() {
            let flying = in_flight.remove(&instance.id).unwrap_or_default();
            check_instance(instance, &flying, &self.placement)?;
            self.check_needs(instance)?;
            if self.runnable.is_stale(instance.id) {
                continue;
            }
            let is_runnable = self.is_runnable(instance);
            ensure!(
                is_runnable == self.runnable.contains(instance.id, &instance.share),
                "instance {}: runnable but not listed under its turn, or not",
                instance.id
            );
        }
        ensure!(in_flight.is_empty(), "tasks of a destroyed instance are in flight");
        if self.instances.is_empty() {
            ensure!(self.runnable.len() == 0, "an instance that is gone is runnable");
            self.fleet.check_without_tasks()?;
            ensure!(self.needs.is_empty(), "needs outlive all instances");
        }
        self.check_quiescent()?;
        self.placement.check(&self.instances, &self.fleet)?;
        self.collectors.check(|id| self.fleet.contains(id))?;
        self.check_gangs()?;
        self.check_speculation()?;
        self.check_users()?;
        self.check_progress()
    }

    /// An instance's queues are those of its unfinished tasks' needs, and some
    /// that had tasks, each where searches find it.
    fn check_needs(&self, instance: &Instance) -> Result<(), CheckError> {
        let id = instance.id;
        let mut users = BTreeMap::<_, u64>::new();
        for batch in instance.batches.values() {
            let expected = if batch.unfinished > 0 { need_count(&batch.submission) } else { 0 };
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
fn check_instance(
    instance: &Instance,
    flying: &RunSet,
    placement: &Placement,
) -> Result<(), CheckError> {
    let id = instance.id;
    for (key, queue) in instance.queues.iter() {
        ensure!(queue.runs().all(|run| run.count > 0), "instance {id}: an empty ready run");
        let with_data = placement.tasks_of((id, key)).count() as u64;
        let len = queue.runs().map(|run| run.count).sum::<u64>() + with_data;
        ensure!(len == queue.len, "instance {id}: a queue's length is miscounted");
    }
    let ready = instance.queues.iter().flat_map(|(key, queue)| {
        let with_data = placement.tasks_of((id, key)).map(|(task, _)| (task, 1));
        queue.runs().map(|run| (run.first, run.count)).chain(with_data)
    });
    let ready = ready.chain(placement.everywhere().tasks_of(id).map(|(task, _)| (task, 1)));
    instance.tasks.check(ready, flying)?;
    let ended = instance.tasks.ended().len();
    let results = instance.results.end();
    let is_right = if instance.retries.is_empty() { results == ended } else { results >= ended };
    ensure!(is_right, "instance {id}: {ended} ended but {results} results");
    check_values(instance)?;
    let unfinished: u64 = instance.batches.values().map(|batch| batch.unfinished).sum();
    let recomputing = instance.tasks.recomputing(0, instance.tasks.total()).count() as u64;
    let open = instance.tasks.total() - ended + recomputing;
    ensure!(unfinished == open, "instance {id}: {unfinished} tasks are unfinished, not {open}");
    let mut templates = BTreeMap::<_, u64>::new();
    for batch in instance.batches.values().filter(|batch| batch.unfinished > 0) {
        *templates.entry(batch.id).or_default() += 1;
    }
    ensure!(
        templates
            .into_iter()
            .eq(instance.templates.iter().map(|(id, template)| (*id, template.batches))),
        "instance {id}: the templates of batches are miscounted"
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
            if batch.leaves_any || !instance.tasks.has_ended(batch.first + after.offset) {
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
        let is_done = instance.tasks.is_done(*task);
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
            .fleet
            .iter()
            .flat_map(Executor::node_capacities)
            .max_by_key(|capacity| capacity.cpus_milli)
    }
}
