//! How fast the simulator is, and how much memory a node takes.
//!
//! `cargo bench -p falkon-sim -- [NODES[/DISPATCHERS[/RELAYS]]]...`: for each number,
//! four sleeps of 4 s for each slot of so many nodes, which have four, or one below
//! relays; for 0, the 250,000 tasks of the
//! MI workload, which read from a shared store (scenarios/mi-first-available).

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use falkon_sim::{
    Arrivals, Choice, ClientCosts, DispatcherCosts, Durations, ExecutorCosts, Faults, Inputs,
    Nanos, Network, NodeGroup, PolicyOptions, Relays, Scenario, Store, TaskKind, Workload, run,
};
use std::time::Instant;

fn scenario(nodes: u64, dispatchers: u32, relays: u32) -> Scenario {
    let slots = if relays > 0 { 1 } else { 4 };
    Scenario {
        name: "scale".to_owned(),
        dispatchers,
        dispatcher: DispatcherCosts {
            message: Nanos(7_000),
            entry: Nanos(1_000),
            decision: Nanos(0),
            bytes_per_s: 1e9,
        },
        results_bytes: None,
        executor: ExecutorCosts { message: Nanos(10_000), start: Nanos(600_000), bytes_per_s: 1e9 },
        client: ClientCosts {
            message: Nanos(7_000),
            entry: Nanos(250),
            bundle: Nanos(50_000_000),
            bytes_per_s: 1e9,
        },
        network: Network {
            latency: Nanos(100_000),
            node_bytes_per_s: 125e6,
            dispatcher_bytes_per_s: 125e6,
        },
        relays: (relays > 0).then_some(Relays { count: relays, depth: 1 }),
        nodes: vec![NodeGroup {
            count: nodes,
            slots,
            gpus: 0,
            memory_bytes: 0,
            speed: 1.0,
            from: Nanos(0),
            until: None,
            idle_exit: None,
            cache: None,
            disk: None,
        }],
        store: Store { bytes_per_s: 550e6, operation: Nanos(0), operations_per_s: None },
        provision: None,
        workload: Workload {
            stages: Vec::new(),
            recorded: None,
            tasks: nodes * 4 * u64::from(slots),
            kind: TaskKind::Sleep,
            run: Durations::Fixed(Nanos::from_seconds(4.0)),
            from: Nanos::from_seconds(5.0),
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
        faults: Faults::default(),
        earlier_runs: 0,
        check_all: false,
        limit: Nanos::from_seconds(1e6),
    }
}

/// The MI workload of data-diffusion §5.2 under first-available.
fn mi() -> Scenario {
    let mut scenario = scenario(64, 1, 0);
    scenario.name = "mi-first-available".to_owned();
    scenario.nodes[0].slots = 2;
    scenario.workload.tasks = 250_000;
    scenario.workload.kind = TaskKind::Compute;
    scenario.workload.run = Durations::Fixed(Nanos(10_000_000));
    scenario.workload.arrivals = Arrivals::Ramp {
        first: 1.0,
        factor: 1.3,
        most: 1000.0,
        interval: Nanos::from_seconds(60.0),
    };
    scenario.workload.inputs = Some(Inputs {
        objects: 10_000,
        object_bytes: 10_000_000,
        per_task: 1,
        choice: Choice::Uniform,
        unpack: None,
    });
    scenario
}

/// The most memory this process has had, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

/// `NODES`, `NODES/DISPATCHERS` or `NODES/DISPATCHERS/RELAYS`.
fn size(text: &str) -> Option<(u64, u32, u32)> {
    let mut parts = text.split('/');
    let nodes = parts.next()?.parse().ok()?;
    let mut next = |default| parts.next().map_or(Some(default), |part| part.parse().ok());
    Some((nodes, next(1)?, next(0)?))
}

fn main() {
    let asked: Vec<(u64, u32, u32)> =
        std::env::args().skip(1).filter_map(|text| size(&text)).collect();
    let sizes = if asked.is_empty() {
        vec![(0, 1, 0), (64, 1, 0), (1024, 1, 0), (16_384, 1, 0), (16_384, 1, 16)]
    } else {
        asked
    };
    for (nodes, dispatchers, relays) in sizes {
        let before = Instant::now();
        let scenario = if nodes == 0 { mi() } else { scenario(nodes, dispatchers, relays) };
        match run(&scenario, 1) {
            Ok(figures) => {
                let seconds = before.elapsed().as_secs_f64();
                println!(
                    "{nodes} nodes, {dispatchers} dispatchers, {relays} relays: {} tasks, {} events in {seconds:.2} s ({:.0}/s), peak {} MiB, {:.2} kB per node; \
                     efficiency {:.2} %, dispatcher busy {:.1} %",
                    figures.done,
                    figures.events,
                    figures.events as f64 / seconds,
                    peak_mib(),
                    peak_mib() as f64 * 1048.576 / nodes.max(1) as f64,
                    figures.efficiency * 100.0,
                    figures.dispatcher_busy * 100.0
                );
            }
            Err(error) => println!("{nodes} nodes: {error}"),
        }
    }
}
