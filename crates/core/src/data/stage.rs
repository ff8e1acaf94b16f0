//! The executor's staging of inputs and keeping of outputs, as a state
//! machine.
//!
//! # The pump
//! Call [`Stage::handle`] for each event, then [`Stage::poll_action`] until it
//! gives `None`, then wait until [`Stage::poll_timeout`] or the next event.

mod error;
mod event;

pub use error::StageError;
pub use event::{
    Action, Changes, Count, Event, FetchError, FetchId, Input, PartialId, ServeId, StageOptions,
    Staged, Usage, WriteError,
};
