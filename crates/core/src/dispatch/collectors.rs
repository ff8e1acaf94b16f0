//! The executors as collectors of outputs: who collects for whom, and which archives
//! they cannot write.
//!
//! Each file of an archive costs the store a create, and each executor that writes makes
//! files of its own. So a group of executors shares a collector where one each would be
//! too many. One that collects goes on until it leaves; then one of its group does. Where
//! they write so much that their collector is behind, half of the group gets another one;
//! where one is ahead for long and there are more than there need be, others take its group
//! over.

use super::Dispatcher;
use crate::collect::Unwritten;
use crate::data::declared::{Collects, Pace};
use crate::dispatch::CheckError;
use crate::dispatch::check::ensure;
use crate::limits::{COLLECT_EXECUTORS_MIN, COLLECT_GROUP_EXECUTORS_MAX, UNWRITTEN_ARCHIVES_MAX};
use crate::task::ExecutorId;
use std::collections::{BTreeMap, BTreeSet};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Collectors {
    /// How many there are to be, if the user says so.
    wanted: Option<usize>,
    /// The executors that have a place for outputs, each with its collector.
    members: BTreeMap<ExecutorId, ExecutorId>,
    /// The collectors, with those of whom they collect, and whether others reach them.
    groups: BTreeMap<ExecutorId, BTreeSet<ExecutorId>>,
    /// Those that others reach, the smallest groups first.
    sizes: BTreeSet<(usize, ExecutorId)>,
    /// The executors that others reach.
    reached: BTreeSet<ExecutorId>,
    unwritten: BTreeMap<ExecutorId, Vec<Unwritten>>,
}

/// An executor, and who collects for it now.
type Assigned = (ExecutorId, Collects);

impl Collectors {
    /// How many there are to be of so many executors.
    fn target(&self, executors: usize) -> usize {
        let usual = || executors.div_ceil(COLLECT_GROUP_EXECUTORS_MAX).max(COLLECT_EXECUTORS_MIN);
        self.wanted.unwrap_or_else(usual).max(1)
    }

    /// An executor has joined, which has a place for outputs. Returns who collects for
    /// it, if it does not.
    fn joined(&mut self, id: ExecutorId, is_reached: bool) -> Option<Assigned> {
        if is_reached {
            self.reached.insert(id);
        }
        let is_enough = self.groups.len() >= self.target(self.members.len() + 1);
        let least = self.sizes.first().map(|(_, collector)| *collector);
        match least.filter(|_| is_enough || !is_reached) {
            Some(collector) => Some(self.assign(id, collector)),
            None => {
                self.found(id);
                None
            }
        }
    }

    /// An executor leaves, or is gone. Returns who collects for its group now.
    fn left(&mut self, id: ExecutorId) -> Vec<Assigned> {
        self.reached.remove(&id);
        let Some(collector) = self.members.remove(&id) else { return Vec::new() };
        if collector != id {
            self.resize(collector, |group| group.remove(&id));
            return Vec::new();
        }
        self.sizes.retain(|(_, other)| *other != id);
        let group = self.groups.remove(&id).unwrap_or_default();
        let heir = group.iter().find(|member| self.reached.contains(member)).copied();
        let mut changed = Vec::new();
        if let Some(heir) = heir {
            self.found(heir);
            changed.push((heir, Collects::Itself));
        }
        let others = group.into_iter().filter(|member| Some(*member) != heir);
        for member in others {
            let least = self.sizes.first().map(|(_, collector)| *collector);
            match heir.or(least) {
                Some(collector) => changed.push(self.assign(member, collector)),
                None => {
                    self.found(member);
                    changed.push((member, Collects::Itself));
                }
            }
        }
        changed
    }

    /// A collector does not keep up: one of its group collects too, for half of the
    /// others. Returns who collects for whom now.
    fn behind(&mut self, id: ExecutorId) -> Vec<Assigned> {
        if self.wanted.is_some() {
            return Vec::new();
        }
        let group = self.groups.get(&id).into_iter().flatten().copied();
        let mut others: Vec<ExecutorId> = group.collect();
        let found = others.iter().position(|member| self.reached.contains(member));
        let Some(founder) = found.map(|at| others.remove(at)) else { return Vec::new() };
        self.resize(id, |group| group.remove(&founder));
        self.found(founder);
        let mut changed = vec![(founder, Collects::Itself)];
        for member in others.split_off(others.len().div_ceil(2)) {
            self.resize(id, |group| group.remove(&member));
            changed.push(self.assign(member, founder));
        }
        changed
    }

    /// A collector has little to do: others collect for it and its group, if there are
    /// more than there need be. Returns who does.
    fn ahead(&mut self, id: ExecutorId) -> Vec<Assigned> {
        let is_enough = self.groups.len() > self.target(self.members.len());
        let is_other = |(_, other): &&(usize, ExecutorId)| *other != id;
        if !is_enough || self.sizes.iter().find(is_other).is_none() {
            return Vec::new();
        }
        let Some(group) = self.groups.remove(&id) else { return Vec::new() };
        self.sizes.remove(&(group.len(), id));
        let mut changed = Vec::new();
        for member in std::iter::once(id).chain(group) {
            let least = self.sizes.first().map(|(_, collector)| *collector);
            changed.extend(least.map(|collector| self.assign(member, collector)));
        }
        changed
    }

    /// An executor collects from now on.
    fn found(&mut self, id: ExecutorId) {
        self.members.insert(id, id);
        self.groups.insert(id, BTreeSet::new());
        if self.reached.contains(&id) {
            self.sizes.insert((0, id));
        }
    }

    fn assign(&mut self, id: ExecutorId, collector: ExecutorId) -> Assigned {
        self.members.insert(id, collector);
        self.resize(collector, |group| group.insert(id));
        (id, Collects::Other(collector))
    }

    fn resize(
        &mut self,
        collector: ExecutorId,
        change: impl FnOnce(&mut BTreeSet<ExecutorId>) -> bool,
    ) {
        let Some(group) = self.groups.get_mut(&collector) else { return };
        self.sizes.remove(&(group.len(), collector));
        change(group);
        self.sizes.insert((group.len(), collector));
    }

    /// An executor says which archives it cannot write for now.
    pub(super) fn note(&mut self, id: ExecutorId, mut unwritten: Vec<Unwritten>) {
        unwritten.truncate(UNWRITTEN_ARCHIVES_MAX);
        unwritten.iter_mut().for_each(Unwritten::bound);
        match unwritten.is_empty() {
            true => self.unwritten.remove(&id),
            false => self.unwritten.insert(id, unwritten),
        };
    }

    /// The archives that an executor cannot write for now.
    pub(super) fn unwritten(&self, id: ExecutorId) -> &[Unwritten] {
        self.unwritten.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Each executor has one collector, which collects for itself.
    pub(super) fn check(&self, is_there: impl Fn(ExecutorId) -> bool) -> Result<(), CheckError> {
        let gone = self.members.keys().chain(self.unwritten.keys()).find(|id| !is_there(**id));
        ensure!(gone.is_none(), "{gone:?} is gone, and collects");
        for (id, collector) in &self.members {
            ensure!(
                self.members.get(collector) == Some(collector),
                "{id}: {collector} collects not"
            );
            let group = self.groups.get(collector);
            let is_in = group.is_some_and(|group| group.contains(id));
            ensure!(is_in != (id == collector), "{id} is in no group of {collector}");
        }
        let counted: usize = self.groups.values().map(BTreeSet::len).sum();
        ensure!(counted + self.groups.len() == self.members.len(), "groups are miscounted");
        let sizes = self.groups.iter().filter(|(id, _)| self.reached.contains(id));
        let sizes: BTreeSet<_> = sizes.map(|(id, group)| (group.len(), *id)).collect();
        ensure!(sizes == self.sizes, "the sizes of groups are miscounted");
        Ok(())
    }
}

impl Dispatcher {
    /// So many executors are to collect outputs, for all of those that join from now on;
    /// without a number, as many as is usual.
    pub fn set_collectors(&mut self, wanted: Option<usize>) {
        self.collectors.wanted = wanted;
    }

    /// An executor has joined.
    pub(super) fn collector_joined(&mut self, id: ExecutorId) {
        let executor = &self.fleet[id];
        if executor.serves.is_some() && !executor.leaving {
            let is_reached = executor.listens_at().is_some();
            let assigned = self.collectors.joined(id, is_reached);
            self.tell_collectors(assigned);
        }
    }

    /// An executor leaves: others collect for its group.
    pub(super) fn collector_leaves(&mut self, id: ExecutorId) {
        let assigned = self.collectors.left(id);
        self.tell_collectors(assigned);
    }

    /// An executor is gone.
    pub(super) fn collector_gone(&mut self, id: ExecutorId) {
        self.collectors.unwritten.remove(&id);
        self.collector_leaves(id);
    }

    /// A collector says whether it keeps up.
    pub(super) fn collector_paces(&mut self, id: ExecutorId, pace: Pace) {
        let assigned = match pace {
            Pace::Behind => self.collectors.behind(id),
            Pace::Ahead => self.collectors.ahead(id),
        };
        self.tell_collectors(assigned);
    }

    fn tell_collectors(&mut self, assigned: impl IntoIterator<Item = Assigned>) {
        for (id, collects) in assigned {
            if let Collects::Other(collector) = collects {
                self.name_peer(id, collector);
            }
            self.fleet.data_order(id).collects = Some(collects);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: u64) -> impl Iterator<Item = ExecutorId> {
        (0..count).map(ExecutorId)
    }

    /// So many executors, of which as many collect as is usual.
    fn joined(count: u64) -> Collectors {
        let mut collectors = Collectors::default();
        for id in numbers(count) {
            collectors.joined(id, true);
        }
        collectors
    }

    #[test]
    fn a_collector_that_is_behind_has_half_of_its_group_and_one_that_is_ahead_none() {
        let mut collectors = joined(64);
        assert_eq!(collectors.groups.len(), COLLECT_EXECUTORS_MIN);
        let first = ExecutorId(0);
        let group = collectors.groups[&first].clone();
        let changed = collectors.behind(first);
        let founder = changed[0].0;
        assert_eq!(changed[0].1, Collects::Itself);
        assert!(changed[1..].iter().all(|(_, now)| *now == Collects::Other(founder)));
        assert_eq!((group.len(), changed.len(), collectors.groups[&first].len()), (3, 2, 1));
        // Down to nobody.
        assert_eq!(collectors.behind(first).len(), 1);
        assert_eq!(collectors.behind(first), []);
        assert_eq!(collectors.groups.len(), COLLECT_EXECUTORS_MIN + 2);
        // Those that are too many are given up again, the others are not.
        let changed = collectors.ahead(founder);
        assert!(changed.contains(&(founder, Collects::Other(first))), "{changed:?}");
        assert_eq!(collectors.ahead(ExecutorId(5)).len(), 4);
        assert_eq!(collectors.ahead(ExecutorId(6)), []);
        collectors.check(|_| true).unwrap();
    }

    #[test]
    fn as_many_collect_as_the_user_says_however_they_keep_up() {
        let mut collectors = Collectors { wanted: Some(1), ..Collectors::default() };
        for id in numbers(9) {
            collectors.joined(id, true);
        }
        assert_eq!(collectors.behind(ExecutorId(0)), []);
        assert_eq!(collectors.ahead(ExecutorId(0)), []);
        assert_eq!(collectors.groups.len(), 1);
    }

    #[test]
    fn every_executor_knows_its_collector_whoever_joins_leaves_and_lags() {
        for seed in 0..50_u64 {
            let mut state = seed;
            let mut next = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % below
            };
            let mut collectors = Collectors::default();
            let mut told: BTreeMap<ExecutorId, Collects> = BTreeMap::new();
            for _ in 0..400 {
                let id = ExecutorId(next(90));
                let assigned: Vec<Assigned> = match next(8) {
                    _ if !told.contains_key(&id) => {
                        told.insert(id, Collects::Itself);
                        collectors.joined(id, next(5) > 0).into_iter().collect()
                    }
                    0 => {
                        told.remove(&id);
                        collectors.left(id)
                    }
                    1..3 => collectors.behind(id),
                    3..5 => collectors.ahead(id),
                    _ => continue,
                };
                told.extend(assigned);
                collectors.check(|id| told.contains_key(&id)).unwrap_or_else(|error| {
                    panic!("seed {seed}: {error}");
                });
                for (id, collects) in &told {
                    let now = match collectors.members[id] {
                        collector if collector == *id => Collects::Itself,
                        collector => Collects::Other(collector),
                    };
                    assert_eq!(now, *collects, "seed {seed}: {id} was told otherwise");
                }
            }
        }
    }
}
