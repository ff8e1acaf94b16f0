//! Since when nothing below can run a task, nor be got: tasks that have not started are
//! to go back then, since the dispatcher below waits for nodes that may never come.

use crate::dispatch::Subtree;
use crate::limits::RELAY_UNOFFERED_MICROS;
use crate::task::Time;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Vacancy {
    due: Option<Time>,
}

impl Vacancy {
    /// This is below.
    pub(super) fn look(&mut self, now: Time, below: &Subtree) {
        let has_nodes = !below.nodes.is_empty();
        let can_get_some = !below.obtainable.is_empty() || below.is_unknown_obtainable;
        match has_nodes || can_get_some {
            true => self.due = None,
            false => {
                self.due.get_or_insert(now.after(RELAY_UNOFFERED_MICROS));
            }
        }
    }

    /// When tasks are to go back.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Whether they are to go back now. What comes back from executors that are gone
    /// goes later.
    pub(super) fn is_over(&mut self, now: Time) -> bool {
        let is_over = self.due.is_some_and(|due| due <= now);
        if is_over {
            self.due = Some(now.after(RELAY_UNOFFERED_MICROS));
        }
        is_over
    }
}
