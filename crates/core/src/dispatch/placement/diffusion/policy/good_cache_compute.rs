//! `good-cache-compute`: `max-cache-hit` while enough executors are busy, else
//! `max-compute-util`; an object with enough replicas is not fetched once more
//! (data-diffusion §3.2).

use super::max_cache_hit::ANY;
use super::{Load, Policy, Rest};

#[derive(Debug)]
pub(super) struct GoodCacheCompute {
    pub(super) threshold_milli: u32,
    /// 0: no limit.
    pub(super) replication_max: u32,
}

impl Policy for GoodCacheCompute {
    fn rest(&self, load: Load) -> Rest {
        let busy = u128::from(load.busy) * 1000;
        if busy >= u128::from(load.executors) * u128::from(self.threshold_milli) {
            return Rest::HeldByFewerThan(ANY);
        }
        match self.replication_max {
            0 => Rest::Head,
            most => Rest::HeldByFewerThan(most),
        }
    }

    fn limits(&self) -> Vec<u32> {
        match self.replication_max {
            0 | ANY => vec![ANY],
            most => vec![ANY, most],
        }
    }
}
