//! The provisioner's shell, within a dispatcher's process.
//!
//! The core decides what is requested from which scheduler
//! ([`falkon_core::provision`]). Drivers perform its actions here, each in a
//! task of its own, so that a scheduler that hangs delays no other; the
//! outcomes go back as events. Queues, and the numbers of allocations, outlive
//! a restart in a file; the jobs are found again by their names.

mod ask;
pub mod config;
mod local_machine;
pub mod lrm;
mod perform;
mod record;

use crate::lrm::{Driver, Executor};
use ask::Line;
use config::{ConfigError, QueueConfig};
use falkon_core::dispatch::Dispatcher;
use falkon_core::provision::{
    Action, Decision, Event, Found, JobState, Provisioner, QueueId, QueueView, Reason, Verdict,
    Watch,
};
use falkon_core::task::{AllocationId, ExecutorId, Time};
use falkon_net::Log;
use record::{Record, StoredQueue};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Semaphore, mpsc};

pub use ask::AskError;
pub use record::{RecordError, check_record};

/// Answers of drivers waiting to be taken in; drivers wait beyond that.
const ANSWERS_MAX: usize = 256;
/// Commands that change something, of one queue at a time.
const QUEUE_COMMANDS_MAX: usize = 4;
/// Lines of the log that are kept.
const LOG_LINES_MAX: usize = 1000;
/// The number of allocations whose jobs' output is kept.
const JOB_LOGS_MAX: u64 = 100;
/// Lines about what a scheduler says of one job.
const JOB_LINES_MAX: u8 = 8;
/// How often the dispatcher is looked at when nothing happens.
const LOOK_MICROS_MAX: u64 = 1_000_000;

/// The consequence for a queue whose change is not on disk.
const FORGOTTEN: &str = "this is forgotten with the dispatcher";
/// The consequence for a queue that is removed, but for the disk.
const BACK: &str = "it comes back with a restart";

/// The options of a provisioner.
#[derive(Debug)]
pub struct Setup {
    /// The provisioner's directory: the record, files for schedulers, output of
    /// jobs.
    pub dir: PathBuf,
    /// The settings with which executors are started.
    pub executor: Executor,
    /// Names the dispatcher in the names of its jobs: letters and digits.
    pub tag: String,
    /// The dispatcher can be reached from its own machine alone.
    pub loopback: bool,
    /// Queues to begin with, by name, where they are not known yet.
    pub queues: Vec<(String, String)>,
}

/// Why a provisioner cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The directory cannot be made.
    #[error("cannot make {path}: {source}")]
    Directory {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The record cannot be used.
    #[error(transparent)]
    Record(RecordError),
    /// A queue to begin with cannot be.
    #[error("queue {name}: {source}")]
    Queue {
        /// The name.
        name: String,
        /// Why.
        source: AskError,
    },
}

/// A queue.
#[derive(Debug)]
struct Queue {
    stored: StoredQueue,
    driver: Arc<Driver>,
    /// Commands of it that change something.
    commands: Arc<Semaphore>,
}

/// The messages of tasks that perform actions.
#[derive(Debug)]
enum Heard {
    /// An answer.
    Event(Event),
    /// Something for the log.
    Note(QueueId, String),
    /// Something for the log about the queue of this name.
    Line(String, String),
    /// Why the scheduler says that jobs are as they are.
    Words(QueueId, Vec<(AllocationId, String)>),
}

/// A provisioner and what belongs to it.
pub struct Provision {
    machine: Provisioner,
    watch: Watch,
    /// When the dispatcher is next looked at if nothing happens before.
    look_at: Time,
    queues: BTreeMap<QueueId, Queue>,
    next_queue: u32,
    record: Arc<Mutex<Record>>,
    setup: Setup,
    lines: VecDeque<Line>,
    /// Queues, and what was said of them since somebody asked.
    said: Vec<(String, String)>,
    /// Allocations of which an executor has come.
    joined: BTreeSet<AllocationId>,
    /// Allocations to whose nodes the program was sent.
    staged_binaries: BTreeSet<AllocationId>,
    /// The scheduler's last message about jobs without an executor, and the
    /// number of log lines about it.
    words: BTreeMap<AllocationId, (String, u8)>,
    tell: mpsc::Sender<Heard>,
    answers: mpsc::Receiver<Heard>,
    log: Log,
}

impl fmt::Debug for Provision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provision").field("queues", &self.queues).finish_non_exhaustive()
    }
}

/// The requests of the provisioner to the dispatcher.
pub struct Wishes {
    /// Executors that are to leave.
    pub release: Vec<ExecutorId>,
}

impl Provision {
    /// Opens the record, and takes up the queues that it names.
    pub fn open(setup: Setup, now: Time, log: Log) -> Result<Provision, SetupError> {
        std::fs::create_dir_all(&setup.dir)
            .map_err(|source| SetupError::Directory { path: setup.dir.clone(), source })?;
        // A directory service may take its time: nothing waits for this process
        // yet.
        let _ = crate::lrm::user_name();
        let record = Record::open(&setup.dir).map_err(SetupError::Record)?;
        let (tell, answers) = mpsc::channel(ANSWERS_MAX);
        let stored = record.queues().to_vec();
        let mut provision = Provision {
            machine: Provisioner::new(AllocationId(record.next())),
            watch: Watch::default(),
            look_at: now,
            queues: BTreeMap::new(),
            next_queue: 0,
            record: Arc::new(Mutex::new(record)),
            setup,
            lines: VecDeque::new(),
            said: Vec::new(),
            joined: BTreeSet::new(),
            staged_binaries: BTreeSet::new(),
            words: BTreeMap::new(),
            tell,
            answers,
            log,
        };
        for queue in stored {
            let name = queue.name.clone();
            // A queue that another release wrote may not be valid here: that is
            // no reason to end, and the queue stays in the record.
            match provision.take_up(now, queue) {
                Ok(queue) => provision.recover(now, queue),
                Err(error) => provision.say(now, &name, format!("cannot be used: {error}")),
            }
        }
        for (name, config) in std::mem::take(&mut provision.setup.queues) {
            if provision.find(&name).is_ok() {
                provision.say(now, &name, "exists already, unchanged".to_owned());
                continue;
            }
            let added = provision.add(now, &name, config);
            added.map_err(|source| SetupError::Queue { name, source })?;
        }
        Ok(provision)
    }

    /// Makes a queue of what is known of it.
    fn take_up(&mut self, now: Time, stored: StoredQueue) -> Result<QueueId, ConfigError> {
        let config = QueueConfig::parse(&stored.config)?;
        let driver = config.driver(&self.setup.executor, &self.setup.tag, &self.setup.dir)?;
        let driver = driver.named(&stored.name);
        let options = config.options(&stored.name, &driver)?;
        let queue = QueueId(self.next_queue);
        self.next_queue += 1;
        self.machine.handle(now, Event::Add { queue, options: Box::new(options) });
        if stored.paused {
            self.machine.handle(now, Event::Pause { queue });
        }
        if stored.removing {
            self.machine.handle(now, Event::Remove { queue });
        }
        let commands = Arc::new(Semaphore::new(QUEUE_COMMANDS_MAX));
        self.queues.insert(queue, Queue { stored, driver: Arc::new(driver), commands });
        Ok(queue)
    }

    /// A queue was there before a restart: so may its jobs be.
    fn recover(&mut self, now: Time, queue: QueueId) {
        let name = self.name(queue);
        let found = self.recorded(|record| {
            let own = record.allocations().iter().filter(|one| one.queue == name);
            own.map(|one| Found {
                queue,
                allocation: AllocationId(one.id),
                job: one.job.clone().unwrap_or_default(),
                state: JobState::Unknown,
                nodes: one.nodes,
                until: None,
                words: String::new(),
            })
            .collect()
        });
        self.machine.handle(now, Event::Recovered { queue, found });
    }

    /// The next answer of a driver. Cancellation loses nothing.
    pub async fn hear(&mut self) -> Answer {
        match self.answers.recv().await {
            Some(heard) => Answer(heard),
            // There is always a sender: ours.
            None => std::future::pending().await,
        }
    }

    /// Another answer, if it is there.
    pub fn hear_now(&mut self) -> Option<Answer> {
        self.answers.try_recv().ok().map(Answer)
    }

    /// Takes in an answer.
    pub fn take(&mut self, now: Time, answer: Answer) {
        match answer.0 {
            Heard::Event(event) => {
                if let Event::States { queue, found } = &event {
                    self.stage_binaries(*queue, found);
                }
                self.machine.handle(now, event);
            }
            Heard::Note(queue, text) => {
                let name = self.name(queue);
                self.say(now, &name, text);
            }
            Heard::Line(name, text) => self.say(now, &name, text),
            Heard::Words(queue, said) => self.hear_words(now, queue, said),
        }
    }

    /// Logs what a scheduler says of jobs of which no executor has come, when it
    /// says something new.
    fn hear_words(&mut self, now: Time, queue: QueueId, said: Vec<(AllocationId, String)>) {
        let name = self.name(queue);
        for (allocation, words) in said {
            let is_ours = |queue: &QueueView<'_>| {
                queue.allocations().any(|one| one.id() == allocation && one.executors() == 0)
            };
            if self.joined.contains(&allocation)
                || !self.machine.queue_view(queue).as_ref().is_some_and(is_ours)
            {
                continue;
            }
            let (last, lines) = self.words.entry(allocation).or_default();
            if *last == words || *lines >= JOB_LINES_MAX {
                continue;
            }
            *lines += 1;
            last.clone_from(&words);
            self.say(now, &name, format!("allocation {allocation}: the scheduler says: {words}"));
        }
    }

    /// When it next wants its turn.
    pub fn due(&self) -> Option<Time> {
        if self.queues.is_empty() {
            return None;
        }
        let timeout = self.machine.poll_timeout().map(|(at, _)| at);
        Some(timeout.map_or(self.look_at, |at| at.min(self.look_at)))
    }

    /// Looks at the dispatcher, lets the core decide, and begins to carry out
    /// what it wants. `busy`: something has happened at the dispatcher.
    pub fn turn(&mut self, now: Time, dispatcher: &mut Dispatcher, busy: bool) -> Wishes {
        let mut wishes = Wishes { release: Vec::new() };
        if self.queues.is_empty() {
            dispatcher.set_obtainable(Vec::new());
            return wishes;
        }
        if self.watch.due() <= now {
            for event in self.watch.look(now, dispatcher) {
                if let Event::ExecutorJoined { allocation: Some(allocation), .. } = &event {
                    self.joined.insert(*allocation);
                }
                self.machine.handle(now, event);
            }
            self.look_at = now.after(LOOK_MICROS_MAX);
        } else if busy {
            // Changes since the last look are seen soon.
            self.look_at = self.look_at.min(self.watch.due());
        }
        if self.machine.poll_timeout().is_some_and(|(at, _)| at <= now) {
            self.machine.handle_timeout(now);
        }
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Release { executor } => wishes.release.push(executor),
                Action::Decided(decision) => self.decided(now, &decision),
                Action::Removed { queue } => self.removed(now, queue),
                other => self.perform(now, other),
            }
        }
        dispatcher.set_obtainable(self.machine.obtainable());
        wishes
    }

    fn name(&self, queue: QueueId) -> String {
        self.queues.get(&queue).map_or_else(String::new, |queue| queue.stored.name.clone())
    }

    fn find(&self, name: &str) -> Result<QueueId, AskError> {
        let found = self.queues.iter().find(|(_, queue)| queue.stored.name == name);
        found.map(|(id, _)| *id).ok_or_else(|| AskError::NoQueue(name.to_owned()))
    }

    /// Queues, and what was decided or heard of them since this was last called.
    pub fn take_said(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.said)
    }

    /// Logs a line about a queue.
    fn say(&mut self, now: Time, queue: &str, text: String) {
        (self.log)(&format!("provisioner: queue {queue}: {text}"));
        if self.lines.len() >= LOG_LINES_MAX {
            self.lines.pop_front();
        }
        if self.said.len() < LOG_LINES_MAX {
            self.said.push((queue.to_owned(), text.clone()));
        }
        self.lines.push_back(Line { at: now, queue: queue.to_owned(), text });
    }

    fn decided(&mut self, now: Time, decision: &Decision) {
        let name = self.name(decision.queue);
        self.say(now, &name, format!("{}: {}", decision.verdict, decision.reason));
        let queue = decision.queue;
        match &decision.verdict {
            Verdict::Ended { allocation } => {
                self.ended(queue, *allocation, decision.reason != Reason::Missing);
            }
            // A queue that paused itself stays so until a user resumes it, also
            // over a restart.
            Verdict::Pause => self.keep(now, queue, |stored| stored.paused = true),
            Verdict::Resume => self.keep(now, queue, |stored| stored.paused = false),
            _ => {}
        }
    }

    /// Changes what is kept of a queue.
    fn keep(&mut self, now: Time, id: QueueId, change: impl FnOnce(&mut StoredQueue)) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let before = queue.stored.clone();
        change(&mut queue.stored);
        let (name, stored) = (queue.stored.name.clone(), queue.stored.clone());
        if stored == before {
            return;
        }
        if let Err(error) = self.record_queue(&name, Some(stored)) {
            self.say(now, &name, format!("{FORGOTTEN}: {error}"));
        }
    }

    /// Has it recorded what a queue is; the log says so if that cannot be written.
    fn record_queue(&self, name: &str, stored: Option<StoredQueue>) -> Result<(), RecordError> {
        let consequence = if stored.is_some() { FORGOTTEN } else { BACK };
        let writing = self.recorded(|record| record.set(name, stored))?;
        let (name, tell) = (name.to_owned(), self.tell.clone());
        tokio::spawn(async move {
            if let Err(why) = writing.done().await {
                let text = format!("{consequence}: {why}");
                // The receiver is gone when the dispatcher ends.
                let _ = tell.send(Heard::Line(name, text)).await;
            }
        });
        Ok(())
    }

    /// Changes the record in memory: its lock is not held while it is written.
    fn recorded<R>(&self, change: impl FnOnce(&mut Record) -> R) -> R {
        change(&mut self.record.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn removed(&mut self, now: Time, id: QueueId) {
        let name = self.name(id);
        self.queues.remove(&id);
        let text = match self.record_queue(&name, None) {
            Ok(()) => "is removed, with all of its allocations".to_owned(),
            Err(error) => format!("is removed; {BACK}: {error}"),
        };
        self.say(now, &name, text);
    }
}

/// An answer of a driver.
#[derive(Debug)]
pub struct Answer(Heard);
