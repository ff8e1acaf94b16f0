//! A file of a set while it is written: beside its place, under another name,
//! which it changes for the first free one of the set when it is whole and on
//! stable storage.

use crate::set::directory_of;
use falkon_core::archive::limits::SET_FILES_MAX;
use falkon_core::archive::{file_name, unfinished_name};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A file that is not whole; it is removed if it never becomes so.
#[derive(Debug)]
pub(crate) struct Unfinished {
    pub(crate) file: File,
    /// Empty once it has appeared.
    path: PathBuf,
    first: PathBuf,
}

impl Unfinished {
    /// Begins a file of the set whose first one is at `first`.
    pub(crate) fn begin(first: &Path) -> io::Result<Unfinished> {
        let name = first.file_name().unwrap_or_default().as_bytes();
        loop {
            let token = RandomState::new().hash_one(std::process::id());
            let path = first.with_file_name(OsStr::from_bytes(&unfinished_name(name, token)));
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Unfinished { file, path, first: first.to_owned() }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Its path until it appears.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it the first file of the set from `number` on that does not exist.
    /// Its data and its name are on stable storage when this returns.
    pub(crate) fn appear(mut self, number: u32) -> io::Result<(PathBuf, u32)> {
        self.file.sync_all()?;
        let name = self.first.file_name().unwrap_or_default().as_bytes().to_vec();
        for number in number..=SET_FILES_MAX {
            let path = self.first.with_file_name(OsStr::from_bytes(&file_name(&name, number)));
            match rename_to_free(&self.path, &path) {
                Ok(()) => {
                    self.path = PathBuf::new();
                    File::open(directory_of(&path))?.sync_all()?;
                    return Ok((path, number));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!(
            "the archive has {SET_FILES_MAX} files, and may have no more"
        )))
    }
}

/// Renames unless the name is taken. File systems without that operation have a
/// second name instead; those without either get the plain one, where another
/// writer may take the name at the same moment.
fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
        done => return done.map_err(io::Error::from),
    }
    match std::fs::hard_link(from, to) {
        Ok(()) => return std::fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
        Err(_) => {}
    }
    match std::fs::symlink_metadata(to) {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => std::fs::rename(from, to),
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.path != Path::new("") {
            // Nobody else knows its name; if it stays, it is no file of the set.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
