//! The clocks of dispatchers and executors, which may be behind the world's.

use crate::time::Nanos;
use falkon_core::task::Time;

/// A shell's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Clock {
    behind_micros: u64,
}

impl Clock {
    /// Sets the clock to `time` at `now`; the clock goes on from there.
    pub(super) fn reads(&mut self, now: Nanos, time: Time) {
        self.behind_micros = now.core().since(time);
    }

    /// The time on the clock at `now`.
    pub(super) fn at(&self, now: Nanos) -> Time {
        Time(now.core().0.saturating_sub(self.behind_micros))
    }

    /// The world's time when the clock reads `time`.
    pub(super) fn when(&self, time: Time) -> Nanos {
        Nanos::of_core(time.after(self.behind_micros))
    }
}
