//! Large objects on their way to as many executors as earlier tasks had them on.
//! Placement, which remembers that, meets the executors and the instances here.

use super::fleet::Executor;
use super::needs::NeedId;
use super::{Dispatcher, Record};
use crate::data::declared::Declared;
use crate::data::way::spreads_in;
use crate::task::{ExecutorId, InstanceId};
use std::sync::Arc;

impl Dispatcher {
    /// Forgets what tasks did with large objects of a name, or of all. Returns how many
    /// names those are.
    pub(super) fn forget(&mut self, name: Option<Arc<str>>) -> u64 {
        let count = self.placement.forget_remembered(name.as_deref());
        if count > 0 {
            self.journal(Record::Forgotten { name });
        }
        count
    }

    /// A task of an instance, with the data at `offset`, goes to an executor:
    /// others fetch what it reads if earlier tasks read that on others, too.
    pub(super) fn foresee(
        &mut self,
        to: ExecutorId,
        data: &Declared,
        offset: u64,
        (id, need): (InstanceId, NeedId),
    ) {
        let most = self.instances[&id].options.policy.copies_max();
        for object in data.inputs_of(offset) {
            let size = self.placement.size_of(object);
            let Some(size) = size.filter(|size| spreads_in(object, *size)) else { continue };
            if let Some(news) = self.placement.was_read((object, size), to, self.now) {
                self.journal(Record::Remembered(news));
            }
            let need = &self.needs[need];
            let takes = |executor: &Executor| executor.takes_tasks() && executor.offers(need);
            for (to, located) in self.placement.send_ahead((object, size), most, &self.fleet, takes)
            {
                let located = self.name_peers(to, located);
                self.order_fetch(to, located);
            }
        }
    }
}
