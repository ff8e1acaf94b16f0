//! How many tasks of which need an executor has.

use super::check::{CheckError, ensure};
use super::needs::NeedId;
use crate::limits::AHEAD_NEEDS_MAX;

/// How many tasks of one need an executor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Load {
    /// Tasks that hold their resources.
    pub(super) slotted: u64,
    /// Tasks sent ahead: they start when others end.
    pub(super) prefetched: u64,
    /// They take no time, so hold nothing.
    pub(super) instant: bool,
    /// For how long each of those sent ahead keeps the executor busy, in
    /// nanoseconds: its run time, divided by how many run side by side.
    pub(super) each_nanos: u64,
}

/// An executor's tasks by need, and their sums.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// Sorted by need from `gone` on; few, and always in the same memory.
    by_need: Vec<(NeedId, Load)>,
    /// Entries in front that are gone. Tasks of many needs end mostly in the
    /// order of these: moving all others up each time would cost more than all
    /// else of a task's end.
    gone: usize,
    slotted: u64,
    prefetched: u64,
    /// Tasks sent ahead that take time.
    waiting: u64,
    /// For how long these keep the executor busy.
    waiting_nanos: u128,
}

impl Loads {
    pub(super) fn iter(&self) -> impl Iterator<Item = &(NeedId, Load)> {
        self.by_need[self.gone..].iter()
    }

    pub(super) fn of(&self, need: NeedId) -> Load {
        self.at(need).map_or_else(|_| Load::default(), |at| self.by_need[at].1)
    }

    fn at(&self, need: NeedId) -> Result<usize, usize> {
        let found = self.by_need[self.gone..].binary_search_by_key(&need, |(need, _)| *need);
        found.map(|at| self.gone + at).map_err(|at| self.gone + at)
    }

    /// All tasks.
    pub(super) fn count(&self) -> u64 {
        self.slotted + self.prefetched
    }

    /// Tasks sent ahead.
    pub(super) fn prefetched(&self) -> u64 {
        self.prefetched
    }

    /// Tasks sent ahead that take time.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// For how long those keep the executor busy, in nanoseconds.
    pub(super) fn waiting_nanos(&self) -> u128 {
        self.waiting_nanos
    }

    /// Whether tasks of another need may be sent ahead.
    pub(super) fn has_place_for(&self, need: NeedId) -> bool {
        self.by_need.len() - self.gone < AHEAD_NEEDS_MAX || self.at(need).is_ok()
    }

    /// Changes what there is of one need.
    pub(super) fn change(&mut self, need: NeedId, change: impl FnOnce(&mut Load)) {
        let at = self.at(need).unwrap_or_else(|at| {
            self.by_need.insert(at, (need, Load::default()));
            at
        });
        let load = &mut self.by_need[at].1;
        let before = *load;
        change(load);
        let after = *load;
        self.count_anew(before, after);
        if after.slotted == 0 && after.prefetched == 0 {
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) {
        if at > self.gone {
            self.by_need.remove(at);
            return;
        }
        self.gone += 1;
        // As many are moved as have gone since the last time.
        if 2 * self.gone >= self.by_need.len() {
            self.by_need.drain(..self.gone);
            self.gone = 0;
        }
    }

    /// Has each need of which tasks that take time were sent ahead looked at in
    /// turn, with how many they are: so many as `moved` says hold their
    /// resources from now on.
    pub(super) fn move_up(&mut self, mut moved: impl FnMut(NeedId, u64) -> u64) {
        if self.waiting == 0 {
            return;
        }
        for at in self.gone..self.by_need.len() {
            let (need, load) = self.by_need[at];
            if load.prefetched == 0 || load.instant {
                continue;
            }
            let up = moved(need, load.prefetched);
            let after =
                Load { slotted: load.slotted + up, prefetched: load.prefetched - up, ..load };
            self.by_need[at].1 = after;
            self.count_anew(load, after);
        }
    }

    /// The sums are those of the parts.
    pub(super) fn check(&self) -> Result<(), CheckError> {
        let mut sums = Loads::default();
        for (_, load) in self.iter() {
            sums.count_anew(Load::default(), *load);
        }
        let of =
            |loads: &Loads| (loads.slotted, loads.prefetched, loads.waiting, loads.waiting_nanos);
        ensure!(of(&sums) == of(self), "an executor's tasks are miscounted");
        Ok(())
    }

    fn count_anew(&mut self, before: Load, after: Load) {
        let waiting = |load: Load| if load.instant { 0 } else { load.prefetched };
        let nanos = |load: Load| u128::from(waiting(load)) * u128::from(load.each_nanos);
        self.slotted = self.slotted - before.slotted + after.slotted;
        self.prefetched = self.prefetched - before.prefetched + after.prefetched;
        self.waiting = self.waiting - waiting(before) + waiting(after);
        self.waiting_nanos = self.waiting_nanos - nanos(before) + nanos(after);
    }
}
