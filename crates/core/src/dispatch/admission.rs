//! The executors that a dispatcher has: those whose names can be shown and passed
//! on.

use super::{Join, SubtreeError};
use crate::limits::{
    ADDRESS_BYTES_MAX, CUSTOM_NAMES_MAX, FINGERPRINT_BYTES_MAX, JOIN_RUNS_MAX, NAME_BYTES_MAX,
};

/// Why an executor is not taken in, however often it comes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// Its name is too long.
    #[error(
        "the executor's name is {bytes} bytes, and at most {NAME_BYTES_MAX} are kept: choose a \
         shorter one"
    )]
    LongName {
        /// The name's length.
        bytes: usize,
    },
    /// It offers too many custom resources, or one whose name is too long.
    #[error(
        "an executor offers at most {CUSTOM_NAMES_MAX} resources of its own, with names of at most \
         {NAME_BYTES_MAX} bytes"
    )]
    Resources,
    /// The address where it serves what it caches is too long.
    #[error(
        "the address where the executor serves what it caches is longer than {ADDRESS_BYTES_MAX} \
         bytes"
    )]
    Address,
    /// It is a relay that cannot be one here.
    #[error(transparent)]
    Subtree(SubtreeError),
    /// It has tasks in too many runs.
    #[error(
        "the executor has tasks in {runs} runs, and at most {JOIN_RUNS_MAX} are taken over: start \
         it anew"
    )]
    ManyRuns {
        /// How many.
        runs: usize,
    },
}

impl Join {
    /// Whether a dispatcher takes it in.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), JoinError> {
        if self.name.len() > NAME_BYTES_MAX {
            return Err(JoinError::LongName { bytes: self.name.len() });
        }
        if self.held.len() > JOIN_RUNS_MAX {
            return Err(JoinError::ManyRuns { runs: self.held.len() });
        }
        let resources = &self.capacity;
        if resources.custom.len() > CUSTOM_NAMES_MAX
            || resources.name_bytes() > NAME_BYTES_MAX as u64
        {
            return Err(JoinError::Resources);
        }
        let is_long = self.serves.as_ref().is_some_and(|serves| {
            serves.address.len() > ADDRESS_BYTES_MAX
                || serves.fingerprint.len() > FINGERPRINT_BYTES_MAX
        });
        if is_long { Err(JoinError::Address) } else { Ok(()) }
    }
}
