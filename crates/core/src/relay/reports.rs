//! Results of the dispatcher below become reports to the one above.

use super::results::is_unstarted;
use super::{Action, Note, Relay};
use crate::dispatch::Held;
use crate::result::{Detail, Finished, Outcome};
use crate::task::TaskId;
use std::sync::Arc;

impl Relay {
    pub(super) fn take_results(&mut self, from: u64, results: &[Finished]) {
        let mut end = from;
        for finished in results {
            let (first, count) = (finished.first.0, finished.count);
            self.staged.forget(first, count);
            end = end.saturating_add(count);
            let mut reported = 0;
            for (below, held) in self.ledger.take_below(first, count) {
                for (at, count) in self.cancelling.within(below, held.count) {
                    let held = Held { first: TaskId(held.first.0 + (at - below)), count, ..held };
                    self.report(held, at, finished);
                    reported += count;
                }
                for (at, count) in self.cancelling.gaps(below, held.count) {
                    let held = Held { first: TaskId(held.first.0 + (at - below)), count, ..held };
                    if is_unstarted(finished) {
                        self.updates.give_back(held);
                    } else {
                        self.report(held, at, finished);
                        reported += count;
                    }
                }
            }
            self.cancelling.remove(first, count);
            let keeps = |detail: &Arc<Detail>| detail.overflows() != [None, None];
            let is_unreported = reported == 0 && !self.kept.is_needed(first);
            if is_unreported && finished.detail.as_ref().is_some_and(keeps) {
                // The dispatcher above does not hear of it, and has not heard before from a
                // result that is delivered again.
                self.actions.push_back(Action::Release(vec![(first, count)]));
            }
            self.results.delivered(end, (first, count), reported);
        }
    }

    /// Reports how tasks have ended, the first of which has this number below.
    fn report(&mut self, held: Held, below: u64, finished: &Finished) {
        let outcome = match finished.outcome {
            // How it ended is not known any more.
            Outcome::Unreadable => Outcome::Lost,
            outcome => outcome,
        };
        let (identity, detail) = (self.identity, finished.detail.clone());
        let detail = detail.map(|detail| self.kept.report(identity, below, detail));
        self.push_report(held, outcome, (finished.started, finished.ended), detail);
    }

    /// Lets the dispatcher below forget what the one above has.
    pub(super) fn acknowledge(&mut self) {
        let Some((gone, upto)) = self.results.take_passed() else { return };
        let gone = gone.into_iter().map(|(below, count)| Note::Gone { below, count });
        self.actions.push_back(Action::Note(gone.collect()));
        self.actions.push_back(Action::Acknowledge(upto));
    }
}
