//! The fields of a scenario file about nodes that are acquired on demand.

use super::fields::{FieldError, nanos, span};
use crate::amount::{Amount, Time};
use crate::description;
use crate::exit::Exit;
use falkon_core::task::Resources;
use falkon_sim::{AcquireName, Lrm, Provision, QueueOptions, ReleaseName, Stage};
use serde::Deserialize;
use std::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StageFields {
    tasks: u64,
    run: Amount<Time>,
}

/// The stages of a workload.
pub(super) fn stages(fields: &[StageFields]) -> Vec<Stage> {
    fields.iter().map(|stage| Stage { tasks: stage.tasks, run: nanos(stage.run) }).collect()
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ProvisionFields {
    min: u64,
    max: Option<u64>,
    request_min: Option<u64>,
    request_max: Option<u64>,
    pending: Option<u64>,
    allocations: Option<u64>,
    walltime: Option<Amount<Time>>,
    idle: Option<Amount<Time>>,
    keep: bool,
    acquire: Option<String>,
    release: Option<String>,
    queued: Option<u64>,
    whole: Option<bool>,
    delay: Option<Amount<Time>>,
    billing: Option<Amount<Time>>,
    query: Option<Amount<Time>>,
}

fn micros(amount: Amount<Time>) -> u64 {
    nanos(amount).0 / 1000
}

impl ProvisionFields {
    /// The provisioner's options for its queue, whose nodes have `slots` slots.
    ///
    /// # Errors
    /// Names what does not exist, or does not go together.
    pub(super) fn queue(&self, slots: u32) -> Result<QueueOptions, FieldError> {
        let base = QueueOptions::default();
        let acquire = match &self.acquire {
            None => base.acquire,
            Some(name) => AcquireName::named(name).ok_or_else(|| FieldError::Provision {
                what: "acquisition strategy",
                name: name.clone(),
            })?,
        };
        let release = match &self.release {
            None => base.release,
            Some(name) => ReleaseName::named(name, self.queued.unwrap_or(1)).ok_or_else(|| {
                FieldError::Provision { what: "release policy", name: name.clone() }
            })?,
        };
        let idle = self.idle.map(micros).or(base.idle_micros).filter(|_| !self.keep);
        let options = QueueOptions {
            executors_min: self.min,
            executors_max: self.max.unwrap_or(base.executors_max),
            request_nodes_min: self.request_min.unwrap_or(base.request_nodes_min),
            request_nodes_max: self.request_max.unwrap_or(base.request_nodes_max),
            pending_max: self.pending.unwrap_or(base.pending_max),
            allocations_max: self.allocations.unwrap_or(base.allocations_max),
            walltime_micros: self.walltime.map_or(0, micros),
            idle_micros: idle,
            acquire,
            release,
            node: Resources::cpus(slots),
            is_whole: self.whole.unwrap_or(base.is_whole),
            billing_micros: self.billing.map_or(base.billing_micros, micros),
            delay_micros: self.delay.map_or(base.delay_micros, micros),
            query_micros: self.query.map_or(base.query_micros, micros),
            ..base
        };
        options.check().map_err(FieldError::Queue)?;
        Ok(options)
    }
}

/// A file of these tables alone, for a replay.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProvisionFile {
    provision: ProvisionFields,
    #[serde(default)]
    lrm: LrmFields,
}

/// Reads how executors are acquired; nodes have one slot.
pub(super) fn read(path: &Path) -> Result<Provision, Exit> {
    let file: ProvisionFile = description::read(path).map_err(Exit::usage)?;
    let queue = file.provision.queue(1);
    let queue = queue.map_err(|error| Exit::usage(format!("{}: {error}", path.display())))?;
    Ok(Provision { queue, lrm: file.lrm.lrm() })
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LrmFields {
    poll: Option<Amount<Time>>,
    start: Option<Amount<Time>>,
    start_max: Option<Amount<Time>>,
    answer: Option<Amount<Time>>,
    refuse: f64,
    hang: f64,
    query_failure: f64,
    nonsense: f64,
    kill: f64,
    kill_within: Option<Amount<Time>>,
    down_from: Option<Amount<Time>>,
    down: Option<Amount<Time>>,
}

impl LrmFields {
    /// The scheduler.
    pub(super) fn lrm(&self) -> Lrm {
        let start = span(self.start);
        Lrm {
            poll: span(self.poll),
            start_min: start,
            start_max: self.start_max.map_or(start, nanos),
            answer: span(self.answer),
            refuse: self.refuse,
            hang: self.hang,
            query_failure: self.query_failure,
            nonsense: self.nonsense,
            kill: self.kill,
            kill_within: span(self.kill_within),
            down_from: self.down_from.map(nanos),
            down: span(self.down),
        }
    }
}
