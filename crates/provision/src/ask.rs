//! Requests of clients to the provisioner.

use super::config::ConfigError;
use super::record::{RecordError, StoredQueue};
use super::{Provision, Queue};
use falkon_core::dispatch::Site;
use falkon_core::limits::NAME_BYTES_MAX;
use falkon_core::provision::limits::{QUEUE_EXECUTORS_MAX, QUEUES_MAX};
use falkon_core::provision::{AllocationState, AllocationView, Event, PlanLine, QueueView};
use falkon_core::task::Time;
use falkon_wire::provision::{
    AllocationStatus, Coming, ProvisionAsk, ProvisionLine, ProvisionStatus, QueueStatus,
};
use std::fmt;

/// The text of a queue's file.
const CONFIG_BYTES_MAX: usize = 64 << 10;

/// A line of the provisioner's log.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) at: Time,
    pub(super) queue: String,
    pub(super) text: String,
}

/// Why something that was asked is not done.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// This dispatcher has no provisioner.
    #[error(
        "this dispatcher has no provisioner: it was started with --no-journal, or within another \
         program"
    )]
    NoProvisioner,
    /// There is no such queue.
    #[error("there is no queue {0}; falkon provision list shows those there are")]
    NoQueue(String),
    /// There is such a queue already.
    #[error(
        "there is a queue {0} already: give the new one another --name, or remove that one first"
    )]
    Exists(String),
    /// There is a queue of this machine already.
    #[error("queue {0} uses this machine already: two queues would offer more than it has")]
    Here(String),
    /// There are too many queues.
    #[error("there are {QUEUES_MAX} queues already: remove one")]
    TooMany,
    /// A queue's name or the text of its file is too long.
    #[error(
        "the queue's {what} is {bytes} bytes, and at most {bytes_max} are kept: make it shorter"
    )]
    TooLong {
        /// The subject.
        what: &'static str,
        /// The length of the text.
        bytes: usize,
        /// The longest there may be.
        bytes_max: usize,
    },
    /// There is no such allocation.
    #[error("there is no allocation {0}")]
    NoAllocation(u64),
    /// Nodes: none at all, or too many.
    #[error(fmt = write_nodes)]
    Nodes {
        /// How many were asked for.
        nodes: u64,
        /// How many can be.
        most: u64,
    },
    /// The queue cannot be.
    #[error(transparent)]
    Config(ConfigError),
    /// The queue cannot be recorded.
    #[error(transparent)]
    Record(RecordError),
}

fn write_nodes(nodes: &u64, most: &u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match most {
        0 => write!(f, "no further node can be requested: the queue has its maximum"),
        most => write!(f, "{nodes} nodes cannot be asked for at a time: choose 1 to {most}"),
    }
}

impl Provision {
    /// Does what is asked; the status, if it was that.
    pub fn ask(
        &mut self,
        now: Time,
        ask: ProvisionAsk,
    ) -> Result<Option<ProvisionStatus>, AskError> {
        match ask {
            ProvisionAsk::Status { queue, log } => {
                if let Some(name) = &queue {
                    self.find(name)?;
                }
                return Ok(Some(self.status(now, queue.as_deref(), log)));
            }
            ProvisionAsk::Add { name, config } => self.add(now, &name, config)?,
            ProvisionAsk::Pause { queue } => {
                let queue = self.find(&queue)?;
                self.machine.handle(now, Event::Pause { queue });
            }
            ProvisionAsk::Resume { queue } => {
                let queue = self.find(&queue)?;
                self.machine.handle(now, Event::Resume { queue });
            }
            ProvisionAsk::Remove { queue } => {
                let id = self.find(&queue)?;
                self.keep(now, id, |stored| stored.removing = true);
                self.machine.handle(now, Event::Remove { queue: id });
            }
            ProvisionAsk::Once { queue, nodes, walltime_micros } => {
                let id = self.find(&queue)?;
                let most = self.queues.get(&id).and_then(|queue| queue.driver.nodes_max());
                let view = self.machine.queue_view(id).filter(|view| view.options().max_is_strict);
                let left =
                    view.map(|view| view.options().executors_max.saturating_sub(view.held()));
                let most = most.into_iter().chain(left).min().unwrap_or(QUEUE_EXECUTORS_MAX);
                if nodes == 0 || nodes > most {
                    return Err(AskError::Nodes { nodes, most });
                }
                self.machine.handle(now, Event::Once { queue: id, nodes, walltime_micros });
            }
            ProvisionAsk::Drop { allocation } => {
                if !self.machine.allocation_views().any(|view| view.id() == allocation) {
                    return Err(AskError::NoAllocation(allocation.0));
                }
                self.machine.handle(now, Event::Drop { allocation });
            }
        }
        // The consequences are wanted now.
        self.look_at = now;
        Ok(None)
    }

    /// Adds a queue, and records it.
    pub(super) fn add(&mut self, now: Time, name: &str, config: String) -> Result<(), AskError> {
        if self.recorded(|record| record.queues().iter().any(|queue| queue.name == name)) {
            return Err(AskError::Exists(name.to_owned()));
        }
        for (what, bytes, bytes_max) in
            [("name", name.len(), NAME_BYTES_MAX), ("file", config.len(), CONFIG_BYTES_MAX)]
        {
            if bytes > bytes_max {
                return Err(AskError::TooLong { what, bytes, bytes_max });
            }
        }
        if self.queues.len() >= QUEUES_MAX {
            return Err(AskError::TooMany);
        }
        let stored = StoredQueue { name: name.to_owned(), config, paused: false, removing: false };
        // Checked before it is recorded; the disk may take its time.
        self.checked(&stored)?;
        self.record_queue(name, Some(stored.clone())).map_err(AskError::Record)?;
        let queue = self.take_up(now, stored).map_err(AskError::Config)?;
        let is_here = self.queues.get(&queue).is_some_and(|queue| queue.driver.is_here());
        if self.setup.loopback && !is_here {
            let text = "this dispatcher listens at this machine's own address alone: executors \
                        elsewhere cannot reach it; start it with --listen 0.0.0.0:0";
            self.say(now, name, text.to_owned());
        }
        self.look_at = now;
        Ok(())
    }

    fn checked(&self, stored: &StoredQueue) -> Result<(), AskError> {
        let checked = || {
            let config = super::QueueConfig::parse(&stored.config)?;
            let driver = config.driver(&self.setup.executor, &self.setup.tag, &self.setup.dir)?;
            config.options(&stored.name, &driver).map(|_| driver)
        };
        let driver = checked().map_err(AskError::Config)?;
        let mut others = self.queues.values().filter(|other| other.driver.is_here());
        match others.next().filter(|_| driver.is_here()) {
            Some(other) => Err(AskError::Here(other.stored.name.clone())),
            None => Ok(()),
        }
    }

    /// Nodes that are to come of each queue, and why they have not.
    pub fn coming(&self, now: Time) -> Vec<Coming> {
        let plan = self.machine.plan(now);
        let lines = plan.queues.iter().filter_map(|line| {
            let view = self.machine.queue_view(line.queue)?;
            let name = self.queues.get(&line.queue)?.stored.name.clone();
            Some(coming(name, &view, line))
        });
        lines.filter(|coming| coming.nodes > 0 || !coming.reason.is_empty()).collect()
    }

    /// The queues, for those who see the whole tree.
    pub fn sites(&self, now: Time) -> Vec<Site> {
        self.machine.sites(now)
    }

    fn status(&self, now: Time, only: Option<&str>, log: u64) -> ProvisionStatus {
        let wanted = |name: &str| only.is_none_or(|only| only == name);
        let plan = self.machine.plan(now);
        let mut queues = Vec::new();
        let mut allocations = Vec::new();
        for line in &plan.queues {
            let view = self.machine.queue_view(line.queue);
            let Some((queue, view)) = self.queues.get(&line.queue).zip(view) else { continue };
            if !wanted(&queue.stored.name) {
                continue;
            }
            queues.push(queue_status(queue, &view, line));
            allocations.extend(view.allocations().map(|one| allocation_status(queue, &one)));
        }
        let count = usize::try_from(log).unwrap_or(usize::MAX);
        let lines = self.lines.iter().rev().filter(|line| wanted(&line.queue)).take(count);
        let mut log: Vec<ProvisionLine> = lines
            .map(|line| ProvisionLine {
                at: line.at,
                queue: line.queue.clone(),
                text: line.text.clone(),
            })
            .collect();
        log.reverse();
        ProvisionStatus { now, queues, allocations, log, sites: Vec::new() }
    }
}

/// Nodes that have not come, and the first reason for that.
fn coming(queue: String, view: &QueueView<'_>, plan: &PlanLine) -> Coming {
    let waits = |one: &AllocationView<'_>| {
        one.state() != AllocationState::Running && one.executors() == 0 && !one.is_ending()
    };
    let nodes = view.allocations().filter(waits).map(|one| one.nodes());
    let nodes = nodes.fold(0, u64::saturating_add);
    let said = view.allocations().filter(waits).find(|one| !one.words().is_empty());
    let said = said.map(|one| match one.state() {
        AllocationState::Held => format!("held: {}", one.words()),
        _ => one.words().to_owned(),
    });
    let paused = view.paused().map(|words| match words {
        "" => "it is paused".to_owned(),
        words => format!("it is paused: {}", words.trim()),
    });
    let unserved = plan.unserved.as_ref().map(|(_, reason)| reason.to_string());
    let reason = said.or(paused).or(unserved).unwrap_or_default();
    Coming { queue, nodes, reason }
}

fn queue_status(queue: &Queue, view: &QueueView<'_>, plan: &PlanLine) -> QueueStatus {
    let (refusals, query_failures) = view.failures();
    QueueStatus {
        name: queue.stored.name.clone(),
        kind: queue.driver.kind().to_owned(),
        config: queue.stored.config.clone(),
        paused: view.paused().map(str::to_owned),
        removing: view.is_removing(),
        known: view.is_known(),
        not_before: view.not_before(),
        refusals: refusals.into(),
        query_failures: query_failures.into(),
        delay_micros: view.delay_micros(),
        executors_min: view.options().executors_min,
        executors_max: view.options().executors_max,
        size: view.size(),
        node: view.options().node.clone(),
        requests: plan.requests.clone(),
        releases: plan.releases,
        reason: plan.why(),
    }
}

fn allocation_status(queue: &Queue, view: &AllocationView<'_>) -> AllocationStatus {
    AllocationStatus {
        id: view.id(),
        queue: queue.stored.name.clone(),
        nodes: view.nodes(),
        job: view.job().map(str::to_owned),
        state: view.state().name().to_owned(),
        reason: match view.state() {
            AllocationState::Running => String::new(),
            _ => view.words().to_owned(),
        },
        asked: view.asked_at(),
        started: view.started_at(),
        executors: view.executors(),
        ending: view.is_ending(),
        fixed: view.is_fixed(),
    }
}
