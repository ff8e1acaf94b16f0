//! Submissions kept after all of their tasks have ended, for people who
//! ask what these were: bounded, or it would grow with all campaigns ever made.

use super::Instances;
use crate::dispatch::instance::{Batch, Instance};
use crate::limits::{ENDED_NAMES_BYTES_MAX, ENDED_SUBMISSIONS_BYTES_MAX};
use crate::task::{InstanceId, Range, Rows};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Submissions all of whose tasks have ended and whose results are kept, in the
/// order in which they ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    whole: Line,
    /// Batches of which only the names of tasks are left.
    named: Line,
}

impl Ended {
    /// An instance is gone.
    pub(super) fn forget(&mut self, id: InstanceId) {
        self.whole.forget(id);
        self.named.forget(id);
    }

    /// The instance and the first task of each, for checks.
    pub(super) fn submissions(&self) -> impl Iterator<Item = (InstanceId, u64)> {
        let all = self.whole.submissions.iter().chain(&self.named.submissions);
        all.map(|(id, first, _)| (*id, *first))
    }
}

#[derive(Debug, Default)]
struct Line {
    /// Instance, first task, bytes.
    submissions: VecDeque<(InstanceId, u64, u64)>,
    bytes: u64,
}

impl Line {
    fn add(&mut self, id: InstanceId, first: u64, bytes: u64) {
        self.submissions.push_back((id, first, bytes));
        self.bytes += bytes;
    }

    /// The oldest, if all of them are too many.
    fn excess(&mut self, bytes_max: u64) -> Option<(InstanceId, u64)> {
        if self.bytes <= bytes_max {
            return None;
        }
        let (id, first, bytes) = self.submissions.pop_front()?;
        self.bytes -= bytes;
        Some((id, first))
    }

    fn revive(&mut self, id: InstanceId, batches: &BTreeSet<u64>) {
        let bytes = &mut self.bytes;
        self.submissions.retain(|(of, first, there)| {
            let is_revived = *of == id && batches.contains(first);
            *bytes -= if is_revived { *there } else { 0 };
            !is_revived
        });
    }

    fn forget(&mut self, id: InstanceId) {
        let bytes = &mut self.bytes;
        self.submissions.retain(|(of, _, gone)| {
            *bytes -= if *of == id { *gone } else { 0 };
            *of != id
        });
    }
}

impl Batch {
    /// Forgets what its tasks were but their names, by which people know their
    /// results. Returns whether it has any.
    fn strip(&mut self) -> bool {
        self.submission.rows = self.no_rows();
        self.submission.template = Arc::default();
        self.submission.after = Vec::new();
        self.submission.names.is_some()
    }

    /// Whether it is known what its tasks were.
    pub(in crate::dispatch) fn is_whole(&self) -> bool {
        !self.submission.template.is_empty() || self.submission.rows != self.no_rows()
    }

    /// What is left of the rows of tasks of which it is not known what they were.
    fn no_rows(&self) -> Rows {
        let all = Range { start: 0, step: 0, count: self.submission.count };
        Rows::Computed { factors: vec![all], offset: 0 }
    }

    fn bytes(&self) -> u64 {
        self.submission.bytes() + size_of::<Batch>() as u64
    }
}

impl Instance {
    /// Forgets what tasks of a batch were; what is left of it, if anything, is so
    /// many bytes.
    fn strip(&mut self, first: u64) -> Option<u64> {
        let batch = self.batches.get_mut(&first)?;
        self.queued_bytes -= std::mem::take(&mut batch.queued_bytes);
        if batch.strip() {
            return Some(batch.bytes());
        }
        self.batches.remove(&first);
        None
    }
}

impl Instances {
    /// Tasks of these batches of an instance have not ended any more.
    pub(in crate::dispatch) fn revive(&mut self, id: InstanceId, batches: &BTreeSet<u64>) {
        if !batches.is_empty() {
            self.ended.whole.revive(id, batches);
            self.ended.named.revive(id, batches);
        }
    }

    /// All tasks of a batch have ended, and their results are kept: so is what
    /// they were, as long as there is room for that, and their names for longer.
    /// Tasks with data may run again, so nothing of theirs goes.
    pub(in crate::dispatch) fn keep_ended(&mut self, id: InstanceId, first: u64) {
        let batch = self[&id].batches.get(&first);
        let Some(batch) = batch.filter(|batch| batch.submission.data.is_none()) else { return };
        let bytes = batch.bytes();
        match batch.is_whole() {
            true => self.ended.whole.add(id, first, bytes),
            // A snapshot had no more of it.
            false => self.ended.named.add(id, first, bytes),
        }
        while let Some((id, first)) = self.ended.whole.excess(ENDED_SUBMISSIONS_BYTES_MAX) {
            if let Some(bytes) = self[&id].strip(first) {
                self.ended.named.add(id, first, bytes);
            }
        }
        while let Some((id, first)) = self.ended.named.excess(ENDED_NAMES_BYTES_MAX) {
            self[&id].batches.remove(&first);
        }
    }
}
