//! The executors as collectors of outputs: which archives they cannot write.

use crate::collect::Unwritten;
use crate::limits::UNWRITTEN_ARCHIVES_MAX;
use crate::task::ExecutorId;
use std::collections::BTreeMap;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Collectors {
    unwritten: BTreeMap<ExecutorId, Vec<Unwritten>>,
}

impl Collectors {
    /// An executor says which archives it cannot write for now.
    pub(super) fn note(&mut self, id: ExecutorId, mut unwritten: Vec<Unwritten>) {
        unwritten.truncate(UNWRITTEN_ARCHIVES_MAX);
        unwritten.iter_mut().for_each(Unwritten::bound);
        match unwritten.is_empty() {
            true => self.unwritten.remove(&id),
            false => self.unwritten.insert(id, unwritten),
        };
    }

    /// An executor is gone.
    pub(super) fn left(&mut self, id: ExecutorId) {
        self.unwritten.remove(&id);
    }

    /// The archives that an executor cannot write for now.
    pub(super) fn unwritten(&self, id: ExecutorId) -> &[Unwritten] {
        self.unwritten.get(&id).map_or(&[], Vec::as_slice)
    }
}
