//! `falkon bench`: what Falkon does on this machine, in a few seconds: a
//! dispatcher, an executor and their client in one process, as in `falkon run`.
//! What it is compared with, and everything else that is measured, is in the
//! laboratory (`falkon-lab bench`).

use crate::embedded::{Embedded, ExecutorSetup, Places};
use crate::exit::{Exit, runtime};
use crate::machine::cpus;
use crate::query::print;
use crate::scratch::Scratch;
use clap::Args;
use falkon_core::dispatch::InstanceOptions;
use falkon_core::result::Outcome;
use falkon_core::task::{InstanceId, Kind, Packed, Resources, Rows, Submission, TaskClass, TaskId};
use falkon_data::overflow::OverflowDirectory;
use falkon_executor::{MemoryLimits, WorkerOptions};
use falkon_net::client::{Client, ClientError, Deliveries};
use falkon_wire::codec::Wire;
use falkon_wire::command::{Command, Template};
use std::sync::Arc;
use std::time::Instant;

/// Tasks in one submission, at most: what `falkon submit` does.
const BUNDLE_TASKS_MAX: u64 = 1024;
/// The program of tasks that are processes.
const PROCESS: &str = "/bin/true";
/// The output of a task that is kept in memory, at most.
const CAPTURE_BYTES_MAX: u64 = 65_536;
/// Round trips of one process, in each round.
const ROUND_TRIPS: u64 = 200;

/// `falkon bench`
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Tasks that do nothing, each with its own command, per round
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    tasks: u64,
    /// Processes per round
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    processes: u64,
    /// Concurrent processes [default: one per CPU that this process may use]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: Option<u32>,
    /// Rounds; medians are shown
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Why nothing can be measured.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    /// The dispatcher refuses, or is gone.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Tasks did not end as they must.
    #[error("{done} of {expected} tasks succeeded: falkon run -- {PROCESS} may say why")]
    Results {
        /// How many should have succeeded.
        expected: u64,
        /// How many did.
        done: u64,
    },
}

/// Medians of all rounds.
#[derive(Debug, serde::Serialize)]
struct Figures {
    version: &'static str,
    debug_build: bool,
    jobs: u32,
    noop_tasks_per_s: f64,
    processes_per_s: f64,
    process_round_trip_ms: f64,
}

/// Runs the command.
pub(crate) fn bench(args: &BenchArgs) -> Exit {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let figures = match runtime.block_on(measured(args)) {
        Ok(figures) => figures,
        Err(exit) => return exit,
    };
    let text = if args.json {
        match serde_json::to_string(&figures) {
            Ok(json) => json + "\n",
            Err(error) => return Exit::failure(format!("cannot print the figures: {error}")),
        }
    } else {
        figures.table()
    };
    print(&text).unwrap_or(Exit::Success)
}

/// Starts what is measured, and ends it.
async fn measured(args: &BenchArgs) -> Result<Figures, Exit> {
    let jobs = args.jobs.unwrap_or_else(cpus);
    let scratch = Scratch::new("falkon-bench")?;
    let overflow = OverflowDirectory::create(scratch.path()).map_err(|error| {
        Exit::failure(format!("cannot make a directory in {}: {error}", scratch.path().display()))
    })?;
    let places = Places { scratch: scratch.path().to_owned(), overflow: overflow.clone() };
    let mut embedded = Embedded::start(None, None).map_err(Exit::failure)?;
    embedded.execute(ExecutorSetup {
        capacity: Resources::cpus(jobs),
        memory_limits: MemoryLimits::default(),
        pin: false,
        places,
        capture_bytes_max: CAPTURE_BYTES_MAX,
        workers: WorkerOptions::default(),
        cache: None,
        forked: None,
    });
    let (client, mut deliveries) = embedded.client();
    let figures = rounds(args, jobs, &client, &mut deliveries).await;
    embedded.stop(true).await;
    overflow.close();
    scratch.remove();
    figures.map_err(Exit::failure)
}

async fn rounds(
    args: &BenchArgs,
    jobs: u32,
    client: &Client,
    deliveries: &mut Deliveries,
) -> Result<Figures, BenchError> {
    let mut found = [const { Vec::new() }; 3];
    // The first round warms everything up.
    for round in 0..=args.rounds {
        let noops = run(client, deliveries, Load::Noops, args.tasks).await?;
        let processes = run(client, deliveries, Load::Processes, args.processes).await?;
        let mut round_trips = Vec::new();
        for _ in 0..ROUND_TRIPS {
            round_trips.push(run(client, deliveries, Load::Processes, 1).await?);
        }
        if round > 0 {
            found[0].push(args.tasks as f64 / noops);
            found[1].push(args.processes as f64 / processes);
            found[2].push(median(round_trips) * 1e3);
        }
    }
    let [noop_tasks_per_s, processes_per_s, process_round_trip_ms] = found.map(median);
    Ok(Figures {
        version: env!("CARGO_PKG_VERSION"),
        debug_build: cfg!(debug_assertions),
        jobs,
        noop_tasks_per_s,
        processes_per_s,
        process_round_trip_ms,
    })
}

/// The kind of the tasks.
#[derive(Debug, Clone, Copy)]
enum Load {
    /// Nothing.
    Noops,
    /// The tasks are processes, which end at once.
    Processes,
}

/// Seconds from the first submission of some tasks to the last of their results.
async fn run(
    client: &Client,
    deliveries: &mut Deliveries,
    load: Load,
    tasks: u64,
) -> Result<f64, BenchError> {
    let options = InstanceOptions { keep_results: false, ..InstanceOptions::default() };
    let (instance, _) = client.create(options).await?;
    client.subscribe(instance, 0).await?;
    let start = Instant::now();
    let submitting = async {
        let mut submitted = Vec::new();
        for first in (0..tasks).step_by(BUNDLE_TASKS_MAX as usize) {
            let submission = load.submission(first, BUNDLE_TASKS_MAX.min(tasks - first));
            submitted.push(client.submit(instance, TaskId(first), submission).await?);
        }
        for pending in submitted {
            pending.accepted().await?;
        }
        client.seal(instance).await?;
        Ok::<_, BenchError>(())
    };
    let ((), ()) = tokio::try_join!(submitting, received(client, deliveries, instance, tasks))?;
    let seconds = start.elapsed().as_secs_f64();
    client.destroy(instance).await?;
    Ok(seconds)
}

/// Takes results until all are there, each of a task that succeeded.
async fn received(
    client: &Client,
    deliveries: &mut Deliveries,
    instance: InstanceId,
    tasks: u64,
) -> Result<(), BenchError> {
    let (mut position, mut done) = (0, 0);
    loop {
        let delivery = deliveries.recv().await?;
        if delivery.instance != instance {
            continue;
        }
        for run in &delivery.results {
            position += run.count;
            done += if run.outcome == Outcome::Exit(0) { run.count } else { 0 };
        }
        client.acknowledge(instance, position).await?;
        if delivery.complete {
            break;
        }
    }
    if done == tasks { Ok(()) } else { Err(BenchError::Results { expected: tasks, done }) }
}

impl Load {
    /// Tasks from number `first` on, each with a command of its own.
    fn submission(self, first: u64, count: u64) -> Submission {
        let (kind, program) = match self {
            Load::Noops => (Kind::Noop, "@noop"),
            Load::Processes => (Kind::Process, PROCESS),
        };
        let (mut blob, mut ends) = (Vec::new(), Vec::with_capacity(count as usize));
        for number in first..first + count {
            let argv = vec![program.into(), number.to_string().into()];
            Command { argv, ..Command::default() }.encode(&mut blob);
            // A bundle's rows fit a frame, so far below 4 GiB.
            ends.push(blob.len() as u32);
        }
        let resources = Resources::cpus(1);
        Submission {
            data: None,
            count,
            template: Arc::new(Template::Each.to_bytes()),
            rows: Rows::Packed(Packed { blob: Arc::new(blob), ends: Arc::new(ends) }),
            classes: vec![TaskClass { kind, resources, ..TaskClass::default() }],
            class_runs: vec![(count, 0)],
            names: None,
            after: Vec::new(),
            everywhere: None,
        }
    }
}

impl Figures {
    fn table(&self) -> String {
        let Figures { version, jobs, .. } = self;
        let debug = if self.debug_build { ", A DEBUG BUILD: its figures say nothing" } else { "" };
        let rows = [
            ("tasks that do nothing".to_owned(), self.noop_tasks_per_s, 0, "tasks/s"),
            (format!("{PROCESS}, {jobs} side by side"), self.processes_per_s, 0, "tasks/s"),
            (
                format!("one {PROCESS}, from submission to result"),
                self.process_round_trip_ms,
                2,
                "ms",
            ),
        ];
        let rows = rows.map(|(name, value, decimals, unit)| {
            format!("{name:<45}{value:>12.decimals$} {unit}\n")
        });
        format!("falkon {version}, all in one process as in falkon run{debug}\n{}", rows.concat())
    }
}

/// The value in the middle; 0 of none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
