//! Objects in caches alone that are lost while tasks still read them: the tasks
//! that wrote them run again, to any depth, and those that read them wait.
//!
//! A task that runs again has ended, and has its result: no second one is made
//! of it. Whoever waits for it is among the waiting tasks, as those that wait
//! for tasks that have not ended; what it reads itself is looked after when it
//! is about to be sent, as with any task. If nobody waits for it any more, it
//! is withdrawn. If it fails, those that wait have failed, with its failure as
//! the cause.

use super::end::unrun;
use super::executor::{InFlight, in_flight_from};
use super::instance::{Instance, ReadyRun};
use super::submit::hold_needs;
use super::{Dispatcher, Held, Record};
use crate::data::index::Place;
use crate::data::object::{Object, ObjectId};
use crate::limits::REMAKE_RUNS_MAX;
use crate::result::{Detail, Finished, Outcome, Tries};
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, TaskId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a task that runs again has been tried: as one that was lost.
const AGAIN: Tries = Tries { failures: 0, losses: 1 };

impl Dispatcher {
    /// Holds a task back that is in no queue at the moment, if something that
    /// it reads from caches is in none, and not on its way to the executor that
    /// it was to go to. Returns whether it did.
    pub(super) fn hold_back(
        &mut self,
        id: InstanceId,
        task: u64,
        tries: Tries,
        to: ExecutorId,
    ) -> bool {
        let Some(instance) = self.instances.get(&id) else { return false };
        let lost = self.lost_inputs(instance, task, self.index.place(to));
        if lost.is_empty() {
            return false;
        }
        self.wait_for(id, task, tries, lost);
        true
    }

    /// A task that is in no queue at the moment could not get its inputs. If
    /// that is because something that it reads from caches is in none any more,
    /// it waits for that to be made again; if it was told to look where the
    /// thing was not, it is tried again. Returns whether it goes on.
    pub(super) fn goes_on_without_input(&mut self, id: InstanceId, run: &InFlight) -> bool {
        let Some(instance) = self.instances.get(&id) else { return false };
        let knows_places = instance.options.policy.policy.knows_places();
        if run.count != 1 || instance.cancelling.contains(run.first) || !knows_places {
            return false;
        }
        let lost = self.lost_inputs(instance, run.first, None);
        if !lost.is_empty() {
            self.wait_for(id, run.first, run.counted(), lost);
            return true;
        }
        let made = self.doubted_inputs(instance, run.first);
        if made.is_empty() {
            return false;
        }
        if let Some(tries) = run.counted().lost() {
            self.requeue(id, run.first, 1, run.class, tries);
            return true;
        }
        // Those who say that they hold it cannot be reached, or are wrong.
        for object in made {
            self.disbelieve(object);
        }
        let Some(instance) = self.instances.get(&id) else { return false };
        let lost = self.lost_inputs(instance, run.first, None);
        self.wait_for(id, run.first, run.counted(), lost);
        true
    }

    /// The task that made an object and could do so again.
    fn maker(instance: &Instance, object: &Object, reader: u64) -> Option<u64> {
        let writer = instance.kept.objects.get(&object.id)?.writer?;
        let is_done = instance.finished.contains(writer) && !instance.failed.contains(writer);
        (is_done && writer != reader).then_some(writer)
    }

    /// What a task reads that was made by others, and that is in no cache: by
    /// its maker.
    fn lost_inputs(
        &self,
        instance: &Instance,
        task: u64,
        to: Option<Place>,
    ) -> BTreeMap<u64, Arc<str>> {
        let mut lost = BTreeMap::new();
        if instance.kept.objects.is_empty() {
            return lost;
        }
        for object in cached_inputs(instance, task) {
            let number = self.index.number(object.id);
            let is_somewhere = number.is_some_and(|number| {
                let comes = to.is_some_and(|place| self.index.is_coming(place, number));
                comes || !self.index.holders(number).is_empty()
            });
            if !is_somewhere && let Some(maker) = Dispatcher::maker(instance, object, task) {
                lost.insert(maker, Arc::clone(&object.url));
            }
        }
        lost
    }

    /// What a task reads that was made by others and that its executor could
    /// get from nobody, although somebody is said to hold it.
    fn doubted_inputs(&self, instance: &Instance, task: u64) -> Vec<ObjectId> {
        let doubted = cached_inputs(instance, task).filter(|object| {
            self.unobtainable.contains(&object.id)
                && Dispatcher::maker(instance, object, task).is_some()
        });
        doubted.map(|object| object.id).collect()
    }

    /// Nobody holds an object, whatever was said.
    fn disbelieve(&mut self, object: ObjectId) {
        let Some(number) = self.index.number(object) else { return };
        for place in self.index.holders(number).to_vec() {
            if self.index.remove(place, object).is_some() {
                self.holder_removed(place, number);
            }
            if let Some(id) = self.index.executor(place)
                && let Some(executor) = self.executors.find_mut(&id)
            {
                executor.order.data.get_or_insert_default().drop.push(object);
                self.orders.send(id);
            }
        }
    }

    /// A task waits until what it reads has been made again.
    fn wait_for(&mut self, id: InstanceId, task: u64, tries: Tries, lost: BTreeMap<u64, Arc<str>>) {
        for (maker, url) in &lost {
            if let Err(error) = self.make_again(id, *maker, url) {
                let Some(instance) = self.instances.get(&id) else { return };
                let batch = instance.batch_of(TaskId(task));
                let queued = batch.map_or(Time::default(), |batch| batch.queued);
                let ended = unrun(TaskId(task), 1, Outcome::NoInput, queued, self.now);
                let detail = Some(Arc::new(Detail { error, ..Detail::default() }));
                self.end(id, Finished { detail, ..ended });
                return;
            }
        }
        let Some(instance) = self.instances.get_mut(&id) else { return };
        instance.missing.insert(task, u32::try_from(lost.len()).unwrap_or(u32::MAX));
        instance.kept.parked.insert(task, tries);
        self.attempts.note(id, task, 1, tries, None);
        for maker in lost.into_keys() {
            instance.dependents.entry(maker).or_default().push(task);
        }
        self.runnable.mark(id);
    }

    /// A task that has ended runs again, for an object that it made.
    fn make_again(&mut self, id: InstanceId, task: u64, url: &str) -> Result<(), String> {
        let Some(instance) = self.instances.get_mut(&id) else { return Ok(()) };
        if instance.kept.again.contains(&task) {
            return Ok(());
        }
        let times = instance.kept.times.get(&task).copied().unwrap_or_default() + 1;
        if times > REMAKE_RUNS_MAX {
            return Err(format!(
                "{url} was lost again each time that task {task}, which writes it, had been run \
                 again: {REMAKE_RUNS_MAX} times; keep it in more caches, or in a store"
            ));
        }
        let class = instance.class_of(task);
        let Some((class, batch)) = class.zip(instance.batch_of_mut(TaskId(task))) else {
            return Err(format!("{url} is lost, and nothing is known of task {task} any more"));
        };
        batch.unfinished += 1;
        if batch.unfinished == 1 {
            let (batch, first) = (batch.id, batch.first);
            instance.told.entry(batch).or_default().batches += 1;
            self.hold_needs_again(id, first);
        }
        let Some(instance) = self.instances.get_mut(&id) else { return Ok(()) };
        if let Some((data, offset)) = data_of(instance, task) {
            let more: fn(&mut u64, u64) = |readers, tasks| *readers += tasks;
            instance.kept.count_readers(&data, offset, 1, more);
            self.readership.join(&data, offset, 1);
        }
        instance.kept.times.insert(task, times);
        instance.kept.again.insert(task);
        instance.ended.remade += 1;
        let run = ReadyRun { first: task, count: 1, class, tries: AGAIN };
        let key = instance.push_ready(&self.needs, &mut self.index, run);
        self.located.grew(id, key);
        self.journal(Record::Remade { instance: id, task: TaskId(task), times });
        self.to_deliver.insert(id);
        self.runnable.mark(id);
        self.unplaced = true;
        Ok(())
    }

    /// Tasks of a batch all of which had ended have needs again.
    fn hold_needs_again(&mut self, id: InstanceId, first: u64) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let Some(mut batch) = instance.batches.remove(&first) else { return };
        batch.needs = hold_needs(instance, &mut self.needs, &batch.submission);
        instance.batches.insert(first, batch);
    }

    /// Tasks that run again and that nobody waits for any more do not.
    pub(super) fn withdraw_idle(&mut self) {
        for id in std::mem::take(&mut self.stale_remakes) {
            while let Some(instance) = self.instances.get(&id) {
                let is_awaited = |task: &u64| {
                    let waiting = instance.dependents.get(task);
                    let mut waiting = waiting.into_iter().flatten();
                    waiting.any(|task| instance.missing.contains_key(task))
                };
                let again = instance.kept.again.iter();
                let idle: Vec<u64> = again.filter(|task| !is_awaited(task)).copied().collect();
                if idle.is_empty() {
                    break;
                }
                for task in idle {
                    self.withdraw(id, task);
                }
            }
        }
    }

    /// A task does not run again after all.
    fn withdraw(&mut self, id: InstanceId, task: u64) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        instance.kept.again.remove(&task);
        instance.kept.parked.remove(&task);
        instance.dependents.remove(&task);
        let was_waiting = instance.missing.remove(&task).is_some();
        let mut wanted = RunSet::default();
        wanted.insert(task, 1);
        let queued = instance.remove_ready(&self.needs, &mut self.index, &wanted);
        if !was_waiting && queued.is_empty() {
            let ids: Vec<ExecutorId> = self.executors.values().map(|found| found.id).collect();
            for executor in ids {
                self.stop(executor, id, task);
            }
        }
        self.settle_batches(id, task, 1);
        self.runnable.mark(id);
    }

    /// Takes a task from an executor, if it has it.
    fn stop(&mut self, executor: ExecutorId, id: InstanceId, task: u64) {
        let Some(found) = self.executors.find_mut(&executor) else { return };
        let Some(run) = in_flight_from(&found.in_flight, id, task, task + 1) else { return };
        let held = Held { instance: id, first: TaskId(task), count: 1, tries: run.tries };
        let taken = found.take(&held);
        found.order.disown.push(held);
        for run in &taken {
            found.release(&self.needs, run.need, run.count, true);
        }
        for run in &taken {
            if let Some(instance) = self.instances.get_mut(&id) {
                instance.dispatched -= run.count;
                let weight = self.needs[run.need].weight(run.count);
                instance.usage -= weight;
                instance.share.take_back(weight, run.counted_micros);
            }
            self.settle_inputs(executor, id, run);
        }
        self.orders.send(executor);
        self.fresh.insert(executor);
        self.refresh_executor(executor);
        self.unplaced = true;
    }

    /// An executor is about to be forgotten: those who may be fetching from it
    /// need not wait for it.
    pub(super) fn tell_gone(&mut self, id: ExecutorId, place: Place) {
        let mut told = std::collections::BTreeSet::new();
        for object in self.index.held_from(place, crate::data::index::ObjectNo(0)) {
            told.extend(self.index.coming(object).filter(|to| *to != place));
        }
        for to in told {
            if let Some(to) = self.index.executor(to)
                && let Some(executor) = self.executors.find_mut(&to)
            {
                executor.order.data.get_or_insert_default().gone.push(id);
                self.orders.send(to);
            }
        }
    }
}

/// What a task reads from caches alone.
fn cached_inputs(instance: &Instance, task: u64) -> impl Iterator<Item = &Object> {
    let batch = instance.batch_of(TaskId(task));
    let data = batch.and_then(|batch| {
        let data = batch.submission.data.as_deref()?;
        Some(data.inputs_of(task - batch.first))
    });
    data.into_iter().flatten().filter(|object| !object.is_stored())
}

/// The data of a task's batch, and its place there.
fn data_of(instance: &Instance, task: u64) -> Option<(Arc<crate::data::declared::Declared>, u64)> {
    let batch = instance.batch_of(TaskId(task))?;
    Some((batch.submission.data.clone()?, task - batch.first))
}

/// What those fail with who wait for a task that has failed when it was run
/// again: the same for those who wait for them in turn.
pub(super) fn cause(finished: &Finished) -> Arc<Detail> {
    let said = finished.detail.as_ref().map_or("", |detail| detail.error.as_str());
    if finished.attempts == 0 && !said.is_empty() {
        let error = said.to_owned();
        return Arc::new(Detail { error, ..Detail::default() });
    }
    let how = match finished.outcome {
        Outcome::Exit(code) => format!("exited with status {code}"),
        Outcome::Signal(signal) => format!("was ended by signal {signal}"),
        Outcome::TimedOut => "ran longer than its timeout".to_owned(),
        Outcome::NotRun => "could not be started".to_owned(),
        Outcome::NoOutput => "did not leave its outputs".to_owned(),
        Outcome::NoInput => "could not get its inputs".to_owned(),
        Outcome::Lost => "was lost with its executors".to_owned(),
        Outcome::UpstreamFailed(task) => format!("waits for task {task}, which failed"),
        Outcome::Unschedulable => "fits no executor any more".to_owned(),
        Outcome::Cancelled => "was cancelled".to_owned(),
        Outcome::Unreadable => "has a result that cannot be read".to_owned(),
    };
    let colon = if said.is_empty() { "" } else { ": " };
    let error = format!(
        "what it reads from caches was lost, and task {}, which was run again for that, {how}\
         {colon}{said}",
        finished.first
    );
    Arc::new(Detail { error, ..Detail::default() })
}
