//! Tasks of runs that took place.

use crate::{machine, nodes, outcome, seconds};
use falkon_core::dispatch::diffusion::POLICIES;
use falkon_sim::{
    Nanos, Needs, NodeCache, NodeGroup, Recorded, RecordedObject, Reserved, Scenario,
    ScenarioError, TaskKind,
};
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

/// Tasks that reserve more than a CPU, or run on several nodes, have them to themselves.
#[test]
fn tasks_have_what_they_reserved() {
    let mut recorded = Recorded::default();
    recorded.add(6, seconds(1.0), seconds(10.0), true);
    let whole = Reserved { cpus_milli: 2000, ..Reserved::default() };
    let both = Reserved { nodes: 2, ..Reserved::default() };
    let half = Reserved { cpus_milli: 500, ..Reserved::default() };
    let recorded = recorded.with_reserved([(0, 2, whole), (2, 2, both), (4, 2, half)]);
    let mut scenario = replayed(recorded);
    scenario.workload.kind = TaskKind::Compute;
    let figures = outcome(&scenario, 1);
    assert_eq!((figures.done, figures.failed), (6, 0));
    // 40 s on both slots of a node, 40 on one of each, 10 on halves: 90 on four.
    assert_eq!(figures.ideal, seconds(22.5));
    let makespan = figures.makespan.seconds();
    assert!((20.0..32.0).contains(&makespan), "{makespan} s");

    // A GPU and memory, which one node has.
    let mut recorded = Recorded::default();
    recorded.add(3, seconds(1.0), seconds(10.0), true);
    let large = Reserved { gpus: 1, memory_bytes: 1 << 30, ..Reserved::default() };
    let recorded = recorded.with_reserved([(0, 3, large)]);
    assert!(recorded.unfit(&[nodes(2, 2, None)]).is_some());
    let mut scenario = replayed(recorded);
    scenario.workload.kind = TaskKind::Compute;
    scenario.nodes.push(NodeGroup { gpus: 1, memory_bytes: 3 << 30, ..nodes(1, 8, None) });
    let figures = outcome(&scenario, 1);
    let makespan = figures.makespan.seconds();
    assert!((30.0..32.0).contains(&makespan), "one after another: {makespan} s");
}

#[test]
fn a_record_of_other_tasks_is_refused() {
    let mut recorded = Recorded::default();
    recorded.add(8, seconds(1.0), seconds(2.0), true);
    let mut scenario = replayed(recorded);
    scenario.workload.tasks = 9;
    assert_eq!(scenario.check(), Err(ScenarioError::Recorded { found: 8, tasks: 9 }));
}

fn cached(nodes: &NodeGroup, bytes: u64) -> NodeGroup {
    NodeGroup { cache: Some(NodeCache { bytes, ..NodeCache::default() }), ..*nodes }
}

#[test]
fn tasks_wait_for_those_that_they_waited_for() {
    // A chain of three, and a task after all of them and another one.
    let mut recorded = Recorded::default();
    recorded.add(4, seconds(1.0), seconds(2.0), true);
    recorded.add(1, seconds(1.0), seconds(1.0), true);
    let mut needs = Needs::default();
    for (count, list) in [(2, &[][..]), (1, &[1]), (1, &[2]), (1, &[0, 3])] {
        needs.after.push(count, list);
    }
    let scenario = replayed(recorded.clone().with_needs(needs.clone()));
    let figures = outcome(&scenario, 1);
    assert_eq!((figures.done, figures.runs), (5, 5));
    assert_eq!(figures.ideal, seconds(7.0));
    let makespan = figures.makespan.seconds();
    assert!((7.0..7.1).contains(&makespan), "2 + 2 + 2 + 1 s are {makespan} s");
    // The same tasks without their order need 5 s on 2 slots.
    let mut small = replayed(recorded.clone());
    small.nodes = vec![nodes(1, 2, None)];
    assert_eq!(outcome(&small, 1).ideal, seconds(4.5));
    needs.after.push(1, &[4]);
    needs.after.push(1, &[7]);
    let later = replayed(recorded.with_needs(needs));
    assert_eq!(later.check(), Err(ScenarioError::Needs));
}

#[test]
fn tasks_read_and_write_what_they_did() {
    const MB: u64 = 1_000_000;
    // Each of four tasks reads an object of its own and one that all read, and leaves one in
    // its cache, which the next stage reads; that stage writes to the store.
    let mut recorded = Recorded::default();
    recorded.add(8, seconds(1.0), seconds(1.0), true);
    let mut needs = Needs::default();
    let object = |bytes, is_stored| RecordedObject { bytes, is_stored };
    needs.objects.push(object(20 * MB, true));
    for _ in 0..4 {
        needs.objects.push(object(10 * MB, true));
    }
    for _ in 0..4 {
        needs.objects.push(object(5 * MB, false));
    }
    needs.objects.push(object(MB, true));
    needs.after.push(4, &[]);
    needs.writes.push(0, &[]);
    for task in 0..4 {
        needs.reads.push(1, &[0, 1 + task]);
        needs.writes.push(1, &[5 + task]);
        needs.after.push(1, &[task]);
    }
    for task in 0..4 {
        needs.reads.push(1, &[5 + task]);
    }
    needs.writes.push(4, &[9]);
    let mut scenario = replayed(recorded.with_needs(needs));
    scenario.workload.kind = TaskKind::Compute;
    scenario.nodes = vec![cached(&nodes(2, 2, None), 1000 * MB)];
    for (policy, _) in POLICIES.into_iter().skip(1) {
        scenario.workload.policy.policy = policy;
        let figures = outcome(&scenario, 1);
        assert_eq!((figures.done, figures.runs), (8, 8), "{policy}");
        // An object that is only in caches comes from no store.
        let read = figures.store.bytes;
        assert!((60 * MB..=100 * MB).contains(&read), "{policy} read {read} bytes of the store");
    }
    // Without caches, each task reads the store itself; what was in caches is nowhere else,
    // but tasks that read it themselves would find it.
    scenario.workload.policy = Default::default();
    scenario.nodes = vec![nodes(2, 2, None)];
    let figures = outcome(&scenario, 1);
    assert_eq!((figures.done, figures.store.bytes), (8, 140 * MB));
}

#[test]
fn tasks_are_tried_as_often_as_they_were() {
    let mut recorded = Recorded::default();
    recorded.add(2, seconds(1.0), seconds(2.0), true);
    recorded.add_retried(1, seconds(1.0), seconds(2.0), true, 3);
    recorded.add_retried(2, seconds(1.0), seconds(1.0), false, 1);
    let mut scenario = replayed(recorded);
    scenario.nodes = vec![nodes(1, 1, None)];
    let figures = outcome(&scenario, 1);
    assert_eq!((figures.done, figures.failed, figures.runs), (3, 2, 2 + 4 + 2 * 2));
    assert_eq!(figures.ideal, seconds(16.0));
    let makespan = figures.makespan.seconds();
    assert!((16.0..16.1).contains(&makespan), "16 s of tries take {makespan} s");
}
