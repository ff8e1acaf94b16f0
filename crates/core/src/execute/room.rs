//! What an executor offers, and what of it is free.

use crate::dispatch::CheckError;
use crate::dispatch::check::ensure;
use crate::task::Resources;
use std::collections::BTreeSet;

#[derive(Debug)]
pub(super) struct Room {
    capacity: Resources,
    free: Resources,
    free_gpus: BTreeSet<u32>,
}

impl Room {
    pub(super) fn new(capacity: Resources) -> Room {
        Room { free: capacity.clone(), free_gpus: (0..capacity.gpus).collect(), capacity }
    }

    /// All that there is.
    pub(super) fn capacity(&self) -> &Resources {
        &self.capacity
    }

    /// What of it is free.
    pub(super) fn free(&self) -> &Resources {
        &self.free
    }

    /// Whether no CPU is free.
    pub(super) fn is_full(&self) -> bool {
        self.free.cpus_milli == 0
    }

    /// Whether there is room for this now.
    pub(super) fn fits(&self, need: &Resources) -> bool {
        self.free.fits(need)
    }

    /// Takes what fits. Gives the GPUs that it is.
    pub(super) fn take(&mut self, need: &Resources) -> Vec<u32> {
        let gpus: Vec<u32> = self.free_gpus.iter().copied().take(need.gpus as usize).collect();
        for gpu in &gpus {
            self.free_gpus.remove(gpu);
        }
        self.free.take(need, 1);
        gpus
    }

    /// Gives back what was taken.
    pub(super) fn give(&mut self, need: &Resources, gpus: &[u32]) {
        self.free.give(need, 1);
        self.free_gpus.extend(gpus);
    }

    /// What is free and what is `held`, with its GPUs, make the capacity.
    pub(super) fn check<'a>(
        &self,
        held: impl Iterator<Item = (&'a Resources, &'a [u32])>,
    ) -> Result<(), CheckError> {
        let mut free = self.capacity.clone();
        let mut all_gpus = self.free_gpus.clone();
        for (need, gpus) in held {
            ensure!(free.fits(need), "more runs than there is room for");
            free.take(need, 1);
            ensure!(
                gpus.len() == need.gpus as usize,
                "a task has {} gpus instead of {}",
                gpus.len(),
                need.gpus
            );
            for gpu in gpus {
                ensure!(all_gpus.insert(*gpu), "gpu {gpu} is given out twice");
            }
        }
        ensure!(free == self.free, "free room is miscounted");
        ensure!(all_gpus.iter().copied().eq(0..self.capacity.gpus), "a gpu is nowhere");
        ensure!(self.free_gpus.len() == self.free.gpus as usize, "free gpus are miscounted");
        Ok(())
    }
}
