//! What is said to LRMs, and what is made of their answers. Nothing that an
//! LRM says, and no silence, makes more be asked than bounds allow, or an
//! allocation be forgotten that may still be there.

use super::allocation::{Allocation, Cancelling};
use super::limits::{
    BARREN_ALLOCATIONS_MAX, CANCEL_ANSWER_MICROS, JOB_NAME_BYTES_MAX, LEAVE_MICROS,
    QUERY_ANSWER_MICROS, QUERY_MICROS_MAX, QUEUE_ALLOCATIONS_MAX, QUEUE_EXECUTORS_MAX,
    REFUSALS_MAX, SUBMIT_ANSWER_MICROS,
};
use super::queue::{pause_micros, shortened};
use super::{
    Action, AllocationState, Found, JobState, Provisioner, QueueId, Reason, Submitted, Verdict,
};
use crate::task::{AllocationId, Time};
use std::collections::BTreeMap;

impl Provisioner {
    pub(super) fn submit_answered(&mut self, id: AllocationId, answer: Submitted) {
        let now = self.now;
        let Some(one) = self.allocations.get_mut(&id) else { return };
        if !matches!(one.state, AllocationState::Asking | AllocationState::Unsure) {
            return;
        }
        let queue = one.queue;
        match answer {
            Submitted::Accepted { job } => {
                one.job = Some(job).filter(|job| job.len() <= JOB_NAME_BYTES_MAX);
                one.state = AllocationState::Pending;
                one.since = now;
                if let Some(queue) = self.queues.get_mut(&queue) {
                    queue.refusals = 0;
                }
            }
            Submitted::Refused { words } => {
                self.end_allocation(id, Reason::Lrm);
                self.refused(queue, words);
            }
            Submitted::TooLarge { words } => self.refused_as_too_large(id, words),
            Submitted::Unknown { words } => self.set_unsure(id, words),
        }
    }

    /// Nobody knows whether the LRM has it: queries tell. Nothing more is asked
    /// of the queue for a while.
    fn set_unsure(&mut self, id: AllocationId, words: String) {
        let now = self.now;
        let Some(one) = self.allocations.get_mut(&id) else { return };
        one.state = AllocationState::Unsure;
        one.since = now;
        one.absence = None;
        one.words = shortened(words);
        if let Some(queue) = self.queues.get_mut(&one.queue) {
            queue.not_before = queue.not_before.max(now.after(pause_micros(queue.refusals + 1)));
        }
    }

    /// The LRM has refused something: a pause that grows, and after some in a
    /// row one that somebody has to end.
    pub(super) fn refused(&mut self, id: QueueId, words: String) {
        let now = self.now;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.refusals = queue.refusals.saturating_add(1);
        let times = queue.refusals;
        let words = shortened(words);
        let until = now.after(pause_micros(times));
        queue.not_before = queue.not_before.max(until);
        let verdict = match times >= REFUSALS_MAX && queue.paused.is_none() {
            true => {
                queue.paused = Some(words.clone());
                Verdict::Pause
            }
            false => Verdict::Wait { until },
        };
        self.decided(id, verdict, Reason::Refused { times, words });
    }

    pub(super) fn note_start(&mut self, id: AllocationId, delay_micros: u64) {
        let Some(one) = self.allocations.get(&id) else { return };
        let (queue, is_found) = (one.queue, one.is_found);
        if let Some(queue) = self.queues.get_mut(&queue).filter(|_| !is_found) {
            queue.measure_delay(delay_micros);
        }
        self.decided(queue, Verdict::Started { allocation: id, delay_micros }, Reason::Lrm);
    }

    pub(super) fn hear_states(&mut self, id: QueueId, found: Vec<Found>) {
        let now = self.now;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        // An answer to a question that was given up may be old, but what it
        // names was there.
        let is_answer = queue.querying.take().is_some();
        if is_answer {
            queue.is_known = true;
            queue.query_failures = 0;
            queue.query_after = queue.query_after.max(now.after(queue.options.query_micros));
        }
        let mut named: BTreeMap<AllocationId, Found> = BTreeMap::new();
        for one in found {
            named.insert(one.allocation, one);
        }
        if is_answer {
            let missing: Vec<AllocationId> = self
                .allocations_of(id)
                .map(|one| one.id)
                .filter(|one| !named.contains_key(one))
                .collect();
            for one in missing {
                self.missing(one);
            }
        }
        for (allocation, found) in named {
            self.next_allocation = self.next_allocation.max(allocation.0.saturating_add(1));
            // An LRM lists the jobs of its other queues, too.
            if found.queue != id {
                continue;
            }
            match self.allocations.get(&allocation) {
                Some(one) if one.queue == id => self.hear_state(&found),
                Some(_) => {}
                None => self.adopt(id, &found),
            }
        }
    }

    pub(super) fn recovered(&mut self, id: QueueId, found: Vec<Found>) {
        self.keep_vigil(id);
        for one in found {
            self.next_allocation = self.next_allocation.max(one.allocation.0.saturating_add(1));
            let is_new = !self.allocations.contains_key(&one.allocation);
            if one.queue == id && is_new && self.queues.contains_key(&id) {
                self.adopt(id, &one);
                if let Some(one) = self.allocations.get_mut(&one.allocation) {
                    // The record says that it was asked for, and no more.
                    one.seen = false;
                    one.job = one.job.take().filter(|job| !job.is_empty());
                }
            }
        }
    }

    /// One that was not asked for in this life: it is used, or released, like
    /// any other.
    fn adopt(&mut self, id: QueueId, found: &Found) {
        self.forget_loss(found);
        let is_over = found.state == JobState::Ended;
        if is_over || self.allocations_of(id).count() >= QUEUE_ALLOCATIONS_MAX {
            return;
        }
        let mut one = Allocation::found(found, id, self.now);
        one.nodes = one.nodes.min(QUEUE_EXECUTORS_MAX);
        let allocation = one.id;
        self.allocations.insert(allocation, one);
        self.decided(id, Verdict::Adopt { allocation }, Reason::Lrm);
        let executors: Vec<_> = self
            .members
            .iter()
            .filter(|(_, member)| member.allocation == Some(allocation))
            .map(|(id, member)| (*id, member.capacity.clone()))
            .collect();
        let is_to_end = self.take_back(found);
        for (executor, capacity) in executors {
            self.attach(executor, allocation, capacity);
        }
        if is_to_end {
            self.cancel(allocation, Reason::Returned);
        }
    }

    pub(super) fn hear_state(&mut self, found: &Found) {
        let Some(one) = self.allocations.get_mut(&found.allocation) else { return };
        one.absence = None;
        one.seen = true;
        one.until = found.until.or(one.until);
        one.words = shortened(found.words.clone());
        if found.job.len() <= JOB_NAME_BYTES_MAX && one.state != AllocationState::Asking {
            one.job = Some(found.job.clone());
        }
        let state = match found.state {
            JobState::Ended if one.executors.is_empty() => {
                self.end_allocation(found.allocation, Reason::Lrm);
                return;
            }
            // Its executors are still there: they will leave, or it has not.
            JobState::Ended => return,
            JobState::Held if one.executors.is_empty() => AllocationState::Held,
            JobState::Pending | JobState::TooLarge | JobState::Never
                if one.executors.is_empty() =>
            {
                AllocationState::Pending
            }
            JobState::Running => AllocationState::Running,
            _ => match one.state {
                AllocationState::Unsure => AllocationState::Pending,
                state => state,
            },
        };
        if one.state == AllocationState::Asking {
            return;
        }
        if state != one.state {
            self.enter_state(found.allocation, state);
        }
        if matches!(found.state, JobState::TooLarge | JobState::Never) {
            self.cannot_start(found.allocation, found.state == JobState::TooLarge);
        }
    }

    fn enter_state(&mut self, id: AllocationId, state: AllocationState) {
        let now = self.now;
        let Some(one) = self.allocations.get_mut(&id) else { return };
        if matches!(state, AllocationState::Pending | AllocationState::Held) {
            // It was put back into the queue: its nodes will come anew.
            one.joined = 0;
            one.empty_since = None;
            one.started = None;
        }
        one.state = state;
        one.since = now;
        if state == AllocationState::Running {
            one.started.get_or_insert(now);
        }
    }

    /// An allocation is over.
    pub(super) fn end_allocation(&mut self, id: AllocationId, reason: Reason) {
        let now = self.now;
        let Some(one) = self.allocations.remove(&id) else { return };
        let queue = one.queue;
        let is_inferred = reason == Reason::Missing;
        self.decided(queue, Verdict::Ended { allocation: id }, reason);
        let was_had = !matches!(one.state, AllocationState::Asking | AllocationState::Unsure);
        // Of one that was found nobody knows what had come of it before.
        if one.joined > 0 || (one.ending && !one.is_late) || !was_had || one.is_found {
            return;
        }
        if is_inferred && one.started.is_none() {
            self.vanished(queue);
            return;
        }
        // It came to nothing, and nobody wanted that.
        let Some(found) = self.queues.get_mut(&queue) else { return };
        found.barren = found.barren.saturating_add(1);
        let times = found.barren;
        let until = now.after(pause_micros(times));
        found.not_before = found.not_before.max(until);
        let verdict = match times >= BARREN_ALLOCATIONS_MAX && found.paused.is_none() {
            true => {
                found.paused = Some(Reason::Barren { times }.to_string());
                Verdict::Pause
            }
            false => Verdict::Wait { until },
        };
        self.decided(queue, verdict, Reason::Barren { times });
    }

    /// One was given up before it had started: nobody knows why, or whether it
    /// is not there after all. The next is asked for a little later.
    fn vanished(&mut self, id: QueueId) {
        let now = self.now;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.vanished = queue.vanished.saturating_add(1);
        let times = queue.vanished;
        let until = now.after(pause_micros(times));
        queue.not_before = queue.not_before.max(until);
        self.decided(id, Verdict::Wait { until }, Reason::Vanished { times });
    }

    pub(super) fn query_failed(&mut self, id: QueueId, words: String) {
        let now = self.now;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        if queue.querying.take().is_none() {
            return;
        }
        queue.query_failures = queue.query_failures.saturating_add(1);
        let times = queue.query_failures;
        let until = now.after(pause_micros(times).max(queue.options.query_micros));
        queue.query_after = until;
        let words = shortened(words);
        self.decided(id, Verdict::Wait { until }, Reason::QueryFailed { times, words });
    }

    /// Ends an allocation, whatever runs there.
    pub(super) fn cancel(&mut self, id: AllocationId, reason: Reason) {
        let now = self.now;
        let Some(one) = self.allocations.get_mut(&id) else { return };
        one.ending = true;
        if one.cancelling.is_some() {
            return;
        }
        // What may not have got there yet is cancelled when it has.
        if one.state == AllocationState::Asking {
            return;
        }
        let again = now.after(CANCEL_ANSWER_MICROS);
        one.cancelling = Some(Cancelling { again, is_accepted: false, times: 1 });
        let (queue, job) = (one.queue, one.job.clone());
        self.decided(queue, Verdict::Cancel { allocation: id }, reason);
        self.actions.push_back(Action::Cancel { queue, allocation: id, job });
    }

    pub(super) fn cancel_answered(&mut self, id: AllocationId, refused: Option<String>) {
        let now = self.now;
        let Some(one) = self.allocations.get_mut(&id) else { return };
        let Some(cancelling) = &mut one.cancelling else { return };
        cancelling.is_accepted = refused.is_none();
        if refused.is_some() {
            cancelling.again = now.after(pause_micros(cancelling.times));
        }
    }

    pub(super) fn ask_free(&mut self, id: QueueId) {
        let now = self.now;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.asked_free = Some(now);
        queue.free_after = now.after(queue.options.query_micros);
        self.actions.push_back(Action::AskFree { queue: id });
    }

    pub(super) fn hear_free(&mut self, id: QueueId, nodes: Option<u64>) {
        let now = self.now;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        if queue.asked_free.take().is_some() {
            // Too little for any request: the LRM is asked again later.
            let least = queue.options.request_nodes_min;
            queue.free = Some(nodes).filter(|nodes| nodes.is_none_or(|nodes| nodes >= least));
            queue.free_after = queue.free_after.max(now.after(queue.options.query_micros));
        }
    }

    /// When a queue is to be queried next: soon while something is awaited, now
    /// and then while there is anything, and once at all.
    fn query_due(&self, id: QueueId) -> Option<Time> {
        let queue = self.queues.get(&id)?;
        if queue.querying.is_some() {
            return None;
        }
        if !queue.is_known {
            return Some(queue.query_after);
        }
        let mut all = self.allocations_of(id).peekable();
        if all.peek().is_none() {
            return self.vigil_due(id);
        }
        let awaited = |one: &Allocation| {
            one.is_pending() && one.state != AllocationState::Asking
                || one.ending
                || one.absence.is_some()
                || one.empty_since.is_some()
                || one.coming() > 0
        };
        match all.any(awaited) {
            true => Some(queue.query_after),
            false => {
                let rest = QUERY_MICROS_MAX.saturating_sub(queue.options.query_micros);
                Some(queue.query_after.after(rest))
            }
        }
    }

    /// Asks what became of all allocations of the queues that are due.
    pub(super) fn query_queues(&mut self) {
        let now = self.now;
        let ids: Vec<QueueId> = self.queues.keys().copied().collect();
        for id in ids {
            if self.query_due(id).is_none_or(|at| at > now) {
                continue;
            }
            let Some(queue) = self.queues.get_mut(&id) else { continue };
            queue.querying = Some(now);
            queue.query_after = now.after(queue.options.query_micros);
            self.actions.push_back(Action::Query { queue: id });
        }
    }

    /// When an answer is overdue, an allocation lingers, or a query is due.
    pub(super) fn lrm_timeout(&self) -> Option<(Time, &'static str)> {
        let mut all = Vec::new();
        for queue in self.queues.values() {
            all.extend(self.query_due(queue.id).map(|at| (at.max(self.now), "query")));
            let sent = queue.querying.map(|at| at.after(QUERY_ANSWER_MICROS));
            all.extend(sent.map(|at| (at, "answer to a query")));
            let free = queue.asked_free.map(|at| at.after(QUERY_ANSWER_MICROS));
            all.extend(free.map(|at| (at, "answer about free nodes")));
            let size = self.size_due(queue.id).map(|at| at.max(self.now));
            all.extend(size.map(|at| (at, "how large the queue is")));
        }
        for one in self.allocations.values() {
            let about = one.absence.and_then(|absence| absence.due());
            all.extend(about.map(|at| (at, "answer about a job")));
            if one.state == AllocationState::Asking {
                all.push((one.asked.after(SUBMIT_ANSWER_MICROS), "answer to a submission"));
            } else if let Some(cancelling) = one.cancelling {
                all.push((cancelling.again, "cancellation"));
            } else if let Some(since) = one.empty_since {
                all.push((since.after(LEAVE_MICROS), "end of an allocation"));
            } else if one.ending && one.executors.is_empty() {
                all.push((self.now, "cancellation"));
            }
            all.extend(one.late_at().map(|at| (at, "executors that have not come")));
            all.extend(self.held_until(one).map(|at| (at, "a job that is held")));
        }
        all.into_iter().min()
    }

    /// Until when an allocation that somebody holds is waited for.
    fn held_until(&self, one: &Allocation) -> Option<Time> {
        let micros = self.queues.get(&one.queue)?.options.held_micros?;
        let waits = one.is_held() && !one.ending && one.cancelling.is_none();
        waits.then(|| one.since.after(micros))
    }

    /// Does what is due.
    pub(super) fn lrm_due(&mut self) {
        let now = self.now;
        let ids: Vec<QueueId> = self.queues.keys().copied().collect();
        for id in ids {
            let Some(queue) = self.queues.get_mut(&id) else { continue };
            queue.size.give_up_waiting(now);
            if queue.asked_free.is_some_and(|at| at.after(QUERY_ANSWER_MICROS) <= now) {
                queue.asked_free = None;
            }
            if queue.querying.is_some_and(|at| at.after(QUERY_ANSWER_MICROS) <= now) {
                self.query_failed(id, "no answer".to_owned());
            }
        }
        let ids: Vec<AllocationId> = self.allocations.keys().copied().collect();
        for id in ids {
            self.allocation_due(id);
        }
    }

    fn allocation_due(&mut self, id: AllocationId) {
        let now = self.now;
        self.about_overdue(id);
        let held = self
            .allocations
            .get(&id)
            .filter(|one| self.held_until(one).is_some_and(|until| until <= now));
        if let Some(one) = held {
            let (micros, words) = (now.since(one.since), one.words.clone());
            self.cancel(id, Reason::Held { micros, words });
            return;
        }
        let Some(one) = self.allocations.get_mut(&id) else { return };
        if one.state == AllocationState::Asking {
            if one.asked.after(SUBMIT_ANSWER_MICROS) <= now {
                self.set_unsure(id, "no answer".to_owned());
            }
        } else if let Some(cancelling) = &mut one.cancelling {
            if cancelling.again <= now {
                cancelling.times = cancelling.times.saturating_add(1);
                let pause = pause_micros(cancelling.times).max(CANCEL_ANSWER_MICROS);
                cancelling.again = now.after(pause);
                let (queue, job) = (one.queue, one.job.clone());
                self.actions.push_back(Action::Cancel { queue, allocation: id, job });
            }
        } else if one.late_at().is_some_and(|at| at <= now) {
            one.is_late = true;
            if one.executors.is_empty() {
                self.cancel(id, Reason::Lingers);
            }
        } else if one.empty_since.is_some_and(|since| since.after(LEAVE_MICROS) <= now) {
            self.cancel(id, Reason::Lingers);
        } else if one.ending && one.executors.is_empty() && one.empty_since.is_none() {
            self.cancel(id, Reason::Asked);
        }
    }
}
