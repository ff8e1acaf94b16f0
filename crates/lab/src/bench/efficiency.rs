//! `falkon-lab bench efficiency`: the share of their time that executors spend in
//! tasks, for tasks of a known length.

use super::RoundArgs;
use super::emulator::{Emulators, connections_max};
use super::error::BenchError;
use super::processor;
use super::report::Table;
use super::services::{Services, Setup};
use super::sleeps;
use clap::Args;

/// `falkon-lab bench efficiency`
#[derive(Args, Debug)]
pub(crate) struct EfficiencyArgs {
    #[command(flatten)]
    pub(crate) round: RoundArgs,
    /// Emulated executors of one slot
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    executors: u32,
    /// Processes that the executors are spread over
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    processes: u32,
    /// Lengths of the tasks
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', default_values_t = [1.0, 0.1])]
    seconds: Vec<f64>,
    /// Seconds of work for each slot, at least
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    work: f64,
    /// Tasks for each slot, at least: the paper's runs had up to a million tasks
    /// (loosely-coupled §IV.C.2), and what the first and the last of a slot wait
    /// for does not grow with their number
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    each: u32,
    /// Keep no journal
    #[arg(long)]
    no_journal: bool,
}

/// Runs the benchmark.
pub(crate) async fn run(args: &EfficiencyArgs) -> Result<Table, BenchError> {
    let executors = u64::from(args.executors).min(connections_max()) as u32;
    let mut table = Table::new(
        "efficiency",
        format!(
            "ideal time / time from submission to the last result, at least {} s of work and {} \
             tasks for each of {} emulated executors of one slot, journal {}",
            args.work,
            args.each,
            executors,
            if args.no_journal { "off" } else { "on" }
        ),
    );
    let setup = Setup { journal: !args.no_journal, ..Setup::default() };
    let services = Services::start(&setup).await?;
    let (client, mut deliveries) = services.connect().await?;
    let emulators = Emulators::start(&services, &client, (executors, args.processes), 1).await?;
    for round in 0..=args.round.rounds {
        for seconds in &args.seconds {
            let each = (args.work / seconds).round().max(f64::from(args.each));
            // The first round warms the services up.
            let each = if round == 0 { 1.0 } else { each };
            let tasks = u64::from(executors) * each as u64;
            let before = services.dispatcher_nanos();
            let emulators_before: u64 = emulators.pids().map(processor::of).sum();
            let taken = sleeps::run(&client, &mut deliveries, tasks, *seconds).await?;
            if round == 0 {
                continue;
            }
            let ideal = each * seconds;
            table.add(&format!("tasks of {seconds} s"), "%", 100.0 * ideal / taken);
            let spent = (services.dispatcher_nanos() - before) as f64;
            let name = format!("tasks of {seconds} s: processor time of the dispatcher");
            table.add(&name, "us/task", spent / 1e3 / tasks as f64);
            let spent = emulators.pids().map(processor::of).sum::<u64>() - emulators_before;
            let name = format!("tasks of {seconds} s: processor time of the emulators");
            table.add(&name, "us/task", spent as f64 / 1e3 / tasks as f64);
        }
    }
    Ok(table)
}
