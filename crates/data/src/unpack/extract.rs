//! Entries of an archive, written below a folder and nowhere else.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::tar::{Entries, Entry, Kind};
use super::{READ_BYTES, UnpackError};

/// A folder that an archive is unpacked into.
pub(super) struct Folder {
    path: PathBuf,
    root: OwnedFd,
    /// The folder that the last entry was written to, and its path in the root.
    last: Option<(Vec<u8>, OwnedFd)>,
    buffer: Vec<u8>,
}

const OPEN_FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Until all is written; what is executable is so at once.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const EXECUTABLE: u32 = 0o111;

/// Why an entry is not written.
enum Failure {
    Refused(&'static str),
    Read(UnpackError),
    System(io::Error),
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Failure {
        Failure::System(error.into())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::System(error)
    }
}

impl Folder {
    /// Makes it; it must not be there.
    pub(super) fn make(path: &Path) -> Result<Folder, UnpackError> {
        let failed = |error: Errno| UnpackError::Write {
            doing: "make",
            path: path.to_owned(),
            source: error.into(),
        };
        rustix::fs::mkdir(path, Mode::from_raw_mode(FOLDER_MODE)).map_err(failed)?;
        let root = rustix::fs::open(path, OPEN_FOLDER, Mode::empty()).map_err(failed)?;
        Ok(Folder { path: path.to_owned(), root, last: None, buffer: vec![0; READ_BYTES] })
    }

    /// Writes an entry, with the bytes that follow it.
    pub(super) fn write(
        &mut self,
        entry: &Entry,
        entries: &mut Entries<impl Read>,
    ) -> Result<(), UnpackError> {
        self.put(entry, entries).map_err(|failure| match failure {
            Failure::Refused(why) => UnpackError::Entry { entry: entry.shown(), why },
            Failure::Read(error) => error,
            Failure::System(source) => {
                UnpackError::Write { doing: "write", path: self.path.join(entry.shown()), source }
            }
        })
    }

    fn put(&mut self, entry: &Entry, entries: &mut Entries<impl Read>) -> Result<(), Failure> {
        if entry.kind == Kind::Folder {
            return self.enter(&entry.path);
        }
        let (folder, name) = split(&entry.path);
        let target = match &entry.kind {
            // Found first: the folder that is entered last is that of the entry.
            Kind::HardLink(target) => {
                let (folder, name) = split(target);
                self.enter(folder)?;
                Some((self.here().try_clone()?, name))
            }
            _ => None,
        };
        self.enter(folder)?;
        match &entry.kind {
            Kind::Folder => {}
            Kind::File(size) => {
                let file = anew(self.here(), name, || {
                    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    let executable = if entry.is_executable { EXECUTABLE } else { 0 };
                    let mode = Mode::from_raw_mode(FILE_MODE | executable);
                    rustix::fs::openat(self.here(), name, flags, mode)
                })?;
                let file = File::from(file);
                copy(&mut entries.bytes(*size), &file, *size, &mut self.buffer)?;
                entries.pad(*size).map_err(Failure::Read)?;
                // Compiled Python is valid for a source of just this time.
                let seconds = i64::try_from(entry.modified).unwrap_or(0);
                let at = Timespec { tv_sec: seconds, tv_nsec: 0 };
                let times = Timestamps { last_access: at, last_modification: at };
                rustix::fs::futimens(&file, &times)?;
            }
            Kind::Symlink(target) => {
                anew(self.here(), name, || {
                    rustix::fs::symlinkat(target.as_slice(), self.here(), name)
                })?;
            }
            Kind::HardLink(_) => {
                let Some((from, target)) = target else { return Ok(()) };
                let found = rustix::fs::statat(&from, target, AtFlags::SYMLINK_NOFOLLOW);
                if matches!(found, Err(Errno::NOENT)) {
                    return Err(Failure::Refused("is a link to what is not before it"));
                }
                let here = rustix::fs::statat(self.here(), name, AtFlags::SYMLINK_NOFOLLOW);
                if let (Ok(found), Ok(here)) = (&found, &here)
                    && (found.st_dev, found.st_ino) == (here.st_dev, here.st_ino)
                {
                    return Ok(());
                }
                anew(self.here(), name, || {
                    rustix::fs::linkat(&from, target, self.here(), name, AtFlags::empty())
                })?;
            }
        }
        Ok(())
    }

    /// The folder that was entered last.
    fn here(&self) -> &OwnedFd {
        self.last.as_ref().map_or(&self.root, |(_, folder)| folder)
    }

    /// Goes to a folder, which is made if it is not there; not through links.
    fn enter(&mut self, path: &[u8]) -> Result<(), Failure> {
        if self.last.as_ref().is_some_and(|(last, _)| last == path) {
            return Ok(());
        }
        self.last = None;
        let mut folder: Option<OwnedFd> = None;
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let above = folder.as_ref().unwrap_or(&self.root);
            let next = match rustix::fs::openat(above, part, OPEN_FOLDER, Mode::empty()) {
                Err(Errno::NOENT) => {
                    rustix::fs::mkdirat(above, part, Mode::from_raw_mode(FOLDER_MODE))?;
                    rustix::fs::openat(above, part, OPEN_FOLDER, Mode::empty())?
                }
                Err(Errno::LOOP | Errno::NOTDIR) => {
                    let why = "is within what the archive has as a file or a link";
                    return Err(Failure::Refused(why));
                }
                found => found?,
            };
            folder = Some(next);
        }
        self.last = folder.map(|folder| (path.to_vec(), folder));
        Ok(())
    }
}

/// The folder of a path, and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// Makes what may be there already, from an earlier entry of that name: the last
/// one counts.
fn anew<T>(
    folder: &OwnedFd,
    name: &[u8],
    make: impl Fn() -> Result<T, Errno>,
) -> Result<T, Failure> {
    match make() {
        Err(Errno::EXIST) => {
            match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
                Err(Errno::ISDIR | Errno::PERM) => {
                    return Err(Failure::Refused("is a folder in the archive too"));
                }
                removed => removed?,
            }
            Ok(make()?)
        }
        made => Ok(made?),
    }
}

fn copy(from: &mut impl Read, mut to: &File, size: u64, buffer: &mut [u8]) -> Result<(), Failure> {
    let mut left = size;
    while left > 0 {
        let read = match from.read(buffer) {
            Ok(0) => {
                let error = UnpackError::Damaged("it ends within an entry");
                return Err(Failure::Read(error));
            }
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Failure::Read(super::tar::read_error(error))),
        };
        to.write_all(&buffer[..read])?;
        left -= read as u64;
    }
    Ok(())
}
