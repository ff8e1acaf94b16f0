//! Tasks of runs that took place.

use crate::{machine, nodes, outcome, seconds};
use falkon_sim::{Nanos, Recorded, Scenario, ScenarioError, TaskKind};
use std::sync::Arc;

fn replayed(recorded: Recorded) -> Scenario {
    let mut scenario = Scenario { nodes: vec![nodes(2, 2, None)], check_all: true, ..machine() };
    scenario.client.bundle = Nanos(0);
    scenario.workload.tasks = recorded.tasks();
    scenario.workload.from = recorded.first_arrival();
    scenario.workload.recorded = Some(Arc::new(recorded));
    scenario
}

#[test]
fn each_task_comes_runs_and_ends_as_it_did() {
    let mut recorded = Recorded::default();
    recorded.add(8, seconds(1.0), seconds(2.0), true);
    recorded.add(3, seconds(21.0), seconds(5.0), false);
    recorded.add(1, seconds(21.0), seconds(7.0), true);
    let scenario = replayed(recorded);
    let figures = outcome(&scenario, 1);
    assert_eq!((figures.done, figures.failed, figures.runs), (9, 3, 12));
    // The last come 20 s after the first, and the longest of them runs for 7 s.
    assert_eq!(figures.ideal, seconds(27.0));
    assert!(figures.efficiency > 0.99 && figures.efficiency <= 1.0, "{}", figures.efficiency);
    // 38 s of work on one slot, after which nothing is left to come.
    let mut small = Scenario { nodes: vec![nodes(1, 1, None)], ..scenario };
    small.workload.kind = TaskKind::Compute;
    let figures = outcome(&small, 1);
    assert_eq!(figures.ideal, seconds(38.0));
    let makespan = figures.makespan.seconds();
    assert!((42.0..43.0).contains(&makespan), "16 s, a pause of 4 s and 22 s are {makespan} s");
}

#[test]
fn a_record_of_other_tasks_is_refused() {
    let mut recorded = Recorded::default();
    recorded.add(8, seconds(1.0), seconds(2.0), true);
    let mut scenario = replayed(recorded);
    scenario.workload.tasks = 9;
    assert_eq!(scenario.check(), Err(ScenarioError::Recorded { found: 8, tasks: 9 }));
}
