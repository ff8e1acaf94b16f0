//! How many bytes came from which executors, until the dispatcher has been told.

use crate::data::limits::MOVED_EXECUTORS_MAX;
use crate::task::ExecutorId;
use std::collections::BTreeMap;

/// Bytes by the executors that they came from.
#[derive(Debug, Default)]
pub(super) struct Moved {
    bytes: BTreeMap<ExecutorId, u64>,
}

impl Moved {
    /// Adds bytes. Those of further executors are left out when there are as many as one
    /// message names.
    pub(super) fn add(&mut self, from: ExecutorId, bytes: u64) {
        let has_room = self.bytes.len() < MOVED_EXECUTORS_MAX || self.bytes.contains_key(&from);
        if bytes > 0 && has_room {
            let sum = self.bytes.entry(from).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }

    /// All of it, which is told now.
    pub(super) fn take(&mut self) -> Vec<(ExecutorId, u64)> {
        std::mem::take(&mut self.bytes).into_iter().collect()
    }

    /// Forgets it: executors have other numbers from now on.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_add_up_until_they_are_told_and_are_of_few_executors() {
        let mut moved = Moved::default();
        for number in 0..MOVED_EXECUTORS_MAX as u64 + 9 {
            moved.add(ExecutorId(number), 2);
            moved.add(ExecutorId(0), u64::MAX / 2);
            moved.add(ExecutorId(number), 0);
        }
        let told = moved.take();
        assert_eq!(told.len(), MOVED_EXECUTORS_MAX);
        assert_eq!(told[..2], [(ExecutorId(0), u64::MAX), (ExecutorId(1), 2)]);
        assert!(moved.take().is_empty());
        moved.add(ExecutorId(3), 4);
        moved.clear();
        assert!(moved.take().is_empty());
    }
}
