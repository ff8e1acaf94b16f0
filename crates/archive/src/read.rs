//! Reading a member's data, which are checked by their length and their CRC.

use crate::bytes::Bytes;
use crate::limits::{HEADER_SLACK_BYTES, READ_BYTES};
use crate::part::Part;
use falkon_core::archive::limits::LOCAL_BYTES_MAX;
use falkon_core::archive::{FormatError, Local, Member, Method, local, readable};
use flate2::{Decompress, FlushDecompress, Status};
use std::io;
use std::path::PathBuf;

/// Why an archive, or a member of it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system refuses.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// No file of this name.
    #[error("there is no archive {}", path.display())]
    Missing {
        /// The name.
        path: PathBuf,
    },
    /// A directory, or something else.
    #[error("{} is {what}: an archive is a regular file", path.display())]
    NoFile {
        /// The name.
        path: PathBuf,
        /// The kind of file that the path leads to.
        what: &'static str,
    },
    /// No archive, or a damaged one.
    #[error("{}: {error} (`falkon archive check --salvage` recovers what is whole)", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The defect.
        #[source]
        error: FormatError,
    },
    /// No member of this name.
    #[error("{} has no member `{}`", path.display(), readable(name))]
    NoMember {
        /// The archive.
        path: PathBuf,
        /// The name.
        name: Vec<u8>,
    },
    /// A damaged member.
    #[error("{}: member `{}` at byte {offset}: {fault}", path.display(), readable(name))]
    Member {
        /// The file.
        path: PathBuf,
        /// The member.
        name: Vec<u8>,
        /// Where its header begins.
        offset: u64,
        /// The defect of the member.
        #[source]
        fault: MemberFault,
    },
    /// The receiver of the data refused them.
    #[error("cannot write `{}`: {error}", readable(name))]
    Taken {
        /// The member.
        name: Vec<u8>,
        /// Why not.
        #[source]
        error: io::Error,
    },
}

/// Defects of a member.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemberFault {
    /// Its header is none.
    #[error("{0}")]
    Header(#[source] FormatError),
    /// Its header is not what the directory says.
    #[error("its header and the directory differ in its {0}")]
    Differs(&'static str),
    /// It ends after the file.
    #[error("its data are cut off: they end at byte {end}, and the file at byte {file}")]
    CutOff {
        /// Where its data end.
        end: u64,
        /// Where the file ends.
        file: u64,
    },
    /// Its data are others.
    #[error("its data are damaged: their CRC is {found:08x}, and was {expected:08x}")]
    Crc {
        /// As the directory has it.
        expected: u32,
        /// As it is.
        found: u32,
    },
    /// Its data have another length.
    #[error("its data are damaged: they are not {expected} bytes long")]
    Size {
        /// As the directory has it.
        expected: u64,
    },
    /// Its deflated data are damaged.
    #[error("its data are damaged: they cannot be inflated")]
    Inflate,
    /// Only other tools can read it.
    #[error("its data are stored by method {0}: another tool must read it")]
    Method(u16),
    /// Only other tools can read it.
    #[error("its data are encrypted: another tool must read it")]
    Encrypted,
}

/// Why data were not handed over.
pub(crate) enum Stop {
    Io(io::Error),
    Fault(MemberFault),
    Taken(io::Error),
}

impl From<MemberFault> for Stop {
    fn from(fault: MemberFault) -> Stop {
        Stop::Fault(fault)
    }
}

/// What reading members takes again and again.
#[derive(Debug)]
pub struct Scratch {
    input: Vec<u8>,
    output: Vec<u8>,
    inflate: Decompress,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch { input: Vec::new(), output: Vec::new(), inflate: Decompress::new(false) }
    }
}

impl Scratch {
    /// Hands all data of a member over, piece by piece. The data are known to be
    /// right when this returns, not before.
    ///
    /// # Errors
    /// If it is damaged, cannot be read, or `take` refuses.
    pub fn read(
        &mut self,
        part: &Part,
        member: &Member,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), ReadError> {
        let file = part.file()?;
        let read = self.hand_over(&*file, part.layout().file_bytes, member, take);
        read.map_err(|stop| part.stopped(member, stop))
    }

    /// The same, of a file of so many bytes.
    pub(crate) fn hand_over(
        &mut self,
        file: &dyn Bytes,
        file_bytes: u64,
        member: &Member,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), Stop> {
        if member.is_encrypted {
            return Err(MemberFault::Encrypted.into());
        }
        let start = self.data_start(file, file_bytes, member)?;
        let mut crc = crc32fast::Hasher::new();
        let mut size = 0;
        let mut checked = |bytes: &[u8]| {
            crc.update(bytes);
            size += bytes.len() as u64;
            if size > member.size {
                return Err(Stop::Fault(MemberFault::Size { expected: member.size }));
            }
            take(bytes).map_err(Stop::Taken)
        };
        match member.method {
            Method::Stored => {
                let mut rest = member.packed;
                while rest > 0 {
                    let bytes = self.fill(file, start + member.packed - rest, rest)?;
                    checked(&self.input[..bytes])?;
                    rest -= bytes as u64;
                }
            }
            Method::Deflated => self.inflate(file, start, member, &mut checked)?,
            Method::Other(number) => return Err(MemberFault::Method(number).into()),
        }
        if size != member.size {
            return Err(MemberFault::Size { expected: member.size }.into());
        }
        let found = crc.finalize();
        if found != member.crc {
            return Err(MemberFault::Crc { expected: member.crc, found }.into());
        }
        Ok(())
    }

    fn inflate(
        &mut self,
        file: &dyn Bytes,
        start: u64,
        member: &Member,
        checked: &mut dyn FnMut(&[u8]) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.inflate.reset(false);
        let most = READ_BYTES.min(usize::try_from(member.size).unwrap_or(READ_BYTES)).max(1);
        if self.output.len() < most {
            self.output.resize(most, 0);
        }
        let mut read = 0;
        while read < member.packed {
            let bytes = self.fill(file, start + read, member.packed - read)?;
            read += bytes as u64;
            let (input, output) = (&self.input[..bytes], &mut self.output);
            if inflate_some(&mut self.inflate, output, member.packed, input, checked)? {
                return Ok(());
            }
        }
        Err(MemberFault::Inflate.into())
    }

    /// Reads at most `rest` bytes; says how many.
    fn fill(&mut self, file: &dyn Bytes, offset: u64, rest: u64) -> Result<usize, Stop> {
        let bytes = rest.min(READ_BYTES as u64) as usize;
        if self.input.len() < bytes {
            self.input.resize(bytes, 0);
        }
        file.read_exact_at(&mut self.input[..bytes], offset).map_err(Stop::Io)?;
        Ok(bytes)
    }

    /// Where a member's data begin: its header is read and compared.
    pub(crate) fn data_start(
        &mut self,
        file: &dyn Bytes,
        file_bytes: u64,
        member: &Member,
    ) -> Result<u64, Stop> {
        let cut_off = |end| MemberFault::CutOff { end, file: file_bytes };
        let rest = file_bytes.saturating_sub(member.header);
        let likely = 30 + member.name.len() + HEADER_SLACK_BYTES;
        for bytes in [likely, LOCAL_BYTES_MAX] {
            let bytes = bytes.min(usize::try_from(rest).unwrap_or(bytes));
            if self.input.len() < bytes {
                self.input.resize(bytes, 0);
            }
            file.read_exact_at(&mut self.input[..bytes], member.header).map_err(Stop::Io)?;
            let found = local(&self.input[..bytes], member.header);
            let Some(header) = found.map_err(MemberFault::Header)? else { continue };
            agrees(&header, member)?;
            let start = member.header + header.bytes as u64;
            let end = start.checked_add(member.packed).ok_or(cut_off(u64::MAX))?;
            return if end <= file_bytes { Ok(start) } else { Err(cut_off(end).into()) };
        }
        Err(cut_off(member.header.saturating_add(likely as u64)).into())
    }
}

/// Compares a member's header with what the directory says of it.
pub(crate) fn agrees(header: &Local, member: &Member) -> Result<(), MemberFault> {
    let same = &header.member;
    if same.name != member.name {
        return Err(MemberFault::Differs("name"));
    }
    if same.method != member.method {
        return Err(MemberFault::Differs("method"));
    }
    if !header.is_described_behind
        && (same.crc, same.size, same.packed) != (member.crc, member.size, member.packed)
    {
        return Err(MemberFault::Differs("CRC or its sizes"));
    }
    Ok(())
}

/// Inflates the next part of a member's data, of which there are `packed` bytes. Says
/// whether they have ended.
pub(crate) fn inflate_some(
    inflate: &mut Decompress,
    output: &mut [u8],
    packed: u64,
    input: &[u8],
    checked: &mut dyn FnMut(&[u8]) -> Result<(), Stop>,
) -> Result<bool, Stop> {
    let mut used = 0;
    loop {
        let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
        let status = inflate.decompress(&input[used..], output, FlushDecompress::None);
        let status = status.map_err(|_| Stop::Fault(MemberFault::Inflate))?;
        used += (inflate.total_in() - before_in) as usize;
        let made = (inflate.total_out() - before_out) as usize;
        checked(&output[..made])?;
        match status {
            Status::StreamEnd => {
                let is_all = inflate.total_in() == packed;
                return if is_all { Ok(true) } else { Err(MemberFault::Inflate.into()) };
            }
            // All input is used, and no output waits for room.
            _ if used == input.len() && made < output.len() => return Ok(false),
            _ if made == 0 && inflate.total_in() == before_in => return Ok(false),
            _ => {}
        }
    }
}
