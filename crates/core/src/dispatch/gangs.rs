//! Gangs: tries of tasks that run on several executors each, from the moment at which they
//! are given room on all of these until the last has given it back.
//!
//! The task itself is in flight on the first executor, like any other, and holds no room there:
//! the gang does, on each of its members. When the task is in flight no more, however that
//! came, the gang is disbanded. When a member is lost, or says that the gang cannot go on
//! there, the task is lost once, and so the gang is disbanded as well.
//!
//! The journal says nothing of gangs. After a restart, members say what they hold: a gang of
//! which all have come back runs on.

mod place;
mod reserve;

use super::fleet::InFlight;
use super::instance::QueueKey;
use super::{Dispatcher, Held};
use crate::dispatch::check::{CheckError, ensure};
use crate::gang::{GangKey, GangOrder, GangReport, GangToken, Member};
use crate::limits::{GANG_LOOK_MICROS, TOKEN_GANGS_MAX};
use crate::result::Tries;
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, Resources, TaskClass, TaskId, Time};
use reserve::Reservation;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A queue of tasks that run on several executors each.
pub(super) type GangQueue = (InstanceId, QueueKey);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Gangs {
    all: BTreeMap<GangKey, Gang>,
    /// The gangs that hold room of each executor.
    of_executor: BTreeMap<ExecutorId, BTreeSet<GangKey>>,
    /// The gangs that run, by the executor that has the task.
    of_first: BTreeMap<ExecutorId, BTreeSet<GangKey>>,
    /// Executors whose tasks have changed: gangs whose first they are may be over.
    stale: BTreeSet<ExecutorId>,
    /// The executors whose room is kept for a gang.
    reservation: Option<Reservation>,
    /// Queues for which no room could be kept when that was last tried.
    unable: BTreeSet<GangQueue>,
    /// When the reservation, and these queues, are looked at again.
    look_at: Option<Time>,
    /// Secrets for gangs to come.
    tokens: Vec<GangToken>,
    /// More of them are on their way.
    are_tokens_asked: bool,
}

#[derive(Debug)]
struct Gang {
    queue: GangQueue,
    resources: Resources,
    ranks_per_node: u32,
    /// `None` after a restart: it is known to the members alone.
    token: Option<GangToken>,
    members: Arc<Vec<Member>>,
    /// The executors that hold room for it, and which of the members each is.
    holding: BTreeMap<ExecutorId, u32>,
    /// The executor that has the task.
    first: Option<ExecutorId>,
    dispatched: Time,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its task is in flight; when it is expected to end.
    Running(Option<Time>),
    /// The dispatcher was restarted, and so many members are to hold it.
    Returning(u32),
    /// It is being disbanded.
    Ending,
}

impl Gangs {
    /// Executors of which gangs have to be looked at: their tasks have changed.
    pub(super) fn look_at(&mut self, id: ExecutorId) {
        if self.of_first.contains_key(&id) {
            self.stale.insert(id);
        }
    }

    /// The same for all that have a task of an instance.
    pub(super) fn look_at_instance(&mut self, id: InstanceId) {
        let firsts = self.all.iter().filter(|(key, _)| key.instance == id);
        let firsts = firsts.filter_map(|(_, gang)| gang.first);
        self.stale.extend(firsts.filter(|id| self.of_first.contains_key(id)));
    }

    /// Executors came, went, or take tasks again.
    pub(super) fn fleet_changed(&mut self) {
        self.unable.clear();
    }

    /// When something is to be looked at again.
    pub(super) fn due(&self) -> Option<Time> {
        self.look_at
    }

    /// Whether it is time to look again.
    pub(super) fn take_due(&mut self, now: Time) -> bool {
        let is_due = self.look_at.take_if(|at| *at <= now).is_some();
        if is_due {
            self.are_tokens_asked &= !self.tokens.is_empty();
            self.unable.clear();
            if let Some(reservation) = &mut self.reservation {
                reservation.is_stale = true;
            }
        }
        is_due
    }

    /// Takes in secrets that were drawn. If there are none, they are asked for again after a
    /// while.
    pub(super) fn add_tokens(&mut self, tokens: Vec<GangToken>, now: Time) {
        self.are_tokens_asked = tokens.is_empty();
        if tokens.is_empty() {
            self.look_at = Some(now.after(GANG_LOOK_MICROS));
        }
        self.tokens.extend(tokens);
        self.tokens.truncate(2 * TOKEN_GANGS_MAX);
    }

    /// Whether gangs wait for secrets.
    pub(super) fn are_tokens_on_their_way(&self) -> bool {
        self.are_tokens_asked
    }

    /// How many secrets are to be drawn, if it is time to ask.
    fn tokens_wanted(&mut self) -> Option<u32> {
        let is_due = self.tokens.len() < TOKEN_GANGS_MAX / 2 && !self.are_tokens_asked;
        self.are_tokens_asked |= is_due;
        is_due.then_some(TOKEN_GANGS_MAX as u32)
    }

    /// An executor does not hold a gang any more. Returns whether it did.
    fn let_go(&mut self, id: ExecutorId, key: GangKey) -> bool {
        if let Some(keys) = self.of_executor.get_mut(&id) {
            keys.remove(&key);
            if keys.is_empty() {
                self.of_executor.remove(&id);
            }
        }
        let Some(gang) = self.all.get_mut(&key) else { return false };
        let held = gang.holding.remove(&id).is_some();
        if gang.holding.is_empty() && gang.state == State::Ending {
            self.all.remove(&key);
        }
        held
    }

    /// Notes the executor that has the task of a gang, or that none has it any more.
    fn set_first(&mut self, key: GangKey, first: Option<ExecutorId>) {
        let Some(gang) = self.all.get_mut(&key) else { return };
        let before = std::mem::replace(&mut gang.first, first);
        if let Some(before) = before
            && let Some(keys) = self.of_first.get_mut(&before)
        {
            keys.remove(&key);
            if keys.is_empty() {
                self.of_first.remove(&before);
                self.stale.remove(&before);
            }
        }
        if let Some(first) = first {
            self.of_first.entry(first).or_default().insert(key);
        }
    }

    /// The gangs whose task an executor has.
    fn begun_at(&self, id: ExecutorId) -> Vec<GangKey> {
        self.of_first.get(&id).into_iter().flatten().copied().collect()
    }

    /// The gangs that hold room of an executor.
    fn of(&self, id: ExecutorId) -> Vec<GangKey> {
        self.of_executor.get(&id).into_iter().flatten().copied().collect()
    }

    /// When a gang gives its room back, as far as is known.
    fn end_of(&self, key: &GangKey, now: Time) -> Time {
        match self.all.get(key).map(|gang| gang.state) {
            Some(State::Running(Some(at))) => at.max(now),
            Some(State::Running(None) | State::Returning(_)) => Time(u64::MAX),
            Some(State::Ending) | None => now,
        }
    }

    /// Whether a gang of a try holds room.
    fn holds(&self, key: &GangKey) -> bool {
        self.all.contains_key(key)
    }
}

// What becomes of gangs.
impl Dispatcher {
    /// Disbands gangs whose tasks are in flight no more.
    pub(super) fn settle_gangs(&mut self) {
        while let Some(id) = self.gangs.stale.pop_first() {
            for key in self.gangs.begun_at(id) {
                if !self.has_gang_task(id, key) {
                    self.end_gang(key);
                }
            }
        }
    }

    fn has_gang_task(&self, id: ExecutorId, key: GangKey) -> bool {
        let run = self.fleet[id].in_flight.find(&(key.instance, key.task.0));
        run.is_some_and(|run| run.tries == key.tries && !run.is_staged)
    }

    /// Has all members of a gang end it.
    fn end_gang(&mut self, key: GangKey) {
        let Some(gang) = self.gangs.all.get_mut(&key) else { return };
        if gang.state == State::Ending {
            return;
        }
        gang.state = State::Ending;
        let members: Vec<ExecutorId> = gang.holding.keys().copied().collect();
        let (queue, dispatched) = (gang.queue, gang.dispatched);
        self.gangs.set_first(key, None);
        if members.is_empty() {
            self.gangs.all.remove(&key);
        }
        for id in members {
            self.fleet.order_gang(id, GangOrder::Disband { key });
        }
        self.follow_up(queue, dispatched);
        self.unplaced = true;
    }

    /// A gang cannot go on: its task is lost, once, if it is still in flight.
    fn break_gang(&mut self, key: GangKey) {
        let Some(gang) = self.gangs.all.get(&key) else { return };
        let is_ending = gang.state == State::Ending;
        let mut held = gang.holding.keys().copied();
        let first = gang.first.or_else(|| held.find(|id| self.has_gang_task(*id, key)));
        if let Some(first) = first.filter(|id| !is_ending && self.fleet.contains(*id)) {
            self.lose_gang_task(first, key);
        }
        self.end_gang(key);
    }

    /// A gang's task is lost, if an executor has it in flight.
    fn lose_gang_task(&mut self, id: ExecutorId, key: GangKey) {
        if !self.has_gang_task(id, key) {
            return;
        }
        let held = Held { instance: key.instance, first: key.task, count: 1, tries: key.tries };
        for run in self.fleet.take_lost(id, &held, &self.needs, self.now) {
            self.cancel_input_transfers(id, key.instance, &run);
            self.lose_run(key.instance, &run, id);
        }
    }

    /// A task was lost with an executor: it is tried again, unless that was once too often.
    pub(super) fn lose_run(&mut self, instance: InstanceId, run: &InFlight, id: ExecutorId) {
        if self.goes_on_elsewhere(id, instance, run) {
            return;
        }
        if let Some(tries) = run.counted().lost() {
            self.put_back(instance, run, tries);
            return;
        }
        let need = &self.needs[run.need];
        self.instances[&instance].give_back(run, need);
        let of_run = (run.first, run.count);
        self.end_lost(instance, of_run, run.counted(), Some(id), run.dispatched);
        self.runnable.mark(instance);
    }

    /// Takes in what an executor reports of gangs.
    pub(super) fn hear_of_gangs(&mut self, id: ExecutorId, reports: &[GangReport]) {
        for report in reports {
            let key = report.key();
            let holds = self.gangs.all.get(&key).is_some_and(|gang| gang.holding.contains_key(&id));
            match report {
                _ if !holds => {}
                GangReport::Broken { .. } => self.break_gang(key),
                GangReport::Released { .. } => self.gang_released(id, key),
            }
        }
    }

    /// An executor holds a gang no more. The first says so when the task's command has ended: the
    /// task is reported when what it wrote is safe, and needs the others no more.
    fn gang_released(&mut self, id: ExecutorId, key: GangKey) {
        if self.has_gang_task(id, key)
            && let Some(gang) = self.gangs.all.get_mut(&key)
            && matches!(gang.state, State::Returning(_))
        {
            // Its command has ended, before the others came back.
            gang.state = State::Running(None);
            self.gangs.set_first(key, Some(id));
        }
        let Some(gang) = self.gangs.all.get(&key) else { return };
        let is_first = gang.first == Some(id);
        let is_over = gang.state == State::Ending;
        if self.gangs.let_go(id, key) {
            self.fleet.give_from_gang(id, key, &self.needs, self.now);
            self.unplaced = true;
        }
        match (is_over, is_first) {
            (true, _) => {}
            (false, true) => self.end_gang(key),
            (false, false) => self.break_gang(key),
        }
    }

    /// An executor is given up.
    pub(super) fn gang_member_lost(&mut self, id: ExecutorId) {
        self.gangs.fleet_changed();
        let mut keys = self.gangs.of(id);
        keys.extend(self.gangs.begun_at(id));
        for key in keys {
            self.gangs.let_go(id, key);
            self.break_gang(key);
        }
    }
}

// Executors that come back.
impl Dispatcher {
    /// An executor has connected anew, and has another number: it holds what it held before.
    pub(super) fn gang_member_renumbered(&mut self, (before, id): (ExecutorId, ExecutorId)) {
        for key in self.gangs.begun_at(before) {
            self.gangs.set_first(key, Some(id));
        }
        let keys = self.gangs.of_executor.remove(&before).unwrap_or_default();
        for key in keys {
            let Some(gang) = self.gangs.all.get_mut(&key) else { continue };
            let Some(index) = gang.holding.remove(&before) else { continue };
            gang.holding.insert(id, index);
            self.gangs.of_executor.entry(id).or_default().insert(key);
        }
        // One that offers less than before has no room for all.
        for key in self.gangs.of(id) {
            if !self.fleet[id].gangs.contains_key(&key) {
                self.gangs.let_go(id, key);
                self.break_gang(key);
            }
        }
        self.gangs.look_at(id);
    }

    /// Makes the gangs that an executor says it holds, and those in the books here, the same.
    pub(super) fn reconcile_gangs(&mut self, id: ExecutorId, held: &[GangKey]) {
        self.gangs.fleet_changed();
        let held: BTreeSet<GangKey> = held.iter().copied().collect();
        for key in self.gangs.of(id) {
            let gang = &self.gangs.all[&key];
            let is_first = gang.first == Some(id);
            match (held.contains(&key), gang.state) {
                (true, State::Ending) => self.fleet.order_gang(id, GangOrder::Disband { key }),
                (true, _) => {}
                // What it had to form may not have come.
                (false, State::Running(_)) if !is_first && gang.token.is_some() => {
                    self.order_form(id, key);
                }
                (false, _) => self.gang_released(id, key),
            }
        }
        for key in held {
            let is_known =
                self.gangs.all.get(&key).is_some_and(|gang| gang.holding.contains_key(&id));
            if !is_known && !self.gang_returns(id, key) {
                self.fleet.order_gang(id, GangOrder::Disband { key });
                self.lose_gang_task(id, key);
            }
        }
    }

    /// After a restart, an executor says which gangs it holds, before all else that it has: what
    /// was sent ahead to it must not take their room.
    pub(super) fn gangs_return(&mut self, id: ExecutorId, held: &[GangKey]) {
        for key in held {
            self.gang_returns(id, *key);
        }
    }

    /// After a restart, an executor says that it holds a gang. Returns whether that may be.
    fn gang_returns(&mut self, id: ExecutorId, key: GangKey) -> bool {
        if self.comeback.until().is_none() {
            return false;
        }
        if let Some(gang) = self.gangs.all.get_mut(&key) {
            let resources = gang.resources.clone();
            if !matches!(gang.state, State::Returning(_))
                || gang.holding.contains_key(&id)
                || !self.fleet.take_for_gang(id, key, &resources, self.now)
            {
                return false;
            }
            gang.holding.insert(id, 0);
            self.gangs.of_executor.entry(id).or_default().insert(key);
            return true;
        }
        let Some(instance) = self.instances.find(&key.instance) else { return false };
        let Some(batch) = instance.batch_of(key.task) else { return false };
        let Some(index) = instance.class_of(key.task.0) else { return false };
        let (Some(class), Some(&need)) = (
            batch.submission.classes.get(index as usize).filter(|class| class.is_gang()),
            batch.needs.get(index as usize),
        ) else {
            return false;
        };
        let queue = (key.instance, super::queues::key_of(&self.needs[need], need));
        let gang = Gang {
            queue,
            resources: self.needs[need].resources.clone(),
            ranks_per_node: class.ranks_per_node,
            token: None,
            members: Arc::default(),
            holding: BTreeMap::new(),
            first: None,
            dispatched: self.now,
            state: State::Returning(class.nodes),
        };
        if !self.fleet.take_for_gang(id, key, &gang.resources, self.now) {
            return false;
        }
        let gang = self.gangs.all.entry(key).or_insert(gang);
        gang.holding.insert(id, 0);
        self.gangs.of_executor.entry(id).or_default().insert(key);
        true
    }

    /// Nobody is waited for any more after a restart: gangs that are whole run on, and what
    /// there is of others is lost.
    pub(super) fn end_gang_recovery(&mut self) {
        let returning = self.gangs.all.iter();
        let returning = returning.filter(|(_, gang)| matches!(gang.state, State::Returning(_)));
        let returning: Vec<GangKey> = returning.map(|(key, _)| *key).collect();
        for key in returning {
            let Some(gang) = self.gangs.all.get(&key) else { continue };
            let members = gang.holding.keys().copied();
            let first = members.clone().find(|id| self.has_gang_task(*id, key));
            let is_whole = gang.state == State::Returning(members.count() as u32);
            let Some(gang) = self.gangs.all.get_mut(&key) else { continue };
            gang.state = State::Running(None);
            self.gangs.set_first(key, first);
            if first.is_none() || !is_whole {
                self.break_gang(key);
            }
        }
    }

    /// Of tasks that an executor says it has, those that run on several executors each and whose
    /// gangs are not known here: they are lost already, but for those whose command has ended and
    /// that it has in flight.
    pub(super) fn of_lost_gangs(&self, id: ExecutorId, held: &Held) -> RunSet {
        let mut lost = RunSet::default();
        let instance = self.instances.find(&held.instance);
        let Some(instance) = instance.filter(|_| self.comeback.until().is_none()) else {
            return lost;
        };
        let parts = instance.batches_of(held.first.0, held.count);
        for (batch_first, from, count) in parts {
            let Some(batch) = instance.batches.get(&batch_first) else { continue };
            let classes = &batch.submission.classes;
            if !classes.iter().any(TaskClass::is_gang) {
                continue;
            }
            let mut first = batch_first;
            for (end, (_, class)) in batch.class_ends.iter().zip(&batch.submission.class_runs) {
                let until = batch_first + end;
                let (at, to) = (first.max(from), until.min(from + count));
                first = until;
                if at < to && classes.get(*class as usize).is_some_and(TaskClass::is_gang) {
                    lost.insert(at, to - at);
                }
            }
        }
        let key =
            |task| GangKey { instance: held.instance, task: TaskId(task), tries: Tries::default() };
        let last = held.first.0.saturating_add(held.count);
        for (known, gang) in self.gangs.all.range(key(held.first.0)..key(last)) {
            if known.tries == held.tries && gang.state != State::Ending {
                lost.remove(known.task.0, 1);
            }
        }
        let tasks = (held.instance, held.first.0)..(held.instance, last);
        for (_, run) in self.fleet[id].in_flight.range(tasks) {
            if run.tries == held.tries {
                lost.remove(run.first, run.count);
            }
        }
        lost
    }
}

// Checks.
impl Dispatcher {
    /// Gangs hold room where they say, and their tasks are in flight while they run.
    pub(super) fn check_gangs(&self) -> Result<(), CheckError> {
        let Gangs { all, of_executor, .. } = &self.gangs;
        let held = all.iter().flat_map(|(key, gang)| gang.holding.keys().map(|id| (*id, *key)));
        let held: BTreeSet<(ExecutorId, GangKey)> = held.collect();
        let listed = of_executor.iter().flat_map(|(id, keys)| keys.iter().map(|key| (*id, *key)));
        ensure!(listed.collect::<BTreeSet<_>>() == held, "gangs are listed elsewhere");
        let rooms = self.fleet.iter().flat_map(|one| one.gangs.keys().map(|key| (one.id, *key)));
        ensure!(rooms.collect::<BTreeSet<_>>() == held, "gangs hold room that they have not");
        for (key, gang) in all {
            let TaskId(task) = key.task;
            let is_over = gang.state == State::Ending && gang.holding.is_empty();
            ensure!(!is_over, "the gang of task {task} is over, and stays");
            let State::Running(_) = gang.state else { continue };
            let Some(first) = gang.first else {
                return Err(CheckError::new(format!("the gang of task {task} runs nowhere")));
            };
            let is_awaited = self.gangs.stale.contains(&first);
            let runs = self.fleet.contains(first) && self.has_gang_task(first, *key);
            ensure!(runs || is_awaited, "the gang of task {task} outlives it");
        }
        let kept = self.gangs.reservation.is_some();
        ensure!(kept || self.fleet.kept().is_empty(), "room is kept for no gang");
        Ok(())
    }
}
