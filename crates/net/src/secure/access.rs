//! Access files: how a client, executor or observer finds a dispatcher and
//! proves itself to it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::private_file::{self, FileError};
use super::{DispatcherId, Fingerprint, Level, Role, Secret};

/// The version of the access file's format that this release reads and writes.
pub const ACCESS_FILE_FORMAT: u32 = 1;

/// The contents of an access file: the dispatcher's addresses, how to
/// authenticate it, and the secrets of one or more roles.
///
/// On disk it is JSON with mode 0600: `format`, `dispatcher`, `addresses`,
/// `level`, `fingerprint` (at level `encrypt`) and `secrets`, an object from
/// role to 64 hexadecimal digits.
#[derive(Clone, Debug)]
pub struct AccessFile {
    /// The dispatcher.
    pub dispatcher: DispatcherId,
    /// Where it listens, as `host:port`, to be tried in this order.
    pub addresses: Vec<String>,
    /// The level that its connections have. A client accepts no other.
    pub level: Level,
    /// The fingerprint of its certificate, which is always there if the level
    /// is [`Level::Encrypt`].
    pub fingerprint: Option<Fingerprint>,
    secrets: BTreeMap<Role, Secret>,
    /// The dispatchers that executors go to, in this order, when this one is gone for good.
    fallbacks: Vec<AccessFile>,
    /// Where it was read from, for messages.
    path: Option<PathBuf>,
}

/// The most dispatchers that an access file names beside its own.
pub const FALLBACKS_MAX: usize = 16;

/// Why an access file could not be found, read, written or used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// No file was named and there is none at the usual place.
    #[error(
        "no access file: none was named, FALKON_ACCESS is not set, and {}; start a dispatcher with \
         `falkon start`, or name its access file with --access",
        usual(.default_place.as_deref())
    )]
    NotFound {
        /// The usual place, if the environment says where that is.
        default_place: Option<PathBuf>,
    },
    /// The file could not be read or written, or others may read it.
    #[error(fmt = write_file)]
    File(#[from] FileError),
    /// The file is not JSON, or not an access file.
    #[error(
        "{path} is not an access file: {source}; copy it again from the dispatcher's directory"
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The error, with its line and column.
        source: serde_json::Error,
    },
    /// The file's format has another version.
    #[error(
        "{path} has format {format} and this falkon reads format {ACCESS_FILE_FORMAT}: use the \
         same release here and at the dispatcher"
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The version that it says.
        format: u64,
    },
    /// The file names no address, or, at level `encrypt`, no fingerprint.
    #[error("{path} has no {field}; copy it again from the dispatcher's directory")]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// The field that is missing.
        field: &'static str,
    },
    /// The file names more dispatchers than are kept.
    #[error("{path} names more than {FALLBACKS_MAX} dispatchers to fall back on: name fewer")]
    Fallbacks {
        /// The file.
        path: PathBuf,
    },
    /// The file holds no secret for the wanted role.
    #[error(fmt = write_no_secret)]
    NoSecret {
        /// The file, if it is one.
        path: Option<PathBuf>,
        /// The wanted role.
        role: Role,
        /// The roles that it has secrets for.
        present: Vec<Role>,
    },
}

fn usual(place: Option<&Path>) -> String {
    match place {
        Some(path) => format!("there is none at {}", path.display()),
        None => "neither XDG_STATE_HOME nor HOME says where to look".to_owned(),
    }
}

fn write_file(source: &FileError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match source {
        FileError::Missing { path } => write!(
            f,
            "there is no access file at {}: is the path right, and has the dispatcher started?",
            path.display()
        ),
        source => write!(f, "{source}"),
    }
}

fn write_no_secret(
    path: &Option<PathBuf>,
    role: &Role,
    present: &[Role],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    match path {
        Some(path) => write!(f, "{}", path.display())?,
        None => f.write_str("the access file")?,
    }
    let present: Vec<String> = present.iter().map(Role::to_string).collect();
    write!(
        f,
        " has no secret for role {role} (it has: {}): take the access file that the dispatcher \
         wrote for that role",
        present.join(", ")
    )
}

/// The environment variables that say where access files are. The process that
/// owns the environment fills them in.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// `FALKON_ACCESS`
    pub falkon_access: Option<OsString>,
    /// `XDG_STATE_HOME`
    pub xdg_state_home: Option<OsString>,
    /// `HOME`
    pub home: Option<OsString>,
}

impl Places {
    /// The directory of a dispatcher whose user names none:
    /// `$XDG_STATE_HOME/falkon`, or `~/.local/state/falkon`. `None` if neither
    /// variable holds an absolute path (which the XDG base directory
    /// specification demands).
    #[must_use]
    pub fn default_directory(&self) -> Option<PathBuf> {
        let absolute =
            |name: &Option<OsString>| name.as_ref().map(PathBuf::from).filter(|p| p.is_absolute());
        let state = absolute(&self.xdg_state_home)
            .or_else(|| absolute(&self.home).map(|home| home.join(".local/state")))?;
        Some(state.join("falkon"))
    }
}

impl AccessFile {
    /// An access file with the given secrets.
    pub(super) fn new(
        dispatcher: DispatcherId,
        addresses: Vec<String>,
        level: Level,
        fingerprint: Fingerprint,
        secrets: BTreeMap<Role, Secret>,
    ) -> AccessFile {
        let fingerprint = (level == Level::Encrypt).then_some(fingerprint);
        let fallbacks = Vec::new();
        AccessFile { dispatcher, addresses, level, fingerprint, secrets, fallbacks, path: None }
    }

    /// An access file to the same dispatcher that opens one instance and
    /// nothing else. `secret` is what the dispatcher gave for the instance.
    #[must_use]
    pub fn for_instance(&self, instance: u64, secret: Secret) -> AccessFile {
        let secrets = BTreeMap::from([(Role::Instance(instance), secret)]);
        AccessFile { secrets, fallbacks: Vec::new(), path: None, ..self.clone() }
    }

    /// An access file to the same dispatcher that one of its users has. `secret` is what the
    /// dispatcher gave for the user.
    #[must_use]
    pub fn for_user(&self, user: u64, secret: Secret) -> AccessFile {
        let secrets = BTreeMap::from([(Role::User(user), secret)]);
        AccessFile { secrets, fallbacks: Vec::new(), path: None, ..self.clone() }
    }

    /// An access file that also opens these dispatchers to executors, which go to them when
    /// its own is gone for good.
    ///
    /// # Errors
    /// [`AccessError::NoSecret`] if one of the files is not for executors.
    pub fn with_fallbacks(self, fallbacks: &[AccessFile]) -> Result<AccessFile, AccessError> {
        let mut others = Vec::new();
        for access in fallbacks {
            let secret = access.secret(Role::Executor)?.clone();
            let secrets = BTreeMap::from([(Role::Executor, secret)]);
            others.push(AccessFile { secrets, fallbacks: Vec::new(), ..access.clone() });
        }
        Ok(AccessFile { fallbacks: others, ..self })
    }

    /// The dispatchers that the file opens, its own first.
    pub fn in_order(self) -> impl Iterator<Item = AccessFile> {
        let (own, others) = (AccessFile { fallbacks: Vec::new(), ..self.clone() }, self.fallbacks);
        std::iter::once(own).chain(others)
    }

    /// Chooses the file to load: the one that is named explicitly, else the one
    /// that `FALKON_ACCESS` names, else `access.json` in the default directory.
    ///
    /// # Errors
    /// [`AccessError::NotFound`] if none is named and the default one does not
    /// exist. A file that is named need not exist for this call.
    pub fn find(explicit: Option<&Path>, places: &Places) -> Result<PathBuf, AccessError> {
        if let Some(path) = explicit {
            return Ok(path.to_owned());
        }
        if let Some(path) = places.falkon_access.as_ref().filter(|path| !path.is_empty()) {
            return Ok(PathBuf::from(path));
        }
        let default_place = places.default_directory().map(|dir| dir.join("access.json"));
        match default_place {
            Some(path) if path.exists() => Ok(path),
            default_place => Err(AccessError::NotFound { default_place }),
        }
    }

    /// Reads an access file.
    ///
    /// # Errors
    /// All variants of [`AccessError`] but `NotFound` and `NoSecret`.
    pub fn load(path: &Path) -> Result<AccessFile, AccessError> {
        AccessFile::parse(&private_file::read(path)?, path)
    }

    /// Reads an access file's content; `path` says where it comes from, for
    /// messages.
    ///
    /// # Errors
    /// Those of [`AccessFile::load`].
    pub fn parse(bytes: &[u8], path: &Path) -> Result<AccessFile, AccessError> {
        let malformed = |source| AccessError::Malformed { path: path.to_owned(), source };
        // The format first: the rest of another format may look different.
        let Format { format } = serde_json::from_slice(bytes).map_err(malformed)?;
        if format != u64::from(ACCESS_FILE_FORMAT) {
            return Err(AccessError::Format { path: path.to_owned(), format });
        }
        let mut stored: Stored = serde_json::from_slice(bytes).map_err(malformed)?;
        let fallbacks = std::mem::take(&mut stored.fallbacks);
        if fallbacks.len() > FALLBACKS_MAX {
            return Err(AccessError::Fallbacks { path: path.to_owned() });
        }
        let others = fallbacks.into_iter().map(|other| AccessFile::of(other, path));
        let fallbacks = others.collect::<Result<_, _>>()?;
        Ok(AccessFile { fallbacks, ..AccessFile::of(stored, path)? })
    }

    /// What a section of a file says of one dispatcher.
    fn of(stored: Stored, path: &Path) -> Result<AccessFile, AccessError> {
        let incomplete = |field| AccessError::Incomplete { path: path.to_owned(), field };
        if stored.addresses.is_empty() {
            return Err(incomplete("addresses"));
        }
        if stored.level == Level::Encrypt && stored.fingerprint.is_none() {
            return Err(incomplete("fingerprint"));
        }
        Ok(AccessFile {
            dispatcher: stored.dispatcher,
            addresses: stored.addresses,
            level: stored.level,
            fingerprint: stored.fingerprint,
            secrets: stored.secrets.into_iter().map(|(role, secret)| (role.0, secret.0)).collect(),
            fallbacks: Vec::new(),
            path: Some(path.to_owned()),
        })
    }

    /// Writes the file with mode 0600, whole or not at all, also if the machine
    /// crashes. Missing directories are made with mode 0700.
    ///
    /// # Errors
    /// [`AccessError::File`] if the system refuses.
    pub fn write(&self, path: &Path) -> Result<(), AccessError> {
        private_file::write(path, &self.text())?;
        Ok(())
    }

    /// The text of the file.
    #[must_use]
    pub fn text(&self) -> Zeroizing<Vec<u8>> {
        to_json(&self.stored())
    }

    fn stored(&self) -> Stored {
        Stored {
            format: ACCESS_FILE_FORMAT,
            dispatcher: self.dispatcher,
            addresses: self.addresses.clone(),
            level: self.level,
            fingerprint: self.fingerprint,
            secrets: self
                .secrets
                .iter()
                .map(|(role, secret)| (StoredRole(*role), StoredSecret(secret.clone())))
                .collect(),
            fallbacks: self.fallbacks.iter().map(AccessFile::stored).collect(),
        }
    }

    /// The secret of a role.
    ///
    /// # Errors
    /// [`AccessError::NoSecret`] if the file has none for this role.
    pub fn secret(&self, role: Role) -> Result<&Secret, AccessError> {
        self.secrets.get(&role).ok_or_else(|| AccessError::NoSecret {
            path: self.path.clone(),
            role,
            present: self.secrets.keys().copied().collect(),
        })
    }

    /// Where the file is, if it was read from one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The roles that the file has secrets for.
    pub fn roles(&self) -> impl Iterator<Item = Role> + '_ {
        self.secrets.keys().copied()
    }
}

/// The least that every format says.
#[derive(Deserialize)]
struct Format {
    format: u64,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    dispatcher: DispatcherId,
    addresses: Vec<String>,
    level: Level,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fingerprint: Option<Fingerprint>,
    secrets: BTreeMap<StoredRole, StoredSecret>,
    /// The same of other dispatchers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fallbacks: Vec<Stored>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct StoredRole(Role);

impl Serialize for StoredRole {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for StoredRole {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(StoredRole).map_err(serde::de::Error::custom)
    }
}

/// A secret for a serializer, in this one place. [`Secret`] itself cannot be
/// serialized, so it does not end up in a message or a log by accident.
pub(super) struct StoredSecret(pub(super) Secret);

impl Serialize for StoredSecret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_hex())
    }
}

impl<'de> Deserialize<'de> for StoredSecret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Digits;

        // Reads from the borrowed text, and names no content in its errors.
        impl serde::de::Visitor<'_> for Digits {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text of 64 hexadecimal digits")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Secret, E> {
                Secret::from_hex(text).map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Digits).map(StoredSecret)
    }
}

/// JSON for people to read, in a buffer that wipes itself.
pub(super) fn to_json(value: &impl Serialize) -> Zeroizing<Vec<u8>> {
    // Reserved in full, so that growing leaves no unwiped copy behind.
    let mut json = Zeroizing::new(Vec::with_capacity(super::ACCESS_FILE_BYTES_MAX));
    serde_json::to_writer_pretty(&mut *json, value)
        .expect("writing to memory succeeds, and every key is a text");
    json.push(b'\n');
    json
}
