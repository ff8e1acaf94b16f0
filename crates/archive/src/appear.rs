//! A file of a set while it is written: beside its place, under another name,
//! which it changes for the first free one of the set when it is whole and on
//! stable storage. Its writer has a lock on it as long as it lives. So whoever
//! writes to the set later, on the same machine, knows files that were never
//! finished from those that are being written, and removes them.

use crate::regular;
use crate::set::directory_of;
use falkon_core::archive::limits::SET_FILES_MAX;
use falkon_core::archive::{file_name, machine_number, unfinished_name};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
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
            let unfinished = unfinished_name(name, machine(), token);
            let path = first.with_file_name(OsStr::from_bytes(&unfinished));
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => {
                    if is_kept(&file)? {
                        return Ok(Unfinished { file, path, first: first.to_owned() });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes it the first file of the set from `number` on that does not exist.
    /// If it is to last, its data and its name are on stable storage when this returns.
    pub(crate) fn appear(mut self, number: u32, is_lasting: bool) -> io::Result<(PathBuf, u32)> {
        if is_lasting {
            self.file.sync_all()?;
        }
        let name = self.first.file_name().unwrap_or_default().as_bytes().to_vec();
        for number in number..=SET_FILES_MAX {
            let path = self.first.with_file_name(OsStr::from_bytes(&file_name(&name, number)));
            match rename_to_free(&self.path, &path) {
                Ok(()) => {
                    self.path = PathBuf::new();
                    if is_lasting {
                        File::open(directory_of(&path))?.sync_all()?;
                    }
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

/// Locks a new file. Whether it is still there: somebody may have found it before
/// that, and taken it for one whose writer is gone.
fn is_kept(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file.metadata()?.nlink() > 0),
        Err(Errno::WOULDBLOCK) => Ok(false),
        // Without locks, nobody takes it for that.
        Err(_) => Ok(true),
    }
}

/// Removes those of a set's unfinished files whose writers have certainly ended:
/// they were on this machine since it was started, and have no lock any more.
pub(crate) fn sweep(unfinished: &[(u64, PathBuf)]) {
    let machine = machine();
    for (_, path) in unfinished.iter().filter(|(of, _)| *of == machine && machine != UNKNOWN) {
        let Ok((file, _)) = regular::open(path) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // One that stays is no file of the set.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A machine that does not say which it is.
const UNKNOWN: u64 = 0;

/// This machine since it was started. A lock of a process on another one may not be
/// seen here: not all network file systems have one lock for all.
fn machine() -> u64 {
    falkon_lock::boot_id().map_or(UNKNOWN, |boot| machine_number(&boot))
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
