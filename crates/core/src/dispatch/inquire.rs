//! Questions about data objects: which there are, who holds them, and whom to
//! go to with one. They change nothing.

use super::catalog::Named;
use super::executor::Executor;
use super::{Dispatcher, InstanceId};
use crate::data::declared::Serving;
use crate::data::index::{ObjectNo, Place};
use crate::data::object::{Object, ObjectId};
use crate::limits::{
    EXAMINED_OBJECTS_MAX, FOUND_EXECUTORS_MAX, FOUND_OBJECTS_MAX, LISTED_BYTES_MAX,
    LISTED_OBJECTS_MAX, PUT_EXECUTORS_MAX,
};
use crate::result::{Overflow, Stream};
use crate::task::{ExecutorId, TaskId};
use std::sync::Arc;

/// Which objects somebody may know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All.
    All,
    /// Those that were put into caches by hand: they are for all who may
    /// submit tasks.
    Placed,
    /// Those that an instance's tasks read and write.
    Of(InstanceId),
}

/// An object, as the dispatcher believes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectStatus {
    /// What it is known by.
    pub id: ObjectId,
    /// Where it comes from; empty if nobody has said it to this dispatcher.
    pub url: Arc<str>,
    /// Which version of that.
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

/// An executor that holds an object, or to which it is on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderStatus {
    /// The executor.
    pub executor: ExecutorId,
    /// Its name.
    pub name: String,
    /// It holds it; else the object is on its way there.
    pub holds: bool,
    /// Whether it is connected.
    pub connected: bool,
}

/// An object and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundObject {
    /// The object.
    pub object: ObjectStatus,
    /// Tasks that have not ended and read it, whether they are ready or not.
    pub readers: u64,
    /// Who has it; not more than [`FOUND_EXECUTORS_MAX`] of all that are found.
    pub holders: Vec<HolderStatus>,
}

/// What somebody wants to do with an object.
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
        let ids: Box<dyn Iterator<Item = ObjectId> + '_> = match scope {
            Scope::Of(instance) => Box::new(self.catalog.of(instance, after)),
            Scope::All | Scope::Placed => Box::new(self.index.ids_after(after)),
        };
        let place = executor.map(|id| self.index.place(id));
        let (mut told, mut bytes) = (Vec::new(), 0);
        for (examined, id) in (1..).zip(ids) {
            let named = self.catalog.named(id);
            let url = named.map_or("", |named| &named.url);
            let number = self.index.number(id);
            let is_meant = match (number, place) {
                (None, _) | (_, Some(None)) => false,
                (Some(number), Some(Some(place))) => self.index.holds(place, number),
                (Some(_), None) => true,
            };
            if is_meant && url.starts_with(prefix) && self.is_in(scope, id) {
                bytes += url.len() as u64;
                told.push(self.status_of(id, number, named));
            }
            if told.len() >= LISTED_OBJECTS_MAX
                || bytes >= LISTED_BYTES_MAX
                || examined >= EXAMINED_OBJECTS_MAX
            {
                return (told, Some(id));
            }
        }
        (told, None)
    }

    /// The objects that a name means, which is a URL or an id, with those that
    /// have them. Costs time in proportion to what is found.
    #[must_use]
    pub fn find_objects(&self, scope: Scope, name: &str) -> Vec<FoundObject> {
        let ids: Vec<ObjectId> = match ObjectId::parse(name) {
            Some(id) => vec![id],
            None => self.catalog.at(name).map(|(id, _)| id).collect(),
        };
        let ids = ids.into_iter().filter(|id| self.is_in(scope, *id));
        let mut room = FOUND_EXECUTORS_MAX;
        let known = ids.filter_map(|id| Some((id, self.index.number(id)?)));
        known
            .take(FOUND_OBJECTS_MAX)
            .map(|(id, number)| {
                let held = self.index.holders(number).iter().map(|place| (*place, true));
                let coming = self.index.coming(number).map(|place| (place, false));
                let holders: Vec<HolderStatus> = held
                    .chain(coming)
                    .filter_map(|(place, holds)| self.holder(place, holds))
                    .take(room)
                    .collect();
                room -= holders.len();
                let object = self.status_of(id, Some(number), self.catalog.named(id));
                FoundObject { object, readers: self.readership.of(id), holders }
            })
            .collect()
    }

    /// Whom to go to with an object; to put it, those that hold it already come
    /// first, then those that hold least.
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
        let number = self.index.number(object.id).filter(|_| self.is_in(scope, object.id));
        let held = number.map_or(&[][..], |number| self.index.holders(number));
        if held.is_empty() {
            return Err(AccessError::NotHeld);
        }
        if purpose == (Purpose::Drop { force: false }) {
            let named = self.catalog.named(object.id);
            let is_stored = named.is_none_or(|named| !named.url.starts_with("cache:"));
            let tasks = if is_stored { 0 } else { self.readership.of(object.id) };
            if tasks > 0 {
                return Err(AccessError::Needed { tasks });
            }
        }
        let found = held.iter().filter_map(|place| self.executor_at(*place)).map(access);
        Ok(found.take(FOUND_EXECUTORS_MAX).collect())
    }

    /// Whom to go to for all that a task wrote to a stream, if its executor
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
        let (overflow, executor) =
            self.output_of(instance, task, stream).ok_or(AccessError::NotKept)?;
        let executor = executor.and_then(|id| self.executors.find(&id));
        Ok((overflow, access(executor.ok_or(AccessError::ExecutorGone)?)))
    }

    fn where_to_put(&self, object: &Object) -> Result<Vec<Access>, AccessError> {
        if !object.is_placeable() {
            return Err(AccessError::NotPlaceable);
        }
        let mut others = self
            .catalog
            .at(&object.url)
            .filter(|(id, named)| *id != object.id && named.is_placed && self.is_held(*id));
        if let Some((other, _)) = others.next() {
            return Err(AccessError::Taken(other));
        }
        let number = self.index.number(object.id);
        let reached = self.executors.values().filter_map(|executor| {
            let access = access(executor);
            let place = self.index.place(executor.id)?;
            let is_reached = !access.serves.address.is_empty() && !executor.leaving;
            let is_there = number.is_some_and(|number| self.index.holds(place, number));
            is_reached.then(|| ((!is_there, self.index.held_count(place)), access))
        });
        let mut reached: Vec<((bool, usize), Access)> = reached.collect();
        reached.sort_by_key(|(rank, access)| (*rank, access.executor));
        reached.truncate(PUT_EXECUTORS_MAX);
        if reached.is_empty() {
            return Err(AccessError::NoCache);
        }
        Ok(reached.into_iter().map(|(_, access)| access).collect())
    }

    fn is_in(&self, scope: Scope, id: ObjectId) -> bool {
        match scope {
            Scope::All => true,
            Scope::Placed => self.catalog.named(id).is_some_and(|named| named.is_placed),
            Scope::Of(instance) => self.catalog.has(instance, id),
        }
    }

    fn is_held(&self, id: ObjectId) -> bool {
        self.index.number(id).is_some_and(|number| !self.index.holders(number).is_empty())
    }

    fn status_of(
        &self,
        id: ObjectId,
        number: Option<ObjectNo>,
        named: Option<&Named>,
    ) -> ObjectStatus {
        let count = |of: &dyn Fn(ObjectNo) -> u64| number.map_or(0, of);
        ObjectStatus {
            id,
            url: named.map_or_else(|| "".into(), |named| named.url.clone()),
            version: named.map_or_else(|| "".into(), |named| named.version.clone()),
            size: number.and_then(|at| self.index.size(at)).or(named.and_then(|at| at.size)),
            holders: count(&|at| self.index.holders(at).len() as u64),
            coming: count(&|at| self.index.coming_count(at) as u64),
            waiting: count(&|at| self.index.wanted(at)),
        }
    }

    fn executor_at(&self, place: Place) -> Option<&Executor> {
        self.executors.find(&self.index.executor(place)?)
    }

    fn holder(&self, place: Place, holds: bool) -> Option<HolderStatus> {
        let executor = self.executor_at(place)?;
        Some(HolderStatus {
            executor: executor.id,
            name: executor.name.clone(),
            holds,
            connected: executor.connection.is_some(),
        })
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
