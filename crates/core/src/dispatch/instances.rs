//! The instances, by number, and what decides how long each lives.
//!
//! A number that the dispatcher issued itself is looked up by indexing, which
//! panics if there is no such instance: the books are wrong then, and going on
//! would lose tasks. [`Instances::find`] is for numbers that come from outside: a
//! client's message, an executor's, a page that was asked for a while ago.

mod ended;
mod lifetime;

use super::instance::{Instance, SharedTemplate};
use super::{BatchId, CheckError, InstanceOptions};
use crate::dispatch::check::ensure;
use crate::task::{InstanceId, Submission, Time};
use ended::Ended;
use lifetime::Lifetimes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

pub use lifetime::{Expiry, Lifetime};

/// All instances of a dispatcher.
#[derive(Debug, Default)]
pub(super) struct Instances {
    all: BTreeMap<InstanceId, Instance>,
    /// How long each lives.
    lifetimes: Lifetimes,
    /// The number of the next one.
    next: u64,
    next_batch: u64,
    /// Submissions that are kept although all of their tasks have ended.
    ended: Ended,
    /// Instances in which tasks may run again for nobody.
    stale_recomputes: BTreeSet<InstanceId>,
}

impl Instances {
    /// An instance that somebody else names; `None` if there is none.
    pub(super) fn find(&self, id: &InstanceId) -> Option<&Instance> {
        self.all.get(id)
    }

    /// As [`Instances::find`], to be changed.
    pub(super) fn find_mut(&mut self, id: &InstanceId) -> Option<&mut Instance> {
        self.all.get_mut(id)
    }

    pub(super) fn contains(&self, id: &InstanceId) -> bool {
        self.all.contains_key(id)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The numbers of all of them, ascending.
    pub(super) fn ids(&self) -> impl Iterator<Item = InstanceId> {
        self.all.keys().copied()
    }

    /// All of them, in the order of their creation.
    pub(super) fn values(&self) -> impl Iterator<Item = &Instance> {
        self.all.values()
    }

    /// As [`Instances::values`], to be changed.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Instance> {
        self.all.values_mut()
    }

    /// The number that the next instance gets.
    pub(super) fn next(&self) -> InstanceId {
        InstanceId(self.next)
    }

    /// Takes a new instance in; its number is not given again.
    pub(super) fn create(
        &mut self,
        now: Time,
        id: InstanceId,
        created: Time,
        options: InstanceOptions,
    ) {
        self.never_again(id);
        self.lifetimes.begin(now, id, created, &options);
        self.all.insert(id, Instance::new(id, options));
    }

    fn never_again(&mut self, id: InstanceId) {
        self.next = self.next.max(id.0 + 1);
    }

    /// Takes an instance out, with all that is known of it here; `None` if there
    /// is none.
    pub(super) fn remove(&mut self, id: &InstanceId) -> Option<Instance> {
        let instance = self.all.remove(id)?;
        self.lifetimes.end(*id);
        self.ended.forget(*id);
        self.stale_recomputes.remove(id);
        Some(instance)
    }

    /// Numbers what executors receive of a submission that an instance is about
    /// to take in. Returns the instance and the number.
    pub(super) fn number_batch(
        &mut self,
        id: &InstanceId,
        submission: &mut Submission,
    ) -> (&mut Instance, BatchId) {
        let instance = self.all.get_mut(id).unwrap_or_else(|| missing(*id));
        let batch = instance.share_template(submission).unwrap_or_else(|| {
            let batch = BatchId(self.next_batch);
            self.next_batch += 1;
            instance
                .templates
                .insert(batch, SharedTemplate { batches: 1, ..SharedTemplate::default() });
            batch
        });
        (instance, batch)
    }

    /// Notes that tasks of an instance may run again for nobody.
    pub(super) fn recomputes_changed(&mut self, id: InstanceId) {
        self.stale_recomputes.insert(id);
    }

    /// The instances in which tasks may run again for nobody, each once.
    pub(super) fn take_stale_recomputes(&mut self) -> BTreeSet<InstanceId> {
        std::mem::take(&mut self.stale_recomputes)
    }

    /// What is listed of instances is of those that there are.
    ///
    /// # Errors
    /// Says what does not hold.
    pub(super) fn check(&self) -> Result<(), CheckError> {
        let alive = self.lifetimes.ids().eq(self.ids());
        ensure!(alive, "lifetimes are not those of the instances");
        let is_listed = self.stale_recomputes.iter().all(|id| self.contains(id));
        ensure!(is_listed, "tasks of an instance that is gone may run again");
        let is_kept = self.ended.submissions().all(|(id, _)| self.contains(&id));
        ensure!(is_kept, "submissions of an instance that is gone are kept");
        let is_new = self.ids().all(|id| id < self.next());
        ensure!(is_new, "the number of an instance may be given again");
        Ok(())
    }
}

impl Index<&InstanceId> for Instances {
    type Output = Instance;

    fn index(&self, id: &InstanceId) -> &Instance {
        self.all.get(id).unwrap_or_else(|| missing(*id))
    }
}

impl IndexMut<&InstanceId> for Instances {
    fn index_mut(&mut self, id: &InstanceId) -> &mut Instance {
        self.all.get_mut(id).unwrap_or_else(|| missing(*id))
    }
}

#[cold]
fn missing(id: InstanceId) -> ! {
    panic!("instance {id} does not exist, although the dispatcher has its number in its books")
}
