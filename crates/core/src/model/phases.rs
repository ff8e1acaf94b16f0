//! How a workload begins and ends where objects are fetched ahead of tasks.
//!
//! The paper's W is an average times |K|, as if all went on from the first
//! moment as it does in the middle. But caches are empty at first: all nodes
//! copy at once what their first tasks read, and no slot has anything to do
//! before that has come. After that each node has several copies under way,
//! which share the store and therefore come together; and when the last have
//! come, the tasks that read them are still to run. So copies and tasks are a
//! pipeline of two stages with rounds, the first of an object for each node,
//! the others of [`AHEAD_OBJECTS_MAX`] for each:
//!
//! - a round takes ζ = β / min(η(ν(π), ω), η(ν(τ), ω)) (data-diffusion §4.1),
//!   its own transfers being the load ω;
//! - its objects let so many tasks run as read each of them, at the pace of
//!   the slots or of the nodes' links, whichever is slower;
//! - W is the longest way through: all tasks behind the first round, behind
//!   the first two, or the last round's tasks behind all copies. (Rounds in
//!   between are alike, so that no other way is longer.)

use super::copy::{available_bytes_per_s, copy_s};
use super::{Hits, Machine, Workload};
use crate::limits::{AHEAD_OBJECTS_MAX, PEER_SECOND_BYTES, READ_MICROS};

/// W of a workload whose tasks are all there at once and whose nodes begin
/// with empty caches. `tasks_s` is how long its tasks take when all objects are
/// there, but for what crosses the nodes' links.
pub(super) fn execution_s(
    workload: &Workload,
    machine: &Machine,
    hits: &Hits,
    tasks_s: f64,
) -> f64 {
    let reads = workload.tasks as f64 * workload.objects_per_task * hits.store;
    let bytes = workload.object_bytes;
    if reads <= 0.0 || bytes <= 0.0 {
        return tasks_s;
    }
    let nodes = machine.nodes as f64;
    let round_s = |objects: f64| {
        let others = |objects: f64| (objects - 1.0).max(0.0);
        let store = available_bytes_per_s(machine.store_bytes_per_s, others(objects));
        let link = available_bytes_per_s(machine.node_bytes_per_s, others(objects / nodes));
        // Less than one object is a chance of one.
        copy_s(bytes, store, link) * objects.min(1.0)
    };
    let first = reads.min(nodes);
    let next = (reads - first).min(nodes * reads_at_once(bytes));
    let tasks_of = |objects: f64| tasks_s * objects / reads;
    let behind_first = round_s(first) + tasks_s;
    let behind_second = round_s(first) + round_s(next) + tasks_s - tasks_of(first);
    let last = if next > 0.0 { next } else { first };
    let behind_all = reads * bytes / machine.store_bytes_per_s + tasks_of(last);
    behind_first.max(behind_second).max(behind_all)
}

/// Objects of this size that an executor reads from the store at a time.
fn reads_at_once(bytes: f64) -> f64 {
    let meanwhile = PEER_SECOND_BYTES as f64 * READ_MICROS as f64 / 1e6;
    (1.0 + (meanwhile / bytes).floor()).min(AHEAD_OBJECTS_MAX as f64)
}
