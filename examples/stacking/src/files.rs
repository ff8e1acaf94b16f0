//! Reading and writing whole files, with errors that name the file.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A file or folder could not be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}: {source}")]
pub(crate) struct FileError {
    /// What was tried, as it follows "cannot".
    pub(crate) action: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

/// Makes the `map_err` argument for an operation on `path`.
pub(crate) fn failed<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> FileError + 'a {
    move |source| FileError { action, path: path.to_owned(), source }
}

/// The text of a file; its bytes must be UTF-8.
pub(crate) fn read_text(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(failed("read", path))
}

/// Makes a folder and its parents; one that exists is fine.
pub(crate) fn make_folder(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(failed("make the folder", path))
}

/// Writes a file so that nobody ever sees half of it: under another name first, then renamed. Its
/// folder is made if need be.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        make_folder(folder)?;
    }
    // The process id keeps two attempts of the same task apart.
    let mut partial_name = OsString::from(path);
    partial_name.push(format!(".{}.part", std::process::id()));
    let partial = PathBuf::from(partial_name);
    let written = fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, path));
    written.map_err(|source| {
        // The first failure is the one to report; a remnant that cannot be removed adds nothing.
        let _ = fs::remove_file(&partial);
        FileError { action: "write", path: path.to_owned(), source }
    })
}
