//! Errors of the journal, one enum per operation.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{FORMAT_VERSION, RECORD_BYTES_MAX};
use super::read::Flaw;
use falkon_lock::Claimed;

/// Why a journal was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has this journal open.
    #[error(
        "the journal in {dir} is in use by {}; stop it, or choose another directory",
        holder(*.pid)
    )]
    Locked {
        /// The journal's directory.
        dir: PathBuf,
        /// The process that holds it, if its lock file says so.
        pid: Option<u32>,
    },
    /// Another process has claimed this journal, on a file system without locks.
    #[error("the journal in {dir} is in use: {claimed}")]
    Claimed {
        /// The journal's directory.
        dir: PathBuf,
        /// The owner of the claim.
        claimed: Claimed,
    },
    /// A file or the directory could not be read or written.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// The operation that failed, as a verb phrase.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The last segment was written by another version.
    #[error(fmt = write_version)]
    Version {
        /// The file.
        path: PathBuf,
        /// The format version of the file.
        version: u32,
    },
    /// The last segment is damaged before good records, or before what is known to be synced.
    #[error(transparent)]
    Corrupt(Corruption),
    /// A segment that must be there is not.
    #[error(
        "{path} is missing from the journal; restore it from a copy, or start with --salvage to go \
         on without its records"
    )]
    SegmentMissing {
        /// The file that is missing.
        path: PathBuf,
    },
}

/// Why the next record could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A file could not be opened or read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A file was written by another version.
    #[error(fmt = write_version)]
    Version {
        /// The file.
        path: PathBuf,
        /// The format version of the file.
        version: u32,
    },
    /// A file is damaged.
    #[error(transparent)]
    Corrupt(Corruption),
}

/// A damaged place in a journal file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{path} is damaged at byte {offset}: {flaw}; restore the file from a copy, or start with \
     --salvage to {}",
    salvaged(*.offset, *.next_good)
)]
pub struct Corruption {
    /// The file.
    pub path: PathBuf,
    /// Where the damage begins, in bytes from the start of the file.
    pub offset: u64,
    /// The kind of damage.
    pub flaw: Flaw,
    /// Where the next good record of the file begins, if there is one.
    pub next_good: Option<u64>,
}

/// Why a record was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The record is longer than [`RECORD_BYTES_MAX`].
    #[error(fmt = write_too_long)]
    TooLong {
        /// Length of the record in bytes.
        bytes: usize,
    },
    /// Records that wait for a commit fill the buffer.
    #[error(
        "{waiting_bytes} bytes wait to be written to the journal, it holds no more; commit them \
         first"
    )]
    BufferFull {
        /// Bytes that wait.
        waiting_bytes: usize,
    },
}

/// Why what was appended is not committed; it is kept and goes with the next commit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// There is no room for it on the device, in the quota, or under the file size limit.
    #[error(
        "no room to write {waiting_bytes} bytes to {path}: {source}{}; nothing is lost, make room \
         and try again",
        free(*.free_bytes)
    )]
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
    /// The snapshot could not be written for another reason.
    #[error(
        "cannot write {waiting_bytes} bytes to {path}: {source}; nothing is lost, mend the cause \
         and try again"
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// Bytes that wait to be written.
        waiting_bytes: u64,
        /// The operating system's reason.
        source: io::Error,
    },
    /// An earlier sync failed; this journal takes nothing any more.
    #[error(transparent)]
    Poisoned(SyncError),
}

/// Why what was committed is not known to be on stable storage.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The operating system failed to write the file back; this is for good.
    #[error(
        "cannot put {} on stable storage: {source}; what was not synced before may be lost, so the \
         journal takes no more records: check the device, then start again",
        .path.display()
    )]
    Failed {
        /// The file.
        path: Arc<Path>,
        /// The operating system's reason.
        source: Arc<io::Error>,
    },
    /// The journal's sync thread has ended.
    #[error("the journal's sync thread has ended; open the journal again")]
    Ended,
}

/// Why a snapshot was not written; the journal goes on as if it had not been begun.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The records appended before could not be committed.
    #[error(transparent)]
    Commit(CommitError),
    /// Another snapshot of this journal is being written.
    #[error("another snapshot of this journal is being written; finish it or drop it first")]
    AlreadyRunning,
    /// The record is longer than [`RECORD_BYTES_MAX`].
    #[error(fmt = write_too_long)]
    TooLong {
        /// Length of the record in bytes.
        bytes: usize,
    },
    /// The snapshot would take space that is kept for the journal itself.
    #[error(
        "no room for {path}: {free_bytes} bytes are free, and {leave_bytes} are kept for the \
         journal; the journal is unchanged, make room"
    )]
    NoRoom {
        /// The snapshot's file.
        path: PathBuf,
        /// Bytes free on its disk.
        free_bytes: u64,
        /// Bytes that it leaves free there.
        leave_bytes: u64,
    },
    /// The snapshot's file could not be written, synced or renamed.
    #[error(
        "cannot {doing} {path}: {source}; the journal is unchanged, remove the cause and begin \
         another snapshot"
    )]
    Io {
        /// The operation that failed, as a verb phrase.
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

fn write_version(path: &Path, version: &u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        f,
        "{} has journal format version {version}, this build reads version {FORMAT_VERSION}; \
         start the version of falkon that wrote it, or move the journal away to begin a new one",
        path.display()
    )
}

fn write_too_long(bytes: &usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        f,
        "a record of {bytes} bytes is too long for the journal, which takes {RECORD_BYTES_MAX}; \
         split it"
    )
}

fn salvaged(offset: u64, next_good: Option<u64>) -> String {
    match next_good {
        Some(next) => format!(
            "lose {} bytes and go on from the next good record at byte {next}",
            next.saturating_sub(offset)
        ),
        None => "lose the rest of this file and go on with the next".to_owned(),
    }
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

fn free(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, |bytes| format!(" ({bytes} bytes free)"))
}
