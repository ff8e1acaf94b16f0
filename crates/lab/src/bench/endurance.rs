//! `falkon-lab bench endurance`: one long run, in which nothing may slow down or
//! grow.

use super::campaign::{self, Load};
use super::error::BenchError;
use super::memory::resident_bytes;
use super::report::Table;
use super::services::{Services, Setup};
use clap::Args;
use falkon_core::result::Outcome;
use falkon_core::task::{InstanceId, TaskId};
use falkon_net::client::{Client, Deliveries};
use std::collections::VecDeque;
use std::time::Instant;
use tokio::sync::Semaphore;

/// Parts of the run that are compared.
const PARTS: u64 = 10;
/// Submissions whose results are not all there, before the client waits.
const UNDER_WAY_MAX: usize = 64;
/// Tasks that warm the services up, in submissions as large.
const WARM_UP_SUBMISSIONS: u64 = 20;

/// `falkon-lab bench endurance`
#[derive(Args, Debug)]
pub(crate) struct EnduranceArgs {
    /// No-op tasks in all; 1,000,000,000 is the long run
    #[arg(long, value_name = "N", default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(10..))]
    tasks: u64,
    /// Tasks per submission
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    bundle: u64,
    /// Each task has its own command, arguments and environment; otherwise each
    /// submission is a task array
    #[arg(long)]
    distinct: bool,
    /// Keep no journal
    #[arg(long)]
    no_journal: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs the benchmark: one instance takes all tasks, in submissions that are
/// each accepted, journalled, dispatched and acknowledged. The client does not
/// get ahead of the results by more than [`UNDER_WAY_MAX`] submissions.
pub(crate) async fn run(args: &EnduranceArgs) -> Result<Table, BenchError> {
    let bundle = match args.distinct {
        true => args.bundle.min(campaign::BUNDLE_TASKS_MAX),
        false => args.bundle,
    };
    let load = Load { tasks: args.tasks, bundle, distinct: args.distinct, ..Load::default() };
    let setup = Setup { executors: 1, slots: 2, journal: !args.no_journal, ..Setup::default() };
    let about = format!(
        "{} no-op tasks in one instance, in submissions of {bundle} ({}); what is shown is over \
         the {PARTS} tenths of the run; journal {}",
        load.tasks,
        if load.distinct { "each task its own command" } else { "each a task array" },
        if args.no_journal { "off" } else { "on" }
    );
    let mut table = Table::new("endurance", about);
    let services = Services::start(&setup).await?;
    let (client, mut deliveries) = services.connect().await?;
    let warm_up = Load { tasks: load.tasks.min(WARM_UP_SUBMISSIONS * bundle), ..load.clone() };
    campaign::run(&client, &mut deliveries, &warm_up).await?;

    let instance = campaign::create(&client).await?;
    client.subscribe(instance, 0).await?;
    let room = Semaphore::new(UNDER_WAY_MAX);
    let start = Instant::now();
    let mut watch = Watch {
        last: (0.0, services.dispatcher_nanos()),
        services: &services,
        table: &mut table,
        rates: Vec::new(),
        costs: Vec::new(),
    };
    let submit = submit(&client, instance, &load, &room);
    let receive = receive(&client, &mut deliveries, instance, &load, &room, |done| {
        watch.part(start, done);
    });
    tokio::try_join!(submit, receive)?;
    let (rates, costs) = (watch.rates, watch.costs);
    client.destroy(instance).await?;
    if let (Some(first), Some(last)) = (rates.first(), rates.last()) {
        table.add("throughput of the last tenth / the first", "", last / first);
    }
    if let (Some(first), Some(last)) = (costs.first(), costs.last()) {
        let name = "processor time of the dispatcher, last tenth / first";
        table.add(name, "", last / first);
    }
    table.add("the whole run", "s", start.elapsed().as_secs_f64());
    let each: Vec<String> = rates.iter().map(|rate| format!("{:.2}", rate / 1e6)).collect();
    table.note(format!("millions of tasks per second in each tenth: {}", each.join(" ")));
    Ok(table)
}

/// Notes down how things are at the end of each part.
struct Watch<'a> {
    services: &'a Services,
    table: &'a mut Table,
    /// When the last part ended, in seconds from the start, and the
    /// dispatcher's processor time then, in nanoseconds.
    last: (f64, u64),
    /// Tasks per second in each part.
    rates: Vec<f64>,
    /// The dispatcher's nanoseconds per task in each part: unlike the rate,
    /// they do not depend on what else the machine does.
    costs: Vec<f64>,
}

impl Watch<'_> {
    /// A part of `tasks` tasks has ended.
    fn part(&mut self, start: Instant, tasks: u64) {
        let now = start.elapsed().as_secs_f64();
        let nanos = self.services.dispatcher_nanos();
        let (before, nanos_before) = std::mem::replace(&mut self.last, (now, nanos));
        let rate = tasks as f64 / (now - before);
        let cost = (nanos - nanos_before) as f64 / tasks as f64;
        self.rates.push(rate);
        self.costs.push(cost);
        self.table.add("throughput", "tasks/s", rate);
        self.table.add("processor time of the dispatcher", "ns/task", cost);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let executors = self.services.executor_pids().map(resident_bytes).sum();
        for (name, bytes) in [
            ("memory of the client", resident_bytes(std::process::id())),
            ("memory of the dispatcher", resident_bytes(self.services.dispatcher_pid())),
            ("memory of the executor", executors),
            ("journal on disk", self.services.journal_bytes()),
        ] {
            self.table.add(name, "MiB", mib(bytes));
        }
    }
}

async fn submit(
    client: &Client,
    instance: InstanceId,
    load: &Load,
    room: &Semaphore,
) -> Result<(), BenchError> {
    let mut first = 0;
    let mut unanswered = VecDeque::with_capacity(UNDER_WAY_MAX);
    while first < load.tasks {
        if let Ok(permit) = room.acquire().await {
            // Results give it back.
            permit.forget();
        }
        let submission = load.submission(first);
        let count = submission.count;
        unanswered.push_back(client.submit(instance, TaskId(first), submission).await?);
        first += count;
        if unanswered.len() == UNDER_WAY_MAX
            && let Some(oldest) = unanswered.pop_front()
        {
            oldest.accepted().await?;
        }
    }
    for submitted in unanswered {
        submitted.accepted().await?;
    }
    Ok(client.seal(instance).await?)
}

/// Receives all results; calls `part` with the number of tasks in each part
/// that has ended.
async fn receive(
    client: &Client,
    deliveries: &mut Deliveries,
    instance: InstanceId,
    load: &Load,
    room: &Semaphore,
    mut part: impl FnMut(u64),
) -> Result<(), BenchError> {
    let (mut position, mut done, mut freed) = (0, 0, 0);
    let (mut parted, mut parts) = (0, 1);
    loop {
        let delivery = deliveries.recv().await?;
        if delivery.instance != instance {
            continue;
        }
        for run in &delivery.results {
            position += run.count;
            if run.outcome == Outcome::Exit(0) {
                done += run.count;
            }
        }
        client.acknowledge(instance, position).await?;
        let finished = position / load.bundle;
        room.add_permits((finished - freed) as usize);
        freed = finished;
        if position >= load.tasks * parts / PARTS {
            part(position - parted);
            parted = position;
            parts = position * PARTS / load.tasks + 1;
        }
        if delivery.complete {
            break;
        }
    }
    match position == load.tasks && done == load.tasks {
        true => Ok(()),
        false => Err(BenchError::Results { expected: load.tasks, done }),
    }
}
