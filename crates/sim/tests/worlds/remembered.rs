//! What earlier runs did with an object is remembered: tasks that come one by one
//! find it where they run.

use crate::{machine, nodes, outcome, over_seeds, seconds};
use falkon_sim::{
    Arrivals, Choice, Durations, Eviction, Faults, Inputs, NodeCache, PolicyName, PolicyOptions,
    Scenario, TaskKind,
};

/// Tasks that come one after the other, run for so many seconds, and all read one
/// object, which a link brings in as many.
fn one_by_one(count: u64, tasks: u64, run_s: f64) -> Scenario {
    let object_bytes = (100e6 * run_s) as u64;
    let cache = Some(NodeCache { bytes: 4 * object_bytes, lend: 0, eviction: Eviction::Lru });
    let mut scenario = Scenario { nodes: vec![nodes(count, 1, cache)], ..machine() };
    scenario.network.node_bytes_per_s = 100e6;
    scenario.network.dispatcher_bytes_per_s = 1e9;
    scenario.store.bytes_per_s = 500e6;
    let workload = &mut scenario.workload;
    (workload.tasks, workload.kind) = (tasks, TaskKind::Compute);
    workload.run = Durations::Fixed(seconds(run_s));
    workload.arrivals = Arrivals::Rate(0.4 * count as f64 / run_s);
    let (objects, per_task, choice) = (1, 1, Choice::Cyclic);
    workload.inputs = Some(Inputs { objects, object_bytes, per_task, choice, unpack: None });
    let policy = PolicyName::MaxComputeUtil;
    workload.policy = PolicyOptions { policy, ..PolicyOptions::default() };
    scenario
}

#[test]
fn the_second_run_does_not_wait_for_what_the_first_waited_for() {
    let waits = |earlier_runs, policy| {
        let mut scenario = Scenario { earlier_runs, ..one_by_one(40, 120, 10.0) };
        scenario.workload.policy = policy;
        let figures = outcome(&scenario, 1);
        assert_eq!(figures.failed, 0);
        let read = figures.store.bytes as f64 / 1e9;
        assert!(read < 1.01, "the store is read {read} times");
        figures.wait.seconds()
    };
    let usual = PolicyOptions { policy: PolicyName::MaxComputeUtil, ..Default::default() };
    let (first, second, third) = (waits(0, usual), waits(1, usual), waits(2, usual));
    assert!(3.0 * second < first, "{second} s after {first} s");
    // What was sent ahead is no reason to send more.
    assert!(third < 1.5 * second + 0.1, "{third} s after {second} s");
    // Whoever bounds the copies of an object has no more of them.
    let bounded = PolicyOptions {
        policy: PolicyName::GoodCacheCompute,
        replication_max: 2,
        ..Default::default()
    };
    assert!(waits(1, bounded) > 3.0 * second);
}

#[test]
fn what_was_remembered_loses_nothing_whatever_dies() {
    let (late, seeds) = over_seeds(4, |seed| {
        let mut scenario = Scenario { earlier_runs: 1, ..one_by_one(20, 100, 1.0) };
        scenario.faults = Faults {
            node_crash: Some(seconds(4.0)),
            node_down: seconds(1.0),
            dispatcher_crash: Some(seconds(6.0)),
            dispatcher_down: seconds(0.5),
            cut: Some(seconds(1.0)),
            until: Some(seconds(20.0)),
            ..Faults::default()
        };
        // There is room for one object and no other.
        for group in &mut scenario.nodes {
            group.cache = Some(NodeCache { bytes: 150_000_000, lend: 0, eviction: Eviction::Lru });
        }
        scenario.check_all = true;
        scenario.limit = seconds(400.0);
        let figures = outcome(&scenario, seed);
        assert_eq!(figures.failed, 0, "seed {seed}");
        figures.makespan.seconds() as u64
    });
    let mean = late as f64 / seeds as f64;
    assert!(mean < 120.0, "{mean} s in the mean");
}
