//! Group commit: a thread that syncs the current segment while something in it is unsynced.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use falkon_core::limits::PAGES_RESERVE_BYTES;

use super::error::SyncError;
use super::snapshot::FREE_BYTES_UNKNOWN;
use super::{Position, SyncListener};

/// Least time from the start of one background sync to the start of the next, in milliseconds.
pub const SYNC_INTERVAL_MS: u64 = 5;

/// Synced bytes after which their copy in memory is given back.
const CACHED_BYTES_MAX: u64 = 1 << 20;

/// A segment beyond the first bound is allocated ahead: as much again as it
/// has, up to the second bound, where the disk has room to spare.
const ALLOCATED_AHEAD_BYTES: [u64; 2] = [1 << 20, 32 << 20];

/// How a file is put on stable storage; tests put a failing one in the place of `fdatasync`.
pub(super) type SyncFile = fn(&File) -> io::Result<()>;

/// The owner's side of the sync thread.
#[derive(Debug)]
pub(super) struct Syncer {
    shared: Arc<Shared>,
    sync_file: SyncFile,
    thread: Option<JoinHandle<()>>,
}

/// A handle by which any thread learns how far the journal is on stable
/// storage.
#[derive(Debug, Clone)]
pub struct SyncWatch {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Held from the start of a sync until its outcome is recorded: the kernel reports a failed
    /// write-back to one sync only, and no other may be counted as a success meanwhile.
    syncing: Mutex<()>,
    /// There may be something for the sync thread to do.
    work: Condvar,
    /// `synced`, `failed` or `ended` changed.
    progress: Condvar,
}

#[derive(Debug)]
struct State {
    file: Arc<File>,
    path: Arc<Path>,
    written: Position,
    synced: Position,
    /// Before this offset of the segment nothing is kept in memory.
    uncached: u64,
    /// Before this offset of the segment blocks are allocated.
    allocated: u64,
    failed: Option<SyncError>,
    /// The sync thread waits for `work` without a time limit.
    idle: bool,
    stop: bool,
    ended: bool,
}

/// The next step of the sync thread.
enum Job {
    Sync { file: Arc<File>, path: Arc<Path>, target: Position },
    Tell(Result<Position, SyncError>),
    End,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent, so a panic elsewhere spoils nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sync(
        &self,
        sync_file: SyncFile,
        file: &File,
        path: &Arc<Path>,
        target: Position,
    ) -> Result<(), SyncError> {
        let _syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = sync_file(file).map_err(|error| SyncError::failed(path, error));
        self.record(target, outcome)?;
        self.give_memory_back(file, target);
        self.allocate_ahead(file, target);
        Ok(())
    }

    /// Has the file system find blocks for what comes next, behind the file's end: a write then
    /// takes a quarter less time, and does not stand behind the search for blocks of the write
    /// before, which is under way at the time of a sync.
    fn allocate_ahead(&self, file: &File, target: Position) {
        let [least, most] = ALLOCATED_AHEAD_BYTES;
        let (offset, end) = {
            let mut state = self.lock();
            let ahead = target.offset.min(most);
            if state.written.segment != target.segment
                || ahead < least
                || state.allocated >= target.offset + ahead / 2
            {
                return;
            }
            let offset = state.allocated.max(target.offset);
            state.allocated = target.offset + ahead;
            (offset, state.allocated)
        };
        let free_bytes = super::segment::free_bytes(file).unwrap_or(FREE_BYTES_UNKNOWN);
        if free_bytes < PAGES_RESERVE_BYTES.saturating_add(end - offset) {
            return;
        }
        // A file system that cannot is asked again at each write anyway.
        let keep_size = rustix::fs::FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(file, keep_size, offset, end - offset);
    }

    /// Drops the kernel's copy of synced blocks, which are not read until a
    /// restart. The next writes then find pages that were in use just now,
    /// which is several times as fast as new ones, and other programs keep
    /// their files in memory.
    fn give_memory_back(&self, file: &File, target: Position) {
        let offset = {
            let mut state = self.lock();
            if state.written.segment != target.segment
                || target.offset < state.uncached + CACHED_BYTES_MAX
            {
                return;
            }
            std::mem::replace(&mut state.uncached, target.offset)
        };
        let length = std::num::NonZeroU64::new(target.offset - offset);
        // The call is advice: nothing is lost on a file system that ignores it.
        let _ = rustix::fs::fadvise(file, offset, length, rustix::fs::Advice::DontNeed);
    }

    fn record(&self, target: Position, outcome: Result<(), SyncError>) -> Result<(), SyncError> {
        let mut state = self.lock();
        let outcome = match (&state.failed, outcome) {
            // A sync that succeeds after one has failed proves nothing: the kernel reports a lost
            // page once and then takes it for clean.
            (Some(failed), _) => Err(failed.clone()),
            (None, Err(error)) => {
                state.failed = Some(error.clone());
                Err(error)
            }
            (None, Ok(())) => {
                state.synced = state.synced.max(target);
                Ok(())
            }
        };
        self.progress.notify_all();
        self.wake(&state);
        outcome
    }

    fn wake(&self, state: &State) {
        if state.idle {
            self.work.notify_one();
        }
    }

    fn next_job(&self, told: &mut Position, due: &mut Option<Instant>) -> Job {
        let mut state = self.lock();
        loop {
            if let Some(error) = &state.failed {
                return Job::Tell(Err(error.clone()));
            }
            if state.synced > *told {
                *told = state.synced;
                return Job::Tell(Ok(state.synced));
            }
            let now = Instant::now();
            let early =
                due.and_then(|due| due.checked_duration_since(now)).filter(|d| !d.is_zero());
            let unsynced = state.written > state.synced;
            state = match (unsynced, early) {
                (true, Some(wait)) if !state.stop => {
                    let (state, _) =
                        self.work.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner);
                    state
                }
                (true, _) => {
                    *due = Some(now + Duration::from_millis(SYNC_INTERVAL_MS));
                    return Job::Sync {
                        file: state.file.clone(),
                        path: state.path.clone(),
                        target: state.written,
                    };
                }
                (false, _) if state.stop => return Job::End,
                (false, _) => {
                    state.idle = true;
                    let mut state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                    state.idle = false;
                    state
                }
            };
        }
    }
}

/// Marks the thread as ended, however it ends, so that no other thread waits
/// for it for ever.
struct EndNote<'a>(&'a Shared);

impl Drop for EndNote<'_> {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.progress.notify_all();
    }
}

fn run(shared: &Shared, sync_file: SyncFile, listener: Option<&SyncListener>) {
    let _end_note = EndNote(shared);
    let mut told = shared.lock().synced;
    let mut due = None;
    loop {
        match shared.next_job(&mut told, &mut due) {
            Job::Sync { file, path, target } => {
                // The next job notifies the listener of the outcome.
                let _told_later = shared.sync(sync_file, &file, &path, target);
            }
            Job::Tell(outcome) => {
                let failed = outcome.is_err();
                if let Some(listener) = listener {
                    listener(outcome);
                }
                if failed {
                    return;
                }
            }
            Job::End => return,
        }
    }
}

impl Syncer {
    /// Starts the thread; everything up to `synced` is on stable storage already.
    pub(super) fn start(
        file: Arc<File>,
        path: Arc<Path>,
        synced: Position,
        sync_file: SyncFile,
        listener: Option<SyncListener>,
    ) -> io::Result<Syncer> {
        let state = State {
            file,
            path,
            written: synced,
            synced,
            uncached: synced.offset,
            allocated: 0,
            failed: None,
            idle: false,
            stop: false,
            ended: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            syncing: Mutex::new(()),
            work: Condvar::new(),
            progress: Condvar::new(),
        });
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("journal-sync".to_owned())
            .spawn(move || run(&theirs, sync_file, listener.as_ref()))?;
        Ok(Syncer { shared, sync_file, thread: Some(thread) })
    }

    /// Fails once any sync has failed.
    pub(super) fn check(&self) -> Result<(), SyncError> {
        let state = self.shared.lock();
        match &state.failed {
            Some(error) => Err(error.clone()),
            None if state.ended => Err(SyncError::Ended),
            None => Ok(()),
        }
    }

    /// Notes that the current segment was written up to `position`.
    pub(super) fn wrote(&self, position: Position) {
        let mut state = self.shared.lock();
        state.written = position;
        self.shared.wake(&state);
    }

    /// Syncs the current segment on the caller's thread.
    pub(super) fn sync_now(&self) -> Result<(), SyncError> {
        let (file, path, target) = {
            let state = self.shared.lock();
            (state.file.clone(), state.path.clone(), state.written)
        };
        self.shared.sync(self.sync_file, &file, &path, target)
    }

    /// Notes the failure of a sync that the owner did itself.
    pub(super) fn poison(&self, error: SyncError) -> SyncError {
        let target = self.shared.lock().synced;
        self.shared.record(target, Err(error.clone())).err().unwrap_or(error)
    }

    /// Goes on with a new segment, which begins at `position`; the one before is synced.
    pub(super) fn switch(&self, file: Arc<File>, path: Arc<Path>, position: Position) {
        let mut state = self.shared.lock();
        state.file = file;
        state.path = path;
        state.written = position;
        state.synced = position;
        state.uncached = 0;
        state.allocated = 0;
        self.shared.progress.notify_all();
        self.shared.wake(&state);
    }

    /// A handle for other threads.
    pub(super) fn watch(&self) -> SyncWatch {
        SyncWatch { shared: self.shared.clone() }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic can only have come from the listener and was reported on its thread.
            let _ended = thread.join();
        }
        let state = self.shared.lock();
        if state.failed.is_none() && state.allocated > 0 {
            // Blocks that were allocated ahead; if they stay behind, they go
            // when the journal is opened.
            let _ = state.file.set_len(state.written.offset);
        }
    }
}

impl SyncWatch {
    /// Everything before this position survives a crash of the machine.
    pub fn synced(&self) -> Position {
        self.shared.lock().synced
    }

    /// Waits until everything before `position`, which a commit returned, is on stable storage.
    pub fn wait(&self, position: Position) -> Result<Position, SyncError> {
        let mut state = self.shared.lock();
        loop {
            if state.synced >= position {
                return Ok(state.synced);
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if state.ended {
                return Err(SyncError::Ended);
            }
            state = self.shared.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
