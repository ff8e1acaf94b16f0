//! The bytes of a journal file: one header, then records back to back.
//!
//! ```text
//! header  magic[8]  version u32  kind u32  number u64  salt u64  zero u32  crc u32
//! record  word u32 (bit 31: control, bits 0..31: body length)  head u32  body u32  body[length]
//! ```
//! All integers are little-endian. `head` is a CRC-32 over the record's offset in its file and
//! `word`; `body` is a CRC-32 over the body that goes on from `head`. Both start from the *seal*, a
//! value derived from the file's header, which holds a random salt. A block that belongs to another
//! file, or to another place in this one, therefore never passes for a record. The length has a
//! check of its own so that looking for the next good record behind a bad one costs a few
//! nanoseconds per byte, not a checksum over megabytes at every byte.

use crc32fast::Hasher;

/// Version of the file format that this build writes and reads. It is raised whenever files of
/// the version before would be misread: when a record, or a value in one, is encoded differently,
/// or the layout above changes. A change of the handshake, or of messages that no record contains,
/// does not raise it. From then on the version before is read as well, for one version, so that
/// `falkon restart` can replace a release by the next one. A file of any other version is refused
/// as a whole, and never misread in the middle. The tests of the program have a journal that a
/// release of protocol 8 has written (`end_to_end/versions/journal_of_protocol_8`).
///
/// Until protocol 8 it was the protocol's version.
pub const FORMAT_VERSION: u32 = 8;

/// Longest body of one record: a message of 16 MiB and room for its envelope.
pub const RECORD_BYTES_MAX: usize = falkon_core::limits::RECORD_BYTES_MAX as usize;

/// Length of the header of every journal file.
pub(super) const FILE_HEADER_BYTES: usize = 40;

/// Length of what stands before a record's body.
pub(super) const RECORD_HEADER_BYTES: usize = 12;

const MAGIC: [u8; 8] = *b"FLKNJRNL";
const CONTROL_BIT: u32 = 1 << 31;
const CONTROL_SYNCED: u8 = 1;
const CONTROL_SNAPSHOT_END: u8 = 2;

/// Body length of the control record that says how far the segment was synced.
const SYNCED_BODY_BYTES: usize = 17;

/// Bytes that a "synced up to here" control record takes in the file.
pub(super) const SYNCED_RECORD_BYTES: usize = RECORD_HEADER_BYTES + SYNCED_BODY_BYTES;

const _: () = assert!(RECORD_BYTES_MAX < CONTROL_BIT as usize, "a length fits beside the flag");

/// The contents of a journal file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    /// Records in the order in which they were committed.
    Segment,
    /// Records that replace every segment with a smaller number.
    Snapshot,
}

impl FileKind {
    fn code(self) -> u32 {
        match self {
            FileKind::Segment => 1,
            FileKind::Snapshot => 2,
        }
    }
}

/// Why the first bytes of a file are not a header that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderFlaw {
    /// The file does not begin like a journal file.
    Magic,
    /// A journal file of another format version.
    Version(u32),
    /// The checksum does not fit, or the header belongs to another file.
    Damaged,
}

/// The start value of all checksums of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seal(u32);

/// Encodes a file header; the seal is what its records are checked with.
pub(super) fn encode_header(
    kind: FileKind,
    number: u64,
    salt: u64,
) -> ([u8; FILE_HEADER_BYTES], Seal) {
    let mut header = [0; FILE_HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&kind.code().to_le_bytes());
    header[16..24].copy_from_slice(&number.to_le_bytes());
    header[24..32].copy_from_slice(&salt.to_le_bytes());
    let check = crc32fast::hash(&header[..36]);
    header[36..].copy_from_slice(&check.to_le_bytes());
    (header, Seal(check))
}

/// Checks a file header against what the file's name promises.
pub(super) fn decode_header(
    header: &[u8; FILE_HEADER_BYTES],
    kind: FileKind,
    number: u64,
) -> Result<Seal, HeaderFlaw> {
    if header[..8] != MAGIC {
        return Err(HeaderFlaw::Magic);
    }
    let version = read_u32(&header[8..]);
    if version != FORMAT_VERSION {
        return Err(HeaderFlaw::Version(version));
    }
    let check = crc32fast::hash(&header[..36]);
    let belongs = read_u32(&header[12..]) == kind.code() && read_u64(&header[16..]) == number;
    if check != read_u32(&header[36..]) || !belongs {
        return Err(HeaderFlaw::Damaged);
    }
    Ok(Seal(check))
}

/// Appends one data record to `buffer`; `offset` is where in the file it will stand.
pub(super) fn push_record(buffer: &mut Vec<u8>, seal: Seal, offset: u64, parts: &[&[u8]]) {
    push(buffer, seal, offset, 0, parts);
}

/// Appends one data record whose body `encode` appends to the buffer; what is in that already it
/// must leave alone. A body longer than [`RECORD_BYTES_MAX`] is taken back, and its length is the
/// error.
pub(super) fn push_record_with(
    buffer: &mut Vec<u8>,
    seal: Seal,
    offset: u64,
    encode: impl FnOnce(&mut Vec<u8>),
) -> Result<(), usize> {
    let at = buffer.len();
    buffer.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
    encode(buffer);
    let length = buffer.len().saturating_sub(at + RECORD_HEADER_BYTES);
    if length > RECORD_BYTES_MAX {
        buffer.truncate(at);
        return Err(length);
    }
    let word = length as u32;
    buffer[at..at + 4].copy_from_slice(&word.to_le_bytes());
    reseal(&mut buffer[at..], seal, offset);
    Ok(())
}

/// Appends the note that segment `number` was on stable storage up to `synced`.
pub(super) fn push_synced(buffer: &mut Vec<u8>, seal: Seal, offset: u64, number: u64, synced: u64) {
    let parts: [&[u8]; 3] = [&[CONTROL_SYNCED], &number.to_le_bytes(), &synced.to_le_bytes()];
    push(buffer, seal, offset, CONTROL_BIT, &parts);
}

/// Appends the note that ends a snapshot of `records` data records.
pub(super) fn push_snapshot_end(buffer: &mut Vec<u8>, seal: Seal, offset: u64, records: u64) {
    let parts: [&[u8]; 2] = [&[CONTROL_SNAPSHOT_END], &records.to_le_bytes()];
    push(buffer, seal, offset, CONTROL_BIT, &parts);
}

fn push(buffer: &mut Vec<u8>, seal: Seal, offset: u64, flag: u32, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    debug_assert!(length <= RECORD_BYTES_MAX);
    let word = length as u32 | flag;
    let head = seal.head(offset, word);
    let mut body = Hasher::new_with_initial(head);
    for part in parts {
        body.update(part);
    }
    buffer.reserve(RECORD_HEADER_BYTES + length);
    buffer.extend_from_slice(&word.to_le_bytes());
    buffer.extend_from_slice(&head.to_le_bytes());
    buffer.extend_from_slice(&body.finalize().to_le_bytes());
    for part in parts {
        buffer.extend_from_slice(part);
    }
}

/// Rewrites the checks of the records in `buffer`, which now goes to `offset` of another file.
pub(super) fn reseal(buffer: &mut [u8], seal: Seal, offset: u64) {
    let mut at = 0;
    while at < buffer.len() {
        let word = read_u32(&buffer[at..]);
        let start = at + RECORD_HEADER_BYTES;
        let end = start + (word & !CONTROL_BIT) as usize;
        let head = seal.head(offset + at as u64, word);
        let body = Seal::body(head, &buffer[start..end]);
        buffer[at + 4..at + 8].copy_from_slice(&head.to_le_bytes());
        buffer[at + 8..start].copy_from_slice(&body.to_le_bytes());
        at = end;
    }
}

/// A record's header that passed its check.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordHead {
    /// Length of the body.
    pub(super) length: usize,
    /// True for the journal's own notes.
    pub(super) control: bool,
    head: u32,
    body: u32,
}

impl RecordHead {
    /// Whether `body` is what was written behind this header.
    pub(super) fn fits(&self, body: &[u8]) -> bool {
        Seal::body(self.head, body) == self.body
    }
}

/// A note of the journal to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    /// Segment `number` was on stable storage up to offset `synced`.
    Synced {
        /// The segment.
        number: u64,
        /// Offset in bytes.
        synced: u64,
    },
    /// The end of a snapshot, with the number of its data records.
    SnapshotEnd {
        /// Count of data records.
        records: u64,
    },
}

/// Reads the body of a control record; `None` if this version does not know it.
pub(super) fn decode_control(body: &[u8]) -> Option<Control> {
    match (body.first()?, body.len()) {
        (&CONTROL_SYNCED, SYNCED_BODY_BYTES) => {
            Some(Control::Synced { number: read_u64(&body[1..]), synced: read_u64(&body[9..]) })
        }
        (&CONTROL_SNAPSHOT_END, 9) => Some(Control::SnapshotEnd { records: read_u64(&body[1..]) }),
        _ => None,
    }
}

impl Seal {
    /// Checks the twelve bytes at `offset`; `None` if no record begins there.
    pub(super) fn record_head(self, bytes: &[u8], offset: u64) -> Option<RecordHead> {
        let word = read_u32(bytes);
        let length = (word & !CONTROL_BIT) as usize;
        let head = read_u32(&bytes[4..]);
        if length > RECORD_BYTES_MAX || self.head(offset, word) != head {
            return None;
        }
        let body = read_u32(&bytes[8..]);
        Some(RecordHead { length, control: word & CONTROL_BIT != 0, head, body })
    }

    fn head(self, offset: u64, word: u32) -> u32 {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&offset.to_le_bytes());
        bytes[8..].copy_from_slice(&word.to_le_bytes());
        let mut hasher = Hasher::new_with_initial(self.0);
        hasher.update(&bytes);
        hasher.finalize()
    }

    fn body(head: u32, body: &[u8]) -> u32 {
        let mut hasher = Hasher::new_with_initial(head);
        hasher.update(body);
        hasher.finalize()
    }
}

/// Reads a `u32` from the first four bytes, which the caller knows to be there.
fn read_u32(bytes: &[u8]) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[..4]);
    u32::from_le_bytes(value)
}

/// Reads a `u64` from the first eight bytes, which the caller knows to be there.
fn read_u64(bytes: &[u8]) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(value)
}
