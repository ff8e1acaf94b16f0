//! What is on the disk of a world.

use super::World;
use super::stripes::is_share;
use falkon_core::data::object::ObjectId;

impl World {
    /// What the node tells of its files is so.
    pub(super) fn hear_changes(&mut self) {
        while let Some(changes) = self.stage.changes() {
            if changes.anew {
                self.told.clear();
            }
            for (object, size) in changes.added {
                assert!(self.told.insert(object), "seed {}: told twice", self.seed);
                assert_eq!(self.files[&object].1, size);
            }
            for object in changes.removed {
                if self.lent.remove(&object) {
                    continue;
                }
                assert!(self.told.remove(&object), "seed {}: not told", self.seed);
            }
        }
    }

    /// What is really on the disk is within the capacity, and what is in use
    /// is there.
    pub(super) fn check_disk(&self) {
        let mut used = vec![0; self.tiers.len()];
        for (tier, size) in self.files.values() {
            used[usize::from(*tier)] += size;
        }
        for file in self.partials.values() {
            // A share has holes where the stripes of others are.
            let is_share = is_share(ObjectId(file.object));
            let written: u64 = file.ranges.iter().map(|(_, count)| count).sum();
            used[usize::from(file.tier)] += if is_share { written } else { file.reach };
        }
        for (tier, bytes) in self.trees.bytes() {
            used[usize::from(tier)] += bytes;
        }
        for (used, capacity) in used.iter().zip(&self.tiers) {
            let (seed, state) = (self.seed, || self.describe());
            assert!(used <= capacity, "seed {seed}: {used} of {capacity}\n{}", state());
        }
        let in_use = self.staged.values().flatten().chain(self.serving.values());
        for object in in_use.filter(|object| self.stage.cache().holds(**object)) {
            assert!(self.files.contains_key(object), "seed {}: {object} is gone", self.seed);
        }
        let is_there = self.unpacked.values().flatten().all(|object| self.trees.is_ready(*object));
        assert!(is_there, "seed {}: gone under a task\n{}", self.seed, self.describe());
    }
}
