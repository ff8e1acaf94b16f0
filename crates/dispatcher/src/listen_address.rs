//! The address of a dispatcher the last time: executors look for it there after
//! a restart.

use falkon_net::secure::{FileError, Level, read_private, write_private};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The file, beside the access files.
const FILE: &str = "listen.json";

/// Where a dispatcher is to be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenAddress {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Whether its user said so.
    pub chosen: bool,
    /// The addresses in access files in the place of that, if its user gave
    /// some.
    pub advertise: Vec<String>,
    /// How connections are protected.
    pub level: Level,
}

/// Why it is not known where a dispatcher was to be reached.
#[derive(Debug, thiserror::Error)]
pub enum ListenAddressError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(FileError),
    /// The file is no such file.
    #[error("{path} is damaged: {source}; remove it, and give --listen as before")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The error in the file.
        source: serde_json::Error,
    },
}

impl ListenAddress {
    /// Reads it of a dispatcher's directory; `None` if none has listened yet.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn load(dir: &Path) -> Result<Option<ListenAddress>, ListenAddressError> {
        let path = dir.join(FILE);
        match read_private(&path) {
            Err(FileError::Missing { .. }) => Ok(None),
            Err(error) => Err(ListenAddressError::File(error)),
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|source| ListenAddressError::Malformed { path, source }),
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, dir: &Path) -> Result<(), ListenAddressError> {
        let path = dir.join(FILE);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|source| ListenAddressError::Malformed { path: path.clone(), source })?;
        write_private(&path, &text).map_err(ListenAddressError::File)
    }
}

#[cfg(test)]
mod tests {
    use super::ListenAddress;
    use falkon_net::secure::Level;

    #[test]
    fn what_was_said_is_known_again() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ListenAddress::load(dir.path()).unwrap(), None);
        let reached = ListenAddress {
            listen: "[::1]:7070".parse().unwrap(),
            chosen: true,
            advertise: vec!["head:9".to_owned()],
            level: Level::Encrypt,
        };
        reached.save(dir.path()).unwrap();
        assert_eq!(ListenAddress::load(dir.path()).unwrap(), Some(reached));
        std::fs::write(dir.path().join("listen.json"), "{").unwrap();
        let error = ListenAddress::load(dir.path()).unwrap_err().to_string();
        assert!(error.contains("give --listen as before"), "{error}");
    }
}
