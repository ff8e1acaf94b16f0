//! Archives on disk. `falkon_core::archive` knows the bytes; this crate reads
//! and writes them: sets of files, members by range, deflate by several threads,
//! files that appear whole or not at all.

mod appear;
mod bytes;
mod check;
mod each;
mod extract;
mod inflow;
mod join;
mod library;
pub mod limits;
mod pack;
mod part;
mod read;
mod regular;
mod salvage;
mod set;
mod sparse;
mod stream;
mod tree;
mod turn;
mod view;
mod write;

pub use bytes::Bytes;
pub use check::{Checked, check};
pub use each::each;
pub use extract::{ExtractError, Extraction, LeftOut};
pub use inflow::{Inflow, InflowError};
pub use join::join;
pub use library::Library;
pub use part::{Members, Part};
pub use read::{MemberFault, ReadError, Scratch};
pub use salvage::{Salvaged, salvage};
pub use set::{Archive, Newest, files_of};
pub use tree::{Counts, ROOT, Shown, Tree};
pub use view::{View, ViewError};
pub use write::{Source, WriteError, WriteOptions, Writer};

/// The CRC-32 of ZIP files.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}
