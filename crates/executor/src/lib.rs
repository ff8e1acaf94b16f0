//! An executor as a service: a session with the dispatcher, processes through
//! the process host, functions through workers, timers for builtins, the core in the middle.

mod archives;
mod cache_repair;
mod cpus;
mod files;
mod folders;
pub mod gangs;
mod gpus;
mod granted;
mod not_started;
mod objects;
mod outputs;
mod parts;
mod sandboxes;
mod scratch;
mod session;
mod tasks;
mod values;
mod visits;
mod watchdog;
mod workers;

use falkon_core::dispatch::Lease;
use falkon_core::execute::{Action, Event, Executor};
use falkon_core::part::PartAnswer;
use falkon_core::task::{AllocationId, Resources, Time};
use falkon_data::overflow::OverflowDirectory;
use falkon_net::clock::{Alarm, Clock};
use falkon_net::secure::{AccessFile, ConnectError, FrameReader, FrameWriter};
use falkon_net::spin::{AdaptiveSpin, Spin};
use falkon_process::{Ended, Forked, HostError};
use falkon_wire::message::{FromExecutor, ToExecutor};
use objects::Objects;
use objects::message::FromObjects;
use outputs::Outputs;
use parts::Parts;
use session::{FromSession, SESSION_MESSAGES_MAX, Session, Voice, keep_connected, said};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tasks::Tasks;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use watchdog::{Position, WaitPoint, Watchdog};

pub use cpus::PinError;
use falkon_net::Log;
pub use objects::{CacheSetup, CacheSetupError};
pub use scratch::disk_offer;
pub use workers::WorkerOptions;

/// How long an executor that leaves waits for its connection to close, in
/// milliseconds.
const FAREWELL_MS: u64 = 500;
/// The default time within which file systems must answer.
pub const FILE_LIMIT: Duration = Duration::from_secs(60);

/// The options of an executor.
pub struct Options {
    /// For people: host and process.
    pub name: String,
    /// The resources that it offers.
    pub capacity: Resources,
    /// Where tasks with data objects, and those that claim disk space, have their directories.
    pub scratch: PathBuf,
    /// Where output goes that is too long to be sent.
    pub overflow: OverflowDirectory,
    /// Bytes of each output stream that are sent, at most
    /// [`CAPTURE_BYTES_MAX`](falkon_core::limits::CAPTURE_BYTES_MAX).
    pub capture_bytes_max: u64,
    /// How functions are called.
    pub workers: WorkerOptions,
    /// The longest time without a dispatcher; without a limit if `None`.
    pub give_up: Option<Duration>,
    /// How long a file system may take to answer before a task that needs it
    /// fails here.
    pub file_limit: Duration,
    /// Where log lines go.
    pub log: Log,
    /// The cache; without one, tasks with data objects fail here.
    pub cache: Option<CacheSetup>,
    /// How tasks are held to their memory limits.
    pub memory_limits: MemoryLimits,
    /// Whether each task runs on CPUs of its own.
    pub pin: bool,
    /// By whose leave it is here, and for how long.
    pub tenure: Tenure,
    /// The process host, if it is there already, with a template of which Python workers are
    /// copies.
    pub forked: Option<Forked>,
}

impl Options {
    /// An executor that offers `capacity`, sends no output with results, has no cache, never
    /// leaves by itself and logs nothing.
    #[must_use]
    pub fn new(
        name: String,
        capacity: Resources,
        scratch: PathBuf,
        overflow: OverflowDirectory,
    ) -> Options {
        Options {
            name,
            capacity,
            scratch,
            overflow,
            capture_bytes_max: 0,
            workers: WorkerOptions::default(),
            give_up: None,
            file_limit: FILE_LIMIT,
            log: Arc::new(|_: &str| {}),
            cache: None,
            memory_limits: MemoryLimits::default(),
            pin: false,
            tenure: Tenure::default(),
            forked: None,
        }
    }
}

/// How an executor holds tasks to their memory limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemoryLimits {
    /// By control groups where it may make some, and by looking at their processes from time to
    /// time.
    #[default]
    Auto,
    /// By looking at their processes alone.
    Watch,
    /// Not at all.
    Off,
}

/// By whose leave an executor is on its node, and for how long.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tenure {
    /// The allocation that it runs in, if a provisioner asked for it.
    pub allocation: Option<AllocationId>,
    /// The time at which it leaves, whether tasks run or not. The dispatcher
    /// knows it, and sends no task that is known to take longer.
    pub ends: Option<std::time::Instant>,
    /// The idle time after which it leaves.
    pub idle: Option<Duration>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How an executor reaches its dispatcher.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one per executor")]
pub enum Link {
    /// Over the network, again and again.
    Access {
        /// Where the dispatcher is.
        access: Box<AccessFile>,
        /// The address of this machine to connect from; `None` leaves it to the
        /// system.
        source: Option<IpAddr>,
    },
    /// Within the process, once.
    Here(Box<(FrameReader, FrameWriter)>),
}

/// Why an executor ended other than by request.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The dispatcher cannot be reached, or refuses the executor for good.
    #[error(transparent)]
    Connect(ConnectError),
    /// The dispatcher was not reached for too long.
    #[error("the dispatcher was not reached for {} s", .0.as_secs())]
    GaveUp(Duration),
    /// The process host cannot be started.
    #[error(transparent)]
    Host(HostError),
    /// The cache cannot be used.
    #[error(transparent)]
    Cache(CacheSetupError),
    /// Tasks cannot be pinned.
    #[error(transparent)]
    Pin(PinError),
    /// The dispatcher refuses the executor; why.
    #[error("the dispatcher refuses it: {0}")]
    Refused(String),
    /// The link within the process is gone.
    #[error("the dispatcher has ended")]
    Over,
}

/// Runs an executor until `leave` is signalled, or it cannot continue.
///
/// # Errors
/// The dispatcher is out of reach or refuses, or processes cannot be run.
pub async fn run(
    mut options: Options,
    link: Link,
    mut leave: oneshot::Receiver<()>,
) -> Result<(), ExecutorError> {
    let mut random = [0; 8];
    // Without randomness a number from the clock will do: it only has to
    // differ from other executors of this dispatcher.
    if getrandom::fill(&mut random).is_err() {
        random = Clock::start().now().0.to_le_bytes();
    }
    let incarnation = u64::from_le_bytes(random).max(1);
    let idle_micros = options.tenure.idle.map(|idle| idle.as_micros() as u64);
    let mut core = Executor::new(incarnation, options.name.clone(), options.capacity.clone())
        .with_idle_exit(idle_micros);
    if options.pin {
        let cpus = cpus::pinned(options.capacity.cpus_milli).map_err(ExecutorError::Pin)?;
        core = core.with_pinned_cpus(cpus);
    }
    let position = Position::new();
    let outputs = Outputs::new(options.overflow.clone(), incarnation, position.clone());
    let mut objects = None;
    if let Some(setup) = &options.cache {
        let opened = Objects::open(setup, &options, incarnation, position.clone());
        let (mut opened, stage, reused) = opened.map_err(ExecutorError::Cache)?;
        let serves = match &link {
            Link::Access { access, source } => access
                .addresses
                .first()
                .and_then(|dispatcher| opened.listen(dispatcher, *source, access.level)),
            Link::Here(_) => None,
        };
        // A cache without other readers is a cache all the same.
        let serves = Some(serves.unwrap_or_default());
        let recorded: Vec<_> = reused.iter().map(|found| found.recorded).collect();
        core = core.with_cache(&stage, &recorded, serves).with_collector(setup.collect);
        core = core.with_placed(reused.into_iter().map(|found| found.object));
        objects = Some(opened);
    }
    let mut driver = Driver {
        core,
        clock: Clock::start(),
        tasks: Tasks::new(&mut options, incarnation, outputs, objects, position.clone()),
        session: None,
        say: Vec::new(),
        reported: false,
        left: false,
        refused: None,
        parts: Parts::default(),
        tenure: options.tenure,
    };
    let (sessions, mut connected) = mpsc::channel(1);
    let voice = Voice::default();
    let names = places(&options);
    let (limit, log) = (options.file_limit, options.log.clone());
    let _watchdog = Watchdog::start(position.clone(), voice.clone(), limit, names, log);
    let connector = keep_connected(link, options.give_up, options.log, voice, sessions);
    let mut connector = tokio::spawn(connector);
    let mut leaving = false;
    let mut ended = Vec::new();
    let mut adaptive = AdaptiveSpin::new();
    let mut alarm = Alarm::new();
    while !driver.left && driver.refused.is_none() {
        let due = driver.due();
        // With nothing to do after a report, the next task may come at once.
        let idle = std::mem::take(&mut driver.reported) && driver.core.load() == (0, 0);
        let mut spin = if idle { adaptive.begin() } else { Spin::none() };
        position.leave();
        let woken = tokio::select! {
            biased;
            _ = &mut leave, if !leaving => Woken::Leave,
            said = said(&mut driver.session) => Woken::Session(said),
            session = connected.recv(), if driver.session.is_none() => Woken::Connected(session),
            said = driver.tasks.recv_either(&mut ended, &driver.clock) => Woken::Tasks(said),
            // A timer would round a sleep of no time up to a millisecond.
            () = tokio::task::yield_now(), if driver.has_woken() => Woken::Due,
            () = alarm.wait(due) => Woken::Tasks(None),
            () = spin.keep() => Woken::Due,
        };
        position.enter();
        match woken {
            Woken::Leave => {
                leaving = true;
                driver.core.handle(driver.clock.now(), Event::Leave);
                if driver.session.is_none() {
                    break;
                }
            }
            Woken::Session(said) => driver.hear(said),
            Woken::Connected(Some(session)) => driver.session = Some(session),
            Woken::Connected(None) => break,
            Woken::Tasks(said) => driver.take_ended(&mut ended, said),
            Woken::Due => {}
        }
        if idle {
            adaptive.end(&spin);
        }
        driver.turn().await.map_err(ExecutorError::Host)?;
    }
    position.leave();
    driver.tasks.stop();
    if let Some(stage) = driver.core.stage() {
        let recorded = stage.cache().recorded().collect();
        if let Some(objects) = driver.tasks.objects() {
            objects.record(recorded);
        }
    }
    if let Some(reason) = driver.refused {
        connector.abort();
        return Err(ExecutorError::Refused(reason));
    }
    if driver.core.is_leaving() {
        if driver.session.take().is_some() {
            drop(connected);
            // The session says farewell, unless the connection hangs.
            let farewell = Duration::from_millis(FAREWELL_MS);
            let _ = tokio::time::timeout(farewell, &mut connector).await;
        }
        connector.abort();
        return Ok(());
    }
    match connector.await {
        Ok(Err(error)) => Err(error),
        _ => Ok(()),
    }
}

/// Names for the log of the places that the driver may wait for.
fn places(options: &Options) -> impl Fn(WaitPoint) -> String + Send + 'static {
    let cache = options.cache.iter().flat_map(|setup| &setup.directories);
    let cache: Vec<String> = cache.map(|(path, _)| path.display().to_string()).collect();
    let (cache, sandboxes) = (cache.join(" or "), options.scratch.display().to_string());
    let overflow = options.overflow.path().display().to_string();
    move |place| match place {
        WaitPoint::Cache => format!("the file system of the cache, {cache},"),
        WaitPoint::Sandboxes => format!("the file system of the tasks' directories, {sandboxes},"),
        WaitPoint::Overflow => format!("the file system of long output, {overflow},"),
        WaitPoint::Host => "the process that starts tasks".to_owned(),
    }
}

/// The reasons for which the driver wakes.
enum Woken {
    Leave,
    Session(FromSession),
    Connected(Option<Session>),
    Tasks(Option<FromObjects>),
    Due,
}

struct Driver {
    core: Executor,
    clock: Clock,
    tasks: Tasks,
    session: Option<Session>,
    /// Messages that the session's writer has no room for yet.
    say: Vec<FromExecutor>,
    /// Ends were reported in this turn.
    reported: bool,
    left: bool,
    /// Why the dispatcher does not take it in.
    refused: Option<String>,
    /// Parts of objects that come or go through the dispatcher.
    parts: Parts,
    tenure: Tenure,
}

impl Driver {
    /// The time that this executor stays, for the dispatcher.
    fn lease(&self) -> Lease {
        let left = |ends: std::time::Instant| {
            ends.saturating_duration_since(std::time::Instant::now()).as_micros() as u64
        };
        Lease { allocation: self.tenure.allocation, leaves_in_micros: self.tenure.ends.map(left) }
    }

    /// Whether a sleep is over.
    fn has_woken(&self) -> bool {
        self.tasks.next_timer().is_some_and(|at| at <= self.clock.now())
    }

    fn due(&self) -> Option<Instant> {
        let due = [self.core.poll_timeout().map(|(at, _)| at), self.tasks.next_timer()];
        let due = due.into_iter().flatten().min().map(|at| self.clock.instant(at));
        due.into_iter().chain(self.tasks.next_look().map(Into::into)).min()
    }

    fn hear(&mut self, said: FromSession) {
        match said {
            FromSession::Said(messages) => {
                for message in messages {
                    match message {
                        ToExecutor::Welcome { now, peer_secret } => {
                            self.set_clock(now);
                            if let (Some(objects), Some(secret)) =
                                (self.tasks.objects(), peer_secret)
                            {
                                objects.set_secret(secret.0);
                            }
                            self.core.handle(self.clock.now(), Event::Lease(self.lease()));
                            self.core.handle(self.clock.now(), Event::Connected);
                        }
                        ToExecutor::Refused { reason } => self.refused = Some(reason),
                        // It gets no nodes.
                        ToExecutor::Unmet { .. }
                        | ToExecutor::AskTail { .. }
                        | ToExecutor::ReadOutput { .. } => {}
                        ToExecutor::ReadPart { number, question } => match self.tasks.objects() {
                            Some(objects) => objects.read_part(number, question),
                            None => self.parts.said(number, PartAnswer::Gone, &mut self.say),
                        },
                        ToExecutor::Part { number, answer } => self.parts.told(number, answer),
                        ToExecutor::Order(order) => {
                            self.core.handle(self.clock.now(), Event::Order(order));
                        }
                    }
                }
            }
            FromSession::Ended => {
                self.session = None;
                self.say.clear();
                self.parts.cut();
                self.core.handle(self.clock.now(), Event::Disconnected);
            }
        }
    }

    /// Takes over the dispatcher's clock; timers under way keep their length. A
    /// dispatcher that comes back with an earlier one is followed no further
    /// than to the latest time here, or heartbeats would come late.
    fn set_clock(&mut self, now: Time) {
        let before = self.clock.now();
        let now = now.max(self.core.now());
        self.clock = Clock::reading(now);
        self.tasks.shift_timers(before, now);
    }

    fn take_ended(&mut self, ended: &mut Vec<Ended>, said: Option<FromObjects>) {
        self.tasks.hear_workers(&self.clock);
        let now = self.clock.now();
        let said = said.and_then(|said| {
            self.parts.take(said, self.session.is_some().then_some(&mut self.say))
        });
        if let Some(event) = said.and_then(|said| self.tasks.take_objects(now, said)) {
            self.tell_core(now, event);
        }
        for ended in ended.drain(..) {
            if let Some(event) = self.tasks.ended(ended, &self.clock) {
                self.tell_core(now, event);
            }
        }
    }

    /// Passes on what has become of tasks.
    fn tell_core(&mut self, now: Time, event: Event) {
        let event = self.tasks.with_stream_places(event);
        self.core.handle(now, event);
    }

    /// Lets the core act until it has nothing more to do, then passes on what
    /// it wants done.
    async fn turn(&mut self) -> Result<(), HostError> {
        loop {
            let now = self.clock.now();
            if self.core.poll_timeout().is_some_and(|(at, _)| at <= now) {
                self.core.handle_timeout(now);
            }
            while let Some(event) = self.tasks.expired(now) {
                self.tell_core(now, event);
            }
            while self.say.len() < SESSION_MESSAGES_MAX {
                let Some(action) = self.core.poll_action() else { break };
                self.act(action);
            }
            self.tasks.launch(&self.clock).await?;
            self.speak().await;
            match self.tasks.next_event() {
                Some(event) => self.tell_core(now, event),
                None => {
                    debug_assert!(
                        self.tasks.has_handed_over(),
                        "something waits to be handed over"
                    );
                    return Ok(());
                }
            }
            while let Some(event) = self.tasks.next_event() {
                self.tell_core(now, event);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Join(join) => self.say.push(FromExecutor::Join(join)),
            Action::Update(update) => {
                self.reported |= !update.reports.is_empty();
                self.say.push(FromExecutor::Update(update));
            }
            Action::Prepare { template, bytes } => self.tasks.prepare(template, &bytes),
            Action::Forget(template) => self.tasks.forget(template),
            Action::Start(start) => self.tasks.start(start, &self.clock),
            Action::TakeBack(key) => self.tasks.take_back(key, &self.clock),
            Action::Kill { key, grace_micros } => self.tasks.kill(key, grace_micros, &self.clock),
            Action::Stage(action) => {
                if let Some(objects) = self.tasks.objects() {
                    objects.act(action);
                }
            }
            Action::Peers(peers) => {
                if let Some(objects) = self.tasks.objects() {
                    objects.set_peers(peers);
                }
            }
            Action::VisitEnded(visit, end) => {
                if let Some(objects) = self.tasks.objects() {
                    objects.visit_ended(visit, end);
                }
            }
            Action::Gang(action) => self.tasks.act_on_gang(action, &self.clock),
            Action::Collect(action) => self.tasks.collect(action),
            Action::Clear(key) => {
                if let Some(objects) = self.tasks.objects() {
                    objects.clear(key);
                }
            }
            Action::Discard(runs) => self.tasks.outputs().discard(&runs),
            Action::Left => self.left = true,
        }
    }

    async fn speak(&mut self) {
        let Some(session) = &self.session else {
            self.say.clear();
            return;
        };
        for message in self.say.drain(..) {
            // A session that has ended is noticed when it is next read.
            if session.say.send(Box::new(message)).await.is_err() {
                break;
            }
        }
    }
}
