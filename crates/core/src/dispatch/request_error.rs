//! Reasons for which requests are refused.

use super::diffusion::PolicyError;
use crate::limits::{INSTANCES_MAX, NAME_BYTES_MAX, RETRIED_RUNS_MAX};
use crate::task::{ExecutorId, InstanceId, SubmissionError, TaskId, Time};
use std::sync::Arc;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// There is no such instance (any more).
    #[error("there is no instance {0}")]
    NoInstance(InstanceId),
    /// There is no such executor (any more).
    #[error("there is no executor {0}; falkon status shows those that are there")]
    NoExecutor(ExecutorId),
    /// The instance has expired: nobody wanted it for too long.
    #[error(
        "instance {instance} has expired: nobody had looked at it for too long, and it was \
         destroyed at {}",
        .at.utc()
    )]
    Expired {
        /// The instance.
        instance: InstanceId,
        /// When it was destroyed.
        at: Time,
    },
    /// The instance takes no more tasks.
    #[error("instance {0} takes no more tasks")]
    Sealed(InstanceId),
    /// Tasks of the instance cannot be retried.
    #[error(
        "instance {0} does not keep its results: its client has received them, and runs again \
         what it wants"
    )]
    ResultsNotKept(InstanceId),
    /// Tasks of the instance were retried here and there, as far as is kept apart.
    #[error(
        "tasks in {runs} separate runs would have been retried, and at most {RETRIED_RUNS_MAX} \
         are kept apart: submit these again"
    )]
    TooManyRetries {
        /// Runs of tasks in a row.
        runs: u64,
    },
    /// The tasks do not follow those submitted before.
    #[error("tasks were submitted from {found} on, but the next one is {expected}")]
    Gap {
        /// The id that the next task would have.
        expected: TaskId,
        /// The id it was submitted with.
        found: TaskId,
    },
    /// The submission is not sound.
    #[error(transparent)]
    Submission(SubmissionError),
    /// The instance's queue is full for now: try again later.
    #[error("the instance's queue is full ({queued_bytes} bytes); try again later")]
    Busy {
        /// Bytes queued.
        queued_bytes: u64,
    },
    /// Results before this one were forgotten.
    #[error("results before number {first} were delivered and forgotten")]
    Forgotten {
        /// The first task result there still is.
        first: u64,
    },
    /// More different resource needs than a dispatcher keeps apart.
    #[error("there are too many different combinations of resources and priority")]
    TooManyNeeds,
    /// A task asks for more lenders than there are.
    #[error(
        "a task asks for {wanted} lenders, and {there} can have stripes of an object: start \
         executors that lend room (falkon executor --lend), or ask for fewer"
    )]
    Lenders {
        /// How many it asks for.
        wanted: u32,
        /// How many there are, as far as an object can have them.
        there: u32,
    },
    /// The dispatcher does not offer the dispatch policy; why.
    #[error(transparent)]
    Policy(PolicyError),
    /// The instance's name is too long.
    #[error(
        "the name is {bytes} bytes, and at most {NAME_BYTES_MAX} are kept: choose a shorter one"
    )]
    LongName {
        /// Its length.
        bytes: u64,
    },
    /// There are as many instances as a dispatcher keeps.
    #[error(
        "there are {instances} instances, and a dispatcher keeps no more than {INSTANCES_MAX}: \
         destroy some that are over, then try again"
    )]
    TooManyInstances {
        /// How many there are.
        instances: u64,
    },
    /// A task is to run on each executor, and there is none.
    #[error(
        "no executor is there that offers what it asks for: start one (falkon executor); with \
         falkon everywhere --joining those that join later run it too"
    )]
    NoExecutors,
    /// Executors that join an instance run a task of it already.
    #[error(
        "executors that join run a task of instance {0} already, and no second one: create another \
         instance"
    )]
    Joining(InstanceId),
    /// The disk of the dispatcher's journal has too little room; ask again
    /// later.
    #[error(
        "the dispatcher has no room for more: its disk at {directory} has {free_bytes} bytes free, \
         and {wanted_bytes} are wanted; make room there, read results, or destroy instances that \
         are over"
    )]
    NoRoom {
        /// The journal's directory.
        directory: Arc<str>,
        /// Bytes free there.
        free_bytes: u64,
        /// Bytes that must be.
        wanted_bytes: u64,
    },
    /// The user has as many tasks as are allowed; ask again when some have ended.
    #[error(
        "this user may have {tasks_max} tasks queued and running, {queued} are there, and {wanted} \
         more were submitted together: wait until some have ended, or submit fewer at a time"
    )]
    OverTasks {
        /// Tasks that have not ended.
        queued: u64,
        /// Tasks of the submission.
        wanted: u64,
        /// How many there may be.
        tasks_max: u64,
    },
    /// A task asks for more processors than its user may use; it would wait for ever.
    #[error("a task asks for {wanted} CPUs, and this user may use {slots_max} at a time")]
    OverSlots {
        /// Processors that it asks for.
        wanted: u64,
        /// How many the user may use.
        slots_max: u64,
    },
    /// As many bytes are kept for the user as may be; ask again when there are fewer.
    #[error(
        "{kept_bytes} bytes of results and queued tasks are kept for this user, and at most \
         {bytes_max} may be: fetch results, or destroy instances that are over"
    )]
    OverBytes {
        /// Bytes that are kept.
        kept_bytes: u64,
        /// How many may be.
        bytes_max: u64,
    },
    /// The user has as many instances as are allowed; ask again when one is gone.
    #[error(
        "this user has {instances} of {instances_max} instances: destroy some that are \
         over (falkon destroy), or ask the owner for more (falkon user set --instances-max)"
    )]
    OverInstances {
        /// How many the user has.
        instances: u64,
        /// How many the user may have.
        instances_max: u64,
    },
}
