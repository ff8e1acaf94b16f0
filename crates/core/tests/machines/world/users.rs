//! Users: some clients speak for one, and none has more in flight than it may.

use super::World;
use super::links::{Peer, Up};
use crate::rng::Rng;
use crate::workload::Plan;
use falkon_core::dispatch::{Action, ConnectionId, Event, UserLimits};
use falkon_core::task::{InstanceId, UserId};

/// The users, and whose client each is.
#[derive(Debug, Default)]
pub(super) struct Users {
    limits: Vec<(UserId, UserLimits)>,
    of_client: Vec<UserId>,
    /// Changes of what users may have, beside the least quota of slots that every task fits.
    changes: Option<(Rng, u64)>,
}

impl Users {
    /// In some worlds there are users, each with a share and a quota that every task fits.
    pub(super) fn random(seed: u64, plans: &[Plan]) -> Users {
        let mut rng = Rng::new(seed ^ 0x75e5);
        if rng.percent(70) {
            return Users::default();
        }
        let submissions = plans.iter().flat_map(|plan| &plan.submissions);
        let classes = submissions.flat_map(|(_, submission)| &submission.classes);
        let weight = |cpus_milli: u32, nodes: u32| u64::from(cpus_milli) * u64::from(nodes.max(1));
        let most = classes.map(|class| weight(class.resources.cpus_milli, class.nodes)).max();
        let most = most.unwrap_or(0).div_ceil(1000).max(1);
        let count = 1 + rng.below(3);
        let limits = (1..=count).map(|number| {
            let share = 1 + rng.below(4) as u32;
            let slots_max = rng.percent(70).then(|| most + rng.below(4));
            (UserId(number), UserLimits { share, slots_max, ..UserLimits::default() })
        });
        let limits = limits.collect();
        // 0 is the owner.
        let of_client = plans.iter().map(|_| UserId(rng.below(count + 1))).collect();
        Users { limits, of_client, changes: Some((rng, most)) }
    }
}

impl World {
    /// A dispatcher has started: it is told who its users are.
    pub(super) fn begin_users(&mut self) {
        for (user, limits) in self.users.limits.clone() {
            self.dispatcher.handle(self.now, Event::UserSet { user, limits });
        }
    }

    /// The owner changes what a user may have.
    pub(super) fn change_users(&mut self) {
        let Users { limits, changes, .. } = &mut self.users;
        let Some((rng, most)) = changes.as_mut().filter(|_| !limits.is_empty()) else { return };
        if rng.percent(70) {
            return;
        }
        let at = rng.below(limits.len() as u64) as usize;
        let (user, own) = &mut limits[at];
        own.share = 1 + rng.below(4) as u32;
        own.slots_max = rng.percent(70).then(|| *most + rng.below(4));
        let event = Event::UserSet { user: *user, limits: *own };
        self.note(|| format!("{event:?}"));
        self.dispatcher.handle(self.now, event);
        self.drain();
    }

    /// A client has connected: it speaks for its user.
    pub(super) fn introduce(&mut self, id: u64, peer: Peer) {
        let Peer::Client(index) = peer else { return };
        if let Some(user) = self.users.of_client.get(index).filter(|user| **user != UserId::OWNER) {
            let event = Event::SpeaksFor { connection: ConnectionId(id), user: *user };
            self.send_up(id, Up::Event(Box::new(event)));
        }
    }

    /// Nothing is sent for a user who has more in flight than is allowed then. What executors
    /// bring back may be more.
    pub(super) fn check_quotas(&self, messages: &[Action]) {
        if self.users.limits.is_empty() {
            return;
        }
        let orders = messages.iter().filter_map(|action| match action {
            Action::Order { order, .. } => Some(order),
            _ => None,
        });
        let assigned = orders.flat_map(|order| order.assign.iter().map(|one| one.instance));
        for instance in assigned.collect::<std::collections::BTreeSet<InstanceId>>() {
            let user = self.dispatcher.user_of(instance);
            let limits = self.users.limits.iter().find(|(other, _)| *other == user);
            let most = limits.and_then(|(_, limits)| limits.slots_max).unwrap_or(u64::MAX / 1000);
            let has = self.dispatcher.use_of(user).slots_milli;
            assert!(has <= most * 1000, "{user:?} has {has} of {most} slots in flight");
        }
    }
}
