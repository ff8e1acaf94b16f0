//! How fast the simulator is, and how much memory a node takes.
//!
//! `cargo bench -p falkon-sim -- [NODES]...`: for each number, four sleeps of
//! 4 s for each of four slots of so many nodes.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use falkon_sim::{
    Arrivals, ClientCosts, DispatcherCosts, Durations, ExecutorCosts, Faults, Nanos, Network,
    NodeGroup, Scenario, Store, TaskKind, Workload, run,
};
use std::time::Instant;

fn scenario(nodes: u64) -> Scenario {
    Scenario {
        name: "scale".to_owned(),
        dispatchers: 1,
        dispatcher: DispatcherCosts { message: Nanos(7_000), entry: Nanos(1_000) },
        executor: ExecutorCosts { message: Nanos(10_000), start: Nanos(600_000) },
        client: ClientCosts { message: Nanos(7_000), entry: Nanos(250), bundle: Nanos(50_000_000) },
        network: Network { latency: Nanos(100_000), node_bytes_per_s: 125e6 },
        nodes: vec![NodeGroup { count: nodes, slots: 4, speed: 1.0, from: Nanos(0) }],
        store: Store { bytes_per_s: 550e6, operation: Nanos(0), operations_per_s: None },
        workload: Workload {
            tasks: nodes * 16,
            kind: TaskKind::Sleep,
            run: Durations::Fixed(Nanos::from_seconds(4.0)),
            arrivals: Arrivals::AtOnce,
            inputs: None,
            retries: 0,
            estimates: false,
        },
        faults: Faults::default(),
        check_all: false,
        limit: Nanos::from_seconds(1e6),
    }
}

/// The most memory this process has had, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn main() {
    let asked: Vec<u64> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let sizes = if asked.is_empty() { vec![64, 1024, 16_384] } else { asked };
    for nodes in sizes {
        let before = Instant::now();
        match run(&scenario(nodes), 1) {
            Ok(figures) => {
                let seconds = before.elapsed().as_secs_f64();
                println!(
                    "{nodes} nodes: {} tasks, {} events in {seconds:.2} s ({:.0}/s), peak {} MiB; \
                     efficiency {:.2} %, dispatcher busy {:.1} %",
                    figures.done,
                    figures.events,
                    figures.events as f64 / seconds,
                    peak_mib(),
                    figures.efficiency * 100.0,
                    figures.dispatcher_busy * 100.0
                );
            }
            Err(error) => println!("{nodes} nodes: {error}"),
        }
    }
}
