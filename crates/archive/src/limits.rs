//! Every bound of reading and writing archives, by name, with its unit last.

/// A member that is packed as a whole, and the piece of a larger one that is
/// packed at a time. Each packing thread has about four of them in memory.
pub const PIECE_BYTES: usize = 1 << 20;
/// Members that are packed at a time.
pub const BATCH_MEMBERS_MAX: usize = 512;
/// Bytes of a directory that are read at a time.
pub const DIRECTORY_READ_BYTES: usize = 1 << 20;
/// Bytes of a member that are read, or inflated, at a time.
pub const READ_BYTES: usize = 256 << 10;
/// Bytes that are read beyond a member's header and data, for extra fields that other
/// tools put into the header.
pub const HEADER_SLACK_BYTES: usize = 128;
/// Zeros of this length, at multiples of it, take no room in files that members are copied to.
pub const HOLE_BLOCK_BYTES: usize = 4 << 10;
/// Files of one set that are held open; others are opened when they are read.
pub const OPEN_FILES_MAX: usize = 128;
/// Members that a thread takes at a time.
pub const SHARE_MEMBERS: usize = 64;
/// Directories that an extraction holds open.
pub const OPEN_DIRECTORIES_MAX: usize = 64;
/// Bytes of a file that are read to look for a member's header.
pub const SCAN_BYTES: usize = 1 << 20;
/// Bytes that salvage reads in vain, in sizes of the file: headers that were
/// made up could each have it read to the end.
pub const SCAN_FILES_MAX: u64 = 8;
/// What deflate gains at least where a table of codes pays.
pub const CODE_TABLE_BYTES_MIN: usize = 48;
/// The number of threads, unless told otherwise: this many at most.
pub const THREADS_MAX: usize = 64;
/// Room for deflated data beyond nine eighths of the data.
pub const PACKED_SLACK_BYTES: usize = 1 << 10;
/// Files and directories that a file system of archives has.
pub const TREE_NODES_MAX: usize = 1 << 31;
/// Data of members that are held for those who read them piece by piece, and what each piece
/// takes beside them.
pub const VIEW_CACHE_BYTES: usize = 64 << 20;
/// The piece of a member that is read at a time, and the largest member whose CRC is known to
/// be right before any of its data are handed over.
pub const VIEW_PIECE_BYTES: usize = 1 << 20;
/// What a piece takes beside its data, about.
pub const VIEW_ENTRY_BYTES: usize = 192;
/// Deflated members of more than a piece that are read at the same time without beginning
/// again. Each has about 320 KiB in memory.
pub const VIEW_STREAMS_MAX: usize = 64;
/// Members of archives that are shown as a file system before all of their names are read.
pub const EARLY_MEMBERS_MIN: u64 = 2000;
/// Files and directories that are found before that.
pub const EARLY_FOUND_MAX: usize = 1 << 16;
