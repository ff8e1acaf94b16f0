//! What must hold of the data of an executor's tasks.

use super::{Executor, Progress};
use crate::data::stage::Requester;
use crate::dispatch::CheckError;
use crate::dispatch::check::ensure;
use crate::execute::TaskKey;
use std::collections::BTreeSet;

impl Executor {
    /// Every task with data is staged once, and nothing is staged for others.
    pub(in crate::execute) fn check_data(&self) -> Result<(), CheckError> {
        let mut queued = BTreeSet::new();
        for run in self.queue.iter().filter(|run| run.data.is_some()) {
            ensure!(run.count == 1, "task {} has data and is not alone", run.first);
            queued.insert(run.key());
        }
        let running = self.running.iter().filter(|(_, run)| run.data.is_some());
        let running: BTreeSet<TaskKey> = running.map(|(key, _)| *key).collect();
        let Some(data) = &self.data else {
            ensure!(queued.is_empty() && running.is_empty(), "tasks have data, and no cache");
            return Ok(());
        };
        data.stage.check()?;
        for key in &queued {
            let held_back = data.held_back.contains(key);
            let before = running.contains(key) || data.finishing.contains_key(key);
            let task = key.task;
            ensure!(!held_back || before, "task {task} is held back for nothing");
            ensure!(held_back || !before, "task {task} is staged while it runs");
            ensure!(held_back || data.tasks.contains_key(key), "task {task} is not staged");
        }
        ensure!(data.held_back.is_subset(&queued), "a task that is gone is held back");
        for (key, staging) in &data.tasks {
            let task = key.task;
            let started = matches!(staging.progress, Progress::Started(_));
            ensure!(started == running.contains(key), "task {task} runs and is not started");
            ensure!(started || queued.contains(key), "task {task} is staged for nothing");
        }
        let staged = running.iter().all(|key| data.tasks.contains_key(key));
        ensure!(staged, "a running task's data is forgotten");
        for (key, finishing) in &data.finishing {
            ensure!(finishing.open > 0, "task {} is through and not reported", key.task);
            ensure!(!running.contains(key), "task {} has ended and runs", key.task);
        }
        for requester in data.stage.requesters() {
            let known = match requester {
                Requester::Task(key) => data.tasks.contains_key(&key),
                Requester::Prefetch(number) => data.prefetches.contains_key(&number),
                Requester::Visit(_) => false,
            };
            ensure!(known, "{requester:?} is staged and not known");
        }
        let running = |key: &TaskKey| running.contains(key);
        ensure!(data.written.keys().all(running), "what a task wrote outlives it");
        Ok(())
    }
}
