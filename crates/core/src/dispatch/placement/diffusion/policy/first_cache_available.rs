//! `first-cache-available`: the next free executor gets the head of the queue;
//! data comes along as hints only (data-diffusion §3.2).

use super::{Load, Policy, Rest};

#[derive(Debug)]
pub(super) struct FirstCacheAvailable;

impl Policy for FirstCacheAvailable {
    fn looks(&self) -> bool {
        false
    }

    fn rest(&self, _load: Load) -> Rest {
        Rest::Head
    }
}
