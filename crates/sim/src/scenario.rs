//! What a run is about: the machine, the work, the faults.

mod arrivals;
mod error;
mod needs;
mod provision;
mod recorded;
mod tiers;

pub use arrivals::Arrivals;
pub use error::ScenarioError;
pub use needs::{Lists, Needs, RecordedObject};
pub use provision::{Lrm, Provision};
pub use recorded::{Recorded, Reserved};
pub use tiers::Relays;

pub(crate) use arrivals::Arriving;
pub(crate) use provision::Staging;

use crate::rng::fraction_of;
use crate::time::Nanos;
use falkon_core::data::cache::Eviction;
use falkon_core::dispatch::diffusion::PolicyOptions;
use falkon_core::task::{MILLI, Resources};
use provision::check_stages;
use std::sync::Arc;

/// Tasks in one run: their states are kept one by one.
const SCENARIO_TASKS_MAX: u64 = 1_000_000_000;
/// Nodes in one run.
const SCENARIO_NODES_MAX: u64 = 16_000_000;
/// Slots of one node.
const NODE_SLOTS_MAX: u32 = 65_536;
/// Different objects in one run.
const SCENARIO_OBJECTS_MAX: u64 = 1_000_000_000;

/// A machine and its work.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// For people.
    pub name: String,
    /// Dispatchers; each has its share of the nodes, and a client with its
    /// share of the tasks.
    pub dispatchers: u32,
    /// What a dispatcher's processor time goes into.
    pub dispatcher: DispatcherCosts,
    /// Bytes of results that a dispatcher keeps in memory before it moves them
    /// to its disk; `None`: as many as a real one.
    pub results_bytes: Option<u64>,
    /// What an executor's time goes into.
    pub executor: ExecutorCosts,
    /// What a client's processor time goes into.
    pub client: ClientCosts,
    /// What joins them.
    pub network: Network,
    /// Relays between dispatchers and nodes; `None`: nodes connect to dispatchers.
    pub relays: Option<Relays>,
    /// The nodes, group by group.
    pub nodes: Vec<NodeGroup>,
    /// Where the data objects are.
    pub store: Store,
    /// The nodes are acquired on demand; `None`: they are there by themselves.
    pub provision: Option<Provision>,
    /// The tasks.
    pub workload: Workload,
    /// How often the same ran before, on machines with empty caches: the
    /// dispatchers remember what they then journaled of objects.
    pub earlier_runs: u32,
    /// What breaks.
    pub faults: Faults,
    /// Check the whole state of every machine after each event that changed
    /// it: much slower than the checks that are always made.
    pub check_all: bool,
    /// A run that takes longer than this, in virtual time, has failed.
    pub limit: Nanos,
}

/// A dispatcher is one thread: its rounds take the sum of these.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DispatcherCosts {
    /// For each message that is received or sent.
    pub message: Nanos,
    /// For each task, or run of tasks that are alike, in a message.
    pub entry: Nanos,
    /// For each task that is placed by where data is, besides.
    pub decision: Nanos,
    /// Bytes of messages that it encodes or decodes, protects and copies.
    pub bytes_per_s: f64,
}

/// What an executor's time goes into.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExecutorCosts {
    /// From a message's arrival until the executor has acted on it.
    pub message: Nanos,
    /// To start a process, in the slot that it takes.
    pub start: Nanos,
    /// Bytes of messages that it takes in or sends.
    pub bytes_per_s: f64,
}

/// What a client's time goes into, and how it submits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClientCosts {
    /// For each message that is received.
    pub message: Nanos,
    /// For each task, or run of tasks that are alike, in a message.
    pub entry: Nanos,
    /// Tasks that arrive within this are submitted together.
    pub bundle: Nanos,
    /// Bytes of messages that it takes in or sends.
    pub bytes_per_s: f64,
}

/// What joins dispatchers, nodes and clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    /// One way.
    pub latency: Nanos,
    /// Of each node's link, and each client's, each way.
    pub node_bytes_per_s: f64,
    /// Of each dispatcher's link, each way.
    pub dispatcher_bytes_per_s: f64,
}

/// The persistent store: a shared file system.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Store {
    /// For all nodes together.
    pub bytes_per_s: f64,
    /// For each access, before its bytes come.
    pub operation: Nanos,
    /// Accesses that it begins per second, one after another; `None` is no
    /// bound.
    pub operations_per_s: Option<f64>,
}

/// What tasks read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Inputs {
    /// Different objects.
    pub objects: u64,
    /// Size of each.
    pub object_bytes: u64,
    /// How many a task reads, one after another.
    pub per_task: u32,
    /// The choice.
    pub choice: Choice,
    /// They are archives that tasks find unpacked, which takes a node so long for
    /// each; `None`: they are read as they are.
    pub unpack: Option<Nanos>,
}

/// Which objects a task reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Choice {
    /// Any, each as likely.
    Uniform,
    /// The next, and after the last the first again.
    Cyclic,
    /// Some more often than others: the k-th is read in proportion to
    /// 1 / k^exponent.
    Zipf(f64),
    /// Each so many times in a row, and after the last the first again.
    Sequential(u64),
    /// A task reads two: row by row, every object with every other and itself.
    AllPairs,
    /// A task reads two: row by row, every object of the first half with every
    /// one of the second.
    TwoSets,
}

impl Inputs {
    /// The `at`-th object that task `index` reads.
    pub(crate) fn of(&self, seed: u64, index: u64, at: u32) -> u64 {
        let number = index.wrapping_mul(u64::from(self.per_task)).wrapping_add(u64::from(at));
        match self.choice {
            Choice::Uniform => {
                ((fraction_of(seed, number) * self.objects as f64) as u64).min(self.objects - 1)
            }
            Choice::Cyclic => number % self.objects,
            Choice::Zipf(exponent) => self.zipf(fraction_of(seed, number), exponent),
            Choice::Sequential(times) => number / times.max(1) % self.objects,
            Choice::AllPairs if at == 0 => index / self.objects % self.objects,
            Choice::AllPairs => index % self.objects,
            Choice::TwoSets => {
                let rows = (self.objects / 2).max(1);
                let columns = (self.objects - rows).max(1);
                match at {
                    0 => index / columns % rows,
                    _ => (rows + index % columns) % self.objects,
                }
            }
        }
    }

    /// The different objects that task `index` reads, in the order in which it
    /// first reads them.
    pub(crate) fn of_task(&self, seed: u64, index: u64) -> Vec<u64> {
        let mut all = Vec::with_capacity(self.per_task as usize);
        for at in 0..self.per_task {
            let object = self.of(seed, index, at);
            if !all.contains(&object) {
                all.push(object);
            }
        }
        all
    }

    /// The object at `share` of a distribution that is continuous over ranks,
    /// rounded down: close to Zipf's, and without a table.
    fn zipf(&self, share: f64, exponent: f64) -> u64 {
        let end = (self.objects + 1) as f64;
        let rank = if (exponent - 1.0).abs() < 1e-9 {
            end.powf(share)
        } else {
            let power = 1.0 - exponent;
            (1.0 + share * (end.powf(power) - 1.0)).powf(1.0 / power)
        };
        (rank as u64).clamp(1, self.objects) - 1
    }
}

/// What each task writes when it has computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outputs {
    /// Bytes of its output.
    pub bytes: u64,
    /// The outputs are members of an archive, which executors collect; otherwise each is
    /// a file on the store, which its task waits for.
    pub are_collected: bool,
}

/// Nodes that are alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeGroup {
    /// How many.
    pub count: u64,
    /// Tasks that each runs at once, if each reserves one CPU.
    pub slots: u32,
    /// The GPUs of each.
    pub gpus: u32,
    /// The memory of each, in bytes.
    pub memory_bytes: u64,
    /// How fast they compute; 1 is the speed that run times are given for.
    pub speed: f64,
    /// When they start.
    pub from: Nanos,
    /// When their executors are killed, for good; `None` is never.
    pub until: Option<Nanos>,
    /// Their executors leave when they have been idle for so long; `None` is
    /// never.
    pub idle_exit: Option<Nanos>,
    /// The cache of each; `None`: tasks read from the store themselves, in
    /// their slots.
    pub cache: Option<NodeCache>,
    /// The disk that the cache is on; `None`: it is read and written in no time.
    pub disk: Option<Disk>,
}

impl NodeGroup {
    /// What each of them offers.
    pub(crate) fn capacity(&self) -> Resources {
        let (gpus, memory_bytes) = (self.gpus, self.memory_bytes);
        Resources { gpus, memory_bytes, ..Resources::cpus(self.slots) }
    }
}

/// A node's disk, whose time all share who use it: tasks that read their
/// inputs, what is fetched, and what other nodes are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Disk {
    /// If nothing is written meanwhile.
    pub read_bytes_per_s: f64,
    /// If nothing is read meanwhile.
    pub write_bytes_per_s: f64,
    /// The memory in front of it.
    pub memory: Option<Memory>,
}

/// Memory in which a node keeps what it read or wrote last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// Bytes that it holds.
    pub bytes: u64,
    /// For all who read it or write it together.
    pub bytes_per_s: f64,
}

/// A node's cache.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NodeCache {
    /// Bytes that it holds.
    pub bytes: u64,
    /// Bytes that it lends to others beside them.
    pub lend: u64,
    /// What goes first when room is needed.
    pub eviction: Eviction,
}

/// What a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskKind {
    /// A builtin that does nothing and takes no slot.
    Noop,
    /// A builtin that holds a slot for its run time, however fast the node.
    Sleep,
    /// A process that computes.
    Compute,
}

/// The tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// How many.
    pub tasks: u64,
    /// What they are.
    pub kind: TaskKind,
    /// How long they run.
    pub run: Durations,
    /// When the first comes; a run is measured from then on.
    pub from: Nanos,
    /// When they come.
    pub arrivals: Arrivals,
    /// They come in stages, each when the client has all results of the one
    /// before, with run times of their own; empty if not.
    pub stages: Vec<Stage>,
    /// They are those of a run that took place, which says when each comes, how long it
    /// runs and whether it succeeds; `arrivals` and `run` then count for nothing but means.
    pub recorded: Option<Arc<Recorded>>,
    /// What they read before they compute; `None` is nothing.
    pub inputs: Option<Inputs>,
    /// What they write when they have computed; `None` is nothing.
    pub outputs: Option<Outputs>,
    /// Which tasks go where.
    pub policy: PolicyOptions,
    /// How often a failed task is tried again.
    pub retries: u32,
    /// How many nodes hold each stripe of an object that is too large for caches.
    pub replicas: u32,
    /// Whether dispatchers are told how long tasks run.
    pub estimates: bool,
    /// Whether the last tasks that take far longer than their like run a second time elsewhere.
    pub speculate: bool,
    /// Some of the tasks run on several nodes together.
    pub wide: Option<Wide>,
}

/// Tasks that run on several nodes together, among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wide {
    /// On how many.
    pub nodes: u32,
    /// One of so many tasks does, the last of them.
    pub every: u64,
}

/// Tasks that come together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// How many.
    pub tasks: u64,
    /// How long each runs.
    pub run: Nanos,
}

impl Workload {
    /// On how many nodes task `index` runs.
    pub(crate) fn width_of(&self, index: u64) -> u32 {
        let wide = self.wide.filter(|wide| index % wide.every.max(1) + 1 == wide.every.max(1));
        wide.map_or(1, |wide| wide.nodes.max(1))
    }

    /// The slots that task `index` has on all of its nodes, in thousandths.
    pub(crate) fn milli_of(&self, index: u64) -> u64 {
        match &self.recorded {
            Some(recorded) => recorded.reserved_of(index).milli(),
            None => u64::from(self.width_of(index)) * u64::from(MILLI),
        }
    }

    /// How long task `index` runs.
    pub(crate) fn run_of(&self, seed: u64, index: u64) -> Nanos {
        if let Some(recorded) = &self.recorded {
            return recorded.end_of(index).run;
        }
        let mut end = 0;
        let stage = self.stages.iter().find(|stage| {
            end += stage.tasks;
            index < end
        });
        stage.map_or_else(|| self.run.of(seed, index), |stage| stage.run)
    }
}

/// How long tasks run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Durations {
    /// All alike.
    Fixed(Nanos),
    /// Anything between two lengths.
    Uniform(Nanos, Nanos),
    /// Exponentially distributed with this mean.
    Exponential(Nanos),
}

impl Durations {
    /// How long task `index` runs.
    pub(crate) fn of(&self, seed: u64, index: u64) -> Nanos {
        match *self {
            Durations::Fixed(run) => run,
            Durations::Uniform(least, most) => {
                let spread = most.since(least).0 as f64;
                least.after(Nanos((spread * fraction_of(seed, index)) as u64))
            }
            Durations::Exponential(mean) => {
                Nanos((-(1.0 - fraction_of(seed, index)).ln() * mean.0 as f64) as u64)
            }
        }
    }

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> Nanos {
        match *self {
            Durations::Fixed(run) | Durations::Exponential(run) => run,
            Durations::Uniform(least, most) => Nanos(least.0 / 2 + most.0 / 2),
        }
    }
}

/// What breaks, and how often on average; `None` is never. TCP neither
/// reorders nor duplicates, so what would do that to a message breaks its
/// connection instead.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Faults {
    /// Between two crashes of a node, of all nodes together.
    pub node_crash: Option<Nanos>,
    /// From a node's crash until it starts again; 0 if it never does.
    pub node_down: Nanos,
    /// Between two cuts of a connection, of all connections together.
    pub cut: Option<Nanos>,
    /// Between two partitions.
    pub partition: Option<Nanos>,
    /// How long a partition lasts: what is sent arrives after it.
    pub partition_length: Nanos,
    /// The share of nodes that a partition cuts off.
    pub partition_share: f64,
    /// Between two crashes of a dispatcher, of all together. It comes back
    /// with its journal.
    pub dispatcher_crash: Option<Nanos>,
    /// From a dispatcher's crash until it is back.
    pub dispatcher_down: Nanos,
    /// Between two crashes of a relay, of all together. It comes back with its
    /// journal and its notes.
    pub relay_crash: Option<Nanos>,
    /// From a relay's crash until it is back.
    pub relay_down: Nanos,
    /// Between two losses of a file in a node's cache, of all caches together;
    /// nobody notices before it is used.
    pub file_loss: Option<Nanos>,
    /// Between two hangs of a node's disk, of all nodes together. Processes that
    /// are to start wait for it; what runs goes on.
    pub disk_hang: Option<Nanos>,
    /// How long a disk hangs.
    pub disk_hang_length: Nanos,
    /// Between two times at which a dispatcher's disk is full, of all together:
    /// its journal is neither written nor compacted.
    pub disk_full: Option<Nanos>,
    /// How long a disk is full.
    pub disk_full_length: Nanos,
    /// By how much a dispatcher's clock is set back, at most, when it comes back
    /// after a crash.
    pub clock_step: Nanos,
    /// The share of nodes that are slow.
    pub slow_share: f64,
    /// By which factor.
    pub slow_factor: f64,
    /// The share of runs of a task that fail.
    pub task_failure: f64,
    /// Nothing breaks after this; `None` is no end.
    pub until: Option<Nanos>,
}

impl Faults {
    /// Whether tasks may be lost and run again for it.
    pub(crate) fn any(&self) -> bool {
        self.node_crash.is_some()
            || self.cut.is_some()
            || self.partition.is_some()
            || self.dispatcher_crash.is_some()
            || self.relay_crash.is_some()
            || self.file_loss.is_some()
            || self.task_failure > 0.0
    }
}

impl Scenario {
    /// How many nodes there are.
    #[must_use]
    pub fn nodes_count(&self) -> u64 {
        self.nodes.iter().fold(0, |sum, group| sum.saturating_add(group.count))
    }

    /// How many tasks can run at once.
    #[must_use]
    pub fn slots(&self) -> u64 {
        let all: u64 = self.nodes.iter().map(|group| group.count * u64::from(group.slots)).sum();
        match (&self.provision, self.nodes.first()) {
            (Some(provision), Some(group)) => {
                all.min(provision.queue.executors_max.saturating_mul(u64::from(group.slots)))
            }
            _ => all,
        }
    }

    /// Slots of normal speed that are worth as much as all there are.
    pub(crate) fn speed(&self) -> f64 {
        match self.workload.kind {
            TaskKind::Compute => self
                .nodes
                .iter()
                .map(|group| group.count as f64 * f64::from(group.slots) * group.speed)
                .sum(),
            _ => self.slots() as f64,
        }
    }

    /// Tasks per second that all slots together can run; infinite if tasks take
    /// no time.
    #[must_use]
    pub fn capacity_per_s(&self) -> f64 {
        self.speed() / self.workload.run.mean().seconds()
    }

    /// Checks that the scenario makes sense.
    ///
    /// # Errors
    /// Names the part that does not.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let nodes = self.nodes_count();
        if nodes == 0 || nodes > SCENARIO_NODES_MAX {
            return Err(ScenarioError::Nodes { found: nodes, most: SCENARIO_NODES_MAX });
        }
        if self.dispatchers == 0 || u64::from(self.dispatchers) > nodes {
            return Err(ScenarioError::Dispatchers { found: self.dispatchers, nodes });
        }
        for group in &self.nodes {
            if group.slots == 0 || group.slots > NODE_SLOTS_MAX {
                return Err(ScenarioError::Slots { found: group.slots, most: NODE_SLOTS_MAX });
            }
            above_zero("the speed of a node", group.speed)?;
            if let Some(disk) = &group.disk {
                above_zero("the bandwidth of a disk that is read", disk.read_bytes_per_s)?;
                above_zero("the bandwidth of a disk that is written", disk.write_bytes_per_s)?;
            }
            if let Some(memory) = group.disk.and_then(|disk| disk.memory) {
                above_zero("the bandwidth of memory", memory.bytes_per_s)?;
            }
        }
        for (name, rate) in [
            ("the bandwidth of a node", self.network.node_bytes_per_s),
            ("the bandwidth of a dispatcher", self.network.dispatcher_bytes_per_s),
            ("what a dispatcher handles per second", self.dispatcher.bytes_per_s),
            ("what an executor handles per second", self.executor.bytes_per_s),
            ("what a client handles per second", self.client.bytes_per_s),
        ] {
            above_zero(name, rate)?;
        }
        let tasks = self.workload.tasks;
        if tasks < u64::from(self.dispatchers) || tasks > SCENARIO_TASKS_MAX {
            let least = u64::from(self.dispatchers);
            return Err(ScenarioError::Tasks { found: tasks, least, most: SCENARIO_TASKS_MAX });
        }
        if let Durations::Uniform(least, most) = self.workload.run
            && most < least
        {
            return Err(ScenarioError::Durations { least, most });
        }
        self.workload.arrivals.check()?;
        check_stages(&self.workload.stages, tasks, self.dispatchers)?;
        if let Some(recorded) = &self.workload.recorded
            && (recorded.tasks() != tasks || !self.workload.stages.is_empty())
        {
            return Err(ScenarioError::Recorded { found: recorded.tasks(), tasks });
        }
        let has_needs = |needs: &Needs| *needs != Needs::default();
        if let Some(needs) = self.workload.needs().filter(|needs| has_needs(needs)) {
            let is_alone = self.workload.inputs.is_none() && self.workload.outputs.is_none();
            if !is_alone || self.dispatchers != 1 || !needs.are_sound() {
                return Err(ScenarioError::Needs);
            }
        }
        if let Some(provision) = &self.provision {
            provision.check()?;
            if self.dispatchers != 1 || self.nodes.len() != 1 {
                return Err(ScenarioError::Provisioned);
            }
        }
        self.check_data()?;
        self.check_relays()?;
        self.faults.check()
    }

    /// Whether inputs go through caches.
    #[must_use]
    pub fn stages(&self) -> bool {
        let has_some = self.workload.inputs.is_some()
            || self.workload.needs().is_some_and(Needs::have_objects);
        has_some && self.nodes.iter().any(|group| group.cache.is_some())
    }

    fn check_data(&self) -> Result<(), ScenarioError> {
        if self.workload.policy.check().is_err() {
            return Err(ScenarioError::Policy(self.workload.policy));
        }
        if self.workload.policy.policy.knows_places() && !self.stages() {
            return Err(ScenarioError::PolicyWithoutData(self.workload.policy.policy));
        }
        if let Some(inputs) = &self.workload.inputs {
            if self.workload.kind != TaskKind::Compute {
                return Err(ScenarioError::InputsOfBuiltin);
            }
            if inputs.objects == 0 || inputs.objects > SCENARIO_OBJECTS_MAX {
                let most = SCENARIO_OBJECTS_MAX;
                return Err(ScenarioError::Objects { found: inputs.objects, most });
            }
            let pairs = matches!(inputs.choice, Choice::AllPairs | Choice::TwoSets);
            if pairs && inputs.per_task != 2 {
                return Err(ScenarioError::Pairs(inputs.per_task));
            }
            if let Choice::Zipf(exponent) = inputs.choice {
                above_zero("the exponent of the distribution of reads", exponent)?;
            }
            if self.stages() && self.nodes.iter().any(|group| group.cache.is_none()) {
                return Err(ScenarioError::SomeCaches);
            }
            if inputs.unpack.is_some() && !self.stages() {
                return Err(ScenarioError::UnpackedNowhere);
            }
            above_zero("the bandwidth of the store", self.store.bytes_per_s)?;
            if let Some(rate) = self.store.operations_per_s {
                above_zero("the store's operations per second", rate)?;
            }
        }
        if self.workload.outputs.is_some() {
            let has_cache = self.nodes.iter().all(|group| group.cache.is_some());
            if self.workload.kind != TaskKind::Compute || !has_cache {
                return Err(ScenarioError::OutputsNowhere);
            }
            above_zero("the bandwidth of the store", self.store.bytes_per_s)?;
            if let Some(rate) = self.store.operations_per_s {
                above_zero("the store's operations per second", rate)?;
            }
        }
        Ok(())
    }
}

impl Faults {
    fn check(&self) -> Result<(), ScenarioError> {
        for (name, value) in [
            ("the share of nodes that a partition cuts off", self.partition_share),
            ("the share of slow nodes", self.slow_share),
            ("the share of runs that fail", self.task_failure),
        ] {
            if !(0.0..=1.0).contains(&value) {
                return Err(ScenarioError::Share { name, value });
            }
        }
        let often = [
            self.node_crash,
            self.cut,
            self.partition,
            self.dispatcher_crash,
            self.relay_crash,
            self.file_loss,
            self.disk_hang,
            self.disk_full,
        ];
        for often in often {
            if often == Some(Nanos(0)) {
                return Err(ScenarioError::FaultsAtOnce);
            }
        }
        if self.slow_share > 0.0 {
            above_zero("the factor of slow nodes", self.slow_factor)?;
        }
        Ok(())
    }
}

fn above_zero(name: &'static str, value: f64) -> Result<(), ScenarioError> {
    let fits = value.is_finite() && value > 0.0;
    if fits { Ok(()) } else { Err(ScenarioError::NotPositive { name, value }) }
}
