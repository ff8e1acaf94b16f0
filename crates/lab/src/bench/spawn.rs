//! `falkon-lab bench spawn`: processes as tasks, beside a bare spawn loop and
//! xargs.

use super::bare_spawn::{host_alone, in_own_session};
use super::campaign::{self, Load};
use super::error::BenchError;
use super::processor;
use super::report::Table;
use super::services::{PARTS, Services, Setup};
use super::{RoundArgs, services::Scratch};
use crate::program::{NoProgram, falkon};
use clap::Args;
use falkon_cli::SecurityLevel;
use std::process::{Command, Stdio};
use std::time::Instant;

const PROGRAM: &str = "/bin/true";
const RATE: &str = "tasks/s";
const MICROS: &str = "us/task";
const PROCESSOR: &str = ": processor time";
const RUN: &str = "falkon run";
const SERVICES: &str = "falkon services";
const BARE: &str = "floor: bare posix_spawn loop";
const XARGS: &str = "xargs -P -n1";

/// `falkon-lab bench spawn`
#[derive(Args, Debug)]
pub(crate) struct SpawnArgs {
    #[command(flatten)]
    pub(crate) round: RoundArgs,
    /// Tasks per round
    #[arg(long, value_name = "N", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(1..))]
    tasks: u64,
    /// Tasks side by side
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: u32,
}

impl SpawnArgs {
    /// What `falkon-lab bench all` measures.
    pub(crate) fn usual(round: &RoundArgs, quick: bool) -> SpawnArgs {
        SpawnArgs { round: round.clone(), tasks: if quick { 1000 } else { 3000 }, slots: 2 }
    }
}

/// Runs the benchmark. Everything is started for its round, in a session of
/// its own.
pub(crate) async fn run(args: &SpawnArgs) -> Result<Table, BenchError> {
    let about = format!("{} times {PROGRAM} NUMBER, {} side by side", args.tasks, args.slots);
    let mut table = Table::new("spawn", about);
    let in_flight = u64::from(args.slots);
    let mut xargs = true;
    for round in 0..=args.round.rounds {
        let mut programs = vec![(BARE, timed(&mut bare_loop(args), "the bare loop", args)?)];
        if xargs {
            programs.push((XARGS, run_xargs(args)?));
        }
        programs.push((RUN, timed(&mut falkon_run(args)?, RUN, args)?));
        let mut rates = Vec::new();
        for (name, found) in programs {
            rates.push((name, found.map(|found| found.rate)));
            if let Some(found) = found.filter(|_| round > 0) {
                table.add(&format!("{name}{PROCESSOR}"), MICROS, found.processor_us);
            }
        }
        let (rate, parts_us) = through_services(args).await?;
        rates.push((SERVICES, Some(rate)));
        if round > 0 {
            table.add(&format!("{SERVICES}: all but the tasks"), MICROS, parts_us.iter().sum());
            for (part, micros) in PARTS.iter().zip(parts_us) {
                table.add(&format!("{SERVICES}: {part}"), MICROS, micros);
            }
        }
        for (name, ahead) in [("the process host alone", 0), ("the process host, one ahead", 1)] {
            let rate = host_alone(PROGRAM, args.tasks, in_flight, ahead).await?;
            rates.push((name, Some(rate)));
        }
        for (name, rate) in rates {
            match rate {
                None => xargs = false,
                // The first round warms the machine up.
                Some(_) if round == 0 => {}
                Some(rate) => table.add(name, RATE, rate),
            }
        }
    }
    table.above(&format!("{RUN}{PROCESSOR}"), &format!("{BARE}{PROCESSOR}"));
    table.compare_with(BARE);
    if xargs {
        table.compare_with(XARGS);
    } else {
        table.note("xargs is not installed: left out");
    }
    table.note("Falkon captures what tasks write; the bare loop and xargs do not. us: processor");
    table.note("time per task, that of tasks included unless it says otherwise: what is above the");
    table.note("bare loop is Falkon's.");
    Ok(table)
}

fn bare_loop(args: &SpawnArgs) -> Command {
    let (tasks, slots) = (args.tasks.to_string(), args.slots.to_string());
    let mut command = Command::new("/proc/self/exe");
    command.args(["bench", "bare-loop", PROGRAM, &tasks, &slots]);
    command
}

fn falkon_run(args: &SpawnArgs) -> Result<Command, NoProgram> {
    let (range, slots) = (format!("1-{}", args.tasks), args.slots.to_string());
    let mut command = Command::new(falkon()?);
    command.args(["run", "--quiet", "-j", &slots, "--range", &range, "--", PROGRAM]);
    command.stdin(Stdio::null());
    Ok(command)
}

fn run_xargs(args: &SpawnArgs) -> Result<Option<Found>, BenchError> {
    let scratch = Scratch::new()?;
    let lines = scratch.path().join("lines");
    let text: String = (0..args.tasks).map(|number| format!("{number}\n")).collect();
    std::fs::write(&lines, text).map_err(BenchError::system("write a file"))?;
    let input = std::fs::File::open(&lines).map_err(BenchError::system("read a file"))?;
    let mut xargs = Command::new("xargs");
    xargs.args(["-P", &args.slots.to_string(), "-n1", PROGRAM]).stdin(input);
    timed(&mut xargs, "xargs", args)
}

/// The time of a program that runs all tasks, and its processor time.
#[derive(Clone, Copy)]
struct Found {
    /// Tasks per second.
    rate: f64,
    /// Processor time per task, that of the tasks included.
    processor_us: f64,
}

/// A program that runs all tasks, as a user runs it: its start included. `None`
/// if it is not installed.
fn timed(
    command: &mut Command,
    name: &'static str,
    args: &SpawnArgs,
) -> Result<Option<Found>, BenchError> {
    let (start, before) = (Instant::now(), processor::children());
    match in_own_session(command).status() {
        Ok(status) if status.success() => {
            let rate = args.tasks as f64 / start.elapsed().as_secs_f64();
            let micros = (processor::children() - before) as f64 / 1e3;
            Ok(Some(Found { rate, processor_us: micros / args.tasks as f64 }))
        }
        Ok(_) => Err(BenchError::Program(name)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(BenchError::System { what: "run a program", source }),
    }
}

/// Through a dispatcher with a journal and an executor that run already: tasks
/// per second, and microseconds of processor time per task of each of [`PARTS`].
async fn through_services(args: &SpawnArgs) -> Result<(f64, [f64; PARTS.len()]), BenchError> {
    let security = SecurityLevel::Authenticate;
    let setup = Setup { executors: 1, slots: args.slots, security, ..Setup::default() };
    let services = Services::start(&setup).await?;
    let (client, mut deliveries) = services.connect().await?;
    let load = Load {
        tasks: args.tasks,
        bundle: args.tasks,
        distinct: false,
        program: PROGRAM,
        ..Load::default()
    };
    let before = services.parts_nanos();
    let taken = campaign::run(&client, &mut deliveries, &load).await?;
    let after = services.parts_nanos();
    let micros = |at: usize| (after[at] - before[at]) as f64 / 1e3 / args.tasks as f64;
    Ok((args.tasks as f64 / taken.seconds, std::array::from_fn(micros)))
}
