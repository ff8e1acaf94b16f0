//! A deflated member, inflated a piece at a time.

use crate::bytes::Bytes;
use crate::limits::READ_BYTES;
use crate::read::{MemberFault, Stop};
use falkon_core::archive::Member;
use flate2::{Decompress, FlushDecompress, Status};
use std::sync::Arc;

/// A reader of a member's data, part by part.
#[derive(Debug)]
pub(crate) struct Stream {
    file: Arc<dyn Bytes>,
    member: Member,
    /// Where its data begin.
    start: u64,
    inflate: Decompress,
    crc: crc32fast::Hasher,
    /// Packed bytes that are read, of which those from `used` on are not inflated.
    input: Vec<u8>,
    used: usize,
    read: u64,
    made: u64,
    has_ended: bool,
}

impl Stream {
    /// `start` is where the member's data begin in the file.
    pub(crate) fn new(file: Arc<dyn Bytes>, member: Member, start: u64) -> Stream {
        Stream {
            file,
            member,
            start,
            inflate: Decompress::new(false),
            crc: crc32fast::Hasher::new(),
            input: Vec::new(),
            used: 0,
            read: 0,
            made: 0,
            has_ended: false,
        }
    }

    /// Bytes that it has handed over.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// The next bytes, as many as are asked for, or as there are. The last ones are handed
    /// over if all data are those that the directory describes.
    pub(crate) fn next(&mut self, bytes: usize) -> Result<Vec<u8>, Stop> {
        let rest = self.member.size - self.made;
        let bytes = bytes.min(usize::try_from(rest).unwrap_or(bytes));
        let mut out = vec![0; bytes];
        let mut filled = 0;
        while filled < bytes {
            let made = self.step(&mut out[filled..])?;
            if made == 0 && self.has_ended {
                return Err(MemberFault::Size { expected: self.member.size }.into());
            }
            filled += made;
        }
        self.crc.update(&out);
        self.made += bytes as u64;
        if self.made == self.member.size {
            self.end()?;
        }
        Ok(out)
    }

    /// All is inflated: nothing more must come, and the CRC must be right.
    fn end(&mut self) -> Result<(), Stop> {
        while !self.has_ended {
            if self.step(&mut [0])? > 0 {
                return Err(MemberFault::Size { expected: self.member.size }.into());
            }
        }
        if self.inflate.total_in() != self.member.packed {
            return Err(MemberFault::Inflate.into());
        }
        let found = self.crc.clone().finalize();
        if found != self.member.crc {
            return Err(MemberFault::Crc { expected: self.member.crc, found }.into());
        }
        Ok(())
    }

    /// Inflates some bytes to the beginning of `out`; none if it has ended, or more have been
    /// read meanwhile.
    fn step(&mut self, out: &mut [u8]) -> Result<usize, Stop> {
        if self.has_ended {
            return Ok(0);
        }
        let (before_in, before_out) = (self.inflate.total_in(), self.inflate.total_out());
        let input = self.input.get(self.used..).unwrap_or_default();
        let status = self.inflate.decompress(input, out, FlushDecompress::None);
        let status = status.map_err(|_| Stop::Fault(MemberFault::Inflate))?;
        let used = (self.inflate.total_in() - before_in) as usize;
        let made = (self.inflate.total_out() - before_out) as usize;
        self.used += used;
        self.has_ended = status == Status::StreamEnd;
        if used == 0 && made == 0 && !self.has_ended {
            self.fill()?;
        }
        Ok(made)
    }

    /// Reads more packed bytes; that there are none is a fault.
    fn fill(&mut self) -> Result<(), Stop> {
        let rest = self.member.packed - self.read;
        let is_used = self.used == self.input.len();
        if rest == 0 || !is_used {
            return Err(MemberFault::Inflate.into());
        }
        let bytes = rest.min(READ_BYTES as u64) as usize;
        self.input.resize(bytes, 0);
        self.file.read_exact_at(&mut self.input, self.start + self.read).map_err(Stop::Io)?;
        self.used = 0;
        self.read += bytes as u64;
        Ok(())
    }
}
