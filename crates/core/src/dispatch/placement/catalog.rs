//! Names of data objects, and the instances that declare them: for people who
//! ask. No decision of where tasks go depends on them.
//!
//! A name is kept as long as a submission that is here declares the object, or
//! the index knows it; whatever else is swept out when there is twice as much
//! as after the last sweep.

use super::{Instance, Instances, Placement};
use crate::data::declared::Declared;
use crate::data::object::{INSTANCES_PREFIX, Object, ObjectId};
use crate::limits::{CATALOG_OBJECTS_MIN, URL_BYTES_MAX, VERSION_BYTES_MAX};
use crate::task::InstanceId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The name of an object, and its size.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) url: Arc<str>,
    pub(super) version: Arc<str>,
    pub(super) size: Option<u64>,
    /// Somebody put it into caches by hand.
    pub(super) is_placed: bool,
}

/// Names of objects.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    named: BTreeMap<ObjectId, Named>,
    /// The objects at each URL, whichever version.
    at: BTreeSet<(Arc<str>, ObjectId)>,
    /// The objects that each instance has declared.
    of: BTreeSet<(InstanceId, ObjectId)>,
    /// When there are so many names, those that nobody needs are swept out.
    sweep_at: usize,
}

impl Catalog {
    /// The name of an object, if it has one.
    pub(super) fn named(&self, id: ObjectId) -> Option<&Named> {
        self.named.get(&id)
    }

    /// Whether an instance has declared an object.
    pub(super) fn has(&self, instance: InstanceId, id: ObjectId) -> bool {
        self.of.contains(&(instance, id))
    }

    /// The objects that an instance has declared, by id, after one.
    pub(super) fn of(
        &self,
        instance: InstanceId,
        after: Option<ObjectId>,
    ) -> impl Iterator<Item = ObjectId> + '_ {
        let from = after.map_or(Some(0), |after| after.0.checked_add(1));
        let range = from.map(|from| (instance, ObjectId(from))..=(instance, ObjectId(u128::MAX)));
        range.into_iter().flat_map(|range| self.of.range(range)).map(|(_, id)| *id)
    }

    /// The objects that are found at a URL, whichever version.
    pub(super) fn at(&self, url: &str) -> impl Iterator<Item = (ObjectId, &Named)> {
        let url: Arc<str> = url.into();
        let versions = (url.clone(), ObjectId(0))..=(url, ObjectId(u128::MAX));
        let found = self.at.range(versions);
        found.filter_map(|(_, id)| Some((*id, self.named.get(id)?)))
    }

    /// The objects that were put into caches for an instance.
    fn placed_for(&self, instance: InstanceId) -> impl Iterator<Item = ObjectId> {
        let prefix: Arc<str> = format!("{INSTANCES_PREFIX}{}/", instance.0).into();
        let found = self.at.range((prefix.clone(), ObjectId(0))..);
        found.take_while(move |(url, _)| url.starts_with(&*prefix)).map(|(_, id)| *id)
    }

    fn name(&mut self, object: &Object, is_placed: bool) {
        if !self.named.contains_key(&object.id) {
            self.at.insert((object.url.clone(), object.id));
        }
        let named = self.named.entry(object.id).or_insert_with(|| Named {
            url: object.url.clone(),
            version: object.version.clone(),
            size: None,
            is_placed: false,
        });
        named.size = named.size.or(object.size);
        named.is_placed |= is_placed;
    }
}

impl Placement {
    /// Tasks of an instance were submitted with data.
    pub(in crate::dispatch) fn submitted(
        &mut self,
        instance: InstanceId,
        data: &Declared,
        count: u64,
        instances: &Instances,
    ) {
        self.knows_data = true;
        self.readership.join(data, 0, count);
        // Members are known by the names of their archives.
        for object in data.objects.iter().filter(|object| object.archive().is_none()) {
            self.catalog.name(object, false);
            self.catalog.of.insert((instance, object.id));
        }
        self.sweep_catalog(instances);
    }

    /// Notes what objects are called that somebody put into a cache. Those that
    /// were put there for an instance that is gone need not be kept.
    pub(in crate::dispatch) fn name_placed(&mut self, objects: &[Object], instances: &Instances) {
        let is_short = |object: &&Object| {
            object.url.len() <= URL_BYTES_MAX && object.version.len() <= VERSION_BYTES_MAX
        };
        for object in objects.iter().filter(is_short) {
            self.catalog.name(object, true);
            let owner = object.owner().map(InstanceId);
            if owner.is_some_and(|owner| !instances.contains(&owner)) {
                self.released.push(object.id);
            }
        }
        self.sweep_catalog(instances);
    }

    /// An instance is gone, with all its queues and tasks: what was put into
    /// caches for it need not be kept.
    pub(in crate::dispatch) fn instance_gone(&mut self, gone: &Instance) {
        self.queues.remove_instance(&mut self.index, gone.id);
        self.released.extend(self.catalog.placed_for(gone.id));
        self.readership.forget(gone);
        self.everywhere.forget(gone.id);
    }

    fn sweep_catalog(&mut self, instances: &Instances) {
        if self.catalog.named.len() < self.catalog.sweep_at.max(CATALOG_OBJECTS_MIN) {
            return;
        }
        let batches = instances.values().flat_map(|instance| instance.batches.values());
        let declared: BTreeSet<ObjectId> = batches
            .filter_map(|batch| batch.submission.data.as_ref())
            .flat_map(|data| data.objects.iter().map(|object| object.id))
            .collect();
        let index = &self.index;
        let Catalog { named, at, of, sweep_at } = &mut self.catalog;
        named.retain(|id, _| declared.contains(id) || index.number(*id).is_some());
        at.retain(|(_, id)| named.contains_key(id));
        of.retain(|(instance, id)| instances.contains(instance) && named.contains_key(id));
        *sweep_at = 2 * named.len();
    }
}
