//! Where data is, and what follows from it: tasks go where their data is, come
//! with hints where the rest is, and executors fetch ahead and evict by what
//! the queues want (data-diffusion §3.1, §3.2).

use super::diffusion::{Costs, Free, Load, Taken};
use super::executor::{Executor, InFlight};
use super::instance::{Instance, QueueKey, ReadyRun};
use super::needs::Need;
use super::roster::Roster;
use super::share::counted_micros;
use super::{Assigned, Dispatcher, Prepare};
use crate::data::declared::{AssignedData, DataOrder, Declared, Lists, Located, Peer};
use crate::data::index::{Change, Index, ObjectNo, Place};
use crate::data::object::{Object, ObjectId, Sources};
use crate::data::stage::Changes;
use crate::limits::{
    AHEAD_OBJECTS_MAX, DATA_TASK_BYTES, FETCH_SEARCH_EXECUTORS_MAX, HINT_HOLDERS_MAX,
    ORDER_BYTES_MAX, ORDER_DEMAND_OBJECTS_MAX, PEER_SECOND_BYTES,
};
use crate::task::{ExecutorId, InstanceId, Rows, TaskId, Time};
use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};

/// The executors with room for a task of one need.
pub(super) struct WithRoom<'a> {
    pub(super) executors: &'a Roster,
    pub(super) available: &'a BTreeMap<u64, ExecutorId>,
    pub(super) index: &'a Index,
    pub(super) need: &'a Need,
    pub(super) now: Time,
    /// What the user expects of a task's run time, in microseconds; 0 is
    /// unknown.
    pub(super) lasts_micros: u64,
}

impl WithRoom<'_> {
    fn has_room(&self, id: ExecutorId) -> bool {
        self.executors.find(&id).is_some_and(|executor| {
            executor.takes_tasks()
                && executor.reserved.is_none()
                && (executor.in_flight.is_empty() || !executor.misjudged)
                && executor.offers(self.need)
                && executor.outlasts(self.now, self.lasts_micros)
                && executor.free.count_of(&self.need.resources, 1) > 0
        })
    }
}

impl Free for WithRoom<'_> {
    fn is_free(&self, place: Place) -> bool {
        self.index.executor(place).is_some_and(|id| self.has_room(id))
    }

    fn first(&self) -> Option<Place> {
        let mut ids = self.available.values();
        self.index.place(*ids.find(|id| self.has_room(**id))?)
    }
}

impl Dispatcher {
    /// How busy the executors are, as data-diffusion §3.2 counts it.
    pub(super) fn utilization(&self) -> Load {
        Load { busy: self.busy, executors: self.executors.len() as u64 }
    }

    /// An executor has said how its cache has changed.
    pub(super) fn cache_changed(&mut self, id: ExecutorId, changes: Changes) {
        let Some(place) = self.index.place(id) else { return };
        let Changes { anew, added, removed, named, state, unobtainable } = changes;
        self.unobtainable.extend(unobtainable);
        self.fetchers.insert(id);
        if let (Some(executor), Some(state)) = (self.executors.find_mut(&id), state) {
            executor.cache = Some(state);
        }
        if !anew && added.is_empty() && removed.is_empty() && named.is_empty() {
            return;
        }
        self.holders_changed(id, place, (anew, added, removed));
        // Names are kept of what is held.
        self.name_placed(&named);
        if !self.located.is_empty() {
            self.fresh.insert(id);
            self.unplaced = true;
        }
    }

    /// An executor has said what it holds, and what not.
    fn holders_changed(
        &mut self,
        id: ExecutorId,
        place: Place,
        (anew, added, removed): (bool, Vec<(ObjectId, u64)>, Vec<ObjectId>),
    ) {
        if anew {
            let all: Vec<_> =
                added.into_iter().map(|(object, size)| (object, Some(size))).collect();
            let coming = self.coming_to(place);
            for change in self.index.replace(place, &all) {
                match change {
                    Change::Added(object) => self.holder_added(place, object),
                    Change::Removed(object) => self.holder_removed(place, object),
                }
            }
            self.came_or_went(place, &coming);
            if let Some(incarnation) = self.executors.find(&id).map(|found| found.incarnation) {
                self.is_back(incarnation);
            }
        } else {
            for (object, size) in added {
                self.copied(id, object);
                let number = self.index.number(object);
                if let Some(object) = self.index.add(place, object, Some(size)) {
                    self.holder_added(place, object);
                } else if let Some(object) = number {
                    self.coming_changed(object);
                }
            }
            for object in &removed {
                self.not_copied(id, *object);
            }
            self.copy_again(&removed);
            for object in removed {
                let Some(number) = self.index.number(object) else { continue };
                if self.index.remove(place, object).is_some() {
                    self.holder_removed(place, number);
                } else if self.index.is_coming(place, number) {
                    self.index.settled(number, place);
                    self.unfetchable(number);
                }
            }
        }
        self.look_for_copiers();
    }

    fn holder_added(&mut self, place: Place, object: ObjectNo) {
        for (id, key) in &self.located.all {
            if let Some(located) = located_in(&mut self.instances, *id, key) {
                located.waiting.holder_added(&self.index, place, object);
            }
        }
    }

    pub(super) fn holder_removed(&mut self, place: Place, object: ObjectNo) {
        for (id, key) in &self.located.all {
            if let Some(located) = located_in(&mut self.instances, *id, key) {
                located.waiting.holder_removed(&self.index, place, object);
                // Those who hold nothing may have its tasks now.
                self.located.unoffered.insert((*id, *key));
            }
        }
    }

    /// An object could not be fetched ahead of the tasks that read it.
    fn unfetchable(&mut self, object: ObjectNo) {
        for (id, key) in &self.located.all {
            if let Some(located) = located_in(&mut self.instances, *id, key) {
                located.waiting.unfetchable(&self.index, object);
                self.located.unoffered.insert((*id, *key));
            }
        }
    }

    /// What is on its way to an executor.
    fn coming_to(&self, place: Place) -> Vec<ObjectId> {
        self.index.coming_objects(place).filter_map(|object| self.index.id(object)).collect()
    }

    /// These objects have come to an executor, or are not coming any more.
    fn came_or_went(&mut self, place: Place, objects: &[ObjectId]) {
        for id in objects {
            if let Some(object) = self.index.number(*id) {
                self.one_came_or_went(place, object);
            }
        }
    }

    fn one_came_or_went(&mut self, place: Place, object: ObjectNo) {
        for (id, key) in &self.located.all {
            if let Some(located) = located_in(&mut self.instances, *id, key) {
                located.waiting.came_or_went(&self.index, place, object);
            }
        }
    }

    fn coming_changed(&mut self, object: ObjectNo) {
        for (id, key) in &self.located.all {
            if let Some(located) = located_in(&mut self.instances, *id, key) {
                located.waiting.coming_changed(&self.index, object);
            }
        }
    }

    /// An executor is gone with all that it held.
    pub(super) fn forget_cache(&mut self, id: ExecutorId) {
        self.fetchers.remove(&id);
        self.forget_copies(id);
        let demands = self.demands.range(demands_of(id)).copied().collect::<Vec<_>>();
        for demand in demands {
            self.demands.remove(&demand);
        }
        let Some(place) = self.index.place(id) else { return };
        self.tell_gone(id, place);
        let coming = self.coming_to(place);
        let all = self.index.held_from(place, ObjectNo(0));
        let lost: Vec<ObjectId> = all.filter_map(|number| self.index.id(number)).collect();
        let held = self.index.leave(place);
        self.copy_again(&lost);
        for (id, key) in &self.located.all {
            if let Some(located) = located_in(&mut self.instances, *id, key) {
                located.waiting.executor_left(&self.index, place, &held);
            }
        }
        self.came_or_went(place, &coming);
        self.located.offer_all();
    }

    /// An instance goes, with all that executors have of it.
    pub(super) fn settle_all_inputs(&mut self, instance: InstanceId) {
        if !self.knows_data {
            return;
        }
        let of_instance = (instance, 0)..=(instance, u64::MAX);
        let runs: Vec<(ExecutorId, InFlight)> = self
            .executors
            .values()
            .flat_map(|executor| {
                let runs = executor.in_flight.range(of_instance.clone());
                runs.map(|(_, run)| (executor.id, *run))
            })
            .collect();
        for (executor, run) in runs {
            self.settle_inputs(executor, instance, &run);
        }
    }

    /// Tasks of an executor have ended or come back: what was on its way there
    /// for them, and has not been reported, is not coming.
    pub(super) fn settle_inputs(&mut self, id: ExecutorId, instance: InstanceId, run: &InFlight) {
        if !self.knows_data {
            return;
        }
        let Some(place) = self.index.place(id) else { return };
        let Some(found) = self.instances.get(&instance) else { return };
        let Some(batch) = found.batch_of(TaskId(run.first)) else { return };
        let Some(data) = batch.submission.data.clone() else { return };
        let offset = run.first - batch.first;
        for at in offset..offset + run.count {
            for object in data.inputs_of(at) {
                if let Some(number) = self.index.number(object.id)
                    && self.index.is_coming(place, number)
                {
                    self.index.settled(number, place);
                    self.one_came_or_went(place, number);
                    self.fetchers.insert(id);
                }
            }
        }
    }

    /// Offers the tasks of queues that have changed to executors with room.
    pub(super) fn offer_located(&mut self) {
        let load = self.utilization();
        if std::mem::replace(&mut self.located.load, load) != load {
            self.located.offer_all();
        }
        while let Some((id, key)) = self.located.unoffered.pop_first() {
            while let Some((executor, taken)) = self.next_offer(id, key) {
                self.send_taken(executor, id, key, &taken);
                self.refresh_executor(executor);
            }
            self.settle_located(id, key);
        }
    }

    fn has_window(&self, id: InstanceId) -> bool {
        self.instances.get(&id).is_some_and(|found| found.options.policy.window > 0)
    }

    fn next_offer(&mut self, id: InstanceId, key: QueueKey) -> Option<(ExecutorId, Taken)> {
        let load = self.utilization();
        let lasts_micros = self.user_estimate(id, key);
        let need = &self.needs[key.1];
        if self.holds_dispatch() {
            return None;
        }
        let instance = self.instances.get_mut(&id).filter(|found| !found.is_clogged())?;
        let located = instance.queues.find_mut(&key)?.located.as_mut()?;
        let index = &self.index;
        let (executors, available) = (&self.executors, &self.available);
        let now = self.now;
        let free = WithRoom { executors, available, index, need, now, lasts_micros };
        let offer = located.waiting.offer(index, &free, load)?;
        Some((self.index.executor(offer.place)?, offer.taken))
    }

    /// Notes whether a queue still has tasks whose data decides, and since when
    /// nobody can take them.
    pub(super) fn settle_located(&mut self, id: InstanceId, key: QueueKey) {
        let now = self.now;
        let queue = self.instances.get_mut(&id).and_then(|instance| instance.queues.find_mut(&key));
        match queue {
            Some(queue) if queue.len > queue.plain_len() => {
                if queue.runs.is_empty() {
                    queue.blocked_since.get_or_insert(now);
                }
            }
            _ => self.located.forget(id, key),
        }
    }

    /// Gives an executor tasks of a queue that suit it: `room` for free slots
    /// and `ahead` to stand in line. Returns how many.
    pub(super) fn send_located(
        &mut self,
        executor: ExecutorId,
        id: InstanceId,
        key: QueueKey,
        (room, ahead): (u64, u64),
    ) -> u64 {
        let Some(place) = self.index.place(executor) else { return 0 };
        let load = self.utilization();
        let Some(found) = self.executors.find(&executor) else { return 0 };
        let budget = ORDER_BYTES_MAX.saturating_sub(found.in_flight_bytes);
        if budget == 0 && found.in_flight_count() > 0 {
            return 0;
        }
        let most = 1 + budget / DATA_TASK_BYTES;
        let room = room.min(most);
        let ahead = ahead.min(most - room);
        let bounded = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let room = (bounded(room), bounded(ahead));
        let mut taken = Vec::new();
        let Some(located) = located_in(&mut self.instances, id, &key) else { return 0 };
        located.waiting.take_in_line(&self.index, place, room, load, &mut taken);
        for taken in &taken {
            self.send_taken(executor, id, key, taken);
        }
        if !taken.is_empty() {
            self.settle_located(id, key);
            if self.located.all.contains(&(id, key)) && self.has_window(id) {
                // There are others in the window now.
                self.located.unoffered.insert((id, key));
                self.unplaced = true;
            }
        }
        taken.len() as u64
    }

    /// Moves a task that was taken out of its queue to an executor's order.
    pub(super) fn send_taken(
        &mut self,
        to: ExecutorId,
        id: InstanceId,
        key: QueueKey,
        taken: &Taken,
    ) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let Some(queue) = instance.queues.find_mut(&key) else { return };
        let Some(located) = &mut queue.located else { return };
        let Some(past) = located.forget(&mut self.index, taken) else { return };
        queue.len -= 1;
        if queue.len == 0 {
            queue.blocked_since = None;
        }
        instance.ready -= 1;
        if self.hold_back(id, taken.task, past.tries, to) {
            self.runnable.mark(id);
            return;
        }
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let Some(executor) = self.executors.find_mut(&to) else { return };
        let need = &self.needs[key.1];
        let measured = instance.queues.find_with_likes(&key);
        let measured = measured.and_then(|(_, measured)| measured.mean_micros);
        let Some(batch) = instance.batch_of(TaskId(taken.task)) else { return };
        let offset = taken.task - batch.first;
        let batch_id = batch.id;
        let class = batch.submission.classes.get(past.class as usize);
        let estimate = class.map(|class| class.estimate_micros).filter(|micros| *micros > 0);
        let counted_micros = counted_micros(measured, estimate);
        let rows = instance.rows_for(batch, offset, 1, u64::MAX);
        let data = batch.submission.data.clone();
        let data_bytes = data.as_ref().map_or(0, |data| data.task_bytes(offset));
        let row_bytes = data_bytes
            + match &rows {
                Rows::Computed { .. } => 0,
                Rows::Packed(packed) => packed.blob.len() as u64,
            };
        announce(instance, TaskId(taken.task), executor);
        let run = ReadyRun { first: taken.task, count: 1, class: past.class, tries: past.tries };
        self.attempts.note(id, run.first, 1, run.tries, Some(to));
        executor.add(
            id,
            InFlight {
                first: run.first,
                count: 1,
                batch: batch_id,
                class: run.class,
                need: key.1,
                tries: run.tries,
                later: 0,
                dispatched: self.now,
                counted_micros,
                row_bytes,
            },
            &self.needs,
            0,
        );
        instance.dispatched += 1;
        instance.usage += need.weight(1);
        self.runnable.serve(&mut instance.share, need.weight(1), counted_micros, self.now);
        let data = data.map(|data| Box::new(self.assigned_data(to, &data, offset)));
        if let Some(executor) = self.executors.find_mut(&to) {
            executor.order.assign.push(Assigned {
                batch: batch_id,
                instance: id,
                first: TaskId(run.first),
                count: 1,
                class: run.class,
                tries: run.tries,
                rows,
                data,
            });
        }
        self.orders.send(to);
        self.runnable.mark(id);
    }

    /// The data of one task for the executor that is to run it, with hints
    /// where to get what it has not got.
    fn assigned_data(&mut self, to: ExecutorId, data: &Declared, offset: u64) -> AssignedData {
        let mut assigned = AssignedData::default();
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for object in data.inputs_of(offset) {
            inputs.push(assigned.objects.len() as u32);
            let located = self.locate(to, object);
            assigned.objects.push(located);
        }
        for object in data.outputs_of(offset) {
            outputs.push(assigned.objects.len() as u32);
            let located = Located { object: object.clone(), sources: Sources::default() };
            assigned.objects.push(located);
        }
        assigned.inputs = Lists::Same(inputs);
        assigned.outputs = Lists::Same(outputs);
        assigned
    }

    /// An object with where an executor may get it from, counted as on its way
    /// there.
    pub(super) fn locate(&mut self, to: ExecutorId, object: &Object) -> Located {
        let (mut peers, mut coming) = (Vec::new(), None);
        if let Some(place) = self.index.place(to) {
            // Nobody else may want it any more: the task was the last to wait.
            let number = self.index.want(object.id, object.size);
            peers = self.index.hints(number, place, HINT_HOLDERS_MAX);
            self.coming_changed(number);
            if peers.is_empty() && object.is_stored() && !self.index.holds(place, number) {
                coming = self.index.reader(number, place);
            }
            self.index.unwant(number);
        }
        peers.retain(|peer| self.name_peer(to, *peer));
        let coming = coming.filter(|peer| self.name_peer(to, *peer));
        let sources = Sources { peers, store: object.is_stored(), coming };
        Located { object: object.clone(), sources }
    }

    /// Tells an executor where another listens; false if it does not serve.
    fn name_peer(&mut self, to: ExecutorId, peer: ExecutorId) -> bool {
        let serves = self.executors.find(&peer).and_then(|found| found.serves.clone());
        let Some(serves) = serves.filter(|serves| !serves.address.is_empty()) else {
            return false;
        };
        if let Some(executor) = self.executors.find_mut(&to) {
            let peers = &mut executor.order.data.get_or_insert_default().peers;
            if !peers.iter().any(|known| known.executor == peer) {
                peers.push(Peer { executor: peer, serves });
            }
        }
        true
    }

    /// Has executors fetch what waiting tasks read, ahead of the tasks.
    pub(super) fn fetch_ahead(&mut self) {
        let queues: Vec<(InstanceId, QueueKey)> = self
            .located
            .all
            .iter()
            .filter(|(id, key)| {
                let queue = self.instances.get(id).and_then(|found| found.queues.find(key));
                let located = queue.and_then(|queue| queue.located.as_ref());
                located.is_some_and(|located| located.waiting.fetches_ahead())
            })
            .copied()
            .collect();
        for (id, key) in queues {
            // As long as it is of use.
            while self.fetch_some(id, key) {}
        }
    }

    /// Has the next few executors fetch what tasks of one queue read. Returns
    /// whether any does.
    fn fetch_some(&mut self, id: InstanceId, key: QueueKey) -> bool {
        let from = Bound::Excluded(self.fetch_turn);
        let next: Vec<ExecutorId> = self
            .fetchers
            .range((from, Bound::Unbounded))
            .chain(self.fetchers.range(..=self.fetch_turn))
            .take(FETCH_SEARCH_EXECUTORS_MAX)
            .copied()
            .collect();
        // Who comes after the last that fetches is asked first the next time, so
        // that none fetches more than others where there is little to fetch.
        let mut last = None;
        self.fetch_turn = next.last().copied().unwrap_or(self.fetch_turn);
        for executor in next {
            while let Some(object) = self.next_fetch(executor, id, key) {
                last = Some(executor);
                let located = self.locate(executor, &object);
                if let Some(found) = self.executors.find_mut(&executor) {
                    found.order.data.get_or_insert_default().fetch.push(located);
                    self.orders.send(executor);
                }
            }
        }
        self.fetch_turn = last.unwrap_or(self.fetch_turn);
        last.is_some()
    }

    fn next_fetch(
        &mut self,
        executor: ExecutorId,
        id: InstanceId,
        key: QueueKey,
    ) -> Option<Object> {
        let place = self.index.place(executor)?;
        let need = &self.needs[key.1];
        let found = self.executors.find(&executor)?;
        let found = found.takes_tasks().then_some(found)?;
        if !found.offers(need) {
            return None;
        }
        if self.index.coming_to(place) >= AHEAD_OBJECTS_MAX {
            self.fetchers.remove(&executor);
            return None;
        }
        let instance = self.instances.get_mut(&id)?;
        let queue = instance.queues.find_mut(&key)?;
        let costs = Costs {
            task_micros: queue
                .estimate(&instance.batches, queue.measured)
                .unwrap_or(found.mean_micros),
            peer_bytes_per_second: PEER_SECOND_BYTES,
            slots: found.capacity.count_of(&need.resources, u64::from(u16::MAX)).max(1),
            now: self.now,
        };
        let located = queue.located.as_mut()?;
        let number = located.waiting.fetch(&self.index, place, &costs)?;
        located.object(number).cloned()
    }

    /// Notes whose holders are to hear that tasks that read it have been queued,
    /// or wait no longer.
    pub(super) fn note_demands(&mut self) {
        while let Some(object) = self.index.next_rewanted() {
            let Some(id) = self.index.id(object) else { continue };
            for holder in self.index.holders(object) {
                if let Some(holder) = self.index.executor(*holder) {
                    self.demands.insert((holder, id));
                }
            }
        }
    }

    /// Adds to an order how many tasks want what the executor holds, of what
    /// has changed since it was told.
    pub(super) fn tell_demand(&mut self, to: ExecutorId) {
        let mut demand = Vec::new();
        let all = demands_of(to);
        while demand.len() < ORDER_DEMAND_OBJECTS_MAX {
            let Some(&(_, object)) = self.demands.range(all.clone()).next() else { break };
            self.demands.remove(&(to, object));
            let wanted = self.index.number(object).map_or(0, |number| self.index.wanted(number));
            demand.push((object, wanted));
        }
        if !demand.is_empty()
            && let Some(executor) = self.executors.find_mut(&to)
        {
            executor.order.data.get_or_insert_with(Box::<DataOrder>::default).demand = demand;
        }
    }
}

/// Where an executor's entries stand among the demands.
pub(super) fn demands_of(id: ExecutorId) -> RangeInclusive<(ExecutorId, ObjectId)> {
    (id, ObjectId(0))..=(id, ObjectId(u128::MAX))
}

/// Sends the template of a task's batch along with an executor's order, if it
/// has not got it.
pub(super) fn announce(instance: &mut Instance, task: TaskId, executor: &mut Executor) {
    let Some(batch) = instance.batch_of(task) else { return };
    let id = batch.id;
    if instance.told.get(&id).is_some_and(|told| told.known_by.contains(executor.id.0)) {
        return;
    }
    // It may be told anew what it was to forget.
    executor.order.forget.retain(|forgotten| *forgotten != id);
    executor.order.prepare.push(Prepare {
        batch: id,
        template: batch.submission.template.clone(),
        classes: batch.submission.classes.clone(),
    });
    instance.told.entry(id).or_default().known_by.insert(executor.id.0, 1);
}

/// The data of tasks that go wherever there is room: every access is to the
/// persistent store.
pub(super) fn unlocated_data(data: &Declared, offset: u64, count: u64) -> AssignedData {
    let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
    let mut objects = Vec::new();
    let mut slice = |lists: &Lists| {
        let mut renumbered = |item: &u32| {
            *numbers.entry(*item).or_insert_with(|| {
                let object = data.objects[*item as usize].clone();
                let sources = Sources { store: object.is_stored(), ..Sources::default() };
                objects.push(Located { object, sources });
                objects.len() as u32 - 1
            })
        };
        if let Lists::Same(items) = lists {
            return Lists::Same(items.iter().map(&mut renumbered).collect());
        }
        let (mut items, mut ends) = (Vec::new(), Vec::new());
        for at in offset..offset + count {
            items.extend(lists.of(at).iter().map(&mut renumbered));
            ends.push(items.len() as u32);
        }
        Lists::Each { items: items.into(), ends: ends.into() }
    };
    let (inputs, outputs) = (slice(&data.inputs), slice(&data.outputs));
    AssignedData { objects, inputs, outputs }
}

fn located_in<'a>(
    instances: &'a mut BTreeMap<InstanceId, Instance>,
    id: InstanceId,
    key: &QueueKey,
) -> Option<&'a mut super::located::Located> {
    instances.get_mut(&id)?.queues.find_mut(key)?.located.as_deref_mut()
}
