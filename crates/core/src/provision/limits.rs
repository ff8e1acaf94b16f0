//! Every bound of the provisioner, by name, with its unit last.

/// Queues of one provisioner.
pub const QUEUES_MAX: usize = 1024;
/// Allocations of one queue that are known at a time, those included that were
/// found and not asked for.
pub const QUEUE_ALLOCATIONS_MAX: usize = 65_536;
/// Nodes of one allocation, and executors of one queue.
pub const QUEUE_EXECUTORS_MAX: u64 = 10_000_000;
/// Bytes that are kept of an LRM's words.
pub const WORDS_BYTES_MAX: usize = 2048;
/// Bytes that are kept of an LRM's name for a job.
pub const JOB_NAME_BYTES_MAX: usize = 256;
/// Different needs that a demand tells apart.
pub const DEMAND_NEEDS_MAX: usize = 64;
/// The least time between two queries of a queue, unless told otherwise.
pub const QUERY_MICROS: u64 = 5_000_000;
/// The longest time between two queries of a queue with allocations when
/// nothing is awaited: what an LRM ends by itself is noticed by then.
pub const QUERY_MICROS_MAX: u64 = 60_000_000;
/// How long an answer to a query is waited for.
pub const QUERY_ANSWER_MICROS: u64 = 60_000_000;
/// How long an answer to a submission is waited for; after that a query has to
/// tell what became of it.
pub const SUBMIT_ANSWER_MICROS: u64 = 120_000_000;
/// How long an answer to a cancellation is waited for before it is sent again.
pub const CANCEL_ANSWER_MICROS: u64 = 60_000_000;
/// How long executors that were told to leave may take, once they are idle,
/// before their allocation is cancelled.
pub const LEAVE_MICROS: u64 = 30_000_000;
/// The first pause after a refusal or a failed query; each in a row doubles it.
pub const PAUSE_MICROS: u64 = 10_000_000;
/// The longest such pause.
pub const PAUSE_MICROS_MAX: u64 = 600_000_000;
/// Refusals in a row after which a queue is paused until somebody resumes it.
pub const REFUSALS_MAX: u32 = 5;
/// Allocations in a row that ended without any executor of theirs having
/// joined, after which a queue is paused likewise.
pub const BARREN_ALLOCATIONS_MAX: u32 = 3;
/// Answers in a row that do not name an allocation before it is taken to have
/// ended.
pub const MISSING_ANSWERS_MAX: u32 = 2;
/// How long after its submission an allocation may be unknown to the LRM.
pub const UNSEEN_MICROS: u64 = 60_000_000;
/// How long an allocation that nobody can ask about by number, or nobody
/// answers about, may be missing in answers before it is given up.
pub const ABSENT_MICROS_MAX: u64 = 3_600_000_000;
/// How long a queue is queried on for jobs that were given up though nobody saw
/// them end, or that may be there from before a restart.
pub const VIGIL_MICROS: u64 = 24 * 3_600_000_000;
/// The longest time between two such queries: once the LRM's answers are right
/// again, a job that they left out is known again after so long.
pub const VIGIL_QUERY_MICROS_MAX: u64 = 600_000_000;
/// Allocations that are remembered after they were given up.
pub const LOSSES_MAX: usize = 1024;
/// Allocations of one queue that somebody holds, beyond which nothing more is
/// asked of it.
pub const HELD_ALLOCATIONS_MAX: u64 = 4;
/// The least time between two questions how large a queue is.
pub const SIZE_MICROS: u64 = 60_000_000;
/// How long a request that could never have started bounds those after it.
pub const LEARNED_MICROS: u64 = 6 * 3_600_000_000;
/// How often policies look again when nothing has happened.
pub const LOOK_MICROS: u64 = 1_000_000;
/// How often it is said that a queue cannot serve tasks that wait.
pub const UNSERVED_MICROS: u64 = 600_000_000;
/// The least time between two looks at the dispatcher's demand.
pub const DEMAND_MICROS: u64 = 50_000;
/// What each executor adds to that: looking must not cost more than a small
/// share of the dispatcher's time.
pub const DEMAND_EXECUTOR_MICROS: u64 = 20;
/// How long after an allocation's start its executors may take to join.
pub const JOIN_MICROS: u64 = 300_000_000;
/// How long an executor of an allocation that no queue knows may be idle.
pub const STRANGER_IDLE_MICROS: u64 = 300_000_000;
/// The longest time before the end of a walltime at which executors leave
/// unless told otherwise.
pub const LEAVE_BEFORE_MICROS_MAX: u64 = 60_000_000;
/// Start-up delays that are remembered for each queue.
pub const DELAYS_MAX: usize = 32;
/// Samples of how many tasks had arrived.
pub const SAMPLES_MAX: usize = 512;
/// Peaks of demand that are remembered.
pub const PEAKS_MAX: usize = 1024;
/// Bursts of arrivals that are remembered.
pub const BURSTS_MAX: usize = 32;

const _: () = {
    assert!(QUERY_MICROS < QUERY_MICROS_MAX);
    assert!(PAUSE_MICROS < PAUSE_MICROS_MAX);
    assert!(UNSEEN_MICROS < ABSENT_MICROS_MAX);
    assert!(QUERY_MICROS_MAX < VIGIL_QUERY_MICROS_MAX);
    assert!(ABSENT_MICROS_MAX < VIGIL_MICROS);
    assert!(VIGIL_QUERY_MICROS_MAX < VIGIL_MICROS);
    assert!(DEMAND_MICROS < LOOK_MICROS);
};
