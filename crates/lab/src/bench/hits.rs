//! `falkon-lab bench hits`: what it adds to a task that an input of it is brought
//! from the executor's cache.

use super::RoundArgs;
use super::bare_spawn::in_own_session;
use super::error::BenchError;
use super::processor;
use super::report::Table;
use super::services::Scratch;
use crate::program::falkon;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const PROGRAM: &str = "/bin/true";
/// Bytes of the input: those of a cached object are not moved.
const OBJECT_BYTES: usize = 4096;

/// `falkon-lab bench hits`
#[derive(Args, Debug)]
pub(crate) struct HitsArgs {
    #[command(flatten)]
    pub(crate) round: RoundArgs,
    /// Tasks per round
    #[arg(long, value_name = "N", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(100..))]
    tasks: u64,
    /// Tasks side by side
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: u32,
    /// Where the cache and the tasks' directories are [default: the temporary
    /// directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl HitsArgs {
    /// What `falkon-lab bench all` measures.
    pub(crate) fn usual(round: &RoundArgs, quick: bool) -> HitsArgs {
        let tasks = if quick { 1000 } else { 3000 };
        HitsArgs { round: round.clone(), tasks, slots: 2, dir: None }
    }
}

/// Runs the benchmark.
pub(crate) fn run(args: &HitsArgs) -> Result<Table, BenchError> {
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let about = format!(
        "{} times {PROGRAM} NUMBER by falkon run, {} side by side, cache in {}",
        args.tasks,
        args.slots,
        dir.display()
    );
    let scratch = Scratch::new()?;
    let source = scratch.path().join("source");
    std::fs::write(&source, [b'x'; OBJECT_BYTES]).map_err(BenchError::system("write a file"))?;
    let input = format!("in={}", source.display());
    let mut table = Table::new("hits", about);
    for round in 0..=args.round.rounds {
        let without = per_task(args, &dir, &[])?;
        let with = per_task(args, &dir, &["--input", &input])?;
        // The first round warms the machine up.
        if round == 0 {
            continue;
        }
        let measures = [
            ("µs", ["without data", "with an input in the cache", "a hit adds"]),
            (
                "µs of processor time",
                [
                    "without data: processor",
                    "with a cached input: processor",
                    "a hit adds: processor",
                ],
            ),
        ];
        for (at, (unit, names)) in measures.into_iter().enumerate() {
            table.add(names[0], unit, without[at]);
            table.add(names[1], unit, with[at]);
            table.add(names[2], unit, with[at] - without[at]);
        }
    }
    table.note("Time and processor time per task: of the tasks' own processes, too.");
    Ok(table)
}

/// Microseconds per task of a run, and of processor time.
fn per_task(args: &HitsArgs, dir: &Path, options: &[&str]) -> Result<[f64; 2], BenchError> {
    let (range, slots) = (format!("1-{}", args.tasks), args.slots.to_string());
    let mut command = Command::new(falkon()?);
    command.args(["run", "--quiet", "-j", &slots, "--range", &range]).args(options);
    command.args(["--", PROGRAM]).env("TMPDIR", dir).stdin(Stdio::null());
    let (start, nanos) = (Instant::now(), processor::children());
    let status =
        in_own_session(&mut command).status().map_err(BenchError::system("run a program"))?;
    if !status.success() {
        return Err(BenchError::Program("falkon run"));
    }
    let processor_micros = (processor::children() - nanos) / 1000;
    let micros = [start.elapsed().as_micros() as f64, processor_micros as f64];
    Ok(micros.map(|micros| micros / args.tasks as f64))
}
