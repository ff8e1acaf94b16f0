//! What goes into a dispatcher and what comes out of it: plain data.
//!
//! This file is long because each event, answer and refusal is described.

use super::diffusion::{PolicyError, PolicyOptions};
use super::journal_room::Disk;
use super::pages::{Page, PagePlace};
use super::{Expiry, JoinError, Record, Retried, Selection, Subtree, Survey};
use crate::collect::Unwritten;
use crate::data::declared::{AssignedData, CacheRoom, DataOrder, Pace, Serving};
use crate::data::stage::Changes;
use crate::gang::{GangKey, GangOrder, GangReport, GangToken};
use crate::limits::{INSTANCES_MAX, NAME_BYTES_MAX, RETRIED_RUNS_MAX};
use crate::provision::Waiting;
use crate::result::{Counts, Finished, Report, Tries};
use crate::task::{
    AllocationId, ExecutorId, InstanceId, Resources, Rows, Submission, SubmissionError, TaskClass,
    TaskId, Time,
};
use std::sync::Arc;

/// A connection, as the shell numbers them. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Names a submission's template between a dispatcher and its executors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// How an instance behaves; chosen when it is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceOptions {
    /// For people.
    pub name: String,
    /// Results stay after they were acknowledged, until the instance is
    /// destroyed; otherwise acknowledged results are forgotten.
    pub keep_results: bool,
    /// A task whose need no executor has offered for so many microseconds
    /// fails, unless a provisioner can get one that does; `None`: it waits.
    pub fail_unschedulable_micros: Option<u64>,
    /// When a task has failed for good, all others are cancelled.
    pub fail_fast: bool,
    /// Which tasks go to which executors.
    pub policy: PolicyOptions,
    /// It is destroyed, with what it queues and runs, when no connection has
    /// been its client's for so many microseconds; `None`: it stays.
    pub lease_micros: Option<u64>,
    /// How long it stays when its tasks have ended and nobody looks at it.
    pub keep: Keep,
}

/// How long an instance stays from the last look at it on, once all of its
/// tasks have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// As the dispatcher was told for all.
    #[default]
    AsDispatcher,
    /// Until a client destroys it.
    Forever,
    /// A number of microseconds.
    Micros(u64),
}

impl Default for InstanceOptions {
    fn default() -> Self {
        InstanceOptions {
            name: String::new(),
            keep_results: true,
            fail_unschedulable_micros: None,
            fail_fast: false,
            policy: PolicyOptions::default(),
            lease_micros: None,
            keep: Keep::AsDispatcher,
        }
    }
}

/// Tasks in a row that an executor is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    /// The template they belong to; sent before with [`Prepare`].
    pub batch: BatchId,
    /// Their instance.
    pub instance: InstanceId,
    /// The first of them.
    pub first: TaskId,
    /// How many.
    pub count: u64,
    /// Index into the batch's classes.
    pub class: u32,
    /// How often they were tried before.
    pub tries: Tries,
    /// What distinguishes them.
    pub rows: Rows,
    /// The data objects that they read and write, if they name any.
    pub data: Option<Box<AssignedData>>,
}

/// What an executor must know of a submission before it can run its tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepare {
    /// Its name in this session.
    pub batch: BatchId,
    /// The command template, opaque to the core.
    pub template: Arc<Vec<u8>>,
    /// The classes that its tasks refer to.
    pub classes: Vec<TaskClass>,
    /// To a relay: its tasks run once on each executor below that offers this. They come
    /// together, and have one row.
    pub everywhere: Option<Resources>,
}

/// Tasks in a row that an executor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// Their instance.
    pub instance: InstanceId,
    /// The first of them.
    pub first: TaskId,
    /// How many.
    pub count: u64,
    /// As they were assigned.
    pub tries: Tries,
}

/// Everything an executor is told in one message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Order {
    /// Updates up to and including this number were taken in (and journaled);
    /// the executor may forget their reports.
    pub acknowledged: u64,
    /// New templates.
    pub prepare: Vec<Prepare>,
    /// Tasks to run, in this order.
    pub assign: Vec<Assigned>,
    /// Give back this many tasks that have not started, the last first.
    pub recall: u64,
    /// Stop these if they run, drop them if not; report them cancelled.
    pub cancel: Vec<Held>,
    /// These run elsewhere or are not wanted any more: stop and forget them
    /// without a report.
    pub disown: Vec<Held>,
    /// Templates that no assigned task needs any more.
    pub forget: Vec<BatchId>,
    /// Output that the executor keeps ([`Overflow`](crate::result::Overflow))
    /// and that nobody will ask for any more: runs of its numbers, as (first,
    /// count).
    pub discard: Vec<(u64, u64)>,
    /// What there is to know about data besides.
    pub data: Option<Box<DataOrder>>,
    /// Hand back what has not started, finish what has, then go.
    pub leave: bool,
    /// How far apart its heartbeats are to be for the rest of this session; 0 is as before.
    pub heartbeat_micros: u64,
    /// Gangs that it is to hold, or that are over: before the assigned tasks.
    pub gangs: Vec<GangOrder>,
}

/// Everything an executor says in one message; empty, it is a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Update {
    /// Counts this session's updates, from 1.
    pub number: u64,
    /// Tasks that ended.
    pub reports: Vec<Report>,
    /// Tasks given back unstarted.
    pub returned: Vec<Held>,
    /// The answer to a recall is complete.
    pub recalled: bool,
    /// The executor is about to leave: it gives back what it has not started
    /// and takes no more.
    pub leaving: bool,
    /// Tasks that have ended and hold nothing any more; they are reported when
    /// what they wrote is safe. It says so in each session.
    pub staged: Vec<Held>,
    /// Tasks of which a relay has said so, and whose outputs are lost: they run below it
    /// again.
    pub unstaged: Vec<Held>,
    /// Output that it keeps of reports that were acknowledged, in other
    /// sessions as well: runs of its numbers, as (first, count). It says so
    /// once in each session, in parts.
    pub kept: Vec<(u64, u64)>,
    /// What has changed in its cache.
    pub cache: Option<Box<Changes>>,
    /// What is below it, if it is a relay and has not said so yet.
    pub subtree: Option<Box<Subtree>>,
    /// How what is below it does, if it is a relay.
    pub survey: Option<Box<Survey>>,
    /// The archives that it cannot write for now, if that has changed; in each session
    /// anew.
    pub unwritten: Option<Vec<Unwritten>>,
    /// Whether it keeps up with those for whom it collects, if it has something to say of
    /// that.
    pub pace: Option<Pace>,
    /// Gangs that it has released, or that cannot go on.
    pub gangs: Vec<GangReport>,
}

impl Update {
    /// Whether it says nothing but that the executor is there.
    #[must_use]
    pub fn is_heartbeat(&self) -> bool {
        self.reports.is_empty()
            && self.returned.is_empty()
            && !self.recalled
            && !self.leaving
            && self.staged.is_empty()
            && self.unstaged.is_empty()
            && self.kept.is_empty()
            && self.cache.is_none()
            && self.subtree.is_none()
            && self.survey.is_none()
            && self.unwritten.is_none()
            && self.pace.is_none()
            && self.gangs.is_empty()
    }
}

/// By whose leave an executor is there, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lease {
    /// The allocation that it runs in, if a provisioner asked for it.
    pub allocation: Option<AllocationId>,
    /// Time from now on after which it leaves; `None` if nothing makes it.
    pub leaves_in_micros: Option<u64>,
}

/// An executor that registers, or comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// Drawn at random when the executor process started.
    pub incarnation: u64,
    /// For people: host and process.
    pub name: String,
    /// What it offers.
    pub capacity: Resources,
    /// Tasks it has and has not reported.
    pub held: Vec<Held>,
    /// Reports that were not acknowledged.
    pub reports: Vec<Report>,
    /// Where it serves what it caches, if it does.
    pub serves: Option<Serving>,
    /// What its cache takes.
    pub cache: CacheRoom,
    /// By whose leave it is there.
    pub lease: Lease,
    /// The gangs that it holds.
    pub gangs: Vec<GangKey>,
}

/// What happens to a dispatcher. `request` numbers come back in the
/// [`Reply`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A client wants an instance.
    Create {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// How it is to behave.
        options: InstanceOptions,
    },
    /// A client submits tasks.
    Submit {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// Where to.
        instance: InstanceId,
        /// The id that the first task gets: a submission sent again after a
        /// lost connection is recognised by it.
        first: TaskId,
        /// Drawn at random by the client, and the same on all its connections:
        /// what another client submitted is not taken for this one's.
        client: u64,
        /// The tasks.
        submission: Submission,
    },
    /// A client has submitted all it will.
    Seal {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
    },
    /// A client wants forgotten what tasks did with large objects of a name, or of all.
    Forget {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The name: where the objects come from.
        name: Option<Arc<str>>,
    },
    /// A client wants results as they come.
    Subscribe {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
        /// From which task result on, counted from 0 in the order of delivery.
        from: u64,
    },
    /// A client has taken in results.
    Acknowledge {
        /// Who.
        connection: ConnectionId,
        /// The instance's number.
        instance: InstanceId,
        /// How many task results, counted from the instance's first.
        upto: u64,
    },
    /// A client gives up on tasks.
    Cancel {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
        /// Which tasks.
        selection: Selection,
    },
    /// A client wants tasks to run again that have ended and not well.
    Retry {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
        /// Which of them; all that have failed, and were not cancelled, if all.
        selection: Selection,
    },
    /// A client wants no more tasks of an instance dispatched, or wants it to go on.
    Pause {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
        /// Which of both.
        is_paused: bool,
    },
    /// A client wants an instance to go before all that have a lower priority.
    Prioritize {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
        /// Its priority from now on.
        priority: i32,
    },
    /// A client wants an executor to be given no more tasks, or to be given some again.
    Drain {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// Which executor.
        executor: ExecutorId,
        /// Which of both.
        is_drained: bool,
    },
    /// A client takes tasks back that have not started.
    Withdraw {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
        /// How many tasks, at most: the last in their queues first.
        count: u64,
    },
    /// A relay waits for tasks to be staged, or to be so no longer.
    AwaitStaged {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
    },
    /// A client is through with an instance.
    Destroy {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
    },
    /// An executor registers.
    Join {
        /// Its connection.
        connection: ConnectionId,
        /// Who it is and what it has.
        join: Join,
    },
    /// An executor speaks.
    Update {
        /// Its connection.
        connection: ConnectionId,
        /// What it says.
        update: Update,
    },
    /// An executor takes no more tasks, and leaves when those it has ended; the
    /// provisioner wants it so.
    Release {
        /// The executor.
        executor: ExecutorId,
    },
    /// Tasks that wait at a dispatcher above, as a relay to it says: instead of what
    /// was said before over this connection.
    Unmet {
        /// The connection.
        connection: ConnectionId,
        /// The tasks.
        waiting: Vec<Waiting>,
    },
    /// More of the [`Action::Deliver`] for a connection have been written to
    /// it, or are on their way by other means. Without this, results
    /// stop after [`UNWRITTEN_BYTES_MAX`](crate::limits::UNWRITTEN_BYTES_MAX).
    Written {
        /// The connection.
        connection: ConnectionId,
        /// How many of them.
        messages: u64,
    },
    /// A connection is gone, whoever's it was.
    Closed {
        /// The connection.
        connection: ConnectionId,
    },
    /// The answer to [`Action::StorePage`].
    PageStored {
        /// The instance whose results it holds.
        instance: InstanceId,
        /// The position of the first.
        from: u64,
        /// Where it is; `None` if it could not be written.
        place: Option<PagePlace>,
    },
    /// The answer to [`Action::LoadPage`].
    PageLoaded {
        /// The instance whose results it holds.
        instance: InstanceId,
        /// The position of the first.
        from: u64,
        /// The results, or why they cannot be read.
        page: Result<Page, String>,
    },
    /// The answer to [`Action::DrawTokens`].
    TokensDrawn(Vec<GangToken>),
    /// How much room there is on the journal's disk, as often as that changes.
    DiskMeasured(Disk),
}

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
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// An instance was created.
    Created(InstanceId),
    /// Tasks were accepted: they will end exactly once.
    Accepted {
        /// The first of them.
        first: TaskId,
        /// How many.
        count: u64,
    },
    /// Tasks were withdrawn: runs of them, as (first, count). They end as
    /// cancelled.
    Withdrawn(Vec<(u64, u64)>),
    /// Runs of tasks, as (first, count).
    Staged {
        /// They have ended, and are reported when what they wrote is safe.
        staged: Vec<(u64, u64)>,
        /// They were staged, and are not any more: they run again.
        unstaged: Vec<(u64, u64)>,
    },
    /// So many names were forgotten.
    Forgotten(u64),
    /// Tasks run again.
    Retried(Retried),
    /// It is done.
    Done,
    /// It is not.
    Refused(RequestError),
}

/// Results in the order in which an instance delivers them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The instance.
    pub instance: InstanceId,
    /// How many task results of the instance come before these.
    pub from: u64,
    /// The results.
    pub results: Vec<Finished>,
    /// Names of the executors that occur in them.
    pub executors: Vec<(ExecutorId, String)>,
    /// The instance's counts.
    pub counts: Counts,
    /// Nothing will follow: all tasks have ended, and no more are taken.
    pub complete: bool,
    /// How many task results come before those that follow: some between may have been
    /// replaced, and are left out.
    pub upto: u64,
    /// Tasks, as (first, count), that were retried: their results here are instead of those
    /// that were delivered before, if any were.
    pub again: Vec<(u64, u64)>,
}

/// What a dispatcher wants done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Write this before doing what follows.
    Journal(Record),
    /// Answer a request.
    Reply {
        /// To whom.
        connection: ConnectionId,
        /// Which request.
        request: u64,
        /// The answer.
        reply: Reply,
    },
    /// Deliver results.
    Deliver {
        /// To whom.
        connection: ConnectionId,
        /// What.
        delivery: Delivery,
    },
    /// Report with [`Event::Written`] as soon as more of the results for a
    /// connection have been written: others wait for that.
    AwaitWritten {
        /// The connection.
        connection: ConnectionId,
    },
    /// Tell a client that no more results come: another client has destroyed
    /// the instance.
    Gone {
        /// To whom.
        connection: ConnectionId,
        /// The instance.
        instance: InstanceId,
    },
    /// An instance has expired and is destroyed.
    Expired {
        /// The instance.
        instance: InstanceId,
        /// Why.
        why: Expiry,
        /// An instance that expired long ago and is not known to have existed
        /// any more.
        forgotten: Option<InstanceId>,
    },
    /// Write a page of results to disk, and answer with [`Event::PageStored`].
    StorePage {
        /// The instance whose results these are.
        instance: InstanceId,
        /// The position of the first.
        from: u64,
        /// What to write.
        page: Page,
    },
    /// Read a page of results, and answer with [`Event::PageLoaded`].
    LoadPage {
        /// The instance whose results these are.
        instance: InstanceId,
        /// The position of the first.
        from: u64,
        /// Where it is.
        place: PagePlace,
    },
    /// Nobody needs these pages any more.
    DropPages {
        /// Where they are.
        places: Vec<PagePlace>,
    },
    /// Draw so many secrets of gangs from the random source of the system, and answer with
    /// [`Event::TokensDrawn`]: a gang is formed with each.
    DrawTokens {
        /// How many.
        count: u32,
    },
    /// Tell an executor.
    Order {
        /// To whom.
        connection: ConnectionId,
        /// What.
        order: Order,
    },
    /// Tell a relay below which nodes can be got of the tasks that wait for some:
    /// instead of what it was told before.
    Unmet {
        /// To whom.
        connection: ConnectionId,
        /// The tasks.
        waiting: Vec<Waiting>,
    },
    /// Tell an executor that it is not taken in, and close its connection.
    Refuse {
        /// The connection.
        connection: ConnectionId,
        /// Why.
        error: JoinError,
    },
    /// The peer broke the protocol or was replaced: close its connection.
    Close {
        /// The connection.
        connection: ConnectionId,
        /// Why, for the log.
        reason: &'static str,
    },
}
