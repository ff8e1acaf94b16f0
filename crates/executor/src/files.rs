//! Questions to file systems that may never answer.
//!
//! A call on a file system that is gone (a hard mount of NFS, an automounter)
//! may take for ever. So threads that owe no heartbeat look at the paths that
//! tasks name. A question without an answer in time ends with an error that
//! names the path; its thread stays in the call, and another one takes its
//! place. The number of such threads is bounded: beyond it no question is asked
//! until one of them returns.

use std::collections::{BTreeMap, VecDeque};
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Threads that stand by, and as many as there are while none is slow.
const THREADS_KEPT: usize = 4;
/// Threads in all, those that hang included.
const THREADS_MAX: usize = 64;
/// The time that a question waits before another thread is started.
const SLOW_MS: u64 = 20;
/// Answers taken in at once.
const ANSWERS_MAX: usize = 1024;

/// Work of a thread: what it gives is the answer.
type Work<A> = Box<dyn FnOnce(&Look) -> A + Send>;

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unanswered {
    /// The file system of this path has not answered within the limit.
    #[error(
        "{path}: the file system does not answer (for {} s; --file-timeout sets how long an \
         executor waits)",
        .limit.as_secs_f64()
    )]
    Hangs {
        /// The file that was looked at.
        path: PathBuf,
        /// For how long.
        limit: Duration,
    },
    /// The question was not asked, as all threads hang.
    #[error(
        "its files cannot be looked at here: the threads of this executor for that wait for file \
         systems that do not answer, one of them for {path}"
    )]
    NoThread {
        /// The path that one of them looks at.
        path: PathBuf,
    },
}

/// A question's way to a file system: it is known at what it looks.
#[derive(Debug)]
pub(super) struct Look {
    seat: Arc<Seat>,
}

impl Look {
    /// Notes the path that is looked at next.
    pub(super) fn at(&self, path: &Path) {
        let mut looking = lock(&self.seat.looking);
        if let Some(looking) = &mut *looking {
            path.clone_into(&mut looking.path);
        }
    }

    /// The metadata of a path; a symbolic link is followed.
    pub(super) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.at(path);
        std::fs::metadata(path)
    }
}

/// A thread, as others see it.
#[derive(Debug, Default)]
struct Seat {
    looking: Mutex<Option<Looking>>,
}

#[derive(Debug)]
struct Looking {
    question: u64,
    path: PathBuf,
}

struct Shared<A> {
    state: Mutex<State<A>>,
    bell: Condvar,
}

struct State<A> {
    waiting: VecDeque<(u64, Work<A>)>,
    seats: Vec<Arc<Seat>>,
    idle: usize,
    closing: bool,
}

/// See the [module](self). An `A` is an answer.
pub(super) struct Files<A> {
    shared: Arc<Shared<A>>,
    limit: Duration,
    answer: mpsc::UnboundedSender<(u64, A)>,
    answers: mpsc::UnboundedReceiver<(u64, A)>,
    heard: Vec<(u64, A)>,
    /// Not with the threads yet.
    unsent: Vec<(u64, Work<A>)>,
    /// Until when each question without an answer may have one.
    open: BTreeMap<u64, Instant>,
    next: u64,
    /// When to see whether questions wait for a thread.
    look_at: Option<Instant>,
}

impl<A: Send + 'static> Files<A> {
    /// Each question is to be answered within `limit`.
    pub(super) fn new(limit: Duration) -> Files<A> {
        let state = State { waiting: VecDeque::new(), seats: Vec::new(), idle: 0, closing: false };
        let (answer, answers) = mpsc::unbounded_channel();
        Files {
            shared: Arc::new(Shared { state: Mutex::new(state), bell: Condvar::new() }),
            limit,
            answer,
            answers,
            heard: Vec::new(),
            unsent: Vec::new(),
            open: BTreeMap::new(),
            next: 0,
            look_at: None,
        }
    }

    /// Asks a question, when [`Files::send`] is called. Gives its number.
    pub(super) fn ask(&mut self, work: impl FnOnce(&Look) -> A + Send + 'static) -> u64 {
        let question = self.next;
        self.next += 1;
        self.unsent.push((question, Box::new(work)));
        question
    }

    /// Forgets a question whose answer is not needed any more.
    pub(super) fn forget(&mut self, question: u64) {
        self.open.remove(&question);
        self.unsent.retain(|(other, _)| *other != question);
        lock(&self.shared.state).waiting.retain(|(other, _)| *other != question);
    }

    /// Whether all that was asked is handed over.
    pub(super) fn has_sent(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Hands over all that was asked.
    pub(super) fn send(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        let now = Instant::now();
        self.open.extend(self.unsent.iter().map(|(question, _)| (*question, now + self.limit)));
        let mut state = lock(&self.shared.state);
        let more = self.unsent.len();
        state.waiting.extend(self.unsent.drain(..));
        let wanted = more.saturating_sub(state.idle);
        for _ in 0..wanted.min(THREADS_KEPT.saturating_sub(state.seats.len())) {
            self.start(&mut state);
        }
        for _ in 0..more.min(state.idle) {
            self.shared.bell.notify_one();
        }
        self.look_at.get_or_insert(now + Duration::from_millis(SLOW_MS));
    }

    /// Starts another thread, if the system has one and the bound allows it.
    fn start(&self, state: &mut State<A>) {
        if state.seats.len() >= THREADS_MAX {
            return;
        }
        let seat = Arc::new(Seat::default());
        let (shared, own, answer) = (self.shared.clone(), seat.clone(), self.answer.clone());
        let thread = std::thread::Builder::new().name("falkon-files".to_owned());
        // Without one, what waits is answered later or says that it is not.
        if thread.spawn(move || serve(&shared, &own, &answer)).is_ok() {
            state.seats.push(seat);
        }
    }

    /// Waits until there are answers. Cancel safe.
    pub(super) async fn recv(&mut self) {
        // There is always a sender: this one's own.
        self.answers.recv_many(&mut self.heard, ANSWERS_MAX).await;
    }

    /// When to call [`Files::take`] without an answer.
    pub(super) fn due(&self) -> Option<Instant> {
        let (_, first) = self.open.first_key_value()?;
        Some(self.look_at.map_or(*first, |look| look.min(*first)))
    }

    /// The answers that have come, and the questions that have none in time.
    pub(super) fn take(&mut self, now: Instant) -> Vec<(u64, Result<A, Unanswered>)> {
        let mut taken = Vec::new();
        for (question, answer) in self.heard.drain(..) {
            if self.open.remove(&question).is_some() {
                taken.push((question, Ok(answer)));
            }
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look(now);
        }
        while let Some((&question, _)) = self.open.first_key_value().filter(|(_, at)| **at <= now) {
            taken.push((question, Err(self.give_up(question))));
        }
        taken
    }

    /// Sees to it that what waits is not behind what hangs.
    fn look(&mut self, now: Instant) {
        let mut state = lock(&self.shared.state);
        if state.waiting.is_empty() {
            self.look_at = None;
            return;
        }
        if state.idle == 0 {
            // Twice as many each time: what hangs is soon known by its number.
            for _ in 0..state.waiting.len().min(state.seats.len().max(1)) {
                self.start(&mut state);
            }
        }
        self.look_at = Some(now + Duration::from_millis(SLOW_MS));
        // With all threads hanging there is nothing to wait for.
        if state.seats.len() >= THREADS_MAX && self.hanging(&state) >= THREADS_MAX {
            for (question, _) in &state.waiting {
                self.open.insert(*question, now);
            }
        }
    }

    /// The number of threads that look at paths whose questions were forgotten.
    fn hanging(&self, state: &State<A>) -> usize {
        let hangs = |seat: &&Arc<Seat>| {
            lock(&seat.looking).as_ref().is_some_and(|one| !self.open.contains_key(&one.question))
        };
        state.seats.iter().filter(hangs).count()
    }

    fn give_up(&mut self, question: u64) -> Unanswered {
        self.open.remove(&question);
        let mut state = lock(&self.shared.state);
        state.waiting.retain(|(other, _)| *other != question);
        let mut any = PathBuf::new();
        for seat in &state.seats {
            match &*lock(&seat.looking) {
                Some(looking) if looking.question == question => {
                    let path = looking.path.clone();
                    return Unanswered::Hangs { path, limit: self.limit };
                }
                Some(looking) => any.clone_from(&looking.path),
                None => {}
            }
        }
        Unanswered::NoThread { path: any }
    }
}

impl<A> Drop for Files<A> {
    fn drop(&mut self) {
        // Threads that hang are left alone, and end with the process.
        lock(&self.shared.state).closing = true;
        self.shared.bell.notify_all();
    }
}

/// A thread's life.
fn serve<A>(shared: &Shared<A>, seat: &Arc<Seat>, answer: &mpsc::UnboundedSender<(u64, A)>) {
    let look = Look { seat: seat.clone() };
    let mut state = lock(&shared.state);
    loop {
        if state.closing {
            return;
        }
        if let Some((question, work)) = state.waiting.pop_front() {
            drop(state);
            *lock(&seat.looking) = Some(Looking { question, path: PathBuf::new() });
            let found = work(&look);
            *lock(&seat.looking) = None;
            // An executor that has ended needs no answer.
            let _ = answer.send((question, found));
            state = lock(&shared.state);
            continue;
        }
        if state.idle >= THREADS_KEPT {
            state.seats.retain(|other| !Arc::ptr_eq(other, seat));
            return;
        }
        state.idle += 1;
        state = shared.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The values behind these are whole whenever they are not locked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
