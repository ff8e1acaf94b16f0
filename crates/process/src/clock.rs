//! The clock of the host.

pub(super) const US_PER_S: u64 = 1_000_000;

/// Microseconds of `CLOCK_MONOTONIC`.
pub(super) fn now_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * US_PER_S + time.tv_nsec as u64 / 1000
}
