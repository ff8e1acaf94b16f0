//! Relays between dispatchers and nodes.

use crate::runs::storm;
use crate::{machine, nodes, outcome, over_seeds, seconds};
use falkon_sim::{
    Durations, Figures, Nanos, Relays, Scenario, ScenarioError, SimError, TaskKind, run,
};

/// Tasks of a second on nodes of one slot below relays.
fn tree(relays: u32, depth: u32, count: u64) -> Scenario {
    let mut scenario = Scenario { nodes: vec![nodes(count, 1, None)], ..machine() };
    scenario.relays = Some(Relays { count: relays, depth });
    scenario.workload.tasks = count * 20;
    scenario.workload.from = seconds(5.0);
    scenario.workload.run = Durations::Fixed(seconds(1.0));
    scenario
}

#[test]
fn through_any_number_of_tiers_tasks_start_once_and_slots_are_busy() {
    for depth in 1..=4 {
        let mut scenario = tree(6, depth, 60);
        scenario.check_all = true;
        scenario.dispatchers = 1 + depth % 2;
        let figures: Figures = outcome(&scenario, 1);
        assert_eq!((figures.done, figures.runs), (1200, 1200), "depth {depth}");
        assert!(figures.efficiency > 0.95, "depth {depth}: {}", figures.efficiency);
        assert_eq!(figures, outcome(&scenario, 1), "depth {depth}");
    }
}

#[test]
fn an_array_costs_a_dispatcher_messages_of_its_relays_alone() {
    let mut scenario = tree(4, 1, 400);
    let few = outcome(&scenario, 1);
    scenario.relays = None;
    let all = outcome(&scenario, 1);
    let (few, all, relay) = (few.dispatcher_busy, all.dispatcher_busy, few.relay_busy);
    assert!(few < all / 4.0 && few < relay, "{few}, not {all}; {relay}");
}

#[test]
fn nothing_is_lost_whatever_breaks_in_a_tree() {
    let (faults, seeds) = over_seeds(60, |seed| {
        let mut scenario = storm(seed);
        scenario.relays =
            Some(Relays { count: 2 + (seed % 3) as u32, depth: 1 + (seed / 2 % 4) as u32 });
        scenario.faults.relay_crash = Some(seconds(6.0));
        scenario.faults.relay_down = seconds(if seed.is_multiple_of(4) { 20.0 } else { 0.5 });
        outcome(&scenario, seed).faults
    });
    assert!(faults > seeds * 5, "only {faults} faults");
}

#[test]
fn relays_that_make_no_sense_are_refused() {
    let refused = |scenario: Scenario| match run(&scenario, 1) {
        Err(SimError::Scenario(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(tree(0, 1, 4)), ScenarioError::Relays { found: 0 });
    assert_eq!(refused(tree(5, 1, 4)), ScenarioError::Relays { found: 5 });
    assert_eq!(refused(tree(4, 0, 4)), ScenarioError::RelayDepth { found: 0, most: 8 });
    let mut scenario = tree(4, 1, 4);
    scenario.workload.kind = TaskKind::Compute;
    scenario.workload.inputs = crate::one_of(1, falkon_sim::Choice::Uniform);
    assert_eq!(refused(scenario), ScenarioError::RelaysAlone);
    let mut scenario = tree(4, 1, 4);
    scenario.faults.relay_crash = Some(Nanos(0));
    assert_eq!(refused(scenario), ScenarioError::FaultsAtOnce);
}
