//! The abstract model of data-centric task farms (data-diffusion §4.3): what a
//! workload costs on a machine, from averages alone.
//!
//! Symbols are those of the paper. A *resource* is one slot, so |T| is nodes
//! times slots. All times are in seconds, all amounts in bytes, and everything
//! is a mean over the workload's tasks.
//!
//! Two things the paper leaves open are settled here: how load lowers a
//! store's bandwidth (see [`copy`]), and which share of accesses finds a cached
//! object if nobody has measured it (see [`Workload::expected_hits`]). Two
//! definitions are not taken over as they stand: one because it has no maximum
//! (see [`Farm::optimum`]), the other because it is of a run that neither begins
//! nor ends (see [`phases`]).

mod copy;
mod error;
mod optimum;
mod phases;

pub use copy::{CopyTimes, available_bytes_per_s, copy_s};
pub use error::ModelError;
pub use optimum::{NODES_SEARCHED_MAX, Optimum};

/// The tasks: K, and what they need.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload {
    /// |K|: how many tasks.
    pub tasks: u64,
    /// μ(κ): mean time to execute a task, without dispatch and copies.
    pub run_s: f64,
    /// o(κ): mean time to dispatch a task and return its result.
    pub dispatch_s: f64,
    /// A: tasks that arrive per second; `None` if all are there at once.
    pub arrivals_per_s: Option<f64>,
    /// |θ(κ)|: data objects that a task reads.
    pub objects_per_task: f64,
    /// β(δ): mean size of an object.
    pub object_bytes: f64,
    /// How many different objects the tasks read.
    pub objects: u64,
}

/// The resources: T with its caches, and the persistent store Π.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// How many nodes.
    pub nodes: u64,
    /// Tasks that a node runs at once.
    pub slots_per_node: u32,
    /// σ(τ): cache of each node.
    pub cache_bytes: f64,
    /// ν(τ): ideal bandwidth of each node's link.
    pub node_bytes_per_s: f64,
    /// ν(π): ideal bandwidth of the persistent store, for all nodes together.
    pub store_bytes_per_s: f64,
}

/// Where accesses find their object, as shares that add up to one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hits {
    /// In the node's own cache (H_L).
    pub local: f64,
    /// In another node's cache (H_C).
    pub peer: f64,
    /// In the persistent store alone (H_S).
    pub store: f64,
}

/// How far shares may be from adding up to one.
const SHARES_TOLERANCE: f64 = 1e-6;

impl Hits {
    /// Everything is read from the persistent store: no caches.
    pub const NONE: Hits = Hits { local: 0.0, peer: 0.0, store: 1.0 };

    fn check(&self) -> Result<(), ModelError> {
        let shares = [("local", self.local), ("peer", self.peer), ("store", self.store)];
        for (name, value) in shares {
            if !(0.0..=1.0).contains(&value) {
                return Err(ModelError::Share { name, value });
            }
        }
        let sum = self.local + self.peer + self.store;
        if (sum - 1.0).abs() > SHARES_TOLERANCE {
            return Err(ModelError::Shares { sum });
        }
        Ok(())
    }
}

impl Workload {
    /// |Ω|: bytes of all different objects.
    #[must_use]
    pub fn working_set_bytes(&self) -> f64 {
        self.objects as f64 * self.object_bytes
    }

    /// How often an object is read on average; 0 if none is.
    #[must_use]
    pub fn locality(&self) -> f64 {
        if self.objects == 0 {
            return 0.0;
        }
        self.tasks as f64 * self.objects_per_task / self.objects as f64
    }

    /// B: the average task execution time, B = (1/|K|) Σ μ(κ).
    #[must_use]
    pub fn average_execution_s(&self) -> f64 {
        self.run_s
    }

    /// I = B × A: processors that the arriving tasks keep busy without any
    /// overhead; infinite if all tasks are there at once.
    #[must_use]
    pub fn intensity(&self) -> f64 {
        self.arrivals_per_s.map_or(f64::INFINITY, |arrivals| self.average_execution_s() * arrivals)
    }

    /// 1/A; 0 if all tasks are there at once.
    fn between_arrivals_s(&self) -> f64 {
        self.arrivals_per_s.map_or(0.0, |arrivals| 1.0 / arrivals)
    }

    /// What caches would catch if tasks chose their objects at random and went
    /// where these are: every object is read from the store once; after that
    /// an access finds it cached with the share of the working set that the
    /// caches hold together.
    #[must_use]
    pub fn expected_hits(&self, machine: &Machine) -> Hits {
        let (locality, set) = (self.locality(), self.working_set_bytes());
        if locality < 1.0 || set <= 0.0 {
            return Hits::NONE;
        }
        let held = (machine.all_caches_bytes() / set).min(1.0);
        let local = held * (1.0 - 1.0 / locality);
        Hits { local, peer: 0.0, store: 1.0 - local }
    }

    fn check(&self) -> Result<(), ModelError> {
        if self.tasks == 0 {
            return Err(ModelError::NoTasks);
        }
        positive("run_s", self.run_s)?;
        not_negative("dispatch_s", self.dispatch_s)?;
        not_negative("objects_per_task", self.objects_per_task)?;
        not_negative("object_bytes", self.object_bytes)?;
        self.arrivals_per_s.map_or(Ok(()), |arrivals| positive("arrivals_per_s", arrivals))?;
        if self.objects_per_task > 0.0 && self.objects == 0 {
            return Err(ModelError::NoObjects);
        }
        Ok(())
    }
}

impl Machine {
    /// |T|: slots of all nodes.
    #[must_use]
    pub fn resources(&self) -> u64 {
        self.nodes.saturating_mul(u64::from(self.slots_per_node))
    }

    /// Σ σ(τ): the caches of all nodes.
    #[must_use]
    pub fn all_caches_bytes(&self) -> f64 {
        self.nodes as f64 * self.cache_bytes
    }

    fn check(&self, reads: bool) -> Result<(), ModelError> {
        if self.resources() == 0 {
            return Err(ModelError::NoResources);
        }
        not_negative("cache_bytes", self.cache_bytes)?;
        if reads {
            positive("node_bytes_per_s", self.node_bytes_per_s)?;
            positive("store_bytes_per_s", self.store_bytes_per_s)?;
        }
        Ok(())
    }
}

fn positive(name: &'static str, value: f64) -> Result<(), ModelError> {
    let fits = value.is_finite() && value > 0.0;
    if fits { Ok(()) } else { Err(ModelError::NotPositive { name, value }) }
}

fn not_negative(name: &'static str, value: f64) -> Result<(), ModelError> {
    let fits = value.is_finite() && value >= 0.0;
    if fits { Ok(()) } else { Err(ModelError::Negative { name, value }) }
}

/// A workload on a machine: the model, ready to be asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Farm {
    workload: Workload,
    machine: Machine,
    hits: Hits,
    /// The shares were given, and do not follow from the machine.
    measured: bool,
    /// Copies go on beside other tasks.
    ahead: bool,
    copies: CopyTimes,
}

impl Farm {
    /// Puts a workload on a machine. Without measured `hits`, those that
    /// [`Workload::expected_hits`] gives are taken.
    ///
    /// # Errors
    /// Names the value that makes no sense.
    pub fn new(
        workload: Workload,
        machine: Machine,
        hits: Option<Hits>,
    ) -> Result<Farm, ModelError> {
        workload.check()?;
        machine.check(workload.objects_per_task > 0.0 && workload.object_bytes > 0.0)?;
        if let Some(hits) = hits {
            hits.check()?;
        }
        Ok(Farm::of(workload, machine, hits))
    }

    /// The same where objects are fetched ahead of the tasks that read them, so
    /// that no slot waits for a copy as long as copies keep up. The paper's
    /// executors copy what a task reads when they have it, in its slot; those
    /// of Falkon fetch for waiting tasks while others run.
    #[must_use]
    pub fn fetching_ahead(self) -> Farm {
        Farm { ahead: true, ..self }
    }

    fn of(workload: Workload, machine: Machine, measured: Option<Hits>) -> Farm {
        let hits = measured.unwrap_or_else(|| workload.expected_hits(&machine));
        let copies = CopyTimes::under_load(&workload, &machine, &hits);
        Farm { workload, machine, hits, measured: measured.is_some(), ahead: false, copies }
    }

    /// The workload.
    #[must_use]
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Where accesses find their object.
    #[must_use]
    pub fn hits(&self) -> &Hits {
        &self.hits
    }

    /// ζ(δ, τ) under the load of this workload.
    #[must_use]
    pub fn copies(&self) -> &CopyTimes {
        &self.copies
    }

    /// χ(κ) of a task whose objects are all cached: o(κ) + μ(κ).
    #[must_use]
    pub fn cost_cached_s(&self) -> f64 {
        self.workload.dispatch_s + self.workload.run_s
    }

    /// χ(κ) of a task whose objects are all copied from peers:
    /// o(κ) + μ(κ) + ζ(δ, τ) for each.
    #[must_use]
    pub fn cost_from_peers_s(&self) -> f64 {
        self.cost_cached_s() + self.workload.objects_per_task * self.copies.peer_s
    }

    /// χ(κ) of a task whose objects are all copied from the persistent store:
    /// o(κ) + μ(κ) + ζ(δ, τ) for each.
    #[must_use]
    pub fn cost_from_store_s(&self) -> f64 {
        self.cost_cached_s() + self.workload.objects_per_task * self.copies.store_s
    }

    /// V = max(B / |T|, 1 / A) × |K|: the workload execution time.
    #[must_use]
    pub fn execution_s(&self) -> f64 {
        self.workload_s(self.workload.average_execution_s())
    }

    /// Y: the average task execution time with overheads, the mean of χ(κ)
    /// over tasks that find their objects and tasks that do not. Where objects
    /// are fetched ahead, whatever has most to do sets the pace: the slots, the
    /// nodes' links, or the store.
    #[must_use]
    pub fn average_with_overhead_s(&self) -> f64 {
        if self.ahead {
            return self.cost_cached_s().max(self.copies_alone_s());
        }
        let copied = self.hits.peer * self.copies.peer_s + self.hits.store * self.copies.store_s;
        self.cost_cached_s() + self.workload.objects_per_task * copied
    }

    /// How often a slot gets the objects of a task if nothing else takes time:
    /// all slots of a node share its link, and all nodes the store.
    fn copies_alone_s(&self) -> f64 {
        let store = self.hits.store * self.task_bytes() * self.machine.nodes as f64;
        let over_store = match store > 0.0 {
            true => store / self.machine.store_bytes_per_s,
            false => 0.0,
        };
        self.over_link_s().max(over_store * f64::from(self.machine.slots_per_node))
    }

    /// The same for a store that takes no time.
    fn over_link_s(&self) -> f64 {
        let link = (self.hits.peer + self.hits.store) * self.task_bytes();
        match link > 0.0 {
            true => link / self.machine.node_bytes_per_s * f64::from(self.machine.slots_per_node),
            false => 0.0,
        }
    }

    /// Bytes that a task reads.
    fn task_bytes(&self) -> f64 {
        self.workload.objects_per_task * self.workload.object_bytes
    }

    /// W = max(Y / |T|, 1 / A) × |K|: the workload execution time with
    /// overheads. Where objects are fetched ahead and all tasks are there at
    /// once, the first accesses and the last tasks are counted too: see
    /// [`phases`].
    #[must_use]
    pub fn execution_with_overhead_s(&self) -> f64 {
        if self.ahead && self.workload.arrivals_per_s.is_none() {
            let tasks_s = self.workload_s(self.cost_cached_s().max(self.over_link_s()));
            return phases::execution_s(&self.workload, &self.machine, &self.hits, tasks_s);
        }
        self.workload_s(self.average_with_overhead_s())
    }

    fn workload_s(&self, task_s: f64) -> f64 {
        let each = task_s / self.machine.resources() as f64;
        each.max(self.workload.between_arrivals_s()) * self.workload.tasks as f64
    }

    /// E = V / W: the efficiency, above 0 and at most 1.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        self.execution_s() / self.execution_with_overhead_s()
    }

    /// S = E × |T|: the speedup.
    #[must_use]
    pub fn speedup(&self) -> f64 {
        self.efficiency() * self.machine.resources() as f64
    }

    /// Whether the caches together hold the working set, Σ σ(τ) ≥ |Ω|: else
    /// caching is not effective.
    #[must_use]
    pub fn caches_hold_working_set(&self) -> bool {
        self.machine.all_caches_bytes() >= self.workload.working_set_bytes()
    }

    /// Whether μ(κ) > o(κ) + ζ(δ, τ) for the dearest copy there is: then
    /// E > 0.5 whatever the hits.
    #[must_use]
    pub fn is_above_half(&self) -> bool {
        self.cost_from_store_s().max(self.cost_from_peers_s()) < 2.0 * self.workload.run_s
    }

    /// The smallest number of nodes that gets the most out of speedup ×
    /// efficiency; see [`Optimum`]. `nodes_max` is the largest number to look
    /// at, at most [`NODES_SEARCHED_MAX`].
    #[must_use]
    pub fn optimum(&self, nodes_max: u64) -> Optimum {
        Optimum::search(self, nodes_max)
    }

    /// The same workload on so many nodes.
    fn with_nodes(&self, nodes: u64) -> Farm {
        let machine = Machine { nodes, ..self.machine };
        let farm = Farm::of(self.workload, machine, self.measured.then_some(self.hits));
        Farm { ahead: self.ahead, ..farm }
    }
}
