//! What is on the disk of a world.

use super::World;

impl World {
    /// What is really on the disk is within the capacity, and what is in use
    /// is there.
    pub(super) fn check_disk(&self) {
        let mut used = vec![0; self.tiers.len()];
        for (tier, size) in self.files.values() {
            used[usize::from(*tier)] += size;
        }
        for file in self.partials.values() {
            used[usize::from(file.tier)] += file.reach;
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
