//! Waiting awake, for answers that come at once.
//!
//! A processor that sleeps takes tens of microseconds to wake, on virtual
//! machines above all, and a task of a client that waits for each wakes one
//! after the other in a dispatcher, an executor, and the dispatcher again. So
//! whoever has just said something that will be answered within microseconds
//! looks for the answer a little longer before it sleeps.
//!
//! Only where that pays: if the last such answer was long in coming, the next
//! wait begins asleep. So it costs one short vigil when answers become slow,
//! and nothing when nothing happens. While a vigil lasts the processor is
//! offered to everybody else again and again, and if anybody takes it, there
//! are none for a while.

use std::time::{Duration, Instant};

/// How long a wait may be awake; an answer that took no longer makes the next
/// wait for one begin awake.
const AWAKE_MICROS: u64 = 200;
/// A processor that was offered for so long was taken.
const TAKEN_MICROS: u64 = 20;
/// How long there are no vigils when somebody else needs the processor.
const TAKEN_PAUSE_MS: u64 = 100;

/// Waits for one kind of answer.
#[derive(Debug)]
pub(crate) struct Awake {
    pays: bool,
    /// When the wait under way began.
    since: Instant,
    /// When others needed the processor last.
    taken: Option<Instant>,
}

/// A wait that may be awake.
#[derive(Debug)]
pub(crate) struct Vigil {
    until: Option<Instant>,
    taken: Option<Instant>,
}

impl Awake {
    pub(crate) fn new() -> Awake {
        Awake { pays: false, since: Instant::now(), taken: None }
    }

    /// A wait for an answer begins.
    pub(crate) fn begin(&mut self) -> Vigil {
        self.since = Instant::now();
        let pause = Duration::from_millis(TAKEN_PAUSE_MS);
        if self.taken.is_some_and(|taken| self.since > taken + pause) {
            self.taken = None;
        }
        let awake = self.pays && self.taken.is_none();
        Vigil {
            until: awake.then(|| self.since + Duration::from_micros(AWAKE_MICROS)),
            taken: None,
        }
    }

    /// Something has come.
    pub(crate) fn end(&mut self, vigil: &Vigil) {
        self.pays = self.since.elapsed() <= Duration::from_micros(AWAKE_MICROS);
        self.taken = vigil.taken.or(self.taken);
    }
}

impl Vigil {
    /// A wait that is not awake.
    pub(crate) fn none() -> Vigil {
        Vigil { until: None, taken: None }
    }

    /// Keeps this thread, whose runtime must have no other, from sleeping as
    /// long as that may last. Does not end.
    pub(crate) async fn keep(&mut self) {
        if let Some(until) = self.until {
            let mut now = Instant::now();
            while now < until {
                std::thread::yield_now();
                let offered = std::mem::replace(&mut now, Instant::now());
                if now - offered > Duration::from_micros(TAKEN_MICROS) {
                    self.taken = Some(now);
                    break;
                }
                tokio::task::yield_now().await;
                now = Instant::now();
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_awake_only_after_a_short_one_and_while_nobody_needs_the_processor() {
        let mut awake = Awake::new();
        let short = Duration::from_micros(AWAKE_MICROS);
        let mut wait = |began_before: Duration, taken: Option<Instant>| {
            let mut vigil = awake.begin();
            let was_awake = vigil.until.is_some();
            awake.since -= began_before;
            vigil.taken = taken;
            awake.end(&vigil);
            was_awake
        };
        let long = short * 1000;
        assert!(!wait(long, None));
        assert!(!wait(long, None), "the one before was long");
        let now = Instant::now();
        // Whether this one counts as short is up to the machine's load.
        wait(Duration::ZERO, Some(now));
        assert!(!wait(Duration::ZERO, None), "the processor was taken");
    }
}
