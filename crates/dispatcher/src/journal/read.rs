//! Reading one journal file: record by record, and from the next good record behind a bad one.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::format::{
    Control, FILE_HEADER_BYTES, FileKind, HeaderFlaw, RECORD_HEADER_BYTES, RecordHead, Seal,
    decode_control, decode_header,
};

/// Bytes read from a file at once; a longer record is read as a whole.
const READ_BYTES: usize = 1 << 20;

/// The kind of damage at a place in a journal file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flaw {
    /// The file ends inside a record.
    CutShort,
    /// No record begins where one should.
    Header,
    /// A record's body does not fit its checksum.
    Body,
    /// A note of the journal to itself that this version does not know.
    Control,
    /// The file's own header is damaged, or the file stands under another file's name.
    FileHeader,
    /// A snapshot lacks its end, or has fewer or more records than its end says.
    SnapshotEnd,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flaw::CutShort => "the file ends inside a record",
            Flaw::Header => "no valid record begins here",
            Flaw::Body => "the record does not fit its checksum",
            Flaw::Control => "unknown control record",
            Flaw::FileHeader => "the file's header is damaged or belongs to another file",
            Flaw::SnapshotEnd => "the snapshot does not end as it should",
        })
    }
}

/// Why a journal file cannot be read at all.
#[derive(Debug)]
pub(super) enum ReaderError {
    /// The operating system refused.
    Io(io::Error),
    /// Written by another version.
    Version(u32),
    /// The header is damaged.
    Header,
}

/// The result of [`Reader::step`]; the reader then stands behind it, except for
/// `Bad`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A data record, at this place of [`Reader::chunk`].
    Record(Range<usize>),
    /// A note of the journal to itself.
    Control(Control),
    /// The end, exactly behind a record.
    End,
    /// No good record stands at the reader's offset.
    Bad(Flaw),
}

/// Reads the records of one file through a buffer that grows to the longest record at most.
#[derive(Debug)]
pub(super) struct Reader {
    file: File,
    path: PathBuf,
    seal: Seal,
    end: u64,
    offset: u64,
    chunk: Vec<u8>,
    chunk_offset: u64,
}

impl Reader {
    /// Opens a file and checks its header; `end` limits what is read (`None`: all of it).
    pub(super) fn open(
        path: &Path,
        kind: FileKind,
        number: u64,
        end: Option<u64>,
    ) -> Result<Reader, ReaderError> {
        let file = File::open(path).map_err(ReaderError::Io)?;
        let length = file.metadata().map_err(ReaderError::Io)?.len();
        let mut header = [0; FILE_HEADER_BYTES];
        file.read_exact_at(&mut header, 0).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ReaderError::Header,
            _ => ReaderError::Io(error),
        })?;
        let seal = decode_header(&header, kind, number).map_err(|flaw| match flaw {
            HeaderFlaw::Version(version) => ReaderError::Version(version),
            HeaderFlaw::Magic | HeaderFlaw::Damaged => ReaderError::Header,
        })?;
        Ok(Reader {
            file,
            path: path.to_owned(),
            seal,
            end: end.unwrap_or(length),
            offset: FILE_HEADER_BYTES as u64,
            chunk: Vec::new(),
            chunk_offset: 0,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn seal(&self) -> Seal {
        self.seal
    }

    /// Where the next step begins.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Where reading ends.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Goes on at `offset`.
    pub(super) fn seek(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// The buffer that [`Step::Record`] points into; valid until the next step.
    pub(super) fn chunk(&self) -> &[u8] {
        &self.chunk
    }

    /// Reads what stands at the reader's offset.
    pub(super) fn step(&mut self) -> io::Result<Step> {
        if self.offset == self.end {
            return Ok(Step::End);
        }
        let (head, body) = match self.record_at(self.offset)? {
            Ok(found) => found,
            Err(flaw) => return Ok(Step::Bad(flaw)),
        };
        let next = self.offset + (RECORD_HEADER_BYTES + head.length) as u64;
        let step = if !head.control {
            Step::Record(body)
        } else {
            match decode_control(&self.chunk[body]) {
                Some(control) => Step::Control(control),
                None => return Ok(Step::Bad(Flaw::Control)),
            }
        };
        self.offset = next;
        Ok(step)
    }

    /// Looks for the first good record at or behind `from`; `None` if there is none up to the end.
    pub(super) fn next_good(&mut self, from: u64) -> io::Result<Option<u64>> {
        let last = self.end.saturating_sub(RECORD_HEADER_BYTES as u64);
        let mut offset = from;
        while offset <= last {
            if self.record_at(offset)?.is_ok() {
                return Ok(Some(offset));
            }
            offset += 1;
        }
        Ok(None)
    }

    fn record_at(&mut self, offset: u64) -> io::Result<Result<(RecordHead, Range<usize>), Flaw>> {
        let left = self.end.saturating_sub(offset);
        if left < RECORD_HEADER_BYTES as u64 {
            return Ok(Err(Flaw::CutShort));
        }
        let at = self.load(offset, RECORD_HEADER_BYTES)?;
        let Some(head) = self.seal.record_head(&self.chunk[at..], offset) else {
            return Ok(Err(Flaw::Header));
        };
        let whole = RECORD_HEADER_BYTES + head.length;
        if left < whole as u64 {
            return Ok(Err(Flaw::CutShort));
        }
        let at = self.load(offset, whole)?;
        let body = at + RECORD_HEADER_BYTES..at + whole;
        if !head.fits(&self.chunk[body.clone()]) {
            return Ok(Err(Flaw::Body));
        }
        Ok(Ok((head, body)))
    }

    /// Makes `length` bytes from `offset` stand in the chunk, and says where; they lie before `end`.
    fn load(&mut self, offset: u64, length: usize) -> io::Result<usize> {
        let chunk_end = self.chunk_offset + self.chunk.len() as u64;
        if offset >= self.chunk_offset && offset + length as u64 <= chunk_end {
            return Ok((offset - self.chunk_offset) as usize);
        }
        let left = usize::try_from(self.end - offset).unwrap_or(usize::MAX);
        let wanted = length.max(READ_BYTES).min(left);
        // Nothing in the chunk is valid until the read below has succeeded.
        self.chunk_offset = offset;
        self.chunk.resize(wanted, 0);
        if let Err(error) = self.file.read_exact_at(&mut self.chunk, offset) {
            self.chunk.clear();
            return Err(error);
        }
        Ok(0)
    }
}
