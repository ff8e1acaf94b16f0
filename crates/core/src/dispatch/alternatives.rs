//! Tasks with alternatives: several requests for resources, of which one is chosen when a task is
//! sent to an executor.
//!
//! Ready tasks of a class with alternatives share a queue whose need has all of them
//! ([`Need::others`](super::needs::Need)). Each alternative has a need of its own besides, and so
//! has what is in flight: what an executor has of a task, and gives back, is what it was sent
//! with. Tasks that come back are in the queue of their class again, and may be sent with another
//! alternative. None is sent ahead of free room: it would be bound to one alternative before it is
//! known which comes free.

use super::HeldAlternative;
use super::fleet::Executor;
use super::instance::{Batch, Instance, QueueKey, ReadyRun};
use super::needs::{Need, NeedId, Needs};
use super::queues::key_of;
use crate::limits::ALTERNATIVES_MAX;
use crate::result::Tries;
use crate::runset::RunSet;
use crate::task::{InstanceId, Submission, TaskId};
use std::collections::BTreeMap;

/// The need that tasks are sent with, and which one of the alternatives of their class it is,
/// from 1; 0 if the class has one alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) need: NeedId,
    pub(super) alternative: u32,
}

impl Chosen {
    /// A need of tasks that have no alternatives.
    pub(super) fn only(need: NeedId) -> Chosen {
        Chosen { need, alternative: 0 }
    }

    /// The number of an alternative, which counts from 1, and its need.
    fn numbered((alternative, need): (u32, &NeedId)) -> Chosen {
        Chosen { need: *need, alternative }
    }
}

/// Where the needs of the alternatives of each class begin among those of a batch; nothing
/// where no class has any.
pub(super) fn begins_of(submission: &Submission) -> Vec<u32> {
    if !submission.has_alternatives() {
        return Vec::new();
    }
    // Each has at least one byte of a submission: there are fewer than 32 bits count.
    let mut next = submission.classes.len() as u32;
    let begins = submission.classes.iter().map(|class| {
        let begin = next;
        if class.has_alternatives() {
            next += class.requests().count() as u32;
        }
        begin
    });
    begins.collect()
}

/// How many needs the tasks of a submission have, with those of alternatives.
pub(super) fn need_count(submission: &Submission) -> usize {
    let several = submission.classes.iter().filter(|class| class.has_alternatives());
    submission.classes.len() + several.map(|class| class.requests().count()).sum::<usize>()
}

impl Batch {
    /// The needs of the alternatives of a class; none if it has one alone.
    pub(super) fn alternatives_of(&self, class: u32) -> &[NeedId] {
        let several = self.submission.classes.get(class as usize);
        let several = several.filter(|class| class.has_alternatives());
        let begin = self.alternatives.get(class as usize);
        let Some((class, begin)) = several.zip(begin) else { return &[] };
        let begin = *begin as usize;
        self.needs.get(begin..begin + class.requests().count()).unwrap_or(&[])
    }

    /// The need and the number of an alternative of a class: of the first if there is none of
    /// that number.
    pub(super) fn alternative(&self, class: u32, number: u32) -> Option<Chosen> {
        let needs = self.alternatives_of(class);
        let Some(first) = needs.first() else {
            return self.needs.get(class as usize).copied().map(Chosen::only);
        };
        let asked = (1..).zip(needs).find(|(at, _)| *at == number);
        Some(Chosen::numbered(asked.unwrap_or((1, first))))
    }

    /// The class that executors know tasks by that were sent with an alternative, see
    /// [`Submission::sent_classes`].
    pub(super) fn sent_class(&self, class: u32, alternative: u32) -> u32 {
        match (alternative.checked_sub(1), self.alternatives.get(class as usize)) {
            (Some(at), Some(begin)) => begin + at,
            _ => class,
        }
    }
}

impl Instance {
    /// Whether tasks of one batch and class have alternatives.
    pub(super) fn has_alternatives(&self, run: &ReadyRun) -> bool {
        let batch = self.batch_of(TaskId(run.first));
        batch.is_some_and(|batch| !batch.alternatives_of(run.class).is_empty())
    }

    /// The need and the alternative with which a task of a queue, the next one if none is named,
    /// is sent to an executor: the first alternative that it has free room for; without any, the
    /// first that it offers. `may_have` says whether the instance's user may have something of a
    /// need.
    pub(super) fn choose(
        &self,
        (key, task): (QueueKey, Option<(u64, u32)>),
        executor: &Executor,
        needs: &Needs,
        may_have: impl Fn(&Need) -> bool,
    ) -> Chosen {
        if !needs[key.1].has_alternatives() {
            return Chosen::only(key.1);
        }
        let task = task.or_else(|| self.queues.find(&key)?.next());
        let batch = task.and_then(|(task, class)| Some((self.batch_of(TaskId(task))?, class)));
        let alternatives = batch.map_or(&[][..], |(batch, class)| batch.alternatives_of(class));
        let numbered = || (1..).zip(alternatives);
        let offered = || numbered().filter(|(_, need)| executor.offers(&needs[**need]));
        let allowed = || offered().filter(|(_, need)| may_have(&needs[**need]));
        let is_free = |need: &Need| executor.free.count_of(&need.resources, 1) > 0;
        let mut free = allowed().filter(|(_, need)| is_free(&needs[**need]));
        let chosen = free.next().or_else(|| allowed().next());
        let chosen = chosen.or_else(|| offered().next()).or_else(|| numbered().next());
        chosen.map_or(Chosen::only(key.1), Chosen::numbered)
    }

    /// The need of the queue that tasks in flight came from, and of those like them.
    pub(super) fn need_of_class(&self, task: u64, class: u32) -> Option<NeedId> {
        self.batch_of(TaskId(task))?.needs.get(class as usize).copied()
    }

    /// Takes a run time of tasks in flight into account: for others of the same alternative, and
    /// for those of their class that wait.
    pub(super) fn measure(
        &mut self,
        needs: &Needs,
        (task, class): (u64, u32),
        Chosen { need, alternative }: Chosen,
        (micros, count): (u64, u64),
    ) {
        self.queues.measure(&key_of(&needs[need], need), micros, count);
        if alternative > 0
            && let Some(need) = self.need_of_class(task, class)
        {
            self.queues.measure(&key_of(&needs[need], need), micros, count);
        }
    }
}

/// What an executor that joins says of the alternatives that its tasks have.
#[derive(Debug)]
pub(super) struct Said(BTreeMap<(InstanceId, Tries), BTreeMap<u32, RunSet>>);

impl Said {
    pub(super) fn new(said: &[HeldAlternative]) -> Said {
        let mut all = Said(BTreeMap::new());
        for HeldAlternative { held, alternative } in said {
            let is_known = (1..=ALTERNATIVES_MAX as u32).contains(alternative);
            if is_known && held.count > 0 && held.first.0.checked_add(held.count).is_some() {
                let of = all.0.entry((held.instance, held.tries)).or_default();
                of.entry(*alternative).or_default().insert(held.first.0, held.count);
            }
        }
        all
    }

    /// Tasks, divided by their alternatives; 0 is one that it does not say.
    pub(super) fn divide(&self, of: (InstanceId, Tries), run: ReadyRun) -> Vec<(ReadyRun, u32)> {
        let mut rest = RunSet::default();
        rest.insert(run.first, run.count);
        let mut divided = Vec::new();
        for (alternative, tasks) in self.0.get(&of).into_iter().flatten() {
            for (first, count) in tasks.within(run.first, run.count) {
                for (first, count) in rest.within(first, count) {
                    divided.push((ReadyRun { first, count, ..run }, *alternative));
                    rest.remove(first, count);
                }
            }
        }
        divided.extend(rest.iter().map(|(first, count)| (ReadyRun { first, count, ..run }, 0)));
        divided
    }
}
