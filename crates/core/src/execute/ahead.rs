//! Tasks that are started to come after others, in their place.
//!
//! Between a process's end and the start of the next one lie three messages
//! and as many threads to wake. So a task that waits for room is handed over
//! while one with the same needs still runs: the shell starts it the moment
//! that one ends, and its room, its GPUs with it, passes on. Until then it is
//! as good as queued: it holds nothing, its timeout does not run, and it can
//! be taken back, for the dispatcher or for room that becomes free here.
//!
//! Where tasks are short, several come one after the other behind the one that
//! runs, so that the shell need not tell of each end by itself.

use super::chains::{Asked, Leader, RecallAnswered};
use super::end::End;
use super::{Action, Executor, Killed, Link, Queued, Running, TaskKey};
use crate::dispatch::Held;
use crate::limits::{AHEAD_TASKS_MAX, BACKFILL_RUNS_MAX};
use crate::result::{Outcome, Report};
use crate::task::{Kind, TaskId, Time};

impl Executor {
    /// Hands over the front of the queue, task by task, each to come after a
    /// running one with the same needs, where the fewest wait. Nothing behind
    /// the front is looked at: what it waits for must not pass to others for
    /// ever. But tasks whose inputs are still coming are passed over, as they
    /// are where there is room.
    pub(super) fn start_ahead(&mut self) {
        let mut at = 0;
        if self.gangs.are_waiting() {
            return;
        }
        while self.chains.follower_count() < AHEAD_TASKS_MAX && !self.updates.is_full() {
            let Some(front) = self.queue.get(at).filter(|_| at < BACKFILL_RUNS_MAX) else { return };
            if front.class.is_gang() {
                at += 1;
                continue;
            }
            // A scratch directory is empty when its task starts, and the space of the task before
            // is free only when its directory is gone.
            if front.class.kind != Kind::Process
                || front.class.resources.disk_bytes() > 0
                || self.is_running(front.instance, front.first, 1)
            {
                return;
            }
            if front.data.is_some() && !self.is_ready(front.key()) {
                at += 1;
                continue;
            }
            let chain = self.chains.open().find_map(|(leader, last, chain)| {
                let leader = self.running.find(&leader)?;
                let takes = leader.killed.is_none()
                    && self.is_through_at_its_end(last)
                    && leader.class.resources == front.class.resources;
                takes.then(|| (chain, last, leader.grant.clone()))
            });
            let Some((chain, last, grant)) = chain else { return };
            let Some(next) = self.take_queued(at, 1) else { return };
            let follower = self.chains.follow(chain, next.clone());
            self.start_after(next, grant, last, follower);
            self.drain_stage();
        }
    }

    /// Whether the last task of a chain is through when its process has ended:
    /// one that writes to a persistent store holds its room until that has what
    /// it wrote.
    fn is_through_at_its_end(&self, last: TaskKey) -> bool {
        if self.data.is_none() {
            return true;
        }
        let data = self.running.find(&last).and_then(|run| run.data.as_ref());
        data.is_none_or(|data| !data.writes_to_store())
    }

    /// Room has become free and nothing else is there to take it: one that
    /// waits is asked for, to be started at once; the last, as the first may
    /// start where it is before it hears of this.
    pub(super) fn ask_for_one_here(&mut self) {
        if self.gangs.are_waiting()
            || self.room.is_full()
            || self.chains.follower_count() == 0
            || self.updates.is_full()
        {
            return;
        }
        let is_coming =
            |run: &Queued| run.class.is_gang() || (run.data.is_some() && !self.is_ready(run.key()));
        if !self.queue.iter().take(BACKFILL_RUNS_MAX).all(is_coming) {
            return;
        }
        let fitting = self.chains.followers().rev().find(|key| {
            self.may_ask_for(*key, |run, asked| {
                asked.is_none() && self.room.fits(&run.class.resources)
            })
        });
        if let Some(key) = fitting {
            self.ask_for(key, Asked::Here);
        }
    }

    /// Asks for up to `count` tasks that wait, for the dispatcher, the last
    /// first.
    pub(super) fn ask_for_dispatcher(&mut self, count: u64) {
        let is_free =
            |key: &TaskKey| self.may_ask_for(*key, |_, asked| asked != Some(Asked::Dispatcher));
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let keys: Vec<TaskKey> =
            self.chains.followers().rev().filter(is_free).take(count).collect();
        for key in keys {
            self.ask_for(key, Asked::Dispatcher);
        }
    }

    fn may_ask_for(&self, key: TaskKey, may: impl Fn(&Running, Option<Asked>) -> bool) -> bool {
        self.running.find(&key).is_some_and(|run| {
            let asked = run.follower().and_then(|follower| follower.asked());
            run.killed.is_none() && may(run, asked)
        })
    }

    fn ask_for(&mut self, key: TaskKey, who: Asked) {
        let run = self.running.find_mut(&key);
        if let Some(Link::Follows(follower)) = run.map(|run| &mut run.link)
            && self.chains.ask(follower, who)
        {
            self.actions.push_back(Action::TakeBack(key));
        }
    }

    /// A task that was to come after another will not start.
    pub(super) fn taken_back(&mut self, key: TaskKey) {
        let Some(run) = self.running.find_mut(&key) else { return };
        let killed = run.killed;
        let queued = match &mut run.link {
            // The one before it ended while the request to take it back was on
            // its way, and the request came first.
            Link::Leads(leader) if killed.is_none() => leader.take_queued(),
            _ => None,
        };
        let is_follower = run.follower().is_some();
        if let Some(queued) = queued {
            self.vacate(key, Some(self.now));
            self.queue_again(queued);
            return;
        }
        if !is_follower {
            let (outcome, now) = (Outcome::NotRun, self.now);
            return self.ended(End { key, outcome, started: now, ended: now, detail: None });
        }
        let Some(run) = self.vacate(key, None) else { return };
        let Link::Follows(follower) = run.link else { return };
        let is_recalled = follower.asked() == Some(Asked::Dispatcher);
        if killed.is_none() && !is_recalled && !self.is_leaving() {
            self.queue_again(follower.into_queued());
            return;
        }
        self.release_template(run.template);
        let (instance, first, count, tries) = (key.instance, key.task, run.count, run.tries);
        let report = match killed {
            None => {
                self.updates.give_back(Held { instance, first, count, tries });
                None
            }
            Some(Killed::Disowned) => None,
            Some(Killed::Cancelled | Killed::Timeout) => Some(Report {
                instance,
                first,
                count,
                tries,
                outcome: Outcome::Cancelled,
                started: self.now,
                ended: self.now,
                detail: None,
            }),
        };
        match (&run.data, report) {
            (Some(task), report) => self.finish(key, task, report),
            (None, Some(report)) => self.updates.push(report),
            (None, None) => {}
        }
    }

    /// Puts a task that was taken back where it came from.
    fn queue_again(&mut self, queued: Queued) {
        if let Some(task) = &queued.data {
            self.unstart(queued.key(), task);
        }
        self.queue.push_front(queued);
    }

    /// A task has ended at `ended`: the one that comes after it has its room
    /// now, and runs, with the others behind it. Returns whether there is one.
    pub(super) fn move_up(&mut self, before: &Leader, ended: Time) -> bool {
        let Some(key) = self.chains.end(before) else { return false };
        let run = self.started(key);
        let timeout_micros = run.class.timeout_micros;
        let deadline = (timeout_micros > 0).then(|| ended.after(timeout_micros));
        run.deadline = deadline;
        let Link::Follows(follower) = std::mem::replace(&mut run.link, Link::Alone) else {
            unreachable!("task {} follows in a chain", key.task);
        };
        let (leader, answered) = self.chains.move_up(key, follower);
        self.started(key).link = Link::Leads(leader);
        self.deadlines.extend(deadline.map(|at| (at, key)));
        self.answer_recall(answered);
        true
    }

    pub(super) fn answer_recall(&mut self, answered: Option<RecallAnswered>) {
        if let Some(RecallAnswered) = answered {
            self.updates.recalled();
        }
    }
}

impl Queued {
    pub(super) fn key(&self) -> TaskKey {
        self.key_at(0)
    }

    /// The key of one of its tasks, counted from the first.
    pub(super) fn key_at(&self, at: u64) -> TaskKey {
        TaskKey { instance: self.instance, task: TaskId(self.first + at) }
    }
}
