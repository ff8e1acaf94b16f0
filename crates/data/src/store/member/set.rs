//! The files of an archive, open.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use falkon_archive::{Archive, Bytes, Part, ReadError, files_of};
use falkon_core::archive::{Kind, Member};

use crate::store::{Resolved, StoreError, posix};

/// Files of one set that are held open; others are opened whenever they are read.
const OPEN_FILES_MAX: usize = 128;

/// An archive at one moment.
pub(super) struct Set {
    archive: Archive,
    /// The versions of its files, in their order; empty where the store gives none.
    versions: Vec<String>,
    /// Says a file's present version.
    version_now: Box<dyn Fn(usize) -> Option<String> + Send>,
}

/// A member that was found.
pub(super) struct Found<'a> {
    pub(super) part: &'a Part,
    /// The position of its file among those of the archive.
    pub(super) number: usize,
    pub(super) member: Member,
    pub(super) resolved: Resolved,
}

/// A file of an archive, as its store describes it.
pub(super) struct Piece {
    pub(super) name: PathBuf,
    pub(super) bytes: u64,
    pub(super) version: String,
    /// Its number in the set.
    pub(super) number: u32,
}

impl Set {
    /// Opens an archive whose first file is at `path`.
    pub(super) fn on_disk(path: &Path) -> Result<Set, StoreError> {
        let sorted = |error: ReadError| match error {
            ReadError::Io { error, .. } => posix::sorted(path, error),
            error => StoreError::Archive(error),
        };
        let files = files_of(path).map_err(sorted)?;
        if files.is_empty() {
            return Err(StoreError::NotThere { url: path.display().to_string() });
        }
        let mut pieces = Vec::with_capacity(files.len());
        for (number, name) in files {
            let Resolved { bytes, version } = posix::state_of(&name)?;
            pieces.push(Piece { name, bytes: bytes.unwrap_or_default(), version, number });
        }
        let names: Vec<PathBuf> = pieces.iter().map(|piece| piece.name.clone()).collect();
        let version_now = move |at: usize| {
            names.get(at).and_then(|name| posix::state_of(name).ok()).map(|now| now.version)
        };
        let open = |at: usize, piece: &Piece| -> Arc<dyn Bytes> {
            let file = (at < OPEN_FILES_MAX).then(OnceLock::new);
            let (path, version) = (piece.name.clone(), piece.version.clone());
            Arc::new(OnDisk { path, version, file })
        };
        Set::of(path.to_owned(), pieces, open, version_now)
    }

    /// An archive of these files.
    pub(super) fn of(
        path: PathBuf,
        pieces: Vec<Piece>,
        open: impl Fn(usize, &Piece) -> Arc<dyn Bytes>,
        version_now: impl Fn(usize) -> Option<String> + Send + 'static,
    ) -> Result<Set, StoreError> {
        let mut parts = Vec::with_capacity(pieces.len());
        let mut versions = Vec::with_capacity(pieces.len());
        for (at, piece) in pieces.into_iter().enumerate() {
            let file = open(at, &piece);
            parts.push(Part::of(piece.name, piece.bytes, file).map_err(failed)?);
            versions.push(match piece.number {
                1 => piece.version,
                _ if piece.version.is_empty() => piece.version,
                number => format!("{number}:{}", piece.version),
            });
        }
        let archive = Archive::of(path, parts);
        Ok(Set { archive, versions, version_now: Box::new(version_now) })
    }

    /// Its files, in the order of their numbers.
    pub(super) fn parts(&self) -> &[Part] {
        self.archive.parts()
    }

    /// The versions that the members of each file have.
    pub(super) fn versions(&self) -> &[String] {
        &self.versions
    }

    /// Nobody waits for what is read.
    pub(super) fn given_up(&self) -> StoreError {
        posix::given_up(self.archive.path())
    }

    /// Finds the member with this name that was written last.
    pub(super) fn find(&self, name: &str) -> Result<Found<'_>, StoreError> {
        let (part, member) = self.archive.find(name.as_bytes()).map_err(failed)?;
        let is_it = |other: &Part| std::ptr::eq(other, part);
        let number = self.archive.parts().iter().position(is_it).unwrap_or_default();
        if member.kind() != Kind::File {
            let url = format!("{}!{name}", part.path().display());
            let reason = "it is a directory or a link, and no file".to_owned();
            return Err(StoreError::Refused { url, reason });
        }
        let version = self.versions.get(number).cloned().unwrap_or_default();
        let resolved = Resolved { bytes: Some(member.size), version };
        Ok(Found { part, number, member, resolved })
    }

    /// What the error of a file is that is another one by now: it changed.
    pub(super) fn changed(&self, number: usize, url: &str) -> Option<StoreError> {
        let before = self.versions.get(number)?;
        let now = (self.version_now)(number)?;
        let is_same = before
            .strip_suffix(&now)
            .is_some_and(|number| number.is_empty() || number.ends_with(':'));
        let reason = format!("the version of the archive's file is {now}, not {before}");
        (!is_same).then(|| StoreError::Changed { url: url.to_owned(), reason, now: None })
    }
}

/// Converts an error of reading an archive.
pub(super) fn failed(error: ReadError) -> StoreError {
    match error {
        ReadError::Io { path, error } => match error.downcast::<StoreError>() {
            Ok(error) => error,
            Err(error) => posix::sorted(&path, error),
        },
        error => StoreError::Archive(error),
    }
}

/// A file on disk that is opened when it is first read.
#[derive(Debug)]
struct OnDisk {
    path: PathBuf,
    version: String,
    /// `None` if it is not held open.
    file: Option<OnceLock<File>>,
}

impl OnDisk {
    fn open(&self) -> io::Result<File> {
        let file = posix::open(&self.path).map_err(io::Error::other)?;
        let now = posix::version_of(&file.metadata()?);
        if now != self.version {
            let url = self.path.display().to_string();
            let reason = format!("its version is `{now}`, not `{}`", self.version);
            return Err(io::Error::other(StoreError::Changed { url, reason, now: None }));
        }
        Ok(file)
    }
}

impl Bytes for OnDisk {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let Some(held) = &self.file else { return self.open()?.read_exact_at(bytes, offset) };
        if let Some(file) = held.get() {
            return file.read_exact_at(bytes, offset);
        }
        let file = self.open()?;
        held.get_or_init(|| file).read_exact_at(bytes, offset)
    }
}
