//! Outputs of tasks that nodes collect, alone and for each other, while nodes crash.

use crate::{machine, nodes, outcome, over_seeds, seconds};
use falkon_sim::{
    Durations, Eviction, Faults, NodeCache, Outputs, Scenario, ScenarioError, TaskKind, run,
};

/// Tasks with an output each, on so many nodes of two slots.
fn writers(count: u64, tasks: u64, outputs: Outputs) -> Scenario {
    let cache = Some(NodeCache { bytes: 1 << 30, lend: 0, eviction: Eviction::Lru });
    let mut scenario = Scenario { nodes: vec![nodes(count, 2, cache)], ..machine() };
    scenario.store.operation = seconds(0.005);
    scenario.store.operations_per_s = Some(200.0);
    let workload = &mut scenario.workload;
    (workload.tasks, workload.kind) = (tasks, TaskKind::Compute);
    workload.run = Durations::Uniform(seconds(0.1), seconds(2.0));
    workload.outputs = Some(outputs);
    scenario
}

#[test]
fn outputs_are_collected_by_few_nodes_whatever_dies() {
    let outputs = Outputs { bytes: 100_000, are_collected: true };
    let (crashes, seeds) = over_seeds(8, |seed| {
        let mut scenario = writers(24, 1000, outputs);
        scenario.check_all = seed == 0;
        scenario.faults =
            Faults { node_crash: Some(seconds(4.0)), node_down: seconds(3.0), ..Faults::default() };
        let figures = outcome(&scenario, seed);
        assert_eq!(figures.failed, 0, "seed {seed}");
        assert!((1..1000).contains(&figures.files), "seed {seed}: {} files", figures.files);
        figures.faults
    });
    assert!(crashes >= seeds, "no node has crashed");
}

#[test]
fn a_file_for_each_output_is_one_create_after_another() {
    let files = outcome(&writers(4, 1000, Outputs { bytes: 1000, are_collected: false }), 1);
    assert_eq!(files.files, 1000);
    let alone = outcome(&writers(4, 1000, Outputs { bytes: 1000, are_collected: true }), 1);
    assert!(alone.files < 100, "{} files", alone.files);
    let mut nowhere = writers(4, 10, Outputs { bytes: 1000, are_collected: true });
    nowhere.nodes[0].cache = None;
    assert!(matches!(
        run(&nowhere, 1),
        Err(falkon_sim::SimError::Scenario(ScenarioError::OutputsNowhere))
    ));
}
