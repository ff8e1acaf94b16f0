//! Tasks that go back to the dispatcher above: some that it asks for, or all that have
//! not started, when the relay leaves.

use super::Relay;
use crate::relay::Action;

impl Relay {
    /// Gives back what was not submitted, and asks the dispatcher below for the
    /// rest.
    pub(super) fn recall(&mut self, count: u64) {
        let taken = self.outgoing.take_last(count);
        let given: u64 = taken.iter().map(|held| held.count).sum();
        taken.into_iter().for_each(|held| self.updates.give_back(held));
        if given < count {
            self.session.is_recalling = true;
            self.actions.push_back(Action::Withdraw(count - given));
        } else {
            self.updates.recalled();
        }
    }

    pub(super) fn withdrawn(&mut self, runs: Vec<(u64, u64)>) {
        for (first, count) in runs {
            self.staged.forget(first, count);
            for (_, held) in self.ledger.take_below(first, count) {
                self.updates.give_back(held);
            }
        }
        if std::mem::take(&mut self.session.is_recalling) {
            self.updates.recalled();
        }
    }

    /// Tells the dispatcher above, once in each session, that it leaves, and gives
    /// back what has not started.
    pub(super) fn leave(&mut self) {
        if self.is_leaving && !std::mem::replace(&mut self.session.is_leaving_told, true) {
            self.updates.leaving();
            self.recall(u64::MAX);
        }
    }

    pub(super) fn note_left(&mut self) {
        let is_empty = !self.has_unreported() && self.updates.is_empty();
        if self.session.is_leaving_told && is_empty && !self.has_left {
            self.has_left = true;
            self.actions.push_back(Action::Left);
        }
    }
}
