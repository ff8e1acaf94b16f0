//! What becomes of tasks that come back from executors: they end, are tried
//! again, or are queued as they were.

use super::Dispatcher;
use super::end::unrun;
use super::fleet::InFlight;
use super::instance::{Batch, ReadyRun};
use crate::result::{Finished, Outcome, Report, Tries};
use crate::task::{ExecutorId, InstanceId, TaskId, Time};

impl Dispatcher {
    /// Tasks came back from an executor with an outcome: they end, or are
    /// tried again.
    pub(super) fn conclude(
        &mut self,
        id: ExecutorId,
        report: &Report,
        run: &InFlight,
        micros: u64,
    ) {
        let is_below = self.fleet[id].subtree.is_some();
        if report.outcome == Outcome::Exit(0) && is_below {
            self.made_below(id, report.instance, run);
        }
        let need = &self.needs[run.need];
        let instance = &mut self.instances[&report.instance];
        instance.tasks.give_back(run.first, run.count);
        let weight = need.weight(run.count);
        instance.usage -= run.used(need);
        let took = (run.counted_micros, micros);
        self.runnable.end(&mut instance.share, weight, took, self.now);
        if matches!(report.outcome, Outcome::Exit(_) | Outcome::Signal(_)) {
            let (task, chosen) = ((run.first, run.class), run.chosen());
            instance.measure(&self.needs, task, chosen, (micros, run.count));
            self.speculation.measure(report.instance, run, report.outcome, micros);
        }
        if report.outcome == Outcome::NoInput
            && self.goes_on_without_input(report.instance, run, is_below)
        {
            self.runnable.mark(report.instance);
            return;
        }
        let tries = run.counted();
        let anew = {
            // Another executor may have room for another alternative.
            let of_class = match run.alternative {
                0 => None,
                _ => self.instances[&report.instance].need_of_class(run.first, run.class),
            };
            let need = &self.needs[of_class.unwrap_or(run.need)];
            self.fleet.is_tried_anew(id, report.outcome, tries, need)
        };
        let instance = &self.instances[&report.instance];
        let Some(batch) = instance.batch_of(TaskId(run.first)) else { return };
        let (queued, retries) =
            (batch.queued, batch.submission.classes[run.class as usize].retries);
        // What ends below is tried again there: nobody else can.
        let everywhere = batch.submission.everywhere.as_ref();
        let is_final = everywhere.is_some() && is_below;
        let anew = anew && !is_final;
        let again = report.outcome.may_retry() && tries.failures < retries && !is_final;
        let named = everywhere.map(|all| self.named(all, Some(id), report.detail.clone()));
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
            detail: named.clone().unwrap_or_else(|| report.detail.clone()),
        };
        if instance.tasks.cancelling().is_empty() && !again && !anew {
            self.end(report.instance, finished(run.first, run.count, report.outcome));
            return;
        }
        let cancelled = instance.tasks.cancelling().within(run.first, run.count);
        let live = instance.tasks.cancelling().gaps(run.first, run.count);
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

    /// Tasks have ended well below a relay: that holds what they leave in caches alone.
    fn made_below(&mut self, id: ExecutorId, of: InstanceId, run: &InFlight) {
        let instance = &self.instances[&of];
        let leaves_any = |batch: &&Batch| batch.leaves_any || instance.options.keep_output;
        let batch = instance.batch_of(TaskId(run.first)).filter(leaves_any);
        let Some(batch) = batch else { return };
        let Some(data) = batch.submission.data.as_deref() else { return };
        let offset = run.first - batch.first;
        let outputs = (offset..offset + run.count).flat_map(|at| data.outputs_of(at));
        let made = outputs.filter(|object| !object.is_stored()).map(|object| object.id);
        self.placement.made_below(id, made);
    }

    /// Tasks that were in flight are ready again, or end if they were to be
    /// cancelled.
    pub(super) fn put_back(&mut self, id: InstanceId, run: &InFlight, tries: Tries) {
        let need = &self.needs[run.need];
        let instance = &mut self.instances[&id];
        instance.give_back(run, need);
        let cancelled = instance.tasks.cancelling().within(run.first, run.count);
        let live = instance.tasks.cancelling().gaps(run.first, run.count);
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
        let run = ReadyRun { first, count, class, tries };
        self.instances[&id].push_ready(&self.needs, &mut self.placement, run);
        self.attempts.note(id, first, count, tries, None);
        self.runnable.mark(id);
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
        let first = TaskId(first);
        let batch = self.instances[&id].batch_of(first);
        let queued = batch.map_or(Time::default(), |batch| batch.queued);
        let unrun = unrun(first, count, Outcome::Lost, queued, self.now);
        let attempts = tries.attempt();
        self.end(id, Finished { executor, attempts, dispatched, ..unrun });
    }
}
