//! Room on the journal's disk, as a thread of its own measures it, and the
//! ballast: room set aside for records that free room.
//!
//! The ballast is two files beside the journal. One is given up when a commit
//! finds the disk full, and allocated again when there is room. A snapshot is
//! written into the other one: its room is never free, so the log cannot have
//! it. A finished snapshot consumes the file, which is allocated again from the
//! room that the snapshot frees, before the log writes again. The core's part
//! is `falkon_core::dispatch::Disk`.

use crate::journal::{FREE_BYTES_UNKNOWN, free_bytes};
use falkon_core::limits::{BALLAST_BYTES, SNAPSHOT_RESERVE_BYTES};
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The files of the ballast, in the journal's directory: the log's and that for
/// a snapshot.
const BALLAST: &str = "ballast";
const RESERVE: &str = "ballast.snapshot";
/// Bytes of each.
const HALF_BYTES: u64 = BALLAST_BYTES / 2;
/// The reserve takes the room that there is, up to its half, but for this share.
const LOG_SHARE: u64 = 8;
/// The least that is worth taking; a new segment of the log needs no more.
const STEP_BYTES: u64 = 64 << 10;
/// Least time between two measurements, and while room is waited for.
const MEASURE_MS_MIN: u64 = 50;
const WATCHED_MS_MIN: u64 = 20;
/// Time between two measurements while room is waited for.
const WATCH_MS: u64 = 250;
/// Bytes written to the journal after which the disk is measured again.
const WRITTEN_BYTES_MAX: u64 = 256 << 10;
/// Time after which it is with the next bytes: others write there too.
const WRITTEN_MS_MAX: u64 = 100;
/// Bytes of the ballast that are written together where the file system cannot allocate.
const BLOCK_BYTES: usize = 1 << 16;

/// The latest measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) free_bytes: u64,
    /// Bytes of the log's half of the ballast.
    pub(super) log_bytes: u64,
    /// Bytes of a snapshot's half; none while a snapshot uses it.
    pub(super) reserve_bytes: u64,
}

impl Measured {
    /// The bytes that the ballast lacks.
    pub(super) fn missing_bytes(&self) -> u64 {
        BALLAST_BYTES.saturating_sub(self.log_bytes + self.reserve_bytes)
    }
}

/// Measures the disk in a thread of its own, which a disk that hangs may stop.
#[derive(Debug)]
pub(super) struct Gauge(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    dir: File,
    ballast: Mutex<Ballast>,
    /// The bytes of the log as the ballast has them, for threads that must not
    /// wait for it.
    log_bytes: AtomicU64,
    reserve_bytes: AtomicU64,
    free_bytes: AtomicU64,
    /// Held while the log is written, and while a snapshot gives room back and
    /// takes the ballast of it.
    turn: Mutex<()>,
    /// Room is waited for.
    is_watched: AtomicBool,
    asked: Mutex<Asked>,
    ask: Condvar,
    /// A measurement has not been looked at yet.
    is_new: AtomicBool,
    measured: Notify,
}

#[derive(Debug, Default)]
struct Asked {
    now: bool,
    stop: bool,
    written_bytes: u64,
    /// When it was last asked for.
    at: Option<Instant>,
}

#[derive(Debug)]
struct Ballast {
    log: Half,
    /// `None` while a snapshot uses it.
    reserve: Option<Half>,
    /// Where it is.
    reserve_path: PathBuf,
}

/// A file of the ballast.
#[derive(Debug)]
struct Half {
    /// `None` where it could not be opened.
    file: Option<File>,
    bytes: u64,
}

impl Half {
    /// Opens one file of the ballast. Anything else in its place stays as it
    /// is.
    fn open(path: &Path) -> Half {
        // A pipe is not waited for.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        let found = options.open(path).and_then(|file| Ok((file.metadata()?, file))).ok();
        let own = found.filter(|(metadata, _)| metadata.is_file() && metadata.nlink() == 1);
        // A file with holes takes less than its length.
        let bytes = own.as_ref().map_or(0, |(found, _)| found.len().min(512 * found.blocks()));
        let mut half = Half { file: own.map(|(_, file)| file), bytes };
        half.keep(HALF_BYTES);
        half
    }

    /// Gives up all but `bytes`.
    fn keep(&mut self, bytes: u64) {
        if let Some(file) = self.file.as_ref().filter(|_| self.bytes > bytes)
            && file.set_len(bytes).is_ok()
        {
            self.bytes = bytes;
        }
    }

    /// Takes what is missing up to `to`.
    fn fill(&mut self, to: u64) {
        let Some(file) = self.file.as_ref().filter(|_| self.bytes < to) else { return };
        match allocate(file, self.bytes, to) {
            Ok(()) => self.bytes = to,
            Err(_no_room_after_all) => {
                let _ = file.set_len(self.bytes);
            }
        }
    }
}

/// Allocates blocks from `from` to `to`; writes them where the file system knows
/// no other way.
fn allocate(file: &File, from: u64, to: u64) -> io::Result<()> {
    let flags = rustix::fs::FallocateFlags::empty();
    match rustix::fs::fallocate(file, flags, from, to - from) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
        done => return Ok(done?),
    }
    let zeros = vec![0; BLOCK_BYTES];
    let mut at = from;
    while at < to {
        let length = (BLOCK_BYTES as u64).min(to - at);
        file.write_all_at(&zeros[..length as usize], at)?;
        at += length;
    }
    file.sync_data()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn free(&self) -> u64 {
        free_bytes(&self.dir).unwrap_or(FREE_BYTES_UNKNOWN)
    }

    fn measure(&self) {
        let mut ballast = lock(&self.ballast);
        let Ballast { log, reserve, .. } = &mut *ballast;
        if let Some(reserve) = reserve {
            let room = reserve.bytes.saturating_add(self.free());
            let most = HALF_BYTES.min(room - room / LOG_SHARE);
            if most == HALF_BYTES || most >= reserve.bytes + STEP_BYTES {
                reserve.fill(most);
            }
            let missing = HALF_BYTES.saturating_sub(log.bytes);
            if missing > 0 && self.free() >= missing + SNAPSHOT_RESERVE_BYTES {
                log.fill(HALF_BYTES);
            }
        }
        self.publish(&ballast);
        drop(ballast);
        self.is_new.store(true, Ordering::SeqCst);
        self.measured.notify_one();
    }

    fn publish(&self, ballast: &Ballast) {
        let reserve_bytes = ballast.reserve.as_ref().map_or(0, |reserve| reserve.bytes);
        self.log_bytes.store(ballast.log.bytes, Ordering::SeqCst);
        self.reserve_bytes.store(reserve_bytes, Ordering::SeqCst);
        self.free_bytes.store(self.free(), Ordering::SeqCst);
    }

    /// Waits until it is time to measure. Returns whether to go on.
    fn wait(&self) -> bool {
        let mut asked = lock(&self.asked);
        while !asked.now && !asked.stop {
            if !self.is_watched.load(Ordering::SeqCst) {
                asked = self.ask.wait(asked).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let pause = Duration::from_millis(WATCH_MS);
            let (next, timed_out) =
                self.ask.wait_timeout(asked, pause).unwrap_or_else(PoisonError::into_inner);
            asked = next;
            if timed_out.timed_out() {
                break;
            }
        }
        asked.now = false;
        !asked.stop
    }
}

impl Gauge {
    /// Measures the disk that `dir` is on, which is a journal's directory.
    pub(super) fn start(dir: &Path) -> io::Result<Gauge> {
        let reserve_path = dir.join(RESERVE);
        let (log, reserve) = (Half::open(&dir.join(BALLAST)), Half::open(&reserve_path));
        let ballast = Ballast { log, reserve: Some(reserve), reserve_path };
        let shared = Arc::new(Shared {
            dir: File::open(dir)?,
            ballast: Mutex::new(ballast),
            log_bytes: AtomicU64::new(0),
            reserve_bytes: AtomicU64::new(0),
            free_bytes: AtomicU64::new(FREE_BYTES_UNKNOWN),
            turn: Mutex::default(),
            is_watched: AtomicBool::new(false),
            asked: Mutex::default(),
            ask: Condvar::new(),
            is_new: AtomicBool::new(false),
            measured: Notify::new(),
        });
        shared.measure();
        let measures = shared.clone();
        std::thread::Builder::new().name("journal-room".to_owned()).spawn(move || {
            while measures.wait() {
                measures.measure();
                let apart = match measures.is_watched.load(Ordering::SeqCst) {
                    true => WATCHED_MS_MIN,
                    false => MEASURE_MS_MIN,
                };
                std::thread::sleep(Duration::from_millis(apart));
            }
        })?;
        Ok(Gauge(shared))
    }

    /// Waits for the next measurement.
    pub(super) async fn measured(&self) {
        self.0.measured.notified().await;
    }

    /// Whether there is a measurement since this was last asked.
    pub(super) fn is_new(&self) -> bool {
        self.0.is_new.swap(false, Ordering::SeqCst)
    }

    pub(super) fn last(&self) -> Measured {
        Measured {
            free_bytes: self.0.free_bytes.load(Ordering::SeqCst),
            log_bytes: self.0.log_bytes.load(Ordering::SeqCst),
            reserve_bytes: self.0.reserve_bytes.load(Ordering::SeqCst),
        }
    }

    /// Counts bytes that were written: measures the disk when they are many, when the
    /// last measurement is old, or when room is waited for.
    pub(super) fn wrote(&self, bytes: u64) {
        let mut asked = lock(&self.0.asked);
        asked.written_bytes += bytes;
        let recent = Duration::from_millis(WRITTEN_MS_MAX);
        if asked.written_bytes >= WRITTEN_BYTES_MAX
            || self.0.is_watched.load(Ordering::SeqCst)
            || asked.at.is_none_or(|at| at.elapsed() >= recent)
        {
            asked.written_bytes = 0;
            asked.at = Some(Instant::now());
            asked.now = true;
            self.0.ask.notify_one();
        }
    }

    /// Measures the disk again and again, or as things are written.
    pub(super) fn watch(&self, is_watched: bool) {
        if self.0.is_watched.swap(is_watched, Ordering::SeqCst) != is_watched {
            self.ask();
        }
    }

    /// Measures the disk as soon as that may be.
    pub(super) fn ask(&self) {
        lock(&self.0.asked).now = true;
        self.0.ask.notify_one();
    }

    /// The writer of the log holds this lock meanwhile: a snapshot that has just given
    /// room back takes the ballast of it first.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.0.turn)
    }

    /// Gives up the half of the ballast that is for the log, as the disk is full.
    /// Returns whether there was any of it.
    pub(super) fn give_half(&self) -> bool {
        self.ask();
        let mut ballast = lock(&self.0.ballast);
        let had = ballast.log.bytes;
        ballast.log.keep(0);
        self.0.publish(&ballast);
        ballast.log.bytes < had
    }

    /// Lends the half of the ballast that is for a snapshot, if there is one.
    pub(super) fn lend(&self) -> Option<Loan> {
        let mut ballast = lock(&self.0.ballast);
        let mut reserve = ballast.reserve.take_if(|reserve| reserve.file.is_some())?;
        if self.0.free() < STEP_BYTES {
            // The log behind the snapshot begins with a new file.
            reserve.keep(reserve.bytes.saturating_sub(STEP_BYTES));
        }
        self.0.publish(&ballast);
        Some(Loan { shared: self.0.clone(), path: ballast.reserve_path.clone() })
    }
}

/// The half of the ballast that is for a snapshot, while one uses it. It is taken
/// back, and filled as far as there is room, when this is dropped, which is after
/// the snapshot was.
#[derive(Debug)]
pub(super) struct Loan {
    shared: Arc<Shared>,
    path: PathBuf,
}

impl Loan {
    /// The file that the snapshot is to overwrite.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Finishes the snapshot, and takes the ballast of the room that this gives
    /// back: the log has none of it before.
    pub(super) fn end<T>(self, finish: impl FnOnce() -> T) -> T {
        let shared = self.shared.clone();
        let _turn = lock(&shared.turn);
        let done = finish();
        drop(self);
        done
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        lock(&self.shared.ballast).reserve = Some(Half::open(&self.path));
        self.shared.measure();
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        // The thread may hang with the disk, so nothing waits for it.
        lock(&self.0.asked).stop = true;
        self.0.ask.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn whatever_else_has_the_names_of_the_ballast_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        // Longer than half of the ballast, which would be cut off.
        let content = vec![b'x'; HALF_BYTES as usize + 1];
        fs::write(path("precious"), &content).unwrap();
        let mode = rustix::fs::Mode::RWXU;
        for (at, place) in [BALLAST, RESERVE, "pipe", "directory"].into_iter().enumerate() {
            match at {
                0 => std::os::unix::fs::symlink(path("precious"), path(place)).unwrap(),
                1 => fs::hard_link(path("precious"), path(place)).unwrap(),
                2 => rustix::fs::mkfifoat(rustix::fs::CWD, path(place), mode).unwrap(),
                _ => fs::create_dir(path(place)).unwrap(),
            }
            let mut half = Half::open(&path(place));
            half.fill(HALF_BYTES);
            assert!(half.file.is_none() && half.bytes == 0, "{place}");
        }
        assert!(fs::read(path("precious")).unwrap() == content);
        let mut half = Half::open(&path("own"));
        half.fill(HALF_BYTES);
        assert_eq!(half.bytes, HALF_BYTES);
    }
}
