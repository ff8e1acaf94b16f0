//! The shell's clock: microseconds since the Unix epoch that never go back.

use falkon_core::task::Time;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// When an alarm goes off that is set to nothing.
const ALARM_IDLE_S: u64 = 3600;

/// A timer that is set again in each round of a loop. To set it to an earlier
/// time than before costs two system calls, to leave it as it is nothing; so it
/// is not set to a later time before it has gone off, and the loop looks what
/// is due.
#[derive(Debug)]
pub struct Alarm(Pin<Box<tokio::time::Sleep>>);

impl Alarm {
    /// Must be called within a runtime.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "it needs a runtime")]
    pub fn new() -> Alarm {
        Alarm(Box::pin(tokio::time::sleep(Duration::from_secs(ALARM_IDLE_S))))
    }

    /// Waits until `due` at the latest.
    pub async fn wait(&mut self, due: Option<Instant>) {
        let idle = || Instant::now() + Duration::from_secs(ALARM_IDLE_S);
        if self.0.is_elapsed() || due.is_some_and(|due| due < self.0.deadline()) {
            self.0.as_mut().reset(due.unwrap_or_else(idle));
        }
        self.0.as_mut().await;
    }
}

/// Reads the wall clock once and counts monotonic time from there, so that a
/// wall clock that is set back changes nothing. It is the timers' time: where a
/// test has that stand still, this clock does.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
    micros_at_origin: u64,
}

impl Clock {
    /// Starts at the wall clock's time.
    #[must_use]
    pub fn start() -> Clock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { origin: Instant::now(), micros_at_origin: wall.as_micros() as u64 }
    }

    /// A clock that reads `now` now.
    #[must_use]
    pub fn reading(now: Time) -> Clock {
        Clock { origin: Instant::now(), micros_at_origin: now.0 }
    }

    /// The time now.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Time {
        Time(self.micros_at_origin).after(self.origin.elapsed().as_micros() as u64)
    }

    /// When this clock will read `time`, for timers.
    #[must_use]
    #[inline]
    pub fn instant(&self, time: Time) -> Instant {
        self.origin + Duration::from_micros(time.0.saturating_sub(self.micros_at_origin))
    }

    /// The time that this clock read when `CLOCK_MONOTONIC` read `micros`.
    #[must_use]
    pub fn at_monotonic(&self, micros: u64) -> Time {
        let spec = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let monotonic = spec.tv_sec as u64 * 1_000_000 + spec.tv_nsec as u64 / 1000;
        Time(self.now().0.saturating_sub(monotonic.saturating_sub(micros)))
    }
}
