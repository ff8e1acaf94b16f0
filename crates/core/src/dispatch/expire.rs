//! Instances that end because nobody wants them ([`super::instances`] decides
//! which), and connections that say that somebody does.

use super::{Action, ConnectionId, Dispatcher, Expiry, Record, RequestError};
use crate::task::{InstanceId, Time, UserId};

impl Dispatcher {
    /// Says how long instances are kept that leave it to the dispatcher, from
    /// the last look at them on; `None` is for ever, as it is at first.
    pub fn set_keep(&mut self, micros: Option<u64>) {
        self.instances.set_keep(self.now, micros);
    }

    /// Somebody asks about an instance, which says that it is still wanted.
    ///
    /// # Errors
    /// [`RequestError::Expired`] if the instance was there once; nothing is said
    /// of one that is not known.
    pub fn look(&mut self, now: Time, id: InstanceId) -> Result<(), RequestError> {
        self.now = self.now.max(now);
        if let Some(record) = self.instances.heard(self.now, id) {
            self.journal(record);
        }
        match self.instances.expired_at(id) {
            Some(at) => Err(RequestError::Expired { instance: id, at }),
            None => Ok(()),
        }
    }

    /// The instances that have expired of which it is still known when.
    pub fn expired_instances(&self) -> impl Iterator<Item = InstanceId> {
        self.instances.all_expired().map(|(id, _)| id)
    }

    /// A client's connection speaks about an instance.
    ///
    /// # Errors
    /// There is no such instance (any more).
    pub(super) fn attach(
        &mut self,
        connection: ConnectionId,
        id: InstanceId,
    ) -> Result<(), RequestError> {
        if let Some(record) = self.instances.attach(self.now, connection, id)? {
            self.journal(record);
        }
        Ok(())
    }

    pub(super) fn detach(&mut self, connection: ConnectionId) {
        for record in self.instances.detach(self.now, connection) {
            self.journal(record);
        }
    }

    /// Destroys the instances whose time is over.
    pub(super) fn expire(&mut self) {
        while let Some((id, why)) = self.instances.next_expired(self.now) {
            self.end_expired(id, why);
        }
    }

    /// Makes room for a new instance where there is one that nobody wants.
    pub(super) fn end_vacant(&mut self) {
        if let Some(id) = self.instances.next_vacant(self.now) {
            self.end_expired(id, Expiry::Vacant);
        }
    }

    /// Makes room for a new instance of a user who has as many as are allowed, where one of them
    /// is there that nobody wants.
    pub(super) fn end_vacant_of(&mut self, user: UserId) {
        let is_vacant = |id: &InstanceId| {
            self.instances.contains(id) && self.instances.is_vacant(self.now, *id)
        };
        let vacant = self.users.instances_of(user).find(is_vacant);
        if let Some(id) = vacant {
            self.end_expired(id, Expiry::Vacant);
        }
    }

    fn end_expired(&mut self, id: InstanceId, why: Expiry) {
        let at = self.now;
        if self.remove_instance(id, None, Record::Expired { instance: id, at }).is_ok() {
            let forgotten = self.instances.remember_expired(id, at);
            forgotten.into_iter().for_each(|forgotten| self.users.forget(forgotten));
            self.outbound.push(Action::Expired { instance: id, why, forgotten });
        }
    }
}
