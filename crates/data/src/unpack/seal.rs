//! What was unpacked: made read-only, counted, and removed in the end.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{BLOCK_BYTES, UnpackError, blocks};

const OPEN_FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
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
    let mut linked = HashSet::new();
    let sealed = root.map_err(io::Error::from).and_then(|root| seal_folder(root, &mut linked));
    sealed.map_err(failed)
}

/// Seals a folder; `linked` are the files with several names that were counted.
fn seal_folder(folder: OwnedFd, linked: &mut HashSet<(u64, u64)>) -> io::Result<u64> {
    let mut bytes = BLOCK_BYTES;
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        let found = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let more = match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                let below = rustix::fs::openat(&folder, name, OPEN_FOLDER, Mode::empty())?;
                seal_folder(below, linked)?
            }
            FileType::RegularFile => {
                let execute = if found.st_mode & EXECUTE != 0 { EXECUTE } else { 0 };
                let mode = Mode::from_raw_mode(READ | execute);
                rustix::fs::chmodat(&folder, name, mode, AtFlags::empty())?;
                let is_first = found.st_nlink < 2 || linked.insert((found.st_dev, found.st_ino));
                blocks(if is_first { u64::try_from(found.st_size).unwrap_or(0) } else { 0 })
            }
            _ => blocks(0),
        };
        bytes = bytes.saturating_add(more);
    }
    rustix::fs::fchmod(&folder, Mode::from_raw_mode(READ | EXECUTE))?;
    Ok(bytes)
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

fn remove_at<P: rustix::path::Arg + Copy>(above: impl AsFd + Copy, name: P) -> Result<(), Errno> {
    match rustix::fs::unlinkat(above, name, AtFlags::empty()) {
        // Which of these a folder is depends on the system.
        Err(Errno::ISDIR | Errno::PERM | Errno::ACCESS) => {}
        result => return result,
    }
    let found = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return Err(Errno::ACCESS);
    }
    rustix::fs::chmodat(above, name, Mode::from_raw_mode(OWN), AtFlags::empty())?;
    let folder = File::from(rustix::fs::openat(above, name, OPEN_FOLDER, Mode::empty())?);
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        if ![c".", c".."].contains(&entry.file_name()) {
            remove_at(folder.as_fd(), entry.file_name())?;
        }
    }
    drop(folder);
    rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR)
}
