//! Archives unpacked beside the objects: `trees/ID.N`, made whole before
//! anybody knows of it.
//!
//! The index line of an archive says where its tree is. A tree that no line
//! names is half, or nobody's, and is removed when the cache is opened.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use falkon_core::data::cache::TierId;
use falkon_core::data::object::ObjectId;
use serde::{Deserialize, Serialize};

use super::stamp::Stamp;
use super::{CacheError, DiskCache, OpenError, Resident};
use crate::unpack::{self, UnpackError};

/// The folder of a directory's trees.
pub(super) const TREES: &str = "trees";

/// The tree of an archive, as the index has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TreeLine {
    name: String,
    /// Where it was made: it may know its own place.
    at: PathBuf,
    pub(super) bytes: u64,
}

/// The trees of a cache.
#[derive(Debug, Default)]
pub(super) struct Trees {
    made: Mutex<BTreeMap<ObjectId, (TierId, PathBuf)>>,
    next: AtomicU64,
    removals: Arc<Removals>,
}

/// Trees that are still to be removed: what is unpacked waits for their room.
#[derive(Debug, Default)]
struct Removals {
    open: Mutex<usize>,
    none: Condvar,
}

impl Removals {
    fn wait(&self) {
        let open = self.none.wait_while(lock(&self.open), |open| *open > 0);
        drop(open.unwrap_or_else(PoisonError::into_inner));
    }
}

/// A tree that is of no use any more, to be removed where that may take long.
#[derive(Debug)]
#[must_use]
pub struct Fallen {
    path: PathBuf,
    removals: Arc<Removals>,
}

impl Drop for Fallen {
    fn drop(&mut self) {
        *lock(&self.removals.open) -= 1;
        self.removals.none.notify_all();
    }
}

impl Fallen {
    /// Removes it.
    ///
    /// # Errors
    /// [`CacheError::Io`].
    pub fn remove(self) -> Result<(), CacheError> {
        let (doing, path) = ("remove", self.path.clone());
        unpack::remove(&self.path).map_err(|source| CacheError::Io { doing, path, source })
    }
}

impl Trees {
    /// Those that were found when the cache was opened.
    pub(super) fn restore(found: impl Iterator<Item = (ObjectId, TierId, PathBuf)>) -> Trees {
        let mut made = BTreeMap::new();
        for (object, tier, path) in found {
            made.entry(object).or_insert((tier, path));
        }
        Trees { made: Mutex::new(made), ..Trees::default() }
    }
}

/// Removes what is not the tree of one of these, and says whose is there.
pub(super) fn survey(
    trees: &Path,
    known: &BTreeMap<ObjectId, TreeLine>,
) -> Result<BTreeMap<ObjectId, PathBuf>, OpenError> {
    let failed =
        |doing, path: &Path, source| OpenError::Io { doing, path: path.to_owned(), source };
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(trees).map_err(|error| failed("read", trees, error))? {
        let entry = entry.map_err(|error| failed("read", trees, error))?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_str().unwrap_or_default();
        let object = name.split('.').next().and_then(ObjectId::parse);
        let line = object.and_then(|object| Some((object, known.get(&object)?)));
        match line.filter(|(_, line)| line.name == name && Some(&line.at) == here(&path).as_ref()) {
            Some((object, _)) => {
                found.insert(object, path);
            }
            None => unpack::remove(&path).map_err(|error| failed("remove", &path, error))?,
        }
    }
    Ok(found)
}

/// Where a path is, whoever looks.
fn here(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

impl DiskCache {
    /// Counts what an archive takes when it is unpacked.
    ///
    /// # Errors
    /// [`UnpackingError`].
    pub fn measure(&self, object: ObjectId, bytes_max: u64) -> Result<u64, UnpackingError> {
        let (archive, _) = self.read(object)?;
        Ok(unpack::measure(&archive, bytes_max)?)
    }

    /// Unpacks an archive for [`DiskCache::place_unpacked`]. It must not take more
    /// than so many bytes; says how many it takes.
    ///
    /// # Errors
    /// [`UnpackingError`]; what was made is gone.
    pub fn unpack(&self, object: ObjectId, bytes_max: u64) -> Result<u64, UnpackingError> {
        self.trees.removals.wait();
        let Some((number, stamp)) = self.held().get(&object).map(|held| (held.tier, held.stamp))
        else {
            return Err(CacheError::Lost { object }.into());
        };
        let (archive, _) = self.read(object)?;
        let trees = self.tier(number)?.directory().join(TREES);
        let (path, line) = self.make_tree(object, &trees, &archive, bytes_max)?;
        let bytes = line.bytes;
        if let Err(error) = self.note_tree(object, (number, stamp), &path, line) {
            // Nobody knows of it; what stays is removed when the cache is opened.
            let _ = unpack::remove(&path);
            return Err(error.into());
        }
        Ok(bytes)
    }

    fn make_tree(
        &self,
        object: ObjectId,
        trees: &Path,
        archive: &File,
        bytes_max: u64,
    ) -> Result<(PathBuf, TreeLine), UnpackingError> {
        let (name, path) = loop {
            let name = format!("{object}.{}", self.trees.next.fetch_add(1, Ordering::Relaxed));
            let path = trees.join(&name);
            // One of an earlier executor may have the name: there are few of them.
            if fs::symlink_metadata(&path).is_err() {
                break (name, path);
            }
        };
        let failed = |doing, source| CacheError::Io { doing, path: path.clone(), source };
        match unpack::unpack(archive, &path, bytes_max) {
            Ok(bytes) => {
                let at = path.canonicalize().map_err(|error| failed("find", error))?;
                Ok((path, TreeLine { name, at, bytes }))
            }
            Err(error) => {
                unpack::remove(&path).map_err(|error| failed("remove", error))?;
                Err(error.into())
            }
        }
    }

    /// From here on an archive is there unpacked, also after a restart. One that
    /// was lost and has come again is another.
    fn note_tree(
        &self,
        object: ObjectId,
        (tier, stamp): (TierId, Stamp),
        path: &Path,
        line: TreeLine,
    ) -> Result<(), CacheError> {
        let of = self.tier(tier)?;
        let mut held = self.held();
        let is_same = |held: &&mut Resident| held.tier == tier && held.stamp == stamp;
        let archive = held.get_mut(&object).filter(is_same);
        let Some(archive) = archive else { return Err(CacheError::Lost { object }) };
        archive.line.tree = Some(line);
        let appended = of.index().append(object, &archive.line);
        if let Err(error) = appended {
            archive.line.tree = None;
            return Err(of.failed("write the index of", path, error));
        }
        lock(&self.trees.made).insert(object, (tier, path.to_owned()));
        Ok(())
    }

    /// Puts a link to the unpacked form of an archive at `at`, where nothing is
    /// yet. Missing folders are made.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn place_unpacked(&self, object: ObjectId, at: &Path) -> Result<(), CacheError> {
        let tree = self.tree(object).filter(|tree| tree.is_dir());
        let Some(tree) = tree else { return Err(CacheError::Lost { object }) };
        let failed = |source| CacheError::Io { doing: "put an input at", path: at.into(), source };
        let tree = std::path::absolute(tree).map_err(failed)?;
        let link = || std::os::unix::fs::symlink(&tree, at);
        let linked = link().or_else(|error| match (error.kind(), at.parent()) {
            (io::ErrorKind::NotFound, Some(folder)) => {
                fs::create_dir_all(folder)?;
                link()
            }
            _ => Err(error),
        });
        linked.map_err(failed)
    }

    /// Whether what was put at `at` leads to the unpacked form of an archive.
    #[must_use]
    pub fn is_unpacked_at(&self, object: ObjectId, at: &Path) -> bool {
        let tree = self.tree(object).and_then(|tree| std::path::absolute(tree).ok());
        tree.is_some_and(|tree| tree.is_dir() && fs::read_link(at).is_ok_and(|link| link == tree))
    }

    /// Takes an archive's unpacked form out of use, if it has one.
    pub(super) fn fell(&self, tier: TierId, object: ObjectId) -> Option<Fallen> {
        let mut made = lock(&self.trees.made);
        if made.get(&object).is_none_or(|(of, _)| *of != tier) {
            return None;
        }
        let (_, path) = made.remove(&object)?;
        let removals = self.trees.removals.clone();
        *lock(&removals.open) += 1;
        Some(Fallen { path, removals })
    }

    /// A directory is gone with all that was in it.
    pub(super) fn forget_trees(&self, tier: TierId) {
        lock(&self.trees.made).retain(|_, (of, _)| *of != tier);
    }

    fn tree(&self, object: ObjectId) -> Option<PathBuf> {
        lock(&self.trees.made).get(&object).map(|(_, path)| path.clone())
    }
}

/// Why an archive is not there unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackingError {
    /// The cache did not do it.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The archive is not unpacked.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
