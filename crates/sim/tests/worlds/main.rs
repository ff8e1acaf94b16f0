//! Whole runs on machines that do not exist. `FALKON_SEEDS` sets over how many
//! seeds each kind of storm is run.

#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

mod broadcasts;
mod data;
mod demand;
mod disks;
mod faults;
mod gangs;
mod messages;
mod outputs;
mod provision;
mod recorded;
mod remembered;
mod runs;
mod speculation;
mod stripes;
mod tiers;

use falkon_sim::{
    Arrivals, Choice, ClientCosts, DispatcherCosts, Durations, ExecutorCosts, Faults, Figures,
    Inputs, Nanos, Network, NodeCache, NodeGroup, PolicyOptions, Scenario, Store, TaskKind,
    Workload, run,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// Results in memory of which a few make a page.
const RESULTS_BYTES: u64 = 1_000;

fn seconds(seconds: f64) -> Nanos {
    Nanos::from_seconds(seconds)
}

/// What the tests' machines have in common, which have no nodes and no tasks
/// yet.
fn machine() -> Scenario {
    Scenario {
        name: "a test".to_owned(),
        dispatchers: 1,
        dispatcher: DispatcherCosts {
            message: seconds(7e-6),
            entry: seconds(1e-6),
            decision: Nanos(0),
            bytes_per_s: 1e9,
        },
        results_bytes: None,
        executor: ExecutorCosts {
            message: seconds(10e-6),
            start: seconds(600e-6),
            bytes_per_s: 1e9,
        },
        client: ClientCosts {
            message: seconds(7e-6),
            entry: seconds(0.25e-6),
            bundle: seconds(0.05),
            bytes_per_s: 1e9,
        },
        network: Network {
            latency: seconds(100e-6),
            node_bytes_per_s: 125e6,
            dispatcher_bytes_per_s: 125e6,
        },
        relays: None,
        nodes: Vec::new(),
        store: Store { bytes_per_s: 550e6, operation: Nanos(0), operations_per_s: None },
        provision: None,
        workload: Workload {
            stages: Vec::new(),
            recorded: None,
            tasks: 0,
            kind: TaskKind::Sleep,
            run: Durations::Fixed(Nanos(0)),
            from: Nanos(0),
            arrivals: Arrivals::AtOnce,
            inputs: None,
            outputs: None,
            policy: PolicyOptions::default(),
            retries: 0,
            replicas: 1,
            estimates: false,
            speculate: false,
            wide: None,
        },
        earlier_runs: 0,
        faults: Faults::default(),
        check_all: false,
        limit: seconds(1e5),
    }
}

/// Nodes that are there from the beginning.
fn nodes(count: u64, slots: u32, cache: Option<NodeCache>) -> NodeGroup {
    let (from, until, idle_exit, disk) = (Nanos(0), None, None, None);
    let (gpus, memory_bytes, speed) = (0, 0, 1.0);
    NodeGroup { count, slots, gpus, memory_bytes, speed, from, until, idle_exit, cache, disk }
}

/// Each task reads one of so many objects of 10 MB.
fn one_of(objects: u64, choice: Choice) -> Option<Inputs> {
    Some(Inputs { objects, object_bytes: 10_000_000, per_task: 1, choice, unpack: None })
}

/// Runs a scenario, whose tasks must all end.
#[track_caller]
fn outcome(scenario: &Scenario, seed: u64) -> Figures {
    let policy = scenario.workload.policy.policy;
    let figures =
        run(scenario, seed).unwrap_or_else(|error| panic!("{policy}, seed {seed}: {error}"));
    assert_eq!(figures.done + figures.failed, scenario.workload.tasks, "{policy}, seed {seed}");
    figures
}

/// Calls a function for so many seeds, or as many as `FALKON_SEEDS` says, on all
/// processors. Returns the sum of what it returns, and how many seeds there
/// were.
fn over_seeds(seeds: u64, trial: impl Fn(u64) -> u64 + Sync) -> (u64, u64) {
    let seeds = std::env::var("FALKON_SEEDS").map_or(seeds, |text| text.parse().unwrap());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, sum) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    sum.fetch_add(trial(seed), Ordering::Relaxed);
                }
            });
        }
    });
    (sum.into_inner(), seeds)
}
