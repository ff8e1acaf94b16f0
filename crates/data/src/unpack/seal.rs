//! What was unpacked: made read-only, counted, and removed in the end.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode};
use rustix::io::Errno;

use super::descent::{OPEN_FOLDER, Visitor, descend};
use super::{BLOCK_BYTES, UnpackError, blocks};

/// What is left of the modes in an archive: nobody writes, everybody reads, and
/// what was executable is.
const READ: u32 = 0o444;
const EXECUTE: u32 = 0o111;
const OWN: u32 = 0o700;

/// Takes everybody's right to write away from all that is in a folder. Says how
/// many bytes it takes.
pub(super) fn seal(folder: &Path) -> Result<u64, UnpackError> {
    let failed = |source: io::Error| UnpackError::Write {
        doing: "make read-only",
        path: folder.to_owned(),
        source,
    };
    let root = rustix::fs::open(folder, OPEN_FOLDER, Mode::empty());
    let mut seal = Seal { bytes: 0, linked: HashSet::new() };
    let sealed = root.and_then(|root| descend(root, &mut seal));
    sealed.map_err(|error| failed(error.into()))?;
    Ok(seal.bytes)
}

struct Seal {
    bytes: u64,
    /// Files with several names that were counted.
    linked: HashSet<(u64, u64)>,
}

impl Visitor for Seal {
    fn enter(&mut self, folder: &OwnedFd) -> Result<Vec<CString>, Errno> {
        let mut folders = Vec::new();
        let mut bytes = BLOCK_BYTES;
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let more = match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => {
                    folders.push(name.to_owned());
                    0
                }
                FileType::RegularFile => {
                    let execute = if found.st_mode & EXECUTE != 0 { EXECUTE } else { 0 };
                    let mode = Mode::from_raw_mode(READ | execute);
                    rustix::fs::chmodat(folder, name, mode, AtFlags::empty())?;
                    let is_first =
                        found.st_nlink < 2 || self.linked.insert((found.st_dev, found.st_ino));
                    blocks(if is_first { u64::try_from(found.st_size).unwrap_or(0) } else { 0 })
                }
                _ => blocks(0),
            };
            bytes = bytes.saturating_add(more);
        }
        rustix::fs::fchmod(folder, Mode::from_raw_mode(READ | EXECUTE))?;
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(folders)
    }

    fn before(&mut self, _above: &OwnedFd, _name: &CStr) -> Result<(), Errno> {
        Ok(())
    }

    fn after(&mut self, _above: &OwnedFd, _name: &CStr) -> Result<(), Errno> {
        Ok(())
    }
}

/// Removes a folder with all that is in it, whatever the modes. That there is
/// none is no error. A symbolic link is removed, not followed.
///
/// # Errors
/// The operating system's reason; the rest may be there still.
pub fn remove(folder: &Path) -> io::Result<()> {
    match remove_at(CWD, folder) {
        Err(Errno::NOENT) => Ok(()),
        result => Ok(result?),
    }
}

fn remove_at(above: impl AsFd + Copy, name: &Path) -> Result<(), Errno> {
    if !is_folder_after_unlink(above, name)? {
        return Ok(());
    }
    make_own(above, name)?;
    let root = rustix::fs::openat(above, name, OPEN_FOLDER, Mode::empty())?;
    descend(root, &mut Remove)?;
    rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR)
}

/// Removes a file. Returns whether it is a folder instead, and stays.
fn is_folder_after_unlink<P: rustix::path::Arg + Copy>(
    above: impl AsFd + Copy,
    name: P,
) -> Result<bool, Errno> {
    match rustix::fs::unlinkat(above, name, AtFlags::empty()) {
        // Which of these a folder is depends on the system.
        Err(Errno::ISDIR | Errno::PERM | Errno::ACCESS) => {}
        result => return result.map(|()| false),
    }
    let found = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => Ok(true),
        _ => Err(Errno::ACCESS),
    }
}

fn make_own(above: impl AsFd, name: impl rustix::path::Arg) -> Result<(), Errno> {
    rustix::fs::chmodat(above, name, Mode::from_raw_mode(OWN), AtFlags::empty())
}

struct Remove;

impl Visitor for Remove {
    fn enter(&mut self, folder: &OwnedFd) -> Result<Vec<CString>, Errno> {
        let mut folders = Vec::new();
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if ![c".", c".."].contains(&name) && is_folder_after_unlink(folder.as_fd(), name)? {
                folders.push(name.to_owned());
            }
        }
        Ok(folders)
    }

    fn before(&mut self, above: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        make_own(above, name)
    }

    fn after(&mut self, above: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR)
    }
}
