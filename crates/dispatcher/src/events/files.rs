//! The files of events, as they are written.

use crate::journal::{FREE_BYTES_UNKNOWN, create_dir};
use falkon_core::limits::{EVENT_FILE_BYTES_MAX, EVENTS_LEAVE_BYTES_MIN};
use falkon_core::task::Time;
use falkon_wire::events::BlockWriter;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The directory of events within a dispatcher's, or one of results.
pub const EVENTS_DIRECTORY: &str = "events";
/// Ending of a file of events.
const ENDING: &str = "events";
/// What a file begins with: a name and the version of the format.
pub(super) const FILE_HEAD: [u8; 16] = *b"FLKNEVNT\x01\0\0\0\0\0\0\0";
/// Checksum, length, number of events, times of the first and the last.
pub(super) const BLOCK_HEAD_BYTES: usize = 32;
/// In a block's length: it repeats what earlier files say.
pub(super) const REPEATS: u32 = 1 << 31;

/// Why events cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// The system refused.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The disk has no more room than events leave free.
    #[error(
        "no room for events in {}: {free_bytes} bytes are free, and {EVENTS_LEAVE_BYTES_MIN} are \
         left to others; make room",
        .path.display()
    )]
    NoRoom {
        /// Where.
        path: PathBuf,
        /// Bytes free.
        free_bytes: u64,
    },
    /// There is no thread to write them.
    #[error("cannot start the thread that writes events: {0}")]
    Thread(#[source] io::Error),
}

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> EventsError + 'a {
    move |source| EventsError::Io { doing, path: path.to_owned(), source }
}

pub(super) fn path_of(dir: &Path, file: u64) -> PathBuf {
    dir.join(format!("{file:08}.{ENDING}"))
}

/// The files of events in a directory, by number, and their sizes.
pub(super) fn listed(dir: &Path) -> io::Result<BTreeMap<u64, u64>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(ENDING)?.strip_suffix('.'));
        let Some(number) = number.and_then(|digits| digits.parse::<u64>().ok()) else { continue };
        // A file that is gone by now was removed for room.
        if let Ok(metadata) = entry.metadata() {
            files.insert(number, metadata.len());
        }
    }
    Ok(files)
}

/// The files of one dispatcher.
#[derive(Debug)]
pub(super) struct EventFiles {
    dir: PathBuf,
    bytes_max: u64,
    /// Those that are there, and their sizes.
    files: BTreeMap<u64, u64>,
    /// The file that is written to, and its number.
    current: Option<(File, u64)>,
}

impl EventFiles {
    pub(super) fn open(dir: &Path, bytes_max: u64) -> Result<EventFiles, EventsError> {
        create_dir(dir).map_err(failed("create", dir))?;
        let files = listed(dir).map_err(failed("list", dir))?;
        Ok(EventFiles { dir: dir.to_owned(), bytes_max, files, current: None })
    }

    /// Writes a block. Returns whether the next one begins a file.
    pub(super) fn write(
        &mut self,
        block: &BlockWriter,
        (first, last): (Time, Time),
        repeats: bool,
    ) -> Result<bool, EventsError> {
        let payload = block.bytes();
        // A block is far from 2 GiB.
        let length = payload.len() as u32 | if repeats { REPEATS } else { 0 };
        let mut bytes = Vec::with_capacity(BLOCK_HEAD_BYTES + payload.len());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&length.to_le_bytes());
        for number in [block.events(), first.0, last.0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(payload);
        let sum = crc32fast::hash(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        self.append(&bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<bool, EventsError> {
        let free_bytes = free_bytes(&self.dir);
        if free_bytes < EVENTS_LEAVE_BYTES_MIN.saturating_add(bytes.len() as u64) {
            return Err(EventsError::NoRoom { path: self.dir.clone(), free_bytes });
        }
        let (file, number) = match self.current.take() {
            Some(current) => current,
            None => self.begin()?,
        };
        let end = self.files.get(&number).copied().unwrap_or(0);
        if let Err(source) = file.write_all_at(bytes, end) {
            // The next block overwrites the remains of this one.
            let _ = file.set_len(end);
            let path = path_of(&self.dir, number);
            self.current = Some((file, number));
            return Err(EventsError::Io { doing: "write", path, source });
        }
        let end = end + bytes.len() as u64;
        self.files.insert(number, end);
        self.make_room(number);
        // A file holds a part of what is kept, so that room is made in parts.
        let is_full = end >= EVENT_FILE_BYTES_MAX.min(self.bytes_max / 4);
        self.current = (!is_full).then_some((file, number));
        Ok(is_full)
    }

    fn begin(&mut self) -> Result<(File, u64), EventsError> {
        let number = self.files.last_key_value().map_or(1, |(last, _)| last + 1);
        let path = path_of(&self.dir, number);
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(failed("create", &path))?;
        file.write_all_at(&FILE_HEAD, 0).map_err(failed("write", &path))?;
        self.files.insert(number, FILE_HEAD.len() as u64);
        Ok((file, number))
    }

    /// Removes the oldest files while there are too many bytes.
    fn make_room(&mut self, current: u64) {
        let mut bytes: u64 = self.files.values().sum();
        while bytes > self.bytes_max {
            let oldest = self.files.first_key_value().map(|(number, size)| (*number, *size));
            let Some((oldest, size)) = oldest.filter(|(number, _)| *number < current) else {
                return;
            };
            // One that cannot be removed now is found again by the next start.
            let _ = std::fs::remove_file(path_of(&self.dir, oldest));
            self.files.remove(&oldest);
            bytes -= size;
        }
    }
}

fn free_bytes(dir: &Path) -> u64 {
    let free = rustix::fs::statvfs(dir).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    free.unwrap_or(FREE_BYTES_UNKNOWN)
}
