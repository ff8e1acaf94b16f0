//! Why inputs cannot be staged, or outputs not be held.

use super::event::{FetchError, WriteError};
use crate::data::cache::RefusedError;
use crate::data::object::{ObjectId, Source};
use std::fmt;
use std::sync::Arc;

/// Why inputs cannot be staged, or an output cannot be held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StageError {
    /// There is no room, and there will be none.
    Room(RefusedError),
    /// Nobody gives the object.
    Unobtainable {
        /// The object.
        object: ObjectId,
        /// Its URL.
        url: Arc<str>,
        /// Every source, and what it said last; empty if no source is known.
        tried: Vec<(Source, FetchError)>,
    },
    /// The object is another one each time it is looked at.
    Changing {
        /// Its URL.
        url: Arc<str>,
        /// How often it was another.
        times: u32,
    },
    /// The cache's directory does not take it.
    Write {
        /// The URL of the object.
        url: Arc<str>,
        /// Why.
        error: WriteError,
    },
    /// The size of an output was not given.
    NoSize {
        /// Its URL.
        url: Arc<str>,
    },
}

impl fmt::Display for StageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StageError::Room(refused) => write!(f, "{refused}"),
            StageError::Unobtainable { url, tried, .. } if tried.is_empty() => {
                write!(f, "{url} is in no store and no executor is known to hold it")?;
                Ok(())
            }
            StageError::Unobtainable { url, tried, .. } => {
                write!(f, "{url} could not be fetched: ")?;
                for (at, (source, said)) in tried.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "; " };
                    write!(f, "{comma}{source}: {said}")?;
                }
                Ok(())
            }
            StageError::Changing { url, times } => {
                write!(
                    f,
                    "{url} changed {times} times while it was fetched: run the task when nothing \
                     writes it"
                )
            }
            StageError::Write { url, error } => {
                write!(f, "{url} could not be stored in the cache: {error}")
            }
            StageError::NoSize { url } => write!(f, "{url} is to be kept but has no size"),
        }
    }
}

impl std::error::Error for StageError {}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FetchError::Gone => write!(f, "it is not there"),
            FetchError::Busy => write!(f, "too busy"),
            FetchError::Coming => write!(f, "still fetching it itself"),
            FetchError::Unreachable(said) | FetchError::Refused(said) => write!(f, "{said}"),
            FetchError::Wrong(said) => write!(f, "it gave something else ({said})"),
            FetchError::Changed(object) => {
                write!(f, "it has another version now ({})", object.version)
            }
            FetchError::Write(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for FetchError {}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteError::Full => write!(f, "the disk is full"),
            WriteError::Wrong(said) => write!(f, "its content is not what it must be ({said})"),
            WriteError::Failed(said) => write!(f, "{said}"),
        }
    }
}

impl std::error::Error for WriteError {}
