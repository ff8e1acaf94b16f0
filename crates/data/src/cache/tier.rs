//! A directory of the cache.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use falkon_core::data::object::ObjectId;
use falkon_core::data::stage::PartialId;

use super::index::{Index, Line};
use super::stamp::Stamp;
use super::trees::{self, TREES};
use super::{CacheError, OpenError};
use falkon_lock::{FolderLock, LockError};

const LOCK_FILE: &str = "lock";
/// The claim that replaces the lock where the file system has none.
const CLAIM_FILE: &str = "claim";
pub(super) const INDEX_FILE: &str = "index";
const PARTS: &str = "parts";
const OBJECTS: &str = "objects";

/// A directory that this process alone uses.
#[derive(Debug)]
pub(super) struct Tier {
    directory: PathBuf,
    /// Anew after the directory was; none if that failed.
    lock: Mutex<Option<FolderLock>>,
    index: Mutex<Index>,
    /// Whether the file system has refused to share blocks.
    shares_no_blocks: AtomicBool,
}

/// An object as it was found.
type Found = (ObjectId, Line, Stamp);

/// Where the unpacked form of an archive was found.
type Unpacked = std::collections::BTreeMap<ObjectId, PathBuf>;

impl Tier {
    /// Makes or takes over the directory; says what is there and in order, and
    /// deletes the rest.
    pub(super) fn open(directory: &Path) -> Result<(Tier, Vec<Found>, Unpacked), OpenError> {
        let lock = take(directory)?;
        let path = directory.join(INDEX_FILE);
        let known = Index::read(&path).map_err(|source| io_error("read", &path, source))?;
        clear(&directory.join(PARTS))?;
        let mut found = survey(&directory.join(OBJECTS), known)?;
        let lines = found.iter().filter_map(|(id, line, _)| Some((*id, line.tree.clone()?)));
        let unpacked = trees::survey(&directory.join(TREES), &lines.collect())?;
        for (id, line, _) in &mut found {
            line.tree = line.tree.take().filter(|_| unpacked.contains_key(id));
        }
        let lines: Vec<(ObjectId, Line)> =
            found.iter().map(|(id, line, _)| (*id, line.clone())).collect();
        let index = Index::write(&path, &lines, false)
            .map_err(|source| io_error("write", &path, source))?;
        let tier = Tier {
            directory: directory.to_owned(),
            lock: Mutex::new(Some(lock)),
            index: Mutex::new(index),
            shares_no_blocks: AtomicBool::new(false),
        };
        Ok((tier, found, unpacked))
    }

    /// Recreates the directory after it was deleted.
    pub(super) fn revive(&self) -> Result<(), OpenError> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if is_deleted(lock.as_ref()) {
            // Not after the other is taken: what it removes in the end has the same name.
            *lock = None;
            *lock = Some(take(&self.directory)?);
        } else {
            make_folders(&self.directory)?;
        }
        clear(&self.directory.join(PARTS))?;
        survey(&self.directory.join(OBJECTS), Default::default())?;
        trees::survey(&self.directory.join(TREES), &Default::default())?;
        Ok(())
    }

    pub(super) fn is_gone(&self) -> bool {
        is_deleted(self.lock.lock().unwrap_or_else(PoisonError::into_inner).as_ref())
            || !self.directory.join(PARTS).is_dir()
            || !self.directory.join(OBJECTS).is_dir()
            || !self.directory.join(TREES).is_dir()
    }

    /// Whether files here are known not to be able to share blocks.
    pub(super) fn shares_no_blocks(&self) -> bool {
        self.shares_no_blocks.load(Ordering::Relaxed)
    }

    /// Records that the file system cannot share blocks.
    pub(super) fn learn_that_it_shares_no_blocks(&self) {
        self.shares_no_blocks.store(true, Ordering::Relaxed);
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn part(&self, partial: PartialId) -> PathBuf {
        self.directory.join(PARTS).join(format!("{}.part", partial.0))
    }

    pub(super) fn path(&self, object: ObjectId) -> PathBuf {
        let name = object.to_string();
        self.directory.join(OBJECTS).join(&name[..2]).join(name)
    }

    /// Renames within the directory; the folder of the new name is made when
    /// it is first needed.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::rename(from, to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Not with all its parents: a directory that was deleted is not
                // to come back half.
                if let Some(Err(error)) = to.parent().map(fs::create_dir)
                    && error.kind() != io::ErrorKind::AlreadyExists
                {
                    return Err(error);
                }
                fs::rename(from, to)
            }
            result => result,
        }
    }

    /// Brings all that was written to the disk.
    pub(super) fn sync(&self, all: bool) -> io::Result<()> {
        if all {
            rustix::fs::syncfs(File::open(&self.directory)?)?;
        }
        Ok(())
    }

    /// Converts an error of the operating system.
    pub(super) fn failed(&self, doing: &'static str, path: &Path, source: io::Error) -> CacheError {
        if crate::store::is_full(&source) {
            return CacheError::Full { directory: self.directory.clone(), source };
        }
        if source.kind() == io::ErrorKind::NotFound && self.is_gone() {
            return CacheError::Gone { directory: self.directory.clone() };
        }
        CacheError::Io { doing, path: path.to_owned(), source }
    }
}

fn io_error(doing: &'static str, path: &Path, source: io::Error) -> OpenError {
    OpenError::Io { doing, path: path.to_owned(), source }
}

fn is_deleted(lock: Option<&FolderLock>) -> bool {
    let Some(lock) = lock else { return true };
    lock.file().metadata().is_ok_and(|now| now.nlink() == 0)
}

fn make_folders(directory: &Path) -> Result<(), OpenError> {
    for folder in [PARTS, OBJECTS, TREES] {
        let path = directory.join(folder);
        fs::create_dir_all(&path).map_err(|source| io_error("make", &path, source))?;
    }
    Ok(())
}

/// Makes a directory with its folders and takes its lock.
fn take(directory: &Path) -> Result<FolderLock, OpenError> {
    make_folders(directory)?;
    let path = directory.join(LOCK_FILE);
    let failed = |source| io_error("lock", &path, source);
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    let mut text = String::new();
    // The owner is for people to read, and for nothing else.
    let _ = file.read_to_string(&mut text);
    let lock = FolderLock::take(file, &directory.join(CLAIM_FILE)).map_err(|error| {
        let directory = directory.to_owned();
        match error {
            LockError::Held => OpenError::Locked { directory, pid: text.trim().parse().ok() },
            LockError::Claimed(claimed) => OpenError::Claimed { directory, claimed },
            LockError::Io(source) => failed(source),
        }
    })?;
    let mut file = lock.file();
    let written = file.set_len(0).and_then(|()| file.rewind());
    written.and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
    Ok(lock)
}

/// Deletes what was being made when the last executor ended.
fn clear(parts: &Path) -> Result<(), OpenError> {
    for entry in fs::read_dir(parts).map_err(|source| io_error("read", parts, source))? {
        let path = entry.map_err(|source| io_error("read", parts, source))?.path();
        fs::remove_file(&path).map_err(|source| io_error("delete", &path, source))?;
    }
    Ok(())
}

/// Goes through the objects. What is not known, or not what it was, is deleted.
fn survey(
    objects: &Path,
    mut known: std::collections::BTreeMap<ObjectId, Line>,
) -> Result<Vec<Found>, OpenError> {
    let mut found = Vec::new();
    let read = |path: &Path| {
        let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        entries.map_err(|source| io_error("read", path, source))
    };
    for folder in read(objects)? {
        for entry in read(&folder.path())? {
            let (path, name) = (entry.path(), entry.file_name());
            let id = name.to_str().and_then(ObjectId::parse);
            let now = entry.metadata().map_err(|source| io_error("look at", &path, source))?;
            let stamp = Stamp::of(&now);
            match id.and_then(|id| Some((id, known.remove(&id)?))) {
                Some((id, line)) if now.is_file() && line.stamp() == stamp => {
                    found.push((id, line, stamp));
                }
                _ => fs::remove_file(&path).map_err(|source| io_error("delete", &path, source))?,
            }
        }
    }
    // The order of a directory's entries is any; that of ids is one.
    found.sort_by_key(|(id, ..)| *id);
    Ok(found)
}
