//! Going through all folders below one, however deep they are: with one folder
//! open at a time, and none of the stack.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::io::Errno;

pub(super) const OPEN_FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What is done on the way.
pub(super) trait Visitor {
    /// Does what is to be done in a folder; returns the folders within, which are
    /// visited then.
    fn enter(&mut self, folder: &OwnedFd) -> Result<Vec<CString>, Errno>;

    /// Before a folder within this one is opened.
    fn before(&mut self, above: &OwnedFd, name: &CStr) -> Result<(), Errno>;

    /// When all of a folder within this one has been visited.
    fn after(&mut self, above: &OwnedFd, name: &CStr) -> Result<(), Errno>;
}

/// A folder on the way to the one that is open.
struct Above {
    device: u64,
    inode: u64,
    /// Its folder that leads there.
    name: CString,
    /// Those that are to be visited after it.
    rest: Vec<CString>,
}

/// Visits a folder and all folders below it. Symbolic links are not followed.
pub(super) fn descend(root: OwnedFd, visitor: &mut impl Visitor) -> Result<(), Errno> {
    let mut rest = visitor.enter(&root)?;
    let mut here = root;
    let mut way: Vec<Above> = Vec::new();
    loop {
        if let Some(name) = rest.pop() {
            let found = fstat(&here)?;
            visitor.before(&here, &name)?;
            let below = openat(&here, &name, OPEN_FOLDER, Mode::empty())?;
            let within = visitor.enter(&below)?;
            let rest = std::mem::replace(&mut rest, within);
            way.push(Above { device: found.st_dev, inode: found.st_ino, name, rest });
            here = below;
        } else if let Some(above) = way.pop() {
            here = openat(&here, c"..", OPEN_FOLDER, Mode::empty())?;
            let found = fstat(&here)?;
            if (found.st_dev, found.st_ino) != (above.device, above.inode) {
                // Somebody moves folders about: this one leads elsewhere now.
                return Err(Errno::STALE);
            }
            visitor.after(&here, &above.name)?;
            rest = above.rest;
        } else {
            return Ok(());
        }
    }
}
