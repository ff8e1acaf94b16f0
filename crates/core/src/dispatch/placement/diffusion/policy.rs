//! The policies, by name, and their options.

mod first_cache_available;
mod good_cache_compute;
mod max_cache_hit;
mod max_compute_util;
mod queue_aware;

use first_cache_available::FirstCacheAvailable;
use good_cache_compute::GoodCacheCompute;
use max_cache_hit::MaxCacheHit;
use max_compute_util::MaxComputeUtilization;
use queue_aware::QueueAware;
use std::fmt;

/// A dispatch policy's name (data-diffusion §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum PolicyName {
    /// The next free executor; no location information.
    #[default]
    FirstAvailable,
    /// The next free executor, with hints where the data is.
    FirstCacheAvailable,
    /// The executors that hold most of the data; if they are busy, wait.
    MaxCacheHit,
    /// A free executor always; of those, the one that holds most of the data.
    MaxComputeUtil,
    /// `MaxCacheHit` while the executors are busy enough, else
    /// `MaxComputeUtil`, within a number of replicas.
    GoodCacheCompute,
    /// The whole queue decides which data is fetched, where tasks run and what
    /// is evicted.
    QueueAware,
}

/// All policies with the names they are chosen by.
pub const POLICIES: [(PolicyName, &str); 6] = [
    (PolicyName::FirstAvailable, "first-available"),
    (PolicyName::FirstCacheAvailable, "first-cache-available"),
    (PolicyName::MaxCacheHit, "max-cache-hit"),
    (PolicyName::MaxComputeUtil, "max-compute-util"),
    (PolicyName::GoodCacheCompute, "good-cache-compute"),
    (PolicyName::QueueAware, "queue-aware"),
];

impl PolicyName {
    /// The policy called `name`.
    pub fn named(name: &str) -> Result<PolicyName, PolicyError> {
        let found = POLICIES.iter().find(|(_, known)| *known == name);
        found.map(|(policy, _)| *policy).ok_or_else(|| PolicyError::Unknown(name.to_owned()))
    }

    /// Whether tasks wait in a [`super::Waiting`]; `first-available` needs none.
    #[must_use]
    pub fn knows_places(self) -> bool {
        self != PolicyName::FirstAvailable
    }
}

impl PolicyName {
    /// Whether tasks may wait for executors that hold their data, though others are free.
    #[must_use]
    pub fn waits_for_places(self) -> bool {
        use PolicyName::{GoodCacheCompute, MaxCacheHit, QueueAware};
        matches!(self, MaxCacheHit | GoodCacheCompute | QueueAware)
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = POLICIES.iter().find(|(policy, _)| policy == self);
        f.write_str(found.map_or("", |(_, name)| name))
    }
}

/// How an instance's tasks are dispatched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyOptions {
    /// The policy.
    pub policy: PolicyName,
    /// How many tasks from the head of the queue are considered; 0: all.
    pub window: u64,
    /// `good-cache-compute`: the part of the executors, in thousandths, that
    /// must be busy for tasks to wait for the executors that hold their data.
    pub utilization_threshold_milli: u32,
    /// `good-cache-compute` and `queue-aware`: how many executors may hold an
    /// object before it is fetched by no other; 0: any number.
    pub replication_max: u32,
}

impl Default for PolicyOptions {
    fn default() -> PolicyOptions {
        PolicyOptions {
            policy: PolicyName::default(),
            window: 0,
            utilization_threshold_milli: UTILIZATION_THRESHOLD_MILLI,
            replication_max: 0,
        }
    }
}

/// "A value of 90 % works well in practice" (data-diffusion §3.2).
const UTILIZATION_THRESHOLD_MILLI: u32 = 900;

impl PolicyOptions {
    /// On how many executors an object may be that is brought there ahead of tasks:
    /// on none that tasks have not asked for, where tasks wait for the executors that
    /// hold their data.
    #[must_use]
    pub fn copies_max(&self) -> u64 {
        match (self.policy, self.replication_max) {
            (PolicyName::FirstAvailable | PolicyName::MaxCacheHit, _) => 0,
            (_, 0) => u64::MAX,
            (_, most) => u64::from(most),
        }
    }

    /// Whether the options make sense with the policy: what would be ignored
    /// is refused.
    pub fn check(&self) -> Result<(), PolicyError> {
        let default = PolicyOptions::default();
        let policy = self.policy;
        let refuse = |option| Err(PolicyError::NotWith { option, policy });
        if self.utilization_threshold_milli > 1000 {
            return Err(PolicyError::Threshold { milli: self.utilization_threshold_milli });
        }
        if self.window != 0
            && matches!(
                policy,
                PolicyName::FirstAvailable
                    | PolicyName::FirstCacheAvailable
                    | PolicyName::QueueAware
            )
        {
            return refuse(PolicyOption::Window);
        }
        if self.utilization_threshold_milli != default.utilization_threshold_milli
            && policy != PolicyName::GoodCacheCompute
        {
            return refuse(PolicyOption::UtilizationThreshold);
        }
        if self.replication_max != 0
            && !matches!(policy, PolicyName::GoodCacheCompute | PolicyName::QueueAware)
        {
            return refuse(PolicyOption::ReplicationMax);
        }
        Ok(())
    }
}

/// An option that not every policy looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyOption {
    /// [`PolicyOptions::window`].
    Window,
    /// [`PolicyOptions::utilization_threshold_milli`].
    UtilizationThreshold,
    /// [`PolicyOptions::replication_max`].
    ReplicationMax,
}

impl fmt::Display for PolicyOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PolicyOption::Window => "window",
            PolicyOption::UtilizationThreshold => "utilization_threshold",
            PolicyOption::ReplicationMax => "replication_max",
        })
    }
}

/// Why a policy's name or options are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No policy has this name.
    #[error(
        "there is no dispatch policy `{0}`: choose one of {known}",
        known = POLICIES.map(|(_, name)| name).join(", ")
    )]
    Unknown(String),
    /// The utilization threshold is above 1.
    #[error(
        "the utilization threshold {} is above 1: give the part of the executors that must be \
         busy, from 0 to 1",
        f64::from(*.milli) / 1000.0
    )]
    Threshold {
        /// The threshold in thousandths.
        milli: u32,
    },
    /// The policy does not look at this option.
    #[error(
        "the dispatch policy {policy} does not look at {option}: leave the option out, or choose a \
         policy that does"
    )]
    NotWith {
        /// The option.
        option: PolicyOption,
        /// The policy.
        policy: PolicyName,
    },
}

/// How busy the executors are: `busy` of `executors` run something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Executors that run at least one task.
    pub busy: u64,
    /// Executors that are registered.
    pub executors: u64,
}

/// The tasks that an executor may get that holds nothing of what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// The head of the queue.
    Head,
    /// The first tasks none of whose inputs has as many holders as this.
    HeldByFewerThan(u32),
    /// Nothing.
    Nothing,
}

/// The questions in whose answers policies differ.
pub(super) trait Policy: fmt::Debug {
    /// Whether it looks at who holds what.
    fn looks(&self) -> bool {
        true
    }

    /// Whether a task may go where only a part of its inputs is.
    fn takes_parts(&self) -> bool {
        true
    }

    /// The tasks that an executor may get that holds nothing of what waits.
    fn rest(&self, load: Load) -> Rest;

    /// The limits that [`Policy::rest`] may name, lowest first: an index is
    /// kept for each.
    fn limits(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Whether data is fetched before the tasks that need it are sent, and a
    /// file's tasks run together.
    fn fetches_ahead(&self) -> bool {
        false
    }
}

/// The policy that the options name; `first-available` knows no places and is
/// treated as `first-cache-available`.
pub(super) fn policy(options: &PolicyOptions) -> Box<dyn Policy + Send + Sync> {
    match options.policy {
        PolicyName::FirstAvailable | PolicyName::FirstCacheAvailable => {
            Box::new(FirstCacheAvailable)
        }
        PolicyName::MaxCacheHit => Box::new(MaxCacheHit),
        PolicyName::MaxComputeUtil => Box::new(MaxComputeUtilization),
        PolicyName::GoodCacheCompute => Box::new(GoodCacheCompute {
            threshold_milli: options.utilization_threshold_milli,
            replication_max: options.replication_max,
        }),
        PolicyName::QueueAware => Box::new(QueueAware),
    }
}
