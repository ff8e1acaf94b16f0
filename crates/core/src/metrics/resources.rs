//! The resources that tasks used, together and as a distribution.

use crate::result::ResourceUsage;
use std::collections::BTreeMap;

/// Classes of sizes from each power of two to the next: a quantile is at most so much too large
/// as one of them is wide.
const CLASSES: u64 = 16;

/// What tasks used, one by one and in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceTotals {
    /// How many tasks.
    pub tasks: u64,
    /// Their run times together, in microseconds.
    pub wall_micros: u128,
    /// Their processor time in user mode, in microseconds.
    pub user_micros: u128,
    /// Their processor time in the kernel, in microseconds.
    pub system_micros: u128,
    /// The most memory of any one, in bytes.
    pub rss_max_bytes: u64,
    /// What they read from storage, in bytes.
    pub read_bytes: u128,
    /// What they wrote to storage, in bytes.
    pub written_bytes: u128,
    /// The most disk space of any one that had a scratch directory, in bytes; `None` if none had.
    pub disk_max_bytes: Option<u64>,
    /// How many tasks had memory of which class.
    classes: BTreeMap<u64, u64>,
}

impl ResourceTotals {
    /// Adds a task that ran for `wall_micros`.
    pub fn add(&mut self, wall_micros: u64, used: &ResourceUsage) {
        self.add_alike(1, wall_micros, used);
    }

    /// Adds tasks that each ran for `wall_micros` and used the same.
    pub fn add_alike(&mut self, tasks: u64, wall_micros: u64, used: &ResourceUsage) {
        let of_all = |amount: u64| u128::from(amount) * u128::from(tasks);
        self.tasks += tasks;
        self.wall_micros += of_all(wall_micros);
        self.user_micros += of_all(used.user_micros);
        self.system_micros += of_all(used.system_micros);
        self.rss_max_bytes = self.rss_max_bytes.max(used.rss_max_bytes);
        self.read_bytes += of_all(used.read_bytes);
        self.written_bytes += of_all(used.written_bytes);
        self.disk_max_bytes = self.disk_max_bytes.max(used.disk_max_bytes);
        *self.classes.entry(class(used.rss_max_bytes)).or_default() += tasks;
    }

    /// Memory that this many per cent of the tasks did not exceed, in bytes: exactly, or at most a
    /// sixteenth too much.
    #[must_use]
    pub fn memory_of(&self, percent: u64) -> u64 {
        let wanted = (u128::from(self.tasks) * u128::from(percent.min(100))).div_ceil(100);
        let mut seen = 0_u128;
        let reached = self.classes.iter().find(|(_, count)| {
            seen += u128::from(**count);
            seen >= wanted
        });
        reached.map_or(0, |(class, _)| largest(*class).min(self.rss_max_bytes))
    }
}

/// The class of a size.
fn class(bytes: u64) -> u64 {
    let power = u64::from(bytes.max(CLASSES).ilog2() - CLASSES.ilog2());
    // The first bits of the size, beginning with the highest that is set.
    (power * CLASSES) + (bytes >> power)
}

/// The largest size of a class.
fn largest(class: u64) -> u64 {
    if class < 2 * CLASSES {
        return class;
    }
    let power = class / CLASSES - 1;
    let first = u128::from(class - power * CLASSES + 1) << power;
    u64::try_from(first - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_those_of_a_sorted_list_and_at_most_a_sixteenth_too_large(
            sizes in prop::collection::vec((any::<u64>(), 0..64_u32), 1..50),
            percent in 0..=100_u64,
        ) {
            let mut sizes: Vec<u64> = sizes.into_iter().map(|(bits, by)| bits >> by).collect();
            let mut totals = ResourceTotals::default();
            let mut alike = totals.clone();
            for size in &sizes {
                let used = ResourceUsage { rss_max_bytes: *size, ..Default::default() };
                totals.add(7, &used);
                (0..3).for_each(|_| alike.add(7, &used));
            }
            let mut together = ResourceTotals::default();
            for size in &sizes {
                let used = ResourceUsage { rss_max_bytes: *size, ..Default::default() };
                together.add_alike(3, 7, &used);
            }
            prop_assert_eq!(alike, together);
            sizes.sort_unstable();
            let at = (sizes.len() as u64 * percent).div_ceil(100).max(1) as usize - 1;
            let (exact, found) = (sizes[at], totals.memory_of(percent));
            prop_assert!(found >= exact && found - exact <= exact / 16, "{found} for {exact}");
            prop_assert_eq!(totals.memory_of(100), sizes[sizes.len() - 1]);
            prop_assert_eq!(totals.wall_micros, 7 * sizes.len() as u128);
        }
    }
}
