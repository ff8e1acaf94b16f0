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
use super::fleet::InFlight;
use super::instance::{Instance, ReadyRun};
use super::submit::hold_needs;
use super::{Dispatcher, Record};
use crate::data::object::{Object, ObjectId};
use crate::events::What;
use crate::limits::RECOMPUTE_RUNS_MAX;
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
        let lost = self.lost_inputs(&self.instances[&id], task, Some(to));
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
    ///
    /// A relay does not say which inputs that were, so that it may be any.
    pub(super) fn goes_on_without_input(
        &mut self,
        id: InstanceId,
        run: &InFlight,
        is_below: bool,
    ) -> bool {
        let instance = &self.instances[&id];
        let knows_places = instance.options.policy.policy.knows_places();
        if run.count != 1 || instance.tasks.cancelling().contains(run.first) || !knows_places {
            return false;
        }
        let lost = self.lost_inputs(instance, run.first, None);
        if !lost.is_empty() {
            self.wait_for(id, run.first, run.counted(), lost);
            return true;
        }
        let made = self.doubted_inputs(instance, run.first, is_below);
        if made.is_empty() {
            return false;
        }
        if let Some(tries) = run.counted().lost() {
            self.requeue(id, run.first, 1, run.class, tries);
            return true;
        }
        // Those who say that they hold it cannot be reached, or are wrong.
        for object in made {
            let notices = self.placement.disbelieve(object);
            self.notify(notices);
        }
        let lost = self.lost_inputs(&self.instances[&id], run.first, None);
        self.wait_for(id, run.first, run.counted(), lost);
        true
    }

    /// The task that made an object and could do so again.
    fn maker(instance: &Instance, object: &Object, reader: u64) -> Option<u64> {
        let writer = instance.intermediates.objects.get(&object.held_as())?.writer?;
        let is_done = instance.tasks.is_done(writer);
        (is_done && writer != reader).then_some(writer)
    }

    /// What a task reads that was made by others, and that is in no cache: by
    /// its maker.
    fn lost_inputs(
        &self,
        instance: &Instance,
        task: u64,
        to: Option<ExecutorId>,
    ) -> BTreeMap<u64, Arc<str>> {
        let mut lost = BTreeMap::new();
        if instance.intermediates.objects.is_empty() {
            return lost;
        }
        for object in cached_inputs(instance, task) {
            let is_somewhere = self.placement.is_in_cache(object.held_as(), to);
            if !is_somewhere && let Some(maker) = Dispatcher::maker(instance, object, task) {
                lost.insert(maker, Arc::clone(&object.url));
            }
        }
        lost
    }

    /// What a task reads that was made by others and that its executor could
    /// get from nobody, although somebody is said to hold it; or all of that.
    fn doubted_inputs(&self, instance: &Instance, task: u64, are_all: bool) -> Vec<ObjectId> {
        let doubted = cached_inputs(instance, task).filter(|object| {
            (are_all || self.placement.is_unobtainable(object.held_as()))
                && Dispatcher::maker(instance, object, task).is_some()
        });
        doubted.map(Object::held_as).collect()
    }

    /// A task waits until what it reads has been made again.
    fn wait_for(&mut self, id: InstanceId, task: u64, tries: Tries, lost: BTreeMap<u64, Arc<str>>) {
        for (maker, url) in &lost {
            if let Err(error) = self.make_again(id, *maker, url) {
                let batch = self.instances[&id].batch_of(TaskId(task));
                let queued = batch.map_or(Time::default(), |batch| batch.queued);
                let ended = unrun(TaskId(task), 1, Outcome::NoInput, queued, self.now);
                let detail = Some(Arc::new(Detail { error, ..Detail::default() }));
                self.end(id, Finished { detail, ..ended });
                return;
            }
        }
        let instance = &mut self.instances[&id];
        instance.tasks.hold(task, 0, lost.into_keys(), Some(tries));
        self.attempts.note(id, task, 1, tries, None);
        self.runnable.mark(id);
    }

    /// A task that has ended runs again, for an object that it made.
    fn make_again(&mut self, id: InstanceId, task: u64, url: &str) -> Result<(), String> {
        let instance = &mut self.instances[&id];
        if instance.tasks.is_recomputing(task) {
            return Ok(());
        }
        let times = instance.intermediates.times.get(&task).copied().unwrap_or_default() + 1;
        if times > RECOMPUTE_RUNS_MAX {
            return Err(format!(
                "{url} was lost again each time that task {task}, which writes it, had been run \
                 again: {RECOMPUTE_RUNS_MAX} times; keep it in more caches, or in a store"
            ));
        }
        let class = instance.class_of(task);
        let Some((class, batch)) = class.zip(instance.batch_of_mut(TaskId(task))) else {
            return Err(format!("{url} is lost, and nothing is known of task {task} any more"));
        };
        batch.unfinished += 1;
        if batch.unfinished == 1 {
            let (batch, first) = (batch.id, batch.first);
            instance.templates.entry(batch).or_default().batches += 1;
            self.hold_needs_again(id, first);
        }
        let instance = &mut self.instances[&id];
        if let Some((data, offset)) = data_of(instance, task) {
            let more: fn(&mut u64, u64) = |readers, tasks| *readers += tasks;
            instance.intermediates.count_readers(&data, offset, 1, more);
            self.placement.runs_again(&data, offset);
        }
        instance.intermediates.times.insert(task, times);
        instance.tasks.recompute(task);
        let run = ReadyRun { first: task, count: 1, class, tries: AGAIN };
        instance.push_ready(&self.needs, &mut self.placement, run);
        self.happenings.note(|| What::Recomputed { instance: id, task: TaskId(task) });
        self.journal(Record::Recomputed { instance: id, task: TaskId(task), times });
        self.outbound.mark(id);
        self.runnable.mark(id);
        self.unplaced = true;
        Ok(())
    }

    /// Tasks of a batch all of which had ended have needs again.
    pub(super) fn hold_needs_again(&mut self, id: InstanceId, first: u64) {
        let instance = &mut self.instances[&id];
        let Some(mut batch) = instance.batches.remove(&first) else { return };
        batch.needs = hold_needs(instance, &mut self.needs, &batch.submission);
        instance.batches.insert(first, batch);
    }

    /// Tasks that run again and that nobody waits for any more do not.
    pub(super) fn withdraw_idle(&mut self) {
        for id in self.instances.take_stale_recomputes() {
            loop {
                let instance = &self.instances[&id];
                let idle = instance.tasks.recomputed_for_nobody();
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
        let instance = &mut self.instances[&id];
        instance.tasks.take_dependents(task);
        let was_waiting = instance.tasks.release(task).is_some();
        let mut wanted = RunSet::default();
        wanted.insert(task, 1);
        let queued = instance.remove_ready(&self.needs, &mut self.placement, &wanted);
        if !was_waiting && queued.is_empty() {
            self.stop(id, task);
        }
        self.instances[&id].tasks.end_recomputed(task, 1);
        self.count_ended_in_batches(id, task, 1);
        self.runnable.mark(id);
    }

    /// Takes a task from the executor that has it, if one has.
    fn stop(&mut self, id: InstanceId, task: u64) {
        let withdrawn = self.fleet.withdraw(id, task, &self.needs, self.now);
        self.gangs.look_at_instance(id);
        let Some((executor, run)) = withdrawn else { return };
        self.instances[&id].give_back(&run, &self.needs[run.need]);
        self.cancel_input_transfers(executor, id, &run);
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
