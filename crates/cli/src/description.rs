//! Description files: TOML that says what `falkon model` and `falkon sim` are
//! about.

use serde::de::DeserializeOwned;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest description, in bytes: they are written by hand.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 20;

/// Why a description cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DescriptionError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is too large to be a description.
    #[error("{0} is larger than {DESCRIPTION_BYTES_MAX} bytes: is it the right file?")]
    Large(PathBuf),
    /// The file is not what is expected; the message has the place.
    #[error("{path}: {}", .message.trim_end())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The error, and its place.
        message: String,
    },
}

/// Reads a description.
///
/// # Errors
/// Names the file, and the place in it.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, DescriptionError> {
    let failed = |source| DescriptionError::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    file.take(DESCRIPTION_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > DESCRIPTION_BYTES_MAX {
        return Err(DescriptionError::Large(path.to_owned()));
    }
    toml::from_str(&text).map_err(|error| DescriptionError::Malformed {
        path: path.to_owned(),
        message: error.to_string(),
    })
}
