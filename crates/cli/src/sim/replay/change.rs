//! What a replay changes of a recorded run.

use super::record::Run;
use super::{ReplayError, group};
use falkon_core::task::Resources;
use falkon_sim::{Nanos, NodeCache, NodeGroup, PolicyName, Provision};

/// The changes that a replay makes to a recorded run.
#[derive(Debug, Clone, Default)]
pub(in crate::sim) struct Change {
    pub(in crate::sim) executors: Option<u64>,
    pub(in crate::sim) slots: Option<u32>,
    pub(in crate::sim) policy: Option<PolicyName>,
    pub(in crate::sim) cache_bytes: Option<u64>,
    /// Executors are acquired, in place of those that were there.
    pub(in crate::sim) provision: Option<Provision>,
}

/// The machine of a replay, and the policy.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) nodes: Vec<NodeGroup>,
    /// The nodes are those of a batch scheduler.
    pub(super) provision: Option<Provision>,
    pub(super) policy: PolicyName,
}

impl Machine {
    /// The recorded one.
    pub(super) fn of(record: &Run) -> Machine {
        Machine { nodes: record.executors.clone(), provision: None, policy: record.policy }
    }
}

impl Change {
    pub(super) fn check(&self, record: &Run) -> Result<(), ReplayError> {
        let needs = record.tasks.needs();
        let named = [("--policy", self.policy.is_some()), ("--cache", self.cache_bytes.is_some())];
        if let Some((option, _)) = named.into_iter().find(|(_, given)| *given)
            && !needs.have_objects()
        {
            return Err(ReplayError::NoObjects(option));
        }
        let keeps = needs.objects.iter().any(|object| !object.is_stored);
        if keeps && !self.policy.unwrap_or(record.policy).knows_places() {
            return Err(ReplayError::NoPlaces);
        }
        Ok(())
    }

    /// The machine with what is to be different; `None` if nothing is.
    pub(super) fn of(&self, record: &Run) -> Result<Option<Machine>, ReplayError> {
        let Change { executors, slots, policy, cache_bytes, provision } = self.clone();
        let mut nodes = match (executors, &provision) {
            (Some(executors), _) => self.others(record, executors)?,
            // As many as the batch scheduler may give.
            (None, Some(provision)) => self.others(record, provision.queue.executors_max)?,
            (None, None) => {
                if slots.is_none() && policy.is_none() && cache_bytes.is_none() {
                    return Ok(None);
                }
                record.executors.clone()
            }
        };
        for group in &mut nodes {
            group.slots = slots.unwrap_or(group.slots);
            group.cache = cache_bytes.map_or(group.cache, cache);
        }
        let provision = provision.map(|mut provision| {
            let node = nodes.first().map(|group| {
                let (gpus, memory_bytes) = (group.gpus, group.memory_bytes);
                Resources { gpus, memory_bytes, ..Resources::cpus(group.slots) }
            });
            provision.queue.node = node.unwrap_or_else(|| Resources::cpus(1));
            provision
        });
        Ok(Some(Machine { nodes, provision, policy: policy.unwrap_or(record.policy) }))
    }

    /// The number of executors in the place of the recorded ones.
    pub(super) fn others(
        &self,
        record: &Run,
        executors: u64,
    ) -> Result<Vec<NodeGroup>, ReplayError> {
        let slots = slots_of_others(&record.executors, self.slots)?;
        let caches = record.executors.iter().filter_map(|one| one.cache);
        let largest = caches.max_by_key(|cache| cache.bytes);
        let cache = self.cache_bytes.map_or(largest, cache);
        // With as much beside their slots as any of the recorded ones.
        let gpus = record.executors.iter().map(|one| one.gpus).max().unwrap_or(0);
        let memory_bytes = record.executors.iter().map(|one| one.memory_bytes).max().unwrap_or(0);
        Ok(vec![NodeGroup { cache, gpus, memory_bytes, ..group(executors, slots, Nanos(0), None) }])
    }
}

fn cache(bytes: u64) -> Option<NodeCache> {
    Some(NodeCache { bytes, ..NodeCache::default() })
}

/// How many slots executors have that take the place of the recorded ones.
pub(super) fn slots_of_others(
    recorded: &[NodeGroup],
    slots: Option<u32>,
) -> Result<u32, ReplayError> {
    let of_record = || recorded.iter().map(|one| one.slots);
    let (least, most) = (of_record().min().unwrap_or(1), of_record().max().unwrap_or(1));
    match slots {
        Some(slots) => Ok(slots),
        None if least == most => Ok(most),
        None => Err(ReplayError::Slots { least, most }),
    }
}
