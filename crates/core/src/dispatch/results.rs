//! An instance's results: in memory and in pages on disk, in the order of their
//! delivery.

use super::pages::{PageBounds, PagePlace, StoredPage};
use crate::limits::{DELIVERY_BYTES_MAX, DELIVERY_RUNS_MAX};
use crate::result::{Detail, Finished};
use crate::runset::RunSet;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// An instance's results in the order of their delivery. Positions count
/// task results from the instance's first. The oldest may be on disk, in pages;
/// the rest is in memory.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// On disk, the oldest first; all of them before `runs`.
    pages: VecDeque<StoredPage>,
    /// With the position of the first result of each run.
    runs: VecDeque<(u64, Finished)>,
    /// One past the last result.
    end: u64,
    /// Results before this one are in the journal.
    journaled: u64,
    /// Results before this one were taken in by a client.
    acknowledged: u64,
    /// Of what is in memory.
    bytes: u64,
    /// Of the pages.
    stored_bytes: u64,
    /// The page that is being written, as where it begins and ends.
    storing: Option<(u64, u64)>,
    /// Pages that are kept because tasks wait for values in them.
    pinned: BTreeMap<u64, BTreeSet<u64>>,
    /// From the first task of each run, or of each run of tasks of a page, to
    /// the position of the run or page, once tasks have been looked up.
    by_task: Option<BTreeMap<u64, u64>>,
    /// Some tasks have more than one result, of which the last counts.
    has_replaced: bool,
    /// The positions at which tasks were retried, as far as results behind them are in memory.
    retried_at: BTreeSet<u64>,
}

/// Where a task's result is.
#[derive(Debug)]
pub(super) enum Found {
    /// In memory; what there is to say of it beyond its outcome.
    Here(Option<Arc<Detail>>),
    /// In the page that begins at this position.
    Stored(u64),
    /// Nowhere: it was forgotten.
    Nowhere,
}

impl Results {
    /// Bytes of what is in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of what is on disk.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// One past the last result.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Results before this one were taken in by a client.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// A client has taken in the results before this one.
    pub(super) fn acknowledge(&mut self, upto: u64) {
        self.acknowledged = self.acknowledged.max(upto);
    }

    /// The position of the first result there still is.
    pub(super) fn start(&self) -> u64 {
        self.pages.front().map_or(self.memory_start(), |page| page.from)
    }

    /// The position of the first result in memory.
    pub(super) fn memory_start(&self) -> u64 {
        self.runs.front().map_or(self.end, |(at, _)| *at)
    }

    pub(super) fn push(&mut self, finished: Finished) {
        let at = self.end;
        self.end += finished.count;
        if let Some((last_at, last)) = self.runs.back_mut()
            && *last_at >= self.journaled
            && last.detail.is_none()
            && last.first.0 + last.count == finished.first.0
            && (Finished { first: last.first, count: last.count, ..finished.clone() }) == *last
        {
            last.count += finished.count;
            let at = *last_at;
            if self.has_replaced
                && let Some(by_task) = &mut self.by_task
            {
                cover(by_task, finished.first.0, finished.count, at);
            }
            return;
        }
        self.bytes += finished.bytes();
        if let Some(by_task) = &mut self.by_task {
            match self.has_replaced {
                true => cover(by_task, finished.first.0, finished.count, at),
                false => drop(by_task.insert(finished.first.0, at)),
            }
        }
        self.runs.push_back((at, finished));
    }

    /// Where a task's result is.
    pub(super) fn find(&mut self, task: u64) -> Found {
        let Some(at) = self.place_of(task) else { return Found::Nowhere };
        if let Some(page) = self.page_at(at) {
            return if page.holds(task) { Found::Stored(page.from) } else { Found::Nowhere };
        }
        self.run_at(at, task).map_or(Found::Nowhere, |run| Found::Here(run.detail.clone()))
    }

    /// The run in memory that a task's result is in.
    pub(super) fn ended(&mut self, task: u64) -> Option<&Finished> {
        let at = self.place_of(task)?;
        if self.page_at(at).is_some() { None } else { self.run_at(at, task) }
    }

    /// The position of the run or page that may have a task's result.
    fn place_of(&mut self, task: u64) -> Option<u64> {
        let (runs, pages) = (&self.runs, &self.pages);
        let by_task = self.by_task.get_or_insert_with(|| {
            let mut by_task = BTreeMap::new();
            for (first, count, at) in pages.iter().flat_map(tasks_of) {
                cover(&mut by_task, first, count, at);
            }
            for (at, run) in runs {
                cover(&mut by_task, run.first.0, run.count, *at);
            }
            by_task
        });
        by_task.range(..=task).next_back().map(|(_, at)| *at)
    }

    /// The run that begins at a position, if it has a task's result.
    fn run_at(&self, at: u64, task: u64) -> Option<&Finished> {
        let index = self.runs.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        let (_, run) = self.runs.get(index)?;
        task.checked_sub(run.first.0).is_some_and(|at| at < run.count).then_some(run)
    }

    /// Results in memory from position `from` on, which must begin a run, as
    /// many as go into one message or record.
    pub(super) fn batch(&self, from: u64) -> Vec<Finished> {
        let index = self.runs.partition_point(|(at, _)| *at < from);
        let mut bytes = 0;
        let mut batch = Vec::with_capacity(DELIVERY_RUNS_MAX.min(self.runs.len() - index));
        for (_, run) in self.runs.iter().skip(index).take(DELIVERY_RUNS_MAX) {
            bytes += run.bytes();
            if bytes > DELIVERY_BYTES_MAX && !batch.is_empty() {
                break;
            }
            batch.push(run.clone());
        }
        batch
    }

    /// The next results not journaled yet, as many as go into one record; they
    /// then count as journaled.
    pub(super) fn take_unjournaled(&mut self) -> Option<(u64, Vec<Finished>)> {
        let from = self.journaled;
        if from == self.end {
            return None;
        }
        let batch = self.batch(from);
        self.journaled += batch.iter().map(|run| run.count).sum::<u64>();
        Some((from, batch))
    }

    /// Counts everything as journaled: it was read from there.
    pub(super) fn set_journaled(&mut self) {
        self.journaled = self.end;
    }

    /// Makes the next result's position `at`; for results that were forgotten
    /// before a restart.
    pub(super) fn start_at(&mut self, at: u64) {
        debug_assert!(self.runs.is_empty());
        self.end = at;
        self.journaled = at;
    }

    /// Where a subscription from `from` on begins: at the start of a run, or
    /// within a page, whose runs are not known.
    pub(super) fn cursor(&self, from: u64) -> u64 {
        if self.page_at(from).is_some() {
            return from;
        }
        let index = self.runs.partition_point(|(at, run)| at + run.count <= from);
        self.runs.get(index).map_or(self.end, |(at, _)| *at)
    }

    /// Forgets runs and pages that end at or before `upto`, up to the first page
    /// with a value that a task waits for. Returns whether any was forgotten,
    /// and where the pages are.
    pub(super) fn forget(&mut self, upto: u64) -> (bool, Vec<PagePlace>) {
        let upto = self.pinned.first_key_value().map_or(upto, |(from, _)| upto.min(*from));
        let mut places = Vec::new();
        while self.pages.front().is_some_and(|page| page.end() <= upto)
            && let Some(page) = self.pages.pop_front()
        {
            self.stored_bytes -= page.place.bytes;
            if let Some(by_task) = &mut self.by_task {
                page.tasks.iter().for_each(|(first, _)| {
                    by_task.remove(first);
                });
            }
            places.push(page.place);
        }
        let mut any = !places.is_empty();
        if self.has_replaced {
            self.by_task = None;
        }
        while self.pages.is_empty()
            && self.runs.front().is_some_and(|(at, run)| at + run.count <= upto)
            && let Some((_, run)) = self.runs.pop_front()
        {
            self.bytes -= run.bytes();
            if let Some(by_task) = &mut self.by_task {
                by_task.remove(&run.first.0);
            }
            any = true;
        }
        (any, places)
    }

    /// Results before this position were replaced: some task has, or will have, more than one.
    /// No page has results from both sides of the position, so that none has two of a task, and
    /// either all of its results of retried tasks were replaced then or none was.
    pub(super) fn replaced(&mut self, before: u64) {
        self.has_replaced = true;
        self.retried_at.insert(before);
        self.by_task = None;
    }

    /// The results in memory, with their positions.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(u64, Finished)> {
        self.runs.iter()
    }
}

/// From now on tasks are looked up at this position, and those behind them where they were.
fn cover(by_task: &mut BTreeMap<u64, u64>, first: u64, count: u64, at: u64) {
    let end = first + count;
    let covers_end = by_task.range(..=end).next_back().map(|(from, there)| (*from, *there));
    if let Some((from, there)) = covers_end
        && from < end
    {
        // Whether the run that is there has these tasks is looked at when one is asked for.
        by_task.insert(end, there);
    }
    while let Some((&from, _)) = by_task.range(first..end).next() {
        by_task.remove(&from);
    }
    by_task.insert(first, at);
}

/// The runs of a page's tasks, each with the page's position.
fn tasks_of(page: &StoredPage) -> impl Iterator<Item = (u64, u64, u64)> {
    page.tasks.iter().map(|(first, count)| (*first, *count, page.from))
}

/// From the first of each run of a page's tasks to the page's position.
fn first_tasks(page: &StoredPage) -> impl Iterator<Item = (u64, u64)> {
    page.tasks.iter().map(|(first, _)| (*first, page.from))
}

// What is on disk.
impl Results {
    pub(super) fn pages(&self) -> impl ExactSizeIterator<Item = &StoredPage> {
        self.pages.iter()
    }

    /// The page that holds the result at `position`.
    pub(super) fn page_at(&self, position: u64) -> Option<&StoredPage> {
        let after = self.pages.partition_point(|page| page.from <= position);
        let page = self.pages.get(after.checked_sub(1)?)?;
        (position < page.end()).then_some(page)
    }

    /// The oldest journaled results in memory, as many as make a page; they stay
    /// in memory until [`Results::end_page`].
    pub(super) fn begin_page(&mut self, bounds: &PageBounds) -> Option<(u64, Vec<Finished>)> {
        if self.storing.is_some() {
            return None;
        }
        let from = self.memory_start();
        let mut bytes = 0;
        let mut results = Vec::new();
        let mut tasks = RunSet::default();
        for (at, run) in self.runs.iter().take(bounds.page_runs_max) {
            bytes += run.bytes();
            let (first, count) = (run.first.0, run.count);
            // After a restart only the last retry of each task is known.
            let is_replaced = self.has_replaced && !tasks.within(first, count).is_empty();
            let is_full = bytes > bounds.page_bytes_max || self.retried_at.contains(at);
            let ends = (is_full && !results.is_empty()) || is_replaced;
            if ends || at + run.count > self.journaled {
                break;
            }
            if self.has_replaced {
                tasks.insert(first, count);
            }
            results.push(run.clone());
        }
        let end = from + results.iter().map(|run| run.count).sum::<u64>();
        (end > from).then(|| {
            self.storing = Some((from, end));
            (from, results)
        })
    }

    /// A page was written and so leaves memory, or could not be. Returns
    /// whether it is kept: not if some of it was forgotten meanwhile.
    pub(super) fn end_page(&mut self, from: u64, place: Option<PagePlace>) -> bool {
        let Some((_, end)) = self.storing.take_if(|(begin, _)| *begin == from) else {
            return false;
        };
        let Some(place) = place.filter(|_| self.memory_start() == from) else { return false };
        let mut tasks = RunSet::default();
        while self.runs.front().is_some_and(|(at, _)| *at < end)
            && let Some((_, run)) = self.runs.pop_front()
        {
            self.bytes -= run.bytes();
            tasks.insert(run.first.0, run.count);
            if let Some(by_task) = &mut self.by_task {
                by_task.remove(&run.first.0);
            }
        }
        if self.has_replaced {
            self.by_task = None;
            self.retried_at = self.retried_at.split_off(&end);
        }
        let tasks = tasks.iter().collect();
        let page = StoredPage { from, count: end - from, tasks, place };
        self.stored_bytes += place.bytes;
        if let Some(by_task) = &mut self.by_task {
            by_task.extend(first_tasks(&page));
        }
        self.pages.push_back(page);
        true
    }

    /// Results were acknowledged and forgotten before a restart. The shell
    /// removes the pages that nothing refers to any more.
    pub(super) fn recover_acknowledged(&mut self, upto: u64) {
        self.acknowledge(upto);
        self.forget(upto);
    }

    /// The journal has been read: what kept acknowledged results for their
    /// values may have ended in records behind the acknowledgement.
    pub(super) fn forget_recovered(&mut self) {
        self.forget(self.acknowledged);
    }

    /// A page that a snapshot knows comes behind all results so far.
    pub(super) fn recover_page(&mut self, page: StoredPage) {
        debug_assert!(self.runs.is_empty());
        self.end = page.end();
        self.journaled = self.end;
        self.stored_bytes += page.place.bytes;
        if let Some(by_task) = &mut self.by_task {
            by_task.extend(first_tasks(&page));
        }
        self.pages.push_back(page);
    }

    /// Keeps a page until the value of `task` in it was read.
    pub(super) fn pin(&mut self, from: u64, task: u64) {
        self.pinned.entry(from).or_default().insert(task);
    }

    /// The tasks whose values a page was kept for, if it was.
    pub(super) fn unpin(&mut self, from: u64) -> BTreeSet<u64> {
        self.pinned.remove(&from).unwrap_or_default()
    }

    /// The value of a task is not to be read any more.
    pub(super) fn unpin_value(&mut self, task: u64) {
        self.pinned.retain(|_, tasks| {
            tasks.remove(&task);
            !tasks.is_empty()
        });
    }

    /// Pages that are kept for values, the oldest first.
    pub(super) fn pinned(&self) -> impl Iterator<Item = u64> {
        self.pinned.keys().copied()
    }
}
