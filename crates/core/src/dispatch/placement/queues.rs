//! The ready tasks whose data decides where they go, queue by queue: one queue
//! here for each need of an instance that has such tasks.

use super::diffusion::{Load, PolicyOptions, Taken, Waiting};
use super::{CheckError, ensure};
use crate::data::declared::Declared;
use crate::data::index::{Index, ObjectNo, Place};
use crate::data::object::{Object, ObjectId};
use crate::dispatch::instance::QueueKey;
use crate::dispatch::needs::NeedId;
use crate::limits::PLACING_ARCHIVES_MAX;
use crate::result::Tries;
use crate::runset::RunSet;
use crate::task::InstanceId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The queue of an instance's tasks of one need.
pub(in crate::dispatch) type QueueId = (InstanceId, QueueKey);

/// The part of a ready queue whose tasks' data decides where they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::dispatch) struct DataTasks {
    /// How many tasks there are.
    pub(in crate::dispatch) count: u64,
    /// The first by number, and its class, for estimates.
    pub(in crate::dispatch) first: Option<(u64, u32)>,
}

/// The class and the tries that a task brings with it through the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dispatch) struct Past {
    pub(in crate::dispatch) class: u32,
    pub(in crate::dispatch) tries: Tries,
}

/// Queues of tasks whose data decides where they go, of all instances. A queue
/// keeps what its policy has learnt while it is empty.
#[derive(Debug, Default)]
pub(super) struct DataQueues {
    queues: BTreeMap<QueueId, Box<DataQueue>>,
    /// Queues that may have tasks: they see each change of the index.
    listening: BTreeSet<QueueId>,
    /// Queues among these whose tasks are to be offered to executors with room.
    unoffered: BTreeSet<QueueId>,
    /// How busy executors were when tasks were last offered.
    load: Load,
}

impl DataQueues {
    /// Whether no queue has tasks.
    pub(super) fn is_empty(&self) -> bool {
        self.listening.is_empty()
    }

    /// Whether a queue may have tasks.
    pub(super) fn is_listening(&self, id: QueueId) -> bool {
        self.listening.contains(&id)
    }

    /// The queues that may have tasks.
    pub(super) fn listening(&self) -> impl Iterator<Item = QueueId> {
        self.listening.iter().copied()
    }

    /// A queue that was made when its first task came.
    pub(super) fn queue(&self, id: QueueId) -> &DataQueue {
        self.queues.get(&id).unwrap_or_else(|| panic!("no data decides about queue {id:?}"))
    }

    /// The same queue as [`DataQueues::queue`], to be changed.
    pub(super) fn queue_mut(&mut self, id: QueueId) -> &mut DataQueue {
        self.queues.get_mut(&id).unwrap_or_else(|| panic!("no data decides about queue {id:?}"))
    }

    /// The queue, if data has decided about any task of it.
    pub(super) fn find(&self, id: QueueId) -> Option<&DataQueue> {
        self.queues.get(&id).map(|queue| &**queue)
    }

    /// The queue to push a task to, which listens from now on.
    pub(super) fn listen(&mut self, id: QueueId, options: &PolicyOptions) -> &mut DataQueue {
        self.listening.insert(id);
        self.unoffered.insert(id);
        self.queues.entry(id).or_insert_with(|| Box::new(DataQueue::new(options)))
    }

    /// A queue has no tasks.
    pub(super) fn fell_silent(&mut self, id: QueueId) {
        self.listening.remove(&id);
        self.unoffered.remove(&id);
    }

    /// A queue is gone. It had no tasks.
    pub(super) fn remove(&mut self, id: QueueId) {
        self.fell_silent(id);
        self.queues.remove(&id);
    }

    /// All queues of an instance are gone, with their tasks.
    pub(super) fn remove_instance(&mut self, index: &mut Index, instance: InstanceId) {
        let ids: Vec<QueueId> = of(&self.queues, instance).collect();
        for id in ids {
            self.fell_silent(id);
            if let Some(mut queue) = self.queues.remove(&id) {
                queue.drain(index);
            }
        }
    }

    /// The tasks of a queue are to be offered again.
    pub(super) fn offer_again(&mut self, id: QueueId) {
        self.unoffered.insert(id);
    }

    /// The tasks of an instance are to be offered again, as executors may have
    /// gained room while nobody looked.
    pub(super) fn offer_instance(&mut self, instance: InstanceId) {
        for id in of(&self.queues, instance) {
            self.listening.insert(id);
            self.unoffered.insert(id);
        }
    }

    /// All tasks are to be offered anew.
    pub(super) fn offer_all(&mut self) {
        self.unoffered.extend(&self.listening);
    }

    /// Notes how busy executors are: all tasks are to be offered anew if that has
    /// changed.
    pub(super) fn note_load(&mut self, load: Load) {
        if std::mem::replace(&mut self.load, load) != load {
            self.offer_all();
        }
    }

    /// How busy executors were when tasks were last offered.
    pub(super) fn load(&self) -> Load {
        self.load
    }

    /// A queue whose tasks are to be offered.
    pub(super) fn next_unoffered(&mut self) -> Option<QueueId> {
        self.unoffered.pop_first()
    }

    pub(super) fn holder_added(&mut self, index: &Index, place: Place, object: ObjectNo) {
        self.each(|waiting| {
            waiting.holder_added(index, place, object);
        });
    }

    pub(super) fn holder_removed(&mut self, index: &Index, place: Place, object: ObjectNo) {
        self.each(|waiting| waiting.holder_removed(index, place, object));
        // Executors that hold nothing may have its tasks now.
        self.offer_all();
    }

    /// An object could not be fetched ahead of the tasks that read it.
    pub(super) fn unfetchable(&mut self, index: &Index, object: ObjectNo) {
        self.each(|waiting| waiting.unfetchable(index, object));
        self.offer_all();
    }

    /// An object has come to an executor, or is not coming any more.
    pub(super) fn came_or_went(&mut self, index: &Index, place: Place, object: ObjectNo) {
        self.each(|waiting| waiting.came_or_went(index, place, object));
    }

    pub(super) fn coming_changed(&mut self, index: &Index, object: ObjectNo) {
        self.each(|waiting| waiting.coming_changed(index, object));
    }

    /// An executor is gone, with all that it held.
    pub(super) fn executor_left(&mut self, index: &Index, place: Place, held: &[ObjectNo]) {
        self.each(|waiting| waiting.executor_left(index, place, held));
    }

    fn each(&mut self, mut change: impl FnMut(&mut Waiting)) {
        for id in &self.listening {
            let queue = self.queues.get_mut(id).expect("a queue that listens is there");
            change(&mut queue.waiting);
        }
    }

    /// Checks every queue, and that those with tasks listen. Gives all queues to
    /// be compared with the instances' own.
    ///
    /// # Errors
    /// Says what does not hold.
    pub(super) fn check(&self, index: &Index) -> Result<(), CheckError> {
        for (id, queue) in &self.queues {
            queue.waiting.check(index)?;
            let tasks = queue.tasks.len();
            ensure!(tasks == queue.waiting.len(), "queue {id:?}: a task with data is lost");
            let listens = tasks == 0 || self.listening.contains(id);
            ensure!(listens, "queue {id:?} does not hear of changes");
        }
        let known = self.listening.iter().all(|id| self.queues.contains_key(id));
        ensure!(known, "a queue is gone and listens");
        let known = self.unoffered.is_subset(&self.listening);
        ensure!(known, "tasks of a queue that is not known are to be offered");
        Ok(())
    }

    /// All queues, those without tasks included.
    pub(super) fn iter(&self) -> impl Iterator<Item = (QueueId, &DataQueue)> {
        self.queues.iter().map(|(id, queue)| (*id, &**queue))
    }
}

/// The queues of an instance, those without tasks included.
fn of(
    queues: &BTreeMap<QueueId, Box<DataQueue>>,
    instance: InstanceId,
) -> impl Iterator<Item = QueueId> + '_ {
    let first = (instance, (Reverse(i32::MAX), NeedId(0)));
    queues.range(first..).map(|(id, _)| *id).take_while(move |(of, _)| *of == instance)
}

/// Ready tasks that wait under a policy that knows places.
#[derive(Debug)]
pub(super) struct DataQueue {
    waiting: Waiting,
    tasks: BTreeMap<u64, Past>,
    /// Objects that tasks here read, to name them to executors that are to fetch
    /// them ahead; kept only under policies that do.
    objects: BTreeMap<ObjectNo, (Object, u64)>,
}

impl DataQueue {
    fn new(options: &PolicyOptions) -> DataQueue {
        let waiting = Waiting::new(options);
        let waiting = waiting.expect("options of a policy are checked with their instance's");
        DataQueue { waiting, tasks: BTreeMap::new(), objects: BTreeMap::new() }
    }

    /// The tasks as their policy sees them.
    pub(super) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// The same tasks as [`DataQueue::waiting`], to take some out, which is followed
    /// by [`DataQueue::forget`].
    pub(super) fn waiting_mut(&mut self) -> &mut Waiting {
        &mut self.waiting
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
        for (id, size, object) in self.placing(data, offset) {
            let number = index.want(id, size);
            inputs.push(number);
            if self.waiting.fetches_ahead() {
                self.objects.entry(number).or_insert_with(|| (object.clone(), 0)).1 += 1;
            }
        }
        self.tasks.insert(task, past);
        self.waiting.push(index, task, &inputs);
    }

    /// The objects where which is, of those that a task reads, it goes: its inputs, and
    /// the archives of its members, each once. Of archives, a few decide, because those
    /// who read many members mostly read from all archives. Where objects are brought
    /// ahead of tasks, none does: of an archive, only the member is to travel.
    fn placing<'a>(
        &self,
        data: &'a Declared,
        offset: u64,
    ) -> Vec<(ObjectId, Option<u64>, &'a Object)> {
        let archives_max = if self.waiting.fetches_ahead() { 0 } else { PLACING_ARCHIVES_MAX };
        let mut placing: Vec<(ObjectId, Option<u64>, &Object)> = Vec::new();
        let mut archives = 0;
        for object in data.inputs_of(offset) {
            let (id, archive) = (object.held_as(), object.archive());
            let is_over = archive.is_some() && archives >= archives_max;
            if is_over || placing.iter().any(|(other, ..)| *other == id) {
                continue;
            }
            archives += usize::from(archive.is_some());
            placing.push((id, object.size.filter(|_| archive.is_none()), object));
        }
        placing
    }

    /// How often each object is wanted by the tasks at `offset`, added to `wanted`.
    pub(super) fn add_wanted(
        &self,
        wanted: &mut BTreeMap<ObjectId, u64>,
        data: &Declared,
        offset: u64,
    ) {
        for (id, ..) in self.placing(data, offset) {
            *wanted.entry(id).or_default() += 1;
        }
    }

    /// A summary of the tasks here, for the instance's queue.
    pub(super) fn summary(&self) -> DataTasks {
        let first = self.tasks.first_key_value().map(|(task, past)| (*task, past.class));
        DataTasks { count: self.tasks.len() as u64, first }
    }

    /// The tasks here, and what each brings with it.
    pub(super) fn tasks(&self) -> impl DoubleEndedIterator<Item = (u64, Past)> + '_ {
        self.tasks.iter().map(|(task, past)| (*task, *past))
    }

    /// The object with this number, if a task here reads it.
    pub(super) fn object(&self, number: ObjectNo) -> Option<&Object> {
        self.objects.get(&number).map(|(object, _)| object)
    }

    /// A task was taken out of `waiting`: it wants its inputs no longer.
    pub(super) fn forget(&mut self, index: &mut Index, taken: &Taken) -> Past {
        for input in taken.inputs.as_slice() {
            index.unwant(*input);
            if let Some((_, tasks)) = self.objects.get_mut(input) {
                *tasks -= 1;
                if *tasks == 0 {
                    self.objects.remove(input);
                }
            }
        }
        self.tasks.remove(&taken.task).expect("a task that was chosen was queued")
    }

    /// Takes out the tasks that are among `wanted`.
    pub(super) fn remove(&mut self, index: &mut Index, wanted: &RunSet) -> Vec<(u64, Past)> {
        let mut found: Vec<u64> = Vec::new();
        for (first, count) in wanted.iter() {
            let end = first.saturating_add(count);
            found.extend(self.tasks.range(first..end).map(|(task, _)| *task));
        }
        self.remove_all(index, found)
    }

    /// Takes out all tasks.
    pub(super) fn drain(&mut self, index: &mut Index) -> Vec<(u64, Past)> {
        let all = self.tasks.keys().copied().collect();
        self.remove_all(index, all)
    }

    fn remove_all(&mut self, index: &mut Index, tasks: Vec<u64>) -> Vec<(u64, Past)> {
        let mut remove = |task| {
            let taken = self.waiting.remove(index, task).expect("each task here waits");
            (task, self.forget(index, &taken))
        };
        tasks.into_iter().map(&mut remove).collect()
    }

    /// The objects that a task here reads, by its number in `waiting`.
    pub(super) fn first_holders<'a>(
        &'a self,
        index: &'a Index,
    ) -> impl Iterator<Item = Place> + 'a {
        let inputs = self.waiting.first_inputs().unwrap_or_default();
        inputs.iter().flat_map(|input| index.holders(*input)).copied()
    }
}
