//! Tasks that have ended and not well, and are run again because somebody wants it so.
//!
//! They keep their numbers, and each ends once more: its new result takes the place of the one
//! before. Results are delivered in the order of their positions, so the old one keeps its
//! position and is left out there, also where a page on disk has it. Only instances that keep
//! their results can have that: elsewhere a client has received the old result, and has counted
//! on it.
//!
//! Tasks that failed because another one did are placed as new ones are: they wait for it if it
//! is retried too, and fail again if not.

use super::cancel::records_of;
use super::instance::Instance;
use super::pages::StoredPage;
use super::{Dispatcher, Record, RecoverError, RequestError, Selection};
use crate::limits::{DELIVERY_RUNS_MAX, INSTANCE_TASKS_MAX, RETRIED_RUNS_MAX, RUN_BYTES_MAX};
use crate::result::{Detail, Finished, Outcome};
use crate::runset::RunSet;
use crate::task::{InstanceId, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many tasks are retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retried {
    /// Those that run again.
    pub count: u64,
    /// Those that cannot, because it is not known any more what they were.
    pub forgotten: u64,
}

/// An instance's tasks that were retried.
#[derive(Debug, Default)]
pub(super) struct Retries {
    /// First of a run → how many, and the position of the first result that can be theirs: those
    /// before were replaced.
    runs: BTreeMap<u64, (u64, u64)>,
}

/// Results that were not replaced.
pub(super) struct Current {
    pub(super) results: Vec<Finished>,
    /// Tasks, as (first, count), whose results these are instead of others.
    pub(super) again: Vec<(u64, u64)>,
    /// One past the last of those that were looked at.
    pub(super) upto: u64,
}

impl Retries {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many runs there are.
    pub(super) fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Tasks are retried: results before position `since` are not theirs any more.
    fn note(&mut self, first: u64, count: u64, since: u64) {
        let end = first + count;
        let before = self.runs.range(..first).next_back().map(|(start, run)| (*start, *run));
        if let Some((start, (length, at))) = before.filter(|(start, run)| start + run.0 > first) {
            self.runs.insert(start, (first - start, at));
            self.runs.insert(first, (start + length - first, at));
        }
        while let Some((&start, &(length, at))) = self.runs.range(first..end).next() {
            self.runs.remove(&start);
            if start + length > end {
                self.runs.insert(end, (start + length - end, at));
            }
        }
        self.runs.insert(first, (count, since));
    }

    /// Whether all results of tasks in a row that begin at a position were replaced, but for
    /// those of some that are in a set.
    fn are_replaced_but(&self, first: u64, count: u64, position: u64, others: &RunSet) -> bool {
        let parts = self.parts(first, count, position).into_iter();
        let mut current = parts.filter(|(_, _, is_replaced)| !is_replaced);
        current.all(|(first, count, _)| others.gaps(first, count).is_empty())
    }

    /// The parts of tasks in a row whose results begin at a position: first, count, and whether
    /// these results were replaced.
    fn parts(&self, first: u64, count: u64, position: u64) -> Vec<(u64, u64, bool)> {
        let mut replaced = RunSet::default();
        let end = first + count;
        let before = self.runs.range(..first).next_back();
        for (start, (length, since)) in before.into_iter().chain(self.runs.range(first..end)) {
            let (from, until) = (first.max(*start), end.min(start + length));
            if *since > position && from < until {
                replaced.insert(from, until - from);
            }
        }
        let gone = replaced.within(first, count).into_iter().map(|(at, count)| (at, count, true));
        let rest = replaced.gaps(first, count).into_iter().map(|(at, count)| (at, count, false));
        gone.chain(rest).collect()
    }

    /// Those of tasks in a row that were retried.
    fn within(&self, first: u64, count: u64) -> Vec<(u64, u64)> {
        let end = first + count;
        let before = self.runs.range(..first).next_back();
        let all = before.into_iter().chain(self.runs.range(first..end));
        let parts = all.map(|(start, (length, _))| (first.max(*start), end.min(start + length)));
        parts
            .filter(|(from, until)| from < until)
            .map(|(from, until)| (from, until - from))
            .collect()
    }

    /// Of results from a position on, those that were not replaced, as many as go into one
    /// message.
    pub(super) fn current(&self, from: u64, results: Vec<Finished>) -> Current {
        let mut upto = from;
        if self.runs.is_empty() {
            upto += results.iter().map(|run| run.count).sum::<u64>();
            return Current { results, again: Vec::new(), upto };
        }
        let (mut current, mut again) = (Vec::with_capacity(results.len()), Vec::new());
        for finished in results {
            let mut parts = self.parts(finished.first.0, finished.count, upto);
            parts.retain(|(_, _, is_replaced)| !is_replaced);
            if !current.is_empty() && current.len() + parts.len() > DELIVERY_RUNS_MAX {
                break;
            }
            parts.sort_unstable();
            for (first, count, _) in parts {
                again.extend(self.within(first, count));
                current.push(Finished { first: TaskId(first), count, ..finished.clone() });
            }
            upto += finished.count;
        }
        Current { results: current, again, upto }
    }

    /// For a snapshot: the runs by what they were noted with.
    fn by_since(&self) -> BTreeMap<u64, RunSet> {
        let mut found: BTreeMap<u64, RunSet> = BTreeMap::new();
        for (first, (count, since)) in &self.runs {
            found.entry(*since).or_default().insert(*first, *count);
        }
        found
    }
}

impl Instance {
    /// Whether a page may be on disk: its tasks have ended, or are retried.
    pub(super) fn is_page_known(&self, page: &StoredPage) -> bool {
        let ended = self.tasks.ended();
        page.tasks
            .iter()
            .all(|(first, count)| self.retries.are_replaced_but(*first, *count, page.from, ended))
    }

    /// Whether the result of a task that a page has is its last.
    pub(super) fn is_current_in(&self, page: &StoredPage, task: u64) -> bool {
        !self.retries.are_replaced_but(task, 1, page.from, &RunSet::default())
    }

    /// The parts of a result at a position that were not replaced, as (first, count).
    pub(super) fn current_parts(&self, finished: &Finished, position: u64) -> Vec<(u64, u64)> {
        let (first, count) = (finished.first.0, finished.count);
        if self.retries.is_empty() {
            return vec![(first, count)];
        }
        let parts = self.retries.parts(first, count, position).into_iter();
        parts.filter(|(_, _, is_replaced)| !is_replaced).map(|(at, count, _)| (at, count)).collect()
    }

    /// Those of some tasks that can be retried, and how many cannot.
    fn retriable(&self, asked: &RunSet) -> (RunSet, u64) {
        let mut found = RunSet::default();
        for (first, count) in asked.iter() {
            let end = first + count;
            let from = self.batch_of(TaskId(first)).map_or(first, |batch| batch.first);
            for batch in self.batches.range(from..end).map(|(_, batch)| batch) {
                // A task that is one executor's alone ends with that executor.
                if !batch.is_whole() || batch.submission.everywhere.is_some() {
                    continue;
                }
                let at = first.max(batch.first);
                let until = end.min(batch.first + batch.submission.count);
                found.insert(at, until - at);
            }
        }
        let forgotten = asked.len() - found.len();
        (found, forgotten)
    }
}

impl Dispatcher {
    /// Has tasks run again that have failed, or that were cancelled and are named.
    pub(super) fn retry(
        &mut self,
        id: InstanceId,
        selection: &Selection,
    ) -> Result<Retried, RequestError> {
        let instance = self.instances.find_mut(&id).ok_or(RequestError::NoInstance(id))?;
        if !instance.options.keep_results {
            return Err(RequestError::ResultsNotKept(id));
        }
        let asked = match selection {
            Selection::All => instance.tasks.failed_and_not_cancelled(),
            Selection::Runs(runs) => {
                let mut asked = RunSet::default();
                for (first, count) in runs {
                    let count = (*count).min(instance.tasks.total().saturating_sub(*first));
                    for (first, count) in instance.tasks.failed().within(*first, count) {
                        asked.insert(first, count);
                    }
                }
                asked
            }
        };
        let (wanted, forgotten) = instance.retriable(&asked);
        if wanted.is_empty() {
            return Ok(Retried { count: 0, forgotten });
        }
        let runs = instance.retries.run_count() + wanted.run_count();
        if runs > RETRIED_RUNS_MAX {
            return Err(RequestError::TooManyRetries { runs: runs as u64 });
        }
        self.journal_room.accept(wanted.run_count() as u64 * RUN_BYTES_MAX)?;
        // The results that are replaced come first in the journal.
        let results = &mut self.instances[&id].results;
        while let Some((from, results)) = results.take_unjournaled() {
            self.outbound.journal(Record::Finished { instance: id, from, results });
        }
        let since = self.instances[&id].results.end();
        for runs in records_of(&wanted) {
            self.journal(Record::Retried { instance: id, since, runs });
        }
        self.unend(id, since, &wanted);
        let instance = &mut self.instances[&id];
        for subscriber in &mut instance.subscribers {
            subscriber.expect_more();
        }
        let batches: BTreeSet<u64> = wanted
            .iter()
            .flat_map(|(first, count)| instance.batches_of(first, count))
            .map(|(batch, _, _)| batch)
            .collect();
        for batch in batches {
            self.queue_some(id, batch, Some(&wanted));
        }
        self.outbound.mark(id);
        self.runnable.mark(id);
        self.unplaced = true;
        self.weigh(id);
        Ok(Retried { count: wanted.len(), forgotten })
    }

    /// Tasks that have ended are unplaced again, and results before position `since` are not
    /// theirs any more.
    fn unend(&mut self, id: InstanceId, since: u64, wanted: &RunSet) {
        let mut revived = BTreeSet::new();
        for (first, count) in wanted.iter() {
            self.outputs.release(id, first, count);
            let instance = &mut self.instances[&id];
            instance.tasks.retry(first, count);
            instance.retries.note(first, count, since);
            instance.results.replaced(since);
            for (batch_first, at, count) in instance.batches_of(first, count) {
                revived.extend(self.unend_in_batch(id, batch_first, at - batch_first, count));
            }
        }
        self.instances.revive(id, &revived);
    }

    /// Counts tasks of a batch as not ended. Returns the batch if all had.
    fn unend_in_batch(
        &mut self,
        id: InstanceId,
        batch_first: u64,
        offset: u64,
        count: u64,
    ) -> Option<u64> {
        let instance = &mut self.instances[&id];
        let batch = instance.batches.get_mut(&batch_first)?;
        let had_ended = batch.unfinished == 0;
        batch.unfinished += count;
        let (batch_id, data) = (batch.id, batch.submission.data.clone());
        if had_ended {
            instance.templates.entry(batch_id).or_default().batches += 1;
            self.hold_needs_again(id, batch_first);
        }
        let instance = &mut self.instances[&id];
        if let Some(data) = data {
            let more: fn(&mut u64, u64) = |readers, tasks| *readers += tasks;
            instance.intermediates.count_readers(&data, offset, count, more);
            for offset in offset..offset + count {
                self.placement.runs_again(&data, offset);
            }
        }
        if instance.want_values_again(batch_first, offset, count) {
            self.outbound.mark(id);
        }
        had_ended.then_some(batch_first)
    }
}

// Across restarts.
impl Dispatcher {
    /// Tasks were retried; in a snapshot, they have not ended before.
    pub(super) fn recover_retried(
        &mut self,
        id: InstanceId,
        since: u64,
        runs: &[(u64, u64)],
    ) -> Result<(), RecoverError> {
        let instance = self.recovering(id)?;
        let mut wanted = RunSet::default();
        for (first, count) in runs {
            let known = first.checked_add(*count).is_some_and(|end| end <= INSTANCE_TASKS_MAX);
            if !known || *count == 0 {
                return Err(RecoverError::Submission { instance: id, first: TaskId(*first) });
            }
            for (first, count) in instance.tasks.failed().within(*first, *count) {
                wanted.insert(first, count);
            }
            instance.retries.note(*first, *count, since);
        }
        instance.results.replaced(since);
        self.unend(id, since, &wanted);
        Ok(())
    }

    /// The journal has been read: retried tasks end of which it is not known any more what they
    /// were, as fewer submissions are kept after a restart than before.
    pub(super) fn fail_forgotten(&mut self, id: InstanceId) {
        let instance = &self.instances[&id];
        if instance.retries.is_empty() {
            return;
        }
        let mut open = RunSet::default();
        for (first, (count, _)) in &instance.retries.runs {
            for (first, count) in instance.tasks.unended(*first, *count) {
                open.insert(first, count);
            }
        }
        let (known, _) = instance.retriable(&open);
        for (first, count) in open.iter() {
            for (first, count) in known.gaps(first, count) {
                for task in first..first + count {
                    let error = "it was to run again, and it is not known any more what it was";
                    let error = error.to_owned();
                    let detail = Some(Arc::new(Detail { error, ..Detail::default() }));
                    self.end_unrun_for(id, task, Outcome::NotRun, detail);
                }
            }
        }
    }

    /// For a snapshot: which tasks were retried.
    pub(super) fn snapshot_retries(&self, instance: &Instance, records: &mut Vec<Record>) {
        for (since, runs) in instance.retries.by_since() {
            let parts = records_of(&runs).into_iter();
            let id = instance.id;
            records.extend(parts.map(|runs| Record::Retried { instance: id, since, runs }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is replaced is what was retried since, task by task.
        #[test]
        fn results_before_a_retry_are_replaced(
            noted in proptest::collection::vec((0_u64..30, 1_u64..8, 0_u64..9), 0..12),
            first in 0_u64..30,
            count in 1_u64..9,
            position in 0_u64..9,
        ) {
            let mut retries = Retries::default();
            let mut model: BTreeMap<u64, u64> = BTreeMap::new();
            for (first, count, since) in noted {
                retries.note(first, count, since);
                model.extend((first..first + count).map(|task| (task, since)));
            }
            let mut seen = 0;
            for (first, count, is_replaced) in retries.parts(first, count, position) {
                seen += count;
                for task in first..first + count {
                    let since = model.get(&task).copied().unwrap_or(0);
                    prop_assert_eq!(is_replaced, since > position, "task {}", task);
                }
            }
            prop_assert_eq!(seen, count);
            let mut again: Vec<u64> = Vec::new();
            for (first, count) in retries.within(first, count) {
                again.extend(first..first + count);
            }
            let expected: Vec<u64> = model.range(first..first + count).map(|(task, _)| *task).collect();
            prop_assert_eq!(again, expected);
            let copied = retries.by_since().into_iter().flat_map(|(since, runs)| {
                runs.iter().map(|(first, count)| (first, count, since)).collect::<Vec<_>>()
            });
            let mut snapshot = Retries::default();
            copied.for_each(|(first, count, since)| snapshot.note(first, count, since));
            for (task, since) in model {
                prop_assert!(snapshot.parts(task, 1, since - since.min(1)).iter().all(|part| part.2 == (since > 0)));
            }
        }
    }
}
