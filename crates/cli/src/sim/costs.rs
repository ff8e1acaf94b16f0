//! The fields of a scenario file about what messages, bytes and decisions cost,
//! with what was measured for them.

use super::fields::nanos;
use crate::amount::{Amount, Rate, Size, Time};
use falkon_sim::{ClientCosts, DispatcherCosts, ExecutorCosts, Nanos, PolicyName};
use serde::Deserialize;

/// Bytes of messages that each takes in or sends in a second of processor time,
/// encrypted (`bench/bytes.py`).
const DISPATCHER_BYTES_PER_S: f64 = 700e6;
const EXECUTOR_BYTES_PER_S: f64 = 2.3e9;
const CLIENT_BYTES_PER_S: f64 = 525e6;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DispatcherFields {
    pub(super) count: u32,
    message: Amount<Time>,
    entry: Amount<Time>,
    decision: Option<Amount<Time>>,
    bytes_per_second: Amount<Rate>,
    pub(super) results: Option<Amount<Size>>,
}

impl Default for DispatcherFields {
    fn default() -> Self {
        DispatcherFields {
            count: 1,
            message: Amount::of(7e-6),
            entry: Amount::of(1e-6),
            decision: None,
            bytes_per_second: Amount::of(DISPATCHER_BYTES_PER_S),
            results: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ExecutorFields {
    message: Amount<Time>,
    start: Amount<Time>,
    bytes_per_second: Amount<Rate>,
}

impl Default for ExecutorFields {
    fn default() -> Self {
        ExecutorFields {
            message: Amount::of(10e-6),
            start: Amount::of(600e-6),
            bytes_per_second: Amount::of(EXECUTOR_BYTES_PER_S),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ClientFields {
    message: Amount<Time>,
    entry: Amount<Time>,
    bundle: Amount<Time>,
    bytes_per_second: Amount<Rate>,
}

impl Default for ClientFields {
    fn default() -> Self {
        ClientFields {
            message: Amount::of(7e-6),
            entry: Amount::of(0.25e-6),
            bundle: Amount::of(0.05),
            bytes_per_second: Amount::of(CLIENT_BYTES_PER_S),
        }
    }
}

impl DispatcherFields {
    /// The costs under a policy, of tasks that read `inputs` inputs.
    pub(super) fn costs(&self, policy: PolicyName, inputs: u32) -> DispatcherCosts {
        DispatcherCosts {
            message: nanos(self.message),
            entry: nanos(self.entry),
            decision: self.decision.map_or_else(|| decision_of(policy, inputs), nanos),
            bytes_per_s: self.bytes_per_second.value,
        }
    }
}

impl ExecutorFields {
    pub(super) fn costs(&self) -> ExecutorCosts {
        ExecutorCosts {
            message: nanos(self.message),
            start: nanos(self.start),
            bytes_per_s: self.bytes_per_second.value,
        }
    }
}

impl ClientFields {
    pub(super) fn costs(&self) -> ClientCosts {
        ClientCosts {
            message: nanos(self.message),
            entry: nanos(self.entry),
            bundle: nanos(self.bundle),
            bytes_per_s: self.bytes_per_second.value,
        }
    }
}

/// The time of a decision by `falkon-lab bench policies --several`, the slowest of
/// several runs, machines and windows: queueing the task, choosing its node, and
/// what changes in the index; of tasks that read one file, or two. What is placed
/// by who is free is part of `entry`.
fn decision_of(policy: PolicyName, inputs: u32) -> Nanos {
    let (one, more) = match policy {
        PolicyName::FirstAvailable => (0, 0),
        PolicyName::FirstCacheAvailable => (750, 750),
        PolicyName::MaxCacheHit => (1_500, 4_800),
        PolicyName::MaxComputeUtil => (1_600, 4_800),
        PolicyName::GoodCacheCompute => (1_600, 4_400),
        PolicyName::QueueAware => (1_500, 4_900),
    };
    Nanos(if inputs > 1 { more } else { one })
}
