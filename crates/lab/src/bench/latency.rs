//! `falkon-lab bench latency`: one task on an idle system, from its submission to
//! its result at the client.

use super::RoundArgs;
use super::campaign::{self, Load};
use super::error::BenchError;
use super::processor;
use super::report::{Table, percentile};
use super::services::{PARTS, Services, Setup};
use super::wire_floor::{TwoHops, Wait};
use clap::Args;
use falkon_cli::SecurityLevel;
use falkon_core::result::Outcome;
use falkon_core::task::{InstanceId, TaskId};
use falkon_net::client::{Client, Deliveries};
use std::process::{Command, Stdio};
use std::time::Instant;

/// `/bin/true` tasks per `@noop` task: processes take longer.
const PROCESS_SHARE: u64 = 4;
const PROGRAM: &str = "/bin/true";
/// The program in its place that fails.
const FAILING: &str = "/bin/false";
/// Processes of one kind in a row.
const TURN_TASKS: u64 = 100;

const NOOP: &str = "@noop";
const BEHIND_RELAY: &str = "@noop, below a relay";
const ADDED: &str = "added by the relay, p50";
const ADDED_BEYOND: &str = "added by the relay beyond two hops, awake, p50";
const TWO_HOPS: &str = "floor: a message through two hops and back";
const TWO_HOPS_AWAKE: &str = "floor: the same, awake";
const PROCESS: &str = "one process";
const SPAWN: &str = "floor: spawn it, take its output, wait";
const SPAWN_BEHIND: &str = "floor: the same behind two hops";
const SPAWN_BEHIND_AWAKE: &str = "floor: the same behind two hops, awake";

/// `falkon-lab bench latency`
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
    /// Also measure tasks of executors below a relay
    #[arg(long)]
    relay: bool,
    /// Processes fail (/bin/false): the ends of those alone can be asked of some
    /// peers
    #[arg(long)]
    failing: bool,
}

impl LatencyArgs {
    /// What `falkon-lab bench all` measures.
    pub(crate) fn usual(round: &RoundArgs, quick: bool) -> LatencyArgs {
        let tasks = if quick { 500 } else { 2000 };
        LatencyArgs {
            round: round.clone(),
            tasks,
            security: SecurityLevel::None,
            no_journal: false,
            relay: false,
            failing: false,
        }
    }
}

impl LatencyArgs {
    fn program(&self) -> &'static str {
        if self.failing { FAILING } else { PROGRAM }
    }
}

/// Runs the benchmark.
pub(crate) async fn run(args: &LatencyArgs) -> Result<Table, BenchError> {
    let about = format!(
        "one task after the other, {} per round, a quarter of them processes ({}); security {:?}, \
         journal {}",
        args.tasks,
        args.program(),
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
    let mut line = Line::start(&setup, args.program()).await?;
    let mut below = match args.relay {
        true => Some(Line::start(&Setup { relay: true, ..setup }, args.program()).await?),
        false => None,
    };
    for round in 0..=args.round.rounds {
        let mut figures = measure(&mut line, args.tasks).await?;
        if let Some(below) = &mut below {
            let mut figure = Figure::new(BEHIND_RELAY);
            below.time(&mut figure, args.tasks, NOOP).await?;
            figures.push(figure);
        }
        // The first round warms everything up.
        if round > 0 {
            let medians: Vec<f64> = figures.iter().map(Figure::median_micros).collect();
            if let [noop, _, two_hops_awake, .., behind] = medians[..]
                && below.is_some()
            {
                table.add(ADDED, "us", behind - noop);
                table.add(ADDED_BEYOND, "us", behind - noop - two_hops_awake);
            }
            figures.into_iter().for_each(|figure| figure.add_to(&mut table));
        }
    }
    for share in ["p50", "p99"] {
        for floor in [TWO_HOPS, TWO_HOPS_AWAKE] {
            table.ratio_of(&format!("{NOOP}, {share}"), &format!("{floor}, {share}"));
        }
        for floor in [SPAWN, SPAWN_BEHIND, SPAWN_BEHIND_AWAKE] {
            table.ratio_of(&format!("{PROCESS}, {share}"), &format!("{floor}, {share}"));
        }
    }
    table.note("Floors run the same command, take what it writes, and wait for it. Awake: they");
    table.note("look for the next message for 200 us before they sleep, as Falkon does where");
    table.note("answers come soon. Processor time is that of all that take part, per round trip;");
    table.note("that of the process itself, from its execution on, does not count.");
    Ok(table)
}

/// One round of everything.
async fn measure(line: &mut Line, tasks: u64) -> Result<Vec<Figure>, BenchError> {
    let mut two_hops = Figure::new(TWO_HOPS);
    let mut two_hops_awake = Figure::new(TWO_HOPS_AWAKE);
    let mut noop = Figure::new(NOOP);
    two_hops.time(tasks, &mut TwoHops::new(Wait::Asleep, || Ok(()))?)?;
    two_hops_awake.time(tasks, &mut TwoHops::new(Wait::Awake, || Ok(()))?)?;
    line.time(&mut noop, tasks, NOOP).await?;

    let mut process = Figure::new(PROCESS);
    let mut spawn = Figure::new(SPAWN);
    let mut behind = Figure::new(SPAWN_BEHIND);
    let mut behind_awake = Figure::new(SPAWN_BEHIND_AWAKE);
    let program = line.program;
    let mut hops = TwoHops::new(Wait::Asleep, move || spawn_and_wait(program))?;
    let mut hops_awake = TwoHops::new(Wait::Awake, move || spawn_and_wait(program))?;
    let mut left = tasks.div_ceil(PROCESS_SHARE);
    // Rounds take turns, as the machine's other load changes.
    while left > 0 {
        let count = left.min(TURN_TASKS);
        left -= count;
        line.time(&mut process, count, program).await?;
        let before = processor::own();
        for _ in 0..count {
            let start = Instant::now();
            spawn_and_wait(program).map_err(BenchError::system("run a process"))?;
            spawn.seconds.push(start.elapsed().as_secs_f64());
        }
        spawn.nanos += processor::own() - before;
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
    /// The processor time of each of [`PARTS`], of Falkon's.
    parts: [u64; PARTS.len()],
}

impl Figure {
    fn new(name: &'static str) -> Figure {
        Figure { name, seconds: Vec::new(), nanos: 0, parts: [0; PARTS.len()] }
    }

    /// Adds round trips of a floor.
    fn time(&mut self, count: u64, hops: &mut TwoHops) -> Result<(), BenchError> {
        let before = processor::own();
        for _ in 0..count {
            self.seconds.push(hops.ping()?);
        }
        self.nanos += processor::own() - before;
        Ok(())
    }

    fn median_micros(&self) -> f64 {
        let mut seconds = self.seconds.clone();
        seconds.sort_by(f64::total_cmp);
        percentile(&seconds, 0.5) * 1e6
    }

    fn add_to(mut self, table: &mut Table) {
        self.seconds.sort_by(f64::total_cmp);
        for (share, label) in [(0.5, "p50"), (0.99, "p99")] {
            let micros = percentile(&self.seconds, share) * 1e6;
            table.add(&format!("{}, {label}", self.name), "us", micros);
        }
        let each = |nanos: u64| nanos as f64 / 1e3 / self.seconds.len() as f64;
        table.add(&format!("{}, processor time", self.name), "us", each(self.nanos));
        for (part, nanos) in PARTS.iter().zip(self.parts).filter(|(_, nanos)| *nanos > 0) {
            table.add(&format!("{}, processor time of the {part}", self.name), "us", each(nanos));
        }
    }
}

/// One client's tasks, one after the other.
struct Line {
    services: Services,
    client: Client,
    deliveries: Deliveries,
    instance: InstanceId,
    /// The program that processes run.
    program: &'static str,
    next: u64,
}

impl Line {
    async fn start(setup: &Setup, program: &'static str) -> Result<Line, BenchError> {
        let services = Services::start(setup).await?;
        let (client, deliveries) = services.connect().await?;
        let instance = campaign::create(&client).await?;
        client.subscribe(instance, 0).await?;
        Ok(Line { services, client, deliveries, instance, program, next: 0 })
    }

    /// Adds round trips of tasks.
    async fn time(
        &mut self,
        figure: &mut Figure,
        count: u64,
        program: &'static str,
    ) -> Result<(), BenchError> {
        let before = self.services.parts_nanos();
        for _ in 0..count {
            figure.seconds.push(self.round_trip(program).await?);
        }
        let spent = self.services.parts_nanos().into_iter().zip(before);
        for (part, (after, before)) in figure.parts.iter_mut().zip(spent) {
            *part += after.saturating_sub(before);
        }
        figure.nanos = figure.parts.iter().sum();
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
        let expected = Outcome::Exit(i32::from(program == FAILING));
        let done = delivery.results.iter().filter(|run| run.outcome == expected).count();
        if done != 1 || delivery.from + 1 != self.next {
            return Err(BenchError::Results { expected: 1, done: done as u64 });
        }
        self.client.acknowledge(self.instance, self.next).await?;
        Ok(seconds)
    }
}

/// Runs a process as a task is run: with nothing to read, and what it writes is
/// taken.
fn spawn_and_wait(program: &str) -> std::io::Result<()> {
    let output = Command::new(program).stdin(Stdio::null()).output()?;
    match output.status.success() == (program != FAILING) {
        true => Ok(()),
        false => Err(std::io::Error::other("it ended otherwise than it does")),
    }
}
