//! `max-compute-util`: a free executor always gets a task, one that it holds
//! data of if there is any (data-diffusion §3.2, §4.2).

use super::{Load, Policy, Rest};

#[derive(Debug)]
pub(super) struct MaxComputeUtilization;

impl Policy for MaxComputeUtilization {
    fn rest(&self, _load: Load) -> Rest {
        Rest::Head
    }
}
