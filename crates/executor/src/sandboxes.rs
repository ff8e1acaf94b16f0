//! The directories that tasks with data objects run in.
//!
//! A directory is used by one task after another: making and removing one takes
//! some file systems longer than the rest of a task that finds its inputs in
//! the cache. What a task has left in it is removed in between, but inputs stay
//! where they are for a task that reads the same: a directory that nothing was
//! put into or taken from still has the modification time that it was given.

use falkon_core::data::object::ObjectId;
use falkon_core::execute::TaskKey;
use falkon_data::cache::{Access, CacheError, DiskCache, Placed};
use falkon_process::Unchanged;
use rustix::fs::{AtFlags, CWD, FileType, IFlags, Mode, OFlags, RawDir, Timespec, Timestamps};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, Permissions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Directories that are kept for tasks to come.
const KEPT_DIRECTORIES_MAX: usize = 256;
/// Inputs that stay in one that is kept.
const KEPT_INPUTS_MAX: usize = 16;
/// Tasks that use a directory one after another. ext4 creates files in the block group of
/// their directory, and looks at every inode there that was freed in the last minute or five
/// before it takes one: after thousands of files that came and went, that takes longer than
/// many tasks. A new directory is in another group ([`Sandboxes::make_folder`]).
const USES_MAX: u32 = 512;
/// Directories that are used no more, and stay for a while: ext4 takes the groups with the
/// fewest directories for new ones.
const WORN_DIRECTORIES_MAX: usize = 256;
/// Files that are removed without the help of another thread.
const QUICK_FILES_MAX: usize = 64;
/// Room for the names that are read from a directory at once.
const NAMES_BYTES: usize = 4096;
/// The modification time of a directory that is as it was made for its task, in
/// seconds: every file system knows it, and none has it by itself.
const UNCHANGED_SECONDS: i64 = 1_000_000_000;
const UNCHANGED: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: UNCHANGED_SECONDS, tv_nsec: 0 },
    last_modification: Timespec { tv_sec: UNCHANGED_SECONDS, tv_nsec: 0 },
};

/// An input, by its name in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: PathBuf,
    pub(super) object: ObjectId,
    /// It is an archive, and there unpacked.
    pub(super) is_unpacked: bool,
    /// It is in a file system, and the task finds a link to it.
    pub(super) is_mounted: bool,
}

/// Where inputs are: in the cache, or in a file system at these paths.
type Places<'a> = (&'a DiskCache, &'a BTreeMap<ObjectId, PathBuf>);

impl Named {
    /// Puts it into a sandbox. Says whether it can stay there.
    fn place(&self, at: &Path, (cache, mounted): Places<'_>) -> Result<bool, CacheError> {
        if self.is_mounted {
            let path = mounted.get(&self.object).ok_or(CacheError::Lost { object: self.object })?;
            let linked = std::os::unix::fs::symlink(path, at);
            let failed = |source| CacheError::Io { doing: "link to", path: path.clone(), source };
            return linked.map(|()| false).map_err(failed);
        }
        if self.is_unpacked {
            return cache.place_unpacked(self.object, at).map(|()| true);
        }
        let placed = cache.place(self.object, at, Access::Read)?;
        // An input that shares an object's blocks would have to be compared with it.
        Ok(matches!(placed, Placed::Linked | Placed::Pointed))
    }

    /// Whether it is there still, as it was put there.
    fn is_intact(&self, at: &Path, cache: &DiskCache) -> bool {
        match self.is_unpacked {
            true => cache.is_unpacked_at(self.object, at),
            false => cache.is_intact(self.object, at),
        }
    }
}

/// A directory, as it was made.
#[derive(Debug)]
struct Sandbox {
    path: PathBuf,
    /// File system and number, by which it is known again: a task may put
    /// something else in its place.
    identity: (u64, u64),
    permissions: Permissions,
    /// The inputs in the directory, and nothing else, as long as it is
    /// unchanged.
    inputs: Vec<Named>,
    /// An input of the directory has left the cache, so the directory is not
    /// kept with its inputs.
    is_stale: bool,
    /// Tasks that have used it.
    uses: u32,
}

/// The directories of the tasks of an executor.
#[derive(Debug)]
pub(super) struct Sandboxes {
    /// Where they are: of this executor alone, as others may use the same
    /// scratch directory, and gone with it.
    folder: PathBuf,
    /// In the names of directories: ext4 chooses among groups by the name, and those of the
    /// executor that was here a moment ago are full of files that it has deleted.
    mark: u16,
    used: BTreeMap<TaskKey, Sandbox>,
    kept: IdleSandboxes,
    worn: WornSandboxes,
    made: u64,
}

/// Directories for tasks to come: the one used last is at the end.
type IdleSandboxes = Arc<Mutex<Vec<Sandbox>>>;

/// Empty directories that no task uses any more, the oldest first.
type WornSandboxes = Arc<Mutex<VecDeque<PathBuf>>>;

/// Why there is no directory for a task.
#[derive(Debug)]
pub(super) enum MakeError {
    /// The directory cannot be made.
    Directory(io::Error),
    /// This input cannot be put into it.
    Input(ObjectId, CacheError),
}

/// The remaining work on a directory whose task is over, which may take long.
pub(super) struct Clearing {
    sandbox: Sandbox,
    kept: IdleSandboxes,
    worn: WornSandboxes,
}

impl Drop for Sandboxes {
    fn drop(&mut self) {
        // No task may have had data, and files that cannot be removed do no
        // harm.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Sandboxes {
    /// Of an executor that alone uses `folder`, which is made when it is needed. `mark`
    /// differs from one executor to the next.
    pub(super) fn new(folder: PathBuf, mark: u16) -> Sandboxes {
        let (kept, worn) = (Arc::default(), Arc::default());
        Sandboxes { folder, mark, used: BTreeMap::new(), kept, worn, made: 0 }
    }

    /// Where the directories are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A directory for a task with these inputs of the cache in it, and nothing
    /// else.
    pub(super) fn make(
        &mut self,
        key: TaskKey,
        inputs: &[Named],
        places: Places<'_>,
    ) -> Result<PathBuf, MakeError> {
        let mut sandbox = match self.take_kept(inputs) {
            Some(sandbox) => sandbox,
            None => self.make_another().map_err(MakeError::Directory)?,
        };
        sandbox.uses += 1;
        let result = sandbox.fill(inputs, places);
        let path = sandbox.path.clone();
        self.used.insert(key, sandbox);
        result.map(|()| path)
    }

    /// The inputs in a task's directory that other tasks could change, which
    /// have the same file.
    pub(super) fn shared(&self, key: TaskKey, cache: &DiskCache) -> Vec<Unchanged> {
        let Some(sandbox) = self.used.get(&key) else { return Vec::new() };
        let files = sandbox.inputs.iter().filter(|input| !input.is_unpacked);
        let shared = files.filter_map(|input| {
            let path = sandbox.path.join(&input.name).into_os_string().into_vec();
            Some(Unchanged { path, mark: cache.mark(input.object)? })
        });
        shared.collect()
    }

    /// The directory that has the most of these inputs, and of those the one
    /// with the least besides.
    fn take_kept(&mut self, inputs: &[Named]) -> Option<Sandbox> {
        let mut kept = lock(&self.kept);
        while !kept.is_empty() {
            let common = |sandbox: &Sandbox| {
                sandbox.inputs.iter().filter(|input| inputs.contains(input)).count()
            };
            let fitness = |sandbox: &Sandbox| {
                let common = common(sandbox);
                (common, usize::MAX - (sandbox.inputs.len() - common))
            };
            let best = (0..kept.len()).rev().max_by_key(|at| fitness(&kept[*at]))?;
            let mut sandbox = kept.remove(best);
            if sandbox.is_as_it_was_made(QUICK_FILES_MAX) {
                return Some(sandbox);
            }
        }
        None
    }

    fn make_another(&mut self) -> io::Result<Sandbox> {
        let path = self.folder.join(format!("task-{:04x}-{}", self.mark, self.made));
        self.made += 1;
        // All but the first find their parent there.
        std::fs::create_dir(&path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => self.make_folder().and_then(|()| std::fs::create_dir(&path)),
            _ => Err(error),
        })?;
        let metadata = std::fs::symlink_metadata(&path)?;
        mark_unchanged_at(&path);
        let identity = (metadata.dev(), metadata.ino());
        let permissions = metadata.permissions();
        let inputs = Vec::new();
        Ok(Sandbox { path, identity, permissions, inputs, is_stale: false, uses: 0 })
    }

    /// Makes the folder of the directories. ext4 is told that these have nothing to do with
    /// each other: it spreads them over its block groups, as it does those in `/`.
    fn make_folder(&self) -> io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        // Most other file systems have no such flag.
        let folder = File::open(&self.folder)?;
        if let Ok(flags) = rustix::fs::ioctl_getflags(&folder) {
            let _ = rustix::fs::ioctl_setflags(&folder, flags | IFlags::TOPDIR);
        }
        Ok(())
    }

    /// The size of a file that a task has left directly in its directory; nothing for
    /// whatever may need another file system.
    pub(super) fn size_of_plain(&self, path: &Path) -> Option<u64> {
        self.open_parent(path)?.plain_size()
    }

    /// Moves such a file to another place of the same file system. Returns whether it is
    /// there.
    pub(super) fn move_plain(&self, path: &Path, to: &Path) -> bool {
        let Some(place) = self.open_parent(path) else { return false };
        place.plain_size().is_some()
            && rustix::fs::renameat(&place.directory, place.name, CWD, to).is_ok()
    }

    /// Opens the directory of a task in which a file is.
    fn open_parent<'a>(&self, path: &'a Path) -> Option<InDirectory<'a>> {
        let (directory, name) = (path.parent()?, path.file_name()?);
        if directory.parent()? != self.folder {
            return None;
        }
        // Not what a task may have put in its place.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(directory, flags, Mode::empty()).ok()?;
        Some(InDirectory { directory, name })
    }

    /// A task is over. Returns what is to be done in another thread, because it
    /// may take long; usually nothing.
    pub(super) fn clear(&mut self, key: TaskKey) -> Option<Clearing> {
        let mut sandbox = self.used.remove(&key)?;
        if !sandbox.is_worn() && sandbox.is_as_it_was_made(QUICK_FILES_MAX) {
            keep(&self.kept, sandbox);
            return None;
        }
        Some(Clearing { sandbox, kept: self.kept.clone(), worn: self.worn.clone() })
    }

    /// An object is not in the cache any more: no directory that is not in use
    /// is to keep its blocks.
    pub(super) fn forget(&mut self, object: ObjectId) {
        let holds = |sandbox: &Sandbox| sandbox.inputs.iter().any(|input| input.object == object);
        for sandbox in self.used.values_mut() {
            sandbox.is_stale |= holds(sandbox);
        }
        lock(&self.kept).retain_mut(|sandbox| {
            if !holds(sandbox) || matches!(sandbox.empty(usize::MAX), Ok(true)) {
                return true;
            }
            let _ = std::fs::remove_dir_all(&sandbox.path);
            false
        });
    }

    /// Removes the directories of all tasks.
    pub(super) fn clear_all(&mut self) {
        for sandbox in std::mem::take(&mut self.used).into_values() {
            // A directory that cannot be removed goes with the folder.
            let _ = std::fs::remove_dir_all(sandbox.path);
        }
    }
}

impl Clearing {
    /// Empties the directory, or removes it if that cannot be done or others are to come.
    pub(super) fn run(mut self) {
        if self.sandbox.is_worn() {
            if matches!(self.sandbox.empty(usize::MAX), Ok(true)) {
                return retire(&self.worn, self.sandbox.path);
            }
        } else if self.sandbox.is_as_it_was_made(usize::MAX) {
            return keep(&self.kept, self.sandbox);
        }
        let _ = std::fs::remove_dir_all(&self.sandbox.path);
    }
}

/// A directory is used no more.
fn retire(worn: &Mutex<VecDeque<PathBuf>>, path: PathBuf) {
    let mut worn = worn.lock().unwrap_or_else(PoisonError::into_inner);
    worn.push_back(path);
    let oldest = (worn.len() > WORN_DIRECTORIES_MAX).then(|| worn.pop_front()).flatten();
    drop(worn);
    if let Some(oldest) = oldest {
        let _ = std::fs::remove_dir(oldest);
    }
}

fn lock(kept: &Mutex<Vec<Sandbox>>) -> MutexGuard<'_, Vec<Sandbox>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep(kept: &Mutex<Vec<Sandbox>>, sandbox: Sandbox) {
    let mut kept = lock(kept);
    kept.push(sandbox);
    let oldest = (kept.len() > KEPT_DIRECTORIES_MAX).then(|| kept.remove(0));
    drop(kept);
    if let Some(oldest) = oldest {
        let _ = std::fs::remove_dir_all(&oldest.path);
    }
}

/// A name in an open directory of a task.
struct InDirectory<'a> {
    directory: OwnedFd,
    name: &'a OsStr,
}

impl InDirectory<'_> {
    /// The size of a file; nothing for links, folders and what is not there.
    fn plain_size(&self) -> Option<u64> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let found = rustix::fs::statat(&self.directory, self.name, flags).ok()?;
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        is_file.then_some(u64::try_from(found.st_size).ok()?)
    }
}

impl Sandbox {
    /// Whether enough tasks have used it.
    fn is_worn(&self) -> bool {
        self.uses >= USES_MAX
    }

    /// Whether it has its inputs in it and nothing else, or was emptied, as far
    /// as [`Sandbox::empty`] does that.
    fn is_as_it_was_made(&mut self, quick: usize) -> bool {
        (!self.is_stale && self.is_unchanged()) || matches!(self.empty(quick), Ok(true))
    }

    /// Whether it exists, and no process has added or removed an entry since it
    /// was filled.
    fn is_unchanged(&self) -> bool {
        std::fs::symlink_metadata(&self.path).is_ok_and(|found| {
            found.is_dir()
                && (found.dev(), found.ino()) == self.identity
                && (found.mtime(), found.mtime_nsec()) == (UNCHANGED_SECONDS, 0)
                && found.permissions() == self.permissions
        })
    }

    /// Puts these inputs there, where others may be already, and takes away
    /// what else is there.
    fn fill(&mut self, inputs: &[Named], places: Places<'_>) -> Result<(), MakeError> {
        let here = std::mem::take(&mut self.inputs);
        let mut is_changed = false;
        for input in here {
            let path = self.path.join(&input.name);
            if inputs.contains(&input) && input.is_intact(&path, places.0) {
                self.inputs.push(input);
            } else {
                is_changed = true;
                std::fs::remove_file(path).map_err(MakeError::Directory)?;
            }
        }
        let mut can_stay = inputs.len() <= KEPT_INPUTS_MAX;
        let here = self.inputs.len();
        for input in inputs {
            if self.inputs[..here].contains(input) {
                continue;
            }
            is_changed = true;
            can_stay &= input.name.components().count() == 1;
            match input.place(&self.path.join(&input.name), places) {
                Ok(true) => self.inputs.push(input.clone()),
                Ok(false) => can_stay = false,
                Err(error) => return Err(MakeError::Input(input.object, error)),
            }
        }
        if is_changed && can_stay {
            mark_unchanged_at(&self.path);
        }
        Ok(())
    }

    /// Removes what is in it, as long as that is up to `quick` names of files
    /// that cost nothing to remove; with `usize::MAX`, whatever it is. Says
    /// whether it is as it was made.
    fn empty(&mut self, quick: usize) -> io::Result<bool> {
        // Not what a task may have put in its place, or a link to elsewhere.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = File::from(rustix::fs::open(&self.path, flags, Mode::empty())?);
        let metadata = directory.metadata()?;
        if (metadata.dev(), metadata.ino()) != self.identity {
            return Ok(false);
        }
        if metadata.permissions() != self.permissions {
            directory.set_permissions(self.permissions.clone())?;
        }
        let entries = entries(&directory, quick)?;
        if entries.len() > quick {
            return Ok(false);
        }
        for (name, kind) in entries {
            let is_quick = || -> io::Result<bool> {
                let found = rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW)?;
                // The last name of a file gives its blocks back.
                Ok(found.st_nlink > 1 || found.st_blocks == 0)
            };
            if kind == FileType::Directory {
                if quick != usize::MAX {
                    return Ok(false);
                }
                remove_below(&directory, &name)?;
            } else if quick == usize::MAX || is_quick()? {
                rustix::fs::unlinkat(&directory, &name, AtFlags::empty())?;
            } else {
                return Ok(false);
            }
        }
        self.inputs.clear();
        self.is_stale = false;
        mark_unchanged(&directory);
        Ok(true)
    }
}

/// Gives a directory the time by which it is known that nothing was changed in
/// it since. Where the file system cannot do that, everything is taken out
/// instead.
fn mark_unchanged_at(path: &Path) {
    let _ = rustix::fs::utimensat(CWD, path, &UNCHANGED, AtFlags::SYMLINK_NOFOLLOW);
}

/// Marks an open directory as unchanged; see [`mark_unchanged_at`].
fn mark_unchanged(directory: &File) {
    let _ = rustix::fs::futimens(directory, &UNCHANGED);
}

/// The names in a directory and what they are; one more than `names_max` of
/// them at most.
fn entries(directory: &File, names_max: usize) -> io::Result<Vec<(CString, FileType)>> {
    let mut found = Vec::new();
    let mut names = [MaybeUninit::uninit(); NAMES_BYTES];
    let mut entries = RawDir::new(directory, &mut names);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if ![c".", c".."].contains(&entry.file_name()) {
            found.push((entry.file_name().to_owned(), entry.file_type()));
            if found.len() > names_max {
                break;
            }
        }
    }
    Ok(found)
}

/// Removes a directory in another that is open, wherever that is now.
fn remove_below(directory: &File, name: &CStr) -> io::Result<()> {
    let open = format!("/proc/self/fd/{}", directory.as_raw_fd());
    std::fs::remove_dir_all(Path::new(&open).join(OsStr::from_bytes(name.to_bytes())))
}

#[cfg(test)]
mod tests;
