//! What can go wrong with the cache on disk.

use std::fmt;
use std::io;
use std::path::PathBuf;

use falkon_core::data::cache::TierId;
use falkon_core::data::object::ObjectId;

use crate::lock::Claimed;

/// Why a cache was not opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another executor uses this directory.
    Locked {
        /// The directory.
        directory: PathBuf,
        /// That executor's process, if its lock says so.
        pid: Option<u32>,
    },
    /// Another executor has claimed this directory, on a file system without locks.
    Claimed {
        /// The directory.
        directory: PathBuf,
        /// The directory.
        claimed: Claimed,
    },
    /// A file or folder cannot be used.
    Io {
        /// What was being done, as a verb phrase.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The index cannot be written.
    Index(Box<CacheError>),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Locked { directory, pid } => {
                write!(f, "another executor uses the cache in {}", directory.display())?;
                if let Some(pid) = pid {
                    write!(f, " (process {pid})")?;
                }
                f.write_str(": give each executor a directory of its own")
            }
            OpenError::Claimed { directory, claimed } => {
                let directory = directory.display();
                write!(f, "another executor uses the cache in {directory}: {claimed}")
            }
            OpenError::Io { doing, path, source } => {
                write!(f, "cannot {doing} {}: {source}", path.display())
            }
            OpenError::Index(source) => source.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Locked { .. } | OpenError::Claimed { .. } => None,
            OpenError::Io { source, .. } => Some(source),
            OpenError::Index(source) => Some(source),
        }
    }
}

/// Why the cache did not do what it was asked.
#[derive(Debug)]
pub enum CacheError {
    /// There is no room on the directory's file system.
    Full {
        /// The directory.
        directory: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The object is not there (any more), or is not what it was.
    Lost {
        /// The object.
        object: ObjectId,
    },
    /// A file has not the length or the content that it must have.
    Wrong {
        /// The object that it was to be.
        object: ObjectId,
        /// What is wrong.
        reason: String,
    },
    /// The directory was deleted, or another executor has taken its place.
    Gone {
        /// The directory.
        directory: PathBuf,
    },
    /// There is no directory of this number.
    NoTier {
        /// The number.
        tier: TierId,
    },
    /// A file cannot be used for another reason.
    Io {
        /// What was being done, as a verb phrase.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheError::Full { directory, source } => write!(
                f,
                "there is no room for the cache in {}: {source}; make room, or give the cache a \
                 smaller size",
                directory.display()
            ),
            CacheError::Lost { object } => {
                write!(f, "object {object} is not in the cache, or was changed there")
            }
            CacheError::Wrong { object, reason } => {
                write!(f, "what arrived as object {object} is not it: {reason}")
            }
            CacheError::Gone { directory } => write!(
                f,
                "the cache's directory {} was deleted while it was in use",
                directory.display()
            ),
            CacheError::NoTier { tier } => write!(f, "the cache has no directory {}", tier.0),
            CacheError::Io { doing, path, source } => {
                write!(f, "cannot {doing} {}: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for CacheError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CacheError::Full { source, .. } | CacheError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
