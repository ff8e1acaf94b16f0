//! Description files: TOML that says what `falkon model` and `falkon sim` are
//! about.

use serde::de::DeserializeOwned;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest description, in bytes: they are written by hand.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 20;

/// Why a description cannot be used.
#[derive(Debug)]
pub(crate) enum DescriptionError {
    /// It cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is too large to be one.
    Large(PathBuf),
    /// It is not what is expected; the message has the place.
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        message: String,
    },
}

impl fmt::Display for DescriptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DescriptionError::Read { path, source } => {
                write!(f, "cannot read {}: {source}", path.display())
            }
            DescriptionError::Large(path) => write!(
                f,
                "{} is larger than {DESCRIPTION_BYTES_MAX} bytes: is it the right file?",
                path.display()
            ),
            DescriptionError::Malformed { path, message } => {
                write!(f, "{}: {}", path.display(), message.trim_end())
            }
        }
    }
}

impl std::error::Error for DescriptionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DescriptionError::Read { source, .. } => Some(source),
            _ => None,
        }
    }
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
