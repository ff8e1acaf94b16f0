//! Connections for chunks: what a node asks another for of one object is sent in order,
//! each chunk right after the one before.

use super::transfer::TransferId;
use falkon_core::data::object::ObjectId;
use std::collections::{BTreeMap, VecDeque};

/// The node that asks, the one that sends, and the object.
pub(super) type Lane = (u32, u32, ObjectId);

/// All such connections on which somebody waits.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    of: BTreeMap<Lane, VecDeque<TransferId>>,
    /// Those whose turn it is.
    turns: Vec<TransferId>,
}

impl Lanes {
    /// A chunk is asked for. Returns whether it is its turn.
    pub(super) fn enter(&mut self, lane: Lane, id: TransferId) -> bool {
        let waiting = self.of.entry(lane).or_default();
        waiting.push_back(id);
        waiting.len() == 1
    }

    /// A chunk is sent, or nobody waits for it.
    pub(super) fn leave(&mut self, lane: Lane, id: TransferId) {
        let Some(waiting) = self.of.get_mut(&lane) else { return };
        let was_first = waiting.front() == Some(&id);
        waiting.retain(|one| *one != id);
        match waiting.front() {
            Some(next) if was_first => self.turns.push(*next),
            Some(_) => {}
            None => {
                self.of.remove(&lane);
            }
        }
    }

    /// Those who wait behind the first.
    pub(super) fn behind(&self, lane: Lane) -> Vec<TransferId> {
        self.of.get(&lane).map_or_else(Vec::new, |of| of.iter().skip(1).copied().collect())
    }

    /// Those whose turn it is since the last call.
    pub(super) fn take_turns(&mut self) -> Vec<TransferId> {
        std::mem::take(&mut self.turns)
    }
}
