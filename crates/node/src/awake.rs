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
/// Whoever takes the processor for so long has work of its own, and is not
/// whom the answer passes through.
const TAKEN_MICROS: u64 = 500;
/// How long there are no vigils when somebody else needs the processor: the
/// first time, and at most if that happens again and again. If it has not
/// happened for so long, the next time is a first one.
const TAKEN_PAUSE_MS: [u64; 2] = [100, 10_000];

/// Waits for one kind of answer.
#[derive(Debug)]
pub(crate) struct Awake {
    pays: bool,
    /// When the wait under way began.
    since: Instant,
    /// Until when others are left the processor.
    paused: Option<Instant>,
    pause: Duration,
}

/// A wait that may be awake.
#[derive(Debug)]
pub(crate) struct Vigil {
    until: Option<Instant>,
    taken: bool,
}

impl Awake {
    pub(crate) fn new() -> Awake {
        Awake { pays: false, since: Instant::now(), paused: None, pause: Duration::ZERO }
    }

    /// A wait for an answer begins.
    pub(crate) fn begin(&mut self) -> Vigil {
        self.since = Instant::now();
        let awake = self.pays && self.paused.is_none_or(|until| until <= self.since);
        let until = awake.then(|| self.since + Duration::from_micros(AWAKE_MICROS));
        Vigil { until, taken: false }
    }

    /// Something has come.
    pub(crate) fn end(&mut self, vigil: &Vigil) {
        let now = Instant::now();
        self.pays = now - self.since <= Duration::from_micros(AWAKE_MICROS);
        if vigil.taken {
            let [first, most] = TAKEN_PAUSE_MS.map(Duration::from_millis);
            let again = self.paused.is_some_and(|until| now < until + most);
            self.pause = if again { (self.pause * 2).min(most) } else { first };
            self.paused = Some(now + self.pause);
        }
    }
}

impl Vigil {
    /// A wait that is not awake.
    pub(crate) fn none() -> Vigil {
        Vigil { until: None, taken: false }
    }

    /// Keeps this thread, whose runtime must have no other, from sleeping as
    /// long as that may last. Does not end.
    pub(crate) async fn keep(&mut self) {
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

    /// Whether a wait that lasted so long was awake.
    fn wait(awake: &mut Awake, lasted: Duration, taken: bool) -> bool {
        let mut vigil = awake.begin();
        let was_awake = vigil.until.is_some();
        awake.since -= lasted;
        vigil.taken = taken;
        awake.end(&vigil);
        was_awake
    }

    #[test]
    fn it_begins_asleep_where_answers_are_slow() {
        let mut awake = Awake::new();
        let long = Duration::from_micros(2 * AWAKE_MICROS);
        for _ in 0..3 {
            assert!(!wait(&mut awake, long, false));
        }
        awake.pays = true;
        assert!(wait(&mut awake, long, false), "the one before was short");
        assert!(!wait(&mut awake, long, false));
    }

    #[test]
    fn it_leaves_the_processor_to_others_longer_and_longer() {
        let mut awake = Awake::new();
        let mut pauses = Vec::new();
        for _ in 0..10 {
            awake.pays = true;
            assert!(wait(&mut awake, Duration::ZERO, true));
            awake.pays = true;
            assert!(!wait(&mut awake, Duration::ZERO, false), "others need the processor");
            pauses.push(awake.pause.as_millis());
            // The pause is over.
            awake.paused = Some(Instant::now());
        }
        assert_eq!(pauses[..4], [100, 200, 400, 800]);
        assert_eq!(pauses[9], 10_000);
        // Nobody took it for a long time.
        let most = Duration::from_millis(TAKEN_PAUSE_MS[1]);
        awake.paused = Instant::now().checked_sub(most * 2);
        awake.pays = true;
        wait(&mut awake, Duration::ZERO, true);
        assert_eq!(awake.pause.as_millis(), 100);
    }
}
