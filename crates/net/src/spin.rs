//! Adaptive spinning: a thread polls for an answer that comes at once before it
//! sleeps.
//!
//! A processor that sleeps takes tens of microseconds to wake, on virtual
//! machines above all. A task of a client that waits for each wakes one after
//! the other in a dispatcher, an executor, and the dispatcher again. A thread
//! whose message will be answered within microseconds therefore spins a little
//! longer before it sleeps.
//!
//! Spinning is adaptive: if the last such answer was long in coming, the next
//! wait sleeps at once. It costs one short spin when answers become slow, and
//! nothing when nothing happens. A thread that spins offers the processor to
//! others again and again. If another thread takes it, there is no spinning for
//! a while.

use std::time::{Duration, Instant};

/// The longest spin. After an answer that took no longer, the next wait spins.
const SPIN_MICROS: u64 = 200;
/// A thread that takes the processor for so long has work of its own: the answer
/// does not pass through it.
const TAKEN_MICROS: u64 = 500;
/// Pauses of spinning after another thread has needed the processor: the first
/// one, and the longest one if that happens again and again. After the longest
/// one without such a case, the next pause is a first one again.
const TAKEN_PAUSE_MS: [u64; 2] = [100, 10_000];

/// Decides whether waits for one kind of answer spin.
#[derive(Debug)]
pub struct AdaptiveSpin {
    pays: bool,
    /// When the wait under way began.
    since: Instant,
    /// No wait spins before.
    paused: Option<Instant>,
    pause: Duration,
}

/// A wait that may spin.
#[derive(Debug)]
pub struct Spin {
    until: Option<Instant>,
    taken: bool,
}

impl AdaptiveSpin {
    /// The first wait sleeps at once.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "it reads the clock")]
    pub fn new() -> AdaptiveSpin {
        AdaptiveSpin { pays: false, since: Instant::now(), paused: None, pause: Duration::ZERO }
    }

    /// A wait for an answer begins.
    #[inline]
    pub fn begin(&mut self) -> Spin {
        self.since = Instant::now();
        let spins = self.pays && self.paused.is_none_or(|until| until <= self.since);
        let until = spins.then(|| self.since + Duration::from_micros(SPIN_MICROS));
        Spin { until, taken: false }
    }

    /// The wait is over: something has come.
    #[inline]
    pub fn end(&mut self, spin: &Spin) {
        let now = Instant::now();
        self.pays = now - self.since <= Duration::from_micros(SPIN_MICROS);
        if spin.taken {
            let [first, most] = TAKEN_PAUSE_MS.map(Duration::from_millis);
            let again = self.paused.is_some_and(|until| now < until + most);
            self.pause = if again { (self.pause * 2).min(most) } else { first };
            self.paused = Some(now + self.pause);
        }
    }
}

impl Spin {
    /// A wait that does not spin.
    #[must_use]
    #[inline]
    pub fn none() -> Spin {
        Spin { until: None, taken: false }
    }

    /// Keeps this thread from sleeping for as long as the spin may last; its
    /// runtime must have no other thread. The future does not end.
    pub async fn keep(&mut self) {
        if let Some(until) = self.until {
            loop {
                // First others of this thread: what is to be answered may not have been sent yet.
                tokio::task::yield_now().await;
                let now = Instant::now();
                if now >= until {
                    break;
                }
                std::thread::yield_now();
                if now.elapsed() > Duration::from_micros(TAKEN_MICROS) {
                    self.taken = true;
                    break;
                }
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a wait of this duration spun.
    fn wait(adaptive: &mut AdaptiveSpin, lasted: Duration, taken: bool) -> bool {
        let mut spin = adaptive.begin();
        let spun = spin.until.is_some();
        adaptive.since -= lasted;
        spin.taken = taken;
        adaptive.end(&spin);
        spun
    }

    #[test]
    fn a_wait_does_not_spin_where_answers_are_slow() {
        let mut adaptive = AdaptiveSpin::new();
        let long = Duration::from_micros(2 * SPIN_MICROS);
        for _ in 0..3 {
            assert!(!wait(&mut adaptive, long, false));
        }
        adaptive.pays = true;
        assert!(wait(&mut adaptive, long, false), "the one before was short");
        assert!(!wait(&mut adaptive, long, false));
    }

    #[test]
    fn pauses_grow_while_other_threads_need_the_processor() {
        let mut adaptive = AdaptiveSpin::new();
        let mut pauses = Vec::new();
        for _ in 0..10 {
            adaptive.pays = true;
            assert!(wait(&mut adaptive, Duration::ZERO, true));
            adaptive.pays = true;
            assert!(!wait(&mut adaptive, Duration::ZERO, false), "others need the processor");
            pauses.push(adaptive.pause.as_millis());
            // The pause is over.
            adaptive.paused = Some(Instant::now());
        }
        assert_eq!(pauses[..4], [100, 200, 400, 800]);
        assert_eq!(pauses[9], 10_000);
        // The processor was left alone for a long time.
        let most = Duration::from_millis(TAKEN_PAUSE_MS[1]);
        adaptive.paused = Instant::now().checked_sub(most * 2);
        adaptive.pays = true;
        wait(&mut adaptive, Duration::ZERO, true);
        assert_eq!(adaptive.pause.as_millis(), 100);
    }
}
