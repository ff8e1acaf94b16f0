//! Room on the journal's disk, as a thread of its own measures it, and the
//! ballast: room set aside for records that free room.
//!
//! The ballast is a file beside the journal. Half of it is given up when a
//! commit finds the disk full, the rest for the snapshot that then gives the
//! room of the journal before it back; it is taken again as soon as there is
//! room. `falkon_core::dispatch::Disk` is what the core makes of it.

use crate::journal::{FREE_BYTES_UNKNOWN, free_bytes};
use falkon_core::limits::{BALLAST_BYTES, SNAPSHOT_RESERVE_BYTES};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The file of the ballast, in the journal's directory.
const BALLAST: &str = "ballast";
/// Least time between two measurements, and while room is waited for.
const MEASURE_MS_MIN: u64 = 50;
const WATCHED_MS_MIN: u64 = 20;
/// Time between two measurements while room is waited for.
const WATCH_MS: u64 = 250;
/// Bytes written to the journal after which the disk is measured anew.
const WRITTEN_BYTES_MAX: u64 = 256 << 10;
/// Time after which it is with the next bytes: others write there too.
const WRITTEN_MS_MAX: u64 = 100;
/// A block of the ballast where the file system cannot allocate.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// The latest measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) free_bytes: u64,
    /// What the ballast has.
    pub(super) ballast_bytes: u64,
}

impl Measured {
    /// What the ballast lacks.
    pub(super) fn missing_bytes(&self) -> u64 {
        BALLAST_BYTES.saturating_sub(self.ballast_bytes)
    }
}

/// Measures the disk in a thread of its own, which a disk that hangs may stop.
#[derive(Debug)]
pub(super) struct Gauge(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    dir: File,
    ballast: Mutex<Ballast>,
    /// As the ballast has it, for those who must not wait for it.
    ballast_bytes: AtomicU64,
    free_bytes: AtomicU64,
    /// The ballast's room is in use: it is not taken again.
    is_lent: AtomicBool,
    /// Room is waited for.
    is_watched: AtomicBool,
    asked: Mutex<Asked>,
    ask: Condvar,
    /// There is a measurement that nobody has looked at.
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
    /// `None` where it could not be opened.
    file: Option<File>,
    bytes: u64,
}

impl Ballast {
    fn open(dir: &Path) -> Ballast {
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(dir.join(BALLAST)).ok();
        let metadata = file.as_ref().and_then(|file| file.metadata().ok());
        // A file with holes takes less than its length.
        let bytes = metadata.map_or(0, |found| found.len().min(512 * found.blocks()));
        Ballast { file, bytes }
    }

    /// Gives up all but `bytes`.
    fn keep(&mut self, bytes: u64) {
        if let Some(file) = self.file.as_ref().filter(|_| self.bytes > bytes)
            && file.set_len(bytes).is_ok()
        {
            self.bytes = bytes;
        }
    }

    /// Takes all that is missing.
    fn fill(&mut self) {
        let Some(file) = &self.file else { return };
        if self.bytes >= BALLAST_BYTES {
            return;
        }
        match allocate(file, self.bytes) {
            Ok(()) => self.bytes = BALLAST_BYTES,
            Err(_no_room_after_all) => {
                let _ = file.set_len(self.bytes);
            }
        }
    }
}

/// Allocates blocks from `from` to the ballast's end; writes them where the
/// file system knows no other way.
fn allocate(file: &File, from: u64) -> io::Result<()> {
    let flags = rustix::fs::FallocateFlags::empty();
    match rustix::fs::fallocate(file, flags, from, BALLAST_BYTES - from) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
        done => return Ok(done?),
    }
    let mut at = from;
    while at < BALLAST_BYTES {
        let length = (ZEROS.len() as u64).min(BALLAST_BYTES - at);
        file.write_all_at(&ZEROS[..length as usize], at)?;
        at += length;
    }
    file.sync_data()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn measure(&self) {
        let free = || free_bytes(&self.dir).unwrap_or(FREE_BYTES_UNKNOWN);
        let mut found = free();
        let mut ballast = lock(&self.ballast);
        let missing = BALLAST_BYTES.saturating_sub(ballast.bytes);
        if missing > 0
            && !self.is_lent.load(Ordering::SeqCst)
            && found >= missing + SNAPSHOT_RESERVE_BYTES
        {
            ballast.fill();
            found = free();
        }
        self.ballast_bytes.store(ballast.bytes, Ordering::SeqCst);
        self.free_bytes.store(found, Ordering::SeqCst);
        drop(ballast);
        self.is_new.store(true, Ordering::SeqCst);
        self.measured.notify_one();
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
        let ballast = Ballast::open(dir);
        let shared = Arc::new(Shared {
            dir: File::open(dir)?,
            ballast_bytes: AtomicU64::new(ballast.bytes),
            ballast: Mutex::new(ballast),
            free_bytes: AtomicU64::new(FREE_BYTES_UNKNOWN),
            is_lent: AtomicBool::new(false),
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
            ballast_bytes: self.0.ballast_bytes.load(Ordering::SeqCst),
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

    /// Gives up the half of the ballast that is for the journal itself, as the
    /// disk is full. Returns whether there was any of it.
    pub(super) fn give_half(&self) -> bool {
        self.0.free_bytes.store(0, Ordering::SeqCst);
        self.ask();
        let half = BALLAST_BYTES / 2;
        let mut ballast = lock(&self.0.ballast);
        let had = ballast.bytes;
        ballast.keep(half);
        self.0.ballast_bytes.store(ballast.bytes, Ordering::SeqCst);
        ballast.bytes < had
    }

    /// Gives the ballast up for a snapshot, until [`Gauge::take_back`].
    pub(super) fn lend(&self) {
        self.0.is_lent.store(true, Ordering::SeqCst);
        let mut ballast = lock(&self.0.ballast);
        ballast.keep(0);
        self.0.ballast_bytes.store(ballast.bytes, Ordering::SeqCst);
    }

    /// The ballast is taken again as soon as there is room.
    pub(super) fn take_back(&self) {
        if self.0.is_lent.swap(false, Ordering::SeqCst) {
            self.ask();
        }
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        // The thread may hang with the disk: nobody waits for it.
        lock(&self.0.asked).stop = true;
        self.0.ask.notify_one();
    }
}
