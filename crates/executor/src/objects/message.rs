//! Messages about data objects for the driver.

use falkon_core::data::object::Object;
use falkon_core::data::stage::{Event, WriteError};
use falkon_core::execute::{CollectEvent, TaskKey};
use falkon_core::part::PartAnswer;
use falkon_data::cache::CacheError;
use falkon_data::peer::{FromPeers, PartAsked};

/// A message of a transfer, a store or a peer.
#[derive(Debug)]
pub(crate) enum FromObjects {
    /// For the stage.
    Stage(Event),
    /// The outputs of a task are where they are to go, or one is not.
    Put {
        /// The task.
        key: TaskKey,
        /// Why not.
        result: Result<(), String>,
    },
    /// The folders that a task has left are archives, or one is not.
    Packed {
        /// The task.
        key: TaskKey,
        /// Why not.
        result: Result<(), String>,
    },
    /// The value of a call is in the cache, or cannot be stored there.
    Value {
        /// The task.
        key: TaskKey,
        /// The object that it is, or why it is none.
        result: Result<Object, String>,
    },
    /// What became of outputs that are collected.
    Collect(CollectEvent),
    /// A peer wants something.
    Peers(FromPeers),
    /// A transfer wants a part of an object through the dispatcher.
    Asked(PartAsked),
    /// A part of an object that the dispatcher has asked for, by the number of its question.
    Read(u64, PartAnswer),
}

/// Converts an error of the cache on disk.
pub(crate) fn write_error(error: CacheError) -> WriteError {
    match error {
        CacheError::Full { .. } => WriteError::Full,
        CacheError::Wrong { reason, .. } => WriteError::Wrong(reason),
        error => WriteError::Failed(error.to_string()),
    }
}
