//! A member whose bytes come from elsewhere, a range of its file at a time: taken
//! out of its header, inflated and checked as they come.

use crate::limits::{HEADER_SLACK_BYTES, READ_BYTES};
use crate::read::{MemberFault, Stop, agrees, inflate_some};
use falkon_core::archive::limits::LOCAL_BYTES_MAX;
use falkon_core::archive::{Member, Method, local};
use flate2::Decompress;
use std::io;

/// Why data of a member are not handed over.
#[derive(Debug, thiserror::Error)]
pub enum InflowError {
    /// The member is damaged, or for other tools.
    #[error(transparent)]
    Fault(MemberFault),
    /// The receiver of the data refused them.
    #[error(transparent)]
    Taken(io::Error),
}

impl From<MemberFault> for InflowError {
    fn from(fault: MemberFault) -> InflowError {
        InflowError::Fault(fault)
    }
}

impl From<Stop> for InflowError {
    fn from(stop: Stop) -> InflowError {
        match stop {
            Stop::Fault(fault) => InflowError::Fault(fault),
            Stop::Io(error) | Stop::Taken(error) => InflowError::Taken(error),
        }
    }
}

/// Reads one member: fetch the range that it wants, hand it in, until it wants nothing.
#[derive(Debug)]
pub struct Inflow {
    member: Member,
    file_bytes: u64,
    /// The next byte of the file that is to be handed in.
    at: u64,
    /// What came of the header, until it is whole.
    header: Vec<u8>,
    /// Where the data begin, once that is known.
    start: Option<u64>,
    inflate: Option<Decompress>,
    output: Vec<u8>,
    has_ended: bool,
    crc: crc32fast::Hasher,
    size: u64,
}

impl Inflow {
    /// A member of a file of so many bytes.
    ///
    /// # Errors
    /// If only other tools can read it, or the file ends before it does.
    pub fn new(member: Member, file_bytes: u64) -> Result<Inflow, MemberFault> {
        if member.is_encrypted {
            return Err(MemberFault::Encrypted);
        }
        let inflate = match member.method {
            Method::Stored if member.packed != member.size => {
                return Err(MemberFault::Size { expected: member.size });
            }
            Method::Stored => None,
            Method::Deflated => Some(Decompress::new(false)),
            Method::Other(number) => return Err(MemberFault::Method(number)),
        };
        let end = member.header.saturating_add(member.packed);
        if end >= file_bytes {
            return Err(MemberFault::CutOff { end, file: file_bytes });
        }
        Ok(Inflow {
            at: member.header,
            member,
            file_bytes,
            header: Vec::new(),
            start: None,
            inflate,
            output: Vec::new(),
            has_ended: false,
            crc: crc32fast::Hasher::new(),
            size: 0,
        })
    }

    /// From which byte of the file on how many are to be handed in next; `None` when
    /// all have been.
    #[must_use]
    pub fn want(&self) -> Option<(u64, u64)> {
        let end = match self.start {
            Some(start) => start + self.member.packed,
            // The header is longer than the name only where other tools made it so.
            None => {
                let likely = (30 + self.member.name.len() + HEADER_SLACK_BYTES) as u64;
                let header = if self.header.is_empty() { likely } else { LOCAL_BYTES_MAX as u64 };
                (self.member.header + header).saturating_add(self.member.packed)
            }
        };
        let end = end.min(self.file_bytes);
        (end > self.at).then(|| (self.at, end - self.at))
    }

    /// Hands in the next bytes of what it wanted, and has `take` called with data.
    ///
    /// # Errors
    /// If the member is damaged, or `take` refuses.
    pub fn give(
        &mut self,
        bytes: &[u8],
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), InflowError> {
        if self.start.is_some() {
            return self.data(bytes, take);
        }
        self.header.extend_from_slice(bytes);
        self.at += bytes.len() as u64;
        let found = local(&self.header, self.member.header).map_err(MemberFault::Header)?;
        let Some(header) = found else { return Ok(()) };
        agrees(&header, &self.member)?;
        let start = self.member.header + header.bytes as u64;
        let end = start.saturating_add(self.member.packed);
        if end > self.file_bytes {
            return Err(MemberFault::CutOff { end, file: self.file_bytes }.into());
        }
        self.start = Some(start);
        self.at = start;
        let rest = std::mem::take(&mut self.header).split_off(header.bytes);
        self.data(&rest, take)
    }

    /// Unpacks `bytes` as far as they are data of the member, and skips the rest.
    fn data(
        &mut self,
        bytes: &[u8],
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), InflowError> {
        let end = self.start.unwrap_or_default() + self.member.packed;
        let count = (end - self.at).min(bytes.len() as u64);
        let bytes = &bytes[..count as usize];
        if bytes.is_empty() {
            return Ok(());
        }
        self.at += count;
        let (crc, size, most) = (&mut self.crc, &mut self.size, self.member.size);
        let mut checked = |bytes: &[u8]| {
            crc.update(bytes);
            *size += bytes.len() as u64;
            if *size > most {
                return Err(Stop::Fault(MemberFault::Size { expected: most }));
            }
            take(bytes).map_err(Stop::Taken)
        };
        let Some(inflate) = &mut self.inflate else { return Ok(checked(bytes)?) };
        if self.has_ended {
            return Err(MemberFault::Inflate.into());
        }
        let room = READ_BYTES.min(usize::try_from(most).unwrap_or(READ_BYTES)).max(1);
        self.output.resize(room, 0);
        let packed = self.member.packed;
        self.has_ended = inflate_some(inflate, &mut self.output, packed, bytes, &mut checked)?;
        Ok(())
    }

    /// All has been handed in.
    ///
    /// # Errors
    /// If the data are not those that the directory describes.
    pub fn end(self) -> Result<(), MemberFault> {
        if self.start.is_none() || self.want().is_some() {
            let end = self.member.header.saturating_add(self.member.packed);
            return Err(MemberFault::CutOff { end, file: self.file_bytes });
        }
        if self.inflate.is_some() && !self.has_ended {
            return Err(MemberFault::Inflate);
        }
        if self.size != self.member.size {
            return Err(MemberFault::Size { expected: self.member.size });
        }
        match self.crc.finalize() {
            found if found == self.member.crc => Ok(()),
            found => Err(MemberFault::Crc { expected: self.member.crc, found }),
        }
    }
}
