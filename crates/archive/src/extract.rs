//! Writing members as files below a directory, and never elsewhere: each
//! component of a path is opened below the one before, and no symbolic link is
//! followed.

use crate::limits::OPEN_DIRECTORIES_MAX;
use crate::part::Part;
use crate::read::{ReadError, Scratch};
use crate::sparse::SparseFile;
use falkon_core::archive::{Kind, Member, Misplaced, place, readable, unfinished_name};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, futimens, mkdirat, openat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where members are written.
#[derive(Debug)]
pub struct Extraction {
    path: PathBuf,
    target: Arc<OwnedFd>,
    /// Directories below it, by the path that leads there.
    open: HashMap<Vec<u8>, Arc<OwnedFd>>,
    has_to_replace: bool,
}

/// Why a member is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LeftOut {
    /// Its name leads elsewhere, or nowhere.
    #[error("{0}")]
    Misplaced(#[from] Misplaced),
    /// Links are not made: they may lead elsewhere.
    #[error("it is a symbolic link")]
    Symlink,
    /// It has no data that make it what it is.
    #[error("it is a device, a pipe or a socket")]
    Special,
    /// Its name ends with a slash.
    #[error("its name is a directory's, and it has data")]
    Directory,
    /// Something is there.
    #[error("its file exists (--overwrite replaces files, but no directories)")]
    Exists,
    /// A component of its path is no directory.
    #[error("its path leads through a file or a symbolic link")]
    Through,
}

/// Why a member is not written.
#[derive(Debug, thiserror::Error)]
pub enum ExtractError {
    /// It is not meant to be.
    #[error("{0}")]
    LeftOut(#[from] LeftOut),
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file system refuses the directory that all is written below.
    #[error("cannot write below {}: {error}", path.display())]
    Directory {
        /// That directory.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// The file system refuses the member's file, or a directory on its path.
    #[error("cannot write member `{}` below {}: {error}", readable(name), path.display())]
    Io {
        /// The member.
        name: Vec<u8>,
        /// The directory that all is written below.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);
const NEW_FILE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Extraction {
    /// Writes below `target`, which is made if it is missing.
    ///
    /// # Errors
    /// If it cannot be made, or is no directory.
    pub fn into_directory(target: &Path, has_to_replace: bool) -> Result<Extraction, ExtractError> {
        let of = |error| ExtractError::Directory { path: target.to_owned(), error };
        std::fs::create_dir_all(target).map_err(of)?;
        let opened = openat(CWD, target, DIRECTORY, Mode::empty());
        let opened = Arc::new(opened.map_err(|error| of(error.into()))?);
        let path = target.to_owned();
        Ok(Extraction { path, target: opened, open: HashMap::new(), has_to_replace })
    }

    /// The same directory, for another thread.
    #[must_use]
    pub fn another(&self) -> Extraction {
        let (path, target) = (self.path.clone(), Arc::clone(&self.target));
        Extraction { path, target, open: HashMap::new(), has_to_replace: self.has_to_replace }
    }

    /// Writes a member, with holes where its data are zeros. A file is removed again if the data turn out to be
    /// damaged, and one that it was to replace stays.
    ///
    /// # Errors
    /// If it is left out, damaged, or the file system refuses.
    pub fn extract(
        &mut self,
        part: &Part,
        member: &Member,
        scratch: &mut Scratch,
    ) -> Result<(), ExtractError> {
        let components = place(&member.name).map_err(LeftOut::from)?;
        let kind = member.kind();
        match kind {
            Kind::Symlink => return Err(LeftOut::Symlink.into()),
            Kind::Special => return Err(LeftOut::Special.into()),
            Kind::Directory if member.size > 0 => return Err(LeftOut::Directory.into()),
            Kind::Directory => {
                let made = self.directory(&components).map(drop);
                return made.map_err(|error| self.refused(member, error));
            }
            Kind::File => {}
        }
        let (name, parents) = components.split_last().expect("a place has a component");
        let parent = self.directory(parents).map_err(|error| self.refused(member, error))?;
        let made = self.file(&parent, name, member).map_err(|error| self.refused(member, error))?;
        let (file, unfinished) = made;
        let file = File::from(file);
        let remove = || {
            // Nothing can be done about a half file that cannot be removed.
            let name = unfinished.as_deref().unwrap_or(name);
            let _ = unlinkat(&parent, name, AtFlags::empty());
        };
        let mut sparse = SparseFile::new(&file);
        let read = scratch.read(part, member, &mut |bytes| sparse.append(bytes));
        let written = read.map_err(|error| match error {
            ReadError::Taken { error, .. } => self.unwritten(member, error),
            error => error.into(),
        });
        let written =
            written.and_then(|()| sparse.finish().map_err(|error| self.unwritten(member, error)));
        if let Err(error) = written {
            remove();
            return Err(error);
        }
        if let Some(unfinished) = &unfinished
            && let Err(error) = renameat(&parent, unfinished.as_slice(), &parent, *name)
        {
            remove();
            return Err(self.refused(member, error));
        }
        let seconds = i64::try_from(member.modified).unwrap_or_default();
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        // A file system without times has the data all the same.
        let _ = futimens(&file, &Timestamps { last_access: time, last_modification: time });
        Ok(())
    }

    /// A new file for a member. One that replaces another has a name of its own
    /// until it is whole, which is returned.
    fn file(
        &self,
        parent: &OwnedFd,
        name: &[u8],
        member: &Member,
    ) -> Result<(OwnedFd, Option<Vec<u8>>), Errno> {
        // The owner may write what the owner has written.
        let mode = Mode::from_raw_mode(member.permissions() | 0o200);
        match openat(parent, name, NEW_FILE, mode) {
            Err(Errno::EXIST) if self.has_to_replace => {}
            opened => return Ok((opened?, None)),
        }
        let found = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            return Err(Errno::ISDIR);
        }
        loop {
            let token = RandomState::new().hash_one(name);
            let unfinished = unfinished_name(b"", 0, token);
            match openat(parent, unfinished.as_slice(), NEW_FILE, mode) {
                Err(Errno::EXIST) => {}
                opened => return Ok((opened?, Some(unfinished))),
            }
        }
    }

    fn unwritten(&self, member: &Member, error: io::Error) -> ExtractError {
        ExtractError::Io { name: member.name.clone(), path: self.path.clone(), error }
    }

    fn refused(&self, member: &Member, error: Errno) -> ExtractError {
        match error {
            Errno::EXIST | Errno::ISDIR => LeftOut::Exists.into(),
            Errno::NOTDIR | Errno::LOOP => LeftOut::Through.into(),
            error => self.unwritten(member, error.into()),
        }
    }

    /// The directory that these components lead to, made where it is missing.
    fn directory(&mut self, components: &[&[u8]]) -> Result<Arc<OwnedFd>, Errno> {
        let path = components.join(&b'/');
        if components.is_empty() {
            return Ok(Arc::clone(&self.target));
        }
        if let Some(open) = self.open.get(&path) {
            return Ok(Arc::clone(open));
        }
        let mut at = Arc::clone(&self.target);
        for component in components {
            at = Arc::new(below(&at, component)?);
        }
        if self.open.len() == OPEN_DIRECTORIES_MAX {
            self.open.clear();
        }
        self.open.insert(path, Arc::clone(&at));
        Ok(at)
    }
}

fn below(at: &impl AsFd, component: &[u8]) -> Result<OwnedFd, Errno> {
    let open = || openat(at, component, DIRECTORY.union(OFlags::NOFOLLOW), Mode::empty());
    match open() {
        Err(Errno::NOENT) => {
            match mkdirat(at, component, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            open()
        }
        opened => opened,
    }
}
