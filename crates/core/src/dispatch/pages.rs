//! Pages: results that were moved from memory to disk.
//!
//! Results in memory are bounded for the whole dispatcher ([`PageBounds`]).
//! Beyond the bound, the oldest journaled results of the instance that holds
//! most go to the shell as a page ([`Action::StorePage`]), and leave memory when
//! the shell has written it. A page is read again when a client is to receive
//! it or a task takes a value of it ([`Action::LoadPage`]). The journal does not
//! depend on pages until a snapshot refers to them.

use super::instance::Instance;
use super::{Action, Dispatcher, Record, RecoverError};
use crate::limits::{
    LOADING_PAGES_MAX, PAGE_BYTES_MAX, PAGE_RETRY_MICROS_MAX, PAGE_RETRY_MICROS_MIN, PAGE_RUNS_MAX,
    RECORD_RUNS_MAX, RESULTS_MEMORY_BYTES_MAX, RESULTS_PAGED_BYTES_MIN, STORING_PAGES_MAX,
};
use crate::result::{Detail, Finished, Outcome};
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, TaskId, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Where a page is. The shell that wrote the page makes and reads it; the core
/// keeps it, in snapshots as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PagePlace {
    /// Number of the file.
    pub file: u64,
    /// Where the page begins in it, in bytes.
    pub offset: u64,
    /// Length of the page in bytes.
    pub bytes: u64,
}

/// Results in the order of their delivery, with what only their dispatcher's
/// memory says of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The results.
    pub results: Vec<Finished>,
    /// Names of the executors that occur in them.
    pub executors: Vec<(ExecutorId, String)>,
}

/// A page that is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPage {
    /// How many task results of the instance come before it.
    pub from: u64,
    /// How many task results it holds.
    pub count: u64,
    /// The tasks, as ascending (first, count).
    pub tasks: Vec<(u64, u64)>,
    /// Where it is.
    pub place: PagePlace,
}

impl StoredPage {
    /// One past its last task result.
    pub(super) fn end(&self) -> u64 {
        self.from + self.count
    }

    pub(super) fn holds(&self, task: u64) -> bool {
        let after = self.tasks.partition_point(|(first, _)| *first <= task);
        after > 0 && task - self.tasks[after - 1].0 < self.tasks[after - 1].1
    }

    /// Whether these results are what the page holds.
    fn is(&self, results: &[Finished]) -> bool {
        let tasks = tasks_of(results);
        results.iter().map(|run| run.count).sum::<u64>() == self.count
            && tasks.len() == self.count
            && tasks.iter().eq(self.tasks.iter().copied())
    }

    /// Whether a journal may say so.
    pub(super) fn is_sound(&self, total: u64) -> bool {
        let mut end = 0;
        let mut count = 0u64;
        for (first, length) in &self.tasks {
            let Some(next) = first.checked_add(*length) else { return false };
            if *first < end || *length == 0 || next > total {
                return false;
            }
            end = next;
            count += length;
        }
        count == self.count && count > 0
    }

    /// What clients receive of a page that cannot be read.
    fn unreadable(&self, why: &str) -> Vec<Finished> {
        let detail =
            Arc::new(Detail { error: format!("its result is lost: {why}"), ..Detail::default() });
        let lost = |(first, count): &(u64, u64)| Finished {
            first: TaskId(*first),
            count: *count,
            outcome: Outcome::Unreadable,
            executor: None,
            attempts: 0,
            queued: Time::default(),
            dispatched: Time::default(),
            started: Time::default(),
            ended: Time::default(),
            detail: Some(detail.clone()),
        };
        self.tasks.iter().map(lost).collect()
    }
}

/// The tasks of these results.
pub(super) fn tasks_of(results: &[Finished]) -> RunSet {
    let mut tasks = RunSet::default();
    for run in results {
        tasks.insert(run.first.0, run.count);
    }
    tasks
}

/// How much of results stays in memory, where results can be moved to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageBounds {
    /// Bytes of results in memory beyond which the oldest are moved to disk.
    pub paged_bytes_min: u64,
    /// Bytes of results in memory beyond which no more tasks are dispatched.
    pub memory_bytes_max: u64,
    /// Bytes of results in one page, the first result aside.
    pub page_bytes_max: u64,
    /// Runs of results in one page.
    pub page_runs_max: usize,
}

impl Default for PageBounds {
    fn default() -> PageBounds {
        PageBounds {
            paged_bytes_min: RESULTS_PAGED_BYTES_MIN,
            memory_bytes_max: RESULTS_MEMORY_BYTES_MAX,
            page_bytes_max: PAGE_BYTES_MAX,
            page_runs_max: PAGE_RUNS_MAX,
        }
    }
}

/// Results in memory, and pages that are being written and read.
#[derive(Debug, Default)]
pub(super) struct Paging {
    /// `None` as long as the shell has no place for pages.
    bounds: Option<PageBounds>,
    /// Bytes of results in memory, by instance; those without any are left out.
    held: BTreeMap<InstanceId, u64>,
    by_bytes: BTreeSet<(u64, InstanceId)>,
    held_bytes: u64,
    /// Results in memory hold dispatch up.
    is_full: bool,
    /// Instances with a page that is being written.
    storing: BTreeSet<InstanceId>,
    /// After a page could not be written: when another one may be.
    retry_at: Option<Time>,
    /// The pause before that; 0 as long as pages can be written.
    pause_micros: u64,
    /// Pages that are being read.
    loading: BTreeSet<(InstanceId, u64)>,
    /// Instances that want a page and have to wait for others' pages.
    queue: VecDeque<InstanceId>,
    /// The one whose turn it is.
    turn: Option<InstanceId>,
}

impl Paging {
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Notes how many bytes of results an instance has in memory. Returns
    /// whether that begins or ends to hold dispatch up.
    fn weigh(&mut self, id: InstanceId, bytes: u64) -> bool {
        let before = self.held.get(&id).copied().unwrap_or(0);
        if before == bytes {
            return false;
        }
        self.by_bytes.remove(&(before, id));
        if bytes > 0 {
            self.held.insert(id, bytes);
            self.by_bytes.insert((bytes, id));
        } else {
            self.held.remove(&id);
        }
        self.held_bytes = self.held_bytes - before + bytes;
        let Some(bounds) = self.bounds else { return false };
        // Dispatch goes on when there is some room again, not with each byte.
        let max = match self.is_full {
            true => bounds.paged_bytes_min.midpoint(bounds.memory_bytes_max),
            false => bounds.memory_bytes_max,
        };
        let is_full = self.held_bytes > max;
        std::mem::replace(&mut self.is_full, is_full) != is_full
    }

    /// When another page may be written, if one could not be.
    pub(super) fn retry_at(&self) -> Option<Time> {
        let bounds = self.bounds?;
        self.retry_at.filter(|_| self.held_bytes > bounds.paged_bytes_min)
    }

    /// Pages may be written again, if it is time.
    pub(super) fn end_pause(&mut self, now: Time) {
        self.retry_at = self.retry_at.filter(|at| *at > now);
    }

    /// Notes whether a page could be written.
    fn stored(&mut self, now: Time, id: InstanceId, is_stored: bool) {
        self.storing.remove(&id);
        if is_stored {
            self.pause_micros = 0;
            self.retry_at = None;
        } else if self.retry_at.is_none() {
            let pause = (2 * self.pause_micros).clamp(PAGE_RETRY_MICROS_MIN, PAGE_RETRY_MICROS_MAX);
            self.pause_micros = pause;
            self.retry_at = Some(now.after(pause));
        }
    }

    /// How many more pages may be written now.
    fn may_store(&self) -> bool {
        // After a failure one page is tried alone.
        let pages_max = if self.pause_micros > 0 { 1 } else { STORING_PAGES_MAX };
        self.retry_at.is_none() && self.storing.len() < pages_max
    }

    /// The instance whose turn it is to have a page read.
    pub(super) fn next_reader(&mut self) -> Option<InstanceId> {
        if self.loading.len() >= LOADING_PAGES_MAX {
            return None;
        }
        self.turn = self.queue.pop_front();
        self.turn
    }

    /// An instance is gone: it wants no page.
    pub(super) fn forget(&mut self, id: InstanceId) {
        self.queue.retain(|waits| *waits != id);
    }

    /// Asks for a page to be read, now or when another one has been. Returns
    /// whether to read it now.
    fn load(&mut self, id: InstanceId, from: u64) -> bool {
        if self.loading.contains(&(id, from)) {
            return false;
        }
        let is_its_turn = self.queue.is_empty() || self.turn == Some(id);
        if self.loading.len() >= LOADING_PAGES_MAX || !is_its_turn {
            if !self.queue.contains(&id) {
                self.queue.push_back(id);
            }
            return false;
        }
        self.loading.insert((id, from))
    }
}

impl Dispatcher {
    /// From now on results beyond `bounds` are moved to disk: the shell carries
    /// out [`Action::StorePage`], [`Action::LoadPage`] and
    /// [`Action::DropPages`]. To be called before the first record or event.
    pub fn page_results(&mut self, bounds: PageBounds) {
        self.paging.bounds = Some(bounds);
    }

    /// Where all pages are that are known; after recovery, others are waste.
    pub fn page_places(&self) -> impl Iterator<Item = PagePlace> {
        let pages = self.instances.values().flat_map(|instance| instance.results.pages());
        pages.map(|page| page.place)
    }

    /// Whether results that are held keep an instance's tasks from being
    /// dispatched.
    pub(super) fn is_clogged(&self, instance: &Instance) -> bool {
        self.holds_dispatch() || instance.is_clogged()
    }

    /// Whether no task of any instance is dispatched for want of room.
    pub(super) fn holds_dispatch(&self) -> bool {
        self.paging.is_full() || self.journal_room.holds_dispatch()
    }

    /// The next page to write, if results in memory are too many. The shell
    /// asks while it recovers, when there are no actions yet.
    pub fn next_page(&mut self) -> Option<(InstanceId, u64, Page)> {
        let bounds = self.paging.bounds?;
        if self.paging.held_bytes <= bounds.paged_bytes_min || !self.paging.may_store() {
            return None;
        }
        let candidates = self.paging.by_bytes.iter().rev().map(|(_, id)| *id);
        let candidates = candidates.filter(|id| !self.paging.storing.contains(id));
        for id in candidates {
            let results = &mut self.instances[&id].results;
            let Some((from, results)) = results.begin_page(&bounds) else { continue };
            self.paging.storing.insert(id);
            let executors = self.fleet.names_in(&results);
            return Some((id, from, Page { results, executors }));
        }
        None
    }

    /// Has pages written as long as results in memory are too many.
    pub(super) fn store_pages(&mut self) {
        while let Some((instance, from, page)) = self.next_page() {
            self.outbound.push(Action::StorePage { instance, from, page });
        }
    }

    /// A page was written, or could not be.
    pub(super) fn page_stored(&mut self, id: InstanceId, from: u64, place: Option<PagePlace>) {
        self.paging.stored(self.now, id, place.is_some());
        let mut kept = false;
        // It may be gone since the page was given out.
        if let Some(instance) = self.instances.find_mut(&id) {
            let was_clogged = instance.is_clogged();
            kept = instance.results.end_page(from, place);
            if instance.is_clogged() != was_clogged {
                self.runnable.mark(id);
                self.unplaced = true;
            }
        }
        if !kept {
            self.drop_pages(place.into_iter().collect());
        }
        self.weigh(id);
    }

    pub(super) fn drop_pages(&mut self, places: Vec<PagePlace>) {
        if !places.is_empty() {
            self.outbound.push(Action::DropPages { places });
        }
    }

    /// Notes how many results an instance holds in memory.
    pub(super) fn weigh(&mut self, id: InstanceId) {
        let bytes = self.instances.find(&id).map_or(0, |instance| instance.results.bytes());
        if self.paging.weigh(id, bytes) {
            self.mark_all_runnable();
        }
    }

    /// What holds dispatch up for all instances has begun or ended.
    pub(super) fn mark_all_runnable(&mut self) {
        self.instances.ids().for_each(|id| self.runnable.mark(id));
        self.unplaced = true;
    }

    /// Has pages read that clients or values wait for.
    pub(super) fn load_pages(&mut self, id: InstanceId, wanted: &BTreeSet<u64>) {
        for from in wanted {
            let page = self.instances[&id].results.page_at(*from);
            let Some(place) = page.map(|page| page.place) else { continue };
            if self.paging.load(id, *from) {
                self.outbound.push(Action::LoadPage { instance: id, from: *from, place });
            }
        }
    }

    /// A page was read, or why it could not be: subscribers that wait for it
    /// receive it, and tasks that take its values go on.
    pub(super) fn page_loaded(&mut self, id: InstanceId, from: u64, page: Result<Page, String>) {
        self.paging.loading.remove(&(id, from));
        // It may be gone since the page was asked for.
        let Some(instance) = self.instances.find_mut(&id) else { return };
        self.outbound.mark(id);
        let Some(stored) = instance.results.page_at(from).filter(|found| found.from == from) else {
            return;
        };
        let page = match page {
            Ok(page) if stored.is(&page.results) => page,
            Ok(_) => {
                let results = stored.unreadable("its page on disk holds other results");
                Page { results, executors: Vec::new() }
            }
            Err(why) => Page { results: stored.unreadable(&why), executors: Vec::new() },
        };
        let (readers, values) = instance.values_loaded(from, &page.results);
        // The page may go now, and a restart would look for them there.
        for (tasks, values) in values {
            self.journal(Record::Values { instance: id, tasks, values });
        }
        self.deliver_page(id, from, &page);
        if !readers.is_empty() {
            self.value_read(id, readers);
        }
        self.forget_acknowledged(id);
    }

    /// An instance's results on disk and in memory.
    pub(super) fn recover_pages(
        &mut self,
        id: InstanceId,
        pages: Vec<StoredPage>,
    ) -> Result<(), RecoverError> {
        for page in pages {
            let instance = self.recovering(id)?;
            let expected = instance.results.end();
            let sound = page.is_sound(instance.tasks.total()) && instance.is_page_known(&page);
            if page.from != expected || !sound {
                let found = page.from;
                return Err(RecoverError::Results { instance: id, expected, found });
            }
            instance.want_values_of(&page);
            instance.results.recover_page(page);
        }
        Ok(())
    }
}

/// Pages in parts that make a record each.
pub(super) fn page_parts<'a>(pages: impl Iterator<Item = &'a StoredPage>) -> Vec<Vec<StoredPage>> {
    let mut parts: Vec<Vec<StoredPage>> = Vec::new();
    let mut runs = 0;
    for page in pages {
        runs += 1 + page.tasks.len();
        if parts.is_empty() || runs > RECORD_RUNS_MAX {
            runs = 1 + page.tasks.len();
            parts.push(Vec::new());
        }
        parts.last_mut().into_iter().for_each(|part| part.push(page.clone()));
    }
    parts
}
