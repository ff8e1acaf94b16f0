//! Tasks that an executor has started: processes, functions and builtins.

mod builtins;
mod checks;
mod container;
mod ends;
mod gangs;
mod launches;
mod packing;
mod prepare;
mod scratch;
mod setup;
mod streams;
mod tails;
mod with_data;

use super::gangs::{Asked, Gangs};
use super::gpus::Gpus;
use super::granted::{Granted, alternative};
use super::not_started::Reason;
use super::objects::Objects;
use super::objects::message::FromObjects;
use super::outputs::Outputs;
use super::scratch::{Notice, Scratch};
use super::values::LongValues;
use super::watchdog::{Position, WaitPoint};
use super::workers::{Bundle, Call, Home, Workers, in_directory, texts_payload};
use super::{Log, MemoryLimits, Options};
use checks::Checks;
pub(super) use ends::NODE_OUT_OF_MEMORY;
use falkon_core::data::object::Object;
use falkon_core::data::stage;
use falkon_core::execute::{Event, Start, TaskKey, TemplateId};
use falkon_core::gang::GangKey;
use falkon_core::limits::CAPTURE_BYTES_MAX;
use falkon_core::result::{Detail, Outcome};
use falkon_core::task::{InstanceId, Kind, Rows, TaskId, Time};
use falkon_data::peer::FromPeers;
use falkon_net::clock::Clock;
use falkon_process::{
    Ended, Forked, Host, HostError, HostLost, HostReceiver, HostSender, IN_FLIGHT_TASKS_MAX, Launch,
};
use falkon_wire::command::{Command, Template};
use launches::lost;
use prepare::{NotStarted, output_paths};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use streams::StreamPlaces;

/// Why a task is lost whose executor goes on.
pub(super) const HOST_LOST: &str = "the process that runs tasks was killed";

/// The outputs of a task, and where the task leaves them.
type Written = Vec<(PathBuf, Arc<Object>)>;

/// A process under way.
struct Process {
    key: TaskKey,
    /// The number of its output.
    output: u64,
    /// The task that it comes after, if that had not ended when this was made ready.
    after: Option<u64>,
    /// Files that must be there in the end.
    outputs: Vec<PathBuf>,
    /// Data objects that it is to write.
    objects: Written,
    program: Vec<u8>,
    cwd: Option<Vec<u8>>,
    stdin: Option<Vec<u8>>,
    /// The most memory that it may have, in bytes, if it is held to that.
    memory_limit: Option<u64>,
    /// What it has on the scratch file system, if it has claimed disk space.
    disk: Option<Disk>,
    /// The gang, if its task runs on several nodes.
    gang: Option<GangKey>,
    /// The start that is repeated if an input is changed before it begins.
    again: Option<Box<Start>>,
}

/// The scratch directory of a process.
#[derive(Debug, Clone, Copy)]
struct Disk {
    /// What it has claimed, in bytes.
    limit_bytes: u64,
    /// What it had when it had more than that.
    over_bytes: Option<u64>,
}

/// A template, and what can be known of its tasks beforehand.
struct Prepared {
    template: Template,
    /// The worker for its calls, if that is the same for all, and since its first
    /// call: then the instance is known.
    home: OnceLock<(InstanceId, Arc<Home>)>,
}

pub(super) struct Tasks {
    templates: HashMap<TemplateId, Result<Prepared, String>>,
    workers: Workers,
    host: Option<(HostSender, HostReceiver)>,
    /// The first host, if it was there before this executor.
    forked: Option<Forked>,
    processes: HashMap<u64, Process>,
    launch_keys: HashMap<TaskKey, u64>,
    /// Tasks that were to come after others and cannot be launched: what comes
    /// after them comes after these.
    passed: BTreeMap<TaskKey, u64>,
    next_launch: u64,
    /// Not with the host yet.
    launches: VecDeque<Launch>,
    /// How many tasks are with the host.
    launched: usize,
    kills: Vec<(u64, Duration)>,
    /// Tasks that are not to start if they have not.
    take_backs: Vec<u64>,
    /// The outputs of calls under way that read or write data objects.
    call_objects: BTreeMap<TaskKey, Written>,
    /// `@sleep` tasks by when they wake.
    timers: BTreeSet<(Time, TaskKey)>,
    sleeping: BTreeMap<TaskKey, (Time, Time)>,
    /// The events that the core does not know yet.
    events: VecDeque<Event>,
    outputs: Outputs,
    capture_bytes_max: u64,
    gpus: Gpus,
    granted: Granted,
    memory_limits: MemoryLimits,
    objects: Option<Objects>,
    checks: Checks,
    file_limit: Duration,
    log: Log,
    position: Arc<Position>,
    /// Tasks that have ended and whose outputs are on their way to stores: the
    /// sizes of these, and the event for the core afterwards.
    putting: BTreeMap<TaskKey, (Vec<u64>, Event)>,
    packings: packing::Packings,
    values: LongValues,
    stream_places: StreamPlaces,
    tails: tails::Tails,
    gangs: Gangs,
    scratch: Scratch,
    /// Processes that have ended, and whose scratch directories are being removed.
    clearing: HashMap<u64, (Ended, Process)>,
    /// Commands of gangs that have ended, and whose gangs' usage is still to come.
    gathering: HashMap<u64, (Ended, Process)>,
}

impl Tasks {
    pub(super) fn new(
        options: &mut Options,
        incarnation: u64,
        outputs: Outputs,
        objects: Option<Objects>,
        position: Arc<Position>,
    ) -> Tasks {
        Tasks {
            templates: HashMap::new(),
            workers: Workers::new(options, outputs.clone()),
            host: None,
            forked: options.forked.take(),
            processes: HashMap::new(),
            launch_keys: HashMap::new(),
            passed: BTreeMap::new(),
            next_launch: 0,
            launches: VecDeque::new(),
            launched: 0,
            kills: Vec::new(),
            take_backs: Vec::new(),
            call_objects: BTreeMap::new(),
            timers: BTreeSet::new(),
            sleeping: BTreeMap::new(),
            events: VecDeque::new(),
            outputs,
            capture_bytes_max: options.capture_bytes_max.min(CAPTURE_BYTES_MAX),
            gpus: Gpus::new(options.capacity.gpus, |name| std::env::var(name).ok()),
            granted: Granted::new(|name| std::env::var(name).ok()),
            memory_limits: options.memory_limits,
            objects,
            checks: Checks::new(options.file_limit),
            file_limit: options.file_limit,
            log: options.log.clone(),
            position,
            putting: BTreeMap::new(),
            packings: packing::Packings::default(),
            values: LongValues::default(),
            stream_places: StreamPlaces::new(),
            tails: tails::Tails::default(),
            gangs: Gangs::new(&options.scratch),
            scratch: Scratch::new(
                &options.scratch,
                incarnation,
                options.file_limit,
                options.log.clone(),
            ),
            clearing: HashMap::new(),
            gathering: HashMap::new(),
        }
    }

    /// Waits for processes to end, for workers, or for something about data
    /// objects.
    pub(super) async fn recv_either(
        &mut self,
        ended: &mut Vec<Ended>,
        clock: &Clock,
    ) -> Option<FromObjects> {
        let (host, objects) = (&mut self.host, &mut self.objects);
        let (mut from_gangs, mut from_scratch) = (None, None);
        let lost = tokio::select! {
            said = said(objects) => return Some(said),
            said = self.gangs.recv() => {
                from_gangs = Some(said);
                None
            }
            said = self.scratch.recv() => {
                from_scratch = Some(said);
                None
            }
            received = receive(host, ended) => {
                let answers = host.iter_mut().flat_map(|(_, receiver)| receiver.take_tailed());
                answers.for_each(|tailed| self.tails.answered(tailed));
                received.err()
            }
            () = self.workers.recv() => None,
            () = self.checks.recv() => None,
        };
        if let Some(lost) = lost {
            self.host_lost(&lost, clock);
        }
        if let Some(said) = from_gangs {
            self.gang_said(said, clock);
        }
        if let Some(said) = from_scratch {
            self.scratch_said(&said, clock);
        }
        None
    }

    /// Takes in a message about data objects and converts it for the core.
    pub(super) fn take_objects(&mut self, now: Time, said: FromObjects) -> Option<Event> {
        match said {
            FromObjects::Stage(event) => Some(Event::Stage(event)),
            FromObjects::Collect(event) => Some(Event::Collect(event)),
            FromObjects::Peers(FromPeers::Tail { task, stream, from, answer }) => {
                self.tail(task, stream, from, answer);
                None
            }
            FromObjects::Peers(FromPeers::Remote { start, answer }) => {
                self.start_remote(Asked { start, answer, is_for_other: true });
                None
            }
            FromObjects::Peers(from) => {
                self.objects.as_mut().and_then(|objects| objects.asked(now, from))
            }
            FromObjects::Value { key, result } => {
                self.value_left(key, result);
                None
            }
            FromObjects::Packed { key, result } => self.packed(key, result),
            // The session's.
            FromObjects::Asked(_) | FromObjects::Read(..) => None,
            FromObjects::Put { key, result } => {
                let (sizes, mut event) = self.putting.remove(&key)?;
                match (result, &mut event) {
                    (Ok(()), _) => {
                        self.events.push_back(event);
                        return Some(Event::Wrote { key, sizes });
                    }
                    (Err(error), Event::Ended { outcome, detail, .. }) => {
                        *outcome = Outcome::NoOutput;
                        let mut said =
                            detail.take().map_or_else(Detail::default, Arc::unwrap_or_clone);
                        said.error = format!("it exited with 0 but its output is lost: {error}");
                        *detail = Some(Arc::new(said));
                    }
                    (Err(_), _) => {}
                }
                Some(event)
            }
        }
    }

    /// Output that is too long to be sent.
    pub(super) fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// The data objects, if this executor has a cache.
    pub(super) fn objects(&mut self) -> Option<&mut Objects> {
        self.objects.as_mut()
    }

    /// The next event for the core.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let event = self.workers.events.pop_front()?;
            if self.call_objects.is_empty() {
                return Some(event);
            }
            if let Some(event) = self.call_event(event) {
                return Some(event);
            }
        }
    }

    pub(super) fn next_timer(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The clock jumped from `before` to `after`: timers go with it.
    pub(super) fn shift_timers(&mut self, before: Time, after: Time) {
        let shift = |at: Time| Time((at.0 + after.0).saturating_sub(before.0));
        self.timers = self.timers.iter().map(|(at, key)| (shift(*at), *key)).collect();
        for (started, until) in self.sleeping.values_mut() {
            (*started, *until) = (shift(*started), shift(*until));
        }
    }

    /// A sleep that is over.
    pub(super) fn expired(&mut self, now: Time) -> Option<Event> {
        let &(at, key) = self.timers.first()?;
        if at > now {
            return None;
        }
        self.timers.remove(&(at, key));
        let (started, _) = self.sleeping.remove(&key)?;
        Some(Event::Ended { key, outcome: Outcome::Exit(0), started, ended: now, detail: None })
    }

    pub(super) fn start(&mut self, start: Start, clock: &Clock) {
        let now = clock.now();
        self.note_streams(&start);
        let result = match start.class.kind {
            Kind::Noop => self.check_rows(&start).map_err(NotStarted::from).map(|()| {
                self.end(start.key, Outcome::Exit(0), now, String::new());
            }),
            Kind::Sleep => self.sleep(&start, now).map_err(NotStarted::from),
            Kind::Process => return self.start_process(start, now),
            Kind::Function => match start.data.clone() {
                Some(data) => self.start_call_with_data(&start, &data, clock),
                None => {
                    let inputs = self.inputs_of_calls(&start);
                    match inputs.iter().any(|paths| !paths.is_empty()) {
                        true => return self.start_checked_calls(start, inputs),
                        false => self.start_calls(&start, None, clock),
                    }
                    Ok(())
                }
            },
        };
        if let Err(error) = result {
            self.not_started(start, error, now);
        }
    }

    /// A task is not started: it ends, or begins later.
    fn not_started(&mut self, start: Start, error: NotStarted, now: Time) {
        if let Some(before) = self.launch_after(&start) {
            self.passed.insert(start.key, before);
        }
        match error {
            NotStarted::Ended { outcome, reason } => self.end(start.key, outcome, now, reason),
            NotStarted::Lost(object) => {
                self.events.push_back(Event::Stage(stage::Event::Lost(object)));
                self.events.push_back(Event::Unstarted(Box::new(start)));
            }
        }
    }

    /// The launch that a task is to come after, if that has not ended.
    fn launch_after(&self, start: &Start) -> Option<u64> {
        let before = start.after?;
        self.launch_keys.get(&before).or_else(|| self.passed.get(&before)).copied()
    }

    /// A launch is over: nothing can come after it any more.
    fn forget_launch(&mut self, process: &Process, launch: u64) {
        self.launch_keys.remove(&process.key);
        self.tails.launch_over(launch, process.key);
        self.passed.retain(|_, before| *before != launch);
    }

    fn end(&mut self, key: TaskKey, outcome: Outcome, now: Time, reason: impl Into<Reason>) {
        let Reason { error, cause } = reason.into();
        let says_why = !error.is_empty() || cause.is_some();
        let detail = says_why.then(|| Arc::new(Detail { error, cause, ..Detail::default() }));
        self.events.push_back(Event::Ended { key, outcome, started: now, ended: now, detail });
    }

    fn prepared(&self, start: &Start) -> Result<&Prepared, String> {
        self.templates
            .get(&start.template)
            .ok_or("the task's template was not sent")?
            .as_ref()
            .map_err(Clone::clone)
    }

    fn command(&self, start: &Start, at: u64) -> Result<Command, String> {
        self.prepared(start)?
            .template
            .expand(&start.rows, start.row + at, start.key.task.0 + at + 1)
            .map_err(|error| format!("the task's command cannot be read: {error}"))
    }

    /// Passes calls on to the workers, as far as one worker can make them.
    /// `inputs` says whether those of each are there, if any has some.
    fn start_calls(&mut self, start: &Start, inputs: Option<&[Result<(), Reason>]>, clock: &Clock) {
        let mut bundle: Option<Bundle> = None;
        let mut returned = Vec::new();
        let mut inputs = inputs.unwrap_or_default();
        self.add_calls(start, inputs, &mut bundle, &mut returned, clock);
        for more in &start.more {
            inputs = inputs
                .get(usize::try_from(start.count).unwrap_or(usize::MAX)..)
                .unwrap_or_default();
            let start = start.one_of(more);
            self.add_calls(&start, inputs, &mut bundle, &mut returned, clock);
        }
        // The last first, so that none is behind one that is gone.
        self.events.extend(returned.into_iter().rev());
        if let Some(bundle) = bundle {
            self.workers.start(bundle, clock);
        }
    }

    /// Adds the calls of `start` to a bundle, unless some are `returned`.
    fn add_calls(
        &mut self,
        start: &Start,
        inputs: &[Result<(), Reason>],
        bundle: &mut Option<Bundle>,
        returned: &mut Vec<Event>,
        clock: &Clock,
    ) {
        let key = |at: u64| TaskKey { task: TaskId(start.key.task.0 + at), ..start.key };
        let mut at = 0;
        while returned.is_empty() && at < start.count {
            let are_there = inputs.get(at as usize).cloned().unwrap_or(Ok(()));
            let call = are_there.and_then(|()| self.call(start, at).map_err(Reason::from));
            match (call, &mut *bundle) {
                (Ok(call), None) => *bundle = Some(Bundle::new(key(at), call)),
                (Ok(call), Some(bundle)) => {
                    if !bundle.push(key(at), call) {
                        break;
                    }
                }
                (Err(reason), None) => self.end(key(at), Outcome::NotRun, clock.now(), reason),
                (Err(_), Some(_)) => break,
            }
            at += 1;
        }
        if at < start.count {
            returned.push(Event::Returned { key: key(at), count: start.count - at });
        }
    }

    /// The call of the `at`-th task of `start`.
    fn call<'a>(&self, start: &'a Start, at: u64) -> Result<Call<'a>, String> {
        let prepared = self.prepared(start)?;
        let instance = start.key.instance;
        if let (Template::Calls(command), Rows::Packed(rows), Some(call)) =
            (&prepared.template, &*start.rows, prepared.template.call())
            && command.inputs.is_empty()
            && command.outputs.is_empty()
            && !self.gpus.are_offered()
            && start.class.alternative == 0
        {
            let payload = rows.at(start.row + at).ok_or("the task's arguments were not sent")?;
            let home = match prepared.home.get() {
                Some((of, home)) if *of == instance => home.clone(),
                _ => {
                    let home = Arc::new(self.workers.home(command, instance, Vec::new(), None)?);
                    // A template is one instance's.
                    let _ = prepared.home.set((instance, home.clone()));
                    home
                }
            };
            let function = call.function.clone();
            return Ok(Call { home, function, payload: payload.into(), outputs: Vec::new() });
        }
        let command = self.command(start, at)?;
        let outputs = output_paths(&command);
        let mut more = self.gpus.environment(&start.grant.gpus);
        more.extend(alternative(&start.class));
        let home = Arc::new(self.workers.home(&command, instance, more, None)?);
        let call = command.call.ok_or("the task names no function")?;
        let payload = match call.payload.is_empty() {
            true => texts_payload(&command.argv),
            false => call.payload,
        };
        Ok(Call { home, function: call.function, payload: payload.into(), outputs })
    }

    pub(super) fn kill(&mut self, key: TaskKey, grace_micros: u64, clock: &Clock) {
        if let Some((started, until)) = self.sleeping.remove(&key) {
            self.timers.remove(&(until, key));
            self.events.push_back(Event::Ended {
                key,
                outcome: Outcome::Signal(libc::SIGTERM),
                started,
                ended: clock.now(),
                detail: None,
            });
        } else if let Some(launch) = self.launch_keys.get(&key) {
            self.kills.push((*launch, Duration::from_micros(grace_micros)));
        } else if !self.kill_checked(key, clock) {
            self.workers.kill(key, Duration::from_micros(grace_micros), clock);
        }
    }

    /// A task that comes after another is not to start, if that has not ended.
    pub(super) fn take_back(&mut self, key: TaskKey, clock: &Clock) {
        if !self.take_back_checked(key, clock) {
            self.take_backs.extend(self.launch_keys.get(&key));
        }
    }

    /// Has values of calls that are too long to be sent put into the cache, and
    /// the files looked at that calls were to write.
    fn look_after_returns(&mut self) {
        for left in std::mem::take(&mut self.workers.left) {
            self.leave(left);
        }
        for (event, outputs) in std::mem::take(&mut self.workers.unseen) {
            self.pack_outputs(event, "it returned", outputs, Vec::new());
        }
    }

    /// Whether [`Self::launch`] has nothing to hand over. What it does not hand
    /// over waits until something else wakes the executor.
    pub(super) fn has_handed_over(&self) -> bool {
        self.workers.left.is_empty() && self.workers.unseen.is_empty() && self.checks.has_sent()
    }

    /// Hands what was prepared to the process host, as much as that takes at
    /// once. It is started when it is first needed.
    pub(super) async fn launch(&mut self, clock: &Clock) -> Result<(), HostError> {
        let position = self.position.clone();
        let _at = position.at(WaitPoint::Host);
        self.look_after_returns();
        self.checks.send();
        self.launches.extend(self.workers.launches.drain(..));
        self.kills.append(&mut self.workers.kills);
        if !self.launches.is_empty() {
            self.send_launches(clock).await?;
        }
        for (key, grace) in std::mem::take(&mut self.kills) {
            if !self.drop_unsent(key, clock)
                && let Some(host) = &mut self.host
            {
                host.0.kill(key, grace).await;
            }
        }
        for key in std::mem::take(&mut self.take_backs) {
            if !self.drop_unsent(key, clock)
                && let Some(host) = &mut self.host
            {
                host.0.take_back(key).await;
            }
        }
        if !self.tails.unsent.is_empty() {
            // A task that waits to be launched is asked about when it is.
            let is_with_host = |key| !self.launches.iter().any(|launch| launch.key == key);
            for tail in std::mem::take(&mut self.tails.unsent) {
                match &mut self.host {
                    Some(host) if is_with_host(tail.key) => host.0.tail(tail).await,
                    _ => self.tails.unsent.push(tail),
                }
            }
        }
        Ok(())
    }

    async fn send_launches(&mut self, clock: &Clock) -> Result<(), HostError> {
        let host = match &mut self.host {
            Some(host) => host,
            none => none.insert(match self.forked.take() {
                Some(forked) => Host::take_over(forked).await?,
                None => Host::start_within(self.file_limit).await?,
            }),
        };
        let count = self.launches.len().min(IN_FLIGHT_TASKS_MAX.saturating_sub(self.launched));
        if count == 0 {
            return Ok(());
        }
        self.launched += count;
        let (batch, _) = self.launches.make_contiguous().split_at(count);
        let result = host.0.launch(batch).await;
        let batch: Vec<Launch> = self.launches.drain(..count).collect();
        if let Err(error) = result {
            // Keys and counts are kept here, so this is a bug, which must be
            // reported to the tasks' owner.
            self.launched -= count;
            for launch in batch {
                if Workers::is_worker(launch.key) {
                    self.workers.ended(lost(launch.key), clock);
                    continue;
                }
                if self.remote_unsent(launch.key, &error.to_string()) {
                    continue;
                }
                let Some(process) = self.processes.remove(&launch.key) else { continue };
                self.scratch.abandon(launch.key);
                self.forget_launch(&process, launch.key);
                self.end(process.key, Outcome::NotRun, Time::default(), error.to_string());
            }
        }
        Ok(())
    }

    /// Acts upon what workers and file systems said, and looks at those workers
    /// that it is time for.
    pub(super) fn hear_workers(&mut self, clock: &Clock) {
        self.hear_files(clock);
        self.workers.hear(clock);
        let now = Instant::now();
        self.end_overdue(now, clock);
        if self.workers.next_look().is_some_and(|at| at <= now) {
            self.workers.look(now, clock);
        }
    }

    /// The time of the next call of [`Self::hear_workers`] without a notice.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let own = self.checks.due().into_iter().chain(self.scratch.due());
        self.workers.next_look().into_iter().chain(own).min()
    }

    /// Ends everything that runs, and waits until it has ended.
    pub(super) fn stop(&mut self) {
        self.host = None;
        self.workers.stop();
    }
}

/// Waits for processes to end.
async fn receive(
    host: &mut Option<(HostSender, HostReceiver)>,
    ended: &mut Vec<Ended>,
) -> Result<(), HostLost> {
    match host {
        Some((_, receiver)) => receiver.recv(ended).await,
        None => std::future::pending().await,
    }
}

/// Waits for something to be said about data objects.
async fn said(objects: &mut Option<Objects>) -> FromObjects {
    match objects {
        Some(objects) => objects.recv().await,
        None => std::future::pending().await,
    }
}
