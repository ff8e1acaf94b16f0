//! The directories that tasks with data objects run in.
//!
//! A directory is used by one task after another, emptied in between: making
//! and removing one takes some file systems longer than the rest of a task that
//! finds its inputs in the cache.

use falkon_core::execute::TaskKey;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Empty directories that are kept for tasks to come.
const KEPT_DIRECTORIES_MAX: usize = 256;
/// Files that are removed without the help of another thread.
const QUICK_FILES_MAX: usize = 64;

/// A directory, as it was made.
#[derive(Debug)]
struct Sandbox {
    path: PathBuf,
    /// File system and number, by which it is known again: a task may put
    /// something else in its place.
    identity: (u64, u64),
    permissions: Permissions,
}

/// The directories of the tasks of an executor.
#[derive(Debug)]
pub(super) struct Sandboxes {
    /// Where they are: of this executor alone, as others may use the same
    /// scratch directory, and gone with it.
    folder: PathBuf,
    used: BTreeMap<TaskKey, Sandbox>,
    kept: Arc<Mutex<Vec<Sandbox>>>,
    made: u64,
}

/// What has to be done for a directory whose task is over, which may take long.
pub(super) struct Clearing {
    sandbox: Sandbox,
    kept: Arc<Mutex<Vec<Sandbox>>>,
}

impl Drop for Sandboxes {
    fn drop(&mut self) {
        // There may have been no task with data; and what cannot be removed is
        // in nobody's way.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Sandboxes {
    /// Of an executor that alone uses `folder`, which is made when it is needed.
    pub(super) fn new(folder: PathBuf) -> Sandboxes {
        Sandboxes { folder, used: BTreeMap::new(), kept: Arc::default(), made: 0 }
    }

    /// Where the directories are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// An empty directory for a task.
    pub(super) fn make(&mut self, key: TaskKey) -> io::Result<PathBuf> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let sandbox = match kept.filter(|sandbox| sandbox.is_there()) {
            Some(sandbox) => sandbox,
            None => self.make_another()?,
        };
        let path = sandbox.path.clone();
        self.used.insert(key, sandbox);
        Ok(path)
    }

    fn make_another(&mut self) -> io::Result<Sandbox> {
        let path = self.folder.join(format!("task-{}", self.made));
        self.made += 1;
        // All but the first find their parent there.
        std::fs::create_dir(&path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => std::fs::create_dir_all(&path),
            _ => Err(error),
        })?;
        let metadata = std::fs::symlink_metadata(&path)?;
        let identity = (metadata.dev(), metadata.ino());
        Ok(Sandbox { path, identity, permissions: metadata.permissions() })
    }

    /// A task is over. Returns what is to be done in another thread, because it
    /// may take long; usually nothing.
    pub(super) fn clear(&mut self, key: TaskKey) -> Option<Clearing> {
        let sandbox = self.used.remove(&key)?;
        match sandbox.empty(QUICK_FILES_MAX) {
            Ok(true) => {
                keep(&self.kept, sandbox);
                None
            }
            _ => Some(Clearing { sandbox, kept: self.kept.clone() }),
        }
    }

    /// Removes the directories of all tasks.
    pub(super) fn clear_all(&mut self) {
        for sandbox in std::mem::take(&mut self.used).into_values() {
            // What cannot be removed goes with the folder.
            let _ = std::fs::remove_dir_all(sandbox.path);
        }
    }
}

impl Clearing {
    /// Empties the directory, or removes it if that cannot be done.
    pub(super) fn run(self) {
        if self.sandbox.empty(usize::MAX).is_ok_and(|is_empty| is_empty) {
            keep(&self.kept, self.sandbox);
        } else {
            let _ = std::fs::remove_dir_all(&self.sandbox.path);
        }
    }
}

fn keep(kept: &Mutex<Vec<Sandbox>>, sandbox: Sandbox) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() < KEPT_DIRECTORIES_MAX {
        kept.push(sandbox);
    } else {
        drop(kept);
        let _ = std::fs::remove_dir(&sandbox.path);
    }
}

impl Sandbox {
    fn is_there(&self) -> bool {
        std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| found.is_dir() && (found.dev(), found.ino()) == self.identity)
    }

    /// Removes what is in it, as long as that is up to `quick` names of files
    /// that cost nothing to remove; with `usize::MAX`, whatever it is. Says
    /// whether it is as it was made.
    fn empty(&self, quick: usize) -> io::Result<bool> {
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
        Ok(true)
    }
}

/// The names in a directory and what they are; one more than `names_max` of
/// them at most.
fn entries(directory: &File, names_max: usize) -> io::Result<Vec<(CString, FileType)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if ![c".", c".."].contains(&(entry.file_name() as &CStr)) {
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
mod tests {
    use super::*;
    use falkon_core::task::{InstanceId, TaskId};
    use std::os::unix::fs::PermissionsExt;

    fn key(task: u64) -> TaskKey {
        TaskKey { instance: InstanceId(1), task: TaskId(task) }
    }

    /// Ends a task; says whether that took another thread's help.
    fn clear(sandboxes: &mut Sandboxes, task: u64) -> bool {
        let clearing = sandboxes.clear(key(task));
        let slow = clearing.is_some();
        clearing.into_iter().for_each(Clearing::run);
        slow
    }

    fn is_empty(path: &Path) -> bool {
        std::fs::read_dir(path).unwrap().next().is_none()
    }

    #[test]
    fn a_directory_is_used_again_once_it_is_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("kept");
        std::fs::write(&kept, "x").unwrap();
        let mut sandboxes = Sandboxes::new(dir.path().join("all"));
        let first = sandboxes.make(key(1)).unwrap();
        let mode = first.metadata().unwrap().permissions();
        std::fs::hard_link(&kept, first.join("in")).unwrap();
        std::fs::write(first.join("empty"), "").unwrap();
        assert!(!clear(&mut sandboxes, 1), "names alone are removed at once");
        let second = sandboxes.make(key(2)).unwrap();
        assert_eq!(second, first);
        assert!(is_empty(&second));
        std::fs::create_dir_all(second.join("deep/er")).unwrap();
        std::fs::write(second.join("deep/er/file"), "y").unwrap();
        std::os::unix::fs::symlink(dir.path(), second.join("link")).unwrap();
        std::fs::set_permissions(&second, PermissionsExt::from_mode(0o1700)).unwrap();
        assert_ne!(sandboxes.make(key(3)).unwrap(), second, "it is in use");
        assert!(clear(&mut sandboxes, 2));
        assert_eq!(sandboxes.make(key(4)).unwrap(), second);
        assert!(is_empty(&second));
        assert_eq!(second.metadata().unwrap().permissions(), mode);
        assert_eq!(std::fs::read(&kept).unwrap(), b"x");
        drop(sandboxes);
        assert!(!dir.path().join("all").exists());
    }

    #[test]
    fn what_a_task_puts_in_the_place_of_its_directory_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let precious = dir.path().join("precious");
        std::fs::create_dir(&precious).unwrap();
        std::fs::write(precious.join("file"), "x").unwrap();
        let mut sandboxes = Sandboxes::new(dir.path().join("all"));
        let path = sandboxes.make(key(1)).unwrap();
        std::fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        clear(&mut sandboxes, 1);
        assert_eq!(std::fs::read(precious.join("file")).unwrap(), b"x");
        // One that went while nobody used it is not given to a task.
        let path = sandboxes.make(key(2)).unwrap();
        clear(&mut sandboxes, 2);
        std::fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        let other = sandboxes.make(key(3)).unwrap();
        assert_ne!(other, path);
        assert!(is_empty(&other));
    }
}
