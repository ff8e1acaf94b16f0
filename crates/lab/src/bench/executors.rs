//! `falkon-lab bench executors`: one dispatcher with very many live executors.

use super::campaign::{self, Load};
use super::emulator::{
    Emulators, JOINING_MAX, SHARE_MAX, connected, connections_max, descriptors_max,
};
use super::error::BenchError;
use super::joining_floor;
use super::memory::resident_bytes;
use super::processor;
use super::report::Table;
use super::services::{Relays, Services, Setup};
use super::sleeps;
use clap::Args;
use falkon_cli::SecurityLevel;
use falkon_cli::exit::write_line;
use falkon_net::client::{Client, Deliveries};
use std::time::{Duration, Instant};

/// Executors that the many are compared with.
const FEW_EXECUTORS: u32 = 2;
/// Seconds that a sleeping task sleeps.
const SLEEP_S: f64 = 1.0;
/// Tasks that are started one by one, but take no time.
const SHORT: &str = "tasks of 0 s";
/// Whose processor time is told. Relays count with the processes that hold their
/// connections.
const PARTS: [&str; 5] = ["client", "dispatcher", "concentrators", "emulators", "relays"];
/// Tasks of the array for each executor, at least: several orders' worth, so
/// that the first and the last, when not all are busy, do not decide the rate.
const EACH_TASKS_MIN: u64 = 200_000;
/// Tasks of the array, at least.
const ARRAY_TASKS_MIN: u64 = 1_000_000_000;
/// Sleeping tasks for each slot.
const SLEEPS: u32 = 2;

/// `falkon-lab bench executors`
#[derive(Args, Debug)]
pub(crate) struct ExecutorsArgs {
    /// Rounds; medians and the spread over them are shown
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Emulated executors
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    executors: u32,
    /// Processes that the executors are spread over, each with an address of its
    /// own [default: 2, or one for each 10,000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    processes: Option<u32>,
    /// Processes that hold connections for the dispatcher, as for falkon start
    /// [default: as many as descriptors demand]
    #[arg(long, value_name = "N")]
    concentrators: Option<u32>,
    /// Relays between the dispatcher and the executors, which are spread over them
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024))]
    relays: u32,
    /// Executors that may be joining when another process of them starts
    #[arg(long, value_name = "N", default_value_t = JOINING_MAX, value_parser = clap::value_parser!(u32).range(1..))]
    joining: u32,
    /// Seconds at rest, in which only heartbeats are exchanged
    #[arg(long, value_name = "SECONDS", default_value_t = 6)]
    rest: u64,
    /// No-op tasks of the array [default: 1,000,000,000, or 200,000 for each
    /// executor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    tasks: Option<u64>,
    /// Distinct no-op tasks
    #[arg(long, value_name = "N", default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    distinct: u64,
    /// Tasks that are started one by one and take no time
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    short: u64,
    /// Protection of connections
    #[arg(long, value_enum, default_value = "none")]
    security: SecurityLevel,
}

impl ExecutorsArgs {
    /// As many as fit: without concentrators each takes a descriptor of the
    /// dispatcher's.
    fn executors(&self) -> u32 {
        let most = if self.concentrators == Some(0) { connections_max() } else { u64::MAX };
        u64::from(self.executors).min(most) as u32
    }

    fn processes(&self) -> u32 {
        // A share is no more than a thousand times ten.
        let share = connections_max().clamp(1, SHARE_MAX.into()) as u32;
        // No relay is without.
        let least = self.relays.max(2);
        self.processes.unwrap_or(self.executors().div_ceil(share).max(least))
    }

    fn loads(&self) -> [(&'static str, Load); 2] {
        let each = u64::from(self.executors()) * EACH_TASKS_MIN;
        let tasks = self.tasks.unwrap_or(each.max(ARRAY_TASKS_MIN));
        let array = Load { tasks, bundle: tasks, distinct: false, ..Load::default() };
        let distinct = Load { tasks: self.distinct, ..Load::default() };
        [("array", array), ("distinct tasks", distinct)]
    }
}

/// Runs the benchmark. Each round has a dispatcher of its own, first with few
/// executors, then with many: idle ones would disturb the few by their
/// heartbeats.
pub(crate) async fn run(args: &ExecutorsArgs) -> Result<Table, BenchError> {
    let executors = args.executors();
    let mut table = Table::new(
        "executors",
        format!(
            "{executors} emulated executors of one slot in {} processes{}, security {:?}, journal on",
            args.processes(),
            if args.relays > 0 { format!(", below {} relays", args.relays) } else { String::new() },
            args.security
        ),
    );
    for round in 1..=args.rounds {
        let said =
            |what: &str| write_line(format_args!("round {round} of {}: {what}", args.rounds));
        run_round(args, &said, &mut table).await?;
    }
    if executors < args.executors {
        table.note(format!(
            "{} executors were asked for; descriptors bound it to {executors}: without concentrators \
             each executor takes one of the dispatcher's, and a process may have {} here (hard \
             limit, ulimit -Hn)",
            args.executors,
            descriptors_max()
        ));
    }
    Ok(table)
}

async fn run_round(
    args: &ExecutorsArgs,
    said: &dyn Fn(&str),
    table: &mut Table,
) -> Result<(), BenchError> {
    let executors = args.executors();
    let setup =
        Setup { security: args.security, concentrators: args.concentrators, ..Setup::default() };
    let services = Services::start(&setup).await?;
    let (client, mut deliveries) = services.connect().await?;
    said(&format!("{FEW_EXECUTORS} executors"));
    let few = Emulators::start(&services, &client, (FEW_EXECUTORS, 1), 1).await?;
    let at_rest = [0.0; PARTS.len()];
    let ends = (&client, &mut deliveries);
    let none = Relays::default();
    dispatch(args, FEW_EXECUTORS, (&services, &none, &few), ends, at_rest, table).await?;
    few.stop(&client).await?;
    let before = memory(&services, &none);
    let relays = Relays::start(&services, args.relays, &setup).await?;
    let shape = (executors, args.processes());
    let floor = joining_floor::measure()?;
    let served = || {
        let relays: u64 = relays.pids().into_iter().map(processor::of).sum();
        services.dispatcher_nanos() + services.concentrators_nanos() + relays
    };
    let before_joining = served();
    said(&format!("{executors} executors join"));
    let many = Emulators::below(&relays, &services, &client, (shape, args.joining), 1).await?;
    let joined = f64::from(executors) / many.joined_in;
    said(&format!("they joined at {joined:.0}/s"));
    table.add("joined", "/s", joined);
    table.add("bare connections with as many messages", "/s", floor);
    table.add("joined against bare connections", "x", joined / floor);
    let emulated: u64 = many.pids().map(processor::of).sum();
    let spent = [
        ("dispatcher, relays and concentrators", served() - before_joining),
        ("the emulators", emulated),
    ];
    for (part, nanos) in spent {
        let each = nanos as f64 / 1e3 / f64::from(executors);
        table.add(&format!("joining: {part}, per executor"), "us", each);
    }
    table.add("concentrators", "", services.concentrator_pids().len() as f64);
    said(&format!("{} s of rest", args.rest));
    let idle = rest(args, (&services, &relays, &many), before, table).await?;
    said(&format!("{executors} executors"));
    let ends = (&client, &mut deliveries);
    dispatch(args, executors, (&services, &relays, &many), ends, idle, table).await?;
    for name in ["array", "distinct tasks"] {
        against(name, "", executors, table);
    }
    for part in parts(args) {
        against("distinct tasks", &time_of(part), executors, table);
    }
    said(&format!("tasks of {SLEEP_S} s"));
    let tasks = u64::from(executors * SLEEPS);
    let taken = sleeps::run(&client, &mut deliveries, tasks, SLEEP_S).await?;
    let ideal = SLEEP_S * f64::from(SLEEPS);
    table.add(&format!("efficiency of tasks of {SLEEP_S} s"), "%", 100.0 * ideal / taken);
    let lost = u64::from(executors).saturating_sub(connected(&client).await?);
    table.add("executors lost", "", lost as f64);
    let log = services.log("dispatcher") + &services.log("relay");
    let joins = log.matches(" joined with ").count() as u32;
    let again = joins.saturating_sub(FEW_EXECUTORS + args.relays + executors);
    table.add("executors that joined again", "", f64::from(again));
    Ok(())
}

/// Memory of the dispatcher, of relays, and of their concentrators.
fn memory(services: &Services, relays: &Relays) -> u64 {
    let others = services.concentrator_pids().into_iter().chain(relays.pids());
    resident_bytes(services.dispatcher_pid()) + others.map(resident_bytes).sum::<u64>()
}

/// The rate or the processor time with many executors, in terms of that with
/// few.
fn against(name: &str, what: &str, executors: u32, table: &mut Table) {
    let figure = |executors| table.last(&format!("{name}, {executors} executors{what}"));
    if let (Some(few), Some(many)) = (figure(FEW_EXECUTORS), figure(executors))
        && few > 0.0
    {
        let name = format!("{name}, {executors} against {FEW_EXECUTORS}{what}");
        table.add(&name, "x", many / few);
    }
}

/// Those of [`PARTS`] that there are.
fn parts(args: &ExecutorsArgs) -> &'static [&'static str] {
    &PARTS[..PARTS.len() - usize::from(args.relays == 0)]
}

fn time_of(part: &str) -> String {
    format!(": processor time of the {part}")
}

/// Processor time used, in nanoseconds, in the order of [`PARTS`].
fn processor_times(
    services: &Services,
    relays: &Relays,
    emulators: &Emulators,
) -> [u64; PARTS.len()] {
    [
        processor::of(std::process::id()),
        services.dispatcher_nanos(),
        services.concentrators_nanos(),
        emulators.pids().map(processor::of).sum(),
        relays.pids().into_iter().map(processor::of).sum(),
    ]
}

/// No-op tasks, once to warm up. `idle` is what processes use at rest, of a
/// processor, in the order of [`PARTS`]: heartbeats go on while tasks run, and
/// are no part of what a task costs.
async fn dispatch(
    args: &ExecutorsArgs,
    executors: u32,
    (services, relays, emulators): (&Services, &Relays, &Emulators),
    (client, deliveries): (&Client, &mut Deliveries),
    idle: [f64; PARTS.len()],
    table: &mut Table,
) -> Result<(), BenchError> {
    for (name, load) in args.loads() {
        let warm_up = Load { tasks: load.tasks.min(100_000), ..load.clone() };
        campaign::run(client, deliveries, &warm_up).await?;
        let before = processor_times(services, relays, emulators);
        let taken = campaign::run(client, deliveries, &load).await?;
        let after = processor_times(services, relays, emulators);
        let name = format!("{name}, {executors} executors");
        table.add(&name, "tasks/s", load.tasks as f64 / taken.seconds);
        if load.distinct {
            for (at, part) in parts(args).iter().enumerate() {
                let spent = after[at].saturating_sub(before[at]) as f64;
                let spent = (spent - idle[at] * taken.seconds * 1e9).max(0.0);
                let name = format!("{name}{}", time_of(part));
                table.add(&name, "ns/task", spent / load.tasks as f64);
            }
        }
    }
    sleeps::run(client, deliveries, args.short.min(10_000), 0.0).await?;
    let taken = sleeps::run(client, deliveries, args.short, 0.0).await?;
    let name = format!("{SHORT}, {executors} executors");
    table.add(&name, "tasks/s", args.short as f64 / taken);
    Ok(())
}

/// What executors cost that do nothing but stay. Returns what processes use, of a
/// processor, in the order of [`PARTS`].
async fn rest(
    args: &ExecutorsArgs,
    (services, relays, emulators): (&Services, &Relays, &Emulators),
    memory_before: u64,
    table: &mut Table,
) -> Result<[f64; PARTS.len()], BenchError> {
    let executors = f64::from(args.executors());
    let before = processor_times(services, relays, emulators);
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(args.rest)).await;
    let nanos = start.elapsed().as_nanos() as f64;
    let after = processor_times(services, relays, emulators);
    let mut shares = [0.0; PARTS.len()];
    for at in 1..parts(args).len() {
        shares[at] = after[at].saturating_sub(before[at]) as f64 / nanos;
        let name = format!("at rest: the {}, per executor", PARTS[at]);
        table.add(&name, "us/s", 1e6 * shares[at] / executors);
    }
    table.add("at rest: processor share of the dispatcher", "%", 100.0 * shares[1]);
    let grown = memory(services, relays).saturating_sub(memory_before) as f64;
    let resident = resident_bytes(services.dispatcher_pid()) as f64;
    table.add("at rest: memory of the dispatcher", "MiB", resident / f64::from(1 << 20));
    table.add(
        "at rest: memory of dispatcher, relays and concentrators, per executor",
        "bytes",
        grown / executors,
    );
    let emulators: u64 = emulators.pids().map(resident_bytes).sum();
    table.add(
        "at rest: memory of the emulators, per executor",
        "bytes",
        emulators as f64 / executors,
    );
    Ok(shares)
}
