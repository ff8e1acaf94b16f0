//! One large object that a task on every node reads: it reaches all nodes at
//! nearly the speed of one link, and is read from the store about once, whatever
//! dies or hangs meanwhile.

use crate::{machine, nodes, outcome, over_seeds, seconds};
use falkon_core::data::broadcast::Chunks;
use falkon_sim::{
    Arrivals, Choice, Durations, Eviction, Faults, Figures, Inputs, NodeCache, NodeGroup,
    PolicyName, PolicyOptions, Scenario, ScenarioError, SimError, TaskKind, run,
};

const LINK_BYTES_PER_S: f64 = 125e6;

/// A task for each node, which reads the one object there is.
fn readers(count: u64, object_bytes: u64) -> Scenario {
    let cache = Some(NodeCache { bytes: 4 * object_bytes, lend: 0, eviction: Eviction::Lru });
    let mut scenario = Scenario { nodes: vec![nodes(count, 1, cache)], ..machine() };
    scenario.network.node_bytes_per_s = LINK_BYTES_PER_S;
    scenario.network.dispatcher_bytes_per_s = 1.25e9;
    scenario.store.bytes_per_s = 550e6;
    let workload = &mut scenario.workload;
    (workload.tasks, workload.kind) = (count, TaskKind::Compute);
    workload.run = Durations::Fixed(seconds(0.01));
    workload.arrivals = Arrivals::AtOnce;
    let (objects, per_task, choice) = (1, 1, Choice::Cyclic);
    workload.inputs = Some(Inputs { objects, object_bytes, per_task, choice, unpack: None });
    let policy = PolicyName::MaxComputeUtil;
    workload.policy = PolicyOptions { policy, ..PolicyOptions::default() };
    scenario
}

/// What issue and paper allow: a quarter more than the time for one link, and for
/// a chunk at each level of a tree.
fn bound_s(count: u64, object_bytes: u64) -> f64 {
    bound_over_s(count, object_bytes, LINK_BYTES_PER_S)
}

/// The same over links of other bandwidths.
fn bound_over_s(count: u64, object_bytes: u64, link: f64) -> f64 {
    let levels = (count as f64).log2();
    1.25 * (object_bytes as f64 + levels * Chunks::of(object_bytes).bytes as f64) / link
}

#[track_caller]
fn is_read_once(figures: &Figures, object_bytes: u64, times: f64) {
    let read = figures.store.bytes as f64 / object_bytes as f64;
    assert!(read < times, "the store is read {read} times");
}

#[test]
fn it_reaches_all_at_nearly_the_speed_of_one_link() {
    let object_bytes = 500_000_000;
    for count in [8, 32, 100] {
        let figures = outcome(&readers(count, object_bytes), 1);
        assert_eq!(figures.failed, 0);
        is_read_once(&figures, object_bytes, 1.01);
        let (took, bound) = (figures.makespan.seconds(), bound_s(count, object_bytes));
        assert!(took < bound, "{count} nodes: {took} s, not {bound} s");
    }
}

#[test]
fn slow_links_are_not_silent() {
    let object_bytes = 40_000_000;
    for link in [100e3, 500e3, 2e6] {
        let mut scenario = readers(16, object_bytes);
        scenario.network.node_bytes_per_s = link;
        let figures = outcome(&scenario, 1);
        assert_eq!(figures.failed, 0);
        is_read_once(&figures, object_bytes, 1.01);
        // Several chunks come at a time, and there are only ten of them.
        let bound = 2.0 * bound_over_s(16, object_bytes, link);
        let took = figures.makespan.seconds();
        assert!(took < bound, "{link} B/s: {took} s, not {bound} s");
    }
}

#[test]
fn an_archive_is_unpacked_once_on_each_node_when_it_has_come() {
    let object_bytes = 100_000_000;
    let mut scenario = readers(20, object_bytes);
    let unpack = seconds(3.0);
    (scenario.nodes[0].slots, scenario.workload.tasks) = (4, 160);
    if let Some(inputs) = &mut scenario.workload.inputs {
        inputs.unpack = Some(unpack);
    }
    let figures = outcome(&scenario, 1);
    assert_eq!(figures.failed, 0);
    is_read_once(&figures, object_bytes, 1.01);
    let (took, bound) = (figures.staged.seconds(), bound_s(20, object_bytes));
    let expected = unpack.seconds()..unpack.seconds() + bound;
    assert!(expected.contains(&took), "{took} s, not within {expected:?}");
    // All tasks of a node wait for the same.
    assert!(figures.makespan.seconds() < took + 1.0);
}

#[test]
fn what_is_unpacked_needs_a_cache() {
    let mut scenario = readers(2, 1000);
    scenario.nodes[0].cache = None;
    scenario.workload.policy = PolicyOptions::default();
    assert!(run(&scenario, 1).is_ok());
    if let Some(inputs) = &mut scenario.workload.inputs {
        inputs.unpack = Some(seconds(1.0));
    }
    let refused = run(&scenario, 1).unwrap_err();
    assert_eq!(refused, SimError::Scenario(ScenarioError::UnpackedNowhere));
}

/// A hundredth of the nodes are killed, one after another while it is on its way.
#[test]
fn nodes_that_die_delay_no_others_beyond_the_bound() {
    let object_bytes = 500_000_000;
    for count in [8, 64, 200] {
        let mut scenario = readers(count, object_bytes);
        let bound = bound_s(count, object_bytes);
        let deaths = count.div_ceil(100);
        scenario.nodes[0].count -= deaths;
        for death in 0..deaths {
            let until = Some(seconds((death as f64 + 0.5) / deaths as f64 * bound));
            scenario.nodes.push(NodeGroup { count: 1, until, ..scenario.nodes[0] });
        }
        let figures = outcome(&scenario, 1);
        assert_eq!(figures.failed, 0);
        is_read_once(&figures, object_bytes, 1.1);
        let took = figures.staged.seconds();
        assert!(took < bound, "{count} nodes: {took} s, not {bound} s");
    }
}

#[test]
fn executors_that_join_in_the_midst_receive_it_too() {
    let object_bytes = 500_000_000;
    let mut scenario = readers(40, object_bytes);
    let mut late = scenario.nodes[0];
    (scenario.nodes[0].count, late.count) = (20, 20);
    late.from = seconds(2.0);
    scenario.nodes.push(late);
    let figures = outcome(&scenario, 1);
    assert_eq!(figures.failed, 0);
    is_read_once(&figures, object_bytes, 1.01);
    let (took, bound) = (figures.makespan.seconds(), bound_s(40, object_bytes) + 2.0);
    assert!(took < bound, "{took} s, not {bound} s");
}

/// Nodes that die, hang and are cut off, a few of them while an object is on its way.
pub(crate) fn troubles(until_seconds: f64) -> Faults {
    Faults {
        node_crash: Some(seconds(0.3)),
        node_down: seconds(2.0),
        partition: Some(seconds(2.0)),
        partition_length: seconds(1.0),
        partition_share: 0.1,
        disk_hang: Some(seconds(0.7)),
        disk_hang_length: seconds(3.0),
        slow_share: 0.1,
        slow_factor: 3.0,
        until: Some(seconds(until_seconds)),
        ..Faults::default()
    }
}

#[test]
fn nodes_that_die_and_hang_and_a_store_that_fails_cost_a_moment() {
    let object_bytes = 200_000_000;
    let (took, seeds) = over_seeds(12, |seed| {
        let mut scenario = readers(24, object_bytes);
        scenario.faults = troubles(3.0);
        scenario.check_all = true;
        let figures = outcome(&scenario, seed);
        assert_eq!(figures.failed, 0, "seed {seed}");
        let read = figures.store.bytes as f64 / object_bytes as f64;
        assert!(read < 6.0, "seed {seed}: the store is read {read} times");
        let took = figures.makespan.seconds();
        assert!(took < 120.0, "seed {seed}: {took} s");
        (read * 100.0) as u64
    });
    let mean = took as f64 / seeds as f64 / 100.0;
    assert!(mean < 3.0, "the store is read {mean} times in the mean");
}

#[test]
fn what_is_too_small_for_chunks_is_read_from_the_store_once() {
    for (count, object_bytes) in [(1000, 100_000), (100, 10_000_000)] {
        let figures = outcome(&readers(count, object_bytes), 1);
        assert_eq!(figures.failed, 0);
        is_read_once(&figures, object_bytes, 1.01);
    }
}
