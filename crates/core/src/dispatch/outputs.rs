//! Output that executors keep because it was too long to be sent: which results
//! it belongs to, and what the executors are to discard.
//!
//! In an instance with `keep_output` it outlives its result: a relay that has passed the
//! result on reads the output later, and says when nobody will any more.

use super::instance::Instance;
use super::{AccessError, Dispatcher, Record, RecoverError};
use crate::limits::{
    DISCARDED_RUNS_MAX, ORDER_DISCARDED_RUNS_MAX, OUTPUT_AWAITED_MICROS, OUTPUT_TASKS_MAX,
    RECORD_RUNS_MAX,
};
use crate::result::{Detail, Finished, Overflow, Report, Stream};
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, TaskId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// The output of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Output {
    /// The position of its result.
    position: u64,
    /// Whether that result is held.
    has_result: bool,
    /// Standard output and standard error.
    streams: [Option<Overflow>; 2],
}

/// The output of a task whose result is in a page, or is forgotten, as a snapshot has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagedOutput {
    /// The position of the result: before those that are held if it is forgotten.
    pub position: u64,
    /// The task.
    pub task: TaskId,
    /// The part of standard output that its executor keeps.
    pub stdout: Option<Overflow>,
    /// The part of standard error that its executor keeps.
    pub stderr: Option<Overflow>,
}

impl Output {
    fn paged(&self, task: u64) -> PagedOutput {
        let [stdout, stderr] = self.streams;
        PagedOutput { position: self.position, task: TaskId(task), stdout, stderr }
    }
}

/// Output that executors keep of results that are held, and output that they need
/// not keep any more.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    by_task: BTreeMap<(InstanceId, u64), Output>,
    /// From the position of each result to its task.
    by_position: BTreeMap<(InstanceId, u64), u64>,
    /// By incarnation, the numbers of what these results refer to.
    held: BTreeMap<u64, RunSet>,
    /// By incarnation, the numbers of what is to be discarded there.
    discards: BTreeMap<u64, RunSet>,
    /// Incarnations for which something was added to these.
    pending: BTreeSet<u64>,
    /// Until then, executors that kept output before a restart may come back.
    awaited_until: Option<Time>,
}

impl Outputs {
    /// A result is held from now on, at `position` among those of its instance.
    pub(super) fn hold(&mut self, instance: InstanceId, position: u64, finished: &Finished) {
        let Some(detail) = &finished.detail else { return };
        self.hold_streams(instance, position, finished.first.0, detail.overflows());
    }

    fn hold_streams(
        &mut self,
        instance: InstanceId,
        position: u64,
        task: u64,
        streams: [Option<Overflow>; 2],
    ) {
        if streams == [None, None] || self.by_task.len() as u64 >= OUTPUT_TASKS_MAX {
            return;
        }
        self.by_position.insert((instance, position), task);
        self.hold_task(instance, task, Output { position, has_result: true, streams });
    }

    fn hold_task(&mut self, instance: InstanceId, task: u64, output: Output) {
        let streams = output.streams;
        self.by_task.insert((instance, task), output);
        for overflow in streams.into_iter().flatten() {
            self.held.entry(overflow.incarnation).or_default().insert(overflow.number, 1);
        }
    }

    /// The results of an instance before position `upto` are forgotten.
    pub(super) fn forget(&mut self, instance: InstanceId, upto: u64) {
        while let Some((&(_, position), &task)) =
            self.by_position.range((instance, 0)..(instance, upto)).next()
        {
            self.by_position.remove(&(instance, position));
            if let Some(output) = self.by_task.remove(&(instance, task)) {
                self.let_go(output.streams);
                self.discard(output.streams);
            }
        }
    }

    /// The results of an instance before position `upto` are forgotten, and their output is
    /// kept until it is released.
    fn outlive(&mut self, instance: InstanceId, upto: u64) {
        while let Some((&(_, position), &task)) =
            self.by_position.range((instance, 0)..(instance, upto)).next()
        {
            self.by_position.remove(&(instance, position));
            if let Some(output) = self.by_task.get_mut(&(instance, task)) {
                output.has_result = false;
            }
        }
    }

    /// Nobody needs the output of tasks any more: their results are replaced, or it is
    /// released.
    pub(super) fn release(&mut self, instance: InstanceId, first: u64, count: u64) {
        let until = first.saturating_add(count);
        while let Some((&at, output)) =
            self.by_task.range((instance, first)..(instance, until)).next()
        {
            let Output { position, has_result, streams } = *output;
            self.by_task.remove(&at);
            if has_result {
                self.by_position.remove(&(instance, position));
            }
            self.let_go(streams);
            self.discard(streams);
        }
    }

    /// An instance is gone, with its results.
    pub(super) fn forget_all(&mut self, instance: InstanceId) {
        self.release(instance, 0, u64::MAX);
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
    pub(super) fn discard_unreferenced(&mut self, report: &Report) {
        let Some(detail) = &report.detail else { return };
        let streams = detail.overflows();
        let held = self.by_task.get(&(report.instance, report.first.0));
        if held.is_none_or(|held| held.streams != streams) {
            self.discard(streams);
        }
    }

    /// Has everything discarded of what an executor says that it keeps that
    /// belongs to no result.
    fn discard_unreferenced_runs(&mut self, incarnation: u64, kept: &[(u64, u64)]) {
        for &(first, count) in kept {
            let unheld = match self.held.get(&incarnation) {
                Some(held) => held.gaps(first, count),
                None => vec![(first, count)],
            };
            unheld.into_iter().for_each(|run| self.discard_run(incarnation, run));
        }
    }

    fn let_go(&mut self, streams: [Option<Overflow>; 2]) {
        for overflow in streams.into_iter().flatten() {
            if let Some(held) = self.held.get_mut(&overflow.incarnation) {
                held.remove(overflow.number, 1);
                if held.is_empty() {
                    self.held.remove(&overflow.incarnation);
                }
            }
        }
    }

    fn discard(&mut self, streams: [Option<Overflow>; 2]) {
        for overflow in streams.into_iter().flatten() {
            self.discard_run(overflow.incarnation, (overflow.number, 1));
        }
    }

    fn discard_run(&mut self, incarnation: u64, (first, count): (u64, u64)) {
        let numbers = self.discards.entry(incarnation).or_default();
        if numbers.run_count() < DISCARDED_RUNS_MAX {
            numbers.insert(first, count);
            self.pending.insert(incarnation);
        }
    }

    /// The numbers that an executor is to discard, as many as go into one order.
    pub(super) fn take_discards(&mut self, incarnation: u64) -> Vec<(u64, u64)> {
        let Some(numbers) = self.discards.get_mut(&incarnation) else { return Vec::new() };
        let now: Vec<(u64, u64)> = numbers.iter().take(ORDER_DISCARDED_RUNS_MAX).collect();
        for (first, count) in &now {
            numbers.remove(*first, *count);
        }
        if numbers.is_empty() {
            self.discards.remove(&incarnation);
        } else {
            self.pending.insert(incarnation);
        }
        now
    }

    /// The incarnations for which there is something new to discard, each once.
    fn take_pending(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.pending)
    }

    /// An executor process was given up. If it comes back it says what it keeps.
    pub(super) fn executor_gone(&mut self, incarnation: u64) {
        self.discards.remove(&incarnation);
        self.pending.remove(&incarnation);
    }

    /// The journal has been read: executors of before are on their way, also those without
    /// tasks.
    pub(super) fn recovered(&mut self, now: Time) {
        self.awaited_until = (!self.held.is_empty()).then(|| now.after(OUTPUT_AWAITED_MICROS));
    }

    /// Whether an executor that is not here may still come back with what it keeps.
    fn is_awaited(&self, now: Time) -> bool {
        self.awaited_until.is_some_and(|until| now < until)
    }

    /// How many results are known whose output executors keep.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.by_task.len()
    }

    /// Whether the two ways to find the output of a held result agree, and no result is held
    /// twice; the first instance and position for which that is not so.
    pub(super) fn check(&self) -> Option<(InstanceId, u64)> {
        let is_right = |(&(instance, position), task): (&(InstanceId, u64), &u64)| {
            let found = self.by_task.get(&(instance, *task));
            found.is_some_and(|found| found.has_result && found.position == position)
        };
        let wrong = self.by_position.iter().find(|entry| !is_right(*entry));
        let of_results = self.by_task.values().filter(|output| output.has_result).count();
        let unequal = || (self.by_position.len() != of_results).then_some((InstanceId(0), 0));
        let is_held = |overflow: &Overflow| {
            self.held.get(&overflow.incarnation).is_some_and(|held| held.contains(overflow.number))
        };
        let unheld = || {
            let mut outputs = self.by_task.iter();
            let is_wrong = |output: &Output| !output.streams.iter().flatten().all(is_held);
            outputs
                .find(|(_, output)| is_wrong(output))
                .map(|((id, _), found)| (*id, found.position))
        };
        wrong.map(|(at, _)| *at).or_else(unequal).or_else(unheld)
    }

    /// Outputs of an instance's results before a position.
    fn before(&self, instance: InstanceId, until: u64) -> impl Iterator<Item = PagedOutput> + '_ {
        let found = self.by_position.range((instance, 0)..(instance, until));
        found.filter_map(move |(_, &task)| Some(self.by_task.get(&(instance, task))?.paged(task)))
    }

    /// Outputs of an instance that outlive their results.
    fn outliving(&self, instance: InstanceId) -> impl Iterator<Item = PagedOutput> + '_ {
        let found = self.by_task.range((instance, 0)..=(instance, u64::MAX));
        let found = found.filter(|(_, output)| !output.has_result);
        found.map(|((_, task), output)| output.paged(*task))
    }

    /// The positions at which results of an instance have such output.
    pub(super) fn positions(&self, instance: InstanceId) -> impl Iterator<Item = u64> + '_ {
        let of_instance = (instance, 0)..=(instance, u64::MAX);
        self.by_position.range(of_instance).map(|((_, position), _)| *position)
    }

    /// The instances that have such output.
    pub(super) fn instances(&self) -> BTreeSet<InstanceId> {
        self.by_task.keys().map(|(instance, _)| *instance).collect()
    }
}

impl Dispatcher {
    /// An executor says what it keeps of reports that were acknowledged.
    pub(super) fn discard_unreferenced_outputs(&mut self, id: ExecutorId, kept: &[(u64, u64)]) {
        self.outputs.discard_unreferenced_runs(self.fleet[id].incarnation, kept);
    }

    /// The results of an instance before position `upto` are forgotten.
    pub(super) fn forget_outputs(&mut self, id: InstanceId, upto: u64) {
        match self.instances[&id].options.keep_output {
            true => self.outputs.outlive(id, upto),
            false => self.outputs.forget(id, upto),
        }
    }

    /// The client of an instance releases the output of tasks: runs of them, as (first, count).
    pub(super) fn release_outputs(&mut self, id: InstanceId, runs: &[(u64, u64)]) {
        for part in runs.chunks(RECORD_RUNS_MAX) {
            for (first, count) in part {
                self.outputs.release(id, *first, *count);
            }
            self.outbound.journal(Record::OutputReleased { instance: id, runs: part.to_vec() });
        }
    }

    /// For a snapshot: what executors keep of an instance's results that are in
    /// pages, or forgotten.
    pub(super) fn snapshot_outputs(&self, instance: &Instance, records: &mut Vec<Record>) {
        let id = instance.id;
        let paged = self.outputs.before(id, instance.results.memory_start());
        let mut outputs = self.outputs.outliving(id).chain(paged);
        loop {
            let part: Vec<PagedOutput> = outputs.by_ref().take(RECORD_RUNS_MAX).collect();
            if part.is_empty() {
                return;
            }
            records.push(Record::Outputs { instance: id, outputs: part });
        }
    }

    /// What executors keep of an instance's results in pages, and of forgotten ones.
    pub(super) fn recover_outputs(
        &mut self,
        id: InstanceId,
        outputs: &[PagedOutput],
    ) -> Result<(), RecoverError> {
        let instance = self.recovering(id)?;
        let keeps = instance.options.keep_output;
        let (start, end) = (instance.results.start(), instance.results.end());
        for &PagedOutput { position, task, stdout, stderr } in outputs {
            let streams = [stdout, stderr];
            if (start..end).contains(&position) {
                self.outputs.hold_streams(id, position, task.0, streams);
            } else if position < start && keeps {
                let output = Output { position, has_result: false, streams };
                self.outputs.hold_task(id, task.0, output);
            } else {
                return Err(RecoverError::Results { instance: id, expected: end, found: position });
            }
        }
        Ok(())
    }

    /// Has executors told what they need not keep any more. They wait for
    /// nothing, so that goes with the next order or after a moment.
    pub(super) fn tell_discards(&mut self) {
        for incarnation in self.outputs.take_pending() {
            match self.fleet.of_incarnation(incarnation) {
                Some(id) => self.fleet.send_later(id, self.now),
                None if self.comeback.expects(incarnation) => {}
                None => self.outputs.executor_gone(incarnation),
            }
        }
    }

    /// What an executor keeps of a stream of a task whose result is held, and which one: it
    /// can be visited, or is a relay that is connected.
    ///
    /// # Errors
    /// Nobody keeps it, or whoever does is not here.
    pub(super) fn output_of(
        &self,
        instance: InstanceId,
        task: TaskId,
        stream: Stream,
    ) -> Result<(Overflow, ExecutorId), AccessError> {
        let found = self.outputs.find(instance, task, stream);
        let overflow = found.ok_or(AccessError::NotKept)?;
        let incarnation = overflow.incarnation;
        match self.fleet.of_incarnation(incarnation) {
            Some(id) => {
                let executor = &self.fleet[id];
                match executor.subtree.is_some() && executor.connection.is_none() {
                    true => Err(AccessError::Away(executor.name.clone())),
                    false => Ok((overflow, id)),
                }
            }
            None => Err(match self.surveys.away_name(incarnation, self.now) {
                Some(relay) => AccessError::Away(relay.to_owned()),
                None if self.outputs.is_awaited(self.now) => AccessError::Away(String::new()),
                None => AccessError::ExecutorGone,
            }),
        }
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
        let stdout = Captured { head: Vec::new(), total_bytes: 9, overflow, member: None };
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
        assert_eq!(outputs.take_discards(7), [(100, 2)]);
        let kept = Some(Overflow { incarnation: 7, number: 102 });
        assert_eq!(outputs.find(INSTANCE, TaskId(2), Stream::Stdout), kept);
        assert_eq!(outputs.find(INSTANCE, TaskId(2), Stream::Stderr), None);
        assert_eq!(outputs.find(INSTANCE, TaskId(1), Stream::Stdout), None);
        outputs.forget_all(INSTANCE);
        assert_eq!((outputs.take_discards(7), outputs.len()), (vec![(102, 1)], 0));
        assert_eq!(outputs.check(), None);
    }

    #[test]
    fn output_of_a_report_that_became_no_result_is_discarded() {
        let mut outputs = Outputs::default();
        outputs.hold(INSTANCE, 0, &finished(5, 7, 1));
        // The same report again, one of another attempt, one of another task.
        for (task, number) in [(5, 1), (5, 2), (6, 3)] {
            outputs.discard_unreferenced(&report(task, 1, 7, number));
        }
        assert_eq!(outputs.take_discards(7), [(2, 2)]);
    }

    #[test]
    fn an_order_has_a_bounded_number_of_discards() {
        let mut outputs = Outputs::default();
        for number in 0..ORDER_DISCARDED_RUNS_MAX as u64 + 5 {
            outputs.discard_unreferenced(&report(number, 1, 7, 2 * number));
        }
        assert_eq!(outputs.take_discards(7).len(), ORDER_DISCARDED_RUNS_MAX);
        assert_eq!(outputs.take_discards(7).len(), 5);
        for number in 0..DISCARDED_RUNS_MAX as u64 + 5 {
            outputs.discard_unreferenced(&report(number, 1, 8, 2 * number));
        }
        assert_eq!(outputs.discards[&8].run_count(), DISCARDED_RUNS_MAX);
        outputs.executor_gone(8);
        assert_eq!(outputs.take_discards(8), []);
    }

    #[test]
    fn what_an_executor_keeps_without_a_result_is_discarded() {
        let mut outputs = Outputs::default();
        for task in [0, 1, 4] {
            outputs.hold(INSTANCE, 10 + task, &finished(task, 7, 100 + task));
        }
        outputs.discard_unreferenced_runs(7, &[(90, 2), (100, 7)]);
        assert_eq!(outputs.take_discards(7), [(90, 2), (102, 2), (105, 2)]);
        outputs.discard_unreferenced_runs(8, &[(1, u64::MAX)]);
        assert_eq!(outputs.take_discards(8), [(1, u64::MAX - 1)]);
        outputs.forget(INSTANCE, 11);
        outputs.discard_unreferenced_runs(7, &[(100, 1)]);
        assert_eq!((outputs.take_discards(7), outputs.check()), (vec![(100, 1)], None));
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
