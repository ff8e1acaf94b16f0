//! Why inputs cannot be staged, or outputs not be held.

use super::event::{FetchError, UnpackError, WriteError};
use crate::data::cache::RefusedError;
use crate::data::object::{ObjectId, Source};
use std::sync::Arc;

/// Why inputs cannot be staged, or an output cannot be held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    /// There is no room, and there will be none.
    #[error(transparent)]
    Room(RefusedError),
    /// Nobody gives the object.
    #[error("{url} {}", attempts(.tried))]
    Unobtainable {
        /// The object; the archive, of a member.
        object: ObjectId,
        /// Its URL.
        url: Arc<str>,
        /// Every source, and what it said last; empty if no source is known.
        tried: Vec<(Source, FetchError)>,
    },
    /// The archive has no such member, wherever it is.
    #[error("{url} cannot be read: {why}")]
    NoMember {
        /// The member's URL.
        url: Arc<str>,
        /// What is wrong.
        why: String,
    },
    /// The object is another one each time it is looked at.
    #[error(
        "{url} changed {times} times while it was fetched: run the task when nothing writes it"
    )]
    Changing {
        /// Its URL.
        url: Arc<str>,
        /// How often it was another.
        times: u32,
    },
    /// The cache's directory does not take it.
    #[error("{url} could not be stored in the cache: {error}")]
    Write {
        /// The URL of the object.
        url: Arc<str>,
        /// Why.
        error: WriteError,
    },
    /// The archive is not unpacked.
    #[error("{url} could not be unpacked: {error}")]
    Unpack {
        /// The URL of the archive.
        url: Arc<str>,
        /// Why.
        error: UnpackError,
    },
    /// The size of an output was not given.
    #[error("{url} is to be kept but has no size")]
    NoSize {
        /// Its URL.
        url: Arc<str>,
    },
}

impl StageError {
    /// What nobody gives, if that is why: of a member, the archive.
    #[must_use]
    pub fn unobtainable(&self) -> Option<ObjectId> {
        match self {
            StageError::Unobtainable { object, .. } => Some(*object),
            _ => None,
        }
    }
}

fn attempts(tried: &[(Source, FetchError)]) -> String {
    if tried.is_empty() {
        return "is in no store and no executor is known to hold it".to_owned();
    }
    let each: Vec<String> =
        tried.iter().map(|(source, said)| format!("{source}: {said}")).collect();
    format!("could not be fetched: {}", each.join("; "))
}
