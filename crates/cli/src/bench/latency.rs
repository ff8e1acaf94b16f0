//! `falkon bench latency`: one task on an idle system, from its submission to
//! its result at the client.

use super::RoundArgs;
use super::campaign::{self, Load};
use super::error::BenchError;
use super::report::{Table, percentile};
use super::services::{Services, Setup};
use super::wire_floor::TwoHops;
use crate::service::start::SecurityLevel;
use clap::Args;
use falkon_core::result::Outcome;
use falkon_core::task::{InstanceId, TaskId};
use falkon_node::client::{Client, Deliveries};
use std::process::{Command, Stdio};
use std::time::Instant;

/// `/bin/true` tasks per `@noop` task: processes take longer.
const PROCESS_SHARE: u64 = 4;

/// `falkon bench latency`
#[derive(Args, Debug)]
pub(crate) struct LatencyArgs {
    #[command(flatten)]
    pub(crate) round: RoundArgs,
    /// Tasks per round, one after the other
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(10..))]
    tasks: u64,
    /// Protection of connections
    #[arg(long, value_enum, default_value = "none")]
    security: SecurityLevel,
    /// Keep no journal
    #[arg(long)]
    no_journal: bool,
}

impl LatencyArgs {
    /// What `falkon bench all` measures.
    pub(crate) fn usual(round: &RoundArgs, quick: bool) -> LatencyArgs {
        let tasks = if quick { 500 } else { 2000 };
        let (security, no_journal) = (SecurityLevel::None, false);
        LatencyArgs { round: round.clone(), tasks, security, no_journal }
    }
}

/// Runs the benchmark.
pub(crate) async fn run(args: &LatencyArgs) -> Result<Table, BenchError> {
    let about = format!(
        "one task after the other, {} per round; security {:?}, journal {}",
        args.tasks,
        args.security,
        if args.no_journal { "off" } else { "on" }
    );
    let mut table = Table::new("latency", about);
    let setup = Setup {
        executors: 1,
        slots: 2,
        security: args.security,
        journal: !args.no_journal,
        ..Setup::default()
    };
    let services = Services::start(&setup).await?;
    let (client, deliveries) = services.connect().await?;
    let instance = campaign::create(&client).await?;
    client.subscribe(instance, 0).await?;
    let mut line = Line { client, deliveries, instance, next: 0 };
    for round in 0..=args.round.rounds {
        let mut hops = TwoHops::new()?;
        let mut bare = Vec::new();
        let mut builtin = Vec::new();
        let mut process = Vec::new();
        let mut spawned = Vec::new();
        for _ in 0..args.tasks {
            bare.push(hops.ping()?);
        }
        drop(hops);
        for _ in 0..args.tasks {
            builtin.push(line.round_trip("@noop").await?);
        }
        for _ in 0..args.tasks.div_ceil(PROCESS_SHARE) {
            process.push(line.round_trip("/bin/true").await?);
            spawned.push(spawn_and_wait()?);
        }
        // The first round warms everything up.
        if round == 0 {
            continue;
        }
        for (name, mut times) in [
            ("@noop", builtin),
            ("floor: a message through two hops and back", bare),
            ("/bin/true", process),
            ("floor: spawn /bin/true and wait", spawned),
        ] {
            times.sort_by(f64::total_cmp);
            for (share, label) in [(0.5, "p50"), (0.99, "p99")] {
                table.add(&format!("{name}, {label}"), "us", percentile(&times, share) * 1e6);
            }
        }
    }
    table.compare_with("floor: a message through two hops and back, p50");
    Ok(table)
}

/// One client's tasks, one after the other.
struct Line {
    client: Client,
    deliveries: Deliveries,
    instance: InstanceId,
    next: u64,
}

impl Line {
    /// Seconds from the submission of a task to its result.
    async fn round_trip(&mut self, program: &'static str) -> Result<f64, BenchError> {
        let load = Load { tasks: 1, bundle: 1, distinct: false, program, ..Load::default() };
        let submission = load.submission(0);
        let start = Instant::now();
        let pending = self.client.submit(self.instance, TaskId(self.next), submission).await?;
        self.next += 1;
        let delivery = loop {
            let delivery = self.deliveries.recv().await?;
            if !delivery.results.is_empty() {
                break delivery;
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        pending.accepted().await?;
        let done = delivery.results.iter().filter(|run| run.outcome == Outcome::Exit(0)).count();
        if done != 1 || delivery.from + 1 != self.next {
            return Err(BenchError::Results { expected: 1, done: done as u64 });
        }
        self.client.acknowledge(self.instance, self.next).await?;
        Ok(seconds)
    }
}

fn spawn_and_wait() -> Result<f64, BenchError> {
    let start = Instant::now();
    let status = Command::new("/bin/true")
        .stdin(Stdio::null())
        .status()
        .map_err(BenchError::system("spawn a process"))?;
    match status.success() {
        true => Ok(start.elapsed().as_secs_f64()),
        false => Err(BenchError::Program("/bin/true")),
    }
}
