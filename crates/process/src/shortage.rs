//! Whether the system ends processes for want of memory, as it does when a node has none left.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Outcome, groups};

/// How many looks are kept: an end is put down to the system if it has ended any process since the
/// oldest of them. A process with much memory takes a while to end.
const LOOKS_KEPT: usize = 8;

/// How a shell ends whose command was killed.
const SHELL_KILLED: i32 = 128 + libc::SIGKILL;

/// How many processes the kernel has ended for want of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Count {
    /// Processes of the group that tasks without a limit are in: others on the node, with limits of
    /// their own, are not among them.
    OfGroup { folder: PathBuf, ended: u64 },
    /// Processes of the whole node that this executor did not hold to a limit, where the kernel
    /// says no more.
    OfNode { ended: u64 },
}

impl Count {
    /// How many, if both counts are of the same processes; otherwise `None`.
    fn since(&self, before: &Count) -> Option<u64> {
        match (self, before) {
            (Count::OfGroup { folder, ended }, Count::OfGroup { folder: other, ended: before })
                if folder == other =>
            {
                Some(ended.saturating_sub(*before))
            }
            (Count::OfNode { ended }, Count::OfNode { ended: before }) => {
                Some(ended.saturating_sub(*before))
            }
            _ => None,
        }
    }
}

/// What the kernel counts, as it was of late.
#[derive(Debug)]
pub(super) struct Shortages {
    /// The oldest look first.
    looks: Mutex<VecDeque<Count>>,
    /// How many processes exceeded their own limits.
    own: AtomicU64,
}

impl Shortages {
    pub(super) fn new() -> Shortages {
        let shortages = Shortages { looks: Mutex::default(), own: AtomicU64::new(0) };
        shortages.look();
        shortages
    }

    /// Looks at what the kernel has counted. Called about once a second.
    pub(super) fn look(&self) {
        let Some(now) = self.count() else { return };
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.push_back(now);
        if looks.len() > LOOKS_KEPT {
            looks.pop_front();
        }
    }

    /// Notes that the kernel has ended processes in the groups of tasks, which is no sign of a
    /// shortage.
    pub(super) fn note_own(&self, count: u64) {
        self.own.fetch_add(count, Ordering::Relaxed);
    }

    /// What the kernel counts now; `None` if it does not say.
    fn count(&self) -> Option<Count> {
        if let Some((folder, ended)) = groups::ended_in_own() {
            return Some(Count::OfGroup { folder, ended });
        }
        let ended = groups::ended_in(&fs::read_to_string("/proc/vmstat").ok()?)?;
        Some(Count::OfNode { ended: ended.saturating_sub(self.own.load(Ordering::Relaxed)) })
    }

    /// Whether the system may have ended a task that nobody else was to end: it was killed, and
    /// the system has killed somebody of late.
    pub(super) fn may_have_ended(&self, outcome: Outcome) -> bool {
        let is_killed = match outcome {
            Outcome::Signal(signal) => signal == libc::SIGKILL,
            Outcome::Exit(status) => status == SHELL_KILLED,
            Outcome::NotStarted { .. } => false,
        };
        is_killed && self.count().is_some_and(|now| self.has_grown(&now))
    }

    /// Whether it has since the oldest look at the same processes. A group that this host has come
    /// to since the last look is taken for a new one.
    fn has_grown(&self, now: &Count) -> bool {
        let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let more = looks.iter().find_map(|before| now.since(before));
        match (more, now) {
            (Some(more), _) => more > 0,
            (None, Count::OfGroup { ended, .. }) => *ended > 0 && !looks.is_empty(),
            (None, Count::OfNode { .. }) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_group(folder: &str, ended: u64) -> Count {
        Count::OfGroup { folder: folder.into(), ended }
    }

    #[test]
    fn what_the_kernel_has_ended_of_late_was_a_shortage() {
        let shortages = Shortages { looks: Mutex::default(), own: AtomicU64::new(0) };
        let of_node = |ended| Count::OfNode { ended };
        assert!(!shortages.has_grown(&of_node(1)), "nothing was seen before");
        let look = |count| shortages.looks.lock().unwrap().push_back(count);
        look(of_node(7));
        assert!(!shortages.has_grown(&of_node(7)));
        assert!(shortages.has_grown(&of_node(8)));
        assert!(!shortages.has_grown(&of_group("/a", 0)));
        look(of_group("/a", 2));
        assert!(!shortages.has_grown(&of_group("/a", 2)));
        assert!(shortages.has_grown(&of_group("/a", 3)));
        assert!(!shortages.has_grown(&of_group("/b", 0)), "a new group");
        assert!(shortages.has_grown(&of_group("/b", 1)));
        look(of_node(8));
        assert!(shortages.has_grown(&of_node(8)), "a moment ago");
        for _ in 0..LOOKS_KEPT {
            shortages.look();
        }
        assert!(shortages.looks.lock().unwrap().len() <= LOOKS_KEPT);
        assert!(!shortages.may_have_ended(Outcome::Exit(0)), "it was not killed");
    }
}
