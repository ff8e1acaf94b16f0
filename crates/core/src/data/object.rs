//! What is staged, cached and served: write-once objects and where they are.

use crate::archive::split_member;
use crate::task::ExecutorId;
use std::fmt;
use std::sync::Arc;

/// What a data object is known by: the first 16 bytes, in order, of
/// BLAKE3(url, a zero byte, version). Who computes it is outside: the core
/// only compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u128);

impl ObjectId {
    /// Reads what `Display` writes: 32 lower-case hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<ObjectId> {
        let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if text.len() != 32 || !digits {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(ObjectId)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A write-once file. A source that changes is another object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    /// What it is known by.
    pub id: ObjectId,
    /// Where it comes from: a URL or a path, as the task names it.
    pub url: Arc<str>,
    /// Which version of that: size and time of a file, the ETag of a web or S3
    /// object, `blake3:` and 64 hexadecimal digits; empty if nobody can tell.
    pub version: Arc<str>,
    /// Its bytes, if anybody knows.
    pub size: Option<u64>,
}

/// What the URL of an object begins with that lives in caches alone.
const CACHE_PREFIX: &str = "cache:";
/// What the URLs begin with of objects that are put into caches for an instance and
/// go with it; its number and a slash follow.
pub const INSTANCES_PREFIX: &str = "cache:instances/";

/// What the version of an object begins with that is known by its content.
pub const CONTENT_PREFIX: &str = "blake3:";

/// What the version of an object begins with that is a member of an archive in caches;
/// the id of the archive follows.
const MEMBER_PREFIX: &str = "archive:";

/// The hexadecimal digits of the hash of a content.
const CONTENT_DIGITS: usize = 64;

impl Object {
    /// Whether nobody could tell its version: then the store is asked at every
    /// use what the object has become.
    #[must_use]
    pub fn is_unversioned(&self) -> bool {
        self.version.is_empty()
    }

    /// Whether it is, or is to be, in a persistent store: an object whose URL
    /// is `cache:` and a key lives in caches alone.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        Object::is_url_stored(&self.url)
    }

    /// Whether an object with this URL is, or is to be, in a persistent store.
    #[must_use]
    pub fn is_url_stored(url: &str) -> bool {
        !url.starts_with(CACHE_PREFIX)
    }

    /// The archive and the name in it, if it is a member of an archive that is a
    /// file: `/path/NAME.zip!MEMBER`.
    #[must_use]
    pub fn member(&self) -> Option<(&str, &str)> {
        split_member(&self.url).filter(|_| self.url.starts_with('/'))
    }

    /// The version of the members of an archive that is an object in caches.
    #[must_use]
    pub fn member_version(archive: ObjectId) -> String {
        format!("{MEMBER_PREFIX}{archive}")
    }

    /// The archive, if it is a member of one that is an object in caches:
    /// `cache:NAME.zip!MEMBER`. Executors hold the archive, and the member only
    /// while a task there reads it.
    #[must_use]
    pub fn archive(&self) -> Option<ObjectId> {
        let is_cached = self.url.starts_with(CACHE_PREFIX);
        ObjectId::parse(self.version.strip_prefix(MEMBER_PREFIX).filter(|_| is_cached)?)
    }

    /// What executors hold of it: the archive of a member, else the object itself.
    #[must_use]
    pub fn held_as(&self) -> ObjectId {
        self.archive().unwrap_or(self.id)
    }

    /// The name in the archive, if it is a member of one in caches.
    #[must_use]
    pub fn name_in_archive(&self) -> Option<&str> {
        self.archive()?;
        split_member(&self.url).map(|(_, name)| name)
    }

    /// Whether it is what somebody may put into a cache by hand: in no store,
    /// where it could be taken for what is there, and known by its content,
    /// which whoever receives it can check.
    #[must_use]
    pub fn is_placeable(&self) -> bool {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let key = self.url.strip_prefix(CACHE_PREFIX);
        let hash = self.version.strip_prefix(CONTENT_PREFIX);
        key.is_some_and(|key| !key.is_empty())
            && hash.is_some_and(|hash| hash.len() == CONTENT_DIGITS && hash.bytes().all(is_digit))
    }

    /// The instance with which it goes, if it is under its number in caches.
    #[must_use]
    pub fn owner(&self) -> Option<u64> {
        let key = self.url.strip_prefix(INSTANCES_PREFIX)?;
        key.split_once('/')?.0.parse().ok()
    }

    /// Its persistent store: scheme and authority of its URL, or nothing for a
    /// path. Limits per source count by it.
    #[must_use]
    pub fn store(&self) -> &str {
        let Some((scheme, rest)) = self.url.split_once("://") else { return "" };
        if scheme == "file" {
            return "";
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        &self.url[..scheme.len() + "://".len() + authority.len()]
    }
}

/// Where an object can be got from, as the dispatcher believes; the belief may
/// be wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sources {
    /// Executors that hold it, the one to ask first foremost.
    pub peers: Vec<ExecutorId>,
    /// Whether the persistent store at its URL has it; an output kept in
    /// caches alone is in no store.
    pub store: bool,
    /// An executor that is about to get it, and can give it a little later; named if
    /// few hold it for those that want it.
    pub coming: Option<ExecutorId>,
    /// Whether the dispatcher passes it on from executors that cannot be reached: those below
    /// relays, or those of a dispatcher above.
    pub forwarded: bool,
}

/// One place to get an object from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The executor's own cache, for a member of an archive that it holds.
    Own,
    /// The cache of another executor.
    Peer(ExecutorId),
    /// The persistent store at the object's URL.
    Store,
    /// The dispatcher, which passes on what executors hold that cannot be reached.
    Dispatcher,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Own => write!(f, "own cache"),
            Source::Peer(executor) => write!(f, "executor {executor}"),
            Source::Store => write!(f, "persistent store"),
            Source::Dispatcher => write!(f, "executors elsewhere, through the dispatcher"),
        }
    }
}
