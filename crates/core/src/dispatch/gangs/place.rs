//! The order in which gangs are formed, and how a gang is formed.

use super::{Gang, GangQueue, Gangs, State};
use crate::dispatch::fleet::wide::Wide;
use crate::dispatch::instance::Instance;
use crate::dispatch::needs::{Need, NeedId};
use crate::dispatch::placement::Past;
use crate::dispatch::{Action, Dispatcher};
use crate::gang::{GangKey, GangOrder, Member};
use crate::limits::{GANG_PATIENCE_MICROS, LOOK_NEEDS_MAX};
use crate::task::{ExecutorId, InstanceId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Executors of which some are looked at to find whether tasks could have a gang's room.
const LOOK_EXECUTORS: usize = 64;

impl Dispatcher {
    /// Forms gangs whose turn it is, before other tasks are given room. Room is kept for the
    /// first that finds too little.
    pub(in crate::dispatch) fn place_gangs(&mut self) {
        if !self.has_gang_tasks() {
            self.gangs.unable.clear();
            self.end_keeping();
            return;
        }
        // Without secrets none can be formed, and no room is kept for any.
        while !self.gangs.tokens.is_empty() {
            let kept = self.kept_for();
            let Some(queue) = kept.or_else(|| self.gang_turn()) else { break };
            if self.form_next(queue, true) {
                self.end_keeping();
                continue;
            }
            if kept.is_none() || self.is_keeping_stale() {
                self.keep_for(queue);
            }
            break;
        }
    }

    /// Forms gangs where nobody else has taken the room that is free.
    pub(in crate::dispatch) fn fill_with_gangs(&mut self) {
        if !self.needs.has_gangs() {
            return;
        }
        let ids: Vec<InstanceId> = self.runnable.ids().collect();
        for id in ids {
            let queues = self.instances[&id].queues.gangs();
            let queues: Vec<GangQueue> = queues.map(|(key, _)| (id, key)).collect();
            for queue in queues {
                while self.form_next(queue, false) {}
            }
        }
    }

    /// Whether any gang waits. Asks for secrets in time.
    fn has_gang_tasks(&mut self) -> bool {
        if !self.needs.has_gangs() {
            return false;
        }
        let mut ids = self.runnable.ids();
        let has_any = ids.any(|id| self.instances[&id].queues.gangs().next().is_some());
        if has_any && let Some(count) = self.gangs.tokens_wanted() {
            self.outbound.push(Action::DrawTokens { count });
        }
        has_any
    }

    /// The queue that room is kept for, if it still has tasks.
    fn kept_for(&mut self) -> Option<GangQueue> {
        let queue = self.gangs.reservation.as_ref()?.queue;
        let is_waiting = self.instances.find(&queue.0).is_some_and(|instance| {
            self.runnable.has_turn(&instance.share)
                && self.runnable.room(instance.share.user(), self.needs[queue.1.1].weight(1)) > 0
                && instance.queues.find(&queue.1).is_some_and(|queue| queue.len > 0)
        });
        if !is_waiting {
            self.end_keeping();
            return None;
        }
        Some(queue)
    }

    /// The queue of gangs whose turn it is: of the first instance in the order of shares that
    /// has tasks which executors could run, in the order of priority, and then in that of
    /// submission. A gang that has waited for very long has its turn before others of the same
    /// priority.
    fn gang_turn(&self) -> Option<GangQueue> {
        let mut first = None;
        let mut patient: Option<(Time, GangQueue)> = None;
        let mut is_open = true;
        let mut priority = None;
        for id in self.runnable.ids() {
            let instance = &self.instances[&id];
            let mut gangs = instance.queues.gangs();
            let user = instance.share.user();
            let may_go = |key: NeedId| self.runnable.room(user, self.needs[key].weight(1)) > 0;
            let found =
                gangs.find(|(key, _)| may_go(key.1) && !self.gangs.unable.contains(&(id, *key)));
            let before = *priority.get_or_insert(instance.share.priority());
            if let Some((key, queue)) = found {
                if is_open && self.is_next_within(instance, (id, key)) {
                    first.get_or_insert((id, key));
                }
                let since = queue.blocked_since.unwrap_or(self.now);
                let is_late = self.now.since(since) >= GANG_PATIENCE_MICROS
                    && instance.share.priority() == before
                    && !self.has_higher(instance, (id, key));
                if is_late && patient.is_none_or(|(other, _)| since < other) {
                    patient = Some((since, (id, key)));
                }
            }
            is_open &= first.is_none() && !self.has_competitor(instance, None);
        }
        patient.map(|(_, queue)| queue).or(first)
    }

    /// Whether no other task of its instance is to go before the next gang of a queue.
    fn is_next_within(&self, instance: &Instance, (_, key): GangQueue) -> bool {
        let front = instance.queues.find(&key).and_then(|queue| queue.front());
        let first = front.map_or(u64::MAX, |run| run.first);
        let mut before = self.competitors(instance).take_while(|(other, ..)| other.0 <= key.0);
        !before.any(|(other, front, _)| other.0 < key.0 || front < first)
    }

    fn has_higher(&self, instance: &Instance, (_, key): GangQueue) -> bool {
        self.competitors(instance).any(|(other, ..)| other.0 < key.0)
    }

    /// Whether an instance has tasks that could run, on one executor each, and that have got
    /// none since a time, or any.
    fn has_competitor(&self, instance: &Instance, since: Option<Time>) -> bool {
        self.competitors(instance).any(|(_, _, blocked)| {
            since.is_none_or(|since| blocked.is_some_and(|blocked| blocked < since))
        })
    }

    /// The first few queues of tasks that run on one executor each, and that some could run:
    /// each with the number of its next task, and since when it has waited for room.
    fn competitors<'a>(
        &'a self,
        instance: &'a Instance,
    ) -> impl Iterator<Item = (crate::dispatch::instance::QueueKey, u64, Option<Time>)> + 'a {
        let queues = instance.queues.iter().filter(|(_, queue)| queue.plain_len() > 0);
        let timed = queues.filter(|(key, _)| {
            let need = &self.needs[key.1];
            !need.instant && !need.is_gang()
        });
        let few = timed.take(LOOK_NEEDS_MAX).filter(|(key, _)| {
            let need = &self.needs[key.1];
            self.fleet.iter().take(LOOK_EXECUTORS).any(|executor| executor.offers(need))
        });
        few.map(|(key, queue)| {
            let front = queue.front().map_or(u64::MAX, |run| run.first);
            (key, front, queue.blocked_since)
        })
    }

    /// Whether the next gang of a queue may have the room of one that has ended: it then needs
    /// no other. Nobody's turn before it may have gone by unused since that one began.
    pub(super) fn may_follow(&self, (id, key): GangQueue, began: Time) -> bool {
        let Some(instance) = self.instances.find(&id) else { return false };
        let has_tasks = instance.queues.find(&key).is_some_and(|queue| queue.len > 0);
        if !has_tasks || !self.runnable.has_turn(&instance.share) {
            return false;
        }
        let mut before = self.runnable.ids().take_while(|other| *other != id);
        !self.has_competitor(instance, Some(began))
            && !self.has_higher(instance, (id, key))
            && !before.any(|other| self.has_competitor(&self.instances[&other], None))
    }

    /// A gang that looks for executors.
    pub(in crate::dispatch) fn wide<'a>(
        &'a self,
        need: &'a Need,
        (id, key): GangQueue,
    ) -> Wide<'a> {
        Wide { need, now: self.now, lasts_micros: self.lasts_micros(id, key) }
    }

    /// Forms the next gang of a queue, if there is room for all of it. `with_kept` takes room
    /// as well that is kept.
    fn form_next(&mut self, (id, key): GangQueue, with_kept: bool) -> bool {
        loop {
            let now = self.now;
            if self.holds_back(id, key) {
                return false;
            }
            let instance = &mut self.instances[&id];
            let Some(queue) = instance.queues.find_mut(&key) else { return false };
            let Some(front) = queue.front().copied() else { return false };
            queue.blocked_since.get_or_insert(now);
            let (task, tries) = (crate::task::TaskId(front.first), front.tries);
            let gang_key = GangKey { instance: id, task, tries };
            // The same try may have come back unstarted, and not have been released everywhere.
            if self.gangs.tokens.is_empty() || self.gangs.holds(&gang_key) {
                return false;
            }
            let need = &self.needs[key.1];
            let found = self.fleet.wide_room(self.wide(need, (id, key)), with_kept);
            let Some(members) = found else { return false };
            if self.form(gang_key, (id, key), &members) {
                let queue = self.instances[&id].queues.find_mut(&key);
                if let Some(queue) = queue.filter(|queue| queue.len > 0) {
                    queue.blocked_since = Some(now);
                }
                return true;
            }
            // The task waits for inputs that were lost: the next one may go.
        }
    }

    /// Sends the next task of a queue to the first of these executors, and has all of them
    /// hold room for it. Returns whether it was sent.
    fn form(&mut self, key: GangKey, queue: GangQueue, ids: &[ExecutorId]) -> bool {
        let Some(&first) = ids.first() else { return false };
        let Some(run) = self.instances[&key.instance].take_ready(&queue.1) else { return false };
        let past = Past { class: run.class, tries: run.tries };
        let mut expected = None;
        let mut ranks_per_node = 0;
        if let Some(batch) = self.instances[&key.instance].batch_of(key.task)
            && let Some(class) = batch.submission.classes.get(run.class as usize)
        {
            ranks_per_node = class.ranks_per_node;
            expected = class.given_estimate();
        }
        let measured = self.instances[&key.instance].queues.find(&queue.1);
        let measured = measured.and_then(|queue| queue.measured.mean_micros);
        self.send_one(first, key.instance, queue.1, key.task.0, past);
        self.fleet.list(first, self.now);
        self.place_instance(key.instance);
        if !self.has_gang_task(first, key) {
            return false;
        }
        let resources = self.needs[queue.1.1].resources.clone();
        let members = ids.iter().map(|id| {
            let executor = &self.fleet[*id];
            let serves = executor.listens_at().cloned().unwrap_or_default();
            Member { executor: *id, name: executor.name.clone(), serves }
        });
        let ends = expected.or(measured).map(|micros| self.now.after(micros));
        let gang = Gang {
            queue,
            resources: resources.clone(),
            ranks_per_node,
            token: self.gangs.tokens.pop(),
            members: Arc::new(members.collect()),
            holding: ids.iter().copied().zip(0..).collect::<BTreeMap<_, _>>(),
            first: None,
            dispatched: self.now,
            state: State::Running(ends),
        };
        self.gangs.add(key, gang);
        self.gangs.set_first(key, Some(first));
        for id in ids {
            let has_taken = self.fleet.take_for_gang(*id, key, &resources, self.now);
            debug_assert!(has_taken, "executor {id} has had room for a gang");
            self.order_form(*id, key);
        }
        true
    }

    /// Has a member form a gang.
    pub(super) fn order_form(&mut self, id: ExecutorId, key: GangKey) {
        let Some(gang) = self.gangs.all.get(&key) else { return };
        let (Some(index), Some(token)) = (gang.holding.get(&id), gang.token) else { return };
        let form = GangOrder::Form {
            key,
            index: *index,
            resources: gang.resources.clone(),
            ranks_per_node: gang.ranks_per_node,
            token,
            members: gang.members.clone(),
        };
        self.fleet.order_gang(id, form);
    }
}

impl Gangs {
    fn add(&mut self, key: GangKey, gang: Gang) {
        for id in gang.holding.keys() {
            self.of_executor.entry(*id).or_default().insert(key);
        }
        self.all.insert(key, gang);
    }
}
