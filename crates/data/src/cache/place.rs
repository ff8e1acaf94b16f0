//! Putting an object where a task finds it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::ioctl_ficlone;

use super::OBJECT_MODE;
use super::tier::Tier;
use crate::store::{CopyError, Steps, copy_range};

/// The access of a task to an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only read it. If it does otherwise, the object is lost here, and only
    /// here.
    Read,
    /// The task gets a copy of its own.
    Write,
}

/// How an object was put in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// As a file that shares the object's blocks until one of the two is
    /// written.
    Shared,
    /// As another name of the object.
    Linked,
    /// As a symbolic link to the object.
    Pointed,
    /// As a copy of the object.
    Copied,
}

/// Puts the object in `file`, of `bytes` bytes and named `object`, at `at`.
pub(super) fn place(
    tier: &Tier,
    object: &Path,
    file: &File,
    bytes: u64,
    at: &Path,
    access: Access,
) -> io::Result<Placed> {
    with_folder(at, || attempt(tier, object, file, bytes, at, access))
}

/// Makes the object of these `metadata` and named `object` known as `at` too.
pub(super) fn link(object: &Path, metadata: &fs::Metadata, at: &Path) -> io::Result<Placed> {
    with_folder(at, || {
        // A task may have made it writable through another name.
        if !is_protected(metadata) {
            fs::set_permissions(object, fs::Permissions::from_mode(OBJECT_MODE))?;
        }
        name(object, at)
    })
}

/// Whether no user may write the file.
pub(super) fn is_protected(metadata: &fs::Metadata) -> bool {
    metadata.mode() & 0o777 == OBJECT_MODE
}

/// Tries again with the folder that `at` is to be in, if that is missing.
fn with_folder(at: &Path, attempt: impl Fn() -> io::Result<Placed>) -> io::Result<Placed> {
    match (attempt(), at.parent()) {
        (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(folder)?;
            attempt()
        }
        (result, _) => result,
    }
}

fn attempt(
    tier: &Tier,
    object: &Path,
    file: &File,
    bytes: u64,
    at: &Path,
    access: Access,
) -> io::Result<Placed> {
    if access == Access::Write {
        let target = File::options().write(true).create_new(true).open(at)?;
        return match copy_range(file, 0..bytes, &target, 0, &Steps::default()) {
            Ok(copied) if copied == bytes => Ok(Placed::Copied),
            Ok(_) | Err(CopyError::Stopped) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(CopyError::Read(error) | CopyError::Write(error)) => {
                // Half a copy is of no use to the task.
                let _ = fs::remove_file(at);
                Err(error)
            }
        };
    }
    if !tier.shares_no_blocks() {
        let target = File::options().write(true).create_new(true).mode(OBJECT_MODE).open(at)?;
        if ioctl_ficlone(&target, file).is_ok() {
            return Ok(Placed::Shared);
        }
        tier.learn_that_it_shares_no_blocks();
        fs::remove_file(at)?;
    }
    // A task may have made it writable through another name.
    if !is_protected(&file.metadata()?) {
        file.set_permissions(fs::Permissions::from_mode(OBJECT_MODE))?;
    }
    name(object, at)
}

/// Gives `object` another name, or makes a link to it where that cannot be.
fn name(object: &Path, at: &Path) -> io::Result<Placed> {
    match fs::hard_link(object, at) {
        Ok(()) => Ok(Placed::Linked),
        Err(error) => match error.kind() {
            // Another file system, one without such links, too many of them, or
            // another user's file.
            io::ErrorKind::CrossesDevices
            | io::ErrorKind::Unsupported
            | io::ErrorKind::TooManyLinks
            | io::ErrorKind::PermissionDenied => {
                std::os::unix::fs::symlink(std::path::absolute(object)?, at)?;
                Ok(Placed::Pointed)
            }
            _ => Err(error),
        },
    }
}
