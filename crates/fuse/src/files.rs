//! What a file system shows.

/// The number of the directory that all others are below.
pub const ROOT: u64 = 1;

/// What is known of a file or a directory without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Its number, which it has as long as the file system.
    pub node: u64,
    /// Whether it is a directory; otherwise it is a file.
    pub is_directory: bool,
    /// Its length.
    pub bytes: u64,
    /// When it was modified, in seconds since 1970.
    pub modified: u64,
    /// Its permissions.
    pub permissions: u16,
}

/// An entry of a directory.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Its name: neither empty nor with a slash or a zero byte.
    pub name: &'a [u8],
    /// The attributes of the file or directory.
    pub attributes: Attributes,
}

/// How much there is in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Files and directories.
    pub files: u64,
    /// Bytes of files.
    pub bytes: u64,
}

/// A file could not be read; whoever asked for it gets an input/output error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

/// Files and directories that never change. Any thread may ask, for any number.
pub trait Files: Send + Sync {
    /// What a file or a directory is.
    fn attributes(&self, node: u64) -> Option<Attributes>;

    /// What has this name in a directory.
    fn child(&self, directory: u64, name: &[u8]) -> Option<Attributes>;

    /// The directory that this one is in; the root is in itself.
    fn parent(&self, directory: u64) -> u64;

    /// Hands over the entries of a directory behind the one with this number, or all of them,
    /// as long as `take` returns that there is room for more. Nothing if there is no such
    /// entry.
    fn list(&self, directory: u64, after: Option<u64>, take: &mut dyn FnMut(Entry<'_>) -> bool);

    /// Appends so many bytes of a file from this offset on, or as many as there are.
    ///
    /// # Errors
    /// If they cannot be read. Why not, the file system says by itself.
    fn read(
        &self,
        node: u64,
        offset: u64,
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Unreadable>;

    /// How much there is in all.
    fn totals(&self) -> Totals;
}
