//! Instances that a peer created, as far as there are any of them.

use falkon_core::task::InstanceId;
use std::collections::HashSet;

/// The number of known instances from which on those that are gone are removed.
const KNOWN_INSTANCES_MIN: usize = 1024;

/// Instances of which those that are gone are forgotten now and then: there are
/// never more than twice as many as there were when they were looked through
/// last, or [`KNOWN_INSTANCES_MIN`].
#[derive(Debug)]
pub(super) struct Known {
    instances: HashSet<InstanceId>,
    look_at: usize,
}

impl Default for Known {
    fn default() -> Known {
        Known { instances: HashSet::new(), look_at: KNOWN_INSTANCES_MIN }
    }
}

impl Known {
    pub(super) fn contains(&self, instance: InstanceId) -> bool {
        self.instances.contains(&instance)
    }

    /// Adds an instance. `all` are those that there are, if they are asked for.
    pub(super) fn insert(
        &mut self,
        instance: InstanceId,
        all: impl FnOnce() -> HashSet<InstanceId>,
    ) {
        if self.instances.len() >= self.look_at {
            let all = all();
            self.instances.retain(|known| all.contains(known));
            self.look_at = (2 * self.instances.len()).max(KNOWN_INSTANCES_MIN);
        }
        self.instances.insert(instance);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_that_are_gone_are_forgotten_and_no_others() {
        const LIVE: u64 = 700;
        let mut known = Known::default();
        for id in 0..100_000_u64 {
            // The latest are there, and one that is as old as can be.
            let all = || (id.saturating_sub(LIVE)..=id).chain([0]).map(InstanceId).collect();
            known.insert(InstanceId(id), all);
            assert!(known.instances.len() <= 2 * (LIVE as usize + 2));
            let first = id.saturating_sub(LIVE);
            assert!([0, first, id].into_iter().all(|id| known.contains(InstanceId(id))));
        }
    }
}
