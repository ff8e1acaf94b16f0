//! Heartbeats of an executor whose own thread stands still.
//!
//! The executor's thread calls the file systems of its own directories: the
//! cache, the tasks' directories, the files of long output. If one of them stops
//! answering for a while, the thread sends nothing, although its tasks go on. A
//! watchdog notices a turn that does not end, sends heartbeats in the session's
//! name, and logs what the thread waits for. It does so for a limited time:
//! an executor that reports nothing for longer is of no use, and its silence
//! makes the dispatcher give its tasks to others.
//!
//! One thread watches all executors of a process: there is one, or there are thousands that
//! are emulated.

use super::Log;
use super::session::Voice;
use falkon_core::limits::{HEARTBEAT_LOST_MICROS, HEARTBEAT_MICROS};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the watchdog looks. It sees a turn twice before it sends anything.
const LOOK: Duration = Duration::from_micros(HEARTBEAT_MICROS);

// The thread sends its last heartbeat up to one interval before it stands
// still, and the watchdog its first within two looks more.
const _: () = assert!(3 * HEARTBEAT_MICROS < HEARTBEAT_LOST_MICROS);

/// The calls for which the executor's thread may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitPoint {
    /// The directories of the cache.
    Cache,
    /// The directories of tasks.
    Sandboxes,
    /// The files of output that is too long to be sent.
    Overflow,
    /// The process that starts tasks.
    Host,
}

/// No [`WaitPoint`].
const NOWHERE: u8 = u8::MAX;

/// Where the executor's thread is, as the watchdog sees it.
#[derive(Debug)]
pub(super) struct Position {
    /// Odd while a turn is under way.
    turns: AtomicU64,
    place: AtomicU8,
}

impl Position {
    /// Of a thread that waits for events.
    pub(super) fn new() -> Arc<Position> {
        Arc::new(Position { turns: AtomicU64::new(0), place: AtomicU8::new(NOWHERE) })
    }

    /// A turn begins.
    pub(super) fn enter(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed) | 1, Ordering::Release);
    }

    /// The turn is over, and the thread waits for events.
    pub(super) fn leave(&self) {
        let turns = self.turns.load(Ordering::Relaxed);
        self.turns.store(turns.wrapping_add(turns & 1), Ordering::Release);
    }

    /// The thread calls a file system or a process that may not answer.
    pub(super) fn at(&self, place: WaitPoint) -> At<'_> {
        At { position: self, before: self.place.swap(place as u8, Ordering::AcqRel) }
    }

    fn place(&self) -> Option<WaitPoint> {
        let here = self.place.load(Ordering::Acquire);
        [WaitPoint::Cache, WaitPoint::Sandboxes, WaitPoint::Overflow, WaitPoint::Host]
            .into_iter()
            .find(|place| *place as u8 == here)
    }
}

/// The thread is at a [`WaitPoint`] until this is dropped; then where it was before.
#[derive(Debug)]
pub(super) struct At<'a> {
    position: &'a Position,
    before: u8,
}

impl Drop for At<'_> {
    fn drop(&mut self) {
        self.position.place.store(self.before, Ordering::Release);
    }
}

/// The action that a thread requires.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing: it goes on.
    Moves,
    /// The thread has just been found to stand still.
    Stands,
    /// The thread still stands still.
    StandsStill,
    /// The thread has stood still for too long.
    GivenUp,
}

/// The observations of a thread.
#[derive(Debug)]
struct Watch {
    last: u64,
    /// Looks that found it in the same turn, but for the first.
    looks: u64,
    looks_max: u64,
}

impl Watch {
    fn new(limit: Duration) -> Watch {
        let looks_max = limit.as_micros().div_ceil(LOOK.as_micros()).max(1);
        Watch { last: 0, looks: 0, looks_max: u64::try_from(looks_max).unwrap_or(u64::MAX) }
    }

    fn look(&mut self, turns: u64) -> Verdict {
        let moves = turns.is_multiple_of(2) || turns != self.last;
        self.last = turns;
        self.looks = if moves { 0 } else { self.looks.saturating_add(1) };
        match self.looks {
            0 => Verdict::Moves,
            1 => Verdict::Stands,
            looks if looks <= self.looks_max => Verdict::StandsStill,
            _ => Verdict::GivenUp,
        }
    }
}

/// An executor's thread, watched until this is dropped. See the [module](self).
#[derive(Debug)]
pub(super) struct Watchdog {
    number: u64,
}

impl Watchdog {
    /// Watches a thread, which may stand still for `limit`. `names` says what
    /// is at a place.
    pub(super) fn start(
        position: Arc<Position>,
        voice: Voice,
        limit: Duration,
        names: impl Fn(WaitPoint) -> String + Send + 'static,
        log: Log,
    ) -> Watchdog {
        let mut watched = WATCHED.lock();
        let number = watched.next;
        watched.next += 1;
        let (seen, names) = (Watch::new(limit), Box::new(names));
        let executor =
            Watched { number, position, voice, limit, names, log, seen, is_given_up: false };
        watched.executors.push(executor);
        if !watched.has_thread {
            // Without it the executor works all the same, unless a disk hangs.
            let thread = std::thread::Builder::new().name("falkon-watchdog".to_owned());
            watched.has_thread = thread.spawn(watch).is_ok();
        }
        Watchdog { number }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let mut watched = WATCHED.lock();
        let at = watched.executors.iter().position(|executor| executor.number == self.number);
        if let Some(at) = at {
            watched.executors.swap_remove(at);
        }
        if watched.executors.is_empty() {
            WATCHED.ends.notify_all();
        }
    }
}

/// All that are watched in this process.
static WATCHED: Shared = Shared {
    state: Mutex::new(State { executors: Vec::new(), next: 0, has_thread: false }),
    ends: Condvar::new(),
};

struct Shared {
    state: Mutex<State>,
    /// Nobody is watched any more.
    ends: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct State {
    executors: Vec<Watched>,
    /// The number of the next executor.
    next: u64,
    /// Whether the thread that watches is there.
    has_thread: bool,
}

struct Watched {
    number: u64,
    position: Arc<Position>,
    voice: Voice,
    limit: Duration,
    names: Box<dyn Fn(WaitPoint) -> String + Send>,
    log: Log,
    seen: Watch,
    is_given_up: bool,
}

/// Looks at all that are watched, until there are none.
fn watch() {
    let mut watched = WATCHED.lock();
    let mut next = Instant::now() + LOOK;
    while !watched.executors.is_empty() {
        let left = next.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // Nothing here could hang: the writes of heartbeats do not block.
            watched.executors.iter_mut().for_each(Watched::look);
            next = Instant::now() + LOOK;
        } else {
            // The wait may return early.
            let waited = WATCHED.ends.wait_timeout(watched, left);
            watched = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
    watched.has_thread = false;
}

impl Watched {
    fn look(&mut self) {
        let verdict = self.seen.look(self.position.turns.load(Ordering::Acquire));
        let what = || {
            self.position.place().map_or_else(
                || "a file system of the executor's own directories".to_owned(),
                &self.names,
            )
        };
        let limit = self.limit.as_secs_f64();
        match verdict {
            Verdict::Moves => self.is_given_up = false,
            Verdict::Stands => (self.log)(&format!(
                "{} does not answer: nothing is started or reported here until it does; running \
                 tasks continue (--file-timeout sets how long, {limit} s)",
                what()
            )),
            Verdict::StandsStill => {}
            Verdict::GivenUp if !self.is_given_up => {
                (self.log)(&format!(
                    "{} has not answered for {limit} s: the dispatcher is to take this executor \
                     for lost",
                    what()
                ));
                self.is_given_up = true;
            }
            Verdict::GivenUp => {}
        }
        if matches!(verdict, Verdict::Stands | Verdict::StandsStill) {
            self.voice.heartbeat();
        }
    }
}

#[cfg(test)]
mod tests;
