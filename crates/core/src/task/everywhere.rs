//! A task that runs once on each executor, as it is submitted and as it is placed.

use super::{ExecutorId, Resources, Submission};
use crate::data::declared::Lists;
use std::sync::Arc;

/// A task that runs once on each executor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Everywhere {
    /// On those as well that join later, until the instance is sealed.
    pub joining: bool,
    /// Only on those that offer this, free or not.
    pub offering: Resources,
    /// The executors, by their incarnations, a task each: the dispatcher fills them
    /// in. A relay is there as often as there are nodes below it.
    pub executors: Vec<u64>,
    /// From a relay: how many tasks it is at most. The details of their results name the
    /// executors.
    pub lent: Option<u64>,
    /// Only on this executor, which is no relay, and on none that joins later: each has data
    /// of its own to read.
    pub only: Option<ExecutorId>,
}

impl Everywhere {
    /// The tasks of an executor, counted from the submission's first: as (first, count).
    #[must_use]
    pub fn tasks_of(&self, executor: u64) -> (u64, u64) {
        let first = self.executors.partition_point(|one| *one < executor);
        let count = self.executors[first..].partition_point(|one| *one == executor);
        (first as u64, count as u64)
    }
}

impl Submission {
    /// Whether it is one task, or as many as there are executors to run it, that
    /// depends on nothing and writes nothing that others would write as well.
    pub(super) fn is_sound_everywhere(&self) -> bool {
        let Some(everywhere) = &self.everywhere else { return true };
        let count = (everywhere.executors.len() as u64).max(1);
        self.count == count
            && self.class_runs.len() == 1
            && everywhere.offering.is_sound()
            && !(everywhere.joining && everywhere.only.is_some())
            && self.names.is_none()
            && self.after.is_empty()
            && self.data.as_ref().is_none_or(|data| data.outputs.is_empty())
    }

    /// The position of a task's row, and of its data, among those of all.
    #[must_use]
    pub fn row_of(&self, offset: u64) -> u64 {
        if self.everywhere.is_some() { 0 } else { offset }
    }

    /// The submission of a task that is to run everywhere, with a task for each of
    /// these executors, which are in order.
    #[must_use]
    pub fn placed(mut self, executors: Vec<u64>) -> Submission {
        self.count = executors.len() as u64;
        self.class_runs.iter_mut().for_each(|(count, _)| *count = self.count);
        if let Some(data) = &mut self.data {
            let data = Arc::make_mut(data);
            data.inputs = Lists::Same(data.inputs.of(0).to_vec());
            data.outputs = Lists::default();
        }
        let asked = self.everywhere.take().unwrap_or_default();
        self.everywhere = Some(Everywhere { joining: false, executors, ..asked });
        self
    }
}
