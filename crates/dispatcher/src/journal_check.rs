//! A check whether this release can read the journal of a dispatcher that runs.

use super::pieces::Joined;
use crate::journal::{ReplayError, look};
use falkon_core::dispatch::Record;
use falkon_wire::codec::{DecodeError, Wire};
use std::path::Path;

/// Why a journal cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum JournalCheckError {
    /// The journal cannot be read.
    #[error(transparent)]
    Read(#[from] ReplayError),
    /// A record is none that this release knows.
    #[error(
        "the journal holds a record that this release cannot read ({0}); it was written by another \
         release: start that one"
    )]
    Record(#[source] DecodeError),
}

/// Reads the journal in `dir`, which a dispatcher may be writing, and changes nothing.
///
/// # Errors
/// This release cannot read it.
pub fn check_journal(dir: &Path, salvage: bool) -> Result<(), JournalCheckError> {
    let mut joined = Joined::default();
    look(dir, salvage, |bytes| {
        let Some(bytes) = joined.next(bytes) else { return Ok(()) };
        Record::from_bytes(bytes).map(drop).map_err(JournalCheckError::Record)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Journal, Options};

    #[test]
    fn a_journal_in_use_is_read_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(dir.path(), Options::default()).unwrap();
        check_journal(dir.path(), false).unwrap();
        // Bytes that are no record of any release.
        journal.append(&[&[0x93, 0xcd]]).unwrap();
        journal.commit().unwrap();
        let error = check_journal(dir.path(), false).unwrap_err();
        assert!(matches!(error, JournalCheckError::Record(_)), "{error}");
        journal.append(&[b"more"]).unwrap();
        journal.commit().unwrap();
    }
}
