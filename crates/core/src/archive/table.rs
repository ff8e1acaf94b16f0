//! The lookup table: which records of the directory describe members with a
//! given hash of their names. It stands between the last member's data and the
//! directory, in bytes that other readers skip, sorted by hash. Hashes are
//! spread evenly, so the position of one in the table can be guessed.

use super::bytes::{u32_at, u64_at};
use super::limits::SEEDS_MAX;
use super::{Crc32, Want};

/// One entry of a table.
pub const ENTRY_BYTES: usize = 16;
/// What follows the table, and precedes the directory.
pub(super) const FOOTER_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"FALKONL1";
/// The offsets of the footer's fields.
const SEED_AT: usize = 8;
const ENTRIES_AT: usize = 16;
const DIRECTORY_AT: usize = 24;
const DIRECTORY_BYTES_AT: usize = 32;
const DIRECTORY_CRC_AT: usize = 40;
const TABLE_CRC_AT: usize = 44;
const FOLDERS_AT: usize = 48;
const FLAGS_AT: usize = 56;
const FOOTER_CRC_AT: usize = 60;
/// The flag of a file all of whose names are paths of files, as they are written,
/// and whose table has the directories of these too.
const PLAIN: u32 = 1;

/// The FNV-1a hash of a name, with which a table's hashes begin.
pub(super) fn name_hash(name: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    name.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// A table's hash of a name: SplitMix64's last step spreads it evenly.
pub(super) fn seeded(name_hash: u64, seed: u64) -> u64 {
    let mut mixed = name_hash ^ seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Number `attempt` of the seeds that a writer tries.
fn seed(attempt: u64) -> u64 {
    attempt.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A member in a table: the hash of its name, and its record's offset within
/// the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableEntry {
    /// The hash.
    pub hash: u64,
    /// The offset.
    pub record: u64,
}

impl TableEntry {
    /// Decodes an entry of a table with this seed; `bytes` are as many as it
    /// has.
    pub(super) fn decode(bytes: &[u8], seed: u64) -> TableEntry {
        let value = |at| u64_at(bytes, at).unwrap_or_default();
        TableEntry { hash: value(0), record: value(8) ^ seed }
    }
}

/// A file's table, as its footer describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lookup {
    pub(super) seed: u64,
    pub(super) entries: u64,
    /// Where the table begins, in the file.
    pub(super) offset: u64,
    directory_crc: u32,
    table_crc: u32,
    folders: u64,
    is_plain: bool,
}

impl Lookup {
    /// Decodes the footer that stands before a directory, and that describes
    /// it; `None` if it is none, or of another directory. `footer` is its
    /// offset in the file, and `base` the length of what stands before the archive.
    pub(super) fn decode(
        bytes: &[u8],
        (footer, base): (u64, u64),
        directory_bytes: u64,
        crc32: Crc32,
    ) -> Option<Lookup> {
        let value = |at| u64_at(bytes, at);
        let is_whole = bytes.len() == FOOTER_BYTES
            && bytes[..MAGIC.len()] == MAGIC
            && u32_at(bytes, FOOTER_CRC_AT) == Some(crc32(&bytes[..FOOTER_CRC_AT]));
        let directory = footer.checked_add(FOOTER_BYTES as u64)?.checked_sub(base)?;
        let is_of_it =
            value(DIRECTORY_AT)? == directory && value(DIRECTORY_BYTES_AT)? == directory_bytes;
        let entries = value(ENTRIES_AT)?;
        let offset = footer.checked_sub(entries.checked_mul(ENTRY_BYTES as u64)?)?;
        (is_whole && is_of_it && offset >= base).then_some(Lookup {
            seed: value(SEED_AT)?,
            entries,
            offset,
            directory_crc: u32_at(bytes, DIRECTORY_CRC_AT)?,
            table_crc: u32_at(bytes, TABLE_CRC_AT)?,
            folders: value(FOLDERS_AT)?,
            is_plain: u32_at(bytes, FLAGS_AT)? & PLAIN != 0,
        })
    }

    /// Entries of the table.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Where the table begins, in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// As many entries as the directory has members; the others are for the
    /// directories in their names.
    #[must_use]
    pub fn members(&self) -> Option<u64> {
        self.entries.checked_sub(self.folders)
    }

    /// Whether all names are paths of files, as they are written, and the table has
    /// an entry for each directory in them, under its path and a slash. It leads to
    /// a member in that directory.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// The entries from number `first`, `count` of them, in the file.
    #[must_use]
    pub fn want(&self, first: u64, count: u64) -> Want {
        let offset = self.offset + first * ENTRY_BYTES as u64;
        Want { offset, bytes: (count * ENTRY_BYTES as u64) as usize }
    }

    /// The CRC-32 of all of the table.
    #[must_use]
    pub fn table_crc(&self) -> u32 {
        self.table_crc
    }

    /// The CRC-32 of the directory that the table was made for.
    #[must_use]
    pub fn directory_crc(&self) -> u32 {
        self.directory_crc
    }
}

/// What a table is made of.
pub(super) struct Contents<'a> {
    /// The hashes of the names of members, with the offsets of their records in the
    /// directory.
    pub(super) members: &'a [(u64, u64)],
    /// Those of the directories in them, if all are known.
    pub(super) folders: Option<&'a [(u64, u64)]>,
    /// What will stand behind the footer.
    pub(super) directory: &'a [u8],
}

/// Appends a table and its footer. `offset` is where the table will stand in the
/// file.
pub(super) fn encode(of: &Contents<'_>, offset: u64, crc32: Crc32, out: &mut Vec<u8>) {
    let Contents { members, directory, .. } = *of;
    let folders = of.folders.unwrap_or_default();
    let start = out.len();
    let mut chosen = 0;
    for attempt in 0..SEEDS_MAX {
        chosen = seed(attempt);
        out.truncate(start);
        append(&[members, folders], chosen, out);
        if !has_signature(&out[start..]) {
            break;
        }
    }
    let mut footer = [0; FOOTER_BYTES];
    let mut set = |at: usize, bytes: &[u8]| footer[at..at + bytes.len()].copy_from_slice(bytes);
    let entries = members.len() + folders.len();
    let directory_at = offset + (entries * ENTRY_BYTES + FOOTER_BYTES) as u64;
    set(0, &MAGIC);
    set(SEED_AT, &chosen.to_le_bytes());
    set(ENTRIES_AT, &(entries as u64).to_le_bytes());
    set(DIRECTORY_AT, &directory_at.to_le_bytes());
    set(DIRECTORY_BYTES_AT, &(directory.len() as u64).to_le_bytes());
    set(DIRECTORY_CRC_AT, &crc32(directory).to_le_bytes());
    set(TABLE_CRC_AT, &crc32(&out[start..]).to_le_bytes());
    set(FOLDERS_AT, &(folders.len() as u64).to_le_bytes());
    set(FLAGS_AT, &(if of.folders.is_some() { PLAIN } else { 0 }).to_le_bytes());
    let crc = crc32(&footer[..FOOTER_CRC_AT]);
    footer[FOOTER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&footer);
}

fn append(parts: &[&[(u64, u64)]], seed: u64, out: &mut Vec<u8>) {
    let entry = |&(hash, record): &(u64, u64)| TableEntry { hash: seeded(hash, seed), record };
    let all = parts.iter().copied().flatten();
    let mut entries: Vec<TableEntry> = all.map(entry).collect();
    entries.sort_unstable();
    out.reserve(entries.len() * ENTRY_BYTES + FOOTER_BYTES);
    for entry in entries {
        out.extend_from_slice(&entry.hash.to_le_bytes());
        out.extend_from_slice(&(entry.record ^ seed).to_le_bytes());
    }
}

/// Whether bytes contain what begins a record of a ZIP file: readers of streams
/// look for one in whatever they do not know.
fn has_signature(bytes: &[u8]) -> bool {
    let is_record = |two: &[u8]| matches!(two, [1, 2] | [3, 4] | [5, 6] | [6, 6] | [6, 7]);
    bytes.windows(4).any(|four| four[0] == b'P' && four[1] == b'K' && is_record(&four[2..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any function of the bytes will do.
    fn sum(bytes: &[u8]) -> u32 {
        bytes.iter().fold(7, |sum: u32, byte| sum.rotate_left(5) ^ u32::from(*byte))
    }

    #[test]
    fn a_table_has_no_signature_of_a_record() {
        // An offset that is one, under a seed that leaves it so, is the reason
        // for another seed; here hashes are chosen so that one begins with it.
        let wanted = u64::from(u32::from_le_bytes(*b"PK\x03\x04"));
        let seed = seed(0);
        let unmixed = (0..u64::MAX).map(|number| name_hash(&number.to_le_bytes()));
        // Inverting SplitMix64's last step gives the hash that it maps there.
        let inverse = |mut mixed: u64| {
            mixed ^= (mixed >> 31) ^ (mixed >> 62);
            mixed = mixed.wrapping_mul(0x3196_42b2_d24d_8ec3);
            mixed ^= (mixed >> 27) ^ (mixed >> 54);
            mixed = mixed.wrapping_mul(0x96de_1b17_3f11_9089);
            mixed ^ (mixed >> 30) ^ (mixed >> 60)
        };
        let bad = inverse(wanted << 8) ^ seed;
        assert_eq!(seeded(bad, seed), wanted << 8);
        let members: Vec<(u64, u64)> = unmixed
            .take(100)
            .chain([bad])
            .enumerate()
            .map(|(at, hash)| (hash, at as u64))
            .collect();
        let mut plain = Vec::new();
        append(&[&members], seed, &mut plain);
        assert!(has_signature(&plain));
        let mut table = Vec::new();
        let of = Contents { members: &members, folders: None, directory: b"directory" };
        encode(&of, 1000, sum, &mut table);
        assert!(!has_signature(&table[..members.len() * ENTRY_BYTES]));
        let footer = 1000 + (members.len() * ENTRY_BYTES) as u64;
        let lookup = Lookup::decode(&table[table.len() - 64..], (footer, 0), 9, sum).unwrap();
        assert_eq!((lookup.entries, lookup.offset), (101, 1000));
        assert_eq!(lookup.directory_crc(), sum(b"directory"));
    }

    #[test]
    fn a_footer_of_another_directory_is_none() {
        let mut table = Vec::new();
        let members = [(1, 0), (2, 50)];
        let of = Contents { members: &members, folders: None, directory: b"directory" };
        encode(&of, 0, sum, &mut table);
        let footer = &table[32..];
        assert!(Lookup::decode(footer, (32, 0), 9, sum).is_some());
        assert!(Lookup::decode(footer, (32, 0), 8, sum).is_none());
        assert!(Lookup::decode(footer, (33, 0), 9, sum).is_none());
        assert!(Lookup::decode(footer, (42, 10), 9, sum).is_some());
        assert!(Lookup::decode(&footer[1..], (32, 0), 9, sum).is_none());
        for at in 0..footer.len() * 8 {
            let mut changed = footer.to_vec();
            changed[at / 8] ^= 1 << (at % 8);
            assert!(Lookup::decode(&changed, (32, 0), 9, sum).is_none(), "bit {at}");
        }
    }
}
