//! A relay's notes on disk: a journal like that of its dispatcher.

use super::{Options, Place};
use falkon_core::relay::{Note, Relay};
use falkon_dispatcher::journal::{
    AppendError, CommitError, Journal, OpenError, Options as JournalOptions, ReplayError,
    SnapshotError, look,
};
use falkon_net::Log;
use falkon_wire::codec::{DecodeError, Wire};
use std::path::Path;
use std::time::Duration;

/// Where the notes are in a relay's directory.
const DIRECTORY: &str = "relay";
/// Notes in one record.
const RECORD_NOTES_MAX: usize = 4096;
/// Notes are replaced by those that still count when so many bytes have come since
/// that was last done, and more than twice as many as these took.
const REPLACED_BYTES_MIN: u64 = 8 << 20;
/// Pause before notes are written again that could not be.
const RETRY_MS: u64 = 1000;

/// Why notes cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NotesError {
    /// The journal could not be opened.
    #[error(transparent)]
    Open(OpenError),
    /// The journal could not be read to its end.
    #[error(transparent)]
    Replay(ReplayError),
    /// A record is none that this release knows.
    #[error(
        "the relay's notes hold what this release cannot read ({0}); they were written by another \
         release: start that one, or use another directory"
    )]
    Record(#[source] DecodeError),
}

impl From<ReplayError> for NotesError {
    fn from(error: ReplayError) -> NotesError {
        NotesError::Replay(error)
    }
}

/// Checks that this release can read the notes in a relay's directory, which a relay may be
/// writing, and changes nothing.
///
/// # Errors
/// The notes are damaged, or of another release.
pub fn check_notes(dir: &Path) -> Result<(), NotesError> {
    let notes = dir.join(DIRECTORY);
    if !notes.exists() {
        return Ok(());
    }
    look(&notes, false, |bytes| {
        Vec::<Note>::from_bytes(bytes).map(drop).map_err(NotesError::Record)
    })
}

/// Why notes could not be written this time.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

/// Notes of a relay, which keeps them or not.
pub(super) struct Notes {
    kept: Option<Kept>,
    log: Log,
}

struct Kept {
    journal: Journal,
    machine_durable: bool,
}

impl Notes {
    /// Opens the notes, and reads what an earlier process wrote.
    pub(super) fn open(options: &Options) -> Result<(Notes, Vec<Note>), NotesError> {
        let log = options.log.clone();
        let Some(Place { dir, machine_durable }) = &options.place else {
            return Ok((Notes { kept: None, log }, Vec::new()));
        };
        let (journal, mut replay) = Journal::open(&dir.join(DIRECTORY), JournalOptions::default())
            .map_err(NotesError::Open)?;
        let mut notes = Vec::new();
        while let Some(bytes) = replay.next_record().map_err(NotesError::Replay)? {
            notes.extend(Vec::<Note>::from_bytes(bytes).map_err(NotesError::Record)?);
        }
        let kept = Kept { journal, machine_durable: *machine_durable };
        Ok((Notes { kept: Some(kept), log }, notes))
    }

    /// Writes notes; what follows waits until that is done.
    pub(super) async fn write(&mut self, notes: Vec<Note>, relay: &Relay) {
        let Some(kept) = &mut self.kept else { return };
        let mut said = String::new();
        while let Err(error) = kept.try_write(&notes) {
            kept.journal.discard_appended();
            let reason = error.to_string();
            if reason != said {
                (self.log)(&format!("cannot write the relay's notes, and waits: {reason}"));
                said = reason;
            }
            tokio::time::sleep(Duration::from_millis(RETRY_MS)).await;
        }
        if kept.is_replacement_due()
            && let Err(error) = kept.replace(&relay.notes())
        {
            (self.log)(&format!("cannot shorten the relay's notes: {error}"));
        }
    }
}

impl Kept {
    fn try_write(&mut self, notes: &[Note]) -> Result<(), WriteError> {
        for some in notes.chunks(RECORD_NOTES_MAX) {
            self.journal.append(&[&some.to_vec().to_bytes()])?;
        }
        match self.machine_durable {
            true => self.journal.sync()?,
            false => self.journal.commit()?,
        };
        Ok(())
    }

    fn is_replacement_due(&self) -> bool {
        let used = self.journal.disk_use();
        let due = REPLACED_BYTES_MIN.max(2 * used.snapshot_bytes);
        used.since_snapshot_bytes >= due && !used.snapshot_running
    }

    /// Writes all notes that count in the place of those there are.
    fn replace(&mut self, notes: &[Note]) -> Result<(), WriteError> {
        let mut snapshot = self.journal.begin_snapshot(0)?;
        for some in notes.chunks(RECORD_NOTES_MAX) {
            snapshot.append(&[&some.to_vec().to_bytes()])?;
        }
        snapshot.finish()?;
        Ok(())
    }
}
