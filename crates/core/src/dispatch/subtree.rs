//! What a relay lends: the nodes below it, as classes of nodes that are alike.
//!
//! A relay registers as an executor. It says what is below it in an update, once in
//! each session before it takes tasks, and again whenever that changes.

use super::needs::{DataNeed, Need};
use super::{ConnectionId, Dispatcher};
use crate::limits::{CUSTOM_NAMES_MAX, NAME_BYTES_MAX, NODE_CLASSES_MAX, SUBTREE_RELAYS_MAX};
use crate::task::{ExecutorId, Resources};

/// Nodes that offer the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeClass {
    /// What each of them offers.
    pub capacity: Resources,
    /// Whether each has a cache, for tasks with data objects.
    pub has_cache: bool,
    /// How many there are.
    pub count: u64,
}

impl NodeClass {
    fn takes(&self, need: &Resources, caches: bool) -> bool {
        self.capacity.fits(need) && (self.has_cache || !caches)
    }
}

/// Everything below a relay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subtree {
    /// Drawn at random when the relay's process started.
    pub process: u64,
    /// The relays that work passes on its way, by the incarnations that they register
    /// with: itself, and those below it.
    pub relays: Vec<u64>,
    /// The nodes, one entry for each class.
    pub nodes: Vec<NodeClass>,
    /// What each kind of node offers that can still be asked of batch schedulers.
    pub obtainable: Vec<Resources>,
    /// Nodes can be asked for of which it is not known yet what they offer.
    pub is_unknown_obtainable: bool,
}

/// Why a relay is not taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubtreeError {
    /// Its tasks would come back to it.
    #[error(
        "the relay {name} is above this dispatcher and below it, so tasks would go round in a \
         circle: give it the access file of a dispatcher that is not below it"
    )]
    Circle {
        /// The relay that joins.
        name: String,
    },
    /// A relay with the same identity is there.
    #[error(
        "the relay {name} has the identity of the relay {other}, or has a relay below it that is \
         below {other} too: give each relay a directory of its own, which is no copy of another's"
    )]
    SameIdentity {
        /// The relay that joins.
        name: String,
        /// The one that is there.
        other: String,
    },
    /// It names more than a dispatcher keeps.
    #[error(
        "the relay {name} names more than {NODE_CLASSES_MAX} classes of nodes, more than \
         {SUBTREE_RELAYS_MAX} relays, or resources that a dispatcher does not keep"
    )]
    TooMuch {
        /// The relay that joins.
        name: String,
    },
}

impl Subtree {
    /// What all nodes offer together.
    #[must_use]
    pub fn total(&self) -> Resources {
        let mut total = Resources::default();
        for class in &self.nodes {
            for (name, _) in &class.capacity.custom {
                if let Err(at) = total.custom.binary_search_by(|(have, _)| have.cmp(name)) {
                    total.custom.insert(at, (name.clone(), 0));
                }
            }
            total.give(&class.capacity, class.count);
        }
        total
    }

    /// How many nodes there are.
    #[must_use]
    pub fn node_count(&self) -> u64 {
        self.nodes.iter().fold(0, |sum, class| sum.saturating_add(class.count))
    }

    /// Whether some node is large enough, and has a cache if `caches` says that it is
    /// to have one.
    #[must_use]
    pub fn fits(&self, need: &Resources, caches: bool) -> bool {
        self.nodes.iter().any(|class| class.count > 0 && class.takes(need, caches))
    }

    /// Whether some node can run tasks of a need.
    pub(super) fn runs(&self, need: &Need) -> bool {
        need.any(|request| self.fits(request, need.data > DataNeed::None))
    }

    /// How many nodes offer this, free or not, and have a cache if `caches` says so.
    #[must_use]
    pub fn nodes_offering(&self, offering: &Resources, caches: bool) -> u64 {
        let offering = self.nodes.iter().filter(|class| class.takes(offering, caches));
        offering.fold(0, |sum, class| sum.saturating_add(class.count))
    }

    /// Whether some node has a cache.
    #[must_use]
    pub fn has_cache(&self) -> bool {
        self.nodes.iter().any(|class| class.count > 0 && class.has_cache)
    }

    /// Whether a node can be asked for that is large enough.
    #[must_use]
    pub fn can_get(&self, need: &Resources) -> bool {
        self.is_unknown_obtainable || self.obtainable.iter().any(|node| node.fits(need))
    }

    /// How many tasks that each need `need`, and a cache if `caches` says so, run side
    /// by side, at most `limit`.
    #[must_use]
    pub fn count_of(&self, need: &Resources, caches: bool, limit: u64) -> u64 {
        let fitting = self.nodes.iter().filter(|class| class.takes(need, caches));
        let sum = fitting.fold(0u64, |sum, class| {
            let each = class.capacity.count_of(need, limit);
            sum.saturating_add(each.saturating_mul(class.count))
        });
        sum.min(limit)
    }

    /// Whether a dispatcher keeps all of it.
    fn is_within_bounds(&self) -> bool {
        self.nodes.len() <= NODE_CLASSES_MAX
            && self.obtainable.len() <= NODE_CLASSES_MAX
            && self.obtainable.iter().all(is_kept)
            && self.relays.len() <= SUBTREE_RELAYS_MAX
            && self.nodes.iter().all(|class| is_kept(&class.capacity))
            && self.total().custom.len() <= CUSTOM_NAMES_MAX
    }
}

/// Whether a dispatcher keeps resources of these names and numbers.
pub(super) fn is_kept(capacity: &Resources) -> bool {
    capacity.is_sound()
        && capacity.custom.len() <= CUSTOM_NAMES_MAX
        && capacity.name_bytes() <= NAME_BYTES_MAX as u64
}

impl Dispatcher {
    /// A relay says what is below it.
    pub(super) fn lend(
        &mut self,
        connection: ConnectionId,
        id: ExecutorId,
        subtree: Subtree,
    ) -> Result<(), SubtreeError> {
        debug_assert_eq!(self.fleet.of_connection(connection), Some(id));
        let name = || self.fleet[id].name.clone();
        if !subtree.is_within_bounds() {
            return Err(SubtreeError::TooMuch { name: name() });
        }
        if subtree.relays.iter().any(|relay| self.lent_to.contains(relay)) {
            return Err(SubtreeError::Circle { name: name() });
        }
        if let Some(other) = self.fleet.same_relay(id, &subtree) {
            let other = self.fleet.name(other).cloned().unwrap_or_default();
            return Err(SubtreeError::SameIdentity { name: name(), other });
        }
        let incarnation = self.fleet[id].incarnation;
        let can_get_nodes = subtree.is_unknown_obtainable || !subtree.obtainable.is_empty();
        self.unmet.lends(id, can_get_nodes);
        self.surveys.lends(id, incarnation);
        self.fleet.resize(id, subtree, &self.needs, self.now);
        self.placement.is_relay(id);
        self.placement.everywhere_mut().lends(incarnation);
        self.unplaced = true;
        Ok(())
    }

    /// What the relay of this identity, which is above this dispatcher, has to say
    /// of it; its process is for the relay to fill in. Costs O(classes + relays).
    pub fn subtree(&mut self, relay: u64) -> Subtree {
        self.lent_to.insert(relay);
        while self.lent_to.len() > SUBTREE_RELAYS_MAX {
            self.lent_to.pop_first();
        }
        let (below, nodes) = self.fleet.subtree();
        let (obtainable, is_unknown_obtainable) = self.obtainable();
        let relays = [relay].into_iter().chain(below).collect();
        Subtree { process: 0, relays, nodes, obtainable, is_unknown_obtainable }
    }
}
