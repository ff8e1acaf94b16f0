//! `falkon-lab bench bundles` and `falkon-lab bench depth`: what must not matter, the
//! size of submissions and the length of the queue.

use super::RoundArgs;
use super::campaign::{self, BUNDLE_TASKS_MAX, Load};
use super::error::BenchError;
use super::report::Table;
use super::services::{Services, Setup};
use clap::Args;
use falkon_cli::SecurityLevel;

const SETUP: Setup = Setup {
    executors: 1,
    slots: 2,
    security: SecurityLevel::None,
    journal: true,
    concentrators: None,
    relay: false,
};
const RATE: &str = "tasks/s";

/// Tasks per submission that are tried.
const BUNDLES: [u64; 6] = [1, 10, 100, 1_000, 10_000, 100_000];
/// Submissions per round, at most: small ones are not repeated for minutes.
const SUBMISSIONS_MAX: u64 = 100_000;

/// `falkon-lab bench bundles`
#[derive(Args, Debug)]
pub(crate) struct BundlesArgs {
    #[command(flatten)]
    pub(crate) round: RoundArgs,
    /// Tasks per round; submissions of one task are at most 100,000
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    tasks: u64,
}

impl BundlesArgs {
    /// What `falkon-lab bench all` measures.
    pub(crate) fn usual(round: &RoundArgs, quick: bool) -> BundlesArgs {
        BundlesArgs { round: round.clone(), tasks: if quick { 200_000 } else { 1_000_000 } }
    }
}

/// Runs the benchmark.
pub(crate) async fn bundles(args: &BundlesArgs) -> Result<Table, BenchError> {
    let about = format!("up to {} distinct no-op tasks, journal on", args.tasks);
    let mut table = Table::new("bundles", about);
    let services = Services::start(&SETUP).await?;
    let (client, mut deliveries) = services.connect().await?;
    for round in 0..=args.round.rounds {
        // Every other round the other way round, so that what a size leaves
        // behind (a journal to be synced) is not always the same one's burden.
        let mut order = BUNDLES;
        if round % 2 == 0 {
            order.reverse();
        }
        for bundle in order {
            let tasks = args.tasks.min(SUBMISSIONS_MAX.saturating_mul(bundle));
            // What is more at once goes in pieces, as `falkon submit` sends it.
            let piece = bundle.min(BUNDLE_TASKS_MAX);
            let load = Load { tasks, bundle: piece, ..Load::default() };
            let taken = campaign::run(&client, &mut deliveries, &load).await?;
            // The first round warms the services up.
            if round > 0 {
                let name = format!("submissions of {bundle}");
                table.add(&name, RATE, load.tasks as f64 / taken.seconds);
            }
        }
    }
    table.compare_with(&format!("submissions of {}", BUNDLES[BUNDLES.len() - 1]));
    Ok(table)
}

/// Distinct tasks that are queued, as far as `--tasks-max` goes.
const DISTINCT: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];
/// Tasks of an array that is queued, as far as `--array-max` goes.
const ARRAYS: [u64; 3] = [1_000_000, 100_000_000, 10_000_000_000];

/// `falkon-lab bench depth`
#[derive(Args, Debug)]
pub(crate) struct DepthArgs {
    #[command(flatten)]
    pub(crate) round: RoundArgs,
    /// Longest queue of distinct tasks
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(10_000..))]
    tasks_max: u64,
    /// Longest array
    #[arg(long, value_name = "N", default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(10_000..))]
    array_max: u64,
}

impl DepthArgs {
    /// What `falkon-lab bench all` measures.
    pub(crate) fn usual(round: &RoundArgs, quick: bool) -> DepthArgs {
        let tasks_max = if quick { 100_000 } else { 1_000_000 };
        DepthArgs { round: round.clone(), tasks_max, array_max: 100_000_000 }
    }
}

/// Runs the benchmark: tasks are queued while there is no executor, then one
/// comes and takes them all. What a task costs the dispatcher is counted in
/// processor time, which does not depend on what else the machine does.
pub(crate) async fn depth(args: &DepthArgs) -> Result<Table, BenchError> {
    let mut table = Table::new(
        "depth",
        "processor time of the dispatcher per no-op task, all of them queued before the first \
         is dispatched, journal on"
            .to_owned(),
    );
    let distinct = DISTINCT.into_iter().filter(|tasks| *tasks <= args.tasks_max);
    let arrays = ARRAYS.into_iter().filter(|tasks| *tasks <= args.array_max);
    let loads: Vec<Load> = distinct
        .map(|tasks| (tasks, campaign::BUNDLE_TASKS_MAX.min(tasks / 10), true))
        .chain(arrays.map(|tasks| (tasks, tasks, false)))
        .map(|(tasks, bundle, distinct)| Load { tasks, bundle, distinct, ..Load::default() })
        .collect();
    let mut services = Services::start(&Setup { executors: 0, ..SETUP }).await?;
    let (client, mut deliveries) = services.connect().await?;
    for round in 0..=args.round.rounds {
        for load in &loads {
            let before = services.dispatcher_nanos();
            let instance = campaign::create(&client).await?;
            campaign::submit(&client, instance, load).await?;
            client.seal(instance).await?;
            services.add_executors(1, SETUP.slots).await?;
            client.subscribe(instance, 0).await?;
            campaign::receive(&client, &mut deliveries, instance, load.tasks).await?;
            client.destroy(instance).await?;
            services.remove_executors();
            let nanos = services.dispatcher_nanos() - before;
            // The first round warms the dispatcher up.
            if round > 0 {
                let kind = if load.distinct { "distinct" } else { "in an array" };
                let name = format!("{} {kind}", load.tasks);
                table.add(&name, "ns/task", nanos as f64 / load.tasks as f64);
            }
        }
    }
    table.compare_with(&format!("{} distinct", DISTINCT[0]));
    Ok(table)
}
