//! `falkon-lab bench needs`: tasks that all need something else.

use super::RoundArgs;
use super::campaign::{self, Load, Memory};
use super::error::BenchError;
use super::report::Table;
use super::services::{Services, Setup};
use clap::Args;

/// Slots of the executor that the tasks go to; no-op tasks need none.
const SLOTS: u32 = 2;
/// Tasks of one class travel as runs of a thousand, which says how much there is
/// to gain from tasks that are alike. Tasks with a class each travel one by one:
/// what sizes of their own add to that is what they cost.
const SIZES: [(&str, Memory); 3] = [
    ("one size of memory", Memory::Alike),
    ("one size, a class each", Memory::AlikeEach),
    ("each its own size", Memory::Different),
];
/// Tasks that take no time, and tasks that are started one by one.
const PROGRAMS: [(&str, &str); 2] = [("no-op", "@noop"), ("started one by one", "@sleep 0")];

/// `falkon-lab bench needs`
#[derive(Args, Debug)]
pub(crate) struct NeedsArgs {
    #[command(flatten)]
    pub(crate) round: RoundArgs,
    /// Distinct no-op tasks, and sizes of memory
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    tasks: u64,
}

impl NeedsArgs {
    /// What `falkon-lab bench all` measures.
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
        format!("{} distinct tasks that ask for memory, journal on", args.tasks),
    );
    let mut services = Services::start(&Setup::default()).await?;
    let (client, mut deliveries) = services.connect().await?;
    for round in 0..=args.round.rounds {
        // Every other round the other way round, so that what one leaves behind
        // (a journal to be synced) is not always the same one's burden.
        let mut sizes = SIZES;
        if round % 2 == 0 {
            sizes.reverse();
        }
        let all = PROGRAMS.iter().flat_map(|program| sizes.map(|size| (*program, size)));
        for ((kind, program), (size, memory)) in all {
            let load = Load { tasks: args.tasks, memory, program, ..Load::default() };
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
            let each = (services.dispatcher_nanos() - before) as f64 / tasks;
            let taken = campaign::run(&client, &mut deliveries, &load).await?;
            services.remove_executors();
            // The first round warms the dispatcher up.
            if round == 0 {
                continue;
            }
            table.add(
                &format!("{kind}, queued: {size}"),
                "tasks/s",
                tasks / received.dispatched_in,
            );
            table.add(&format!("{kind}: {size}"), "tasks/s", tasks / taken.seconds);
            table.add(&format!("{kind}: the dispatcher, {size}"), "ns/task", each);
        }
    }
    let [(alike, _), (alike_each, _), (different, _)] = SIZES;
    for (kind, _) in PROGRAMS {
        for what in [", queued:", ":", ": the dispatcher,"] {
            for peer in [alike_each, alike] {
                table.ratio_of(
                    &format!("{kind}{what} {different}"),
                    &format!("{kind}{what} {peer}"),
                );
            }
        }
    }
    Ok(table)
}
