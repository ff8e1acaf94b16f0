//! How many tasks of which need an executor has.

use crate::dispatch::check::{CheckError, ensure};
use crate::dispatch::instance::QueueKey;
use crate::dispatch::needs::{DataNeed, Need, NeedId, Needs};
use crate::dispatch::rack::Rack;
use crate::dispatch::shelf::{Room, Shelf};
use crate::limits::AHEAD_NEEDS_MAX;
use crate::task::Resources;
use std::cmp::Reverse;

/// How many tasks of one need an executor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::dispatch) struct Load {
    /// Tasks that hold their resources.
    pub(in crate::dispatch) slotted: u64,
    /// Tasks sent ahead: they start when others end.
    pub(in crate::dispatch) prefetched: u64,
    /// Tasks that hold nothing: those that have ended, until what they wrote is safe,
    /// and those that wait for room below a relay.
    pub(in crate::dispatch) resting: u64,
    /// They take no time, so hold nothing.
    pub(in crate::dispatch) instant: bool,
    /// For how long each of those sent ahead keeps the executor busy, in
    /// nanoseconds: its run time, divided by how many run side by side.
    pub(in crate::dispatch) each_nanos: u64,
}

/// An executor's tasks by need, and their sums.
#[derive(Debug, Default)]
pub(in crate::dispatch) struct Loads {
    by_need: Rack<Load>,
    /// The needs of which tasks that take time were sent ahead.
    ahead: Shelf,
    slotted: u64,
    prefetched: u64,
    /// Tasks sent ahead that take time.
    waiting: u64,
    /// For how long these keep the executor busy.
    waiting_nanos: u128,
}

/// Where `ahead` has a need: those that were numbered first move up first.
fn place_of(need: NeedId) -> QueueKey {
    (Reverse(0), need)
}

impl Load {
    /// Tasks sent ahead that take time.
    fn waiting(&self) -> u64 {
        if self.instant { 0 } else { self.prefetched }
    }
}

impl Loads {
    pub(in crate::dispatch) fn iter(&self) -> impl Iterator<Item = (NeedId, &Load)> {
        self.by_need.iter().map(|(need, load)| (NeedId(need as u32), load))
    }

    pub(in crate::dispatch) fn of(&self, need: NeedId) -> Load {
        self.by_need.find(u64::from(need.0)).copied().unwrap_or_default()
    }

    /// All tasks.
    pub(in crate::dispatch) fn count(&self) -> u64 {
        self.slotted + self.prefetched
    }

    /// Tasks sent ahead.
    pub(in crate::dispatch) fn prefetched(&self) -> u64 {
        self.prefetched
    }

    /// Tasks sent ahead that take time.
    pub(in crate::dispatch) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// For how long those keep the executor busy, in nanoseconds.
    pub(in crate::dispatch) fn waiting_nanos(&self) -> u128 {
        self.waiting_nanos
    }

    /// Whether tasks of another need may be sent ahead.
    pub(in crate::dispatch) fn has_place_for(&self, need: NeedId) -> bool {
        self.by_need.len() < AHEAD_NEEDS_MAX || self.by_need.find(u64::from(need.0)).is_some()
    }

    /// Changes what there is of one need.
    pub(super) fn change(&mut self, needs: &Needs, id: NeedId, change: impl FnOnce(&mut Load)) {
        let load = self.by_need.find_or_add(u64::from(id.0), Load::default);
        let before = *load;
        change(load);
        let after = *load;
        self.count_anew(before, after);
        match (before.waiting() > 0, after.waiting() > 0) {
            (false, true) => self.ahead.insert(place_of(id), &needs[id]),
            (true, false) => self.ahead.remove(place_of(id)),
            _ => {}
        }
        if after.slotted == 0 && after.prefetched == 0 && after.resting == 0 {
            self.by_need.remove(u64::from(id.0));
        }
    }

    /// Whether some task that was sent ahead and takes time would fit a room.
    pub(super) fn has_ahead_for(&mut self, room: Room<'_>, needs: &Needs) -> bool {
        self.waiting > 0 && self.ahead.first(None, room, needs, |_| false).0.is_some()
    }

    /// Tasks that were sent ahead hold their resources from now on, as many as
    /// there is room for: of each need that still fits and that `runs` there, in turn. Costs nothing
    /// where there is no room, however many needs wait for it.
    pub(super) fn move_up(
        &mut self,
        needs: &Needs,
        free: &mut Resources,
        runs: impl Fn(&Need) -> bool,
    ) {
        // Mostly there is one need: there is nothing to look for.
        if self.by_need.len() == 1 {
            if self.waiting > 0
                && let Some(only) = self.by_need.first()
            {
                self.move_some_up(needs, NeedId(only as u32), free, runs);
            }
            return;
        }
        let mut after = None;
        while self.waiting > 0 {
            let room = Room { resources: free, data: DataNeed::Cached };
            let (Some(place), _) = self.ahead.first(after, room, needs, |_| false) else { return };
            after = Some(place);
            self.move_some_up(needs, place.1, free, &runs);
        }
    }

    fn move_some_up(
        &mut self,
        needs: &Needs,
        id: NeedId,
        free: &mut Resources,
        runs: impl Fn(&Need) -> bool,
    ) {
        let Some(load) = self.by_need.find_mut(u64::from(id.0)) else { return };
        let before = *load;
        let up = free.count_of(&needs[id].resources, before.prefetched);
        if up == 0 || !runs(&needs[id]) {
            return;
        }
        free.take(&needs[id].resources, up);
        load.slotted += up;
        load.prefetched -= up;
        let after = *load;
        self.count_anew(before, after);
        if after.prefetched == 0 {
            self.ahead.remove(place_of(id));
        }
    }

    /// The sums are those of the parts, and what waits is found.
    pub(super) fn check(&self) -> Result<(), CheckError> {
        let mut sums = Loads::default();
        for (need, load) in self.iter() {
            sums.count_anew(Load::default(), *load);
            let is_listed = self.ahead.has(place_of(need));
            ensure!(is_listed == (load.waiting() > 0), "tasks sent ahead are listed elsewhere");
        }
        let of =
            |loads: &Loads| (loads.slotted, loads.prefetched, loads.waiting, loads.waiting_nanos);
        ensure!(of(&sums) == of(self), "an executor's tasks are miscounted");
        Ok(())
    }

    fn count_anew(&mut self, before: Load, after: Load) {
        let nanos = |load: Load| u128::from(load.waiting()) * u128::from(load.each_nanos);
        self.slotted = self.slotted - before.slotted + after.slotted;
        self.prefetched = self.prefetched - before.prefetched + after.prefetched;
        self.waiting = self.waiting - before.waiting() + after.waiting();
        self.waiting_nanos = self.waiting_nanos - nanos(before) + nanos(after);
    }
}
