//! What happened on a dispatcher, for those who watch runs and look at them afterwards.
//!
//! Most of it is in the journal's records, which are made for each step anyway
//! ([`Event::of_record`]); the rest, which the journal can do without, comes from
//! [`crate::dispatch::Dispatcher::take_happenings`]. Tasks that are alike are one event,
//! as everywhere. Events change nothing and nothing waits for them.

mod densities;
mod failures;
mod history;
mod needs;
mod reserved;
mod tally;
mod transfers;

pub use densities::{Densities, Row, View};
pub use failures::{FailureClass, FailureGroup, Failures};
pub use history::{History, Interval, Levels, Processors, SCALES_MICROS};
pub use needs::{Before, NamedObject, Reserves, Uses, Waits};
pub use reserved::Reserved;
pub use tally::{ExecutorTally, InstanceTally, Tally};
pub use transfers::Transfers;

use crate::data::stage::Usage;
use crate::dispatch::diffusion::PolicyName;
use crate::dispatch::{InstanceOptions, Record};
use crate::limits::EVENT_TEXT_BYTES_MAX;
use crate::result::{Finished, Outcome, ResourceUsage};
use crate::task::{AllocationId, ExecutorId, InstanceId, Resources, TaskId, Time};
use std::sync::Arc;

/// Something that happened, and when the dispatcher knew of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// On the dispatcher's clock.
    pub at: Time,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The dispatcher started, and continued whatever its journal had.
    DispatcherStarted {
        /// The release that it runs.
        version: Arc<str>,
    },
    /// An instance was created, or is continued.
    InstanceCreated {
        /// Its number.
        instance: InstanceId,
        /// Its name, if it has one.
        name: Arc<str>,
        /// The policy that sends its tasks.
        policy: PolicyName,
    },
    /// Tasks were accepted.
    Submitted {
        /// Their instance.
        instance: InstanceId,
        /// The first of them.
        first: TaskId,
        /// How many.
        count: u64,
        /// What they run, as the beginning of their common command line.
        command: Arc<str>,
    },
    /// Tasks that were accepted wait for others.
    Waits(Waits),
    /// Tasks that were accepted read or write data objects.
    Uses(Uses),
    /// Tasks that were accepted reserve other than one CPU.
    Reserves(Reserves),
    /// An instance takes no more tasks.
    Sealed {
        /// The instance.
        instance: InstanceId,
    },
    /// Tasks were assigned to an executor.
    Assigned {
        /// Which.
        run: Run,
        /// To whom.
        executor: ExecutorId,
        /// The number of the attempt, from 1.
        attempt: u32,
    },
    /// Tasks came back unfinished and wait for another executor.
    Requeued {
        /// Which.
        run: Run,
        /// The number of the next attempt, from 1.
        attempt: u32,
    },
    /// A task that takes far longer than its like runs a second time, elsewhere.
    Copied {
        /// Its instance.
        instance: InstanceId,
        /// The task.
        task: TaskId,
        /// The executor that was sent the second try.
        executor: ExecutorId,
        /// The executor that has the first one.
        first: ExecutorId,
        /// For how long that one has run, at least.
        ran_micros: u64,
        /// For how long half of its like ran at most.
        median_micros: u64,
    },
    /// Tasks ended.
    Ended(Ended),
    /// Tasks are to be cancelled; those that run end when they are stopped.
    Cancelling {
        /// Which.
        run: Run,
    },
    /// Tasks that had ended and not well run again because somebody wants it so.
    Retried {
        /// Which.
        run: Run,
    },
    /// A task that had ended runs again for what it left in caches.
    Recomputed {
        /// Its instance.
        instance: InstanceId,
        /// The task.
        task: TaskId,
    },
    /// Tasks that ran again have ended; their results stay as they were.
    RecomputationEnded {
        /// Which.
        run: Run,
        /// How.
        outcome: Outcome,
    },
    /// An instance is gone, with its tasks and results.
    InstanceGone {
        /// Its number.
        instance: InstanceId,
        /// Nobody looked at it for too long; otherwise a client destroyed it.
        expired: bool,
    },
    /// An executor registered.
    ExecutorJoined {
        /// The number that it got.
        executor: ExecutorId,
        /// Its name.
        name: Arc<str>,
        /// What it offers.
        capacity: Resources,
        /// The allocation that it runs in, if a provisioner asked for it.
        allocation: Option<AllocationId>,
        /// The bytes of its largest cache directory; 0 if it has none.
        cache_bytes: u64,
    },
    /// An executor was given up, or came back under another number.
    ExecutorGone {
        /// Its number.
        executor: ExecutorId,
        /// Why.
        why: Arc<str>,
    },
    /// An executor could not start its tasks and is left alone for a while.
    ExecutorSuspended {
        /// Its number.
        executor: ExecutorId,
        /// Until when.
        until: Time,
    },
    /// An executor is given no tasks because somebody wants it so, or is given some again.
    ExecutorDrained {
        /// Its number.
        executor: ExecutorId,
        /// Which of both.
        is_drained: bool,
    },
    /// An instance goes before all that have a lower priority.
    Prioritized {
        /// The instance.
        instance: InstanceId,
        /// Its priority from then on.
        priority: i32,
    },
    /// No task of an instance is dispatched because somebody wants it so, or they are
    /// again.
    Paused {
        /// The instance.
        instance: InstanceId,
        /// Which of both.
        is_paused: bool,
    },
    /// Bytes of data objects came to an executor from another one.
    Moved {
        /// The one that has them now.
        executor: ExecutorId,
        /// The one that sent them.
        from: ExecutorId,
        /// How many, since that was said last.
        bytes: u64,
    },
    /// The provisioner decided something, or heard of an allocation.
    Provisioned {
        /// The queue.
        queue: Arc<str>,
        /// What, and why.
        text: Arc<str>,
    },
    /// Events before this one are missing: the disk was full, or too slow.
    Missing {
        /// How many, where that is known.
        events: u64,
    },
}

/// Tasks in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Their instance.
    pub instance: InstanceId,
    /// The first of them.
    pub first: TaskId,
    /// How many.
    pub count: u64,
}

/// Tasks in a row that ended alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub run: Run,
    /// How.
    pub outcome: Outcome,
    /// Where; `None` if they never ran.
    pub executor: Option<ExecutorId>,
    /// How many attempts it took; 0 if they never ran.
    pub attempts: u32,
    /// When they were accepted.
    pub queued: Time,
    /// When they were sent to the executor.
    pub dispatched: Time,
    /// When they started.
    pub started: Time,
    /// When they ended.
    pub ended: Time,
    /// Microseconds for which they waited for their inputs.
    pub staging_micros: u64,
    /// Where the inputs came from.
    pub usage: Usage,
    /// The resources that each of them used, if that was measured.
    pub resources: Option<Box<ResourceUsage>>,
    /// What went wrong, if anything did.
    pub error: Option<Arc<str>>,
}

impl Ended {
    fn of(instance: InstanceId, finished: &Finished) -> Ended {
        let detail = finished.detail.as_deref();
        let error = detail.map_or("", |detail| detail.error.as_str());
        Ended {
            run: Run { instance, first: finished.first, count: finished.count },
            outcome: finished.outcome,
            executor: finished.executor,
            attempts: finished.attempts,
            queued: finished.queued,
            dispatched: finished.dispatched,
            started: finished.started,
            ended: finished.ended,
            staging_micros: detail.map_or(0, |detail| detail.staging_micros),
            usage: detail.map_or_else(Usage::default, |detail| detail.usage),
            resources: detail.and_then(|detail| detail.resources).map(Box::new),
            error: (!error.is_empty()).then(|| text(error)),
        }
    }

    /// Microseconds for which they ran.
    #[must_use]
    pub fn run_micros(&self) -> u64 {
        self.ended.since(self.started)
    }

    /// Microseconds from their acceptance until they started.
    #[must_use]
    pub fn wait_micros(&self) -> u64 {
        self.started.since(self.queued)
    }
}

impl What {
    /// The event of an instance that was created with these options.
    #[must_use]
    pub fn created(instance: InstanceId, options: &InstanceOptions) -> What {
        let (name, policy) = (text(&options.name), options.policy.policy);
        What::InstanceCreated { instance, name, policy }
    }
}

/// As much of a text as an event has.
#[must_use]
pub fn text(long: &str) -> Arc<str> {
    let mut end = long.len().min(EVENT_TEXT_BYTES_MAX);
    while !long.is_char_boundary(end) {
        end -= 1;
    }
    long[..end].into()
}

impl Event {
    /// What happened according to a record that was made at `now`. Submissions are not
    /// among it, as their events have more than their records, nor is what
    /// [`crate::dispatch::Dispatcher::take_happenings`] returns.
    pub fn of_record(now: Time, record: &Record, mut each: impl FnMut(Event)) {
        let mut say = |what| each(Event { at: now, what });
        match record {
            Record::Created { instance, options, .. } => {
                say(What::created(*instance, options));
            }
            Record::Sealed { instance } => say(What::Sealed { instance: *instance }),
            Record::Finished { instance, results, .. } => {
                for finished in results {
                    say(What::Ended(Ended::of(*instance, finished)));
                }
            }
            Record::Cancelled { instance, runs } => {
                for (first, count) in runs {
                    let run = Run { instance: *instance, first: TaskId(*first), count: *count };
                    say(What::Cancelling { run });
                }
            }
            Record::Retried { instance, runs, .. } => {
                for (first, count) in runs {
                    let run = Run { instance: *instance, first: TaskId(*first), count: *count };
                    say(What::Retried { run });
                }
            }
            Record::Destroyed { instance } => {
                say(What::InstanceGone { instance: *instance, expired: false });
            }
            Record::Expired { instance, .. } => {
                say(What::InstanceGone { instance: *instance, expired: true });
            }
            Record::Attempts { runs } => {
                for tasks in runs {
                    let (first, count) = (tasks.first, tasks.count);
                    let run = Run { instance: tasks.instance, first, count };
                    let attempt = tasks.tries.attempt();
                    say(match tasks.executor {
                        Some(executor) => What::Assigned { run, executor, attempt },
                        None => What::Requeued { run, attempt },
                    });
                }
            }
            Record::Paused { instance, is_paused } => {
                say(What::Paused { instance: *instance, is_paused: *is_paused });
            }
            Record::Prioritized { instance, priority } => {
                say(What::Prioritized { instance: *instance, priority: *priority });
            }
            Record::Submitted { .. }
            | Record::Drained { .. }
            | Record::Joining { .. }
            | Record::Acknowledged { .. }
            | Record::Heard { .. }
            | Record::Recomputed { .. }
            | Record::Submitters { .. }
            | Record::ExecutorSeen { .. }
            | Record::ExecutorGone { .. }
            | Record::Values { .. }
            | Record::Paged { .. }
            | Record::Outputs { .. }
            | Record::OutputReleased { .. }
            | Record::Owned { .. }
            | Record::Lasted { .. }
            | Record::Restored { .. }
            | Record::Remembered(_)
            | Record::Forgotten { .. } => {}
        }
    }
}
