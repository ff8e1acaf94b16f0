//! The state checker of a stage: what must hold after every step.

use super::{Stage, State, Timer};
use crate::data::limits::CHUNK_WAITS_MAX;
use crate::dispatch::CheckError;
use crate::dispatch::check::ensure;
use std::collections::{BTreeMap, BTreeSet};

impl Stage {
    /// Checks the whole state; costs time in proportion to it.
    ///
    /// # Errors
    /// Says what does not hold.
    pub fn check(&self) -> Result<(), CheckError> {
        self.cache.check()?;
        self.check_tasks()?;
        self.check_pins()?;
        self.check_fetches()?;
        for (object, item) in &self.items {
            let sealing = item.making.as_ref().is_some_and(|making| making.sealing);
            let is_share = self.lending.has(*object);
            ensure!(is_share || sealing || !item.users.is_empty(), "nobody wants object {object}");
            for user in &item.users {
                let wants = self
                    .tasks
                    .get(user)
                    .is_some_and(|task| task.inputs.iter().any(|input| input.object.id == *object));
                ensure!(wants, "{user:?} does not want object {object}");
            }
        }
        for object in self.mounts.shown() {
            let has_users = self.items.get(&object).is_some_and(|item| !item.users.is_empty());
            ensure!(has_users, "nobody reads object {object}, which is shown");
        }
        for object in self.doomed.iter().chain(&self.fleeting) {
            let used = self.cache.entry(*object).is_some_and(|at| at.pins > 0 || !at.is_held);
            let wanted = self.items.contains_key(object);
            ensure!(used || wanted, "object {object} should have gone");
        }
        Ok(())
    }

    /// Each task is where its state says, with what its state needs.
    fn check_tasks(&self) -> Result<(), CheckError> {
        let mut admitted = 0;
        for (key, task) in &self.tasks {
            let waits = self.waiting.get(&task.rank) == Some(key);
            let ahead = self.ahead.get(&task.rank) == Some(key);
            let holds = matches!(task.state, State::Staging | State::Ready | State::Started);
            admitted += usize::from(holds);
            ensure!(waits == (task.state == State::Waiting), "{key:?} {:?} waits", task.state);
            let revocable = matches!(task.state, State::Staging | State::Ready);
            ensure!(ahead == (revocable && task.rank.0), "{key:?} {:?} is ahead", task.state);
            ensure!(
                (task.unresolved > 0) == (task.state == State::Resolving),
                "{key:?} {:?} has {} unresolved inputs",
                task.state,
                task.unresolved
            );
            for input in &task.inputs {
                let object = input.object.id;
                let mounted = self.is_mounted(input);
                let here = mounted || self.is_complete(object, input.is_unpacked);
                let pinned = input.pinned || mounted;
                ensure!(!(mounted && input.pinned), "{key:?} holds {object}, which has no room");
                let users = self.items.get(&object).map(|item| &item.users);
                ensure!(users.is_some_and(|users| users.contains(key)), "{key:?}: no {object}");
                match task.state {
                    State::Ready => ensure!(here && pinned, "{key:?} has not {object}"),
                    State::Staging => ensure!(pinned, "{key:?} does not hold {object}"),
                    State::Started => {}
                    _ => ensure!(!input.pinned, "{key:?} holds {object}"),
                }
            }
            if task.state == State::Staging {
                let lacks = task
                    .inputs
                    .iter()
                    .filter(|input| !self.is_mounted(input))
                    .filter(|input| !self.is_complete(input.object.id, input.is_unpacked));
                let missing: BTreeSet<_> = lacks.map(|input| input.object.id).collect();
                ensure!(!missing.is_empty(), "{key:?} has all its inputs and is not ready");
                ensure!(missing.len() == task.missing, "{key:?} misses {}", task.missing);
            }
        }
        ensure!(admitted == self.admitted, "admitted tasks are miscounted");
        let places = self.waiting.values().chain(self.ahead.values());
        for key in places {
            ensure!(self.tasks.contains_key(key), "{key:?} waits and is not there");
        }
        Ok(())
    }

    /// Pins are those of tasks and serves.
    fn check_pins(&self) -> Result<(), CheckError> {
        let mut pins: BTreeMap<_, u64> = BTreeMap::new();
        let inputs = self.tasks.values().flat_map(|task| &task.inputs);
        for input in inputs.filter(|input| input.pinned) {
            *pins.entry(input.object.id).or_default() += 1;
        }
        for (object, pinned) in self.serves.values() {
            if *pinned {
                *pins.entry(*object).or_default() += 1;
            }
        }
        for object in self.trees.working().chain(self.lending.ids()) {
            *pins.entry(object).or_default() += 1;
        }
        let adopted = self.adopting.values().map(|keeping| keeping.object.id);
        ensure!(adopted.clone().all(|id| self.adopted.contains(&id)), "an output is not known");
        ensure!(adopted.count() == self.adopted.len(), "outputs are miscounted");
        ensure!(self.serves.len() <= self.serves_max, "too many are served");
        let waits = self.waits.count();
        ensure!(waits.is_some_and(|count| count <= CHUNK_WAITS_MAX), "requests are miscounted");
        for (object, entry) in self.cache.entries() {
            let expected = pins.remove(&object).unwrap_or(0);
            ensure!(entry.pins == expected, "{object}: {} pins, not {expected}", entry.pins);
            let making = self.items.get(&object).and_then(|item| item.making.as_ref());
            let adopted = self.adopted.contains(&object);
            ensure!(!(making.is_some() && adopted), "{object} is made twice");
            let coming = making.is_some() || adopted;
            let has_tree = self.trees.is_made(object);
            ensure!(has_tree == (entry.unpacked > 0), "{object}: unpacked {}", entry.unpacked);
            let is_left = self.trees.is_alone(object) && entry.pins == 0;
            ensure!(!is_left, "the unpacked form of {object} should have gone");
            ensure!(entry.is_held != coming, "{object}: held {}, coming {coming}", entry.is_held);
        }
        ensure!(pins.is_empty(), "something is pinned and not there");
        Ok(())
    }

    /// Transfers are within limits, and each object on its way can go on.
    fn check_fetches(&self) -> Result<(), CheckError> {
        ensure!(self.transfers.len() <= self.fetches_max, "too many transfers");
        let mut loads: BTreeMap<_, usize> = BTreeMap::new();
        for (fetch, transfer) in &self.transfers {
            *loads.entry(transfer.key.clone()).or_default() += 1;
            let making = self.items.get(&transfer.object).and_then(|item| item.making.as_ref());
            let active = making.is_some_and(|making| making.active.contains(fetch));
            ensure!(active, "{fetch:?} is for nothing");
        }
        ensure!(loads == self.loads, "transfers by source are miscounted");
        ensure!(loads.values().all(|load| *load <= self.source_fetches_max), "a source is overrun");
        let mut parked: usize = 0;
        let mut made = 0;
        for (object, item) in &self.items {
            let Some(making) = &item.making else { continue };
            made += 1;
            parked += making.parked.len();
            ensure!(self.partials.get(&making.partial) == Some(object), "{object}: no file");
            let is_hungry = self.hungry.contains(&(making.rank, *object));
            let waits = making
                .retry_at
                .is_some_and(|at| self.timers.contains(&(at, Timer::Fetch(*object))));
            let due = self.broadcasts.timer(*object);
            let broadcast =
                due.is_some_and(|at| self.timers.contains(&(at, Timer::Chunks(*object))));
            let is_share = self.lending.has(*object);
            let goes_on = making.sealing
                || (is_share && making.pending.is_empty())
                || !making.active.is_empty()
                || waits
                || !making.parked.is_empty()
                || broadcast
                || (is_hungry && self.transfers.len() >= self.fetches_max);
            ensure!(goes_on, "object {object} stands still: {making:?}");
            ensure!(self.cache.entry(*object).is_some_and(|at| !at.is_held), "{object}: no room");
            for key in &making.parked {
                let known =
                    self.parked.get(key).is_some_and(|at| at.contains(&(making.rank, *object)));
                let full = self.loads.get(key).is_some_and(|load| *load >= self.source_fetches_max);
                let all_full = self.transfers.len() >= self.fetches_max;
                ensure!(
                    known && (full || all_full),
                    "object {object} waits at {key:?} for nothing"
                );
            }
        }
        ensure!(self.partials.len() == made, "files in the making are miscounted");
        ensure!(parked == self.parked.values().map(|at| at.len()).sum(), "parked are miscounted");
        Ok(())
    }
}
