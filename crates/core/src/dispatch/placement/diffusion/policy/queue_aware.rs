//! `queue-aware`: data is fetched for what waits, ahead of the tasks, and tasks
//! run where their data is. Not in the papers.
//!
//! - A task is sent to an executor that holds all its inputs; a file's tasks
//!   are sent together. No slot waits for a transfer.
//! - What is fetched next ([`super::super::Waiting::fetch`]) is the object with the
//!   most tasks waiting among those that nobody holds and that are on no way.
//! - Of tasks with several inputs, each executor co-locates those whose inputs
//!   hang together, just ahead of its work (`colocate.rs`).
//! - An object that is held is fetched by one more executor when its tasks
//!   would wait longer for the holders than a transfer takes.
//! - Executors are told how many tasks wait for what they hold
//!   ([`crate::data::index::Index::wanted`]), and evict the least wanted.

use super::{Load, Policy, Rest};

#[derive(Debug)]
pub(super) struct QueueAware;

impl Policy for QueueAware {
    fn takes_parts(&self) -> bool {
        false
    }

    fn rest(&self, _load: Load) -> Rest {
        Rest::Nothing
    }

    fn fetches_ahead(&self) -> bool {
        true
    }
}
