//! A set of files as one archive.

use crate::limits::OPEN_FILES_MAX;
use crate::part::{LookedUp, Part};
use crate::read::ReadError;
use falkon_core::archive::{Member, number_of, unfinished_by};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An archive: all files of its set.
#[derive(Debug)]
pub struct Archive {
    path: PathBuf,
    /// In the order of their numbers.
    parts: Vec<Part>,
}

/// What a directory has of a set.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// The numbers and paths of its files, in order.
    pub(crate) files: Vec<(u32, PathBuf)>,
    /// The machines and paths of files that are not whole.
    pub(crate) unfinished: Vec<(u64, PathBuf)>,
}

/// The numbers and paths of the files of a set that exist, in order.
///
/// # Errors
/// If their directory cannot be read.
pub fn files_of(first: &Path) -> Result<Vec<(u32, PathBuf)>, ReadError> {
    Ok(listed(first)?.files)
}

pub(crate) fn listed(first: &Path) -> Result<Listed, ReadError> {
    let of = |error| ReadError::Io { path: first.to_owned(), error };
    let none = || ReadError::NoFile { path: first.to_owned(), what: "a directory" };
    let name = first.file_name().ok_or_else(none)?.as_bytes();
    let mut listed = Listed::default();
    for entry in std::fs::read_dir(directory_of(first)).map_err(of)? {
        let found = entry.map_err(of)?.file_name();
        if let Some(number) = number_of(name, found.as_bytes()) {
            listed.files.push((number, first.with_file_name(found)));
        } else if let Some(machine) = unfinished_by(name, found.as_bytes()) {
            listed.unfinished.push((machine, first.with_file_name(found)));
        }
    }
    listed.files.sort();
    Ok(listed)
}

/// The directory that a path's file is in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

impl Archive {
    /// Opens an archive by the path of its first file.
    ///
    /// # Errors
    /// If it is missing, or a file of it cannot be read or is none.
    pub fn open(path: &Path) -> Result<Archive, ReadError> {
        let files = files_of(path)?;
        if files.is_empty() {
            return Err(ReadError::Missing { path: path.to_owned() });
        }
        let mut parts = Vec::with_capacity(files.len());
        for (_, path) in files {
            let mut part = Part::open(&path)?;
            if parts.len() >= OPEN_FILES_MAX {
                part.close();
            }
            parts.push(part);
        }
        Ok(Archive { path: path.to_owned(), parts })
    }

    /// The archive that these files are, in the order of their numbers.
    #[must_use]
    pub fn of(path: PathBuf, parts: Vec<Part>) -> Archive {
        Archive { path, parts }
    }

    /// One file as an archive of its own.
    pub(crate) fn of_file(part: Part) -> Archive {
        Archive { path: part.path().to_owned(), parts: vec![part] }
    }

    /// Splits `ARCHIVE!MEMBER` at the first `!` behind the name of a file that
    /// exists, else at the first.
    #[must_use]
    pub fn split(text: &OsStr) -> (PathBuf, Option<Vec<u8>>) {
        let bytes = text.as_bytes();
        let path = |end: usize| PathBuf::from(OsStr::from_bytes(&bytes[..end]));
        let marks: Vec<usize> = (1..bytes.len()).filter(|at| bytes[*at] == b'!').collect();
        let is_archive = |end: &&usize| path(**end).is_file();
        if path(bytes.len()).is_file() {
            return (path(bytes.len()), None);
        }
        match marks.iter().find(is_archive).or(marks.first()) {
            Some(&at) => (path(at), Some(bytes[at + 1..].to_vec())),
            None => (path(bytes.len()), None),
        }
    }

    /// The path of its first file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its files, in order.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The member with this name that was written last, and the file that it is
    /// in. A directory is read where no lookup table has the answer, and, if no
    /// file has the name, in case a table is damaged.
    ///
    /// # Errors
    /// If there is none, or a file cannot be read.
    pub fn find(&self, name: &[u8]) -> Result<(&Part, Member), ReadError> {
        let mut searched = vec![false; self.parts.len()];
        for (number, part) in self.parts.iter().enumerate().rev() {
            let found = match part.look_up(name)? {
                LookedUp::Found(member) => Some(member),
                LookedUp::Missing => None,
                LookedUp::Unknown => {
                    // An earlier file may have the name, and it would be out of date.
                    searched[number] = true;
                    part.search(name)?
                }
            };
            if let Some(member) = found {
                return Ok((part, member));
            }
        }
        for (part, _) in self.parts.iter().zip(searched).rev().filter(|(_, done)| !done) {
            if let Some(member) = part.search(name)? {
                return Ok((part, member));
            }
        }
        Err(ReadError::NoMember { path: self.path.clone(), name: name.to_vec() })
    }

    /// Its files, in the order of their numbers.
    #[must_use]
    pub fn into_parts(self) -> Vec<Part> {
        self.parts
    }

    /// Its members with the numbers of their files among those of the archive.
    fn numbered(&self) -> impl Iterator<Item = Result<(u32, Member), ReadError>> {
        let parts = (0_u32..).zip(&self.parts);
        parts.flat_map(|(number, part)| part.members().map(move |one| Ok((number, one?))))
    }

    /// Its members with their files, those written last at the end.
    pub fn members(&self) -> impl Iterator<Item = Result<(&Part, Member), ReadError>> {
        self.parts.iter().flat_map(|part| part.members().map(move |one| Ok((part, one?))))
    }
}

/// Finds which of several members with the same name was written last. Names are known
/// by hashes that nobody can foresee. One takes 8 bytes at first, and those that
/// seem to be there twice take 48 more: then 128 bits of their hashes tell.
#[derive(Debug)]
pub struct Newest {
    states: [RandomState; 2],
    /// The hashes that several members have, in order.
    shared: Vec<u64>,
    /// For members with such a hash, the file's number in the set and the offset of
    /// the header.
    at: HashMap<u128, (u32, u64)>,
    doubled: u64,
}

impl Newest {
    /// Reads all directories of an archive, twice if it seems to have members with
    /// the same name.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn of(archive: &Archive, is_meant: impl Fn(&Member) -> bool) -> Result<Newest, ReadError> {
        let states = [RandomState::new(), RandomState::new()];
        let mut hashes = Vec::new();
        for found in archive.numbered() {
            let (_, member) = found?;
            if is_meant(&member) {
                hashes.push(states[0].hash_one(&member.name));
            }
        }
        let shared = shared(hashes);
        let mut newest = Newest { states, shared, at: HashMap::new(), doubled: 0 };
        if newest.shared.is_empty() {
            return Ok(newest);
        }
        for found in archive.numbered() {
            let (number, member) = found?;
            if is_meant(&member)
                && let Some(key) = newest.key(&member.name)
            {
                let before = newest.at.insert(key, (number, member.header));
                newest.doubled += u64::from(before.is_some());
            }
        }
        Ok(newest)
    }

    /// By what a name is known that seems to be there twice.
    fn key(&self, name: &[u8]) -> Option<u128> {
        if self.shared.is_empty() {
            return None;
        }
        let [one, other] = &self.states;
        let hash = one.hash_one(name);
        self.shared.binary_search(&hash).ok()?;
        Some(u128::from(hash) << 64 | u128::from(other.hash_one(name)))
    }

    /// Whether no later member has the same name.
    #[must_use]
    pub fn is(&self, part: usize, member: &Member) -> bool {
        self.key(&member.name)
            .is_none_or(|key| self.at.get(&key) == Some(&(part as u32, member.header)))
    }

    /// Members that later ones replace.
    #[must_use]
    pub fn doubled(&self) -> u64 {
        self.doubled
    }
}

/// The hashes that occur more than once, in order.
fn shared(mut hashes: Vec<u64>) -> Vec<u64> {
    hashes.sort_unstable();
    let mut last = None;
    // What stays is what equals the one before it.
    hashes.retain(|hash| last.replace(*hash) == Some(*hash));
    hashes.dedup();
    hashes.shrink_to_fit();
    hashes
}
