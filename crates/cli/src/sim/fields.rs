//! The fields of a scenario file, and the scenarios they make.

use super::costs::{ClientFields, DispatcherFields, ExecutorFields};
use super::provision::{LrmFields, ProvisionFields, StageFields, stages};
use crate::amount::{Amount, Rate, Size, Time};
use falkon_sim::{
    Arrivals, Choice, Disk, Durations, Eviction, Faults, Inputs, Memory, Nanos, Network, NodeCache,
    NodeGroup, OptionsError, Outputs, PolicyError, PolicyName, PolicyOptions, Relays, Scenario,
    Store, TaskKind, Wide, Workload,
};
use serde::Deserialize;

/// Virtual time after which a run is given up unless the file says otherwise:
/// a month.
const LIMIT_SECONDS: f64 = 30.0 * 86_400.0;
/// Runs that one file may ask for.
const GRID_RUNS_MAX: usize = 1024;

/// Why a file makes no scenario.
#[derive(Debug, thiserror::Error)]
pub enum FieldError {
    /// A field is there that has no place beside another, or lacks one.
    #[error("{0}")]
    Fields(&'static str),
    /// The text is no description; the error and its place.
    #[error("{}", .0.trim_end())]
    Malformed(String),
    /// There is no such dispatch policy.
    #[error(transparent)]
    Policy(PolicyError),
    /// There is no such eviction policy.
    #[error(
        "there is no eviction policy `{0}`: choose one of {known}",
        known = Eviction::all().map(Eviction::name).collect::<Vec<_>>().join(", ")
    )]
    Eviction(String),
    /// There is no such strategy or policy for acquiring or releasing nodes.
    #[error("there is no {what} `{name}`")]
    Provision {
        /// The kind of the name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The provisioner's settings of its queue make no sense.
    #[error("provision: {0}")]
    Queue(OptionsError),
    /// The grid asks for too many runs.
    #[error("the grid asks for {0} runs: at most {GRID_RUNS_MAX} are made")]
    Grid(usize),
}

/// A run of a file.
#[derive(Clone)]
pub struct Variant {
    /// The scenario.
    pub scenario: Scenario,
    /// The coordinates in the grid.
    pub label: Vec<(&'static str, f64)>,
}

/// A scenario file, as it is read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    #[serde(default)]
    name: String,
    limit: Option<Amount<Time>>,
    #[serde(default)]
    check_all: bool,
    #[serde(default)]
    earlier_runs: u32,
    workload: WorkloadFields,
    #[serde(default)]
    policy: PolicyFields,
    relays: Option<RelayFields>,
    nodes: Vec<NodeFields>,
    #[serde(default)]
    network: NetworkFields,
    store: Option<StoreFields>,
    #[serde(default)]
    dispatcher: DispatcherFields,
    #[serde(default)]
    executor: ExecutorFields,
    #[serde(default)]
    client: ClientFields,
    #[serde(default)]
    faults: FaultFields,
    provision: Option<ProvisionFields>,
    lrm: Option<LrmFields>,
    #[serde(default)]
    grid: GridFields,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct WideFields {
    nodes: u32,
    every: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadFields {
    tasks: Option<u64>,
    tasks_per_slot: Option<u64>,
    #[serde(default = "sleep")]
    kind: KindField,
    run: Option<Amount<Time>>,
    run_min: Option<Amount<Time>>,
    run_max: Option<Amount<Time>>,
    run_mean: Option<Amount<Time>>,
    #[serde(default)]
    run_spread: f64,
    #[serde(default)]
    retries: u32,
    #[serde(default = "one")]
    replicas: u32,
    #[serde(default)]
    estimates: bool,
    #[serde(default)]
    speculate: bool,
    wide: Option<WideFields>,
    from: Option<Amount<Time>>,
    arrivals: Option<ArrivalFields>,
    #[serde(default)]
    stages: Vec<StageFields>,
    inputs: Option<InputFields>,
    outputs: Option<OutputFields>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputFields {
    size: Amount<Size>,
    #[serde(default)]
    collected: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InputFields {
    objects: u64,
    size: Amount<Size>,
    #[serde(default = "one")]
    per_task: u32,
    #[serde(default)]
    choice: ChoiceField,
    exponent: Option<f64>,
    times: Option<u64>,
    unpack: Option<Amount<Time>>,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "kebab-case")]
enum ChoiceField {
    #[default]
    Uniform,
    Cyclic,
    Zipf,
    Sequential,
    AllPairs,
    TwoSets,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct PolicyFields {
    name: Option<String>,
    window: Option<u64>,
    utilization_threshold: Option<f64>,
    replication_max: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RelayFields {
    count: u32,
    #[serde(default = "one")]
    depth: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreFields {
    bandwidth: Amount<Rate>,
    operation: Option<Amount<Time>>,
    operations_per_second: Option<f64>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum KindField {
    Noop,
    Sleep,
    Compute,
}

fn sleep() -> KindField {
    KindField::Sleep
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArrivalFields {
    rate: f64,
    factor: Option<f64>,
    max: Option<f64>,
    interval: Option<Amount<Time>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFields {
    count: u64,
    #[serde(default = "one")]
    slots: u32,
    #[serde(default = "normal")]
    speed: f64,
    from: Option<Amount<Time>>,
    until: Option<Amount<Time>>,
    idle_exit: Option<Amount<Time>>,
    cache: Option<Amount<Size>>,
    lend: Option<Amount<Size>>,
    eviction: Option<String>,
    disk_read: Option<Amount<Rate>>,
    disk_write: Option<Amount<Rate>>,
    memory: Option<Amount<Size>>,
    memory_bandwidth: Option<Amount<Rate>>,
}

fn one() -> u32 {
    1
}

fn normal() -> f64 {
    1.0
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct NetworkFields {
    latency: Amount<Time>,
    node_bandwidth: Amount<Rate>,
    dispatcher_bandwidth: Option<Amount<Rate>>,
}

impl Default for NetworkFields {
    fn default() -> Self {
        NetworkFields {
            latency: Amount::of(100e-6),
            node_bandwidth: Amount::of(125e6),
            dispatcher_bandwidth: None,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct FaultFields {
    node_crash: Option<Amount<Time>>,
    node_down: Option<Amount<Time>>,
    cut: Option<Amount<Time>>,
    partition: Option<Amount<Time>>,
    partition_length: Option<Amount<Time>>,
    partition_share: f64,
    dispatcher_crash: Option<Amount<Time>>,
    dispatcher_down: Option<Amount<Time>>,
    relay_crash: Option<Amount<Time>>,
    relay_down: Option<Amount<Time>>,
    file_loss: Option<Amount<Time>>,
    disk_hang: Option<Amount<Time>>,
    disk_hang_length: Option<Amount<Time>>,
    disk_full: Option<Amount<Time>>,
    disk_full_length: Option<Amount<Time>>,
    clock_step: Option<Amount<Time>>,
    slow_share: f64,
    slow_factor: f64,
    task_failure: f64,
    until: Option<Amount<Time>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct GridFields {
    nodes: Vec<u64>,
    run: Vec<Amount<Time>>,
    dispatchers: Vec<u32>,
    cache: Vec<Amount<Size>>,
    workload: Vec<GridWorkload>,
    idle: Vec<Amount<Time>>,
    earlier_runs: Vec<u32>,
}

/// How much work, at one point of a grid.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GridWorkload {
    tasks: u64,
    objects: Option<u64>,
}

/// Multiplies the variants by the points of one dimension.
fn each<T>(variants: Vec<Variant>, points: &[T], apply: impl Fn(&mut Variant, &T)) -> Vec<Variant> {
    if points.is_empty() {
        return variants;
    }
    let mut all = Vec::with_capacity(variants.len() * points.len());
    for variant in variants {
        for point in points {
            let Variant { scenario, label } = &variant;
            let mut variant = Variant { scenario: scenario.clone(), label: label.clone() };
            apply(&mut variant, point);
            all.push(variant);
        }
    }
    all
}

pub(super) fn nanos(amount: Amount<Time>) -> Nanos {
    Nanos::from_seconds(amount.value)
}

pub(super) fn span(amount: Option<Amount<Time>>) -> Nanos {
    amount.map_or(Nanos(0), nanos)
}

impl Description {
    /// The scenarios of the file: one, or one for each point of its grid.
    ///
    /// # Errors
    /// The fields that do not go together.
    pub fn variants(&self) -> Result<Vec<Variant>, FieldError> {
        let base = self.scenario()?;
        let grid = &self.grid;
        let lengths = [
            grid.nodes.len(),
            grid.run.len(),
            grid.dispatchers.len(),
            grid.cache.len(),
            grid.workload.len(),
            grid.idle.len(),
            grid.earlier_runs.len(),
        ];
        let all = lengths.iter().fold(1usize, |all, length| all.saturating_mul((*length).max(1)));
        if all > GRID_RUNS_MAX {
            return Err(FieldError::Grid(all));
        }
        if !grid.nodes.is_empty() && base.nodes.len() != 1 {
            return Err(FieldError::Fields("`grid.nodes` needs exactly one group of nodes"));
        }
        if !grid.idle.is_empty() && base.provision.is_none() {
            return Err(FieldError::Fields("`grid.idle` needs `[provision]`"));
        }
        if grid.workload.iter().any(|of| of.objects.is_some()) && base.workload.inputs.is_none() {
            return Err(FieldError::Fields("`objects` in a grid needs `workload.inputs`"));
        }
        let variants = vec![Variant { scenario: base, label: Vec::new() }];
        let variants = each(variants, &grid.nodes, |variant, count| {
            variant.scenario.nodes[0].count = *count;
            variant.label.push(("nodes", *count as f64));
        });
        let variants = each(variants, &grid.dispatchers, |variant, count| {
            variant.scenario.dispatchers = *count;
            variant.label.push(("dispatchers", f64::from(*count)));
        });
        let mut variants = each(variants, &grid.run, |variant, run| {
            variant.scenario.workload.run = self.workload.around(nanos(*run));
            variant.label.push(("run s", run.value));
        });
        for variant in &mut variants {
            self.count_tasks(&mut variant.scenario);
        }
        let variants = each(variants, &grid.cache, |variant, cache| {
            for group in &mut variant.scenario.nodes {
                let bytes = cache.value as u64;
                let before = group.cache.unwrap_or_default();
                group.cache = Some(NodeCache { bytes, ..before });
            }
            variant.label.push(("cache GB", cache.value / 1e9));
        });
        let variants = each(variants, &grid.workload, |variant, of| {
            let workload = &mut variant.scenario.workload;
            workload.tasks = of.tasks;
            if let (Some(inputs), Some(objects)) = (&mut workload.inputs, of.objects) {
                inputs.objects = objects;
                let reads = of.tasks as f64 * f64::from(inputs.per_task);
                variant.label.push(("locality", reads / objects.max(1) as f64));
            }
        });
        let variants = each(variants, &grid.earlier_runs, |variant, runs| {
            variant.scenario.earlier_runs = *runs;
            variant.label.push(("earlier runs", f64::from(*runs)));
        });
        Ok(each(variants, &grid.idle, |variant, idle| {
            if let Some(provision) = &mut variant.scenario.provision {
                provision.queue.idle_micros = Some((idle.value * 1e6) as u64);
            }
            variant.label.push(("idle s", idle.value));
        }))
    }

    fn provision(&self, slots: u32) -> Result<Option<falkon_sim::Provision>, FieldError> {
        match (&self.provision, &self.lrm) {
            (Some(provision), lrm) => {
                let lrm = lrm.as_ref().map(LrmFields::lrm).unwrap_or_default();
                Ok(Some(falkon_sim::Provision { queue: provision.queue(slots)?, lrm }))
            }
            (None, Some(_)) => Err(FieldError::Fields("`[lrm]` needs `[provision]`")),
            (None, None) => Ok(None),
        }
    }

    fn count_tasks(&self, scenario: &mut Scenario) {
        if let Some(each) = self.workload.tasks_per_slot {
            scenario.workload.tasks = scenario.slots().saturating_mul(each);
        }
    }

    fn scenario(&self) -> Result<Scenario, FieldError> {
        let policy = self.policy.policy()?;
        let inputs = self.workload.inputs.as_ref().map_or(0, |inputs| inputs.per_task);
        Ok(Scenario {
            name: self.name.clone(),
            dispatchers: self.dispatcher.count,
            dispatcher: self.dispatcher.costs(policy.policy, inputs),
            results_bytes: self.dispatcher.results.map(|results| results.value as u64),
            executor: self.executor.costs(),
            client: self.client.costs(),
            network: Network {
                latency: nanos(self.network.latency),
                node_bytes_per_s: self.network.node_bandwidth.value,
                dispatcher_bytes_per_s: self
                    .network
                    .dispatcher_bandwidth
                    .unwrap_or(self.network.node_bandwidth)
                    .value,
            },
            relays: self
                .relays
                .as_ref()
                .map(|relays| Relays { count: relays.count, depth: relays.depth }),
            nodes: self
                .nodes
                .iter()
                .map(|group| group.group(!self.grid.cache.is_empty()))
                .collect::<Result<_, _>>()?,
            store: self.store()?,
            provision: self.provision(self.nodes.first().map_or(1, |group| group.slots))?,
            workload: Workload { policy, ..self.workload.workload(&self.grid)? },
            faults: self.faults.faults(),
            earlier_runs: self.earlier_runs,
            check_all: self.check_all,
            limit: self.limit.map_or(Nanos::from_seconds(LIMIT_SECONDS), nanos),
        })
    }
}

impl Description {
    fn store(&self) -> Result<Store, FieldError> {
        let Some(store) = &self.store else {
            if self.workload.inputs.is_some() {
                return Err(FieldError::Fields("`workload.inputs` needs a `[store]` to read from"));
            }
            if self.workload.outputs.is_some() {
                return Err(FieldError::Fields("`workload.outputs` needs a `[store]` to write to"));
            }
            return Ok(Store { bytes_per_s: 0.0, operation: Nanos(0), operations_per_s: None });
        };
        Ok(Store {
            bytes_per_s: store.bandwidth.value,
            operation: span(store.operation),
            operations_per_s: store.operations_per_second,
        })
    }
}

impl PolicyFields {
    fn policy(&self) -> Result<PolicyOptions, FieldError> {
        let mut options = PolicyOptions::default();
        if let Some(name) = &self.name {
            options.policy = PolicyName::named(name).map_err(FieldError::Policy)?;
        }
        options.window = self.window.unwrap_or(options.window);
        options.replication_max = self.replication_max.unwrap_or(options.replication_max);
        if let Some(threshold) = self.utilization_threshold {
            options.utilization_threshold_milli = (threshold * 1000.0).round() as u32;
        }
        options.check().map_err(FieldError::Policy)?;
        Ok(options)
    }
}

impl InputFields {
    fn inputs(&self) -> Result<Inputs, FieldError> {
        let choice = match (self.choice, self.exponent, self.times) {
            (ChoiceField::Uniform, None, None) => Choice::Uniform,
            (ChoiceField::Cyclic, None, None) => Choice::Cyclic,
            (ChoiceField::AllPairs, None, None) => Choice::AllPairs,
            (ChoiceField::TwoSets, None, None) => Choice::TwoSets,
            (ChoiceField::Zipf, Some(exponent), None) => Choice::Zipf(exponent),
            (ChoiceField::Sequential, None, Some(times)) => Choice::Sequential(times),
            _ => {
                return Err(FieldError::Fields(
                    "`inputs` needs `exponent` with the choice `zipf`, and `times` with \
                     `sequential`, and neither with another",
                ));
            }
        };
        Ok(Inputs {
            objects: self.objects,
            object_bytes: self.size.value as u64,
            per_task: self.per_task,
            choice,
            unpack: self.unpack.map(nanos),
        })
    }
}

impl NodeFields {
    fn group(&self, cache_in_grid: bool) -> Result<NodeGroup, FieldError> {
        let NodeFields { count, slots, speed, from, until, idle_exit, cache, .. } = *self;
        let eviction = match &self.eviction {
            None => Eviction::default(),
            Some(name) => {
                Eviction::named(name).ok_or_else(|| FieldError::Eviction(name.clone()))?
            }
        };
        if self.eviction.is_some() && cache.is_none() && !cache_in_grid {
            return Err(FieldError::Fields("`eviction` needs a `cache`"));
        }
        if self.lend.is_some() && cache.is_none() && !cache_in_grid {
            return Err(FieldError::Fields("`lend` needs a `cache`"));
        }
        let lend = self.lend.map_or(0, |lend| lend.value as u64);
        let cache = match (cache, cache_in_grid) {
            (Some(cache), _) => Some(cache.value as u64),
            (None, true) => Some(0),
            (None, false) => None,
        };
        let cache = cache.map(|bytes| NodeCache { bytes, lend, eviction });
        let disk = self.disk()?;
        let (from, until, idle_exit) = (span(from), until.map(nanos), idle_exit.map(nanos));
        // Tasks of scenarios reserve CPUs alone.
        let (gpus, memory_bytes) = (0, 0);
        Ok(NodeGroup {
            count,
            slots,
            gpus,
            memory_bytes,
            speed,
            from,
            until,
            idle_exit,
            cache,
            disk,
        })
    }

    fn disk(&self) -> Result<Option<Disk>, FieldError> {
        let memory = match (self.memory, self.memory_bandwidth) {
            (Some(memory), Some(rate)) => {
                Some(Memory { bytes: memory.value as u64, bytes_per_s: rate.value })
            }
            (None, None) => None,
            _ => {
                let what = "`memory` and `memory_bandwidth` of nodes need each other";
                return Err(FieldError::Fields(what));
            }
        };
        let Some(read) = self.disk_read else {
            let lone = self.disk_write.is_some() || memory.is_some();
            let what = "`disk_write` and `memory` of nodes need a `disk_read`";
            return if lone { Err(FieldError::Fields(what)) } else { Ok(None) };
        };
        Ok(Some(Disk {
            read_bytes_per_s: read.value,
            write_bytes_per_s: self.disk_write.unwrap_or(read).value,
            memory,
        }))
    }
}

impl WorkloadFields {
    /// Run times around a mean.
    fn around(&self, run: Nanos) -> Durations {
        let least = Nanos((run.0 as f64 * (1.0 - self.run_spread)) as u64);
        match self.run_spread > 0.0 {
            true => Durations::Uniform(least, Nanos(run.0.saturating_add(run.0 - least.0))),
            false => Durations::Fixed(run),
        }
    }

    fn workload(&self, grid: &GridFields) -> Result<Workload, FieldError> {
        let run_in_grid = !grid.run.is_empty();
        if !(0.0..=1.0).contains(&self.run_spread) {
            return Err(FieldError::Fields("`run_spread` is not from 0 to 1"));
        }
        if self.run_spread > 0.0 && self.run.is_none() && !run_in_grid {
            return Err(FieldError::Fields("`run_spread` needs `run`"));
        }
        let run = match (self.run, self.run_min, self.run_max, self.run_mean) {
            (Some(run), None, None, None) => self.around(nanos(run)),
            (None, Some(min), Some(max), None) => Durations::Uniform(nanos(min), nanos(max)),
            (None, None, None, Some(mean)) => Durations::Exponential(nanos(mean)),
            (None, None, None, None)
                if run_in_grid
                    || matches!(self.kind, KindField::Noop)
                    || !self.stages.is_empty() =>
            {
                Durations::Fixed(Nanos(0))
            }
            _ => {
                return Err(FieldError::Fields(
                    "`workload` needs either `run`, or `run_min` and `run_max`, or `run_mean`",
                ));
            }
        };
        let stages = stages(&self.stages);
        if !stages.is_empty() && (self.tasks.is_some() || self.run.is_some()) {
            let what = "`workload.stages` have their own tasks and run times";
            return Err(FieldError::Fields(what));
        }
        let staged = stages.iter().fold(0u64, |sum, stage| sum.saturating_add(stage.tasks));
        let tasks = self.tasks.or((staged > 0).then_some(staged));
        let counts = [tasks.is_some(), self.tasks_per_slot.is_some(), !grid.workload.is_empty()];
        if counts.iter().filter(|count| **count).count() != 1 {
            let what = "`workload` needs either `tasks`, or `tasks_per_slot`, or `grid.workload`";
            return Err(FieldError::Fields(what));
        }
        Ok(Workload {
            tasks: tasks.unwrap_or_default(),
            kind: match self.kind {
                KindField::Noop => TaskKind::Noop,
                KindField::Sleep => TaskKind::Sleep,
                KindField::Compute => TaskKind::Compute,
            },
            run,
            from: span(self.from),
            arrivals: self
                .arrivals
                .as_ref()
                .map_or(Ok(Arrivals::AtOnce), ArrivalFields::arrivals)?,
            stages,
            recorded: None,
            inputs: self.inputs.as_ref().map(InputFields::inputs).transpose()?,
            outputs: self.outputs.as_ref().map(|outputs| Outputs {
                bytes: outputs.size.value as u64,
                are_collected: outputs.collected,
            }),
            policy: PolicyOptions::default(),
            retries: self.retries,
            replicas: self.replicas,
            estimates: self.estimates,
            speculate: self.speculate,
            wide: self.wide.map(|WideFields { nodes, every }| Wide { nodes, every }),
        })
    }
}

impl ArrivalFields {
    fn arrivals(&self) -> Result<Arrivals, FieldError> {
        match (self.factor, self.max, self.interval) {
            (None, None, None) => Ok(Arrivals::Rate(self.rate)),
            (Some(factor), Some(most), Some(interval)) => {
                Ok(Arrivals::Ramp { first: self.rate, factor, most, interval: nanos(interval) })
            }
            _ => Err(FieldError::Fields(
                "`arrivals` needs all of `factor`, `max` and `interval`, or none of them",
            )),
        }
    }
}

impl FaultFields {
    fn faults(&self) -> Faults {
        Faults {
            node_crash: self.node_crash.map(nanos),
            node_down: span(self.node_down),
            cut: self.cut.map(nanos),
            partition: self.partition.map(nanos),
            partition_length: span(self.partition_length),
            partition_share: self.partition_share,
            dispatcher_crash: self.dispatcher_crash.map(nanos),
            dispatcher_down: span(self.dispatcher_down),
            relay_crash: self.relay_crash.map(nanos),
            relay_down: span(self.relay_down),
            file_loss: self.file_loss.map(nanos),
            disk_hang: self.disk_hang.map(nanos),
            disk_hang_length: span(self.disk_hang_length),
            disk_full: self.disk_full.map(nanos),
            disk_full_length: span(self.disk_full_length),
            clock_step: span(self.clock_step),
            slow_share: self.slow_share,
            slow_factor: self.slow_factor,
            task_failure: self.task_failure,
            until: self.until.map(nanos),
        }
    }
}
