//! The file that says who the users are: read when a dispatcher starts, and written on a thread
//! of its own, so that a disk that hangs holds up nothing else.

use super::ControlOptions;
use falkon_core::dispatch::UserLimits;
use falkon_core::task::UserId;
use falkon_net::secure::{ACCESS_FILE_BYTES_MAX, FileError, read_private, write_private};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// The file, beside the access files.
const FILE: &str = "users.json";
/// The version of the file that this release reads and writes.
const FORMAT: u32 = 1;
/// Users of a dispatcher, those included that were removed and have instances.
pub(super) const USERS_MAX: usize = 200;
/// The longest name.
pub(super) const NAME_BYTES_MAX: usize = 64;
/// A user in the file, about.
const USER_BYTES_MAX: usize = NAME_BYTES_MAX + 260;
/// Contents that wait for the thread: a change waits for the one before it.
const WRITES_MAX: usize = 1;

const _: () = assert!(USERS_MAX * USER_BYTES_MAX < ACCESS_FILE_BYTES_MAX, "the file can be read");

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
    /// The system has no thread that writes the file.
    #[error("cannot start the thread that writes {path}: {source}; end other programs, then retry")]
    Thread {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// What became of a user's tasks with the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Revoked {
    Cancelled,
    Kept,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) number: u64,
    pub(super) share: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tasks_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slots_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bytes_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) instances_max: Option<u64>,
    #[serde(default)]
    pub(super) sees_all: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) revoked: Option<Revoked>,
}

impl User {
    pub(super) fn new(name: String, id: UserId, limits: UserLimits, sees_all: bool) -> User {
        let UserLimits { share, tasks_max, slots_max, bytes_max, instances_max } = limits;
        User {
            name,
            number: id.0,
            share,
            tasks_max,
            slots_max,
            bytes_max,
            instances_max,
            sees_all,
            revoked: None,
        }
    }

    pub(super) fn id(&self) -> UserId {
        UserId(self.number)
    }

    pub(super) fn limits(&self) -> UserLimits {
        UserLimits {
            share: self.share,
            tasks_max: self.tasks_max,
            slots_max: self.slots_max,
            bytes_max: self.bytes_max,
            instances_max: self.instances_max,
        }
    }
}

/// The users in the order of their names.
pub(super) type All = BTreeMap<String, User>;

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    users: Vec<User>,
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// Reads the users of the dispatcher in `dir`, and where they are written.
pub(super) fn read(dir: &Path) -> Result<(All, PathBuf), UsersError> {
    let path = dir.join(FILE);
    let all = match read_private(&path) {
        Err(FileError::Missing { .. }) => Vec::new(),
        Err(error) => return Err(UsersError::File(error)),
        Ok(bytes) => parse(&bytes, &path)?,
    };
    Ok((all.into_iter().map(|user| (user.name.clone(), user)).collect(), path))
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

/// The file's contents.
pub(super) fn text(all: &All) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Stored { format: FORMAT, users: all.values().cloned().collect() })
}

/// Checks that this release can read who the users of the dispatcher in `dir` are, and changes
/// nothing.
///
/// # Errors
/// The file is damaged, or of another release.
pub fn check_users(dir: &Path) -> Result<(), UsersError> {
    read(dir).map(drop)
}

/// The thread that writes the file. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    texts: mpsc::Sender<Vec<u8>>,
    written: mpsc::Receiver<Result<(), FileError>>,
}

impl Writer {
    pub(super) fn start(path: PathBuf) -> Result<Writer, UsersError> {
        let (texts, mut waiting) = mpsc::channel::<Vec<u8>>(WRITES_MAX);
        let (tell, written) = mpsc::channel(WRITES_MAX);
        let file = path.clone();
        let thread = std::thread::Builder::new().name("falkon-users".to_owned());
        let spawned = thread.spawn(move || {
            while let Some(text) = waiting.blocking_recv() {
                if tell.blocking_send(write_private(&file, &text)).is_err() {
                    return;
                }
            }
        });
        spawned.map_err(|source| UsersError::Thread { path, source })?;
        Ok(Writer { texts, written })
    }

    /// Begins to write; the one before must have been written.
    pub(super) fn write(&self, text: Vec<u8>) {
        // The thread takes each text before it writes it, and lives as long as this.
        let _ = self.texts.try_send(text);
    }

    /// Whether the text is on disk; waits for ever if none is being written.
    pub(super) async fn written(&mut self) -> Result<(), FileError> {
        match self.written.recv().await {
            Some(written) => written,
            None => std::future::pending().await,
        }
    }
}

/// Where a dispatcher's users are, if it has any.
pub(super) fn open(options: Option<&ControlOptions>) -> Result<Option<(All, Writer)>, UsersError> {
    let Some(ControlOptions { dir, .. }) = options else { return Ok(None) };
    let (all, path) = read(dir)?;
    Ok(Some((all, Writer::start(path)?)))
}
