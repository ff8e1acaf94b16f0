//! The ready tasks of a queue whose data decides where they go.

use super::diffusion::{Load, PolicyOptions, Taken, Waiting};
use super::instance::QueueKey;
use crate::data::declared::Declared;
use crate::data::index::{Index, ObjectNo};
use crate::data::object::Object;
use crate::result::Tries;
use crate::runset::RunSet;
use crate::task::InstanceId;
use std::collections::{BTreeMap, BTreeSet};

/// Queues of tasks whose data decides where they go, of all instances.
#[derive(Debug, Default)]
pub(super) struct LocatedQueues {
    /// Those that may have tasks: they are told of each change of the index.
    pub(super) all: BTreeSet<(InstanceId, QueueKey)>,
    /// Those of them whose tasks are to be offered to executors with room.
    pub(super) unoffered: BTreeSet<(InstanceId, QueueKey)>,
    /// How busy executors were when tasks were last offered.
    pub(super) load: Load,
}

impl LocatedQueues {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Tasks were queued, if a queue is named.
    pub(super) fn grew(&mut self, id: InstanceId, key: Option<QueueKey>) {
        if let Some(key) = key {
            self.all.insert((id, key));
            self.unoffered.insert((id, key));
        }
    }

    /// A queue is gone, or empty.
    pub(super) fn forget(&mut self, id: InstanceId, key: QueueKey) {
        self.all.remove(&(id, key));
        self.unoffered.remove(&(id, key));
    }

    /// All tasks are to be offered anew.
    pub(super) fn offer_all(&mut self) {
        self.unoffered.extend(self.all.iter().copied());
    }
}

/// What a task brings with it through the queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Past {
    pub(super) class: u32,
    pub(super) tries: Tries,
}

/// Ready tasks that wait under a policy that knows places.
#[derive(Debug)]
pub(super) struct Located {
    pub(super) waiting: Waiting,
    tasks: BTreeMap<u64, Past>,
    /// What is read by tasks here, to name it to executors that are to fetch
    /// it ahead; kept only under policies that do.
    objects: BTreeMap<ObjectNo, (Object, u64)>,
}

impl Located {
    /// An empty queue; `None` if the options make no sense, which is refused
    /// when an instance is created.
    pub(super) fn new(options: &PolicyOptions) -> Option<Located> {
        let waiting = Waiting::new(options).ok()?;
        Some(Located { waiting, tasks: BTreeMap::new(), objects: BTreeMap::new() })
    }

    /// Queues a task whose inputs are those at `offset`.
    pub(super) fn push(
        &mut self,
        index: &mut Index,
        task: u64,
        past: Past,
        data: &Declared,
        offset: u64,
    ) {
        let mut inputs: Vec<ObjectNo> = Vec::new();
        for object in data.inputs_of(offset) {
            let number = index.want(object.id, object.size);
            if inputs.contains(&number) {
                index.unwant(number);
                continue;
            }
            inputs.push(number);
            if self.waiting.fetches_ahead() {
                self.objects.entry(number).or_insert_with(|| (object.clone(), 0)).1 += 1;
            }
        }
        self.tasks.insert(task, past);
        self.waiting.push(index, task, &inputs);
    }

    pub(super) fn len(&self) -> u64 {
        self.tasks.len() as u64
    }

    /// The first task by number, for estimates.
    pub(super) fn first(&self) -> Option<(u64, u32)> {
        self.tasks.first_key_value().map(|(task, past)| (*task, past.class))
    }

    /// The tasks here, and what each brings with it.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, &Past)> {
        self.tasks.iter().map(|(task, past)| (*task, past))
    }

    /// The tasks here, in no particular order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.tasks.keys().copied()
    }

    /// What is known of an object that a task here reads.
    pub(super) fn object(&self, number: ObjectNo) -> Option<&Object> {
        self.objects.get(&number).map(|(object, _)| object)
    }

    /// A task was taken out of `waiting`: it wants its inputs no longer.
    pub(super) fn forget(&mut self, index: &mut Index, taken: &Taken) -> Option<Past> {
        for input in taken.inputs.as_slice() {
            index.unwant(*input);
            if let Some((_, tasks)) = self.objects.get_mut(input) {
                *tasks -= 1;
                if *tasks == 0 {
                    self.objects.remove(input);
                }
            }
        }
        self.tasks.remove(&taken.task)
    }

    /// Takes out the tasks that are among `wanted`.
    pub(super) fn remove(&mut self, index: &mut Index, wanted: &RunSet) -> Vec<(u64, Past)> {
        let mut found: Vec<u64> = Vec::new();
        for (first, count) in wanted.iter() {
            let end = first.saturating_add(count);
            found.extend(self.tasks.range(first..end).map(|(task, _)| *task));
        }
        found.into_iter().filter_map(|task| Some((task, self.take(index, task)?))).collect()
    }

    /// Takes out all tasks.
    pub(super) fn drain(&mut self, index: &mut Index) -> Vec<(u64, Past)> {
        let all: Vec<u64> = self.numbers().collect();
        all.into_iter().filter_map(|task| Some((task, self.take(index, task)?))).collect()
    }

    fn take(&mut self, index: &mut Index, task: u64) -> Option<Past> {
        let taken = self.waiting.remove(index, task)?;
        self.forget(index, &taken)
    }
}
