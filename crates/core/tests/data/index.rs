//! The index against plain maps, under random reports.

use falkon_core::data::index::{Change, Index, ObjectNo, Place};
use falkon_core::data::object::ObjectId;
use falkon_core::task::ExecutorId;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const EXECUTORS: u64 = 4;
const OBJECTS: u128 = 6;

#[derive(Debug, Clone)]
enum Step {
    Join(u64),
    Leave(u64),
    Want(u128),
    Unwant(u128),
    Add(u64, u128),
    Remove(u64, u128),
    Replace(u64, BTreeSet<u128>),
    Fetch(u64, u128),
    CancelTransfer(u64, u128),
}

fn step() -> impl Strategy<Value = Step> {
    let (executor, object) = (0..EXECUTORS, 0..OBJECTS);
    let both = (executor.clone(), object.clone());
    prop_oneof![
        2 => executor.clone().prop_map(Step::Join),
        1 => executor.clone().prop_map(Step::Leave),
        3 => object.clone().prop_map(Step::Want),
        3 => object.clone().prop_map(Step::Unwant),
        4 => both.clone().prop_map(|(e, o)| Step::Add(e, o)),
        3 => both.clone().prop_map(|(e, o)| Step::Remove(e, o)),
        1 => (executor, prop::collection::btree_set(object, 0..6))
            .prop_map(|(e, all)| Step::Replace(e, all)),
        4 => both.clone().prop_map(|(e, o)| Step::Fetch(e, o)),
        2 => both.prop_map(|(e, o)| Step::CancelTransfer(e, o)),
    ]
}

#[derive(Default)]
struct Model {
    index: Index,
    places: BTreeMap<u64, Place>,
    holds: BTreeSet<(u64, u128)>,
    wanted: BTreeMap<u128, (u64, ObjectNo)>,
    /// From whom an object is on its way to an executor.
    coming: BTreeMap<(u64, u128), Option<u64>>,
    /// To whom each object was first on its way, and then to whom.
    order: Vec<(u64, u128)>,
    /// Objects that somebody held when another number of tasks came to want them.
    rewanted: BTreeSet<ObjectNo>,
}

impl Model {
    fn sends(&self, executor: u64) -> u64 {
        self.coming.values().filter(|from| **from == Some(executor)).count() as u64
    }

    fn add(&mut self, executor: u64, object: u128) -> bool {
        self.coming.remove(&(executor, object));
        self.holds.insert((executor, object))
    }

    fn apply(&mut self, step: Step) {
        let Model { order, coming, .. } = self;
        order.retain(|entry| coming.contains_key(entry));
        match step {
            Step::Join(executor) => {
                let place = self.index.join(ExecutorId(executor));
                assert_eq!(*self.places.entry(executor).or_insert(place), place);
            }
            Step::Want(object) => {
                let number = self.index.want(ObjectId(object), Some(object as u64));
                let (count, known) = self.wanted.entry(object).or_insert((0, number));
                assert_eq!(*known, number, "a number in use stays");
                *count += 1;
                if self.holds.iter().any(|(_, held)| *held == object) {
                    self.rewanted.insert(number);
                }
            }
            Step::Unwant(object) => {
                let Some((count, number)) = self.wanted.get_mut(&object) else { return };
                self.index.unwant(*number);
                *count -= 1;
                if self.holds.iter().any(|(_, held)| *held == object) {
                    self.rewanted.insert(*number);
                }
                if *count == 0 {
                    self.wanted.remove(&object);
                }
            }
            Step::Leave(executor) => {
                let Some(place) = self.places.remove(&executor) else { return };
                let left = self.index.leave(place).len();
                let before = self.holds.len();
                self.holds.retain(|(holder, _)| *holder != executor);
                assert_eq!(left, before - self.holds.len());
                self.coming.retain(|(to, _), _| *to != executor);
                for from in self.coming.values_mut().filter(|from| **from == Some(executor)) {
                    *from = None;
                }
            }
            Step::Add(executor, object) => {
                let Some(place) = self.places.get(&executor).copied() else { return };
                let news = self.index.add(place, ObjectId(object), None);
                assert_eq!(news.is_some(), self.add(executor, object));
            }
            Step::Remove(executor, object) => {
                let Some(place) = self.places.get(&executor).copied() else { return };
                let news = self.index.remove(place, ObjectId(object));
                assert_eq!(news.is_some(), self.holds.remove(&(executor, object)));
            }
            Step::Replace(executor, all) => self.replace(executor, &all),
            Step::Fetch(executor, object) => self.fetch(executor, object),
            Step::CancelTransfer(executor, object) => {
                let place = self.places.get(&executor);
                let number = self.index.number(ObjectId(object));
                if let (Some(place), Some(number)) = (place, number) {
                    self.index.cancel_transfer(number, *place);
                    self.coming.remove(&(executor, object));
                }
            }
        }
    }

    fn replace(&mut self, executor: u64, all: &BTreeSet<u128>) {
        let Some(place) = self.places.get(&executor).copied() else { return };
        let report: Vec<_> = all.iter().map(|object| (ObjectId(*object), None)).collect();
        let changes = self.index.replace(place, &report);
        let before: BTreeSet<u128> =
            self.holds.iter().filter(|(holder, _)| *holder == executor).map(|(_, o)| *o).collect();
        let added = changes.iter().filter(|change| matches!(change, Change::Added(_))).count();
        assert_eq!(added, all.difference(&before).count());
        assert_eq!(changes.len() - added, before.difference(all).count());
        self.holds.retain(|(holder, _)| *holder != executor);
        self.holds.extend(all.iter().map(|object| (executor, *object)));
        self.coming.retain(|(to, _), _| *to != executor);
    }

    fn fetch(&mut self, executor: u64, object: u128) {
        let place = self.places.get(&executor).copied();
        let number = self.index.number(ObjectId(object));
        let (Some(place), Some(number)) = (place, number) else { return };
        let hints = self.index.hints(number, place, 2);
        let reader = self.index.reader(number, place, 8);
        let is_coming = |entry: &&(u64, u128)| entry.1 == object && self.coming.contains_key(entry);
        let coming: Vec<u64> = self.order.iter().filter(is_coming).map(|entry| entry.0).collect();
        let at = coming.iter().position(|to| *to == executor).unwrap_or(coming.len());
        let is_held = self.holds.contains(&(executor, object));
        let above = at.checked_sub(1).filter(|_| !is_held).map(|last| coming[last / 8]);
        assert_eq!(reader, above.map(ExecutorId));
        if self.holds.contains(&(executor, object)) {
            assert!(hints.is_empty(), "what is held is not fetched");
            return;
        }
        let holders: Vec<u64> =
            self.holds.iter().filter(|(_, held)| *held == object).map(|(e, _)| *e).collect();
        assert_eq!(hints.len(), holders.len().min(2));
        let least = holders.iter().map(|holder| self.sends(*holder)).min();
        let first = hints.first().map(|hint| hint.0);
        assert_eq!(first.map(|first| self.sends(first)), least, "the least loaded is first");
        let order = &mut self.order;
        self.coming.entry((executor, object)).or_insert_with(|| {
            order.push((executor, object));
            first
        });
    }

    fn check(&mut self) {
        let rewanted: Vec<ObjectNo> = std::iter::from_fn(|| self.index.next_rewanted()).collect();
        assert!(rewanted.into_iter().eq(std::mem::take(&mut self.rewanted)));
        for object in 0..OBJECTS {
            let holders: BTreeSet<Place> = self
                .holds
                .iter()
                .filter(|(_, held)| *held == object)
                .map(|(executor, _)| self.places[executor])
                .collect();
            let coming = self.coming.keys().filter(|(_, coming)| *coming == object).count();
            let wanted = self.wanted.get(&object).map_or(0, |(count, _)| *count);
            let number = self.index.number(ObjectId(object));
            let is_used = !holders.is_empty() || coming > 0 || wanted > 0;
            assert_eq!(number.is_some(), is_used, "unused numbers are free");
            let Some(number) = number else { continue };
            assert_eq!(self.index.id(number), Some(ObjectId(object)));
            assert!(self.index.holders(number).iter().eq(&holders));
            assert_eq!(self.index.coming_count(number), coming);
            assert_eq!(self.index.wanted(number), wanted);
        }
        for (executor, place) in &self.places {
            assert_eq!(self.index.executor(*place), Some(ExecutorId(*executor)));
            assert_eq!(self.index.sends(*place), self.sends(*executor));
            let held = self.holds.iter().filter(|(holder, _)| holder == executor).count();
            assert_eq!(self.index.held_count(*place), held);
            assert_eq!(self.index.held_from(*place, ObjectNo(0)).count(), held);
            let coming = self.coming.keys().filter(|(to, _)| to == executor).count();
            assert_eq!(self.index.coming_to(*place), coming);
        }
    }
}

proptest! {
    #[test]
    fn the_index_is_what_was_reported(steps in prop::collection::vec(step(), 1..120)) {
        let mut model = Model::default();
        for step in steps {
            model.apply(step);
            model.check();
        }
    }
}

#[test]
fn an_executor_that_claims_to_hold_everything_is_believed_within_a_bound() {
    use falkon_core::limits::EXECUTOR_OBJECTS_MAX;
    let mut index = Index::new();
    let (liar, other) = (index.join(ExecutorId(1)), index.join(ExecutorId(2)));
    let bound = EXECUTOR_OBJECTS_MAX as u128;
    let known: u128 =
        (0..bound).map(|id| u128::from(index.add(liar, ObjectId(id), None).is_some())).sum();
    assert_eq!(known, bound);
    // Objects that it holds stay, those on their way come, and the rest is not known.
    let coming = index.want(ObjectId(bound), None);
    assert!(index.hints(coming, liar, 1).is_empty() && index.is_coming(liar, coming));
    for id in [0, bound, bound + 1] {
        assert_eq!(index.add(liar, ObjectId(id), None), None);
    }
    assert!(!index.is_coming(liar, coming));
    assert_eq!((index.held_count(liar), index.number(ObjectId(bound + 1))), (bound as usize, None));
    // Others are believed as before, and so is it when it has less.
    assert!(index.add(other, ObjectId(bound + 1), None).is_some());
    assert!(index.remove(liar, ObjectId(0)).is_some());
    assert!(index.add(liar, ObjectId(bound + 1), None).is_some());
}
