//! Why tasks wait. For people who ask; nothing is decided by it.

use super::Dispatcher;
use super::fleet::Executor;
use super::instance::{Instance, QueueKey, ReadyQueue};
use super::needs::DataNeed;
use super::queues::key_of;
use super::whereabouts::Whereabouts;
use crate::limits::{EXPLAINED_NAMES_MAX, OBSTACLE_NEEDS_MAX};
use crate::task::{InstanceId, Resources, TaskId};
use std::collections::BTreeSet;

/// Tasks of an instance that wait for the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// The task that was asked for, or the first of them.
    pub task: TaskId,
    /// How many they are.
    pub count: u64,
    /// What keeps the task from being sent to an executor. Nothing does if it was
    /// sent, has ended, or is about to be sent.
    pub obstacles: Vec<Obstacle>,
}

/// What keeps a task from being sent to an executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// Tasks that it runs after have not ended.
    Tasks {
        /// Some of them, at most [`EXPLAINED_NAMES_MAX`].
        some: Vec<TaskId>,
        /// How many they are.
        count: u64,
    },
    /// The dispatcher was restarted and waits for executors that it knew.
    Restart {
        /// For how long at most, in microseconds.
        micros: u64,
        /// How many have not come back.
        executors: u64,
    },
    /// Its instance is paused: somebody wants no task of it dispatched.
    Paused,
    /// The dispatcher has no room on its disk for the results of more tasks.
    Storage,
    /// Results of the instance that nobody has received hold it up.
    Results {
        /// How many bytes they are.
        bytes: u64,
    },
    /// No executor is connected.
    NoExecutor {
        /// How many are away and may come back.
        away: u64,
    },
    /// No executor offers what it needs.
    Unoffered {
        /// What it needs.
        need: Resources,
        /// Whether it needs a cache too, because it has data objects.
        cache: bool,
        /// How many executors there are.
        executors: u64,
    },
    /// It runs on more executors together than offer what it needs on each.
    Nodes {
        /// On how many it runs.
        nodes: u64,
        /// The resources that it needs on each.
        need: Resources,
        /// How many offer that; those below relays are not among them.
        offering: u64,
        /// How many executors there are.
        executors: u64,
    },
    /// It runs on several executors together, and fewer have room for it at a time.
    FewFree {
        /// On how many it runs.
        nodes: u64,
        /// How many have room now.
        free: u64,
        /// Whether room is kept for it.
        kept: bool,
        /// When it is expected to begin, in microseconds from now, if that is known.
        begins_micros: Option<u64>,
    },
    /// Of the executors that offer what it needs, none can take it now.
    Taken(Offering),
    /// It is to run on one executor alone.
    Own {
        /// That executor's name.
        executor: String,
        /// Whether it is connected.
        connected: bool,
    },
    /// An executor takes nothing else until it has room for it.
    Emptied {
        /// That executor's name.
        executor: String,
    },
    /// Executors that hold its inputs have no room.
    Data {
        /// How many hold any of them.
        holders: u64,
        /// Some of these, at most [`EXPLAINED_NAMES_MAX`].
        some: Vec<String>,
    },
    /// Ready tasks of its instance go first.
    Behind {
        /// How many have a higher priority.
        higher: u64,
        /// How many need the same and were ready before it.
        earlier: u64,
    },
    /// It is the turn of other instances first, by priority and fair share.
    Turn {
        /// Some of them, at most [`EXPLAINED_NAMES_MAX`].
        some: Vec<InstanceId>,
        /// How many they are.
        count: u64,
    },
    /// Tasks of its user use as much as they may.
    Quota {
        /// Thousandths of processors that they use.
        used_milli: u64,
        /// Thousandths of CPUs that the user's tasks may use.
        most_milli: u64,
    },
}

/// Executors that offer what a task needs. Each counts once below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offering {
    /// How many they are.
    pub executors: u64,
    /// Not connected, or silent.
    pub away: u64,
    /// About to leave.
    pub leaving: u64,
    /// Left alone for a while, because they could not start their tasks.
    pub suspended: u64,
    /// Drained: somebody wants them to be given nothing.
    pub drained: u64,
    /// Leave before the task is expected to end.
    pub short: u64,
    /// Take nothing but a task that needs more room.
    pub emptied: u64,
    /// Have no room.
    pub full: u64,
}

impl Offering {
    /// How many could take a task now.
    #[must_use]
    pub fn free(&self) -> u64 {
        let Offering { away, leaving, suspended, drained, short, emptied, full, .. } = *self;
        let taken = [away, leaving, suspended, drained, short, emptied, full];
        taken.into_iter().fold(self.executors, u64::saturating_sub)
    }
}

impl Dispatcher {
    /// Why a task waits, or those of an instance: an entry for the tasks that wait
    /// for others, and one for each kind of ready ones. Costs time in proportion to
    /// the executors and to the runs of ready tasks. Empty if there is none such.
    pub fn explain(&mut self, id: InstanceId, task: Option<TaskId>) -> Vec<Explained> {
        // Tasks that were just submitted are looked at with the next round.
        self.place_marked_instances();
        match task {
            Some(task) => self.explain_task(id, task).into_iter().collect(),
            None => self.explain_instance(id),
        }
    }

    fn explain_task(&mut self, id: InstanceId, task: TaskId) -> Option<Explained> {
        let place = self.whereabouts(id, task, 1).pop()?;
        let instance = self.instances.find(&id)?;
        let obstacles = match place {
            Whereabouts::Waiting => vec![upstreams(instance, task.0)],
            Whereabouts::Ready => self.obstacles_of_ready(instance, task.0),
            _ => Vec::new(),
        };
        Some(Explained { task, count: 1, obstacles })
    }

    fn explain_instance(&self, id: InstanceId) -> Vec<Explained> {
        let Some(instance) = self.instances.find(&id) else { return Vec::new() };
        let waiting = instance.tasks.waiting(0, instance.tasks.total()).next().map(|task| {
            let count = instance.counts().waiting;
            Explained { task: TaskId(task), count, obstacles: vec![upstreams(instance, task)] }
        });
        let own = self.placement.everywhere().tasks_of(id);
        let own = own.map(|(task, _)| task).take(OBSTACLE_NEEDS_MAX);
        let own = own.map(|task| Explained {
            task: TaskId(task),
            count: 1,
            obstacles: self.obstacles_of_ready(instance, task),
        });
        let queues = instance.queues.iter().filter(|(_, queue)| queue.len > 0);
        let ready = queues.take(OBSTACLE_NEEDS_MAX).filter_map(|(key, queue)| {
            let plain = queue.front().map(|run| run.first);
            let first = plain.or(queue.with_data.first.map(|(task, _)| task))?;
            let obstacles = self.obstacles_in_queue(instance, key, queue, first);
            Some(Explained { task: TaskId(first), count: queue.len, obstacles })
        });
        waiting.into_iter().chain(ready).chain(own).collect()
    }

    /// What keeps a ready task from being sent.
    fn obstacles_of_ready(&self, instance: &Instance, task: u64) -> Vec<Obstacle> {
        if let Some(owner) = self.placement.everywhere().owner(instance.id, task) {
            let mut obstacles = self.obstacles_of_all(instance);
            if let Some(executor) = self.fleet.of_incarnation(owner) {
                let (executor, connected) = {
                    let found = &self.fleet[executor];
                    (found.name.clone(), found.connection.is_some())
                };
                obstacles.push(Obstacle::Own { executor, connected });
            }
            return obstacles;
        }
        let Some(need) = instance.batch_of(TaskId(task)).and_then(|batch| {
            let class = instance.class_of(task)?;
            batch.needs.get(class as usize).copied()
        }) else {
            return Vec::new();
        };
        let key = key_of(&self.needs[need], need);
        let Some(queue) = instance.queues.find(&key) else { return Vec::new() };
        self.obstacles_in_queue(instance, key, queue, task)
    }

    /// What keeps all tasks of an instance from being sent, whatever they need.
    fn obstacles_of_all(&self, instance: &Instance) -> Vec<Obstacle> {
        let mut obstacles = Vec::new();
        if self.pauses.is_paused(instance.id) {
            obstacles.push(Obstacle::Paused);
        }
        if let Some(until) = self.comeback.until() {
            let executors = self.comeback.missing().count() as u64;
            obstacles.push(Obstacle::Restart { micros: until.since(self.now), executors });
        }
        if self.holds_dispatch() {
            obstacles.push(Obstacle::Storage);
        }
        if instance.is_clogged() {
            let bytes = instance.results.bytes() + instance.results.stored_bytes();
            obstacles.push(Obstacle::Results { bytes });
        }
        obstacles
    }

    fn obstacles_in_queue(
        &self,
        instance: &Instance,
        key: QueueKey,
        queue: &ReadyQueue,
        task: u64,
    ) -> Vec<Obstacle> {
        let mut obstacles = self.obstacles_of_all(instance);
        if let Some(quota) = self.quota(instance, key) {
            obstacles.push(quota);
            return obstacles;
        }
        let connected = self.fleet.connected();
        if connected == 0 {
            let away = self.fleet.len() as u64;
            obstacles.push(Obstacle::NoExecutor { away });
            return obstacles;
        }
        if self.needs[key.1].is_gang() {
            obstacles.extend(self.few_nodes(instance, key));
            obstacles.extend(self.behind(instance, key, queue, task));
            obstacles.extend(self.turn(instance));
            return obstacles;
        }
        let offering = self.offering(instance, key, queue);
        if offering.executors == 0 {
            let need = &self.needs[key.1];
            let (cache, executors) = (need.data > DataNeed::None, self.fleet.len() as u64);
            let requests = need.requests().cloned();
            obstacles.extend(requests.map(|need| Obstacle::Unoffered { need, cache, executors }));
            return obstacles;
        }
        if offering.free() == 0 {
            obstacles.push(Obstacle::Taken(offering));
        }
        if let Some(executor) = queue.reserved.filter(|id| self.fleet.contains(*id)) {
            let executor = self.fleet[executor].name.clone();
            obstacles.push(Obstacle::Emptied { executor });
        }
        obstacles.extend(self.behind(instance, key, queue, task));
        obstacles.extend(self.turn(instance));
        // With room somewhere and nothing before it, it waits for those that have its inputs.
        if obstacles.is_empty() {
            obstacles.extend(self.holders_without_room(instance, key, task));
        }
        obstacles
    }

    /// What the user of an instance may use, if another task of a queue is more.
    fn quota(&self, instance: &Instance, key: QueueKey) -> Option<Obstacle> {
        let user = instance.share.user();
        if self.runnable.room(user, self.needs[key.1].weight(1)) > 0 {
            return None;
        }
        let (used, most) = self.runnable.usage(user);
        let milli = |weight: u128| u64::try_from(weight).unwrap_or(u64::MAX);
        Some(Obstacle::Quota { used_milli: milli(used), most_milli: milli(most?) })
    }

    /// What a task on several executors waits for, if enough of them are not free together.
    fn few_nodes(&self, instance: &Instance, key: QueueKey) -> Option<Obstacle> {
        let need = &self.needs[key.1];
        let queue = (instance.id, key);
        let (free, offering) = self.fleet.wide_counts(self.wide(need, queue));
        let (nodes, executors) = (u64::from(need.nodes), self.fleet.len() as u64);
        if offering < nodes {
            let need = need.resources.clone();
            return Some(Obstacle::Nodes { nodes, need, offering, executors });
        }
        let begins = self.kept_until(queue);
        let kept = begins.is_some();
        let begins_micros = begins.flatten().map(|at| at.since(self.now));
        (free < nodes || kept).then_some(Obstacle::FewFree { nodes, free, kept, begins_micros })
    }

    fn offering(&self, instance: &Instance, key: QueueKey, queue: &ReadyQueue) -> Offering {
        let need = &self.needs[key.1];
        let lasts = queue.lasts(&instance.batches).unwrap_or(0);
        let mut all = Offering::default();
        for executor in self.fleet.iter().filter(|executor| executor.offers(need)) {
            all.executors += 1;
            let is_for_others = executor.reserved.is_some_and(|own| own != (instance.id, key));
            let counted = if executor.connection.is_none() || executor.is_missed {
                &mut all.away
            } else if executor.leaving {
                &mut all.leaving
            } else if executor.drained {
                &mut all.drained
            } else if executor.suspended_until.is_some() {
                &mut all.suspended
            } else if !executor.outlasts(self.now, lasts) {
                &mut all.short
            } else if is_for_others {
                &mut all.emptied
            } else if !executor.has_free(need, self.now, lasts) {
                &mut all.full
            } else {
                continue;
            };
            *counted += 1;
        }
        all
    }

    /// The ready tasks of the instance that go before one.
    fn behind(
        &self,
        instance: &Instance,
        key: QueueKey,
        queue: &ReadyQueue,
        task: u64,
    ) -> Option<Obstacle> {
        let before = instance.queues.iter().take_while(|(other, _)| other.0 < key.0);
        // The others are of no use where only this one's need is offered.
        let higher = before.filter(|(other, _)| self.has_common(key, *other));
        let higher = higher.map(|(_, queue)| queue.len).sum();
        let mut earlier = 0;
        let holds = queue.runs().any(|run| {
            let is_here = run.first <= task && task < run.first + run.count;
            earlier += if is_here { task - run.first } else { run.count };
            is_here
        });
        // Of tasks that go where their data is, none comes before another for certain.
        let earlier = if holds { earlier } else { 0 };
        (higher + earlier > 0).then_some(Obstacle::Behind { higher, earlier })
    }

    /// Whether an executor offers what tasks of both queues need.
    fn has_common(&self, one: QueueKey, other: QueueKey) -> bool {
        let (one, other) = (&self.needs[one.1], &self.needs[other.1]);
        self.fleet.iter().any(|executor| executor.offers(one) && executor.offers(other))
    }

    /// The runnable instances whose turn comes before one's.
    fn turn(&self, instance: &Instance) -> Option<Obstacle> {
        if !self.runnable.has_turn(&instance.share) {
            return None;
        }
        let before: Vec<InstanceId> =
            self.runnable.ids().take_while(|id| *id != instance.id).collect();
        let some = before.iter().copied().take(EXPLAINED_NAMES_MAX).collect();
        let count = before.len() as u64;
        (count > 0).then_some(Obstacle::Turn { some, count })
    }

    /// The executors that hold inputs of a task, where none of them has room.
    fn holders_without_room(
        &self,
        instance: &Instance,
        key: QueueKey,
        task: u64,
    ) -> Option<Obstacle> {
        let batch = instance.batch_of(TaskId(task))?;
        let data = batch.submission.data.as_ref()?;
        let inputs = data.inputs_of(task - batch.first);
        let holders: BTreeSet<_> =
            inputs.flat_map(|object| self.placement.holders_of(object.id)).collect();
        let need = &self.needs[key.1];
        let has_room = |executor: &Executor| executor.has_free(need, self.now, 0);
        if holders.is_empty() || holders.iter().any(|id| has_room(&self.fleet[*id])) {
            return None;
        }
        let some = holders.iter().take(EXPLAINED_NAMES_MAX);
        let some = some.map(|id| self.fleet[*id].name.clone()).collect();
        Some(Obstacle::Data { holders: holders.len() as u64, some })
    }
}

/// The tasks that one runs after and that have not ended, or run again for what
/// they left in caches.
fn upstreams(instance: &Instance, task: u64) -> Obstacle {
    let after = instance.batch_of(TaskId(task)).and_then(|batch| {
        let after = &batch.submission.after;
        let at = after.binary_search_by_key(&(task - batch.first), |after| after.offset).ok()?;
        after.get(at)
    });
    let all = after.into_iter().flat_map(|after| &after.tasks).copied();
    let tasks = &instance.tasks;
    let open: BTreeSet<TaskId> =
        all.filter(|task| !tasks.has_ended(task.0) || tasks.is_recomputing(task.0)).collect();
    let some = open.iter().copied().take(EXPLAINED_NAMES_MAX).collect();
    Obstacle::Tasks { some, count: open.len() as u64 }
}
