//! Plans from lists of complete tasks, in little memory: each task is its
//! encoded command, its name, and eight bytes.

use super::error::PlanError;
use super::objects::has_objects;
use falkon_core::task::{Packed, TaskClass};
use falkon_wire::codec::Wire;
use falkon_wire::command::Command;
use std::collections::HashMap;
use std::sync::Arc;

/// Tasks of one submission at most: enough to make little of what a message
/// costs, and few enough to stay in the processors' caches on their way through
/// three programs (`falkon-lab bench bundles`).
pub(crate) const SUBMISSION_TASKS_MAX: u64 = 1024;
/// Bytes of rows after which a submission takes no further task.
pub(crate) const SUBMISSION_ROWS_BYTES: usize = 4 << 20;

/// A list of tasks.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    chunks: Vec<Chunk>,
    /// Every class that occurs.
    pub(crate) classes: Vec<TaskClass>,
    /// How many tasks.
    pub(crate) count: u64,
    /// Whether any task declares data objects.
    pub(crate) has_objects: bool,
    /// Whether the output streams of any task go to an archive.
    pub(crate) collects_streams: bool,
}

/// Consecutive tasks, as they are submitted.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// The index of its first task.
    pub(crate) first: u64,
    /// Encoded commands.
    pub(crate) rows: Packed,
    /// The tasks' names, empty for none; `None` if none has one.
    pub(crate) names: Option<Packed>,
    /// Where runs of tasks of one class end, and the class.
    runs: Vec<(u32, u32)>,
}

impl Chunk {
    /// How many tasks.
    pub(crate) fn len(&self) -> u64 {
        self.rows.len()
    }

    /// The class, in the list's `classes`, of the task at `offset`.
    pub(crate) fn class(&self, offset: u64) -> usize {
        let at = self.runs.partition_point(|(end, _)| u64::from(*end) <= offset);
        self.runs.get(at).map_or(0, |(_, class)| *class as usize)
    }

    /// The name of the task at `offset`.
    pub(crate) fn name(&self, offset: u64) -> Option<&[u8]> {
        self.names.as_ref()?.at(offset).filter(|name| !name.is_empty())
    }
}

impl Listed {
    /// The chunk that holds a task, and the task's offset in it.
    pub(crate) fn find(&self, index: u64) -> Option<(&Chunk, u64)> {
        let at = self.chunks.partition_point(|chunk| chunk.first <= index).checked_sub(1)?;
        let chunk = &self.chunks[at];
        let offset = index - chunk.first;
        (offset < chunk.len()).then_some((chunk, offset))
    }

    /// The command of a task.
    pub(crate) fn command(&self, index: u64) -> Option<Command> {
        let (chunk, offset) = self.find(index)?;
        Command::from_bytes(chunk.rows.at(offset)?).ok()
    }
}

/// Builds a list, task by task.
#[derive(Debug, Default)]
pub(crate) struct ListBuilder {
    listed: Listed,
    class_ids: HashMap<TaskClass, u32>,
    blob: Vec<u8>,
    ends: Vec<u32>,
    names: Vec<u8>,
    name_ends: Vec<u32>,
    runs: Vec<(u32, u32)>,
}

impl ListBuilder {
    /// How many tasks there are so far.
    pub(crate) fn len(&self) -> u64 {
        self.listed.count
    }

    /// Appends a task; an empty `name` is none.
    ///
    /// # Errors
    /// A single task takes more than 4 GiB, or there are 2^32 tasks.
    pub(crate) fn push(
        &mut self,
        command: &Command,
        name: &[u8],
        class: TaskClass,
    ) -> Result<(), PlanError> {
        let class = self.class_id(class)?;
        self.listed.has_objects |= has_objects(command);
        self.listed.collects_streams |= command.streams.is_some();
        command.encode(&mut self.blob);
        self.names.extend_from_slice(name);
        let ends = (u32::try_from(self.blob.len()), u32::try_from(self.names.len()));
        let (Ok(end), Ok(name_end)) = ends else {
            return Err(PlanError::TooManyBytes { name: "the list of tasks".to_owned() });
        };
        self.ends.push(end);
        self.name_ends.push(name_end);
        let count = self.ends.len() as u32;
        match self.runs.last_mut() {
            Some((run_end, of)) if *of == class => *run_end = count,
            _ => self.runs.push((count, class)),
        }
        self.listed.count += 1;
        if self.listed.count >= u64::from(u32::MAX) {
            return Err(PlanError::TooManyTasks);
        }
        if u64::from(count) >= SUBMISSION_TASKS_MAX
            || self.blob.len() + self.names.len() >= SUBMISSION_ROWS_BYTES
        {
            self.seal();
        }
        Ok(())
    }

    fn class_id(&mut self, class: TaskClass) -> Result<u32, PlanError> {
        // Neighbours are mostly alike.
        if let Some((_, last)) = self.runs.last()
            && self.listed.classes.get(*last as usize) == Some(&class)
        {
            return Ok(*last);
        }
        if let Some(id) = self.class_ids.get(&class) {
            return Ok(*id);
        }
        let id = u32::try_from(self.listed.classes.len()).map_err(|_| PlanError::TooManyTasks)?;
        self.listed.classes.push(class.clone());
        self.class_ids.insert(class, id);
        Ok(id)
    }

    fn seal(&mut self) {
        if self.ends.is_empty() {
            return;
        }
        let column = |blob: &mut Vec<u8>, ends: &mut Vec<u32>| {
            // Exact copies: the buffers keep their room for the next chunk.
            let packed = Packed { blob: Arc::new(blob.clone()), ends: Arc::new(ends.clone()) };
            blob.clear();
            ends.clear();
            packed
        };
        let first = self.listed.count - self.ends.len() as u64;
        let named = !self.names.is_empty();
        let rows = column(&mut self.blob, &mut self.ends);
        let names = column(&mut self.names, &mut self.name_ends);
        let runs = self.runs.clone();
        self.runs.clear();
        self.listed.chunks.push(Chunk { first, rows, names: named.then_some(names), runs });
    }

    /// The list.
    pub(crate) fn finish(mut self) -> Listed {
        self.seal();
        self.listed
    }
}
