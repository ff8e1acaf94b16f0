//! Why slots of executors are idle. For people who ask; nothing is decided by it.

use super::Dispatcher;
use super::fleet::Executor;
use super::needs::NeedId;
use crate::limits::{EXPLAINED_NAMES_MAX, EXPLAINED_NEEDS_MAX};
use std::collections::BTreeMap;

/// Why executors have free slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IdleReason {
    /// They are not connected, or silent.
    Away,
    /// They are about to leave.
    Leaving,
    /// Somebody wants them to be given nothing.
    Drained,
    /// They could not start their tasks, and are left alone for a while.
    Suspended,
    /// They are being emptied for a task that needs more room than is free.
    Emptied,
    /// Their room is kept for a task that runs on several executors together.
    Kept,
    /// Tasks that they can take are sent at the next opportunity.
    Soon,
    /// Tasks that they could take wait for executors that hold their inputs.
    Data,
    /// Tasks that they could take are held up: instances are paused or have results that nobody
    /// receives, the dispatcher's disk is full, or it waits for executors after a restart.
    Held,
    /// Tasks need more than is free there.
    Larger,
    /// Tasks are expected to run for longer than they stay.
    Short,
    /// Tasks need what they do not offer.
    Unoffered,
    /// Tasks wait for other tasks.
    Upstream,
    /// There are no tasks that wait.
    NoTasks,
}

/// Executors with free slots, for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idle {
    /// The reason.
    pub reason: IdleReason,
    /// How many tasks the reason is about.
    pub tasks: u64,
    /// How many executors they are.
    pub executors: u64,
    /// What is free there, in thousandths of a processor.
    pub cpus_milli: u64,
    /// Some of them by name, at most [`EXPLAINED_NAMES_MAX`].
    pub some: Vec<String>,
}

/// Ready tasks of one need.
struct Ready {
    need: NeedId,
    tasks: u64,
    /// The run time that their user expects.
    lasts_micros: u64,
    is_held: bool,
    /// Their data decides where they go.
    with_data: u64,
}

impl Dispatcher {
    /// Why slots are idle: an entry for each reason. Executors without a free processor, and
    /// those below relays, are not among it. Costs time in proportion to the executors and to
    /// the queues of ready tasks.
    pub fn explain_idle(&mut self) -> Vec<Idle> {
        // Tasks that were just submitted are looked at with the next round.
        self.place_marked_instances();
        let waiting: u64 = self.instances.values().map(|one| one.counts().waiting).sum();
        let ready = self.ready_by_need();
        let mut found: BTreeMap<IdleReason, Idle> = BTreeMap::new();
        for executor in self.fleet.iter() {
            let cpus_milli = u64::from(executor.free.cpus_milli);
            if executor.subtree.is_some() || cpus_milli == 0 {
                continue;
            }
            let (reason, tasks) = self.why_idle(executor, &ready, waiting);
            let idle = found.entry(reason).or_insert_with(|| Idle {
                reason,
                tasks: 0,
                executors: 0,
                cpus_milli: 0,
                some: Vec::new(),
            });
            idle.tasks = idle.tasks.max(tasks);
            idle.executors += 1;
            idle.cpus_milli += cpus_milli;
            if idle.some.len() < EXPLAINED_NAMES_MAX {
                idle.some.push(executor.name.clone());
            }
        }
        found.into_values().collect()
    }

    fn ready_by_need(&self) -> Vec<Ready> {
        let is_held_up = self.holds_dispatch() || self.comeback.until().is_some();
        let queues = self.instances.values().flat_map(|instance| {
            let is_held = is_held_up || instance.is_clogged() || self.pauses.is_paused(instance.id);
            let queues = instance.queues.iter().filter(|(_, queue)| queue.len > 0);
            queues.map(move |((_, need), queue)| Ready {
                need,
                tasks: queue.len,
                lasts_micros: queue.lasts(&instance.batches).unwrap_or(0),
                is_held,
                with_data: queue.with_data.count,
            })
        });
        queues.take(EXPLAINED_NEEDS_MAX).collect()
    }

    /// The reason for which an executor has free slots, and how many tasks it is about.
    fn why_idle(&self, executor: &Executor, ready: &[Ready], waiting: u64) -> (IdleReason, u64) {
        if executor.connection.is_none() || executor.is_missed {
            return (IdleReason::Away, 0);
        }
        if executor.leaving {
            return (IdleReason::Leaving, 0);
        }
        if executor.drained {
            return (IdleReason::Drained, 0);
        }
        if executor.suspended_until.is_some() {
            return (IdleReason::Suspended, 0);
        }
        if executor.reserved.is_some() {
            return (IdleReason::Emptied, 1);
        }
        if executor.kept_until.is_some() {
            return (IdleReason::Kept, 1);
        }
        let mut tasks: BTreeMap<IdleReason, u64> = BTreeMap::new();
        for one in ready {
            let need = &self.needs[one.need];
            let reason = if !executor.offers(need) {
                IdleReason::Unoffered
            } else if !executor.outlasts(self.now, one.lasts_micros) {
                IdleReason::Short
            } else if one.is_held {
                IdleReason::Held
            } else if !executor.has_free(need, self.now, one.lasts_micros) {
                IdleReason::Larger
            } else {
                *tasks.entry(IdleReason::Data).or_default() += one.with_data;
                *tasks.entry(IdleReason::Soon).or_default() += one.tasks - one.with_data;
                continue;
            };
            *tasks.entry(reason).or_default() += one.tasks;
        }
        // The first is what is nearest to being sent.
        let first = tasks.into_iter().find(|(_, tasks)| *tasks > 0);
        let upstream = (waiting > 0).then_some((IdleReason::Upstream, waiting));
        first.or(upstream).unwrap_or((IdleReason::NoTasks, 0))
    }
}
