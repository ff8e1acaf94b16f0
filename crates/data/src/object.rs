//! The files that data objects arrive in.

use falkon_core::data::limits::PROGRESS_MICROS;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The progress of an object that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The size of the whole object in bytes, from the source.
    Sized(u64),
    /// The file is about to be written up to this offset, and the source has
    /// not said how large the object is.
    Arriving(u64),
    /// So many bytes were written, from the start and without a gap; told after as many
    /// as was asked for, or after [`PROGRESS_MICROS`].
    Written(u64),
}

/// Takes bytes that arrive.
type Taker = Box<dyn FnMut(&[u8]) -> io::Result<()> + Send>;

enum Target {
    File { file: Arc<File>, at: u64 },
    Taker(Mutex<Taker>),
}

/// The target of one transfer: a place in a file, and the receiver of its
/// progress; or who takes the bytes.
pub struct Landing {
    target: Target,
    written: AtomicU64,
    whole: AtomicU64,
    /// After how many bytes progress is told.
    every: u64,
    begun: Instant,
    /// When progress was told last, in microseconds after that.
    told: AtomicU64,
    tell: Box<dyn Fn(Progress) + Send + Sync>,
}

/// The value for an unknown size: no file is that large.
const UNKNOWN: u64 = u64::MAX;

impl Landing {
    /// A transfer into `file` from the offset `at` on. `tell` is called from
    /// whichever thread does the work and must not block.
    #[must_use]
    pub fn new(
        file: Arc<File>,
        at: u64,
        tell: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Arc<Landing> {
        Landing::telling(file, at, u64::MAX, tell)
    }

    /// The same, whose progress is told after `every` bytes at the latest.
    #[must_use]
    pub fn telling(
        file: Arc<File>,
        at: u64,
        every: u64,
        tell: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Arc<Landing> {
        Landing::of(Target::File { file, at }, every, Box::new(tell))
    }

    /// A transfer whose bytes `take` gets, in their order. `tell` is called as for a file.
    #[must_use]
    pub fn taking(
        take: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
        tell: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Arc<Landing> {
        Landing::of(Target::Taker(Mutex::new(Box::new(take))), u64::MAX, Box::new(tell))
    }

    fn of(target: Target, every: u64, tell: Box<dyn Fn(Progress) + Send + Sync>) -> Arc<Landing> {
        let (written, whole) = (AtomicU64::new(0), AtomicU64::new(UNKNOWN));
        let (begun, told) = (Instant::now(), AtomicU64::new(0));
        Arc::new(Landing { target, written, whole, every, begun, told, tell })
    }

    /// How many bytes were written so far, from the start and without a gap.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// The file that is written.
    ///
    /// # Errors
    /// If it is none.
    pub fn file(&self) -> io::Result<&Arc<File>> {
        match &self.target {
            Target::File { file, .. } => Ok(file),
            Target::Taker(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Where the next byte goes.
    pub fn offset(&self) -> u64 {
        match &self.target {
            Target::File { at, .. } => at + self.written(),
            Target::Taker(_) => self.written(),
        }
    }

    /// Records the whole object's size, from the source.
    pub fn sized(&self, whole: u64) {
        self.whole.store(whole, Ordering::Release);
        (self.tell)(Progress::Sized(whole));
    }

    /// Announces that `bytes` more are about to be written.
    pub fn expect(&self, bytes: u64) {
        if self.whole.load(Ordering::Acquire) == UNKNOWN {
            (self.tell)(Progress::Arriving(self.offset() + bytes));
        }
    }

    /// Writes what came next. One at a time.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.expect(bytes.len() as u64);
        match &self.target {
            Target::File { file, at } => file.write_all_at(bytes, at + self.written())?,
            Target::Taker(take) => (take.lock().unwrap_or_else(PoisonError::into_inner))(bytes)?,
        }
        self.advance(bytes.len() as u64);
        Ok(())
    }

    /// Takes back what was written: it is not what it should be.
    pub fn discard(&self) {
        self.written.store(0, Ordering::Release);
    }

    /// Records that `bytes` more were written by other means.
    pub fn advance(&self, bytes: u64) {
        let before = self.written.fetch_add(bytes, Ordering::AcqRel);
        let micros = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let is_much = before / self.every < (before + bytes) / self.every;
        if is_much || micros - self.told.load(Ordering::Relaxed).min(micros) >= PROGRESS_MICROS {
            self.told.store(micros, Ordering::Relaxed);
            (self.tell)(Progress::Written(before + bytes));
        }
    }
}

impl fmt::Debug for Landing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Landing").field("offset", &self.offset()).finish_non_exhaustive()
    }
}
