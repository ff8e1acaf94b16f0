//! What goes into a provisioner and what comes out of it: plain data.

use super::{Decision, QueueOptions};
use crate::task::{AllocationId, ExecutorId, Resources, Time};
use std::fmt;

/// A queue of an LRM, as the shell numbers them. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u32);

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How many tasks took how long: powers of two of microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durations {
    /// At `i`, tasks that took at least 2^i µs and less than 2^(i+1); at 0,
    /// those too that took no time.
    pub counts: [u64; 48],
    /// Their time together, in microseconds.
    pub micros: u64,
}

impl Default for Durations {
    fn default() -> Self {
        Durations { counts: [0; 48], micros: 0 }
    }
}

impl Durations {
    /// Counts tasks that took so long each.
    pub fn add(&mut self, micros: u64, tasks: u64) {
        let at = micros.checked_ilog2().unwrap_or(0).min(47) as usize;
        self.counts[at] = self.counts[at].saturating_add(tasks);
        self.micros = self.micros.saturating_add(micros.saturating_mul(tasks));
    }

    /// Counts those of another in.
    pub fn merge(&mut self, other: &Durations) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.micros = self.micros.saturating_add(other.micros);
    }

    /// Counts everything half, so that what comes counts more.
    pub(super) fn halve(&mut self) {
        let before = self.tasks();
        for count in &mut self.counts {
            *count /= 2;
        }
        let micros = u128::from(self.micros) * u128::from(self.tasks());
        let micros = micros.checked_div(u128::from(before)).unwrap_or(0);
        self.micros = u64::try_from(micros).unwrap_or(u64::MAX);
    }

    /// How much longer a task runs that has run for `elapsed_micros`, going by
    /// those counted that ran longer than that; `None` if none did.
    #[must_use]
    pub fn left_micros(&self, elapsed_micros: u64) -> Option<u64> {
        let (mut tasks, mut micros) = (0u128, 0u128);
        for (at, count) in self.counts.iter().enumerate() {
            let (low, high) = (1u64 << at, 1u64 << (at + 1));
            if *count == 0 || high <= elapsed_micros {
                continue;
            }
            // As if they were spread evenly between the bounds.
            let low = low.max(elapsed_micros).min(high);
            let share = u128::from(*count) * u128::from(high - low) * 64 / (1u128 << at);
            tasks += share;
            micros += share * (u128::from(low - elapsed_micros) + u128::from(high - low) / 2);
        }
        micros.checked_div(tasks).and_then(|micros| u64::try_from(micros).ok())
    }

    /// How many tasks were counted.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Their mean; `None` if there were none.
    #[must_use]
    pub fn mean_micros(&self) -> Option<u64> {
        self.micros.checked_div(self.tasks())
    }
}

/// Ready tasks with the same need that no executor has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// What one of them holds while it runs.
    pub need: Resources,
    /// How many.
    pub tasks: u64,
    /// The run time to expect of each: the user's estimate, else the mean of
    /// those of its kind that ended; `None` while nobody knows.
    pub estimate_micros: Option<u64>,
    /// How long their users say that they run: they are not started where they
    /// could not end. 0 if nobody says.
    pub lasts_micros: u64,
    /// How many nodes each takes together; 0 and 1 are one.
    pub nodes: u32,
}

impl Waiting {
    /// How many nodes each takes together.
    #[must_use]
    pub fn width(&self) -> u64 {
        u64::from(self.nodes).max(1)
    }

    /// How many nodes all take, those of each task counted.
    #[must_use]
    pub fn places(&self) -> u64 {
        self.tasks.saturating_mul(self.width())
    }
}

/// What a dispatcher's queues hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Demand {
    /// Ready tasks that no executor has, at most
    /// [`limits::DEMAND_NEEDS_MAX`](super::limits::DEMAND_NEEDS_MAX) needs; the
    /// tasks of further needs are counted with the last.
    pub waiting: Vec<Waiting>,
    /// Tasks that executors have.
    pub running: u64,
    /// The run time that is left of them together, as far as it is known.
    pub running_micros: u64,
    /// When the last of them is expected to end; `None` if nothing runs or
    /// nobody knows.
    pub running_until: Option<Time>,
    /// When the last of them was sent to its executor.
    pub last_sent: Option<Time>,
    /// Tasks that were submitted since the dispatcher began.
    pub submitted: u64,
    /// Tasks that ended since the dispatcher began.
    pub ended: u64,
    /// Time for which executors have had tasks, together, since the dispatcher
    /// began: what tasks cost, with all that comes before and after them.
    pub busy_micros: u64,
    /// Run times of those that ended since the last demand.
    pub durations: Durations,
    /// Bytes in the caches of the executors there are, together.
    pub cached_bytes: u64,
    /// What tasks found there, in bytes, since these executors began.
    pub local_bytes: u64,
    /// What these executors have fetched for tasks, from one another or from
    /// where it is kept, in bytes.
    pub fetched_bytes: u64,
}

impl Demand {
    /// Whether a provisioner would make the same of both.
    pub(super) fn is_like(&self, other: &Demand) -> bool {
        let same_counts = (self.running, self.submitted, self.ended)
            == (other.running, other.submitted, other.ended);
        same_counts && self.waiting == other.waiting
    }

    /// Ready tasks that no executor has.
    #[must_use]
    pub fn queued(&self) -> u64 {
        self.waiting.iter().fold(0, |sum, waiting| sum.saturating_add(waiting.tasks))
    }
}

/// How a submission ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submitted {
    /// The LRM has it.
    Accepted {
        /// The LRM's name for the job.
        job: String,
    },
    /// The LRM does not want it; nothing was submitted.
    Refused {
        /// What the LRM said.
        words: String,
    },
    /// The LRM does not want it because it is for more nodes than one job may
    /// have; nothing was submitted.
    TooLarge {
        /// What the LRM said.
        words: String,
    },
    /// Nobody knows: it did not answer in time, or not understandably. A query
    /// will tell.
    Unknown {
        /// What is known of why.
        words: String,
    },
}

/// What an LRM says of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobState {
    /// The job waits for nodes.
    Pending,
    /// Somebody holds the job: it gets no nodes until they let it go.
    Held,
    /// The job waits for more nodes than there will ever be for one job.
    TooLarge,
    /// The job waits, and as it was asked for it will never start.
    Never,
    /// It has nodes.
    Running,
    /// It is over, however it ended, or about to be.
    Ended,
    /// The LRM says something that the driver does not know.
    Unknown,
}

/// A job with the dispatcher's name in it, as an answer to a query lists it or
/// a record that outlived a restart has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The queue, read from the job's name: an LRM lists all of a user's jobs,
    /// whichever queue is asked about.
    pub queue: QueueId,
    /// The allocation, read from the job's name.
    pub allocation: AllocationId,
    /// The LRM's name for the job.
    pub job: String,
    /// Its state.
    pub state: JobState,
    /// Its nodes; 0 if the LRM does not say.
    pub nodes: u64,
    /// Until when it may run, on the dispatcher's clock, if the LRM says so.
    pub until: Option<Time>,
    /// Why it is in that state, if the LRM says so.
    pub words: String,
}

/// What an LRM says of one job that it was asked about by its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// The job is there.
    Known(Box<Found>),
    /// There is no such job (any more), or nobody can be asked by number.
    Gone,
    /// The LRM did not answer, or not understandably.
    NoAnswer,
}

/// What happens to a provisioner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// There is a queue (again). It is queried before anything is asked of it.
    Add {
        /// Its number.
        queue: QueueId,
        /// What it is like.
        options: Box<QueueOptions>,
    },
    /// A queue's options are others from now on; what it has stays.
    Change {
        /// The queue.
        queue: QueueId,
        /// What it is like.
        options: Box<QueueOptions>,
    },
    /// Nothing more is asked of a queue; what it has stays until it is idle.
    Pause {
        /// The queue.
        queue: QueueId,
    },
    /// A queue that was paused, by somebody or after refusals, is asked again.
    Resume {
        /// The queue.
        queue: QueueId,
    },
    /// A queue is given up: its allocations are released, those that still
    /// wait are cancelled, and then it is [`Action::Removed`].
    Remove {
        /// The queue.
        queue: QueueId,
    },
    /// Somebody wants nodes now, whatever the demand (static provisioning,
    /// loosely-coupled §III.B): they stay until the walltime ends or they are
    /// released.
    Once {
        /// Of which queue.
        queue: QueueId,
        /// How many.
        nodes: u64,
        /// For how long; 0 is the queue's.
        walltime_micros: u64,
    },
    /// Somebody wants an allocation gone.
    Drop {
        /// The allocation.
        allocation: AllocationId,
    },
    /// What dispatchers' queues hold: when it has changed, at a bounded rate.
    Demand(Box<Demand>),
    /// An executor has registered, or is there when the provisioner begins.
    ExecutorJoined {
        /// The dispatcher's number for it.
        executor: ExecutorId,
        /// The allocation that it runs in; `None` if somebody else started it.
        allocation: Option<AllocationId>,
        /// What it offers.
        capacity: Resources,
        /// When it leaves, if it has to.
        leaves_at: Option<Time>,
    },
    /// An executor has had no task since then.
    ExecutorIdle {
        /// The executor.
        executor: ExecutorId,
        /// Since when.
        since: Time,
    },
    /// An executor has tasks.
    ExecutorBusy {
        /// The executor.
        executor: ExecutorId,
    },
    /// An executor is gone.
    ExecutorLeft {
        /// The executor.
        executor: ExecutorId,
    },
    /// The answer to [`Action::Submit`].
    SubmitAnswer {
        /// Of which allocation.
        allocation: AllocationId,
        /// How it ended.
        answer: Submitted,
    },
    /// The answer to [`Action::Query`]: all jobs with the dispatcher's name in
    /// them that the LRM still knows. What is missing here has ended, or has
    /// not got there yet.
    States {
        /// Of which queue.
        queue: QueueId,
        /// The jobs.
        found: Vec<Found>,
    },
    /// The LRM could not be queried; nothing is concluded from it.
    QueryFailed {
        /// Of which queue.
        queue: QueueId,
        /// What the LRM said.
        words: String,
    },
    /// The answer to [`Action::Cancel`]. A query tells whether it helped.
    CancelAnswer {
        /// Which allocation.
        allocation: AllocationId,
        /// What the LRM said if it refused.
        refused: Option<String>,
    },
    /// The answer to [`Action::AskFree`].
    Free {
        /// Of which queue.
        queue: QueueId,
        /// Nodes that the LRM could give now; `None` if it does not say.
        nodes: Option<u64>,
    },
    /// The answer to [`Action::AskAbout`].
    About {
        /// Of which allocation.
        allocation: AllocationId,
        /// What the LRM says.
        about: About,
    },
    /// The answer to [`Action::AskSize`].
    Size {
        /// Of which queue.
        queue: QueueId,
        /// Nodes of all its jobs together; `None` if the LRM does not say, or
        /// several jobs can share a node.
        nodes: Option<u64>,
        /// Nodes of one job at most, if the LRM says so.
        job_nodes: Option<u64>,
    },
    /// A queue that was there before a restart, with the allocations that a
    /// record names. They are taken to be there until the LRM says otherwise;
    /// others may be, too.
    Recovered {
        /// Which queue.
        queue: QueueId,
        /// The allocations.
        found: Vec<Found>,
    },
}

/// What a provisioner wants done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask the LRM for an allocation; answered by [`Event::SubmitAnswer`].
    Submit {
        /// Of which queue.
        queue: QueueId,
        /// What to name it.
        allocation: AllocationId,
        /// Nodes, an executor on each.
        nodes: u64,
        /// For how long; 0 is the LRM's own.
        walltime_micros: u64,
    },
    /// Ask the LRM for all jobs with the dispatcher's name in them; answered by
    /// [`Event::States`] or [`Event::QueryFailed`].
    Query {
        /// Of which queue.
        queue: QueueId,
    },
    /// Have the LRM end a job, or take it from its queue; answered by
    /// [`Event::CancelAnswer`].
    Cancel {
        /// Of which queue.
        queue: QueueId,
        /// Which allocation.
        allocation: AllocationId,
        /// The LRM's name for it, if it is known; else it is found by name.
        job: Option<String>,
    },
    /// Ask the LRM about one job that its answers do not name; answered by
    /// [`Event::About`].
    AskAbout {
        /// Of which queue.
        queue: QueueId,
        /// Which allocation.
        allocation: AllocationId,
        /// The LRM's name for the job.
        job: String,
    },
    /// Ask the LRM how many nodes there are at all; answered by
    /// [`Event::Size`].
    AskSize {
        /// Of which queue.
        queue: QueueId,
    },
    /// The executor takes no more tasks, and leaves when those it has ended:
    /// [`Event::Release`](crate::dispatch::Event::Release) for the dispatcher.
    Release {
        /// The executor.
        executor: ExecutorId,
    },
    /// Ask the LRM how many nodes it could give now; answered by
    /// [`Event::Free`].
    AskFree {
        /// Of which queue.
        queue: QueueId,
    },
    /// A removed queue has no allocations any more: it is forgotten.
    Removed {
        /// The queue.
        queue: QueueId,
    },
    /// For the log: what was decided and why.
    Decided(Box<Decision>),
}
