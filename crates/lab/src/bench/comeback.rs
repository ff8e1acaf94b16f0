//! `falkon-lab bench comeback`: many executors that come back to a dispatcher that
//! was killed, beside a long queue.

use super::campaign::{self, Load};
use super::emulator::{Emulators, connected};
use super::error::BenchError;
use super::report::Table;
use super::services::{Services, Setup};
use clap::Args;
use falkon_cli::SecurityLevel;
use falkon_cli::exit::write_line;
use falkon_core::task::InstanceId;
use falkon_net::client::Client;
use falkon_wire::message::InstanceStatus;
use std::time::{Duration, Instant};

/// What each executor has when the dispatcher is killed, and keeps: it runs for
/// longer than the benchmark.
const PROGRAM: &str = "@sleep 1000000";
/// Pause between two looks at how many executors have come back.
const LOOK_MS: u64 = 200;
/// How long it may take until all are there, for each thousand of them.
const BACK_S_PER_THOUSAND_MAX: u64 = 20;

/// `falkon-lab bench comeback`
#[derive(Args, Debug)]
pub(crate) struct ComebackArgs {
    /// Rounds; medians and the spread over them are shown
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Emulated executors, each of which has one task
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2..=50_000))]
    executors: u32,
    /// Processes that the executors are spread over
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    processes: u32,
    /// Distinct tasks that are queued beside those that executors have, each
    /// submitted by itself
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    tasks: u64,
    /// Protection of connections
    #[arg(long, value_enum, default_value = "none")]
    security: SecurityLevel,
}

/// Runs the benchmark. Each round has a dispatcher with nothing queued, whose
/// executors come back, and one with the queue.
pub(crate) async fn run(args: &ComebackArgs) -> Result<Table, BenchError> {
    let mut table = Table::new(
        "comeback",
        format!(
            "{} emulated executors with a task each, security {:?}; their dispatcher is killed \
             and started again; processor time",
            args.executors, args.security
        ),
    );
    for round in 1..=args.rounds {
        for queued in [0, args.tasks] {
            write_line(format_args!("round {round} of {}: {queued} queued", args.rounds));
            run_once(args, queued, &mut table).await?;
        }
    }
    for what in WHAT {
        table.ratio_of(&name(what, args.tasks), &name(what, 0));
    }
    Ok(table)
}

/// The measures, by name.
const WHAT: [&str; 3] =
    ["reading the journal", "all come back: the dispatcher", "all come back: concentrators"];

fn name(what: &str, queued: u64) -> String {
    format!("{what}, {queued} queued")
}

async fn run_once(args: &ComebackArgs, queued: u64, table: &mut Table) -> Result<(), BenchError> {
    let executors = u64::from(args.executors);
    let mut services =
        Services::start(&Setup { security: args.security, ..Setup::default() }).await?;
    let (client, deliveries) = services.connect().await?;
    let shape = (args.executors, args.processes);
    let emulators = Emulators::start(&services, &client, shape, 1).await?;
    let instance = campaign::create(&client).await?;
    let load = Load { tasks: executors + queued, bundle: 1, program: PROGRAM, ..Load::default() };
    campaign::submit(&client, instance, &load).await?;
    wait(&client, instance, executors).await?;
    drop((client, deliveries));
    let (client, _deliveries) = services.kill_dispatcher().await?;
    let start = Instant::now();
    let read = services.dispatcher_nanos();
    let status = wait(&client, instance, executors).await?;
    let seconds = start.elapsed().as_secs_f64();
    let spent = services.dispatcher_nanos() - read;
    let figures = [read, spent, services.concentrators_nanos()];
    for (what, nanos) in WHAT.into_iter().zip(figures) {
        table.add(&name(what, queued), "s", nanos as f64 / 1e9);
    }
    table.add(&name("all come back: time", queued), "s", seconds);
    let each = spent as f64 / 1e3 / executors as f64;
    table.add(&name("the dispatcher, per executor", queued), "us", each);
    let lost = executors.saturating_sub(connected(&client).await?);
    table.add(&name("executors that did not come back", queued), "", lost as f64);
    // Nothing ends, and the tasks that executors have are the first ones: one
    // that was sent again, or elsewhere, is one more that is dispatched.
    let sent = status.counts.dispatched.saturating_sub(executors);
    table.add(&name("tasks sent", queued), "", sent as f64);
    client.destroy(instance).await?;
    drop(emulators);
    Ok(())
}

/// Waits until so many tasks run.
async fn wait(
    client: &Client,
    instance: InstanceId,
    tasks: u64,
) -> Result<InstanceStatus, BenchError> {
    let allowed = Duration::from_secs((1 + tasks / 1000) * BACK_S_PER_THOUSAND_MAX);
    let start = Instant::now();
    loop {
        let found = client.status(Some(instance)).await?.instances.into_iter().next();
        let running = found.as_ref().map_or(0, |found| found.running);
        match found {
            Some(found) if found.running >= tasks => return Ok(found),
            _ if start.elapsed() > allowed => {
                return Err(BenchError::Results { expected: tasks, done: running });
            }
            _ => tokio::time::sleep(Duration::from_millis(LOOK_MS)).await,
        }
    }
}
