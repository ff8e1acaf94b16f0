//! Relays, and who is below whom.

use super::{Scenario, ScenarioError};

/// Tiers of relays.
const RELAY_DEPTH_MAX: u32 = 8;

/// Relays between dispatchers and nodes, in a balanced tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relays {
    /// Those that nodes connect to.
    pub count: u32,
    /// Tiers of relays. Each relay of a tier above the lowest has about as many
    /// relays below it as one of any other tier.
    pub depth: u32,
}

/// Who is above whom: dispatchers of clients come first, then the relays' own, tier by
/// tier.
#[derive(Debug)]
pub(crate) struct Tree {
    clients: u32,
    /// The dispatcher above each relay.
    pub(crate) above: Vec<u32>,
    /// The first dispatcher that nodes connect to, and how many do.
    lowest: (u32, u32),
}

impl Tree {
    fn new(clients: u32, relays: Option<Relays>) -> Tree {
        let mut tree = Tree { clients, above: Vec::new(), lowest: (0, clients) };
        let Some(Relays { count, depth }) = relays else { return tree };
        // The dispatchers of each client that are above the next tier: the first, and
        // how many.
        let mut over: Vec<(u32, u32)> = (0..clients).map(|client| (client, 1)).collect();
        for tier in 1..=depth {
            let first = tree.hosts();
            for (client, over) in (0..).zip(&mut over) {
                let share = count / clients + u32::from(client < count % clients);
                let part = f64::from(tier) / f64::from(depth);
                let widened = f64::from(share).powf(part).round() as u32;
                let here = widened.clamp(over.1, share.max(over.1));
                let nth = |relay: u32| u64::from(relay) * u64::from(over.1) / u64::from(here);
                let begins = tree.hosts();
                tree.above.extend((0..here).map(|relay| over.0 + nth(relay) as u32));
                *over = (begins, here);
            }
            tree.lowest = (first, tree.hosts() - first);
        }
        tree
    }

    /// All dispatchers, those of relays included.
    pub(crate) fn hosts(&self) -> u32 {
        self.clients + self.above.len() as u32
    }

    /// The dispatcher that a node connects to, and the client whose tasks it runs.
    pub(crate) fn of_node(&self, number: u64) -> (u32, u32) {
        let (first, count) = self.lowest;
        let host = first + (number % u64::from(count)) as u32;
        let mut client = host;
        while client >= self.clients {
            client = self.above[(client - self.clients) as usize];
        }
        (host, client)
    }
}

impl Scenario {
    pub(crate) fn tree(&self) -> Tree {
        Tree::new(self.dispatchers, self.relays)
    }

    pub(super) fn check_relays(&self) -> Result<(), ScenarioError> {
        let Some(Relays { count, depth }) = self.relays else { return Ok(()) };
        if depth == 0 || depth > RELAY_DEPTH_MAX {
            return Err(ScenarioError::RelayDepth { found: depth, most: RELAY_DEPTH_MAX });
        }
        if count < self.dispatchers || u64::from(count) > self.nodes_count() {
            return Err(ScenarioError::Relays { found: count });
        }
        let reads = self.workload.inputs.is_some() || self.workload.outputs.is_some();
        if reads || self.provision.is_some() {
            return Err(ScenarioError::RelaysAlone);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_balanced() {
        let tree = |clients, count, depth| Tree::new(clients, Some(Relays { count, depth }));
        assert_eq!(tree(1, 3, 1).above, [0, 0, 0]);
        assert_eq!(tree(2, 4, 1).above, [0, 0, 1, 1]);
        // Two of the upper tier, which have two each.
        assert_eq!(tree(1, 4, 2).above, [0, 0, 1, 1, 2, 2]);
        let deep = tree(2, 1000, 4);
        let below = |host: u32| deep.above.iter().filter(|above| **above == host).count();
        let (first, count) = deep.lowest;
        assert_eq!((count, deep.hosts()), (1000, first + 1000));
        assert!((0..first).all(|host| (4..=7).contains(&below(host))));
        // Half of the nodes for each client.
        let halves: usize = (0..1000).map(|node| deep.of_node(node).1 as usize).sum();
        assert_eq!(halves, 500);
        let odd = tree(2, 6, 3);
        assert_eq!((0..6).map(|node| odd.of_node(node).1).sum::<u32>(), 3);
        assert_eq!(Tree::new(3, None).of_node(5), (2, 2));
    }
}
