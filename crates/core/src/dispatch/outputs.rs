//! Output that executors keep because it was too long to be sent: which results
//! it belongs to, and what the executors are to discard.

use super::Dispatcher;
use crate::limits::{DISCARDED_NAMES_MAX, ORDER_DISCARDED_NAMES_MAX, OUTPUT_TASKS_MAX};
use crate::result::{Detail, Finished, Overflow, Report, Stream};
use crate::task::{ExecutorId, InstanceId, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// The output of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Output {
    /// The position of its result.
    position: u64,
    /// Standard output and standard error.
    streams: [Option<Overflow>; 2],
}

/// What executors keep of results that are held, and what they need not keep
/// any more.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    by_task: BTreeMap<(InstanceId, u64), Output>,
    /// From the position of each result to its task.
    by_position: BTreeMap<(InstanceId, u64), u64>,
    /// By incarnation, the numbers of what is to be discarded there.
    discards: BTreeMap<u64, Vec<u64>>,
    /// Incarnations for which something was added to these.
    pending: BTreeSet<u64>,
}

impl Outputs {
    /// A result is held from now on, at `position` among those of its instance.
    pub(super) fn hold(&mut self, instance: InstanceId, position: u64, finished: &Finished) {
        let Some(detail) = &finished.detail else { return };
        let streams = detail.overflows();
        if streams == [None, None] || self.by_task.len() as u64 >= OUTPUT_TASKS_MAX {
            return;
        }
        let task = finished.first.0;
        self.by_position.insert((instance, position), task);
        self.by_task.insert((instance, task), Output { position, streams });
    }

    /// The results of an instance before position `upto` are forgotten.
    pub(super) fn forget(&mut self, instance: InstanceId, upto: u64) {
        while let Some((&(_, position), &task)) =
            self.by_position.range((instance, 0)..(instance, upto)).next()
        {
            self.by_position.remove(&(instance, position));
            if let Some(output) = self.by_task.remove(&(instance, task)) {
                self.discard(output.streams);
            }
        }
    }

    /// An instance is gone, with its results.
    pub(super) fn forget_all(&mut self, instance: InstanceId) {
        self.forget(instance, u64::MAX);
    }

    /// The output kept of a stream of a task whose result is held.
    pub(super) fn find(
        &self,
        instance: InstanceId,
        task: TaskId,
        stream: Stream,
    ) -> Option<Overflow> {
        self.by_task.get(&(instance, task.0))?.streams[stream as usize]
    }

    /// Has everything of a report discarded that belongs to no result.
    pub(super) fn settle(&mut self, report: &Report) {
        let Some(detail) = &report.detail else { return };
        let streams = detail.overflows();
        let held = self.by_task.get(&(report.instance, report.first.0));
        if held.is_none_or(|held| held.streams != streams) {
            self.discard(streams);
        }
    }

    fn discard(&mut self, streams: [Option<Overflow>; 2]) {
        for overflow in streams.into_iter().flatten() {
            let numbers = self.discards.entry(overflow.incarnation).or_default();
            // What is too much goes with its executor, or when it is old.
            if (numbers.len() as u64) < DISCARDED_NAMES_MAX {
                numbers.push(overflow.number);
                self.pending.insert(overflow.incarnation);
            }
        }
    }

    /// What an executor is to discard, as far as it goes into one order.
    pub(super) fn take_discards(&mut self, incarnation: u64) -> Vec<u64> {
        let Some(numbers) = self.discards.get_mut(&incarnation) else { return Vec::new() };
        let rest = numbers.split_off(numbers.len().min(ORDER_DISCARDED_NAMES_MAX as usize));
        let now = std::mem::replace(numbers, rest);
        if numbers.is_empty() {
            self.discards.remove(&incarnation);
        } else {
            self.pending.insert(incarnation);
        }
        now
    }

    /// An executor process is gone, with what it kept.
    pub(super) fn executor_gone(&mut self, incarnation: u64) {
        self.discards.remove(&incarnation);
        self.pending.remove(&incarnation);
    }

    /// How many results are known whose output executors keep.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.by_task.len()
    }

    /// Whether the two ways to find an output agree, and no result is held
    /// twice; the first instance and position for which that is not so.
    pub(super) fn check(&self) -> Option<(InstanceId, u64)> {
        let is_right = |(&(instance, position), task): (&(InstanceId, u64), &u64)| {
            let found = self.by_task.get(&(instance, *task));
            found.is_some_and(|found| found.position == position)
        };
        let wrong = self.by_position.iter().find(|entry| !is_right(*entry));
        let unequal =
            || (self.by_position.len() != self.by_task.len()).then_some((InstanceId(0), 0));
        wrong.map(|(at, _)| *at).or_else(unequal)
    }

    /// The positions at which results of an instance have such output.
    pub(super) fn positions(&self, instance: InstanceId) -> impl Iterator<Item = u64> + '_ {
        let of_instance = (instance, 0)..=(instance, u64::MAX);
        self.by_position.range(of_instance).map(|((_, position), _)| *position)
    }

    /// The instances of which results have such output.
    pub(super) fn instances(&self) -> BTreeSet<InstanceId> {
        self.by_position.keys().map(|(instance, _)| *instance).collect()
    }
}

impl Dispatcher {
    /// Has executors told what they need not keep any more. They wait for
    /// nothing, so that goes with the next order or after a moment.
    pub(super) fn tell_discards(&mut self) {
        for incarnation in std::mem::take(&mut self.outputs.pending) {
            match self.by_incarnation.get(&incarnation) {
                Some(id) => self.tell_soon(*id),
                None if self.comeback.expects(incarnation) => {}
                None => self.outputs.executor_gone(incarnation),
            }
        }
    }

    /// What an executor keeps of a stream of a task whose result is held.
    pub(super) fn output_of(
        &self,
        instance: InstanceId,
        task: TaskId,
        stream: Stream,
    ) -> Option<(Overflow, Option<ExecutorId>)> {
        let overflow = self.outputs.find(instance, task, stream)?;
        Some((overflow, self.by_incarnation.get(&overflow.incarnation).copied()))
    }
}

/// Takes out of reports what they say of output that their executor cannot
/// have: that of another one, or of several tasks in common.
pub(super) fn admit_overflow(incarnation: u64, reports: &mut [Report]) {
    for report in reports {
        let Some(detail) = &mut report.detail else { continue };
        let is_its = |overflow: &Overflow| overflow.incarnation == incarnation;
        let overflows = detail.overflows();
        if overflows.iter().flatten().all(|overflow| report.count == 1 && is_its(overflow)) {
            continue;
        }
        let detail: &mut Detail = std::sync::Arc::make_mut(detail);
        detail.stdout.overflow = None;
        detail.stderr.overflow = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Captured, Outcome, Tries};
    use crate::task::Time;
    use std::sync::Arc;

    const INSTANCE: InstanceId = InstanceId(3);

    fn detail(incarnation: u64, number: u64) -> Option<Arc<Detail>> {
        let overflow = Some(Overflow { incarnation, number });
        let stdout = Captured { head: Vec::new(), total_bytes: 9, overflow };
        Some(Arc::new(Detail { stdout, ..Detail::default() }))
    }

    fn finished(task: u64, incarnation: u64, number: u64) -> Finished {
        Finished {
            first: TaskId(task),
            count: 1,
            outcome: Outcome::Exit(0),
            executor: None,
            attempts: 1,
            queued: Time(0),
            dispatched: Time(0),
            started: Time(0),
            ended: Time(0),
            detail: detail(incarnation, number),
        }
    }

    fn report(task: u64, count: u64, incarnation: u64, number: u64) -> Report {
        Report {
            instance: INSTANCE,
            first: TaskId(task),
            count,
            tries: Tries::default(),
            outcome: Outcome::Exit(0),
            started: Time(0),
            ended: Time(0),
            detail: detail(incarnation, number),
        }
    }

    #[test]
    fn output_is_discarded_when_its_result_is_forgotten() {
        let mut outputs = Outputs::default();
        for task in 0..3 {
            outputs.hold(INSTANCE, 10 + task, &finished(task, 7, 100 + task));
        }
        assert_eq!(outputs.take_discards(7), []);
        outputs.forget(INSTANCE, 12);
        assert_eq!(outputs.take_discards(7), [100, 101]);
        let kept = Some(Overflow { incarnation: 7, number: 102 });
        assert_eq!(outputs.find(INSTANCE, TaskId(2), Stream::Stdout), kept);
        assert_eq!(outputs.find(INSTANCE, TaskId(2), Stream::Stderr), None);
        assert_eq!(outputs.find(INSTANCE, TaskId(1), Stream::Stdout), None);
        outputs.forget_all(INSTANCE);
        assert_eq!((outputs.take_discards(7), outputs.len()), (vec![102], 0));
        assert_eq!(outputs.check(), None);
    }

    #[test]
    fn output_of_a_report_that_became_no_result_is_discarded() {
        let mut outputs = Outputs::default();
        outputs.hold(INSTANCE, 0, &finished(5, 7, 1));
        // The same report again, one of another attempt, one of another task.
        for (task, number) in [(5, 1), (5, 2), (6, 3)] {
            outputs.settle(&report(task, 1, 7, number));
        }
        assert_eq!(outputs.take_discards(7), [2, 3]);
    }

    #[test]
    fn an_order_has_a_bounded_number_of_discards() {
        let mut outputs = Outputs::default();
        for number in 0..ORDER_DISCARDED_NAMES_MAX + 5 {
            outputs.settle(&report(number, 1, 7, number));
        }
        assert_eq!(outputs.take_discards(7).len() as u64, ORDER_DISCARDED_NAMES_MAX);
        assert_eq!(outputs.take_discards(7).len(), 5);
        for number in 0..DISCARDED_NAMES_MAX + 5 {
            outputs.settle(&report(number, 1, 8, number));
        }
        assert_eq!(outputs.discards[&8].len() as u64, DISCARDED_NAMES_MAX);
        outputs.executor_gone(8);
        assert_eq!(outputs.take_discards(8), []);
    }

    #[test]
    fn an_executor_cannot_name_what_another_one_keeps() {
        let mut reports = [report(0, 1, 7, 1), report(1, 1, 8, 2), report(2, 5, 7, 3)];
        admit_overflow(7, &mut reports);
        let kept = reports
            .map(|report| report.detail.is_some_and(|detail| detail.stdout.overflow.is_some()));
        assert_eq!(kept, [true, false, false]);
    }
}
