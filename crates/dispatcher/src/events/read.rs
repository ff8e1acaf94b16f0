//! The files of events, as they are read: also while they are written.

use super::files::{BLOCK_HEAD_BYTES, EventsError, FILE_HEAD, REPEATS, listed, path_of};
use falkon_core::events::Event;
use falkon_core::limits::{EVENT_BLOCK_BYTES_MAX, EVENTS_ANSWER_BYTES};
use falkon_core::task::Time;
use falkon_wire::events::BlockReader;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A place between blocks: the number of a file, and an offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// The number of the file.
    pub file: u64,
    /// Bytes from its beginning.
    pub offset: u64,
}

/// A block of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// How many it has.
    pub events: u64,
    /// The time of the first.
    pub first: Time,
    /// The time of the last.
    pub last: Time,
    /// It repeats what earlier files say, for those who have not read them.
    pub repeats: bool,
    payload: Vec<u8>,
}

impl Block {
    /// Parses the block at the beginning of `bytes`. Returns its length too; `None` if it
    /// is not whole, or damaged.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Block, usize)> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (sum, length) = (word(0)?, word(4)?);
        let (events, first, last) = (long(8)?, Time(long(16)?), Time(long(24)?));
        let repeats = length & REPEATS != 0;
        let end = BLOCK_HEAD_BYTES + (length & !REPEATS) as usize;
        let payload = bytes.get(BLOCK_HEAD_BYTES..end)?.to_vec();
        if crc32fast::hash(&bytes[4..end]) != sum {
            return None;
        }
        Some((Block { events, first, last, repeats, payload }, end))
    }

    /// Gives each event. Returns false if the block has an event that this release does
    /// not know; what comes behind that is left out.
    pub fn each(&self, mut each: impl FnMut(Event)) -> bool {
        let mut reader = BlockReader::new(&self.payload);
        loop {
            match reader.next_event() {
                Ok(Some(event)) => each(event),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }
}

/// Blocks as they are in files, one after another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Blocks {
    /// Their bytes.
    pub bytes: Vec<u8>,
    /// Where to go on.
    pub next: Position,
    /// Nothing more was there.
    pub is_end: bool,
}

impl Blocks {
    /// Reads some blocks of a directory from a position on, or from the beginning of what
    /// is kept. What cannot be read is left out.
    #[must_use]
    pub fn read(dir: &Path, from: Option<Position>) -> Blocks {
        let mut reader = EventReader::open(dir.to_owned(), from);
        let mut bytes = Vec::new();
        let mut is_end = false;
        while bytes.len() < EVENTS_ANSWER_BYTES {
            match reader.next_bytes() {
                Ok(Some((_, block))) => bytes.extend_from_slice(&block),
                Ok(None) | Err(_) => {
                    is_end = true;
                    break;
                }
            }
        }
        Blocks { bytes, next: reader.position(), is_end }
    }

    /// The blocks.
    pub fn iter(&self) -> impl Iterator<Item = Block> + '_ {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (block, length) = Block::parse(rest)?;
            rest = &rest[length..];
            Some(block)
        })
    }
}

/// Reads the files of a directory in order, and goes on where it ended as they grow.
#[derive(Debug)]
pub struct EventReader {
    dir: PathBuf,
    position: Position,
    file: Option<File>,
    /// Whether anything has been read: then what repeats it is not needed.
    has_begun: bool,
}

impl EventReader {
    /// Begins at a position, or with the oldest file there is.
    #[must_use]
    pub fn open(dir: PathBuf, from: Option<Position>) -> EventReader {
        let has_begun = from.is_some();
        EventReader { dir, position: from.unwrap_or_default(), file: None, has_begun }
    }

    /// Where it goes on.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The next block; `None` if there is none yet.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn next_block(&mut self) -> Result<Option<Block>, EventsError> {
        Ok(self.next_bytes()?.map(|(block, _)| block))
    }

    fn next_bytes(&mut self) -> Result<Option<(Block, Vec<u8>)>, EventsError> {
        loop {
            if self.file.is_none() && !self.enter()? {
                return Ok(None);
            }
            match self.read_here() {
                Some((block, bytes)) => {
                    if !block.repeats || !self.has_begun {
                        self.has_begun |= !block.repeats;
                        return Ok(Some((block, bytes)));
                    }
                }
                // Files before the last one are not written to any more: what is
                // damaged in them, and behind that, is left out.
                None if self.has_later()? => {
                    self.position = Position { file: self.position.file + 1, offset: 0 };
                    self.file = None;
                }
                None => return Ok(None),
            }
        }
    }

    /// Opens the file of the position, or the next that is there. False if there is none.
    fn enter(&mut self) -> Result<bool, EventsError> {
        let files = self.listed()?;
        let Some((number, _)) = files.range(self.position.file..).next() else { return Ok(false) };
        if *number != self.position.file {
            self.position = Position { file: *number, offset: 0 };
        }
        let Ok(file) = File::open(path_of(&self.dir, *number)) else { return Ok(false) };
        if self.position.offset == 0 {
            let mut head = FILE_HEAD;
            if file.read_exact_at(&mut head, 0).is_err() || head != FILE_HEAD {
                // It is about to be written, or another release's.
                if files.range(*number + 1..).next().is_none() {
                    return Ok(false);
                }
                self.position.file += 1;
                return self.enter();
            }
            self.position.offset = FILE_HEAD.len() as u64;
        }
        self.file = Some(file);
        Ok(true)
    }

    /// The block at the position, if it is whole.
    fn read_here(&mut self) -> Option<(Block, Vec<u8>)> {
        let file = self.file.as_ref()?;
        let mut bytes = vec![0; BLOCK_HEAD_BYTES];
        file.read_exact_at(&mut bytes, self.position.offset).ok()?;
        let length = u32::from_le_bytes(bytes[4..8].try_into().ok()?) & !REPEATS;
        let length = usize::try_from(length).ok().filter(|length| *length <= EVENT_BLOCK_BYTES_MAX);
        bytes.resize(BLOCK_HEAD_BYTES + length?, 0);
        file.read_exact_at(&mut bytes, self.position.offset).ok()?;
        let (block, length) = Block::parse(&bytes)?;
        self.position.offset += length as u64;
        Some((block, bytes))
    }

    fn has_later(&self) -> Result<bool, EventsError> {
        Ok(self.listed()?.range(self.position.file + 1..).next().is_some())
    }

    fn listed(&self) -> Result<std::collections::BTreeMap<u64, u64>, EventsError> {
        let failed = |source| EventsError::Io { doing: "list", path: self.dir.clone(), source };
        listed(&self.dir).map_err(failed)
    }
}
