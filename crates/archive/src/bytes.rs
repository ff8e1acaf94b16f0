//! Where the bytes of a file are read from.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The bytes of a file, wherever it is.
pub trait Bytes: fmt::Debug + Send + Sync {
    /// Fills `bytes` with those that begin at `offset`.
    ///
    /// # Errors
    /// If the file has not got them all, or cannot be read.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Bytes for File {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, offset)
    }
}
