//! Tasks on several nodes together, among tasks on one.

use crate::{machine, nodes, outcome, over_seeds, seconds};
use falkon_sim::{Durations, Scenario, Wide};

/// Half of the work is that of tasks on several nodes: so many rounds of it for each node.
fn gangs(count: u64, wide: u32, rounds: u64) -> Scenario {
    let mut scenario = Scenario { nodes: vec![nodes(count, 1, None)], ..machine() };
    let every = u64::from(wide) + 1;
    scenario.workload.wide = Some(Wide { nodes: wide, every });
    scenario.workload.tasks = count * rounds / (2 * u64::from(wide)) * every;
    scenario.workload.run = Durations::Uniform(seconds(30.0), seconds(90.0));
    scenario.workload.estimates = true;
    scenario
}

/// Nodes are hardly idle for tasks on 32 of them each, until the last tasks run.
#[test]
fn nodes_are_hardly_idle_for_gangs() {
    let figures = outcome(&gangs(1024, 32, 40), 1);
    println!("utilization {:.4}, makespan {}", figures.utilization, figures.makespan.seconds());
    assert_eq!(figures.failed, 0);
    assert!(figures.utilization > 0.95, "{}", figures.utilization);
}

/// Where a gang takes a quarter of all nodes, many of these would wait for it each time.
#[test]
fn gangs_follow_one_another_on_few_nodes() {
    let figures = outcome(&gangs(32, 8, 40), 1);
    println!("utilization {:.4}, makespan {}", figures.utilization, figures.makespan.seconds());
    assert!(figures.utilization > 0.88, "{}", figures.utilization);
}

/// Tasks as long as those that a gang waits for run beside these, and not after the gang.
#[test]
fn tasks_that_are_alike_run_side_by_side_while_a_gang_waits() {
    for wide in [4, 3, 2] {
        let mut scenario = gangs(4, wide, 40);
        scenario.workload.run = Durations::Fixed(seconds(10.0));
        scenario.workload.estimates = false;
        scenario.workload.wide = Some(Wide { nodes: wide, every: 2 });
        let figures = outcome(&scenario, 1);
        println!("{wide} nodes: efficiency {:.4}", figures.efficiency);
        assert!(figures.efficiency > 0.85, "{wide} nodes: {}", figures.efficiency);
    }
}

/// Whatever breaks, each task ends.
#[test]
fn gangs_end_whatever_breaks() {
    over_seeds(4, |seed| {
        let mut scenario = gangs(24, 4, 6);
        scenario.check_all = true;
        scenario.faults.node_crash = Some(seconds(60.0));
        scenario.faults.node_down = seconds(5.0);
        scenario.faults.cut = Some(seconds(20.0));
        let figures = outcome(&scenario, seed);
        assert_eq!(figures.done + figures.failed, scenario.workload.tasks);
        figures.failed
    });
}
