//! A node: an executor's shell, and the processes it runs.

mod tasks;

use super::clock::Clock;
use super::connections::{Turns, Way, Who, span_of};
use super::disk::Pages;
use super::error::Broken;
use super::objects::{Objects, object_number, serving, stage_options};
use super::transfer::Ends;
use super::{SEED_INPUTS, SEED_RUNS, World};
use crate::event_queue::Event;
use crate::scenario::{NodeGroup, TaskKind};
use crate::time::{Nanos, SECOND_NANOS};
use falkon_core::collect::ItemId;
use falkon_core::data::stage::Event as StageEvent;
use falkon_core::dispatch::Lease;
use falkon_core::execute::{Action, Event as CoreEvent, Executor, Start, TaskKey};
use falkon_core::gang::GangAction;
use falkon_core::result::Outcome;
use falkon_core::task::{AllocationId, Kind, MILLI, Rows};
use falkon_wire::codec::Wire;
use falkon_wire::message::{FromExecutor, ToExecutor};
use std::collections::BTreeMap;
use std::rc::Rc;
use tasks::{NOT_YET, Process, Stuck, Waits};

/// How long an executor waits for an answer about a task's files, as the real
/// one does (`--file-timeout`).
const FILE_LIMIT: Nanos = Nanos(60 * SECOND_NANOS);

pub(super) struct Node {
    pub(super) machine: Executor,
    pub(super) incarnation: u64,
    number: u64,
    /// The group of nodes that are like it.
    group: Rc<NodeGroup>,
    pub(super) objects: Objects,
    /// The memory in front of its disk.
    pub(super) pages: Option<Box<Pages>>,
    /// Outputs that are staged, and what others have handed over, with their bytes.
    pub(super) staged: BTreeMap<ItemId, u64>,
    pub(super) dispatcher: u32,
    /// Whose tasks it runs.
    pub(super) client: u32,
    pub(super) connection: Option<u64>,
    /// Its link, for short messages.
    pub(super) turns: Turns,
    /// Its thread is busy with messages until then.
    pub(super) busy_until: Nanos,
    /// It has been welcomed in this session.
    is_joined: bool,
    speed: f64,
    /// No longer than they have to be.
    processes: Vec<Process>,
    /// Tasks that start when another ends, by that other.
    waiting: Vec<Waits>,
    /// Tasks whose start waits for the disk.
    stuck: Vec<Stuck>,
    /// What the core must hear next.
    pub(super) ended: Vec<CoreEvent>,
    timer: Option<Nanos>,
    pub(super) clock: Clock,
    /// A partition lasts until then.
    pub(super) cut_off_until: Nanos,
    /// Its disk does not answer until then.
    pub(super) disk_hangs_until: Nanos,
    /// It has crashed and starts again then.
    pub(super) down_until: Nanos,
    /// The allocation that it is part of, when that ends, and since when its
    /// executor has been registered.
    pub(super) lease: Option<(AllocationId, Option<Nanos>)>,
    pub(super) registered: Option<Nanos>,
}

fn executor(incarnation: u64, number: u64, group: &NodeGroup) -> Executor {
    let executor = Executor::new(incarnation, format!("node-{number}"), group.capacity())
        .with_idle_exit(group.idle_exit.map(|limit| limit.core().0));
    match &group.cache {
        None => executor,
        Some(cache) => {
            let serves = Some(serving(number, incarnation));
            executor.with_cache(&stage_options(cache, incarnation), &[], serves)
        }
    }
}

impl Node {
    /// A node of a dispatcher, that runs a client's tasks.
    pub(super) fn new(
        number: u64,
        (dispatcher, client): (u32, u32),
        group: &Rc<NodeGroup>,
        speed: f64,
    ) -> Node {
        Node {
            machine: executor(number + 1, number, group),
            incarnation: number + 1,
            number,
            group: Rc::clone(group),
            objects: Objects::default(),
            pages: None,
            staged: BTreeMap::new(),
            dispatcher,
            client,
            connection: None,
            turns: Turns::default(),
            busy_until: Nanos(0),
            is_joined: false,
            speed,
            processes: Vec::new(),
            waiting: Vec::new(),
            stuck: Vec::new(),
            ended: Vec::new(),
            timer: None,
            clock: Clock::default(),
            cut_off_until: Nanos(0),
            disk_hangs_until: Nanos(0),
            down_until: Nanos(0),
            lease: None,
            registered: None,
        }
    }

    /// Whether a task that has so many CPUs, in thousandths, has them to itself.
    fn has_free(&self, cpus_milli: u32) -> bool {
        let taken = self.processes.iter().map(|process| u64::from(process.cpus_milli));
        let taken: u64 = taken.sum::<u64>() + u64::from(cpus_milli);
        taken <= u64::from(self.group.slots) * u64::from(MILLI)
    }

    /// The executor's stage hears of something next.
    pub(super) fn hear(&mut self, event: StageEvent) {
        self.ended.push(CoreEvent::Stage(event));
    }

    /// Whether a task runs here, or waits for another to end.
    fn holds(&self, key: TaskKey) -> bool {
        self.processes.iter().any(|process| process.key == key)
            || self.waiting.iter().any(|waits| waits.start.key == key)
            || self.stuck.iter().any(|stuck| stuck.start.key == key)
    }

    /// A task whose start waits for the disk waits no more.
    fn unstick(&mut self, key: TaskKey) -> Option<Start> {
        let at = self.stuck.iter().position(|stuck| stuck.start.key == key)?;
        Some(self.stuck.swap_remove(at).start)
    }

    /// A task that waits for another will not start; what waits for it waits
    /// for that other now.
    fn take_back(&mut self, key: TaskKey) {
        if let Some(at) = self.waiting.iter().position(|waits| waits.start.key == key) {
            let Waits { before, .. } = self.waiting.remove(at);
            for behind in self.waiting.iter_mut().filter(|behind| behind.before == key) {
                behind.before = before;
            }
            self.ended.push(CoreEvent::TakenBack(key));
        }
    }
}

/// The number of a task at its client, which its row says: below a relay it has another
/// number.
fn task_of(start: &Start) -> u64 {
    match &*start.rows {
        Rows::Computed { factors, offset } if factors.len() == 1 => {
            factors[0].value(offset + start.row).cast_unsigned()
        }
        _ => start.key.task.0,
    }
}

impl World<'_> {
    pub(super) fn node_connects(&mut self, number: u32) {
        let now = self.events.now;
        let node = &self.nodes[number as usize];
        let is_out = (self.scenario.provision.is_some() && node.lease.is_none())
            || node.group.until.is_some_and(|until| until <= now);
        if node.connection.is_some() || node.down_until > now || is_out {
            return;
        }
        let dispatcher = node.dispatcher;
        match self.connect(dispatcher, Who::Node(number)) {
            Some(connection) => self.nodes[number as usize].connection = Some(connection),
            None => {
                let at = self.reconnect_at(dispatcher);
                self.events.plan(at, Event::NodeConnects(number));
            }
        }
    }

    pub(super) fn node_hears(
        &mut self,
        number: u32,
        connection: u64,
        bytes: &[u8],
    ) -> Result<(), Broken> {
        let now = self.events.now;
        let node = &mut self.nodes[number as usize];
        if node.connection != Some(connection) {
            return Ok(());
        }
        self.measured.messages += 1;
        self.measured.message_bytes += bytes.len() as u64;
        let message = ToExecutor::from_bytes(bytes)
            .map_err(|error| format!("a message to node {number} is no message: {error}"))?;
        let event = match message {
            ToExecutor::Welcome { now: theirs, .. } => {
                node.is_joined = true;
                // Clocks agree unless one is set back. As in a real executor,
                // the time is not before what the machine knows of.
                if self.scenario.faults.clock_step > Nanos(0) {
                    node.clock.reads(now, theirs.max(node.machine.now()));
                }
                node.registered.get_or_insert(now);
                self.measured.nodes.add(now);
                if let Some((allocation, until)) = node.lease {
                    let left = until.map(|until| until.since(now).core().0);
                    let lease = Lease { allocation: Some(allocation), leaves_in_micros: left };
                    node.machine.handle(node.clock.at(now), CoreEvent::Lease(lease));
                }
                CoreEvent::Connected
            }
            ToExecutor::Order(order) => CoreEvent::Order(order),
            ToExecutor::Unmet { .. }
            | ToExecutor::AskTail { .. }
            | ToExecutor::ReadOutput { .. }
            | ToExecutor::ReadPart { .. }
            | ToExecutor::Part { .. } => return Ok(()),
            ToExecutor::Refused { reason } => {
                return Err(format!("node {number} is refused: {reason}").into());
            }
        };
        node.machine.handle(node.clock.at(now), event);
        self.pump(number)
    }

    pub(super) fn node_cut(&mut self, number: u32, connection: u64) -> Result<(), Broken> {
        let now = self.events.now;
        let node = &mut self.nodes[number as usize];
        if node.connection != Some(connection) {
            return Ok(());
        }
        node.connection = None;
        if std::mem::take(&mut node.is_joined) {
            self.measured.nodes.remove(now);
            node.machine.handle(node.clock.at(now), CoreEvent::Disconnected);
        }
        let dispatcher = node.dispatcher;
        self.close_at_dispatcher(dispatcher, connection, now);
        let at = self.reconnect_at(dispatcher);
        self.events.plan(at, Event::NodeConnects(number));
        self.pump(number)
    }

    pub(super) fn node_timer(&mut self, number: u32) -> Result<(), Broken> {
        let now = self.events.now;
        let node = &mut self.nodes[number as usize];
        if node.timer != Some(now) {
            return Ok(());
        }
        node.timer = None;
        if node.machine.poll_timeout().is_some_and(|(at, _)| node.clock.when(at) <= now) {
            node.machine.handle_timeout(node.clock.at(now));
        }
        self.pump(number)
    }

    /// Lets the executor act until it has nothing more to do.
    pub(super) fn pump(&mut self, number: u32) -> Result<(), Broken> {
        let now = self.events.now;
        loop {
            while let Some(action) = self.nodes[number as usize].machine.poll_action() {
                self.act(number, action)?;
            }
            let node = &mut self.nodes[number as usize];
            if node.ended.is_empty() {
                break;
            }
            for event in std::mem::take(&mut node.ended) {
                node.machine.handle(node.clock.at(now), event);
            }
        }
        let node = &mut self.nodes[number as usize];
        node.machine.give_memory_back();
        if self.scenario.check_all {
            node.machine.check().map_err(|error| format!("node {number}: {error}"))?;
        }
        if let Some((at, _)) = node.machine.poll_timeout() {
            let at = node.clock.when(at).max(now);
            // A timer that comes too early looks again; one that comes too
            // late would be too late.
            if node.timer.is_none_or(|planned| at < planned) {
                node.timer = Some(at);
                self.events.plan(at, Event::NodeTimer(number));
            }
        }
        Ok(())
    }

    fn act(&mut self, number: u32, action: Action) -> Result<(), Broken> {
        let node = &mut self.nodes[number as usize];
        match action {
            Action::Join(join) => self.say(number, &FromExecutor::Join(join)),
            Action::Update(update) => self.say(number, &FromExecutor::Update(update)),
            Action::Start(start) => match start.after.filter(|before| node.holds(*before)) {
                Some(before) => {
                    let has_inputs = self.has_inputs(number, &start)?;
                    let waits = Waits { before, start, has_inputs };
                    self.nodes[number as usize].waiting.push(waits);
                }
                None => {
                    let has_inputs = self.has_inputs(number, &start)?;
                    return self.start(number, &start, has_inputs);
                }
            },
            Action::TakeBack(key) => match node.unstick(key) {
                Some(_) => return self.give_back(number, key),
                None => node.take_back(key),
            },
            Action::Kill { key, .. } => {
                node.take_back(key);
                if let Some(start) = node.unstick(key) {
                    return match start.after {
                        Some(_) => self.give_back(number, key),
                        None => self.end_unstarted(number, key, Outcome::Signal(15)),
                    };
                }
                self.signal(number, key);
            }
            Action::Stage(action) => return self.act_on_stage(number, action),
            Action::Collect(action) => return self.act_on_outputs(number, action),
            Action::Peers(peers) => return self.set_peers(number, peers),
            Action::Gang(GangAction::Form { .. }) => {}
            Action::Gang(GangAction::Disband { key }) => {
                node.ended.push(CoreEvent::GangEnded { key, usage: None });
            }
            Action::Left => self.node_leaves(number)?,
            Action::Prepare { .. }
            | Action::Forget(_)
            | Action::Clear(_)
            | Action::Discard(_)
            | Action::VisitEnded(..) => {}
        }
        Ok(())
    }

    /// A process is told to end, and obeys at once.
    fn signal(&mut self, number: u32, key: TaskKey) {
        let now = self.events.now;
        let node = &mut self.nodes[number as usize];
        if let Some(process) = node.processes.iter_mut().find(|one| one.key == key)
            && process.ends > now
        {
            process.ends = now;
            process.outcome = Outcome::Signal(15);
            let reading = process.reading.take();
            self.events.plan(now, Event::TaskEnds { node: number, key });
            if let Some(transfer) = reading {
                self.abandon(transfer);
            }
        }
    }

    /// All processes of a node are told to end. Returns whether there are any.
    pub(super) fn signal_all(&mut self, number: u32) -> bool {
        let processes = &self.nodes[number as usize].processes;
        let keys: Vec<TaskKey> = processes.iter().map(|process| process.key).collect();
        keys.iter().for_each(|key| self.signal(number, *key));
        !keys.is_empty()
    }

    fn say(&mut self, number: u32, message: &FromExecutor) {
        let node = &self.nodes[number as usize];
        if let Some(connection) = node.connection {
            let (dispatcher, bytes) = (node.dispatcher, message.to_bytes());
            let span = span_of(bytes.len(), self.scenario.executor.bytes_per_s);
            let departs = self.events.now.after(span);
            self.send(dispatcher, connection, Way::Up, departs, bytes);
        }
    }

    /// A task has ended: the one that comes after it starts, if any does.
    fn start_next(&mut self, number: u32, key: TaskKey) -> Result<(), Broken> {
        let waiting = &mut self.nodes[number as usize].waiting;
        let Some(at) = waiting.iter().position(|waits| waits.before == key) else { return Ok(()) };
        let Waits { start, has_inputs, .. } = waiting.remove(at);
        self.start(number, &start, has_inputs)
    }

    /// The time of all slots that a task of the workload has had for so long.
    fn slot_time(&self, index: u64, time: Nanos) -> u128 {
        u128::from(self.scenario.workload.milli_of(index)) * u128::from(time.0) / u128::from(MILLI)
    }

    fn start(&mut self, number: u32, start: &Start, has_inputs: bool) -> Result<(), Broken> {
        let now = self.events.now;
        let (key, count, task) = (start.key, start.count, task_of(start));
        if !has_inputs {
            return self.end_unstarted(number, key, Outcome::NoInput);
        }
        let node = &mut self.nodes[number as usize];
        if start.class.kind == Kind::Process && node.disk_hangs_until > now {
            self.wait_for_disk(number, start.clone(), now.after(FILE_LIMIT));
            return Ok(());
        }
        let client = node.client;
        let ledger = &mut self.ledgers[client as usize];
        ledger.started(task, count)?;
        if start.class.kind == Kind::Noop {
            ledger.stopped(task, count, true)?;
            let (started, ended) = (node.clock.at(now), node.clock.at(now));
            let outcome = Outcome::Exit(0);
            node.ended.push(CoreEvent::Ended { key, outcome, started, ended, detail: None });
            return Ok(());
        }
        let cpus_milli = start.class.resources.cpus_milli;
        if !node.has_free(cpus_milli) || count != 1 {
            let slots = node.group.slots;
            let what = format!(
                "{count} tasks from {} start on node {number} beyond its {slots} slots",
                key.task
            );
            return Err(Broken(what));
        }
        let speed = node.speed;
        self.count_reads(start);
        let index = self.workload_index(client, task);
        let workload = &self.scenario.workload;
        let mut run = workload.run_of(self.seed ^ SEED_RUNS, index);
        let mut started = now;
        if workload.kind == TaskKind::Compute {
            run = Nanos((run.0 as f64 / speed) as u64);
            started = now.after(self.scenario.executor.start);
        }
        let fails = self.scenario.faults.task_failure;
        let recorded = workload.recorded.as_ref();
        let succeeded = recorded.is_none_or(|recorded| recorded.succeeds(index, start.attempt));
        let outcome = if !succeeded || (fails > 0.0 && self.rng.fraction() < fails) {
            Outcome::Exit(1)
        } else {
            Outcome::Exit(0)
        };
        self.measured.running.add(now);
        // An object that a cache has brought need not be read from afar; on a disk, it
        // has to be read all the same.
        let disk = self.transfers.has_disk(number);
        let own = start.data.as_ref().map(|data| {
            let staged = data.inputs.iter().filter(|_| disk);
            staged.map(|input| object_number(input.object.id)).collect()
        });
        let (ends, reading) = (NOT_YET, None);
        let process = Process {
            key,
            task,
            started,
            ends,
            run,
            outcome,
            own,
            read: 0,
            reading,
            has_put: false,
            cpus_milli,
        };
        let processes = &mut self.nodes[number as usize].processes;
        if processes.is_empty() {
            self.measured.busy_nodes.add(now);
        }
        processes.reserve_exact(1);
        processes.push(process);
        self.go_on(number, key, started);
        Ok(())
    }

    /// A task that waited for the disk will not start.
    fn give_back(&mut self, number: u32, key: TaskKey) -> Result<(), Broken> {
        self.nodes[number as usize].ended.push(CoreEvent::TakenBack(key));
        self.start_next(number, key)
    }

    /// A task has ended without having run.
    fn end_unstarted(&mut self, number: u32, key: TaskKey, outcome: Outcome) -> Result<(), Broken> {
        let node = &mut self.nodes[number as usize];
        let now = node.clock.at(self.events.now);
        let event = CoreEvent::Ended { key, outcome, started: now, ended: now, detail: None };
        node.ended.push(event);
        self.start_next(number, key)
    }

    /// A task starts once the disk answers, if that is before `limit`.
    fn wait_for_disk(&mut self, number: u32, start: Start, limit: Nanos) {
        let node = &mut self.nodes[number as usize];
        let (until, key) = (node.disk_hangs_until.min(limit), start.key);
        node.stuck.push(Stuck { start, limit, until });
        self.events.plan(until, Event::DiskAnswers { node: number, key });
    }

    /// The disk that a task's start waited for answers, or has not for so long
    /// that the task is not run here.
    pub(super) fn disk_answers(&mut self, number: u32, key: TaskKey) -> Result<(), Broken> {
        let now = self.events.now;
        let node = &mut self.nodes[number as usize];
        let waited = |stuck: &Stuck| stuck.until == now && stuck.start.key == key;
        let Some(at) = node.stuck.iter().position(waited) else { return Ok(()) };
        let Stuck { start, limit, .. } = node.stuck.swap_remove(at);
        if node.disk_hangs_until <= now {
            self.start(number, &start, true)?;
        } else if limit <= now {
            self.end_unstarted(number, key, Outcome::NotRun)?;
        } else {
            // The disk hangs for longer than it seemed.
            self.wait_for_disk(number, start, limit);
        }
        self.pump(number)
    }

    /// A process reads its next input, from `at` on, or computes if it has
    /// read them all.
    fn go_on(&mut self, number: u32, key: TaskKey, at: Nanos) {
        let node = &mut self.nodes[number as usize];
        let client = node.client;
        let Some(process) = node.processes.iter_mut().find(|one| one.key == key) else { return };
        process.reading = None;
        let (which, task) = (process.read, process.task);
        let own = process.own.as_ref().map(|own| own.get(which as usize).copied());
        let index = task * u64::from(self.scenario.dispatchers) + u64::from(client);
        let workload = &self.scenario.workload;
        let of_store = || workload.read_at(self.seed ^ SEED_INPUTS, index, which);
        if let Some(object) = own.unwrap_or_else(of_store) {
            process.read += 1;
            let bytes = workload.object_bytes(object);
            let transfer = match own.is_some() {
                true => self.read_own(at, number, bytes, Ends::Own { key, object }),
                false => {
                    self.measured.reads.add(1, bytes);
                    self.use_store(at, number, bytes, Ends::Read { key, object })
                }
            };
            let node = &mut self.nodes[number as usize];
            if let Some(process) = node.processes.iter_mut().find(|one| one.key == key) {
                process.reading = Some(transfer);
            }
            return;
        }
        process.ends = at.after(process.run);
        self.events.plan(process.ends, Event::TaskEnds { node: number, key });
    }

    /// A process has read an input.
    pub(super) fn has_read(&mut self, number: u32, key: TaskKey) {
        self.go_on(number, key, self.events.now);
    }

    pub(super) fn task_ends(&mut self, number: u32, key: TaskKey) -> Result<(), Broken> {
        let now = self.events.now;
        let node = &mut self.nodes[number as usize];
        // It may have been killed before, or the node may have crashed.
        let ends = |process: &Process| process.key == key && process.ends == now;
        let Some(at) = node.processes.iter().position(ends) else { return Ok(()) };
        let is_whole = node.processes[at].outcome == Outcome::Exit(0);
        let (client, task) = (node.client, node.processes[at].task);
        let index = self.workload_index(client, task);
        let node = &mut self.nodes[number as usize];
        if is_whole
            && !node.processes[at].has_put
            && let Some(transfer) = self.begin_put(number, (key, index))
        {
            let process = &mut self.nodes[number as usize].processes[at];
            (process.ends, process.reading, process.has_put) = (NOT_YET, Some(transfer), true);
            return Ok(());
        }
        let node = &mut self.nodes[number as usize];
        let client = node.client;
        let process = node.processes.swap_remove(at);
        if node.processes.is_empty() {
            self.measured.busy_nodes.remove(now);
        }
        let ran = process.outcome != Outcome::Signal(15);
        self.measured.running.remove(now);
        self.measured.busy += self.slot_time(index, now.since(process.started));
        self.ledgers[client as usize].stopped(process.task, 1, ran)?;
        let sizes = self.written_sizes(index).filter(|_| is_whole);
        let node = &mut self.nodes[number as usize];
        if let Some(sizes) = sizes {
            node.ended.push(CoreEvent::Wrote { key, sizes });
        }
        node.ended.push(CoreEvent::Ended {
            key,
            outcome: process.outcome,
            started: node.clock.at(process.started.min(now)),
            ended: node.clock.at(now),
            detail: None,
        });
        self.start_next(number, key)?;
        let node = &mut self.nodes[number as usize];
        for event in std::mem::take(&mut node.ended) {
            node.machine.handle(node.clock.at(now), event);
        }
        self.pump(number)
    }

    /// A process has written its output to the store.
    pub(super) fn has_put(&mut self, number: u32, key: TaskKey) -> Result<(), Broken> {
        let now = self.events.now;
        self.measured.files += 1;
        let processes = &mut self.nodes[number as usize].processes;
        let Some(process) = processes.iter_mut().find(|process| process.key == key) else {
            return Ok(());
        };
        (process.ends, process.reading) = (now, None);
        self.task_ends(number, key)
    }

    /// A node's executor is killed, for good. The machine goes on: it tells
    /// everybody at once who asks for it.
    pub(super) fn node_killed(&mut self, number: u32) -> Result<(), Broken> {
        let is_down = self.nodes[number as usize].down_until > self.events.now;
        self.measured.faults += 1;
        if is_down { Ok(()) } else { self.stop_node(number, false) }
    }

    /// A node's executor is gone with all that ran there.
    pub(super) fn stop_node(&mut self, number: u32, is_silent: bool) -> Result<(), Broken> {
        let now = self.events.now;
        let incarnation = self.next_incarnation;
        self.next_incarnation += 1;
        self.break_handovers((number, self.nodes[number as usize].incarnation));
        let node = &mut self.nodes[number as usize];
        node.staged.clear();
        node.machine = executor(incarnation, node.number, &node.group);
        node.incarnation = incarnation;
        node.objects = Objects::default();
        if let Some(pages) = &mut node.pages {
            pages.clear();
        }
        node.waiting.clear();
        node.stuck.clear();
        node.clock = Clock::default();
        node.ended.clear();
        node.timer = None;
        if !node.processes.is_empty() {
            self.measured.busy_nodes.remove(now);
        }
        let (client, processes) = (node.client, std::mem::take(&mut node.processes));
        for process in processes {
            self.measured.running.remove(now);
            let index = self.workload_index(client, process.task);
            self.measured.busy += self.slot_time(index, now.since(process.started));
            self.ledgers[client as usize].stopped(process.task, 1, false)?;
        }
        let node = &mut self.nodes[number as usize];
        if std::mem::take(&mut node.is_joined) {
            self.measured.nodes.remove(now);
        }
        let (dispatcher, connection) = (node.dispatcher, node.connection.take());
        self.transfers_break(number, is_silent);
        if let Some(connection) = connection
            && !is_silent
        {
            let at = now.after(self.scenario.network.latency);
            self.close_at_dispatcher(dispatcher, connection, at);
        }
        Ok(())
    }
}
