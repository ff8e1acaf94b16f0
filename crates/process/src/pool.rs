//! The tasks of a host: which wait, which run in which slot, and which are to end.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::EventfdFlags;
use rustix::process::Pid;

use super::capture::Stream;
use super::clock::now_us;
use super::copy::{Copies, Templates};
use super::environment::Inherited;
use super::groups::Groups;
use super::host_protocol::{self, ForHost, Garbled, Report};
use super::inbox::{Inbox, Rest};
use super::outbox::Outbox;
use super::shortage::Shortages;
use super::start::Start;
use super::{HUNG_SLOTS_MAX, Kill, Outcome, RUNNING_TASKS_MAX, Source, Stage, Tail, Usage};

/// Most slots: as many as tasks run, and one that reads.
const SLOTS_MAX: usize = RUNNING_TASKS_MAX + 1;

/// Slots that keep the pipes for a task's output ready; others save the descriptors.
const READY_SLOTS_MAX: usize = 64;

/// All that the host's threads share.
#[derive(Debug)]
pub(super) struct Pool {
    state: Mutex<State>,
    closed: Condvar,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    pub(super) inherited: Inherited,
    /// The limit on open files that tasks get, if it is not the host's own.
    pub(super) open_files: Option<libc::rlimit>,
    /// The host's process number.
    pub(super) pid: libc::pid_t,
    pub(super) copies: Copies,
    pub(super) groups: Groups,
    pub(super) shortages: Shortages,
    start_slot: StartSlot,
    /// Somebody asks what a task has written. Read without the lock, as that is hardly ever so.
    is_asked: AtomicBool,
}

/// Starts the thread of a slot; the flag says whether it keeps the pipes for a task's output ready.
pub(super) type StartSlot = fn(Arc<Pool>, Arc<Seat>, bool) -> io::Result<()>;

/// What a pool is made of: see the fields of [`Pool`].
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) templates: Templates,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    pub(super) inherited: Inherited,
    pub(super) open_files: Option<libc::rlimit>,
    pub(super) pid: libc::pid_t,
    pub(super) copies: Copies,
    pub(super) groups: Groups,
    pub(super) start_slot: StartSlot,
}

#[derive(Debug, Default)]
struct State {
    /// Slots without a task.
    idle: usize,
    running: HashMap<u64, Running>,
    /// The launches that wait for a slot.
    waiting: VecDeque<Waiting>,
    /// The launches that wait for a task to end, by the key of that task.
    followers: HashMap<u64, Waiting>,
    /// The keys of all of these.
    held: HashSet<u64>,
    slots: usize,
    /// Slots that hang in the start of a task that was given up.
    hung: usize,
    /// Tasks given to slots so far; the number of each.
    starts: u64,
    /// Processes that have left the tasks with these keys, and are the host's children now.
    strays: HashMap<u64, Vec<libc::pid_t>>,
    templates: Templates,
    /// By task, the questions what it has written, until its slot answers them. Those about a
    /// task that ends before go with it: its end says more.
    tails: HashMap<u64, Vec<Tail>>,
    closing: bool,
}

#[derive(Debug)]
struct Running {
    seat: Arc<Seat>,
    start: u64,
    /// An order to end it that its slot has not taken yet.
    kill: Option<Duration>,
}

#[derive(Debug)]
struct Waiting {
    key: u64,
    assignment: Assignment,
    /// An order to end it that came before a slot took it.
    kill: Option<Duration>,
}

/// How a slot is reached while it runs a task.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) start: Start,
    /// An eventfd: look for an order to end the task, and send what is held back.
    pub(super) wake: OwnedFd,
}

/// A task for a slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    /// The launch, as it came.
    pub(super) order: Vec<u8>,
    /// The task was killed while it waited.
    pub(super) killed: bool,
}

impl Pool {
    /// A pool without slots.
    pub(super) fn new(parts: Parts) -> Pool {
        let Parts {
            templates,
            inbox,
            outbox,
            inherited,
            open_files,
            pid,
            copies,
            groups,
            start_slot,
        } = parts;
        let state = Mutex::new(State { templates, ..State::default() });
        let closed = Condvar::new();
        let is_asked = AtomicBool::new(false);
        Pool {
            state,
            closed,
            inbox,
            outbox,
            inherited,
            open_files,
            pid,
            copies,
            groups,
            shortages: Shortages::new(),
            start_slot,
            is_asked,
        }
    }

    /// Makes so many slots.
    pub(super) fn add_slots(self: &Arc<Self>, slots: usize) -> io::Result<()> {
        let mut state = self.lock();
        (0..slots).try_for_each(|_| self.add_slot(&mut state))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic aborts the host, so a poisoned lock is never met.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what the executor has sent, for a slot that was woken by it.
    pub(super) fn read(self: &Arc<Self>) {
        match self.inbox.read(|record| self.take(record)) {
            Ok(Rest::More) => self.inbox.watch(),
            Ok(Rest::End) => self.close(),
            Err(Garbled) => {
                eprintln!("falkon: the task host got a garbled message and stops");
                self.close();
            }
        }
    }

    fn take(&self, record: &[u8]) -> Result<(), Garbled> {
        match host_protocol::read_for_host(record)? {
            ForHost::Launch { key, after, source } => {
                match source {
                    Source::Template => self.lock().templates.prepare(key),
                    Source::Forked => self.lock().templates.adopt(key),
                    Source::Program | Source::Copy { .. } => {}
                }
                self.launch(key, after, record.to_vec())?;
            }
            ForHost::Kill(kill) => self.kill(kill),
            ForHost::TakeBack(key) => self.take_back(self.lock(), key),
            ForHost::Tail(tail) => self.tail(tail),
        }
        Ok(())
    }

    fn launch(&self, key: u64, after: Option<u64>, order: Vec<u8>) -> Result<(), Garbled> {
        let mut state = self.lock();
        if !state.held.insert(key) {
            return Err(Garbled);
        }
        let one = Waiting { key, assignment: Assignment { order, killed: false }, kill: None };
        match after {
            Some(after) if after != key && state.held.contains(&after) => {
                let last = state.last_follower(after);
                state.followers.insert(last, one);
            }
            // The slot that reads this takes it, or the first that has nothing to do.
            _ => state.waiting.push_back(one),
        }
        Ok(())
    }

    /// Makes a slot, which begins idle.
    fn add_slot(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let is_ready = state.slots < READY_SLOTS_MAX;
        (self.start_slot)(Arc::clone(self), Arc::new(Seat::new(wake)), is_ready)?;
        state.slots += 1;
        state.idle += 1;
        Ok(())
    }

    /// A waiting task for the idle slot of `seat`, unless no slot would be left to read. Then a
    /// slot takes it that has ended a task.
    pub(super) fn begin(self: &Arc<Self>, seat: &Arc<Seat>) -> Option<Assignment> {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            return None;
        }
        let is_last = state.idle < 2;
        if is_last && (state.slots >= SLOTS_MAX || self.add_slot(&mut state).is_err()) {
            return None;
        }
        let one = state.waiting.pop_front()?;
        state.idle -= 1;
        state.run(one.key, Arc::clone(seat));
        if let (Some(kill), Some(running)) = (one.kill, state.running.get_mut(&one.key)) {
            running.kill.get_or_insert(kill);
            seat.wake();
        }
        let more = !state.waiting.is_empty();
        drop(state);
        if more {
            self.inbox.ring();
        }
        Some(one.assignment)
    }

    fn kill(&self, Kill { key, grace }: Kill) {
        let mut state = self.lock();
        if let Some(running) = state.running.get_mut(&key) {
            running.kill = Some(running.kill.map_or(grace, |earlier| earlier.min(grace)));
            running.seat.wake();
            return;
        }
        // A task that a slot is about to take starts, as it would have a moment earlier.
        let is_taken = state.slots < SLOTS_MAX;
        match state.waiting.iter_mut().find(|one| is_taken && one.key == key) {
            Some(one) => one.kill = Some(one.kill.map_or(grace, |earlier| earlier.min(grace))),
            None => self.take_back(state, key),
        }
    }

    /// Passes a question on to the slot that can answer it.
    fn tail(&self, tail: Tail) {
        let mut state = self.lock();
        if !state.held.contains(&tail.key) {
            return;
        }
        state.tails.entry(tail.key).or_default().push(tail);
        self.is_asked.store(true, Ordering::Relaxed);
        if let Some(running) = state.running.get(&tail.key) {
            running.seat.wake();
        }
    }

    /// The questions about the task `key` that have come since the last call.
    pub(super) fn tails(&self, key: u64) -> Vec<Tail> {
        if !self.is_asked.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut state = self.lock();
        let tails = state.tails.remove(&key).unwrap_or_default();
        self.is_asked.store(!state.tails.is_empty(), Ordering::Relaxed);
        tails
    }

    /// A task that waits will not start; one that has started is left alone. In any case the
    /// executor wants to know where its tasks are: what is held back is sent.
    fn take_back(&self, mut state: MutexGuard<'_, State>, key: u64) {
        if let Some(waiting) = state.waiting.iter_mut().find(|one| one.key == key) {
            waiting.assignment.killed = true;
        } else if let Some(mut follower) = state.take_follower(key) {
            // Only slots send, so one of them gets it to send it back.
            follower.assignment.killed = true;
            state.waiting.push_back(follower);
        } else if let Some(running) = state.running.values().next() {
            running.seat.wake();
        }
    }

    /// The executor is gone: what runs is killed, what waits is dropped.
    fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        state.waiting.clear();
        state.followers.clear();
        for running in state.running.values_mut() {
            running.kill = Some(Duration::ZERO);
            running.seat.wake();
        }
        self.closed.notify_all();
    }

    /// Waits until the host is closing, at most `period`.
    pub(super) fn wait_closed(&self, period: Duration) -> bool {
        let waited = self.closed.wait_timeout_while(self.lock(), period, |state| !state.closing);
        waited.unwrap_or_else(PoisonError::into_inner).0.closing
    }

    /// An order to end the task `key` that has come since the last call.
    pub(super) fn kill_order(&self, key: u64) -> Option<Duration> {
        self.lock().running.get_mut(&key)?.kill.take()
    }

    /// Looks at starts that take long: those of tasks that are to end are killed, and those that
    /// hang for longer than `limit` are given up, with the file system that they hang in. Called
    /// once a `period`.
    pub(super) fn watch_starts(&self, limit: Duration, period: Duration) {
        let now = now_us();
        let mut hanging = Vec::new();
        {
            let state = self.lock();
            for (key, running) in &state.running {
                let Some(age) = running.seat.start.age(now).map(Duration::from_micros) else {
                    continue;
                };
                if age >= limit {
                    hanging.push((*key, Arc::clone(&running.seat)));
                } else if running.kill.is_some() && age >= period {
                    running.seat.start.kill();
                }
            }
        }
        for (key, seat) in hanging {
            self.give_up(key, &seat);
        }
    }

    fn give_up(&self, key: u64, seat: &Arc<Seat>) {
        let mut state = self.lock();
        // A slot that has come back since has a task of its own to end.
        let is_its = state.running.get(&key).is_some_and(|one| Arc::ptr_eq(&one.seat, seat));
        if !is_its || state.hung >= HUNG_SLOTS_MAX {
            return;
        }
        let Some((since, stage)) = seat.start.give_up() else { return };
        state.hung += 1;
        if state.hung == HUNG_SLOTS_MAX {
            eprintln!(
                "falkon: {HUNG_SLOTS_MAX} tasks hang at their start in file systems that do not \
                 answer: no more are given up"
            );
        }
        state.running.remove(&key);
        state.release(key);
        let follower = state.followers.remove(&key);
        let follows = follower.is_some();
        state.waiting.extend(follower);
        drop(state);
        if follows {
            self.inbox.ring();
        }
        self.outbox.send(|out| put_given_up(out, key, stage, since));
    }

    /// The slot of `seat` has come back from the start of a task that was given up.
    pub(super) fn came_back(&self) {
        self.lock().hung -= 1;
    }

    /// Task `key` has ended in the slot of `seat`; returns the one that comes after it, for the
    /// same slot, and whether yet another comes after that. Must be called before the end is
    /// sent, as the key is free from then.
    pub(super) fn ended(&self, key: u64, seat: &Arc<Seat>) -> Option<(Assignment, bool)> {
        let mut state = self.lock();
        state.running.remove(&key);
        state.release(key);
        let follower = state.followers.remove(&key)?;
        let followed = state.followers.contains_key(&follower.key);
        state.run(follower.key, Arc::clone(seat));
        Some((follower.assignment, followed))
    }

    /// The slot that ended a task has no other.
    pub(super) fn rest(&self) {
        self.lock().idle += 1;
    }

    /// The standard input of a template.
    pub(super) fn template_input(&self, key: u64) -> Option<OwnedFd> {
        self.lock().templates.input(key)
    }

    /// The process of the template that this host was started with, if it was launched so.
    pub(super) fn adopted(&self, key: u64) -> Option<Pid> {
        self.lock().templates.adopted(key)
    }

    /// Where a template takes orders.
    pub(super) fn template(&self, key: u64) -> Option<Arc<OwnedFd>> {
        self.lock().templates.socket(key)
    }

    /// Whether a task that runs is to end.
    pub(super) fn is_to_end(&self, key: u64) -> bool {
        self.lock().running.get(&key).is_some_and(|running| running.kill.is_some())
    }

    /// Whether any task is running.
    pub(super) fn busy(&self) -> bool {
        !self.lock().running.is_empty()
    }

    /// Whether the task `key` is running.
    pub(super) fn runs(&self, key: u64) -> bool {
        self.lock().running.contains_key(&key)
    }

    /// Which processes have left which tasks.
    pub(super) fn note_strays(&self, strays: HashMap<u64, Vec<libc::pid_t>>) {
        self.lock().strays = strays;
    }

    /// The processes that have left the task `key`, as the janitor has found them.
    pub(super) fn strays(&self, key: u64) -> Vec<libc::pid_t> {
        self.lock().strays.get(&key).cloned().unwrap_or_default()
    }

    /// The number of the next start, and of the oldest that is still running.
    pub(super) fn starts(&self) -> (u64, Option<u64>) {
        let state = self.lock();
        (state.starts, state.running.values().map(|running| running.start).min())
    }
}

impl State {
    /// A task has ended.
    fn release(&mut self, key: u64) {
        self.held.remove(&key);
        self.templates.ended(key);
        if !self.tails.is_empty() {
            self.tails.remove(&key);
        }
    }

    /// The last of the tasks that come one after the other after `key`.
    fn last_follower(&self, key: u64) -> u64 {
        let mut last = key;
        while let Some(follower) = self.followers.get(&last) {
            last = follower.key;
        }
        last
    }

    /// Takes a task out that waits for another to end; what comes after it moves up.
    fn take_follower(&mut self, key: u64) -> Option<Waiting> {
        let before = *self.followers.iter().find(|(_, one)| one.key == key)?.0;
        let taken = self.followers.remove(&before);
        if let Some(next) = self.followers.remove(&key) {
            self.followers.insert(before, next);
        }
        taken
    }

    fn run(&mut self, key: u64, seat: Arc<Seat>) {
        // A task that slips in while the host closes is killed as soon as it runs.
        let kill = self.closing.then_some(Duration::ZERO);
        if self.closing {
            seat.wake();
        }
        self.running.insert(key, Running { seat, start: self.starts, kill });
        self.starts += 1;
    }
}

impl Seat {
    fn new(wake: OwnedFd) -> Seat {
        Seat { start: Start::new(), wake }
    }

    fn wake(&self) {
        // Only a counter at its end, which is as good as woken, makes this fail.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// Appends the report of a task whose start was given up at this step.
fn put_given_up(out: &mut Vec<u8>, key: u64, stage: Stage, started: u64) {
    let outcome = Outcome::NotStarted { stage, errno: libc::ETIMEDOUT };
    let usage = Usage::default();
    let (ended, ranks) = (now_us(), Vec::new());
    let report = Report { key, outcome, started, ended, usage, shortage: None, ranks };
    host_protocol::put_ended(out, &report, [&Stream::default(), &Stream::default()]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::net::UnixStream;

    #[test]
    fn without_a_free_slot_tasks_wait_in_order_and_can_be_killed() {
        let (launches, _executor) = UnixStream::pair().unwrap();
        let (ends, _executor) = UnixStream::pair().unwrap();
        let pool = Arc::new(Pool::new(Parts {
            templates: Templates::default(),
            inbox: Inbox::new(launches).unwrap(),
            outbox: Outbox::new(ends),
            inherited: Inherited::read(OsStr::new("test")),
            open_files: None,
            pid: 1,
            copies: Copies::default(),
            groups: Groups::new(OsStr::new("test")),
            start_slot: |_, _, _| Err(io::ErrorKind::WouldBlock.into()),
        }));
        {
            // One slot runs a task outside the list, the other reads.
            let mut state = pool.lock();
            (state.slots, state.idle) = (SLOTS_MAX, 1);
        }
        for key in 1..=3 {
            pool.launch(key, None, vec![key as u8]).unwrap();
        }
        // 4, 5 and 6 come after 1, one after the other.
        for key in 4..=6 {
            pool.launch(key, Some(1), vec![key as u8]).unwrap();
        }
        pool.take_back(pool.lock(), 2);
        pool.kill(Kill { key: 5, grace: Duration::from_secs(1) });
        for key in 1..=6 {
            assert_eq!(pool.launch(key, None, Vec::new()), Err(Garbled), "the key is in use");
        }
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let seat = Arc::new(Seat::new(wake));
        let assignment = |key: u64, killed| Assignment { order: vec![key as u8], killed };
        assert_eq!(pool.begin(&seat), None, "nobody would read");
        pool.rest();
        assert_eq!(pool.begin(&seat), Some(assignment(1, false)));
        pool.take_back(pool.lock(), 1);
        assert_eq!(pool.kill_order(1), None, "a task that runs is not taken back");
        assert_eq!(pool.ended(1, &seat), Some((assignment(4, false), true)));
        assert_eq!(pool.ended(4, &seat), Some((assignment(6, false), false)));
        assert_eq!(pool.ended(6, &seat), None);
        for (key, killed) in [(2, true), (3, false), (5, true)] {
            pool.rest();
            assert_eq!(pool.begin(&seat), Some(assignment(key, killed)));
            assert_eq!(pool.ended(key, &seat), None);
        }
        assert!(!pool.busy());
    }
}
