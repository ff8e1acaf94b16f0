//! What the dispatcher below says of submissions.

use super::{Note, Relay};
use crate::dispatch::Held;
use crate::limits::RELAY_RETRY_MICROS;
use crate::relay::Action;
use crate::result::{Cause, Detail, Outcome};
use crate::task::TaskId;
use std::sync::Arc;

impl Relay {
    /// The dispatcher below has the tasks of a submission: of one that runs everywhere, as
    /// many as there are executors. Others that the dispatcher above knew have left.
    pub(super) fn accepted(&mut self, count: u64) {
        let Some((first, lacking)) = self.outgoing.accepted(count) else { return };
        let lost = self.ledger.take_below(first, lacking);
        self.actions.push_back(Action::Note(vec![Note::Gone { below: first, count: lacking }]));
        self.cancelling.remove(first, lacking);
        for (_, held) in lost {
            self.report_left(held, "an executor left before its task was there".to_owned());
        }
    }

    /// Reports tasks that were each for an executor that is not there.
    fn report_left(&mut self, held: Held, error: String) {
        let cause = Some(Cause::ExecutorLeft);
        let detail = Some(Arc::new(Detail { error, cause, ..Detail::default() }));
        self.push_report(held, Outcome::Lost, (self.now, self.now), detail);
        self.results.reported_unrun(held.count);
    }

    /// The dispatcher below does not have the tasks of a submission.
    pub(super) fn refused(&mut self, why: Option<String>) {
        let Some(refused) = self.outgoing.refused() else { return };
        let (first, count) = refused.numbers();
        for (below, held) in self.ledger.take_below(first, count) {
            for (first, count) in self.cancelling.within(below, held.count) {
                let first = TaskId(held.first.0 + (first - below));
                self.report_unrun(Held { first, count, ..held }, Outcome::Cancelled, None);
            }
            for (at, count) in self.cancelling.gaps(below, held.count) {
                let held = Held { first: TaskId(held.first.0 + (at - below)), count, ..held };
                match &why {
                    Some(why) if refused.is_everywhere() => self.report_left(held, why.clone()),
                    Some(why) => self.report_unrun(held, Outcome::NotRun, Some(why.clone())),
                    None => self.outgoing.requeue(&refused, at, held),
                }
            }
        }
        self.cancelling.remove(first, count);
        if self.outgoing.is_stopped() {
            self.retry_at = Some(self.now.after(RELAY_RETRY_MICROS));
        }
    }
}
