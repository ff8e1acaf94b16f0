//! Archives unpacked into directories that nobody is to write: a tar, plain or
//! compressed with gzip or zstd, whoever made it.
//!
//! An archive is read twice: once to count what it takes, so that room can be
//! made, and once to write it. Both times the same checks are made, and an entry
//! that is refused is named. Nothing is ever written outside the directory:
//! folders on the way to an entry are opened one by one, and none of them may be
//! a symbolic link.

mod descent;
mod extract;
mod hook;
mod seal;
mod tar;

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::Duration;

use extract::Folder;
pub use hook::{HOOK, HookError};
pub use seal::remove;
use tar::{Entries, Entry, Kind};

/// Files, folders and links of one archive.
pub const ARCHIVE_ENTRIES_MAX: u64 = 1 << 22;
/// Folders within folders of one archive.
pub const ARCHIVE_DEPTH_MAX: usize = 128;
/// The longest path in an archive.
pub const ARCHIVE_PATH_BYTES_MAX: usize = 4096;
/// What each entry is counted as at least, and a multiple of what it is counted
/// as: a block of most file systems.
pub const BLOCK_BYTES: u64 = 4096;
/// How long the program may run that an archive brings to be run once.
pub const HOOK_MICROS_MAX: u64 = 600_000_000;
/// The part of an archive's bytes by which that program may enlarge it, beside
/// [`HOOK_BYTES_MIN`].
const HOOK_BYTES_PART: u64 = 8;
const HOOK_BYTES_MIN: u64 = 16 << 20;
/// Read from an archive's file at once.
const READ_BYTES: usize = 256 << 10;

/// Why an archive is not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The archive cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[source] io::Error),
    /// It is no archive, or not one that is understood.
    #[error("{0}")]
    Format(&'static str),
    /// It does not end where an archive ends.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// It has an entry that is not unpacked.
    #[error("its entry `{entry}` {why}: pack it without that")]
    Entry {
        /// Which.
        entry: String,
        /// The reason, a verb phrase about the entry.
        why: &'static str,
    },
    /// It takes more room than there is.
    #[error(
        "it takes more than {bytes_max} bytes when it is unpacked (its entry `{entry}` is beyond \
         that), and no more are free for it: give the executor a larger cache"
    )]
    TooLarge {
        /// The bytes that it may take.
        bytes_max: u64,
        /// The first entry beyond them.
        entry: String,
    },
    /// It has too many entries.
    #[error("it has more than {ARCHIVE_ENTRIES_MAX} files and folders")]
    TooMany,
    /// What it brings to be run once did not succeed.
    #[error("its {HOOK} {0}")]
    Hook(#[source] HookError),
    /// What it brings to be run once has made it too large.
    #[error("its {HOOK} made it {bytes} bytes large, and {bytes_max} were reserved for it")]
    HookTooLarge {
        /// What it takes.
        bytes: u64,
        /// What it may take.
        bytes_max: u64,
    },
    /// The directory cannot be written.
    #[error("cannot {doing} {path}: {source}")]
    Write {
        /// What was being done, as a verb phrase.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
}

/// Counts what an archive takes when it is unpacked.
///
/// # Errors
/// [`UnpackError`]; if that is more than `bytes_max`, as soon as it is known.
pub fn measure(archive: &File, bytes_max: u64) -> Result<u64, UnpackError> {
    walk(archive, bytes_max, None)
}

/// Unpacks an archive into `folder`, which is not there yet, lets the program run
/// that it may bring for that, and takes everybody's right to write away. Says
/// how many bytes that takes.
///
/// # Errors
/// [`UnpackError`]; what was made is left there.
pub fn unpack(archive: &File, folder: &Path, bytes_max: u64) -> Result<u64, UnpackError> {
    let mut root = Folder::make(folder)?;
    walk(archive, bytes_max, Some(&mut root))?;
    drop(root);
    hook::run(folder, Duration::from_micros(HOOK_MICROS_MAX)).map_err(UnpackError::Hook)?;
    let bytes = seal::seal(folder)?;
    if bytes > bytes_max {
        return Err(UnpackError::HookTooLarge { bytes, bytes_max });
    }
    Ok(bytes)
}

/// Goes through an archive, and writes it if there is a folder for it.
fn walk(
    archive: &File,
    bytes_max: u64,
    mut folder: Option<&mut Folder>,
) -> Result<u64, UnpackError> {
    let mut entries = Entries::new(open(archive)?, bytes_max);
    let mut count = Count::new(bytes_max);
    let mut has_hook = false;
    while let Some(entry) = entries.next()? {
        count.add(&entry)?;
        has_hook |= entry.path == HOOK.as_bytes();
        match &mut folder {
            Some(folder) => folder.write(&entry, &mut entries)?,
            None => entries.pass(&entry)?,
        }
    }
    // Names and attributes may be longer than what they are of.
    let bytes = count.bytes.max(entries.passed_bytes());
    // As what it runs may write.
    let more = if has_hook { bytes / HOOK_BYTES_PART + HOOK_BYTES_MIN } else { 0 };
    Ok(bytes.saturating_add(more))
}

/// The plain tar in an archive's file.
fn open(archive: &File) -> Result<Box<dyn Read>, UnpackError> {
    let mut file = archive.try_clone().map_err(UnpackError::Read)?;
    file.rewind().map_err(UnpackError::Read)?;
    let mut magic = Vec::new();
    (&file).take(6).read_to_end(&mut magic).map_err(UnpackError::Read)?;
    file.rewind().map_err(UnpackError::Read)?;
    let file = BufReader::with_capacity(READ_BYTES, file);
    match magic[..] {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let plain = zstd::stream::read::Decoder::with_buffer(file);
            let plain = plain.map_err(UnpackError::Read)?;
            Ok(Box::new(BufReader::with_capacity(READ_BYTES, plain)))
        }
        [0x1f, 0x8b, ..] => {
            let plain = flate2::bufread::MultiGzDecoder::new(file);
            Ok(Box::new(BufReader::with_capacity(READ_BYTES, plain)))
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0] => {
            Err(UnpackError::Format("it is compressed with xz: pack it as .tar.zst or .tar.gz"))
        }
        [b'B', b'Z', b'h', ..] => {
            Err(UnpackError::Format("it is compressed with bzip2: pack it as .tar.zst or .tar.gz"))
        }
        [b'P', b'K', 3 | 5, ..] => {
            Err(UnpackError::Format("it is a ZIP file: pack it as .tar.zst or .tar.gz"))
        }
        _ => Ok(Box::new(file)),
    }
}

/// What an archive takes, as far as it has been gone through.
struct Count {
    bytes: u64,
    bytes_max: u64,
    entries: u64,
    /// Folders that have been counted, by a hash of their paths.
    folders: HashSet<u64>,
    hasher: RandomState,
}

impl Count {
    fn new(bytes_max: u64) -> Count {
        // The folder itself.
        let bytes = BLOCK_BYTES;
        let (folders, hasher) = (HashSet::new(), RandomState::new());
        Count { bytes, bytes_max, entries: 0, folders, hasher }
    }

    /// Counts an entry.
    fn add(&mut self, entry: &Entry) -> Result<(), UnpackError> {
        let mut bytes = 0u64;
        let slashes = (0..entry.path.len()).filter(|at| entry.path[*at] == b'/');
        let is_folder = matches!(entry.kind, Kind::Folder);
        let ends = slashes.chain(is_folder.then_some(entry.path.len()));
        for end in ends {
            if self.folders.insert(self.hasher.hash_one(&entry.path[..end])) {
                bytes += BLOCK_BYTES;
                self.entries += 1;
            }
        }
        if !is_folder {
            bytes = bytes.saturating_add(blocks(entry.size()));
            self.entries += 1;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.bytes_max {
            let entry = entry.shown();
            return Err(UnpackError::TooLarge { bytes_max: self.bytes_max, entry });
        }
        if self.entries > ARCHIVE_ENTRIES_MAX {
            return Err(UnpackError::TooMany);
        }
        Ok(())
    }
}

/// What so many bytes of a file take, in whole blocks.
fn blocks(bytes: u64) -> u64 {
    bytes.max(1).div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
}

#[cfg(test)]
mod tests;
