//! Staged tasks below a relay, as it reports them to the dispatcher above: they hold no
//! room there any more.

use super::ledger::Ledger;
use crate::dispatch::CheckError;
use crate::dispatch::check::ensure;
use crate::execute::updates::Staged as Told;
use crate::limits::UPDATE_RUNS_MAX;
use crate::runset::RunSet;

/// Tasks by their numbers below. All of them are in the ledger.
#[derive(Debug, Default)]
pub(super) struct Staged {
    /// Staged tasks.
    now: RunSet,
    /// Staged tasks that are not reported to the dispatcher above yet.
    untold: RunSet,
    /// Tasks that were reported as staged and are staged no longer, but have not ended.
    lost: RunSet,
}

impl Staged {
    /// The dispatcher below says that these are staged, and that these are not any more.
    /// The results of some may have come before that.
    pub(super) fn take(&mut self, staged: &[(u64, u64)], lost: &[(u64, u64)], ledger: &Ledger) {
        for (first, count) in staged.iter().flat_map(|run| ledger.has(*run)) {
            self.now.insert(first, count);
            self.lost.remove(first, count);
            self.untold.insert(first, count);
        }
        for (first, count) in lost.iter().flat_map(|run| ledger.has(*run)) {
            self.now.remove(first, count);
            self.untold.remove(first, count);
            self.lost.insert(first, count);
        }
    }

    /// These have ended, or are not the relay's any more.
    pub(super) fn forget(&mut self, first: u64, count: u64) {
        for set in [&mut self.now, &mut self.untold, &mut self.lost] {
            set.remove(first, count);
        }
    }

    /// A session with the dispatcher above begins: it has been told nothing.
    pub(super) fn connected(&mut self) {
        self.untold = self.now.clone();
        self.lost = RunSet::default();
    }

    /// Whether there is something to tell.
    pub(super) fn has_news(&self) -> bool {
        !self.untold.is_empty() || !self.lost.is_empty()
    }

    /// What to tell next.
    pub(super) fn next(&mut self, ledger: &Ledger) -> Told {
        let mut told = Told::default();
        for (set, list) in [(&mut self.untold, &mut told.now), (&mut self.lost, &mut told.lost)] {
            let some: Vec<(u64, u64)> = set.iter().take(UPDATE_RUNS_MAX / 4).collect();
            for (first, count) in some {
                let mut at = first;
                for (below, held) in ledger.find_below(first, count) {
                    if list.len() >= UPDATE_RUNS_MAX / 2 {
                        break;
                    }
                    at = below + held.count;
                    list.push(held);
                }
                set.remove(first, at - first);
            }
        }
        told
    }

    /// It has nothing but what the ledger has.
    pub(super) fn check(&self, ledger: &Ledger) -> Result<(), CheckError> {
        for (first, count) in self.now.iter().chain(self.untold.iter()).chain(self.lost.iter()) {
            let known: u64 = ledger.has((first, count)).iter().map(|(_, count)| count).sum();
            ensure!(known == count, "{count} tasks from {first} below are staged, and not known");
        }
        Ok(())
    }
}
