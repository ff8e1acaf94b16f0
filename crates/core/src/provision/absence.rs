//! Jobs that a scheduler's answers do not name.
//!
//! A list without a job proves nothing: a controller that has just come up
//! says "no jobs" as readily as one that has none. The scheduler is therefore
//! asked about the job by its number before the allocation is given up, and an
//! allocation that was given up without the scheduler saying that it ended is
//! remembered: its queue is queried on, ever less often, for
//! [`VIGIL_MICROS`], and a job that is named again is taken back, or cancelled
//! if it was to end.

use super::limits::{
    ABSENT_MICROS_MAX, LOSSES_MAX, MISSING_ANSWERS_MAX, QUERY_ANSWER_MICROS, UNSEEN_MICROS,
    VIGIL_MICROS, VIGIL_QUERY_MICROS_MAX,
};
use super::queue::pause_micros;
use super::{About, Action, AllocationState, Found, JobState, Provisioner, QueueId, Reason};
use crate::task::{AllocationId, Time};
use std::collections::BTreeMap;

/// An allocation that the last answers did not name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Absence {
    since: Time,
    /// Answers in a row that did not name it.
    answers: u32,
    /// When the scheduler was asked about it by number, while that is open.
    asked: Option<Time>,
    /// The scheduler is not asked again before then.
    again: Time,
    /// Questions about it that told nothing.
    times: u32,
}

/// What follows from an absence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// Nothing yet.
    Wait,
    /// The scheduler is to be asked about it by number.
    Ask,
    /// The job is gone, as far as anybody can say.
    Believe,
}

impl Absence {
    fn new(now: Time) -> Absence {
        Absence { since: now, answers: 0, asked: None, again: now, times: 0 }
    }

    fn doubt(&self, now: Time, has_number: bool) -> Doubt {
        if self.answers < MISSING_ANSWERS_MAX {
            return Doubt::Wait;
        }
        if !has_number || now.since(self.since) >= ABSENT_MICROS_MAX {
            return Doubt::Believe;
        }
        match self.asked.is_some() || self.again > now {
            true => Doubt::Wait,
            false => Doubt::Ask,
        }
    }

    /// A question about it told nothing: the next one comes later.
    fn put_off(&mut self, now: Time) {
        self.asked = None;
        self.times = self.times.saturating_add(1);
        self.again = now.after(pause_micros(self.times));
    }

    /// When the answer to a question about it is overdue.
    pub(super) fn due(&self) -> Option<Time> {
        self.asked.map(|asked| asked.after(QUERY_ANSWER_MICROS))
    }
}

/// An allocation that was given up though nobody saw it end.
#[derive(Debug)]
struct Loss {
    queue: QueueId,
    job: Option<String>,
    /// Whether the allocation was to end.
    was_ending: bool,
    /// Executors of it have come.
    has_joined: bool,
    is_fixed: bool,
    walltime_micros: u64,
    since: Time,
}

/// The allocations that were given up though nobody saw them end.
#[derive(Debug, Default)]
pub(super) struct Losses(BTreeMap<AllocationId, Loss>);

impl Losses {
    pub(super) fn contains(&self, id: AllocationId) -> bool {
        self.0.contains_key(&id)
    }

    fn insert(&mut self, id: AllocationId, loss: Loss) {
        let now = loss.since;
        self.0.retain(|_, old| now.since(old.since) < VIGIL_MICROS);
        if self.0.len() >= LOSSES_MAX {
            // Numbers grow with time: the first is the oldest.
            self.0.pop_first();
        }
        self.0.insert(id, loss);
    }
}

impl Provisioner {
    /// An answer did not name an allocation.
    pub(super) fn missing(&mut self, id: AllocationId) {
        let now = self.now;
        let Some(one) = self.allocations.get_mut(&id) else { return };
        if one.state == AllocationState::Asking || !one.executors.is_empty() {
            one.absence = None;
            return;
        }
        let grace = if one.seen || one.joined > 0 { 0 } else { UNSEEN_MICROS };
        let is_graceful = now.since(one.since) < grace;
        let absence = one.absence.get_or_insert(Absence::new(now));
        absence.answers = absence.answers.saturating_add(1);
        if is_graceful {
            return;
        }
        match absence.doubt(now, one.job.is_some()) {
            Doubt::Wait => {}
            Doubt::Ask => {
                absence.asked = Some(now);
                let (queue, job) = (one.queue, one.job.clone().unwrap_or_default());
                self.actions.push_back(Action::AskAbout { queue, allocation: id, job });
            }
            Doubt::Believe => self.give_up(id),
        }
    }

    /// What the scheduler says of one job, asked by its number.
    pub(super) fn hear_about(&mut self, id: AllocationId, about: About) {
        let now = self.now;
        let Some(one) = self.allocations.get_mut(&id) else { return };
        let Some(absence) = one.absence.as_mut().filter(|absence| absence.asked.is_some()) else {
            return;
        };
        match about {
            About::Gone => self.give_up(id),
            About::NoAnswer => absence.put_off(now),
            About::Known(found) => {
                absence.put_off(now);
                // The job is there, however long lists leave it out.
                absence.since = now;
                let absence = *absence;
                if found.allocation == id && found.queue == one.queue {
                    self.hear_state(&found);
                }
                if let Some(one) = self.allocations.get_mut(&id) {
                    one.absence = Some(absence);
                }
            }
        }
    }

    /// An answer about one job is overdue.
    pub(super) fn about_overdue(&mut self, id: AllocationId) {
        let now = self.now;
        let absence = self.allocations.get_mut(&id).and_then(|one| one.absence.as_mut());
        if let Some(absence) = absence.filter(|absence| absence.due().is_some_and(|at| at <= now)) {
            absence.put_off(now);
        }
    }

    /// An allocation is taken to be over, though nobody saw it end.
    fn give_up(&mut self, id: AllocationId) {
        let Some(one) = self.allocations.get(&id) else { return };
        let (queue, words) = (one.queue, one.words.clone());
        let was_unsure = one.state == AllocationState::Unsure;
        let loss = Loss {
            queue,
            job: one.job.clone(),
            was_ending: one.ending,
            has_joined: one.joined > 0,
            is_fixed: one.is_fixed,
            walltime_micros: one.walltime_micros,
            since: self.now,
        };
        self.losses.insert(id, loss);
        self.keep_vigil(queue);
        self.end_allocation(id, Reason::Missing);
        if was_unsure {
            self.refused(queue, words);
        }
    }

    /// There may be jobs of a queue that its answers do not name.
    pub(super) fn keep_vigil(&mut self, id: QueueId) {
        let now = self.now;
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.vigil = Some(now);
        }
    }

    /// When a queue without allocations is to be queried again.
    pub(super) fn vigil_due(&self, id: QueueId) -> Option<Time> {
        let queue = self.queues.get(&id)?;
        let since = queue.vigil.filter(|since| self.now.since(*since) < VIGIL_MICROS)?;
        let age = queue.query_after.since(since);
        let pause = age.min(VIGIL_QUERY_MICROS_MAX);
        Some(queue.query_after.after(pause.saturating_sub(queue.options.query_micros)))
    }

    /// A job is named that was given up: it is as it was. Returns whether it
    /// was to end.
    pub(super) fn take_back(&mut self, found: &Found) -> bool {
        let Some(loss) = self.losses.0.remove(&found.allocation) else { return false };
        if let Some(queue) = self.queues.get_mut(&loss.queue) {
            queue.vanished = 0;
        }
        if let Some(one) = self.allocations.get_mut(&found.allocation) {
            one.is_fixed = loss.is_fixed;
            one.walltime_micros = loss.walltime_micros;
            one.ending = loss.was_ending;
        }
        loss.was_ending
    }

    /// A job that was given up has ended.
    pub(super) fn forget_loss(&mut self, found: &Found) {
        if found.state == JobState::Ended {
            self.losses.0.remove(&found.allocation);
        }
    }

    /// A queue goes, and with it the chance to find jobs of it again that were
    /// given up before anything of them had come: they are cancelled by their
    /// numbers, should they still be there.
    pub(super) fn cancel_losses(&mut self, id: QueueId) {
        let lost: Vec<(AllocationId, Option<String>)> = self
            .losses
            .0
            .iter()
            .filter(|(_, loss)| loss.queue == id && !loss.has_joined && loss.job.is_some())
            .map(|(id, loss)| (*id, loss.job.clone()))
            .collect();
        self.losses.0.retain(|_, loss| loss.queue != id);
        for (allocation, job) in lost {
            self.actions.push_back(Action::Cancel { queue: id, allocation, job });
        }
    }
}
