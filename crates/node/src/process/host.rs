//! The process host: takes launches from the executor, runs each in a slot, sends back the ends.
//!
//! Its threads: one reads the socket and hands each launch to a slot (a thread that stands by, or
//! a new one); the slots run the tasks; the first one, the janitor, waits for the executor to go
//! away and looks after what tasks leave behind. A slot's thread lives as long as the host, as
//! the kernel kills a task when the thread that started it ends. The janitor starts no tasks, and
//! what tasks leave behind becomes a child of the first thread, so it can wait for its own
//! children without taking the end of a task away from a slot.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::EventfdFlags;

use super::copy::{Copies, Templates};
use super::environment::Inherited;
use super::orphans::Janitor;
use super::outbox::Outbox;
use super::record::{self, ForHost, Garbled, Incoming};
use super::start::Start;
use super::{HUNG_SLOTS_MAX, Kill, RUNNING_TASKS_MAX, START_MS_MAX, Source, slot};

/// How often the janitor looks whether tasks have left something behind.
const JANITOR_PERIOD_MS: u64 = 1_000;

/// Stack of the reader and of each slot, which hold their buffers on the heap.
const THREAD_STACK_BYTES: usize = 256 << 10;

/// The process host's `main`: to be called, before anything else is done, by a program whose
/// first argument is [`HOST_ARGUMENT`](super::HOST_ARGUMENT). Returns when the executor has gone
/// and nothing of any task is left.
pub fn host_main() -> ExitCode {
    // A panic in one thread would leave its task without a result for ever; without a host, the
    // executor at least knows.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    let Some(instance) = std::env::args_os().nth(2) else {
        eprintln!("falkon: the task host is started by falkon itself");
        return ExitCode::from(2);
    };
    let limit = std::env::args().nth(3).and_then(|text| text.parse().ok());
    match serve(&instance, Duration::from_millis(limit.unwrap_or(START_MS_MAX))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("falkon: the task host failed: {error}");
            ExitCode::from(3)
        }
    }
}

fn serve(instance: &OsStr, start_limit: Duration) -> io::Result<()> {
    reset_signals()?;
    // Away from the terminal, whose signals are for the executor to act upon.
    rustix::process::setsid()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::thread::set_name(c"falkon-host")?;
    let socket = take_socket()?;
    let pool = Arc::new(Pool {
        state: Mutex::default(),
        closed: Condvar::new(),
        outbox: Outbox::new(socket.try_clone()?),
        inherited: Inherited::read(instance),
        open_files: raise_open_files(),
        pid: rustix::process::getpid().as_raw_nonzero().get(),
        copies: Copies::default(),
    });
    // With one slot in any case, a launch that finds no new thread waits for one to be free.
    let seat = pool.new_slot()?;
    {
        let mut state = pool.lock();
        state.idle.push(seat);
        state.slots = 1;
    }
    let reading = Arc::clone(&pool);
    std::thread::Builder::new().stack_size(THREAD_STACK_BYTES).spawn(move || {
        reading.read(socket);
        reading.close();
    })?;
    pool.outbox.send(record::put_ready);

    let mut janitor = Janitor::new();
    while !pool.wait_closed(Duration::from_millis(JANITOR_PERIOD_MS)) {
        janitor.look(&pool);
        pool.watch_starts(start_limit);
        // A slot that holds ends back may hang, as what it is about to execute does.
        pool.outbox.flush();
    }
    janitor.kill_all(&pool);
    Ok(())
}

/// Blocks all signals for all threads to come, and undoes what was inherited: tasks start with
/// the dispositions of the host.
fn reset_signals() -> io::Result<()> {
    // SAFETY: Plain values are passed to system calls; no other thread exists yet. Signals
    // without a changeable disposition give an error that changes nothing.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        let error = libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
    Ok(())
}

/// Takes the socket from standard input and puts `/dev/null` there, for tasks to inherit.
fn take_socket() -> io::Result<UnixStream> {
    let socket = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
    let null = std::fs::File::open("/dev/null")?;
    // SAFETY: Puts one open descriptor in the place of another; that of standard input is used by
    // nothing in the host.
    if unsafe { libc::dup2(null.as_raw_fd(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(UnixStream::from(socket))
}

/// Raises the limit on open files as far as allowed; returns the former one if that changed it.
fn raise_open_files() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the result, and a valid argument after it.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 || limit.rlim_cur >= limit.rlim_max
        {
            return None;
        }
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        (libc::setrlimit(libc::RLIMIT_NOFILE, &raised) == 0).then_some(limit)
    }
}

/// All that the host's threads share.
#[derive(Debug)]
pub(super) struct Pool {
    state: Mutex<State>,
    closed: Condvar,
    pub(super) outbox: Outbox,
    pub(super) inherited: Inherited,
    /// The limit on open files that tasks get, if it is not the host's own.
    pub(super) open_files: Option<libc::rlimit>,
    /// The host's process number.
    pub(super) pid: libc::pid_t,
    pub(super) copies: Copies,
}

#[derive(Debug, Default)]
struct State {
    /// Slots without a task, the last one used at the end.
    idle: Vec<Arc<Seat>>,
    running: HashMap<u64, Running>,
    /// What waits for a slot.
    waiting: VecDeque<Waiting>,
    /// What waits for a task to end, by the key of that task.
    followers: HashMap<u64, Waiting>,
    /// The keys of all of these.
    held: HashSet<u64>,
    slots: usize,
    /// Slots that hang in the start of a task that was given up.
    hung: usize,
    /// Tasks given to slots so far; the number of each.
    starts: u64,
    templates: Templates,
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
}

/// Where a slot waits for its next task, and is woken during one.
#[derive(Debug)]
pub(super) struct Seat {
    next: Mutex<Option<Assignment>>,
    bell: Condvar,
    pub(super) start: Start,
    /// An eventfd: look for an order to end the task, and send what is held back.
    pub(super) wake: OwnedFd,
}

/// A task for a slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    /// The launch, as it came.
    pub(super) order: Vec<u8>,
    /// It was killed while it waited.
    pub(super) killed: bool,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic aborts the host, so a poisoned lock is never met.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads records until the executor is gone or says what makes no sense.
    fn read(self: &Arc<Self>, mut socket: UnixStream) {
        let mut incoming = Incoming::default();
        loop {
            match socket.read(incoming.room()) {
                Ok(0) => return,
                Ok(count) => incoming.filled(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            }
            if let Err(Garbled) = self.take(&mut incoming) {
                eprintln!("falkon: the task host got a garbled message and stops");
                return;
            }
        }
    }

    fn take(self: &Arc<Self>, incoming: &mut Incoming) -> Result<(), Garbled> {
        while let Some(record) = incoming.next()? {
            match record::read_for_host(record)? {
                ForHost::Launch { key, after, source } => {
                    if source == Source::Template {
                        self.lock().templates.prepare(key);
                    }
                    self.launch(key, after, record.to_vec())?;
                }
                ForHost::Kill(kill) => self.kill(kill),
                ForHost::TakeBack(key) => self.take_back(self.lock(), key),
            }
        }
        Ok(())
    }

    fn launch(
        self: &Arc<Self>,
        key: u64,
        after: Option<u64>,
        order: Vec<u8>,
    ) -> Result<(), Garbled> {
        let mut state = self.lock();
        if !state.held.insert(key) {
            return Err(Garbled);
        }
        let one = Waiting { key, assignment: Assignment { order, killed: false } };
        match after {
            Some(after) if after != key && state.held.contains(&after) => {
                let last = state.last_follower(after);
                state.followers.insert(last, one);
            }
            _ => self.place(state, one),
        }
        Ok(())
    }

    /// Gives a task to a slot that is free or new; if there can be none, it waits for one.
    fn place(self: &Arc<Self>, mut state: MutexGuard<'_, State>, one: Waiting) {
        let mut seat = state.idle.pop();
        if seat.is_none() && state.slots < RUNNING_TASKS_MAX {
            seat = self.new_slot().ok();
            state.slots += usize::from(seat.is_some());
        }
        match seat {
            Some(seat) => {
                state.run(one.key, Arc::clone(&seat));
                drop(state);
                seat.give(one.assignment);
            }
            None => state.waiting.push_back(one),
        }
    }

    fn new_slot(self: &Arc<Self>) -> io::Result<Arc<Seat>> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let seat = Arc::new(Seat::new(wake));
        let slot = slot::Slot::new(Arc::clone(self), Arc::clone(&seat))?;
        std::thread::Builder::new().stack_size(THREAD_STACK_BYTES).spawn(move || slot.run())?;
        Ok(seat)
    }

    fn kill(self: &Arc<Self>, Kill { key, grace }: Kill) {
        let mut state = self.lock();
        if let Some(running) = state.running.get_mut(&key) {
            running.kill = Some(running.kill.map_or(grace, |earlier| earlier.min(grace)));
            running.seat.wake();
        } else {
            self.take_back(state, key);
        }
    }

    /// A task that waits will not start; one that has started is left alone. In any case the
    /// executor wants to know where its tasks are: what is held back is sent.
    fn take_back(self: &Arc<Self>, mut state: MutexGuard<'_, State>, key: u64) {
        if let Some(waiting) = state.waiting.iter_mut().find(|one| one.key == key) {
            waiting.assignment.killed = true;
        } else if let Some(mut follower) = state.take_follower(key) {
            // Only slots send, so one of them gets it to send it back.
            follower.assignment.killed = true;
            self.place(state, follower);
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
    fn wait_closed(&self, period: Duration) -> bool {
        let waited = self.closed.wait_timeout_while(self.lock(), period, |state| !state.closing);
        waited.unwrap_or_else(PoisonError::into_inner).0.closing
    }

    /// An order to end the task `key` that has come since the last call.
    pub(super) fn kill_order(&self, key: u64) -> Option<Duration> {
        self.lock().running.get_mut(&key)?.kill.take()
    }

    /// Looks at starts that take long: those of tasks that are to end are killed, and those that
    /// hang for longer than `limit` are given up, with the file system that they hang in.
    fn watch_starts(self: &Arc<Self>, limit: Duration) {
        let now = slot::now_us();
        let mut hanging = Vec::new();
        {
            let state = self.lock();
            for (key, running) in &state.running {
                let Some(age) = running.seat.start.age(now).map(Duration::from_micros) else {
                    continue;
                };
                let period = Duration::from_millis(JANITOR_PERIOD_MS);
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

    fn give_up(self: &Arc<Self>, key: u64, seat: &Arc<Seat>) {
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
        state.held.remove(&key);
        state.templates.ended(key);
        let follower = state.followers.remove(&key);
        match follower {
            Some(follower) => self.place(state, follower),
            None => drop(state),
        }
        self.outbox.send(|out| slot::put_given_up(out, key, stage, since));
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
        state.held.remove(&key);
        state.templates.ended(key);
        let follower = state.followers.remove(&key)?;
        let followed = state.followers.contains_key(&follower.key);
        state.run(follower.key, Arc::clone(seat));
        Some((follower.assignment, followed))
    }

    /// Waits for the next task for a slot.
    pub(super) fn next(&self, seat: &Arc<Seat>) -> Assignment {
        let mut state = self.lock();
        if let Some(one) = state.waiting.pop_front() {
            state.run(one.key, Arc::clone(seat));
            return one.assignment;
        }
        state.idle.push(Arc::clone(seat));
        drop(state);
        seat.take()
    }

    /// What becomes the standard input of a template.
    pub(super) fn template_input(&self, key: u64) -> Option<OwnedFd> {
        self.lock().templates.input(key)
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

    /// The number of the next start, and of the oldest that is still running.
    pub(super) fn starts(&self) -> (u64, Option<u64>) {
        let state = self.lock();
        (state.starts, state.running.values().map(|running| running.start).min())
    }
}

impl State {
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
        Seat { next: Mutex::default(), bell: Condvar::new(), start: Start::new(), wake }
    }

    fn wake(&self) {
        // Only a counter at its end, which is as good as woken, makes this fail.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn give(&self, assignment: Assignment) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(assignment);
        self.bell.notify_one();
    }

    /// Waits for the task that the reader gives to this slot.
    pub(super) fn take(&self) -> Assignment {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match next.take() {
                Some(assignment) => return assignment,
                None => next = self.bell.wait(next).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_free_slot_tasks_wait_in_order_and_can_be_killed() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let full = State { slots: RUNNING_TASKS_MAX, ..State::default() };
        let pool = Arc::new(Pool {
            state: Mutex::new(full),
            closed: Condvar::new(),
            outbox: Outbox::new(socket),
            inherited: Inherited::read(OsStr::new("test")),
            open_files: None,
            pid: 1,
            copies: Copies::default(),
        });
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
        assert_eq!(pool.next(&seat), assignment(1, false));
        pool.take_back(pool.lock(), 1);
        assert_eq!(pool.kill_order(1), None, "a task that runs is not taken back");
        assert_eq!(pool.ended(1, &seat), Some((assignment(4, false), true)));
        assert_eq!(pool.ended(4, &seat), Some((assignment(6, false), false)));
        assert_eq!(pool.ended(6, &seat), None);
        for (key, killed) in [(2, true), (3, false), (5, true)] {
            assert_eq!(pool.next(&seat), assignment(key, killed));
            assert_eq!(pool.ended(key, &seat), None);
        }
        assert!(!pool.busy());
    }
}
