//! The executors by what they offer, and the relays among and below them.

use super::Fleet;
use super::executor::Executor;
use crate::dispatch::needs::Needs;
use crate::dispatch::subtree::{NodeClass, Subtree};
use crate::limits::{NODE_CLASSES_MAX, SUBTREE_RELAYS_MAX};
use crate::task::{ExecutorId, Resources, Time};
use std::collections::BTreeMap;

/// What a node offers, and whether it has a cache.
type Kind = (Resources, bool);

/// How many nodes there are of which kind, those that leave and those that are left
/// alone not counted.
#[derive(Debug, Default)]
pub(super) struct Classes {
    nodes: BTreeMap<Kind, u128>,
    /// The relays by identity, with the executor that each is, or is below of.
    relays: BTreeMap<u64, ExecutorId>,
    /// The processes of relays that have joined, by identity.
    processes: BTreeMap<u64, Processes>,
}

/// The process of a relay that joined last, and the one before it.
#[derive(Debug, Clone, Copy)]
struct Processes {
    last: u64,
    before: Option<u64>,
}

impl Classes {
    fn each(executor: &Executor, mut each: impl FnMut(Kind, u64)) {
        match &executor.subtree {
            None => each((executor.capacity.clone(), executor.serves.is_some()), 1),
            Some(subtree) => subtree
                .nodes
                .iter()
                .for_each(|class| each((class.capacity.clone(), class.has_cache), class.count)),
        }
    }

    /// Counts an executor's nodes, or not any more.
    pub(super) fn count(&mut self, executor: &mut Executor, counts: bool) {
        if std::mem::replace(&mut executor.is_lent, counts) == counts {
            return;
        }
        Classes::each(executor, |kind, count| {
            if let Some(there) = self.nodes.get_mut(&kind) {
                // So many that a sum of numbers of 64 bits does not overflow.
                *there = match counts {
                    true => *there + u128::from(count),
                    false => *there - u128::from(count),
                };
                if *there == 0 {
                    self.nodes.remove(&kind);
                }
            } else if counts && count > 0 {
                self.nodes.insert(kind, u128::from(count));
            }
        });
    }

    fn add_relays(&mut self, executor: &Executor) {
        for relay in executor.subtree.iter().flat_map(|subtree| &subtree.relays) {
            self.relays.insert(*relay, executor.id);
        }
    }

    pub(super) fn remove_relays(&mut self, executor: &Executor) {
        for relay in executor.subtree.iter().flat_map(|subtree| &subtree.relays) {
            if self.relays.get(relay) == Some(&executor.id) {
                self.relays.remove(relay);
            }
        }
    }

    /// The nodes in at most [`NODE_CLASSES_MAX`] classes. If there are more, the
    /// smallest are counted as one class, of what each of them offers at least.
    fn listed(&self) -> Vec<NodeClass> {
        let mut nodes: Vec<NodeClass> = self
            .nodes
            .iter()
            .rev()
            .map(|((capacity, has_cache), count)| NodeClass {
                capacity: capacity.clone(),
                has_cache: *has_cache,
                count: u64::try_from(*count).unwrap_or(u64::MAX),
            })
            .collect();
        while nodes.len() > NODE_CLASSES_MAX {
            let (Some(one), Some(other)) = (nodes.pop(), nodes.pop()) else { break };
            nodes.push(NodeClass {
                capacity: common(&one.capacity, &other.capacity),
                has_cache: one.has_cache && other.has_cache,
                count: one.count.saturating_add(other.count),
            });
        }
        nodes
    }
}

/// What both offer.
fn common(one: &Resources, other: &Resources) -> Resources {
    let custom = one.custom.iter().filter_map(|(name, count)| {
        let (_, found) = other.custom.iter().find(|(found, _)| found == name)?;
        Some((name.clone(), *count.min(found)))
    });
    Resources {
        cpus_milli: one.cpus_milli.min(other.cpus_milli),
        gpus: one.gpus.min(other.gpus),
        memory_bytes: one.memory_bytes.min(other.memory_bytes),
        custom: custom.collect(),
    }
}

impl Fleet {
    /// The relays here and below, and the nodes.
    pub(in crate::dispatch) fn subtree(&self) -> (Vec<u64>, Vec<NodeClass>) {
        (self.classes.relays.keys().copied().collect(), self.classes.listed())
    }

    /// How many nodes there are, here and below relays.
    pub(in crate::dispatch) fn node_count(&self) -> u64 {
        let count = self.classes.nodes.values().sum::<u128>();
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    /// An executor other than this one that is, or has below it, one of the relays
    /// that this one names; or this one itself, if two processes take turns to
    /// connect under its identity.
    pub(in crate::dispatch) fn same_relay(
        &self,
        id: ExecutorId,
        subtree: &Subtree,
    ) -> Option<ExecutorId> {
        let classes = &self.classes;
        let mut others = subtree.relays.iter().filter_map(|relay| classes.relays.get(relay));
        let other = others.find(|other| **other != id).copied();
        let processes = classes.processes.get(&self[id].incarnation);
        let was_replaced = processes.is_some_and(|found| found.before == Some(subtree.process));
        other.or(was_replaced.then_some(id))
    }

    /// An executor is a relay, and this is below it: its tasks take their room
    /// anew.
    pub(in crate::dispatch) fn resize(
        &mut self,
        id: ExecutorId,
        subtree: Subtree,
        needs: &Needs,
        now: Time,
    ) {
        let Some(mut executor) = self.roster.remove(&id) else { return };
        self.classes.count(&mut executor, false);
        self.classes.remove_relays(&executor);
        self.classes.note_process(executor.incarnation, subtree.process);
        executor.resize(subtree, needs);
        self.classes.add_relays(&executor);
        self.roster.insert(executor);
        self.new_room.insert(id);
        self.list(id, now);
    }
}

impl Classes {
    /// Notes which process of a relay has joined.
    fn note_process(&mut self, relay: u64, process: u64) {
        let before = self.processes.get(&relay).copied();
        let noted = match before {
            Some(found) if found.last == process => return,
            Some(found) => Processes { last: process, before: Some(found.last) },
            None => Processes { last: process, before: None },
        };
        self.processes.insert(relay, noted);
        while self.processes.len() > SUBTREE_RELAYS_MAX {
            self.processes.pop_first();
        }
    }
}
