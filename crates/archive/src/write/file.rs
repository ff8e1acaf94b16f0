//! The file of a set that is being written, and those that are whole.

use super::WriteError;
use super::job::Packed;
use crate::appear::Unfinished;
use crate::crc32;
use falkon_core::archive::{FileBounds, FileBuilder, Member, Started};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Zeros that are left out of a file as a hole.
const HOLE_BYTES_MIN: usize = 64 << 10;

/// Where members are appended.
#[derive(Debug)]
pub(super) struct SetFile {
    first: PathBuf,
    /// The number that the next file has at least.
    number: u32,
    bounds: FileBounds,
    is_lasting: bool,
    file: Option<Unfinished>,
    builder: FileBuilder,
    done: Vec<PathBuf>,
    pub(super) large: Option<InProgress>,
}

/// A member that is appended in pieces.
#[derive(Debug)]
pub(super) struct InProgress {
    started: Started,
    /// Bytes that its pieces take so far.
    pub(super) packed: u64,
    pub(super) size: u64,
    pub(super) crc: crc32fast::Hasher,
}

impl SetFile {
    pub(super) fn new(first: &Path, number: u32, bounds: FileBounds, is_lasting: bool) -> SetFile {
        SetFile {
            first: first.to_owned(),
            number,
            bounds,
            is_lasting,
            file: None,
            builder: FileBuilder::new(),
            done: Vec::new(),
            large: None,
        }
    }

    /// Nothing: what is left when a writer has ended.
    pub(super) fn none() -> SetFile {
        SetFile::new(Path::new(""), 1, FileBounds::default(), false)
    }

    /// Appends members with their headers.
    pub(super) fn append(&mut self, bytes: &[u8], members: &[Packed]) -> Result<(), WriteError> {
        let (mut from, mut to) = (0, 0);
        for packed in members {
            let (member, header) = (&packed.member, packed.started);
            if !self.builder.has_room(self.bounds, &member.name, member.packed) {
                self.write(&bytes[from..to], (to - from) as u64)?;
                self.complete()?;
                from = to;
            }
            self.builder.add(member, header);
            to += header.bytes() + member.packed as usize;
        }
        self.write(&bytes[from..], (to - from) as u64)
    }

    /// Writes what the builder has counted already: the last so many bytes.
    fn write(&mut self, bytes: &[u8], counted: u64) -> Result<(), WriteError> {
        let at = self.builder.offset() - counted;
        self.write_at(bytes, at)
    }

    fn write_at(&mut self, bytes: &[u8], at: u64) -> Result<(), WriteError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let written = self.opened()?.file.write_all_at(bytes, at);
        written.map_err(|error| self.unwritten(error))
    }

    /// The file that is written has another name until it is whole, which tells nobody
    /// anything.
    fn unwritten(&self, error: io::Error) -> WriteError {
        WriteError::Io { path: self.first.clone(), error }
    }

    fn opened(&mut self) -> Result<&mut Unfinished, WriteError> {
        if self.file.is_none() {
            let begun = Unfinished::begin(&self.first);
            self.file = Some(begun.map_err(|error| self.unwritten(error))?);
        }
        Ok(self.file.as_mut().expect("it was opened above"))
    }

    /// Begins a member that is appended in pieces: its header is written when
    /// they are, so that a file that is cut off has none before.
    pub(super) fn begin(&mut self, name: &[u8], size: u64) -> Result<(), WriteError> {
        if !self.builder.has_room(self.bounds, name, size) {
            self.complete()?;
        }
        self.opened()?;
        let (started, crc) = (Started::new(name, size), crc32fast::Hasher::new());
        self.large = Some(InProgress { started, packed: 0, size: 0, crc });
        Ok(())
    }

    fn data_start(&self, large: &InProgress) -> u64 {
        self.builder.offset() + large.started.bytes() as u64
    }

    /// Appends a piece. Long zeros become a hole.
    pub(super) fn piece(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let large = self.large.as_mut().expect("a member has begun");
        large.packed += bytes.len() as u64;
        let packed = large.packed - bytes.len() as u64;
        let at = self.builder.offset() + large.started.bytes() as u64 + packed;
        if bytes.len() >= HOLE_BYTES_MIN && bytes.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        self.write_at(bytes, at)
    }

    /// Discards the pieces so far: others follow.
    pub(super) fn again(&mut self) -> Result<(), WriteError> {
        let mut large = self.large.take().expect("a member has begun");
        let start = self.data_start(&large);
        (large.packed, large.size, large.crc) = (0, 0, crc32fast::Hasher::new());
        self.large = Some(large);
        let file = self.opened()?;
        // What was written must not show where zeros are left out.
        let done = file.file.set_len(start);
        done.map_err(|error| self.unwritten(error))
    }

    /// Ends a member whose pieces are written.
    pub(super) fn end(&mut self, member: &Member) -> Result<(), WriteError> {
        let large = self.large.take().expect("a member has begun");
        if !large.started.fits(member.size, member.packed) {
            // Only a file that has grown by gigabytes while it was read.
            let error = io::Error::other("a member has grown beyond 4 GiB while it was read");
            return Err(self.unwritten(error));
        }
        let mut header = Vec::with_capacity(large.started.bytes());
        large.started.encode(member, &mut header);
        let at = self.builder.offset();
        self.builder.add(member, large.started);
        self.write_at(&header, at)
    }

    /// Has the file appear.
    fn complete(&mut self) -> Result<(), WriteError> {
        self.opened()?;
        let mut at = self.builder.offset();
        for bytes in std::mem::take(&mut self.builder).finish(crc32) {
            self.write_at(&bytes, at)?;
            at += bytes.len() as u64;
        }
        let Some(file) = self.file.take() else { return Ok(()) };
        let appeared = file.appear(self.number, self.is_lasting);
        let (path, number) = appeared.map_err(|error| self.unwritten(error))?;
        self.number = number + 1;
        self.done.push(path);
        Ok(())
    }

    /// Has the last file appear; an archive without members has one too.
    pub(super) fn finish(mut self) -> Result<Vec<PathBuf>, WriteError> {
        if self.builder.members() > 0 || self.done.is_empty() {
            self.complete()?;
        }
        Ok(self.done)
    }
}
