//! Another executor that collects what is staged here: a group of executors shares one
//! collector where one each would make too many files.

use super::{Action, CollectAction, Executor};
use crate::collect::{self, WriteFailure, WriteId};
use crate::data::declared::Collects;
use crate::task::ExecutorId;
use std::collections::BTreeMap;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Entrusting {
    /// That executor, as long as it takes what it is handed.
    to: Option<ExecutorId>,
    /// What it is to write, and whether at once.
    writes: BTreeMap<WriteId, bool>,
}

impl Entrusting {
    /// Something is to be written, perhaps at once: who does it, if not this executor.
    pub(super) fn begin(&mut self, write: WriteId, is_urgent: bool) -> Option<ExecutorId> {
        if self.to.is_some() {
            self.writes.insert(write, is_urgent);
        }
        self.to
    }

    /// Something was written, or is not taken. Returns whether nothing more is handed to
    /// the executor that was to write it.
    pub(super) fn ended(&mut self, write: WriteId, is_refused: bool) -> bool {
        self.writes.remove(&write).is_some() && is_refused && self.to.take().is_some()
    }

    /// Another executor collects from now on. Returns what is taken back from the one
    /// that did.
    fn set(&mut self, to: Option<ExecutorId>) -> Vec<WriteId> {
        self.to = to;
        std::mem::take(&mut self.writes).into_keys().collect()
    }

    /// These are to be written at once. Returns what is taken back, to be handed over
    /// anew as what is urgent.
    fn hurry(&mut self, writes: Vec<WriteId>) -> Vec<WriteId> {
        let waits = |write: &WriteId| self.writes.get(write) == Some(&false);
        let taken: Vec<WriteId> = writes.into_iter().filter(waits).collect();
        for write in &taken {
            self.writes.remove(write);
        }
        taken
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
        let taken = self.entrusting.set(to);
        self.take_back(taken, "another executor collects now");
        self.handle_collector(collect::Event::HandsOver(to.is_some()));
    }

    /// What another executor is to write waits for nothing more: a task is cancelled whose
    /// outputs are in it.
    pub(super) fn hurry(&mut self, writes: Vec<WriteId>) {
        let taken = self.entrusting.hurry(writes);
        self.take_back(taken, "a task was cancelled");
    }

    fn take_back(&mut self, writes: Vec<WriteId>, why: &str) {
        for write in writes {
            self.actions.push_back(Action::Collect(CollectAction::TakeBack(write)));
            let failure = WriteFailure::NotTaken(why.to_owned());
            self.handle_collector(collect::Event::Written { write, result: Err(failure) });
        }
    }
}
