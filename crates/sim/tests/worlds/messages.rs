//! The cost of messages: the links that they share, and the time of those who
//! handle them.

use crate::{machine, nodes, one_of, outcome, over_seeds, seconds};
use falkon_sim::{
    Choice, Durations, Eviction, Faults, Figures, Nanos, NodeCache, PolicyName, PolicyOptions,
    Scenario, TaskKind,
};

/// Tasks that name what they read, in one submission: long messages.
fn named(tasks: u64) -> Scenario {
    let cache = Some(NodeCache { bytes: 1 << 30, lend: 0, eviction: Eviction::Lru });
    let mut scenario = Scenario { nodes: vec![nodes(4, 2, cache)], ..machine() };
    let workload = &mut scenario.workload;
    (workload.tasks, workload.kind) = (tasks, TaskKind::Compute);
    workload.inputs = one_of(tasks, Choice::Cyclic);
    if let Some(inputs) = &mut workload.inputs {
        inputs.object_bytes = 1;
    }
    workload.policy =
        PolicyOptions { policy: PolicyName::MaxComputeUtil, ..PolicyOptions::default() };
    scenario
}

fn extra(of: &Figures, than: &Figures) -> f64 {
    of.makespan.seconds() - than.makespan.seconds()
}

#[test]
fn a_dispatchers_link_passes_no_more_than_it_can() {
    over_seeds(12, |seed| {
        let mut scenario = named(400 + 200 * (seed % 5));
        scenario.network.dispatcher_bytes_per_s = 20e3 * (1 + seed % 4) as f64;
        if seed.is_multiple_of(3) {
            scenario.faults = Faults { cut: Some(seconds(3.0)), ..Faults::default() };
            scenario.workload.retries = 3;
        }
        let figures = outcome(&scenario, seed);
        // Each way.
        let most = 2.0 * scenario.network.dispatcher_bytes_per_s * figures.makespan.seconds();
        assert!(figures.message_bytes as f64 <= most * 1.01, "seed {seed}: {figures:?}");
        assert_eq!(figures, outcome(&scenario, seed), "seed {seed} is not one run");
        1
    });
}

#[test]
fn long_messages_do_not_arrive_before_their_bytes_can() {
    let mut scenario = named(3000);
    let fast = outcome(&scenario, 1);
    // Each task's object has a name of more than 14 bytes and a number of 16.
    scenario.network.node_bytes_per_s = 30e3;
    let slow = outcome(&scenario, 1);
    assert!(extra(&slow, &fast) > 2.9, "{} s more", extra(&slow, &fast));
}

#[test]
fn executors_of_one_dispatcher_share_its_link() {
    let made = |count: u64| {
        let mut scenario = named(800);
        scenario.nodes[0].count = count;
        scenario.network.dispatcher_bytes_per_s = 1e4;
        outcome(&scenario, 1)
    };
    // More nodes do not make the dispatcher's link faster.
    let (few, many) = (made(2), made(16));
    let least = few.message_bytes.min(many.message_bytes) as f64 / 2e4;
    assert!(few.makespan.seconds() > least && many.makespan.seconds() > least);
}

#[test]
fn bytes_and_decisions_take_a_dispatchers_time() {
    let scenario = named(2000);
    let free = outcome(&scenario, 1);
    let mut costly = scenario.clone();
    costly.dispatcher.decision = Nanos(1_000_000);
    let decided = outcome(&costly, 1);
    assert!(extra(&decided, &free) > 1.5, "{} s more", extra(&decided, &free));
    let mut costly = scenario.clone();
    costly.dispatcher.bytes_per_s = 1e5;
    let copied = outcome(&costly, 1);
    let least = free.message_bytes as f64 / 1e5;
    assert!(copied.makespan.seconds() > least * 0.9, "{least} s of bytes in {copied:?}");
    assert!(copied.dispatcher_busy > 0.5, "{}", copied.dispatcher_busy);
    // An executor's and a client's own time do not hold up the dispatcher.
    let mut costly = scenario;
    costly.workload.run = Durations::Fixed(seconds(0.01));
    let before = outcome(&costly, 1);
    (costly.executor.bytes_per_s, costly.client.bytes_per_s) = (1e5, 1e5);
    let after = outcome(&costly, 1);
    assert!(extra(&after, &before) > 0.1, "{} s more", extra(&after, &before));
}
