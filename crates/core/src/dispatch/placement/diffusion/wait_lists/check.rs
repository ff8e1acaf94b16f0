//! Invariants of the lists: they are what counting anew from the queue and
//! the index gives.

use super::{List, View, WaitLists};
use crate::data::index::{Index, ObjectNo};
use crate::dispatch::check::{CheckError, ensure};
use crate::dispatch::placement::diffusion::queue::Queue;
use crate::limits::INDEXED_EXECUTORS_MAX;
use std::collections::{BTreeMap, BTreeSet};

impl WaitLists {
    /// # Errors
    /// Says what does not hold.
    pub(in crate::dispatch::placement::diffusion) fn check(
        &self,
        queue: &Queue,
        index: &Index,
    ) -> Result<(), CheckError> {
        let tasks: Vec<(u64, &[ObjectNo])> =
            queue.all().map(|slot| (queue.seq(slot), queue.inputs(slot))).collect();
        let plain = tasks.iter().filter(|(_, inputs)| inputs.is_empty()).map(|(seq, _)| *seq);
        let is_same = plain.eq(self.plain.iter().map(|(seq, _)| *seq));
        ensure!(is_same, "tasks without inputs are listed wrongly");
        let mut readers: BTreeMap<ObjectNo, Vec<(u64, bool)>> = BTreeMap::new();
        for (seq, inputs) in &tasks {
            for object in *inputs {
                readers.entry(*object).or_default().push((*seq, inputs.len() == 1));
            }
        }
        let known = self.locals().count();
        ensure!(known == readers.len(), "{known} objects are listed, not {}", readers.len());
        let (mut entries, mut overfull) = (0, 0);
        for (object, readers) in &readers {
            let local = self.local(*object).filter(|local| self.object(*local) == *object);
            let Some(local) = local else {
                return Err(CheckError::new(format!("object {} is in no list", object.0)));
            };
            let list = &self.lists[local as usize];
            list.check(queue, *object, readers)?;
            self.check_views(list, index.holders(*object))?;
            for (view, at) in &list.views {
                let Some(at) = at else { continue };
                let stands = self.views[*view as usize].contains(&(*at, local));
                ensure!(stands, "object {} does not stand where it says", object.0);
                entries += 1;
            }
            overfull += usize::from(list.is_overfull);
        }
        let all: usize = self.views.iter().map(BTreeSet::len).sum();
        ensure!(all == entries, "views have {all} entries, not {entries}");
        ensure!(overfull == self.overfull, "objects with many holders are miscounted");
        tasks.iter().try_for_each(|(seq, inputs)| self.check_found(*seq, inputs))
    }

    /// An object is in the views of its holders, as far as these are indexed, and
    /// of the limits that it is below.
    fn check_views(
        &self,
        list: &List,
        holders: &[crate::data::index::Place],
    ) -> Result<(), CheckError> {
        let object = list.object.0;
        let of_limits = self.limits.len() as View;
        let (limits, places): (Vec<View>, Vec<View>) =
            list.views.iter().map(|(view, _)| *view).partition(|view| *view < of_limits);
        let below = (0..of_limits).filter(|at| holders.len() < self.limits[*at as usize] as usize);
        ensure!(below.eq(limits), "object {object} is in the views of other limits");
        let expected: BTreeSet<View> =
            holders.iter().map(|holder| self.place_view(*holder)).collect();
        ensure!(list.views.is_sorted(), "object {object}: its views are in no order");
        let are_holders = places.iter().all(|view| expected.contains(view));
        ensure!(are_holders, "object {object} is in the view of an executor without it");
        let indexed = expected.len().min(INDEXED_EXECUTORS_MAX);
        ensure!(places.len() == indexed, "object {object}: a holder does not find it");
        ensure!(list.indexed == indexed, "object {object}: its holders are miscounted");
        let is_overfull = holders.len() > INDEXED_EXECUTORS_MAX;
        ensure!(list.is_overfull == is_overfull, "object {object}: too many holders, or not");
        Ok(())
    }

    /// Each view that has all inputs of a task finds the task by one of them.
    fn check_found(&self, seq: u64, inputs: &[ObjectNo]) -> Result<(), CheckError> {
        let lists = || inputs.iter().filter_map(|object| self.local(*object));
        let Some(first) = lists().next() else { return Ok(()) };
        for (view, _) in &self.lists[first as usize].views {
            let stands = |local: u32| {
                let views = &self.lists[local as usize].views;
                views.iter().find(|(of, _)| of == view).map(|(_, at)| *at)
            };
            let is_whole = lists().all(|local| stands(local).is_some());
            let is_ahead = |local| stands(local).flatten().is_some_and(|at| at <= seq);
            ensure!(!is_whole || lists().any(is_ahead), "a task was passed by for good");
        }
        Ok(())
    }
}

impl List {
    /// The list has these tasks, the first of them first.
    fn check(
        &self,
        queue: &Queue,
        object: ObjectNo,
        readers: &[(u64, bool)],
    ) -> Result<(), CheckError> {
        let object = object.0;
        let live = self.marks.iter().filter(|mark| queue.has(**mark)).map(|mark| mark.seq);
        let is_same = live.eq(readers.iter().map(|(seq, _)| *seq));
        ensure!(is_same, "object {object}: other tasks are listed than wait");
        ensure!(self.live == readers.len(), "object {object}: its tasks are miscounted");
        let alone = readers.iter().filter(|(_, is_alone)| *is_alone).count();
        ensure!(self.alone == alone, "object {object}: tasks without others are miscounted");
        let is_first = self.marks.front().is_some_and(|mark| queue.has(*mark));
        ensure!(is_first, "object {object}: its first task has gone");
        let few = self.marks.len() <= 2 * self.live;
        ensure!(few, "object {object}: tasks that have gone are kept");
        Ok(())
    }
}
