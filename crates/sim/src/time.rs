//! Virtual time.

use falkon_core::task::Time;

/// Nanoseconds in a second.
pub(crate) const SECOND_NANOS: u64 = 1_000_000_000;
/// Nanoseconds in a microsecond, the unit of the core's clock.
const MICRO_NANOS: u64 = 1_000;

/// A point in virtual time, or a span of it, in nanoseconds; a run starts at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// So many seconds; what is negative is 0, what is too much is the most.
    #[must_use]
    pub fn from_seconds(seconds: f64) -> Nanos {
        Nanos((seconds * SECOND_NANOS as f64).round() as u64)
    }

    /// In seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / SECOND_NANOS as f64
    }

    /// This and `span` more.
    #[must_use]
    pub fn after(self, span: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(span.0))
    }

    /// From `earlier` to this; 0 if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// On the core's clock, rounded down.
    #[must_use]
    pub(crate) fn core(self) -> Time {
        Time(self.0 / MICRO_NANOS)
    }

    /// When the core's clock shows `time`.
    #[must_use]
    pub(crate) fn of_core(time: Time) -> Nanos {
        Nanos(time.0.saturating_mul(MICRO_NANOS))
    }
}
