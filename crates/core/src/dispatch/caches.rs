//! Changes of executors' caches, and orders about them. Placement meets the
//! executors and the instances here.

use super::placement::{Notice, Notices};
use super::{ConnectionId, Dispatcher, Order, Reply};
use crate::data::declared::Located;
use crate::data::object::ObjectId;
use crate::data::stage::Changes;
use crate::events::What;
use crate::task::ExecutorId;

/// Objects in caches alone that a dispatcher above needs no more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LetGo {
    /// No task reads these that is known: they need not stay any more.
    pub release: Vec<ObjectId>,
    /// Nobody could get these from here: they are to go.
    pub drop: Vec<ObjectId>,
}

impl LetGo {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.release.is_empty() && self.drop.is_empty()
    }
}

impl Dispatcher {
    /// A dispatcher above needs objects no more that executors here or below hold.
    pub(super) fn let_go(&mut self, (asker, request): (ConnectionId, u64), objects: &LetGo) {
        let LetGo { release, drop } = objects;
        let all = release.iter().map(|object| (*object, Notice::Release(*object)));
        let all = all.chain(drop.iter().map(|object| (*object, Notice::Drop(*object))));
        let mut notices = Notices::new();
        for (object, notice) in all {
            notices.extend(self.placement.holders_of(object).map(|holder| (holder, notice)));
        }
        self.notify(notices);
        self.reply(asker, request, Reply::Done);
    }

    /// A client has an object dropped below relays. They say when it is gone.
    pub(super) fn drop_below(&mut self, (asker, request): (ConnectionId, u64), object: ObjectId) {
        let holders = self.placement.holders_of(object);
        let relays = holders.filter(|holder| self.fleet[*holder].subtree.is_some());
        let notices: Notices = relays.map(|relay| (relay, Notice::Drop(object))).collect();
        self.notify(notices);
        self.reply(asker, request, Reply::Done);
    }

    /// An executor has said how its cache has changed.
    pub(super) fn cache_changed(&mut self, id: ExecutorId, changes: Changes) {
        let Changes { anew, added, removed, named, state, unobtainable, silent, moved } = changes;
        for (from, bytes) in moved {
            self.happenings.note(|| What::Moved { executor: id, from, bytes });
        }
        self.placement.are_silent(self.now, id, &silent);
        if self.fleet[id].serves.is_some() {
            self.placement.cache_reported(id, unobtainable);
        }
        if let Some(state) = state {
            self.fleet.note_cache(id, state);
        }
        if !anew && added.is_empty() && removed.is_empty() && named.is_empty() {
            return;
        }
        if anew {
            self.placement.cache_listed(id, added);
            self.is_back(self.fleet[id].incarnation);
        } else {
            let (instances, fleet) = (&self.instances, &self.fleet);
            let notices = self.placement.cache_changed(id, added, &removed, instances, fleet);
            self.notify(notices);
        }
        self.placement.look_for_copiers();
        // Names are kept of what is held.
        self.placement.name_placed(&named, &self.instances);
        if self.placement.has_tasks() {
            self.fleet.gain_room(id);
        }
    }

    /// An executor leaves, and is told when it may go.
    pub(super) fn prepare_leaving(&mut self, id: ExecutorId) {
        self.placement.lends_no_more(id);
        let notices = self.placement.prepare_leaving(id, &self.instances, &self.fleet);
        self.notify(notices);
    }

    /// Has executors copy what has fewer copies than it should, as far as they
    /// have time.
    pub(super) fn copy_wanted(&mut self) {
        for (to, located) in self.placement.start_copies(&self.instances, &self.fleet) {
            let located = self.name_peers(to, located);
            self.order_fetch(to, located);
        }
    }

    /// Has an executor fetch an object.
    pub(super) fn order_fetch(&mut self, to: ExecutorId, located: Located) {
        self.fleet.data_order(to).fetch.push(located);
    }

    /// Adds how many tasks want what an executor holds to its order, if that has
    /// changed.
    pub(super) fn add_demand(&mut self, to: ExecutorId, order: &mut Order) {
        let demand = self.placement.next_demand(to);
        if !demand.is_empty() {
            order.data.get_or_insert_default().demand = demand;
        }
    }

    /// Sends notices with the executors' next orders.
    pub(super) fn notify(&mut self, notices: Notices) {
        for (id, notice) in notices {
            let order = self.fleet.data_order(id);
            match notice {
                Notice::Hold(object) => order.hold.push(object),
                Notice::Release(object) => order.release.push(object),
                Notice::Drop(object) => order.drop.push(object),
                Notice::Gone(executor) => order.gone.push(executor),
                Notice::MayLeave => order.may_leave = true,
            }
        }
    }
}
