//! Who submitted which tasks of an instance: a submission that comes again is
//! told from another client's that claims the same numbers.

use crate::limits::{SUBMITTER_NAMES_MAX, SUBMITTER_RUNS_MAX};
use crate::runset::RunSet;
use std::collections::{BTreeMap, VecDeque};

/// The clients of an instance, and the tasks of each.
#[derive(Debug, Default)]
pub(super) struct Submitters {
    by_client: BTreeMap<u64, RunSet>,
    /// The clients in the order of their first submissions.
    order: VecDeque<u64>,
}

impl Submitters {
    /// Remembers whose tasks these are; nobody's if `client` is 0.
    pub(super) fn submitted(&mut self, client: u64, first: u64, count: u64) {
        if client == 0 {
            return;
        }
        if !self.by_client.contains_key(&client) {
            // A client that is forgotten and submits again is refused, as its
            // tasks do not follow: nothing is lost unnoticed.
            if self.order.len() >= SUBMITTER_NAMES_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.by_client.remove(&oldest);
            }
            self.order.push_back(client);
        }
        self.by_client.entry(client).or_default().insert(first, count);
    }

    /// Whether all of these tasks, and at least one, are that client's.
    pub(super) fn has(&self, client: u64, first: u64, count: u64) -> bool {
        let Some(end) = first.checked_add(count).filter(|_| count > 0) else { return false };
        let Some(of_client) = self.by_client.get(&client) else { return false };
        of_client.within(first, end - first).iter().map(|(_, count)| count).sum::<u64>() == count
    }

    /// All clients in their order, and the tasks of each, as many in a piece as
    /// go into one record.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, Vec<(u64, u64)>)> {
        self.order.iter().flat_map(|client| {
            let runs: Vec<(u64, u64)> =
                self.by_client.get(client).map(|tasks| tasks.iter().collect()).unwrap_or_default();
            let pieces: Vec<_> = runs.chunks(SUBMITTER_RUNS_MAX).map(<[_]>::to_vec).collect();
            pieces.into_iter().map(|piece| (*client, piece))
        })
    }
}
