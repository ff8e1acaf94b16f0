//! What can go wrong, one enum per operation.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{FORMAT_VERSION, RECORD_BYTES_MAX};
use super::read::Flaw;
use crate::lock::Claimed;

/// Why a journal was not opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has this journal open.
    Locked {
        /// The journal's directory.
        dir: PathBuf,
        /// The process that holds it, if its lock file says so.
        pid: Option<u32>,
    },
    /// Another process has claimed this journal, on a file system without locks.
    Claimed {
        /// The journal's directory.
        dir: PathBuf,
        /// By whom.
        claimed: Claimed,
    },
    /// A file or the directory could not be read or written.
    Io {
        /// What was being done, as a verb phrase.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The last segment was written by another version.
    Version {
        /// The file.
        path: PathBuf,
        /// Its format version.
        version: u32,
    },
    /// The last segment is damaged before good records, or before what is known to be synced.
    Corrupt(Corruption),
    /// A segment that must be there is not.
    SegmentMissing {
        /// The file that is missing.
        path: PathBuf,
    },
}

/// Why the next record could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayError {
    /// A file could not be opened or read.
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A file was written by another version.
    Version {
        /// The file.
        path: PathBuf,
        /// Its format version.
        version: u32,
    },
    /// A file is damaged.
    Corrupt(Corruption),
}

/// A damaged place in a journal file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The file.
    pub path: PathBuf,
    /// Where the damage begins, in bytes from the start of the file.
    pub offset: u64,
    /// What is wrong there.
    pub flaw: Flaw,
    /// Where the next good record of the file begins, if there is one.
    pub next_good: Option<u64>,
}

/// Why a record was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AppendError {
    /// The record is longer than [`RECORD_BYTES_MAX`].
    TooLong {
        /// Length of the record in bytes.
        bytes: usize,
    },
    /// Records that wait for a commit fill the buffer.
    BufferFull {
        /// Bytes that wait.
        waiting_bytes: usize,
    },
}

/// Why what was appended is not committed; it is kept and goes with the next commit.
#[derive(Debug)]
#[non_exhaustive]
pub enum CommitError {
    /// There is no room for it on the device, in the quota, or under the file size limit.
    NoRoom {
        /// The file that was to grow.
        path: PathBuf,
        /// Bytes that wait to be written.
        waiting_bytes: u64,
        /// Bytes free on the file system, if it tells.
        free_bytes: Option<u64>,
        /// The operating system's reason.
        source: io::Error,
    },
    /// It could not be written for another reason.
    Write {
        /// The file.
        path: PathBuf,
        /// Bytes that wait to be written.
        waiting_bytes: u64,
        /// The operating system's reason.
        source: io::Error,
    },
    /// An earlier sync failed; this journal takes nothing any more.
    Poisoned(SyncError),
}

/// Why what was committed is not known to be on stable storage.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SyncError {
    /// The operating system failed to write the file back; this is for good.
    Failed {
        /// The file.
        path: Arc<Path>,
        /// The operating system's reason.
        source: Arc<io::Error>,
    },
    /// The journal's sync thread has ended.
    Ended,
}

/// Why a snapshot was not written; the journal goes on as if it had not been begun.
#[derive(Debug)]
#[non_exhaustive]
pub enum SnapshotError {
    /// What was appended before it could not be committed.
    Commit(CommitError),
    /// Another snapshot of this journal is being written.
    AlreadyRunning,
    /// The record is longer than [`RECORD_BYTES_MAX`].
    TooLong {
        /// Length of the record in bytes.
        bytes: usize,
    },
    /// It would take space that is kept for the journal itself.
    NoRoom {
        /// The snapshot's file.
        path: PathBuf,
        /// Bytes free on its disk.
        free_bytes: u64,
        /// Bytes that it leaves free there.
        leave_bytes: u64,
    },
    /// The snapshot's file could not be written, synced or renamed.
    Io {
        /// What was being done, as a verb phrase.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
}

impl SyncError {
    pub(super) fn failed(path: &Arc<Path>, source: io::Error) -> SyncError {
        SyncError::Failed { path: path.clone(), source: Arc::new(source) }
    }
}

impl CommitError {
    /// Sorts a failed write by whether room would help.
    pub(super) fn from_write(
        path: &Path,
        waiting_bytes: u64,
        free_bytes: Option<u64>,
        source: io::Error,
    ) -> CommitError {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => {
                CommitError::NoRoom { path, waiting_bytes, free_bytes, source }
            }
            _ => CommitError::Write { path, waiting_bytes, source },
        }
    }
}

fn version_text(f: &mut fmt::Formatter<'_>, path: &Path, version: u32) -> fmt::Result {
    write!(
        f,
        "{} has journal format version {version}, this build reads version {FORMAT_VERSION}; \
         start the version of falkon that wrote it, or move the journal away to begin a new one",
        path.display()
    )
}

fn too_long_text(f: &mut fmt::Formatter<'_>, bytes: usize) -> fmt::Result {
    write!(
        f,
        "a record of {bytes} bytes is too long for the journal, which takes {RECORD_BYTES_MAX}; \
         split it"
    )
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, offset) = (self.path.display(), self.offset);
        write!(
            f,
            "{path} is damaged at byte {offset}: {}; restore the file from a copy, ",
            self.flaw
        )?;
        match self.next_good {
            Some(next) => write!(
                f,
                "or start with --salvage to lose {} bytes and go on from the next good \
                 record at byte {next}",
                next.saturating_sub(offset)
            ),
            None => write!(
                f,
                "or start with --salvage to lose the rest of this file and go on with \
                 the next"
            ),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Locked { dir, pid: Some(pid) } => write!(
                f,
                "the journal in {} is in use by process {pid}; stop it, or choose another directory",
                dir.display()
            ),
            OpenError::Locked { dir, pid: None } => write!(
                f,
                "the journal in {} is in use by another process; stop it, or choose another \
                 directory",
                dir.display()
            ),
            OpenError::Claimed { dir, claimed } => {
                write!(f, "the journal in {} is in use: {claimed}", dir.display())
            }
            OpenError::Io { doing, path, source } => {
                write!(f, "cannot {doing} {}: {source}", path.display())
            }
            OpenError::Version { path, version } => version_text(f, path, *version),
            OpenError::Corrupt(corruption) => corruption.fmt(f),
            OpenError::SegmentMissing { path } => write!(
                f,
                "{} is missing from the journal; restore it from a copy, or start with \
                 --salvage to go on without its records",
                path.display()
            ),
        }
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Io { path, source } => {
                write!(f, "cannot read {}: {source}", path.display())
            }
            ReplayError::Version { path, version } => version_text(f, path, *version),
            ReplayError::Corrupt(corruption) => corruption.fmt(f),
        }
    }
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppendError::TooLong { bytes } => too_long_text(f, *bytes),
            AppendError::BufferFull { waiting_bytes } => write!(
                f,
                "{waiting_bytes} bytes wait to be written to the journal, it holds no more; commit \
                 them first"
            ),
        }
    }
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommitError::NoRoom { path, waiting_bytes, free_bytes, source } => {
                write!(
                    f,
                    "no room to write {waiting_bytes} bytes to {}: {source}",
                    path.display()
                )?;
                if let Some(free) = free_bytes {
                    write!(f, " ({free} bytes free)")?;
                }
                write!(f, "; nothing is lost, make room and try again")
            }
            CommitError::Write { path, waiting_bytes, source } => write!(
                f,
                "cannot write {waiting_bytes} bytes to {}: {source}; nothing is lost, mend the \
                 cause and try again",
                path.display()
            ),
            CommitError::Poisoned(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyncError::Failed { path, source } => write!(
                f,
                "cannot put {} on stable storage: {source}; what was not synced before may be \
                 lost, so the journal takes no more records: check the device, then start again",
                path.display()
            ),
            SyncError::Ended => {
                write!(f, "the journal's sync thread has ended; open the journal again")
            }
        }
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::Commit(error) => error.fmt(f),
            SnapshotError::AlreadyRunning => write!(
                f,
                "another snapshot of this journal is being written; finish it or drop it first"
            ),
            SnapshotError::TooLong { bytes } => too_long_text(f, *bytes),
            SnapshotError::NoRoom { path, free_bytes, leave_bytes } => write!(
                f,
                "no room for {}: {free_bytes} bytes are free, and {leave_bytes} are kept for the \
                 journal; the journal is as it was, make room",
                path.display()
            ),
            SnapshotError::Io { doing, path, source } => write!(
                f,
                "cannot {doing} {}: {source}; the journal is as it was, mend the cause and begin \
                 another snapshot",
                path.display()
            ),
        }
    }
}

// Each message above ends with its cause, so `source` stays empty and no cause is printed twice.
impl std::error::Error for OpenError {}
impl std::error::Error for ReplayError {}
impl std::error::Error for Corruption {}
impl std::error::Error for AppendError {}
impl std::error::Error for CommitError {}
impl std::error::Error for SyncError {}
impl std::error::Error for SnapshotError {}
