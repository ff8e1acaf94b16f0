//! For whom handshakes are open that not every dispatcher knows: holders of an instance's secret,
//! and users.

use falkon_core::task::{InstanceId, UserId};
use falkon_net::secure::Role;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The instances whose own secrets open them, and the users. Clones are the same doors.
#[derive(Debug, Clone, Default)]
pub(super) struct Doors(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    instances: HashSet<u64>,
    users: HashSet<u64>,
}

impl Doors {
    pub(super) fn new(instances: HashSet<u64>, users: HashSet<u64>) -> Doors {
        Doors(Arc::new(Mutex::new(Open { instances, users })))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the holder of a role's secret may come in.
    pub(super) fn let_in(&self, role: Role) -> bool {
        match role {
            Role::Instance(id) => self.open().instances.contains(&id),
            Role::User(id) => self.open().users.contains(&id),
            Role::Owner | Role::Client | Role::Executor | Role::Observer => true,
        }
    }

    pub(super) fn open_instance(&self, id: InstanceId) {
        self.open().instances.insert(id.0);
    }

    pub(super) fn shut_instance(&self, id: InstanceId) {
        self.open().instances.remove(&id.0);
    }

    pub(super) fn open_user(&self, user: UserId) {
        self.open().users.insert(user.0);
    }

    /// Neither the user's secret opens anything from now on, nor those of the user's instances.
    pub(super) fn shut_user(&self, user: UserId, instances: impl Iterator<Item = InstanceId>) {
        let mut open = self.open();
        open.users.remove(&user.0);
        for id in instances {
            open.instances.remove(&id.0);
        }
    }
}
