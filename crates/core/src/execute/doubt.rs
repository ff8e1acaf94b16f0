//! Doubted signals: a batch scheduler that ends a job signals the tasks and the
//! executor at about the same time.
//!
//! What the tasks make of that is no result: they run again elsewhere. So in a
//! scheduler's job, a task's end by a signal with which schedulers end jobs is
//! held back. An executor that is still there a moment later was not meant,
//! and believes the end. Until then the task counts as running, and holds its
//! room. An end that the executor itself has asked for is not doubted.

use super::Executor;
use super::end::End;
use crate::dispatch::CheckError;
use crate::dispatch::check::ensure;
use crate::limits::DOUBT_MICROS;
use crate::result::Outcome;
use crate::task::Time;
use std::collections::{BTreeSet, VecDeque};

/// The signals with which schedulers end jobs: SIGKILL and SIGTERM.
const JOB_SIGNALS: [i32; 2] = [9, 15];

/// Ends that are held back.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// In the order in which they are believed, with the times.
    ends: VecDeque<(Time, End)>,
}

impl Doubts {
    /// Holds an end back from `now` on.
    fn hold(&mut self, now: Time, end: End) {
        self.ends.push_back((now.after(DOUBT_MICROS), end));
    }

    /// When the first is believed.
    pub(super) fn due(&self) -> Option<Time> {
        self.ends.front().map(|(until, _)| *until)
    }

    /// The next end that is believed at `now`.
    pub(super) fn believed(&mut self, now: Time) -> Option<End> {
        self.due().filter(|until| *until <= now)?;
        self.ends.pop_front().map(|(_, end)| end)
    }

    /// A session begins, perhaps by another clock: all are held back from here.
    pub(super) fn restart(&mut self, now: Time) {
        for (until, _) in &mut self.ends {
            *until = now.after(DOUBT_MICROS);
        }
    }
}

impl Executor {
    /// Takes in a task's end, now or once it is believed.
    pub(super) fn ended_or_doubted(&mut self, end: End) {
        if self.is_doubtful(&end) {
            self.doubts.hold(self.now, end);
        } else {
            self.ended(end);
        }
    }

    fn is_doubtful(&self, end: &End) -> bool {
        let of_job =
            matches!(end.outcome, Outcome::Signal(signal) if JOB_SIGNALS.contains(&signal));
        let run = self.running.find(&end.key);
        of_job && self.allocation.is_some() && run.is_some_and(|run| run.killed.is_none())
    }

    /// Takes in the ends that are believed now.
    pub(super) fn believe_doubted(&mut self) {
        while let Some(end) = self.doubts.believed(self.now) {
            self.ended(end);
        }
    }

    /// Every end that is held back is that of one task that counts as running,
    /// and for no longer than there is doubt.
    pub(super) fn check_doubts(&self) -> Result<(), CheckError> {
        let mut doubted = BTreeSet::new();
        let mut before = Time::default();
        for (until, end) in &self.doubts.ends {
            let task = end.key.task;
            ensure!(self.running.contains_key(&end.key), "task {task} is doubted, and gone");
            ensure!(doubted.insert(end.key), "two ends of task {task} are doubted");
            ensure!(*until <= self.now.after(DOUBT_MICROS), "task {task} is doubted for too long");
            ensure!(before <= *until, "task {task} is believed out of its turn");
            before = *until;
        }
        Ok(())
    }
}
