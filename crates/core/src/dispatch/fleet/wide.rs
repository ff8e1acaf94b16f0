//! Executors for a gang: those with room for a node of it, of one allocation where possible, and
//! those whose room is kept for one.

use super::Fleet;
use super::executor::Executor;
use crate::dispatch::needs::{Need, Needs};
use crate::gang::{GangKey, GangOrder};
use crate::limits::HELD_GANGS_MAX;
use crate::task::{AllocationId, ExecutorId, Resources, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A gang that looks for executors.
#[derive(Debug, Clone, Copy)]
pub(in crate::dispatch) struct Wide<'a> {
    pub(in crate::dispatch) need: &'a Need,
    pub(in crate::dispatch) now: Time,
    /// The run time that its user expects, in microseconds; 0 is unknown.
    pub(in crate::dispatch) lasts_micros: u64,
}

impl Wide<'_> {
    fn nodes(&self) -> usize {
        self.need.nodes as usize
    }

    /// Whether an executor could be a member once it has room, as it is now.
    fn may_take(&self, executor: &Executor) -> bool {
        executor.takes_tasks()
            && executor.reserved.is_none()
            && executor.offers(self.need)
            && executor.outlasts(self.now, self.lasts_micros)
    }

    fn has_room(&self, executor: &Executor) -> bool {
        self.may_take(executor)
            && executor.free.fits(&self.need.resources)
            && executor.gangs.len() < HELD_GANGS_MAX / 2
            && (executor.has_nothing() || !executor.misjudged)
    }
}

/// When an executor is expected to have room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::dispatch) struct FreeAt {
    /// `Time(u64::MAX)` if that is unknown.
    pub(in crate::dispatch) at: Time,
    /// When what it waits for was sent there: what was sent first ends first, for all that is
    /// known.
    pub(in crate::dispatch) since: Time,
    pub(in crate::dispatch) executor: ExecutorId,
}

impl Fleet {
    /// As many executors as a gang needs that have room for it now, the one to run its command
    /// first. `with_kept` takes those as well whose room is kept.
    pub(in crate::dispatch) fn wide_room(
        &self,
        wide: Wide<'_>,
        with_kept: bool,
    ) -> Option<Vec<ExecutorId>> {
        let milli = wide.need.resources.cpus_milli;
        let mut groups: BTreeMap<Option<AllocationId>, Vec<(u32, ExecutorId)>> = BTreeMap::new();
        // Where tasks ask for no processor, executors without a free one have room too.
        let available = self.available.values().map(|id| &self.roster[*id]);
        let full = self.roster.values().filter(|one| milli == 0 && one.turn.is_none());
        // Those that have just gained room are not listed yet.
        let gained = self.new_room.iter().map(|id| &self.roster[*id]);
        let gained = gained.filter(|one| milli > 0 && one.turn.is_none());
        for executor in available.chain(full).chain(gained) {
            let is_open = with_kept || executor.kept_until.is_none();
            if is_open && wide.has_room(executor) {
                let rest = executor.free.cpus_milli.saturating_sub(milli);
                groups.entry(executor.allocation).or_default().push((rest, executor.id));
            }
        }
        let found: usize = groups.values().map(Vec::len).sum();
        if found < wide.nodes() {
            return None;
        }
        // The smallest allocation that has enough, or as few as have.
        let whole = groups.values().filter(|group| group.len() >= wide.nodes());
        let mut chosen = match whole.min_by_key(|group| group.len()) {
            Some(group) => group.clone(),
            None => {
                let mut all: Vec<Vec<(u32, ExecutorId)>> = groups.into_values().collect();
                all.sort_by_key(|group| Reverse(group.len()));
                let mut left = wide.nodes();
                let mut parts = Vec::new();
                for mut group in all {
                    // What is least of use to others comes first.
                    group.sort_unstable();
                    group.truncate(left);
                    left -= group.len();
                    parts.extend(group);
                }
                parts
            }
        };
        chosen.sort_unstable();
        chosen.truncate(wide.nodes());
        let mut members: Vec<ExecutorId> = chosen.into_iter().map(|(_, id)| id).collect();
        // A command that could not be started on one node may be there on another.
        members.sort_unstable_by_key(|id| (self.roster[*id].faults, *id));
        Some(members)
    }

    /// How many executors have room for a node of a gang now, and how many offer one at all.
    pub(in crate::dispatch) fn wide_counts(&self, wide: Wide<'_>) -> (u64, u64) {
        let mut counts = (0, 0);
        for executor in self.roster.values() {
            counts.0 += u64::from(wide.has_room(executor));
            counts.1 += u64::from(executor.offers(wide.need));
        }
        counts
    }

    /// Whether enough executors offer a node of a gang, free or not.
    pub(in crate::dispatch) fn could_run_wide(&self, need: &Need) -> bool {
        let offering = self.roster.values().filter(|executor| executor.offers(need));
        offering.take(need.nodes as usize).count() >= need.nodes as usize
    }

    /// The executors that a gang could have, with when each has room for it: `free_at` says
    /// that of an executor that has none now.
    pub(in crate::dispatch) fn wide_outlook(
        &self,
        wide: Wide<'_>,
        free_at: impl Fn(&Executor) -> (Time, Time),
    ) -> Vec<FreeAt> {
        let able = self.roster.values().filter(|executor| wide.may_take(executor));
        let found = able.map(|executor| {
            // What seems free there is not, until it has reported.
            let is_believed = executor.has_nothing() || !executor.misjudged;
            let (at, since) = match is_believed && executor.free.fits(&wide.need.resources) {
                true => (wide.now, Time::default()),
                false => free_at(executor),
            };
            FreeAt { at, since, executor: executor.id }
        });
        found.collect()
    }

    /// The allocation of an executor.
    pub(in crate::dispatch) fn allocation_of(&self, id: ExecutorId) -> Option<AllocationId> {
        self.roster[id].allocation
    }

    /// Keeps the room of these executors, and of no others, for a gang that begins at this
    /// time.
    pub(in crate::dispatch) fn keep(&mut self, ids: &BTreeSet<ExecutorId>, until: Time) {
        for id in std::mem::take(&mut self.kept) {
            self.roster[id].kept_until = None;
            if !ids.contains(&id) {
                self.new_room.insert(id);
            }
        }
        for id in ids {
            self.roster[*id].kept_until = Some(until);
        }
        self.kept.clone_from(ids);
    }

    /// The executors whose room is kept.
    pub(in crate::dispatch) fn kept(&self) -> &BTreeSet<ExecutorId> {
        &self.kept
    }

    /// Takes an executor's room for a gang, if it has it.
    pub(in crate::dispatch) fn take_for_gang(
        &mut self,
        id: ExecutorId,
        key: GangKey,
        resources: &Resources,
        now: Time,
    ) -> bool {
        let executor = &mut self.roster[id];
        if executor.gangs.len() >= HELD_GANGS_MAX || !executor.free.fits(resources) {
            return false;
        }
        executor.take_for_gang(key, resources);
        self.list(id, now);
        true
    }

    /// A gang gives an executor's room back.
    pub(in crate::dispatch) fn give_from_gang(
        &mut self,
        id: ExecutorId,
        key: GangKey,
        needs: &Needs,
        now: Time,
    ) {
        self.roster[id].give_from_gang(key, needs);
        self.new_room.insert(id);
        self.list(id, now);
    }

    /// Sends an executor an order about a gang.
    pub(in crate::dispatch) fn order_gang(&mut self, id: ExecutorId, gang: GangOrder) {
        self.order(id).gangs.push(gang);
    }
}
