//! Options about data: where executors cache it, and by which policy it
//! decides where tasks run.

use crate::exit::Exit;
use crate::plan::{Plan, memory_bytes};
use clap::Args;
use falkon_core::data::cache::Eviction;
use falkon_core::dispatch::diffusion::{PolicyError, PolicyName, PolicyOptions};
use falkon_node::executor::CacheSetup;
use std::path::{Path, PathBuf};

/// What is free on the cache's disk, divided by what is taken by default.
const FREE_PARTS: u64 = 2;
/// Thousandths of a whole.
const MILLI: f64 = 1000.0;

/// The cache of an executor.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Cache")]
pub(crate) struct CacheArgs {
    /// Keep data objects in this directory, at most so many bytes (10GiB);
    /// may be repeated, the fastest first [default: a temporary directory, half
    /// of what is free there]
    ///
    /// What is there when the executor starts is used again.
    #[arg(long, value_name = "DIR=SIZE", value_parser = directory)]
    cache: Vec<(PathBuf, u64)>,
    /// What goes first when room is needed: random, fifo, lru, lfu, queue-aware
    #[arg(long, value_name = "POLICY", default_value = "lru", value_parser = eviction)]
    eviction: Eviction,
}

/// Why an option about data is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DataArgError {
    /// Not a directory with a size.
    #[error("`{0}` is not a cache: write DIR=SIZE, such as /tmp/cache=10GiB")]
    Cache(String),
    /// No such eviction policy.
    #[error(
        "there is no eviction policy `{0}`: choose one of {known}",
        known = EVICTIONS.map(|(name, _)| name).join(", ")
    )]
    Eviction(String),
    /// Not a part of a whole.
    #[error("`{0}` is no part of a whole: write a number from 0 to 1")]
    Part(String),
}

fn directory(text: &str) -> Result<(PathBuf, u64), DataArgError> {
    let wrong = || DataArgError::Cache(text.to_owned());
    let (path, size) = text.rsplit_once('=').ok_or_else(wrong)?;
    if path.is_empty() {
        return Err(wrong());
    }
    Ok((PathBuf::from(path), memory_bytes(size).map_err(|_| wrong())?))
}

const EVICTIONS: [(&str, Eviction); 5] = [
    ("random", Eviction::Random),
    ("fifo", Eviction::Fifo),
    ("lru", Eviction::Lru),
    ("lfu", Eviction::Lfu),
    ("queue-aware", Eviction::QueueAware),
];

fn eviction(text: &str) -> Result<Eviction, DataArgError> {
    let found = EVICTIONS.iter().find(|(name, _)| *name == text);
    found.map(|(_, eviction)| *eviction).ok_or_else(|| DataArgError::Eviction(text.to_owned()))
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
        Ok(CacheSetup { directories, eviction: self.eviction })
    }
}

/// How data decides where tasks run.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Dispatch")]
pub(crate) struct PolicyArgs {
    /// Where tasks go: first-available, first-cache-available, max-cache-hit,
    /// max-compute-util, good-cache-compute, queue-aware [default:
    /// max-compute-util if tasks have data objects, else first-available]
    #[arg(long, value_name = "NAME", value_parser = policy)]
    policy: Option<PolicyName>,
    /// How many tasks from the head of the queue are considered [default: all]
    #[arg(long, value_name = "TASKS")]
    window: Option<u64>,
    /// With good-cache-compute: the part of the executors that must be busy for
    /// tasks to wait for those that hold their data [default: 0.9]
    #[arg(long, value_name = "PART", value_parser = thousandths)]
    utilization_threshold: Option<u32>,
    /// How many executors may hold an object before no other fetches it
    /// [default: any number]
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
    /// The options of an instance that runs `plan`.
    pub(crate) fn options(&self, plan: &Plan) -> Result<PolicyOptions, Exit> {
        let usual = match plan.has_objects() {
            true => PolicyName::MaxComputeUtil,
            false => PolicyName::FirstAvailable,
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
