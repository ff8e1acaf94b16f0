//! Archives of many small files: sets of ordinary ZIP64 files (PKWARE's
//! APPNOTE 6.3.10), with a table by which a member is found without reading the
//! directory. `docs/archive-format.md` has the bytes.
//!
//! Everything here turns values into bytes and bytes into values. A reader is
//! told which bytes of a file to read next ([`Opening`], [`Search`]) and hands
//! them in; a writer appends the bytes that it is given ([`FileBuilder`]).
//! Nothing here trusts a length, a count or an offset of a file.

mod build;
mod bytes;
mod folders;
pub mod limits;
mod member;
mod names;
mod open;
mod pattern;
mod scan;
mod search;
mod set;
mod table;
mod time;

pub use build::{FileBounds, FileBuilder, Started};
pub use member::{Kind, Local, Member, Method, central, local};
pub use names::{Misplaced, member_start, place, readable, split_member};
pub use open::{Layout, Opening};
pub use pattern::Pattern;
pub use scan::{Candidate, next_candidate};
pub use search::Search;
pub use set::{file_name, machine_number, number_of, unfinished_by, unfinished_name, whole_of};
pub use table::{ENTRY_BYTES, Lookup, TableEntry};

/// The CRC-32 of ZIP files, which the caller computes: processors have
/// instructions for it.
pub type Crc32 = fn(&[u8]) -> u32;

/// Bytes of a file to read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// From where, in the file.
    pub offset: u64,
    /// How many; the file has them.
    pub bytes: usize,
}

/// Why bytes are no archive, or not the part of one that was expected there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// No end-of-central-directory record.
    #[error("there is no ZIP directory at its end: it is no ZIP file, or its end is missing")]
    NoEnd,
    /// Other bytes than the signature of a record.
    #[error("byte {offset}: {what} was expected, and {found:08x} is there")]
    Signature {
        /// Where, in the file.
        offset: u64,
        /// Which record.
        what: &'static str,
        /// The four bytes there, as a little-endian number.
        found: u32,
    },
    /// A record that ends after the part of the file that it must be in.
    #[error("byte {offset}: {what} is cut off")]
    CutOff {
        /// Where, in the file.
        offset: u64,
        /// Which record.
        what: &'static str,
    },
    /// A record that contradicts itself, another one, or the file's length.
    #[error("byte {offset}: {what}")]
    Contradiction {
        /// Where, in the file.
        offset: u64,
        /// What contradicts what.
        what: &'static str,
    },
}
