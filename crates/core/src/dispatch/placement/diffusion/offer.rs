//! From a task to the executor that it suits: the paper's first part.

use super::policy::Rest;
use super::select::bytes;
use super::{Free, Load, Taken, Waiting};
use crate::data::index::{Index, Place};
use crate::limits::HINT_EXECUTORS_MAX;
use std::collections::BTreeMap;

/// A task and the free executor that is to have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The executor.
    pub place: Place,
    /// The task, taken out.
    pub taken: Taken,
}

impl Waiting {
    /// Takes the next task that a free executor is to have at once: the first
    /// task to the free executor that holds most of its bytes; if none holds
    /// any, the executor that has been free for longest gets what suits it
    /// best. Under a policy that lets tasks wait, those that wait do not stand
    /// in the way of those behind them. `None`: nothing more can be sent until
    /// something changes.
    ///
    /// The caller books the task and asks again; an executor with room for
    /// more may also be asked to [`Waiting::select`]. Executors that have become
    /// free need not be offered anything if they were asked to select.
    pub fn offer(&mut self, index: &Index, free: &dyn Free, load: Load) -> Option<Offer> {
        let first_free = free.first()?;
        let rest = self.policy.rest(load);
        if !self.policy.looks() {
            let slot = self.first_of_rest(index, rest)?;
            return Some(Offer { place: first_free, taken: self.take_out(index, slot) });
        }
        if rest != Rest::Head {
            while let Some(slot) = self.queue.next_unoffered() {
                if let Some(place) = self.best_free(index, free, slot) {
                    return Some(Offer { place, taken: self.take_out(index, slot) });
                }
            }
        }
        // A task without inputs suits everybody.
        let plain = if rest == Rest::Head { None } else { self.first_plain_in_window() };
        let slot = plain.or_else(|| self.first_of_rest(index, rest));
        let slot = slot.or_else(|| self.first_unfetchable(index))?;
        if let Some(place) = self.best_free(index, free, slot) {
            return Some(Offer { place, taken: self.take_out(index, slot) });
        }
        let mut taken = Vec::new();
        self.select(index, first_free, 1, load, &mut taken);
        Some(Offer { place: first_free, taken: taken.pop()? })
    }

    /// The free executor that holds most of a task's bytes, if one holds any,
    /// and all of them under a policy that wants that. Of an object's many
    /// holders the first few are considered.
    fn best_free(&self, index: &Index, free: &dyn Free, slot: u32) -> Option<Place> {
        let inputs = self.queue.inputs(slot);
        let suits = |place: Place| {
            let lacks = |object: &&_| !index.holds(place, **object);
            let mut lacking = inputs.iter().filter(lacks);
            match self.policy.takes_parts() {
                true => lacking.all(|object| !self.is_replicated(index, *object)),
                false => lacking.next().is_none(),
            }
        };
        self.most_held_by(index, free, slot, suits)
    }

    /// The free executor that holds most of a task's bytes, if one holds any.
    pub(super) fn most_held(&self, index: &Index, free: &dyn Free, slot: u32) -> Option<Place> {
        self.most_held_by(index, free, slot, |_| true)
    }

    fn most_held_by(
        &self,
        index: &Index,
        free: &dyn Free,
        slot: u32,
        suits: impl Fn(Place) -> bool,
    ) -> Option<Place> {
        let inputs = self.queue.inputs(slot);
        let mut candidates: BTreeMap<Place, u128> = BTreeMap::new();
        for object in inputs {
            let size = bytes(index, *object);
            for place in index.holders(*object).iter().take(HINT_EXECUTORS_MAX) {
                if free.is_free(*place) {
                    *candidates.entry(*place).or_insert(0) += size;
                }
            }
        }
        let mut best: Option<(u128, Place)> = None;
        for (place, held) in candidates {
            if best.is_none_or(|(most, _)| held > most) && suits(place) {
                best = Some((held, place));
            }
        }
        best.map(|(_, place)| place)
    }
}
