//! The state checker of a cache: what must hold after every step.

use super::{Cache, Class};
use crate::dispatch::CheckError;
use crate::dispatch::check::ensure;
use std::collections::BTreeSet;

impl Cache {
    /// Checks the whole state; costs time in proportion to it.
    ///
    /// # Errors
    /// Says what does not hold.
    pub fn check(&self) -> Result<(), CheckError> {
        let mut bytes = vec![[0u64; 4]; self.tiers.len()];
        let mut evictable = vec![BTreeSet::new(); self.tiers.len()];
        for (object, slot) in &self.slots {
            let tier = usize::from(slot.tier.0);
            ensure!(tier < bytes.len(), "object {object} is in no directory");
            bytes[tier][slot.class() as usize] += slot.bytes();
            ensure!(slot.held || slot.unpacked == 0, "object {object} is unpacked and not here");
            if slot.class() == Class::Evictable {
                evictable[tier].insert(*object);
            }
            let facts = slot.facts;
            ensure!(facts.came.max(facts.used) < self.next, "object {object} is of the future");
        }
        for (at, tier) in self.tiers.iter().enumerate() {
            ensure!(tier.bytes == bytes[at], "directory {at} is miscounted");
            ensure!(tier.order.objects() == evictable[at], "directory {at} evicts others");
            ensure!(tier.limit <= tier.capacity, "directory {at} takes more than it can");
            ensure!(
                tier.occupied() <= tier.capacity,
                "directory {at} holds {} bytes of {}",
                tier.occupied(),
                tier.capacity
            );
        }
        Ok(())
    }
}
