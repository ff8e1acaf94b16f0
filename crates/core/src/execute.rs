//! The executor: slots, queue, timeouts, reports.
//!
//! # The pump
//! Call [`Executor::handle`] for each event, then [`Executor::poll_action`]
//! until it gives `None`, then wait until [`Executor::poll_timeout`] or the
//! next event. Times are on the dispatcher's clock, as far as the shell knows
//! it.

mod ahead;
mod bundle;
mod chains;
mod check;
mod collecting;
mod doubt;
mod due;
mod end;
mod entrusted;
mod entrusting;
mod gangs;
mod idle;
mod leave;
mod load;
mod orders;
pub(crate) mod overflows;
mod pace;
mod pins;
mod room;
mod sizes;
mod staging;
mod streams;
mod templates;
pub(crate) mod updates;

use crate::collect::CollectOptions;
use crate::data::declared::{Collects, Peer};
use crate::data::stage;
use crate::dispatch::{Held, Join, Lease, Order, Update};
use crate::few::FewOrMany;
use crate::gang::{GangAction, GangKey, GangStart};
use crate::heartbeats::Heartbeats;
use crate::limits::{BACKFILL_RUNS_MAX, RESERVE_AFTER_MICROS};
use crate::result::{Detail, Outcome, ResourceUsage, Tries};
use crate::seldom::Seldom;
use crate::task::{
    AUTO_CPUS, AllocationId, InstanceId, Kind, Resources, Rows, TaskClass, TaskId, Time,
};
use bundle::Call;
use chains::{Chains, Follower, Leader};
use collecting::Collecting;
use doubt::Doubts;
use end::End;
use entrusted::Entrusted;
use entrusting::Entrusting;
use gangs::Gangs;
use idle::IdleExit;
use leave::Departure;
use overflows::Overflows;
use room::Room;
use sizes::Sizes;
use staging::{Data, TaskData};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use streams::Streams;
use templates::{Gone, Templates};
use updates::Updates;

pub use crate::task::TaskKey;
pub use bundle::More;
pub use collecting::{CollectAction, CollectEvent};
pub use entrusted::OfferId;
pub use pins::{Cpu, CpuShare};
pub use room::Grant;
pub use staging::{StartData, Visit, VisitEnd};

/// A template as this executor numbers them; numbers are never used again,
/// unlike those of a dispatcher that restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateId(pub u64);

/// What happens to an executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A session with a dispatcher begins.
    Connected,
    /// The session is over.
    Disconnected,
    /// The dispatcher speaks.
    Order(Order),
    /// Started tasks have ended; `count` as in [`Action::Start`].
    Ended {
        /// The key.
        key: TaskKey,
        /// How: exit, signal, or not run.
        outcome: Outcome,
        /// When they started.
        started: Time,
        /// When they ended.
        ended: Time,
        /// What else there is to say.
        detail: Option<Arc<Detail>>,
    },
    /// A worker has been given calls: the time of the first runs from now on.
    /// (That of a process runs from its start.)
    Begun {
        /// The first.
        key: TaskKey,
    },
    /// Calls of functions that were handed over have not begun, and will not:
    /// the call before them takes long, or their worker is gone.
    Returned {
        /// The first.
        key: TaskKey,
        /// How many, one after another.
        count: u64,
    },
    /// A task that was to come after another will not start: it was taken back
    /// or killed before, or what it was to run in is gone.
    TakenBack(TaskKey),
    /// A task with data objects did not begin, because inputs that were there
    /// are gone: [`stage::Event::Lost`] has said which. It goes back into the
    /// queue.
    ///
    /// [`stage::Event::Lost`]: crate::data::stage::Event::Lost
    Unstarted(Box<Start>),
    /// A task that still counts as running has written its outputs, and they
    /// are in the stores where they are to go: their sizes, in the order in
    /// which its command names them. Before [`Event::Ended`].
    Wrote {
        /// The key.
        key: TaskKey,
        /// Bytes of each.
        sizes: Vec<u64>,
    },
    /// What [`Action::Stage`] led to.
    Stage(stage::Event),
    /// What became of outputs that are collected.
    Collect(CollectEvent),
    /// By whose leave it is here, and for how long: before each
    /// [`Event::Connected`], as the clock may be another then. When the time is
    /// over it leaves as after [`Event::Leave`].
    Lease(Lease),
    /// Somebody wants something of the cache, in a visit of this number. The
    /// answer is [`Action::VisitEnded`].
    Visited(u64, Visit),
    /// After [`GangAction::Disband`]: nothing of the gang runs here any more.
    GangEnded {
        /// The gang.
        key: GangKey,
        /// What its processes used here, but for the task's command.
        usage: Option<ResourceUsage>,
    },
    /// Hand back what has not started, finish what has, then go.
    Leave,
}

/// Tasks to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The first.
    pub key: TaskKey,
    /// How many: one, unless they are instant or functions. Functions are
    /// called one after another, and each ends for itself; the shell may
    /// return the last ones ([`Event::Returned`]).
    pub count: u64,
    /// Their template, as announced by [`Action::Prepare`].
    pub template: TemplateId,
    /// Their class.
    pub class: Arc<TaskClass>,
    /// Rows that theirs are among.
    pub rows: Arc<Rows>,
    /// The index of the first one's row.
    pub row: u64,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The GPUs and CPUs that are theirs.
    pub grant: Grant,
    /// The data objects of a single task, if it has any.
    pub data: Option<Arc<StartData>>,
    /// Start it when this one ends, however that does, and in its place; at
    /// once if that has ended. Until then it can be taken back.
    pub after: Option<TaskKey>,
    /// Functions of the same template and class that are called behind these.
    pub more: Vec<More>,
    /// The gang of a single task that runs on several executors: its room is the gang's.
    pub gang: Option<Arc<GangStart>>,
}

/// What an executor wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Register with the dispatcher.
    Join(Join),
    /// Tell the dispatcher.
    Update(Update),
    /// Keep a template at hand.
    Prepare {
        /// Its number here.
        template: TemplateId,
        /// Its bytes.
        bytes: Arc<Vec<u8>>,
    },
    /// No task will refer to this template any more.
    Forget(TemplateId),
    /// Start tasks, which run until [`Event::Ended`] or [`Event::TakenBack`].
    Start(Start),
    /// End a task: ask it to, and force it after `grace_micros`.
    Kill {
        /// The key.
        key: TaskKey,
        /// Time it is given.
        grace_micros: u64,
    },
    /// Do not start a task that comes after another, if that has not ended. The
    /// answer is [`Event::TakenBack`]; there is none if the task runs.
    TakeBack(TaskKey),
    /// Fetch, store or serve data objects.
    Stage(stage::Action),
    /// Stage outputs that are collected, or write them to their archives.
    Collect(CollectAction),
    /// Hold a gang, or end it.
    Gang(GangAction),
    /// Where executors listen from which objects are to be fetched.
    Peers(Vec<Peer>),
    /// The visit of this number is over, in this way.
    VisitEnded(u64, VisitEnd),
    /// A task with data objects is over: its sandbox may go.
    Clear(TaskKey),
    /// Output that was kept under these numbers is not needed any more: runs of
    /// them, as (first, count).
    Discard(Vec<(u64, u64)>),
    /// It has left: nothing runs and nothing is unreported.
    Left,
}

#[derive(Debug, Clone)]
struct Queued {
    instance: InstanceId,
    first: u64,
    count: u64,
    tries: Tries,
    template: TemplateId,
    class: Arc<TaskClass>,
    rows: Arc<Rows>,
    row: u64,
    /// The data objects of a single task.
    data: Option<Arc<TaskData>>,
    /// Since when others have been started that came later.
    passed_since: Option<Time>,
    /// The class that it came with, if it starts with another: with the CPUs and the memory that
    /// it gets.
    asked: Option<Arc<TaskClass>>,
}

/// Why a running task is being killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killed {
    Timeout,
    Cancelled,
    Disowned,
}

#[derive(Debug)]
struct Running {
    count: u64,
    tries: Tries,
    template: TemplateId,
    class: Arc<TaskClass>,
    grant: Grant,
    data: Option<Arc<TaskData>>,
    /// The class that it came with, if it has another.
    asked: Option<Arc<TaskClass>>,
    deadline: Option<Time>,
    killed: Option<Killed>,
    /// The gang that it is the command of, and whose room it has.
    gang: Option<GangKey>,
    /// Rows that its own is among, and its place there.
    rows: Arc<Rows>,
    row: u64,
    link: Link,
}

/// How a started task stands to other started ones.
#[derive(Debug)]
enum Link {
    /// It has room of its own, or needs none.
    Alone,
    /// A call, among others that a worker makes one after the other.
    Call(Call),
    /// A process that runs; others may come after it.
    Leads(Leader),
    /// A process that comes after another, and does not run yet.
    Follows(Box<Follower>),
}

/// An executor's whole state.
#[derive(Debug)]
pub struct Executor {
    now: Time,
    incarnation: u64,
    name: String,
    room: Room,
    sizes: Sizes,
    connected: bool,
    /// The allocation that it runs in, if a provisioner asked for it.
    allocation: Option<AllocationId>,
    idle: IdleExit,
    doubts: Doubts,
    departure: Departure,
    templates: Templates,
    queue: VecDeque<Queued>,
    /// Most executors run few tasks.
    running: FewOrMany<TaskKey, Box<Running>>,
    deadlines: BTreeSet<(Time, TaskKey)>,
    chains: Chains,
    updates: Updates,
    overflows: Seldom<Overflows>,
    heartbeats: Heartbeats,
    startable: bool,
    /// The cache, and what tasks have to do with it.
    data: Option<Box<Data>>,
    collecting: Collecting,
    entrusting: Entrusting,
    entrusted: Entrusted,
    streams: Seldom<Streams>,
    gangs: Seldom<Gangs>,
    actions: VecDeque<Action>,
}

impl Executor {
    /// An executor that offers `capacity`. `incarnation` is drawn at random by
    /// the shell, once per process.
    #[must_use]
    pub fn new(incarnation: u64, name: String, capacity: Resources) -> Executor {
        Executor {
            now: Time::default(),
            incarnation,
            name,
            room: Room::new(capacity),
            sizes: Sizes::default(),
            connected: false,
            allocation: None,
            idle: IdleExit::default(),
            doubts: Doubts::default(),
            departure: Departure::default(),
            templates: Templates::default(),
            queue: VecDeque::new(),
            running: FewOrMany::default(),
            deadlines: BTreeSet::new(),
            chains: Chains::default(),
            updates: Updates::default(),
            overflows: Seldom::default(),
            heartbeats: Heartbeats::new(Time::default()),
            startable: false,
            data: None,
            collecting: Collecting::new(CollectOptions::default()),
            entrusting: Entrusting::default(),
            entrusted: Entrusted::new(CollectOptions::default().delay_micros_max),
            streams: Seldom::default(),
            gangs: Seldom::default(),
            actions: VecDeque::new(),
        }
    }

    /// The same executor, each of whose tasks has CPUs of its own among these.
    ///
    /// There are as many as it offers, or more.
    #[must_use]
    pub fn with_pinned_cpus(mut self, cpus: Vec<Cpu>) -> Executor {
        self.room.pin(cpus);
        self
    }

    /// Takes one event in.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.now = self.now.max(now);
        match event {
            Event::Connected => self.connect(),
            Event::Disconnected => {
                self.connected = false;
                self.updates.disconnected();
            }
            Event::Order(order) => self.take_order(order),
            Event::Ended { key, outcome, started, ended, detail } => {
                self.ended_or_doubted(End { key, outcome, started, ended, detail });
            }
            Event::Begun { key } => self.begun(key),
            Event::Returned { key, count } => self.returned(key, count),
            Event::TakenBack(key) => self.taken_back(key),
            Event::Unstarted(start) => self.unstarted(*start),
            Event::Wrote { key, sizes } => self.wrote(key, sizes),
            Event::Stage(event) => self.handle_stage(event),
            Event::Collect(event) => self.handle_collect(event),
            Event::Lease(lease) => {
                self.allocation = lease.allocation;
                let leaves_at = lease.leaves_in_micros.map(|micros| self.now.after(micros));
                self.departure.set_lease(leaves_at);
            }
            Event::Visited(visit, what) => self.visited(visit, what),
            Event::GangEnded { key, usage } => self.gang_ended(key, usage),
            Event::Leave => self.leave(),
        }
        self.note_work();
        self.note_alone();
        self.note_idle();
    }

    /// What to do next; `None` until the next event or timeout.
    pub fn poll_action(&mut self) -> Option<Action> {
        if let Some(action) = self.next_action() {
            return Some(action);
        }
        self.note_work();
        self.note_idle();
        self.actions.pop_front()
    }

    fn next_action(&mut self) -> Option<Action> {
        self.drain_stage();
        if self.actions.is_empty() && self.startable && !self.is_leaving() {
            self.startable = false;
            self.start_tasks();
            self.start_ahead();
            self.ask_for_one_here();
            self.drain_stage();
        }
        if self.actions.is_empty() && self.connected {
            if self.is_leaving() {
                // Tasks may still come from a dispatcher that does not know.
                self.give_back(u64::MAX);
                self.ask_for_dispatcher(u64::MAX);
                if self.departure.announce() {
                    self.updates.leaving();
                }
            }
            if let Some(update) = self.next_update() {
                self.heartbeats.spoke(self.now);
                return Some(Action::Update(update));
            }
        }
        if self.actions.is_empty() && self.may_go() {
            self.departure.complete();
            self.actions.push_back(Action::Left);
        }
        self.actions.pop_front()
    }

    /// The latest time that it knows of. A shell that takes over the clock of a
    /// dispatcher that is behind this goes on from here.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    fn connect(&mut self) {
        if self.connected {
            self.updates.disconnected();
        }
        self.connected = true;
        self.idle.restart();
        self.doubts.restart(self.now);
        self.departure.restart();
        self.heartbeats = Heartbeats::new(self.now);
        self.tell_data_anew();
        if !self.overflows.is_empty() {
            self.overflows.tell_anew();
        }
        self.collecting.tell_anew();
        self.entrusted.tell_anew();
        // Numbers of executors mean nothing in another session.
        self.collects(Collects::Itself);
        // The dispatcher may be another one: its template numbers mean nothing
        // any more. Tasks at hand keep theirs.
        for gone in self.templates.forget_all() {
            self.forget_template(gone);
        }
        // Where what tasks have written is must be known before they are
        // through: it comes with the first update.
        let (reports, unsent) = self.updates.connected(self.data.is_some());
        let mut held = unsent;
        held.extend(self.finishing());
        held.extend(self.collecting.held());
        held.extend(
            self.running.iter().filter(|(_, run)| run.killed != Some(Killed::Disowned)).map(
                |(key, run)| Held {
                    instance: key.instance,
                    first: key.task,
                    count: run.count,
                    tries: run.tries,
                },
            ),
        );
        self.hold_queued(&mut held);
        self.actions.push_back(Action::Join(Join {
            incarnation: self.incarnation,
            name: self.name.clone(),
            capacity: self.room.capacity().clone(),
            held,
            reports,
            serves: self.serves(),
            cache: self.cache_room(),
            lease: Lease {
                allocation: self.allocation,
                leaves_in_micros: self.departure.leaves_at().map(|at| at.since(self.now)),
            },
            gangs: self.gangs.keys(),
            alternatives: self.held_alternatives(),
        }));
        self.tell_gangs_anew();
    }

    /// Starts what fits: the front of the queue, and a little behind it if the
    /// front does not fit; once something has waited for long, nothing more
    /// goes past it.
    fn start_tasks(&mut self) {
        // What is not ready any more must not start: each word to the stage may
        // have that consequence.
        self.drain_stage();
        self.form_gangs();
        let mut at = 0;
        let mut passing = !self.gangs.are_waiting();
        while at < self.queue.len().min(BACKFILL_RUNS_MAX) && !self.is_laden() {
            let run = &self.queue[at];
            let instant = run.class.kind == Kind::Noop;
            // A disowned attempt may not have ended yet when the task comes
            // back.
            let again =
                self.is_running(run.instance, run.first, if instant { run.count } else { 1 });
            let in_gang = run.class.is_gang();
            let is_late = if in_gang { !self.has_formed(run) } else { !passing && !instant };
            if again || is_late {
                at += 1;
                continue;
            }
            let capacity = self.room.capacity();
            let mut sized = self.sizes.with_memory(run.instance, &run.class, run.tries, capacity);
            let mut class = Arc::clone(sized.as_ref().unwrap_or(&run.class));
            let mut fits = in_gang || self.room.fits(&class.resources);
            // Automatic CPUs are more than there are: what fits has none.
            if !fits && class.resources.cpus_milli == AUTO_CPUS {
                class = self.sizes.with_cpus(run.key(), &class, run.tries, capacity);
                fits = self.room.fits(&class.resources);
                sized = Some(Arc::clone(&class));
            }
            let need = &class.resources;
            if run.data.is_some() {
                let key = run.key();
                if !self.is_staged(key, fits || instant) {
                    at += 1;
                    continue;
                }
            }
            if in_gang {
                self.start_in_gang(at);
                self.drain_stage();
                continue;
            }
            if instant {
                let Some(run) = self.queue.remove(at) else { break };
                self.start_alone(run, Vec::new(), Grant::default());
                self.drain_stage();
                continue;
            }
            if !fits {
                let run = &mut self.queue[at];
                let since = *run.passed_since.get_or_insert(self.now);
                passing = self.now.since(since) < RESERVE_AFTER_MICROS;
                at += 1;
                continue;
            }
            let grant = self.room.take(need);
            let count = self.bundle(at);
            let Some(mut first) = self.take_queued(at, count.min(self.queue[at].count)) else {
                break;
            };
            if let Some(class) = sized {
                first.asked = Some(std::mem::replace(&mut first.class, class));
            }
            let more = self.take_more(at, &first, count - first.count);
            self.start_alone(first, more, grant);
            self.drain_stage();
        }
    }

    /// Whether any of these tasks is running.
    fn is_running(&self, instance: InstanceId, first: u64, count: u64) -> bool {
        let until = TaskKey { instance, task: TaskId(first + count) };
        self.running
            .range(..until)
            .next_back()
            .is_some_and(|(key, run)| key.instance == instance && key.task.0 + run.count > first)
    }

    /// Starts a task that has its room, and `more` calls behind it.
    fn start_alone(&mut self, run: Queued, more: Vec<Queued>, grant: Grant) {
        let key = run.key();
        let timed =
            run.class.timeout_micros > 0 && !matches!(run.class.kind, Kind::Noop | Kind::Function);
        let deadline = timed.then(|| self.now.after(run.class.timeout_micros));
        if let Some(at) = deadline {
            self.deadlines.insert((at, key));
        }
        self.order_start(&run, &more, &grant, None);
        let link = match run.class.kind {
            Kind::Process => Link::Leads(self.chains.lead(key)),
            Kind::Function => Link::Call(self.start_behind(&run, &more)),
            Kind::Noop | Kind::Sleep => Link::Alone,
        };
        let running = Running { deadline, ..Running::new(run, grant, link) };
        self.running.insert(key, Box::new(running));
    }

    /// Hands a task over to come after another in its room.
    fn start_after(&mut self, run: Queued, grant: Grant, before: TaskKey, follower: Follower) {
        self.order_start(&run, &[], &grant, Some(before));
        let (key, link) = (run.key(), Link::Follows(Box::new(follower)));
        self.running.insert(key, Box::new(Running::new(run, grant, link)));
    }

    fn order_start(
        &mut self,
        run: &Queued,
        more: &[Queued],
        grant: &Grant,
        after: Option<TaskKey>,
    ) {
        let key = run.key();
        let data = run.data.as_ref().and_then(|task| self.start_data(key, task));
        self.actions.push_back(Action::Start(Start {
            key,
            count: run.count,
            template: run.template,
            class: run.class.clone(),
            rows: run.rows.clone(),
            row: run.row,
            attempt: run.attempt(),
            grant: grant.clone(),
            data,
            after,
            more: more.iter().map(Queued::to_more).collect(),
            gang: self.gang_start(run),
        }));
    }
}

impl Running {
    /// A task that starts now. The calls of a run are started one by one.
    fn new(run: Queued, grant: Grant, link: Link) -> Running {
        Running {
            count: if run.class.kind == Kind::Function { 1 } else { run.count },
            tries: run.tries,
            template: run.template,
            class: run.class,
            grant,
            data: run.data,
            asked: run.asked,
            deadline: None,
            killed: None,
            gang: None,
            rows: run.rows,
            row: run.row,
            link,
        }
    }

    fn call(&self) -> Option<&Call> {
        if let Link::Call(call) = &self.link { Some(call) } else { None }
    }

    fn call_mut(&mut self) -> Option<&mut Call> {
        if let Link::Call(call) = &mut self.link { Some(call) } else { None }
    }

    fn leader(&self) -> Option<&Leader> {
        if let Link::Leads(leader) = &self.link { Some(leader) } else { None }
    }

    fn follower(&self) -> Option<&Follower> {
        if let Link::Follows(follower) = &self.link { Some(follower) } else { None }
    }
}
