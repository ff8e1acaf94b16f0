//! Writing journal files: creating them, writing at their end, and leaving no half-written tail.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{FILE_HEADER_BYTES, FileKind, Seal, encode_header};

/// Ending of a segment's file name.
const SEGMENT_ENDING: &str = "log";
/// Ending of a finished snapshot's file name.
const SNAPSHOT_ENDING: &str = "snapshot";
/// Ending of a snapshot that is still being written.
const SNAPSHOT_PART_ENDING: &str = "snapshot.part";

/// Greatest number that a file of the journal has; files named beyond it are not the journal's.
const FILE_NUMBER_MAX: u64 = 999_999_999_999;

/// A journal's directory, held open so that renames in it can be synced.
#[derive(Debug)]
pub(super) struct Dir {
    path: PathBuf,
    file: File,
}

/// The kind of a file in the directory, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Entry {
    Segment(u64),
    Snapshot(u64),
    SnapshotPart(u64),
}

impl Dir {
    pub(super) fn open(path: &Path) -> io::Result<Dir> {
        Ok(Dir { path: path.to_owned(), file: File::open(path)? })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the directory's entries on stable storage.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    pub(super) fn entry_path(&self, entry: Entry) -> PathBuf {
        let (number, ending) = match entry {
            Entry::Segment(number) => (number, SEGMENT_ENDING),
            Entry::Snapshot(number) => (number, SNAPSHOT_ENDING),
            Entry::SnapshotPart(number) => (number, SNAPSHOT_PART_ENDING),
        };
        self.path.join(format!("{number:08}.{ending}"))
    }

    /// The journal's files in the directory, in order; what else lies there is left alone.
    pub(super) fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            entries.extend(entry?.file_name().to_str().and_then(parse_name));
        }
        entries.sort_unstable();
        Ok(entries)
    }

    /// Removes a file; that it is gone already is no error.
    pub(super) fn remove(&self, entry: Entry) -> io::Result<()> {
        match std::fs::remove_file(self.entry_path(entry)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn parse_name(name: &str) -> Option<Entry> {
    let (digits, ending) = name.split_once('.')?;
    if digits.len() < 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().ok().filter(|number| (1..=FILE_NUMBER_MAX).contains(number))?;
    match ending {
        SEGMENT_ENDING => Some(Entry::Segment(number)),
        SNAPSHOT_ENDING => Some(Entry::Snapshot(number)),
        SNAPSHOT_PART_ENDING => Some(Entry::SnapshotPart(number)),
        _ => None,
    }
}

/// A journal file that is being written.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) file: Arc<File>,
    pub(super) path: Arc<Path>,
    pub(super) number: u64,
    pub(super) seal: Seal,
    /// Where the next bytes go; what the file holds behind it is not part of the journal.
    pub(super) end: u64,
    /// The file is never made shorter than this.
    kept_bytes: u64,
}

impl Writer {
    /// Creates a file with its header, or makes an empty one of a file that is there.
    pub(super) fn create(dir: &Dir, entry: Entry) -> io::Result<Writer> {
        let (kind, number) = match entry {
            Entry::Segment(number) => (FileKind::Segment, number),
            Entry::Snapshot(number) | Entry::SnapshotPart(number) => (FileKind::Snapshot, number),
        };
        let path = dir.entry_path(entry);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&path)?;
        Writer::begin(file, &path, (kind, number), 0)
    }

    /// Begins a snapshot in a file that has blocks of its own, over whatever it holds, and keeps
    /// the blocks.
    pub(super) fn overwrite(path: &Path, number: u64) -> io::Result<Writer> {
        let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = File::options().read(true).write(true).custom_flags(flags).open(path)?;
        let kept_bytes = file.metadata()?.len();
        Writer::begin(file, path, (FileKind::Snapshot, number), kept_bytes)
    }

    fn begin(
        file: File,
        path: &Path,
        (kind, number): (FileKind, u64),
        kept_bytes: u64,
    ) -> io::Result<Writer> {
        let mut salt = [0; 8];
        getrandom::fill(&mut salt).map_err(io::Error::other)?;
        let (header, seal) = encode_header(kind, number, u64::from_le_bytes(salt));
        file.write_all_at(&header, 0)?;
        let end = FILE_HEADER_BYTES as u64;
        Ok(Writer { file: Arc::new(file), path: path.into(), number, seal, end, kept_bytes })
    }

    /// Goes on with the segment at `path`, whose valid part ends at `end`.
    pub(super) fn resume(path: &Path, number: u64, seal: Seal, end: u64) -> io::Result<Writer> {
        let file = File::options().read(true).write(true).open(path)?;
        // Even if it is as long as that: blocks may be allocated behind its end.
        file.set_len(end)?;
        let (file, path) = (Arc::new(file), path.into());
        Ok(Writer { file, path, number, seal, end, kept_bytes: 0 })
    }

    /// Writes `bytes` at the end, or, if that fails, leaves the file as it was.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all_at(bytes, self.end) {
            // If even this fails, the next write begins at the same place, and a restart takes
            // what stands behind the end for the torn tail that it is.
            let _still_torn = self.file.set_len(self.end.max(self.kept_bytes));
            return Err(error);
        }
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Whether another `bytes` fit into blocks that the file had from the
    /// start.
    pub(super) fn has_blocks_for(&self, bytes: u64) -> bool {
        self.end.saturating_add(bytes) <= self.kept_bytes
    }

    /// Gives back what the file takes beyond the blocks that it had from the start.
    pub(super) fn keep_only(&self) -> io::Result<()> {
        match self.file.metadata()?.len() > self.kept_bytes {
            true => self.file.set_len(self.kept_bytes),
            false => Ok(()),
        }
    }

    /// Bytes that a process without privileges may still write to this file system.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        free_bytes(&self.file)
    }
}

/// Bytes that a process without privileges may still write to a file's file system, if that is
/// known.
pub(crate) fn free_bytes(file: &File) -> Option<u64> {
    let stat = rustix::fs::fstatvfs(file).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}
