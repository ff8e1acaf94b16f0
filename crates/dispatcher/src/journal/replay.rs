//! Reading back what was committed, in order and in bounded memory.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

use super::error::{Corruption, ReplayError};
use super::format::{Control, FileKind};
use super::read::{Flaw, Reader, ReaderError, Step};

/// Most damaged places that a salvaging replay lists; it counts them all.
pub const SKIPS_LISTED_MAX: usize = 100;

/// A torn tail that was cut off the last segment when the journal was opened: the remains of a
/// write that was never acknowledged, or, after a crash of the machine, never synced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The segment's file.
    pub path: PathBuf,
    /// Where the tail began, in bytes from the start of the file.
    pub offset: u64,
    /// The length of the segment in bytes.
    pub bytes: u64,
}

/// A damaged place that a salvaging replay went past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    /// The file.
    pub path: PathBuf,
    /// Where the damage begins, in bytes from the start of the file.
    pub offset: u64,
    /// Bytes that were skipped; 0 if the file itself is missing.
    pub bytes: u64,
}

/// The damage that a salvaging replay has skipped so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Number of damaged places.
    pub places: u64,
    /// Bytes skipped in all of them.
    pub bytes: u64,
    /// The first [`SKIPS_LISTED_MAX`] of them.
    pub listed: Vec<Skip>,
}

/// A file to be read, and how far.
#[derive(Debug)]
pub(super) struct ReplayFile {
    pub(super) path: PathBuf,
    pub(super) kind: FileKind,
    pub(super) number: u64,
    /// `None` for the whole file.
    pub(super) end: Option<u64>,
}

/// The records that the journal held when it was opened: those of the latest snapshot, then those
/// committed after it. It holds one record in memory, whatever the size of the journal.
///
/// Read it to its end before a snapshot of the journal is finished, which removes files. What is
/// appended meanwhile is not part of it.
#[derive(Debug)]
pub struct Replay {
    files: VecDeque<ReplayFile>,
    reader: Option<Reader>,
    salvage: bool,
    torn: Option<Torn>,
    skipped: Skipped,
    /// Data records of the file being read.
    file_records: u64,
    /// The number of records in the end note of the snapshot that is being
    /// read.
    snapshot_records: Option<u64>,
}

impl Replay {
    pub(super) fn new(files: Vec<ReplayFile>, salvage: bool, torn: Option<Torn>) -> Replay {
        Replay {
            files: files.into(),
            reader: None,
            salvage,
            torn,
            skipped: Skipped::default(),
            file_records: 0,
            snapshot_records: None,
        }
    }

    /// The part that was cut off the last segment when the journal was opened.
    pub fn torn(&self) -> Option<&Torn> {
        self.torn.as_ref()
    }

    /// The damage that has been skipped so far; none unless the journal was
    /// opened with salvage. It stays in its file until a snapshot replaces the
    /// file.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// The next record, `None` behind the last. After an error the same place is tried again.
    pub fn next_record(&mut self) -> Result<Option<&[u8]>, ReplayError> {
        let range = loop {
            let Some(reader) = &mut self.reader else {
                if !self.open_next()? {
                    return Ok(None);
                }
                continue;
            };
            let step = reader.step();
            match step.map_err(|source| read_failed(reader, source))? {
                Step::Record(range) => {
                    self.file_records += 1;
                    break range;
                }
                Step::Control(Control::Synced { .. }) => {}
                Step::Control(Control::SnapshotEnd { records }) => {
                    self.snapshot_records = Some(records);
                }
                Step::End => self.end_file()?,
                Step::Bad(flaw) => self.go_past(flaw)?,
            }
        };
        Ok(self.reader.as_ref().map(|reader| &reader.chunk()[range]))
    }

    /// Opens the file at the head of the queue, where it stays until it has been read.
    fn open_next(&mut self) -> Result<bool, ReplayError> {
        let Some(next) = self.files.front() else { return Ok(false) };
        let path = next.path.clone();
        match Reader::open(&next.path, next.kind, next.number, next.end) {
            Ok(reader) => {
                self.reader = Some(reader);
                self.file_records = 0;
                self.snapshot_records = None;
            }
            Err(ReaderError::Version(version)) => {
                return Err(ReplayError::Version { path, version });
            }
            Err(ReaderError::Io(source))
                if self.salvage && source.kind() == io::ErrorKind::NotFound =>
            {
                self.note_skip(Skip { path, offset: 0, bytes: 0 });
                self.files.pop_front();
            }
            Err(ReaderError::Io(source)) => return Err(ReplayError::Io { path, source }),
            Err(ReaderError::Header) if self.salvage => {
                let bytes = match std::fs::metadata(&path) {
                    Ok(metadata) => metadata.len(),
                    Err(source) => return Err(ReplayError::Io { path, source }),
                };
                self.note_skip(Skip { path, offset: 0, bytes });
                self.files.pop_front();
            }
            Err(ReaderError::Header) => {
                let flaw = Flaw::FileHeader;
                return Err(ReplayError::Corrupt(Corruption {
                    path,
                    offset: 0,
                    flaw,
                    next_good: None,
                }));
            }
        }
        Ok(true)
    }

    fn end_file(&mut self) -> Result<(), ReplayError> {
        let (Some(reader), Some(file)) = (&self.reader, self.files.front()) else { return Ok(()) };
        let complete = match file.kind {
            FileKind::Segment => true,
            FileKind::Snapshot => self.snapshot_records == Some(self.file_records),
        };
        if !complete {
            let (path, offset) = (reader.path().to_owned(), reader.offset());
            if !self.salvage {
                let flaw = Flaw::SnapshotEnd;
                return Err(ReplayError::Corrupt(Corruption {
                    path,
                    offset,
                    flaw,
                    next_good: None,
                }));
            }
            self.note_skip(Skip { path, offset, bytes: 0 });
        }
        self.reader = None;
        self.files.pop_front();
        Ok(())
    }

    /// Goes on behind a damaged place if the owner asked for that.
    fn go_past(&mut self, flaw: Flaw) -> Result<(), ReplayError> {
        let Some(reader) = &mut self.reader else { return Ok(()) };
        let offset = reader.offset();
        let found = reader.next_good(offset + 1);
        let next_good = found.map_err(|source| read_failed(reader, source))?;
        let path = reader.path().to_owned();
        if !self.salvage {
            return Err(ReplayError::Corrupt(Corruption { path, offset, flaw, next_good }));
        }
        let next = next_good.unwrap_or(reader.end());
        reader.seek(next);
        self.note_skip(Skip { path, offset, bytes: next - offset });
        Ok(())
    }

    fn note_skip(&mut self, skip: Skip) {
        self.skipped.places += 1;
        self.skipped.bytes += skip.bytes;
        if self.skipped.listed.len() < SKIPS_LISTED_MAX {
            self.skipped.listed.push(skip);
        }
    }
}

fn read_failed(reader: &Reader, source: io::Error) -> ReplayError {
    ReplayError::Io { path: reader.path().to_owned(), source }
}
