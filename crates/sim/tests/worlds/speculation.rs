//! Tasks on slow nodes that run a second time elsewhere.

use crate::{machine, nodes, outcome, over_seeds, seconds};
use falkon_sim::{Durations, NodeGroup, Scenario, TaskKind};

/// Every sixteenth node is twenty times as slow as the others.
fn slow(count: u64, speculate: bool) -> Scenario {
    let slow = NodeGroup { speed: 0.05, ..nodes(count / 16, 4, None) };
    let mut scenario =
        Scenario { nodes: vec![nodes(count - count / 16, 4, None), slow], ..machine() };
    scenario.workload.kind = TaskKind::Compute;
    scenario.workload.tasks = count * 4 * 20;
    scenario.workload.run = Durations::Uniform(seconds(8.0), seconds(12.0));
    scenario.workload.speculate = speculate;
    scenario
}

/// The slow nodes no longer decide when the last task ends.
#[test]
fn the_last_tasks_of_slow_nodes_end_elsewhere() {
    let [once, twice] = [false, true].map(|speculate| outcome(&slow(64, speculate), 1));
    let makespans = [&once, &twice].map(|figures| figures.makespan.seconds());
    println!("makespan without {:.1} s, with {:.1} s", makespans[0], makespans[1]);
    assert_eq!((once.failed, twice.failed), (0, 0));
    // The usual tasks take some 210 s; one on a slow node takes 200 s alone.
    assert!(makespans[1] < 0.7 * makespans[0], "{makespans:?}");
}

/// Whatever breaks, each task ends once.
#[test]
fn tasks_end_once_whatever_breaks() {
    over_seeds(8, |seed| {
        let mut scenario = slow(32, true);
        scenario.workload.tasks = 600;
        scenario.workload.retries = 2;
        scenario.check_all = true;
        scenario.faults.node_crash = Some(seconds(60.0));
        scenario.faults.node_down = seconds(5.0);
        scenario.faults.cut = Some(seconds(20.0));
        scenario.faults.task_failure = 0.02;
        if seed.is_multiple_of(2) {
            scenario.faults.dispatcher_crash = Some(seconds(40.0));
            scenario.faults.dispatcher_down = seconds(2.0);
        }
        let figures = outcome(&scenario, seed);
        assert_eq!(figures.done + figures.failed, scenario.workload.tasks);
        figures.failed
    });
}
