//! What executors are called, those gone included, for as long as results that
//! are in memory mention them. Pages of results have the names that they need.

use crate::limits::FORGOTTEN_NAMES_MIN;
use crate::result::Finished;
use crate::task::ExecutorId;
use std::collections::{BTreeMap, BTreeSet};

/// Names of executors.
#[derive(Debug, Default)]
pub(super) struct Names {
    of: BTreeMap<ExecutorId, String>,
    /// How many were left when names were last forgotten.
    left: usize,
}

impl Names {
    pub(super) fn insert(&mut self, id: ExecutorId, name: String) {
        self.of.insert(id, name);
    }

    pub(super) fn find(&self, id: ExecutorId) -> Option<&String> {
        self.of.get(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    pub(super) fn retain(&mut self, is_needed: impl Fn(ExecutorId) -> bool) {
        self.of.retain(|id, _| is_needed(*id));
        self.left = self.of.len();
    }

    /// Names of the executors in these results.
    pub(super) fn in_results(&self, results: &[Finished]) -> Vec<(ExecutorId, String)> {
        let mut executors: Vec<_> = results.iter().filter_map(|run| run.executor).collect();
        // Most often what one executor did comes together.
        executors.dedup();
        let mentioned: BTreeSet<_> = executors.into_iter().collect();
        mentioned.into_iter().filter_map(|id| Some((id, self.of.get(&id)?.clone()))).collect()
    }

    /// Whether so many have come since names were last forgotten that looking
    /// for those to forget costs each of them little.
    pub(super) fn is_due(&self) -> bool {
        self.of.len() >= 2 * self.left + FORGOTTEN_NAMES_MIN
    }
}
