//! One file of a set.

use crate::bytes::Bytes;
use crate::limits::DIRECTORY_READ_BYTES;
use crate::read::{ReadError, Stop};
use crate::regular;
use falkon_core::archive::limits::CENTRAL_BYTES_MAX;
use falkon_core::archive::{FormatError, Layout, Member, Opening, Search, Want, central};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One file of a set, or any other ZIP file.
#[derive(Debug, Clone)]
pub struct Part {
    path: PathBuf,
    layout: Layout,
    /// `None` if the set has more files than are held open.
    file: Option<Arc<dyn Bytes>>,
}

/// What a lookup table says of a name.
#[derive(Debug)]
pub(crate) enum LookedUp {
    Found(Member),
    Missing,
    /// There is no table, or it is damaged, or too many names have the hash.
    Unknown,
}

impl Part {
    /// Opens a file.
    ///
    /// # Errors
    /// If it cannot be read, or is no archive.
    pub fn open(path: &Path) -> Result<Part, ReadError> {
        let (file, metadata) = regular::open(path).map_err(|error| error.of_archive(path))?;
        Part::of(path.to_owned(), metadata.len(), Arc::new(file))
    }

    /// A file of `file_bytes` bytes that is read by `file`. `path` is for messages.
    ///
    /// # Errors
    /// If it cannot be read, or is no archive.
    pub fn of(path: PathBuf, file_bytes: u64, file: Arc<dyn Bytes>) -> Result<Part, ReadError> {
        let mut opening = Opening::new(file_bytes);
        while let Some(want) = opening.want() {
            let bytes = read(&*file, want);
            let bytes = bytes.map_err(|error| ReadError::Io { path: path.clone(), error })?;
            let give = opening.give(&bytes, crate::crc32);
            give.map_err(|error| ReadError::Format { path: path.clone(), error })?;
        }
        let layout = opening.layout().expect("a file that wants no more is open");
        Ok(Part { path, layout, file: Some(file) })
    }

    /// A file whose directory is missing or damaged, without it.
    pub(crate) fn without_directory(path: &Path) -> Result<Part, ReadError> {
        let (file, metadata) = regular::open(path).map_err(|error| error.of_archive(path))?;
        let file_bytes = metadata.len();
        let layout = Layout {
            file_bytes,
            directory: file_bytes,
            directory_bytes: 0,
            members: 0,
            base: 0,
            lookup: None,
        };
        Ok(Part { path: path.to_owned(), layout, file: Some(Arc::new(file)) })
    }

    /// Closes the file until it is read.
    pub(crate) fn close(&mut self) {
        self.file = None;
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where its parts are.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The file, open.
    pub(crate) fn file(&self) -> Result<Arc<dyn Bytes>, ReadError> {
        match &self.file {
            Some(file) => Ok(Arc::clone(file)),
            None => match regular::open(&self.path) {
                Ok((file, _)) => Ok(Arc::new(file)),
                Err(error) => Err(error.of_archive(&self.path)),
            },
        }
    }

    pub(crate) fn io(&self, error: std::io::Error) -> ReadError {
        ReadError::Io { path: self.path.clone(), error }
    }

    pub(crate) fn format(&self, error: FormatError) -> ReadError {
        ReadError::Format { path: self.path.clone(), error }
    }

    /// Why the data of a member are not handed over.
    pub(crate) fn stopped(&self, member: &Member, stop: Stop) -> ReadError {
        match stop {
            Stop::Io(error) => self.io(error),
            Stop::Taken(error) => ReadError::Taken { name: member.name.clone(), error },
            Stop::Fault(fault) => ReadError::Member {
                path: self.path.clone(),
                name: member.name.clone(),
                offset: member.header,
                fault,
            },
        }
    }

    /// The member with this name that was written last, as the lookup table has
    /// it.
    pub(crate) fn look_up(&self, name: &[u8]) -> Result<LookedUp, ReadError> {
        let Some(records) = self.records_of(name)? else { return Ok(LookedUp::Unknown) };
        let file = self.file()?;
        for record in records {
            match self.member_at(&*file, record) {
                Ok(Some(member)) if member.name == name => return Ok(LookedUp::Found(member)),
                Ok(Some(_)) => {}
                // The table leads to what is no record.
                Ok(None) | Err(ReadError::Format { .. }) => return Ok(LookedUp::Unknown),
                Err(error) => return Err(error),
            }
        }
        Ok(LookedUp::Missing)
    }

    /// Whether all that is shown of it can be found by its lookup table.
    pub(crate) fn is_plain(&self) -> bool {
        self.layout.lookup.is_some_and(|lookup| lookup.is_plain()) || self.layout.members == 0
    }

    /// A member in the directory with this path, which ends with a slash; `None` if
    /// the lookup table of this plain file leads to none.
    pub(crate) fn look_into(&self, folder: &[u8]) -> Result<Option<Member>, ReadError> {
        for record in self.records_of(folder)?.unwrap_or_default() {
            if let Some(member) = self.member_at(&*self.file()?, record)?
                && member.name.starts_with(folder)
            {
                return Ok(Some(member));
            }
        }
        Ok(None)
    }

    /// The records to which the lookup table leads from this name; `None` if there
    /// is no table, or too many names have the hash.
    fn records_of(&self, name: &[u8]) -> Result<Option<Vec<u64>>, ReadError> {
        let Some(lookup) = self.layout.lookup else { return Ok(None) };
        let file = self.file()?;
        let mut search = Search::new(lookup, name);
        while let Some(want) = search.want() {
            search.give(&read(&*file, want).map_err(|error| self.io(error))?);
        }
        Ok(search.records())
    }

    /// The record and the member with this name that was written last, as the lookup
    /// table of this plain file has it.
    pub(crate) fn look_for(&self, name: &[u8]) -> Result<Option<(u64, Member)>, ReadError> {
        for record in self.records_of(name)?.unwrap_or_default() {
            if let Some(member) = self.member_at(&*self.file()?, record)?
                && member.name == name
            {
                return Ok(Some((record, member)));
            }
        }
        Ok(None)
    }

    /// The member with this name that was written last, as the directory has it,
    /// all of which is read.
    pub(crate) fn search(&self, name: &[u8]) -> Result<Option<Member>, ReadError> {
        let mut last = None;
        for member in self.members() {
            last = Some(member?).filter(|member| member.name == name).or(last);
        }
        Ok(last)
    }

    /// The member whose record is at this offset within the directory.
    pub(crate) fn member_at(&self, file: &dyn Bytes, at: u64) -> Result<Option<Member>, ReadError> {
        let Some(rest) = self.layout.directory_bytes.checked_sub(at) else { return Ok(None) };
        let offset = self.layout.directory + at;
        for bytes in [512, CENTRAL_BYTES_MAX] {
            let bytes = rest.min(bytes as u64) as usize;
            let record = read(file, Want { offset, bytes }).map_err(|error| self.io(error))?;
            let found = central(&record, offset, self.layout.base);
            if let Some((member, _)) = found.map_err(|error| self.format(error))? {
                return Ok(Some(member));
            }
        }
        Ok(None)
    }

    /// Its members, in the order in which they were written.
    #[must_use]
    pub fn members(&self) -> Members<'_> {
        Members { part: self, file: None, at: 0, record: 0, bytes: Vec::new(), has_ended: false }
    }
}

fn read(file: &dyn Bytes, want: Want) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; want.bytes];
    file.read_exact_at(&mut bytes, want.offset)?;
    Ok(bytes)
}

/// The members of a file, from its directory, which is read in pieces.
#[derive(Debug)]
pub struct Members<'a> {
    part: &'a Part,
    file: Option<Arc<dyn Bytes>>,
    /// The offset within the directory of the first of `bytes` that is not used.
    at: u64,
    /// How many of `bytes` are used.
    record: usize,
    bytes: Vec<u8>,
    has_ended: bool,
}

impl Members<'_> {
    /// The offset within the directory of the next record.
    pub(crate) fn record(&self) -> u64 {
        self.at
    }

    fn read(&mut self) -> Result<Option<Member>, ReadError> {
        let part = self.part;
        let (layout, all) = (&part.layout, part.layout.directory_bytes);
        loop {
            if self.at == all {
                return Ok(None);
            }
            let offset = layout.directory + self.at;
            let found = central(&self.bytes[self.record..], offset, layout.base);
            if let Some((member, bytes)) = found.map_err(|error| part.format(error))? {
                self.record += bytes;
                self.at += bytes as u64;
                return Ok(Some(member));
            }
            let held = self.bytes.len() - self.record;
            let next = self.at + held as u64;
            let more = (all - next).min(DIRECTORY_READ_BYTES as u64) as usize;
            if more == 0 {
                let what = "a record of the directory";
                return Err(part.format(FormatError::CutOff { offset, what }));
            }
            let file = match &self.file {
                Some(file) => Arc::clone(file),
                None => part.file()?,
            };
            self.bytes.drain(..self.record);
            self.record = 0;
            self.bytes.resize(held + more, 0);
            file.read_exact_at(&mut self.bytes[held..], layout.directory + next)
                .map_err(|error| part.io(error))?;
            self.file = Some(file);
        }
    }
}

impl Iterator for Members<'_> {
    type Item = Result<Member, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let member = self.read().transpose();
        self.has_ended = !matches!(member, Some(Ok(_)));
        member
    }
}
