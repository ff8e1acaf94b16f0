//! The bytes that a directory and all below it have on their file system: allocated blocks, each
//! file once, whatever the process that owns the tree does to it meanwhile.
//!
//! A walk is made in small steps, so that one of a million files delays no other. It opens no file,
//! follows no link and enters no other file system. A directory that it cannot read, that vanishes
//! or that is moved is passed over; what it has seen by then counts.

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, StatxFlags, openat, statx};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Room for the names that one step reads.
const NAMES_BYTES: usize = 16 << 10;
/// The unit in which the kernel counts blocks.
const BLOCK_BYTES: u64 = 512;
/// Directories on the way to the current one that stay open.
const OPEN_LEVELS_MAX: usize = 32;
/// Directories within directories; what is below is not seen.
const LEVELS_MAX: usize = 1 << 16;
/// Names of directories that wait to be entered, in bytes; others are not seen.
const WAITING_NAMES_BYTES_MAX: usize = 16 << 20;
/// Files that are remembered, in order to count each once.
const REMEMBERED_FILES_MAX: usize = 1 << 20;

const OPEN_FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// The files that a walk remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remember {
    /// Files with several names.
    Linked,
    /// All: one that is renamed during the walk counts once, too.
    All,
}

/// A walk through a tree. See the [module](self).
#[derive(Debug)]
pub(super) struct Walk {
    device: (u32, u32),
    levels: Vec<Level>,
    remember: Remember,
    remembered: HashSet<(u32, u32, u64)>,
    waiting_bytes: usize,
    bytes: u64,
}

/// A directory on the way to the current one, or the current one.
#[derive(Debug)]
struct Level {
    /// `None` if it is to be opened again, from the one below it.
    folder: Option<OwnedFd>,
    inode: u64,
    is_read: bool,
    /// Directories in it that are to be entered.
    rest: Vec<CString>,
}

impl Level {
    fn new(folder: OwnedFd, inode: u64) -> Level {
        Level { folder: Some(folder), inode, is_read: false, rest: Vec::new() }
    }
}

/// What is known of a file without opening it.
struct Found {
    is_folder: bool,
    device: (u32, u32),
    inode: u64,
    links: u32,
    bytes: u64,
}

/// Looks at a file. `may_wait` is false for what may be the root of another file system: its
/// server, which may not answer, is not asked.
fn look(folder: impl AsFd, name: &CStr, may_wait: bool) -> Result<Found, Errno> {
    let wait = if may_wait { AtFlags::empty() } else { AtFlags::STATX_DONT_SYNC };
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | wait;
    let wanted = StatxFlags::TYPE | StatxFlags::NLINK | StatxFlags::INO | StatxFlags::BLOCKS;
    let found = statx(folder, name, flags, wanted)?;
    let kind = rustix::fs::FileType::from_raw_mode(u32::from(found.stx_mode));
    Ok(Found {
        is_folder: kind == rustix::fs::FileType::Directory,
        device: (found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        links: found.stx_nlink,
        bytes: found.stx_blocks.saturating_mul(BLOCK_BYTES),
    })
}

impl Walk {
    /// Of what is in a directory, without the directory itself.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub(super) fn new(folder: &Path, remember: Remember) -> Result<Walk, Errno> {
        let root = rustix::fs::open(folder, OPEN_FOLDER, Mode::empty())?;
        let found = statx(&root, c"", AtFlags::EMPTY_PATH, StatxFlags::INO)?;
        Ok(Walk {
            device: (found.stx_dev_major, found.stx_dev_minor),
            levels: vec![Level::new(root, found.stx_ino)],
            remember,
            remembered: HashSet::new(),
            waiting_bytes: 0,
            bytes: 0,
        })
    }

    /// What was seen so far, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes a step; returns whether there is another one to make.
    pub(super) fn step(&mut self) -> bool {
        let Some(level) = self.levels.last_mut() else { return false };
        if !level.is_read {
            self.read_names();
        } else if let Some(name) = level.rest.pop() {
            self.waiting_bytes -= bytes_of(&name);
            self.enter(&name);
        } else {
            self.leave();
        }
        !self.levels.is_empty()
    }

    /// Looks at some files of the current directory.
    fn read_names(&mut self) {
        let Some(level) = self.levels.last_mut() else { return };
        let Some(folder) = level.folder.take() else {
            level.is_read = true;
            return;
        };
        let mut names = [MaybeUninit::uninit(); NAMES_BYTES];
        let mut entries = RawDir::new(&folder, &mut names);
        let mut is_read = false;
        loop {
            match entries.next() {
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    if ![c".", c".."].contains(&name) {
                        let is_file = entry.file_type() == rustix::fs::FileType::RegularFile;
                        if let Ok(found) = look(&folder, name, is_file) {
                            self.count(name, &found);
                        }
                    }
                }
                Some(Err(Errno::INTR)) => {}
                Some(Err(_)) | None => {
                    is_read = true;
                    break;
                }
            }
            if entries.is_buffer_empty() {
                break;
            }
        }
        if let Some(level) = self.levels.last_mut() {
            level.folder = Some(folder);
            level.is_read = is_read;
        }
    }

    /// Counts a file of the current directory.
    fn count(&mut self, name: &CStr, found: &Found) {
        if found.is_folder && found.device != self.device {
            return;
        }
        let is_remembered = match self.remember {
            Remember::Linked => !found.is_folder && found.links > 1,
            Remember::All => true,
        };
        if is_remembered {
            let (major, minor) = found.device;
            let file = (major, minor, found.inode);
            let is_full = self.remembered.len() >= REMEMBERED_FILES_MAX;
            let is_first = match is_full {
                true => !self.remembered.contains(&file),
                false => self.remembered.insert(file),
            };
            // One with several names that cannot be remembered would count too often.
            if !is_first || (is_full && found.links > 1 && !found.is_folder) {
                return;
            }
        }
        self.bytes = self.bytes.saturating_add(found.bytes);
        let more = bytes_of(name);
        if found.is_folder
            && self.waiting_bytes + more <= WAITING_NAMES_BYTES_MAX
            && let Some(level) = self.levels.last_mut()
        {
            self.waiting_bytes += more;
            level.rest.push(name.to_owned());
        }
    }

    fn enter(&mut self, name: &CStr) {
        if self.levels.len() >= LEVELS_MAX {
            return;
        }
        let Some(folder) = self.levels.last().and_then(|level| level.folder.as_ref()) else {
            return;
        };
        // It may be another one by now than the one that was counted.
        let Ok(found) = look(folder, name, false) else { return };
        if !found.is_folder || found.device != self.device {
            return;
        }
        let Ok(folder) = openat(folder, name, OPEN_FOLDER, Mode::empty()) else { return };
        self.levels.push(Level::new(folder, found.inode));
        if let Some(closed) = self.levels.len().checked_sub(OPEN_LEVELS_MAX + 1) {
            // The root stays open: from there the walk would have no way back.
            if closed > 0 {
                self.levels[closed].folder = None;
            }
        }
    }

    /// Goes back to the directory above.
    fn leave(&mut self) {
        let Some(below) = self.levels.pop() else { return };
        let Some(above) = self.levels.last_mut() else { return };
        if above.folder.is_some() {
            return;
        }
        let opened = below.folder.and_then(|below| {
            let folder = openat(&below, c"..", OPEN_FOLDER, Mode::empty()).ok()?;
            let found = statx(&folder, c"", AtFlags::EMPTY_PATH, StatxFlags::INO).ok()?;
            let device = (found.stx_dev_major, found.stx_dev_minor);
            (found.stx_ino == above.inode && device == self.device).then_some(folder)
        });
        above.folder = opened;
        if above.folder.is_none() {
            // Somebody has moved directories about: the rest of this one is passed over.
            above.is_read = true;
            let rest = std::mem::take(&mut above.rest);
            self.waiting_bytes -= rest.iter().map(|name| bytes_of(name)).sum::<usize>();
        }
    }
}

fn bytes_of(name: &CStr) -> usize {
    name.to_bytes().len() + size_of::<CString>()
}

#[cfg(test)]
mod tests;
