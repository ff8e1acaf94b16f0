//! `falkon-lab bench idle`: what services cost while there is nothing to do.

use super::RoundArgs;
use super::campaign::{self, Load};
use super::emulator::{Emulators, SHARE_MAX, connections_max};
use super::error::BenchError;
use super::memory::resident_bytes;
use super::processor;
use super::report::Table;
use super::services::{Services, Setup};
use clap::Args;
use falkon_cli::SecurityLevel;
use std::time::{Duration, Instant};

/// `falkon-lab bench idle`
#[derive(Args, Debug)]
pub(crate) struct IdleArgs {
    #[command(flatten)]
    pub(crate) round: RoundArgs,
    /// Numbers of emulated executors that a dispatcher has
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [0, 100, 10_000], value_parser = clap::value_parser!(u32).range(0..=262_144))]
    executors: Vec<u32>,
    /// Seconds of each measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Seconds before it, in which what was to be done ends
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    settle: u64,
    /// Protection of connections
    #[arg(long, value_enum, default_value = "encrypt")]
    security: SecurityLevel,
}

/// Runs the benchmark. Each number of executors has a dispatcher of its own.
pub(crate) async fn run(args: &IdleArgs) -> Result<Table, BenchError> {
    let mut table = Table::new(
        "idle",
        format!(
            "services without work for {} s, {} s after the last of it; security {:?}, journal on",
            args.seconds, args.settle, args.security
        ),
    );
    let share = connections_max().clamp(1, SHARE_MAX.into()) as u32;
    for _ in 0..args.round.rounds {
        for &executors in &args.executors {
            let services = start(args, 0).await?;
            let (client, deliveries) = services.connect().await?;
            let shape = (executors, executors.div_ceil(share).max(1));
            let emulators = Emulators::start(&services, &client, shape, 1).await?;
            // The question how many have joined has been answered; whoever asks
            // goes, so that the executors alone are there.
            drop((client, deliveries));
            let mut pids = services.concentrator_pids();
            pids.push(services.dispatcher_pid());
            let name = match executors {
                0 => "dispatcher without executors".to_owned(),
                more => format!("dispatcher with {more} executors"),
            };
            rest(args, &[(&name, pids)], &mut table).await;
            drop(emulators);
        }
        executor(args, &mut table).await?;
    }
    table.note("dispatcher: with the concentrators that it has. Its executors are emulated, and");
    table.note("what they take does not count; the executor and its process host are real ones,");
    table.note("and have run tasks. wake-ups: how often threads went to sleep.");
    Ok(table)
}

async fn start(args: &IdleArgs, executors: u32) -> Result<Services, BenchError> {
    let setup = Setup { executors, slots: 2, security: args.security, ..Setup::default() };
    Services::start(&setup).await
}

/// A real executor, which has run tasks.
async fn executor(args: &IdleArgs, table: &mut Table) -> Result<(), BenchError> {
    let services = start(args, 1).await?;
    let (client, mut deliveries) = services.connect().await?;
    let load =
        Load { tasks: 10, bundle: 10, distinct: false, program: "/bin/true", ..Load::default() };
    campaign::run(&client, &mut deliveries, &load).await?;
    drop((client, deliveries));
    let parts = [
        ("dispatcher with 1 executor", vec![services.dispatcher_pid()]),
        ("executor", services.executor_pids().collect()),
        ("process host", services.host_pids()),
    ];
    rest(args, &parts, table).await;
    Ok(())
}

/// Adds what groups of processes take while nothing is to be done.
async fn rest(args: &IdleArgs, groups: &[(&str, Vec<u32>)], table: &mut Table) {
    let sum = |pids: &[u32], of: fn(u32) -> u64| pids.iter().map(|pid| of(*pid)).sum::<u64>();
    let look = || -> Vec<(u64, u64)> {
        let each = groups.iter().map(|(_, pids)| pids);
        each.map(|pids| (sum(pids, processor::of), sum(pids, processor::sleeps_of))).collect()
    };
    tokio::time::sleep(Duration::from_secs(args.settle)).await;
    let (before, start) = (look(), Instant::now());
    tokio::time::sleep(Duration::from_secs(args.seconds)).await;
    let (after, seconds) = (look(), start.elapsed().as_secs_f64());
    for (at, (name, pids)) in groups.iter().enumerate() {
        let spent = after[at].0.saturating_sub(before[at].0) as f64 / 1e9 / seconds;
        let woken = after[at].1.saturating_sub(before[at].1) as f64 / seconds;
        let memory = sum(pids, resident_bytes) as f64 / f64::from(1 << 20);
        table.add(&format!("{name}: processor time in an hour"), "s", spent * 3600.0);
        table.add(&format!("{name}: share of a processor"), "%", spent * 100.0);
        table.add(&format!("{name}: wake-ups"), "/s", woken);
        table.add(&format!("{name}: memory"), "MiB", memory);
    }
}
