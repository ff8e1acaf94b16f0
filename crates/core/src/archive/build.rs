//! Writing a file of a set: the records of its members, and its end.

use super::folders::Folders;
use super::limits::{DIRECTORY_BYTES_MAX, FILE_BYTES, FILE_MEMBERS};
use super::member::{
    CENTRAL_BYTES, CENTRAL_SIGNATURE, LOCAL_BYTES, LOCAL_SIGNATURE, MADE_BY_UNIX, TIME_EXTRA, UTF8,
    VERSION_ZIP64, ZIP64_EXTRA,
};
use super::table::{self, ENTRY_BYTES, FOOTER_BYTES};
use super::{Crc32, Kind, Member, Method, time};

pub(super) const END_SIGNATURE: u32 = 0x0605_4b50;
pub(super) const END64_SIGNATURE: u32 = 0x0606_4b50;
pub(super) const LOCATOR_SIGNATURE: u32 = 0x0706_4b50;
pub(super) const END_BYTES: usize = 22;
pub(super) const END64_BYTES: usize = 56;
pub(super) const LOCATOR_BYTES: usize = 20;
/// The extra field with the time, in headers and in the directory.
const TIME_EXTRA_BYTES: usize = 9;
/// The extra field with both sizes, in headers.
const WIDE_EXTRA_BYTES: usize = 20;
/// The same with the offset, in the directory.
const WIDE_CENTRAL_EXTRA_BYTES: usize = 28;
/// In a header, that the member is modified at the time that follows.
const TIME_EXTRA_FLAGS: u8 = 1;

/// When a file of a set ends and another one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileBounds {
    /// Members of one file.
    pub members: u64,
    /// Bytes of one file, unless it has one member.
    pub bytes: u64,
}

impl Default for FileBounds {
    fn default() -> FileBounds {
        FileBounds { members: FILE_MEMBERS, bytes: FILE_BYTES }
    }
}

/// What precedes a member's data in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// Whether its sizes have 64 bits.
    is_wide: bool,
    bytes: usize,
}

impl Started {
    /// What precedes the data of a member of this size, or of fewer bytes.
    #[must_use]
    pub fn new(name: &[u8], size: u64) -> Started {
        let is_wide = is_wide(size);
        let wide = if is_wide { WIDE_EXTRA_BYTES } else { 0 };
        Started { is_wide, bytes: LOCAL_BYTES + name.len() + TIME_EXTRA_BYTES + wide }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// Whether a member of this size may have this header.
    #[must_use]
    pub fn fits(self, size: u64, packed: u64) -> bool {
        self.is_wide || !is_wide(size.max(packed))
    }

    /// Appends it. Where it stands in the file makes no difference.
    pub fn encode(self, member: &Member, out: &mut Vec<u8>) {
        let (time, date) = time::dos(member.modified);
        let narrow = |value: u64| if self.is_wide { u32::MAX } else { value as u32 };
        put(out, &LOCAL_SIGNATURE.to_le_bytes());
        put(out, &version_needed(member, self.is_wide).to_le_bytes());
        put(out, &flags(member).to_le_bytes());
        put(out, &member.method.number().to_le_bytes());
        put(out, &time.to_le_bytes());
        put(out, &date.to_le_bytes());
        put(out, &member.crc.to_le_bytes());
        put(out, &narrow(member.packed).to_le_bytes());
        put(out, &narrow(member.size).to_le_bytes());
        put(out, &(member.name.len() as u16).to_le_bytes());
        let extras = self.bytes - LOCAL_BYTES - member.name.len();
        put(out, &(extras as u16).to_le_bytes());
        put(out, &member.name);
        if self.is_wide {
            put(out, &ZIP64_EXTRA.to_le_bytes());
            put(out, &16_u16.to_le_bytes());
            put(out, &member.size.to_le_bytes());
            put(out, &member.packed.to_le_bytes());
        }
        put_time(out, member);
    }
}

/// A file of a set while it is written: what its end will say. A member takes 71
/// bytes and its name in memory, and up to 28 more beyond 4 GiB; a directory in
/// their names takes up to 32.
#[derive(Debug, Default)]
pub struct FileBuilder {
    /// Bytes of the file so far.
    offset: u64,
    directory: Vec<u8>,
    /// The hashes of names, and the offsets of records in the directory.
    members: Vec<(u64, u64)>,
    folders: Folders,
}

impl FileBuilder {
    /// An empty file.
    #[must_use]
    pub fn new() -> FileBuilder {
        FileBuilder::default()
    }

    /// Bytes of the file so far: where the next member begins.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Members of the file so far.
    #[must_use]
    pub fn members(&self) -> u64 {
        self.members.len() as u64
    }

    /// Whether a member with this name, which takes so many bytes, belongs into
    /// this file. An empty file has room for any.
    #[must_use]
    pub fn has_room(&self, bounds: FileBounds, name: &[u8], packed: u64) -> bool {
        let record = CENTRAL_BYTES + name.len() + TIME_EXTRA_BYTES + WIDE_CENTRAL_EXTRA_BYTES;
        let directory = self.directory.len() + record;
        let folders = self.folders.len() + Folders::of_name(name).count();
        let entries = (self.members.len() + 1 + folders) * ENTRY_BYTES;
        let ends = FOOTER_BYTES + END64_BYTES + LOCATOR_BYTES + END_BYTES;
        let header = Started::new(name, packed).bytes;
        let bytes = self.offset.saturating_add(packed);
        let bytes = bytes.saturating_add((header + entries + directory + ends) as u64);
        self.members.is_empty()
            || (self.members() < bounds.members
                && bytes <= bounds.bytes
                && directory <= DIRECTORY_BYTES_MAX)
    }

    /// Notes a member whose header and data stand at the end of the file.
    pub fn add(&mut self, member: &Member, started: Started) {
        let header = self.offset;
        let (record, out) = (self.directory.len() as u64, &mut self.directory);
        self.members.push((table::name_hash(&member.name), record));
        self.folders.add(member, record, self.members.len());
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let mut wide = [0; 24];
        let mut wide_bytes = 0;
        for value in [member.size, member.packed, header] {
            if is_wide(value) {
                wide[wide_bytes..wide_bytes + 8].copy_from_slice(&value.to_le_bytes());
                wide_bytes += 8;
            }
        }
        let extras = TIME_EXTRA_BYTES + if wide_bytes == 0 { 0 } else { 4 + wide_bytes };
        let is_wide_here = started.is_wide || wide_bytes > 0;
        let (time, date) = time::dos(member.modified);
        // MS-DOS has a bit for directories; Unix has the mode above it.
        let dos_attributes = if member.kind() == Kind::Directory { 0x10 } else { 0 };
        put(out, &CENTRAL_SIGNATURE.to_le_bytes());
        put(out, &[VERSION_ZIP64, MADE_BY_UNIX]);
        put(out, &version_needed(member, is_wide_here).to_le_bytes());
        put(out, &flags(member).to_le_bytes());
        put(out, &member.method.number().to_le_bytes());
        put(out, &time.to_le_bytes());
        put(out, &date.to_le_bytes());
        put(out, &member.crc.to_le_bytes());
        put(out, &narrow(member.packed).to_le_bytes());
        put(out, &narrow(member.size).to_le_bytes());
        put(out, &(member.name.len() as u16).to_le_bytes());
        put(out, &(extras as u16).to_le_bytes());
        // No comment, the first disk, no internal attributes.
        put(out, &[0; 6]);
        let usual = if dos_attributes == 0 { 0o100_644 } else { 0o040_755 };
        put(out, &(member.mode.unwrap_or(usual) << 16 | dos_attributes).to_le_bytes());
        put(out, &narrow(header).to_le_bytes());
        put(out, &member.name);
        if wide_bytes > 0 {
            put(out, &ZIP64_EXTRA.to_le_bytes());
            put(out, &(wide_bytes as u16).to_le_bytes());
            put(out, &wide[..wide_bytes]);
        }
        put_time(out, member);
        self.offset += started.bytes as u64 + member.packed;
    }

    /// What follows the last member, in three parts: the lookup table, the
    /// directory, the end records. A file without members has one end record
    /// alone: readers know such files as empty.
    #[must_use]
    pub fn finish(mut self, crc32: Crc32) -> [Vec<u8>; 3] {
        if self.members.is_empty() {
            let mut end = END_SIGNATURE.to_le_bytes().to_vec();
            end.resize(END_BYTES, 0);
            return [Vec::new(), Vec::new(), end];
        }
        let mut table = Vec::new();
        let folders = std::mem::take(&mut self.folders).finish();
        let (members, directory) = (&self.members[..], &self.directory[..]);
        let of = table::Contents { members, folders: folders.as_deref(), directory };
        table::encode(&of, self.offset, crc32, &mut table);
        let directory = self.offset + table.len() as u64;
        let end64 = directory + self.directory.len() as u64;
        let (members, bytes) = (self.members(), self.directory.len() as u64);
        let mut end = Vec::with_capacity(END64_BYTES + LOCATOR_BYTES + END_BYTES);
        put(&mut end, &END64_SIGNATURE.to_le_bytes());
        put(&mut end, &(END64_BYTES as u64 - 12).to_le_bytes());
        put(&mut end, &[VERSION_ZIP64, MADE_BY_UNIX, VERSION_ZIP64, 0]);
        put(&mut end, &[0; 8]);
        put(&mut end, &members.to_le_bytes());
        put(&mut end, &members.to_le_bytes());
        put(&mut end, &bytes.to_le_bytes());
        put(&mut end, &directory.to_le_bytes());
        put(&mut end, &LOCATOR_SIGNATURE.to_le_bytes());
        put(&mut end, &[0; 4]);
        put(&mut end, &end64.to_le_bytes());
        put(&mut end, &1_u32.to_le_bytes());
        put(&mut end, &END_SIGNATURE.to_le_bytes());
        put(&mut end, &[0; 4]);
        let members = u16::try_from(members).unwrap_or(u16::MAX);
        put(&mut end, &members.to_le_bytes());
        put(&mut end, &members.to_le_bytes());
        put(&mut end, &u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes());
        put(&mut end, &u32::try_from(directory).unwrap_or(u32::MAX).to_le_bytes());
        put(&mut end, &[0; 2]);
        [table, self.directory, end]
    }
}

/// Whether a number needs a field of 64 bits.
fn is_wide(value: u64) -> bool {
    value >= u64::from(u32::MAX)
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
}

fn put_time(out: &mut Vec<u8>, member: &Member) {
    put(out, &TIME_EXTRA.to_le_bytes());
    put(out, &(TIME_EXTRA_BYTES as u16 - 4).to_le_bytes());
    // Readers take the field as signed.
    let seconds = i32::try_from(member.modified).unwrap_or(i32::MAX);
    put(out, &[TIME_EXTRA_FLAGS]);
    put(out, &seconds.to_le_bytes());
}

fn version_needed(member: &Member, is_wide: bool) -> u16 {
    match member.method {
        _ if is_wide => VERSION_ZIP64.into(),
        Method::Stored if member.kind() != Kind::Directory => 10,
        _ => 20,
    }
}

/// Names that are UTF-8 are marked so. Readers take others to be in a code page
/// that maps each byte to a character.
fn flags(member: &Member) -> u16 {
    match std::str::from_utf8(&member.name) {
        Ok(name) if !name.is_ascii() => UTF8,
        _ => 0,
    }
}
