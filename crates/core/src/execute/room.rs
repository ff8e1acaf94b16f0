//! What an executor offers, and what of it is free.

use super::pins::{Cpu, CpuShare, Pins};
use crate::dispatch::CheckError;
use crate::dispatch::check::ensure;
use crate::seldom::Seldom;
use crate::task::Resources;
use std::collections::BTreeSet;

/// What a task holds that has a number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grant {
    /// The GPUs that are its own.
    pub gpus: Vec<u32>,
    /// The CPUs that it has, if the executor pins its tasks.
    pub cpus: Vec<CpuShare>,
}

#[derive(Debug)]
pub(super) struct Room {
    capacity: Resources,
    free: Resources,
    free_gpus: BTreeSet<u32>,
    pins: Seldom<Pins>,
}

impl Room {
    pub(super) fn new(capacity: Resources) -> Room {
        Room {
            free: capacity.clone(),
            free_gpus: (0..capacity.gpus).collect(),
            pins: Seldom::default(),
            capacity,
        }
    }

    /// Has each task get CPUs of its own among these, which are all that there are.
    pub(super) fn pin(&mut self, cpus: Vec<Cpu>) {
        self.pins = Pins::new(cpus).into();
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

    /// Takes what fits. Gives the GPUs and the CPUs that it is.
    pub(super) fn take(&mut self, need: &Resources) -> Grant {
        let gpus: Vec<u32> = self.free_gpus.iter().copied().take(need.gpus as usize).collect();
        for gpu in &gpus {
            self.free_gpus.remove(gpu);
        }
        self.free.take(need, 1);
        let cpus = match self.pins.is_empty() {
            true => Vec::new(),
            false => self.pins.take(need.cpus_milli),
        };
        Grant { gpus, cpus }
    }

    /// Gives back what was taken.
    pub(super) fn give(&mut self, need: &Resources, grant: &Grant) {
        self.free.give(need, 1);
        self.free_gpus.extend(&grant.gpus);
        if !self.pins.is_empty() {
            self.pins.give(&grant.cpus);
        }
    }

    /// What is free and what is `held` make the capacity.
    pub(super) fn check<'a>(
        &self,
        held: impl Iterator<Item = (&'a Resources, &'a Grant)> + Clone,
    ) -> Result<(), CheckError> {
        self.pins.check(held.clone().flat_map(|(_, grant)| &grant.cpus))?;
        let mut free = self.capacity.clone();
        let mut all_gpus = self.free_gpus.clone();
        for (need, Grant { gpus, cpus }) in held {
            let milli: u32 = cpus.iter().map(|share| share.milli).sum();
            ensure!(
                self.pins.is_empty() || milli == need.cpus_milli,
                "a task has {milli} thousandths of cpus instead of {}",
                need.cpus_milli
            );
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
