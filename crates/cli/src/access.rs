//! Finding the dispatcher: access files.

use crate::exit::Exit;
use clap::Args;
use falkon_core::task::InstanceId;
use falkon_net::client::{Client, ClientError, Deliveries};
use falkon_net::secure::{ACCESS_FILE_BYTES_MAX, AccessError, AccessFile, Places, Role};
use std::io::Read;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Which dispatcher.
#[derive(Args, Debug, Clone, Default)]
pub struct AccessArgs {
    /// The dispatcher's access file, or - for standard input [default:
    /// $FALKON_ACCESS, else the one of a dispatcher started without --dir]
    #[arg(long, value_name = "FILE")]
    pub(crate) access: Option<PathBuf>,
}

/// The places where access files are looked for, from the environment.
pub(crate) fn places() -> Places {
    Places {
        falkon_access: std::env::var_os("FALKON_ACCESS"),
        xdg_state_home: std::env::var_os("XDG_STATE_HOME"),
        home: std::env::var_os("HOME"),
    }
}

impl AccessArgs {
    /// Reads the access file.
    pub fn load(&self) -> Result<AccessFile, AccessError> {
        let path = AccessFile::find(self.access.as_deref(), &places())?;
        if path == Path::new("-") {
            let mut bytes = Zeroizing::new(Vec::new());
            let limit = ACCESS_FILE_BYTES_MAX as u64;
            // An unreadable rest is missing, and then the text is no access
            // file.
            let _ = std::io::stdin().take(limit).read_to_end(&mut bytes);
            return AccessFile::parse(&bytes, Path::new("standard input"));
        }
        AccessFile::load(&path)
    }

    /// Reads the access file, or says why that fails.
    pub(crate) fn load_or_exit(&self) -> Result<AccessFile, Exit> {
        self.load().map_err(Exit::usage)
    }
}

/// The role in which to do something with `instance` (or with all): the most
/// specific that the file has a secret for.
pub(crate) fn role_for(access: &AccessFile, instance: Option<InstanceId>) -> Role {
    let roles: Vec<Role> = access.roles().collect();
    let own = instance.map(|id| Role::Instance(id.0)).filter(|role| roles.contains(role));
    let user_role = || roles.iter().copied().find(|role| matches!(role, Role::User(_)));
    let instance_role = || roles.iter().copied().find(|role| matches!(role, Role::Instance(_)));
    own.or_else(|| roles.contains(&Role::Owner).then_some(Role::Owner))
        .or_else(|| roles.contains(&Role::Client).then_some(Role::Client))
        .or_else(|| roles.contains(&Role::Observer).then_some(Role::Observer))
        .or_else(user_role)
        .or_else(instance_role)
        .unwrap_or(Role::Client)
}

/// The instance that a file opens, if it opens one and nothing else.
pub(crate) fn only_instance(access: &AccessFile) -> Option<InstanceId> {
    let mut roles = access.roles();
    match (roles.next(), roles.next()) {
        (Some(Role::Instance(id)), None) => Some(InstanceId(id)),
        _ => None,
    }
}

/// Connects in the role that fits.
pub async fn connect(
    access: &AccessFile,
    instance: Option<InstanceId>,
) -> Result<(Client, Deliveries), ClientError> {
    Client::connect(access, role_for(access, instance)).await
}
