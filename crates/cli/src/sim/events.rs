//! Events of a simulated run: a directory for `falkon report`, `log`, `export` and `replay`.

use crate::exit::{Exit, say};
use falkon_dispatcher::events::{EVENTS_DIRECTORY, EventOptions, Recorder};
use falkon_sim::Act;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The events of one run, which is made in a thread of its own.
#[derive(Clone)]
pub(super) struct SimulatedEvents(Arc<Mutex<Recorder>>);

impl SimulatedEvents {
    /// Begins in a directory that has no events yet.
    pub(super) fn create(dir: &Path) -> Result<SimulatedEvents, Exit> {
        let options = EventOptions::new(dir.join(EVENTS_DIRECTORY));
        // Two runs would be told as one.
        if std::fs::read_dir(&options.dir).is_ok_and(|mut entries| entries.next().is_some()) {
            let dir = dir.display();
            return Err(Exit::usage(format!(
                "{dir} has the events of a run: name another directory for --events"
            )));
        }
        let log = Arc::new(|text: &str| say(text));
        match Recorder::open(&options, log) {
            Ok(recorder) => Ok(SimulatedEvents(Arc::new(Mutex::new(recorder)))),
            Err(error) => Err(Exit::failure(error)),
        }
    }

    pub(super) fn take(&self, act: Act) {
        // A thread that panicked ends the program.
        let mut recorder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match act {
            Act::Started(at) => recorder.started(at),
            Act::Acted { at, happenings, records } => recorder.acted(at, happenings, records),
        }
    }

    /// Has all of them written.
    pub(super) fn close(&self) -> Result<(), Exit> {
        let mut recorder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match recorder.close() {
            true => Ok(()),
            false => Err(Exit::failure("events of the run are missing, see above".to_owned())),
        }
    }
}
