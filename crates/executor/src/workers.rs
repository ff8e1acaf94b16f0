//! Language workers: processes that load once and make one call after another.
//!
//! Calls come in bundles ([`falkon_core::execute`]), and a worker has one
//! bundle at a time. Three things are shared with it, so that a death or a
//! long call costs no other call anything:
//! - a socket, for bundles and answers;
//! - a *buffer* in memory, where its answers wait to be sent: what it has
//!   answered survives it;
//! - a pipe of *claims*, a byte for each call of its bundle. It takes one
//!   before each call; the executor takes what is left when a call turns out
//!   to be long, or must be killed, and gives those calls back to the core.
//!   Reading from a pipe is atomic, so each call is made by one of the two.

mod bundle;
mod connection;
mod end;
mod outcome;
mod program;
mod protocol;
mod restart;
mod template;
mod worker;

pub(super) use bundle::{Bundle, Call, Home, in_directory, texts_payload};
pub(super) use connection::Heard;

use super::not_started::Reason;
use super::outputs::Outputs;
use super::values::Left;
use connection::{accept, converse};
use falkon_core::execute::Event;
use falkon_core::result::{Cause, Detail, Outcome, Stream};
use falkon_core::task::{InstanceId, TaskKey, Time};
use falkon_net::clock::Clock;
use falkon_process::{Launch, Source};
use falkon_wire::command::Command;
use falkon_wire::hidden::Hidden;
use outcome::ended_call;
use program::Folder;
use protocol::{Answers, FromWorker, Setup};
use restart::Restarts;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use template::Templates;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use worker::Worker;

/// Numbers of workers among those of processes.
const WORKER_LAUNCHES: u64 = 1 << 63;
/// How far a worker is is looked at so often while it has several calls.
const LOOK_MS: u64 = 10;
/// The time that a worker keeps its calls without having begun one, as on a
/// processor that has other work.
const BEGIN_MS_MAX: u64 = 1000;
/// The idle time after which a worker beyond one for each slot ends.
const SURPLUS_IDLE_MS: u64 = 1000;
/// How long a worker's connection may outlive its process.
const CLOSE_MS_MAX: u64 = 1000;
/// How often a worker's memory is looked at.
const MEMORY_LOOK_MS: u64 = 100;
/// The time for which calls fail at once after a worker could not be started.
const START_RETRY_MS: u64 = 1000;
/// Time for a worker that is not needed any more to end.
const RETIRE_MS: u64 = 2000;
/// The output of a worker before it takes calls is kept up to this, for errors.
const START_CAPTURE_BYTES: u64 = 16 << 10;
/// Time for a worker to start and to load what it preloads.
const START_SECONDS_MAX: u64 = 600;
/// Longest value; results travel in messages of bounded size.
const VALUE_BYTES_MAX: usize = falkon_core::limits::VALUE_BYTES_MAX as usize;
/// Messages of workers that are not handled yet.
const HEARD_MAX: usize = 1024;

/// How workers are started and how long they are kept.
#[derive(Debug, Clone, Default)]
pub struct WorkerOptions {
    /// Languages and the commands that start their workers. For `python` the
    /// command is an interpreter, to which the worker's program is passed;
    /// `python3` by default.
    pub commands: Vec<(String, Vec<String>)>,
    /// Modules that each worker loads before its first call.
    pub preload: Vec<String>,
    /// The number of calls after which a worker is replaced; 0 is never.
    pub calls_max: u64,
    /// A worker that holds more memory after a call is replaced; in bytes, 0
    /// is no limit.
    pub memory_bytes_max: u64,
    /// Workers make calls of any instance, instead of one instance each.
    pub shared: bool,
    /// A folder that the client of this executor reads and writes too: for
    /// arguments and values that are too large to travel with calls.
    pub objects: Option<PathBuf>,
    /// Modules, separated by commas, that the first calls are expected to need: workers start
    /// before there are calls.
    pub foreseen: Option<String>,
    /// Where the folder is made that workers are started from, if not where temporary files go:
    /// what a process that is killed leaves there, others remove.
    pub scratch: Option<PathBuf>,
}

/// Why no worker can be started.
#[derive(Debug, thiserror::Error)]
enum WorkerError {
    /// A worker's token cannot be drawn.
    #[error("the system provides no random numbers for a worker")]
    Random,
    /// The folder for workers cannot be made.
    #[error(
        "cannot make the folder {} for workers: {source} (set TMPDIR to one that can be written)",
        .path.display()
    )]
    Folder { path: PathBuf, source: std::io::Error },
    /// The socket at which workers report cannot be made.
    #[error(
        "cannot make the socket {} for workers: {source} (if the path is long, set TMPDIR to a \
         shorter one)",
        .path.display()
    )]
    Listen { path: PathBuf, source: std::io::Error },
    /// A worker's files cannot be opened.
    #[error("cannot prepare a worker: {0} (check the limit on open files)")]
    Descriptors(#[source] std::io::Error),
    /// No command for workers of this language is known.
    #[error("this executor has no worker for functions in {0}: start it with --worker {0}=COMMAND")]
    Language(String),
    /// The client whose copies were to be the workers has ended.
    #[error("{}", outcome::FORKED_ENDED)]
    ForkedEnded,
}

/// Where workers report.
struct Reception {
    folder: Folder,
    heard: mpsc::Receiver<Heard>,
    /// For connections to come.
    hear: mpsc::Sender<Heard>,
}

impl Reception {
    fn open(scratch: Option<&Path>) -> Result<Reception, WorkerError> {
        let folder = Folder::make(scratch.unwrap_or(&std::env::temp_dir()))?;
        let path = folder.socket();
        let listener = UnixListener::bind(&path)
            .map_err(|source| WorkerError::Listen { path: path.clone(), source })?;
        let (hear, heard) = mpsc::channel(HEARD_MAX);
        tokio::spawn(accept(listener, hear.clone()));
        Ok(Reception { folder, heard, hear })
    }
}

/// How far a call is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallTail {
    /// It is made, and what it writes is in this file.
    Running(PathBuf),
    /// It is not made yet.
    Waiting,
}

/// All workers of an executor.
pub(super) struct Workers {
    options: WorkerOptions,
    outputs: Outputs,
    capture_bytes_max: u64,
    /// Workers beyond this make room for new ones when they are idle, and end
    /// when they are idle for long.
    slots: usize,
    reception: Option<Reception>,
    workers: BTreeMap<u64, Worker>,
    next_worker: u64,
    templates: Templates,
    bundles: HashMap<u64, Bundle>,
    next_bundle: u64,
    /// Bundles that wait for a worker.
    waiting: HashMap<Arc<Home>, VecDeque<u64>>,
    /// Idle workers; the last one had work last.
    idle: HashMap<Arc<Home>, Vec<u64>>,
    /// The commands that could not be started, since when, and why.
    broken: HashMap<Arc<Home>, (Instant, Reason)>,
    /// Workers that were killed before they took calls.
    restarts: Restarts,
    /// The processes to launch and to kill.
    pub(super) launches: Vec<Launch>,
    pub(super) kills: Vec<(u64, Duration)>,
    /// The events that the core does not know yet.
    pub(super) events: VecDeque<Event>,
    /// Calls that have returned, with the files that must be there.
    pub(super) unseen: Vec<(Event, Vec<PathBuf>)>,
    /// Calls that have returned, and what they returned is in a file.
    pub(super) left: Vec<Left>,
    /// The messages that are not handled yet.
    heard: Vec<Heard>,
}

impl Workers {
    pub(super) fn new(options: &super::Options, outputs: Outputs) -> Workers {
        let mut workers = Workers {
            options: options.workers.clone(),
            outputs,
            capture_bytes_max: options.capture_bytes_max,
            slots: options.capacity.cpus_milli.div_ceil(falkon_core::task::MILLI).max(1) as usize,
            reception: None,
            workers: BTreeMap::new(),
            next_worker: WORKER_LAUNCHES,
            templates: Templates::default(),
            bundles: HashMap::new(),
            next_bundle: 0,
            waiting: HashMap::new(),
            idle: HashMap::new(),
            broken: HashMap::new(),
            restarts: Restarts::default(),
            launches: Vec::new(),
            kills: Vec::new(),
            events: VecDeque::new(),
            unseen: Vec::new(),
            left: Vec::new(),
            heard: Vec::new(),
        };
        if options.forked.is_some() {
            workers.adopt_forked();
        }
        // The first call meets the same error, and reports it.
        let _ = workers.start_ahead();
        workers
    }

    /// The home of a worker of an instance's command, with `more` variables; `tree` is
    /// the first archive that it finds unpacked.
    pub(super) fn home(
        &self,
        command: &Command,
        instance: InstanceId,
        more: Vec<(Vec<u8>, Vec<u8>)>,
        tree: Option<&Path>,
    ) -> Result<Home, String> {
        Home::of(command, (!self.options.shared).then_some(instance), more, tree)
    }

    /// Whether a launched process is a worker.
    pub(super) fn is_worker(launch: u64) -> bool {
        launch >= WORKER_LAUNCHES
    }

    /// Waits until workers have something to say.
    pub(super) async fn recv(&mut self) {
        match &mut self.reception {
            Some(reception) => {
                // There is always a sender: the reception's own.
                reception.heard.recv_many(&mut self.heard, HEARD_MAX).await;
            }
            None => std::future::pending().await,
        }
    }

    /// When to call [`Self::look`].
    pub(super) fn next_look(&self) -> Option<Instant> {
        let looks = self.workers.values().filter_map(|worker| worker.look_at);
        looks.chain(self.restarts.next_due()).min()
    }

    /// Gives a bundle to a worker, now or when there is one.
    pub(super) fn start(&mut self, bundle: Bundle, clock: &Clock) {
        let id = self.next_bundle;
        self.next_bundle += 1;
        let home = bundle.home.clone();
        self.bundles.insert(id, bundle);
        let idle = self.idle.get_mut(&home).and_then(Vec::pop);
        if let Some(worker) = idle.or_else(|| self.take_ahead(&home, Worker::is_idle)) {
            self.assign(worker, id, clock);
            return;
        }
        if let Some((since, reason)) = self.broken.get(&home) {
            if since.elapsed() < Duration::from_millis(START_RETRY_MS) {
                let reason = reason.clone();
                self.fail(id, Outcome::NotRun, &reason, clock);
                return;
            }
            self.broken.remove(&home);
        }
        self.waiting.entry(home.clone()).or_default().push_back(id);
        if !self.restarts.is_due_later(&home)
            && self.lacks_workers(&home)
            && self.take_ahead(&home, Worker::is_starting).is_none()
            && let Err(error) = self.launch(&home)
        {
            self.fail_home(&home, &error.to_string(), clock);
        }
    }

    /// Where a call writes whose task is here.
    pub(super) fn tail(&self, key: TaskKey, stream: Stream) -> Option<CallTail> {
        let found = self.bundles.values().find_map(|bundle| Some((bundle, bundle.index(key)?)));
        let (bundle, index) = found?;
        let worker = bundle.worker.and_then(|worker| self.workers.get(&worker));
        let Some(worker) = worker else { return Some(CallTail::Waiting) };
        // Calls are made in their order: the last one that was claimed is being made.
        let claimed = u64::from(bundle.live).saturating_sub(worker.unclaimed());
        match (u64::from(index) + 1).cmp(&claimed) {
            Ordering::Less => None,
            Ordering::Equal => Some(CallTail::Running(worker.file(stream).to_owned())),
            Ordering::Greater => Some(CallTail::Waiting),
        }
    }

    /// Whether calls wait for a worker of this kind.
    fn waits(&self, home: &Arc<Home>) -> bool {
        self.waiting.get(home).is_some_and(|waiting| !waiting.is_empty())
    }

    /// Whether more bundles wait than workers start for them.
    fn lacks_workers(&self, home: &Arc<Home>) -> bool {
        let starting = self.workers.values().filter(|one| one.is_starting() && one.home == *home);
        starting.count() < self.waiting.get(home).map_or(0, VecDeque::len)
    }

    fn launch(&mut self, home: &Arc<Home>) -> Result<(), WorkerError> {
        let reception = match &self.reception {
            Some(reception) => reception,
            none => {
                debug_assert!(none.is_none(), "the other arm takes what is there");
                self.reception.insert(Reception::open(self.options.scratch.as_deref())?)
            }
        };
        let argv = reception.folder.command(&self.options, home);
        let argv = argv.ok_or_else(|| WorkerError::Language(home.language.clone()))?;
        let folder = self.outputs.folder();
        let mut worker = Worker::new(home.clone(), program::token()?.into(), argv.clone(), folder)?;
        worker.source = self.source(home, &argv)?;
        let key = self.next_worker;
        self.next_worker += 1;
        if self.workers.len() >= self.slots {
            self.retire_idlest();
        }
        worker.look_at = Some(Instant::now() + Duration::from_secs(START_SECONDS_MAX));
        self.workers.insert(key, worker);
        let launch = self.order(key);
        self.launches.extend(launch);
        Ok(())
    }

    /// The launch that starts a worker.
    fn order(&self, key: u64) -> Option<Launch> {
        let (worker, reception) = (self.workers.get(&key)?, self.reception.as_ref()?);
        let home = &worker.home;
        // A copy has what its template has, and that of a client is one for all.
        let (mut env, cwd) = match worker.source {
            Source::Copy { of } if !self.templates.is_forked(of) => (Vec::new(), None),
            Source::Copy { .. } | Source::Program | Source::Template | Source::Forked => {
                (home.env.clone(), home.cwd.clone())
            }
        };
        let socket = program::bytes_of(&reception.folder.socket());
        env.push((b"FALKON_WORKER_SOCKET".to_vec(), socket));
        env.push((b"FALKON_WORKER_TOKEN".to_vec(), worker.token.0.clone().into_bytes()));
        if let Some(folder) = &self.options.objects {
            env.push((b"FALKON_WORKER_OBJECTS".to_vec(), program::bytes_of(folder)));
        }
        Some(Launch {
            key,
            argv: worker.command.clone(),
            env,
            cwd,
            capture_bytes_max: START_CAPTURE_BYTES,
            source: worker.source,
            ..Launch::default()
        })
    }

    /// Makes room for another worker.
    fn retire_idlest(&mut self) {
        let idle = self.workers.iter().filter(|(_, worker)| worker.is_idle());
        let idlest = idle.min_by_key(|(_, worker)| worker.idle_since).map(|(key, _)| *key);
        if let Some(key) = idlest {
            self.retire(key);
        }
    }

    /// Whether there are more workers than slots: calls may need less than a
    /// slot, and one that is killed or lost leaves its worker behind for a while.
    fn has_surplus(&self) -> bool {
        self.workers.values().filter(|worker| !worker.retired).count() > self.slots
    }

    /// Has a worker end when it has done what it does.
    fn retire(&mut self, key: u64) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        worker.retired = true;
        // The worker reads to the end, and ends.
        worker.messages = None;
        if let Some(idle) = self.idle.get_mut(&worker.home) {
            idle.retain(|one| *one != key);
        }
        self.kills.push((key, Duration::from_millis(RETIRE_MS)));
    }

    fn assign(&mut self, key: u64, id: u64, clock: &Clock) {
        let (Some(worker), Some(bundle)) = (self.workers.get_mut(&key), self.bundles.get_mut(&id))
        else {
            return;
        };
        bundle.since = clock.now();
        let left = match self.options.calls_max {
            0 => u64::MAX,
            most => most.saturating_sub(worker.calls).max(1),
        };
        let most = u32::try_from(left).unwrap_or(u32::MAX);
        give_back(bundle, most, &mut self.events);
        worker.send(id, bundle);
        self.events.push_back(Event::Begun { key: bundle.key(0) });
        bundle.worker = Some(key);
        worker.begin_by = Instant::now() + Duration::from_millis(BEGIN_MS_MAX);
        worker.look_at = (bundle.live > 1).then(|| Instant::now() + Duration::from_millis(LOOK_MS));
    }

    /// Ends all calls of a bundle that no worker has.
    fn fail(&mut self, id: u64, outcome: Outcome, reason: &Reason, clock: &Clock) {
        let Some(bundle) = self.bundles.remove(&id) else { return };
        let now = clock.now();
        for index in bundle.answered..bundle.live {
            let Reason { error, cause } = reason.clone();
            let detail = Detail { error, cause, ..Detail::default() };
            self.events.push_back(Event::Ended {
                key: bundle.key(index),
                outcome,
                started: now,
                ended: now,
                detail: Some(Arc::new(detail)),
            });
        }
    }

    /// Ends all calls that wait for such a worker, as none can be started.
    fn fail_home(&mut self, home: &Arc<Home>, error: &str, clock: &Clock) {
        self.broken.retain(|_, (since, _)| since.elapsed() < Duration::from_millis(START_RETRY_MS));
        let reason = Reason { error: error.to_owned(), cause: Some(Cause::NoWorker) };
        self.broken.insert(home.clone(), (Instant::now(), reason.clone()));
        self.restarts.started(home);
        for id in self.waiting.remove(home).unwrap_or_default() {
            self.fail(id, Outcome::NotRun, &reason, clock);
        }
    }

    /// Handles the messages of workers.
    pub(super) fn hear(&mut self, clock: &Clock) {
        for heard in std::mem::take(&mut self.heard) {
            match heard {
                Heard::Hello { token, stream } => self.welcome(&token, stream, clock),
                Heard::Message { worker, message } => match FromWorker::decode(&message) {
                    Ok(message) => self.take(worker, message, clock),
                    Err(error) => self.distrust(worker, &format!("it sent no message: {error}")),
                },
                Heard::Closed { worker } => {
                    let Some(one) = self.workers.get_mut(&worker) else { continue };
                    one.closed = true;
                    match one.ended.is_some() {
                        true => self.bury(worker, clock),
                        // Without its connection it is of no use.
                        false => self.kills.push((worker, Duration::ZERO)),
                    }
                }
            }
        }
    }

    /// A worker that breaks the protocol is ended.
    fn distrust(&mut self, key: u64, why: &str) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        why.clone_into(&mut worker.trouble);
        worker.retired = true;
        worker.messages = None;
        self.kills.push((key, Duration::ZERO));
    }

    fn welcome(&mut self, token: &Hidden<String>, stream: tokio::net::UnixStream, clock: &Clock) {
        let Some(reception) = &self.reception else { return };
        let found = self.workers.iter_mut().find(|(_, worker)| worker.token == *token);
        // Another connection with the same token gets none.
        let Some((key, worker)) = found.filter(|(_, worker)| worker.messages.is_none()) else {
            return;
        };
        let key = *key;
        let setup = Setup {
            capture_bytes: self.capture_bytes_max,
            stdout: &worker.stdout,
            stderr: &worker.stderr,
            preload: &self.options.preload,
        };
        match worker.shared() {
            Ok(fds) => {
                let (messages, outgoing) = mpsc::unbounded_channel();
                worker.connected = true;
                worker.pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
                worker.messages = Some(messages);
                let hear = reception.hear.clone();
                tokio::spawn(converse(key, stream, setup.to_frame(), fds, outgoing, hear));
            }
            Err(error) => {
                let home = worker.home.clone();
                self.fail_home(&home, &error.to_string(), clock);
                self.retire(key);
            }
        }
    }

    fn take(&mut self, key: u64, message: FromWorker, clock: &Clock) {
        match message {
            FromWorker::Hello { .. } => self.distrust(key, "it introduced itself twice"),
            FromWorker::Ready { error } => {
                let Some(worker) = self.workers.get_mut(&key) else { return };
                worker.look_at = None;
                if error.is_empty() {
                    worker.ready = true;
                    self.restarts.started(&worker.home);
                    self.next_work(key, clock);
                } else {
                    worker.trouble = error;
                    self.retire(key);
                }
            }
            FromWorker::Answers { bundle, done, answers } => {
                let current = self.workers.get(&key).is_some_and(|one| one.is_current(bundle));
                if !current {
                    self.distrust(key, "it answered what it was not asked");
                    return;
                }
                if let Err(error) = self.take_answers(key, &answers, u32::MAX, clock) {
                    self.distrust(key, &format!("it sent no answer: {error}"));
                } else if done {
                    self.finish(key, clock);
                }
            }
        }
    }

    /// Takes in the answers to the first `most` calls of a worker's bundle,
    /// those that are known already aside.
    fn take_answers(
        &mut self,
        key: u64,
        answers: &[u8],
        most: u32,
        clock: &Clock,
    ) -> Result<(), falkon_wire::codec::DecodeError> {
        let Some(worker) = self.workers.get(&key) else { return Ok(()) };
        let Some(id) = worker.bundle else { return Ok(()) };
        let Some(bundle) = self.bundles.get_mut(&id) else { return Ok(()) };
        let mut result = Ok(());
        let mut times = None;
        for answer in Answers::new(answers) {
            match answer {
                Ok(answer) if answer.index < bundle.answered => {}
                Ok(answer) if answer.index >= most => break,
                Ok(mut answer) if answer.index == bundle.answered && answer.index < bundle.live => {
                    let (monotonic, time) = *times.get_or_insert_with(|| {
                        (answer.started, clock.at_monotonic(answer.started).0)
                    });
                    let time = |at: u64| Time(time.wrapping_add(at.wrapping_sub(monotonic)));
                    let (started, ended) = (time(answer.started), time(answer.ended));
                    let answer_index = answer.index;
                    let capture = self.capture_bytes_max;
                    let left = answer.left.take();
                    let event =
                        ended_call(bundle, answer, (started, ended), &self.outputs, capture);
                    let outputs = bundle.outputs(answer_index);
                    let ended_well =
                        matches!(event, Event::Ended { outcome: Outcome::Exit(0), .. });
                    if let (true, Some(value)) = (ended_well, left) {
                        let (value, outputs) = (program::path_of(value), outputs.to_vec());
                        self.left.push(Left { event, value, outputs });
                    } else if ended_well && !outputs.is_empty() {
                        self.unseen.push((event, outputs.to_vec()));
                    } else {
                        self.events.push_back(event);
                    }
                    bundle.answered += 1;
                }
                Ok(_) => {
                    result = Err(falkon_wire::codec::DecodeError::Invalid("place of an answer"));
                    break;
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        result
    }

    /// A worker has nothing more to do.
    fn finish(&mut self, key: u64, clock: &Clock) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        let left = worker.take_back();
        worker.busy = false;
        worker.look_at = None;
        worker.idle_since = Instant::now();
        if let Some(id) = worker.bundle.take()
            && let Some(mut bundle) = self.bundles.remove(&id)
        {
            let claimed = bundle.live.saturating_sub(left);
            give_back(&mut bundle, claimed, &mut self.events);
            worker.calls += u64::from(bundle.live);
            if bundle.answered < bundle.live {
                let error = "its worker went on without answering";
                self.bundles.insert(id, bundle);
                self.fail(id, Outcome::NotRun, &Reason::from(error.to_owned()), clock);
                self.distrust(key, error);
                return;
            }
        }
        if self.is_worn(key) {
            self.retire(key);
            return;
        }
        self.next_work(key, clock);
    }

    /// Whether a worker has made enough calls, or holds too much.
    fn is_worn(&mut self, key: u64) -> bool {
        let Some(worker) = self.workers.get_mut(&key) else { return false };
        if worker.is_full()
            || (self.options.calls_max > 0 && worker.calls >= self.options.calls_max)
        {
            return true;
        }
        let often = Duration::from_millis(MEMORY_LOOK_MS);
        if self.options.memory_bytes_max == 0
            || worker.memory_looked_at.is_some_and(|at| at.elapsed() < often)
        {
            return false;
        }
        worker.memory_looked_at = Some(Instant::now());
        worker.memory_bytes().is_some_and(|bytes| bytes > self.options.memory_bytes_max)
    }

    /// Gives a worker a bundle that waits, or has it wait for one.
    fn next_work(&mut self, key: u64, clock: &Clock) {
        let Some(worker) = self.workers.get(&key).filter(|worker| worker.is_idle()) else { return };
        let home = worker.home.clone();
        let next = self.waiting.get_mut(&home).and_then(VecDeque::pop_front);
        match next {
            Some(id) => self.assign(key, id, clock),
            None => {
                self.waiting.remove(&home);
                if self.has_surplus()
                    && let Some(worker) = self.workers.get_mut(&key)
                {
                    let idle = Duration::from_millis(SURPLUS_IDLE_MS);
                    worker.look_at = Some(Instant::now() + idle);
                }
                self.idle.entry(home).or_default().push(key);
            }
        }
    }

    /// Ends everything, after the processes have ended.
    pub(super) fn stop(&mut self) {
        for worker in self.workers.values() {
            worker.remove_files();
        }
        self.workers.clear();
        self.reception = None;
    }
}

/// Gives back the calls of a bundle after the first `most`.
fn give_back(bundle: &mut Bundle, most: u32, events: &mut VecDeque<Event>) {
    for (key, count) in bundle.cut(most) {
        events.push_back(Event::Returned { key, count });
    }
}
