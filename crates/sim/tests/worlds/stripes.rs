//! Objects that are too large for the nodes' caches: they lie in the room that nodes
//! lend, are read there from several at once, and from the store about once, whoever
//! dies or hangs meanwhile.

use crate::{machine, nodes, outcome, over_seeds, seconds};
use falkon_sim::{
    Arrivals, Choice, Durations, Eviction, Figures, Inputs, NodeCache, NodeGroup, PolicyName,
    PolicyOptions, Scenario, TaskKind,
};

/// A node's own cache, in which no object here has room.
const CACHE_BYTES: u64 = 10_000_000;

fn lending(count: u64, bytes: u64) -> NodeGroup {
    let cache = NodeCache { bytes: CACHE_BYTES, lend: bytes, eviction: Eviction::Lru };
    nodes(count, 1, Some(cache))
}

/// Tasks that read objects which are too large for the caches of these nodes.
fn readers(nodes: Vec<NodeGroup>, tasks: u64, objects: u64, object_bytes: u64) -> Scenario {
    let mut scenario = Scenario { nodes, limit: seconds(1000.0), ..machine() };
    scenario.network.node_bytes_per_s = 125e6;
    scenario.network.dispatcher_bytes_per_s = 1.25e9;
    scenario.store.bytes_per_s = 550e6;
    let workload = &mut scenario.workload;
    (workload.tasks, workload.kind) = (tasks, TaskKind::Compute);
    workload.run = Durations::Fixed(seconds(0.01));
    workload.arrivals = Arrivals::AtOnce;
    let (per_task, choice) = (1, Choice::Cyclic);
    workload.inputs = Some(Inputs { objects, object_bytes, per_task, choice, unpack: None });
    let policy = PolicyName::MaxComputeUtil;
    workload.policy = PolicyOptions { policy, ..PolicyOptions::default() };
    scenario
}

/// How often the store gives each byte.
fn reads(figures: &Figures, bytes: u64) -> f64 {
    figures.store.bytes as f64 / bytes as f64
}

#[test]
fn an_object_too_large_for_every_cache_is_read_once_from_the_store() {
    let object_bytes = 100_000_000;
    for (count, tasks) in [(4, 1), (8, 8), (20, 40)] {
        let scenario = readers(vec![lending(count, 250_000_000)], tasks, 1, object_bytes);
        let figures = outcome(&scenario, 1);
        assert_eq!(figures.failed, 0, "{count} nodes");
        let read = reads(&figures, object_bytes);
        assert!(read < 1.01, "{count} nodes: the store is read {read} times");
    }
}

#[test]
fn without_lenders_it_is_refused_as_before() {
    let figures = outcome(&readers(vec![lending(4, 0)], 2, 1, 400_000_000), 1);
    assert_eq!((figures.done, figures.failed), (0, 2));
}

#[test]
fn objects_give_way_to_others_when_the_lent_room_is_full() {
    let object_bytes = 60_000_000;
    let mut scenario = readers(vec![lending(3, 130_000_000)], 30, 8, object_bytes);
    scenario.check_all = true;
    let figures = outcome(&scenario, 1);
    assert_eq!(figures.failed, 0);
}

#[test]
fn lenders_that_die_and_hang_cost_a_moment() {
    let object_bytes = 100_000_000;
    let (read, seeds) = over_seeds(4, |seed| {
        let mut scenario = readers(vec![lending(8, 450_000_000)], 30, 2, object_bytes);
        scenario.faults = crate::broadcasts::troubles(5.0);
        scenario.check_all = true;
        let figures = outcome(&scenario, seed);
        assert_eq!(figures.failed, 0, "seed {seed}");
        (reads(&figures, 2 * object_bytes) * 100.0) as u64
    });
    let mean = read as f64 / seeds as f64 / 100.0;
    assert!(mean < 4.0, "the store is read {mean} times in the mean");
}

#[test]
fn copies_of_stripes_spare_the_store_when_lenders_die() {
    let object_bytes = 100_000_000;
    let group = lending(10, 250_000_000);
    // The second dies when what the first had is copied.
    let dying = [100.0, 400.0].map(|at| NodeGroup { count: 1, until: Some(seconds(at)), ..group });
    let (read, seeds) = over_seeds(2, |seed| {
        let nodes = [group].into_iter().chain(dying).collect();
        let mut scenario = readers(nodes, 60, 1, object_bytes);
        scenario.workload.arrivals = Arrivals::Rate(0.1);
        scenario.workload.replicas = 2;
        scenario.check_all = true;
        let figures = outcome(&scenario, seed);
        assert_eq!(figures.failed, 0, "seed {seed}");
        (reads(&figures, object_bytes) * 100.0) as u64
    });
    let mean = read as f64 / seeds as f64 / 100.0;
    assert!(mean < 1.01, "the store is read {mean} times in the mean");
}
