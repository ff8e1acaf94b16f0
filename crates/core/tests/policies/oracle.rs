//! The scheduler of data-diffusion §3.2, written down as it stands there: slow,
//! plain, without any index but the paper's own two maps. Scores are in bytes.
//! `queue-aware` is in no paper: what is here of it is what Falkon's own pages
//! say that it does.

use falkon_core::dispatch::diffusion::{Load, PolicyName, PolicyOptions};
use std::collections::{BTreeMap, BTreeSet};

/// A task `T_i` of the wait queue.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) number: u64,
    pub(crate) files: BTreeSet<u64>,
}

#[derive(Debug)]
pub(crate) struct Oracle {
    options: PolicyOptions,
    /// `Q`.
    pub(crate) queue: Vec<Task>,
    /// `I_map`.
    pub(crate) holders: BTreeMap<u64, BTreeSet<u64>>,
    /// `E_map`.
    pub(crate) files: BTreeMap<u64, BTreeSet<u64>>,
    sizes: BTreeMap<u64, u64>,
    /// `queue-aware`: the file whose tasks an executor is being given, and the
    /// task before which they stand.
    pub(crate) runs: BTreeMap<u64, (u64, u64)>,
}

impl Oracle {
    pub(crate) fn new(options: PolicyOptions, sizes: BTreeMap<u64, u64>) -> Oracle {
        let (holders, files) = (BTreeMap::new(), BTreeMap::new());
        Oracle { options, queue: Vec::new(), holders, files, sizes, runs: BTreeMap::new() }
    }

    pub(crate) fn holds(&self, executor: u64, file: u64) -> bool {
        self.files.get(&executor).is_some_and(|files| files.contains(&file))
    }

    fn holder_count(&self, file: u64) -> usize {
        self.holders.get(&file).map_or(0, BTreeSet::len)
    }

    fn bytes(&self, files: impl Iterator<Item = u64>) -> u64 {
        files.map(|file| self.sizes[&file]).sum()
    }

    /// The bytes of a task's files that an executor holds, and of all.
    fn hit(&self, executor: u64, task: &Task) -> (u64, u64) {
        let held = task.files.iter().copied().filter(|file| self.holds(executor, *file));
        (self.bytes(held), self.bytes(task.files.iter().copied()))
    }

    /// Whether tasks may wait for executors that are not free.
    pub(crate) fn may_wait(&self) -> bool {
        match self.options.policy {
            PolicyName::MaxCacheHit | PolicyName::QueueAware => true,
            _ => self.options.replication_max > 0,
        }
    }

    /// Whether it counts who holds what.
    pub(crate) fn looks(&self) -> bool {
        self.options.policy != PolicyName::FirstCacheAvailable
    }

    /// Whether a file's tasks are sent together.
    pub(crate) fn sends_together(&self) -> bool {
        self.options.policy == PolicyName::QueueAware
    }

    /// Whether `max-cache-hit` is what the policy is at this load.
    fn waits(&self, load: Load) -> bool {
        match self.options.policy {
            PolicyName::MaxCacheHit | PolicyName::QueueAware => true,
            PolicyName::GoodCacheCompute => {
                load.busy as f64
                    >= load.executors as f64 * f64::from(self.options.utilization_threshold_milli)
                        / 1000.0
            }
            _ => false,
        }
    }

    fn may_fetch(&self, executor: u64, task: &Task) -> bool {
        let most = self.options.replication_max as usize;
        task.files
            .iter()
            .all(|file| most == 0 || self.holds(executor, *file) || self.holder_count(*file) < most)
    }

    /// `queue-aware`: a file's tasks together, else the first whose files are
    /// all there; `next` is the number of the next task to be queued.
    pub(crate) fn run_together(&mut self, executor: u64, room: usize, next: u64) -> Vec<u64> {
        let mut list = Vec::new();
        while list.len() < room {
            let mut left = self.queue.iter().filter(|task| !list.contains(&task.number));
            let of_run = self.runs.get(&executor).and_then(|(file, until)| {
                let first = left.clone().find(|task| task.files.contains(file))?;
                let (held, all) = self.hit(executor, first);
                (held == all && first.number < *until).then_some(first)
            });
            let whole = || {
                left.find(|task| {
                    let (held, all) = self.hit(executor, task);
                    held == all
                })
            };
            let plain = self.queue.iter().filter(|task| !list.contains(&task.number));
            let plain = plain.clone().find(|task| task.files.is_empty());
            let earlier = of_run.map(|task| match plain {
                Some(plain) if plain.number < task.number => plain,
                _ => task,
            });
            let Some(task) = earlier.or_else(whole) else { break };
            list.push(task.number);
            if let (Some(file), 1) = (task.files.first(), task.files.len()) {
                let run = self.runs.get(&executor);
                if run.is_none_or(|(of, until)| of != file || task.number >= *until) {
                    self.runs.insert(executor, (*file, next));
                }
            }
        }
        list
    }

    /// The second part: the tasks that an executor with room for `room` picks
    /// up.
    pub(crate) fn pick_up(&self, executor: u64, room: usize, load: Load) -> Vec<u64> {
        let window = match self.options.window {
            0 => self.queue.len(),
            window => self.queue.len().min(window as usize),
        };
        if !self.looks() {
            return self.queue.iter().take(room).map(|task| task.number).collect();
        }
        let mut list: Vec<u64> = Vec::new();
        let mut partly: Vec<(u64, u64, usize)> = Vec::new();
        for (at, task) in self.queue[..window].iter().enumerate() {
            if list.len() == room {
                break;
            }
            let (held, all) = self.hit(executor, task);
            if held == all {
                list.push(task.number);
            } else if held > 0 && self.may_fetch(executor, task) {
                partly.push((held, all, at));
            }
        }
        if self.sends_together() {
            return list;
        }
        partly.sort_by(|a, b| (b.0 * a.1).cmp(&(a.0 * b.1)).then(a.2.cmp(&b.2)));
        list.extend(partly.iter().map(|(.., at)| self.queue[*at].number));
        let rest = self.queue[..window].iter().filter(|task| {
            let most = match self.waits(load) {
                true => 1,
                false if self.options.policy == PolicyName::GoodCacheCompute => {
                    self.options.replication_max as usize
                }
                false => 0,
            };
            most == 0 || task.files.iter().all(|file| self.holder_count(*file) < most)
        });
        for task in rest {
            if !list.contains(&task.number) {
                list.push(task.number);
            }
        }
        list.truncate(room);
        list
    }

    /// The first part for one task: the free executor with most of its bytes,
    /// if one has any.
    pub(crate) fn candidate(&self, task: &Task, free: &BTreeSet<u64>) -> Option<u64> {
        if !self.looks() {
            return None;
        }
        let mut candidates: BTreeMap<u64, u64> = BTreeMap::new();
        for file in &task.files {
            for executor in self.holders.get(file).into_iter().flatten() {
                *candidates.entry(*executor).or_insert(0) += self.sizes[file];
            }
        }
        let mut sorted: Vec<(u64, u64)> = candidates.into_iter().collect();
        sorted.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let suits = |executor: u64| match self.options.policy {
            PolicyName::QueueAware => task.files.iter().all(|file| self.holds(executor, *file)),
            _ => self.may_fetch(executor, task),
        };
        let mut free = sorted.iter().filter(|(executor, _)| free.contains(executor));
        free.find(|(executor, _)| suits(*executor)).map(|(executor, _)| *executor)
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Task> {
        let at = self.queue.iter().position(|task| task.number == number)?;
        Some(self.queue.remove(at))
    }
}
