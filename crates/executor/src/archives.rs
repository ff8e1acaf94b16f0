//! Outputs that are staged for archives, and the archives that are written from
//! them. What is written when is the core's concern.

use falkon_archive::{Source, WriteError, WriteOptions, Writer};
use falkon_core::collect::{ItemId, WriteFailure};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Threads that pack the members of one file: tasks have the other processors.
const THREADS_MAX: usize = 2;

/// The folder of staged outputs.
#[derive(Debug, Clone)]
pub(super) struct Staged {
    folder: Arc<Path>,
}

impl Staged {
    /// Staged outputs go into this folder, which is made for the first.
    pub(super) fn new(folder: PathBuf) -> Staged {
        Staged { folder: folder.into() }
    }

    fn path(&self, item: ItemId) -> PathBuf {
        self.folder.join(item.0.to_string())
    }

    /// Takes a task's output out of its directory. Returns the bytes that are free
    /// here afterwards.
    pub(super) fn stage(&self, item: ItemId, output: &Path) -> Result<u64, String> {
        let target = self.path(item);
        let failed = |error: io::Error| {
            format!("cannot move the output {} to {}: {error}", output.display(), target.display())
        };
        let is_file = std::fs::symlink_metadata(output).map_err(failed)?.is_file();
        let take = || match is_file {
            true => std::fs::rename(output, &target),
            // What a link leads to may be gone with the directory.
            false => std::fs::copy(output, &target).map(|_| ()),
        };
        match take() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(&self.folder).map_err(failed)?;
                take().map_err(failed)?;
            }
            done => done.map_err(failed)?,
        }
        let free = rustix::fs::statvfs(&*self.folder);
        // A disk that does not say what is free is taken to have room.
        Ok(free.map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize)))
    }

    /// Writes staged outputs into one file of an archive's set, whose directory is
    /// made if it is missing.
    pub(super) fn write(
        &self,
        archive: &str,
        members: &[(ItemId, Arc<str>)],
    ) -> Result<(), WriteFailure> {
        let path = Path::new(archive);
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(|error| {
                io_failure(format!("cannot create {}", directory.display()), &error)
            })?;
        }
        let default = WriteOptions::default();
        let threads = default.threads.min(THREADS_MAX);
        let options = WriteOptions { threads, append: true, ..default };
        let written = Writer::create(path, options).and_then(|mut writer| {
            for (item, name) in members {
                writer.add(name.as_bytes().to_vec(), Source::File(self.path(*item)))?;
            }
            writer.finish()
        });
        written.map(|_| ()).map_err(|error| self.failure(error))
    }

    fn failure(&self, error: WriteError) -> WriteFailure {
        let text = error.to_string();
        match error {
            WriteError::Io { error, .. } if is_final(&error) => WriteFailure::Refused(text),
            WriteError::Io { .. } | WriteError::Read(_) | WriteError::Thread => {
                WriteFailure::Failed(text)
            }
            WriteError::Source { path, .. } | WriteError::Changed { path } => {
                match self.item_of(&path) {
                    Some(item) => WriteFailure::Member(item, text),
                    None => WriteFailure::Refused(text),
                }
            }
            WriteError::Exists { .. }
            | WriteError::Part { .. }
            | WriteError::Name { .. }
            | WriteError::Member { .. } => WriteFailure::Refused(text),
        }
    }

    fn item_of(&self, path: &Path) -> Option<ItemId> {
        path.strip_prefix(&self.folder).ok()?.to_str()?.parse().ok().map(ItemId)
    }

    /// Deletes staged outputs.
    pub(super) fn discard(&self, items: &[ItemId]) {
        for item in items {
            // One that stays goes with the folder.
            let _ = std::fs::remove_file(self.path(*item));
        }
    }

    /// Deletes all of them.
    pub(super) fn clear(&self) {
        // What stays goes with the scratch directory.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn io_failure(what: String, error: &io::Error) -> WriteFailure {
    let text = format!("{what}: {error}");
    if is_final(error) { WriteFailure::Refused(text) } else { WriteFailure::Failed(text) }
}

/// Whether trying again is of no use until somebody has changed something.
fn is_final(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::InvalidFilename
    )
}
