//! Those who watch and see nothing but events: what these add up to is how things are.

use falkon_core::dispatch::{Dispatcher, Record};
use falkon_core::events::{Event, Tally, What};
use falkon_core::result::Counts;
use falkon_core::task::Time;

#[derive(Debug, Default)]
pub(super) struct Watched {
    tally: Tally,
    /// A killed dispatcher may have done more than its events say.
    is_behind: bool,
}

impl Watched {
    /// Takes in the events of a round, and looks whether they account for all tasks.
    pub(super) fn round(&mut self, now: Time, dispatcher: &mut Dispatcher, records: &[Record]) {
        for what in dispatcher.take_happenings() {
            self.tally.add(&Event { at: now, what });
        }
        for record in records {
            if let Record::Submitted { instance, first, submission, .. } = record {
                let (instance, first, count) = (*instance, *first, submission.count);
                let what = What::Submitted { instance, first, count, command: "".into() };
                self.tally.add(&Event { at: now, what });
            }
            Event::of_record(now, record, |event| self.tally.add(&event));
        }
        if self.is_behind {
            return;
        }
        for view in dispatcher.instance_views() {
            let found = self.tally.instances.get(&view.id()).cloned().unwrap_or_default();
            let Counts { total, waiting, ready, dispatched, done, failed, cancelled, recomputed } =
                view.counts();
            let of_core = [total, waiting + ready, dispatched, done, failed, cancelled, recomputed];
            let ended = found.ended;
            let of_events = [
                found.submitted,
                found.queued(),
                found.assigned(),
                ended.done,
                ended.failed,
                ended.cancelled,
                ended.recomputed,
            ];
            assert_eq!(of_events, of_core, "the events of instance {} say otherwise", view.id());
        }
        let there = self.tally.executors.iter().filter(|(_, executor)| executor.gone.is_none());
        let there: Vec<_> = there.map(|(id, _)| *id).collect();
        let found: Vec<_> = dispatcher.executor_views().map(|view| view.id()).collect();
        assert_eq!(there, found, "the events say that other executors are there");
    }

    /// Another process continues.
    pub(super) fn restarted(&mut self, dispatcher: &mut Dispatcher) {
        dispatcher.watch_happenings();
        self.is_behind = true;
    }
}
