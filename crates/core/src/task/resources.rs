//! What tasks hold while they run, and executors offer.

use super::{AUTO_CPUS, AUTO_MEMORY};
use std::fmt;

/// Thousandths of a CPU.
pub const MILLI: u32 = 1000;

/// The name of scratch disk space among the counts of [`Resources::custom`], in bytes. No site
/// gives another meaning to it.
pub const DISK: &str = "disk";

/// Amounts of everything a task may hold while it runs, or an executor offers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Resources {
    /// CPUs in thousandths; one slot is 1000.
    pub cpus_milli: u32,
    /// Whole GPUs.
    pub gpus: u32,
    /// Memory in bytes; 0 asks for none in particular.
    pub memory_bytes: u64,
    /// Site-defined counts by name, and scratch disk space in bytes as [`DISK`]; sorted by
    /// name.
    pub custom: Vec<(String, u64)>,
}

impl Resources {
    /// So many whole CPUs and nothing else.
    #[must_use]
    pub fn cpus(count: u32) -> Resources {
        Resources { cpus_milli: count.saturating_mul(MILLI), ..Resources::default() }
    }

    /// Scratch disk space in bytes; 0 asks for none in particular, or offers none.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.custom_count(DISK)
    }

    /// Replaces the scratch disk space; 0 removes it.
    pub fn set_disk_bytes(&mut self, bytes: u64) {
        set_disk_bytes(&mut self.custom, bytes);
    }

    /// The counts that sites have defined, without [`DISK`].
    pub fn site_defined(&self) -> impl Iterator<Item = &(String, u64)> {
        self.custom.iter().filter(|(name, _)| name != DISK)
    }

    /// Whether executors find out how much of something is needed: [`AUTO_CPUS`],
    /// [`AUTO_MEMORY`].
    #[must_use]
    pub fn are_automatic(&self) -> bool {
        self.cpus_milli == AUTO_CPUS || self.memory_bytes == AUTO_MEMORY
    }

    /// These, without memory that nobody knows the amount of ([`AUTO_MEMORY`]), and with one CPU
    /// where nobody knows how many ([`AUTO_CPUS`]).
    #[must_use]
    pub fn known(&self) -> Resources {
        let cpus_milli = if self.cpus_milli == AUTO_CPUS { MILLI } else { self.cpus_milli };
        let memory_bytes = if self.memory_bytes == AUTO_MEMORY { 0 } else { self.memory_bytes };
        Resources { cpus_milli, memory_bytes, ..self.clone() }
    }

    /// The part of these that executors have found out: what `asked` has no amounts of.
    pub(crate) fn found_out(&self, asked: &Resources) -> Resources {
        let is_memory = asked.memory_bytes == AUTO_MEMORY;
        Resources {
            cpus_milli: if asked.cpus_milli == AUTO_CPUS { self.cpus_milli } else { 0 },
            memory_bytes: if is_memory { self.memory_bytes } else { 0 },
            ..Resources::default()
        }
    }

    /// Whether `need` fits into this.
    #[must_use]
    pub fn fits(&self, need: &Resources) -> bool {
        self.cpus_milli >= need.cpus_milli
            && self.gpus >= need.gpus
            && self.memory_bytes >= need.memory_bytes
            && need.custom.iter().all(|(name, count)| self.custom_count(name) >= *count)
    }

    /// How many tasks that each need `need` fit side by side, at most `limit`.
    #[must_use]
    pub fn count_of(&self, need: &Resources, limit: u64) -> u64 {
        fn share(have: u64, need: u64, limit: u64) -> u64 {
            have.checked_div(need).unwrap_or(limit)
        }
        let mut count = limit
            .min(share(u64::from(self.cpus_milli), u64::from(need.cpus_milli), limit))
            .min(share(u64::from(self.gpus), u64::from(need.gpus), limit))
            .min(share(self.memory_bytes, need.memory_bytes, limit));
        for (name, amount) in &need.custom {
            count = count.min(share(self.custom_count(name), *amount, limit));
        }
        count
    }

    /// Takes `count` times `need` away; the caller has checked that it fits.
    pub fn take(&mut self, need: &Resources, count: u64) {
        let times = u32::try_from(count).unwrap_or(u32::MAX);
        self.cpus_milli = self.cpus_milli.saturating_sub(need.cpus_milli.saturating_mul(times));
        self.gpus = self.gpus.saturating_sub(need.gpus.saturating_mul(times));
        self.memory_bytes =
            self.memory_bytes.saturating_sub(need.memory_bytes.saturating_mul(count));
        for (name, amount) in &need.custom {
            if let Some(have) = self.custom.iter_mut().find(|(have, _)| have == name) {
                have.1 = have.1.saturating_sub(amount.saturating_mul(count));
            }
        }
    }

    /// Gives `count` times `need` back.
    pub fn give(&mut self, need: &Resources, count: u64) {
        let times = u32::try_from(count).unwrap_or(u32::MAX);
        self.cpus_milli = self.cpus_milli.saturating_add(need.cpus_milli.saturating_mul(times));
        self.gpus = self.gpus.saturating_add(need.gpus.saturating_mul(times));
        self.memory_bytes =
            self.memory_bytes.saturating_add(need.memory_bytes.saturating_mul(count));
        for (name, amount) in &need.custom {
            if let Some(have) = self.custom.iter_mut().find(|(have, _)| have == name) {
                have.1 = have.1.saturating_add(amount.saturating_mul(count));
            }
        }
    }

    /// Whether the custom counts are sorted by name and no name comes twice:
    /// otherwise taking and giving back would not add up.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.custom.is_sorted_by(|(before, _), (after, _)| before < after)
    }

    /// The length of the longest name of a custom count.
    #[must_use]
    pub fn name_bytes(&self) -> u64 {
        self.custom.iter().map(|(name, _)| name.len() as u64).max().unwrap_or(0)
    }

    fn custom_count(&self, name: &str) -> u64 {
        self.custom.iter().find(|(have, _)| have == name).map_or(0, |(_, count)| *count)
    }
}

/// Replaces the scratch disk space among counts that are sorted by name; 0 removes it.
pub fn set_disk_bytes(counts: &mut Vec<(String, u64)>, bytes: u64) {
    counts.retain(|(name, _)| name != DISK);
    if bytes > 0 {
        let at = counts.partition_point(|(name, _)| name.as_str() < DISK);
        counts.insert(at, (DISK.to_owned(), bytes));
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cpus_milli {
            AUTO_CPUS => write!(f, "auto cpus")?,
            milli => write!(f, "{} cpus", f64::from(milli) / f64::from(MILLI))?,
        }
        if self.gpus > 0 {
            write!(f, ", {} gpus", self.gpus)?;
        }
        if self.memory_bytes == AUTO_MEMORY {
            write!(f, ", auto memory")?;
        } else if self.memory_bytes > 0 {
            write!(f, ", {} MiB memory", self.memory_bytes.div_ceil(1 << 20))?;
        }
        // A node of which nothing is known yet may have any.
        if (1..u64::MAX).contains(&self.disk_bytes()) {
            write!(f, ", {} MiB disk", self.disk_bytes().div_ceil(1 << 20))?;
        }
        for (name, count) in self.site_defined() {
            write!(f, ", {count} {name}")?;
        }
        Ok(())
    }
}
