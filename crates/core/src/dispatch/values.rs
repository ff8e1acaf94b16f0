//! Values of tasks that have ended, held for the tasks that take them.
//!
//! A value is part of its task's result, in the journal as well. It is held from
//! the end of its task until every task that takes it has ended, whatever
//! becomes of the result meanwhile, and goes to executors in front of the row of
//! each of those. Instances whose tasks take nothing keep nothing here.

use super::instance::{Batch, Instance};
use super::pages::StoredPage;
use super::results::Found;
use crate::limits::{
    DELIVERY_BYTES_MAX, RECORD_RUNS_MAX, ROW_WITH_VALUES_BYTES_MAX, VALUES_HELD_BYTES_MAX,
};
use crate::result::{Detail, Finished, Outcome, Status};
use crate::runset::RunSet;
use crate::task::{After, Packed, Rows, TaskId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The first byte of a row with values in front.
const WITH_VALUES: u8 = b'v';
/// The first byte of a value that is the name of an object in a cache: a task that
/// takes it needs the object, which only its client can declare.
const IN_CACHE: u8 = b'c';

/// What has become of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// Its task is not done.
    Awaited,
    /// Its task's result is on disk, and is being read.
    Stored,
    /// It is the one of this result; of none, if that had nothing to say.
    Held(Option<Arc<Detail>>),
    /// Its task's result had been forgotten when somebody first wanted it.
    Forgotten,
    /// There was no room for it.
    Excess,
    /// Its task's result is on disk and could not be read.
    Unreadable,
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

/// What a record of values holds: the tasks whose values they are, ascending,
/// and the values.
pub(super) type ValueRecord = (Vec<TaskId>, Packed);

/// The values that tasks of one instance take.
#[derive(Debug, Default)]
pub(super) struct Values {
    /// By the tasks whose values they are.
    pub(super) wanted: BTreeMap<u64, Wanted>,
    /// Of results that are held here.
    pub(super) bytes: u64,
    /// By the tasks whose values are being read from disk: who waits for that.
    pub(super) readers: BTreeMap<u64, Vec<u64>>,
}

impl Values {
    fn hold(&mut self, task: u64, detail: Option<&Arc<Detail>>) {
        let Some(wanted) = self.wanted.get_mut(&task) else { return };
        if !matches!(wanted.value, Value::Awaited | Value::Stored) {
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

    /// Returns whether the value was to be read from disk, and need not be.
    fn release(&mut self, task: u64) -> bool {
        let Some(wanted) = self.wanted.get_mut(&task) else { return false };
        wanted.takers -= 1;
        if wanted.takers > 0 {
            return false;
        }
        let is_stored = wanted.value == Value::Stored;
        self.bytes -= wanted.value.held_bytes();
        self.wanted.remove(&task);
        if is_stored {
            self.readers.remove(&task);
        }
        is_stored
    }

    /// Whether the value is being read from disk.
    pub(super) fn is_stored(&self, task: u64) -> bool {
        self.wanted.get(&task).is_some_and(|wanted| wanted.value == Value::Stored)
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
                Some(Value::Held(Some(detail))) if detail.value.first() == Some(&IN_CACHE) => {
                    format!(
                        "the value of task {task} is too long to be handed on: it is an object in \
                         the cache of an executor"
                    )
                }
                Some(Value::Held(_)) => {
                    bytes += 4 + self.bytes_of(*task).len() as u64;
                    continue;
                }
                Some(Value::Excess) => format!(
                    "the value of task {task} is not there: those that tasks of this instance \
                     wait for are more than {} GiB; have tasks return less, or names of files",
                    VALUES_HELD_BYTES_MAX >> 30
                ),
                Some(Value::Unreadable) => format!(
                    "the value of task {task} is lost: its result could not be read from disk"
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
    /// What is held of tasks whose results were forgotten, or are on disk and
    /// may be forgotten before a restart, in parts that fit a record each.
    pub(super) fn forgotten_values(&self) -> Vec<ValueRecord> {
        let mut known = RunSet::default();
        if !self.values.wanted.is_empty() {
            for (_, run) in self.results.iter() {
                known.insert(run.first.0, run.count);
            }
        }
        let wanted = self.values.wanted.keys().copied();
        self.values.parts(wanted.filter(|task| !known.contains(*task)))
    }

    /// What was held is held again.
    pub(super) fn recover_values(&mut self, tasks: &[TaskId], values: &Packed) {
        for (task, at) in tasks.iter().zip(0..values.len()) {
            let value = values.at(at).unwrap_or_default().to_vec();
            let detail = Arc::new(Detail { value, ..Detail::default() });
            self.values.hold(task.0, Some(&detail));
            self.results.unpin_value(task.0);
        }
    }

    /// All is read: what has not come by now is not there.
    pub(super) fn values_recovered(&mut self) {
        for (task, wanted) in &mut self.values.wanted {
            let is_done = self.tasks.is_done(*task);
            if is_done && wanted.value == Value::Awaited {
                wanted.value = Value::Forgotten;
            }
        }
    }
}

impl Values {
    /// Those of these tasks' values that are held, in parts that fit a record
    /// each.
    fn parts(&self, tasks: impl Iterator<Item = u64>) -> Vec<ValueRecord> {
        let mut parts: Vec<ValueRecord> = Vec::new();
        for task in tasks {
            let Some(wanted) = self.wanted.get(&task) else { continue };
            if !matches!(wanted.value, Value::Held(_)) {
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
                tasks.push(TaskId(task));
            }
        }
        parts
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
            if !self.tasks.is_done(task.0) {
                continue;
            }
            match self.results.find(task.0) {
                Found::Here(detail) => self.values.hold(task.0, detail.as_ref()),
                Found::Stored(page) => self.read_value(page, task.0),
                Found::Nowhere => self.set_value(task.0, Value::Forgotten),
            }
        }
    }

    /// Tasks of a batch that had ended are to run again, and want the values that they take.
    /// Returns whether they take any.
    pub(super) fn want_values_again(&mut self, batch_first: u64, offset: u64, count: u64) -> bool {
        let Some(batch) = self.batches.get(&batch_first) else { return false };
        // Batches whose tasks may run again for their data have never let go of theirs.
        if !batch.takes_any || batch.leaves_any {
            return false;
        }
        let after = batch.afters(offset, count).to_vec();
        self.want_values(&after);
        true
    }

    fn set_value(&mut self, task: u64, value: Value) {
        if let Some(wanted) = self.values.wanted.get_mut(&task) {
            wanted.value = value;
        }
    }

    /// A value that is wanted is to be read from a page.
    fn read_value(&mut self, page: u64, task: u64) {
        self.set_value(task, Value::Stored);
        self.results.pin(page, task);
    }

    /// After a restart: values that are wanted of tasks in a page are to be read
    /// from there.
    pub(super) fn want_values_of(&mut self, page: &StoredPage) {
        for (first, count) in &page.tasks {
            let wanted = self.values.wanted.range(*first..first + count);
            let awaited = wanted.filter(|(_, wanted)| wanted.value == Value::Awaited);
            let tasks: Vec<u64> = awaited.map(|(task, _)| *task).collect();
            for task in tasks {
                if self.tasks.is_done(task) && self.is_current_in(page, task) {
                    self.read_value(page.from, task);
                }
            }
        }
    }

    /// A page was read: values that are wanted of it are held. Returns the
    /// tasks that waited for them, and what to journal.
    pub(super) fn values_loaded(
        &mut self,
        page: u64,
        results: &[Finished],
    ) -> (Vec<u64>, Vec<ValueRecord>) {
        let tasks = self.results.unpin(page);
        if tasks.is_empty() {
            return Default::default();
        }
        for run in results {
            for task in tasks.range(run.first.0..run.first.0 + run.count).copied() {
                match run.outcome {
                    Outcome::Unreadable => self.set_value(task, Value::Unreadable),
                    _ => self.values.hold(task, run.detail.as_ref()),
                }
            }
        }
        let values = self.values.parts(tasks.iter().copied());
        let readers = tasks.iter().flat_map(|task| self.values.readers.remove(task));
        (readers.flatten().collect(), values)
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
            if self.values.release(task.0) {
                self.results.unpin_value(task.0);
            }
        }
    }

    /// A batch that may have run again is gone.
    pub(super) fn release_values_of(&mut self, batch: &Batch) {
        if batch.takes_any && batch.leaves_any {
            for task in batch.submission.after.iter().flat_map(After::taken) {
                if self.values.release(task.0) {
                    self.results.unpin_value(task.0);
                }
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
