//! `falkon bench needs`: tasks that all need something else.

use super::RoundArgs;
use super::campaign::{self, Load, Memory};
use super::error::BenchError;
use super::report::Table;
use super::services::{Services, Setup};
use clap::Args;

/// Slots of the executor that the tasks go to; no-op tasks need none.
const SLOTS: u32 = 2;
const ALIKE: &str = "one size of memory";
const DIFFERENT: &str = "each its own size";

/// `falkon bench needs`
#[derive(Args, Debug)]
pub(crate) struct NeedsArgs {
    #[command(flatten)]
    pub(crate) round: RoundArgs,
    /// Distinct no-op tasks, and sizes of memory
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    tasks: u64,
}

impl NeedsArgs {
    /// What `falkon bench all` measures.
    pub(crate) fn usual(round: &RoundArgs, quick: bool) -> NeedsArgs {
        NeedsArgs { round: round.clone(), tasks: if quick { 20_000 } else { 100_000 } }
    }
}

/// Runs the benchmark: tasks are queued while there is no executor, so that all
/// sizes wait at once, then one comes and takes them all; and tasks are
/// submitted while it takes them.
pub(crate) async fn run(args: &NeedsArgs) -> Result<Table, BenchError> {
    let mut table = Table::new(
        "needs",
        format!("{} distinct no-op tasks that ask for memory, journal on", args.tasks),
    );
    let mut services = Services::start(&Setup::default()).await?;
    let (client, mut deliveries) = services.connect().await?;
    for round in 0..=args.round.rounds {
        // Every other round the other way round, so that what one leaves behind
        // (a journal to be synced) is not always the same one's burden.
        let mut order = [(ALIKE, Memory::Alike), (DIFFERENT, Memory::Different)];
        if round % 2 == 0 {
            order.reverse();
        }
        for (name, memory) in order {
            let load = Load { tasks: args.tasks, memory, ..Load::default() };
            let tasks = load.tasks as f64;
            let before = services.dispatcher_nanos();
            let instance = campaign::create(&client).await?;
            campaign::submit(&client, instance, &load).await?;
            client.seal(instance).await?;
            client.subscribe(instance, 0).await?;
            services.add_executors(1, SLOTS).await?;
            let received =
                campaign::receive(&client, &mut deliveries, instance, load.tasks).await?;
            client.destroy(instance).await?;
            let queued = services.dispatcher_nanos() - before;
            let taken = campaign::run(&client, &mut deliveries, &load).await?;
            services.remove_executors();
            // The first round warms the dispatcher up.
            if round == 0 {
                continue;
            }
            table.add(&format!("queued: {name}"), "tasks/s", tasks / received.dispatched_in);
            table.add(&format!("submitted meanwhile: {name}"), "tasks/s", tasks / taken.seconds);
            let each = queued as f64 / tasks;
            table.add(
                &format!("queued, processor time of the dispatcher: {name}"),
                "ns/task",
                each,
            );
        }
    }
    for what in ["queued: ", "submitted meanwhile: "] {
        table.compare_with(&format!("{what}{ALIKE}"));
    }
    table.compare_with(&format!("queued, processor time of the dispatcher: {ALIKE}"));
    Ok(table)
}
