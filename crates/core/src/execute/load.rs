//! What an executor has to do, for whoever looks.

use super::Executor;
use crate::task::Resources;

impl Executor {
    /// Tasks queued, and tasks running, here.
    #[must_use]
    pub fn load(&self) -> (u64, u64) {
        let queued: u64 = self.queue.iter().map(|run| run.count).sum();
        let started: u64 = self.running.values().map(|run| run.count).sum();
        let waiting = self.waiting.len() as u64;
        (queued + waiting, started - waiting)
    }

    /// What is free of the capacity.
    #[must_use]
    pub fn free(&self) -> &Resources {
        &self.free
    }
}
