//! Compaction: a file of records that replaces every segment before it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::SnapshotError;
use super::format::{RECORD_BYTES_MAX, push_record, push_snapshot_end};
use super::lock::Lock;
use super::segment::{Dir, Entry, Writer};

/// Bytes that a snapshot gathers before it writes them.
const SNAPSHOT_BUFFER_BYTES: usize = 1 << 20;

/// The free bytes of a disk about which the system says nothing.
pub const FREE_BYTES_UNKNOWN: u64 = u64::MAX;

/// The files besides the current segment, with their sizes; shared by the
/// journal and the snapshot that is being written.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Sizes of the segments before the current one, by number.
    pub(super) closed: BTreeMap<u64, u64>,
    /// Size of the latest snapshot, 0 without one.
    pub(super) snapshot_bytes: u64,
    /// A snapshot is being written.
    pub(super) running: bool,
}

/// Locks a ledger, which every critical section leaves consistent.
pub(super) fn lock_ledger(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How much a journal takes on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Bytes of the latest snapshot, 0 without one.
    pub snapshot_bytes: u64,
    /// Bytes written since the latest snapshot.
    pub since_snapshot_bytes: u64,
    /// A snapshot is being written now.
    pub snapshot_running: bool,
}

/// The effects of a finished snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotReport {
    /// Records in it.
    pub records: u64,
    /// The size of the snapshot in bytes.
    pub bytes: u64,
    /// Bytes of the files that it replaced.
    pub replaced_bytes: u64,
    /// Replaced files that could not be removed; the next snapshot or restart tries again.
    pub undeleted_files: u64,
}

/// How a snapshot is begun.
#[derive(Debug, Clone, Copy, Default)]
pub struct SnapshotOptions<'a> {
    /// The snapshot fails rather than leave less than this free on the disk,
    /// except for blocks of `reserve` that it fills.
    pub leave_bytes: u64,
    /// A file with blocks of its own, in the journal's directory. The snapshot is written into it,
    /// over whatever it holds, and takes it with it once it has finished. If it does not finish, the
    /// file stays, with all of its blocks.
    pub reserve: Option<&'a Path>,
    /// Appended records cannot be committed for want of room: the snapshot replaces them as well.
    /// Until the snapshot has finished or was dropped, the owner appends and commits nothing; if it
    /// has finished, [`Journal::discard_appended`](super::Journal::discard_appended) is next.
    pub of_appended: bool,
}

/// A snapshot that is being written, in as many steps and on whatever thread suits the owner; the
/// journal takes appends meanwhile. Dropping it gives it up and changes nothing.
#[derive(Debug)]
pub struct Snapshot {
    writer: Writer,
    buffer: Vec<u8>,
    records: u64,
    /// Bytes that it leaves free on the disk.
    leave_bytes: u64,
    /// The snapshot is written into the file of the reserve, which stays if the
    /// snapshot does not finish.
    in_reserve: bool,
    is_in_force: bool,
    dir: Arc<Dir>,
    ledger: Arc<Mutex<Ledger>>,
    /// Keeps other processes out even if the journal is closed first.
    _lock: Arc<Lock>,
}

impl Snapshot {
    /// Begins the snapshot that replaces everything before segment `base`.
    pub(super) fn begin(
        base: u64,
        options: SnapshotOptions<'_>,
        dir: Arc<Dir>,
        ledger: Arc<Mutex<Ledger>>,
        lock: Arc<Lock>,
    ) -> Result<Snapshot, SnapshotError> {
        let entry = Entry::SnapshotPart(base);
        let failed = |doing, path: PathBuf| move |source| SnapshotError::Io { doing, path, source };
        let writer = match options.reserve {
            Some(path) => {
                Writer::overwrite(path, base).map_err(failed("overwrite", path.to_owned()))?
            }
            None => Writer::create(&dir, entry).map_err(failed("create", dir.entry_path(entry)))?,
        };
        lock_ledger(&ledger).running = true;
        Ok(Snapshot {
            writer,
            buffer: Vec::new(),
            records: 0,
            leave_bytes: options.leave_bytes,
            in_reserve: options.reserve.is_some(),
            is_in_force: false,
            dir,
            ledger,
            _lock: lock,
        })
    }

    /// Adds one record, the parts joined. After an error it was not added: try again when the
    /// cause is mended, or drop the snapshot.
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<(), SnapshotError> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if bytes > RECORD_BYTES_MAX {
            return Err(SnapshotError::TooLong { bytes });
        }
        if self.buffer.len() >= SNAPSHOT_BUFFER_BYTES {
            self.flush()?;
        }
        let offset = self.writer.end + self.buffer.len() as u64;
        push_record(&mut self.buffer, self.writer.seal, offset, parts);
        self.records += 1;
        Ok(())
    }

    /// Puts what was added so far on stable storage, so that [`Snapshot::finish`] takes less time.
    pub fn sync(&mut self) -> Result<(), SnapshotError> {
        self.flush()?;
        self.writer.file.sync_all().map_err(|source| self.failed("sync", source))
    }

    /// Puts the snapshot on stable storage and in force, then removes what it replaces. This waits
    /// for the disk; an owner that must not stall calls it on another thread.
    pub fn finish(mut self) -> Result<SnapshotReport, SnapshotError> {
        let offset = self.writer.end + self.buffer.len() as u64;
        push_snapshot_end(&mut self.buffer, self.writer.seal, offset, self.records);
        self.flush()?;
        if self.in_reserve {
            let cut = self.writer.file.set_len(self.writer.end);
            cut.map_err(|source| self.failed("cut off what is behind the end of", source))?;
        }
        self.writer.file.sync_all().map_err(|source| self.failed("sync", source))?;
        let base = self.writer.number;
        let path = self.dir.entry_path(Entry::Snapshot(base));
        std::fs::rename(&self.writer.path, &path)
            .map_err(|source| self.failed("rename", source))?;
        self.is_in_force = true;
        // Until this has succeeded, a crash may leave either name, so both states stay whole.
        self.dir.sync().map_err(|source| self.failed("sync the name of", source))?;
        let replaced_bytes = {
            let mut ledger = lock_ledger(&self.ledger);
            let kept = ledger.closed.split_off(&base);
            let replaced = std::mem::replace(&mut ledger.closed, kept);
            let before = std::mem::replace(&mut ledger.snapshot_bytes, self.writer.end);
            before + replaced.values().sum::<u64>()
        };
        let undeleted_files = remove_before(&self.dir, base);
        let (records, bytes) = (self.records, self.writer.end);
        Ok(SnapshotReport { records, bytes, replaced_bytes, undeleted_files })
    }

    fn flush(&mut self) -> Result<(), SnapshotError> {
        let free_bytes = self.writer.free_bytes().unwrap_or(FREE_BYTES_UNKNOWN);
        let takes_room = !self.writer.has_blocks_for(self.buffer.len() as u64);
        if takes_room && free_bytes < self.leave_bytes {
            let (path, leave_bytes) = (self.writer.path.to_path_buf(), self.leave_bytes);
            return Err(SnapshotError::NoRoom { path, free_bytes, leave_bytes });
        }
        let outcome = self.writer.write(&self.buffer);
        outcome.map_err(|source| self.failed("write", source))?;
        self.buffer.clear();
        Ok(())
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> SnapshotError {
        SnapshotError::Io { doing, path: self.writer.path.to_path_buf(), source }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // A finished snapshot has another name by now; what cannot be removed here is removed when
        // the journal is opened.
        let _left_behind = match (self.in_reserve, self.is_in_force) {
            (true, true) => Ok(()),
            (true, false) => self.writer.keep_only(),
            (false, _) => self.dir.remove(Entry::SnapshotPart(self.writer.number)),
        };
        lock_ledger(&self.ledger).running = false;
    }
}

/// Removes all segments and snapshots before `base`; returns how many are left.
fn remove_before(dir: &Dir, base: u64) -> u64 {
    let Ok(entries) = dir.entries() else { return 1 };
    let replaced = entries.into_iter().filter(|entry| match entry {
        Entry::Segment(number) | Entry::Snapshot(number) => *number < base,
        Entry::SnapshotPart(_) => false,
    });
    replaced.filter(|entry| dir.remove(*entry).is_err()).count() as u64
}
