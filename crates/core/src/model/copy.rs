//! Copy times under load: ζ, η and ω (data-diffusion §4.1).
//!
//! The paper asks of η only that it be ν without load and less with it. Here
//! transfers share a bandwidth fairly, η(ν, ω) = ν / (1 + ω), where ω counts
//! the *other* transfers under way.
//!
//! The load itself follows from the workload. With n slots that each copy from
//! the store for f × ζ of every Y seconds, a transfer meets
//! ω = (n − 1) × f × ζ / Y others, and ζ = (1 + ω) × b where b is the time of
//! a transfer that is alone. That is the approximate mean value analysis of a
//! closed network (Schweitzer 1979), and a quadratic equation in ζ. If tasks
//! arrive at a rate A, no more than A × Y slots are in use, and for one store
//! this gives ζ = b / (1 − A × f × b) (processor sharing), as long as the store
//! keeps up. The smaller of the two holds.

use super::{Hits, Machine, Workload};

/// η(ν, ω): the bandwidth that one transfer gets beside `load` others.
#[must_use]
pub fn available_bytes_per_s(ideal_bytes_per_s: f64, load: f64) -> f64 {
    ideal_bytes_per_s / (1.0 + load)
}

/// ζ(δ, τ): the time to copy `bytes` between two ends with these available
/// bandwidths, β(δ) / min(η₁, η₂). (The paper prints the fraction upside
/// down.)
#[must_use]
pub fn copy_s(bytes: f64, from_bytes_per_s: f64, to_bytes_per_s: f64) -> f64 {
    if bytes <= 0.0 {
        return 0.0;
    }
    bytes / from_bytes_per_s.min(to_bytes_per_s)
}

/// How long one object takes, under the load of a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CopyTimes {
    /// ζ from another node's cache.
    pub peer_s: f64,
    /// ζ from the persistent store.
    pub store_s: f64,
    /// ω(π): mean number of transfers from the persistent store under way.
    pub store_load: f64,
}

impl CopyTimes {
    /// The copy times of a workload on a machine.
    pub(super) fn under_load(workload: &Workload, machine: &Machine, hits: &Hits) -> CopyTimes {
        let bytes = workload.object_bytes;
        if bytes <= 0.0 || workload.objects_per_task <= 0.0 {
            return CopyTimes { peer_s: 0.0, store_s: 0.0, store_load: 0.0 };
        }
        let busy_s = workload.run_s + workload.dispatch_s;
        let from_peers = workload.objects_per_task * hits.peer;
        let from_store = workload.objects_per_task * hits.store;
        // Both ends of a transfer between nodes are links; one is as loaded as
        // the other on average.
        let over_link = Shared {
            alone_s: copy_s(bytes, machine.node_bytes_per_s, machine.node_bytes_per_s),
            slots: f64::from(machine.slots_per_node),
            per_task: from_peers + from_store,
            other_s: busy_s,
            arrivals_per_s: workload.arrivals_per_s.map(|all| all / machine.nodes as f64),
        };
        let peer_s = over_link.copy_s();
        let from_all = Shared {
            alone_s: copy_s(bytes, machine.store_bytes_per_s, machine.store_bytes_per_s),
            slots: machine.resources() as f64,
            per_task: from_store,
            other_s: busy_s + from_peers * peer_s,
            arrivals_per_s: workload.arrivals_per_s,
        };
        let store_s = from_all.copy_s().max(peer_s);
        let task_s = busy_s + from_peers * peer_s + from_store * store_s;
        let slots = machine.resources() as f64;
        let busy = workload.arrivals_per_s.map_or(slots, |all| slots.min(all * task_s));
        CopyTimes { peer_s, store_s, store_load: busy * from_store * store_s / task_s }
    }
}

/// A bandwidth and those who share it.
struct Shared {
    /// b: the time of a transfer that is alone.
    alone_s: f64,
    /// n: slots that may copy at once.
    slots: f64,
    /// f: transfers per task.
    per_task: f64,
    /// What else a task takes.
    other_s: f64,
    /// A, if tasks do not come all at once.
    arrivals_per_s: Option<f64>,
}

impl Shared {
    /// ζ under its own load.
    fn copy_s(&self) -> f64 {
        if self.per_task <= 0.0 {
            return self.alone_s;
        }
        // f ζ² + (Y₀ − b n f) ζ − b Y₀ = 0, where Y₀ is what else a task takes.
        let (b, f) = (self.alone_s, self.per_task);
        let half = (b * self.slots * f - self.other_s) / (2.0 * f);
        let closed = half + (half * half + b * self.other_s / f).sqrt();
        let used = self.arrivals_per_s.map_or(f64::INFINITY, |arrivals| arrivals * f * b);
        let open = if used < 1.0 { b / (1.0 - used) } else { f64::INFINITY };
        closed.min(open)
    }
}
