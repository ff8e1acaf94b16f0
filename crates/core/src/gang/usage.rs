//! What the nodes of a gang used: as it is gathered while the gang runs, and as a result has it.
//!
//! The member that starts a process measures it. When the process has ended, that member tells
//! the one that asked for it, together with all that others have told it meanwhile. So usage
//! moves towards the first member, each amount once, and is there when the task's command ends.

use super::Member;
use crate::limits::{GANG_NODES_MAX, GANG_USAGE_NODES_MAX, GANG_USAGE_RANKS_MAX, NAME_BYTES_MAX};
use crate::result::ResourceUsage;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The most that a node of [`GangUsage`] takes beside its name and its ranks.
const NODE_USAGE_BYTES_MAX: usize = 80;

/// The most that a rank of [`GangUsage`] takes.
const RANK_USAGE_BYTES_MAX: usize = 72;

/// The most that [`GangUsage`] takes in a message.
pub const GANG_USAGE_BYTES_MAX: u64 = (32
    + GANG_USAGE_NODES_MAX * (NODE_USAGE_BYTES_MAX + NAME_BYTES_MAX)
    + GANG_USAGE_RANKS_MAX * RANK_USAGE_BYTES_MAX) as u64;

/// Usage of a gang's processes on one node, on its way to the first member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeUsed {
    /// The node's index among the gang's members.
    pub index: u32,
    /// The usage that is known; `None` if none is.
    pub used: Option<ResourceUsage>,
    /// A process ran there whose usage is not known.
    pub is_missing: bool,
    /// The ranks that were seen there, which are part of `used`.
    pub ranks: Vec<RankUsage>,
}

/// The resources that one rank of a parallel program was seen to use on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankUsage {
    /// The rank.
    pub rank: u32,
    /// The resources.
    pub used: ResourceUsage,
}

/// Usage of a gang's processes, as far as one node knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageLedger {
    nodes: BTreeMap<u32, NodeLedger>,
    /// The number of ranks of all nodes, counted up to one more than a result lists. At that
    /// number, no rank is listed.
    ranks: usize,
}

/// Usage of a gang's processes on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct NodeLedger {
    used: Option<ResourceUsage>,
    is_missing: bool,
    ranks: BTreeMap<u32, ResourceUsage>,
}

/// Usage of a gang's nodes, in a result. Nodes on which nothing was measured are not listed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GangUsage {
    /// Nodes of the gang.
    pub nodes: u32,
    /// Nodes on which a process ran whose usage is not known.
    pub missing: u32,
    /// The nodes, in the order of the gang's members. If more than [`GANG_USAGE_NODES_MAX`] were
    /// measured, only those that are missing, without usage or ranks, and so many of them.
    pub listed: Vec<NodeUsage>,
}

/// Usage of one node of a gang, in a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeUsage {
    /// The name of the executor there.
    pub executor: String,
    /// The usage that is known; `None` if none is.
    pub used: Option<ResourceUsage>,
    /// A process ran there whose usage is not known.
    pub is_missing: bool,
    /// The ranks that were seen there, in their order; none if all nodes together have more than
    /// [`GANG_USAGE_RANKS_MAX`].
    pub ranks: Vec<RankUsage>,
}

impl NodeUsed {
    /// A node on which a process ran whose usage is not known.
    #[must_use]
    pub fn missing(index: u32) -> NodeUsed {
        NodeUsed { index, used: None, is_missing: true, ranks: Vec::new() }
    }
}

impl UsageLedger {
    /// Takes in what a node used beyond what is known of it. Nodes that no gang can have are
    /// passed over: what other executors say may be anything.
    pub fn add(&mut self, node: NodeUsed) {
        if node.index >= GANG_NODES_MAX {
            return;
        }
        let ledger = self.nodes.entry(node.index).or_default();
        ledger.used = ResourceUsage::sum(ledger.used, node.used);
        ledger.is_missing |= node.is_missing;
        for RankUsage { rank, used } in node.ranks {
            match ledger.ranks.entry(rank) {
                Entry::Occupied(mut known) => {
                    let sum = ResourceUsage::sum(Some(*known.get()), Some(used));
                    known.insert(sum.unwrap_or(used));
                }
                Entry::Vacant(place) if self.ranks <= GANG_USAGE_RANKS_MAX => {
                    place.insert(used);
                    self.ranks += 1;
                }
                Entry::Vacant(_) => {}
            }
        }
    }

    /// Hands over all that is known: it is not known here any more.
    pub fn take(&mut self) -> Vec<NodeUsed> {
        let nodes = std::mem::take(self).nodes.into_iter();
        let node = |(index, node): (u32, NodeLedger)| {
            let ranks = node.ranks();
            NodeUsed { index, used: node.used, is_missing: node.is_missing, ranks }
        };
        nodes.map(node).collect()
    }

    /// What all nodes used together, and each of them, once the first member has added what the
    /// task's command used.
    #[must_use]
    pub fn result(&self, members: &[Member]) -> (Option<ResourceUsage>, GangUsage) {
        let known = self.nodes.iter().filter_map(|(index, node)| {
            let executor = members.get(*index as usize)?.name.clone();
            let NodeLedger { used, is_missing, .. } = *node;
            Some(NodeUsage { executor, used, is_missing, ranks: node.ranks() })
        });
        let mut listed: Vec<NodeUsage> = known.collect();
        if self.ranks > GANG_USAGE_RANKS_MAX {
            listed.iter_mut().for_each(|node| node.ranks = Vec::new());
        }
        let sum = listed.iter().fold(None, |sum, node| ResourceUsage::sum(sum, node.used));
        let missing = listed.iter().filter(|node| node.is_missing).count() as u32;
        if listed.len() > GANG_USAGE_NODES_MAX {
            listed.retain(|node| node.is_missing);
            listed.truncate(GANG_USAGE_NODES_MAX);
            for node in &mut listed {
                (node.used, node.ranks) = (None, Vec::new());
            }
        }
        (sum, GangUsage { nodes: members.len() as u32, missing, listed })
    }
}

impl NodeLedger {
    fn ranks(&self) -> Vec<RankUsage> {
        self.ranks.iter().map(|(rank, used)| RankUsage { rank: *rank, used: *used }).collect()
    }
}

impl GangUsage {
    /// Whether it takes no more than [`GANG_USAGE_BYTES_MAX`].
    pub(crate) fn is_within_bounds(&self) -> bool {
        self.listed.len() <= GANG_USAGE_NODES_MAX
            && self.listed.iter().all(|node| node.executor.len() <= NAME_BYTES_MAX)
            && self.listed.iter().map(|node| node.ranks.len()).sum::<usize>()
                <= GANG_USAGE_RANKS_MAX
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        let node = |node: &NodeUsage| {
            node.executor.capacity() + node.ranks.capacity() * size_of::<RankUsage>()
        };
        let nodes = self.listed.iter().map(node).sum::<usize>();
        (size_of::<GangUsage>() + self.listed.capacity() * size_of::<NodeUsage>() + nodes) as u64
    }
}

impl ResourceUsage {
    /// What two used together. The most memory and disk space are those of one of them.
    #[must_use]
    pub fn sum(one: Option<ResourceUsage>, other: Option<ResourceUsage>) -> Option<ResourceUsage> {
        let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
        Some(ResourceUsage {
            user_micros: one.user_micros.saturating_add(other.user_micros),
            system_micros: one.system_micros.saturating_add(other.system_micros),
            rss_max_bytes: one.rss_max_bytes.max(other.rss_max_bytes),
            read_bytes: one.read_bytes.saturating_add(other.read_bytes),
            written_bytes: one.written_bytes.saturating_add(other.written_bytes),
            disk_max_bytes: one.disk_max_bytes.max(other.disk_max_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::declared::Serving;
    use crate::task::ExecutorId;
    use proptest::prelude::*;

    fn used(amount: u32) -> ResourceUsage {
        let amount = u64::from(amount);
        ResourceUsage {
            user_micros: amount,
            system_micros: amount / 2,
            rss_max_bytes: amount * 7 % 1000,
            read_bytes: amount % 10,
            written_bytes: 1,
            disk_max_bytes: None,
        }
    }

    fn members(count: u32) -> Vec<Member> {
        let member = |number| Member {
            executor: ExecutorId(u64::from(number)),
            name: format!("n{number}"),
            serves: Serving::default(),
        };
        (0..count).map(member).collect()
    }

    /// The numbers of its node and of the node that asked for it, what it used, and 0 if that is
    /// lost.
    fn process() -> impl Strategy<Value = (u32, u32, u32, u32)> {
        (any::<u32>(), any::<u32>(), any::<u32>(), 0..8_u32)
    }

    proptest! {
        /// Processes end in any order, on any node, and any other node has asked for them.
        #[test]
        fn whichever_way_usage_takes_the_first_node_has_each_amount_once(
            nodes in 2..9_u32,
            processes in prop::collection::vec(process(), 0..40),
        ) {
            let mut ledgers = vec![UsageLedger::default(); nodes as usize];
            let mut expected = vec![NodeLedger::default(); nodes as usize];
            for (on, asker, amount, lost) in processes {
                let (index, asker) = (on % nodes, (asker % nodes) as usize);
                let used = (lost != 0).then(|| used(amount));
                let ranks = used.map(|used| RankUsage { rank: amount % 3, used });
                let ranks: Vec<RankUsage> = ranks.into_iter().collect();
                let node = NodeUsed { index, used, is_missing: lost == 0, ranks: ranks.clone() };
                let expected: &mut NodeLedger = &mut expected[index as usize];
                expected.used = ResourceUsage::sum(expected.used, used);
                expected.is_missing |= lost == 0;
                for RankUsage { rank, used } in ranks {
                    let sum = ResourceUsage::sum(expected.ranks.get(&rank).copied(), Some(used));
                    expected.ranks.extend(sum.map(|sum| (rank, sum)));
                }
                ledgers[index as usize].add(node);
                if index != 0 {
                    let moved = ledgers[index as usize].take();
                    moved.into_iter().for_each(|node| ledgers[asker].add(node));
                }
            }
            // The last process of each node was asked for by the first node.
            for index in 1..nodes as usize {
                let moved = ledgers[index].take();
                moved.into_iter().for_each(|node| ledgers[0].add(node));
            }
            let (sum, gang) = ledgers[0].result(&members(nodes));
            let all =
                expected.iter().fold(None, |sum, node| ResourceUsage::sum(sum, node.used));
            prop_assert_eq!(sum, all);
            prop_assert_eq!(gang.nodes, nodes);
            let missing = expected.iter().filter(|node| node.is_missing).count();
            prop_assert_eq!(gang.missing as usize, missing);
            let listed = expected.into_iter().enumerate().filter_map(|(index, node)| {
                let (executor, ranks) = (format!("n{index}"), node.ranks());
                let NodeLedger { used, is_missing, .. } = node;
                let is_listed = used.is_some() || is_missing;
                is_listed.then_some(NodeUsage { executor, used, is_missing, ranks })
            });
            prop_assert_eq!(gang.listed, listed.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_wide_gang_lists_only_the_nodes_that_are_missing() {
        let all = members(GANG_NODES_MAX);
        let mut ledger = UsageLedger::default();
        for index in 0..GANG_NODES_MAX + 7 {
            let is_missing = index % 1000 == 3;
            let rank = RankUsage { rank: index, used: used(1) };
            ledger.add(NodeUsed { index, used: Some(used(1)), is_missing, ranks: vec![rank] });
        }
        let (sum, gang) = ledger.result(&all);
        assert_eq!(sum.unwrap().user_micros, u64::from(GANG_NODES_MAX));
        assert_eq!((gang.nodes, gang.missing), (GANG_NODES_MAX, 5));
        let names: Vec<&str> = gang.listed.iter().map(|node| node.executor.as_str()).collect();
        assert_eq!(names, ["n3", "n1003", "n2003", "n3003", "n4003"]);
        assert!(gang.listed.iter().all(|node| node.used.is_none() && node.ranks.is_empty()));
        for index in 0..GANG_NODES_MAX {
            ledger.add(NodeUsed::missing(index));
        }
        let (_, gang) = ledger.result(&all);
        assert_eq!((gang.missing, gang.listed.len()), (GANG_NODES_MAX, GANG_USAGE_NODES_MAX));
        assert!(gang.is_within_bounds());
    }

    #[test]
    fn a_gang_of_the_most_nodes_that_are_listed_lists_all() {
        let mut ledger = UsageLedger::default();
        let count = GANG_USAGE_NODES_MAX as u32;
        for index in 0..count {
            let used = Some(used(index));
            ledger.add(NodeUsed { index, used, is_missing: false, ranks: Vec::new() });
        }
        assert_eq!(ledger.result(&members(count)).1.listed.len(), GANG_USAGE_NODES_MAX);
    }

    #[test]
    fn ranks_are_listed_unless_they_are_too_many_wherever_they_were_counted() {
        let node = |index: u32, ranks: std::ops::Range<u32>| NodeUsed {
            index,
            used: Some(used(1)),
            is_missing: false,
            ranks: ranks.map(|rank| RankUsage { rank, used: used(rank) }).collect(),
        };
        let most = GANG_USAGE_RANKS_MAX as u32;
        let listed = |ledger: &UsageLedger| {
            let gang = ledger.result(&members(3)).1;
            assert!(gang.is_within_bounds());
            gang.listed.iter().map(|node| node.ranks.len()).collect::<Vec<_>>()
        };
        let mut ledger = UsageLedger::default();
        ledger.add(node(1, 0..most - 3));
        ledger.add(node(2, most - 3..most));
        assert_eq!(listed(&ledger), [GANG_USAGE_RANKS_MAX - 3, 3]);
        // A rank that is known is no further one.
        ledger.add(node(2, most - 1..most));
        assert_eq!(listed(&ledger), [GANG_USAGE_RANKS_MAX - 3, 3]);
        ledger.add(node(2, 7..8));
        assert_eq!(listed(&ledger), [0, 0]);
        let mut first = UsageLedger::default();
        let mut other = UsageLedger::default();
        other.add(node(1, 0..10 * most));
        other.take().into_iter().for_each(|node| first.add(node));
        assert_eq!(listed(&first), [0]);
        assert_eq!(other, UsageLedger::default());
    }
}
