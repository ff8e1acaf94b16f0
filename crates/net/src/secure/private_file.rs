//! Files that only their owner may read, written so that a crash leaves either
//! the old content or the new.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::ACCESS_FILE_BYTES_MAX;
use super::secret::{encode_hex, fill_randomly};

/// Why a private file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is no such file.
    #[error("there is no file {path}")]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Other users than the owner may read or change it.
    #[error(
        "{path} holds secrets and others may read or change it (mode {mode:04o}): chmod 600 \
         {path}, and if others could have read it, renew it"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The file is larger than [`ACCESS_FILE_BYTES_MAX`].
    #[error("{path} is larger than {ACCESS_FILE_BYTES_MAX} bytes, so it is not such a file")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The path is not a regular file.
    #[error("{path} is not a file")]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The system refused to read it.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The system refused to write it.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// Reads a file after checking, on the opened file itself, that only its owner
/// can.
pub fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, FileError> {
    let unreadable = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => FileError::Missing { path: path.to_owned() },
        _ => FileError::Read { path: path.to_owned(), source },
    };
    // Without O_NONBLOCK, opening a FIFO would wait for its writer.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(FileError::NotAFile { path: path.to_owned() });
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(FileError::Exposed { path: path.to_owned(), mode });
    }
    // Reserved in full, so that no copy is left behind unwiped by growing.
    let mut bytes = Zeroizing::new(Vec::with_capacity(ACCESS_FILE_BYTES_MAX + 1));
    file.take(ACCESS_FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > ACCESS_FILE_BYTES_MAX {
        return Err(FileError::TooLarge { path: path.to_owned() });
    }
    Ok(bytes)
}

/// Writes a file of mode 0600, whole or not at all: under another name first,
/// to disk, then renamed. Directories that are missing are made with mode 0700.
/// A file that is the same already is left: a dispatcher that is started again
/// needs no room on a disk that may be full.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    if read(path).is_ok_and(|there| **there == *bytes) {
        return Ok(());
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let attempt = || -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let draft = draft_name(path, directory)?;
        let written = write_draft(&draft, bytes).and_then(|()| fs::rename(&draft, path));
        if let Err(error) = written {
            // Nothing better can be done about a draft that cannot be removed.
            let _ = fs::remove_file(&draft);
            return Err(error);
        }
        // The new name lives in the directory, which goes to disk by itself.
        File::open(directory)?.sync_all()
    };
    attempt().map_err(|source| FileError::Write { path: path.to_owned(), source })
}

fn write_draft(draft: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn draft_name(path: &Path, directory: &Path) -> io::Result<PathBuf> {
    let mut random = [0; 8];
    fill_randomly(&mut random)?;
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(format!(".{}.tmp", encode_hex(&random)));
    Ok(directory.join(name))
}
