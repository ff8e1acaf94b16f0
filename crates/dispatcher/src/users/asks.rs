//! What an owner asks about users. Changes are made one after another, each when it is on disk.

use super::file::{Revoked, User};
use super::{Change, Draft, Users};
use crate::Driver;
use falkon_core::dispatch::{ConnectionId, Event, UserLimits, UserUse};
use falkon_core::task::{InstanceId, Time, UserId};
use falkon_net::secure::{FileError, Identity, Role};
use falkon_wire::hidden::Hidden;
use falkon_wire::message::{Refusal, ToClient, UserAsk, UserError, UserStatus};
use std::collections::{BTreeMap, VecDeque};

/// Changes that wait for the one that is being written.
const WAITING_CHANGES_MAX: usize = 64;

/// Changes that are not on disk yet.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    /// The one that is being written.
    writing: Option<(Asker, Draft)>,
    waiting: VecDeque<(Asker, UserAsk)>,
}

/// Whom an answer is for.
#[derive(Debug, Clone, Copy)]
struct Asker {
    connection: ConnectionId,
    request: u64,
}

impl Users {
    /// The draft that a question asks for; `None` if it changes nothing.
    fn drafted(
        &self,
        ask: &UserAsk,
        has_instances: impl Fn(UserId) -> bool,
    ) -> Result<Option<Draft>, UserError> {
        match ask {
            UserAsk::Add { name, limits, sees_all } => {
                self.add(name, *limits, *sees_all, has_instances).map(Some)
            }
            UserAsk::Set { name, change } => self.set(name, change, has_instances).map(Some),
            UserAsk::Revoke { name, keeps } => self.revoke(name, *keeps, has_instances).map(Some),
            UserAsk::Access { .. } | UserAsk::List => Ok(None),
        }
    }
}

impl Driver {
    /// Says who the users are, and does what their removal said and a crash has prevented. Those
    /// of whom nothing is left are in the file until it is written again.
    pub(crate) fn begin_users(&mut self, now: Time) {
        let mut all = self.users.all.clone();
        all.retain(|_, user| user.revoked.is_none() || self.has_instances(user.id()));
        for user in all.values() {
            let id = user.id();
            self.core.handle(now, Event::UserSet { user: id, limits: user.limits() });
            if let Some(revoked) = user.revoked {
                let keeps = revoked == Revoked::Kept;
                self.core.handle(now, Event::UserRevoked { user: id, keeps });
            }
        }
        self.users.take(all);
    }

    fn has_instances(&self, user: UserId) -> bool {
        self.core.instances_of(user).next().is_some()
    }

    /// Whether a peer's user was removed while the peer connected.
    pub(crate) fn is_shut_out(&self, role: Role) -> bool {
        match role {
            Role::User(number) => !self.doors.let_in(Role::User(number)),
            Role::Instance(id) => self.users.is_revoked(self.core.user_of(InstanceId(id))),
            Role::Owner | Role::Client | Role::Executor | Role::Observer => false,
        }
    }

    /// Answers what an owner asks about users, or has it wait for the disk.
    pub(crate) fn ask_about_users(&mut self, connection: ConnectionId, request: u64, ask: UserAsk) {
        let asker = Asker { connection, request };
        match ask {
            UserAsk::List => {
                let users = self.user_statuses(|_| true);
                self.answer_question(connection, request, ToClient::Users { request, users });
            }
            UserAsk::Access { name } => {
                let answer = match self.users.live(&name).map(User::id) {
                    Ok(user) => self.user_access(request, user),
                    Err(error) => refused(request, error),
                };
                self.push(connection, answer);
            }
            _ if self.asks.waiting.len() >= WAITING_CHANGES_MAX => {
                self.push(connection, refused(request, UserError::Busy));
            }
            change => {
                self.asks.waiting.push_back((asker, change));
                self.begin_changes();
            }
        }
    }

    /// Begins to write the next change, if none is being written. A change that is refused is
    /// answered at once.
    fn begin_changes(&mut self) {
        while self.asks.writing.is_none() {
            let Some((asker, ask)) = self.asks.waiting.pop_front() else { return };
            let drafted = self.users.drafted(&ask, |user| self.has_instances(user));
            let begun = drafted.and_then(|draft| match draft {
                Some(draft) => self.users.write(&draft).map(|()| Some(draft)),
                None => Ok(None),
            });
            match begun {
                Ok(draft) => self.asks.writing = draft.map(|draft| (asker, draft)),
                Err(error) => self.push(asker.connection, refused(asker.request, error)),
            }
        }
    }

    /// The change that was being written is on disk, or is not and never happens.
    pub(crate) fn users_written(&mut self, now: Time, written: Result<(), FileError>) {
        let Some((Asker { connection, request }, draft)) = self.asks.writing.take() else { return };
        let answer = match written {
            Ok(()) => self.make_change(now, request, draft),
            Err(error) => {
                (self.log)(&format!("users are as they were: {error}"));
                refused(request, UserError::File(error.to_string()))
            }
        };
        self.push(connection, answer);
        self.begin_changes();
    }

    fn make_change(&mut self, now: Time, request: u64, draft: Draft) -> ToClient {
        let Draft { all, forgotten, change } = draft;
        self.users.take(all);
        for user in forgotten {
            self.core.handle(now, Event::UserForgotten { user });
        }
        match change {
            Change::Added(user) => {
                self.set_limits(now, user);
                self.doors.open_user(user);
                (self.log)(&format!("user {} was added", self.users.name(user)));
                self.user_access(request, user)
            }
            Change::Set(user) => {
                self.set_limits(now, user);
                (self.log)(&format!("user {} was changed", self.users.name(user)));
                ToClient::Done { request }
            }
            Change::Revoked(user, revoked) => {
                self.shut_out(now, user, revoked == Revoked::Kept);
                ToClient::Done { request }
            }
        }
    }

    fn set_limits(&mut self, now: Time, user: UserId) {
        if let Some(limits) = self.users.of(user).map(User::limits) {
            self.core.handle(now, Event::UserSet { user, limits });
        }
    }

    fn user_access(&self, request: u64, user: UserId) -> ToClient {
        match self.identity.as_deref().filter(|_| !self.users.is_open) {
            Some(identity) => {
                let secret =
                    Hidden(Identity::secret(identity, Role::User(user.0)).as_bytes().to_vec());
                ToClient::User { request, user, secret }
            }
            None => refused(request, UserError::Unprotected),
        }
    }

    /// A user was removed: nothing of the user's is open any more, and connections that are there
    /// end.
    fn shut_out(&mut self, now: Time, user: UserId, keeps: bool) {
        let name = self.users.name(user);
        let instances: Vec<InstanceId> = self.core.instances_of(user).collect();
        self.doors.shut_user(user, instances.iter().copied());
        let is_users = |role: Role| match role {
            Role::User(number) => number == user.0,
            Role::Instance(id) => instances.contains(&InstanceId(id)),
            Role::Owner | Role::Client | Role::Executor | Role::Observer => false,
        };
        let peers = self.peers.iter().filter(|(_, peer)| is_users(peer.role));
        for connection in peers.map(|(connection, _)| *connection).collect::<Vec<_>>() {
            if let Some(peer) = self.peers.remove(&connection) {
                (self.log)(&format!(
                    "closing the connection to {}: user {name} was revoked",
                    peer.name
                ));
                peer.close();
            }
        }
        self.core.handle(now, Event::UserRevoked { user, keeps });
        if instances.is_empty() {
            self.core.handle(now, Event::UserForgotten { user });
        }
        let tasks = if keeps { "kept" } else { "cancelled" };
        (self.log)(&format!("user {name} was revoked, and the user's tasks are {tasks}"));
    }

    /// How the users are of whom `sees` says so; not those of whom nothing is left.
    pub(crate) fn user_statuses(&self, sees: impl Fn(UserId) -> bool) -> Vec<UserStatus> {
        let mut connections: BTreeMap<u64, u64> = BTreeMap::new();
        if !self.users.all.is_empty() {
            for peer in self.peers.values() {
                let user = match peer.role {
                    Role::User(number) => number,
                    Role::Instance(id) => self.core.user_of(InstanceId(id)).0,
                    Role::Owner | Role::Client | Role::Executor | Role::Observer => continue,
                };
                *connections.entry(user).or_default() += 1;
            }
        }
        let status = |user: &User| {
            let has: UserUse = self.core.use_of(user.id());
            let limits = user.limits();
            UserStatus {
                name: user.name.clone(),
                limits: UserLimits { instances_max: Some(limits.instances_max()), ..limits },
                has,
                sees_all: user.sees_all,
                is_revoked: user.revoked.is_some(),
                connections: connections.get(&user.number).copied().unwrap_or(0),
            }
        };
        let is_there = |user: &&User| user.revoked.is_none() || self.has_instances(user.id());
        let seen = self.users.all.values().filter(|user| sees(user.id()));
        seen.filter(is_there).map(status).collect()
    }
}

fn refused(request: u64, error: UserError) -> ToClient {
    ToClient::Refused { request, reason: Refusal::User(error) }
}
