//! Opening a file: where its directory and its lookup table are.

use super::build::{
    END_BYTES, END_SIGNATURE, END64_BYTES, END64_SIGNATURE, LOCATOR_BYTES, LOCATOR_SIGNATURE,
};
use super::bytes::{u16_at, u32_at, u64_at};
use super::limits::{TAIL_BYTES, WIDE_TAIL_BYTES};
use super::member::{CENTRAL_BYTES, LOCAL_SIGNATURE};
use super::table::{FOOTER_BYTES, Lookup};
use super::{Crc32, FormatError, Want};

/// The first bytes of every record.
const SIGNATURE_BYTES: usize = 4;

/// Where the parts of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Where its directory begins.
    pub directory: u64,
    /// Bytes of the directory.
    pub directory_bytes: u64,
    /// Members, as the end record says. Some tools write the lowest bits only.
    pub members: u64,
    /// Bytes before the archive: offsets within it do not count them.
    pub base: u64,
    /// The lookup table. Only falkon's files have one.
    pub lookup: Option<Lookup>,
}

/// Finds a file's parts: read what it wants, hand it in, until it wants nothing.
#[derive(Debug)]
pub struct Opening {
    file_bytes: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The end record is looked for in the last bytes.
    Tail {
        is_wide: bool,
    },
    /// The end record is found, and says that another one has 64 bits.
    End64 {
        at: u64,
        limit: u64,
    },
    /// The directory is found, of an archive that has bytes before it.
    Start(Layout),
    /// The directory is found, and it is that of this file.
    Footer(Layout),
    Open(Layout),
}

impl Opening {
    /// Opens a file of this many bytes.
    #[must_use]
    pub fn new(file_bytes: u64) -> Opening {
        Opening { file_bytes, state: State::Tail { is_wide: false } }
    }

    /// What to read next; `None` when the file is open.
    #[must_use]
    pub fn want(&self) -> Option<Want> {
        match &self.state {
            State::Tail { is_wide } => {
                let most = if *is_wide { WIDE_TAIL_BYTES } else { TAIL_BYTES };
                let bytes = self.file_bytes.min(most as u64);
                Some(Want { offset: self.file_bytes - bytes, bytes: bytes as usize })
            }
            State::End64 { at, .. } => Some(Want { offset: *at, bytes: END64_BYTES }),
            State::Start(_) => Some(Want { offset: 0, bytes: SIGNATURE_BYTES }),
            State::Footer(layout) => {
                let offset = layout.directory - FOOTER_BYTES as u64;
                Some(Want { offset, bytes: FOOTER_BYTES })
            }
            State::Open(_) => None,
        }
    }

    /// The file's parts, when it wants nothing.
    #[must_use]
    pub fn layout(&self) -> Option<Layout> {
        match &self.state {
            State::Open(layout) => Some(*layout),
            _ => None,
        }
    }

    /// Hands in what it wanted.
    ///
    /// # Errors
    /// If the file is no archive.
    pub fn give(&mut self, bytes: &[u8], crc32: Crc32) -> Result<(), FormatError> {
        self.state = match &self.state {
            State::Tail { is_wide } => self.tail(bytes, *is_wide)?,
            State::End64 { at, limit } => self.end64(bytes, *at, *limit)?,
            State::Start(layout) => {
                // A file that is cut off behind a member that is an archive
                // itself ends with the directory of that.
                if u32_at(bytes, 0) == Some(LOCAL_SIGNATURE) {
                    let what = "the directory at its end is that of an archive within it, and its \
                                own is missing";
                    return Err(FormatError::Contradiction { offset: layout.base, what });
                }
                begun(*layout)
            }
            State::Footer(layout) => {
                let at = layout.directory - FOOTER_BYTES as u64;
                let found = Lookup::decode(bytes, (at, layout.base), layout.directory_bytes, crc32);
                let lookup = found.filter(|found| {
                    let members = found.members();
                    members
                        .is_some_and(|all| all == layout.members || all & 0xffff == layout.members)
                });
                State::Open(Layout { lookup, ..*layout })
            }
            State::Open(layout) => State::Open(*layout),
        };
        Ok(())
    }

    fn tail(&self, tail: &[u8], is_wide: bool) -> Result<State, FormatError> {
        let start = self.file_bytes - (tail.len() as u64).min(self.file_bytes);
        let Some(at) = end_record(tail) else {
            let is_all = start == 0 || is_wide;
            return if is_all {
                Err(FormatError::NoEnd)
            } else {
                Ok(State::Tail { is_wide: true })
            };
        };
        let offset = start + at as u64;
        if let Some(locator) = at.checked_sub(LOCATOR_BYTES)
            && u32_at(tail, locator) == Some(LOCATOR_SIGNATURE)
        {
            let limit = start + locator as u64;
            let named = u64_at(tail, locator + 8).unwrap_or(u64::MAX);
            let what = "the 64-bit end record is not before its locator";
            let last = limit
                .checked_sub(END64_BYTES as u64)
                .ok_or(FormatError::Contradiction { offset: limit, what })?;
            // With bytes before the archive, the named offset is wrong.
            let is_there = (start..=last).contains(&named)
                && u32_at(tail, (named - start) as usize) == Some(END64_SIGNATURE);
            let is_last =
                last >= start && u32_at(tail, (last - start) as usize) == Some(END64_SIGNATURE);
            let at = if is_there || !is_last && named <= last { named } else { last };
            return Ok(State::End64 { at, limit });
        }
        let word = |field| u16_at(tail, at + field).unwrap_or_default();
        let long = |field| u64::from(u32_at(tail, at + field).unwrap_or_default());
        one_disk(offset, u32::from(word(4)) | u32::from(word(6)))?;
        self.directory(offset, offset, word(10).into(), long(12), long(16))
    }

    fn end64(&self, record: &[u8], at: u64, limit: u64) -> Result<State, FormatError> {
        let what = "the 64-bit end record";
        let found = u32_at(record, 0).ok_or(FormatError::CutOff { offset: at, what })?;
        if found != END64_SIGNATURE {
            return Err(FormatError::Signature { offset: at, what, found });
        }
        let long = |field| u32_at(record, field).unwrap_or_default();
        let wide = |field| u64_at(record, field).unwrap_or_default();
        one_disk(at, long(16) | long(20))?;
        self.directory(at, at.min(limit), wide(32), wide(40), wide(48))
    }

    /// The directory, which ends at or before `limit`, as the record at `record`
    /// says.
    fn directory(
        &self,
        record: u64,
        limit: u64,
        members: u64,
        bytes: u64,
        named: u64,
    ) -> Result<State, FormatError> {
        let contradiction = |what| FormatError::Contradiction { offset: record, what };
        let directory = limit
            .checked_sub(bytes)
            .ok_or(contradiction("the end record has a directory larger than the file"))?;
        let base = directory
            .checked_sub(named)
            .ok_or(contradiction("the end record has a directory that overlaps it"))?;
        let least = members.checked_mul(CENTRAL_BYTES as u64);
        if least.is_none_or(|least| least > bytes) {
            return Err(contradiction("the end record has more members than its directory"));
        }
        let file_bytes = self.file_bytes;
        let layout =
            Layout { file_bytes, directory, directory_bytes: bytes, members, base, lookup: None };
        Ok(if base > 0 { State::Start(layout) } else { begun(layout) })
    }
}

/// The directory is found: a table may be before it.
fn begun(layout: Layout) -> State {
    let has_room = layout.directory >= FOOTER_BYTES as u64;
    if has_room { State::Footer(layout) } else { State::Open(layout) }
}

fn one_disk(offset: u64, disks: u32) -> Result<(), FormatError> {
    match disks {
        0 => Ok(()),
        _ => {
            let what = "the archive is split over several disks: join its pieces first";
            Err(FormatError::Contradiction { offset, what })
        }
    }
}

/// Where the end record is in the end of a file: where its comment ends with the
/// file, else the last one whose comment does not pass it.
fn end_record(tail: &[u8]) -> Option<usize> {
    let mut passable = None;
    for at in (0..=tail.len().checked_sub(END_BYTES)?).rev() {
        if u32_at(tail, at) != Some(END_SIGNATURE) {
            continue;
        }
        let comment = usize::from(u16_at(tail, at + 20)?);
        match (at + END_BYTES + comment).cmp(&tail.len()) {
            std::cmp::Ordering::Equal => return Some(at),
            std::cmp::Ordering::Less => passable = passable.or(Some(at)),
            std::cmp::Ordering::Greater => {}
        }
    }
    passable
}
