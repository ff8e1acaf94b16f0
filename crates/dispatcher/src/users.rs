//! The users of a dispatcher: who they are, in a file of its directory, and what its owner asks
//! about them.
//!
//! The file has no secrets: a user's secret follows from the dispatcher's key and the user's
//! number, which is drawn at random. A user who was removed stays in the file as long as there
//! are instances of the user, so that a restart does with these what the removal said.
//!
//! A change is on disk before anything else happens. A thread writes it, and the changes that
//! come meanwhile wait for it ([`asks`]).

mod asks;
mod file;

use falkon_core::dispatch::UserLimits;
use falkon_core::limits::USER_INSTANCES_MAX;
use falkon_core::task::UserId;
use falkon_net::secure::{FileError, Level, Role};
use falkon_wire::message::{UserChange, UserError};
use file::{All, NAME_BYTES_MAX, Revoked, USERS_MAX, User, Writer};
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

pub(super) use asks::Asks;
pub use file::{UsersError, check_users};

/// The largest share.
const SHARE_MAX: u32 = 1_000_000;

/// Where a dispatcher keeps who its users are, and what was done by whom.
#[derive(Debug, Clone)]
pub struct ControlOptions {
    /// The dispatcher's directory.
    pub dir: PathBuf,
    /// How its connections are protected.
    pub level: Level,
}

/// The users.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// Writes the file; none for a dispatcher that has no directory.
    writer: Option<Writer>,
    /// Connections are not protected.
    is_open: bool,
    /// In the order of their names.
    all: All,
    names: BTreeMap<UserId, String>,
}

/// What the users are to be once it is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Draft {
    all: All,
    /// Users who were removed, and of whom nothing is left: they are not in it any more.
    forgotten: Vec<UserId>,
    change: Change,
}

/// What happens when a draft is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Added(UserId),
    Set(UserId),
    Revoked(UserId, Revoked),
}

impl Users {
    /// Reads who the users are.
    pub(super) fn load(options: Option<&ControlOptions>) -> Result<Users, UsersError> {
        let Some((all, writer)) = file::open(options)? else { return Ok(Users::default()) };
        let is_open = options.is_some_and(|options| options.level == Level::None);
        let mut users = Users { writer: Some(writer), is_open, ..Users::default() };
        users.take(all);
        Ok(users)
    }

    fn take(&mut self, all: All) {
        self.names = all.values().map(|user| (user.id(), user.name.clone())).collect();
        self.all = all;
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

    /// Whether the last draft is on disk; waits for ever if none is being written.
    pub(super) async fn written(&mut self) -> Result<(), FileError> {
        match &mut self.writer {
            Some(writer) => writer.written().await,
            None => std::future::pending().await,
        }
    }

    /// A user who may connect.
    fn live(&self, name: &str) -> Result<&User, UserError> {
        if !is_name(name) {
            return Err(UserError::Name { bytes_max: NAME_BYTES_MAX as u64 });
        }
        let found = self.all.get(name).filter(|user| user.revoked.is_none());
        found.ok_or_else(|| UserError::Unknown(name.to_owned()))
    }

    /// A draft without the users who were removed and of whom nothing is left.
    fn draft(&self, change: Change, has_instances: impl Fn(UserId) -> bool) -> Draft {
        let is_over = |user: &User| user.revoked.is_some() && !has_instances(user.id());
        let (over, all): (All, All) =
            self.all.clone().into_iter().partition(|(_, user)| is_over(user));
        Draft { all, forgotten: over.values().map(User::id).collect(), change }
    }

    /// Adds a user, whose number is drawn.
    fn add(
        &self,
        name: &str,
        limits: UserLimits,
        sees_all: bool,
        has_instances: impl Fn(UserId) -> bool,
    ) -> Result<Draft, UserError> {
        if self.writer.is_none() {
            return Err(UserError::NoUsers);
        }
        if self.is_open {
            return Err(UserError::Unprotected);
        }
        if !is_name(name) {
            return Err(UserError::Name { bytes_max: NAME_BYTES_MAX as u64 });
        }
        let id = draw().map_err(|error| UserError::File(error.to_string()))?;
        let mut draft = self.draft(Change::Added(id), has_instances);
        match draft.all.get(name) {
            Some(user) if user.revoked.is_some() => {
                return Err(UserError::Leaving(name.to_owned()));
            }
            Some(_) => return Err(UserError::Taken(name.to_owned())),
            None if name == Role::Owner.to_string() => {
                return Err(UserError::Taken(name.to_owned()));
            }
            None => {}
        }
        check_limits(&limits)?;
        if draft.all.len() >= USERS_MAX {
            return Err(UserError::TooMany { users_max: USERS_MAX as u64 });
        }
        let user = User::new(name.to_owned(), id, limits, sees_all);
        draft.all.insert(user.name.clone(), user);
        Ok(draft)
    }

    /// Changes what a user may have.
    fn set(
        &self,
        name: &str,
        change: &UserChange,
        has_instances: impl Fn(UserId) -> bool,
    ) -> Result<Draft, UserError> {
        let user = self.live(name)?;
        let limits = change.applied(user.limits());
        check_limits(&limits)?;
        let sees_all = change.sees_all.unwrap_or(user.sees_all);
        let user = User::new(user.name.clone(), user.id(), limits, sees_all);
        let mut draft = self.draft(Change::Set(user.id()), has_instances);
        draft.all.insert(user.name.clone(), user);
        Ok(draft)
    }

    /// Removes a user, who stays in the draft: an instance of the user may be created before it
    /// is on disk.
    fn revoke(
        &self,
        name: &str,
        keeps: bool,
        has_instances: impl Fn(UserId) -> bool,
    ) -> Result<Draft, UserError> {
        let revoked = if keeps { Revoked::Kept } else { Revoked::Cancelled };
        let user = User { revoked: Some(revoked), ..self.live(name)?.clone() };
        let mut draft = self.draft(Change::Revoked(user.id(), revoked), has_instances);
        draft.all.insert(user.name.clone(), user);
        Ok(draft)
    }

    /// Begins to write a draft.
    fn write(&self, draft: &Draft) -> Result<(), UserError> {
        let Some(writer) = &self.writer else { return Err(UserError::NoUsers) };
        writer.write(file::text(&draft.all).map_err(|error| UserError::File(error.to_string()))?);
        Ok(())
    }
}

fn check_limits(limits: &UserLimits) -> Result<(), UserError> {
    let UserLimits { share, tasks_max, slots_max, bytes_max, instances_max } = *limits;
    let is_any_zero = [tasks_max, slots_max, bytes_max].contains(&Some(0));
    if !(1..=SHARE_MAX).contains(&share) || is_any_zero {
        return Err(UserError::Limits { share_max: SHARE_MAX });
    }
    if instances_max.is_some_and(|most| !(1..=USER_INSTANCES_MAX).contains(&most)) {
        return Err(UserError::Instances { instances_max: USER_INSTANCES_MAX });
    }
    Ok(())
}

/// A number that no user had before.
fn draw() -> Result<UserId, getrandom::Error> {
    loop {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)?;
        let number = UserId(u64::from_le_bytes(bytes));
        if number != UserId::OWNER {
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

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_wire::message::QuotaChange;
    use std::path::Path;

    fn options(dir: &Path, level: Level) -> ControlOptions {
        ControlOptions { dir: dir.to_owned(), level }
    }

    /// Nobody has instances.
    fn none(_: UserId) -> bool {
        false
    }

    /// Writes a draft and takes it in.
    async fn commit(users: &mut Users, draft: Result<Draft, UserError>) -> UserId {
        let draft = draft.unwrap();
        users.write(&draft).unwrap();
        users.written().await.unwrap();
        let (Change::Added(id) | Change::Set(id) | Change::Revoked(id, _)) = draft.change;
        users.take(draft.all);
        id
    }

    #[tokio::test]
    async fn users_are_known_again_and_a_name_that_is_given_again_has_another_number() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), Level::Authenticate);
        let mut users = Users::load(Some(&options)).unwrap();
        let limits = UserLimits { share: 3, tasks_max: Some(9), ..UserLimits::default() };
        let draft = users.add("alice", limits, true, none);
        let first = commit(&mut users, draft).await;
        let refused = users.add("alice", limits, false, none);
        assert_eq!(refused, Err(UserError::Taken("alice".into())));
        let again = Users::load(Some(&options)).unwrap();
        assert_eq!(again.all, users.all);
        assert_eq!((again.open(), again.name(first)), (HashSet::from([first.0]), "alice".into()));
        // One who has instances stays until these are gone.
        let draft = users.revoke("alice", false, none);
        commit(&mut users, draft).await;
        let refused = users.add("alice", limits, false, |id| id == first);
        assert_eq!(refused, Err(UserError::Leaving("alice".into())));
        let again = Users::load(Some(&options)).unwrap();
        assert!(again.open().is_empty() && again.is_revoked(first));
        let draft = users.add("alice", limits, true, none);
        assert_eq!(draft.as_ref().unwrap().forgotten, [first]);
        let second = commit(&mut users, draft).await;
        assert_ne!(first, second);
        assert!(!users.is_revoked(first) && users.name(first) != "alice");
    }

    #[tokio::test]
    async fn what_is_changed_of_a_user_is_on_disk_and_the_rest_stays() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), Level::Encrypt);
        let mut users = Users::load(Some(&options)).unwrap();
        let (tasks_max, slots_max) = (Some(9), Some(4));
        let limits = UserLimits { share: 3, tasks_max, slots_max, ..UserLimits::default() };
        let draft = users.add("alice", limits, true, none);
        let id = commit(&mut users, draft).await;
        let change = UserChange {
            share: Some(5),
            slots_max: QuotaChange::Lift,
            instances_max: QuotaChange::Set(7),
            ..UserChange::default()
        };
        let draft = users.set("alice", &change, none);
        assert_eq!(commit(&mut users, draft).await, id);
        let again = Users::load(Some(&options)).unwrap();
        assert_eq!(again.all, users.all);
        let instances_max = Some(7);
        let expected = UserLimits { share: 5, tasks_max, instances_max, ..UserLimits::default() };
        assert_eq!(again.all["alice"].limits(), expected);
        assert!(again.sees_all(id));
        assert_eq!(users.set("bob", &change, none), Err(UserError::Unknown("bob".into())));
        for instances_max in [0, USER_INSTANCES_MAX + 1].map(QuotaChange::Set) {
            let change = UserChange { instances_max, ..UserChange::default() };
            let refused = users.set("alice", &change, none);
            assert!(matches!(refused, Err(UserError::Instances { .. })), "{refused:?}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_a_user_is_refused_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let limits = UserLimits::default();
        let open = Users::load(Some(&options(dir.path(), Level::None))).unwrap();
        assert_eq!(open.add("alice", limits, false, none), Err(UserError::Unprotected));
        assert_eq!(Users::default().add("alice", limits, false, none), Err(UserError::NoUsers));
        let users = Users::load(Some(&options(dir.path(), Level::Encrypt))).unwrap();
        for name in ["", ".", "../x", "a/b", "a b", "-a", "ä", &"a".repeat(NAME_BYTES_MAX + 1)] {
            let refused = users.add(name, limits, false, none);
            assert!(matches!(refused, Err(UserError::Name { .. })), "{name:?}");
        }
        for wrong in [
            UserLimits { share: 0, ..limits },
            UserLimits { share: SHARE_MAX + 1, ..limits },
            UserLimits { slots_max: Some(0), ..limits },
        ] {
            let refused = users.add("alice", wrong, false, none);
            assert!(matches!(refused, Err(UserError::Limits { .. })), "{wrong:?}");
        }
        assert_eq!(users.revoke("bob", false, none), Err(UserError::Unknown("bob".into())));
        assert!(users.all.is_empty());
    }

    #[tokio::test]
    async fn as_many_users_as_there_may_be_are_in_a_file_that_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), Level::Encrypt);
        let mut users = Users::load(Some(&options)).unwrap();
        let most = Some(u64::MAX);
        let limits = UserLimits {
            share: SHARE_MAX,
            tasks_max: most,
            slots_max: most,
            bytes_max: most,
            instances_max: Some(USER_INSTANCES_MAX),
        };
        for number in 0..USERS_MAX {
            let name = format!("{number:0>width$}", width = NAME_BYTES_MAX);
            let draft = users.add(&name, limits, true, none).unwrap();
            users.take(draft.all);
        }
        let refused = users.add("one-more", limits, true, none);
        assert!(matches!(refused, Err(UserError::TooMany { .. })), "{refused:?}");
        let last = users.all.keys().next().unwrap().clone();
        let draft = users.set(&last, &UserChange::default(), none);
        commit(&mut users, draft).await;
        assert_eq!(Users::load(Some(&options)).unwrap().all, users.all);
    }

    #[tokio::test]
    async fn a_draft_that_cannot_be_written_leaves_the_file_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("d");
        let options = options(&inner, Level::Encrypt);
        let mut users = Users::load(Some(&options)).unwrap();
        let draft = users.add("alice", UserLimits::default(), false, none);
        commit(&mut users, draft).await;
        let before = std::fs::read(inner.join("users.json")).unwrap();
        // No directory has this name any more, and a file that does is none.
        let aside = dir.path().join("aside");
        std::fs::rename(&inner, &aside).unwrap();
        std::fs::write(&inner, "").unwrap();
        let draft = users.add("bob", UserLimits::default(), false, none).unwrap();
        users.write(&draft).unwrap();
        let error = users.written().await.unwrap_err();
        assert!(error.to_string().contains("cannot write"), "{error}");
        assert_eq!(std::fs::read(aside.join("users.json")).unwrap(), before);
    }
}
