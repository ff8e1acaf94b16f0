//! Workers that are killed before they take calls: others are started for the calls that wait, after
//! longer and longer pauses, and not without end.

use super::bundle::Home;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Workers of one kind that may be killed in a row, before one of them takes calls.
pub(super) const KILLED_MAX: u32 = 8;
/// The pause after the second of them; each one after that doubles it.
const PAUSE_MS: u64 = 50;
/// The longest pause.
const PAUSE_MS_MAX: u64 = 1000;

/// Workers of one kind that were killed since one of them has taken calls.
#[derive(Debug)]
struct Restart {
    killed: u32,
    /// When others are started, if that is yet to be done.
    due: Option<Instant>,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Restarts {
    of: HashMap<Arc<Home>, Restart>,
}

impl Restarts {
    /// A worker that calls wait for was killed; whether others are to be started.
    pub(super) fn killed(&mut self, home: &Arc<Home>, now: Instant) -> bool {
        let one = self.of.entry(home.clone()).or_insert(Restart { killed: 0, due: None });
        one.killed += 1;
        if one.killed > KILLED_MAX {
            self.of.remove(home);
            return false;
        }
        let pause = match one.killed {
            1 => 0,
            killed => (PAUSE_MS << (killed - 2)).min(PAUSE_MS_MAX),
        };
        one.due = Some(now + Duration::from_millis(pause));
        true
    }

    /// Records that a worker takes calls, or reports of all that none can be
    /// started.
    pub(super) fn started(&mut self, home: &Arc<Home>) {
        self.of.remove(home);
    }

    /// Whether workers of this kind are not to be started yet.
    pub(super) fn is_due_later(&self, home: &Arc<Home>) -> bool {
        self.of.get(home).is_some_and(|one| one.due.is_some())
    }

    /// When to call [`Self::take_due`].
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.of.values().filter_map(|one| one.due).min()
    }

    /// The kinds of which workers are to be started now.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Arc<Home>> {
        let due = self.of.iter_mut().filter(|(_, one)| one.due.is_some_and(|due| due <= now));
        due.map(|(home, one)| {
            one.due = None;
            home.clone()
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(language: &str) -> Arc<Home> {
        let (cwd, env, imports) = (None, Vec::new(), super::super::bundle::Imports::default());
        let (language, instance, interpreter) = (language.to_owned(), None, None);
        Arc::new(Home { language, instance, cwd, env, imports, interpreter })
    }

    #[test]
    fn others_are_started_after_longer_and_longer_pauses_and_not_without_end() {
        let (mut restarts, mut now) = (Restarts::default(), Instant::now());
        let (home, other) = (home("a"), home("b"));
        let mut pauses = Vec::new();
        for _ in 0..KILLED_MAX {
            assert!(restarts.killed(&home, now));
            assert!(restarts.is_due_later(&home) && !restarts.is_due_later(&other));
            let due = restarts.next_due().unwrap();
            if due > now {
                assert!(restarts.take_due(due - Duration::from_millis(1)).is_empty());
            }
            pauses.push((due - now).as_millis());
            assert_eq!(restarts.take_due(due), std::slice::from_ref(&home));
            assert!(restarts.take_due(due).is_empty() && !restarts.is_due_later(&home));
            now = due;
        }
        assert_eq!(pauses, [0, 50, 100, 200, 400, 800, 1000, 1000]);
        assert!(restarts.killed(&other, now));
        assert!(!restarts.killed(&home, now));
        assert!(restarts.killed(&home, now), "it is counted anew");
    }

    #[test]
    fn one_that_takes_calls_ends_the_count() {
        let (mut restarts, home) = (Restarts::default(), home("a"));
        for _ in 0..3 * KILLED_MAX {
            assert!(restarts.killed(&home, Instant::now()));
            restarts.started(&home);
            assert_eq!(restarts.next_due(), None);
        }
    }
}
