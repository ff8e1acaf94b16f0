//! A run that took place, as far as its events tell: what a replay is built from.

mod needs;
mod rates;

use falkon_core::data::stage::Usage;
use falkon_core::dispatch::diffusion::PolicyName;
use falkon_core::events::{Ended, Event, Reserves, What};
use falkon_core::result::Status;
use falkon_core::task::{AUTO_MEMORY, ExecutorId, InstanceId, MILLI, Time};
use falkon_sim::{Nanos, NodeCache, NodeGroup, Recorded, Reserved, TaskKind};
use needs::{Gathered, Places};
pub(super) use rates::Rates;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Executors that were there before the first task are there this long before it, in
/// microseconds: long enough to connect.
const LEAD_MICROS: u64 = 1_000_000;
/// Instances that a message names.
const NAMED_MAX: usize = 8;

/// Why events cannot be replayed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordError {
    /// There are no tasks.
    #[error("there are no events of tasks{of}: name a run, or another instance")]
    Empty {
        /// Of which instance.
        of: String,
    },
    /// It is not known whose turn it was among several.
    #[error("there are {found} instances: choose one with --instance ({names})")]
    Several {
        /// How many.
        found: usize,
        /// The first of them.
        names: String,
    },
    /// Some have not ended.
    #[error(
        "the run has not ended, or its last events were not written: {ended} of {submitted} tasks \
         have; replay it when all have ended"
    )]
    Unended {
        /// How many have.
        ended: u64,
        /// Of how many.
        submitted: u64,
    },
    /// Events are not there any more, or never were.
    #[error(
        "{missing} events are missing, so the run is not known well enough to be replayed; more \
         are kept with falkon start --events"
    )]
    Missing {
        /// How many.
        missing: u64,
    },
    /// Events of submissions are not there any more.
    #[error(
        "{ended} tasks ended and {submitted} were submitted: the beginning of the run is not kept \
         any more; more is kept with falkon start --events"
    )]
    Headless {
        /// How many ended.
        ended: u64,
        /// How many were submitted.
        submitted: u64,
    },
    /// Tasks ended more than once.
    #[error(
        "task {task} has ended twice: runs that were continued (falkon run --resume, falkon \
         retry) cannot be replayed"
    )]
    Again {
        /// The first of them.
        task: u64,
    },
    /// Tasks wait for too many others, or have too many objects.
    #[error("tasks wait for more than {most} others, or have as many objects, all together")]
    Large {
        /// How many they may have.
        most: u64,
    },
    /// No task got as far as an executor.
    #[error("no task of the run was started, so there is nothing to replay")]
    NoneRan,
    /// It is not known where tasks ran.
    #[error("the events have no executor that was there during the run")]
    NoExecutors,
}

/// Tasks in a row that ended alike.
#[derive(Debug, Clone, Copy)]
struct Row {
    first: u64,
    count: u64,
    /// When they were accepted.
    queued: Time,
    ended: Time,
    run_micros: u64,
    succeeded: bool,
    tries: u32,
    ran: bool,
    staged: Staged,
}

/// The place and the time at which a task ran, and the sources of its inputs.
#[derive(Debug, Clone, Copy)]
struct Staged {
    executor: Option<ExecutorId>,
    dispatched: Time,
    started: Time,
    ended: Time,
    micros: u64,
    usage: Usage,
}

#[derive(Debug, Default)]
struct Instance {
    submitted: u64,
    submissions: u64,
    sleeps: u64,
    noops: u64,
    rows: Vec<Row>,
    unknown: Unknown,
    needs: Gathered,
    /// What rows of tasks reserved.
    reserves: Vec<Reserves>,
    /// Tries that were lost with their executors.
    lost: Lost,
}

/// What happened in a run and cannot be replayed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unknown {
    /// Tasks that never ran.
    pub(super) unstarted: u64,
    /// Tries of tasks that came to nothing.
    pub(super) lost_tries: u64,
    /// Microseconds for which tasks waited for inputs, in all.
    pub(super) staging_micros: u128,
    /// Bytes of inputs: from own caches, from peers, from the store.
    pub(super) bytes: (u64, u64, u64),
    /// Tasks that reserved custom resources.
    pub(super) custom: u64,
    /// Tasks that had as much memory as others had needed.
    pub(super) automatic: u64,
}

#[derive(Debug)]
struct Executor {
    slots: u32,
    gpus: u32,
    memory_bytes: u64,
    cache: Option<NodeCache>,
    joined: Time,
    gone: Option<Time>,
}

/// Rows of tasks, any of which may be there several times.
#[derive(Debug, Default)]
struct Lost {
    firsts: Vec<u64>,
    ends: Vec<u64>,
}

impl Lost {
    fn add(&mut self, run: &falkon_core::events::Run) {
        self.firsts.push(run.first.0);
        self.ends.push(run.first.0.saturating_add(run.count));
    }

    fn sort(&mut self) {
        self.firsts.sort_unstable();
        self.ends.sort_unstable();
    }

    /// In how many of the rows a task is, once they are sorted.
    fn of(&self, task: u64) -> u32 {
        let upto = |all: &[u64]| all.partition_point(|one| *one <= task);
        u32::try_from(upto(&self.firsts) - upto(&self.ends)).unwrap_or(u32::MAX)
    }
}

/// Takes in the events of a run.
#[derive(Debug, Default)]
pub(super) struct Record {
    wanted: Option<String>,
    names: BTreeMap<InstanceId, (Arc<str>, PolicyName)>,
    instances: BTreeMap<InstanceId, Instance>,
    executors: BTreeMap<ExecutorId, Executor>,
    missing: u64,
    /// When the dispatcher last gave an executor up, or started.
    last_gone: Option<Time>,
}

/// A run that can be replayed.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) name: String,
    /// The policy that sent its tasks.
    pub(super) policy: PolicyName,
    /// How fast inputs came.
    pub(super) rates: Rates,
    pub(super) tasks: Arc<Recorded>,
    pub(super) kind: TaskKind,
    /// From the first submission to the last end, in seconds.
    pub(super) makespan_s: f64,
    /// Tasks that ran and succeeded, and those that ran and did not.
    pub(super) done: u64,
    pub(super) failed: u64,
    /// The executors that were there meanwhile; those that are alike are a group.
    pub(super) executors: Vec<NodeGroup>,
    pub(super) unknown: Unknown,
}

impl Record {
    pub(super) fn new(wanted: Option<String>) -> Record {
        Record { wanted, ..Record::default() }
    }

    fn is_wanted(&self, instance: InstanceId) -> bool {
        let Some(wanted) = &self.wanted else { return true };
        wanted.parse() == Ok(instance.0)
            || self.names.get(&instance).is_some_and(|(name, _)| **name == **wanted)
    }

    /// Takes in an event; one that repeats what is known says only who is there.
    pub(super) fn add(&mut self, event: &Event, repeats: bool) {
        match &event.what {
            What::InstanceCreated { instance, name, policy } => {
                self.names.insert(*instance, (name.clone(), *policy));
            }
            What::ExecutorJoined { executor, capacity, cache_bytes, .. } => {
                let slots = (capacity.cpus_milli / MILLI).max(1);
                let (gpus, memory_bytes) = (capacity.gpus, capacity.memory_bytes);
                let cache = NodeCache { bytes: *cache_bytes, ..NodeCache::default() };
                let cache = (*cache_bytes > 0).then_some(cache);
                let joined = event.at;
                let new = Executor { slots, gpus, memory_bytes, cache, joined, gone: None };
                self.executors.entry(*executor).or_insert(new);
            }
            What::ExecutorGone { executor, .. } => {
                self.last_gone = Some(event.at);
                if let Some(executor) = self.executors.get_mut(executor) {
                    executor.gone.get_or_insert(event.at);
                }
            }
            What::DispatcherStarted { .. } => {
                // Those that come back register again.
                for executor in self.executors.values_mut() {
                    executor.gone.get_or_insert(event.at);
                }
            }
            What::Missing { events } => {
                self.missing = self.missing.saturating_add(*events.max(&1));
            }
            _ if repeats => {}
            What::Submitted { instance, count, command, .. } if self.is_wanted(*instance) => {
                let instance = self.instances.entry(*instance).or_default();
                instance.submitted = instance.submitted.saturating_add(*count);
                instance.submissions += 1;
                instance.sleeps += u64::from(command.split(' ').next() == Some("@sleep"));
                instance.noops += u64::from(command.split(' ').next() == Some("@noop"));
            }
            What::Waits(waits) if self.is_wanted(waits.run.instance) => {
                self.instances.entry(waits.run.instance).or_default().needs.wait(waits);
            }
            What::Uses(uses) if self.is_wanted(uses.run.instance) => {
                self.instances.entry(uses.run.instance).or_default().needs.use_(uses);
            }
            What::Reserves(reserves) if self.is_wanted(reserves.run.instance) => {
                let instance = self.instances.entry(reserves.run.instance).or_default();
                let Unknown { custom, automatic, .. } = &mut instance.unknown;
                let is_automatic = reserves.resources.memory_bytes == AUTO_MEMORY;
                let has_custom = !reserves.resources.custom.is_empty();
                for (sum, _) in [(custom, has_custom), (automatic, is_automatic)]
                    .into_iter()
                    .filter(|(_, counts)| *counts)
                {
                    *sum = sum.saturating_add(reserves.run.count);
                }
                instance.reserves.push(reserves.clone());
            }
            // A task that comes back when its executor is given up was lost with it; it is lost in
            // the replay too. What failed comes back by itself.
            What::Requeued { run, .. }
                if self.is_wanted(run.instance) && self.last_gone == Some(event.at) =>
            {
                let instance = self.instances.entry(run.instance).or_default();
                let lost = &mut instance.unknown.lost_tries;
                *lost = lost.saturating_add(run.count);
                instance.lost.add(run);
            }
            What::Ended(ended) if self.is_wanted(ended.run.instance) => {
                self.instances.entry(ended.run.instance).or_default().ended(ended);
            }
            _ => {}
        }
    }

    /// The run, if the events have all of it.
    pub(super) fn run(mut self) -> Result<Run, RecordError> {
        let mut found = std::mem::take(&mut self.instances);
        found.retain(|_, instance| instance.submitted > 0 || !instance.rows.is_empty());
        if found.len() > 1 {
            let named: Vec<String> =
                found.keys().take(NAMED_MAX).map(|instance| self.name_of(*instance)).collect();
            let names = named.join(", ") + if found.len() > NAMED_MAX { ", …" } else { "" };
            return Err(RecordError::Several { found: found.len(), names });
        }
        let Some((id, instance)) = found.pop_first() else {
            let of = self.wanted.map_or(String::new(), |wanted| format!(" of {wanted:?}"));
            return Err(RecordError::Empty { of });
        };
        if self.missing > 0 {
            return Err(RecordError::Missing { missing: self.missing });
        }
        let name = self.name_of(id);
        let policy = self.names.get(&id).map(|(_, policy)| *policy).unwrap_or_default();
        instance.run(name, policy, &self.executors)
    }

    fn name_of(&self, instance: InstanceId) -> String {
        let known = self.names.get(&instance).filter(|(name, _)| !name.is_empty());
        known.map_or_else(|| instance.0.to_string(), |(name, _)| name.to_string())
    }
}

impl Instance {
    fn ended(&mut self, ended: &Ended) {
        let (run, times) = (ended.run, u128::from(ended.run.count));
        let ran = ended.executor.is_some() && ended.attempts > 0;
        let usage = &ended.usage;
        let unknown = &mut self.unknown;
        let unstarted = if ran { 0 } else { run.count };
        unknown.unstarted = unknown.unstarted.saturating_add(unstarted);
        let staging = u128::from(ended.staging_micros) * times;
        unknown.staging_micros = unknown.staging_micros.saturating_add(staging);
        let bytes = &mut self.unknown.bytes;
        for (sum, one) in [
            (&mut bytes.0, usage.local.bytes),
            (&mut bytes.1, usage.peer.bytes),
            (&mut bytes.2, usage.store.bytes),
        ] {
            *sum = sum.saturating_add(one.saturating_mul(run.count));
        }
        self.rows.push(Row {
            first: run.first.0,
            count: run.count,
            queued: ended.queued,
            ended: ended.ended,
            run_micros: ended.run_micros(),
            succeeded: ended.outcome.status() == Status::Done,
            tries: ended.attempts,
            ran,
            staged: Staged {
                executor: ended.executor,
                dispatched: ended.dispatched,
                started: ended.started,
                ended: ended.ended,
                micros: ended.staging_micros,
                usage: *usage,
            },
        });
    }

    fn run(
        mut self,
        name: String,
        policy: PolicyName,
        executors: &BTreeMap<ExecutorId, Executor>,
    ) -> Result<Run, RecordError> {
        // Tasks have their numbers in the order in which they were accepted.
        self.rows.sort_by_key(|row| row.first);
        for pair in self.rows.windows(2) {
            if pair[0].first.saturating_add(pair[0].count) > pair[1].first {
                return Err(RecordError::Again { task: pair[1].first });
            }
        }
        // No events make this overflow, whoever wrote them.
        let ended = self.rows.iter().fold(0_u64, |sum, row| sum.saturating_add(row.count));
        let submitted = self.submitted;
        if ended < submitted {
            return Err(RecordError::Unended { ended, submitted });
        }
        if ended > submitted {
            return Err(RecordError::Headless { ended, submitted });
        }
        let mut lost = std::mem::take(&mut self.lost);
        lost.sort();
        let ran = || self.rows.iter().filter(|row| row.ran);
        let first = ran().map(|row| row.queued).min().ok_or(RecordError::NoneRan)?;
        let last = ran().map(|row| row.ended).max().unwrap_or(first);
        let origin = Time(first.0.saturating_sub(LEAD_MICROS));
        let (mut tasks, mut places) = (Recorded::default(), Places::default());
        let mut staged: Vec<(u64, Staged)> = Vec::new();
        let (mut done, mut failed) = (0_u64, 0_u64);
        for row in ran() {
            let (at, run) = (nanos(row.queued.since(origin)), nanos(row.run_micros));
            let failures = row.tries.saturating_sub(1).saturating_sub(lost.of(row.first));
            tasks.add_retried(row.count, at, run, row.succeeded, failures);
            places.push(row.first, row.count);
            staged.push((tasks.tasks(), row.staged));
            let sum = if row.succeeded { &mut done } else { &mut failed };
            *sum = row.count.saturating_add(*sum);
        }
        let there = groups(executors.values(), (origin, first, last));
        if there.is_empty() {
            return Err(RecordError::NoExecutors);
        }
        let bytes_of = |place| {
            let row = staged.partition_point(|(end, _)| *end <= place);
            staged.get(row).map_or(0, |(_, staged)| staged.usage.all().bytes)
        };
        let needs = std::mem::take(&mut self.needs).needs(&places, bytes_of)?;
        let tasks = tasks.with_reserved(reserved(&self.reserves, &places));
        let rates = Rates::of(ran().map(|row| (row.count, row.staged)));
        Ok(Run {
            name,
            policy,
            rates,
            kind: match self.submissions {
                _ if needs.have_objects() => TaskKind::Compute,
                all if all == self.noops => TaskKind::Noop,
                all if all == self.sleeps => TaskKind::Sleep,
                _ => TaskKind::Compute,
            },
            tasks: Arc::new(tasks.with_needs(needs)),
            makespan_s: last.since(first) as f64 / 1e6,
            done,
            failed,
            executors: there,
            unknown: self.unknown,
        })
    }
}

/// What tasks at their places reserve. Custom resources, and memory whose amount nobody knew,
/// are left out.
fn reserved(reserves: &[Reserves], places: &Places) -> Vec<(u64, u64, Reserved)> {
    let mut rows: Vec<(u64, u64, Reserved)> = Vec::new();
    for Reserves { run, resources, nodes } in reserves {
        let memory_bytes = resources.memory_bytes;
        let of = Reserved {
            cpus_milli: resources.cpus_milli,
            gpus: resources.gpus,
            memory_bytes: if memory_bytes == AUTO_MEMORY { 0 } else { memory_bytes },
            nodes: *nodes,
        };
        let places = places.of(run.first.0, run.count);
        rows.extend(places.map(|(_, place, count)| (place, count, of)));
    }
    rows.sort_by_key(|(place, ..)| *place);
    rows
}

fn nanos(micros: u64) -> Nanos {
    Nanos(micros.saturating_mul(1000))
}

/// The executors that were there between the first submission and the last end.
fn groups<'a>(
    executors: impl Iterator<Item = &'a Executor>,
    (origin, first, last): (Time, Time, Time),
) -> Vec<NodeGroup> {
    let mut groups: Vec<NodeGroup> = Vec::new();
    for executor in executors {
        if executor.joined > last || executor.gone.is_some_and(|gone| gone <= first) {
            continue;
        }
        let is_early = executor.joined <= first;
        let from = if is_early { Nanos(0) } else { nanos(executor.joined.since(origin)) };
        let gone = executor.gone.filter(|gone| *gone < last);
        let until = gone.map(|gone| nanos(gone.since(origin)));
        match groups.last_mut() {
            Some(group)
                if (group.slots, group.cache, group.from, group.until)
                    == (executor.slots, executor.cache, from, until)
                    && (group.gpus, group.memory_bytes)
                        == (executor.gpus, executor.memory_bytes) =>
            {
                group.count += 1;
            }
            _ => groups.push(NodeGroup {
                cache: executor.cache,
                gpus: executor.gpus,
                memory_bytes: executor.memory_bytes,
                ..super::group(1, executor.slots, from, until)
            }),
        }
    }
    groups
}

#[cfg(test)]
mod tests;
