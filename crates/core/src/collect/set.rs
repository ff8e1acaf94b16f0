//! The outputs that wait, by archive.

use super::{ItemId, MemberName, OwnerId};
use crate::dispatch::CheckError;
use crate::dispatch::check::ensure;
use crate::task::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An output that waits.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) owner: OwnerId,
    pub(super) name: MemberName,
    pub(super) bytes: u64,
    pub(super) since: Time,
}

/// The outputs that wait for one archive.
#[derive(Debug, Default)]
struct Set {
    waiting: BTreeMap<ItemId, Waiting>,
    /// Since when the oldest waits, or one that was older.
    oldest: Option<Time>,
    bytes: u64,
    /// They are to be written as soon as they can be.
    is_due: bool,
    /// A file of it is being written: then no other is.
    is_writing: bool,
    /// When the next write may begin, if the last one failed.
    retry_at: Time,
    /// Its entry among the times, if it has one.
    listed: Option<Time>,
}

impl Set {
    /// When it is to be written, as things are.
    fn at(&self, delay_micros: u64) -> Option<Time> {
        let oldest = self.oldest.filter(|_| !self.is_writing)?;
        let at = if self.is_due { Time::default() } else { oldest.after(delay_micros) };
        Some(at.max(self.retry_at))
    }

    fn add(&mut self, item: ItemId, one: Waiting) {
        self.bytes += one.bytes;
        self.oldest = Some(self.oldest.map_or(one.since, |oldest| oldest.min(one.since)));
        self.waiting.insert(item, one);
    }
}

/// The sets with outputs that wait or are being written.
#[derive(Debug, Default)]
pub(super) struct Sets {
    sets: BTreeMap<Arc<str>, Set>,
    /// When each is to be written that can be.
    times: BTreeSet<(Time, Arc<str>)>,
    /// Those that are not due, by their bytes and the number of their outputs.
    undue: BTreeSet<(u64, usize, Arc<str>)>,
    undue_bytes: u64,
    undue_members: usize,
    bytes: u64,
}

impl Sets {
    /// Bytes that wait.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether anything waits that is not to be written by now.
    pub(super) fn has_undue(&self) -> bool {
        !self.undue.is_empty()
    }

    /// When the next archive is to be written.
    pub(super) fn next(&self) -> Option<Time> {
        self.times.first().map(|(at, _)| *at)
    }

    /// An output waits.
    pub(super) fn add(&mut self, archive: &Arc<str>, item: ItemId, one: Waiting, delay: u64) {
        self.change(archive, delay, |set| set.add(item, one));
    }

    /// An output does not wait any more; whether it did.
    pub(super) fn remove(&mut self, archive: &Arc<str>, item: ItemId, delay: u64) -> bool {
        self.change(archive, delay, |set| {
            let removed = set.waiting.remove(&item);
            set.bytes -= removed.as_ref().map_or(0, |one| one.bytes);
            removed.is_some()
        })
    }

    /// Outputs wait for so long from now on.
    pub(super) fn relist(&mut self, delay: u64) {
        let archives: Vec<Arc<str>> = self.sets.keys().cloned().collect();
        for archive in archives {
            self.change(&archive, delay, |_| ());
        }
    }

    /// All that waits is to be written.
    pub(super) fn all_due(&mut self) {
        self.largest_due(0, 0);
    }

    /// What waits for this archive is to be written, even if that has just failed.
    pub(super) fn due_now(&mut self, archive: &Arc<str>, delay: u64) {
        self.change(archive, delay, |set| (set.is_due, set.retry_at) = (true, Time::default()));
    }

    /// As many sets are to be written, the largest first, as leave no more waiting
    /// than this.
    pub(super) fn largest_due(&mut self, bytes_max: u64, members_max: usize) {
        while self.undue_bytes > bytes_max || self.undue_members > members_max {
            let Some((_, _, archive)) = self.undue.last().cloned() else { return };
            self.change(&archive, 0, |set| set.is_due = true);
        }
    }

    /// Takes the outputs of a set that is to be written at `now`.
    pub(super) fn take(&mut self, now: Time) -> Option<(Arc<str>, BTreeMap<ItemId, Waiting>)> {
        let (_, archive) = self.times.first().filter(|(at, _)| *at <= now).cloned()?;
        let members = self.change(&archive, 0, |set| {
            set.is_writing = true;
            set.is_due = false;
            set.bytes = 0;
            std::mem::take(&mut set.waiting)
        });
        Some((archive, members))
    }

    /// Whether anything of an archive waits or is being written.
    pub(super) fn contains(&self, archive: &Arc<str>) -> bool {
        self.sets.contains_key(archive)
    }

    /// A file of an archive was written, or is given up.
    pub(super) fn written(&mut self, archive: &Arc<str>, delay: u64) {
        self.change(archive, delay, |set| {
            (set.is_writing, set.retry_at) = (false, Time::default());
        });
    }

    /// Outputs were not written: they are again, at once or when `retry` says.
    pub(super) fn put_back(
        &mut self,
        archive: &Arc<str>,
        members: BTreeMap<ItemId, Waiting>,
        retry: Option<Time>,
        delay: u64,
    ) {
        self.change(archive, delay, |set| {
            set.is_writing = false;
            if let Some(at) = retry {
                set.retry_at = at;
            }
            set.is_due |= !members.is_empty();
            members.into_iter().for_each(|(item, one)| set.add(item, one));
        });
    }

    /// Changes a set, and what is known of all.
    fn change<T>(
        &mut self,
        archive: &Arc<str>,
        delay: u64,
        change: impl FnOnce(&mut Set) -> T,
    ) -> T {
        let set = self.sets.entry(archive.clone()).or_default();
        if let Some(at) = set.listed.take() {
            self.times.remove(&(at, archive.clone()));
        }
        let key = |set: &Set| (set.bytes, set.waiting.len(), archive.clone());
        if self.undue.remove(&key(set)) {
            self.undue_bytes -= set.bytes;
            self.undue_members -= set.waiting.len();
        }
        self.bytes -= set.bytes;
        let result = change(set);
        self.bytes += set.bytes;
        set.is_due &= !set.waiting.is_empty();
        set.oldest = set.oldest.filter(|_| !set.waiting.is_empty());
        if !set.is_due && !set.waiting.is_empty() {
            self.undue_bytes += set.bytes;
            self.undue_members += set.waiting.len();
            self.undue.insert(key(set));
        }
        set.listed = set.at(delay);
        if let Some(at) = set.listed {
            self.times.insert((at, archive.clone()));
        }
        if set.waiting.is_empty() && !set.is_writing {
            self.sets.remove(archive);
        }
        result
    }
}

impl Sets {
    /// What waits, by its number, with its archive.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (ItemId, &Arc<str>, &Waiting)> {
        self.sets.iter().flat_map(|(archive, set)| {
            set.waiting.iter().map(move |(item, one)| (*item, archive, one))
        })
    }

    /// The archives of which a file is being written.
    pub(super) fn writing(&self) -> impl Iterator<Item = &Arc<str>> {
        self.sets.iter().filter(|(_, set)| set.is_writing).map(|(archive, _)| archive)
    }

    /// The sums are those of the sets, which are listed where they belong.
    pub(super) fn check(&self) -> Result<(), CheckError> {
        let (mut bytes, mut undue_bytes, mut undue_members) = (0, 0, 0);
        let (mut listed, mut undue) = (0, 0);
        for (archive, set) in &self.sets {
            let sum: u64 = set.waiting.values().map(|one| one.bytes).sum();
            ensure!(sum == set.bytes, "{archive}: {sum} bytes wait, not {}", set.bytes);
            let oldest = set.waiting.values().map(|one| one.since).min();
            ensure!(set.oldest <= oldest, "{archive}: it waits for longer than is known");
            let is_used = set.is_writing || !set.waiting.is_empty();
            ensure!(is_used, "{archive}: known for nothing");
            let can_be_written = !set.is_writing && !set.waiting.is_empty();
            ensure!(can_be_written == set.listed.is_some(), "{archive}: never written");
            let at = set.listed.map(|at| (at, archive.clone()));
            ensure!(at.is_none_or(|at| self.times.contains(&at)), "{archive}: listed elsewhere");
            listed += usize::from(can_be_written);
            bytes += set.bytes;
            if !set.is_due && !set.waiting.is_empty() {
                undue += 1;
                undue_bytes += set.bytes;
                undue_members += set.waiting.len();
            }
        }
        ensure!(listed == self.times.len(), "archives are listed twice");
        ensure!(undue == self.undue.len(), "archives that are not due are miscounted");
        let sums = (self.bytes, self.undue_bytes, self.undue_members);
        ensure!((bytes, undue_bytes, undue_members) == sums, "what waits is miscounted");
        Ok(())
    }
}
