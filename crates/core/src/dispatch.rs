//! The dispatcher: queues, dispatch, results, recovery (falkon-sc07 §3.2).
//!
//! # The pump
//! Call [`Dispatcher::handle`] for each event, in order, then
//! [`Dispatcher::poll_action`] until it gives `None`, then wait until
//! [`Dispatcher::poll_timeout`] or the next event. The more events are handled
//! between two rounds of polling, the larger the bundles. Records to journal
//! come before the actions that depend on them: a shell that writes all
//! records of a round before it sends anything of that round loses nothing.

mod cancel;
pub(crate) mod check;
mod deliver;
mod end;
mod executor;
mod finish;
mod instance;
mod place;
mod recover;
mod submit;
mod suspend;

use crate::limits::HEARTBEAT_LOST_MICROS;
use crate::result::{Counts, Finished, Report, Tries};
use crate::task::{
    ExecutorId, InstanceId, Resources, Rows, Submission, SubmissionError, TaskClass, TaskId, Time,
};
use executor::Executor;
use instance::{Instance, Need, NeedId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

pub use cancel::Selection;
pub use check::CheckError;
pub use recover::{Record, RecoverError};

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
    /// A task that no executor there is could ever run fails at once;
    /// otherwise it waits for one that can.
    pub fail_unschedulable: bool,
    /// When a task has failed for good, all others are cancelled.
    pub fail_fast: bool,
}

impl Default for InstanceOptions {
    fn default() -> Self {
        InstanceOptions {
            name: String::new(),
            keep_results: true,
            fail_unschedulable: false,
            fail_fast: false,
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
}

/// What happens to a dispatcher. `request` numbers come back in the
/// [`Reply`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A client wants an instance.
    Create {
        /// Who asks.
        connection: ConnectionId,
        /// Which reply is awaited.
        request: u64,
        /// How it is to behave.
        options: InstanceOptions,
    },
    /// A client submits tasks.
    Submit {
        /// Who asks.
        connection: ConnectionId,
        /// Which reply is awaited.
        request: u64,
        /// Where to.
        instance: InstanceId,
        /// The id that the first task gets: a submission sent again after a
        /// lost connection is recognised by it.
        first: TaskId,
        /// The tasks.
        submission: Submission,
    },
    /// A client has submitted all it will.
    Seal {
        /// Who asks.
        connection: ConnectionId,
        /// Which reply is awaited.
        request: u64,
        /// Which instance.
        instance: InstanceId,
    },
    /// A client wants results as they come.
    Subscribe {
        /// Who asks.
        connection: ConnectionId,
        /// Which reply is awaited.
        request: u64,
        /// Which instance.
        instance: InstanceId,
        /// From which task result on, counted from 0 in the order of delivery.
        from: u64,
    },
    /// A client has taken in results.
    Acknowledge {
        /// Who.
        connection: ConnectionId,
        /// Which instance.
        instance: InstanceId,
        /// How many task results, counted from the instance's first.
        upto: u64,
    },
    /// A client gives up on tasks.
    Cancel {
        /// Who asks.
        connection: ConnectionId,
        /// Which reply is awaited.
        request: u64,
        /// Which instance.
        instance: InstanceId,
        /// Which tasks.
        selection: Selection,
    },
    /// A client is through with an instance.
    Destroy {
        /// Who asks.
        connection: ConnectionId,
        /// Which reply is awaited.
        request: u64,
        /// Which instance.
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
    /// A connection is gone, whoever's it was.
    Closed {
        /// Which.
        connection: ConnectionId,
    },
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestError {
    /// There is no such instance (any more).
    NoInstance(InstanceId),
    /// The instance takes no more tasks.
    Sealed(InstanceId),
    /// The tasks do not follow those submitted before.
    Gap {
        /// The id that the next task would have.
        expected: TaskId,
        /// The id it was submitted with.
        found: TaskId,
    },
    /// The submission is not sound.
    Submission(SubmissionError),
    /// The instance's queue is full for now: try again later.
    Busy {
        /// Bytes queued.
        queued_bytes: u64,
    },
    /// Results before this one were forgotten.
    Forgotten {
        /// The first task result there still is.
        first: u64,
    },
    /// More different resource needs than a dispatcher keeps apart.
    TooManyNeeds,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::NoInstance(id) => write!(f, "there is no instance {id}"),
            RequestError::Sealed(id) => write!(f, "instance {id} takes no more tasks"),
            RequestError::Gap { expected, found } => {
                write!(f, "tasks from {found} on were submitted where {expected} comes next")
            }
            RequestError::Submission(error) => write!(f, "{error}"),
            RequestError::Busy { queued_bytes } => {
                write!(f, "the instance's queue is full ({queued_bytes} bytes); try again later")
            }
            RequestError::Forgotten { first } => {
                write!(f, "results before number {first} were delivered and forgotten")
            }
            RequestError::TooManyNeeds => {
                write!(f, "there are too many different combinations of resources and priority")
            }
        }
    }
}

impl std::error::Error for RequestError {}

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
    /// It is done.
    Done,
    /// It is not.
    Refused(RequestError),
}

/// Results in the order in which an instance delivers them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Whose.
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
    /// Tell an executor.
    Order {
        /// To whom.
        connection: ConnectionId,
        /// What.
        order: Order,
    },
    /// The peer broke the protocol or was replaced: close its connection.
    Close {
        /// Which.
        connection: ConnectionId,
        /// Why, for the log.
        reason: &'static str,
    },
}

/// A dispatcher's whole state.
#[derive(Debug, Default)]
pub struct Dispatcher {
    now: Time,
    instances: BTreeMap<InstanceId, Instance>,
    next_instance: u64,
    executors: BTreeMap<ExecutorId, Executor>,
    next_executor: u64,
    by_connection: BTreeMap<ConnectionId, ExecutorId>,
    by_incarnation: BTreeMap<u64, ExecutorId>,
    /// Names of executors that results refer to, those gone included.
    executor_names: BTreeMap<ExecutorId, String>,
    needs: Vec<Need>,
    need_ids: BTreeMap<Need, NeedId>,
    next_batch: u64,
    /// Instances with ready tasks that may be dispatched, least use first.
    hungry: BTreeSet<(u128, InstanceId)>,
    /// Executors with free room, the one free longest first.
    available: BTreeMap<u64, ExecutorId>,
    next_turn: u64,
    /// Executors that gained room since tasks were last placed.
    fresh: BTreeSet<ExecutorId>,
    /// Executors with tasks prefetched, fewest first.
    prefetched: BTreeSet<(u64, ExecutorId)>,
    /// Executors that are being emptied for a task that needs much room.
    reserved: BTreeSet<ExecutorId>,
    /// Among the available executors, where to look next for room for
    /// prefetched tasks.
    recall_turn: u64,
    /// When each executor's silence is next looked at.
    deadlines: BTreeSet<(Time, ExecutorId)>,
    /// Executors that are left alone, and until when.
    suspended: BTreeSet<(Time, ExecutorId)>,
    /// Executors for which an order is waiting to be sent.
    ordered: BTreeSet<ExecutorId>,
    /// Instances with results to deliver.
    to_deliver: BTreeSet<InstanceId>,
    actions: VecDeque<Action>,
    /// Something changed since tasks were last placed.
    unplaced: bool,
    recall_check: Option<Time>,
    /// After a restart: nothing is dispatched until then, or until all
    /// executors known before are back.
    recovering_until: Option<Time>,
    /// By incarnation: the number and the name each had.
    expected_back: BTreeMap<u64, (ExecutorId, String)>,
}

impl Dispatcher {
    /// A dispatcher with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Dispatcher::default()
    }

    /// Takes one event in. `now` never goes back; if it does, it counts as
    /// the latest time seen.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.now = self.now.max(now);
        match event {
            Event::Create { connection, request, options } => {
                let id = self.create(options);
                self.reply(connection, request, Reply::Created(id));
            }
            Event::Submit { connection, request, instance, first, submission } => {
                let reply = match self.submit(instance, first, submission) {
                    Ok(count) => Reply::Accepted { first, count },
                    Err(error) => Reply::Refused(error),
                };
                self.reply(connection, request, reply);
            }
            Event::Seal { connection, request, instance } => {
                let result = self.seal(instance);
                self.reply_done(connection, request, result);
            }
            Event::Subscribe { connection, request, instance, from } => {
                let result = self.subscribe(connection, instance, from);
                self.reply_done(connection, request, result);
            }
            Event::Acknowledge { connection, instance, upto } => {
                self.acknowledge(connection, instance, upto);
            }
            Event::Cancel { connection, request, instance, selection } => {
                let result = self.cancel(instance, &selection);
                self.reply_done(connection, request, result);
            }
            Event::Destroy { connection, request, instance } => {
                let result = self.destroy(instance);
                self.reply_done(connection, request, result);
            }
            Event::Join { connection, join } => self.join(connection, join),
            Event::Update { connection, update } => self.update(connection, update),
            Event::Closed { connection } => self.closed(connection),
        }
    }

    /// What to do next; `None` when there is nothing until the next event or
    /// timeout.
    pub fn poll_action(&mut self) -> Option<Action> {
        if self.actions.is_empty() {
            self.fail_fast();
            self.fail_stuck();
            while std::mem::take(&mut self.unplaced) {
                self.place();
            }
            if self.actions.is_empty() {
                self.send_orders();
            }
            if self.actions.is_empty() {
                self.deliver();
            }
        }
        self.actions.pop_front()
    }

    /// When [`Dispatcher::handle_timeout`] is due, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, &'static str)> {
        let silence = self.deadlines.first().map(|(at, _)| (*at, "executor silence"));
        let recovery = self.recovering_until.map(|at| (at, "recovery"));
        let suspension = self.suspended.first().map(|(at, _)| (*at, "suspension"));
        let recall = self.recall_check.map(|at| (at, "recall"));
        [silence, recovery, suspension, recall].into_iter().flatten().min()
    }

    /// Does what is due at `now`. Calling it early does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = self.now.max(now);
        if self.recovering_until.is_some_and(|at| at <= self.now) {
            self.end_recovery();
        }
        if self.recall_check.is_some_and(|at| at <= self.now) {
            self.recall_check = None;
            self.unplaced = true;
        }
        self.end_due_suspensions();
        while let Some(&(at, id)) = self.deadlines.first() {
            if at > self.now {
                break;
            }
            self.deadlines.remove(&(at, id));
            self.check_silence(id);
        }
    }

    /// The state of an instance; `None` if there is none.
    #[must_use]
    pub fn instance_view(&self, id: InstanceId) -> Option<InstanceView<'_>> {
        self.instances.get(&id).map(|instance| InstanceView { dispatcher: self, instance })
    }

    /// All instances, in the order of their creation.
    pub fn instance_views(&self) -> impl Iterator<Item = InstanceView<'_>> {
        self.instances.values().map(|instance| InstanceView { dispatcher: self, instance })
    }

    /// All executors, in the order of their registration.
    pub fn executor_views(&self) -> impl Iterator<Item = ExecutorView<'_>> {
        self.executors.values().map(|executor| ExecutorView { executor })
    }

    fn reply(&mut self, connection: ConnectionId, request: u64, reply: Reply) {
        self.actions.push_back(Action::Reply { connection, request, reply });
    }

    fn reply_done(
        &mut self,
        connection: ConnectionId,
        request: u64,
        result: Result<(), RequestError>,
    ) {
        let reply = result.map_or_else(Reply::Refused, |()| Reply::Done);
        self.reply(connection, request, reply);
    }

    fn journal(&mut self, record: Record) {
        self.actions.push_back(Action::Journal(record));
    }

    /// Watches an executor's silence from now on.
    fn watch(&mut self, id: ExecutorId, micros: u64) {
        self.deadlines.insert((self.now.after(micros), id));
    }

    fn check_silence(&mut self, id: ExecutorId) {
        let Some(executor) = self.executors.get(&id) else { return };
        let allowed = executor.silence_allowed(HEARTBEAT_LOST_MICROS);
        let until = executor.last_heard.after(allowed);
        if until > self.now {
            self.deadlines.insert((until, id));
        } else {
            self.lose_executor(id, "it was silent for too long");
        }
    }
}

/// A look at an instance.
#[derive(Debug, Clone, Copy)]
pub struct InstanceView<'a> {
    dispatcher: &'a Dispatcher,
    instance: &'a Instance,
}

impl<'a> InstanceView<'a> {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> InstanceId {
        self.instance.id
    }

    /// Its options.
    #[must_use]
    pub fn options(&self) -> &'a InstanceOptions {
        &self.instance.options
    }

    /// How many tasks are in which state.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.instance.counts()
    }

    /// Whether it takes no more tasks.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.instance.sealed
    }

    /// Whether it is sealed and every task has ended.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.instance.is_complete()
    }

    /// Whether any of its tasks that are still known has a name.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.instance.batches.values().any(|batch| batch.submission.names.is_some())
    }

    /// Bytes of results held, and whether they hold dispatch up.
    #[must_use]
    pub fn results_held(&self) -> (u64, bool) {
        (self.instance.results.bytes(), self.instance.is_clogged())
    }

    /// What ready tasks need that no executor there is offers, and how many
    /// tasks need it.
    #[must_use]
    pub fn unschedulable(&self) -> Vec<(Resources, u64)> {
        self.dispatcher.unschedulable(self.instance)
    }

    /// The batch that holds `task`, with the task's position in it, while any
    /// of its tasks is unfinished or its results are kept.
    #[must_use]
    pub fn submission_of(&self, task: TaskId) -> Option<(&'a Submission, u64)> {
        let batch = self.instance.batch_of(task)?;
        Some((&batch.submission, task.0 - batch.first))
    }

    /// The state of one task: `waiting`, `ready`, `dispatched` or `ended`.
    #[must_use]
    pub fn task_state(&self, task: TaskId) -> Option<&'static str> {
        self.dispatcher.task_state(self.instance, task)
    }
}

/// A look at an executor.
#[derive(Debug, Clone, Copy)]
pub struct ExecutorView<'a> {
    executor: &'a Executor,
}

impl<'a> ExecutorView<'a> {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> ExecutorId {
        self.executor.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        &self.executor.name
    }

    /// What it offers.
    #[must_use]
    pub fn capacity(&self) -> &'a Resources {
        &self.executor.capacity
    }

    /// What is free of it.
    #[must_use]
    pub fn free(&self) -> &'a Resources {
        &self.executor.free
    }

    /// Tasks it has, and how many of them it was sent ahead.
    #[must_use]
    pub fn load(&self) -> (u64, u64) {
        (self.executor.in_flight_count(), self.executor.prefetched())
    }

    /// Until when it is left alone because it could not start its tasks.
    #[must_use]
    pub fn suspended_until(&self) -> Option<Time> {
        self.executor.suspended_until
    }

    /// Whether it is connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.executor.connection.is_some()
    }
}
