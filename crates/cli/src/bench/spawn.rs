//! `falkon bench spawn`: processes as tasks, beside a bare spawn loop and
//! xargs.

use super::bare_spawn::{bare_loop, host_alone};
use super::campaign::{self, Load};
use super::error::BenchError;
use super::report::Table;
use super::services::{Services, Setup};
use super::{RoundArgs, services::Scratch};
use crate::service::start::SecurityLevel;
use clap::Args;
use std::ffi::CString;
use std::process::{Command, Stdio};
use std::time::Instant;

const PROGRAM: &str = "/bin/true";
const RATE: &str = "tasks/s";
const BARE: &str = "floor: bare posix_spawn loop";
const XARGS: &str = "xargs -P -n1";

/// `falkon bench spawn`
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
    /// What `falkon bench all` measures.
    pub(crate) fn usual(round: &RoundArgs, quick: bool) -> SpawnArgs {
        SpawnArgs { round: round.clone(), tasks: if quick { 1000 } else { 3000 }, slots: 2 }
    }
}

/// Runs the benchmark. Nothing else that was started here lives while the bare
/// loop runs, so everything is started for its round.
pub(crate) async fn run(args: &SpawnArgs) -> Result<Table, BenchError> {
    let about = format!("{} times {PROGRAM}, {} side by side", args.tasks, args.slots);
    let mut table = Table::new("spawn", about);
    let program = CString::new(PROGRAM).unwrap_or_default();
    let in_flight = u64::from(args.slots);
    let mut xargs = true;
    for round in 0..=args.round.rounds {
        let mut rates = vec![(BARE, bare_loop(&program, args.tasks, in_flight)?)];
        if let Some(rate) = if xargs { run_xargs(args)? } else { None } {
            rates.push((XARGS, rate));
        } else {
            xargs = false;
        }
        rates.push(("falkon run (embedded)", falkon_run(args)?));
        rates.push(("falkon services", through_services(args).await?));
        rates.push((
            "the process host alone",
            host_alone(&program, args.tasks, in_flight, 0).await?,
        ));
        let ahead = host_alone(&program, args.tasks, in_flight, 1).await?;
        rates.push(("the process host, one ahead", ahead));
        // The first round warms the machine up.
        for (name, rate) in rates.into_iter().filter(|_| round > 0) {
            table.add(name, RATE, rate);
        }
    }
    table.compare_with(BARE);
    if xargs {
        table.compare_with(XARGS);
    } else {
        table.note("xargs is not installed: left out");
    }
    table.note("Falkon captures what tasks write; the bare loop and xargs do not.");
    Ok(table)
}

fn run_xargs(args: &SpawnArgs) -> Result<Option<f64>, BenchError> {
    let scratch = Scratch::new()?;
    let lines = scratch.path().join("lines");
    let text: String = (0..args.tasks).map(|number| format!("{number}\n")).collect();
    std::fs::write(&lines, text).map_err(BenchError::system("write a file"))?;
    let input = std::fs::File::open(&lines).map_err(BenchError::system("read a file"))?;
    let start = Instant::now();
    let status = Command::new("xargs")
        .args(["-P", &args.slots.to_string(), "-n1", PROGRAM])
        .stdin(input)
        .status();
    match status {
        Ok(status) if status.success() => {
            Ok(Some(args.tasks as f64 / start.elapsed().as_secs_f64()))
        }
        Ok(_) => Err(BenchError::Program("xargs")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(BenchError::System { what: "run xargs", source }),
    }
}

/// As a user runs it, the start of the program included.
fn falkon_run(args: &SpawnArgs) -> Result<f64, BenchError> {
    let start = Instant::now();
    let status = Command::new("/proc/self/exe")
        .args(["run", "--quiet", "-j", &args.slots.to_string()])
        .args(["--range", &format!("1-{}", args.tasks), "--", PROGRAM])
        .stdin(Stdio::null())
        .status()
        .map_err(BenchError::system("run falkon"))?;
    if !status.success() {
        return Err(BenchError::Program("falkon run"));
    }
    Ok(args.tasks as f64 / start.elapsed().as_secs_f64())
}

/// Through a dispatcher with a journal and an executor that run already.
async fn through_services(args: &SpawnArgs) -> Result<f64, BenchError> {
    let security = SecurityLevel::Authenticate;
    let setup = Setup { executors: 1, slots: args.slots, security, journal: true };
    let services = Services::start(&setup).await?;
    let (client, mut deliveries) = services.connect().await?;
    let load = Load { tasks: args.tasks, bundle: args.tasks, distinct: false, program: PROGRAM };
    let taken = campaign::run(&client, &mut deliveries, &load).await?;
    Ok(args.tasks as f64 / taken.seconds)
}
