//! Values of tasks that have ended, held for the tasks that take them.
//!
//! A value is part of its task's result, in the journal as well. It is held from
//! the end of its task until every task that takes it has ended, whatever
//! becomes of the result meanwhile, and goes to executors in front of the row of
//! each of those. Instances whose tasks take nothing keep nothing here.

use super::instance::{Batch, Instance};
use crate::limits::{
    DELIVERY_BYTES_MAX, RECORD_RUNS_MAX, ROW_WITH_VALUES_BYTES_MAX, VALUES_HELD_BYTES_MAX,
};
use crate::result::{Detail, Finished, Status};
use crate::runset::RunSet;
use crate::task::{After, Packed, Rows, TaskId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The first byte of a row with values in front.
const WITH_VALUES: u8 = b'v';

/// What has become of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// Its task is not done.
    Awaited,
    /// It is the one of this result; of none, if that had nothing to say.
    Held(Option<Arc<Detail>>),
    /// Its task's result had been forgotten when somebody first wanted it.
    Forgotten,
    /// There was no room for it.
    Excess,
}

impl Value {
    fn bytes(&self) -> &[u8] {
        match self {
            Value::Held(Some(detail)) => &detail.value,
            _ => &[],
        }
    }

    fn held_bytes(&self) -> u64 {
        match self {
            Value::Held(Some(detail)) => detail.bytes(),
            _ => 0,
        }
    }
}

/// A value that is wanted.
#[derive(Debug)]
pub(super) struct Wanted {
    /// How often tasks that have not ended, or may run again, take it.
    pub(super) takers: u64,
    pub(super) value: Value,
}

/// The values that tasks of one instance take.
#[derive(Debug, Default)]
pub(super) struct Values {
    /// By the tasks whose values they are.
    pub(super) wanted: BTreeMap<u64, Wanted>,
    /// Of results that are held here.
    pub(super) bytes: u64,
}

impl Values {
    fn hold(&mut self, task: u64, detail: Option<&Arc<Detail>>) {
        let Some(wanted) = self.wanted.get_mut(&task) else { return };
        if wanted.value != Value::Awaited {
            return;
        }
        let held = Value::Held(detail.filter(|detail| !detail.value.is_empty()).cloned());
        let bytes = held.held_bytes();
        if self.bytes + bytes > VALUES_HELD_BYTES_MAX {
            wanted.value = Value::Excess;
            return;
        }
        self.bytes += bytes;
        wanted.value = held;
    }

    fn release(&mut self, task: u64) {
        let Some(wanted) = self.wanted.get_mut(&task) else { return };
        wanted.takers -= 1;
        if wanted.takers == 0 {
            self.bytes -= wanted.value.held_bytes();
            self.wanted.remove(&task);
        }
    }

    fn bytes_of(&self, task: TaskId) -> &[u8] {
        self.wanted.get(&task.0).map_or(&[], |wanted| wanted.value.bytes())
    }

    /// Why a task cannot have the values that it takes, all of whose tasks are
    /// done; `None` if it can.
    pub(super) fn obstacle(&self, taken: &[TaskId], row_bytes: u64) -> Option<Arc<Detail>> {
        let mut bytes = row_bytes;
        for task in taken {
            let error = match self.wanted.get(&task.0).map(|wanted| &wanted.value) {
                Some(Value::Held(_)) => {
                    bytes += 4 + self.bytes_of(*task).len() as u64;
                    continue;
                }
                Some(Value::Excess) => format!(
                    "the value of task {task} is not there: those that tasks of this instance \
                     wait for are more than {} GiB; have tasks return less, or names of files",
                    VALUES_HELD_BYTES_MAX >> 30
                ),
                _ => format!(
                    "the value of task {task} is not there: it was delivered and forgotten before \
                     this task was submitted; pass the value itself"
                ),
            };
            return Some(cause(error));
        }
        (!taken.is_empty() && bytes > ROW_WITH_VALUES_BYTES_MAX).then(|| {
            cause(format!(
                "its arguments are {bytes} bytes with the values of the tasks that it depends on; \
                 at most {ROW_WITH_VALUES_BYTES_MAX} bytes travel with a call: have tasks return \
                 less, or names of files"
            ))
        })
    }

    fn put_row(&self, taken: &[TaskId], row: &[u8], into: &mut Packed) -> bool {
        if taken.is_empty() {
            return into.push(row);
        }
        let lengths = taken.iter().map(|task| self.bytes_of(*task).len());
        let mut whole = Vec::with_capacity(5 + lengths.map(|bytes| 4 + bytes).sum::<usize>());
        whole.push(WITH_VALUES);
        // What does not fit 32 bits is an obstacle long before.
        whole.extend((taken.len() as u32).to_le_bytes());
        for task in taken {
            whole.extend((self.bytes_of(*task).len() as u32).to_le_bytes());
        }
        for task in taken {
            whole.extend(self.bytes_of(*task));
        }
        whole.extend(row);
        into.push(&whole)
    }
}

fn cause(error: String) -> Arc<Detail> {
    Arc::new(Detail { error, ..Detail::default() })
}

impl Batch {
    /// The dependencies of the tasks at these offsets.
    fn afters(&self, offset: u64, count: u64) -> &[After] {
        let after = &self.submission.after;
        let first = after.partition_point(|after| after.offset < offset);
        let length = after[first..].partition_point(|after| after.offset < offset + count);
        &after[first..first + length]
    }
}

// Across restarts.
impl Instance {
    /// What is held of tasks whose results were forgotten, in parts that fit a
    /// record each.
    pub(super) fn forgotten_values(&self) -> Vec<(Vec<TaskId>, Packed)> {
        let mut known = RunSet::default();
        if !self.values.wanted.is_empty() {
            for (_, run) in self.results.iter() {
                known.insert(run.first.0, run.count);
            }
        }
        let mut parts: Vec<(Vec<TaskId>, Packed)> = Vec::new();
        for (task, wanted) in &self.values.wanted {
            if !matches!(wanted.value, Value::Held(_)) || known.contains(*task) {
                continue;
            }
            let bytes = wanted.value.bytes();
            let fits = parts.last().is_some_and(|(tasks, values)| {
                let values = (values.blob.len() + bytes.len()) as u64;
                values <= DELIVERY_BYTES_MAX && tasks.len() < RECORD_RUNS_MAX
            });
            if !fits {
                parts.push(Default::default());
            }
            if let Some((tasks, values)) = parts.last_mut()
                && values.push(bytes)
            {
                tasks.push(TaskId(*task));
            }
        }
        parts
    }

    /// What was held is held again.
    pub(super) fn recover_values(&mut self, tasks: &[TaskId], values: &Packed) {
        for (task, at) in tasks.iter().zip(0..values.len()) {
            let value = values.at(at).unwrap_or_default().to_vec();
            let detail = Arc::new(Detail { value, ..Detail::default() });
            self.values.hold(task.0, Some(&detail));
        }
    }

    /// All is read: what has not come by now is not there.
    pub(super) fn values_recovered(&mut self) {
        for (task, wanted) in &mut self.values.wanted {
            let is_done = self.finished.contains(*task) && !self.failed.contains(*task);
            if is_done && wanted.value == Value::Awaited {
                wanted.value = Value::Forgotten;
            }
        }
    }
}

impl Instance {
    /// The tasks of a submission will want values of others. Those that are
    /// done have results that are still there, or it is too late.
    pub(super) fn want_values(&mut self, after: &[After]) {
        for task in after.iter().flat_map(After::taken) {
            if let Some(wanted) = self.values.wanted.get_mut(&task.0) {
                wanted.takers += 1;
                continue;
            }
            self.values.wanted.insert(task.0, Wanted { takers: 1, value: Value::Awaited });
            if !self.finished.contains(task.0) || self.failed.contains(task.0) {
                continue;
            }
            match self.results.detail_of(task.0) {
                Some(detail) => self.values.hold(task.0, detail.as_ref()),
                None => {
                    if let Some(wanted) = self.values.wanted.get_mut(&task.0) {
                        wanted.value = Value::Forgotten;
                    }
                }
            }
        }
    }

    /// Tasks have ended: if their values are wanted, they are held.
    pub(super) fn hold_values(&mut self, finished: &Finished) {
        if self.values.wanted.is_empty() || finished.outcome.status() != Status::Done {
            return;
        }
        let until = finished.first.0.saturating_add(finished.count);
        let wanted = self.values.wanted.range(finished.first.0..until);
        for task in wanted.map(|(task, _)| *task).collect::<Vec<_>>() {
            self.values.hold(task, finished.detail.as_ref());
        }
    }

    /// Tasks of a batch have ended for good and want no values any more; those
    /// that may run again keep them as long as their batch is known.
    pub(super) fn release_values(&mut self, batch_first: u64, offset: u64, count: u64) {
        let Some(batch) = self.batches.get(&batch_first) else { return };
        if !batch.takes_any || batch.leaves_any {
            return;
        }
        for task in batch.afters(offset, count).iter().flat_map(After::taken) {
            self.values.release(task.0);
        }
    }

    /// A batch that may have run again is gone.
    pub(super) fn release_values_of(&mut self, batch: &Batch) {
        if batch.takes_any && batch.leaves_any {
            for task in batch.submission.after.iter().flat_map(After::taken) {
                self.values.release(task.0);
            }
        }
    }

    /// Why a task whose upstream tasks are done cannot have the values that it
    /// takes; `None` if it can.
    pub(super) fn obstacle_to(&self, task: u64) -> Option<Arc<Detail>> {
        let batch = self.batch_of(TaskId(task)).filter(|batch| batch.takes_any)?;
        let offset = task - batch.first;
        let after = batch.afters(offset, 1).first()?;
        self.values.obstacle(after.taken(), batch.row_bytes(offset))
    }

    /// The rows of tasks of a batch from `offset` on as they go to an executor:
    /// at most `count`, and as many as `budget` bytes allow, but at least one.
    pub(super) fn rows_for(&self, batch: &Batch, offset: u64, count: u64, budget: u64) -> Rows {
        let Rows::Packed(rows) = &batch.submission.rows else {
            return batch.submission.rows.slice(offset, count);
        };
        let mut afters = batch.afters(offset, count).iter().peekable();
        if !batch.takes_any || afters.peek().is_none() {
            return Rows::Packed(rows.slice(offset, count));
        }
        let mut whole = Packed::default();
        for at in offset..offset + count {
            let after = afters.next_if(|after| after.offset == at);
            let taken = after.map_or(&[][..], After::taken);
            let row = rows.at(at).unwrap_or_default();
            let bytes: u64 =
                taken.iter().map(|task| self.values.bytes_of(*task).len() as u64).sum();
            let over = whole.blob.len() as u64 + bytes + row.len() as u64 > budget;
            if (over && !whole.is_empty()) || !self.values.put_row(taken, row, &mut whole) {
                break;
            }
        }
        Rows::Packed(whole)
    }
}
