//! Errors of stores.

use std::error::Error;
use std::io;

use falkon_archive::ReadError;

use super::Resolved;

/// A text that names no place of an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// There is no text.
    #[error("the name of a file is empty: give a path or a URL")]
    Empty,
    /// The URL has a zero byte.
    #[error("`{text}` has a zero byte, which no file name can have")]
    ZeroByte {
        /// The text.
        text: String,
    },
    /// A relative path where only absolute ones have a meaning.
    #[error("`{text}` is a relative path: give an absolute one, executors run elsewhere")]
    Relative {
        /// The text.
        text: String,
    },
    /// A scheme that is not known.
    #[error(
        "`{text}` has the unknown scheme `{scheme}`: use a path, or a file:, http:, https: or s3: \
         URL"
    )]
    Scheme {
        /// The text.
        text: String,
        /// The scheme of the URL.
        scheme: String,
    },
    /// A `file:` URL of another machine.
    #[error(
        "`{text}` names a file on the host `{host}`: only files that every executor can open by \
         path work, write file:///PATH"
    )]
    FileHost {
        /// The text.
        text: String,
        /// The machine.
        host: String,
    },
    /// A `%` in a `file:` URL that stands for no byte of a name.
    #[error(
        "`{text}` has a % that is not followed by the two digits of a byte of a UTF-8 name: write \
         %25 for %"
    )]
    Escape {
        /// The text.
        text: String,
    },
    /// A name that no member has that can be an input.
    #[error("the member `{name}` of the archive {archive} cannot be used: {reason}")]
    Member {
        /// The archive.
        archive: String,
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Not a URL of the web.
    #[error("`{text}` is not a URL: {reason}")]
    Web {
        /// The text.
        text: String,
        /// The error in the URL.
        reason: String,
    },
    /// No name of a bucket.
    #[error("`{text}` names the bucket `{bucket}`, which cannot be one: write s3://BUCKET/NAME")]
    Bucket {
        /// The text.
        text: String,
        /// The text in the bucket's place.
        bucket: String,
    },
    /// No name of an object in a bucket.
    #[error("`{text}` cannot be used: {reason}; write s3://BUCKET/NAME")]
    Key {
        /// The text.
        text: String,
        /// The error in it.
        reason: &'static str,
    },
}

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such object.
    #[error("there is no {url}: is the name right?")]
    NotThere {
        /// Where it should be.
        url: String,
    },
    /// The store does not allow it.
    #[error("access to {url} is not allowed: {reason}")]
    NotAllowed {
        /// The object.
        url: String,
        /// The store's words.
        reason: String,
    },
    /// The store was not reached, failed, or fell silent; it may be tried
    /// again.
    #[error("{url} cannot be reached at present: {reason}")]
    Unreachable {
        /// The object.
        url: String,
        /// The failure.
        reason: String,
    },
    /// The source is not what it was when the copy began, or not the version
    /// that was wanted.
    #[error("{url} changed while it was used: {reason}; let nobody write it while tasks read it")]
    Changed {
        /// The object.
        url: String,
        /// The difference.
        reason: String,
        /// The present version, if it is known.
        now: Option<Resolved>,
    },
    /// There is no room for the copy on this machine.
    #[error("there is no room here for {url}: {source}")]
    DiskFull {
        /// The object.
        url: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The local file cannot be read or written for another reason.
    #[error("the local copy of {url} cannot be read or written: {source}")]
    Local {
        /// The object.
        url: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The store is for reading only.
    #[error("{url} cannot be written: outputs go to a path or an s3: URL")]
    ReadOnly {
        /// Where the object was to go.
        url: String,
    },
    /// The archive that a member is to be read from cannot be used.
    #[error("the member `{member}` cannot be read: {error}")]
    Member {
        /// The member's name.
        member: String,
        /// What is wrong with the archive.
        error: Box<StoreError>,
    },
    /// An archive is none, or a member is missing, damaged, or of a kind that only other tools
    /// read.
    #[error(transparent)]
    Archive(ReadError),
    /// The store refuses; trying again does not help.
    #[error("{url} cannot be used: {reason}")]
    Refused {
        /// The object.
        url: String,
        /// The store's words.
        reason: String,
    },
}

impl StoreError {
    /// Whether trying again later, with nothing else changed, may help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self.root(), StoreError::Unreachable { .. } | StoreError::Changed { .. })
    }

    /// The error of the store itself, where it is one of a member's archive.
    #[must_use]
    pub fn root(&self) -> &StoreError {
        match self {
            StoreError::Member { error, .. } => error.root(),
            error => error,
        }
    }

    /// A failure of the local file.
    pub(super) fn local(url: String, source: io::Error) -> StoreError {
        if super::is_full(&source) {
            StoreError::DiskFull { url, source }
        } else if source.kind() == io::ErrorKind::IsADirectory {
            let reason = "what is here is a directory: pack it, or name its files";
            StoreError::Refused { url, reason: reason.to_owned() }
        } else {
            StoreError::Local { url, source }
        }
    }

    /// Converts an HTTP status that is no success.
    pub(super) fn status(url: String, status: u16, reason: String) -> StoreError {
        match status {
            404 | 410 => StoreError::NotThere { url },
            401 | 403 | 407 => StoreError::NotAllowed { url, reason },
            412 => StoreError::Changed { url, reason, now: None },
            408 | 425 | 429 | 500.. => StoreError::Unreachable { url, reason },
            _ => StoreError::Refused { url, reason },
        }
    }
}

/// An error with all that it says about its causes, each once.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        next = cause.source();
    }
    text
}
