//! How an instance behaves, as its client chose it.

use super::diffusion::PolicyOptions;

/// How an instance behaves; chosen when it is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceOptions {
    /// For people.
    pub name: String,
    /// Results stay after they were acknowledged, until the instance is
    /// destroyed; otherwise acknowledged results are forgotten.
    pub keep_results: bool,
    /// A task whose need no executor has offered for so many microseconds
    /// fails, unless a provisioner can get one that does; `None`: it waits.
    pub fail_unschedulable_micros: Option<u64>,
    /// When a task has failed for good, all others are cancelled.
    pub fail_fast: bool,
    /// Which tasks go to which executors.
    pub policy: PolicyOptions,
    /// It is destroyed, with what it queues and runs, when no connection has
    /// been its client's for so many microseconds; `None`: it stays.
    pub lease_micros: Option<u64>,
    /// How long it stays when its tasks have ended and nobody looks at it.
    pub keep: Keep,
    /// Long output of results that are forgotten, and what tasks write to caches alone, stay
    /// with their executors until they are released: whoever has passed the results on knows
    /// who reads them later.
    pub keep_output: bool,
}

/// How long an instance stays from the last look at it on, once all of its
/// tasks have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// As the dispatcher was told for all.
    #[default]
    AsDispatcher,
    /// Until a client destroys it.
    Forever,
    /// A number of microseconds.
    Micros(u64),
}

impl Default for InstanceOptions {
    fn default() -> Self {
        InstanceOptions {
            name: String::new(),
            keep_results: true,
            fail_unschedulable_micros: None,
            fail_fast: false,
            policy: PolicyOptions::default(),
            lease_micros: None,
            keep: Keep::AsDispatcher,
            keep_output: false,
        }
    }
}
