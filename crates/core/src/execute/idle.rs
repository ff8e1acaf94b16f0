//! Idle exit: an executor whose idle time is limited leaves when it has had
//! nothing to do for so long.
//!
//! Idle is an executor that is connected, with nothing queued, running or
//! unacknowledged. An executor without a dispatcher is not idle: it waits for
//! one.

use super::Executor;
use crate::task::Time;

/// The idle time of an executor.
#[derive(Debug, Default)]
pub(super) struct IdleExit {
    /// `None`: it may be idle for ever.
    limit_micros: Option<u64>,
    /// Since when it is idle.
    since: Option<Time>,
}

impl IdleExit {
    fn is_limited(&self) -> bool {
        self.limit_micros.is_some()
    }

    /// Takes in whether the executor is idle at `now`.
    fn observe(&mut self, now: Time, is_idle: bool) {
        self.since = is_idle.then(|| self.since.unwrap_or(now));
    }

    /// A session begins, perhaps by another clock: idle time counts from here.
    pub(super) fn restart(&mut self) {
        self.since = None;
    }

    /// When the executor leaves, if it stays idle.
    pub(super) fn due(&self) -> Option<Time> {
        Some(self.since?.after(self.limit_micros?))
    }
}

impl Executor {
    /// This executor, which leaves when it has been idle for so long; `None`
    /// never does.
    #[must_use]
    pub fn with_idle_exit(mut self, limit_micros: Option<u64>) -> Executor {
        self.idle = IdleExit { limit_micros, since: None };
        self
    }

    /// Whether nothing is queued, running or unreported.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.running.is_empty()
            && self.gangs.is_empty()
            && self.updates.is_empty()
            && !self.has_finishing()
            && self.collecting.is_empty()
            && self.entrusted.is_empty()
    }

    /// Takes in whether it is idle now, after anything that may have changed
    /// that.
    pub(super) fn note_idle(&mut self) {
        if self.idle.is_limited() {
            let is_idle = self.connected && self.is_idle();
            self.idle.observe(self.now, is_idle);
        }
    }
}
