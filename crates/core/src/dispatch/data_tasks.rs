//! Tasks whose data decides where they go, on their way to executors: offered to
//! those with room, sent with hints where their data is, and what they read
//! fetched ahead of them (data-diffusion §3.1, §3.2). Placement meets the
//! executors and the instances here.

use super::alternatives::Chosen;
use super::diffusion::{Costs, Load};
use super::fleet::{Fleet, InFlight, Serving, nanos_of};
use super::instance::{Instance, QueueKey, ReadyRun};
use super::needs::Need;
use super::placement::{Past, Rooms, Selected, Spread, StripeNotice};
use super::queues::key_of;
use super::share::counted_micros;
use super::{Assigned, Dispatcher, Held, Prepare};
use crate::data::declared::{AssignedData, Declared, Lend, Lists, Located, Peer};
use crate::data::object::{Object, Sources};
use crate::limits::{DATA_TASK_BYTES, ORDER_BYTES_MAX, PEER_SECOND_BYTES};
use crate::task::{ExecutorId, InstanceId, Rows, TaskClass, TaskId, Time};
use std::collections::BTreeMap;

/// The executors with room for a task of one need.
pub(super) struct WithRoom<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) need: &'a Need,
    pub(super) now: Time,
    /// What the user expects of a task's run time, in microseconds; 0 is
    /// unknown.
    pub(super) lasts_micros: u64,
}

impl Rooms for WithRoom<'_> {
    fn has_room(&self, id: ExecutorId) -> bool {
        self.fleet[id].has_room_for(self.need, self.now, self.lasts_micros)
    }

    fn first(&self) -> Option<ExecutorId> {
        self.fleet.available().find(|id| self.has_room(*id))
    }
}

impl Dispatcher {
    /// How busy the executors are, as data-diffusion §3.2 counts it.
    pub(super) fn utilization(&self) -> Load {
        Load { busy: self.fleet.busy(), executors: self.fleet.len() as u64 }
    }

    /// Offers the tasks of queues that have changed to executors with room.
    pub(super) fn offer_data_tasks(&mut self) {
        self.placement.note_load(self.utilization());
        while let Some((id, key)) = self.placement.next_unoffered() {
            while let Some((executor, selected)) = self.next_offer(id, key) {
                self.send_selected(executor, id, key, selected);
                self.fleet.list(executor, self.now);
            }
            self.note_data_tasks(id, key);
        }
    }

    fn has_window(&self, id: InstanceId) -> bool {
        self.instances[&id].options.policy.window > 0
    }

    fn next_offer(&mut self, id: InstanceId, key: QueueKey) -> Option<(ExecutorId, Selected)> {
        let load = self.utilization();
        let instance = &self.instances[&id];
        // The queue may have gone with its last task, which was given up for want of an input.
        instance.queues.find(&key)?;
        if self.is_held(instance) || self.holds_back(id, key) {
            return None;
        }
        let lasts_micros = self.lasts_micros(id, key);
        let (fleet, need, now) = (&self.fleet, &self.needs[key.1], self.now);
        let rooms = WithRoom { fleet, need, now, lasts_micros };
        self.placement.offer((id, key), &rooms, load)
    }

    /// Notes whether a queue still has tasks whose data decides, and since when
    /// nobody can take them.
    pub(super) fn note_data_tasks(&mut self, id: InstanceId, key: QueueKey) {
        let now = self.now;
        match self.instances[&id].queues.find_mut(&key) {
            Some(queue) if queue.with_data.count > 0 => {
                if queue.front().is_none() {
                    queue.blocked_since.get_or_insert(now);
                }
            }
            _ => self.placement.queue_emptied((id, key)),
        }
    }

    /// Gives an executor tasks of a queue that suit it: `room` for free slots
    /// and `ahead` to stand in line. Returns how many.
    pub(super) fn send_data_tasks(
        &mut self,
        executor: ExecutorId,
        id: InstanceId,
        key: QueueKey,
        (room, ahead): (u64, u64),
    ) -> u64 {
        let load = self.utilization();
        let found = &self.fleet[executor];
        let budget = ORDER_BYTES_MAX.saturating_sub(found.in_flight_bytes);
        if budget == 0 && found.in_flight_count() > 0 {
            return 0;
        }
        let most = 1 + budget / DATA_TASK_BYTES;
        let room = room.min(most);
        let ahead = ahead.min(most - room);
        let bounded = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let room = (bounded(room), bounded(ahead));
        let taken = self.placement.select(executor, (id, key), room, load);
        for taken in &taken {
            let selected = self.placement.selected((id, key), taken);
            self.send_selected(executor, id, key, selected);
        }
        if !taken.is_empty() {
            self.note_data_tasks(id, key);
            // There are others in the window now.
            if self.has_window(id) && self.placement.offer_rest((id, key)) {
                self.unplaced = true;
            }
        }
        taken.len() as u64
    }

    /// Moves a task that was selected to an executor's order.
    pub(super) fn send_selected(
        &mut self,
        to: ExecutorId,
        id: InstanceId,
        key: QueueKey,
        Selected { task, past, left }: Selected,
    ) {
        self.instances[&id].data_task_taken(&key, task, left);
        self.send_one(to, id, key, task, past);
    }

    /// Moves a task that is in no list to an executor's order, unless it has to wait
    /// for an input that was lost.
    pub(super) fn send_one(
        &mut self,
        to: ExecutorId,
        id: InstanceId,
        key: QueueKey,
        task: u64,
        past: Past,
    ) {
        let knows_places = self.instances[&id].options.policy.policy.knows_places();
        if knows_places && self.hold_back(id, task, past.tries, to) {
            self.runnable.mark(id);
            return;
        }
        self.attempts.note(id, task, 1, past.tries, Some(to));
        self.instances[&id].tasks.assign(task, 1);
        self.speculation.sent(id, self.now);
        let instance = &self.instances[&id];
        let user = instance.share.user();
        let may_have = |need: &Need| self.runnable.room(user, need.weight(1)) > 0;
        let named = (key, Some((task, past.class)));
        let chosen = instance.choose(named, &self.fleet[to], &self.needs, may_have);
        self.send_try(to, id, (key, chosen), task, past);
    }

    /// Moves a try of a task that is assigned to an executor's order, with the alternative that
    /// was chosen for it.
    pub(super) fn send_try(
        &mut self,
        to: ExecutorId,
        id: InstanceId,
        (key, chosen): (QueueKey, Chosen),
        task: u64,
        past: Past,
    ) {
        let knows_places = self.instances[&id].options.policy.policy.knows_places();
        let instance = &mut self.instances[&id];
        let mut executor = self.fleet.serving(to);
        let need = &self.needs[chosen.need];
        let measured = instance.queues.find_with_likes(&key_of(need, chosen.need));
        let measured = measured.and_then(|(_, measured)| measured.mean_micros);
        let batch = instance.batch_of(TaskId(task));
        let batch = batch.expect("a batch lives as long as tasks of it are ready");
        let offset = batch.submission.row_of(task - batch.first);
        let batch_id = batch.id;
        let sent_class = batch.sent_class(past.class, chosen.alternative);
        let class = batch.submission.classes.get(past.class as usize);
        let spread = Spread::of(class);
        let estimate = class.and_then(TaskClass::given_estimate);
        let counted_micros = counted_micros(measured, estimate);
        let run_micros = estimate.or(measured);
        let each_nanos = run_micros.map_or(0, |micros| nanos_of(micros, executor.slots_for(need)));
        let rows = instance.rows_for(batch, offset, 1, u64::MAX);
        let data = batch.submission.data.clone();
        let data_bytes = data.as_ref().map_or(0, |data| data.task_bytes(offset));
        let row_bytes = data_bytes
            + match &rows {
                Rows::Computed { .. } => 0,
                Rows::Packed(packed) => packed.blob.len() as u64,
            };
        announce(instance, TaskId(task), &mut executor);
        let run = ReadyRun { first: task, count: 1, class: past.class, tries: past.tries };
        executor.send(
            id,
            InFlight {
                first: run.first,
                count: 1,
                batch: batch_id,
                class: run.class,
                need: chosen.need,
                alternative: chosen.alternative,
                tries: run.tries,
                later: 0,
                dispatched: self.now,
                counted_micros,
                row_bytes,
                is_staged: false,
                is_gang: need.is_gang(),
                is_below: false,
            },
            &self.needs,
            each_nanos,
        );
        instance.usage += need.weight(1);
        let share = (&mut instance.share, instance.usage);
        self.runnable.serve(share, need.weight(1), counted_micros, self.now);
        // Below a relay another dispatcher says where objects are.
        let is_relay = self.fleet[to].subtree.is_some();
        let data = data.map(|data| {
            Box::new(match knows_places && !is_relay {
                true => {
                    let assigned = self.assigned_data((to, id), &data, offset, spread);
                    self.foresee(to, &data, offset, (id, key.1));
                    assigned
                }
                false => unlocated_data(&data, offset, 1, |_| false),
            })
        });
        self.fleet.serving(to).assign(Assigned {
            batch: batch_id,
            instance: id,
            first: TaskId(run.first),
            count: 1,
            class: sent_class,
            tries: run.tries,
            rows,
            data,
        });
        self.runnable.mark(id);
    }

    /// The data of one task for the executor that is to run it, with hints
    /// where to get what it has not got.
    fn assigned_data(
        &mut self,
        to: (ExecutorId, InstanceId),
        data: &Declared,
        offset: u64,
        spread: Spread,
    ) -> AssignedData {
        let mut assigned = AssignedData::default();
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for object in data.inputs_of(offset) {
            inputs.push(assigned.objects.len() as u32);
            let located = self.locate(to, object, spread);
            assigned.objects.push(located);
        }
        for object in data.outputs_of(offset) {
            outputs.push(assigned.objects.len() as u32);
            if self.placement.is_to_stay(object) {
                assigned.read.push(assigned.objects.len() as u32);
            }
            let located = Located { object: object.clone(), sources: Sources::default() };
            assigned.objects.push(located);
        }
        assigned.inputs = Lists::Same(inputs);
        assigned.outputs = Lists::Same(outputs);
        assigned
    }

    /// An object with where an executor may get it from, counted as on its way
    /// there; one that is striped has as many lenders as the task asks for.
    fn locate(
        &mut self,
        (to, id): (ExecutorId, InstanceId),
        object: &Object,
        spread: Spread,
    ) -> Located {
        let room = self.fleet[to].room;
        self.placement.stripe(to, object, room, spread);
        let fleet = &self.fleet;
        // What a relay's tasks read others have written, who may be anywhere.
        let may_be_above = !object.is_stored() && self.instances[&id].options.keep_output;
        let serves = |id| fleet[id].serves_others();
        let located = self.placement.locate(to, object, may_be_above, serves);
        self.name_peers(to, located)
    }

    /// Leaves out of an object's sources those that serve nobody, and tells the
    /// executor that is to fetch it where the others listen.
    pub(super) fn name_peers(&mut self, to: ExecutorId, mut located: Located) -> Located {
        let sources = &mut located.sources;
        sources.peers.retain(|peer| self.name_peer(to, *peer));
        sources.coming = sources.coming.filter(|peer| self.name_peer(to, *peer));
        located
    }

    /// Tells executors from whom they receive what is broadcast, where that has
    /// changed.
    pub(super) fn tell_parents(&mut self) {
        for (to, object, parents) in self.placement.next_parents() {
            for parent in &parents {
                self.name_peer(to, *parent);
            }
            self.fleet.data_order(to).parents.push((object, parents));
        }
    }

    /// Tells executors which stripes of objects they are to have, and those that read
    /// the objects who has them.
    pub(super) fn tell_of_stripes(&mut self) {
        for (to, notice) in self.placement.next_stripe_notices() {
            match &notice {
                StripeNotice::Striped(_, lenders) => {
                    for lender in lenders {
                        self.name_peer(to, *lender);
                    }
                }
                StripeNotice::Lend(.., Some(lender)) => {
                    self.name_peer(to, *lender);
                }
                _ => {}
            }
            let order = self.fleet.data_order(to);
            match notice {
                StripeNotice::Lend(object, stripes, of, lender) => {
                    let peers = lender.into_iter().collect();
                    let sources =
                        Sources { peers, store: object.is_stored(), ..Sources::default() };
                    let located = Located { object, sources };
                    order.lend.push(Lend { located, stripes, of });
                }
                StripeNotice::TakeBack(share) => order.take_back.push(share),
                StripeNotice::Striped(object, lenders) => order.striped.push((object, lenders)),
            }
        }
    }

    /// Tells an executor where another listens; false if it does not serve.
    pub(super) fn name_peer(&mut self, to: ExecutorId, peer: ExecutorId) -> bool {
        let Some(serves) = self.fleet[peer].listens_at().cloned() else { return false };
        let peers = &mut self.fleet.data_order(to).peers;
        if !peers.iter().any(|known| known.executor == peer) {
            peers.push(Peer { executor: peer, serves });
        }
        true
    }

    /// Has executors fetch what waiting tasks read, ahead of the tasks.
    pub(super) fn fetch_ahead(&mut self) {
        for (id, key) in self.placement.fetching_queues() {
            // As long as it is of use.
            while self.fetch_some(id, key) {}
        }
    }

    /// Has the next few executors fetch what tasks of one queue read. Returns
    /// whether any does.
    fn fetch_some(&mut self, id: InstanceId, key: QueueKey) -> bool {
        let mut last = None;
        for executor in self.placement.next_fetchers() {
            while let Some(object) = self.next_fetch(executor, id, key) {
                last = Some(executor);
                let located = self.locate((executor, id), &object, Spread::default());
                self.order_fetch(executor, located);
            }
        }
        if let Some(last) = last {
            self.placement.last_fetcher(last);
        }
        last.is_some()
    }

    fn next_fetch(
        &mut self,
        executor: ExecutorId,
        id: InstanceId,
        key: QueueKey,
    ) -> Option<Object> {
        let need = &self.needs[key.1];
        let found = &self.fleet[executor];
        let is_able = found.takes_tasks() && found.serves.is_some() && found.offers(need);
        if !is_able || !self.placement.may_fetch(executor) {
            return None;
        }
        let instance = &self.instances[&id];
        let queue = instance.queues.find(&key)?;
        let costs = Costs {
            task_micros: queue
                .estimate(&instance.batches, queue.measured)
                .unwrap_or(found.mean_micros),
            peer_bytes_per_second: PEER_SECOND_BYTES,
            slots: found.capacity.count_of(&need.resources, u64::from(u16::MAX)).max(1),
            now: self.now,
        };
        self.placement.next_fetch(executor, (id, key), &costs)
    }

    /// An instance goes, with all that executors have of it.
    pub(super) fn cancel_instance_transfers(&mut self, instance: InstanceId) {
        if !self.placement.knows_data() {
            return;
        }
        let of_instance = (instance, 0)..=(instance, u64::MAX);
        let runs: Vec<(ExecutorId, InFlight)> = self
            .fleet
            .iter()
            .flat_map(|executor| {
                let runs = executor.in_flight.range(of_instance.clone());
                runs.map(|(_, run)| (executor.id, *run))
            })
            .collect();
        for (executor, run) in runs {
            self.cancel_input_transfers(executor, instance, &run);
        }
    }

    /// Tasks of an executor have ended or come back: what was on its way there
    /// for them, and has not been reported, is not coming.
    pub(super) fn cancel_input_transfers(
        &mut self,
        id: ExecutorId,
        instance: InstanceId,
        run: &InFlight,
    ) {
        if !self.placement.knows_data() {
            return;
        }
        let Some(batch) = self.instances[&instance].batch_of(TaskId(run.first)) else { return };
        let Some(data) = &batch.submission.data else { return };
        self.placement.not_coming(id, data, run.first - batch.first, run.count);
    }
}

/// Sends the template of a task's batch along with an executor's order, if it
/// has not got it.
pub(super) fn announce(instance: &mut Instance, task: TaskId, executor: &mut Serving<'_>) {
    let Some(batch) = instance.batch_of(task) else { return };
    let id = batch.id;
    if instance.templates.get(&id).is_some_and(|template| template.known_by.contains(executor.id.0))
    {
        return;
    }
    executor.prepare(Prepare {
        batch: id,
        template: batch.submission.template.clone(),
        classes: batch.submission.sent_classes(),
        everywhere: match (&batch.submission.everywhere, &executor.subtree) {
            (Some(everywhere), Some(_)) => Some(everywhere.offering.clone()),
            _ => None,
        },
    });
    instance.templates.entry(id).or_default().known_by.insert(executor.id.0, 1);
}

/// Tasks that an executor has, as it would name them.
pub(super) fn held_of_run(instance: InstanceId, run: &InFlight) -> Held {
    Held { instance, first: TaskId(run.first), count: run.count, tries: run.tries }
}

/// The data of tasks that go wherever there is room: every access is to the
/// persistent store.
/// Of outputs, `is_to_stay` says which are to stay in the executor's cache.
pub(super) fn unlocated_data(
    data: &Declared,
    offset: u64,
    count: u64,
    is_to_stay: impl Fn(&Object) -> bool,
) -> AssignedData {
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
    let read = (0u32..).zip(&objects).filter(|(_, located)| is_to_stay(&located.object));
    let read = read.map(|(number, _)| number).collect();
    AssignedData { objects, inputs, outputs, read }
}
