//! Questions about data objects: which there are, what they are called and who
//! holds them.

use super::Placement;
use super::catalog::Named;
use crate::data::index::{ObjectNo, Place};
use crate::data::object::{Object, ObjectId};
use crate::dispatch::inspect::{AccessError, ObjectStatus, Scope};
use crate::limits::{
    EXAMINED_OBJECTS_MAX, FOUND_OBJECTS_MAX, LISTED_BYTES_MAX, LISTED_OBJECTS_MAX,
};
use crate::task::{ExecutorId, InstanceId};

/// An object that is held, on its way to somebody, or wanted.
pub(in crate::dispatch) struct Found<'a> {
    pub(in crate::dispatch) object: ObjectStatus,
    /// Tasks that have not ended and read it.
    pub(in crate::dispatch) readers: u64,
    /// The size with which executors are told to fetch it.
    pub(in crate::dispatch) declared: Option<u64>,
    number: ObjectNo,
    placement: &'a Placement,
}

impl Found<'_> {
    /// The holders of the object, and then those that it is on its way to.
    pub(in crate::dispatch) fn holders(&self) -> impl Iterator<Item = (ExecutorId, bool)> + '_ {
        let index = &self.placement.index;
        let held = index.holders(self.number).iter().map(|place| (*place, true));
        let coming = index.coming(self.number).map(|place| (place, false));
        let all = held.chain(coming);
        all.filter_map(|(place, holds)| Some((index.executor(place)?, holds)))
    }
}

impl Placement {
    /// Objects in the order of their ids, after one, as many as go into one
    /// answer, and from which to go on, if there may be more. Only those that
    /// `executor` holds, if one is given, and whose URL begins with `prefix`. Those of an
    /// instance are all that it has declared, also what is nowhere.
    pub(in crate::dispatch) fn objects(
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
        // The executor is whichever somebody names.
        let place = executor.map(|id| self.index.place(id));
        let (mut listed, mut bytes) = (Vec::new(), 0);
        for (examined, id) in (1..).zip(ids) {
            let named = self.catalog.named(id);
            let url = named.map_or("", |named| &named.url);
            let number = self.index.number(id);
            let is_meant = match (number, place) {
                (None, None) => matches!(scope, Scope::Of(_)),
                (None, Some(_)) | (_, Some(None)) => false,
                (Some(number), Some(Some(place))) => self.index.holds(place, number),
                (Some(_), None) => true,
            };
            if is_meant && url.starts_with(prefix) && self.is_in(scope, id) {
                bytes += url.len() as u64;
                listed.push(self.status_of(id, number, named));
            }
            if listed.len() >= LISTED_OBJECTS_MAX
                || bytes >= LISTED_BYTES_MAX
                || examined >= EXAMINED_OBJECTS_MAX
            {
                return (listed, Some(id));
            }
        }
        (listed, None)
    }

    /// The objects that a name means, which is a URL or an id.
    pub(in crate::dispatch) fn find_objects(&self, scope: Scope, name: &str) -> Vec<Found<'_>> {
        let ids: Vec<ObjectId> = match ObjectId::parse(name) {
            Some(id) => vec![id],
            None => self.catalog.at(name).map(|(id, _)| id).collect(),
        };
        let ids = ids.into_iter().filter(|id| self.is_in(scope, *id));
        let known = ids.filter_map(|id| Some((id, self.index.number(id)?)));
        let found = known.take(FOUND_OBJECTS_MAX).map(|(id, number)| {
            let named = self.catalog.named(id);
            let object = self.status_of(id, Some(number), named);
            // What a task has made was declared without its size.
            let declared = named.map_or(object.size, |named| named.size);
            Found { object, readers: self.readership.of(id), declared, number, placement: self }
        });
        found.collect()
    }

    /// The holders of an object.
    pub(in crate::dispatch) fn holders(
        &self,
        scope: Scope,
        object: ObjectId,
    ) -> impl Iterator<Item = ExecutorId> + '_ {
        let is_in = self.is_in(scope, object);
        self.holders_of(object).filter(move |_| is_in)
    }

    /// Whether somebody has named an object to this dispatcher.
    pub(in crate::dispatch) fn is_named(&self, object: ObjectId) -> bool {
        self.catalog.named(object).is_some()
    }

    /// How many tasks read an object that they would find nowhere but in caches.
    pub(in crate::dispatch) fn tasks_in_need(&self, object: ObjectId) -> u64 {
        let named = self.catalog.named(object);
        let is_in_caches = named.is_some_and(|named| named.url.starts_with("cache:"));
        if is_in_caches { self.readership.of(object) } else { 0 }
    }

    /// Whether an object may be put into caches by hand.
    ///
    /// # Errors
    /// [`AccessError`].
    pub(in crate::dispatch) fn check_placeable(&self, object: &Object) -> Result<(), AccessError> {
        if !object.is_placeable() {
            return Err(AccessError::NotPlaceable);
        }
        let mut others = self.catalog.at(&object.url).filter(|(id, named)| {
            *id != object.id && named.is_placed && self.holders_of(*id).next().is_some()
        });
        match others.next() {
            Some((other, _)) => Err(AccessError::Taken(other)),
            None => Ok(()),
        }
    }

    /// Whether an executor holds an object, and how many objects it holds.
    pub(in crate::dispatch) fn held_there(&self, id: ExecutorId, object: ObjectId) -> (bool, u64) {
        let place: Place = self.place(id);
        let number = self.index.number(object);
        let is_held = number.is_some_and(|number| self.index.holds(place, number));
        (is_held, self.held_count(id))
    }

    /// Whether tasks of an instance declare an object.
    pub(in crate::dispatch) fn is_declared_by(
        &self,
        instance: InstanceId,
        object: ObjectId,
    ) -> bool {
        self.catalog.has(instance, object)
    }

    fn is_in(&self, scope: Scope, id: ObjectId) -> bool {
        match scope {
            Scope::All => true,
            Scope::Placed => self.catalog.named(id).is_some_and(|named| named.is_placed),
            Scope::Of(instance) => self.catalog.has(instance, id),
        }
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
}
