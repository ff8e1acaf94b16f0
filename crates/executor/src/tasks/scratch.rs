//! Tasks that claim disk space: each has a scratch directory of its own, and ends when that is gone.

use super::{Disk, Notice, Process, Tasks};
use crate::watchdog::WaitPoint;
use falkon_core::execute::Start;
use falkon_net::clock::Clock;
use falkon_process::Ended;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};

/// A variable of a task's environment, and its value.
type Variable = (Vec<u8>, Vec<u8>);

/// The scratch directory of a task that is about to be launched.
#[derive(Debug, Default)]
pub(super) struct ScratchPlace {
    pub(super) disk: Option<Disk>,
    /// Its path.
    path: Option<Vec<u8>>,
}

impl ScratchPlace {
    /// What a task finds unless its own environment says otherwise.
    pub(super) fn default_environment(&self) -> Option<Variable> {
        self.path.clone().map(|path| ("TMPDIR".into(), path))
    }

    /// What a task finds in any case.
    pub(super) fn environment(&self) -> Option<Variable> {
        self.path.clone().map(|path| ("FALKON_SCRATCH".into(), path))
    }
}

impl Tasks {
    /// Makes the directory for a launch, if its task has claimed disk space.
    pub(super) fn make_scratch(
        &mut self,
        start: &Start,
        launch: u64,
    ) -> Result<ScratchPlace, String> {
        let limit_bytes = start.class.resources.disk_bytes();
        if limit_bytes == 0 {
            return Ok(ScratchPlace::default());
        }
        let position = self.position.clone();
        let _at = position.at(WaitPoint::Sandboxes);
        let path = self.scratch.make(launch, limit_bytes).map_err(|error| error.to_string())?;
        let disk = Disk { limit_bytes, over_bytes: None };
        Ok(ScratchPlace { disk: Some(disk), path: Some(path.into_os_string().into_vec()) })
    }

    /// A process has ended. Its end is passed on when its directory is gone: the space is free then.
    pub(super) fn clear_scratch(&mut self, ended: Ended, process: Process) {
        let launch = ended.key;
        self.clearing.insert(launch, (ended, process));
        self.scratch.end(launch);
    }

    /// Acts upon a message about scratch directories.
    pub(super) fn scratch_said(&mut self, said: &Notice, clock: &Clock) {
        match *said {
            Notice::Over { launch, had_bytes } => {
                let Some(process) = self.processes.get_mut(&launch) else { return };
                let Some(disk) = &mut process.disk else { return };
                disk.over_bytes = Some(had_bytes);
                self.kills.push((launch, Duration::ZERO));
            }
            Notice::Cleared { launch, most_bytes } => self.cleared(launch, most_bytes, clock),
        }
    }

    /// Ends the tasks whose directories cannot be removed.
    pub(super) fn end_overdue(&mut self, now: Instant, clock: &Clock) {
        for launch in self.scratch.overdue(now) {
            self.cleared(launch, 0, clock);
        }
    }

    fn cleared(&mut self, launch: u64, most_bytes: u64, clock: &Clock) {
        let Some((ended, process)) = self.clearing.remove(&launch) else { return };
        let over_bytes = process.disk.and_then(|disk| disk.over_bytes).unwrap_or(0);
        let most_bytes = most_bytes.max(over_bytes);
        if let Some(event) = self.task_ended(ended, process, Some(most_bytes), clock) {
            self.events.push_back(event);
        }
    }
}
