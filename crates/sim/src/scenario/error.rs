//! Why a scenario makes no sense.

use crate::time::Nanos;
use falkon_core::dispatch::diffusion::{PolicyName, PolicyOptions};
use std::fmt;

/// Why a scenario makes no sense.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScenarioError {
    /// There are no nodes, or too many.
    Nodes {
        /// How many.
        found: u64,
        /// How many there may be.
        most: u64,
    },
    /// There are no dispatchers, or more than nodes.
    Dispatchers {
        /// How many.
        found: u32,
        /// How many nodes there are.
        nodes: u64,
    },
    /// A node has no slots, or too many.
    Slots {
        /// How many.
        found: u32,
        /// How many there may be.
        most: u32,
    },
    /// There are too few tasks, or too many.
    Tasks {
        /// How many.
        found: u64,
        /// One for each dispatcher.
        least: u64,
        /// How many there may be.
        most: u64,
    },
    /// The shortest run is longer than the longest.
    Durations {
        /// The shortest.
        least: Nanos,
        /// The longest.
        most: Nanos,
    },
    /// A value must be above 0.
    NotPositive {
        /// The name.
        name: &'static str,
        /// What it is.
        value: f64,
    },
    /// A share must be between 0 and 1.
    Share {
        /// The name.
        name: &'static str,
        /// What it is.
        value: f64,
    },
    /// Faults without a time between them.
    FaultsAtOnce,
    /// Stages that are empty, are not all the tasks, or have several
    /// dispatchers.
    Stages,
    /// Nodes on demand of several groups, or for several dispatchers.
    Provisioned,
    /// What the provisioner is told of its queue makes no sense.
    Queue,
    /// There are no objects to read, or too many.
    Objects {
        /// How many.
        found: u64,
        /// How many there may be.
        most: u64,
    },
    /// Builtins read nothing.
    InputsOfBuiltin,
    /// A pair is of two.
    Pairs(u32),
    /// Some nodes have caches, and some have not.
    SomeCaches,
    /// The options of the dispatch policy do not go together.
    Policy(PolicyOptions),
    /// The dispatch policy looks at where data is, and there is none in
    /// caches.
    PolicyWithoutData(PolicyName),
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScenarioError::Nodes { found, most } => {
                write!(f, "the scenario has {found} nodes: give from 1 to {most}")
            }
            ScenarioError::Dispatchers { found, nodes } => write!(
                f,
                "the scenario has {found} dispatchers for {nodes} nodes: give at least 1, and a \
                 node for each"
            ),
            ScenarioError::Slots { found, most } => {
                write!(f, "a node has {found} slots: give from 1 to {most}")
            }
            ScenarioError::Tasks { found, least, most } => {
                write!(f, "the workload has {found} tasks: give from {least} to {most}")
            }
            ScenarioError::Durations { least, most } => write!(
                f,
                "tasks run from {} s to {} s: give the shorter time first",
                least.seconds(),
                most.seconds()
            ),
            ScenarioError::NotPositive { name, value } => {
                write!(f, "{name} is {value}: give a number above 0")
            }
            ScenarioError::Share { name, value } => {
                write!(f, "{name} is {value}: give a number from 0 to 1")
            }
            ScenarioError::Objects { found, most } => {
                write!(f, "tasks read from {found} objects: give from 1 to {most}")
            }
            ScenarioError::InputsOfBuiltin => {
                write!(f, "only tasks of the kind `compute` have inputs")
            }
            ScenarioError::Pairs(found) => {
                write!(f, "tasks that read pairs read {found} objects: let each read 2")
            }
            ScenarioError::SomeCaches => write!(
                f,
                "some nodes have a cache and some have none, where tasks with inputs could not \
                 run: give all of them one, or none"
            ),
            ScenarioError::Policy(options) => match options.check() {
                Err(error) => write!(f, "{error}"),
                Ok(()) => write!(f, "the dispatch policy {} is not to be had", options.policy),
            },
            ScenarioError::PolicyWithoutData(policy) => write!(
                f,
                "the dispatch policy {policy} goes by what is in caches: let tasks read, and \
                 give the nodes caches"
            ),
            ScenarioError::Stages => write!(
                f,
                "stages are for one dispatcher, have at least a task each, and are all the tasks"
            ),
            ScenarioError::Provisioned => write!(
                f,
                "nodes that are acquired on demand are of one group, and for one dispatcher"
            ),
            ScenarioError::Queue => {
                write!(f, "what the provisioner is told of its queue makes no sense")
            }
            ScenarioError::FaultsAtOnce => {
                write!(f, "the time between two faults is 0: leave it out if there are none")
            }
        }
    }
}

impl std::error::Error for ScenarioError {}
