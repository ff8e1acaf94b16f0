//! The journal: an append-only log of opaque records with checksums, group commit and compaction.
//!
//! The owner appends records and commits them before it acknowledges their
//! effects. A commit is one `write` into the page cache, so committed records
//! survive `kill -9` of the process. A thread syncs behind it, at most once
//! every [`SYNC_INTERVAL_MS`]; an owner that must survive a crash of the
//! machine acknowledges only what is [synced](SyncWatch::synced).
//!
//! A directory holds segments `00000001.log`, `00000002.log`, … and at most one
//! `00000007.snapshot`, which replaces every segment before the one with its number. Opening it
//! returns the journal and a [`Replay`] of what it holds. A torn tail of the last segment is cut
//! off and reported; any other damage is an error, or, with salvage, is skipped and reported.
//!
//! An owner's order: [`Journal::open`], [`Replay::next_record`] until `None`, then any number of
//! [`Journal::append`] and [`Journal::commit`]; from time to time a
//! [`Journal::begin_snapshot`].

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

mod error;
mod format;
mod lock;
mod look;
mod read;
mod recover;
mod replay;
mod segment;
mod snapshot;
mod sync;
#[cfg(test)]
mod tests;

pub use error::{
    AppendError, CommitError, Corruption, OpenError, ReplayError, SnapshotError, SyncError,
};
pub use format::{FORMAT_VERSION, RECORD_BYTES_MAX};
pub use look::look;
pub use read::Flaw;
pub use replay::{Replay, SKIPS_LISTED_MAX, Skip, Skipped, Torn};
pub use snapshot::{DiskUse, FREE_BYTES_UNKNOWN, Snapshot, SnapshotOptions, SnapshotReport};
pub use sync::{SYNC_INTERVAL_MS, SyncWatch};

use format::{
    FILE_HEADER_BYTES, SYNCED_RECORD_BYTES, push_record, push_record_with, push_synced, reseal,
};
use lock::{Lock, LockError};
use recover::{Judgement, Recovered, recover};
pub(crate) use segment::free_bytes;
use segment::{Dir, Entry, Writer};
use snapshot::{Ledger, lock_ledger};
use sync::{SyncFile, Syncer};

/// Size beyond which a segment is followed by a new one, unless [`Options`] say otherwise.
pub const SEGMENT_BYTES_MAX_DEFAULT: u64 = 256 << 20;

/// Most bytes that wait for a commit; a record that does not fit any more is refused.
pub const BUFFER_BYTES_MAX: usize = 64 << 20;

/// Capacity that the buffer keeps after a commit; a rare large batch does not hold memory for ever.
const BUFFER_KEPT_BYTES: usize = 8 << 20;

const _: () = assert!(RECORD_BYTES_MAX * 2 < BUFFER_BYTES_MAX, "any record fits an empty buffer");

/// A place in the journal: everything before it was committed earlier. Later places are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    segment: u64,
    offset: u64,
}

/// Called on the journal's sync thread whenever more is on stable storage, with the position up to
/// which it is, and once if a sync fails. It must not block: no sync happens while it runs.
pub type SyncListener = Box<dyn Fn(Result<Position, SyncError>) + Send>;

/// How a journal is opened.
pub struct Options {
    /// Size in bytes beyond which a segment is followed by a new one.
    pub segment_bytes_max: u64,
    /// Go on behind damage instead of failing; what was skipped is in [`Replay::skipped`].
    pub salvage: bool,
    /// Told of every sync.
    pub on_sync: Option<SyncListener>,
}

impl Default for Options {
    fn default() -> Options {
        Options { segment_bytes_max: SEGMENT_BYTES_MAX_DEFAULT, salvage: false, on_sync: None }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("segment_bytes_max", &self.segment_bytes_max)
            .field("salvage", &self.salvage)
            .finish_non_exhaustive()
    }
}

/// An open journal. Dropping it syncs what was committed; what was only appended is given up.
#[derive(Debug)]
pub struct Journal {
    // The thread ends before the lock is released, so that the next owner finds a quiet file.
    syncer: Syncer,
    writer: Writer,
    /// Appended and not yet committed, sealed for the end of the current segment.
    buffer: Vec<u8>,
    /// How far the current segment says that it is synced.
    noted: Position,
    segment_bytes_max: u64,
    ledger: Arc<Mutex<Ledger>>,
    dir: Arc<Dir>,
    lock: Arc<Lock>,
}

impl Journal {
    /// Opens the journal in `dir`, which is created if need be, and recovers it.
    pub fn open(dir: &Path, options: Options) -> Result<(Journal, Replay), OpenError> {
        Journal::open_syncing(dir, options, File::sync_data)
    }

    fn open_syncing(
        path: &Path,
        options: Options,
        sync_file: SyncFile,
    ) -> Result<(Journal, Replay), OpenError> {
        let failed = |doing| move |source| OpenError::Io { doing, path: path.to_owned(), source };
        create_dir(path).map_err(failed("create"))?;
        let dir = Dir::open(path).map_err(failed("open"))?;
        let lock = Lock::take(path).map_err(|error| match error {
            LockError::Held(pid) => OpenError::Locked { dir: path.to_owned(), pid },
            LockError::Claimed(claimed) => OpenError::Claimed { dir: path.to_owned(), claimed },
            LockError::Io(source) => failed("lock")(source),
        })?;
        let salvage = options.salvage;
        let judgement = Judgement { salvage, machine_restarted: lock.machine_restarted() };
        let Recovered { writer, files, closed, snapshot_bytes, torn } = recover(&dir, judgement)?;
        lock.recovered().map_err(failed("lock"))?;
        let position = Position { segment: writer.number, offset: writer.end };
        let (file, writer_path) = (writer.file.clone(), writer.path.clone());
        let syncer = Syncer::start(file, writer_path, position, sync_file, options.on_sync)
            .map_err(failed("start the sync thread of"))?;
        let journal = Journal {
            syncer,
            writer,
            buffer: Vec::new(),
            noted: position,
            segment_bytes_max: options.segment_bytes_max,
            ledger: Arc::new(Mutex::new(Ledger { closed, snapshot_bytes, running: false })),
            dir: Arc::new(dir),
            lock: Arc::new(lock),
        };
        Ok((journal, Replay::new(files, salvage, torn)))
    }

    /// Takes one record, the parts joined; it counts for nothing until it is committed.
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<(), AppendError> {
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        if bytes > RECORD_BYTES_MAX {
            return Err(AppendError::TooLong { bytes });
        }
        let waiting_bytes = self.buffer.len();
        if waiting_bytes + bytes > BUFFER_BYTES_MAX {
            return Err(AppendError::BufferFull { waiting_bytes });
        }
        let offset = self.writer.end + waiting_bytes as u64;
        push_record(&mut self.buffer, self.writer.seal, offset, parts);
        Ok(())
    }

    /// Appends a record whose body `encode` writes into the journal's own
    /// buffer, without a copy. `encode` must leave the earlier contents of the
    /// buffer alone.
    pub fn append_with(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), AppendError> {
        let waiting_bytes = self.buffer.len();
        let offset = self.writer.end + waiting_bytes as u64;
        push_record_with(&mut self.buffer, self.writer.seal, offset, encode)
            .map_err(|bytes| AppendError::TooLong { bytes })?;
        if self.buffer.len() > BUFFER_BYTES_MAX && waiting_bytes > 0 {
            self.buffer.truncate(waiting_bytes);
            return Err(AppendError::BufferFull { waiting_bytes });
        }
        Ok(())
    }

    /// Bytes appended and not yet committed.
    pub fn waiting_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Writes what was appended, so that it survives the death of this process. After an error
    /// the file is as it was, and what was appended is kept and goes with the next commit.
    pub fn commit(&mut self) -> Result<Position, CommitError> {
        self.syncer.check().map_err(CommitError::Poisoned)?;
        if self.buffer.is_empty() {
            return Ok(self.position());
        }
        let end = self.writer.end + (self.buffer.len() + SYNCED_RECORD_BYTES) as u64;
        if end > self.segment_bytes_max && self.writer.end > FILE_HEADER_BYTES as u64 {
            self.roll_over()?;
        }
        self.note_synced();
        let outcome = self.writer.write(&self.buffer);
        outcome.map_err(|source| self.write_failed(source))?;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT_BYTES);
        self.syncer.wrote(self.position());
        Ok(self.position())
    }

    /// Commits, and waits until everything committed is on stable storage.
    pub fn sync(&mut self) -> Result<Position, CommitError> {
        let position = self.commit()?;
        self.sync_watch().wait(position).map_err(CommitError::Poisoned)
    }

    /// Everything before this position survives a crash of the machine.
    pub fn synced(&self) -> Position {
        self.sync_watch().synced()
    }

    /// A handle by which other threads learn how far the journal is synced.
    pub fn sync_watch(&self) -> SyncWatch {
        self.syncer.watch()
    }

    /// How much the journal takes on disk.
    pub fn disk_use(&self) -> DiskUse {
        let ledger = lock_ledger(&self.ledger);
        let since_snapshot_bytes = ledger.closed.values().sum::<u64>() + self.writer.end;
        DiskUse {
            total_bytes: ledger.snapshot_bytes + since_snapshot_bytes,
            snapshot_bytes: ledger.snapshot_bytes,
            since_snapshot_bytes,
            snapshot_running: ledger.running,
        }
    }

    /// Bytes that may still be written to the journal's disk, if that is known.
    pub fn free_bytes(&self) -> Option<u64> {
        self.writer.free_bytes()
    }

    /// Begins a snapshot: the records appended to it replace everything that was appended to the
    /// journal before this call. What is appended to the journal after this call comes after it.
    /// It fails rather than leave less than `leave_bytes` free on the disk.
    pub fn begin_snapshot(&mut self, leave_bytes: u64) -> Result<Snapshot, SnapshotError> {
        self.begin_snapshot_with(SnapshotOptions { leave_bytes, ..SnapshotOptions::default() })
    }

    /// The same as [`Journal::begin_snapshot`], where there may be little room.
    pub fn begin_snapshot_with(
        &mut self,
        options: SnapshotOptions<'_>,
    ) -> Result<Snapshot, SnapshotError> {
        if lock_ledger(&self.ledger).running {
            return Err(SnapshotError::AlreadyRunning);
        }
        if !options.of_appended {
            self.commit().map_err(SnapshotError::Commit)?;
        }
        if self.writer.end > FILE_HEADER_BYTES as u64 {
            self.roll_over().map_err(SnapshotError::Commit)?;
        }
        let (dir, ledger, lock) = (self.dir.clone(), self.ledger.clone(), self.lock.clone());
        Snapshot::begin(self.writer.number, options, dir, ledger, lock)
    }

    /// Forgets what was appended and not committed.
    pub fn discard_appended(&mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT_BYTES);
    }

    fn position(&self) -> Position {
        Position { segment: self.writer.number, offset: self.writer.end }
    }

    /// Notes in the segment how far it is synced, if that has changed. Later
    /// damage to synced records can then be distinguished from the tail that a
    /// crash of the machine tore.
    fn note_synced(&mut self) {
        let synced = self.syncer.watch().synced();
        if synced.segment == self.writer.number && synced > self.noted {
            let offset = self.writer.end + self.buffer.len() as u64;
            let Position { segment, offset: up_to } = synced;
            push_synced(&mut self.buffer, self.writer.seal, offset, segment, up_to);
            self.noted = synced;
        }
    }

    /// Ends the current segment and begins the next. The old one is on stable storage before the
    /// new one exists, so only the last segment of a journal ever has a torn tail.
    fn roll_over(&mut self) -> Result<(), CommitError> {
        self.syncer.sync_now().map_err(CommitError::Poisoned)?;
        let entry = Entry::Segment(self.writer.number + 1);
        let created =
            Writer::create(&self.dir, entry).and_then(|next| next.file.sync_all().map(|()| next));
        let next = match created {
            Ok(next) => next,
            Err(source) => {
                // An empty segment that stays behind is valid and is written
                // again next time.
                let _left_behind = self.dir.remove(entry);
                return Err(self.write_failed(source));
            }
        };
        if let Err(source) = self.dir.sync() {
            let error = SyncError::failed(&next.path, source);
            return Err(CommitError::Poisoned(self.syncer.poison(error)));
        }
        let old = std::mem::replace(&mut self.writer, next);
        lock_ledger(&self.ledger).closed.insert(old.number, old.end);
        reseal(&mut self.buffer, self.writer.seal, self.writer.end);
        self.noted = self.position();
        self.syncer.switch(self.writer.file.clone(), self.writer.path.clone(), self.noted);
        // Blocks allocated ahead; if they stay behind, they go with the segment.
        let _ = old.file.set_len(old.end);
        Ok(())
    }

    fn write_failed(&self, source: io::Error) -> CommitError {
        let waiting_bytes = self.buffer.len() as u64;
        let free_bytes = self.writer.free_bytes();
        CommitError::from_write(&self.writer.path, waiting_bytes, free_bytes, source)
    }
}

/// Creates a directory, and those above it that are missing, for their owner only, with their names
/// on stable storage. One that is there already may have been created by a process that was killed
/// before it synced the name, so that is synced all the same.
///
/// # Errors
/// A directory cannot be created, or its name not be synced.
pub fn create_dir(path: &Path) -> io::Result<()> {
    let above = match path.parent() {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => return Ok(()),
    };
    if path.is_dir() {
        // The owner may not be allowed to read the folder above, and then has
        // not created it.
        return File::open(above).map_or(Ok(()), |above| sync_names(&above));
    }
    create_dir(above)?;
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !path.is_dir() => Err(error),
        _ => sync_names(&File::open(above)?),
    }
}

/// Puts a directory's entries on stable storage, where its file system can sync directories.
fn sync_names(dir: &File) -> io::Result<()> {
    match dir.sync_all() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}
