//! Outputs that are staged for archives, and the archives that are written from
//! them. What is written when is the core's concern.

use falkon_archive::{ReadError, Source, WriteError, WriteOptions, Writer, join};
use falkon_core::archive::FileBounds;
use falkon_core::archive::limits::FILE_MEMBERS_MAX;
use falkon_core::collect::{ItemId, MemberName, WriteFailure, WriteId};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Threads that pack the members of one file: tasks have the other processors.
const THREADS_MAX: usize = 2;

/// Staged outputs in one file, which goes with this.
#[derive(Debug)]
pub(super) struct Handed {
    path: PathBuf,
    pub(super) file: std::fs::File,
    pub(super) bytes: u64,
}

impl Drop for Handed {
    fn drop(&mut self) {
        // One that stays goes with the folder.
        let _ = std::fs::remove_file(&self.path);
    }
}

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

    /// Where an output is when it is staged.
    pub(super) fn path(&self, item: ItemId) -> PathBuf {
        self.folder.join(item.0.to_string())
    }

    /// Whether a file is staged: it must stay where it is.
    pub(super) fn has(&self, path: &Path) -> bool {
        path.parent() == Some(&*self.folder)
    }

    /// Has `adopt` take a staged file over, which then copies it: a file of two names.
    pub(super) fn with_second_name<T>(
        path: &Path,
        adopt: impl FnOnce(&Path) -> T,
    ) -> io::Result<T> {
        let second = path.with_extension("stays");
        std::fs::hard_link(path, &second)?;
        let adopted = adopt(&second);
        // Who has copied it has removed it.
        let _ = std::fs::remove_file(&second);
        Ok(adopted)
    }

    /// Takes a task's output out of its directory. Returns the bytes that are free
    /// here afterwards.
    pub(super) fn stage(&self, item: ItemId, output: &Path) -> Result<u64, String> {
        let target = self.path(item);
        let failed = |error: io::Error| {
            format!("cannot move the output {} to {}: {error}", output.display(), target.display())
        };
        let is_file = std::fs::symlink_metadata(output).map_err(failed)?.is_file();
        let copy = || std::fs::copy(output, &target).map(|_| ());
        let take = || match is_file {
            true => match std::fs::rename(output, &target) {
                Err(error) if error.kind() == io::ErrorKind::CrossesDevices => copy(),
                done => done,
            },
            // What a link leads to may be gone with the directory.
            false => copy(),
        };
        self.make(take).map_err(failed)
    }

    /// Puts what a task has printed into a file. Returns the bytes that are free here
    /// afterwards.
    pub(super) fn stage_bytes(&self, item: ItemId, bytes: &[u8]) -> Result<u64, String> {
        let target = self.path(item);
        self.make(|| std::fs::write(&target, bytes)).map_err(|error| {
            // A part of it is of no use, and the disk may be full of it.
            let _ = std::fs::remove_file(&target);
            format!("cannot write {}: {error}", target.display())
        })
    }

    /// Makes a staged output, in the folder, which is made for the first. Returns the
    /// bytes that are free afterwards.
    fn make(&self, make: impl Fn() -> io::Result<()>) -> io::Result<u64> {
        match make() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(&self.folder)?;
                make()?;
            }
            done => done?,
        }
        Ok(self.free())
    }

    /// The bytes that are free.
    pub(super) fn free(&self) -> u64 {
        let free = rustix::fs::statvfs(&*self.folder);
        // A disk that does not say what is free is taken to have room.
        free.map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Packs staged outputs into a file that is handed to another executor.
    pub(super) fn pack(
        &self,
        write: WriteId,
        members: &[(ItemId, MemberName)],
    ) -> Result<Handed, WriteFailure> {
        let path = self.folder.join(format!("handed-{}.zip", write.0));
        let bounds = FileBounds { members: FILE_MEMBERS_MAX, bytes: u64::MAX };
        let options = WriteOptions { bounds, is_lasting: false, ..self.options() };
        let files =
            self.write_members(&path, options, members).map_err(|failure| match failure {
                WriteFailure::Failed(error) | WriteFailure::Refused(error) => {
                    WriteFailure::NotTaken(error)
                }
                other => other,
            })?;
        // What this executor cannot pack here it may be able to write there.
        let failed = |error: io::Error| {
            WriteFailure::NotTaken(format!("cannot read {}: {error}", path.display()))
        };
        let [only] = &files[..] else {
            return Err(WriteFailure::NotTaken("it is too much for one file".to_owned()));
        };
        let file = std::fs::File::open(only).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        Ok(Handed { path, file, bytes })
    }

    fn options(&self) -> WriteOptions {
        let default = WriteOptions::default();
        WriteOptions { threads: default.threads.min(THREADS_MAX), append: true, ..default }
    }

    fn write_members(
        &self,
        path: &Path,
        options: WriteOptions,
        members: &[(ItemId, MemberName)],
    ) -> Result<Vec<PathBuf>, WriteFailure> {
        let failure = |error| self.failure(path, error);
        let mut writer = Writer::create(path, options).map_err(failure)?;
        for (item, name) in members {
            let staged = self.path(*item);
            match name {
                Some(name) => {
                    let name = name.as_bytes().to_vec();
                    writer.add(name, Source::File(staged)).map_err(failure)?;
                }
                None => match join(&mut writer, &staged) {
                    Ok(_) => {}
                    // It is that archive which cannot be read.
                    Err(WriteError::Read(error)) => {
                        return Err(WriteFailure::Member(*item, error.to_string()));
                    }
                    Err(error) => return Err(failure(error)),
                },
            }
        }
        writer.finish().map_err(failure)
    }

    /// Writes staged outputs into one file of an archive's set, whose directory is
    /// made if it is missing. Returns the path by which they are found: of that file,
    /// or of the archive if they had to be several.
    pub(super) fn write(
        &self,
        archive: &str,
        members: &[(ItemId, MemberName)],
    ) -> Result<Arc<str>, WriteFailure> {
        let path = Path::new(archive);
        if let Some(directory) = path.parent() {
            make_directory(directory).map_err(|error| {
                let text = format!("cannot create {}: {error}", directory.display());
                // Where its parent is there, this is a file system without folders of
                // one's own, such as /proc.
                let is_final = is_final(&error) || error.kind() == io::ErrorKind::NotFound;
                failure(is_final, text)
            })?;
        }
        let files = self.write_members(path, self.options(), members)?;
        let only = match &files[..] {
            [only] => only.to_str(),
            _ => None,
        };
        Ok(only.unwrap_or(archive).into())
    }

    fn failure(&self, archive: &Path, error: WriteError) -> WriteFailure {
        let text = error.to_string();
        match error {
            WriteError::Io { error, .. } | WriteError::Read(ReadError::Io { error, .. }) => {
                // A file that is not found although its folder is there cannot be made.
                let has_folder = || archive.parent().is_some_and(Path::is_dir);
                let is_refused = error.kind() == io::ErrorKind::NotFound && has_folder();
                failure(is_refused || is_final(&error), text)
            }
            WriteError::Read(_) => WriteFailure::Refused(text),
            WriteError::Thread => WriteFailure::Failed(text),
            WriteError::Member { path, .. }
            | WriteError::Source { path, .. }
            | WriteError::Changed { path } => match self.item_of(&path) {
                Some(item) => WriteFailure::Member(item, text),
                None => WriteFailure::Refused(text),
            },
            WriteError::Exists { .. } | WriteError::Part { .. } | WriteError::Name { .. } => {
                WriteFailure::Refused(text)
            }
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

fn make_directory(directory: &Path) -> io::Result<()> {
    let made = std::fs::create_dir_all(directory);
    match made {
        // It has that name, and does not say that it is a directory. Where its file
        // system is away, that is the reason.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match std::fs::metadata(directory) {
                Err(reason) if reason.kind() != io::ErrorKind::NotFound => Err(reason),
                _ => Err(error),
            }
        }
        made => made,
    }
}

fn failure(is_final: bool, text: String) -> WriteFailure {
    if is_final { WriteFailure::Refused(text) } else { WriteFailure::Failed(text) }
}

/// Whether trying again is of no use until somebody has changed something. What is
/// not named here may pass: a full disk, a server that is away.
fn is_final(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::ACCESS
                | Errno::PERM
                | Errno::ROFS
                | Errno::NOTDIR
                | Errno::ISDIR
                | Errno::EXIST
                | Errno::NAMETOOLONG
                | Errno::LOOP
                | Errno::INVAL
                | Errno::NOSYS
                | Errno::NOTSUP
                | Errno::NODEV
                | Errno::NXIO
                | Errno::FBIG
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_pass_is_refused_at_once_and_the_rest_is_tried_again() {
        let site = tempfile::tempdir().unwrap();
        let staged = Staged::new(site.path().join("staged"));
        let output = site.path().join("output");
        std::fs::write(&output, "7.25").unwrap();
        staged.stage(ItemId(1), &output).unwrap();
        let members = [(ItemId(1), Some(Arc::from("energy")))];
        let write = |archive: &Path| staged.write(archive.to_str().unwrap(), &members);
        std::fs::write(site.path().join("text.zip"), "text").unwrap();
        std::fs::create_dir(site.path().join("directory.zip")).unwrap();
        for archive in [
            &site.path().join("text.zip"),
            &site.path().join("directory.zip"),
            Path::new("/proc/falkon-test.zip"),
            Path::new("/proc/falkon-test/scores.zip"),
            Path::new("/dev/null/scores.zip"),
            &site.path().join("scores.part2.zip"),
            &site.path().join(format!("{}.zip", "s".repeat(300))),
        ] {
            let result = write(archive);
            assert!(matches!(result, Err(WriteFailure::Refused(_))), "{archive:?}: {result:?}");
        }
        for (errno, expected) in [
            (Errno::ACCESS, true),
            (Errno::ROFS, true),
            (Errno::NOTDIR, true),
            (Errno::NOSPC, false),
            (Errno::DQUOT, false),
            (Errno::STALE, false),
            (Errno::IO, false),
            (Errno::TIMEDOUT, false),
            (Errno::HOSTUNREACH, false),
        ] {
            assert_eq!(is_final(&errno.into()), expected, "{errno}");
        }
        let archive = site.path().join("new/scores.zip");
        let file = |path: &Path| Ok(Arc::from(path.to_str().unwrap()));
        assert_eq!(write(&archive), file(&archive));
        assert_eq!(write(&archive), file(&site.path().join("new/scores.part2.zip")));
    }
}
