//! The load of an executor, for whoever looks, and its bounds.

use super::Executor;
use crate::dispatch::{Held, HeldAlternative};
use crate::limits::{JOIN_ALTERNATIVES_MAX, JOIN_RUNS_MAX, RUNNING_TASKS_MAX};
use crate::task::{Resources, TaskId};
use std::collections::VecDeque;

impl Executor {
    /// Tasks queued, and tasks running, here.
    #[must_use]
    pub fn load(&self) -> (u64, u64) {
        let queued: u64 = self.queue.iter().map(|run| run.count).sum();
        let started: u64 = self.running.values().map(|run| run.count).sum();
        let waiting = self.chains.follower_count() as u64;
        (queued + waiting, started - waiting)
    }

    /// What is free of the capacity.
    #[must_use]
    pub fn free(&self) -> &Resources {
        self.room.free()
    }

    /// Gives memory back that is kept for events to come: who holds very many executors
    /// calls it now and then.
    pub fn give_memory_back(&mut self) {
        if self.actions.is_empty() {
            self.actions = VecDeque::new();
        }
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
        self.updates.give_memory_back();
    }

    /// Adds what waits to the tasks that the executor has. What is not named is
    /// sent again, so that of too many runs the last are dropped here.
    pub(super) fn hold_queued(&mut self, held: &mut Vec<Held>) {
        held.truncate(JOIN_RUNS_MAX);
        held.extend(self.queue.iter().map(|run| Held {
            instance: run.instance,
            first: TaskId(run.first),
            count: run.count,
            tries: run.tries,
        }));
        if held.len() > JOIN_RUNS_MAX {
            let dropped = held.split_off(JOIN_RUNS_MAX);
            self.drop_queued(&dropped, None);
        }
    }

    /// The started and the waiting tasks that have one of several alternatives.
    pub(super) fn held_alternatives(&self) -> Vec<HeldAlternative> {
        let running = self.running.iter().map(|(key, run)| {
            let (instance, first, count, tries) = (key.instance, key.task, run.count, run.tries);
            (run.class.alternative, Held { instance, first, count, tries })
        });
        let queued = self.queue.iter().map(|run| {
            let (instance, first) = (run.instance, TaskId(run.first));
            let (count, tries) = (run.count, run.tries);
            (run.class.alternative, Held { instance, first, count, tries })
        });
        let several = running.chain(queued).filter(|(alternative, _)| *alternative > 0);
        let several = several.map(|(alternative, held)| HeldAlternative { held, alternative });
        several.take(JOIN_ALTERNATIVES_MAX).collect()
    }

    /// Whether it has as much on its hands as it can tell of.
    pub(super) fn is_laden(&self) -> bool {
        self.updates.is_full()
            || self.collecting.is_full()
            || self.running.len() + self.finishing_count() >= RUNNING_TASKS_MAX
    }
}
