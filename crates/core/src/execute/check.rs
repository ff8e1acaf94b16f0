//! The state checker: what must hold after every step. Tests and the
//! simulator run it; it costs time in proportion to the state.

use super::{Executor, Killed};
use crate::dispatch::CheckError;
use crate::dispatch::check::ensure;
use crate::task::Kind;

impl Executor {
    /// Checks the whole state.
    ///
    /// # Errors
    /// Says what does not hold.
    pub fn check(&self) -> Result<(), CheckError> {
        self.gangs.check()?;
        self.check_room()?;
        self.check_deadlines()?;
        self.check_doubts()?;
        self.check_chains()?;
        self.check_templates()?;
        self.check_data()?;
        self.collecting.check()?;
        self.updates.check()
    }

    /// No task runs twice, calls of a bundle know each other, and the rest holds
    /// what it needs.
    fn check_room(&self) -> Result<(), CheckError> {
        let mut before = None;
        for (key, run) in self.running.iter() {
            let (instance, first) = (key.instance, key.task.0);
            let apart = before.is_none_or(|(of, end)| of != instance || end <= first);
            ensure!(apart, "task {first} of instance {instance} runs twice");
            ensure!(run.count > 0, "task {first} of instance {instance}: an empty run runs");
            before = Some((instance, first + run.count));
            let alone = run.count == 1 || run.class.kind == Kind::Noop;
            ensure!(alone, "task {first} of instance {instance} is not alone");
            self.check_call(*key, run)?;
        }
        let held = self.running.values().filter(|run| run.has_room());
        let held = held.map(|run| (&run.class.resources, &run.grant));
        self.room.check(held.chain(self.gangs.rooms()))
    }

    /// Every deadline is that of a running task, and none is forgotten.
    fn check_deadlines(&self) -> Result<(), CheckError> {
        for (at, key) in &self.deadlines {
            let task = key.task;
            let due = self.running.find(key).is_some_and(|run| run.deadline == Some(*at));
            ensure!(due, "task {task} has a deadline but does not run");
        }
        for (key, run) in self.running.iter() {
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

    fn check_templates(&self) -> Result<(), CheckError> {
        for run in &self.queue {
            ensure!(run.count > 0, "an empty run is queued");
            let fits = self.room.capacity().fits(&run.class.resources.known());
            ensure!(fits, "task {} is queued but can never run", run.first);
        }
        let queued = self.queue.iter().map(|run| run.template);
        self.templates.check(queued.chain(self.running.values().map(|run| run.template)))
    }
}
