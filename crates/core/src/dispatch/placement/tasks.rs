//! The ready tasks whose data decides where they go: which of them goes to which
//! executor, and what is fetched ahead of them.

use super::diffusion::{Costs, Free, Load, Offer, PolicyOptions, Taken};
use super::queues::DataQueue;
use super::{DataTasks, Past, Placement, QueueId};
use crate::data::declared::Declared;
use crate::data::index::{Index, Place};
use crate::data::object::Object;
use crate::limits::AHEAD_OBJECTS_MAX;
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId};

/// The executors that have room for a task of a queue at this moment.
pub(in crate::dispatch) trait Rooms {
    /// Whether this executor has room.
    fn has_room(&self, id: ExecutorId) -> bool;

    /// The executor that has had room for longest.
    fn first(&self) -> Option<ExecutorId>;
}

/// A task that waits no longer.
#[derive(Debug, Clone, Copy)]
pub(in crate::dispatch) struct Selected {
    pub(in crate::dispatch) task: u64,
    pub(in crate::dispatch) past: Past,
    /// The tasks that are left in its queue.
    pub(in crate::dispatch) left: DataTasks,
}

/// A queue to which tasks are pushed.
pub(in crate::dispatch) struct Pushing<'a> {
    index: &'a mut Index,
    queue: &'a mut DataQueue,
}

impl Pushing<'_> {
    /// Queues a task whose inputs are those at `offset`.
    pub(in crate::dispatch) fn push(
        &mut self,
        task: u64,
        past: Past,
        data: &Declared,
        offset: u64,
    ) {
        self.queue.push(self.index, task, past, data, offset);
    }

    /// A summary of the queue, for its instance.
    pub(in crate::dispatch) fn summary(&self) -> DataTasks {
        self.queue.summary()
    }
}

/// Executors with room, by their numbers in the index.
struct FreeIn<'a, R> {
    index: &'a Index,
    rooms: &'a R,
}

impl<R: Rooms> Free for FreeIn<'_, R> {
    fn is_free(&self, place: Place) -> bool {
        self.index.executor(place).is_some_and(|id| self.rooms.has_room(id))
    }

    fn first(&self) -> Option<Place> {
        self.index.place(self.rooms.first()?)
    }
}

// Queueing.
impl Placement {
    /// A queue to which tasks are pushed, if the data of any decides: they are
    /// offered next.
    pub(in crate::dispatch) fn pushing(
        &mut self,
        id: QueueId,
        options: &PolicyOptions,
    ) -> Pushing<'_> {
        Pushing { index: &mut self.index, queue: self.queues.listen(id, options) }
    }

    /// Takes out the tasks of a queue that are among `wanted`. Returns these and
    /// what is left.
    pub(in crate::dispatch) fn remove(
        &mut self,
        id: QueueId,
        wanted: &RunSet,
    ) -> (Vec<(u64, Past)>, DataTasks) {
        let queue = self.queues.queue_mut(id);
        let removed = queue.remove(&mut self.index, wanted);
        (removed, queue.summary())
    }

    /// Takes out all tasks of a queue.
    pub(in crate::dispatch) fn drain(&mut self, id: QueueId) -> Vec<(u64, Past)> {
        self.queues.queue_mut(id).drain(&mut self.index)
    }

    /// A task that was taken out goes to an executor: it wants its inputs no
    /// longer.
    pub(in crate::dispatch) fn selected(&mut self, id: QueueId, taken: &Taken) -> Selected {
        selected(&mut self.index, self.queues.queue_mut(id), taken)
    }

    /// The tasks of a queue in their order, and what each brings with it.
    pub(in crate::dispatch) fn tasks_of(
        &self,
        id: QueueId,
    ) -> impl DoubleEndedIterator<Item = (u64, Past)> {
        self.queues.find(id).into_iter().flat_map(|queue| queue.tasks())
    }

    /// A queue has no tasks whose data decides.
    pub(in crate::dispatch) fn queue_emptied(&mut self, id: QueueId) {
        self.queues.fell_silent(id);
    }

    /// A queue that was empty is gone.
    pub(in crate::dispatch) fn queue_gone(&mut self, id: QueueId) {
        self.queues.remove(id);
    }

    /// Whether any queue has tasks.
    pub(in crate::dispatch) fn has_tasks(&self) -> bool {
        !self.queues.is_empty()
    }
}

// Offering and selecting.
impl Placement {
    /// Notes how busy executors are: what was not worth while before may be now.
    pub(in crate::dispatch) fn note_load(&mut self, load: Load) {
        self.queues.note_load(load);
    }

    /// How busy executors were when tasks were last offered.
    pub(in crate::dispatch) fn load(&self) -> Load {
        self.queues.load()
    }

    /// A queue whose tasks are to be offered to executors with room.
    pub(in crate::dispatch) fn next_unoffered(&mut self) -> Option<QueueId> {
        self.queues.next_unoffered()
    }

    /// The tasks of an instance are to be offered again, as executors may have
    /// gained room while nobody looked.
    pub(in crate::dispatch) fn offer_instance(&mut self, instance: InstanceId) {
        self.queues.offer_instance(instance);
    }

    /// The rest of a queue is to be offered again. Returns whether anything
    /// may be left.
    pub(in crate::dispatch) fn offer_rest(&mut self, id: QueueId) -> bool {
        let is_listening = self.queues.is_listening(id);
        if is_listening {
            self.queues.offer_again(id);
        }
        is_listening
    }

    /// The next task of a queue that an executor with room is to have at once.
    pub(in crate::dispatch) fn offer(
        &mut self,
        id: QueueId,
        rooms: &impl Rooms,
        load: Load,
    ) -> Option<(ExecutorId, Selected)> {
        let (index, queue) = (&mut self.index, self.queues.queue_mut(id));
        let offer = queue.waiting_mut().offer(index, &FreeIn { index, rooms }, load)?;
        Some(offered(index, queue, &offer))
    }

    /// The first task of a queue, whatever its policy says, for the executor with
    /// room that holds most of it.
    pub(in crate::dispatch) fn offer_first(
        &mut self,
        id: QueueId,
        rooms: &impl Rooms,
    ) -> Option<(ExecutorId, Selected)> {
        let (index, queue) = (&mut self.index, self.queues.queue_mut(id));
        let offer = queue.waiting_mut().select_first(index, &FreeIn { index, rooms })?;
        Some(offered(index, queue, &offer))
    }

    /// Takes the tasks of a queue out that suit an executor, for free slots and
    /// to stand in line. [`Placement::selected`] is to follow for each.
    pub(in crate::dispatch) fn select(
        &mut self,
        executor: ExecutorId,
        id: QueueId,
        room: (usize, usize),
        load: Load,
    ) -> Vec<Taken> {
        let place = self.place(executor);
        let mut taken = Vec::new();
        let waiting = self.queues.queue_mut(id).waiting_mut();
        waiting.select_in_line(&self.index, place, room, load, &mut taken);
        taken
    }

    /// The queues that may have tasks.
    pub(in crate::dispatch) fn queues(&self) -> Vec<QueueId> {
        self.queues.listening().collect()
    }

    /// Whether a queue has tasks, and its policy has executors fetch what they
    /// read ahead of them.
    pub(in crate::dispatch) fn first_fetches_ahead(&self, id: QueueId) -> Option<bool> {
        let waiting = self.queues.queue(id).waiting();
        (!waiting.is_empty()).then(|| waiting.fetches_ahead())
    }

    /// The holders of inputs of the first task of a queue.
    pub(in crate::dispatch) fn holders_for_first(
        &self,
        id: QueueId,
    ) -> impl Iterator<Item = ExecutorId> {
        let holders = self.queues.queue(id).first_holders(&self.index);
        holders.filter_map(|place| self.index.executor(place))
    }
}

// Fetching ahead.
impl Placement {
    /// The queues for which something may be fetched ahead.
    pub(in crate::dispatch) fn fetching_queues(&self) -> Vec<QueueId> {
        let fetches = |id: &QueueId| self.queues.queue(*id).waiting().fetches_ahead();
        self.queues.listening().filter(fetches).collect()
    }

    /// The next few executors to ask for a fetch.
    pub(in crate::dispatch) fn next_fetchers(&mut self) -> Vec<ExecutorId> {
        self.fetchers.next()
    }

    /// The last of these that fetches: whoever comes after it is asked next.
    pub(in crate::dispatch) fn last_fetcher(&mut self, last: ExecutorId) {
        self.fetchers.go_on_after(last);
    }

    /// Whether an executor may fetch more ahead. If not, it is not asked again
    /// before something has come or is not coming any more.
    pub(in crate::dispatch) fn may_fetch(&mut self, id: ExecutorId) -> bool {
        let may_fetch = self.index.coming_to(self.place(id)) < AHEAD_OBJECTS_MAX;
        if !may_fetch {
            self.fetchers.remove(id);
        }
        may_fetch
    }

    /// The object that an executor should fetch next for a queue. [`Placement::locate`] is to
    /// follow.
    pub(in crate::dispatch) fn next_fetch(
        &mut self,
        executor: ExecutorId,
        id: QueueId,
        costs: &Costs,
    ) -> Option<Object> {
        let place = self.place(executor);
        let queue = self.queues.queue_mut(id);
        let number = queue.waiting_mut().fetch(&self.index, place, costs)?;
        queue.object(number).cloned()
    }
}

fn offered(index: &mut Index, queue: &mut DataQueue, offer: &Offer) -> (ExecutorId, Selected) {
    let executor = index.executor(offer.place);
    let executor = executor.expect("tasks are offered to executors that are there");
    (executor, selected(index, queue, &offer.taken))
}

fn selected(index: &mut Index, queue: &mut DataQueue, taken: &Taken) -> Selected {
    let past = queue.forget(index, taken);
    Selected { task: taken.task, past, left: queue.summary() }
}
