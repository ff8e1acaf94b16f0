//! Folders that tasks leave as outputs, and the archives that are made of them.

use falkon_archive::{Source, WriteError, WriteOptions, Writer};
use falkon_core::archive::FileBounds;
use falkon_core::archive::limits::FILE_MEMBERS_MAX;
use falkon_wire::declared::written_folder;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Threads that read the files of a folder: the disk's queue is short.
const THREADS: usize = 2;

/// Why a folder is no archive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackError {
    /// The folder, or one in it, cannot be read.
    #[error("cannot read the folder {}: {error}", path.display())]
    Read {
        /// The folder.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// Something that no member can be.
    #[error(
        "{} is neither a file nor a folder: leave only those in a folder that is an output",
        path.display()
    )]
    NoFile {
        /// What it is.
        path: PathBuf,
    },
    /// The archive cannot be written.
    #[error(transparent)]
    Write(WriteError),
    /// One file does not hold it.
    #[error("the files in {} do not fit into one archive of {FILE_MEMBERS_MAX} members", path.display())]
    Several {
        /// The folder.
        path: PathBuf,
    },
}

/// A folder that is an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder at the path of an output, if the path is one of a folder.
    pub(crate) fn of(path: &Path) -> Option<Folder> {
        let folder = written_folder(path.as_os_str().as_bytes())?;
        Some(Folder { path: PathBuf::from(OsStr::from_bytes(folder)) })
    }

    /// Whether it is that of this output.
    pub(crate) fn is_at(&self, output: &Path) -> bool {
        Folder::of(output).as_ref() == Some(self)
    }

    /// The archive that is made of it.
    pub(crate) fn archive(&self) -> PathBuf {
        let mut name = OsString::from(".falkon-");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(".zip");
        self.path.with_file_name(name)
    }

    /// Makes it. Members are stored as they are, and named by their paths in the folder.
    pub(crate) fn pack(&self) -> Result<(), PackError> {
        let options = WriteOptions {
            bounds: FileBounds { members: FILE_MEMBERS_MAX, bytes: u64::MAX },
            level: 0,
            threads: THREADS,
            append: false,
            // It lives in a cache, from which it is made again if that is lost.
            is_lasting: false,
        };
        let at = std::fs::symlink_metadata(&self.path)
            .map_err(|error| PackError::Read { path: self.path.clone(), error })?;
        if at.is_symlink() {
            return Err(PackError::NoFile { path: self.path.clone() });
        }
        let mut writer = Writer::create(&self.archive(), options).map_err(PackError::Write)?;
        let mut open = vec![PathBuf::new()];
        while let Some(inner) = open.pop() {
            let path = self.path.join(&inner);
            let failed = |error| PackError::Read { path: path.clone(), error };
            let mut entries = std::fs::read_dir(&path)
                .and_then(Iterator::collect::<io::Result<Vec<_>>>)
                .map_err(failed)?;
            entries.sort_unstable_by_key(std::fs::DirEntry::file_name);
            let mut folders = Vec::new();
            for entry in entries {
                let name = inner.join(entry.file_name());
                let kind = entry.file_type().map_err(failed)?;
                if kind.is_dir() {
                    folders.push(name);
                } else if kind.is_file() {
                    let member = name.as_os_str().as_bytes().to_vec();
                    writer.add(member, Source::File(entry.path())).map_err(PackError::Write)?;
                } else {
                    return Err(PackError::NoFile { path: entry.path() });
                }
            }
            open.extend(folders.into_iter().rev());
        }
        match writer.finish().map_err(PackError::Write)?.len() {
            1 => Ok(()),
            _ => Err(PackError::Several { path: self.path.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_archive::{Archive, Scratch};
    use std::fs;

    #[test]
    fn a_folder_becomes_one_archive_of_its_files() {
        let site = tempfile::tempdir().unwrap();
        let path = site.path().join("parts/");
        fs::create_dir_all(path.join("b/c")).unwrap();
        fs::create_dir_all(path.join("empty")).unwrap();
        let files = [("a", "1"), ("b/c/d", "22"), ("b/e", ""), ("z", "333")];
        for (name, data) in files {
            fs::write(path.join(name), data).unwrap();
        }
        let folder = Folder::of(&path).unwrap();
        assert!(folder.is_at(&path) && Folder::of(&folder.archive()).is_none());
        folder.pack().unwrap();
        let archive = Archive::open(&folder.archive()).unwrap();
        let read = |name: &str| {
            let (part, member) = archive.find(name.as_bytes()).unwrap();
            let mut data = Vec::new();
            let mut take = |bytes: &[u8]| {
                data.extend_from_slice(bytes);
                Ok(())
            };
            Scratch::default().read(part, &member, &mut take).unwrap();
            String::from_utf8(data).unwrap()
        };
        for (name, data) in files {
            assert_eq!(read(name), data);
        }
        assert_eq!(archive.members().count(), files.len());
    }

    #[test]
    fn what_no_member_can_be_is_named() {
        let site = tempfile::tempdir().unwrap();
        let path = site.path().join("parts/");
        let folder = Folder::of(&path).unwrap();
        assert!(matches!(folder.pack(), Err(PackError::Read { .. })));
        fs::create_dir(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path.join("link")).unwrap();
        let error = folder.pack().unwrap_err();
        assert!(matches!(error, PackError::NoFile { .. }), "{error}");
        assert!(!folder.archive().exists());
        // Nor is a link in the place of the folder followed.
        let linked = site.path().join("linked/");
        std::os::unix::fs::symlink(site.path(), site.path().join("linked")).unwrap();
        let error = Folder::of(&linked).unwrap().pack().unwrap_err();
        assert!(matches!(error, PackError::NoFile { .. }), "{error}");
    }
}
