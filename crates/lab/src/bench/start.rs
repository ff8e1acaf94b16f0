//! `falkon-lab bench start`: a few short tasks with `falkon run`, its start and its
//! end included, beside the tasks themselves.

use super::RoundArgs;
use super::bare_spawn::in_own_session;
use super::error::BenchError;
use super::processor;
use super::report::{Table, median};
use super::services::Scratch;
use crate::program::{NoProgram, falkon};
use clap::Args;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

const PROGRAM: &str = "sleep";
const MS: &str = "ms";
const PROCESSOR: &str = ", processor time";

const ITSELF: &str = "the tasks themselves";
const RUN: &str = "falkon run";
const RUN_OUT: &str = "falkon run --out";
const XARGS: &str = "xargs -P";

/// `falkon-lab bench start`
#[derive(Args, Debug)]
pub(crate) struct StartArgs {
    #[command(flatten)]
    pub(crate) round: RoundArgs,
    /// Tasks of 1 ms
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    tasks: u32,
    /// Tasks side by side
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    slots: u32,
    /// Runs per round; the median counts
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

impl StartArgs {
    /// What `falkon-lab bench all` measures.
    pub(crate) fn usual(round: &RoundArgs, quick: bool) -> StartArgs {
        let runs = if quick { 5 } else { 20 };
        StartArgs { round: round.clone(), tasks: 10, slots: 2, runs }
    }
}

/// Runs the benchmark.
pub(crate) fn run(args: &StartArgs) -> Result<Table, BenchError> {
    let about = format!(
        "{} times {PROGRAM} 0.001, {} side by side; {} runs per round, from the start of the \
         program to its end",
        args.tasks, args.slots, args.runs
    );
    let mut table = Table::new("start", about);
    let mut names = vec![ITSELF, RUN, RUN_OUT, XARGS];
    for round in 0..=args.round.rounds {
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
        let mut spent = vec![0; names.len()];
        // Commands take turns, as the machine's other load changes.
        for _ in 0..args.runs {
            for (at, name) in names.iter().enumerate() {
                let before = processor::own() + processor::children();
                times[at].extend(time(name, args)?);
                spent[at] += processor::own() + processor::children() - before;
            }
        }
        let without_xargs = times.last().is_some_and(Vec::is_empty);
        for ((name, times), nanos) in names.iter().zip(times).zip(spent) {
            // The first round warms the machine up.
            if round > 0 && !times.is_empty() {
                table.add(name, MS, median(times) * 1e3);
                let each = nanos as f64 / 1e6 / f64::from(args.runs);
                table.add(&format!("{name}{PROCESSOR}"), MS, each);
            }
        }
        if without_xargs {
            names.retain(|name| *name != XARGS);
        }
    }
    for name in &names[1..] {
        table.above(name, ITSELF);
        table.above(&format!("{name}{PROCESSOR}"), &format!("{ITSELF}{PROCESSOR}"));
    }
    table.compare_with(ITSELF);
    table.note("The tasks themselves: started by threads of a program that runs already, which");
    table.note("take what they write. xargs starts as well, and takes nothing.");
    Ok(table)
}

/// Seconds that one run takes; `None` if its program is not installed.
fn time(name: &str, args: &StartArgs) -> Result<Option<f64>, BenchError> {
    if name == XARGS {
        return run_xargs(args);
    }
    let scratch = Scratch::new()?;
    let mut command = falkon_run(args)?;
    if name == RUN_OUT {
        command.arg("--out").arg(scratch.path().join("out"));
    }
    with_tasks(&mut command, args);
    let start = Instant::now();
    match name {
        ITSELF => run_here(args)?,
        _ => check(RUN, &mut command)?,
    }
    Ok(Some(start.elapsed().as_secs_f64()))
}

fn check(name: &'static str, command: &mut Command) -> Result<(), BenchError> {
    match in_own_session(command).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(BenchError::Program(name)),
        Err(source) => Err(BenchError::System { what: "run a program", source }),
    }
}

/// How long a task sleeps, in seconds: each has an argument of its own.
fn seconds_of(task: impl std::fmt::Display) -> String {
    format!("0.001{task}")
}

fn falkon_run(args: &StartArgs) -> Result<Command, NoProgram> {
    let mut command = Command::new(falkon()?);
    command.args(["run", "--quiet", "-j", &args.slots.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

fn with_tasks(command: &mut Command, args: &StartArgs) {
    command.args(["--range", &format!("1-{}", args.tasks), "--", PROGRAM, &seconds_of("{}")]);
}

fn run_xargs(args: &StartArgs) -> Result<Option<f64>, BenchError> {
    let scratch = Scratch::new()?;
    let lines = scratch.path().join("lines");
    let text: String = (1..=args.tasks).map(|task| seconds_of(task) + "\n").collect();
    std::fs::write(&lines, text).map_err(BenchError::system("write a file"))?;
    let input = std::fs::File::open(&lines).map_err(BenchError::system("read a file"))?;
    let mut xargs = Command::new("xargs");
    xargs.args(["-P", &args.slots.to_string(), "-n1", PROGRAM]).stdin(input);
    let start = Instant::now();
    match in_own_session(&mut xargs).status() {
        Ok(status) if status.success() => Ok(Some(start.elapsed().as_secs_f64())),
        Ok(_) => Err(BenchError::Program(XARGS)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(BenchError::System { what: "run a program", source }),
    }
}

/// The tasks themselves: each thread runs one after the other, and takes what
/// they write.
fn run_here(args: &StartArgs) -> Result<(), BenchError> {
    let next = AtomicU32::new(1);
    let run_some = || loop {
        let task = next.fetch_add(1, Ordering::Relaxed);
        if task > args.tasks {
            return Ok(());
        }
        let mut command = Command::new(PROGRAM);
        let output = command.arg(seconds_of(task)).stdin(Stdio::null()).output();
        match output {
            Ok(output) if output.status.success() => {}
            Ok(_) => return Err(BenchError::Program(PROGRAM)),
            Err(source) => return Err(BenchError::System { what: "run a program", source }),
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..args.slots).map(|_| scope.spawn(run_some)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or(Err(BenchError::Program("a thread"))))
    })
}
