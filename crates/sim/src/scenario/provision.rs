//! Nodes that are acquired on demand, and the scheduler that gives them.

use super::{ScenarioError, Stage};
use crate::time::Nanos;
use falkon_core::provision::QueueOptions;

/// Stages of one run.
const STAGES_MAX: usize = 65_536;

/// The nodes of a scenario are acquired on demand, through an LRM.
#[derive(Debug, Clone, PartialEq)]
pub struct Provision {
    /// How: what the provisioner is told of the LRM's queue.
    pub queue: QueueOptions,
    /// The LRM, which has the scenario's nodes to give.
    pub lrm: Lrm,
}

/// A local resource manager.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Lrm {
    /// How often it looks at its queue; 0 is at once.
    pub poll: Nanos,
    /// From the start of an allocation until its executors connect, at least.
    pub start_min: Nanos,
    /// And at most; each node's is drawn.
    pub start_max: Nanos,
    /// What an answer to a command takes.
    pub answer: Nanos,
    /// The share of submissions that it refuses.
    pub refuse: f64,
    /// The share of submissions and queries that it never answers; every
    /// second of such submissions it has taken all the same.
    pub hang: f64,
    /// The share of queries that it answers with an error.
    pub query_failure: f64,
    /// The share of queries whose answer is partly nonsense: jobs twice, in
    /// states that nobody knows, and jobs that never were.
    pub nonsense: f64,
    /// The share of allocations that it kills early.
    pub kill: f64,
    /// Of those: for how long they run, at most.
    pub kill_within: Nanos,
    /// It answers nothing from then on.
    pub down_from: Option<Nanos>,
    /// And answers again after so long.
    pub down: Nanos,
}

impl Provision {
    pub(super) fn check(&self) -> Result<(), ScenarioError> {
        if self.queue.check().is_err() {
            return Err(ScenarioError::Queue);
        }
        let lrm = &self.lrm;
        if lrm.start_max < lrm.start_min {
            let (least, most) = (lrm.start_min, lrm.start_max);
            return Err(ScenarioError::Durations { least, most });
        }
        for (name, value) in [
            ("the share of submissions that are refused", lrm.refuse),
            ("the share of commands that hang", lrm.hang),
            ("the share of queries that fail", lrm.query_failure),
            ("the share of queries with nonsense", lrm.nonsense),
            ("the share of allocations that are killed", lrm.kill),
        ] {
            if !(0.0..=1.0).contains(&value) {
                return Err(ScenarioError::Share { name, value });
            }
        }
        Ok(())
    }

    /// Whether tasks may be lost and run again for what the LRM does.
    pub(crate) fn may_lose(&self) -> bool {
        self.lrm.kill > 0.0
            || self.queue.walltime_micros > 0
            || self.lrm.nonsense > 0.0
            || self.lrm.hang > 0.0
            || self.lrm.down_from.is_some()
    }
}

/// The stages as they come: each when all results of the one before are there.
#[derive(Debug)]
pub(crate) struct Staging {
    /// Where each stage ends, as a number of tasks.
    ends: Vec<u64>,
    /// When those that have begun did.
    pub(crate) began: Vec<Nanos>,
}

impl Staging {
    pub(crate) fn new(stages: &[Stage]) -> Staging {
        let mut end = 0;
        let ends = stages.iter().map(|stage| {
            end += stage.tasks;
            end
        });
        Staging { ends: ends.collect(), began: Vec::new() }
    }

    /// The stage of task `index`.
    pub(crate) fn stage_of(&self, index: u64) -> usize {
        self.ends.partition_point(|end| *end <= index)
    }

    /// How many tasks may be submitted when so many results are there; notes
    /// when a stage begins.
    pub(crate) fn ready(&mut self, received: u64, from: Nanos, now: Nanos) -> u64 {
        let begun = self.stage_of(received) + 1;
        while self.began.len() < begun.min(self.ends.len()) {
            self.began.push(if self.began.is_empty() { from } else { now });
        }
        let at = begun.min(self.ends.len()) - 1;
        self.ends[at]
    }

    /// When task `index` arrived.
    pub(crate) fn arrived(&self, index: u64) -> Nanos {
        self.began.get(self.stage_of(index)).copied().unwrap_or_default()
    }
}

/// Whether stages make sense beside the other numbers.
pub(super) fn check_stages(
    stages: &[Stage],
    tasks: u64,
    dispatchers: u32,
) -> Result<(), ScenarioError> {
    let sum = stages.iter().fold(0u64, |sum, stage| sum.saturating_add(stage.tasks));
    let is_sound = stages.iter().all(|stage| stage.tasks > 0) && sum == tasks;
    if stages.is_empty() || is_sound && dispatchers == 1 && stages.len() <= STAGES_MAX {
        return Ok(());
    }
    Err(ScenarioError::Stages)
}
