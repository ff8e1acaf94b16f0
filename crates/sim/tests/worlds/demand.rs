//! Data on nodes that are acquired on demand and given back: caches come and
//! go with the nodes, and work goes on all the same.

use crate::{machine, nodes, one_of, over_seeds, seconds};
use falkon_sim::{
    Arrivals, Choice, Durations, Eviction, Figures, Lrm, NodeCache, PolicyName, PolicyOptions,
    Provision, QueueOptions, ReleaseName, Scenario, Store, TaskKind, run,
};

const TASKS: u64 = 400;
/// A start-up, a peer that says nothing, and a query with its answer.
const STALL_S: f64 = 60.0;

/// Tasks that come ever faster, read more than a few caches hold, and more than
/// the store gives in time.
fn stream(policy: PolicyName, release: ReleaseName, lrm: Lrm) -> Scenario {
    let queue = QueueOptions {
        executors_max: 12,
        walltime_micros: 0,
        idle_micros: Some(10_000_000),
        delay_micros: 10_000_000,
        release,
        is_whole: false,
        ..QueueOptions::default()
    };
    let eviction =
        if policy == PolicyName::QueueAware { Eviction::QueueAware } else { Eviction::Lru };
    let cache = Some(NodeCache { bytes: 100_000_000, lend: 0, eviction });
    let mut scenario = Scenario { nodes: vec![nodes(16, 2, cache)], ..machine() };
    scenario.store = Store { bytes_per_s: 50e6, operation: seconds(1e-3), operations_per_s: None };
    scenario.provision = Some(Provision { queue, lrm });
    let workload = &mut scenario.workload;
    (workload.tasks, workload.kind) = (TASKS, TaskKind::Compute);
    workload.run = Durations::Fixed(seconds(0.05));
    workload.arrivals =
        Arrivals::Ramp { first: 1.0, factor: 1.5, most: 20.0, interval: seconds(10.0) };
    workload.inputs = one_of(60, Choice::Uniform);
    workload.policy = PolicyOptions { policy, ..PolicyOptions::default() };
    scenario.limit = seconds(20_000.0);
    scenario
}

/// The longest time for which tasks were there and none ended.
fn stall_s(figures: &Figures) -> f64 {
    let (mut since, mut longest) = (0.0f64, 0.0f64);
    for pair in figures.series.windows(2) {
        let at = pair[1].at.seconds();
        let goes_on = pair[1].delivered > pair[0].delivered;
        if goes_on || pair[0].submitted == pair[0].delivered {
            since = at;
        }
        longest = longest.max(at - since);
    }
    longest
}

fn weather(name: &str, lrm: Lrm, stall_most_s: f64) {
    over_seeds(12, |seed| {
        // Every second seed a policy, every fourth a release policy.
        let policies = [PolicyName::QueueAware, PolicyName::GoodCacheCompute];
        let releases = [ReleaseName::Predictive, ReleaseName::Idle];
        let (policy, release) = (policies[seed as usize % 2], releases[seed as usize / 2 % 2]);
        let what = format!("{name}, {policy:?}, {release:?}, seed {seed}");
        let mut scenario = stream(policy, release, lrm);
        scenario.check_all = seed.is_multiple_of(3);
        let figures = match run(&scenario, seed) {
            Ok(figures) => figures,
            Err(error) => panic!("{what}: {error}"),
        };
        assert_eq!(figures.done, TASKS, "{what}");
        let stall = stall_s(&figures);
        assert!(stall <= stall_most_s, "{what}: nothing ended for {stall} s");
        figures.faults
    });
}

#[test]
fn while_nodes_come_and_go_in_order_tasks_go_on_ending() {
    let lrm = Lrm { start_min: seconds(5.0), start_max: seconds(15.0), ..Lrm::default() };
    weather("fair", lrm, STALL_S);
}

#[test]
fn where_nodes_are_killed_with_their_caches_all_is_done_in_the_end() {
    let fair = Lrm { start_min: seconds(5.0), start_max: seconds(15.0), ..Lrm::default() };
    let kills = Lrm { kill: 0.3, kill_within: seconds(60.0), refuse: 0.2, ..fair };
    weather("kills", kills, f64::INFINITY);
}
