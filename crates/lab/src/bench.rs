//! `falkon-lab bench`: how fast Falkon is on this machine, beside floors and peers
//! measured in the same run.
//!
//! Rounds of everything that is compared alternate, so that a change in the
//! machine's load meets all alike; ratios are taken within a round. Nothing is
//! asserted: figures are for people, and for programs with `--json`.

mod bare_spawn;
mod campaign;
mod comeback;
mod core_alone;
mod dispatch;
mod efficiency;
mod emulator;
mod endurance;
mod error;
mod executors;
mod hits;
mod idle;
mod joining_floor;
mod latency;
mod memory;
mod needs;
mod policies;
mod processor;
mod report;
mod services;
mod sleeps;
mod spawn;
mod start;
mod sweep;
mod wire_floor;

use crate::program::falkon;
use clap::{Args, Subcommand};
use error::BenchError;
use falkon_cli::exit::{Exit, runtime};
use report::{Machine, Table};
use std::io::Write;

/// `falkon-lab bench`
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

/// What every benchmark takes.
#[derive(Args, Debug, Clone)]
pub(crate) struct RoundArgs {
    /// Rounds; medians and the spread over them are shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum What {
    /// No-op tasks per second, end to end over TCP between separate processes
    Dispatch(dispatch::DispatchArgs),
    /// No-op tasks per second for submissions of different sizes
    Bundles(sweep::BundlesArgs),
    /// No-op tasks per second for queues of different lengths
    Depth(sweep::DepthArgs),
    /// No-op tasks per second that all need different amounts of memory
    Needs(needs::NeedsArgs),
    /// Process tasks per second, compared with a bare spawn loop and xargs
    Spawn(spawn::SpawnArgs),
    /// A few short tasks with `falkon run`, start-up and exit included
    Start(start::StartArgs),
    /// Time that a cached input adds to a task
    Hits(hits::HitsArgs),
    /// Time from submission to result of one task on an idle system
    Latency(latency::LatencyArgs),
    /// Memory of a dispatcher per queued task
    Memory(memory::MemoryArgs),
    /// Decisions of the data-aware policies per second, in the core alone
    Policies(policies::PoliciesArgs),
    /// One dispatcher with many live executors
    Executors(executors::ExecutorsArgs),
    /// The cost of idle services
    Idle(idle::IdleArgs),
    /// Many executors that reconnect to a dispatcher that was killed
    Comeback(comeback::ComebackArgs),
    /// The share of their time that many executors spend in tasks
    Efficiency(efficiency::EfficiencyArgs),
    /// One long run, in which nothing may slow down or grow
    Endurance(endurance::EnduranceArgs),
    /// Hold many executors in this one process, for builtin tasks
    Emulate(emulator::EmulateArgs),
    /// All of these except executors, idle, comeback, efficiency and endurance, which take long
    All(AllArgs),
    /// The bare loop that `spawn` is compared with, in a process of its own
    #[command(hide = true)]
    BareLoop(bare_spawn::BareLoopArgs),
}

/// `falkon-lab bench all`
#[derive(Args, Debug)]
struct AllArgs {
    #[command(flatten)]
    round: RoundArgs,
    /// Fewer rounds of fewer tasks
    #[arg(long)]
    quick: bool,
}

/// Runs the command.
pub(crate) fn bench(args: BenchArgs) -> Exit {
    if let What::BareLoop(args) = &args.what {
        return bare_spawn::bare_loop(args).map_or_else(Exit::failure, |()| Exit::Success);
    }
    if let Err(error) = falkon() {
        return Exit::usage(error);
    }
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let json = match &args.what {
        What::Dispatch(args) => args.round.json,
        What::Bundles(args) => args.round.json,
        What::Depth(args) => args.round.json,
        What::Needs(args) => args.round.json,
        What::Spawn(args) => args.round.json,
        What::Start(args) => args.round.json,
        What::Hits(args) => args.round.json,
        What::Latency(args) => args.round.json,
        What::Memory(args) => args.json,
        What::Policies(args) => args.round.json,
        What::Executors(args) => args.json,
        What::Idle(args) => args.round.json,
        What::Comeback(args) => args.json,
        What::Efficiency(args) => args.round.json,
        What::Endurance(args) => args.json,
        What::Emulate(_) => true,
        What::All(args) => args.round.json,
        What::BareLoop(_) => false,
    };
    let machine = Machine::look();
    if !json {
        // Nobody may be reading; the measuring goes on for the exit status.
        let _ = writeln!(std::io::stdout(), "{machine}");
    }
    let show = |table: Table| -> Result<(), BenchError> {
        if json {
            report::print_json(&machine, &table)
        } else {
            let _ = writeln!(std::io::stdout(), "\n{table}");
            Ok(())
        }
    };
    let result = runtime.block_on(async {
        match args.what {
            What::Dispatch(args) => show(dispatch::run(&args).await?),
            What::Bundles(args) => show(sweep::bundles(&args).await?),
            What::Depth(args) => show(sweep::depth(&args).await?),
            What::Needs(args) => show(needs::run(&args).await?),
            What::Spawn(args) => show(spawn::run(&args).await?),
            What::Start(args) => show(start::run(&args)?),
            What::Hits(args) => show(hits::run(&args)?),
            What::Latency(args) => show(latency::run(&args).await?),
            What::Memory(args) => show(memory::run(&args).await?),
            What::Policies(args) => show(policies::run(&args)?),
            What::Executors(args) => show(executors::run(&args).await?),
            What::Idle(args) => show(idle::run(&args).await?),
            What::Comeback(args) => show(comeback::run(&args).await?),
            What::Efficiency(args) => show(efficiency::run(&args).await?),
            What::Endurance(args) => show(endurance::run(&args).await?),
            What::Emulate(args) => emulator::emulate(&args).await,
            What::All(args) => all(&args, show).await,
            What::BareLoop(_) => Ok(()),
        }
    });
    match result {
        Ok(()) => Exit::Success,
        Err(error) => Exit::failure(error),
    }
}

async fn all(
    args: &AllArgs,
    show: impl Fn(Table) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let mut round = args.round.clone();
    if args.quick {
        round.rounds = round.rounds.min(3);
    }
    for load in dispatch::usual(&round, args.quick) {
        show(dispatch::run(&load).await?)?;
    }
    show(sweep::bundles(&sweep::BundlesArgs::usual(&round, args.quick)).await?)?;
    show(sweep::depth(&sweep::DepthArgs::usual(&round, args.quick)).await?)?;
    show(needs::run(&needs::NeedsArgs::usual(&round, args.quick)).await?)?;
    show(spawn::run(&spawn::SpawnArgs::usual(&round, args.quick)).await?)?;
    show(start::run(&start::StartArgs::usual(&round, args.quick))?)?;
    show(hits::run(&hits::HitsArgs::usual(&round, args.quick))?)?;
    show(latency::run(&latency::LatencyArgs::usual(&round, args.quick)).await?)?;
    show(memory::run(&memory::MemoryArgs::usual(args.quick)).await?)
}
