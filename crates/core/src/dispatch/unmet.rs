//! Demand that is not met here, on its way down the tree: relays whose clusters can
//! get nodes are told of the tasks that wait, and their dispatchers count these with
//! their own.

use super::demand::add_waiting;
use super::subtree::is_kept;
use super::{Action, ConnectionId, Dispatcher};
use crate::limits::{NODE_CLASSES_MAX, UNMET_MICROS};
use crate::provision::Waiting;
use crate::provision::limits::DEMAND_NEEDS_MAX;
use crate::task::{ExecutorId, Resources, Time};
use std::collections::BTreeMap;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Unmet {
    /// Tasks that wait above, as told over each connection.
    above: BTreeMap<ConnectionId, Vec<Waiting>>,
    /// What relays that can get nodes were told last, if anything in this session.
    told: BTreeMap<ExecutorId, Option<Vec<Waiting>>>,
    looked: Time,
}

impl Unmet {
    /// A relay says what is below it.
    pub(super) fn lends(&mut self, id: ExecutorId, can_get_nodes: bool) {
        match can_get_nodes {
            true => self.told.insert(id, None),
            false => self.told.remove(&id),
        };
    }

    /// An executor is gone.
    pub(super) fn forget_executor(&mut self, id: ExecutorId) {
        self.told.remove(&id);
    }

    /// A connection is gone, and what was told over it.
    pub(super) fn close(&mut self, connection: ConnectionId) {
        self.above.remove(&connection);
    }

    /// Tasks that wait above.
    pub(super) fn above(&self) -> impl Iterator<Item = &Waiting> {
        self.above.values().flatten()
    }

    /// When relays are to be told next what waits, if anything.
    pub(super) fn due(&self, has_ready: bool) -> Option<Time> {
        let is_settled = |told: &Option<Vec<Waiting>>| told.as_ref().is_some_and(Vec::is_empty);
        let waits = has_ready || !self.above.is_empty();
        let is_due = waits || !self.told.values().all(is_settled);
        (is_due && !self.told.is_empty()).then(|| self.looked.after(UNMET_MICROS))
    }
}

impl Dispatcher {
    /// The dispatcher above says, through a relay, what waits there: that replaces
    /// what it said before over this connection.
    pub(super) fn hear_unmet(&mut self, connection: ConnectionId, mut waiting: Vec<Waiting>) {
        waiting.truncate(DEMAND_NEEDS_MAX);
        waiting.retain(|one| one.tasks > 0 && is_kept(&one.need));
        match waiting.is_empty() {
            true => self.unmet.close(connection),
            false => drop(self.unmet.above.insert(connection, waiting)),
        }
    }

    /// When relays are to be told next what waits.
    pub(super) fn unmet_due(&self) -> Option<Time> {
        self.unmet.due(self.runnable.ids().next().is_some())
    }

    /// Tells relays whose clusters can get nodes what waits, if that has changed.
    pub(super) fn tell_unmet(&mut self) {
        if self.unmet_due().is_none_or(|at| at > self.now) {
            return;
        }
        self.unmet.looked = self.now;
        let mut waiting = Vec::new();
        // Tasks on several executors are not sent to relays.
        self.add_ready(&mut waiting, |need| !need.is_gang());
        let relays: Vec<ExecutorId> = self.unmet.told.keys().copied().collect();
        for id in relays {
            let executor = &self.fleet[id];
            let Some(subtree) = executor.subtree.as_deref() else { continue };
            let Some(connection) = executor.connection.filter(|_| !executor.leaving) else {
                continue;
            };
            let fitting = waiting.iter().filter(|one| subtree.can_get(&one.need));
            let fitting: Vec<Waiting> = fitting.cloned().collect();
            let told = self.unmet.told.entry(id).or_default();
            if told.as_ref() != Some(&fitting) {
                *told = Some(fitting.clone());
                self.outbound.push(Action::Unmet { connection, waiting: fitting });
            }
        }
    }

    /// Adds the tasks that wait here and above, of needs that are asked for.
    pub(super) fn add_ready(
        &self,
        waiting: &mut Vec<Waiting>,
        is_meant: impl Fn(&super::needs::Need) -> bool,
    ) {
        for id in self.runnable.ids() {
            let instance = &self.instances[&id];
            for ((_, need), queue) in instance.queues.iter().filter(|(_, queue)| queue.len > 0) {
                let need = &self.needs[need];
                if is_meant(need) {
                    let estimate = queue.estimate(&instance.batches, queue.measured);
                    let lasts = queue.lasts(&instance.batches).unwrap_or(0);
                    // With alternatives, one that can be asked for counts.
                    let obtained = need.requests().find(|one| self.can_be_obtained(one));
                    let counted = obtained.filter(|_| need.has_alternatives());
                    let need_of = (counted.unwrap_or(&need.resources), need.nodes);
                    add_waiting(waiting, need_of, (queue.len, estimate, lasts));
                }
            }
        }
        for one in self.unmet.above() {
            let told = (one.tasks, one.estimate_micros, one.lasts_micros);
            add_waiting(waiting, (&one.need, one.nodes.max(1)), told);
        }
    }

    /// Whether a provisioner, here or below a relay, can ask for a node that offers
    /// this.
    pub(super) fn can_be_obtained(&self, need: &Resources) -> bool {
        let relays = self.unmet.told.keys().filter_map(|id| self.fleet[*id].subtree.as_deref());
        let mut relays = relays.filter(|subtree| subtree.can_get(need));
        self.unoffered.can_be_obtained(need) || relays.next().is_some()
    }

    /// Nodes that can still be asked for, here or below relays, and whether there are
    /// some of which it is not known what they offer.
    pub(super) fn obtainable(&self) -> (Vec<Resources>, bool) {
        let own = self.unoffered.obtainable();
        let mut nodes: Vec<Resources> = own.iter().flatten().cloned().collect();
        let mut is_unknown = own.contains(&None);
        for subtree in self.unmet.told.keys().filter_map(|id| self.fleet[*id].subtree.as_deref()) {
            nodes.extend(subtree.obtainable.iter().cloned());
            is_unknown |= subtree.is_unknown_obtainable;
        }
        nodes.sort();
        nodes.dedup();
        nodes.truncate(NODE_CLASSES_MAX);
        (nodes, is_unknown)
    }
}
