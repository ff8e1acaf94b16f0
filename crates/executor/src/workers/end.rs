//! Calls that end otherwise than by an answer, and workers that end.

use super::bundle::Bundle;
use super::outcome::not_ready;
use super::protocol::Answers;
use super::restart::KILLED_MAX;
use super::worker::Worker;
use super::{CLOSE_MS_MAX, LOOK_MS, START_SECONDS_MAX, Workers, give_back};
use crate::not_started::Reason;
use crate::tasks::{HOST_LOST, NODE_OUT_OF_MEMORY};
use falkon_core::execute::{Event, TaskKey};
use falkon_core::result::{Cause, Detail, Outcome, Stream};
use falkon_net::clock::Clock;
use falkon_process::{Ended, Outcome as ProcessOutcome, Shortage};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Workers {
    /// Looks at the workers that it is time for: one that is still in the same
    /// call keeps only that.
    pub(crate) fn look(&mut self, now: Instant, clock: &Clock) {
        for home in self.restarts.take_due(now) {
            if !self.waits(&home) {
                self.restarts.started(&home);
            }
            while self.lacks_workers(&home) {
                if let Err(error) = self.launch(&home) {
                    self.fail_home(&home, &error.to_string(), clock);
                }
            }
        }
        let due: Vec<u64> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.look_at.is_some_and(|at| at <= now))
            .map(|(key, _)| *key)
            .collect();
        for key in due {
            let Some(worker) = self.workers.get_mut(&key) else { continue };
            worker.look_at = None;
            if worker.ended.is_some() {
                // The connection is held by another process.
                self.bury(key, clock);
                continue;
            }
            if !worker.ready {
                self.distrust(key, &format!("it has not started within {START_SECONDS_MAX} s"));
                continue;
            }
            if !worker.busy {
                if worker.is_idle() && self.has_surplus() {
                    self.retire(key);
                }
                continue;
            }
            let progress = worker.progress();
            let bundle = worker.bundle.and_then(|id| self.bundles.get(&id));
            // A worker that has not come to its calls is not in one that takes
            // long.
            let waits = now < worker.begin_by
                && bundle.is_some_and(|bundle| progress.unclaimed == u64::from(bundle.live));
            // Answers that were there at the last look can be read, whatever
            // the order in which this processor sees another's writes.
            let is_stalled = worker.looked == Some(progress) && !waits;
            if !is_stalled || !self.reclaim_unbegun(key, progress.bytes, clock) {
                let Some(worker) = self.workers.get_mut(&key) else { continue };
                worker.looked = Some(worker.progress());
                worker.look_at = Some(now + Duration::from_millis(LOOK_MS));
            }
        }
    }

    /// Leaves a worker only the calls that it has begun, or the first, and
    /// takes in those that have ended. `false` if answers to some of these are
    /// under way as a message, which comes first.
    fn reclaim_unbegun(&mut self, key: u64, bytes: u64, clock: &Clock) -> bool {
        let Some(worker) = self.workers.get(&key) else { return true };
        let Some(id) = worker.bundle else { return true };
        let Some(bundle) = self.bundles.get_mut(&id) else { return true };
        // Without any call the bundle would hold no room, and the task that
        // takes the room would have no worker.
        let left = worker.take_back_some(bundle.live.saturating_sub(1));
        let answers = worker.buffered(bytes);
        let begun = bundle.live.saturating_sub(left);
        give_back(bundle, begun, &mut self.events);
        let Some(answers) = answers else { return false };
        let first = Answers::new(&answers).next().and_then(Result::ok);
        if first.is_some_and(|first| (bundle.answered + 1..begun).contains(&first.index)) {
            return false;
        }
        // The last answer comes with the notice that the worker is idle: then
        // there is a worker for the task that takes the room.
        if let Err(error) = self.take_answers(key, &answers, begun.saturating_sub(1), clock) {
            self.distrust(key, &format!("it wrote no answer: {error}"));
        }
        true
    }

    /// Ends a call: one that runs with its worker, which is asked to end
    /// itself first and has `grace` for that.
    pub(crate) fn kill(&mut self, key: TaskKey, grace: Duration, clock: &Clock) {
        let found = self
            .bundles
            .iter_mut()
            .find_map(|(id, bundle)| bundle.index(key).map(|index| (*id, index, bundle)));
        let Some((id, index, bundle)) = found else { return };
        let Some(at) = bundle.worker else {
            if index > 0 {
                give_back(bundle, index, &mut self.events);
                return;
            }
            let home = bundle.home.clone();
            give_back(bundle, 1, &mut self.events);
            if let Some(waiting) = self.waiting.get_mut(&home) {
                waiting.retain(|one| *one != id);
            }
            self.bundles.remove(&id);
            let (outcome, now) = (Outcome::Signal(libc::SIGTERM), clock.now());
            let (started, ended) = (now, now);
            self.events.push_back(Event::Ended { key, outcome, started, ended, detail: None });
            return;
        };
        let Some(worker) = self.workers.get_mut(&at) else { return };
        let begun = bundle.live.saturating_sub(worker.take_back());
        give_back(bundle, begun, &mut self.events);
        // Only the call begun last can be running; the answers to those before
        // it are on their way.
        if index + 1 == begun {
            worker.retired = true;
            self.kills.push((at, grace));
        }
    }

    /// The process that had started a worker was killed, and it with that: its
    /// calls are lost.
    pub(crate) fn lost(&mut self, ended: Ended, clock: &Clock) {
        if let Some(worker) = self.workers.get_mut(&ended.key) {
            worker.lost = true;
        }
        self.ended(ended, clock);
    }

    /// A worker's process has ended.
    pub(crate) fn ended(&mut self, ended: Ended, clock: &Clock) {
        let key = ended.key;
        if self.templates.ended(&ended) || self.start_uncopied(&ended) {
            return;
        }
        let Some(worker) = self.workers.get_mut(&key) else { return };
        worker.ended = Some(ended);
        if worker.closed || !worker.connected {
            self.bury(key, clock);
        } else {
            // The last messages of the worker may still be on their way.
            worker.look_at = Some(Instant::now() + Duration::from_millis(CLOSE_MS_MAX));
        }
    }

    /// A worker is gone: ends the call it was in, and gives the others back.
    pub(super) fn bury(&mut self, key: u64, clock: &Clock) {
        let Some(worker) = self.workers.get(&key) else { return };
        if let Some(id) = worker.bundle {
            let bytes = worker.buffered_bytes().unwrap_or(0);
            let (left, answers) = (worker.take_back(), worker.buffered(bytes));
            if let Some(bundle) = self.bundles.get_mut(&id) {
                let begun = bundle.live.saturating_sub(left);
                give_back(bundle, begun, &mut self.events);
            }
            // The worker may have died while it wrote an answer. Dead workers
            // send nothing, so the answers are in the buffer.
            let _ = self.take_answers(key, &answers.unwrap_or_default(), u32::MAX, clock);
        }
        let Some(worker) = self.workers.remove(&key) else { return };
        if let Some(idle) = self.idle.get_mut(&worker.home) {
            idle.retain(|one| *one != key);
            if idle.is_empty() {
                self.idle.remove(&worker.home);
            }
        }
        let bundle = worker.bundle.and_then(|id| self.bundles.remove(&id));
        if let Some(bundle) = bundle {
            self.end_with(&worker, &bundle, clock);
        } else if !worker.ready && worker.lost {
            // Another can be started; but these calls may have to do with it.
            for id in self.waiting.remove(&worker.home).unwrap_or_default() {
                self.fail(id, Outcome::Lost, &Reason::from(HOST_LOST.to_owned()), clock);
            }
        } else if !worker.ready {
            let was_killed = was_killed(&worker);
            let is_needed = self.waits(&worker.home);
            if !was_killed || is_needed && !self.restarts.killed(&worker.home, Instant::now()) {
                let mut error = not_ready(&worker);
                if was_killed {
                    error = format!("{error}; so did {KILLED_MAX} before it");
                }
                self.fail_home(&worker.home, &error, clock);
            }
        }
        worker.remove_files();
    }

    /// Ends the calls that a worker had begun and did not answer: the last is
    /// the one it died in.
    fn end_with(&mut self, worker: &Worker, bundle: &Bundle, clock: &Clock) {
        let Some(process) = &worker.ended else { return };
        // A worker that was killed for its call's timeout, or with its host, is
        // not to blame.
        let was_ended = worker.lost || worker.retired && worker.trouble.is_empty();
        let cause = (!was_ended).then_some(Cause::WorkerDied);
        let (outcome, mut error) = match process.outcome {
            _ if process.shortage == Some(Shortage::OfSystem) => {
                (Outcome::Lost, NODE_OUT_OF_MEMORY.to_owned())
            }
            _ if worker.lost => (Outcome::Lost, HOST_LOST.to_owned()),
            ProcessOutcome::Exit(code) => (
                Outcome::Exit(if code == 0 { 1 } else { code }),
                format!("its worker exited with {code} in the middle of the call"),
            ),
            ProcessOutcome::Signal(signal) => (
                Outcome::Signal(signal),
                format!("signal {signal} ended its worker in the middle of the call"),
            ),
            ProcessOutcome::NotStarted { .. } => return,
        };
        if !worker.trouble.is_empty() {
            error = format!("{error} ({})", worker.trouble);
        }
        let now = clock.now();
        let mut last_words = Some(worker.last_words(self.capture_bytes_max));
        for index in (bundle.answered..bundle.live).rev() {
            let [stdout, stderr] = last_words.take().unwrap_or_default();
            let started = clock.at_monotonic(process.started).max(bundle.since);
            let key = bundle.key(index);
            let (outputs, capture, mut error) =
                (&self.outputs, self.capture_bytes_max, error.clone());
            let mut kept =
                |stream, captured| outputs.adopted(key, stream, captured, capture, &mut error);
            let (stdout, stderr) = (kept(Stream::Stdout, stdout), kept(Stream::Stderr, stderr));
            let detail = Detail { stdout, stderr, error, cause, ..Detail::default() };
            let detail = Some(Arc::new(detail));
            let event = Event::Ended { key, outcome, started, ended: now.max(started), detail };
            self.events.push_back(event);
        }
    }
}

/// Whether a worker that never took calls was ended by anything but itself and
/// this executor.
fn was_killed(worker: &Worker) -> bool {
    let by_signal = worker
        .ended
        .as_ref()
        .is_some_and(|process| matches!(process.outcome, ProcessOutcome::Signal(_)));
    by_signal && !worker.retired && worker.trouble.is_empty()
}
