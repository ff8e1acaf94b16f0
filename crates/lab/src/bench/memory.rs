//! `falkon-lab bench memory`: what queued tasks cost a dispatcher.

use super::campaign::{self, Load};
use super::error::BenchError;
use super::report::Table;
use super::services::{Services, Setup};
use clap::Args;
use falkon_cli::SecurityLevel;
use std::time::Instant;

/// Tasks of the array that is queued.
const ARRAY_TASKS: u64 = 1_000_000_000;

/// `falkon-lab bench memory`
#[derive(Args, Debug)]
pub(crate) struct MemoryArgs {
    /// Distinct tasks to queue; 10,000,000 take a while
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    tasks: u64,
    /// Keep no journal
    #[arg(long)]
    no_journal: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl MemoryArgs {
    /// What `falkon-lab bench all` measures.
    pub(crate) fn usual(quick: bool) -> MemoryArgs {
        let tasks = if quick { 200_000 } else { 1_000_000 };
        MemoryArgs { tasks, no_journal: false, json: false }
    }
}

/// Runs the benchmark. Memory does not vary from round to round as times do:
/// there is one.
pub(crate) async fn run(args: &MemoryArgs) -> Result<Table, BenchError> {
    let about = format!(
        "a dispatcher's resident memory with tasks queued and no executor, journal {}",
        if args.no_journal { "off" } else { "on" }
    );
    let mut table = Table::new("memory", about);
    let distinct = Load { tasks: args.tasks, ..Load::default() };
    let array =
        Load { tasks: ARRAY_TASKS, bundle: ARRAY_TASKS, distinct: false, ..Load::default() };
    for load in [distinct, array] {
        let kind = if load.distinct { "distinct" } else { "in an array" };
        let name = |what: &str| format!("{} {kind}: {what}", load.tasks);
        let security = SecurityLevel::None;
        let setup = Setup { security, journal: !args.no_journal, ..Setup::default() };
        let services = Services::start(&setup).await?;
        let (client, _deliveries) = services.connect().await?;
        let before = resident_bytes(services.dispatcher_pid());
        let instance = campaign::create(&client).await?;
        let start = Instant::now();
        let bytes = campaign::submit(&client, instance, &load).await?;
        let seconds = start.elapsed().as_secs_f64();
        let after = resident_bytes(services.dispatcher_pid());
        let grown = after.saturating_sub(before) as f64;
        table.add(&name("dispatcher"), "MiB", after as f64 / f64::from(1 << 20));
        table.add(&name("dispatcher, per task"), "bytes", grown / load.tasks as f64);
        table.add(&name("submission, per task"), "bytes", bytes as f64 / load.tasks as f64);
        let journal = services.journal_bytes() as f64 / load.tasks as f64;
        table.add(&name("journal, per task"), "bytes", journal);
        table.add(&name("submitted and accepted in"), "s", seconds);
    }
    table.note(
        "HyperQueue 0.27, quoted from a measurement elsewhere: 340 bytes per task of an array, \
         1 KB per task of a job file, 1,000,000 tasks submitted in 1.3 s, 31 to 35 bytes of \
         journal per task.",
    );
    Ok(table)
}

/// Memory of a process that is in use, in bytes (`VmRSS`).
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))
        .and_then(|kib| kib.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
