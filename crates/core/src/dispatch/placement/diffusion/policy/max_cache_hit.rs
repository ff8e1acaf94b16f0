//! `max-cache-hit`: a task waits for an executor that holds its data
//! (data-diffusion §3.2, §4.2). A task whose data nobody holds has nobody to
//! wait for: all executors hold equally much of it.

use super::{Load, Policy, Rest};

/// Fewer holders than this are none.
pub(super) const ANY: u32 = 1;

#[derive(Debug)]
pub(super) struct MaxCacheHit;

impl Policy for MaxCacheHit {
    fn rest(&self, _load: Load) -> Rest {
        Rest::HeldByFewerThan(ANY)
    }

    fn limits(&self) -> Vec<u32> {
        vec![ANY]
    }
}
