//! Faults one at a time, and what each may cost.

use crate::{RESULTS_BYTES, machine, nodes, outcome, over_seeds, seconds};
use falkon_sim::{Durations, Faults, Scenario, TaskKind};
use std::sync::atomic::{AtomicU64, Ordering};

/// 400 processes on 10 nodes of 4 slots, and faults of a minute.
fn only(faults: Faults) -> Scenario {
    let mut scenario = Scenario { nodes: vec![nodes(10, 4, None)], check_all: true, ..machine() };
    scenario.workload.tasks = 400;
    scenario.workload.kind = TaskKind::Compute;
    scenario.workload.run = Durations::Uniform(seconds(0.1), seconds(2.0));
    scenario.faults = Faults { until: Some(seconds(60.0)), ..faults };
    scenario
}

#[test]
fn what_a_killed_node_runs_is_run_again_elsewhere_and_it_does_not_come_back() {
    let mut scenario = Scenario { nodes: vec![nodes(1, 1, None); 3], ..machine() };
    (scenario.nodes[1].from, scenario.nodes[1].until) = (seconds(0.0), Some(seconds(15.0)));
    // The third is killed before it would start.
    (scenario.nodes[2].from, scenario.nodes[2].until) = (seconds(20.0), Some(seconds(15.0)));
    scenario.workload.tasks = 6;
    scenario.workload.run = Durations::Fixed(seconds(10.0));
    let figures = outcome(&scenario, 1);
    // Two run until 10 s, two begin then, and of these one is lost at 15 s: three are
    // left for one node at 20 s.
    assert_eq!((figures.done, figures.runs, figures.faults), (6, 7, 2));
    let makespan = figures.makespan.seconds();
    assert!((50.0..50.1).contains(&makespan), "{makespan} s");
}

#[test]
fn beside_a_disk_that_hangs_for_a_while_all_goes_on_and_nothing_starts_twice() {
    let (faults, seeds) = over_seeds(100, |seed| {
        let mut scenario = only(Faults::default());
        scenario.faults.disk_hang = Some(seconds(1.0));
        scenario.faults.disk_hang_length = seconds(3.0);
        let figures = outcome(&scenario, seed);
        assert_eq!((figures.done, figures.runs), (400, 400), "seed {seed}");
        figures.faults
    });
    assert!(faults > seeds * 2, "only {faults} hangs");
}

#[test]
fn what_waits_for_a_disk_that_hangs_for_good_runs_elsewhere_after_a_minute() {
    let (faults, _) = over_seeds(100, |seed| {
        let mut scenario = only(Faults::default());
        // Few of the ten, and never all.
        scenario.faults.disk_hang = Some(seconds(1.0));
        scenario.faults.disk_hang_length = seconds(1e6);
        scenario.faults.until = Some(seconds(3.0));
        let figures = outcome(&scenario, seed);
        // Attempts without an answer have not run.
        assert_eq!((figures.done, figures.runs), (400, 400), "seed {seed}");
        if figures.faults > 0 {
            let makespan = figures.makespan.seconds();
            assert!((60.0..200.0).contains(&makespan), "seed {seed}: {makespan} s");
        }
        figures.faults
    });
    assert!(faults > 0, "no disk hung");
}

#[test]
fn a_full_disk_of_a_dispatcher_costs_time_and_nothing_else() {
    let (stored, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let (faults, seeds) = over_seeds(100, |seed| {
        let mut scenario = only(Faults::default());
        scenario.results_bytes = Some(RESULTS_BYTES);
        // Clients whose connections are lost leave results behind.
        scenario.faults.cut = Some(seconds(1.0));
        scenario.faults.disk_full = Some(seconds(3.0));
        let length = if seed.is_multiple_of(2) { 15.0 } else { 1.0 };
        scenario.faults.disk_full_length = seconds(length);
        let figures = outcome(&scenario, seed);
        assert_eq!((figures.done, figures.failed), (400, 0), "seed {seed}");
        stored.fetch_add(figures.pages.0, Ordering::Relaxed);
        refused.fetch_add(figures.pages.1, Ordering::Relaxed);
        figures.faults
    });
    assert!(faults > seeds, "only {faults} times");
    let (stored, refused) = (stored.into_inner(), refused.into_inner());
    assert!(stored > 0 && refused > 0, "{stored} pages stored, {refused} refused");
}

#[test]
fn a_dispatcher_that_dies_while_its_disk_is_full_has_promised_nothing_that_it_forgets() {
    let (faults, seeds) = over_seeds(100, |seed| {
        let mut scenario = only(Faults::default());
        scenario.results_bytes = Some(RESULTS_BYTES);
        scenario.faults.disk_full = Some(seconds(2.0));
        scenario.faults.disk_full_length = seconds(1.5);
        scenario.faults.dispatcher_crash = Some(seconds(3.0));
        scenario.faults.dispatcher_down = seconds(0.5);
        let figures = outcome(&scenario, seed);
        assert_eq!((figures.done, figures.failed), (400, 0), "seed {seed}");
        figures.faults
    });
    assert!(faults > seeds * 2, "only {faults} faults");
}

#[test]
fn a_dispatcher_that_comes_back_with_an_earlier_clock_keeps_nobody_waiting() {
    over_seeds(100, |seed| {
        let mut scenario = only(Faults::default());
        scenario.faults.dispatcher_crash = Some(seconds(4.0));
        scenario.faults.dispatcher_down = seconds(0.5);
        scenario.faults.node_crash = Some(seconds(10.0));
        scenario.faults.clock_step = seconds(86_400.0);
        let figures = outcome(&scenario, seed);
        assert_eq!((figures.done, figures.failed), (400, 0), "seed {seed}");
        // Tasks lost with a silent node run elsewhere once its silence is noticed.
        assert!(figures.makespan < seconds(300.0), "seed {seed}: {:?}", figures.makespan);
        figures.faults
    });
}

/// Thousands of executors come back at the same moment, after they were given
/// up and some of their tasks were given to others.
#[test]
fn thousands_of_executors_that_come_back_late_at_once_double_and_lose_nothing() {
    over_seeds(2, |seed| late(2_000, seed, false));
}

/// The same with fewer of them, over more seeds, with every state checked.
#[test]
fn executors_that_come_back_late_at_once_double_and_lose_nothing() {
    let (again, _) = over_seeds(30, |seed| late(40, seed, true));
    assert!(again > 0, "nothing was given to others");
}

/// Most executors, or all of them, are cut off for longer than a silent one is
/// waited for; in every other schedule their dispatcher is restarted meanwhile,
/// and its recovery ends without them. All tasks end well and once, and each
/// executor that comes back costs no more than a few messages. Returns how many
/// tasks were run again.
fn late(executors: u64, seed: u64, check_all: bool) -> u64 {
    let mut scenario = only(Faults::default());
    scenario.check_all = check_all;
    scenario.nodes = vec![nodes(executors, 1, None)];
    // Where there is one for each, those that are free take what is lost.
    let tasks = if seed.is_multiple_of(3) { 4 * executors } else { executors };
    scenario.workload.tasks = tasks;
    scenario.workload.run = Durations::Uniform(seconds(1.0), seconds(30.0));
    scenario.faults.partition = Some(seconds(8.0));
    scenario.faults.partition_length = seconds(14.0);
    scenario.faults.partition_share = [0.5, 0.9, 1.0][seed as usize % 3];
    if seed.is_multiple_of(2) {
        scenario.faults.dispatcher_crash = Some(seconds(15.0));
        scenario.faults.dispatcher_down = seconds(0.5);
    }
    scenario.faults.until = Some(seconds(30.0));
    let figures = outcome(&scenario, seed);
    assert_eq!((figures.done, figures.failed), (tasks, 0), "seed {seed}");
    let heartbeats = (figures.makespan.seconds() / 2.0) as u64 + 2;
    let most = 3 * figures.runs + executors * (heartbeats + 6 * (figures.faults + 1));
    assert!(figures.messages <= most, "seed {seed}: {} messages", figures.messages);
    figures.runs - tasks
}
