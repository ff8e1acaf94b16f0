//! Those who watch and see nothing but events: what these add up to is how things are.

use falkon_core::dispatch::{Dispatcher, Record};
use falkon_core::events::{
    Event, Failures, History, Interval, Processors, SCALES_MICROS, Tally, What,
};
use falkon_core::result::Counts;
use falkon_core::task::{MILLI, Time};

#[derive(Debug, Default)]
pub(super) struct Watched {
    tally: Tally,
    history: History,
    failures: Failures,
    /// Tasks that have ended, also of instances that are gone.
    ended: Counts,
    /// A killed dispatcher may have done more than its events say.
    is_behind: bool,
}

impl Watched {
    /// Takes in the events of a round, and looks whether they account for all tasks.
    pub(super) fn round(&mut self, now: Time, dispatcher: &mut Dispatcher, records: &[Record]) {
        for what in dispatcher.take_happenings() {
            self.add(&Event { at: now, what });
        }
        for record in records {
            if let Record::Submitted { instance, first, submission, .. } = record {
                let (instance, first, count) = (*instance, *first, submission.count);
                let what = What::Submitted { instance, first, count, command: "".into() };
                self.add(&Event { at: now, what });
            }
            Event::of_record(now, record, |event| self.add(&event));
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
        self.check_sums(dispatcher);
    }

    fn add(&mut self, event: &Event) {
        self.tally.add(event);
        self.history.add(event);
        self.failures.add(event);
        if let What::Ended(ended) = &event.what {
            self.ended.end(ended.outcome.status(), ended.run.count);
        }
    }

    /// What is kept by time and by kind of failure adds up to the same.
    fn check_sums(&self, dispatcher: &Dispatcher) {
        let counts = || dispatcher.instance_views().map(|view| view.counts());
        let sum = |of: fn(&Counts) -> u64| counts().map(|counts| of(&counts)).sum::<u64>();
        for scale in 0..SCALES_MICROS.len() {
            let Some((_, last)) = self.history.intervals(scale).last() else { continue };
            let levels = last.levels;
            assert_eq!(levels.queued, sum(|counts| counts.waiting + counts.ready));
            assert_eq!(levels.assigned, sum(|counts| counts.dispatched));
            // Nobody says what tasks reserve here.
            assert_eq!(levels.assigned_milli, u128::from(levels.assigned) * u128::from(MILLI));
            assert_eq!(levels.executors, dispatcher.executor_views().count() as u64);
            let cpus = dispatcher.executor_views().map(|view| view.capacity().cpus_milli);
            assert_eq!(levels.cpus_milli, cpus.map(u64::from).sum::<u64>());
        }
        // The longest intervals have all there was in these worlds.
        let whole = self.history.intervals(SCALES_MICROS.len() - 1);
        let (mut ended, mut ran) = (Counts::default(), 0);
        for (_, interval) in whole {
            ended.add_ended(&interval.ended);
            ran += interval.processors.ran;
        }
        assert_eq!(ended, self.ended, "the history has other ends");
        let of_tally: u128 = self.tally.instances.values().map(|one| one.run_micros).sum();
        let of_tally = of_tally * u128::from(MILLI);
        assert!(ran <= of_tally, "the history has {ran} thousandths of microseconds of {of_tally}");
        for (at, Interval { processors, .. }) in self.history.intervals(0) {
            let Processors { offered, taken, idle_while_waiting, .. } = processors;
            assert!(taken + idle_while_waiting <= offered, "{processors:?} at {at:?}");
        }
        let failed: u64 = self.failures.groups().map(|(_, group)| group.count).sum();
        let there: Vec<_> = dispatcher.instance_views().map(|view| view.id()).collect();
        let of_those = |id: &_| self.tally.instances.get(id).map_or(0, |one| one.ended.failed);
        let expected: u64 = there.iter().map(of_those).sum();
        assert_eq!(failed + self.failures.ungrouped(), expected, "failures are grouped wrongly");
        for id in there {
            let listed: u64 = self.failures.failed_from(id, 0).map(|(_, count)| count).sum();
            assert_eq!(listed, of_those(&id), "failed tasks of instance {id} are listed wrongly");
        }
    }

    /// Another process continues.
    pub(super) fn restarted(&mut self, dispatcher: &mut Dispatcher) {
        dispatcher.watch_happenings();
        self.is_behind = true;
    }
}
