//! What a provisioner keeps on disk, beside the dispatcher's journal: its
//! queues, and the numbers it has given. What became of its jobs the
//! scheduler knows, and tells by their names.

use crate::secure::{ACCESS_FILE_BYTES_MAX, FileError, read_private, write_private};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// The version of the file's format.
const FORMAT: u32 = 1;
/// The file.
const FILE: &str = "provision.json";
/// Numbers that are taken at a time, so that not each one is written.
const NUMBERS: u64 = 64;

/// A queue, as it was added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredQueue {
    pub(super) name: String,
    pub(super) config: String,
    #[serde(default)]
    pub(super) paused: bool,
    #[serde(default)]
    pub(super) removing: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    format: u32,
    /// Allocations below it have been numbered.
    next: u64,
    queues: Vec<StoredQueue>,
}

/// Why the record cannot be used.
#[derive(Debug)]
pub enum RecordError {
    /// The system refuses.
    File(FileError),
    /// It is not such a file.
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// It is of another release.
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// There are too many queues, or too much is said of them.
    Full,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::File(error) => write!(f, "{error}"),
            RecordError::Malformed { path, source } => write!(
                f,
                "{} is damaged: {source}; take it away, add the queues again, and look with the \
                 scheduler's own commands for jobs of falkon that are left",
                path.display()
            ),
            RecordError::Format { path, format } => write!(
                f,
                "{} has format {format} and this falkon reads format {FORMAT}: use the release \
                 that wrote it",
                path.display()
            ),
            RecordError::Full => write!(
                f,
                "what is known of all queues is more than {ACCESS_FILE_BYTES_MAX} bytes: remove \
                 some, or say less in their files"
            ),
        }
    }
}

impl std::error::Error for RecordError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RecordError::File(error) => Some(error),
            RecordError::Malformed { source, .. } => Some(source),
            RecordError::Format { .. } | RecordError::Full => None,
        }
    }
}

/// The record and its file.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    stored: Stored,
}

impl Record {
    /// Reads the record of `dir`, or begins one.
    pub(super) fn open(dir: &Path) -> Result<Record, RecordError> {
        let path = dir.join(FILE);
        let stored = match read_private(&path) {
            Err(FileError::Missing { .. }) => {
                Stored { format: FORMAT, next: 1, queues: Vec::new() }
            }
            Err(error) => return Err(RecordError::File(error)),
            Ok(bytes) => {
                let stored: Stored = serde_json::from_slice(&bytes)
                    .map_err(|source| RecordError::Malformed { path: path.clone(), source })?;
                if stored.format != FORMAT {
                    return Err(RecordError::Format { path, format: stored.format });
                }
                stored
            }
        };
        Ok(Record { path, stored })
    }

    /// The first number that was never given.
    pub(super) fn next(&self) -> u64 {
        self.stored.next
    }

    pub(super) fn queues(&self) -> &[StoredQueue] {
        &self.stored.queues
    }

    /// Sees to it that `number` is not given again after a restart.
    pub(super) fn take(&mut self, number: u64) -> Result<(), RecordError> {
        if number < self.stored.next {
            return Ok(());
        }
        self.stored.next = number.saturating_add(NUMBERS);
        self.write()
    }

    /// Changes what is known of a queue; `None` forgets it.
    pub(super) fn set(
        &mut self,
        name: &str,
        queue: Option<StoredQueue>,
    ) -> Result<(), RecordError> {
        let before = self.stored.clone();
        let place = self.stored.queues.iter().position(|known| known.name == name);
        match (place, queue) {
            (Some(place), Some(queue)) => self.stored.queues[place] = queue,
            (None, Some(queue)) => self.stored.queues.push(queue),
            (Some(place), None) => drop(self.stored.queues.remove(place)),
            (None, None) => return Ok(()),
        }
        self.write().inspect_err(|_| self.stored = before)
    }

    fn write(&self) -> Result<(), RecordError> {
        let text = serde_json::to_vec_pretty(&self.stored)
            .map_err(|source| RecordError::Malformed { path: self.path.clone(), source })?;
        if text.len() > ACCESS_FILE_BYTES_MAX {
            return Err(RecordError::Full);
        }
        write_private(&self.path, &text).map_err(RecordError::File)
    }
}

#[cfg(test)]
mod tests {
    use super::{Record, StoredQueue};

    #[test]
    fn what_was_recorded_is_there_again_and_no_number_comes_twice() {
        let dir = tempfile::tempdir().unwrap();
        let queue = |name: &str, paused| StoredQueue {
            name: name.to_owned(),
            config: "kind = \"slurm\"".to_owned(),
            paused,
            removing: false,
        };
        let mut record = Record::open(dir.path()).unwrap();
        assert_eq!(record.next(), 1);
        record.set("a", Some(queue("a", false))).unwrap();
        record.set("b", Some(queue("b", false))).unwrap();
        record.set("a", Some(queue("a", true))).unwrap();
        record.set("b", None).unwrap();
        record.take(70).unwrap();
        let again = Record::open(dir.path()).unwrap();
        assert_eq!(again.queues(), [queue("a", true)]);
        assert!(again.next() > 70);
        std::fs::write(dir.path().join("provision.json"), "{").unwrap();
        let error = Record::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("add the queues again"), "{error}");
    }
}
