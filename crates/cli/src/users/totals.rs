//! The users in a status, with the tasks of the instances of each.

use falkon_wire::message::{InstanceStatus, Status, UserStatus};
use std::collections::BTreeMap;

/// What the owner is called among users: no user has this name.
pub(crate) const OWNER: &str = "owner";

/// A user, and the tasks of the user's instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Totals<'a> {
    /// The user's name, or [`OWNER`].
    pub(crate) name: &'a str,
    /// What the user may have and has; `None` of the owner.
    pub(crate) user: Option<&'a UserStatus>,
    /// Instances of the user in the status.
    pub(crate) instances: u64,
    /// Tasks that wait, are ready, or were sent to executors and do not run yet.
    pub(crate) queued: u64,
    /// Tasks that run.
    pub(crate) running: u64,
    /// Tasks that have ended well.
    pub(crate) done: u64,
    /// Tasks that have failed or were cancelled.
    pub(crate) failed: u64,
}

impl<'a> Totals<'a> {
    fn new(name: &'a str, user: Option<&'a UserStatus>) -> Totals<'a> {
        Totals { name, user, instances: 0, queued: 0, running: 0, done: 0, failed: 0 }
    }

    fn add(&mut self, instance: &InstanceStatus) {
        let counts = &instance.counts;
        let sent =
            counts.dispatched.saturating_sub(instance.running.saturating_add(instance.staged));
        self.instances += 1;
        self.queued += counts.waiting + counts.ready + sent;
        self.running += instance.running;
        self.done += counts.done;
        self.failed += counts.failed + counts.cancelled;
    }
}

/// The users of a status in the order of their names, and the owner, if there are users; nobody
/// else.
pub(crate) fn totals(status: &Status) -> Vec<Totals<'_>> {
    if status.users.is_empty() {
        return Vec::new();
    }
    let users = status.users.iter().map(|user| (&*user.name, Totals::new(&user.name, Some(user))));
    let mut all: BTreeMap<&str, Totals<'_>> = users.collect();
    for instance in &status.instances {
        let name = if instance.user.is_empty() { OWNER } else { &*instance.user };
        match all.get_mut(name) {
            Some(totals) => totals.add(instance),
            // The owner, or a user whom the status does not have, as it came in several answers.
            None => all.entry(name).or_insert_with(|| Totals::new(name, None)).add(instance),
        }
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_core::result::Counts;

    #[test]
    fn tasks_count_for_the_users_whose_instances_are() {
        let instance = |user: &str, done, staged| InstanceStatus {
            user: user.to_owned(),
            counts: Counts {
                waiting: 1,
                ready: 2,
                dispatched: 7,
                done,
                failed: 3,
                cancelled: 4,
                ..Counts::default()
            },
            running: 2,
            staged,
            ..InstanceStatus::default()
        };
        let user = |name: &str| UserStatus { name: name.to_owned(), ..UserStatus::default() };
        let instances = vec![instance("bob", 10, 0), instance("", 20, 0), instance("bob", 30, 1)];
        let without = Status { instances: instances.clone(), ..Status::default() };
        assert_eq!(totals(&without), []);
        let users = vec![user("alice"), user("bob")];
        let status = Status { users, ..without };
        let all = totals(&status);
        let told: Vec<_> = all.iter().map(|one| (one.name, one.instances, one.done)).collect();
        assert_eq!(told, [("alice", 0, 0), ("bob", 2, 40), (OWNER, 1, 20)]);
        let bob = &all[1];
        assert_eq!((bob.queued, bob.running, bob.failed), (3 + 5 + 3 + 4, 4, 14));
        assert_eq!(bob.user, Some(&status.users[1]));
    }
}
