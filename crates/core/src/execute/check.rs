//! The state checker: what must hold after every step. Tests and the
//! simulator run it; it costs time in proportion to the state.

use super::ahead::Asked;
use super::{Executor, Killed, TaskKey, TemplateId};
use crate::dispatch::CheckError;
use crate::dispatch::check::ensure;
use crate::task::Kind;
use std::collections::{BTreeMap, BTreeSet};

impl Executor {
    /// Checks the whole state.
    ///
    /// # Errors
    /// Says what does not hold.
    pub fn check(&self) -> Result<(), CheckError> {
        self.check_room()?;
        self.check_deadlines()?;
        self.check_doubts()?;
        self.check_chains()?;
        self.check_templates()?;
        self.check_data()?;
        self.outbox.check()
    }

    /// What is free and what running tasks hold make the capacity.
    fn check_room(&self) -> Result<(), CheckError> {
        let mut free = self.capacity.clone();
        let mut gpus: BTreeSet<u32> = self.free_gpus.clone();
        let mut before = None;
        for (key, run) in &self.running {
            let (instance, first) = (key.instance, key.task.0);
            let apart = before.is_none_or(|(of, end)| of != instance || end <= first);
            ensure!(apart, "task {first} of instance {instance} runs twice");
            ensure!(run.count > 0, "task {first} of instance {instance}: an empty run runs");
            before = Some((instance, first + run.count));
            if run.class.kind == Kind::Noop || run.waits.is_some() {
                continue;
            }
            if let Some(next) = run.next {
                let behind = self.running.get(&next).and_then(|next| next.behind);
                ensure!(
                    behind == Some(*key),
                    "task {first} of instance {instance} has lost a call"
                );
            }
            if let Some(ahead) = run.behind {
                let function = run.class.kind == Kind::Function && run.gpus.is_empty();
                ensure!(function, "task {first} of instance {instance} has nothing to be behind");
                let led = self.running.get(&ahead).is_some_and(|ahead| ahead.next == Some(*key));
                ensure!(led, "task {first} of instance {instance} is behind a task that is gone");
                ensure!(
                    run.deadline.is_none(),
                    "task {first} of instance {instance} has its deadline early"
                );
                continue;
            }
            let need = &run.class.resources;
            ensure!(run.count == 1, "task {first} of instance {instance} is not alone");
            ensure!(free.fits(need), "more runs than there is room for");
            free.take(need, 1);
            ensure!(
                run.gpus.len() == need.gpus as usize,
                "task {first} of instance {instance} has {} gpus instead of {}",
                run.gpus.len(),
                need.gpus
            );
            for gpu in &run.gpus {
                ensure!(gpus.insert(*gpu), "gpu {gpu} is given out twice");
            }
        }
        ensure!(free == self.free, "free room is miscounted");
        ensure!(gpus.iter().copied().eq(0..self.capacity.gpus), "a gpu is nowhere");
        ensure!(self.free_gpus.len() == self.free.gpus as usize, "free gpus are miscounted");
        Ok(())
    }

    /// What waits comes after something that runs and holds what it needs, and
    /// each after another.
    fn check_chains(&self) -> Result<(), CheckError> {
        let (mut asked, mut in_doubt, mut followers, mut chains) = (0, 0, 0, 0);
        for (key, run) in &self.running {
            let task = key.task;
            let leads = run.class.kind == Kind::Process && run.waits.is_none();
            let listed = self.leaders.contains(&(run.followers.len(), *key));
            ensure!(listed == leads, "task {task} leads, or does not");
            ensure!(leads || run.followers.is_empty(), "task {task} leads before it runs");
            let head = self.chains.get(&run.chain).filter(|_| leads);
            ensure!(head == Some(key) || !leads, "task {task} leads another's chain");
            chains += usize::from(leads);
            for follower in &run.followers {
                let follows = self.running.get(follower).and_then(|next| next.waits.as_ref());
                let follows = follows.is_some_and(|waits| waits.chain == run.chain);
                ensure!(follows, "task {} does not come after task {task}", follower.task);
                followers += 1;
                let chained = run.class.kind == Kind::Process || run.waits.is_none();
                ensure!(chained, "task {task} is no process");
            }
            ensure!(self.waiting.contains(key) == run.waits.is_some(), "task {task} is misplaced");
            let Some(waits) = &run.waits else { continue };
            asked += u64::from(waits.asked == Some(Asked::Dispatcher));
            in_doubt += u64::from(run.is_in_doubt());
            let leader = self.chains.get(&waits.chain).and_then(|head| self.running.get(head));
            let Some(leader) = leader else {
                ensure!(false, "task {task} comes after nothing");
                continue;
            };
            ensure!(leader.followers.contains(key), "task {task} comes after another's leader");
            ensure!(leader.waits.is_none(), "task {task} comes after one that does not run");
            let same = leader.class.resources == run.class.resources && leader.gpus == run.gpus;
            ensure!(same, "task {task} comes after one that has not what it needs");
            ensure!(run.deadline.is_none(), "task {task} has a deadline before it runs");
        }
        let there = |(_, key): &(usize, TaskKey)| self.running.contains_key(key);
        ensure!(self.leaders.iter().all(there), "a leader is gone");
        ensure!(followers == self.waiting.len(), "{followers} wait in chains, and others");
        ensure!(self.waiting.iter().all(|key| self.running.contains_key(key)), "one waits in vain");
        ensure!(chains == self.chains.len(), "{chains} chains are led, and others");
        ensure!(in_doubt == self.in_doubt, "{in_doubt} are in doubt, not {}", self.in_doubt);
        ensure!(asked == self.asked_for, "{asked} are asked for, not {}", self.asked_for);
        Ok(())
    }

    /// Every deadline is that of a running task, and none is forgotten.
    fn check_deadlines(&self) -> Result<(), CheckError> {
        for (at, key) in &self.deadlines {
            let task = key.task;
            let due = self.running.get(key).is_some_and(|run| run.deadline == Some(*at));
            ensure!(due, "task {task} has a deadline but does not run");
        }
        for (key, run) in &self.running {
            let Some(at) = run.deadline else { continue };
            let watched = self.deadlines.contains(&(at, *key));
            ensure!(watched || run.killed.is_some(), "task {} outlives its deadline", key.task);
            ensure!(
                watched || at <= self.now || run.killed != Some(Killed::Timeout),
                "task {} was killed before its time",
                key.task
            );
        }
        Ok(())
    }

    /// Every template is there while it is used, and no longer.
    fn check_templates(&self) -> Result<(), CheckError> {
        let mut uses: BTreeMap<TemplateId, u64> = BTreeMap::new();
        for run in &self.queue {
            ensure!(run.count > 0, "an empty run is queued");
            let fits = self.capacity.fits(&run.class.resources);
            ensure!(fits, "task {} is queued but can never run", run.first);
            *uses.entry(run.template).or_default() += 1;
        }
        for run in self.running.values() {
            *uses.entry(run.template).or_default() += 1;
        }
        for (id, prepared) in &self.templates {
            let found = uses.remove(id).unwrap_or_default();
            ensure!(prepared.uses == found, "template {}: uses are miscounted", id.0);
            ensure!(found > 0 || !prepared.forgotten, "template {} outlives its uses", id.0);
            let named = self.batches.values().filter(|named| *named == id).count();
            ensure!(named == usize::from(!prepared.forgotten), "template {}: misnamed", id.0);
        }
        ensure!(uses.is_empty(), "a task's template is gone");
        let known = self.batches.values().all(|id| self.templates.contains_key(id));
        ensure!(known, "a batch's template is gone");
        Ok(())
    }
}
