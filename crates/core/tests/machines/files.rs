//! The files that an executor's shell makes and deletes.

use falkon_core::data::object::ObjectId;
use falkon_core::data::stage::{FetchId, PartialId, ServeId};
use falkon_core::execute::{Executor, Start, TaskKey};
use falkon_core::task::ExecutorId;
use std::collections::{BTreeMap, BTreeSet};

/// A file being written.
#[derive(Debug, Default)]
struct Partial {
    ranges: Vec<(u64, u64)>,
    reach: u64,
}

impl Partial {
    /// How many bytes there are from the start on without a gap.
    fn whole(&mut self) -> u64 {
        self.ranges.sort_unstable();
        let mut reach = 0;
        for (offset, bytes) in &self.ranges {
            if *offset <= reach {
                reach = reach.max(offset + bytes);
            }
        }
        reach
    }
}

#[derive(Debug, Default)]
pub(crate) struct Files {
    /// What is in the cache's directory, and its bytes.
    held: BTreeMap<ObjectId, u64>,
    partials: BTreeMap<PartialId, Partial>,
    fetching: BTreeMap<FetchId, (PartialId, u64)>,
    serving: BTreeMap<ServeId, ObjectId>,
    /// Which node each other executor is on.
    pub(crate) peers: BTreeMap<ExecutorId, usize>,
    /// What tasks have been given and not cleared.
    sandboxes: BTreeSet<TaskKey>,
    /// Started tasks of whose inputs the disk has lost one.
    damaged: BTreeSet<TaskKey>,
}

impl Files {
    pub(crate) fn put(&mut self, object: ObjectId, bytes: u64) {
        self.held.insert(object, bytes);
    }

    pub(crate) fn delete(&mut self, object: ObjectId) {
        self.held.remove(&object);
    }

    /// What the stage counts on.
    pub(crate) fn known_to(&self, machine: &Executor) -> Vec<ObjectId> {
        let knows =
            |object: &ObjectId| machine.stage().is_some_and(|stage| stage.cache().holds(*object));
        self.held.keys().copied().filter(knows).collect()
    }

    /// The disk loses a file, which `started` tasks may read.
    pub(crate) fn lose<'a>(&mut self, object: ObjectId, started: impl Iterator<Item = &'a Start>) {
        self.held.remove(&object);
        self.serving.retain(|_, served| *served != object);
        let reads = |start: &&Start| {
            start.data.iter().flat_map(|data| &data.inputs).any(|input| input.object.id == object)
        };
        self.damaged.extend(started.filter(reads).map(|start| start.key));
    }

    pub(crate) fn fetch(&mut self, fetch: FetchId, partial: PartialId, offset: u64) {
        self.partials.entry(partial).or_default();
        self.fetching.insert(fetch, (partial, offset));
    }

    /// A transfer is over: what it brought is there.
    pub(crate) fn fetched(&mut self, fetch: FetchId, bytes: u64) {
        if let Some((partial, offset)) = self.fetching.remove(&fetch)
            && let Some(file) = self.partials.get_mut(&partial)
        {
            file.ranges.push((offset, bytes));
            file.reach = file.reach.max(offset + bytes);
        }
    }

    /// A file is complete: how many bytes it has.
    pub(crate) fn complete(&mut self, partial: PartialId) -> u64 {
        self.partials.remove(&partial).unwrap_or_default().whole()
    }

    pub(crate) fn discard(&mut self, partial: PartialId) {
        self.partials.remove(&partial);
        self.fetching.retain(|_, (of, _)| *of != partial);
    }

    pub(crate) fn serve(&mut self, serve: ServeId, object: ObjectId) {
        assert!(self.held.contains_key(&object), "{object} is served and not there");
        self.serving.insert(serve, object);
    }

    pub(crate) fn served(&mut self, serve: ServeId) {
        self.serving.remove(&serve);
    }

    /// A task has its sandbox: all that it reads is there, and stays.
    pub(crate) fn make_sandbox(&mut self, machine: &Executor, start: &Start) {
        let Some(data) = &start.data else { return };
        if self.sandboxes.insert(start.key) {
            for input in &data.inputs {
                self.assert_pinned(machine, start.key, input.object.id);
            }
        }
    }

    pub(crate) fn clear_sandbox(&mut self, key: TaskKey) {
        self.sandboxes.remove(&key);
    }

    /// A task is over, or does not begin.
    pub(crate) fn forget_damage(&mut self, key: TaskKey) {
        self.damaged.remove(&key);
    }

    fn assert_pinned(&self, machine: &Executor, key: TaskKey, object: ObjectId) {
        assert!(self.held.contains_key(&object), "task {}: {object} is not there", key.task);
        let entry = machine.stage().and_then(|stage| stage.cache().entry(object));
        let pinned = entry.is_some_and(|entry| entry.is_held && entry.pins > 0);
        assert!(pinned, "task {}: {object} is not pinned: {entry:?}", key.task);
    }

    /// What is served is there; what is there fits; and what started tasks read
    /// stays until they end, unless the disk has lost it.
    pub(crate) fn check<'a>(
        &self,
        machine: &Executor,
        capacity: u64,
        started: impl Iterator<Item = &'a Start>,
    ) {
        for object in self.serving.values() {
            assert!(self.held.contains_key(object), "{object} is served and gone");
        }
        let held: u64 = self.held.values().sum();
        let coming: u64 = self.partials.values().map(|partial| partial.reach).sum();
        assert!(held + coming <= capacity, "{held} and {coming} bytes in a cache of {capacity}");
        for start in started.filter(|start| !self.damaged.contains(&start.key)) {
            for input in start.data.iter().flat_map(|data| &data.inputs) {
                self.assert_pinned(machine, start.key, input.object.id);
            }
        }
    }

    pub(crate) fn assert_no_sandboxes(&self) {
        assert!(self.sandboxes.is_empty(), "sandboxes are left: {:?}", self.sandboxes);
    }

    /// Nothing is half done, and the cache has what is there.
    pub(crate) fn judge(&self, machine: &Executor) {
        self.assert_no_sandboxes();
        assert!(self.partials.is_empty(), "files are left half made");
        let Some(stage) = machine.stage() else { return };
        assert_eq!(stage.load(), (0, 0), "something is still staged");
        let held: Vec<ObjectId> = self.held.keys().copied().collect();
        let cached: Vec<ObjectId> = stage.cache().entries().map(|(id, _)| id).collect();
        assert_eq!(held, cached, "the disk has something else than the cache says");
        for (object, entry) in stage.cache().entries() {
            assert!(entry.is_held && entry.pins == 0, "{object} is pinned for nothing");
        }
    }
}
