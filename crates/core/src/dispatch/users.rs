//! The users of a dispatcher beside its owner: whose each instance is, and how much of what each
//! user may have.
//!
//! A shell says which users there are, as it reads them from a file, and for whom a connection
//! speaks; the journal has whose each instance is. Shares of the executors and slots are counted
//! where turns are ([`super::groups`]), the rest here when it is asked for.

use super::instance::{Instance, QueueKey};
use super::needs::{DataNeed, Need};
use super::{CheckError, ConnectionId, Dispatcher, Record, RequestError, Selection};
use crate::dispatch::check::ensure;
use crate::limits::UNSET_INSTANCES_MAX;
use crate::task::{InstanceId, Submission, UserId};
use std::collections::{BTreeMap, BTreeSet};

/// How much a user may have of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserLimits {
    /// The user's share of the executors beside others, whose own is 1 unless it was set.
    pub share: u32,
    /// Tasks that were accepted and have not ended.
    pub tasks_max: Option<u64>,
    /// Processors that tasks in flight ask for together.
    pub slots_max: Option<u64>,
    /// Bytes of results that are held, and of tasks that are queued.
    pub bytes_max: Option<u64>,
    /// Instances that are there at a time; [`UNSET_INSTANCES_MAX`] if it was not set.
    pub instances_max: Option<u64>,
}

impl Default for UserLimits {
    fn default() -> UserLimits {
        UserLimits {
            share: 1,
            tasks_max: None,
            slots_max: None,
            bytes_max: None,
            instances_max: None,
        }
    }
}

impl UserLimits {
    /// How many instances the user may have.
    #[must_use]
    pub fn instances_max(&self) -> u64 {
        self.instances_max.unwrap_or(UNSET_INSTANCES_MAX)
    }
}

/// How much a user has of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UserUse {
    /// Instances.
    pub instances: u64,
    /// Tasks that were accepted and have not ended.
    pub tasks: u64,
    /// Thousandths of processors that tasks in flight ask for.
    pub slots_milli: u64,
    /// Bytes of results that are held, and of tasks that are queued.
    pub bytes: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Users {
    limits: BTreeMap<UserId, UserLimits>,
    /// Whose instances are that are not the owner's, the expired ones included that are still
    /// known.
    owners: BTreeMap<InstanceId, UserId>,
    instances: BTreeMap<UserId, BTreeSet<InstanceId>>,
    /// Connections of users.
    speakers: BTreeMap<ConnectionId, UserId>,
}

impl Users {
    /// Whose an instance is.
    fn owner_of(&self, id: InstanceId) -> UserId {
        self.owners.get(&id).copied().unwrap_or(UserId::OWNER)
    }

    fn own(&mut self, id: InstanceId, user: UserId) {
        if user != UserId::OWNER {
            self.owners.insert(id, user);
            self.instances.entry(user).or_default().insert(id);
        }
    }

    /// Nothing is known of an instance any more.
    pub(super) fn forget(&mut self, id: InstanceId) {
        let Some(user) = self.owners.remove(&id) else { return };
        if let Some(instances) = self.instances.get_mut(&user) {
            instances.remove(&id);
            if instances.is_empty() {
                self.instances.remove(&user);
            }
        }
    }

    pub(super) fn instances_of(&self, user: UserId) -> impl Iterator<Item = InstanceId> {
        self.instances.get(&user).into_iter().flatten().copied()
    }

    /// For whom a connection speaks.
    pub(super) fn speaker(&self, connection: ConnectionId) -> UserId {
        self.speakers.get(&connection).copied().unwrap_or(UserId::OWNER)
    }

    /// A connection is gone.
    pub(super) fn close(&mut self, connection: ConnectionId) {
        self.speakers.remove(&connection);
    }

    /// What a snapshot says of whose instances are.
    pub(super) fn snapshot(&self) -> impl Iterator<Item = Record> {
        let owners = self.owners.iter();
        owners.map(|(id, user)| Record::Owned { instance: *id, user: *user })
    }
}

/// What users have.
impl Dispatcher {
    /// Whose an instance is, or was before it expired.
    #[must_use]
    pub fn user_of(&self, instance: InstanceId) -> UserId {
        self.users.owner_of(instance)
    }

    /// The users whose instances there are, beside the owner.
    pub fn users_with_instances(&self) -> impl Iterator<Item = UserId> {
        self.users.instances.keys().copied()
    }

    /// A user's instances, those included that have expired and are still known.
    pub fn instances_of(&self, user: UserId) -> impl Iterator<Item = InstanceId> {
        self.users.instances_of(user)
    }

    /// How much a user has. Costs time in proportion to the user's instances.
    #[must_use]
    pub fn use_of(&self, user: UserId) -> UserUse {
        let (slots, _) = self.runnable.usage(user);
        let slots_milli = u64::try_from(slots).unwrap_or(u64::MAX);
        let mut all = UserUse { slots_milli, ..UserUse::default() };
        for instance in self.users.instances_of(user).filter_map(|id| self.instances.find(&id)) {
            all.instances += 1;
            all.tasks += open_tasks(instance);
            all.bytes += kept_bytes(instance);
        }
        all
    }

    /// Refuses a user another instance who has as many as are allowed. Costs time in proportion to
    /// the user's instances only if there are so many.
    pub(super) fn check_instances(&self, user: UserId) -> Result<(), RequestError> {
        let Some(limits) = self.users.limits.get(&user) else { return Ok(()) };
        let (known, instances_max) = (self.users.instances.get(&user), limits.instances_max());
        if known.map_or(0, BTreeSet::len) as u64 >= instances_max {
            // Some of these have expired and take no memory any more.
            let instances = self.use_of(user).instances;
            if instances >= instances_max {
                return Err(RequestError::OverInstances { instances, instances_max });
            }
        }
        Ok(())
    }

    /// Refuses a submission that is more than its instance's user may have.
    pub(super) fn check_quota(
        &self,
        id: InstanceId,
        submission: &Submission,
    ) -> Result<(), RequestError> {
        let user = self.users.owner_of(id);
        let Some(limits) = self.users.limits.get(&user) else { return Ok(()) };
        if let Some(slots_max) = limits.slots_max {
            let needs = submission.classes.iter().map(|class| Need::of(class, DataNeed::None));
            let most = needs.map(|need| need.weight(1)).max().unwrap_or(0);
            if most > milli(slots_max) {
                let wanted = u64::try_from(most.div_ceil(1000)).unwrap_or(u64::MAX);
                return Err(RequestError::OverSlots { wanted, slots_max });
            }
        }
        let (tasks_max, bytes_max) = (limits.tasks_max, limits.bytes_max);
        if tasks_max.is_none() && bytes_max.is_none() {
            return Ok(());
        }
        let has = self.use_of(user);
        if let Some(tasks_max) = tasks_max
            && has.tasks.saturating_add(submission.count) > tasks_max
        {
            let (queued, wanted) = (has.tasks, submission.count);
            return Err(RequestError::OverTasks { queued, wanted, tasks_max });
        }
        match bytes_max {
            Some(bytes_max) if has.bytes.saturating_add(submission.bytes()) > bytes_max => {
                Err(RequestError::OverBytes { kept_bytes: has.bytes, bytes_max })
            }
            _ => Ok(()),
        }
    }
}

/// Whose instances are, and who is a user.
impl Dispatcher {
    /// There is a user, who may have so much. Tasks and instances that are more than that stay.
    pub(super) fn set_user(&mut self, user: UserId, limits: UserLimits) {
        self.users.limits.insert(user, limits);
        let slots_max = limits.slots_max.map(milli);
        self.runnable.add_user(user, self.now);
        self.runnable.set_user(user, limits.share, slots_max, self.now);
        self.mark_all_runnable();
        // Tasks that were held back may have room now.
        self.reopen(user);
    }

    /// A user is no more: tasks of the user that have not ended are cancelled, unless they are
    /// kept. The user's instances stay, with their results, for the owner.
    pub(super) fn revoke_user(&mut self, user: UserId, keeps: bool) {
        self.users.speakers.retain(|_, speaker| *speaker != user);
        let instances: Vec<InstanceId> = self.users.instances_of(user).collect();
        for id in instances.into_iter().filter(|_| !keeps) {
            if self.instances.contains(&id) {
                // The instance is there, which is all that cancelling asks for.
                let _ = self.cancel(id, &Selection::All);
            }
        }
    }

    /// A user who is no more has no instances either.
    pub(super) fn forget_user(&mut self, user: UserId) {
        if self.users.instances_of(user).next().is_none() {
            self.users.limits.remove(&user);
            self.runnable.forget_user(user, self.now);
        }
    }

    /// A connection speaks for a user.
    pub(super) fn speak_for(&mut self, connection: ConnectionId, user: UserId) {
        self.users.speakers.insert(connection, user);
    }

    /// A new instance is a user's.
    pub(super) fn give_to(&mut self, id: InstanceId, user: UserId) {
        if user != UserId::OWNER {
            self.journal(Record::Owned { instance: id, user });
            self.own(id, user);
        }
    }

    /// An instance is a user's, before it has tasks in flight.
    pub(super) fn own(&mut self, id: InstanceId, user: UserId) {
        self.users.own(id, user);
        if self.runnable.add_user(user, self.now) {
            self.mark_all_runnable();
        }
        if let Some(instance) = self.instances.find_mut(&id) {
            instance.share.give_to(user);
        }
    }

    /// Whether tasks of a queue wait because their user has as much in flight as is allowed.
    /// They are looked at again when there is less.
    pub(super) fn holds_back(&mut self, id: InstanceId, key: QueueKey) -> bool {
        if !self.runnable.has_users() {
            return false;
        }
        let user = self.instances[&id].share.user();
        let is_held = self.runnable.room(user, self.needs[key.1].weight(1)) == 0;
        if is_held {
            self.runnable.hold_back(user);
        }
        is_held
    }

    /// The journal says whose an instance is, which may have expired since.
    pub(super) fn recover_owned(&mut self, id: InstanceId, user: UserId) {
        if self.instances.contains(&id) || self.instances.expired_at(id).is_some() {
            self.own(id, user);
        }
    }

    /// Tasks of a user that were held back may have room now.
    pub(super) fn reopen(&mut self, user: UserId) {
        let ids: Vec<InstanceId> = self.runnable.ids_of(user).collect();
        ids.into_iter().for_each(|id| self.look_again(id));
        self.unplaced = true;
    }

    /// Whose instances are is known of those that are there or were.
    pub(super) fn check_users(&self) -> Result<(), CheckError> {
        for (id, user) in &self.users.owners {
            let is_known = self.instances.contains(id) || self.instances.expired_at(*id).is_some();
            ensure!(is_known, "instance {id} is gone, and still a user's");
            let is_listed = self.users.instances.get(user).is_some_and(|all| all.contains(id));
            ensure!(is_listed, "instance {id} is not among those of its user");
        }
        for instance in self.instances.values() {
            let user = self.users.owner_of(instance.id);
            ensure!(instance.share.user() == user, "instance {} has another user", instance.id);
        }
        self.runnable.check(self.instances.values())
    }
}

/// Slots as what tasks weigh.
fn milli(slots: u64) -> u128 {
    u128::from(slots) * 1000
}

fn open_tasks(instance: &Instance) -> u64 {
    let counts = instance.counts();
    counts.total.saturating_sub(counts.ended())
}

fn kept_bytes(instance: &Instance) -> u64 {
    let results = instance.results.bytes() + instance.results.stored_bytes();
    results + instance.queued_bytes
}
