//! Directories on the executor's scratch file system for tasks that claim disk space, and the watch
//! that holds tasks to what they have claimed.
//!
//! A thread that owes no heartbeat looks at each directory: the first time after a few
//! milliseconds, then after each eighth of the task's age, and before the task could reach its
//! limit. It looks seldom where a look takes long, unless the file system has lost as much free
//! space as the task may have yet. Other threads take the last look and remove directories.

mod tree;

use super::Log;
use falkon_data::overflow::node_tag;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::mpsc as notices;
use tree::{Remember, Walk};

/// When a directory is looked at for the first time, and how long is between two looks at least.
const LOOK_MIN: Duration = Duration::from_millis(50);
/// How long is between two looks at most, unless they take long.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// After which part of its age a task is looked at again.
const AGE_SHARE: u32 = 8;
/// How many times as long as a look the time until the next one is at least.
const COST_SHARE: u32 = 20;
/// The speed at which a task is expected to fill a disk, in bytes per microsecond.
const GROWTH_BYTES_PER_MICRO: u64 = 2_000;
/// How long one look may take; what it has seen by then counts.
const LOOK_LENGTH_MAX: Duration = Duration::from_secs(10);
/// How long the thread looks at one directory before it turns to others.
const SLICE: Duration = Duration::from_millis(10);
/// How often the free space of the file system is looked at.
const FREE_SPACE_MAX: Duration = Duration::from_millis(250);
/// Threads that remove directories.
const CLEARERS: usize = 2;
/// How often it is tried to remove a directory: a process that is about to end may put another file
/// into it.
const REMOVALS_MAX: usize = 3;
/// How an executor's directory for those of its tasks begins.
const PREFIX: &str = "disk-";
/// The part of what is free that is not offered, and the least of it.
const RESERVE_SHARE: u64 = 20;
const RESERVE_BYTES_MIN: u64 = 1 << 30;
/// Bits of an offer that are not zeros: equal nodes are to offer the same, whatever lies on their
/// disks.
const OFFER_BITS: u32 = 5;

/// Why there is no directory for a task.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScratchError {
    /// It cannot be created.
    #[error(
        "cannot create the scratch directory {path}: {source} (--scratch of the executor says \
         where scratch directories are)",
        path = .path.display()
    )]
    Create {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The system gives the executor no thread to watch it.
    #[error("cannot watch the scratch directory of the task: {0}")]
    Watch(#[source] io::Error),
}

/// What has become of a task's directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The task of this launch has more than it claimed.
    Over { launch: u64, had_bytes: u64 },
    /// The directory of this launch is gone, or cannot be removed.
    Cleared { launch: u64, most_bytes: u64 },
}

/// The directories of an executor's tasks.
pub(super) struct Scratch {
    /// The directory for them, of this executor alone.
    root: PathBuf,
    made: u64,
    working: Option<Working>,
    notices: notices::UnboundedReceiver<Notice>,
    notice: notices::UnboundedSender<Notice>,
    /// Since when directories are being removed.
    clearing: BTreeMap<u64, Instant>,
    /// How long that may take before their tasks end all the same.
    limit: Duration,
    log: Log,
}

/// What there is since the first task has claimed disk space.
struct Working {
    shared: Arc<Shared>,
    clear: mpsc::Sender<Clear>,
    /// The directory for those of tasks, locked as long as this process lives.
    _held: Option<OwnedFd>,
}

/// A directory that is to be removed.
struct Clear {
    launch: u64,
    path: PathBuf,
    /// The most that was seen in it.
    most_bytes: u64,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Default)]
struct State {
    watched: BTreeMap<u64, Watched>,
    is_closing: bool,
}

/// A directory that is watched.
struct Watched {
    path: PathBuf,
    limit_bytes: u64,
    started: Instant,
    due: Instant,
    /// What the last look has seen, and when it ended.
    held_bytes: u64,
    looked: Instant,
    /// How long that look took.
    cost: Duration,
    /// The free space of the file system then.
    free_bytes: u64,
    most_bytes: u64,
    /// The last look saw too much, perhaps as files were renamed meanwhile.
    is_in_doubt: bool,
    /// It was said that there is too much.
    is_over: bool,
    look: Option<Look>,
}

/// A look that is under way.
struct Look {
    walk: Walk,
    spent: Duration,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole whenever it is not locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scratch {
    /// Makes directories in `scratch`. `number` is of this executor alone; `limit` is how long the
    /// end of a task waits for the removal of its directory.
    pub(super) fn new(scratch: &Path, number: u64, limit: Duration, log: Log) -> Scratch {
        let (notice, notices) = notices::unbounded_channel();
        Scratch {
            root: scratch.join(format!("{}{number:016x}", prefix())),
            made: 0,
            working: None,
            notices,
            notice,
            clearing: BTreeMap::new(),
            limit,
            log,
        }
    }

    /// Makes an empty directory for a task and watches it from now on.
    pub(super) fn make(&mut self, launch: u64, limit_bytes: u64) -> Result<PathBuf, ScratchError> {
        if self.working.is_none() {
            self.working = Some(self.begin()?);
        }
        let path = self.root.join(format!("task-{}", self.made));
        self.made += 1;
        let create = || DirBuilder::new().mode(0o700).create(&path);
        let made = create().or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => make_root(&self.root).and_then(|()| create()),
            _ => Err(error),
        });
        made.map_err(|source| ScratchError::Create { path: path.clone(), source })?;
        if let Some(working) = &self.working {
            let watched = Watched::new(path.clone(), limit_bytes, free_bytes(&self.root));
            working.shared.lock().watched.insert(launch, watched);
            working.shared.bell.notify_all();
        }
        Ok(path)
    }

    fn begin(&self) -> Result<Working, ScratchError> {
        let failed = |source| ScratchError::Create { path: self.root.clone(), source };
        make_root(&self.root).map_err(failed)?;
        let shared = Arc::new(Shared::default());
        let (clear, cleared) = mpsc::channel();
        let cleared = Arc::new(Mutex::new(cleared));
        let spawn = |work: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name("falkon-scratch".to_owned());
            thread.spawn(work).map(|_| ()).map_err(ScratchError::Watch)
        };
        let (watching, notice, root) = (shared.clone(), self.notice.clone(), self.root.clone());
        let log = self.log.clone();
        spawn(Box::new(move || watch(&watching, &root, &notice, &log)))?;
        for _ in 0..CLEARERS {
            let (cleared, notice) = (cleared.clone(), self.notice.clone());
            let log = self.log.clone();
            spawn(Box::new(move || clear_all(&cleared, &notice, &log)))?;
        }
        Ok(Working { shared, clear, _held: hold(&self.root) })
    }

    /// A task is over: its directory is removed. [`Notice::Cleared`] follows.
    pub(super) fn end(&mut self, launch: u64) {
        self.clearing.insert(launch, Instant::now());
        self.abandon(launch);
    }

    /// As [`Scratch::end`], for a task whose end waits for nothing.
    pub(super) fn abandon(&mut self, launch: u64) {
        let Some(working) = &self.working else { return };
        let Some(watched) = working.shared.lock().watched.remove(&launch) else { return };
        let (path, most_bytes) = (watched.path, watched.most_bytes);
        // The threads live as long as this.
        let _ = working.clear.send(Clear { launch, path, most_bytes });
    }

    /// Waits for a notice. Cancel safe.
    pub(super) async fn recv(&mut self) -> Notice {
        match self.notices.recv().await {
            Some(notice) => {
                if let Notice::Cleared { launch, .. } = &notice {
                    self.clearing.remove(launch);
                }
                notice
            }
            // This one has a sender itself.
            None => std::future::pending().await,
        }
    }

    /// When to call [`Scratch::overdue`].
    pub(super) fn due(&self) -> Option<Instant> {
        self.clearing.values().min().map(|since| *since + self.limit)
    }

    /// The tasks whose directories could not be removed in time: their ends wait no longer.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<u64> {
        let limit = self.limit;
        let overdue = self.clearing.iter().filter(|(_, since)| **since + limit <= now);
        let overdue: Vec<u64> = overdue.map(|(launch, _)| *launch).collect();
        for launch in &overdue {
            self.clearing.remove(launch);
        }
        overdue
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Some(working) = self.working.take() else { return };
        working.shared.lock().is_closing = true;
        working.shared.bell.notify_all();
        drop(working.clear);
        // What cannot be removed now is removed by the next executor that starts here.
        let _ = remove(&self.root);
    }
}

impl Watched {
    fn new(path: PathBuf, limit_bytes: u64, free_bytes: u64) -> Watched {
        let now = Instant::now();
        Watched {
            path,
            limit_bytes,
            started: now,
            due: now + LOOK_MIN,
            held_bytes: 0,
            looked: now,
            cost: Duration::ZERO,
            free_bytes,
            most_bytes: 0,
            is_in_doubt: false,
            is_over: false,
            look: None,
        }
    }

    /// What the task may have yet, in bytes.
    fn left_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.held_bytes)
    }

    /// A look has ended that saw so much. Returns whether the task has too much for sure.
    fn seen(&mut self, bytes: u64, spent: Duration, free_bytes: u64) -> bool {
        let now = Instant::now();
        if bytes > self.limit_bytes && !self.is_in_doubt {
            self.is_in_doubt = true;
            self.due = now;
            return false;
        }
        self.is_in_doubt = false;
        self.is_over = bytes > self.limit_bytes;
        (self.held_bytes, self.looked, self.cost) = (bytes, now, spent);
        self.free_bytes = free_bytes;
        self.most_bytes = self.most_bytes.max(bytes);
        self.due = now + self.pause(now.saturating_duration_since(self.started));
        self.is_over
    }

    /// How long no look is needed at a task of this age.
    fn pause(&self, age: Duration) -> Duration {
        let growth = Duration::from_micros(self.left_bytes() / GROWTH_BYTES_PER_MICRO);
        let pause = (age / AGE_SHARE).min(growth).clamp(LOOK_MIN, LOOK_MAX);
        pause.max(self.cost.saturating_mul(COST_SHARE))
    }

    /// The free space of the file system is this now. If the task can have filled up what it may
    /// have, it is looked at earlier, but not all the time.
    fn note_free(&mut self, free_bytes: u64) {
        if self.look.is_none() && self.free_bytes.saturating_sub(free_bytes) >= self.left_bytes() {
            let pause = self.cost.saturating_mul(2).max(LOOK_MIN);
            self.due = self.due.min(self.looked + pause);
        }
    }
}

impl Look {
    /// Begins a look. All files are remembered where a first look has seen too much.
    fn begin(path: &Path, is_in_doubt: bool) -> Option<Look> {
        let remember = if is_in_doubt { Remember::All } else { Remember::Linked };
        // A task may have removed its directory.
        let walk = Walk::new(path, remember).ok()?;
        Some(Look { walk, spent: Duration::ZERO })
    }

    /// Goes on for a while; returns whether the look has ended. It ends early if it has seen more
    /// than `enough`.
    fn go_on(&mut self, enough: u64) -> bool {
        let begun = Instant::now();
        loop {
            let goes_on = self.walk.step() && self.walk.bytes() <= enough;
            let now = begun.elapsed();
            if !goes_on || now >= SLICE {
                self.spent += now;
                return !goes_on || self.spent >= LOOK_LENGTH_MAX;
            }
        }
    }
}

/// The life of the thread that looks at directories.
fn watch(shared: &Shared, root: &Path, notice: &notices::UnboundedSender<Notice>, log: &Log) {
    let mut has_complained = false;
    let mut state = shared.lock();
    while !state.is_closing {
        let open = state.watched.iter().filter(|(_, watched)| !watched.is_over);
        let next = open.min_by_key(|(_, watched)| watched.due);
        let Some((launch, due)) = next.map(|(launch, watched)| (*launch, watched.due)) else {
            state = shared.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            state = pause(shared, state, left.min(FREE_SPACE_MAX));
            drop(state);
            let free_bytes = free_bytes(root);
            state = shared.lock();
            state.watched.values_mut().for_each(|watched| watched.note_free(free_bytes));
            continue;
        }
        let Some(watched) = state.watched.get_mut(&launch) else { continue };
        let (look, path) = (watched.look.take(), watched.path.clone());
        let is_in_doubt = watched.is_in_doubt;
        let enough = if is_in_doubt { u64::MAX } else { watched.limit_bytes };
        drop(state);
        let begun = Instant::now();
        let mut look = look.or_else(|| Look::begin(&path, is_in_doubt));
        let has_ended = look.as_mut().is_none_or(|look| look.go_on(enough));
        let (bytes, spent) =
            look.as_ref().map_or((0, Duration::ZERO), |look| (look.walk.bytes(), look.spent));
        let free_bytes = if has_ended { free_bytes(root) } else { 0 };
        if spent >= LOOK_LENGTH_MAX && !std::mem::replace(&mut has_complained, true) {
            log(&format!(
                "{} has too many files to be looked at within {} s: what is seen by then counts",
                path.display(),
                LOOK_LENGTH_MAX.as_secs()
            ));
        }
        let slice = begun.elapsed();
        state = shared.lock();
        let Some(watched) = state.watched.get_mut(&launch) else { continue };
        if !has_ended {
            (watched.look, watched.due) = (look, Instant::now());
        } else if watched.seen(bytes, spent, free_bytes) {
            // An executor that has ended needs none.
            let _ = notice.send(Notice::Over { launch, had_bytes: bytes });
        }
        if !has_ended {
            // At most half of a CPU is used, however many tasks have however many files.
            state = pause(shared, state, slice);
        }
    }
}

fn pause<'a>(
    shared: &'a Shared,
    state: MutexGuard<'a, State>,
    time: Duration,
) -> MutexGuard<'a, State> {
    shared.bell.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
}

/// The life of a thread that removes directories.
fn clear_all(
    cleared: &Mutex<mpsc::Receiver<Clear>>,
    notice: &notices::UnboundedSender<Notice>,
    log: &Log,
) {
    loop {
        let next = cleared.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Clear { launch, path, most_bytes }) = next else { return };
        let last = Look::begin(&path, true).map_or(0, |mut look| {
            while !look.go_on(u64::MAX) {}
            look.walk.bytes()
        });
        if let Err(error) = remove(&path) {
            log(&format!("cannot remove the scratch directory {}: {error}", path.display()));
        }
        let most_bytes = most_bytes.max(last);
        let _ = notice.send(Notice::Cleared { launch, most_bytes });
    }
}

/// Removes a directory with all that is in it, whoever still writes to it for a moment.
fn remove(path: &Path) -> io::Result<()> {
    let mut result = Ok(());
    for _ in 0..REMOVALS_MAX {
        result = falkon_data::unpack::remove(path);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// How the names of directories for those of tasks begin on this node.
fn prefix() -> String {
    format!("{PREFIX}{}-", node_tag())
}

fn make_root(root: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(root) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// Opens and locks a directory; `None` if that is impossible, or another process has locked it.
fn hold(folder: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty()).ok()?;
    flock(&folder, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(folder)
}

/// Removes what executors of this user and node have left in `scratch` that were killed.
fn sweep(scratch: &Path) {
    let us = rustix::process::geteuid().as_raw();
    let prefix = prefix();
    for entry in std::fs::read_dir(scratch).into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_string_lossy().starts_with(&prefix);
        if !is_named || entry.metadata().map_or(true, |found| found.uid() != us) {
            continue;
        }
        let path = entry.path();
        // Where there are no locks, nobody knows whether it is in use.
        if let Some(_held) = hold(&path) {
            let _ = remove(&path);
        }
    }
}

/// The free space of a directory's file system, in bytes; 0 if that is unknown.
fn free_bytes(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
}

/// The disk space that an executor offers, after what executors have left in `scratch` that were
/// killed is removed: `said`, or what is free on the file system of `scratch`, less a reserve.
#[must_use]
pub fn disk_offer(scratch: &Path, said: Option<u64>) -> u64 {
    sweep(scratch);
    if let Some(bytes) = said {
        return bytes;
    }
    let free = free_bytes(scratch);
    coarse(free.saturating_sub(RESERVE_BYTES_MIN.max(free / RESERVE_SHARE)))
}

/// An amount that is at most a sixteenth less.
fn coarse(bytes: u64) -> u64 {
    let bits = u64::BITS - bytes.leading_zeros();
    let shift = bits.saturating_sub(OFFER_BITS);
    bytes >> shift << shift
}

#[cfg(test)]
mod tests;
