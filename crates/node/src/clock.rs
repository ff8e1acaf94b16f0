//! The shell's clock: microseconds since the Unix epoch that never go back.

use falkon_core::task::Time;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Reads the wall clock once and counts monotonic time from there, so that a
/// wall clock that is set back changes nothing.
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
    pub fn now(&self) -> Time {
        Time(self.micros_at_origin + self.origin.elapsed().as_micros() as u64)
    }

    /// When this clock will read `time`, for timers.
    #[must_use]
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
