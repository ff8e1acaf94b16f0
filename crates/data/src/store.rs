//! Persistent stores behind one interface: POSIX paths, HTTP(S) (read only),
//! S3 and compatible, members of archives that are in one of them, and directories, which
//! are read as archives.
//!
//! [`StoreUrl`] says where an object is, [`Stores`] finds out its size and
//! version, copies it (or a range of it) into a local file, and copies local
//! files to where they are to stay. A source that changes while it is copied is
//! an error, never a mixture.
//!
//! Retries and limits of a whole transfer are the caller's, who drops the
//! future to give up. Silence alone is bounded ([`CONNECT_MS_MAX`],
//! [`SILENCE_MS_MAX`]), to distinguish a store that is gone from a slow one.

mod copy;
mod error;
mod folder;
mod http;
mod member;
mod posix;
mod s3;
mod sink;
mod url;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::object::Landing;

pub use copy::{CopyError, Steps, copy_range, is_full};
pub use error::{StoreError, UrlError};
pub use member::Members;
pub use posix::version_of;
pub use url::StoreUrl;

use sink::Sink;

/// How long reaching a store over the network may take, in milliseconds.
pub const CONNECT_MS_MAX: u64 = 10_000;

/// How long a store may be silent in the middle of an answer, in milliseconds.
pub const SILENCE_MS_MAX: u64 = 60_000;

/// How much of a transfer from the network gathers in memory before it is
/// written, in bytes.
pub const GATHER_BYTES: usize = 1 << 20;

/// Up to this size, in bytes, a file goes to S3 in one request.
pub const S3_SINGLE_BYTES_MAX: u64 = 16 << 20;

/// The smallest part of a larger one, in bytes.
pub const S3_PART_BYTES_MIN: u64 = 8 << 20;

/// The parts that S3 allows a file to have.
pub const S3_PARTS_MAX: u64 = 10_000;

/// Parts of one file that are under way to S3 at once.
pub const S3_PARTS_AT_ONCE_MAX: usize = 4;

/// The properties of an object at its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The size in bytes; `None` if the store does not give it (some web
    /// servers).
    pub bytes: Option<u64>,
    /// The version: "size-mtime in ns" of a POSIX file, "tree:" and a hash of all names,
    /// sizes and times of a directory, else the ETag, else
    /// "Last-Modified size"; empty if the store gives none of them.
    pub version: String,
}

/// The result of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// How many bytes were written.
    pub bytes: u64,
    /// The version that they are of, as in [`Resolved::version`].
    pub version: String,
}

/// The part of an object to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Want {
    /// The first byte.
    pub offset: u64,
    /// How many bytes; `None` is all that follow.
    pub length: Option<u64>,
    /// The version that it must have; `None` takes any, and [`Fetched`] says
    /// which. Pieces that are put together must name one.
    pub version: Option<String>,
}

/// All persistent stores. Cheap to clone; connections are shared and kept.
#[derive(Clone)]
pub struct Stores {
    web: Arc<OnceLock<reqwest::Client>>,
    s3: Arc<s3::Buckets>,
    /// How long a file system may be silent.
    file_limit: Duration,
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stores").finish_non_exhaustive()
    }
}

impl Want {
    /// The bytes meant of an object of `whole` bytes; `None` if it has not got
    /// them all.
    fn within(&self, whole: u64) -> Option<std::ops::Range<u64>> {
        let end = match self.length {
            Some(length) => self.offset.checked_add(length)?,
            None => whole,
        };
        (self.offset <= end && end <= whole).then_some(self.offset..end)
    }

    /// Checks that what the store has is the version that is wanted.
    fn check(&self, url: &str, now: &Resolved) -> Result<(), StoreError> {
        match &self.version {
            Some(wanted) if *wanted != now.version => {
                let reason = format!("its version is `{}`, not `{wanted}`", now.version);
                Err(StoreError::Changed { url: url.to_owned(), reason, now: Some(now.clone()) })
            }
            _ => Ok(()),
        }
    }

    /// The object is too short for what is wanted of it.
    fn beyond(&self, url: &str, whole: u64) -> StoreError {
        let reason = match self.length {
            Some(length) => {
                format!("it has {whole} bytes, and {length} from {} on are wanted", self.offset)
            }
            None => format!("it has {whole} bytes, and those from {} on are wanted", self.offset),
        };
        StoreError::Refused { url: url.to_owned(), reason }
    }
}

impl Stores {
    /// All stores. `environment` gives endpoint, region and credentials of S3
    /// in the usual variables (`AWS_ENDPOINT_URL`, `AWS_REGION`,
    /// `AWS_ACCESS_KEY_ID` and so on); others are ignored, so that
    /// `std::env::vars()` will do.
    #[must_use]
    pub fn new(environment: impl IntoIterator<Item = (String, String)>) -> Stores {
        // The HTTP client looks up the process's provider of cryptography. An
        // earlier provider will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Stores {
            web: Arc::default(),
            s3: Arc::new(s3::Buckets::new(environment)),
            file_limit: Duration::from_millis(SILENCE_MS_MAX),
        }
    }

    /// The same stores, with `limit` for the silence of a file system.
    #[must_use]
    pub fn with_file_limit(self, limit: Duration) -> Stores {
        Stores { file_limit: limit, ..self }
    }

    /// The HTTP client. It is made when it is first needed: a machine without
    /// certificates can use files all the same.
    fn web(&self, url: &str) -> Result<reqwest::Client, StoreError> {
        if let Some(client) = self.web.get() {
            return Ok(client.clone());
        }
        let client = reqwest::Client::builder()
            .user_agent(concat!("falkon/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_millis(CONNECT_MS_MAX))
            .read_timeout(Duration::from_millis(SILENCE_MS_MAX))
            .build()
            .map_err(|error| StoreError::Refused {
                url: url.to_owned(),
                reason: format!("cannot prepare for HTTPS: {}", error::chain(&error)),
            })?;
        Ok(self.web.get_or_init(|| client).clone())
    }

    /// Asks for an object's size and version.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn resolve(&self, url: &StoreUrl) -> Result<Resolved, StoreError> {
        match url {
            StoreUrl::Member { archive, name } => member::resolve(self, archive, name).await,
            url => self.resolve_whole(url).await,
        }
    }

    /// Lists all members of the archive whose first file is at `archive`: for whoever asks for
    /// the sizes and versions of many.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn members(&self, archive: &StoreUrl) -> Result<Members, StoreError> {
        member::list(self, archive).await
    }

    /// The same as [`resolve`](Stores::resolve), of what is no member of an archive.
    async fn resolve_whole(&self, url: &StoreUrl) -> Result<Resolved, StoreError> {
        match url {
            StoreUrl::Posix(path) => posix::resolve(path, self.file_limit).await,
            StoreUrl::Folder(path) => folder::resolve(path, self.file_limit).await,
            StoreUrl::Web(web) => http::resolve(&self.web(web)?, web).await,
            StoreUrl::S3 { bucket, key } => self.s3.resolve(url, bucket, key).await,
            StoreUrl::Member { .. } => {
                let reason = "it is in an archive that is in an archive itself".to_owned();
                Err(StoreError::Refused { url: url.to_string(), reason })
            }
        }
    }

    /// Copies an object, or a range of it, to where `target` says. After an
    /// error, [`Landing::written`] says how much arrived all the same. If the
    /// future is dropped, a piece that is being written may still arrive.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn fetch(
        &self,
        url: &StoreUrl,
        want: &Want,
        target: &Arc<Landing>,
    ) -> Result<Fetched, StoreError> {
        match url {
            StoreUrl::Posix(path) => posix::fetch(path, want, target, self.file_limit).await,
            StoreUrl::Folder(path) => folder::fetch(path, want, target, self.file_limit).await,
            StoreUrl::Web(web) => {
                http::fetch(&self.web(web)?, web, want, &mut Sink::new(target)).await
            }
            StoreUrl::S3 { bucket, key } => {
                self.s3.fetch(url, (bucket, key), want, &mut Sink::new(target)).await
            }
            StoreUrl::Member { archive, name } => {
                member::fetch(self, (archive, name), want, target).await
            }
        }
    }

    /// Copies a local file to `url`, replacing an existing file in one step: no
    /// reader sees half of it. Missing folders are made.
    ///
    /// # Errors
    /// [`StoreError`]; what was at `url` is then unchanged.
    pub async fn put(&self, source: &Path, url: &StoreUrl) -> Result<Resolved, StoreError> {
        match url {
            StoreUrl::Posix(path) => posix::put(source, path).await,
            StoreUrl::Web(_) | StoreUrl::Member { .. } | StoreUrl::Folder(_) => {
                Err(StoreError::ReadOnly { url: url.to_string() })
            }
            StoreUrl::S3 { bucket, key } => self.s3.put(source, url, bucket, key).await,
        }
    }
}
