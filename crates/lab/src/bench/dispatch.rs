//! `falkon-lab bench dispatch`: no-op tasks, client → dispatcher → executor →
//! dispatcher → client, each a process of its own.

use super::campaign::{self, BUNDLE_TASKS_MAX, Load};
use super::error::BenchError;
use super::report::Table;
use super::services::{Services, Setup};
use super::{RoundArgs, core_alone, processor, wire_floor};
use clap::{Args, ValueEnum};
use falkon_cli::SecurityLevel;
use falkon_net::client::{Client, Deliveries};

/// Tasks of an array, and distinct ones, by default.
const TASKS_DEFAULT: (u64, u64) = (100_000_000, 1_000_000);
/// Tasks that warm the services up before the first round.
const WARM_UP_TASKS: u64 = 100_000;
/// Executors of the variation with many.
const MANY_EXECUTORS: u32 = 64;
/// Slots of each executor; no-op tasks need none.
const SLOTS: u32 = 2;

const RATE: &str = "tasks/s";
/// Whose processor time is shown.
const PROCESSES: [&str; 3] = ["client", "dispatcher", "executors"];

/// A setting that is measured beside the one asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Variation {
    /// Without a journal
    NoJournal,
    /// With --security authenticate
    Authenticate,
    /// With --security encrypt
    Encrypt,
    /// With 64 executors
    Executors,
    /// With a relay between the dispatcher and its executors
    Relay,
}

/// `falkon-lab bench dispatch`
#[derive(Args, Debug)]
pub(crate) struct DispatchArgs {
    #[command(flatten)]
    pub(crate) round: RoundArgs,
    /// Tasks [default: 100,000,000, or 1,000,000 distinct ones]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    tasks: Option<u64>,
    /// Executors
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    executors: u32,
    /// Protection of connections
    #[arg(long, value_enum, default_value = "none")]
    security: SecurityLevel,
    /// Keep no journal
    #[arg(long)]
    no_journal: bool,
    /// Each task has its own command, arguments and environment; otherwise all
    /// are one task array
    #[arg(long)]
    distinct: bool,
    /// Tasks per submission [default: an array is one; 2,048 distinct ones]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    bundle: Option<u64>,
    /// Also measure these, and show what they cost
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    vary: Vec<Variation>,
}

/// What `falkon-lab bench all` measures: an array, and distinct tasks.
pub(crate) fn usual(round: &RoundArgs, quick: bool) -> Vec<DispatchArgs> {
    let args = |distinct, vary: &[Variation]| DispatchArgs {
        round: round.clone(),
        tasks: quick.then_some(if distinct { 300_000 } else { 20_000_000 }),
        executors: 1,
        security: SecurityLevel::None,
        no_journal: false,
        distinct,
        bundle: None,
        vary: vary.to_vec(),
    };
    use Variation::*;
    vec![
        args(false, &[NoJournal, Authenticate, Encrypt, Executors]),
        args(true, &[NoJournal, Authenticate, Encrypt, Executors]),
    ]
}

/// Services and a client of theirs.
struct Contender {
    name: String,
    services: Services,
    client: Client,
    deliveries: Deliveries,
}

impl Contender {
    async fn start(name: String, setup: Setup, load: &Load) -> Result<Contender, BenchError> {
        let services = Services::start(&setup).await?;
        let (client, deliveries) = services.connect().await?;
        let mut contender = Contender { name, services, client, deliveries };
        let warm_up = Load { tasks: load.tasks.min(WARM_UP_TASKS), ..load.clone() };
        contender.run(&warm_up).await?;
        Ok(contender)
    }

    /// Processor time used, in nanoseconds, in the order of [`PROCESSES`].
    fn processor_times(&self) -> [u64; 3] {
        [
            processor::of(std::process::id()),
            self.services.dispatcher_nanos(),
            self.services.executors_nanos(),
        ]
    }

    async fn run(&mut self, load: &Load) -> Result<campaign::Taken, BenchError> {
        campaign::run(&self.client, &mut self.deliveries, load).await
    }
}

impl DispatchArgs {
    fn load(&self) -> Load {
        let (array, distinct) = TASKS_DEFAULT;
        let tasks = self.tasks.unwrap_or(if self.distinct { distinct } else { array });
        let bundle = match self.bundle {
            Some(bundle) if self.distinct => bundle.min(BUNDLE_TASKS_MAX),
            Some(bundle) => bundle,
            None if self.distinct => BUNDLE_TASKS_MAX,
            None => tasks,
        };
        Load { tasks, bundle, distinct: self.distinct, ..Load::default() }
    }

    fn setups(&self) -> Vec<(String, Setup)> {
        let asked = Setup {
            executors: self.executors,
            slots: SLOTS,
            security: self.security,
            journal: !self.no_journal,
            ..Setup::default()
        };
        let mut setups = vec![("falkon".to_owned(), asked)];
        for variation in &self.vary {
            setups.push(match variation {
                Variation::NoJournal => {
                    ("no journal".to_owned(), Setup { journal: false, ..asked })
                }
                Variation::Authenticate => (
                    "authenticate".to_owned(),
                    Setup { security: SecurityLevel::Authenticate, ..asked },
                ),
                Variation::Encrypt => {
                    ("encrypt".to_owned(), Setup { security: SecurityLevel::Encrypt, ..asked })
                }
                Variation::Executors => (
                    format!("{MANY_EXECUTORS} executors"),
                    Setup { executors: MANY_EXECUTORS, ..asked },
                ),
                Variation::Relay => ("a relay between".to_owned(), Setup { relay: true, ..asked }),
            });
        }
        setups
    }
}

/// Runs the benchmark.
pub(crate) async fn run(args: &DispatchArgs) -> Result<Table, BenchError> {
    let load = args.load();
    let mut table = Table::new(
        if load.distinct { "dispatch, distinct tasks" } else { "dispatch, a task array" },
        format!(
            "{} no-op tasks in submissions of {}, {} executor{}, security {:?}, journal {}",
            load.tasks,
            load.bundle.min(load.tasks),
            args.executors,
            if args.executors == 1 { "" } else { "s" },
            args.security,
            if args.no_journal { "off" } else { "on" },
        ),
    );
    let mut contenders = Vec::new();
    for (name, setup) in args.setups() {
        contenders.push(Contender::start(name, setup, &load).await?);
    }
    for _ in 0..args.round.rounds {
        let mut bytes = (0, 0);
        for (at, contender) in contenders.iter_mut().enumerate() {
            let before = contender.processor_times();
            let taken = contender.run(&load).await?;
            table.add(&contender.name, RATE, load.tasks as f64 / taken.seconds);
            let after = contender.processor_times();
            for (who, (before, after)) in PROCESSES.iter().zip(before.into_iter().zip(after)) {
                let each = (after - before) as f64 / load.tasks as f64;
                table.add(&format!("{}: {who}", contender.name), "ns/task", each);
            }
            if at == 0 {
                bytes = (taken.bytes_out, taken.bytes_in);
            }
        }
        let seconds = wire_floor::relay(bytes.0, bytes.1)?;
        table.add("floor: a bare relay of the same bytes", RATE, load.tasks as f64 / seconds);
        table.add("floor: the core alone, in one thread", RATE, core_alone::rate(&load)?);
    }
    table.note("client, dispatcher, executors: their processor time, which hardly depends on load");
    table.compare_with("falkon");
    Ok(table)
}
