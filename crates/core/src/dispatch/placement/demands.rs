//! How many tasks want what executors hold: which of that has changed since
//! each of them was told.

use crate::data::index::Index;
use crate::data::object::ObjectId;
use crate::limits::ORDER_DEMAND_OBJECTS_MAX;
use crate::task::ExecutorId;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Objects of which executors are to be told how many tasks want them.
#[derive(Debug, Default)]
pub(super) struct Demands {
    changed: BTreeSet<(ExecutorId, ObjectId)>,
}

impl Demands {
    /// Notes whose holders are to be told that tasks that read it have been
    /// queued, or wait no longer.
    pub(super) fn note(&mut self, index: &mut Index) {
        while let Some(object) = index.next_rewanted() {
            let Some(id) = index.id(object) else { continue };
            for holder in index.holders(object) {
                if let Some(holder) = index.executor(*holder) {
                    self.changed.insert((holder, id));
                }
            }
        }
    }

    /// How many tasks want what an executor holds, of what has changed since it
    /// was told; as many objects as go into one order.
    pub(super) fn next(&mut self, index: &Index, to: ExecutorId) -> Vec<(ObjectId, u64)> {
        let mut demand = Vec::new();
        while demand.len() < ORDER_DEMAND_OBJECTS_MAX
            && let Some(&(_, object)) = self.changed.range(of(to)).next()
        {
            self.changed.remove(&(to, object));
            let wanted = index.number(object).map_or(0, |number| index.wanted(number));
            demand.push((object, wanted));
        }
        demand
    }

    /// An executor is gone.
    pub(super) fn forget(&mut self, id: ExecutorId) {
        while let Some(&gone) = self.changed.range(of(id)).next() {
            self.changed.remove(&gone);
        }
    }

    /// For the state checker: executors that are mentioned.
    pub(super) fn executors(&self) -> impl Iterator<Item = &ExecutorId> {
        self.changed.iter().map(|(id, _)| id)
    }
}

/// Where an executor's entries stand.
fn of(id: ExecutorId) -> RangeInclusive<(ExecutorId, ObjectId)> {
    (id, ObjectId(0))..=(id, ObjectId(u128::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDER: ExecutorId = ExecutorId(1);

    /// An index in which one executor holds objects, which so many tasks want each.
    fn wanted(index: &mut Index, objects: u64, tasks: u64) {
        let place = index.join(HOLDER);
        for object in (0..objects).map(|object| ObjectId(u128::from(object))) {
            index.add(place, object, None);
            for _ in 0..tasks {
                index.want(object, None);
            }
        }
    }

    #[test]
    fn a_holder_is_told_once_of_what_has_changed() {
        let (mut index, mut demands) = (Index::default(), Demands::default());
        wanted(&mut index, 2, 3);
        demands.note(&mut index);
        assert_eq!(demands.next(&index, ExecutorId(2)), []);
        assert_eq!(demands.next(&index, HOLDER), [(ObjectId(0), 3), (ObjectId(1), 3)]);
        assert_eq!(demands.next(&index, HOLDER), []);
        let number = index.number(ObjectId(1)).unwrap();
        index.unwant(number);
        demands.note(&mut index);
        assert_eq!(demands.next(&index, HOLDER), [(ObjectId(1), 2)]);
    }

    #[test]
    fn an_order_has_a_bounded_number_of_demands() {
        let (mut index, mut demands) = (Index::default(), Demands::default());
        let most = ORDER_DEMAND_OBJECTS_MAX;
        wanted(&mut index, most as u64 + 2, 1);
        demands.note(&mut index);
        assert_eq!(demands.next(&index, HOLDER).len(), most);
        assert_eq!(demands.next(&index, HOLDER).len(), 2);
    }

    #[test]
    fn an_executor_that_is_gone_is_told_nothing() {
        let (mut index, mut demands) = (Index::default(), Demands::default());
        wanted(&mut index, 2, 1);
        demands.note(&mut index);
        demands.forget(HOLDER);
        assert_eq!(demands.executors().count(), 0);
        assert_eq!(demands.next(&index, HOLDER), []);
    }
}
