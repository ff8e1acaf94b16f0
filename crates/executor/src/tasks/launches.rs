//! Launches that end otherwise than by their processes' ends: those that the host was not sent yet,
//! and those that are lost with it.

use super::{HOST_LOST, Tasks};
use crate::workers::Workers;
use falkon_core::execute::Event;
use falkon_core::result::Outcome;
use falkon_net::clock::Clock;
use falkon_process::{Ended, HostLost, Outcome as ProcessOutcome};

impl Tasks {
    /// Drops a launch that the host was not sent yet; false if it was.
    pub(super) fn drop_unsent(&mut self, key: u64, clock: &Clock) -> bool {
        let Some(at) = self.launches.iter().position(|launch| launch.key == key) else {
            return false;
        };
        self.launches.remove(at);
        if Workers::is_worker(key) {
            self.workers.ended(lost(key), clock);
        }
        self.remote_unsent(key, "it was ended before it began");
        if let Some(process) = self.processes.remove(&key) {
            self.scratch.abandon(key);
            self.close_gap(key, process.after);
            self.forget_launch(&process, key);
            self.events.push_back(Event::TakenBack(process.key));
        }
        true
    }

    /// A launch was taken back: what was to come after it comes after `before`.
    pub(super) fn close_gap(&mut self, taken: u64, before: Option<u64>) {
        for process in self.processes.values_mut().filter(|one| one.after == Some(taken)) {
            process.after = before;
        }
        for launch in self.launches.iter_mut().filter(|one| one.after == Some(taken)) {
            launch.after = before;
        }
        if let Some(before) = before {
            for after in self.passed.values_mut().filter(|after| **after == taken) {
                *after = before;
            }
        }
    }

    /// The host is lost, and its tasks with it; another is started when it is
    /// needed.
    pub(super) fn host_lost(&mut self, gone: &HostLost, clock: &Clock) {
        self.host = None;
        // The later ones come first: the core must learn of the tasks that have
        // not run before it learns that the ones before them have ended.
        for &key in gone.keys.iter().rev() {
            if Workers::is_worker(key) {
                self.launched -= 1;
                self.workers.lost(lost(key), clock);
                continue;
            }
            if self.remote_lost(key, HOST_LOST) {
                self.launched -= 1;
                continue;
            }
            let Some(process) = self.processes.remove(&key) else { continue };
            self.scratch.abandon(key);
            self.forget_launch(&process, key);
            self.outputs.drop_unreported(process.output);
            self.launched -= 1;
            if process.after.is_some_and(|after| gone.keys.binary_search(&after).is_ok()) {
                self.events.push_back(Event::TakenBack(process.key));
                continue;
            }
            self.end(process.key, Outcome::Lost, clock.now(), HOST_LOST.to_owned());
        }
    }
}

/// The end of a worker that was lost with its host, or before it got there.
pub(super) fn lost(key: u64) -> Ended {
    Ended {
        key,
        outcome: ProcessOutcome::Signal(libc::SIGKILL),
        started: 0,
        ended: 0,
        stdout: falkon_process::Captured::default(),
        stderr: falkon_process::Captured::default(),
        usage: falkon_process::Usage::default(),
        shortage: None,
        ranks: Vec::new(),
    }
}
