//! Stripes in the worlds of this test: shares of objects are lent and taken back, and
//! nodes are named as lenders that have theirs or not.

use super::{Real, World};
use falkon_core::data::limits::BROADCAST_OBJECT_BYTES_MIN;
use falkon_core::data::object::{ObjectId, Sources};
use falkon_core::data::stage::{Action, Event, StageError, Staged};
use falkon_core::data::stripes::{share_id, share_of};
use falkon_core::task::ExecutorId;
use std::sync::Arc;

/// Whether an id is that of shares: those of objects are small here.
pub(super) fn is_share(object: ObjectId) -> bool {
    share_id(object).0 < object.0
}

impl World {
    /// What a task finds in a file system is shown there, and is too large for all
    /// directories.
    pub(super) fn find_mounted(&self, inputs: &[Staged]) {
        for input in inputs {
            assert!(self.shown.contains(&input.object.id), "seed {}: {input:?}", self.seed);
            let size = input.object.size.unwrap();
            assert!(self.tiers.iter().all(|tier| *tier < size), "seed {}: {input:?}", self.seed);
        }
    }

    /// Outputs are smaller than this: where room is lent, some are too large for the rest.
    pub(super) fn output_mib_max(&self) -> u64 {
        if self.tiers.len() > 2 { 60 } else { 30 }
    }

    /// An output is kept, or not: then no share has the room that it could have.
    pub(super) fn output_ended(&mut self, end: &Action) {
        self.outputs_open -= 1;
        let Action::NotKept { object, error: StageError::Room(_), .. } = end else { return };
        let size = self.reals[object].size;
        let [own @ .., _] = &self.tiers[..] else { return };
        if self.tiers.len() > 2 && own.iter().all(|tier| *tier < size) {
            let (_, shares) = self.stage.lent();
            assert_eq!(shares, 0, "seed {}: {object:?} finds no room for shares", self.seed);
        }
    }

    /// Something happens that has to do with stripes; false if nothing does.
    pub(super) fn stripes_chance(&mut self, object: ObjectId) -> bool {
        let Some(real) = self.reals.get(&object).cloned() else { return false };
        let is_large = real.object.size.is_some_and(|size| size >= BROADCAST_OBJECT_BYTES_MIN);
        if !is_large || !self.rng.percent(60) {
            return false;
        }
        let share = share_id(object);
        // Others know it by another id, and it comes from the same places.
        let of_share = Real { object: Arc::new(share_of(&real.object)), ..real.clone() };
        self.reals.entry(share).or_insert(of_share);
        match self.rng.below(4) {
            0 => {
                let count = *self.rng.pick(&[0, 1, 3, 4, 7]);
                let lenders = (0..count).map(|_| ExecutorId(self.rng.below(5))).collect();
                self.send(Event::Striped { object, lenders });
            }
            1 => {
                self.lent.remove(&share);
                self.send(Event::TakeBack(vec![share]));
            }
            _ => {
                let of = *self.rng.pick(&[1, 2, 5]);
                let stripes = (0..of).filter(|_| self.rng.percent(40)).collect();
                let sources = Sources { store: real.store, ..Sources::default() };
                self.lent.insert(share);
                self.send(Event::Lend { object: real.object, sources, stripes, of });
            }
        }
        true
    }
}
