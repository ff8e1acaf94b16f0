//! A queue's file: which scheduler, how much of it, and how its jobs are.

use super::local_machine::{LocalMachine, ShareError};
use crate::lrm::{Description, Driver, Executor, LrmError, Settings};
use falkon_core::provision::{AcquireName, OptionsError, QueueOptions, ReleaseName, leave_micros};
use falkon_core::task::{MILLI, Resources};
use serde::Deserialize;
use std::path::Path;

/// Nodes that a queue has at most unless its owner says otherwise: enough to
/// be of use, and few enough for a cluster not to notice.
const EXECUTORS_MAX: u64 = 8;
/// Jobs that a queue has waiting at most, likewise.
const PENDING_MAX: u64 = 2;
/// How long a job may run, likewise.
const WALLTIME_S: f64 = 3600.0;
/// How long a node may be idle, likewise.
const IDLE_S: f64 = 60.0;
/// How long a job may be held, likewise.
const HELD_S: f64 = 3600.0;
/// How long an executor goes on without its dispatcher, likewise.
const GIVE_UP_S: f64 = 600.0;
/// The longest name of a queue.
const NAME_BYTES_MAX: usize = 64;

/// The text of a queue's file, which is TOML. Times are in seconds. The
/// defaults are kind to the cluster.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueConfig {
    /// The kind of the scheduler.
    pub kind: String,
    /// Nodes that are held whatever the demand.
    pub nodes_min: u64,
    /// Nodes at most; without it 8, or all of this machine as one.
    pub nodes_max: Option<u64>,
    /// Nodes of one request at least.
    pub request_min: u64,
    /// Nodes of one request at most.
    pub request_max: Option<u64>,
    /// Jobs that wait at most.
    pub pending_max: u64,
    /// Jobs at most.
    pub jobs_max: u64,
    /// How long a job may run; 0 leaves it to the scheduler.
    pub walltime: f64,
    /// How long a node may be idle before it is given back; below 0 for ever.
    pub idle: f64,
    /// The longest time that a held job may wait to be released; below 0 for
    /// ever.
    pub held: f64,
    /// How nodes are asked for.
    pub acquire: String,
    /// When they are given back.
    pub release: String,
    /// For release = "few-queued": fewer than how many.
    pub few_queued: u64,
    /// Queues with more of it are asked first.
    pub preference: i32,
    /// The least cost of a job, as time for which its nodes are paid for.
    pub billing: f64,
    /// How long nodes are taken to take to come, until that was measured.
    pub delay: f64,
    /// The least time between two queries.
    pub query_interval: f64,
    /// CPUs that a node is taken to have, until one has come.
    pub node_cpus: Option<u32>,
    /// How long an executor goes on without its dispatcher.
    pub give_up: f64,
    /// How long before the walltime's end executors leave; a tenth of it, at
    /// most a minute, if it is not said.
    pub leave_before: Option<f64>,
    /// How its jobs are.
    pub job: Settings,
    /// Parts of the scheduler's description that are different here.
    pub lrm: toml::Table,
}

impl Default for QueueConfig {
    fn default() -> Self {
        let options = QueueOptions::default();
        QueueConfig {
            kind: String::new(),
            nodes_min: 0,
            nodes_max: None,
            request_min: 1,
            request_max: None,
            pending_max: PENDING_MAX,
            jobs_max: options.allocations_max,
            walltime: WALLTIME_S,
            idle: IDLE_S,
            held: HELD_S,
            acquire: options.acquire.name().to_owned(),
            release: options.release.name().to_owned(),
            few_queued: 1,
            preference: 0,
            billing: 0.0,
            delay: options.delay_micros as f64 / 1e6,
            query_interval: options.query_micros as f64 / 1e6,
            node_cpus: None,
            give_up: GIVE_UP_S,
            leave_before: None,
            job: Settings::default(),
            lrm: toml::Table::new(),
        }
    }
}

/// Why a queue cannot be.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The text is no queue's file.
    #[error("{0}")]
    Toml(String),
    /// The name cannot be a queue's.
    #[error(
        "`{0}` is no name for a queue: use letters, digits, -, _ and ., at most {NAME_BYTES_MAX}"
    )]
    Name(String),
    /// No strategy has that name.
    #[error(
        "acquire: there is no strategy `{0}`: choose {names}",
        names = AcquireName::ALL.map(AcquireName::name).join(", ")
    )]
    Acquire(String),
    /// No policy has that name.
    #[error("release: there is no policy `{0}`: choose idle, no-queued, few-queued, predictive")]
    Release(String),
    /// A time is none.
    #[error("{0} must be seconds, 0 or more")]
    Time(&'static str),
    /// The numbers make no sense together.
    #[error(transparent)]
    Options(OptionsError),
    /// The scheduler cannot be used with these settings.
    #[error(transparent)]
    Lrm(LrmError),
    /// The queue's nodes are this machine, and exceed it.
    #[error(transparent)]
    Machine(ShareError),
}

/// Seconds as whole microseconds.
fn micros(what: &'static str, seconds: f64) -> Result<u64, ConfigError> {
    let micros = seconds * 1e6;
    // 2^63 is exact in a double; everything below it converts.
    match (0.0..9_223_372_036_854_775_808.0).contains(&micros) {
        true => Ok(micros as u64),
        false => Err(ConfigError::Time(what)),
    }
}

impl QueueConfig {
    /// Reads a queue's file.
    ///
    /// # Errors
    /// The text is not TOML, or has a field that a queue's file does not.
    pub fn parse(text: &str) -> Result<QueueConfig, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::Toml(error.to_string()))
    }

    /// The options of the queue, for the core.
    ///
    /// # Errors
    /// Something in it makes no sense.
    pub fn options(&self, name: &str, driver: &Driver) -> Result<QueueOptions, ConfigError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(plain) {
            return Err(ConfigError::Name(name.to_owned()));
        }
        let acquire = AcquireName::named(&self.acquire)
            .ok_or_else(|| ConfigError::Acquire(self.acquire.clone()))?;
        let release = ReleaseName::named(&self.release, self.few_queued)
            .ok_or_else(|| ConfigError::Release(self.release.clone()))?;
        let request_max = self.request_max.into_iter().chain(driver.nodes_max());
        let nodes_max = self.nodes_max(driver.is_here());
        let request_max = request_max.chain([nodes_max]).min().unwrap_or(nodes_max);
        let options = QueueOptions {
            name: name.to_owned(),
            executors_min: self.nodes_min,
            executors_max: nodes_max,
            max_is_strict: driver.is_here(),
            request_nodes_min: self.request_min,
            request_nodes_max: request_max,
            pending_max: self.pending_max,
            allocations_max: self.jobs_max,
            walltime_micros: micros("walltime", self.walltime)?,
            leave_micros: match self.leave_before {
                Some(seconds) => micros("leave_before", seconds)?,
                None => leave_micros(micros("walltime", self.walltime)?),
            },
            idle_micros: match self.idle < 0.0 {
                true => None,
                false => Some(micros("idle", self.idle)?),
            },
            held_micros: match self.held < 0.0 {
                true => None,
                false => Some(micros("held", self.held)?),
            },
            tells_size: driver.tells_size(),
            acquire,
            release,
            preference: self.preference,
            node: self.node(driver.settings()),
            // Whole nodes are as large as they are.
            node_is_guess: driver.has_whole_nodes() && self.node_cpus.is_none(),
            is_whole: driver.is_whole(),
            billing_micros: micros("billing", self.billing)?,
            delay_micros: micros("delay", self.delay)?,
            query_micros: micros("query_interval", self.query_interval)?,
        };
        options.check().map_err(ConfigError::Options)?;
        Ok(options)
    }

    fn nodes_max(&self, is_here: bool) -> u64 {
        self.nodes_max.unwrap_or(if is_here { 1 } else { EXECUTORS_MAX })
    }

    /// The resources that a node is assumed to offer.
    fn node(&self, job: &Settings) -> Resources {
        let cpus = self.node_cpus.or(job.cpus).unwrap_or(1);
        let mut node = Resources {
            gpus: job.gpus.unwrap_or(0),
            // Tasks that ask for memory or disk space are tried on any node until one is known.
            memory_bytes: job.memory_mib.map_or(u64::MAX, |mib| mib.saturating_mul(1 << 20)),
            ..Resources::cpus(cpus.min(u32::MAX / MILLI))
        };
        node.set_disk_bytes(job.disk_mib.map_or(u64::MAX, |mib| mib.saturating_mul(1 << 20)));
        node
    }

    /// The driver of the queue. `executor` has the settings that all executors
    /// of a dispatcher share.
    ///
    /// # Errors
    /// The scheduler's description, or the settings of its jobs, cannot be
    /// used.
    pub fn driver(
        &self,
        executor: &Executor,
        tag: &str,
        dir: &Path,
    ) -> Result<Driver, ConfigError> {
        let give_up = micros("give_up", self.give_up)?;
        let give_up = std::time::Duration::from_micros(give_up);
        let leave_before = self.leave_before.map(|seconds| micros("leave_before", seconds));
        let leave_before = leave_before.transpose()?.map(std::time::Duration::from_micros);
        let executor = Executor { give_up, leave_before, ..executor.clone() };
        let mut settings = self.job.clone();
        let description = Description::of(&self.kind, &self.lrm);
        if description.map_err(|error| ConfigError::Lrm(error.into()))?.here {
            let shared = LocalMachine::own().share(&mut settings, self.nodes_max(true));
            shared.map_err(ConfigError::Machine)?;
        }
        Driver::new(&self.kind, &self.lrm, settings, executor, tag, dir).map_err(ConfigError::Lrm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<QueueOptions, ConfigError> {
        let config = QueueConfig::parse(text)?;
        let executor = Executor {
            binary: "falkon".into(),
            access: String::new(),
            give_up: std::time::Duration::ZERO,
            leave_before: None,
        };
        let driver = config.driver(&executor, "tag", Path::new("/nowhere"))?;
        config.options("name", &driver)
    }

    #[test]
    fn what_is_not_said_is_kind_to_the_cluster() {
        let options = options("kind = \"slurm\"").unwrap();
        assert_eq!((options.executors_min, options.executors_max), (0, 8));
        assert_eq!((options.pending_max, options.query_micros), (2, 5_000_000));
        assert_eq!(options.idle_micros, Some(60_000_000));
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_says_what_would() {
        for (text, part) in [
            ("kind = \"slrm\"", "choose slurm, "),
            ("kind = \"slurm\"\nnodes = 4", "unknown field `nodes`"),
            ("kind = \"slurm\"\nnodes_max = 0", "at most 0 executors"),
            ("kind = \"slurm\"\nacquire = \"all\"", "choose all-at-once, one-at-a-time"),
            ("kind = \"slurm\"\nrelease = \"x\"", "choose idle, no-queued"),
            ("kind = \"slurm\"\nwalltime = -1", "walltime must be seconds"),
            ("kind = \"slurm\"\n[job]\nenvironment = { \"a b\" = \"\" }", "environment variable"),
            ("kind = \"slurm\"\n[job]\npartition = \"a\\nb\"", "control characters"),
            ("kind = \"slurm\"\n[lrm.query]\ncommand = [\"{{x}}\"]", "no placeholder {{x}}"),
            ("kind = \"slurm\"\n[lrm.submit]\ninput = \"{{x\"", "a placeholder is"),
        ] {
            let error = options(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
