//! Data on nodes that are acquired on demand and given back: caches come and
//! go with the nodes, and work goes on all the same.

use falkon_sim::{
    Arrivals, Choice, ClientCosts, DispatcherCosts, Durations, Eviction, ExecutorCosts, Faults,
    Figures, Inputs, Lrm, Nanos, Network, NodeCache, NodeGroup, PolicyName, PolicyOptions,
    Provision, QueueOptions, ReleaseName, Scenario, Store, TaskKind, Workload, run,
};

const TASKS: u64 = 400;
/// A start-up, a peer that says nothing, and a query with its answer.
const STALL_S: f64 = 60.0;

fn seconds(seconds: f64) -> Nanos {
    Nanos::from_seconds(seconds)
}

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
    let cache = Some(NodeCache { bytes: 100_000_000, eviction });
    let inputs =
        Inputs { objects: 60, object_bytes: 10_000_000, per_task: 1, choice: Choice::Uniform };
    Scenario {
        name: "demand".to_owned(),
        dispatchers: 1,
        dispatcher: DispatcherCosts { message: seconds(7e-6), entry: seconds(1e-6) },
        executor: ExecutorCosts { message: seconds(10e-6), start: seconds(600e-6) },
        client: ClientCosts {
            message: seconds(7e-6),
            entry: seconds(0.25e-6),
            bundle: seconds(0.05),
        },
        network: Network { latency: seconds(100e-6), node_bytes_per_s: 125e6 },
        nodes: vec![NodeGroup { count: 16, slots: 2, speed: 1.0, from: Nanos(0), cache }],
        store: Store { bytes_per_s: 50e6, operation: seconds(1e-3), operations_per_s: None },
        provision: Some(Provision { queue, lrm }),
        workload: Workload {
            stages: Vec::new(),
            tasks: TASKS,
            kind: TaskKind::Compute,
            run: Durations::Fixed(seconds(0.05)),
            from: Nanos(0),
            arrivals: Arrivals::Ramp {
                first: 1.0,
                factor: 1.5,
                most: 20.0,
                interval: seconds(10.0),
            },
            inputs: Some(inputs),
            policy: PolicyOptions { policy, ..PolicyOptions::default() },
            retries: 0,
            estimates: false,
        },
        faults: Faults::default(),
        check_all: true,
        limit: seconds(20_000.0),
    }
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
    for seed in 0..2 {
        for policy in [PolicyName::QueueAware, PolicyName::GoodCacheCompute] {
            for release in [ReleaseName::Predictive, ReleaseName::Idle] {
                let figures = match run(&stream(policy, release, lrm), seed) {
                    Ok(figures) => figures,
                    Err(error) => panic!("{name}, {policy:?}, {release:?}, seed {seed}: {error}"),
                };
                let what = format!("{name}, {policy:?}, {release:?}, seed {seed}");
                assert_eq!(figures.done, TASKS, "{what}");
                let stall = stall_s(&figures);
                assert!(stall <= stall_most_s, "{what}: nothing ended for {stall} s");
            }
        }
    }
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
