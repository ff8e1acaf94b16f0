//! Whether the system ends processes for want of memory, as it does when a node has none left.

use std::collections::VecDeque;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::Outcome;

/// How many looks are kept: an end is put down to the system if it has ended any process since the
/// oldest of them. A process with much memory takes a while to end.
const LOOKS_KEPT: usize = 8;

/// How a shell ends whose command was killed.
const SHELL_KILLED: i32 = 128 + libc::SIGKILL;

/// What the kernel counts, as it was of late.
#[derive(Debug)]
pub(super) struct Shortages {
    /// How many processes the kernel had ended for want of memory, the oldest look first.
    counted: Mutex<VecDeque<u64>>,
    /// How many of them exceeded their own limits.
    own: AtomicU64,
}

impl Shortages {
    pub(super) fn new() -> Shortages {
        let counted = Mutex::new(counted().into_iter().collect());
        Shortages { counted, own: AtomicU64::new(0) }
    }

    /// Looks at what the kernel has counted. Called about once a second.
    pub(super) fn look(&self) {
        let Some(now) = self.of_others() else { return };
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.push_back(now);
        if counted.len() > LOOKS_KEPT {
            counted.pop_front();
        }
    }

    /// Notes that the kernel has ended processes in the groups of tasks, which is no sign of a
    /// shortage.
    pub(super) fn note_own(&self, count: u64) {
        self.own.fetch_add(count, Ordering::Relaxed);
    }

    /// How many processes the kernel has ended that did not exceed limits of their own.
    fn of_others(&self) -> Option<u64> {
        counted().map(|counted| counted.saturating_sub(self.own.load(Ordering::Relaxed)))
    }

    /// Whether the system may have ended a task that nobody else was to end: it was killed, and
    /// the system has killed somebody of late.
    pub(super) fn may_have_ended(&self, outcome: Outcome) -> bool {
        let is_killed = match outcome {
            Outcome::Signal(signal) => signal == libc::SIGKILL,
            Outcome::Exit(status) => status == SHELL_KILLED,
            Outcome::NotStarted { .. } => false,
        };
        is_killed && self.has_grown(self.of_others())
    }

    fn has_grown(&self, now: Option<u64>) -> bool {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        now.zip(counted.front().copied()).is_some_and(|(now, before)| now > before)
    }
}

/// How many processes the kernel has ended for want of memory, on the whole node or in a control
/// group; `None` if it does not say.
fn counted() -> Option<u64> {
    let counters = fs::read_to_string("/proc/vmstat").ok()?;
    let count = counters.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
    count.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_has_ended_of_late_was_a_shortage() {
        let shortages = Shortages { counted: Mutex::default(), own: AtomicU64::new(0) };
        assert!(!shortages.has_grown(Some(1)), "nothing was seen before");
        let look = |count| shortages.counted.lock().unwrap().push_back(count);
        look(7);
        assert!(!shortages.has_grown(Some(7)));
        assert!(shortages.has_grown(Some(8)));
        assert!(!shortages.has_grown(None), "the kernel does not say any more");
        look(8);
        assert!(shortages.has_grown(Some(8)), "a moment ago");
        for _ in 0..LOOKS_KEPT {
            shortages.look();
        }
        assert!(shortages.counted.lock().unwrap().len() <= LOOKS_KEPT);
        assert!(!shortages.may_have_ended(Outcome::Exit(0)), "it was not killed");
    }
}
