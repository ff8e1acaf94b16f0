//! The users of a dispatcher: who they are, in a file of its directory, and what its owner asks
//! about them.
//!
//! The file has no secrets: a user's secret follows from the dispatcher's key and the user's
//! number, which is drawn at random. A user who was removed stays in the file as long as there
//! are instances of the user, so that a restart does with these what the removal said.

use super::Driver;
use falkon_core::dispatch::{ConnectionId, Event, UserLimits, UserUse};
use falkon_core::task::{InstanceId, Time, UserId};
use falkon_net::secure::{
    ACCESS_FILE_BYTES_MAX, FileError, Identity, Level, Role, read_private, write_private,
};
use falkon_wire::hidden::Hidden;
use falkon_wire::message::{Refusal, ToClient, UserAsk, UserError, UserStatus};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// The file, beside the access files.
const FILE: &str = "users.json";
/// The version of the file that this release reads and writes.
const FORMAT: u32 = 1;
/// Users of a dispatcher, those included that were removed and have instances.
const USERS_MAX: usize = 200;
/// The longest name.
const NAME_BYTES_MAX: usize = 64;
/// A user in the file, about.
const USER_BYTES_MAX: usize = NAME_BYTES_MAX + 250;
/// The largest share.
const SHARE_MAX: u32 = 1_000_000;

const _: () = assert!(USERS_MAX * USER_BYTES_MAX < ACCESS_FILE_BYTES_MAX, "the file can be read");

/// Where a dispatcher keeps who its users are, and what was done by whom.
#[derive(Debug, Clone)]
pub struct ControlOptions {
    /// The dispatcher's directory.
    pub dir: PathBuf,
    /// How its connections are protected.
    pub level: Level,
}

/// Why it is not known who the users are.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// The file cannot be read.
    #[error(transparent)]
    File(FileError),
    /// The file is no such file.
    #[error(
        "{path} is damaged: {source}; restore it from a copy, or move it away (users then have to \
         be added again)"
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The error in the file.
        source: serde_json::Error,
    },
    /// The file's format has another version.
    #[error(
        "{path} has format {format} and this falkon reads format {FORMAT}: use the release that \
         wrote it"
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The version that it says.
        format: u32,
    },
}

/// What became of a user's tasks with the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Revoked {
    Cancelled,
    Kept,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct User {
    name: String,
    number: u64,
    share: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tasks_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slots_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes_max: Option<u64>,
    #[serde(default)]
    sees_all: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revoked: Option<Revoked>,
}

impl User {
    fn id(&self) -> UserId {
        UserId(self.number)
    }

    fn limits(&self) -> UserLimits {
        UserLimits {
            share: self.share,
            tasks_max: self.tasks_max,
            slots_max: self.slots_max,
            bytes_max: self.bytes_max,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    users: Vec<User>,
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// The users.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// The file; none for a dispatcher that has no directory.
    path: Option<PathBuf>,
    /// Connections are not protected.
    is_open: bool,
    /// In the order of their names.
    all: BTreeMap<String, User>,
    names: BTreeMap<UserId, String>,
}

impl Users {
    /// Reads who the users are.
    pub(super) fn load(options: Option<&ControlOptions>) -> Result<Users, UsersError> {
        let Some(ControlOptions { dir, level }) = options else { return Ok(Users::default()) };
        let path = dir.join(FILE);
        let all = match read_private(&path) {
            Err(FileError::Missing { .. }) => Vec::new(),
            Err(error) => return Err(UsersError::File(error)),
            Ok(bytes) => parse(&bytes, &path)?,
        };
        let all: BTreeMap<_, _> = all.into_iter().map(|user| (user.name.clone(), user)).collect();
        let names = all.values().map(|user| (user.id(), user.name.clone())).collect();
        Ok(Users { path: Some(path), is_open: *level == Level::None, all, names })
    }

    /// The users that may connect.
    pub(super) fn open(&self) -> HashSet<u64> {
        let live = self.all.values().filter(|user| user.revoked.is_none() && !self.is_open);
        live.map(|user| user.number).collect()
    }

    fn of(&self, id: UserId) -> Option<&User> {
        self.all.get(self.names.get(&id)?)
    }

    /// The name of a user; none of the owner.
    pub(super) fn name(&self, id: UserId) -> String {
        match self.names.get(&id) {
            Some(name) => name.clone(),
            None if id == UserId::OWNER => String::new(),
            // Somebody has removed the file.
            None => Role::User(id.0).to_string(),
        }
    }

    /// Whether a user may see how all are.
    pub(super) fn sees_all(&self, id: UserId) -> bool {
        self.of(id).is_some_and(|user| user.sees_all)
    }

    /// Whether a user was removed.
    pub(super) fn is_revoked(&self, id: UserId) -> bool {
        self.of(id).is_some_and(|user| user.revoked.is_some())
    }

    /// A user who may connect.
    fn live(&self, name: &str) -> Result<&User, UserError> {
        if !is_name(name) {
            return Err(UserError::Name { bytes_max: NAME_BYTES_MAX as u64 });
        }
        let found = self.all.get(name).filter(|user| user.revoked.is_none());
        found.ok_or_else(|| UserError::Unknown(name.to_owned()))
    }

    /// Takes the change in if it can be written to the file.
    fn change(&mut self, name: &str, user: Option<User>) -> Result<(), UserError> {
        let Some(path) = &self.path else { return Err(UserError::NoUsers) };
        let mut all = self.all.clone();
        let before = match &user {
            Some(user) => all.insert(name.to_owned(), user.clone()),
            None => all.remove(name),
        };
        let stored = Stored { format: FORMAT, users: all.values().cloned().collect() };
        let text = serde_json::to_vec(&stored).map_err(|error| UserError::File(error.to_string()));
        write_private(path, &text?).map_err(|error| UserError::File(error.to_string()))?;
        if let Some(before) = before {
            self.names.remove(&before.id());
        }
        if let Some(user) = user {
            self.names.insert(user.id(), user.name);
        }
        self.all = all;
        Ok(())
    }

    /// Adds a user, whose number is drawn.
    fn add(&mut self, name: &str, limits: UserLimits, sees_all: bool) -> Result<UserId, UserError> {
        if self.path.is_none() {
            return Err(UserError::NoUsers);
        }
        if self.is_open {
            return Err(UserError::Unprotected);
        }
        if !is_name(name) {
            return Err(UserError::Name { bytes_max: NAME_BYTES_MAX as u64 });
        }
        match self.all.get(name) {
            Some(user) if user.revoked.is_some() => {
                return Err(UserError::Leaving(name.to_owned()));
            }
            Some(_) => return Err(UserError::Taken(name.to_owned())),
            None if name == Role::Owner.to_string() => {
                return Err(UserError::Taken(name.to_owned()));
            }
            None => {}
        }
        let UserLimits { share, tasks_max, slots_max, bytes_max } = limits;
        let is_any_zero = [tasks_max, slots_max, bytes_max].contains(&Some(0));
        if !(1..=SHARE_MAX).contains(&share) || is_any_zero {
            return Err(UserError::Limits { share_max: SHARE_MAX });
        }
        if self.all.len() >= USERS_MAX {
            return Err(UserError::TooMany { users_max: USERS_MAX as u64 });
        }
        let number = draw().map_err(|error| UserError::File(error.to_string()))?;
        let name = name.to_owned();
        let revoked = None;
        let user = User {
            name: name.clone(),
            number,
            share,
            tasks_max,
            slots_max,
            bytes_max,
            sees_all,
            revoked,
        };
        self.change(&name, Some(user))?;
        Ok(UserId(number))
    }

    /// Removes a user. Returns who that was.
    fn revoke(&mut self, name: &str, keeps: bool, has_instances: bool) -> Result<(), UserError> {
        let revoked = Some(if keeps { Revoked::Kept } else { Revoked::Cancelled });
        let user = User { revoked, ..self.live(name)?.clone() };
        self.change(name, has_instances.then_some(user))
    }
}

/// A number that no user had before.
fn draw() -> Result<u64, getrandom::Error> {
    loop {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)?;
        let number = u64::from_le_bytes(bytes);
        if UserId(number) != UserId::OWNER {
            return Ok(number);
        }
    }
}

/// Whether a text can be a user's name, which becomes part of a file's name.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric();
    let mut bytes = text.bytes();
    text.len() <= NAME_BYTES_MAX
        && bytes.next().is_some_and(is_plain)
        && bytes.all(|byte| is_plain(byte) || b"._-".contains(&byte))
}

fn parse(bytes: &[u8], path: &Path) -> Result<Vec<User>, UsersError> {
    let malformed = |source| UsersError::Malformed { path: path.to_owned(), source };
    let Format { format } = serde_json::from_slice(bytes).map_err(malformed)?;
    if format != FORMAT {
        return Err(UsersError::Format { path: path.to_owned(), format });
    }
    let Stored { users, .. } = serde_json::from_slice(bytes).map_err(malformed)?;
    Ok(users)
}

impl Driver {
    /// Says who the users are, and does what their removal said and a crash has prevented.
    pub(super) fn begin_users(&mut self, now: Time) {
        let users = self.users.all.values().cloned();
        for user in users.collect::<Vec<User>>() {
            let id = user.id();
            self.core.handle(now, Event::UserSet { user: id, limits: user.limits() });
            if let Some(revoked) = user.revoked {
                let keeps = revoked == Revoked::Kept;
                self.core.handle(now, Event::UserRevoked { user: id, keeps });
            }
        }
        self.forget_leaving(now);
    }

    /// Forgets users who were removed, and of whom nothing is left. A failure to write that
    /// down does no harm.
    fn forget_leaving(&mut self, now: Time) {
        let leaving = self.users.all.values().filter(|user| {
            user.revoked.is_some() && self.core.instances_of(user.id()).next().is_none()
        });
        for user in leaving.cloned().collect::<Vec<User>>() {
            if self.users.change(&user.name, None).is_ok() {
                self.core.handle(now, Event::UserForgotten { user: user.id() });
            }
        }
    }

    /// Whether a peer's user was removed while the peer connected.
    pub(super) fn is_shut_out(&self, role: Role) -> bool {
        match role {
            Role::User(number) => !self.doors.let_in(Role::User(number)),
            Role::Instance(id) => self.users.is_revoked(self.core.user_of(InstanceId(id))),
            Role::Owner | Role::Client | Role::Executor | Role::Observer => false,
        }
    }

    /// Answers what an owner asks about users.
    pub(super) fn ask_about_users(
        &mut self,
        now: Time,
        connection: ConnectionId,
        request: u64,
        ask: UserAsk,
    ) {
        let refused = |error| ToClient::Refused { request, reason: Refusal::User(error) };
        let answer = match ask {
            UserAsk::List => {
                let users = self.user_statuses();
                self.answer_question(connection, request, ToClient::Users { request, users });
                return;
            }
            UserAsk::Add { name, limits, sees_all } => {
                self.forget_leaving(now);
                match self.users.add(&name, limits, sees_all) {
                    Ok(user) => {
                        self.core.handle(now, Event::UserSet { user, limits });
                        self.doors.open_user(user);
                        (self.log)(&format!("user {name} was added"));
                        self.user_access(request, user)
                    }
                    Err(error) => refused(error),
                }
            }
            UserAsk::Access { name } => match self.users.live(&name).map(User::id) {
                Ok(user) => self.user_access(request, user),
                Err(error) => refused(error),
            },
            UserAsk::Revoke { name, keeps } => match self.revoke_user(now, &name, keeps) {
                Ok(()) => ToClient::Done { request },
                Err(error) => refused(error),
            },
        };
        self.push(connection, answer);
    }

    fn user_access(&self, request: u64, user: UserId) -> ToClient {
        match self.identity.as_deref().filter(|_| !self.users.is_open) {
            Some(identity) => {
                let secret =
                    Hidden(Identity::secret(identity, Role::User(user.0)).as_bytes().to_vec());
                ToClient::User { request, user, secret }
            }
            None => ToClient::Refused { request, reason: Refusal::User(UserError::Unprotected) },
        }
    }

    /// Removes a user: nothing of the user's is open any more, and connections that are there
    /// end. It is on disk before anything else happens.
    fn revoke_user(&mut self, now: Time, name: &str, keeps: bool) -> Result<(), UserError> {
        let user = self.users.live(name)?.id();
        let instances: Vec<InstanceId> = self.core.instances_of(user).collect();
        self.users.revoke(name, keeps, !instances.is_empty())?;
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
        Ok(())
    }

    fn user_statuses(&self) -> Vec<UserStatus> {
        let mut connections: BTreeMap<u64, u64> = BTreeMap::new();
        for peer in self.peers.values() {
            let user = match peer.role {
                Role::User(number) => number,
                Role::Instance(id) => self.core.user_of(InstanceId(id)).0,
                Role::Owner | Role::Client | Role::Executor | Role::Observer => continue,
            };
            *connections.entry(user).or_default() += 1;
        }
        let status = |user: &User| {
            let has: UserUse = self.core.use_of(user.id());
            UserStatus {
                name: user.name.clone(),
                limits: user.limits(),
                has,
                sees_all: user.sees_all,
                is_revoked: user.revoked.is_some(),
                connections: connections.get(&user.number).copied().unwrap_or(0),
            }
        };
        self.users.all.values().map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dir: &Path, level: Level) -> ControlOptions {
        ControlOptions { dir: dir.to_owned(), level }
    }

    #[test]
    fn users_are_known_again_and_a_name_that_is_given_again_has_another_number() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), Level::Authenticate);
        let mut users = Users::load(Some(&options)).unwrap();
        let limits = UserLimits { share: 3, tasks_max: Some(9), ..UserLimits::default() };
        let first = users.add("alice", limits, true).unwrap();
        assert_eq!(users.add("alice", limits, false), Err(UserError::Taken("alice".into())));
        let again = Users::load(Some(&options)).unwrap();
        assert_eq!(again.all, users.all);
        assert_eq!((again.open(), again.name(first)), (HashSet::from([first.0]), "alice".into()));
        // One who has instances stays until these are gone.
        users.revoke("alice", false, true).unwrap();
        assert_eq!(users.add("alice", limits, false), Err(UserError::Leaving("alice".into())));
        let again = Users::load(Some(&options)).unwrap();
        assert!(again.open().is_empty() && again.is_revoked(first));
        users.change("alice", None).unwrap();
        let second = users.add("alice", limits, true).unwrap();
        assert_ne!(first, second);
        assert!(!users.is_revoked(first) && users.name(first) != "alice");
    }

    #[test]
    fn what_cannot_be_a_user_is_refused_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let limits = UserLimits::default();
        let mut open = Users::load(Some(&options(dir.path(), Level::None))).unwrap();
        assert_eq!(open.add("alice", limits, false), Err(UserError::Unprotected));
        assert_eq!(Users::default().add("alice", limits, false), Err(UserError::NoUsers));
        let mut users = Users::load(Some(&options(dir.path(), Level::Encrypt))).unwrap();
        for name in ["", ".", "../x", "a/b", "a b", "-a", "ä", &"a".repeat(NAME_BYTES_MAX + 1)] {
            let refused = users.add(name, limits, false);
            assert!(matches!(refused, Err(UserError::Name { .. })), "{name:?}");
        }
        for wrong in [
            UserLimits { share: 0, ..limits },
            UserLimits { share: SHARE_MAX + 1, ..limits },
            UserLimits { slots_max: Some(0), ..limits },
        ] {
            let refused = users.add("alice", wrong, false);
            assert!(matches!(refused, Err(UserError::Limits { .. })), "{wrong:?}");
        }
        assert_eq!(users.revoke("bob", false, false), Err(UserError::Unknown("bob".into())));
        assert!(users.all.is_empty());
    }

    #[test]
    fn as_many_users_as_there_may_be_are_in_a_file_that_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), Level::Encrypt);
        let mut users = Users::load(Some(&options)).unwrap();
        let most = Some(u64::MAX);
        let limits =
            UserLimits { share: SHARE_MAX, tasks_max: most, slots_max: most, bytes_max: most };
        for number in 0..USERS_MAX {
            let name = format!("{number:0>width$}", width = NAME_BYTES_MAX);
            users.add(&name, limits, true).unwrap();
        }
        let refused = users.add("one-more", limits, true);
        assert!(matches!(refused, Err(UserError::TooMany { .. })), "{refused:?}");
        assert_eq!(Users::load(Some(&options)).unwrap().all, users.all);
    }
}
