//! Questions about data objects: which there are, who holds them, and whom to
//! go to with one. They change nothing.

use super::fleet::Executor;
use super::{Dispatcher, InstanceId, Whereabouts};
use crate::data::declared::Serving;
use crate::data::object::{Object, ObjectId};
use crate::data::way::{Chosen, Input, Lent};
use crate::limits::{FOUND_EXECUTORS_MAX, PUT_EXECUTORS_MAX};
use crate::result::{Overflow, Stream};
use crate::task::{ExecutorId, TaskId};
use std::sync::Arc;

/// The objects that somebody may know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All.
    All,
    /// Objects that were put into caches by hand: they are for all who may
    /// submit tasks.
    Placed,
    /// Objects that an instance's tasks read and write.
    Of(InstanceId),
}

/// An object, as the dispatcher believes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectStatus {
    /// The id that follows from URL and version.
    pub id: ObjectId,
    /// Where it comes from; empty if nobody has said it to this dispatcher.
    pub url: Arc<str>,
    /// The version of that.
    pub version: Arc<str>,
    /// Its bytes, if anybody has said.
    pub size: Option<u64>,
    /// How many executors hold it.
    pub holders: u64,
    /// To how many it is on its way.
    pub coming: u64,
    /// How many ready tasks read it, of those that go where their data is.
    pub waiting: u64,
}

/// An executor that holds an object, or stripes of it, or to which it is on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderStatus {
    /// The executor.
    pub executor: ExecutorId,
    /// Its name.
    pub name: String,
    /// Whether the executor holds the object; else that is on its way there.
    pub holds: bool,
    /// Whether it is connected.
    pub connected: bool,
    /// The bytes of the object's stripes that it has, or receives, for others.
    pub lends: u64,
}

/// An object and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundObject {
    /// The object.
    pub object: ObjectStatus,
    /// Tasks that have not ended and read it, whether they are ready or not.
    pub readers: u64,
    /// The way on which they get it.
    pub chosen: Chosen,
    /// What the largest cache takes, if any executor has said.
    pub cache_bytes: Option<u64>,
    /// The executors that have it, and then those that have stripes of it; not more than
    /// [`FOUND_EXECUTORS_MAX`] of all that are found.
    pub holders: Vec<HolderStatus>,
}

/// What tasks did with objects of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Earlier {
    /// How many tasks read one.
    pub readers: u64,
    /// To how many executors they were sent.
    pub executors: u64,
    /// The bytes of the one that was read last.
    pub size: u64,
}

/// The purpose for which somebody asks for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Fetch it.
    Get,
    /// Put it into a cache.
    Put,
    /// Drop it from caches.
    Drop {
        /// Even if tasks need it that find it nowhere else then.
        force: bool,
    },
}

/// An executor to go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The executor.
    pub executor: ExecutorId,
    /// Its name.
    pub name: String,
    /// Where it listens; without an address if it cannot be reached now.
    pub serves: Serving,
}

/// Why nobody is named to go to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// No executor holds the object, as far as is known.
    #[error("no executor holds it")]
    NotHeld,
    /// The URL names another object that was put there before.
    #[error("another object is there under this key ({0}): remove it first, or choose another key")]
    Taken(ObjectId),
    /// Tasks that have not ended read the object, and it is in no store.
    #[error("{}, and it is nowhere else (--force)", readers(*.tasks))]
    Needed {
        /// How many.
        tasks: u64,
    },
    /// No executor that is connected has a cache that others reach.
    #[error("no executor is connected that has a cache and can be reached")]
    NoCache,
    /// Nobody keeps this output: it was sent whole, or its result is not held.
    #[error("no executor keeps it")]
    NotKept,
    /// The executor that kept this output is gone.
    #[error("the executor that kept it is gone")]
    ExecutorGone,
    /// The object is none that may be put into caches by hand.
    #[error(
        "only an object whose URL is `cache:` and a key, and whose version is `blake3:` and the \
         hash of its content, can be put into caches"
    )]
    NotPlaceable,
    /// There is no such task.
    #[error("there is no such task")]
    NoTask,
    /// The task has not been sent to an executor.
    #[error("it has not been sent to an executor")]
    NotSent,
    /// The task has ended: its result has what it wrote.
    #[error("it has ended")]
    Ended,
    /// The task is below a relay, whose executors are not reached from here.
    #[error("it runs below the relay {0}, whose executors cannot be reached from this dispatcher")]
    Below(String),
    /// The executor, or the relay on the way to it, cannot be asked.
    #[error("its executor {executor} cannot be reached: {why}")]
    Unreached {
        /// Its name.
        executor: String,
        /// Why.
        why: String,
    },
    /// A relay on the way to the executor is away, or the executor has not come back to a
    /// dispatcher that was restarted. Asking again may help.
    #[error("{}", away(.0))]
    Away(String),
    /// Executors below relays alone hold the object, and nobody has named it to this
    /// dispatcher: it is of tasks of dispatchers below.
    #[error(
        "it is held below relays alone, and is not of this dispatcher: use the access file of a \
         relay"
    )]
    OfOthers,
}

fn away(name: &str) -> String {
    match name {
        "" => "its executor is not back since the dispatcher was restarted".to_owned(),
        name => format!("{name}, which leads to it, is away"),
    }
}

fn readers(tasks: u64) -> String {
    match tasks {
        1 => "1 task that has not ended reads it".to_owned(),
        _ => format!("{tasks} tasks that have not ended read it"),
    }
}

impl Dispatcher {
    /// Objects in the order of their ids, after one, as many as go into one
    /// answer, and from which to go on, if there may be more. Only those that
    /// `executor` holds, if one is given, and whose URL begins with `prefix`.
    #[must_use]
    pub fn objects(
        &self,
        scope: Scope,
        executor: Option<ExecutorId>,
        prefix: &str,
        after: Option<ObjectId>,
    ) -> (Vec<ObjectStatus>, Option<ObjectId>) {
        self.placement.objects(scope, executor, prefix, after)
    }

    /// The objects that a name means, which is a URL or an id, with those that
    /// have them. Costs time in proportion to what is found.
    #[must_use]
    pub fn find_objects(&self, scope: Scope, name: &str) -> Vec<FoundObject> {
        let mut room = FOUND_EXECUTORS_MAX;
        let with_cache = self.fleet.iter().filter(|executor| executor.serves.is_some());
        let executors = with_cache.count() as u64;
        let rooms = self.fleet.iter().map(|executor| executor.room.object_bytes);
        let cache_bytes = rooms.max().filter(|bytes| *bytes > 0);
        let found = self.placement.find_objects(scope, name).into_iter().map(|found| {
            let lenders = self.placement.lenders_of(found.object.id);
            let holders = found.holders().map(|(id, holds)| (id, (holds, 0)));
            let lenders = lenders.into_iter().map(|(id, lends)| (id, (false, lends)));
            let all = holders.chain(lenders).take(room);
            let holders: Vec<HolderStatus> =
                all.map(|(id, (holds, lends))| self.holder(id, holds, lends)).collect();
            room -= holders.len();
            let ObjectStatus { id, url, version, .. } = found.object.clone();
            let declared = Object { id, url, version, size: found.declared };
            let (object, readers) = (found.object, found.readers);
            let earlier = self.placement.earlier(&declared, self.now);
            let chosen = self.way_of(&declared, (readers, earlier), executors, cache_bytes);
            FoundObject { object, readers, chosen, cache_bytes, holders }
        });
        found.collect()
    }

    /// What is remembered of a name, which `found` are the objects of. An instance
    /// learns that of its own objects alone.
    #[must_use]
    pub fn earlier(&self, scope: Scope, name: &str, found: &[FoundObject]) -> Option<Earlier> {
        match (found.first(), scope) {
            (Some(one), _) => self.placement.known_of(&one.object.url, self.now),
            (None, Scope::Of(_)) => None,
            (None, Scope::All | Scope::Placed) => self.placement.known_of(name, self.now),
        }
    }

    /// The way of an object to the tasks that read it.
    fn way_of(
        &self,
        object: &Object,
        (readers, earlier): (u64, Option<Earlier>),
        executors: u64,
        cache_bytes: Option<u64>,
    ) -> Chosen {
        let ignores_places = self.ignores_places(object.id);
        let mut input = Input::new(object, readers).ignoring_places(ignores_places);
        let lent = self.fleet.iter().fold(Lent::default(), |lent, executor| Lent {
            bytes: lent.bytes.saturating_add(executor.room.lent_bytes),
            most: lent.most.max(executor.room.lent_bytes),
            mounts: lent.mounts || executor.room.mounts,
        });
        input = input.with_lent(lent);
        // Where nobody is yet, any number may come.
        if executors > 0 {
            input = input.on_executors(executors);
        }
        if let Some(earlier) = earlier {
            input = input.earlier_on_executors(earlier.executors);
        }
        cache_bytes.map_or(input, |bytes| input.in_caches_of(bytes)).way()
    }

    /// Whether all tasks that declare an object go wherever there is room.
    fn ignores_places(&self, object: ObjectId) -> bool {
        let declaring =
            self.instances.values().filter(|one| self.placement.is_declared_by(one.id, object));
        let mut ignoring = declaring.map(|one| !one.options.policy.policy.knows_places());
        ignoring.next().is_some_and(|first| first && ignoring.all(|ignores| ignores))
    }

    /// The executors to go to with an object; to put it, those that hold it already
    /// come first, then those that hold least.
    ///
    /// # Errors
    /// [`AccessError`].
    pub fn reach(
        &self,
        scope: Scope,
        object: &Object,
        purpose: Purpose,
    ) -> Result<Vec<Access>, AccessError> {
        if purpose == Purpose::Put {
            return self.where_to_put(object);
        }
        // What those below a relay hold is theirs.
        let here = |id: &ExecutorId| self.fleet[*id].subtree.is_none();
        let mut holders = self.placement.holders(scope, object.id).filter(here).peekable();
        if holders.peek().is_none() {
            let below = self.reach_below(scope, object.id, purpose);
            return Err(below.err().unwrap_or(AccessError::NotHeld));
        }
        self.check_need(object.id, purpose)?;
        let found = holders.map(|id| access(&self.fleet[id]));
        Ok(found.take(FOUND_EXECUTORS_MAX).collect())
    }

    /// Whether somebody may read an object that executors below relays hold, or have it dropped
    /// there.
    ///
    /// # Errors
    /// [`AccessError`].
    pub fn reach_below(
        &self,
        scope: Scope,
        object: ObjectId,
        purpose: Purpose,
    ) -> Result<(), AccessError> {
        let is_below = |id: ExecutorId| self.fleet[id].subtree.is_some();
        if !self.placement.holders(scope, object).any(is_below) {
            return Err(AccessError::NotHeld);
        }
        if !self.placement.is_named(object) {
            return Err(AccessError::OfOthers);
        }
        self.check_need(object, purpose)
    }

    /// What tasks need is dropped by force alone.
    fn check_need(&self, object: ObjectId, purpose: Purpose) -> Result<(), AccessError> {
        let tasks = match purpose {
            Purpose::Drop { force: false } => self.placement.tasks_in_need(object),
            Purpose::Drop { force: true } | Purpose::Get | Purpose::Put => 0,
        };
        if tasks > 0 { Err(AccessError::Needed { tasks }) } else { Ok(()) }
    }

    /// The executor to go to for all that a task wrote to a stream, if its executor
    /// keeps that, and under which number.
    ///
    /// # Errors
    /// [`AccessError`].
    pub fn reach_output(
        &self,
        instance: InstanceId,
        task: TaskId,
        stream: Stream,
    ) -> Result<(Overflow, Access), AccessError> {
        let (overflow, executor) = self.output_of(instance, task, stream)?;
        let executor = &self.fleet[executor];
        match executor.subtree {
            Some(_) => Err(AccessError::Below(executor.name.clone())),
            None => Ok((overflow, access(executor))),
        }
    }

    /// The executor to go to for what a task writes while it runs.
    ///
    /// # Errors
    /// [`AccessError`].
    pub fn reach_tail(
        &mut self,
        instance: InstanceId,
        task: TaskId,
    ) -> Result<Access, AccessError> {
        let found = self.whereabouts(instance, task, 1).pop().ok_or(AccessError::NoTask)?;
        let id = match found {
            // Whether a task that was sent runs is its executor's to say.
            Whereabouts::Sent(id) | Whereabouts::Running(id) => id,
            Whereabouts::Waiting | Whereabouts::Ready => return Err(AccessError::NotSent),
            Whereabouts::Staged(_)
            | Whereabouts::Ended(_)
            | Whereabouts::Done
            | Whereabouts::NotDone => return Err(AccessError::Ended),
        };
        let executor = &self.fleet[id];
        match executor.subtree {
            Some(_) => Err(AccessError::Below(executor.name.clone())),
            None if executor.connection.is_none() => Err(AccessError::ExecutorGone),
            None => Ok(access(executor)),
        }
    }

    fn where_to_put(&self, object: &Object) -> Result<Vec<Access>, AccessError> {
        self.placement.check_placeable(object)?;
        let reached = self.fleet.iter().filter_map(|executor| {
            let access = access(executor);
            let is_reached = !access.serves.address.is_empty() && !executor.leaving;
            is_reached.then(|| {
                let (is_there, held) = self.placement.held_there(executor.id, object.id);
                ((!is_there, held), access)
            })
        });
        let mut reached: Vec<((bool, u64), Access)> = reached.collect();
        reached.sort_by_key(|(rank, access)| (*rank, access.executor));
        reached.truncate(PUT_EXECUTORS_MAX);
        if reached.is_empty() {
            return Err(AccessError::NoCache);
        }
        Ok(reached.into_iter().map(|(_, access)| access).collect())
    }

    fn holder(&self, id: ExecutorId, holds: bool, lends: u64) -> HolderStatus {
        let executor = &self.fleet[id];
        let (name, connected) = (executor.name.clone(), executor.connection.is_some());
        HolderStatus { executor: id, name, holds, connected, lends }
    }
}

fn access(executor: &Executor) -> Access {
    let serves = executor.serves.clone().filter(|_| executor.connection.is_some());
    Access {
        executor: executor.id,
        name: executor.name.clone(),
        serves: serves.unwrap_or_default(),
    }
}
