//! Why a workload and a machine make no model.

/// A value that makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// The workload has no tasks.
    #[error("the workload has no tasks: give at least 1")]
    NoTasks,
    /// The machine has no slots.
    #[error("the machine has no slots: give at least 1 node with 1 slot")]
    NoResources,
    /// Tasks read objects, but there are none.
    #[error("tasks read objects, but the workload has none: give at least 1")]
    NoObjects,
    /// A value must be above 0.
    #[error("{name} is {value}: give a number above 0")]
    NotPositive {
        /// The name.
        name: &'static str,
        /// The value given.
        value: f64,
    },
    /// A value must be 0 or above.
    #[error("{name} is {value}: give 0 or a number above it")]
    Negative {
        /// The name.
        name: &'static str,
        /// The value given.
        value: f64,
    },
    /// A share of accesses must be between 0 and 1.
    #[error("the share of {name} hits is {value}: give a number from 0 to 1")]
    Share {
        /// The name.
        name: &'static str,
        /// The value given.
        value: f64,
    },
    /// The shares of accesses do not add up to 1.
    #[error("the shares of hits add up to {sum}: they must add up to 1")]
    Shares {
        /// What they add up to.
        sum: f64,
    },
}
