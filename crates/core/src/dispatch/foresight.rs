//! Large objects on their way to as many executors as earlier tasks had them on.
//! Placement, which remembers that, meets the executors and the instances here.

use super::fleet::Executor;
use super::needs::NeedId;
use super::{Dispatcher, Record};
use crate::data::declared::Declared;
use crate::data::way::spreads;
use crate::task::{ExecutorId, InstanceId};

impl Dispatcher {
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
        for object in data.inputs_of(offset).filter(|object| spreads(object)) {
            if let Some(news) = self.placement.was_read(object, to, self.now) {
                self.journal(Record::Remembered(news));
            }
            let need = &self.needs[need];
            let takes = |executor: &Executor| executor.takes_tasks() && executor.offers(need);
            for (to, located) in self.placement.send_ahead(object, most, &self.fleet, takes) {
                let located = self.name_peers(to, located);
                self.order_fetch(to, located);
            }
        }
    }
}
