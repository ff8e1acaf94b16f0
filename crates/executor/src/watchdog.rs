//! Heartbeats of an executor whose own thread stands still.
//!
//! The executor's thread calls the file systems of its own directories: the
//! cache, the tasks' directories, the files of long output. If one of them stops
//! answering for a while, the thread sends nothing, although its tasks go on. A
//! watchdog notices a turn that does not end, sends heartbeats in the session's
//! name, and logs what the thread waits for. It does so for a limited time:
//! an executor that reports nothing for longer is of no use, and its silence
//! makes the dispatcher give its tasks to others.

use super::Log;
use super::session::Voice;
use falkon_core::limits::{HEARTBEAT_LOST_MICROS, HEARTBEAT_MICROS};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;
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
    closing: AtomicBool,
}

impl Position {
    /// Of a thread that waits for events.
    pub(super) fn new() -> Arc<Position> {
        let (turns, place) = (AtomicU64::new(0), AtomicU8::new(NOWHERE));
        Arc::new(Position { turns, place, closing: AtomicBool::new(false) })
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

/// See the [module](self). It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Watchdog {
    position: Arc<Position>,
    thread: Option<JoinHandle<()>>,
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
        let own = position.clone();
        let work = move || watch(&own, &voice, limit, names, &log);
        // Without it the executor works all the same, unless a disk hangs.
        let thread = std::thread::Builder::new().name("falkon-watchdog".to_owned()).spawn(work);
        Watchdog { position, thread: thread.ok() }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.position.closing.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread does nothing that could hang: its writes do not block.
            let _ = thread.join();
        }
    }
}

fn watch(
    position: &Position,
    voice: &Voice,
    limit: Duration,
    names: impl Fn(WaitPoint) -> String,
    log: &Log,
) {
    let mut seen = Watch::new(limit);
    let mut is_given_up = false;
    loop {
        let next = Instant::now() + LOOK;
        loop {
            if position.closing.load(Ordering::Acquire) {
                return;
            }
            // The wait may return early.
            match next.saturating_duration_since(Instant::now()) {
                Duration::ZERO => break,
                left => std::thread::park_timeout(left),
            }
        }
        let verdict = seen.look(position.turns.load(Ordering::Acquire));
        let what = || {
            position.place().map_or_else(
                || "a file system of the executor's own directories".to_owned(),
                &names,
            )
        };
        match verdict {
            Verdict::Moves => is_given_up = false,
            Verdict::Stands => log(&format!(
                "{} does not answer: nothing is started or reported here until it does; running \
                 tasks continue (--file-timeout sets how long, {} s)",
                what(),
                limit.as_secs_f64()
            )),
            Verdict::StandsStill => {}
            Verdict::GivenUp if !is_given_up => {
                is_given_up = true;
                log(&format!(
                    "{} has not answered for {} s: the dispatcher is to take this executor for \
                     lost",
                    what(),
                    limit.as_secs_f64()
                ));
            }
            Verdict::GivenUp => {}
        }
        if matches!(verdict, Verdict::Stands | Verdict::StandsStill) {
            voice.heartbeat();
        }
    }
}

#[cfg(test)]
mod tests;
