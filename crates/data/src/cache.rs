//! The cache on disk, about which `falkon_core::data::cache` decides.
//!
//! Each directory (a tier, fastest first) holds
//! - `lock`, which one executor at a time has locked,
//! - `parts/N.part`, files that are being made,
//! - `objects/XX/ID`, whole objects, mode 0444, under their ids (`XX` is the
//!   first two digits),
//! - `trees/ID.N`, archives unpacked, which nobody is to write,
//! - `index`, what the objects are, so that they can be used after a restart.
//!
//! An object gets its name when it is complete and checked, so a name never
//! stands for half an object. Its size, inode and modification time are kept in
//! mind and compared at each use: an object that a task wrote to, against its
//! mode, is lost and not handed on.
//!
//! After a restart of the machine what was not synced may be missing in any
//! order, so only a cache that was left in order ([`DiskCache::record`]) is
//! used again then; after the death of a process alone all of it is.

mod error;
mod index;
mod place;
mod stamp;
mod tier;
mod trees;

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use falkon_core::data::cache::{Recorded, TierId};
use falkon_core::data::object::{CONTENT_PREFIX, Object, ObjectId};
use falkon_core::data::stage::PartialId;

use crate::store::{CopyError, Steps, copy_range};
use falkon_process::FileMark;

pub use error::{CacheError, OpenError};
use index::{Index, Line};
pub use place::{Access, Placed};
use stamp::Stamp;
use tier::Tier;
use trees::Trees;
pub use trees::{Fallen, UnpackingError};

/// The mode of an object, which no task may write. It may be a program: whether its source could
/// be run is no part of an object.
const OBJECT_MODE: u32 = 0o555;

/// How far back an object's modification time is set, so that a write a moment
/// later shows, however coarse the file system's clock.
const BACKDATED: Duration = Duration::from_secs(2);

/// The number of superseded lines that an index may have, besides one for each
/// object, before it is rewritten.
const INDEX_WASTE_LINES_MAX: usize = 4096;

/// Objects in files. All calls block for as long as the disk takes; those that
/// copy or hash for as long as that takes.
#[derive(Debug)]
pub struct DiskCache {
    tiers: Vec<Tier>,
    held: Mutex<BTreeMap<ObjectId, Resident>>,
    trees: Trees,
}

/// Where else an object is that is taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copies {
    /// Somewhere, or it can be made again.
    Elsewhere,
    /// Nowhere: it is not to be evicted after a restart either, however that comes
    /// about.
    OnlyHere,
}

/// An object that is there.
#[derive(Debug)]
struct Resident {
    tier: TierId,
    stamp: Stamp,
    line: Line,
}

/// An object that was there before a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reused {
    /// The object itself.
    pub object: Object,
    /// Where it is, and what was last recorded of its use.
    pub recorded: Recorded,
}

impl DiskCache {
    /// Opens the cache in these directories, which are made if they are not
    /// there, and says what is in it. What is half-written, damaged or unknown
    /// is deleted.
    ///
    /// # Errors
    /// [`OpenError`] if a directory cannot be used, or is in use.
    pub fn open(directories: &[PathBuf]) -> Result<(DiskCache, Vec<Reused>), OpenError> {
        let mut tiers = Vec::new();
        let mut held = BTreeMap::new();
        let mut reused = Vec::new();
        let mut trees = Vec::new();
        for (number, directory) in (0u8..).zip(directories) {
            let id = TierId(number);
            let (tier, found, unpacked) = Tier::open(directory)?;
            trees.extend(unpacked.into_iter().map(|(object, path)| (object, id, path)));
            for (object, line, stamp) in found {
                reused.push(Reused {
                    object: line.object(object),
                    recorded: line.recorded(object, id),
                });
                // The fastest directory's is used; the core has the other one
                // deleted.
                held.entry(object).or_insert(Resident { tier: id, stamp, line });
            }
            tiers.push(tier);
        }
        let trees = Trees::restore(trees.into_iter());
        let cache = DiskCache { tiers, held: Mutex::new(held), trees };
        for number in (0u8..).take(cache.tiers.len()) {
            cache
                .rewrite(TierId(number), false)
                .map_err(|error| OpenError::Index(Box::new(error)))?;
        }
        Ok((cache, reused))
    }

    /// The file that an object is being made in; it is made if it is not there.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn partial(&self, tier: TierId, partial: PartialId) -> Result<File, CacheError> {
        let tier = self.tier(tier)?;
        let path = tier.part(partial);
        let options =
            File::options().read(true).write(true).create(true).truncate(false).open(&path);
        options.map_err(|error| tier.failed("make", &path, error))
    }

    /// The file that an object is being made in, for reading; nothing if it is not
    /// being made there any more.
    #[must_use]
    pub fn read_partial(&self, tier: TierId, partial: PartialId) -> Option<File> {
        File::open(self.tier(tier).ok()?.part(partial)).ok()
    }

    /// Checks a file that is complete, and puts it into the object's place.
    /// The hash is checked if the object's version is one.
    ///
    /// # Errors
    /// [`CacheError`]; the file is then gone.
    pub fn seal(
        &self,
        tier: TierId,
        partial: PartialId,
        object: &Object,
        size: u64,
        copies: Copies,
    ) -> Result<(), CacheError> {
        let part = self.tier(tier)?.part(partial);
        let result = self.publish(tier, &part, object, size, copies);
        if result.is_err() {
            self.discard(tier, partial);
        }
        result
    }

    /// Moves a task's output into the cache, or copies it if it is on another
    /// file system.
    ///
    /// # Errors
    /// [`CacheError`]; the output is then where it was.
    pub fn adopt(
        &self,
        tier: TierId,
        partial: PartialId,
        object: &Object,
        output: &Path,
        copies: Copies,
    ) -> Result<(), CacheError> {
        let of = self.tier(tier)?;
        let part = of.part(partial);
        let failed = |error| of.failed("read", output, error);
        let file = File::open(output).map_err(failed)?;
        let now = file.metadata().map_err(failed)?;
        let size = object.size.unwrap_or(now.len());
        if !now.is_file() {
            return Err(CacheError::Wrong {
                object: object.id,
                reason: "it is no plain file".to_owned(),
            });
        }
        // A file with another name, an input perhaps, must not change under
        // that name; and the target of a link is not in the sandbox.
        let is_alone =
            now.nlink() == 1 && fs::symlink_metadata(output).map_err(failed)?.file_type().is_file();
        if is_alone {
            match fs::rename(output, &part) {
                Ok(()) => {
                    let result = self.publish(tier, &part, object, size, copies);
                    if result.is_err() {
                        // The file is returned as far as possible.
                        let _ = fs::set_permissions(&part, now.permissions());
                        let _ = fs::rename(&part, output);
                    }
                    return result;
                }
                Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
                Err(error) => return Err(of.failed("move", output, error)),
            }
        }
        let copy = self.partial(tier, partial)?;
        let copied = copy_range(&file, 0..now.len(), &copy, 0, &Steps::default());
        if let Err(error) = copied {
            self.discard(tier, partial);
            return Err(match error {
                CopyError::Read(error) => failed(error),
                CopyError::Write(error) => of.failed("write", &part, error),
                CopyError::Stopped => failed(io::ErrorKind::Interrupted.into()),
            });
        }
        self.seal(tier, partial, object, size, copies)?;
        // The copy counts; what is left of the output goes with its sandbox.
        let _ = fs::remove_file(output);
        Ok(())
    }

    /// Deletes a file that was being made.
    pub fn discard(&self, tier: TierId, partial: PartialId) {
        if let Ok(tier) = self.tier(tier) {
            // The file may never have been created.
            let _ = fs::remove_file(tier.part(partial));
        }
    }

    /// Deletes an object. Whoever has it open can read on. Returns its unpacked
    /// form, if it has one: that is nobody's any more, and is to be removed.
    ///
    /// # Errors
    /// [`CacheError`]; that there is none is no error.
    pub fn delete(&self, tier: TierId, object: ObjectId) -> Result<Option<Fallen>, CacheError> {
        self.lose(tier, object)?;
        Ok(self.fell(tier, object))
    }

    /// Deletes the file of an object that is not what it was. Its unpacked form
    /// stays for those who use it.
    fn lose(&self, tier: TierId, object: ObjectId) -> Result<(), CacheError> {
        let of = self.tier(tier)?;
        let mut held = self.held();
        if held.get(&object).is_some_and(|held| held.tier == tier) {
            held.remove(&object);
        }
        drop(held);
        match fs::remove_file(of.path(object)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(of.failed("delete", &of.path(object), error))
            }
            _ => Ok(()),
        }
    }

    /// Opens an object for reading and says its size in bytes.
    ///
    /// # Errors
    /// [`CacheError::Lost`] if it is not there, or not what it was.
    pub fn read(&self, object: ObjectId) -> Result<(File, u64), CacheError> {
        let (tier, stamp) = match self.held().get(&object) {
            Some(held) => (held.tier, held.stamp),
            None => return Err(CacheError::Lost { object }),
        };
        let path = self.tier(tier)?.path(object);
        match File::open(&path).and_then(|file| Ok((Stamp::of(&file.metadata()?), file))) {
            Ok((now, file)) if now == stamp => Ok((file, stamp.bytes)),
            Err(error) if is_passing(&error) => {
                Err(CacheError::Io { doing: "open", path, source: error })
            }
            _ => {
                self.lose(tier, object)?;
                Err(CacheError::Lost { object })
            }
        }
    }

    /// Where an object is, for processes that open it themselves.
    #[must_use]
    pub fn path(&self, object: ObjectId) -> Option<PathBuf> {
        let tier = self.held().get(&object)?.tier;
        Some(self.tier(tier).ok()?.path(object))
    }

    /// Puts an object at `at`, where nothing is yet. Missing folders are made.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn place(&self, object: ObjectId, at: &Path, access: Access) -> Result<Placed, CacheError> {
        let held = self.held().get(&object).map(|held| (held.tier, held.stamp));
        let (number, stamp) = held.ok_or(CacheError::Lost { object })?;
        let tier = self.tier(number)?;
        let path = tier.path(object);
        let failed = |error| tier.failed("put an input at", at, error);
        if access == Access::Read && tier.shares_no_blocks() {
            return match fs::symlink_metadata(&path) {
                Ok(found) if Stamp::of(&found) == stamp => {
                    place::link(&path, &found, at).map_err(failed)
                }
                Err(error) if is_passing(&error) => {
                    Err(CacheError::Io { doing: "look at", path, source: error })
                }
                _ => {
                    self.lose(number, object)?;
                    Err(CacheError::Lost { object })
                }
            };
        }
        let (file, bytes) = self.read(object)?;
        place::place(tier, &path, &file, bytes, at, access).map_err(failed)
    }

    /// By what an object is known to be what it was when it came.
    #[must_use]
    pub fn mark(&self, object: ObjectId) -> Option<FileMark> {
        self.held().get(&object).map(|held| held.stamp.mark())
    }

    /// Whether what was put at `at` as another name of the object or a link to
    /// it is the object still, as it was.
    #[must_use]
    pub fn is_intact(&self, object: ObjectId, at: &Path) -> bool {
        let stamp = self.held().get(&object).map(|held| held.stamp);
        stamp.is_some_and(|stamp| {
            fs::metadata(at)
                .is_ok_and(|found| Stamp::of(&found) == stamp && place::is_protected(&found))
        })
    }

    /// Whether a directory was deleted, or taken over, under this executor.
    #[must_use]
    pub fn is_gone(&self, tier: TierId) -> bool {
        self.tier(tier).is_ok_and(Tier::is_gone)
    }

    /// Recreates a directory that is gone, and returns the objects that were
    /// lost with it.
    ///
    /// # Errors
    /// [`OpenError`]; the objects are then forgotten all the same, and later
    /// calls fail with [`CacheError::Gone`].
    pub fn revive(&self, tier: TierId) -> Result<Vec<ObjectId>, OpenError> {
        let mut held = self.held();
        let lost: Vec<ObjectId> =
            held.iter().filter(|(_, held)| held.tier == tier).map(|(id, _)| *id).collect();
        held.retain(|_, held| held.tier != tier);
        drop(held);
        self.forget_trees(tier);
        if let Ok(of) = self.tier(tier) {
            of.revive()?;
            self.rewrite(tier, false).map_err(|error| OpenError::Index(Box::new(error)))?;
        }
        Ok(lost)
    }

    /// Writes down what the core says of the use of all objects, and that the
    /// cache was left in order: all of it is on the disk. For the end of an
    /// executor.
    ///
    /// # Errors
    /// [`CacheError`]; the cache can be used again, if the machine goes on.
    pub fn record(&self, recorded: impl IntoIterator<Item = Recorded>) -> Result<(), CacheError> {
        let mut held = self.held();
        for entry in recorded {
            if let Some(held) = held.get_mut(&entry.object) {
                held.line.note(&entry);
            }
        }
        drop(held);
        for number in (0u8..).take(self.tiers.len()) {
            self.rewrite(TierId(number), true)?;
        }
        Ok(())
    }

    /// Checks a file and gives it the object's name.
    fn publish(
        &self,
        tier: TierId,
        part: &Path,
        object: &Object,
        size: u64,
        copies: Copies,
    ) -> Result<(), CacheError> {
        let of = self.tier(tier)?;
        let failed = |error| of.failed("finish", part, error);
        let file = File::open(part).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let wrong = |reason| CacheError::Wrong { object: object.id, reason };
        if bytes != size {
            return Err(wrong(format!("it has {bytes} bytes and must have {size}")));
        }
        if let Some(hash) = object.version.strip_prefix(CONTENT_PREFIX) {
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(&file).map_err(failed)?;
            let found = hasher.finalize().to_hex();
            if found.as_str() != hash {
                return Err(wrong(format!("the hash of its content is {found}, not {hash}")));
            }
        }
        file.set_permissions(Permissions::from_mode(OBJECT_MODE)).map_err(failed)?;
        let written = std::time::SystemTime::now() - BACKDATED;
        file.set_modified(written).map_err(failed)?;
        let stamp = Stamp::of(&file.metadata().map_err(failed)?);
        let path = of.path(object.id);
        of.rename(part, &path).map_err(failed)?;
        let line = Line::of(object, stamp, copies == Copies::OnlyHere);
        if let Err(error) = of.index().append(object.id, &line) {
            // Without its line it would be unknown after a restart; it goes
            // back, for the caller to delete or to return.
            let _ = fs::rename(&path, part);
            return Err(of.failed("write the index of", &path, error));
        }
        let mut held = self.held();
        held.insert(object.id, Resident { tier, stamp, line });
        let objects = held.len();
        drop(held);
        if of.index().lines() > 2 * objects + INDEX_WASTE_LINES_MAX {
            self.rewrite(tier, false)?;
        }
        Ok(())
    }

    /// Rewrites a directory's index; with all objects synced if it is left in
    /// order.
    fn rewrite(&self, tier: TierId, in_order: bool) -> Result<(), CacheError> {
        let of = self.tier(tier)?;
        let lines: Vec<(ObjectId, Line)> = self
            .held()
            .iter()
            .filter(|(_, held)| held.tier == tier)
            .map(|(id, held)| (*id, held.line.clone()))
            .collect();
        let path = of.directory().join(tier::INDEX_FILE);
        let written = of.sync(in_order).and_then(|()| Index::write(&path, &lines, in_order));
        *of.index() = written.map_err(|error| of.failed("write", &path, error))?;
        Ok(())
    }

    fn tier(&self, tier: TierId) -> Result<&Tier, CacheError> {
        self.tiers.get(usize::from(tier.0)).ok_or(CacheError::NoTier { tier })
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<ObjectId, Resident>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an object may be there although it could not be opened.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

#[cfg(test)]
mod tests;
