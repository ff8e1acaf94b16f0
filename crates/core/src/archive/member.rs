//! Members: the records that describe them, in the directory and before their
//! data.

use super::bytes::{extra, u16_at, u32_at, u64_at};
use super::{FormatError, time};

pub(super) const CENTRAL_SIGNATURE: u32 = 0x0201_4b50;
pub(super) const LOCAL_SIGNATURE: u32 = 0x0403_4b50;
pub(super) const CENTRAL_BYTES: usize = 46;
pub(super) const LOCAL_BYTES: usize = 30;
/// The extra field with sizes and offsets beyond 4 GiB.
pub(super) const ZIP64_EXTRA: u16 = 1;
/// Info-ZIP's extra field with the time in seconds since 1970.
pub(super) const TIME_EXTRA: u16 = 0x5455;
/// The member's data are encrypted.
const ENCRYPTED: u16 = 1;
/// Sizes and CRC stand behind the data.
const DESCRIBED_BEHIND: u16 = 1 << 3;
/// The name is UTF-8.
pub(super) const UTF8: u16 = 1 << 11;
/// Made by Unix: the mode is in the upper half of the external attributes.
pub(super) const MADE_BY_UNIX: u8 = 3;
/// The version of the format that has ZIP64.
pub(super) const VERSION_ZIP64: u8 = 45;
/// The kind of a file within its mode.
const MODE_KIND: u32 = 0o170_000;
const MODE_DIRECTORY: u32 = 0o040_000;
const MODE_SYMLINK: u32 = 0o120_000;
const MODE_REGULAR: u32 = 0o100_000;

/// How a member's data are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// As they are.
    Stored,
    /// Deflated.
    Deflated,
    /// In a way that only other tools know.
    Other(u16),
}

impl Method {
    /// Its number in ZIP files.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Method::Stored => 0,
            Method::Deflated => 8,
            Method::Other(number) => number,
        }
    }

    /// The method with this number.
    #[must_use]
    pub fn numbered(number: u16) -> Method {
        match number {
            0 => Method::Stored,
            8 => Method::Deflated,
            number => Method::Other(number),
        }
    }
}

/// What a member stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link: its data are its target.
    Symlink,
    /// A device, a pipe or a socket.
    Special,
}

/// A member of an archive, as the directory describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name: any bytes.
    pub name: Vec<u8>,
    /// How its data are stored.
    pub method: Method,
    /// Whether its data are encrypted.
    pub is_encrypted: bool,
    /// The CRC-32 of its data.
    pub crc: u32,
    /// Bytes of its data.
    pub size: u64,
    /// Bytes that they take in the file.
    pub packed: u64,
    /// Where what precedes its data begins, in the file.
    pub header: u64,
    /// When it was modified, in seconds since 1970.
    pub modified: u64,
    /// Its mode, kind included; `None` if another system made it.
    pub mode: Option<u32>,
}

impl Member {
    /// A file or directory that is not in an archive yet.
    #[must_use]
    pub fn new(name: impl Into<Vec<u8>>, modified: u64, permissions: u32) -> Member {
        let name = name.into();
        let kind = if name.ends_with(b"/") { MODE_DIRECTORY } else { MODE_REGULAR };
        Member {
            name,
            method: Method::Stored,
            is_encrypted: false,
            crc: 0,
            size: 0,
            packed: 0,
            header: 0,
            modified,
            mode: Some(kind | permissions & 0o7777),
        }
    }

    /// What it stands for.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.mode.map_or(0, |mode| mode & MODE_KIND) {
            _ if self.name.ends_with(b"/") => Kind::Directory,
            MODE_DIRECTORY => Kind::Directory,
            MODE_SYMLINK => Kind::Symlink,
            0 | MODE_REGULAR => Kind::File,
            _ => Kind::Special,
        }
    }

    /// Its permissions; those that files usually have if it has none.
    #[must_use]
    pub fn permissions(&self) -> u32 {
        self.mode.filter(|mode| mode & 0o777 != 0).map_or(0o644, |mode| mode & 0o777)
    }
}

/// Decodes a record of a directory, which begins `bytes` and stands at `offset`
/// of the file. Returns the member, and the length of its record; `None` if
/// more bytes are needed. `base` is the length of what stands before the archive in its
/// file; the archive does not count it.
///
/// # Errors
/// If this is no such record.
pub fn central(
    bytes: &[u8],
    offset: u64,
    base: u64,
) -> Result<Option<(Member, usize)>, FormatError> {
    let Some(fixed) = bytes.get(..CENTRAL_BYTES) else { return Ok(None) };
    let word = |at| u16_at(fixed, at).unwrap_or_default();
    let long = |at| u32_at(fixed, at).unwrap_or_default();
    if long(0) != CENTRAL_SIGNATURE {
        let what = "a record of the directory";
        return Err(FormatError::Signature { offset, what, found: long(0) });
    }
    let (name, extras, comment) =
        (usize::from(word(28)), usize::from(word(30)), usize::from(word(32)));
    let whole = CENTRAL_BYTES + name + extras + comment;
    let Some(rest) = bytes.get(CENTRAL_BYTES..whole) else { return Ok(None) };
    let (name, extras) = (&rest[..name], &rest[name..name + extras]);
    let mut wide = extra(extras, ZIP64_EXTRA).unwrap_or_default();
    let mut value = |narrow: u32| {
        if narrow != u32::MAX {
            return Ok(u64::from(narrow));
        }
        let what = "a record of the directory lacks its 64-bit sizes";
        let found = u64_at(wide, 0).ok_or(FormatError::Contradiction { offset, what })?;
        wide = &wide[8..];
        Ok(found)
    };
    let (size, packed, header) = (value(long(24))?, value(long(20))?, value(long(42))?);
    let what = "a member begins beyond the end of any file";
    let header = header.checked_add(base).ok_or(FormatError::Contradiction { offset, what })?;
    let (flags, made_by) = (word(8), fixed[5]);
    let member = Member {
        name: name.to_vec(),
        method: Method::numbered(word(10)),
        is_encrypted: flags & ENCRYPTED != 0,
        crc: long(16),
        size,
        packed,
        header,
        modified: modified(extras, word(12), word(14)),
        mode: (made_by == MADE_BY_UNIX).then(|| long(38) >> 16),
    };
    Ok(Some((member, whole)))
}

/// What precedes a member's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// The member, as it is described there.
    pub member: Member,
    /// Whether its sizes and its CRC stand behind its data instead.
    pub is_described_behind: bool,
    /// Bytes of the header: the data follow.
    pub bytes: usize,
}

/// Decodes what precedes a member's data, which begins `bytes` and stands at
/// `offset` of the file; `None` if more bytes are needed.
///
/// # Errors
/// If this is no such header.
pub fn local(bytes: &[u8], offset: u64) -> Result<Option<Local>, FormatError> {
    let Some(fixed) = bytes.get(..LOCAL_BYTES) else { return Ok(None) };
    let word = |at| u16_at(fixed, at).unwrap_or_default();
    let long = |at| u32_at(fixed, at).unwrap_or_default();
    if long(0) != LOCAL_SIGNATURE {
        let what = "the header of a member";
        return Err(FormatError::Signature { offset, what, found: long(0) });
    }
    let (name, extras) = (usize::from(word(26)), usize::from(word(28)));
    let whole = LOCAL_BYTES + name + extras;
    let Some(rest) = bytes.get(LOCAL_BYTES..whole) else { return Ok(None) };
    let (name, extras) = rest.split_at(name);
    let (mut size, mut packed) = (u64::from(long(22)), u64::from(long(18)));
    if let Some(wide) = extra(extras, ZIP64_EXTRA) {
        let mut at = 0;
        for value in [&mut size, &mut packed] {
            if *value == u64::from(u32::MAX) {
                let what = "the header of a member lacks its 64-bit sizes";
                *value = u64_at(wide, at).ok_or(FormatError::Contradiction { offset, what })?;
                at += 8;
            }
        }
    }
    let flags = word(6);
    let member = Member {
        name: name.to_vec(),
        method: Method::numbered(word(8)),
        is_encrypted: flags & ENCRYPTED != 0,
        crc: long(14),
        size,
        packed,
        header: offset,
        modified: modified(extras, word(10), word(12)),
        mode: None,
    };
    let is_described_behind = flags & DESCRIBED_BEHIND != 0;
    Ok(Some(Local { member, is_described_behind, bytes: whole }))
}

/// Seconds since 1970: those of the extra field, else the date and time.
fn modified(extras: &[u8], dos_time: u16, dos_date: u16) -> u64 {
    let exact = extra(extras, TIME_EXTRA)
        .filter(|field| field.first().is_some_and(|flags| flags & 1 != 0))
        .and_then(|field| u32_at(field, 1));
    exact.map_or_else(|| time::seconds(dos_time, dos_date), u64::from)
}
