//! Why a scenario makes no sense.

use crate::time::Nanos;
use falkon_core::dispatch::diffusion::{PolicyName, PolicyOptions};
use std::fmt;

/// Why a scenario makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// There are no nodes, or too many.
    #[error("the scenario has {found} nodes: give from 1 to {most}")]
    Nodes {
        /// How many.
        found: u64,
        /// How many there may be.
        most: u64,
    },
    /// There are no dispatchers, or more than nodes.
    #[error(
        "the scenario has {found} dispatchers for {nodes} nodes: give at least 1, and a node for \
         each"
    )]
    Dispatchers {
        /// How many.
        found: u32,
        /// How many nodes there are.
        nodes: u64,
    },
    /// There are fewer relays than dispatchers, or more than nodes.
    #[error(
        "the scenario has {found} relays: give at least one for each dispatcher, and a node for \
         each"
    )]
    Relays {
        /// How many.
        found: u32,
    },
    /// There is no tier of relays, or too many.
    #[error("relays are in {found} tiers: give from 1 to {most}")]
    RelayDepth {
        /// How many.
        found: u32,
        /// How many there may be.
        most: u32,
    },
    /// What relays do not pass on, or do not get.
    #[error(
        "simulated relays have nodes that are there by themselves, whose tasks read and write no \
         data objects"
    )]
    RelaysAlone,
    /// A node has no slots, or too many.
    #[error("a node has {found} slots: give from 1 to {most}")]
    Slots {
        /// How many.
        found: u32,
        /// How many there may be.
        most: u32,
    },
    /// There are too few tasks, or too many.
    #[error("the workload has {found} tasks: give from {least} to {most}")]
    Tasks {
        /// How many.
        found: u64,
        /// One for each dispatcher.
        least: u64,
        /// How many there may be.
        most: u64,
    },
    /// There are other tasks than the record has, or stages, which a record has none of.
    #[error("the workload has {tasks} tasks, and its record has {found}: give as many, no stages")]
    Recorded {
        /// How many the record has.
        found: u64,
        /// How many there are.
        tasks: u64,
    },
    /// A record of what tasks wait for, read and write does not fit.
    #[error(
        "recorded tasks wait for later ones, use objects that are not there, or have several \
         dispatchers or inputs besides: give a record that has all of it, for one dispatcher"
    )]
    Needs,
    /// The shortest run is longer than the longest.
    #[error(
        "tasks run from {} s to {} s: give the shorter time first",
        .least.seconds(),
        .most.seconds()
    )]
    Durations {
        /// The shortest.
        least: Nanos,
        /// The longest.
        most: Nanos,
    },
    /// A value must be above 0.
    #[error("{name} is {value}: give a number above 0")]
    NotPositive {
        /// The name.
        name: &'static str,
        /// The value given.
        value: f64,
    },
    /// A share must be between 0 and 1.
    #[error("{name} is {value}: give a number from 0 to 1")]
    Share {
        /// The name.
        name: &'static str,
        /// The value given.
        value: f64,
    },
    /// Faults without a time between them.
    #[error("the time between two faults is 0: leave it out if there are none")]
    FaultsAtOnce,
    /// Stages that are empty, are not all the tasks, or have several
    /// dispatchers.
    #[error("stages are for one dispatcher, have at least a task each, and are all the tasks")]
    Stages,
    /// Nodes on demand of several groups, or for several dispatchers.
    #[error("nodes that are acquired on demand are of one group, and for one dispatcher")]
    Provisioned,
    /// The settings of the provisioner's queue contradict each other.
    #[error(
        "the settings of [provision] contradict each other: see its fields in docs/scenarios.md"
    )]
    Queue,
    /// There are no objects to read, or too many.
    #[error("tasks read from {found} objects: give from 1 to {most}")]
    Objects {
        /// How many.
        found: u64,
        /// How many there may be.
        most: u64,
    },
    /// Builtins read nothing.
    #[error("only tasks of the kind `compute` have inputs")]
    InputsOfBuiltin,
    /// A pair is of two.
    #[error("tasks that read pairs read {0} objects: let each read 2")]
    Pairs(u32),
    /// Some nodes have caches, and some have not.
    #[error(
        "some nodes have a cache and some have none, where tasks with inputs could not run: give \
         all of them one, or none"
    )]
    SomeCaches,
    /// Archives are to be unpacked, and no node has a cache.
    #[error("inputs are unpacked in caches, and no node has one: give nodes a cache")]
    UnpackedNowhere,
    /// Builtins write nothing, and outputs are staged beside caches.
    #[error("only tasks of the kind `compute` have outputs, on nodes with a cache")]
    OutputsNowhere,
    /// The options of the dispatch policy do not go together.
    #[error(fmt = write_policy)]
    Policy(PolicyOptions),
    /// The dispatch policy looks at where data is, and there is none in
    /// caches.
    #[error(
        "the dispatch policy {0} goes by what is in caches: let tasks read, and give the nodes \
         caches"
    )]
    PolicyWithoutData(PolicyName),
}

fn write_policy(options: &PolicyOptions, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match options.check() {
        Err(error) => write!(f, "{error}"),
        Ok(()) => write!(f, "the dispatch policy {} is not available", options.policy),
    }
}
