//! The tasks that one executor has, as runs in the order of their numbers.

use super::executor::InFlight;
use crate::few::Few;
use crate::task::InstanceId;
use std::collections::BTreeMap;
use std::ops::RangeBounds;

/// Runs beyond which a tree has them: a relay has very many, most executors one or two.
const FEW_RUNS_MAX: usize = 16;

/// An instance, and the number of the first task of a run.
type Key = (InstanceId, u64);

/// Runs by the instance and number of their first task. Where there are many, all are in the
/// tree, else all are in the list.
#[derive(Debug, Default)]
pub(in crate::dispatch) struct InFlights {
    few: Few<Key, InFlight>,
    many: BTreeMap<Key, InFlight>,
}

impl InFlights {
    /// Puts a run in.
    pub(super) fn insert(&mut self, key: Key, run: InFlight) {
        if self.many.is_empty() && self.few.len() < FEW_RUNS_MAX {
            self.few.insert(key, run);
            return;
        }
        if self.many.is_empty() {
            self.many.extend(std::mem::take(&mut self.few).into_entries());
        }
        self.many.insert(key, run);
    }

    /// Takes a run out.
    pub(super) fn remove(&mut self, key: &Key) -> Option<InFlight> {
        self.few.remove(key).or_else(|| self.many.remove(key))
    }

    /// The run that begins there.
    pub(in crate::dispatch) fn find(&self, key: &Key) -> Option<&InFlight> {
        self.few.find(key).or_else(|| self.many.get(key))
    }

    /// The run that begins there, to be changed.
    pub(super) fn find_mut(&mut self, key: &Key) -> Option<&mut InFlight> {
        self.few.find_mut(key).or_else(|| self.many.get_mut(key))
    }

    /// How many runs there are.
    pub(in crate::dispatch) fn len(&self) -> usize {
        self.few.len() + self.many.len()
    }

    /// Whether there is none.
    pub(in crate::dispatch) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All runs in their order.
    pub(in crate::dispatch) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Key, &InFlight)> {
        self.few.iter().chain(&self.many)
    }

    /// The runs that begin within bounds, in their order.
    pub(in crate::dispatch) fn range(
        &self,
        bounds: impl RangeBounds<Key>,
    ) -> impl DoubleEndedIterator<Item = (&Key, &InFlight)> {
        let bounds = (bounds.start_bound().cloned(), bounds.end_bound().cloned());
        self.few.range(bounds).chain(self.many.range(bounds))
    }

    /// All runs in their order.
    pub(in crate::dispatch) fn into_runs(self) -> impl Iterator<Item = (Key, InFlight)> {
        self.few.into_entries().chain(self.many)
    }
}
