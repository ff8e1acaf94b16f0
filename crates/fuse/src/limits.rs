//! Every bound of file systems, by name, with its unit last.

/// What one request reads at most.
pub const READ_BYTES_MAX: u32 = 1 << 20;
/// What the kernel is given room for when it asks: a request that writes nothing.
pub const REQUEST_BYTES: usize = 64 << 10;
/// Entries of directories that one answer has at most, whatever room there is.
pub const LISTING_BYTES_MAX: u32 = 1 << 20;
/// Threads that answer.
pub const THREADS_MAX: usize = 64;
