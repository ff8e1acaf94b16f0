//! A task that runs once on each executor, as it is submitted and as it is placed.

use super::{Resources, Submission};
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
    /// in.
    pub executors: Vec<u64>,
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
    /// these executors.
    #[must_use]
    pub fn placed(mut self, executors: Vec<u64>) -> Submission {
        self.count = executors.len() as u64;
        self.class_runs.iter_mut().for_each(|(count, _)| *count = self.count);
        if let Some(data) = &mut self.data {
            let data = Arc::make_mut(data);
            data.inputs = Lists::Same(data.inputs.of(0).to_vec());
            data.outputs = Lists::default();
        }
        self.everywhere = Some(Everywhere { executors, ..Everywhere::default() });
        self
    }
}
