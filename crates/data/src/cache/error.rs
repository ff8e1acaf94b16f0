//! Errors of the cache on disk.

use std::io;
use std::path::PathBuf;

use falkon_core::data::cache::TierId;
use falkon_core::data::object::ObjectId;

use falkon_lock::Claimed;

/// Why a cache was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another executor uses this directory.
    #[error(
        "another executor uses the cache in {directory}{}: give each executor a directory of its \
         own",
        by(*.pid)
    )]
    Locked {
        /// The directory.
        directory: PathBuf,
        /// The process of that executor, if its lock names it.
        pid: Option<u32>,
    },
    /// Another executor has claimed this directory, on a file system without locks.
    #[error("another executor uses the cache in {directory}: {claimed}")]
    Claimed {
        /// The directory.
        directory: PathBuf,
        /// The directory.
        claimed: Claimed,
    },
    /// A file or folder cannot be used.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// The operation that failed, as a verb phrase.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The index cannot be written.
    #[error(transparent)]
    Index(Box<CacheError>),
}

fn by(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

/// Why the cache did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// There is no room on the directory's file system.
    #[error(
        "there is no room for the cache in {directory}: {source}; make room, or give the cache a \
         smaller size"
    )]
    Full {
        /// The directory.
        directory: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The object is not there (any more), or is not what it was.
    #[error("object {object} is not in the cache, or was changed there")]
    Lost {
        /// The object.
        object: ObjectId,
    },
    /// A file has not the length or the content that it must have.
    #[error("the received object {object} is wrong: {reason}")]
    Wrong {
        /// The object that it was to be.
        object: ObjectId,
        /// The difference.
        reason: String,
    },
    /// The directory was deleted, or another executor has taken its place.
    #[error("the cache's directory {directory} was deleted while it was in use")]
    Gone {
        /// The directory.
        directory: PathBuf,
    },
    /// There is no directory of this number.
    #[error("the cache has no directory {}", .tier.0)]
    NoTier {
        /// The number.
        tier: TierId,
    },
    /// A file cannot be used for another reason.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// The operation that failed, as a verb phrase.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
}
