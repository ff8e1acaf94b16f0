//! Heartbeats: how far apart they are, and when the next one is due.
//!
//! A dispatcher with up to [`HEARTBEAT_EXECUTORS_MAX`] executors hears from each of them every
//! [`HEARTBEAT_MICROS`]. With more executors, heartbeats are further apart, so that their number
//! per second stays the same. A silent executor is noticed later then; the end of its connection
//! is noticed at once however many executors there are.

use crate::limits::{
    HEARTBEAT_DOUBLINGS_MAX, HEARTBEAT_EXECUTORS_MAX, HEARTBEAT_LOST_MICROS, HEARTBEAT_MICROS,
    HEARTBEAT_MISSED_MICROS,
};
use crate::task::Time;

/// How far apart the heartbeats of one executor are: [`HEARTBEAT_MICROS`], doubled so often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Pulse(u8);

impl Pulse {
    /// The pulse at which so many executors send no more heartbeats than they may.
    fn of(executors: u64) -> Pulse {
        let fits = |doublings: &u8| executors <= HEARTBEAT_EXECUTORS_MAX << u32::from(*doublings);
        Pulse((0..HEARTBEAT_DOUBLINGS_MAX).find(fits).unwrap_or(HEARTBEAT_DOUBLINGS_MAX))
    }

    /// The pulse that an executor is told next, where there are so many. It becomes slower at
    /// once, and faster by one step at a time, once far fewer are left: an executor that has not
    /// been told yet is not taken for a silent one.
    pub(crate) fn next(self, executors: u64) -> Pulse {
        let (now, with_twice) = (Pulse::of(executors), Pulse::of(executors.saturating_mul(2)));
        match self {
            Pulse(own) if with_twice < self => Pulse(own - 1),
            own => own.max(now),
        }
    }

    /// The time between two heartbeats, in microseconds.
    pub(crate) fn micros(self) -> u64 {
        HEARTBEAT_MICROS << u32::from(self.0)
    }

    /// The silence after which an executor is given no more tasks, in microseconds.
    pub(crate) fn missed_micros(self) -> u64 {
        HEARTBEAT_MISSED_MICROS << u32::from(self.0)
    }

    /// The silence after which an executor is lost, in microseconds.
    pub(crate) fn lost_micros(self) -> u64 {
        HEARTBEAT_LOST_MICROS << u32::from(self.0)
    }
}

/// When an executor, or a relay, sent something last, and how long it may be silent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heartbeats {
    last_spoke: Time,
    apart_micros: u64,
}

impl Heartbeats {
    /// Those of a session that begins.
    pub(crate) fn new(now: Time) -> Heartbeats {
        Heartbeats { last_spoke: now, apart_micros: HEARTBEAT_MICROS }
    }

    /// The dispatcher says how far apart they are to be; 0 is as before.
    pub(crate) fn ordered(&mut self, micros: u64) {
        if micros > 0 {
            let longest = HEARTBEAT_MICROS << u32::from(HEARTBEAT_DOUBLINGS_MAX);
            self.apart_micros = micros.clamp(HEARTBEAT_MICROS, longest);
        }
    }

    /// Something was sent.
    pub(crate) fn spoke(&mut self, now: Time) {
        self.last_spoke = now;
    }

    /// When something was sent last.
    pub(crate) fn last_spoke(&self) -> Time {
        self.last_spoke
    }

    /// When the next one is due, if nothing else is sent before.
    pub(crate) fn due(&self) -> Time {
        self.last_spoke.after(self.apart_micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executors_together_send_no_more_heartbeats_than_they_may() {
        assert_eq!(Pulse::of(0).micros(), HEARTBEAT_MICROS);
        assert_eq!(Pulse::of(20_000).micros(), HEARTBEAT_MICROS);
        let longest = HEARTBEAT_MICROS << u32::from(HEARTBEAT_DOUBLINGS_MAX);
        for executors in [20_001, 80_000, 150_000, 300_000, 1_000_000, u64::MAX] {
            let micros = Pulse::of(executors).micros();
            let in_two_seconds = executors / (micros / HEARTBEAT_MICROS);
            assert!(in_two_seconds <= HEARTBEAT_EXECUTORS_MAX || micros == longest, "{executors}");
            assert!(micros <= longest);
        }
    }

    #[test]
    fn a_pulse_rests_where_the_number_of_executors_goes_up_and_down_a_little() {
        let mut pulse = Pulse::default();
        let mut changes = 0;
        for round in 0..1_000_u64 {
            let next = pulse.next(20_000 + (round * 7_919) % 200);
            changes += u32::from(next != pulse);
            pulse = next;
        }
        assert_eq!(changes, 1);
        // Nearly all of a million leave.
        pulse = pulse.next(1_000_000);
        assert_eq!(pulse, Pulse(HEARTBEAT_DOUBLINGS_MAX));
        for _ in 0..HEARTBEAT_DOUBLINGS_MAX {
            let faster = pulse.next(10);
            assert!(faster < pulse);
            // The executor still speaks at the pulse of before.
            assert!(faster.missed_micros() > pulse.micros());
            pulse = faster;
        }
        assert_eq!(pulse.next(10), Pulse::default());
    }

    #[test]
    fn no_dispatcher_makes_an_executor_send_without_a_pause_or_fall_silent() {
        let mut heartbeats = Heartbeats::new(Time(7));
        heartbeats.ordered(1);
        assert_eq!(heartbeats.due(), Time(7 + HEARTBEAT_MICROS));
        heartbeats.ordered(u64::MAX);
        let longest = HEARTBEAT_MICROS << u32::from(HEARTBEAT_DOUBLINGS_MAX);
        assert_eq!(heartbeats.due(), Time(7 + longest));
        heartbeats.ordered(0);
        assert_eq!(heartbeats.due(), Time(7 + longest));
        heartbeats.spoke(Time(9));
        assert_eq!(heartbeats.due(), Time(9 + longest));
    }
}
