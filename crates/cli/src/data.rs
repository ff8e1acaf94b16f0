//! Options about data: where executors cache it, and by which policy it
//! decides where tasks run.

use crate::exit::Exit;
use crate::plan::{Plan, duration_micros, memory_bytes};
use crate::results::staged::bytes_text;
use crate::ways::Destination;
use clap::Args;
use falkon_core::collect::CollectOptions;
use falkon_core::data::cache::Eviction;
use falkon_core::data::limits::STRIPE_BYTES;
use falkon_core::dispatch::diffusion::{POLICIES, PolicyError, PolicyName, PolicyOptions};
use falkon_executor::CacheSetup;
use std::path::{Path, PathBuf};

/// The divisor of the free space on the cache's disk that gives the default
/// size.
const FREE_PARTS: u64 = 2;
/// The dispatch policy of tasks with data objects, unless one is given.
const WITH_OBJECTS: PolicyName = PolicyName::MaxComputeUtil;
/// The dispatch policy of all other tasks, unless one is given.
const WITHOUT_OBJECTS: PolicyName = PolicyName::FirstAvailable;
/// Thousandths of a whole.
const MILLI: f64 = 1000.0;

/// The cache of an executor.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Cache")]
pub(crate) struct CacheArgs {
    /// Keep data objects in this directory, at most SIZE bytes (10GiB); may be repeated, the
    /// fastest first [default: a temporary directory, half of the free space there]
    ///
    /// Objects that are there when the executor starts are used again.
    #[arg(long, value_name = "DIR=SIZE", value_parser = directory)]
    cache: Vec<(PathBuf, u64)>,
    #[arg(
        long,
        value_name = "POLICY",
        default_value_t,
        value_parser = eviction,
        help = format!("Which object is evicted first when room is needed: {}", evictions())
    )]
    eviction: Eviction,
    /// How long an output that is a member of an archive waits at most before it is written
    /// [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration_micros)]
    collect_delay: Option<u64>,
    /// How many bytes of such outputs wait at most before they are written [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = memory_bytes)]
    collect_data: Option<u64>,
    /// With less than this free on the disk where they wait, a sixteenth of those bytes waits
    /// [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = memory_bytes)]
    collect_free: Option<u64>,
    /// How long an archive that cannot be written is tried again before its tasks fail: for a
    /// disk that is full, or a store that is away [default: 2h]
    #[arg(long, value_name = "TIME", value_parser = duration_micros)]
    collect_patience: Option<u64>,
}

/// Why an option about data is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DataArgError {
    /// Not a directory with a size.
    #[error("`{0}` is not a directory with a size: write DIR=SIZE, such as /tmp/cache=10GiB")]
    Directory(String),
    /// Room in which no stripe fits.
    #[error(
        "`{text}` lends less than one stripe takes: lend at least {least}, or leave --lend out",
        least = bytes_text(STRIPE_BYTES)
    )]
    Lent {
        /// The value of the option.
        text: String,
    },
    /// No such eviction policy.
    #[error(
        "there is no eviction policy `{0}`: choose one of {known}",
        known = evictions()
    )]
    Eviction(String),
    /// Not a part of a whole.
    #[error("`{0}` is not a share: write a number from 0 to 1")]
    Part(String),
}

pub(crate) fn directory(text: &str) -> Result<(PathBuf, u64), DataArgError> {
    let wrong = || DataArgError::Directory(text.to_owned());
    let (path, size) = text.rsplit_once('=').ok_or_else(wrong)?;
    if path.is_empty() {
        return Err(wrong());
    }
    Ok((PathBuf::from(path), memory_bytes(size).map_err(|_| wrong())?))
}

/// A directory that is lent: stripes of objects lie there.
pub(crate) fn lent_directory(text: &str) -> Result<(PathBuf, u64), DataArgError> {
    let lent = directory(text)?;
    if lent.1 < STRIPE_BYTES {
        return Err(DataArgError::Lent { text: text.to_owned() });
    }
    Ok(lent)
}

/// The names of all eviction policies.
fn evictions() -> String {
    Eviction::all().map(Eviction::name).collect::<Vec<_>>().join(", ")
}

fn eviction(text: &str) -> Result<Eviction, DataArgError> {
    Eviction::named(text).ok_or_else(|| DataArgError::Eviction(text.to_owned()))
}

impl CacheArgs {
    /// The cache, in `scratch` unless the command line says where.
    pub(crate) fn setup(&self, scratch: &Path) -> Result<CacheSetup, Exit> {
        let mut directories = self.cache.clone();
        if directories.is_empty() {
            let free = rustix::fs::statvfs(scratch).map_err(|error| {
                Exit::usage(format!("cannot tell what is free in {}: {error}", scratch.display()))
            })?;
            let bytes = free.f_bavail.saturating_mul(free.f_frsize) / FREE_PARTS;
            directories.push((scratch.join("cache"), bytes));
        }
        let (eviction, collect) = (self.eviction, self.collect());
        Ok(CacheSetup { directories, lends_last: false, mounts: false, eviction, collect })
    }

    /// What the largest directory of the cache takes, if that can be told.
    pub(crate) fn largest_bytes(&self, scratch: &Path) -> Option<u64> {
        let setup = self.setup(scratch).ok()?;
        setup.directories.iter().map(|(_, bytes)| *bytes).max()
    }

    /// When outputs that are members of archives are written.
    fn collect(&self) -> CollectOptions {
        let default = CollectOptions::default();
        CollectOptions {
            delay_micros_max: self.collect_delay.unwrap_or(default.delay_micros_max),
            data_bytes_max: self.collect_data.unwrap_or(default.data_bytes_max),
            free_bytes_min: self.collect_free.unwrap_or(default.free_bytes_min),
            patience_micros: self.collect_patience.unwrap_or(default.patience_micros),
        }
    }
}

/// How data decides where tasks run.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Dispatch")]
pub(crate) struct PolicyArgs {
    #[arg(
        long,
        value_name = "NAME",
        value_parser = policy,
        help = format!(
            "Where tasks are sent: {} [default: {WITH_OBJECTS} if tasks have data objects, else \
             {WITHOUT_OBJECTS}]",
            POLICIES.map(|(_, name)| name).join(", ")
        )
    )]
    policy: Option<PolicyName>,
    /// How many tasks from the head of the queue are considered [default: all]
    #[arg(long, value_name = "TASKS")]
    window: Option<u64>,
    /// With good-cache-compute: the share of executors that must be busy for tasks to wait for
    /// the holders of their data [default: 0.9]
    #[arg(long, value_name = "PART", value_parser = thousandths)]
    utilization_threshold: Option<u32>,
    /// The number of holders of an object at which no other executor fetches it [default: no
    /// limit]
    #[arg(long, value_name = "COUNT")]
    replication_max: Option<u32>,
}

fn policy(text: &str) -> Result<PolicyName, PolicyError> {
    PolicyName::named(text)
}

fn thousandths(text: &str) -> Result<u32, DataArgError> {
    let part = text.parse::<f64>().ok().filter(|part| (0.0..=1.0).contains(part));
    let part = part.ok_or_else(|| DataArgError::Part(text.to_owned()))?;
    Ok((part * MILLI).round() as u32)
}

impl PolicyArgs {
    /// What is known of where `plan` would run.
    pub(crate) fn destination(
        &self,
        plan: &Plan,
        executors: Option<u64>,
        cache_bytes: Option<u64>,
    ) -> Result<Destination, Exit> {
        let ignores_places = !self.options(plan)?.policy.knows_places();
        Ok(Destination { ignores_places, executors, cache_bytes, ..Destination::default() })
    }

    /// The options of an instance that runs `plan`.
    pub(crate) fn options(&self, plan: &Plan) -> Result<PolicyOptions, Exit> {
        let usual = match plan.has_objects() {
            true => WITH_OBJECTS,
            false => WITHOUT_OBJECTS,
        };
        let default = PolicyOptions::default();
        let options = PolicyOptions {
            policy: self.policy.unwrap_or(usual),
            window: self.window.unwrap_or(default.window),
            utilization_threshold_milli: self
                .utilization_threshold
                .unwrap_or(default.utilization_threshold_milli),
            replication_max: self.replication_max.unwrap_or(default.replication_max),
        };
        options.check().map_err(Exit::usage)?;
        if options.policy == PolicyName::FirstAvailable && plan.reads_caches() {
            return Err(Exit::usage(
                "the dispatch policy first-available does not know what is in caches, so tasks \
                 that read cache:KEY would not find it: choose another, such as \
                 max-compute-util",
            ));
        }
        Ok(options)
    }
}
