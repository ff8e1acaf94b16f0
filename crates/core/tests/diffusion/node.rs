//! An executor's node: the machine, its processes, and the files that the
//! shell makes and deletes for it.

use falkon_core::data::cache::CacheOptions;
use falkon_core::data::declared::Serving;
use falkon_core::data::object::ObjectId;
use falkon_core::data::stage::{FetchId, PartialId, ServeId, StageOptions};
use falkon_core::execute::{Executor, Start, TaskKey};
use falkon_core::result::Outcome;
use falkon_core::task::{ExecutorId, Kind, Resources, Time};
use std::collections::{BTreeMap, BTreeSet};

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) start: Start,
    pub(crate) started: Time,
    pub(crate) outcome: Outcome,
}

/// A file being written.
#[derive(Debug, Default)]
pub(crate) struct Partial {
    pub(crate) object: Option<ObjectId>,
    ranges: Vec<(u64, u64)>,
    reach: u64,
}

impl Partial {
    pub(crate) fn wrote(&mut self, offset: u64, bytes: u64) {
        self.ranges.push((offset, bytes));
        self.reach = self.reach.max(offset + bytes);
    }

    /// How many bytes there are from the start on without a gap.
    pub(crate) fn whole(&mut self) -> u64 {
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

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) machine: Executor,
    pub(crate) capacity: Resources,
    /// Bytes, if there is a cache.
    pub(crate) cache: Option<CacheOptions>,
    pub(crate) incarnation: u64,
    pub(crate) alive: bool,
    pub(crate) leaving: bool,
    pub(crate) connection: Option<u64>,
    pub(crate) processes: BTreeMap<TaskKey, Process>,
    /// Started tasks that wait for others to end, by the other.
    pub(crate) waiting: BTreeMap<TaskKey, Start>,
    pub(crate) files: BTreeMap<ObjectId, u64>,
    pub(crate) partials: BTreeMap<PartialId, Partial>,
    pub(crate) fetching: BTreeMap<FetchId, (PartialId, u64)>,
    /// What is being served, and to which transfer of which node.
    pub(crate) serving: BTreeMap<ServeId, ObjectId>,
    /// Where other executors listen: which node, in which life.
    pub(crate) peers: BTreeMap<ExecutorId, (usize, u64)>,
    /// What tasks have been given and not cleared.
    pub(crate) sandboxes: BTreeSet<TaskKey>,
    /// Started tasks of whose inputs the disk has lost one.
    pub(crate) damaged: BTreeSet<TaskKey>,
}

impl Node {
    pub(crate) fn new(
        index: usize,
        incarnation: u64,
        capacity: Resources,
        cache: Option<CacheOptions>,
        fetches_max: usize,
    ) -> Node {
        let mut machine = Executor::new(incarnation, format!("node-{index}"), capacity.clone());
        if let Some(cache) = &cache {
            let mut options = StageOptions::new(cache.clone(), incarnation);
            options.fetches_max = fetches_max;
            options.source_fetches_max = 1 + fetches_max / 2;
            options.serves_max = fetches_max;
            let serves =
                Serving { address: format!("{index}:{incarnation}"), ..Serving::default() };
            machine = machine.with_cache(&options, &[], Some(serves));
        }
        Node {
            machine,
            capacity,
            cache,
            incarnation,
            alive: true,
            leaving: false,
            connection: None,
            processes: BTreeMap::new(),
            waiting: BTreeMap::new(),
            files: BTreeMap::new(),
            partials: BTreeMap::new(),
            fetching: BTreeMap::new(),
            serving: BTreeMap::new(),
            peers: BTreeMap::new(),
            sandboxes: BTreeSet::new(),
            damaged: BTreeSet::new(),
        }
    }

    /// A task has its sandbox: all that it reads is there, and stays.
    fn make_sandbox(&mut self, start: &Start) {
        let Some(data) = &start.data else { return };
        if !self.sandboxes.insert(start.key) {
            return;
        }
        for input in &data.inputs {
            self.assert_pinned(start.key, input.object.id);
        }
    }

    /// A task is to begin when another ends.
    pub(crate) fn hand_over(&mut self, before: TaskKey, start: Start) {
        self.make_sandbox(&start);
        let twice = self.waiting.insert(before, start);
        assert!(twice.is_none(), "two come after task {}", before.task);
    }

    pub(crate) fn uses_sandbox(&self, key: TaskKey) -> bool {
        self.processes.contains_key(&key) || self.waiting.values().any(|start| start.key == key)
    }

    /// A process begins.
    pub(crate) fn spawn(&mut self, start: Start, now: Time, outcome: Outcome) {
        let key = start.key;
        self.make_sandbox(&start);
        let process = Process { start, started: now, outcome };
        let twice = self.processes.insert(key, process);
        assert!(twice.is_none(), "task {} runs twice", key.task);
        let mut free = self.capacity.clone();
        for process in self.processes.values() {
            let class = &process.start.class;
            if class.kind != Kind::Noop {
                assert!(free.fits(&class.resources), "more runs than there is room for");
                free.take(&class.resources, 1);
            }
        }
    }

    fn assert_pinned(&self, key: TaskKey, object: ObjectId) {
        assert!(self.files.contains_key(&object), "task {}: {object} is not there", key.task);
        let entry = self.machine.stage().and_then(|stage| stage.cache().entry(object));
        let pinned = entry.is_some_and(|entry| entry.is_held && entry.pins > 0);
        assert!(pinned, "task {}: {object} is not pinned: {entry:?}", key.task);
    }

    /// What must hold after every step.
    pub(crate) fn check(&self) {
        self.machine.check().unwrap();
        for object in self.serving.values() {
            assert!(self.files.contains_key(object), "{object} is served and gone");
        }
        let Some(cache) = &self.cache else { return };
        let held: u64 = self.files.values().sum();
        let coming: u64 = self.partials.values().map(|partial| partial.reach).sum();
        let capacity: u64 = cache.tiers_bytes.iter().sum();
        assert!(held + coming <= capacity, "{held} and {coming} bytes in a cache of {capacity}");
    }

    /// What started tasks read stays where it is until they end, unless the
    /// disk has lost it.
    pub(crate) fn check_inputs(&self) {
        let started = self.processes.values().map(|process| &process.start);
        let whole =
            started.chain(self.waiting.values()).filter(|it| !self.damaged.contains(&it.key));
        for start in whole {
            for input in start.data.iter().flat_map(|data| &data.inputs) {
                self.assert_pinned(start.key, input.object.id);
            }
        }
    }

    /// Takes back a task that was to come after another, if it waits.
    pub(crate) fn take_back(&mut self, key: TaskKey) -> bool {
        let before = self.waiting.iter().find(|(_, start)| start.key == key);
        let Some(before) = before.map(|(before, _)| *before) else { return false };
        self.waiting.remove(&before);
        self.damaged.remove(&key);
        if let Some(next) = self.waiting.remove(&key) {
            self.waiting.insert(before, next);
        }
        true
    }
}
