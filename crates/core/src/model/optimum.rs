//! The smallest number of resources that maximises speedup × efficiency
//! (data-diffusion §4.3, "Optimizing Efficiency").

use super::Farm;

/// The most nodes that are looked at.
pub const NODES_SEARCHED_MAX: u64 = 1 << 20;

/// The number of nodes that gets the most out of speedup × efficiency.
///
/// Where tasks arrive at a rate A and |T| exceeds what they keep busy, the
/// paper's E is 1 however many more resources there are, so its S = E × |T|
/// grows without end and has no maximum. Here the speedup that is maximised is
/// |K| × B / W, how much faster the workload ends than on one resource without
/// overheads, and the efficiency is that over |T|. Both are the paper's own as
/// long as the resources, and not the arrivals, set the pace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Optimum {
    /// How many nodes.
    pub nodes: u64,
    /// |K| × B / W there.
    pub speedup: f64,
    /// The speedup over |T| there.
    pub efficiency: f64,
    /// The product still grows at the largest number that was looked at.
    pub is_open: bool,
}

impl Optimum {
    pub(super) fn search(farm: &Farm, nodes_max: u64) -> Optimum {
        let nodes_max = nodes_max.clamp(1, NODES_SEARCHED_MAX);
        let mut best = Optimum::at(farm, 1);
        // Caches make the product have more than one peak, so all are looked
        // at.
        for nodes in 2..=nodes_max {
            let next = Optimum::at(farm, nodes);
            if next.product() > best.product() {
                best = next;
            }
        }
        best.is_open = best.nodes == nodes_max && nodes_max > 1;
        best
    }

    /// How it is with so many nodes.
    fn at(farm: &Farm, nodes: u64) -> Optimum {
        let farm = farm.with_nodes(nodes);
        let work_s = farm.workload.average_execution_s() * farm.workload.tasks as f64;
        let speedup = work_s / farm.execution_with_overhead_s();
        let efficiency = speedup / farm.machine.resources() as f64;
        Optimum { nodes, speedup, efficiency, is_open: false }
    }

    fn product(&self) -> f64 {
        self.speedup * self.efficiency
    }
}
