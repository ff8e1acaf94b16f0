//! Tasks: their arrival, their room, their readiness, their end.

use super::fetch::add;
use super::{
    Action, Input, Item, Requester, Stage, StageError, Staged, State, Task, Timer, Wanted,
};
use crate::data::cache::{RefusedError, TierId};
use crate::data::limits::{ADMIT_PASSES_MAX, ADMIT_SEARCH_TASKS_MAX, ROOM_WAIT_MICROS};
use crate::data::object::{Object, ObjectId, Sources};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Inputs of one task that are looked at to refuse it quickly.
const QUICK_INPUTS_MAX: usize = 16;

impl Stage {
    /// [`Event::Want`].
    pub(super) fn want(&mut self, key: Requester, inputs: Vec<Input>) {
        self.forget(key);
        let rank = (true, self.next_ticket);
        self.next_ticket += 1;
        let mut wanted = Vec::with_capacity(inputs.len());
        let mut unresolved = BTreeMap::new();
        for Input { object, sources, is_unpacked, may_mount } in inputs {
            if object.is_unversioned() && sources.store {
                unresolved.insert(object.id, Arc::clone(&object));
            }
            self.use_item(key, &object, &sources);
            let wanted_id = object.id;
            wanted.push(Wanted {
                wanted: wanted_id,
                object,
                is_unpacked,
                may_mount: may_mount && !is_unpacked,
                pinned: false,
                charged: false,
            });
        }
        let task = Task {
            rank,
            state: State::Resolving,
            inputs: wanted,
            unresolved: unresolved.len(),
            missing: 0,
            usage: Default::default(),
            passed: 0,
            disk_full: 0,
            redirects: 0,
        };
        self.tasks.insert(key, task);
        if unresolved.is_empty() {
            self.enqueue(key);
        }
        for object in unresolved.into_values() {
            self.ask_what_it_is(key, &object);
        }
    }

    /// [`Event::Needed`].
    pub(super) fn needed(&mut self, key: Requester) {
        let Some(task) = self.tasks.get_mut(&key).filter(|task| task.rank.0) else { return };
        let old = task.rank;
        task.rank.0 = false;
        let rank = task.rank;
        let objects: Vec<ObjectId> = task.inputs.iter().map(|input| input.object.id).collect();
        if self.waiting.remove(&old).is_some() {
            self.waiting.insert(rank, key);
            self.dirty = true;
        }
        self.ahead.remove(&old);
        for object in objects {
            self.hasten(object, rank);
        }
    }

    /// [`Event::Started`].
    pub(super) fn started(&mut self, key: Requester) {
        let Some(task) = self.tasks.get_mut(&key) else { return };
        if task.state == State::Ready {
            task.state = State::Started;
            self.ahead.remove(&task.rank);
        }
    }

    /// [`Event::Ended`], at whatever stage.
    pub(super) fn forget(&mut self, key: Requester) {
        if !self.tasks.contains_key(&key) {
            return;
        }
        self.withdraw(key);
        for resolving in self.resolving.values_mut() {
            resolving.forget(key);
        }
        let Some(task) = self.tasks.remove(&key) else { return };
        for input in &task.inputs {
            self.leave_item(key, input.object.id);
        }
        self.dirty = true;
    }

    pub(super) fn fail(&mut self, key: Requester, error: StageError) {
        self.forget(key);
        self.actions.push_back(Action::Failed { requester: key, error });
    }

    /// A task wants an object.
    pub(super) fn use_item(&mut self, key: Requester, object: &Arc<Object>, sources: &Sources) {
        // A member is here for those who read it now; others find it in its archive.
        if object.archive().is_some() && !self.cache.holds(object.id) {
            self.fleeting.insert(object.id);
        }
        let item = self.items.entry(object.id).or_insert_with(|| Item::new(Arc::clone(object)));
        item.users.insert(key);
        if item.size.is_none() && object.size.is_some() && item.making.is_none() {
            item.object = Arc::clone(object);
            item.size = object.size;
        }
        self.hint(object.id, sources);
        self.weigh(object.id);
    }

    /// A task wants an object no more.
    pub(super) fn leave_item(&mut self, key: Requester, object: ObjectId) {
        let Some(item) = self.items.get_mut(&object) else { return };
        item.users.remove(&key);
        if item.users.is_empty() {
            self.hide(object);
        }
        self.drop_item(object);
        self.weigh(object);
    }

    /// Forgets an object that nobody wants and that is not on its way.
    pub(super) fn drop_item(&mut self, object: ObjectId) {
        let item = self.items.get(&object);
        if item.is_some_and(|item| item.users.is_empty() && item.making.is_none()) {
            self.items.remove(&object);
            self.leave_broadcast(object);
            if self.cache.entry(object).is_none() {
                self.trees.gone(object, false);
            }
            if !self.cache.holds(object) {
                self.fleeting.remove(&object);
            }
        }
    }

    /// A task waits for room from now on; or has failed, if it can never have
    /// it.
    pub(super) fn enqueue(&mut self, key: Requester) {
        let Some(task) = self.tasks.get(&key) else { return };
        let rooms: Vec<u64> = self.rooms(task).into_values().collect();
        if let Err(error) = self.cache.would_fit(&rooms) {
            return self.fail(key, StageError::Room(error));
        }
        if let Some(task) = self.tasks.get_mut(&key) {
            task.state = State::Waiting;
            // Behind many others it is not looked at before something changes.
            let far = task.rank.0 && self.waiting.len() > ADMIT_SEARCH_TASKS_MAX;
            self.waiting.insert(task.rank, key);
            self.dirty |= !far;
        }
    }

    /// A task's objects and the room that each needs, with that of its unpacked
    /// form as far as that has been counted.
    fn rooms(&self, task: &Task) -> BTreeMap<ObjectId, u64> {
        let mut rooms = BTreeMap::new();
        for input in task.inputs.iter().filter(|input| !self.is_mounted(input)) {
            let id = input.object.id;
            let (packed, unpacked) = match self.cache.entry(id).filter(|entry| entry.is_held) {
                Some(held) => (held.size, held.unpacked),
                None => (self.items.get(&id).map_or(0, Item::room), 0),
            };
            let needed = if input.is_unpacked { self.trees.bytes(id) } else { 0 };
            let room: &mut u64 = rooms.entry(id).or_default();
            *room = (*room).max(packed.saturating_add(unpacked.max(needed)));
        }
        rooms
    }

    /// The archives here that a task wants unpacked, and the room that takes.
    fn unpacked_rooms(&self, task: &Task) -> Vec<(ObjectId, u64)> {
        let unpacked = task.inputs.iter().filter(|input| input.is_unpacked);
        let ids = unpacked.map(|input| input.object.id);
        let here = ids.filter(|id| self.cache.holds(*id) && !self.trees.is_made(*id));
        here.map(|id| (id, self.trees.bytes(id))).filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// Admits whom it can.
    pub(super) fn admit(&mut self) {
        if !self.admit_outputs() {
            return;
        }
        let mut refused: Vec<Requester> = Vec::new();
        // One that a slot waits for has been refused; one has been passed as
        // often as may be.
        let (mut needed, mut blocked) = (false, false);
        let mut waiting_for_trees = 0;
        let mut from = Bound::Unbounded;
        while refused.len() + waiting_for_trees < ADMIT_SEARCH_TASKS_MAX && !blocked {
            let next = self.waiting.range((from, Bound::Unbounded)).next();
            let Some((&rank, &key)) = next else { break };
            from = Bound::Excluded(rank);
            if needed && rank.0 {
                // Nothing is fetched ahead while a slot waits for room.
                break;
            }
            if self.waits_for_tree(key) {
                // Whoever is admitted before it takes nothing from it.
                waiting_for_trees += 1;
                continue;
            }
            match self.try_admit(key) {
                Ok(()) => {
                    for passed in &refused {
                        if let Some(task) = self.tasks.get_mut(passed) {
                            task.passed = task.passed.saturating_add(1);
                            blocked |= task.passed >= ADMIT_PASSES_MAX;
                        }
                    }
                }
                Err(RefusedError::TooLarge { .. }) => self.refuse_large(key),
                Err(_) => {
                    let passed = self.tasks.get(&key).map_or(0, |task| task.passed);
                    blocked |= passed >= ADMIT_PASSES_MAX;
                    needed |= !rank.0;
                    refused.push(key);
                }
            }
        }
    }

    /// It was let in when less was known of its sizes.
    fn refuse_large(&mut self, key: Requester) {
        let Some(task) = self.tasks.get(&key) else { return };
        let rooms: Vec<u64> = self.rooms(task).into_values().collect();
        if let Err(error) = self.cache.would_fit(&rooms) {
            self.fail(key, StageError::Room(error));
        }
    }

    /// Pins what is here of a task's inputs and reserves room for the rest;
    /// takes the room of tasks that no slot waits for, if one waits for this.
    fn try_admit(&mut self, key: Requester) -> Result<(), RefusedError> {
        let Some(task) = self.tasks.get(&key) else { return Ok(()) };
        let rank = task.rank;
        self.would_be_refused(task)?;
        let rooms = self.rooms(task);
        let unpacked = self.unpacked_rooms(task);
        let sizes: Vec<u64> = rooms.values().copied().collect();
        self.cache.would_fit(&sizes)?;
        let present: Vec<ObjectId> =
            rooms.keys().copied().filter(|object| self.cache.pin(*object)).collect();
        let wanted: Vec<(ObjectId, u64)> = rooms.into_iter().collect();
        let result = loop {
            let refused = match self.cache.reserve_with_unpacked(&wanted, &unpacked) {
                Ok(evicted) => break Ok(evicted),
                Err(refused) => refused,
            };
            // Those ahead lose their room, the last to come first.
            let last = self.ahead.last_key_value().map(|(_, other)| *other);
            if let Some(other) = last.filter(|_| !rank.0) {
                self.put_back(other);
            } else if !self.needs_lent_room(&wanted) || !self.lend_less() {
                break Err(refused);
            }
        };
        for object in &present {
            self.cache.unpin(*object);
        }
        let result = match result {
            Err(refused) if self.is_standing_still() => {
                self.make_way(&present, &wanted, &unpacked).map_err(|_| refused)
            }
            result => result,
        };
        match result {
            Ok(evicted) => self.let_in(key, evicted),
            Err(refused) => {
                for object in present {
                    self.sweep(object);
                }
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Whether any of these objects is too large for all directories but the one
    /// that is lent.
    fn needs_lent_room(&self, wanted: &[(ObjectId, u64)]) -> bool {
        let is_to_come = |object| self.cache.entry(object).is_none();
        wanted.iter().any(|(object, size)| is_to_come(*object) && self.cache.is_for_lent(*size))
    }

    /// Refuses what there is clearly no room for, before anything is touched:
    /// many may wait, and are looked at often.
    fn would_be_refused(&self, task: &Task) -> Result<(), RefusedError> {
        if self.is_standing_still() || (!task.rank.0 && !self.ahead.is_empty()) {
            return Ok(());
        }
        if self.lending.ids().next().is_some() {
            // What others have here may go.
            return Ok(());
        }
        let (mut needed, mut own) = (0u64, 0u64);
        for (at, input) in task.inputs.iter().enumerate() {
            let id = input.object.id;
            if at >= QUICK_INPUTS_MAX || task.inputs[..at].iter().any(|other| other.object.id == id)
            {
                continue;
            }
            let entry = self.cache.entry(id);
            if input.is_unpacked && entry.is_none_or(|entry| entry.unpacked == 0) {
                add(&mut needed, self.trees.bytes(id));
            }
            match entry {
                None if self.is_mounted(input) => {}
                None => add(&mut needed, self.items.get(&id).map_or(0, Item::room)),
                // Its own inputs are not evicted for it.
                Some(at) if at.is_held && at.pins == 0 && !at.only_here => {
                    add(&mut own, at.size.saturating_add(at.unpacked));
                }
                Some(_) => {}
            }
        }
        let available = self.cache.available().saturating_sub(own);
        if needed > available { Err(self.cache.occupied(needed)) } else { Ok(()) }
    }

    /// With several directories, what is here may lie where the rest must go;
    /// nobody else is using anything, so the task's own inputs may move.
    fn make_way(
        &mut self,
        present: &[ObjectId],
        wanted: &[(ObjectId, u64)],
        unpacked: &[(ObjectId, u64)],
    ) -> Result<Vec<crate::data::cache::Evicted>, RefusedError> {
        let movable = |object: &&ObjectId| {
            self.cache.entry(**object).is_some_and(|entry| entry.is_held && !entry.only_here)
        };
        let movable: Vec<ObjectId> = present.iter().filter(movable).copied().collect();
        if movable.is_empty() || !self.cache.has_several_tiers() {
            return Err(RefusedError::Unknown(wanted.first().map_or(ObjectId(0), |first| first.0)));
        }
        let gone: Vec<_> = movable.iter().filter_map(|object| self.cache.remove(*object)).collect();
        let staying: Vec<ObjectId> =
            present.iter().copied().filter(|object| self.cache.pin(*object)).collect();
        let unpacked: Vec<(ObjectId, u64)> =
            unpacked.iter().copied().filter(|(object, _)| staying.contains(object)).collect();
        let reserved = self.cache.reserve_with_unpacked(wanted, &unpacked);
        for object in staying {
            self.cache.unpin(object);
        }
        self.evicted(gone);
        reserved
    }

    /// A task has its room.
    fn let_in(&mut self, key: Requester, evicted: Vec<crate::data::cache::Evicted>) {
        self.evicted(evicted);
        let Some(task) = self.tasks.get(&key) else { return };
        let mounted = task.inputs.iter().filter(|input| self.is_mounted(input));
        let mounted: Vec<Arc<Object>> = mounted.map(|input| Arc::clone(&input.object)).collect();
        for object in &mounted {
            self.show(object);
        }
        let Some(task) = self.tasks.get_mut(&key) else { return };
        task.state = State::Staging;
        task.passed = 0;
        let rank = task.rank;
        let mut missing = BTreeSet::new();
        for input in &mut task.inputs {
            let object = input.object.id;
            if mounted.iter().any(|one| one.id == object) {
                continue;
            }
            input.pinned = self.cache.pin(object);
            let is_unpacked = input.is_unpacked && !self.trees.is_ready(object);
            if is_unpacked || !self.cache.holds(object) {
                missing.insert(object);
            }
        }
        task.missing = missing.len();
        self.waiting.remove(&rank);
        if rank.0 {
            self.ahead.insert(rank, key);
        }
        self.admitted += 1;
        let (here, coming): (Vec<_>, Vec<_>) =
            missing.into_iter().partition(|object| self.cache.holds(*object));
        for object in coming {
            self.weigh(object);
            self.begin(object, rank);
        }
        // Last, as a task may end here: its archive may be none.
        for object in here {
            if self.tasks.get(&key).is_some_and(|task| task.state == State::Staging) {
                self.make_tree(object);
            }
            self.return_unused_room(object);
        }
        self.ready_if_complete(key);
    }

    /// One more of a task's objects is here.
    pub(super) fn has_one_more(&mut self, key: Requester) {
        if let Some(task) = self.tasks.get_mut(&key) {
            task.missing = task.missing.saturating_sub(1);
        }
        self.ready_if_complete(key);
    }

    /// Says that a task is ready, if it is.
    fn ready_if_complete(&mut self, key: Requester) {
        let Some(task) = self.tasks.get_mut(&key) else { return };
        if task.state != State::Staging || task.missing > 0 {
            return;
        }
        task.state = State::Ready;
        let Some(task) = self.tasks.get(&key) else { return };
        let mut usage = task.usage;
        let mut staged = Vec::with_capacity(task.inputs.len());
        for input in &task.inputs {
            if self.is_mounted(input) {
                staged.push(Staged {
                    wanted: input.wanted,
                    object: Arc::clone(&input.object),
                    tier: TierId(0),
                    is_unpacked: false,
                    is_mounted: true,
                });
                continue;
            }
            let Some(entry) = self.cache.entry(input.object.id) else { continue };
            if !input.charged {
                usage.local.objects += 1;
                add(&mut usage.local.bytes, entry.size);
                self.totals.local.objects += 1;
                add(&mut self.totals.local.bytes, entry.size);
            }
            self.cache.touch(input.object.id);
            let object = Arc::clone(&input.object);
            let (wanted, is_unpacked) = (input.wanted, input.is_unpacked);
            let (tier, is_mounted) = (entry.tier, false);
            staged.push(Staged { wanted, object, tier, is_unpacked, is_mounted });
        }
        self.actions.push_back(Action::Ready { requester: key, inputs: staged, usage });
    }

    /// Takes a task out of wherever it stands, with all that it holds.
    pub(super) fn withdraw(&mut self, key: Requester) {
        let Some(task) = self.tasks.get_mut(&key) else { return };
        let state = std::mem::replace(&mut task.state, State::Resolving);
        self.waiting.remove(&task.rank);
        self.ahead.remove(&task.rank);
        let mut released = Vec::new();
        for input in &mut task.inputs {
            if std::mem::take(&mut input.pinned) {
                self.cache.unpin(input.object.id);
                released.push(input.object.id);
            }
        }
        if matches!(state, State::Staging | State::Ready | State::Started) {
            self.admitted -= 1;
        }
        for object in released {
            self.sweep(object);
        }
        self.dirty = true;
    }

    /// An admitted task waits for room again, where it stood.
    pub(super) fn put_back(&mut self, key: Requester) {
        let Some(state) = self.tasks.get(&key).map(|task| task.state) else { return };
        if !matches!(state, State::Staging | State::Ready) {
            return;
        }
        // Before its inputs may go.
        if state == State::Ready {
            self.actions.push_back(Action::Unready(key));
        }
        self.withdraw(key);
        self.enqueue(key);
    }

    /// What nobody uses any more: a file in the making ends, and one that was
    /// to go goes.
    pub(super) fn sweep(&mut self, object: ObjectId) {
        let Some(entry) = self.cache.entry(object) else { return };
        if entry.pins > 0 {
            return;
        }
        let making = self.items.get(&object).and_then(|item| item.making.as_ref());
        if making.is_some_and(|making| making.sealing) {
            // It is all but here, and its file may be in its place already.
        } else if !entry.is_held {
            self.abandon(object);
        } else if self.doomed.contains(&object)
            || self.fleeting.contains(&object)
            || self.trees.is_alone(object)
        {
            let gone = self.cache.remove(object);
            self.evicted(gone.into_iter().collect());
            self.dirty = true;
        }
    }

    /// Whether nothing that is going on will free room.
    pub(super) fn is_standing_still(&self) -> bool {
        self.admitted == 0
            && self.serves.is_empty()
            && self.adopting.is_empty()
            && self.partials.len() == self.lending.ids().count()
            && self.trees.is_idle()
    }

    /// Arms or disarms the timeout after which the first that waits for room
    /// is given up.
    pub(super) fn watch_for_standstill(&mut self) {
        let stuck = !self.waiting.is_empty() && self.is_standing_still();
        match self.stuck {
            None if stuck => {
                let at = self.now.after(ROOM_WAIT_MICROS);
                self.stuck = Some(at);
                self.timers.insert((at, Timer::Stuck));
            }
            Some(at) if !stuck => {
                self.stuck = None;
                self.timers.remove(&(at, Timer::Stuck));
            }
            _ => {}
        }
    }

    /// Those that wait for room have waited too long.
    pub(super) fn give_up(&mut self) {
        self.stuck = None;
        while self.is_standing_still()
            && let Some(key) = self.waiting.first_key_value().map(|(_, key)| *key)
        {
            if let Err(error) = self.try_admit(key) {
                self.fail(key, StageError::Room(error));
            }
        }
    }

    /// Tasks of these states that want an object.
    pub(super) fn users(&self, object: ObjectId, states: &[State]) -> Vec<Requester> {
        let users = self.items.get(&object).into_iter().flat_map(|item| item.users.iter());
        let mut users: Vec<(super::Rank, Requester)> = users
            .filter_map(|key| Some((key, self.tasks.get(key)?)))
            .filter(|(_, task)| states.contains(&task.state))
            .map(|(key, task)| (task.rank, *key))
            .collect();
        users.sort_unstable_by_key(|(rank, _)| *rank);
        users.into_iter().map(|(_, key)| key).collect()
    }
}
