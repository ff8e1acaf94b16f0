//! Results from below, until the dispatcher above has acknowledged their reports:
//! only then may the dispatcher below forget them.

use crate::result::{Finished, Outcome};
use std::collections::VecDeque;

#[derive(Debug)]
struct Passing {
    /// The position behind the result.
    end: u64,
    /// How many tasks have been reported until then.
    reported: u128,
    /// The tasks, by their numbers below.
    below: (u64, u64),
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Results {
    passing: VecDeque<Passing>,
    /// Tasks reported above so far, and those of them that were acknowledged. The
    /// dispatcher above may send more than 64 bits count.
    reported: u128,
    acknowledged: u128,
}

impl Results {
    /// A result came from below, up to this position, of these tasks, so many of
    /// which are reported.
    pub(super) fn delivered(&mut self, end: u64, below: (u64, u64), reported: u64) {
        self.reported += u128::from(reported);
        self.passing.push_back(Passing { end, reported: self.reported, below });
    }

    /// The dispatcher below delivers all results again that are not acknowledged.
    pub(super) fn delivered_again(&mut self) {
        self.passing.clear();
    }

    /// So many tasks are reported of which there is no result below.
    pub(super) fn reported_unrun(&mut self, tasks: u64) {
        self.reported += u128::from(tasks);
    }

    /// Reports of so many tasks were acknowledged: in the order in which they were
    /// made.
    pub(super) fn acknowledged(&mut self, tasks: u128) {
        self.acknowledged += tasks;
    }

    /// The tasks whose results may be forgotten below, and up to which position.
    pub(super) fn take_passed(&mut self) -> Option<(Vec<(u64, u64)>, u64)> {
        let mut gone: Vec<(u64, u64)> = Vec::new();
        let mut upto = None;
        while let Some(first) = self.passing.front()
            && first.reported <= self.acknowledged
            && let Some(passed) = self.passing.pop_front()
        {
            upto = Some(passed.end);
            let (first, count) = passed.below;
            match gone.last_mut() {
                Some((before, there)) if *before + *there == first => *there += count,
                _ => gone.push((first, count)),
            }
        }
        Some((gone, upto?))
    }
}

/// Whether tasks came back from below without having run, other than by an order
/// from above.
pub(super) fn is_unstarted(finished: &Finished) -> bool {
    // One that was for an executor alone is for no other.
    if finished.detail.as_ref().is_some_and(|detail| !detail.executor.is_empty()) {
        return false;
    }
    match finished.outcome {
        Outcome::Cancelled => finished.executor.is_none(),
        Outcome::Unschedulable | Outcome::UpstreamFailed(_) => true,
        _ => false,
    }
}
