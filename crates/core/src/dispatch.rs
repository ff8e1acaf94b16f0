//! The dispatcher: queues, dispatch, results, recovery (falkon-sc07 §3.2).
//!
//! # The pump
//! Call [`Dispatcher::handle`] for each event, in order, then
//! [`Dispatcher::poll_action`] until it gives `None`, then wait until
//! [`Dispatcher::poll_timeout`] or the next event. The more events are handled
//! between two rounds of polling, the larger the bundles. Records to journal
//! come before the actions that depend on them: a shell that writes all
//! records of a round before it sends anything of that round loses nothing.

mod ack_coalescing;
mod admission;
mod attempts;
mod cancel;
mod catalog;
pub(crate) mod check;
mod comeback;
mod deliver;
mod demand;
pub mod diffusion;
mod end;
mod ended;
mod event;
mod executor;
mod finish;
mod inquire;
mod instance;
mod intermediate;
mod lifetime;
mod likes;
mod line;
mod loads;
mod locate;
mod located;
mod names;
mod needs;
mod orders;
mod outflow;
mod outputs;
mod pages;
mod parts;
mod place;
mod queues;
mod rack;
mod readership;
mod recall;
mod recover;
mod registry;
mod remake;
mod replicate;
mod room;
mod roster;
mod runnable;
mod share;
mod shelf;
mod standstill;
mod submit;
mod submitters;
mod subscriptions;
mod suspend;
mod unoffered;
mod values;
mod whereabouts;

use crate::data::index::Index;
use crate::data::object::ObjectId;
use crate::data::stage::CacheState;
use crate::limits::HEARTBEAT_LOST_MICROS;
use crate::result::Counts;
use crate::task::{AllocationId, ExecutorId, InstanceId, Resources, Submission, TaskId, Time};
use catalog::Catalog;
use comeback::Comeback;
use ended::Ended;
use executor::Executor;
use instance::Instance;
use lifetime::Lifetimes;
use located::LocatedQueues;
use names::Names;
use needs::Needs;
use orders::Orders;
use outflow::Outflow;
use pages::Paging;
use readership::Readership;
use registry::Registry;
use replicate::Copies;
use room::Room;
use roster::Roster;
use runnable::Runnable;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use subscriptions::Subscriptions;
use unoffered::Unoffered;

pub use ack_coalescing::{AckCoalescing, AckEvent, Outbound, Traffic};
pub use admission::JoinError;
pub use attempts::Attempts;
pub use cancel::Selection;
pub use check::CheckError;
pub use event::{
    Action, Assigned, BatchId, ConnectionId, Delivery, Event, Held, InstanceOptions, Join, Keep,
    Lease, Order, Prepare, Reply, RequestError, Update,
};
pub use inquire::{Access, AccessError, FoundObject, HolderStatus, ObjectStatus, Purpose, Scope};
pub use lifetime::{Expiry, Lifetime};
pub use outputs::PagedOutput;
pub use pages::{Page, PageBounds, PagePlace, StoredPage};
pub use recover::{Record, RecoverError};
pub use room::{Compaction, Disk, JournalSize};
pub use whereabouts::Whereabouts;

/// A dispatcher's whole state.
#[derive(Debug, Default)]
pub struct Dispatcher {
    now: Time,
    instances: BTreeMap<InstanceId, Instance>,
    /// How long each lives.
    lifetimes: Lifetimes,
    /// Needs that nobody offers, where tasks fail for that.
    unoffered: Unoffered,
    next_instance: u64,
    executors: Roster,
    registry: Registry,
    /// Names of executors that results refer to, those gone included.
    executor_names: Names,
    /// Submissions that are kept although all of their tasks have ended.
    ended: Ended,
    needs: Needs,
    next_batch: u64,
    runnable: Runnable,
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
    orders: Orders,
    /// The instances whose results each connection receives.
    subscriptions: Subscriptions,
    outflow: Outflow,
    /// Instances with results to deliver.
    to_deliver: BTreeSet<InstanceId>,
    /// Results in memory, and pages of results on disk.
    paging: Paging,
    /// Room on the journal's disk.
    room: Room,
    actions: VecDeque<Action>,
    /// Some tasks have had data objects.
    knows_data: bool,
    /// Who holds which data objects.
    index: Index,
    /// What they are called.
    catalog: Catalog,
    /// How many tasks read them.
    readership: Readership,
    /// Queues of tasks whose data decides where they go.
    located: LocatedQueues,
    /// Executors with caches to which more may be sent ahead.
    fetchers: BTreeSet<ExecutorId>,
    /// Where to look next among them.
    fetch_turn: ExecutorId,
    /// Objects of which executors are to hear how many tasks want them.
    demands: BTreeSet<(ExecutorId, ObjectId)>,
    /// Some executors have had a time after which they leave.
    knows_leases: bool,
    /// What a provisioner is told of tasks that came and went.
    tally: demand::Tally,
    /// What the executor that speaks could get from nobody.
    unobtainable: BTreeSet<ObjectId>,
    /// Instances in which tasks may run again for nobody.
    stale_remakes: BTreeSet<InstanceId>,
    /// Copies of objects that are in caches alone.
    copies: Copies,
    /// Output that executors keep.
    outputs: outputs::Outputs,
    /// Objects that need not be kept any more.
    released: Vec<ObjectId>,
    /// Executors that have tasks.
    busy: u64,
    /// Room to work in, used again for each report.
    taken: Vec<executor::InFlight>,
    /// Something changed since tasks were last placed.
    unplaced: bool,
    recall_check: Option<Time>,
    /// After a restart: executors that may still have tasks.
    comeback: Comeback,
    /// How often tasks were tried and who has them, for the journal.
    attempts: attempts::Ledger,
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
        self.write_levels_down();
        match event {
            Event::Create { connection, request, options } => {
                let created = self.create(options);
                let reply = match created.and_then(|id| self.attach(connection, id).map(|()| id)) {
                    Ok(id) => Reply::Created(id),
                    Err(error) => Reply::Refused(error),
                };
                self.reply(connection, request, reply);
            }
            Event::Submit { connection, request, instance, first, client, submission } => {
                let attached = self.attach(connection, instance);
                let submitted =
                    attached.and_then(|()| self.submit(instance, first, client, submission));
                let reply = match submitted {
                    Ok(count) => Reply::Accepted { first, count },
                    Err(error) => Reply::Refused(error),
                };
                self.reply(connection, request, reply);
            }
            Event::Seal { connection, request, instance } => {
                let attached = self.attach(connection, instance);
                let result = attached.and_then(|()| self.seal(instance));
                self.reply_done(connection, request, result);
            }
            Event::Subscribe { connection, request, instance, from } => {
                let attached = self.attach(connection, instance);
                let result = attached.and_then(|()| self.subscribe(connection, instance, from));
                self.reply_done(connection, request, result);
            }
            Event::Acknowledge { connection, instance, upto } => {
                self.acknowledge(connection, instance, upto);
            }
            Event::Cancel { connection, request, instance, selection } => {
                let attached = self.attach(connection, instance);
                let result = attached.and_then(|()| self.cancel(instance, &selection));
                self.reply_done(connection, request, result);
            }
            Event::Destroy { connection, request, instance } => {
                let attached = self.attach(connection, instance);
                let result = attached.and_then(|()| self.destroy(instance, connection));
                self.reply_done(connection, request, result);
            }
            Event::Join { connection, join } => self.join(connection, join),
            Event::Update { connection, update } => self.update(connection, update),
            Event::Release { executor } => self.release_executor(executor),
            Event::Written { connection, messages } => self.written(connection, messages),
            Event::Closed { connection } => {
                self.detach(connection);
                self.closed(connection);
            }
            Event::PageStored { instance, from, place } => self.page_stored(instance, from, place),
            Event::PageLoaded { instance, from, page } => self.page_loaded(instance, from, page),
            Event::DiskMeasured(disk) => self.disk_measured(disk),
        }
    }

    /// What to do next; `None` when there is nothing until the next event or
    /// timeout.
    pub fn poll_action(&mut self) -> Option<Action> {
        if self.actions.is_empty() {
            self.fail_fast();
            self.fail_stuck();
            self.withdraw_idle();
            self.place_marked_instances();
            while std::mem::take(&mut self.unplaced) {
                self.place();
            }
            if self.actions.is_empty() {
                self.send_orders();
            }
            if self.actions.is_empty() {
                self.deliver();
                self.store_pages();
            }
        }
        self.actions.pop_front()
    }

    /// When [`Dispatcher::handle_timeout`] is due, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, &'static str)> {
        let silence = self.deadlines.first().map(|(at, _)| (*at, "executor silence"));
        let recovery = self.comeback.until().map(|at| (at, "recovery"));
        let suspension = self.suspended.first().map(|(at, _)| (*at, "suspension"));
        let recall = self.recall_check.map(|at| (at, "recall"));
        let news = self.orders.due().map(|at| (at, "news for executors"));
        let pages = self.paging.retry_at().map(|at| (at, "a page to write again"));
        let lifetime = self.lifetimes.next_check().map(|at| (at, "lifetime of an instance"));
        let unoffered = self.unoffered.due().map(|at| (at, "need that nobody offers"));
        [silence, recovery, suspension, recall, news, pages, lifetime, unoffered]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what is due at `now`. Calling it early does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.write_levels_down();
        if self.comeback.until().is_some_and(|at| at <= self.now) {
            self.end_recovery();
        }
        if self.recall_check.is_some_and(|at| at <= self.now) {
            self.recall_check = None;
            self.unplaced = true;
        }
        self.orders.send_due(self.now);
        self.paging.end_pause(self.now);
        self.unplaced |= self.unoffered.take_due(self.now);
        self.expire();
        self.end_due_suspensions();
        while let Some(&(at, id)) = self.deadlines.first() {
            if at > self.now {
                break;
            }
            self.deadlines.remove(&(at, id));
            self.check_silence(id);
        }
    }

    /// The latest time that it knows of, from its clock or its journal. A shell
    /// whose clock is behind goes on from here, or nothing would be due in time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
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

    /// The number that the next instance gets.
    #[must_use]
    pub fn next_instance(&self) -> InstanceId {
        InstanceId(self.next_instance)
    }

    /// How many executors have tasks.
    #[must_use]
    pub fn busy_executors(&self) -> u64 {
        self.busy
    }

    /// All executors, in the order of their registration.
    pub fn executor_views(&self) -> impl Iterator<Item = ExecutorView<'_>> {
        let index = &self.index;
        self.executors.values().map(|executor| ExecutorView { executor, index })
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
        let Some(executor) = self.executors.find(&id) else { return };
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

    /// When it was created, when a client of it was last there, and when it
    /// expires.
    #[must_use]
    pub fn lifetime(&self) -> Lifetime {
        let unknown = Lifetime { created: Time(0), heard: Time(0), expires: None };
        self.dispatcher.lifetime(self.instance.id).unwrap_or(unknown)
    }

    /// Bytes of submissions that are queued.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        self.instance.queued_bytes
    }

    /// Bytes of results held in memory and on disk.
    #[must_use]
    pub fn results_held(&self) -> (u64, u64) {
        (self.instance.results.bytes(), self.instance.results.stored_bytes())
    }

    /// Whether results that are held keep its tasks from being dispatched.
    #[must_use]
    pub fn is_clogged(&self) -> bool {
        self.dispatcher.is_clogged(self.instance)
    }

    /// What ready tasks need that no executor there is offers, and how many
    /// tasks need it.
    #[must_use]
    pub fn unschedulable(&self) -> Vec<(Resources, u64)> {
        self.dispatcher.unschedulable(self.instance)
    }

    /// For how long ready tasks are expected to run, in microseconds, before
    /// whose end every executor leaves that could run them, and how many wait.
    #[must_use]
    pub fn overlong(&self) -> Vec<(u64, u64)> {
        self.dispatcher.overlong(self.instance)
    }

    /// The batch that holds `task`, with the task's position in it, while any
    /// of its tasks is unfinished or its results are kept.
    #[must_use]
    pub fn submission_of(&self, task: TaskId) -> Option<(&'a Submission, u64)> {
        let batch = self.instance.batch_of(task)?;
        Some((&batch.submission, task.0 - batch.first))
    }
}

/// A look at an executor.
#[derive(Debug, Clone, Copy)]
pub struct ExecutorView<'a> {
    executor: &'a Executor,
    index: &'a Index,
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

    /// The allocation that it runs in, if a provisioner asked for it.
    #[must_use]
    pub fn allocation(&self) -> Option<AllocationId> {
        self.executor.allocation
    }

    /// When it leaves: no task is sent to it that is expected to end later.
    #[must_use]
    pub fn leaves_at(&self) -> Option<Time> {
        self.executor.leaves_at
    }

    /// Since when it has had no task; `None` while it has one.
    #[must_use]
    pub fn idle_since(&self) -> Option<Time> {
        (!self.executor.is_busy).then_some(self.executor.idle_since)
    }

    /// Whether it takes no more tasks and is about to leave.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.executor.leaving
    }

    /// How its cache stands, as it last said, and how many objects it holds;
    /// `None` if it has no cache.
    #[must_use]
    pub fn cache(&self) -> Option<(CacheState, u64)> {
        let place = self.index.place(self.executor.id)?;
        Some((self.executor.cache.unwrap_or_default(), self.index.held_count(place) as u64))
    }

    /// Whether it is connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.executor.connection.is_some()
    }
}
