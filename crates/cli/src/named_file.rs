//! Files that the user names to be written: there whole, or as they were.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// How a file that the user names is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NamedFile {
    /// A regular file, or nothing yet: another file takes its name once that
    /// is whole. A link to one is followed, and stays.
    Renamed(PathBuf),
    /// A device, a pipe or a socket: it is opened and written to, and stays
    /// what it is.
    Written(PathBuf),
}

/// Finds out how `path` is written.
///
/// # Errors
/// The path is a directory, or cannot be looked at.
pub(crate) fn resolve(path: &Path) -> io::Result<NamedFile> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        Ok(found) if found.is_file() => fs::canonicalize(path).map(NamedFile::Renamed),
        Ok(_) => Ok(NamedFile::Written(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_link(path) {
            // A link that leads nowhere yet: its file is made where it leads.
            Ok(_) => Ok(NamedFile::Written(path.to_owned())),
            Err(_) => Ok(NamedFile::Renamed(path.to_owned())),
        },
        Err(error) => Err(error),
    }
}

/// Writes a small file.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_with(path, |file| file.write_all(bytes))
}

/// Has `fill` write a file.
pub(crate) fn write_with(
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let target = match resolve(path)? {
        // Made if a link leads to where nothing is.
        NamedFile::Written(path) => return fill(&mut open(&path)?),
        NamedFile::Renamed(path) => path,
    };
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let partial = target.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&partial)?;
    let written = fill(&mut file).and_then(|()| fs::rename(&partial, &target));
    if written.is_err() {
        // A part of the file is useless.
        let _ = fs::remove_file(&partial);
    }
    written
}

/// Opens what stays what it is.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_devices_stay_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "old").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        std::os::unix::fs::symlink("made", path("dangling")).unwrap();
        for name in ["new", "file", "link", "dangling"] {
            write(&path(name), name.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(path(name)).unwrap(), name);
        }
        assert!(path("link").is_symlink() && path("dangling").is_symlink());
        assert_eq!(fs::read_to_string(path("made")).unwrap(), "dangling");
        assert_eq!(
            resolve(Path::new("/dev/null")).unwrap(),
            NamedFile::Written("/dev/null".into())
        );
        assert_eq!(write(dir.path(), b"").unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 5);
    }
}
