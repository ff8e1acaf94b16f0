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

use super::end::End;
use super::{Action, Executor, Killed, Queued, Running, TaskKey};
use crate::dispatch::Held;
use crate::limits::{
    AHEAD_CHAIN_TASKS_MAX, AHEAD_SEARCH_TASKS_MAX, AHEAD_TASKS_MAX, AHEAD_WORK_MICROS,
    BACKFILL_RUNS_MAX,
};
use crate::result::{Outcome, Report};
use crate::task::{Kind, TaskId, Time};

/// What makes a started task one that waits for another to end.
#[derive(Debug)]
pub(super) struct Waits {
    /// Its chain.
    pub(super) chain: u64,
    /// What goes back into the queue.
    pub(super) queued: Queued,
    /// It was asked for.
    pub(super) asked: Option<Asked>,
}

/// Who asked for a task that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// There is room for it here.
    Here,
    /// The dispatcher, whose recall is not answered until this is settled.
    Dispatcher,
}

impl Executor {
    /// Hands over the front of the queue, task by task, each to come after a
    /// running one with the same needs, where the fewest wait. Nothing behind
    /// the front is looked at: what it waits for must not pass to others for
    /// ever. But tasks whose inputs are still coming are passed over, as they
    /// are where there is room.
    pub(super) fn start_ahead(&mut self) {
        let depth = self.chain_depth();
        let mut at = 0;
        while self.waiting.len() < AHEAD_TASKS_MAX && !self.outbox.is_full() {
            let Some(front) = self.queue.get(at).filter(|_| at < BACKFILL_RUNS_MAX) else { return };
            if front.class.kind != Kind::Process || self.is_running(front.instance, front.first, 1)
            {
                return;
            }
            if front.data.is_some() && !self.is_ready(front.key()) {
                at += 1;
                continue;
            }
            let leader = self
                .leaders
                .iter()
                .take(AHEAD_SEARCH_TASKS_MAX)
                .take_while(|(followers, _)| *followers < depth)
                .find(|(followers, leader)| {
                    // The shell would not know where to put it, if what it is to come after may
                    // be on its way back.
                    (*followers == 0 || self.in_doubt == 0)
                        && self.running.get(leader).is_some_and(|run| {
                            run.killed.is_none()
                                && self.is_last_through_at_its_end(run)
                                && run.class.resources == front.class.resources
                        })
                });
            let Some(&(followers, leader)) = leader else { return };
            let Some(next) = self.take_queued(at, 1) else { return };
            let Some(run) = self.running.get_mut(&leader) else { return };
            let chain = run.chain;
            let behind = run.followers.back().copied().unwrap_or(leader);
            let gpus = run.gpus.clone();
            run.followers.push_back(next.key());
            self.leaders.remove(&(followers, leader));
            self.leaders.insert((followers + 1, leader));
            let waits = Waits { chain, queued: next.clone(), asked: None };
            self.waiting.insert(next.key());
            self.start(next, Vec::new(), gpus, Some((behind, waits)));
            self.drain_stage();
        }
    }

    /// Whether the last task of a running one's chain is through when its
    /// process has ended: one that writes to a persistent store holds its room
    /// until that has what it wrote.
    fn is_last_through_at_its_end(&self, leader: &Running) -> bool {
        if self.data.is_none() {
            return true;
        }
        let last = leader.followers.back().and_then(|key| self.running.get(key));
        let data = last.unwrap_or(leader).data.as_ref();
        data.is_none_or(|data| !data.writes_to_store())
    }

    /// How many tasks may wait behind each that runs: one, and more only if
    /// together they are little work, as none of them can start elsewhere
    /// without being taken back.
    fn chain_depth(&self) -> usize {
        match self.mean_micros {
            None => 1,
            Some(mean) => {
                let depth = AHEAD_WORK_MICROS / mean.max(1);
                usize::try_from(depth).unwrap_or(usize::MAX).clamp(1, AHEAD_CHAIN_TASKS_MAX)
            }
        }
    }

    /// A process ran for so long.
    pub(super) fn note_run_time(&mut self, micros: u64) {
        self.mean_micros = Some(match self.mean_micros {
            None => micros,
            Some(mean) => mean - mean / 8 + micros / 8,
        });
    }

    /// Room has become free and nothing else is there to take it: one that
    /// waits is asked for, to be started at once; the last, as the first may
    /// start where it is before it hears of this.
    pub(super) fn ask_for_one_here(&mut self) {
        if self.free.cpus_milli == 0 || self.waiting.is_empty() || self.outbox.is_full() {
            return;
        }
        let is_coming = |run: &Queued| run.data.is_some() && !self.is_ready(run.key());
        if !self.queue.iter().take(BACKFILL_RUNS_MAX).all(is_coming) {
            return;
        }
        let fitting = self.waiting.iter().rev().copied().find(|key| {
            self.running.get(key).is_some_and(|run| {
                run.killed.is_none()
                    && run.waits.as_ref().is_some_and(|waits| waits.asked.is_none())
                    && self.free.fits(&run.class.resources)
            })
        });
        if let Some(key) = fitting {
            self.ask_for(key, Asked::Here);
        }
    }

    /// Asks for up to `count` tasks that wait, for the dispatcher, the last
    /// first.
    pub(super) fn ask_for_dispatcher(&mut self, count: u64) {
        let keys: Vec<TaskKey> = self
            .waiting
            .iter()
            .rev()
            .copied()
            .filter(|key| {
                self.running.get(key).is_some_and(|run| {
                    let asked = run.waits.as_ref().and_then(|waits| waits.asked);
                    run.killed.is_none() && asked != Some(Asked::Dispatcher)
                })
            })
            .take(usize::try_from(count).unwrap_or(usize::MAX))
            .collect();
        for key in keys {
            self.ask_for(key, Asked::Dispatcher);
        }
    }

    fn ask_for(&mut self, key: TaskKey, who: Asked) {
        let Some(run) = self.running.get_mut(&key) else { return };
        let in_doubt = run.is_in_doubt();
        let Some(waits) = run.waits.as_mut() else { return };
        if waits.asked.is_none() {
            self.actions.push_back(Action::TakeBack(key));
        }
        self.in_doubt += u64::from(!in_doubt);
        waits.asked = Some(who);
        self.asked_for += u64::from(who == Asked::Dispatcher);
    }

    /// A task that was to come after another will not start.
    pub(super) fn taken_back(&mut self, key: TaskKey) {
        let Some(run) = self.running.get_mut(&key) else { return };
        if run.waits.is_none() {
            // The one before it ended while the word to take it back was on
            // its way, and that word came first.
            match run.moved_up.take() {
                Some(waits) if run.killed.is_none() => {
                    self.vacate(key, Some(self.now));
                    self.queue_again(waits.queued);
                }
                _ => {
                    let (outcome, now) = (Outcome::NotRun, self.now);
                    self.ended(End { key, outcome, started: now, ended: now, detail: None });
                }
            }
            return;
        }
        let Some(mut run) = self.running.remove(&key) else { return };
        let Some(waits) = self.unchain(key, &mut run) else { return };
        self.startable = true;
        if run.killed.is_none() && waits.asked != Some(Asked::Dispatcher) && !self.leaving {
            self.queue_again(waits.queued);
            return;
        }
        self.release_template(run.template);
        let (instance, first, count, tries) = (key.instance, key.task, run.count, run.tries);
        let report = match run.killed {
            None => {
                self.outbox.give_back(Held { instance, first, count, tries });
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
            (None, Some(report)) => self.outbox.push(report),
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

    /// A task that waited waits no more, for whatever reason: those behind it
    /// move up.
    pub(super) fn unchain(&mut self, key: TaskKey, run: &mut Running) -> Option<Box<Waits>> {
        let in_doubt = run.is_in_doubt();
        let waits = run.waits.take()?;
        self.waiting.remove(&key);
        self.in_doubt -= u64::from(in_doubt);
        if let Some(head) = self.chains.get(&waits.chain).copied()
            && let Some(leader) = self.running.get_mut(&head)
        {
            self.leaders.remove(&(leader.followers.len(), head));
            leader.followers.retain(|follower| *follower != key);
            self.leaders.insert((leader.followers.len(), head));
        }
        self.settle(waits.asked);
        Some(waits)
    }

    fn settle(&mut self, asked: Option<Asked>) {
        if asked == Some(Asked::Dispatcher) {
            self.asked_for -= 1;
            if self.asked_for == 0 {
                self.outbox.recalled();
            }
        }
    }

    /// A task has ended at `ended`: the one that comes after it has its room
    /// now, and runs, with the others behind it. Returns whether there is one.
    pub(super) fn move_up(&mut self, before: &mut Running, ended: Time) -> bool {
        let mut followers = std::mem::take(&mut before.followers);
        let next = followers.pop_front();
        let Some((key, run)) = next.and_then(|key| Some((key, self.running.get_mut(&key)?))) else {
            self.chains.remove(&before.chain);
            return false;
        };
        self.in_doubt -= u64::from(run.is_in_doubt());
        run.moved_up = run.waits.take();
        let asked = run.moved_up.as_ref().and_then(|waits| waits.asked);
        if run.class.timeout_micros > 0 {
            let at = ended.after(run.class.timeout_micros);
            run.deadline = Some(at);
            self.deadlines.insert((at, key));
        }
        self.waiting.remove(&key);
        self.leaders.insert((followers.len(), key));
        self.chains.insert(before.chain, key);
        run.chain = before.chain;
        run.followers = followers;
        self.settle(asked);
        true
    }
}

impl Running {
    /// It waits, and may be on its way back.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.waits.as_ref().is_some_and(|waits| waits.asked.is_some() || self.killed.is_some())
    }
}

impl Queued {
    pub(super) fn key(&self) -> TaskKey {
        TaskKey { instance: self.instance, task: TaskId(self.first) }
    }
}
