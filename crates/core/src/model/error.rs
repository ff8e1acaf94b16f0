//! Why a workload and a machine make no model.

use std::fmt;

/// A value that makes no sense.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ModelError {
    /// The workload has no tasks.
    NoTasks,
    /// The machine has no slots.
    NoResources,
    /// Tasks read objects, but there are none.
    NoObjects,
    /// A value must be above 0.
    NotPositive {
        /// The name.
        name: &'static str,
        /// What it is.
        value: f64,
    },
    /// A value must be 0 or above.
    Negative {
        /// The name.
        name: &'static str,
        /// What it is.
        value: f64,
    },
    /// A share of accesses must be between 0 and 1.
    Share {
        /// The name.
        name: &'static str,
        /// What it is.
        value: f64,
    },
    /// The shares of accesses do not add up to 1.
    Shares {
        /// What they add up to.
        sum: f64,
    },
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelError::NoTasks => write!(f, "the workload has no tasks: give at least 1"),
            ModelError::NoResources => {
                write!(f, "the machine has no slots: give at least 1 node with 1 slot")
            }
            ModelError::NoObjects => {
                write!(f, "tasks read objects, but the workload has none: give at least 1")
            }
            ModelError::NotPositive { name, value } => {
                write!(f, "{name} is {value}: give a number above 0")
            }
            ModelError::Negative { name, value } => {
                write!(f, "{name} is {value}: give 0 or a number above it")
            }
            ModelError::Share { name, value } => {
                write!(f, "the share of {name} hits is {value}: give a number from 0 to 1")
            }
            ModelError::Shares { sum } => {
                write!(f, "the shares of hits add up to {sum}: they must add up to 1")
            }
        }
    }
}

impl std::error::Error for ModelError {}
