//! Every bound of archives, by name, with its unit last.

/// The name of a member: a field of two bytes has its length.
pub const NAME_BYTES_MAX: usize = u16::MAX as usize;
/// One record of a directory: its fixed part, a name, extra fields, a comment.
pub const CENTRAL_BYTES_MAX: usize = 46 + 3 * u16::MAX as usize;
/// What precedes a member's data: its fixed part, a name, extra fields.
pub const LOCAL_BYTES_MAX: usize = 30 + 2 * u16::MAX as usize;
/// The end of a file in which its end record is looked for at first. Only a
/// file with a comment has it further from the end.
pub const TAIL_BYTES: usize = 4 << 10;
/// The same, where it is not found: the longest comment and the end records.
pub const WIDE_TAIL_BYTES: usize = 22 + 20 + u16::MAX as usize;
/// Entries of a table that are read at a time. The position of a hash is
/// guessed to within four standard deviations in a table of a million entries.
pub const SEARCH_ENTRIES_MAX: u64 = 4096;
/// Members of one file with the same hash that a search returns; with more of
/// them the directory is read.
pub const SAME_HASH_MEMBERS_MAX: usize = 1024;
/// Members of one file of a set, unless asked for otherwise.
pub const FILE_MEMBERS: u64 = 1_000_000;
/// Most members of one file of a set that may be asked for.
pub const FILE_MEMBERS_MAX: u64 = 1 << 24;
/// Bytes of one file of a set, unless asked for otherwise. A larger member has
/// a file of its own.
pub const FILE_BYTES: u64 = 1 << 40;
/// The directory of one file of a set, which its writer has in memory.
pub const DIRECTORY_BYTES_MAX: usize = 192 << 20;
/// Files of one set.
pub const SET_FILES_MAX: u32 = 1 << 20;
/// Seeds that a writer tries so that no table contains a record's signature.
pub const SEEDS_MAX: u64 = 16;
/// One component of a path on disk.
pub const COMPONENT_BYTES_MAX: usize = 255;
/// A path on disk.
pub const PATH_BYTES_MAX: usize = 4095;
/// A pattern for names.
pub const PATTERN_BYTES_MAX: usize = 4096;
/// Directories for each member of a file, beyond which its lookup table has none.
pub const FOLDERS_PER_MEMBER_MAX: usize = 4;
/// Directories of a file among which those that are noted twice are looked for.
pub const FOLDERS_SORT_MIN: usize = 4096;
