//! Another executor that collects what is staged here: a group of executors shares one
//! collector where one each would make too many files.

use super::{Action, CollectAction, Executor};
use crate::collect::{self, WriteFailure, WriteId};
use crate::data::declared::Collects;
use crate::task::ExecutorId;
use std::collections::BTreeSet;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Entrusting {
    /// That executor, as long as it takes what it is handed.
    to: Option<ExecutorId>,
    /// What it is to write.
    writes: BTreeSet<WriteId>,
}

impl Entrusting {
    /// Something is to be written: who does it, if not this executor.
    pub(super) fn begin(&mut self, write: WriteId) -> Option<ExecutorId> {
        if self.to.is_some() {
            self.writes.insert(write);
        }
        self.to
    }

    /// Something was written, or is not taken. Returns whether nothing more is handed to
    /// the executor that was to write it.
    pub(super) fn ended(&mut self, write: WriteId, is_refused: bool) -> bool {
        self.writes.remove(&write) && is_refused && self.to.take().is_some()
    }

    /// Another executor collects from now on. Returns what is taken back from the one
    /// that did.
    fn set(&mut self, to: Option<ExecutorId>) -> BTreeSet<WriteId> {
        self.to = to;
        std::mem::take(&mut self.writes)
    }
}

impl Executor {
    /// The dispatcher says who collects what is staged here. Whatever another executor
    /// has is taken back, so that no two wait for each other.
    pub(super) fn collects(&mut self, collects: Collects) {
        let to = match collects {
            Collects::Itself => None,
            Collects::Other(executor) => Some(executor),
        };
        for write in self.entrusting.set(to) {
            self.actions.push_back(Action::Collect(CollectAction::TakeBack(write)));
            let failure = WriteFailure::NotTaken("another executor collects now".to_owned());
            self.handle_collector(collect::Event::Written { write, result: Err(failure) });
        }
        self.handle_collector(collect::Event::HandsOver(to.is_some()));
    }
}
