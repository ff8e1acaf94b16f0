//! `falkon bench latency`: one task on an idle system, from its submission to
//! its result at the client.

use super::RoundArgs;
use super::campaign::{self, Load};
use super::error::BenchError;
use super::report::{Table, percentile};
use super::services::{Services, Setup};
use super::wire_floor::{TwoHops, Wait};
use crate::service::start::SecurityLevel;
use clap::Args;
use falkon_core::result::Outcome;
use falkon_core::task::{InstanceId, TaskId};
use falkon_node::client::{Client, Deliveries};
use std::process::{Command, Stdio};
use std::time::Instant;

/// `/bin/true` tasks per `@noop` task: processes take longer.
const PROCESS_SHARE: u64 = 4;
const PROGRAM: &str = "/bin/true";
/// Processes of one kind in a row.
const TURN_TASKS: u64 = 100;

const NOOP: &str = "@noop";
const TWO_HOPS: &str = "floor: a message through two hops and back";
const TWO_HOPS_AWAKE: &str = "floor: the same, awake";
const PROCESS: &str = PROGRAM;
const SPAWN: &str = "floor: spawn /bin/true, take its output, wait";
const SPAWN_BEHIND: &str = "floor: the same behind two hops";
const SPAWN_BEHIND_AWAKE: &str = "floor: the same behind two hops, awake";

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
    let mut line = Line { services, client, deliveries, instance, next: 0 };
    for round in 0..=args.round.rounds {
        let figures = measure(&mut line, args.tasks).await?;
        // The first round warms everything up.
        if round > 0 {
            figures.into_iter().for_each(|figure| figure.add_to(&mut table));
        }
    }
    for share in ["p50", "p99"] {
        table.ratio_of(&format!("{NOOP}, {share}"), &format!("{TWO_HOPS}, {share}"));
        for floor in [SPAWN, SPAWN_BEHIND] {
            table.ratio_of(&format!("{PROCESS}, {share}"), &format!("{floor}, {share}"));
        }
    }
    table.note("Floors run the same command, take what it writes, and wait for it. Awake: they");
    table.note("look for the next message for 200 us before they sleep, as Falkon does where");
    table.note("answers come soon. Processor time is that of all that take part, per round trip;");
    table.note("that of /bin/true itself, from its execution on, does not count.");
    Ok(table)
}

/// One round of everything.
async fn measure(line: &mut Line, tasks: u64) -> Result<Vec<Figure>, BenchError> {
    let mut two_hops = Figure::new(TWO_HOPS);
    let mut two_hops_awake = Figure::new(TWO_HOPS_AWAKE);
    let mut noop = Figure::new(NOOP);
    two_hops.time(tasks, &mut TwoHops::new(Wait::Asleep, || Ok(()))?)?;
    two_hops_awake.time(tasks, &mut TwoHops::new(Wait::Awake, || Ok(()))?)?;
    line.time(&mut noop, tasks, "@noop").await?;

    let mut process = Figure::new(PROCESS);
    let mut spawn = Figure::new(SPAWN);
    let mut behind = Figure::new(SPAWN_BEHIND);
    let mut behind_awake = Figure::new(SPAWN_BEHIND_AWAKE);
    let mut hops = TwoHops::new(Wait::Asleep, spawn_and_wait)?;
    let mut hops_awake = TwoHops::new(Wait::Awake, spawn_and_wait)?;
    let mut left = tasks.div_ceil(PROCESS_SHARE);
    // Rounds take turns, as the machine's other load changes.
    while left > 0 {
        let count = left.min(TURN_TASKS);
        left -= count;
        line.time(&mut process, count, PROGRAM).await?;
        let before = own_nanos();
        for _ in 0..count {
            let start = Instant::now();
            spawn_and_wait().map_err(BenchError::system("run /bin/true"))?;
            spawn.seconds.push(start.elapsed().as_secs_f64());
        }
        spawn.nanos += own_nanos() - before;
        behind.time(count, &mut hops)?;
        behind_awake.time(count, &mut hops_awake)?;
    }
    Ok(vec![noop, two_hops, two_hops_awake, process, spawn, behind, behind_awake])
}

/// What round trips of one kind took.
struct Figure {
    name: &'static str,
    seconds: Vec<f64>,
    /// Processor time of all of them.
    nanos: u64,
}

impl Figure {
    fn new(name: &'static str) -> Figure {
        Figure { name, seconds: Vec::new(), nanos: 0 }
    }

    /// Adds round trips of a floor.
    fn time(&mut self, count: u64, hops: &mut TwoHops) -> Result<(), BenchError> {
        let before = own_nanos();
        for _ in 0..count {
            self.seconds.push(hops.ping()?);
        }
        self.nanos += own_nanos() - before;
        Ok(())
    }

    fn add_to(mut self, table: &mut Table) {
        self.seconds.sort_by(f64::total_cmp);
        for (share, label) in [(0.5, "p50"), (0.99, "p99")] {
            let micros = percentile(&self.seconds, share) * 1e6;
            table.add(&format!("{}, {label}", self.name), "us", micros);
        }
        let micros = self.nanos as f64 / 1e3 / self.seconds.len() as f64;
        table.add(&format!("{}, processor time", self.name), "us", micros);
    }
}

/// Processor time of this process, in nanoseconds.
fn own_nanos() -> u64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64
}

/// One client's tasks, one after the other.
struct Line {
    services: Services,
    client: Client,
    deliveries: Deliveries,
    instance: InstanceId,
    next: u64,
}

impl Line {
    /// Processor time of all that take part, in nanoseconds.
    fn nanos(&self) -> u64 {
        let services = &self.services;
        let executor = services.executors_nanos() + services.hosts_nanos();
        own_nanos() + services.dispatcher_nanos() + executor
    }

    /// Adds round trips of tasks.
    async fn time(
        &mut self,
        figure: &mut Figure,
        count: u64,
        program: &'static str,
    ) -> Result<(), BenchError> {
        let before = self.nanos();
        for _ in 0..count {
            figure.seconds.push(self.round_trip(program).await?);
        }
        figure.nanos += self.nanos() - before;
        Ok(())
    }

    /// Seconds from the submission of a task to its result.
    async fn round_trip(&mut self, program: &'static str) -> Result<f64, BenchError> {
        let load = Load {
            tasks: 1,
            bundle: 1,
            distinct: false,
            program,
            numbered: false,
            ..Load::default()
        };
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

/// Runs a process as a task is run: with nothing to read, and what it writes is
/// taken.
fn spawn_and_wait() -> std::io::Result<()> {
    let output = Command::new(PROGRAM).stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(std::io::Error::other("it failed")),
    }
}
