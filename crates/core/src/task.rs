//! What the scheduler must know about tasks: ids, classes, resources, rows.
//!
//! The core never looks inside a task's command. A submission carries one
//! opaque template and, per task, one opaque row; the executor puts them
//! together. A task array (computed rows) therefore costs the same whether it
//! has ten tasks or a billion.

mod alternatives;
mod error;
mod everywhere;
mod resources;

pub use error::{SubmissionError, SubmissionPart};
pub use everywhere::Everywhere;
pub use resources::{DISK, MILLI, Resources, set_disk_bytes};

use crate::data::declared::{Declared, Lists};
use crate::encoded::Encoded;
use crate::limits::{
    CUSTOM_NAMES_MAX, GANG_NODES_MAX, NAME_BYTES_MAX, NODE_RANKS_MAX, RANGES_BYTES_MAX,
    SUBMISSION_BYTES_MAX, TASK_BYTES_MAX, TASK_NAME_BYTES_MAX, URL_BYTES_MAX, VERSION_BYTES_MAX,
};
use std::fmt;
use std::sync::Arc;

/// An instance on a dispatcher: one client's queue, tasks and results
/// (falkon-sc07 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u64);

/// A user of a dispatcher, by a number that was drawn at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UserId(pub u64);

impl UserId {
    /// The dispatcher's owner, and all who have no name of their own there.
    pub const OWNER: UserId = UserId(0);
}

/// A task within its instance: the position in which it was submitted, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// A task, or the first of a run of tasks, as executors know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey {
    /// Its instance.
    pub instance: InstanceId,
    /// Its number within the instance.
    pub task: TaskId,
}

/// An executor registered with a dispatcher. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ExecutorId(pub u64);

/// An allocation: one request to a batch scheduler and the job that came of it,
/// with an executor on each of its nodes. The number is ours, travels in the
/// job's name, and is never used again under one dispatcher's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllocationId(pub u64);

/// A time in microseconds on the dispatcher's clock, which never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// This time and `micros` microseconds more.
    #[must_use]
    pub fn after(self, micros: u64) -> Time {
        Time(self.0.saturating_add(micros))
    }

    /// Microseconds from `earlier` to this time; 0 if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for AllocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for ExecutorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What kind of work a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An existing program, spawned.
    Process,
    /// A function, called in a process that takes one call after another.
    Function,
    /// A builtin that does nothing: measures dispatch alone.
    Noop,
    /// A builtin that holds its slot for the time its row or template names.
    Sleep,
}

/// What tasks of a submission share as far as scheduling goes. Submissions
/// have few classes and many tasks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskClass {
    /// Process, function or builtin.
    pub kind: Kind,
    /// What a task holds while it runs.
    pub resources: Resources,
    /// Higher goes first; 0 by default.
    pub priority: i32,
    /// How many more times a task that failed is tried.
    pub retries: u32,
    /// A task that runs longer than this many microseconds is killed and has
    /// failed; 0 is no limit.
    pub timeout_micros: u64,
    /// The user's estimate of the run time in microseconds; 0 is unknown, and [`AUTO_TIME`] has
    /// the dispatcher find out.
    pub estimate_micros: u64,
    /// How many executors are to hold what it leaves in caches alone, and each stripe of
    /// what it reads; 0 is 1.
    pub replicas: u32,
    /// How many executors lend room to each object that it reads and that is too large for
    /// a cache; 0 is by demand.
    pub lenders: u32,
    /// How many of its inputs, from the first on, are archives that it finds
    /// unpacked.
    pub unpacks: u32,
    /// Below a relay: how many attempts at these tasks had ended above.
    pub attempts_before: u32,
    /// The most memory that its processes may have together, in bytes: 0 is as much as it
    /// reserves, [`UNLIMITED`] any amount; see [`TaskClass::memory_limit`].
    pub memory_limit_bytes: u64,
    /// How many executors run each task together, as a gang; 0 and 1 are one.
    pub nodes: u32,
    /// How many processes launchers start on each node; 0 is one for each whole CPU of the
    /// task there.
    pub ranks_per_node: u32,
    /// A task that takes far longer than others like it may run a second time at the same
    /// time, on another executor: `dispatch/speculation.rs`.
    pub speculate: bool,
    /// The resources that each task may hold instead of `resources`, the preferred first:
    /// `task/alternatives.rs`.
    pub alternatives: Vec<Resources>,
    /// The number of the alternative that its resources are, from 1, on the way to executors; 0 if
    /// there is one alone.
    pub alternative: u32,
}

/// As much memory as other tasks of the kind have had: what executors make of it is in
/// `core/src/execute/sizes.rs`. Dispatchers reserve none for it.
pub const AUTO_MEMORY: u64 = u64::MAX;

/// As many CPUs as other tasks of the kind have used, in thousandths: what executors make of it is
/// in `core/src/execute/sizes/cpus.rs`. Dispatchers reserve one for it.
pub const AUTO_CPUS: u32 = u32::MAX;

/// About as long as other tasks of the kind have run, in microseconds: what dispatchers make of it
/// is in `core/src/dispatch/instance.rs`.
pub const AUTO_TIME: u64 = u64::MAX;

/// No limit, where 0 means another.
pub const UNLIMITED: u64 = u64::MAX;

impl TaskClass {
    /// The run time in microseconds that the user expects; `None` if it is unknown, or to be found
    /// out.
    #[must_use]
    pub fn given_estimate(&self) -> Option<u64> {
        Some(self.estimate_micros).filter(|micros| *micros > 0 && *micros != AUTO_TIME)
    }

    /// Whether tasks may run on as many executors: calls run on one, and those on several know
    /// how many CPUs and how much memory they need.
    fn has_sound_nodes(&self) -> bool {
        let is_able = self.kind != Kind::Function && !self.resources.are_automatic();
        self.nodes <= GANG_NODES_MAX
            && self.ranks_per_node <= NODE_RANKS_MAX
            && (is_able || !self.is_gang())
    }

    /// Whether tasks may claim the disk space that they do: calls share workers, and have no
    /// directory of their own there, nor have processes of a task on several executors.
    fn has_sound_disk(&self) -> bool {
        let is_able = self.kind != Kind::Function && !self.is_gang();
        is_able || self.requests().all(|request| request.disk_bytes() == 0)
    }

    /// Whether each task runs on several executors together.
    #[must_use]
    pub fn is_gang(&self) -> bool {
        self.nodes > 1
    }

    /// The most memory that the processes of a task may have together, in bytes; `None`
    /// is any amount.
    #[must_use]
    pub fn memory_limit(&self) -> Option<u64> {
        match (self.memory_limit_bytes, self.resources.memory_bytes) {
            (UNLIMITED, _) | (0, 0) => None,
            (0, reserved) => Some(reserved),
            (limit, _) => Some(limit),
        }
    }
}

/// Hands each struct that a submission is made of to a macro, with its fields in
/// the order in which they travel: one list for the codec and for
/// [`crate::encoded`], which counts what the codec writes.
#[macro_export]
macro_rules! submission_structs {
    ($each:ident) => {
        $each!(Resources { cpus_milli, gpus, memory_bytes, custom });
        $each!(TaskClass {
            kind,
            resources,
            priority,
            retries,
            timeout_micros,
            estimate_micros,
            replicas,
            lenders,
            unpacks,
            attempts_before,
            memory_limit_bytes,
            nodes,
            ranks_per_node,
            speculate,
        } later { alternatives, alternative });
        $each!(Range { start, step, count });
        $each!(After { offset, tasks, takes });
        $each!(Declared { objects, inputs, outputs });
        $each!(Everywhere { joining, offering, executors, lent, only });
        $each!(Submission {
            count,
            template,
            rows,
            classes,
            class_runs,
            names,
            after,
            data,
            everywhere,
        });
    };
}

impl Default for TaskClass {
    fn default() -> Self {
        TaskClass {
            kind: Kind::Process,
            resources: Resources::cpus(1),
            priority: 0,
            retries: 0,
            timeout_micros: 0,
            estimate_micros: 0,
            replicas: 1,
            lenders: 0,
            unpacks: 0,
            attempts_before: 0,
            memory_limit_bytes: 0,
            nodes: 1,
            ranks_per_node: 0,
            speculate: false,
            alternatives: Vec::new(),
            alternative: 0,
        }
    }
}

/// Byte strings one after another, with where each ends: no allocation each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packed {
    /// All strings, back to back.
    pub blob: Arc<Vec<u8>>,
    /// Where each string ends in `blob`, ascending.
    pub ends: Arc<Vec<u32>>,
}

impl Packed {
    /// How many strings there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`; `None` past the end.
    #[must_use]
    pub fn at(&self, index: u64) -> Option<&[u8]> {
        let index = usize::try_from(index).ok()?;
        let end = *self.ends.get(index)? as usize;
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        self.blob.get(start..end)
    }

    /// Appends one string. Returns `false`, unchanged, if the column would
    /// pass 4 GiB.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let Ok(end) = u32::try_from(self.blob.len() + bytes.len()) else { return false };
        Arc::make_mut(&mut self.blob).extend_from_slice(bytes);
        Arc::make_mut(&mut self.ends).push(end);
        true
    }

    /// The strings of all `parts`, in order; `None` if they would pass 4 GiB.
    #[must_use]
    pub fn concatenated<'a>(parts: impl Iterator<Item = &'a Packed> + Clone) -> Option<Packed> {
        let bytes = parts.clone().map(|part| part.blob.len()).sum::<usize>();
        u32::try_from(bytes).ok()?;
        let mut blob = Vec::with_capacity(bytes);
        let mut ends = Vec::with_capacity(parts.clone().map(|part| part.ends.len()).sum());
        for part in parts {
            let start = blob.len() as u32;
            ends.extend(part.ends.iter().map(|end| start + end));
            blob.extend_from_slice(&part.blob);
        }
        Some(Packed { blob: Arc::new(blob), ends: Arc::new(ends) })
    }

    /// A copy of `count` strings from `first` on.
    #[must_use]
    pub fn slice(&self, first: u64, count: u64) -> Packed {
        if first == 0 && count == self.len() {
            return self.clone();
        }
        let last = first.saturating_add(count).min(self.len()) as usize;
        let first = (first as usize).min(last);
        if first == last {
            return Packed::default();
        }
        let start = if first == 0 { 0 } else { self.ends[first - 1] };
        let ends = self.ends[first..last].iter().map(|end| end - start).collect();
        let blob = self.blob[start as usize..self.ends[last - 1] as usize].to_vec();
        Packed { blob: Arc::new(blob), ends: Arc::new(ends) }
    }

    /// The length of the longest string.
    pub(crate) fn longest(&self) -> u64 {
        let starts = std::iter::once(&0).chain(self.ends.iter());
        let lengths = starts.zip(self.ends.iter()).map(|(start, end)| end - start);
        lengths.max().map_or(0, u64::from)
    }

    /// Whether `ends` ascends and stays within `blob`.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let mut before = 0;
        for &end in self.ends.iter() {
            if end < before {
                return false;
            }
            before = end;
        }
        before as usize == self.blob.len()
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.blob.capacity() + self.ends.capacity() * 4) as u64
    }
}

/// One factor of computed rows: `start`, `start + step`, … , `count` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First value.
    pub start: i64,
    /// Added from one value to the next.
    pub step: i64,
    /// How many values.
    pub count: u64,
}

impl Range {
    /// The value at `index`, wrapping on overflow (callers check ranges when
    /// they are made).
    #[must_use]
    pub fn value(&self, index: u64) -> i64 {
        self.start.wrapping_add(self.step.wrapping_mul(index as i64))
    }
}

/// What distinguishes the tasks of a submission from one another.
///
/// The row of a task that takes values of others reaches its executor as the
/// byte `v`, how many values there are, the length of each (32 bits,
/// little-endian, like the number), the values, and then the row that was
/// submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rows {
    /// The product of ranges, last factor fastest, from the `offset`-th
    /// combination on: nothing is stored per task.
    Computed {
        /// The factors.
        factors: Vec<Range>,
        /// The combination that is the first row.
        offset: u64,
    },
    /// One stored row per task.
    Packed(Packed),
}

impl Rows {
    /// The rows of `count` tasks from the `first`-th on.
    #[must_use]
    pub fn slice(&self, first: u64, count: u64) -> Rows {
        match self {
            Rows::Computed { factors, offset } => {
                Rows::Computed { factors: factors.clone(), offset: offset.saturating_add(first) }
            }
            Rows::Packed(packed) => Rows::Packed(packed.slice(first, count)),
        }
    }

    /// How many rows there are; a product too large for 64 bits gives `None`.
    #[must_use]
    pub fn len(&self) -> Option<u64> {
        match self {
            Rows::Computed { factors, offset } => factors
                .iter()
                .try_fold(1u64, |product, factor| product.checked_mul(factor.count))?
                .checked_sub(*offset),
            Rows::Packed(packed) => Some(packed.len()),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// The values of computed row `index`, one per factor; empty for packed
    /// rows.
    #[must_use]
    pub fn computed(&self, index: u64) -> Vec<i64> {
        let Rows::Computed { factors, offset } = self else { return Vec::new() };
        let mut rest = offset.saturating_add(index);
        let mut values = vec![0; factors.len()];
        for (value, factor) in values.iter_mut().zip(factors).rev() {
            let count = factor.count.max(1);
            *value = factor.value(rest % count);
            rest /= count;
        }
        values
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Rows::Computed { factors, .. } => (factors.len() * size_of::<Range>()) as u64,
            Rows::Packed(packed) => packed.bytes(),
        }
    }
}

/// Tasks that wait for others: `after[i]` are the ids that the task at
/// `offset` within the submission waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct After {
    /// Position within the submission.
    pub offset: u64,
    /// Tasks of the same instance that must be done first.
    pub tasks: Vec<TaskId>,
    /// How many of them, from the first on, hand it their values: these come
    /// in front of its row, see [`Rows`].
    pub takes: u64,
}

impl After {
    /// The tasks whose values it takes.
    #[must_use]
    pub fn taken(&self) -> &[TaskId] {
        let count = usize::try_from(self.takes).unwrap_or(usize::MAX);
        &self.tasks[..count.min(self.tasks.len())]
    }
}

/// Tasks submitted together: one message, one journal record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// How many tasks.
    pub count: u64,
    /// What all tasks share of their command; opaque to the core.
    pub template: Arc<Vec<u8>>,
    /// What they do not share.
    pub rows: Rows,
    /// The classes that occur.
    pub classes: Vec<TaskClass>,
    /// Which class tasks are of, as runs of (how many, index into `classes`).
    pub class_runs: Vec<(u64, u32)>,
    /// The users' names for the tasks, if they gave any.
    pub names: Option<Packed>,
    /// Dependencies, ascending by offset.
    pub after: Vec<After>,
    /// The data objects that tasks read and write, if they name any.
    pub data: Option<Arc<Declared>>,
    /// It is to run once on each executor. A client submits one task; the dispatcher
    /// makes as many of it as there are executors.
    pub everywhere: Option<Everywhere>,
}

impl Submission {
    /// Checks that all parts agree with one another.
    ///
    /// # Errors
    /// Says which part does not.
    pub fn check(&self) -> Result<(), SubmissionError> {
        if self.count == 0 {
            return Err(SubmissionError::Empty);
        }
        let mismatch =
            |what, found| SubmissionError::CountMismatch { what, expected: self.count, found };
        if !self.is_sound_everywhere() {
            return Err(SubmissionError::Malformed(SubmissionPart::Everywhere));
        }
        // Tasks that run everywhere have one row together.
        let count = if self.everywhere.is_some() { 1 } else { self.count };
        match self.rows.len() {
            None => return Err(SubmissionError::TooMany),
            // Computed rows may be a window into a larger product.
            Some(rows) if rows < count => return Err(mismatch(SubmissionPart::Rows, rows)),
            Some(rows) if matches!(self.rows, Rows::Packed(_)) && rows != count => {
                return Err(mismatch(SubmissionPart::Rows, rows));
            }
            Some(_) => {}
        }
        if let Rows::Packed(packed) = &self.rows
            && !packed.is_sound()
        {
            return Err(SubmissionError::Malformed(SubmissionPart::RowColumn));
        }
        if !self.classes.iter().flat_map(TaskClass::requests).all(Resources::is_sound) {
            return Err(SubmissionError::Malformed(SubmissionPart::CustomResources));
        }
        let are_gangs = |classes: &[TaskClass]| classes.iter().any(TaskClass::is_gang);
        if !self.classes.iter().all(TaskClass::has_sound_nodes)
            || (self.everywhere.is_some() && are_gangs(&self.classes))
        {
            return Err(SubmissionError::Malformed(SubmissionPart::Nodes));
        }
        if !self.classes.iter().all(TaskClass::has_sound_disk) {
            return Err(SubmissionError::Malformed(SubmissionPart::Disk));
        }
        if !self.has_sound_alternatives() {
            return Err(SubmissionError::Malformed(SubmissionPart::Alternatives));
        }
        if self.classes.iter().any(|class| class.speculate) && !self.may_speculate() {
            return Err(SubmissionError::Malformed(SubmissionPart::Speculation));
        }
        let classed = self
            .class_runs
            .iter()
            .try_fold(0u64, |sum, (count, _)| sum.checked_add(*count))
            .ok_or(SubmissionError::TooMany)?;
        if classed != self.count {
            return Err(mismatch(SubmissionPart::ClassedTasks, classed));
        }
        if self
            .class_runs
            .iter()
            .any(|(count, class)| *count == 0 || *class as usize >= self.classes.len())
        {
            return Err(SubmissionError::Malformed(SubmissionPart::ClassRun));
        }
        if let Some(names) = &self.names {
            if names.len() != self.count {
                return Err(mismatch(SubmissionPart::Names, names.len()));
            }
            if !names.is_sound() {
                return Err(SubmissionError::Malformed(SubmissionPart::NameColumn));
            }
        }
        let mut next = 0;
        for after in &self.after {
            if after.offset < next || after.offset >= self.count {
                return Err(SubmissionError::Malformed(SubmissionPart::DependencyOffset));
            }
            let packed = matches!(self.rows, Rows::Packed(_));
            if after.takes > after.tasks.len() as u64 || (after.takes > 0 && !packed) {
                return Err(SubmissionError::Malformed(SubmissionPart::ValuesToTake));
            }
            next = after.offset + 1;
        }
        if self.data.as_ref().is_some_and(|data| !data.is_sound(count)) {
            return Err(SubmissionError::Malformed(SubmissionPart::DataObjects));
        }
        Ok(())
    }

    /// Whether two tries of one of its tasks may run at the same time: the task runs on one
    /// executor that the dispatcher chooses, and what it writes goes to persistent stores, where
    /// it appears as a whole. A cache or an archive would have the outputs of both.
    fn may_speculate(&self) -> bool {
        let is_alone = |class: &TaskClass| !class.speculate || !class.is_gang();
        self.everywhere.is_none()
            && self.classes.iter().all(is_alone)
            && self.data.as_ref().is_none_or(|data| data.are_outputs_stored())
    }

    /// Checks that its tasks can be sent to executors and kept in a journal,
    /// and its names shown; for submissions that [`Submission::check`] has
    /// found sound.
    ///
    /// # Errors
    /// Says which part is too long.
    pub fn check_lengths(&self) -> Result<(), SubmissionError> {
        let at_most = |what, bytes: u64, bytes_max: u64| match bytes <= bytes_max {
            true => Ok(()),
            false => Err(SubmissionError::TooLong { what, bytes, bytes_max }),
        };
        let bytes = self.encoded_bytes() + self.alternatives_bytes();
        at_most(SubmissionPart::Tasks, bytes, SUBMISSION_BYTES_MAX)?;
        if let Rows::Computed { .. } = self.rows {
            at_most(SubmissionPart::Ranges, self.rows.encoded_bytes(), RANGES_BYTES_MAX)?;
        }
        let needs = self.classes.iter().flat_map(TaskClass::requests);
        for resources in needs.chain(self.everywhere.iter().map(|found| &found.offering)) {
            if resources.custom.len() > CUSTOM_NAMES_MAX {
                return Err(SubmissionError::Malformed(SubmissionPart::CustomResources));
            }
            let bytes = resources.name_bytes();
            at_most(SubmissionPart::ResourceName, bytes, NAME_BYTES_MAX as u64)?;
        }
        let names = self.names.as_ref().map_or(0, Packed::longest);
        at_most(SubmissionPart::TaskName, names, TASK_NAME_BYTES_MAX as u64)?;
        let Some(data) = &self.data else { return Ok(()) };
        for object in data.objects.iter() {
            let (url, version) = (object.url.len() as u64, object.version.len() as u64);
            at_most(SubmissionPart::ObjectUrl, url, URL_BYTES_MAX as u64)?;
            at_most(SubmissionPart::ObjectVersion, version, VERSION_BYTES_MAX as u64)?;
        }
        let (rows, each) = match &self.rows {
            Rows::Computed { .. } => (None, self.rows.encoded_bytes()),
            Rows::Packed(rows) => (Some(rows), 0),
        };
        let row =
            |index| each + rows.and_then(|rows| rows.at(index)).map_or(0, |row| row.len() as u64);
        let same = |lists: &Lists| matches!(lists, Lists::Same(_));
        let alike = rows.is_none() && same(&data.inputs) && same(&data.outputs);
        let different = if alike { 1 } else { self.count };
        let task = data.task_bytes_most(different, row);
        at_most(SubmissionPart::TaskWithData, task, TASK_BYTES_MAX)
    }

    /// Bytes held by its dependencies.
    #[must_use]
    pub fn after_bytes(&self) -> u64 {
        self.after.iter().map(|after| 32 + after.tasks.len() as u64 * 8).sum()
    }

    /// Bytes held while the submission lives.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.rows.bytes()
            + self.after_bytes()
            + self.names.as_ref().map_or(0, Packed::bytes)
            + self.data.as_ref().map_or(0, |data| data.bytes())
            + (self.template.capacity() + self.class_runs.capacity() * 16) as u64
            + self.everywhere.as_ref().map_or(0, |found| found.executors.capacity() as u64 * 8)
    }
}
