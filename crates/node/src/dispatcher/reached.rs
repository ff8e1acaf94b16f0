//! Where a dispatcher was to be reached the last time, and how: executors that
//! were told look for it there again.

use crate::secure::{FileError, Level, read_private, write_private};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The file, beside the access files.
const FILE: &str = "listen.json";

/// Where a dispatcher is to be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Whether its user said so.
    pub chosen: bool,
    /// What others are told in the place of that, if its user said something.
    pub advertise: Vec<String>,
    /// How connections are protected.
    pub level: Level,
}

/// Why it is not known where a dispatcher was to be reached.
#[derive(Debug, thiserror::Error)]
pub enum ReachedError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(FileError),
    /// It is not such a file.
    #[error("{path} is damaged: {source}; take it away, and say --listen as the last time")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
}

impl Reached {
    /// Reads it of a dispatcher's directory; `None` if none has listened yet.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn load(dir: &Path) -> Result<Option<Reached>, ReachedError> {
        let path = dir.join(FILE);
        match read_private(&path) {
            Err(FileError::Missing { .. }) => Ok(None),
            Err(error) => Err(ReachedError::File(error)),
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|source| ReachedError::Malformed { path, source }),
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, dir: &Path) -> Result<(), ReachedError> {
        let path = dir.join(FILE);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|source| ReachedError::Malformed { path: path.clone(), source })?;
        write_private(&path, &text).map_err(ReachedError::File)
    }
}

#[cfg(test)]
mod tests {
    use super::Reached;
    use crate::secure::Level;

    #[test]
    fn what_was_said_is_known_again() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Reached::load(dir.path()).unwrap(), None);
        let reached = Reached {
            listen: "[::1]:7070".parse().unwrap(),
            chosen: true,
            advertise: vec!["head:9".to_owned()],
            level: Level::Encrypt,
        };
        reached.save(dir.path()).unwrap();
        assert_eq!(Reached::load(dir.path()).unwrap(), Some(reached));
        std::fs::write(dir.path().join("listen.json"), "{").unwrap();
        let error = Reached::load(dir.path()).unwrap_err().to_string();
        assert!(error.contains("say --listen as the last time"), "{error}");
    }
}
