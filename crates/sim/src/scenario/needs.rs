//! Dependencies and objects of recorded tasks.

use super::Workload;
use crate::time::Nanos;
use std::sync::Arc;

/// For each recorded task, in their order, numbers of other tasks or of objects. Tasks in
/// a row that have the same are stored as one run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lists {
    /// The number of the task behind the last of each run, and its list.
    runs: Vec<(u64, Arc<[u64]>)>,
}

impl Lists {
    /// Appends the list of the next `count` tasks.
    pub fn push(&mut self, count: u64, list: &[u64]) {
        let before = self.runs.last().map_or(0, |(end, _)| *end);
        let end = before.saturating_add(count);
        match self.runs.last_mut() {
            _ if count == 0 => {}
            Some((last, same)) if **same == *list => *last = end,
            _ => self.runs.push((end, list.into())),
        }
    }

    /// How many tasks there are lists of.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        self.runs.last().map_or(0, |(end, _)| *end)
    }

    /// The list of a task; none past the end.
    #[must_use]
    pub fn of(&self, index: u64) -> &[u64] {
        let place = self.runs.partition_point(|(end, _)| *end <= index);
        self.runs.get(place).map_or(&[], |(_, list)| list)
    }

    /// Whether no task has any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.iter().all(|(_, list)| list.is_empty())
    }

    /// The most numbers that a task has.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.runs.iter().map(|(_, list)| list.len()).max().unwrap_or(0)
    }

    /// Whether all numbers are below `most`.
    fn are_below(&self, most: u64) -> bool {
        self.runs.iter().all(|(_, list)| list.iter().all(|number| *number < most))
    }

    /// Whether each task has lower numbers than its own alone.
    fn point_back(&self) -> bool {
        let mut first = 0;
        self.runs.iter().all(|(end, list)| {
            let fits = list.iter().all(|number| *number < first);
            first = *end;
            fits
        })
    }
}

/// An object that recorded tasks read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedObject {
    /// Its bytes.
    pub bytes: u64,
    /// It is in the persistent store, or is to be; otherwise a task leaves it in the cache
    /// of its node.
    pub is_stored: bool,
}

/// Dependencies and objects of recorded tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Needs {
    /// The tasks that each waits for, by their places in the record.
    pub after: Lists,
    /// The objects that each reads, each once.
    pub reads: Lists,
    /// The objects that each writes.
    pub writes: Lists,
    /// The objects, by their numbers.
    pub objects: Vec<RecordedObject>,
}

impl Needs {
    /// Whether tasks wait for earlier ones only, and all objects are there.
    pub(crate) fn are_sound(&self) -> bool {
        let objects = self.objects.len() as u64;
        self.after.point_back() && self.reads.are_below(objects) && self.writes.are_below(objects)
    }

    /// Whether tasks have objects.
    #[must_use]
    pub fn have_objects(&self) -> bool {
        !self.reads.is_empty() || !self.writes.is_empty()
    }

    /// Bytes of an object.
    pub(crate) fn bytes(&self, object: u64) -> u64 {
        self.object(object).map_or(0, |object| object.bytes)
    }

    pub(crate) fn object(&self, object: u64) -> Option<&RecordedObject> {
        self.objects.get(usize::try_from(object).ok()?)
    }

    /// How many tasks and objects a task names.
    pub(crate) fn items(&self, index: u64) -> usize {
        [&self.after, &self.reads, &self.writes].map(|lists| lists.of(index).len()).iter().sum()
    }

    /// The bytes that a task writes to the store.
    pub(crate) fn stored_bytes(&self, index: u64) -> u64 {
        let written = self.writes.of(index).iter().filter_map(|object| self.object(*object));
        written.filter(|object| object.is_stored).map(|object| object.bytes).sum()
    }
}

impl Workload {
    /// How long all tries of task `index` run together, as far as that is known beforehand.
    pub(crate) fn tries_of(&self, seed: u64, index: u64) -> Nanos {
        let of_record = self.recorded.as_ref().map_or(0, |one| one.end_of(index).failures);
        Nanos(self.run_of(seed, index).0.saturating_mul(u64::from(of_record) + 1))
    }

    /// Dependencies and objects of recorded tasks.
    pub(crate) fn needs(&self) -> Option<&Needs> {
        self.recorded.as_ref().map(|recorded| recorded.needs())
    }

    /// Whether tasks read or write anything.
    pub(crate) fn has_objects(&self) -> bool {
        self.inputs.is_some()
            || self.outputs.is_some()
            || self.needs().is_some_and(Needs::have_objects)
    }

    /// Whether tasks read anything.
    pub(crate) fn reads(&self) -> bool {
        self.inputs.is_some() || self.needs().is_some_and(|needs| !needs.reads.is_empty())
    }

    /// How many different objects tasks read or write.
    pub(crate) fn objects(&self) -> u64 {
        let recorded = self.needs().map_or(0, |needs| needs.objects.len() as u64);
        self.inputs.map_or(recorded, |inputs| inputs.objects)
    }

    /// Bytes of an object.
    pub(crate) fn object_bytes(&self, object: u64) -> u64 {
        match &self.inputs {
            Some(inputs) => inputs.object_bytes,
            None => self.needs().map_or(0, |needs| needs.bytes(object)),
        }
    }

    /// The different objects that task `index` reads, in the order in which it first
    /// reads them.
    pub(crate) fn reads_of(&self, seed: u64, index: u64) -> Vec<u64> {
        match &self.inputs {
            Some(inputs) => inputs.of_task(seed, index),
            None => self.needs().map_or_else(Vec::new, |needs| needs.reads.of(index).to_vec()),
        }
    }

    /// The `at`-th object that task `index` reads; `None` if it reads fewer.
    pub(crate) fn read_at(&self, seed: u64, index: u64, at: u32) -> Option<u64> {
        match &self.inputs {
            Some(inputs) => (at < inputs.per_task).then(|| inputs.of(seed, index, at)),
            None => self.needs()?.reads.of(index).get(at as usize).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_with_the_same_list_are_one_run() {
        let mut lists = Lists::default();
        lists.push(1_000_000_000, &[1, 2]);
        lists.push(0, &[9]);
        lists.push(5, &[1, 2]);
        lists.push(1, &[]);
        lists.push(1, &[3]);
        assert_eq!(lists.runs.len(), 3);
        assert_eq!(lists.tasks(), 1_000_000_007);
        assert_eq!(lists.of(1_000_000_004), [1, 2]);
        assert_eq!((lists.of(1_000_000_005), lists.of(1_000_000_006)), (&[][..], &[3][..]));
        assert!(lists.of(1_000_000_007).is_empty());
        // The first tasks wait for tasks that come no earlier.
        assert!(lists.are_below(4) && !lists.are_below(3) && !lists.point_back());
    }
}
